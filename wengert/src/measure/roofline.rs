//! The work of a function, and the peak rates of a machine.
//!
//! The peaks are measured by this library on the device itself: a product of squares for
//! arithmetic, and an elementwise loop over arrays that exceed the caches for memory. Both
//! keep their operands on the device. A function whose data stay in a cache can exceed the peak of
//! memory, and so its lower bound, which adds nothing for overlap: it is the greater of the two
//! times.

use super::rounds::{Contender, Limits, repeated};
use crate::device::{Device, DeviceOptions};
use crate::session::Session;
use std::time::Instant;
use wengert_compiler::kernels::cost::Cost;
use wengert_compiler::pipeline::{Bound, Options, compile_kernels};
use wengert_core::graph::{Function, parse_program};
use wengert_core::{Binding, DType, Literal, Result, Scalar, Target};

/// The arithmetic and the memory traffic of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Work {
    /// Scalar operations; a fused multiply-add counts as two.
    pub operations: u64,
    /// Bytes that kernels read and write, each buffer once per kernel.
    pub bytes: u64,
}

impl Work {
    /// The work of a function as it is compiled for a target without a limit of memory. A loop
    /// whose number of steps depends on data counts with its most steps.
    ///
    /// # Errors
    /// The function does not compile.
    pub fn of(function: &Function, binding: &Binding, target: &Target) -> Result<Work> {
        let bound = Bound::new(function, binding)?;
        let kernels = compile_kernels(&bound.function, target, &Options::default())?.kernels;
        let cost: Cost = kernels.kernels.iter().map(|kernel| kernels.cost(kernel)).sum();
        Ok(Work { operations: cost.operations, bytes: cost.read.saturating_add(cost.written) })
    }

    /// The least seconds of this work at these rates: those of the arithmetic or of the memory
    /// traffic, whichever are more.
    pub fn bound(&self, peaks: &Peaks) -> f64 {
        let arithmetic = self.operations as f64 / peaks.operations;
        arithmetic.max(self.bytes as f64 / peaks.bytes)
    }

    /// Whether memory traffic decides the bound.
    pub fn is_bound_by_memory(&self, peaks: &Peaks) -> bool {
        self.bytes as f64 / peaks.bytes > self.operations as f64 / peaks.operations
    }
}

/// Peak rates of a machine, per second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Peaks {
    /// Scalar operations of a product.
    pub operations: f64,
    /// Bytes read and written by an elementwise loop.
    pub bytes: f64,
    /// The dtype of the product's operands.
    pub dtype: DType,
}

/// Extents of the measured arrays.
#[derive(Clone, Copy)]
struct Extents {
    /// Of the square product: large enough for the best rate.
    product: usize,
    /// Of the vector: larger than the caches.
    vector: usize,
}

impl Peaks {
    /// Measures the peaks of a device: on a CPU in about a quarter of a second. The product has
    /// operands of `dtype`. None on the emulator and the interpreter, whose times say nothing about
    /// a machine.
    ///
    /// # Errors
    /// The device is missing or fails, or there is not enough memory.
    pub fn measure(device: Device, options: &DeviceOptions, dtype: DType) -> Result<Option<Peaks>> {
        let extents = match device {
            Device::Cpu => Extents { product: 1024, vector: 1 << 24 },
            Device::Cuda(_) => Extents { product: 4096, vector: 1 << 26 },
            Device::Emulator | Device::Interpreter => return Ok(None),
        };
        let options = DeviceOptions {
            memory_budget: None,
            check_indices: false,
            keep_invariants: false,
            ..options.clone()
        };
        Peaks::of_extents(device, &options, dtype, extents).map(Some)
    }

    fn of_extents(
        device: Device,
        options: &DeviceOptions,
        dtype: DType,
        extents: Extents,
    ) -> Result<Peaks> {
        let Extents { product: n, vector: m } = extents;
        let text = format!(
            "func @product(param %a: {dtype}[{n},{n}], param %b: {dtype}[{n},{n}]) \
             -> (state c: {dtype}[{n},{n}]) {{
  %0: {dtype}[{n},{n}] = dot_general %a, %b {{contract=[[1],[0]]}}
  return %0
}}

func @negate(param %v: f32[{m}]) -> (state w: f32[{m}]) {{
  %0: f32[{m}] = neg %v
  return %0
}}
"
        );
        let program = parse_program(&text, "peaks")?;
        let mut session = Session::open_with(device, options)?;
        let ones = Literal::full(&[n, n], Scalar::one(dtype));
        session.set_variable("a", &ones)?;
        session.set_variable("b", &ones)?;
        session.set_variable("v", &Literal::full(&[m], Scalar::one(DType::F32)))?;
        let mut rate = |name: &str, amount: f64| -> Result<f64> {
            let mut compiled = session.compile(&program, name, Binding::new())?;
            let session = &session;
            let mut contender: Contender<'_> = Box::new(|runs| {
                let began = Instant::now();
                for _ in 0..runs {
                    compiled.run::<Literal>(&[])?;
                }
                session.finish()?;
                Ok(began.elapsed().as_secs_f64())
            });
            let limits =
                Limits { precision: 0.0, seconds: 0.08, warm_up: 0.03, least: 5, sample: 0.0 };
            let samples = repeated(&mut contender, &limits)?;
            // A peak is the best of the samples.
            Ok(amount / samples.into_iter().fold(f64::INFINITY, f64::min))
        };
        let operations = rate("product", 2.0 * (n as f64).powi(3))?;
        let bytes = rate("negate", 8.0 * m as f64)?;
        Ok(Peaks { operations, bytes, dtype })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted_and_bounded() {
        let text = "func @f(%x: f32[B,10], %y: f32[10,5]) -> (f32[B,5]) {
            %0: f32[B,5] = dot_general %x, %y {contract=[[1],[0]]}
            return %0
        }";
        let program = parse_program(text, "f.ir").unwrap();
        let binding = Binding::new().with("B", 6);
        let work = Work::of(&program.functions()[0], &binding, &Target::cpu()).unwrap();
        assert_eq!(work, Work { operations: 2 * 6 * 5 * 10, bytes: 4 * (60 + 50 + 30) });
        let peaks = Peaks { operations: 100.0, bytes: 1000.0, dtype: DType::F32 };
        assert_eq!((work.bound(&peaks), work.is_bound_by_memory(&peaks)), (6.0, false));
        let peaks = Peaks { bytes: 56.0, ..peaks };
        assert_eq!((work.bound(&peaks), work.is_bound_by_memory(&peaks)), (10.0, true));
    }

    /// Rates are positive, and the interpreter has none.
    #[test]
    fn peaks_are_measured_where_there_is_a_machine() {
        let options = DeviceOptions::default();
        let extents = Extents { product: 64, vector: 1 << 12 };
        for dtype in [DType::F32, DType::BF16] {
            let peaks = Peaks::of_extents(Device::Cpu, &options, dtype, extents).unwrap();
            assert!(peaks.operations > 1e3 && peaks.bytes > 1e3, "{peaks:?}");
            assert_eq!(peaks.dtype, dtype);
        }
        assert_eq!(Peaks::measure(Device::Interpreter, &options, DType::F32), Ok(None));
    }
}
