//! Times of a product by the library and by kernels of this crate, each with the nest that follows
//! it, on memory of their own.

use super::operands;
use crate::architecture::Architecture;
use crate::driver::blas::{Alignment, Blas, Form, Measured, Tuning};
use crate::driver::{Address, Device, DeviceError, Function, Memory};
use crate::lowered::{Following, Question};
use crate::ptx::Module;
use crate::stage::{Compiled, Memory as Slot};
use crate::{call, nest};
use wengert_core::Result;
use wengert_core::call::{Call, Contract, Gemm, Matrix};
use wengert_core::nest::Nest;

/// Runs before a measurement, and in it.
const WARM: usize = 2;
const RUNS: usize = 8;

/// Memory for the arguments of a product and of the nest that follows it.
pub(super) struct Arguments {
    memories: Vec<Memory>,
    /// For each argument its memory; arguments that alias have one.
    places: Vec<usize>,
    workspace: Memory,
}

impl Arguments {
    /// Allocates them, and fills them with small numbers.
    pub fn new(
        device: &Device,
        gemm: &Gemm,
        question: &Question,
        following: Option<&Following>,
    ) -> Result<Arguments> {
        let mut sizes = of_call(gemm);
        let mut places: Vec<usize> = (0..sizes.len()).collect();
        if let Some(operand) = question.in_place {
            places[operand] = sizes.len() - 1;
        }
        if let Some(Following { follower, .. }) = following {
            let first = sizes.len();
            let parameters = follower.nest.parameters().map(|(_, buffer)| {
                let elements: usize = buffer.shape.iter().product();
                (elements.max(1) * buffer.dtype.size()) as u64
            });
            sizes.extend(parameters);
            places.extend(first..sizes.len());
            places[first + follower.tile] = first - 1;
            for (operand, out) in &follower.in_place {
                places[first + operand] = first + out;
            }
        }
        let mut memories = Vec::new();
        for bytes in sizes {
            let memory = device.allocate(bytes, "the arguments of a measurement")?;
            // Small numbers in every float dtype.
            device.fill(memory.address(), 0x3c, bytes)?;
            memories.push(memory);
        }
        let workspace = device.allocate(question.workspace, "the workspace of a measurement")?;
        Ok(Arguments { memories, places, workspace })
    }

    fn address(&self, argument: usize) -> Address {
        self.memories[self.places[argument]].address()
    }

    /// Addresses of all arguments.
    pub fn addresses(&self) -> Vec<Address> {
        (0..self.places.len()).map(|n| self.address(n)).collect()
    }

    /// The workspace and its length.
    pub fn workspace(&self) -> (Address, u64) {
        (self.workspace.address(), self.workspace.bytes())
    }
}

/// Bytes of the arguments of a product. The memory of an operand may be larger than its type says:
/// it extends as far as its strides.
fn of_call(gemm: &Gemm) -> Vec<u64> {
    let call = Call::from(gemm.clone());
    let mut types = call.operands();
    types.extend(call.results());
    let reach = |m: &Matrix, rows: usize, columns: usize| {
        let last = (gemm.batch - 1) * m.batch + (rows - 1) * m.row + (columns - 1) * m.column;
        (last as u64 + 1) * gemm.operand.size() as u64
    };
    let size = |(n, ty): (usize, &wengert_core::TensorType)| match n {
        0 => reach(&gemm.lhs, gemm.m, gemm.k),
        1 => reach(&gemm.rhs, gemm.k, gemm.n),
        n if n + 1 == types.len() => {
            (gemm.batch * gemm.m * gemm.out_row() * gemm.result.size()) as u64
        }
        _ => ty.bytes().expect("verified extents fit") as u64,
    };
    types.iter().enumerate().map(size).collect()
}

/// Stages of a nest or call, loaded for a measurement.
struct Loaded {
    stages: Vec<(Function, u32, crate::stage::Stage)>,
}

impl Loaded {
    fn new(device: &Device, compiled: Compiled, architecture: Architecture) -> Result<Loaded> {
        let (mut functions, mut kernels): (Vec<crate::ptx::Function>, Vec<_>) = Default::default();
        for (n, stage) in compiled.stages.iter().enumerate() {
            for function in &stage.functions {
                if functions.iter().all(|known| known.name != function.name) {
                    functions.push(function.clone());
                }
            }
            kernels.push(crate::ptx::Kernel { name: format!("stage_{n}"), ..stage.kernel.clone() });
        }
        let module =
            device.load_module(&Module::new(functions, kernels).to_string(), architecture)?;
        let stages = compiled.stages.into_iter().enumerate().map(|(n, stage)| {
            Ok((module.function(&format!("stage_{n}"))?, stage.kernel.threads, stage))
        });
        Ok(Loaded { stages: stages.collect::<Result<_, DeviceError>>()? })
    }

