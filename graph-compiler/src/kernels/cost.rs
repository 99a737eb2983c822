//! Cost of a kernel: its arithmetic and its compulsory memory traffic. The numbers serve reports
//! and estimates; no computed value depends on them.

use super::control::{Control, Form};
use super::{Buffer, Kernel, Kernels, Work};
use wengert_core::Target;
use wengert_core::call::Call;
use wengert_core::nest::{BufferRole, Instr, Nest, Prefix, ScalarOp};
use wengert_core::plan::{Plan, Step};

/// The cost of one run of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// Scalar operations. A fused multiply-add counts as two; moves and conversions count as
    /// none.
    pub operations: u64,
    /// Bytes of the buffers read, each once.
    pub read: u64,
    /// Bytes of the buffers written.
    pub written: u64,
}

impl Cost {
    /// Operations per byte of traffic: the x axis of a roofline.
    pub fn intensity(&self) -> f64 {
        self.operations as f64 / (self.read + self.written).max(1) as f64
    }
}

/// Throughput of a machine per second, in round numbers, for predictions. Measurements are more
/// precise (`graphrun run --profile`).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rates {
    /// Bytes of memory traffic per second.
    pub bytes: f64,
    /// Operations of calls per second.
    pub calls: f64,
    /// Operations of products and convolutions of halves per second.
    pub half_products: f64,
    /// Operations of attention of halves per second.
    pub half_attention: f64,
    /// Operations of nests per second.
    pub nests: f64,
}

impl Cost {
    /// The cost of a step of a plan. Loops and branches cost nothing beside their nested steps.
    pub fn of_step(plan: &Plan, step: &Step) -> Cost {
        let bytes = |value| plan.values[value].bytes();
        match step {
            Step::Nest { nest, arguments } => {
                let nest = &plan.nests[*nest];
                let mut cost = Cost { operations: operations(nest), ..Cost::default() };
                let mut seen = Vec::new();
                for (argument, (_, buffer)) in arguments.iter().zip(nest.parameters()) {
                    match buffer.role {
                        BufferRole::In if seen.contains(&argument.value) => {}
                        BufferRole::In => {
                            seen.push(argument.value);
                            cost.read = cost.read.saturating_add(bytes(argument.value));
                        }
                        _ => cost.written = cost.written.saturating_add(bytes(argument.value)),
                    }
                }
                cost
            }
            Step::Call { call, arguments, .. } => {
                let (operands, results) = call.split(arguments);
                let mut read: Vec<_> = operands.iter().map(|a| a.value).collect();
                read.sort_unstable();
                read.dedup();
                Cost {
                    operations: call.flops(),
                    read: read.into_iter().map(bytes).fold(0, u64::saturating_add),
                    written: results.iter().map(|a| bytes(a.value)).fold(0, u64::saturating_add),
                }
            }
            Step::Copy { value, .. } => {
                Cost { operations: 0, read: bytes(*value), written: bytes(*value) }
            }
            Step::Start { transfer, .. } => Cost {
                operations: 0,
                read: bytes(transfer.operand.value),
                written: bytes(transfer.result.value),
            },
            Step::Wait(_) | Step::Loop(_) | Step::If { .. } | Step::Switch { .. } => {
                Cost::default()
            }
        }
    }
}

impl Rates {
    /// Seconds of a step of a plan at these rates: those of its bytes or of its operations,
    /// whichever are more. Loops and branches take none beside their nested steps.
    pub fn seconds_of_step(&self, plan: &Plan, step: &Step) -> f64 {
        let cost = Cost::of_step(plan, step);
        let rate = match step {
            Step::Call { call, .. } => self.call(call),
            _ => self.nests,
        };
        let bytes = (cost.read as f64 + cost.written as f64) / self.bytes;
        bytes.max(cost.operations as f64 / rate)
    }

    /// Rates of two cores with 512-bit vectors, or of an H200 (products of halves at 700 to 790
    /// TFLOP/s, attention at 217 to 249, elementwise loops at 3.9 to 4.1 TB/s).
    pub fn of(target: &Target) -> Self {
        if *target == Target::cpu() {
            let calls = 180e9;
            let [half_products, half_attention] = [calls; 2];
            return Rates { bytes: 20e9, calls, half_products, half_attention, nests: 20e9 };
        }
        Rates {
            bytes: 4e12,
            calls: 50e12,
            half_products: 750e12,
            half_attention: 230e12,
            nests: 20e12,
        }
    }

    /// Operations of a call per second.
    fn call(&self, call: &Call) -> f64 {
        let of_halves = call.operands().first().is_some_and(|ty| ty.dtype.is_half());
        match call {
            Call::Attention(_) if of_halves => self.half_attention,
            _ if of_halves && call.has_tiles() => self.half_products,
            _ => self.calls,
        }
    }
}

impl std::iter::Sum for Cost {
    fn sum<I: Iterator<Item = Cost>>(costs: I) -> Cost {
        costs.fold(Cost::default(), |sum, cost| Cost {
            operations: sum.operations.saturating_add(cost.operations),
            read: sum.read.saturating_add(cost.read),
            written: sum.written.saturating_add(cost.written),
        })
    }
}

