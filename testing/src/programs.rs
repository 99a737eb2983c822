//! Random programs, for tests of all code that takes a program.
//!
//! Most equations are samples of the catalogue. Their operands are values that have the wanted
//! type, or new inputs and constants. Other equations are ops of the catalogue tried on any values,
//! and kept if `infer` accepts them; so dimension variables occur too. The same seed gives the same
//! program.

use crate::Random;
use crate::samples::{self, Sample};
use std::collections::BTreeSet;
use wengert_core::graph::{
    Body, Equation, Function, Input, InputRole, Output, OutputRole, Program, ValueId,
    verify_program,
};
use wengert_core::{
    DType, Dim, Id, Literal, Location, LocationId, LocationTable, Mesh, Op, TensorType,
};

/// A valid program of one to three functions with about `size` equations each.
pub fn random_program(seed: u64, size: usize) -> Program {
    let mut random = Random(seed);
    let samples: Vec<Sample> = samples::catalogue().into_iter().flat_map(|e| e.samples).collect();
    let functions =
        (0..1 + random.below(3)).map(|i| function(&mut random, i, size, &samples)).collect();
    let program = Program::from_functions(functions).expect("names differ");
    verify_program(&program).expect("equations were inferred");
    program
}

struct Builder<'r> {
    random: &'r mut Random,
    body: Body,
    inputs: Vec<Input>,
    locations: LocationTable,
}

fn function(random: &mut Random, index: usize, size: usize, samples: &[Sample]) -> Function {
    let mut builder = Builder {
        random,
        body: Body::default(),
        inputs: vec![],
        locations: LocationTable::default(),
    };
    for variables in ["B", "T"] {
        if builder.random.below(2) == 0 {
            let dims = [
                Dim::variable(variables),
                Dim::linear(1, [(variables.into(), 2)]).expect("no overflow"),
                3i64.into(),
            ];
            let rank = builder.random.below(3);
            let shape: Vec<Dim> = (0..rank).map(|_| builder.random.pick(&dims).clone()).collect();
            builder.input(TensorType::new(DType::F32, shape));
        }
    }
    while builder.body.equations.len() < size {
        let sample = builder.random.pick(samples);
        if builder.random.below(3) == 0 {
            builder.try_any(&sample.op)
        } else {
            builder.sample(sample)
        }
    }
    builder.finish(format!("f{index}"))
}

impl Builder<'_> {
    fn location(&mut self) -> LocationId {
        let location = match self.random.below(4) {
            0 => Location::Unknown,
            1 => Location::Derived {
                of: LocationId(self.random.below(self.locations.len()) as u32),
                rule: format!("rule {} \"quoted\" \\", self.random.below(9)).into(),
            },
            _ => Location::source(
                *self.random.pick(&["src/main.rs", "größe.rs", "a\nb"]),
                self.random.bits() as u32 % 999,
                3,
            ),
        };
        self.locations.intern(location)
    }

    fn input(&mut self, ty: TensorType) -> ValueId {
        let role = match self.random.below(5) {
            _ if ty == TensorType::new(DType::U32, [2usize]) => InputRole::Key,
            0 => InputRole::Param,
            1 => InputRole::State,
            _ => InputRole::Input,
        };
        let location = self.location();
        let n = self.inputs.len();
        let name = self.random.pick(&["x", "layers.0.w", "state", "f32", "_", "loc"]).to_string();
        self.inputs.push(Input { name: format!("{name}{n}"), role, location });
        let value = self.body.values.push(ty);
        self.body.inputs.push(value);
        value
    }

    fn sample(&mut self, sample: &Sample) {
        let dtype = *self.random.pick(&[DType::F32, DType::F64, DType::F16, DType::BF16]);
        let seed = self.random.bits();
        let literals = sample.literals(dtype, seed);
        let types: Vec<TensorType> = literals.iter().map(Literal::ty).collect();
        if *sample.op.region_count().end() > 0 || sample.infer(&types).is_err() {
            return;
        }
        let operands = types
            .into_iter()
            .zip(literals)
            .map(|(ty, literal)| {
                let same: Vec<ValueId> =
                    self.body.values.iter().filter(|(_, t)| **t == ty).map(|(v, _)| v).collect();
                if !same.is_empty() && self.random.below(4) > 0 {
                    *self.random.pick(&same)
                } else if self.random.below(2) == 0 {
                    self.input(ty)
                } else {
                    self.equation(wengert_core::op::Constant { value: literal }.into(), vec![])[0]
                }
            })
            .collect();
        self.equation(sample.op.clone(), operands);
    }

    fn try_any(&mut self, op: &Op) {
        let values: Vec<ValueId> = self.body.values.ids().collect();
        if values.is_empty() || *op.region_count().end() > 0 {
            return;
        }
        for _ in 0..20 {
            let operands: Vec<ValueId> =
                (0..self.random.below(4)).map(|_| *self.random.pick(&values)).collect();
            if op.infer(&self.body.types(&operands), &[]).is_ok() {
                self.equation(op.clone(), operands);
                return;
            }
        }
    }

    fn equation(&mut self, op: Op, operands: Vec<ValueId>) -> Vec<ValueId> {
        let types = op.infer(&self.body.types(&operands), &[]).expect("the caller has inferred it");
        let results: Vec<ValueId> = types.into_iter().map(|ty| self.body.values.push(ty)).collect();
        let location = self.location();
        let equation =
            Equation { op, operands, results: results.clone(), regions: vec![], location };
        self.body.equations.push(equation);
        results
    }

    fn finish(mut self, name: String) -> Function {
        let numbered = self.random.below(2) == 0;
        let values: Vec<ValueId> = self.body.values.ids().collect();
        let mut outputs = Vec::new();
        let count = if values.is_empty() { 0 } else { self.random.below(4) };
        for i in 0..count {
            let name = match (numbered, self.random.below(4)) {
                (true, _) => i.to_string(),
                (false, 0) => format!("{}", i + 10),
                (false, _) => format!("state.{i}"),
            };
            outputs.push(Output { name, role: OutputRole::Output });
            self.body.outputs.push(*self.random.pick(&values));
        }
        for (input, value) in self.inputs.iter().zip(&self.body.inputs) {
            if input.role == InputRole::State {
                outputs.push(Output { name: input.name.clone(), role: OutputRole::State });
                let ty = &self.body.values[*value];
                let same: Vec<ValueId> =
                    values.iter().copied().filter(|v| self.body.values[*v] == *ty).collect();
                self.body.outputs.push(*self.random.pick(&same));
            }
        }
        if count > 2 {
            outputs.push(Output { name: "new.variable".into(), role: OutputRole::State });
            self.body.outputs.push(*self.random.pick(&values));
        }
        let names: BTreeSet<_> = self.inputs.iter().map(|i| &i.name).collect();
        assert_eq!(names.len(), self.inputs.len());
        let (inputs, body, locations) = (self.inputs, self.body, self.locations);
        let mesh = Mesh::default();
        Function { name, mesh, inputs, outputs, body, locations }.renumber()
    }
}

/// The same program without locations.
pub fn without_locations(program: &Program) -> Program {
    let functions = program.functions().iter().cloned().map(|mut f| {
        f.locations = LocationTable::default();
        f.inputs.iter_mut().for_each(|i| i.location = LocationId(0));
        f.body.equations.iter_mut().for_each(|e| e.location = LocationId(0));
        f
    });
    Program::from_functions(functions.collect()).expect("names are the same")
}

/// The id of value number `index`.
pub fn value(index: usize) -> ValueId {
    ValueId::new(index)
}