    /// Launches the stages. `argument` has the address of each argument.
    fn launch(
        &self,
        device: &Device,
        argument: impl Fn(usize) -> Address,
        workspace: Address,
    ) -> Result<(), DeviceError> {
        for (function, threads, stage) in &self.stages {
            let address = |slot: &crate::stage::Slot| match slot.memory {
                Slot::Argument(n) => argument(n).0,
                Slot::Workspace { offset, .. } => workspace.offset(offset).0,
            };
            let addresses: Vec<u64> = stage.arguments.iter().map(address).collect();
            device.launch_verified(
                function,
                stage.grid,
                [*threads, 1, 1],
                stage.dynamic_shared,
                &addresses,
            )?;
        }
        Ok(())
    }
}

/// Microseconds of something that is enqueued.
fn time(device: &Device, mut enqueue: impl FnMut() -> Result<(), DeviceError>) -> Result<f64> {
    let (start, end) = (device.event(true)?, device.event(true)?);
    for _ in 0..WARM {
        enqueue()?;
    }
    start.record()?;
    for _ in 0..RUNS {
        enqueue()?;
    }
    end.record()?;
    end.wait()?;
    Ok(f64::from(end.milliseconds_since(&start)?) * 1e3 / RUNS as f64)
}

/// A product that both can compute.
pub(super) struct Contest<'a> {
    pub device: &'a Device,
    pub blas: &'a Blas,
    pub gemm: &'a Gemm,
    pub form: &'a Form,
    pub question: &'a Question,
    pub following: Option<&'a Following>,
}

impl Contest<'_> {
    /// Measures both. The library's algorithm is that of `tuning`, or else of its heuristic.
    /// None if one of them cannot compute the product.
    ///
    /// Errors: those of the device, such as a lack of memory.
    pub fn run(&self, alignment: &Alignment, tuning: &Tuning) -> Result<Option<Measured>> {
        let Contest { device, blas, gemm, form, question, following } = *self;
        let architecture = super::super::architecture(device)?;
        let Ok(prepared) =
            blas.prepare(form, question.in_place.is_some(), alignment, question.workspace, tuning)?
        else {
            return Ok(None);
        };
        let options = call::Options {
            in_place: question.in_place,
            alignment: following.map_or(question.alignment, |f| f.alignment),
            follower: following.map(|f| &f.follower),
            ..call::Options::default()
        };
        let Ok(own) = call::compile_with(&question.call, architecture, options) else {
            return Ok(None);
        };
        let own = Loaded::new(device, own, architecture)?;
        let arguments = Arguments::new(device, gemm, question, following)?;
        let (addresses, workspace) = (arguments.addresses(), arguments.workspace().0);
        let of_call = gemm.operands().len() + 1;
        let of_product = operands(gemm, &addresses[..of_call]);

        let left = prepared.form().map_or(gemm.addends, |form| form.left);
        let mut after: Vec<(Loaded, Vec<Address>)> = Vec::new();
        if left != Default::default() {
            let (nest, numbers) = crate::lowered::addends(gemm, &left);
            let loaded = self.nest(&nest, &[], architecture)?;
            after.push((loaded, numbers.iter().map(|n| addresses[*n]).collect()));
        }
        if let Some(Following { follower, .. }) = following {
            let loaded = self.nest(&follower.nest, &follower.in_place, architecture)?;
            after.push((loaded, addresses[of_call..].to_vec()));
        }
        let library = time(device, || {
            blas.execute(&prepared, &of_product, workspace)?;
            after
                .iter()
                .try_for_each(|(nest, of_nest)| nest.launch(device, |n| of_nest[n], workspace))
        })?;
        let own = time(device, || own.launch(device, |n| addresses[n], workspace))?;
        tracing::debug!(own, library, product = %form.problem, "measured");
        Ok(Some(Measured { own, library }))
    }

    fn nest(
        &self,
        nest: &Nest,
        in_place: &[(usize, usize)],
        architecture: Architecture,
    ) -> Result<Loaded> {
        let alignment = self.following.map_or(self.question.alignment, |f| f.alignment);
        let options = nest::Options { alignment, ..nest::Options::default() };
        let compiled = nest::compile(nest, architecture, in_place, &options)?;
        Loaded::new(self.device, compiled, architecture)
    }
}