impl Kernels {
    /// Predicted seconds of a kernel of this function: those of its bytes or of its operations,
    /// whichever are more.
    pub fn seconds(&self, kernel: &Kernel, rates: &Rates) -> f64 {
        let cost = self.cost(kernel);
        let operations = cost.operations as f64;
        let seconds = match &kernel.work {
            Work::Call(call) => operations / rates.call(call),
            Work::Followed(followed) => {
                let product = followed.call.flops() as f64;
                product / rates.call(&followed.call) + (operations - product) / rates.nests
            }
            Work::Nest(_) | Work::Control(_) => operations / rates.nests,
        };
        let bytes = (cost.read as f64 + cost.written as f64) / rates.bytes;
        bytes.max(seconds)
    }

    /// The cost of a kernel of this function.
    pub fn cost(&self, kernel: &Kernel) -> Cost {
        let bytes = |id| self.buffers.get(id).and_then(Buffer::bytes).map_or(0, |b| b as u64);
        Cost {
            operations: match &kernel.work {
                Work::Nest(nest) => operations(nest),
                Work::Call(call) => call.flops(),
                Work::Followed(followed) => {
                    followed.call.flops().saturating_add(operations(&followed.follower))
                }
                Work::Control(control) => of_control(control, kernel),
            },
            read: kernel.distinct_reads().map(bytes).fold(0, u64::saturating_add),
            written: kernel.writes.iter().map(|id| bytes(*id)).fold(0, u64::saturating_add),
        }
    }
}

/// A loop costs its step times the maximum number of steps, a branch its most expensive region.
fn of_control(control: &Control, kernel: &Kernel) -> u64 {
    let sum =
        |region: &Kernels| region.kernels.iter().map(|k| region.cost(k)).sum::<Cost>().operations;
    let regions = control.regions.iter().map(sum);
    match control.form(kernel) {
        Form::Branch => regions.max().unwrap_or(0),
        Form::Loop(form) => regions.fold(0, u64::saturating_add).saturating_mul(form.limit),
    }
}

fn operations(nest: &Nest) -> u64 {
    let in_row = nest.phases.iter().map(|phase| {
        let body: u64 = phase.body.iter().map(weight).sum();
        let reductions = phase.reductions.iter().flat_map(|r| &r.combine.body).map(weight);
        (body + reductions.sum::<u64>()).saturating_mul(phase.iterations(nest) as u64)
    });
    in_row.fold(0, u64::saturating_add).saturating_mul(nest.rows() as u64)
}

fn weight(instr: &Instr) -> u64 {
    match instr {
        Instr::Scalar { op: ScalarOp::Convert | ScalarOp::Bitcast | ScalarOp::Select, .. } => 0,
        Instr::Scalar { op: ScalarOp::Fma, .. } => 2,
        Instr::Scalar { .. } => 1,
        Instr::Prefix(Prefix { combine, .. }) => combine.body.iter().map(weight).sum(),
        Instr::Store { total: Some(total), .. } => total.combine.body.iter().map(weight).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{Options, compile_kernels};
    use wengert_core::Target;
    use wengert_core::graph::parse_program;

    #[test]
    fn operations_and_bytes_are_counted() {
        let text = "func @f(%x: f32[6,10], %y: f32[10,5]) -> (f32[6,5], f32[6]) {
            %0: f32[6,5] = dot_general %x, %y {contract=[[1],[0]]}
            %1: f32[6,5] = mul %0, %0
            %2: f32[6] = reduce_sum %1 {axes=[1]}
            return %0, %2
        }";
        let program = parse_program(text, "f.ir").expect("the text is right");
        let compiled =
            compile_kernels(&program.functions()[0], &Target::cpu(), &Options::default());
        let kernels = compiled.expect("it compiles").kernels;
        let costs: Vec<Cost> = kernels.kernels.iter().map(|k| kernels.cost(k)).collect();
        assert_eq!(
            costs[0],
            Cost { operations: 2 * 6 * 5 * 10, read: 4 * (60 + 50), written: 4 * 30 }
        );
        // A multiplication and an addition per element.
        assert_eq!(costs[1], Cost { operations: 2 * 30, read: 4 * 30, written: 4 * 6 });
        let calls = 100.0;
        let [half_products, half_attention] = [calls; 2];
        let rates = Rates { bytes: 1e3, calls, half_products, half_attention, nests: 1e3 };
        let seconds: Vec<f64> =
            kernels.kernels.iter().map(|k| kernels.seconds(k, &rates)).collect();
        assert_eq!(seconds, [6.0, 0.144], "operations of the product, bytes of the sum");
        let total: Cost = costs.into_iter().sum();
        assert_eq!(total.intensity(), 660.0 / 704.0);
    }

    /// Products of halves have their own rate on GPUs.
    #[test]
    fn products_of_halves_are_predicted_to_be_faster() {
        let seconds = |dtype: &str| {
            let text = format!(
                "func @f(%x: {dtype}[4096,4096], %y: {dtype}[4096,4096]) -> ({dtype}[4096,4096]) {{
                %0: {dtype}[4096,4096] = dot_general %x, %y {{contract=[[1],[0]]}}
                return %0
            }}"
            );
            let program = parse_program(&text, "f.ir").expect("the text is right");
            let target = Target { name: "sm_90".into(), ..Target::cpu() };
            let compiled = compile_kernels(&program.functions()[0], &target, &Options::default());
            let kernels = compiled.expect("it compiles").kernels;
            kernels.seconds(&kernels.kernels[0], &Rates::of(&target))
        };
        assert!(seconds("f32") > 10.0 * seconds("bf16"));
    }
}
