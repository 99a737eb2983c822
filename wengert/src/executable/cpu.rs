//! Plans on the CPU, with literals as their memory.
//!
//! Inputs are read where they lie, and variables are written where they lie (copied first only if someone else still holds the literal), so that a
//! training step moves no parameter. Outputs are new.

use crate::data::Arrays;
use std::sync::{Mutex, PoisonError};
use wengert_core::plan::Plan;
use wengert_core::{DType, Literal, Result, Scalar};
use wengert_cpu::{Buffer, Executable, Memory};

/// A plan on the CPU.
#[derive(Debug)]
pub(super) struct CpuRunner(Mutex<Executable>);

impl CpuRunner {
    /// Makes a plan ready.
    pub(super) fn new(plan: &Plan) -> Result<Self> {
        Ok(CpuRunner(Mutex::new(Executable::new(plan)?)))
    }

    /// Runs it on inputs in the plan's order and the session's variables.
    ///
    /// A variable that the plan replaces is taken out of `variables` while it runs; if a kernel fails then (a bug), those variables are
    /// gone rather than half written.
    pub(super) fn run(&self, given: &[Literal], variables: &mut Arrays) -> Result<Vec<Literal>> {
        // A panic of a kernel leaves nothing in the executable that the next run relies on.
        let mut executable = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = executable.plan();
        let mut outputs: Vec<Host> = plan
            .outputs
            .iter()
            .map(|o| Host::zeros(plan.values[o.value].dtype, &plan.values[o.value].shape))
            .collect();
        let shapes: Vec<Vec<usize>> = plan.outputs.iter().map(|o| o.shape.clone()).collect();
        let names: Vec<(String, bool)> =
            plan.variables.iter().map(|v| (v.name.clone(), v.before != Some(v.after))).collect();
        let mut held: Vec<Held> = plan
            .variables
            .iter()
            .map(|v| match v.before {
                Some(before) if before == v.after => Held::Read(variables[&v.name].clone()),
                Some(_) => Held::Written(Host::new(
                    variables.remove(&v.name).expect("the session has checked that the variable is there"),
                )),
                None => Held::Written(Host::zeros(v.dtype, &v.shape)),
            })
            .collect();
        {
            let inputs: Vec<Buffer<'_>> = given.iter().map(reading).collect();
            let outputs: Vec<Buffer<'_>> = outputs.iter_mut().map(Host::writing).collect();
            let variables: Vec<Buffer<'_>> = held.iter_mut().map(Held::buffer).collect();
            executable.run(Memory { inputs: &inputs, outputs: &outputs, variables: &variables })?;
        }
        for ((name, written), held) in names.into_iter().zip(held) {
            if let (true, Held::Written(host)) = (written, held) {
                variables.insert(name, host.into_literal()?);
            }
        }
        outputs.into_iter().zip(shapes).map(|(host, shape)| host.into_literal()?.reshape(&shape)).collect()
    }
}

/// A variable during a run.
enum Held {
    Read(Literal),
    Written(Host),
}

impl Held {
    fn buffer(&mut self) -> Buffer<'_> {
        match self {
            Held::Read(literal) => reading(literal),
            Held::Written(host) => host.writing(),
        }
    }
}

/// Memory that a run writes. Not every byte is a `bool`, so those are checked when they are done.
enum Host {
    Literal(Literal),
    Bools(Vec<usize>, Vec<u8>),
}

impl Host {
    fn new(literal: Literal) -> Self {
        match literal.dtype() {
            DType::Bool => Host::Bools(literal.shape().to_vec(), literal.to_bytes()),
            _ => Host::Literal(literal),
        }
    }

    fn zeros(dtype: DType, shape: &[usize]) -> Self {
        match dtype {
            DType::Bool => Host::Bools(shape.to_vec(), vec![0; shape.iter().product()]),
            _ => Host::Literal(Literal::full(shape, Scalar::zero(dtype))),
        }
    }

    fn writing(&mut self) -> Buffer<'_> {
        macro_rules! writing {
            ($array:expr) => {
                Buffer::writing($array.as_slice_mut().expect("literals are in standard layout"))
            };
        }
        match self {
            Host::Bools(_, bytes) => Buffer::writing(bytes.as_mut_slice()),
            Host::Literal(literal) => match literal {
                Literal::U8(a) => writing!(a),
                Literal::I8(a) => writing!(a),
                Literal::I32(a) => writing!(a),
                Literal::I64(a) => writing!(a),
                Literal::U32(a) => writing!(a),
                Literal::U64(a) => writing!(a),
                Literal::F16(a) => writing!(a),
                Literal::BF16(a) => writing!(a),
                Literal::F32(a) => writing!(a),
                Literal::F64(a) => writing!(a),
                Literal::Bool(_) => unreachable!("bools are kept as bytes"),
            },
        }
    }

    fn into_literal(self) -> Result<Literal> {
        match self {
            Host::Literal(literal) => Ok(literal),
            Host::Bools(shape, bytes) => Literal::from_bytes(DType::Bool, &shape, &bytes),
        }
    }
}

/// A literal to read from.
fn reading(literal: &Literal) -> Buffer<'_> {
    wengert_core::with_native!(literal.dtype(), T => {
        Buffer::reading(literal.as_slice::<T>().expect("the dtype is its own"))
    })
}
