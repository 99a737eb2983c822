//! The bytes of a training step's state on a rank, from the types of its function.
//!
//! The formula of ZeRO (Rajbhandari and others, *ZeRO: Memory Optimizations Toward Training
//! Trillion Parameter Models*, 2020) has, for P parameters in f32 with AdamW on N ranks, 4P bytes
//! of parameters, 8P of states and 4P of gradients; stage 1 divides the states by N, stage 2 the
//! gradients too, stage 3 the parameters too. Here the bytes are those that the function has:
//! variables that [`Shards`](wengert_compiler::ranks::Shards) leaves whole count in full.

use wengert_compiler::ranks::parameters;
use wengert_core::graph::{Function, InputRole};
use wengert_core::op::collective::PReduceKind;
use wengert_core::{Op, TensorType};

/// Bytes on a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct State {
    /// Variables from which the values of examples are computed.
    pub parameters: u64,
    /// All other variables: states of the optimiser.
    pub optimizer: u64,
    /// Gradients of parameters, once they are summed over the ranks. They lie in the arena, not
    /// necessarily all at the same time.
    pub gradients: u64,
    /// Further results of sums over the ranks: losses, and gradients of a parameter that is used
    /// twice, of which each use has its own sum.
    pub other_sums: u64,
}

impl State {
    /// The state of a rank's step. `whole` has all variables as ranks that share products store
    /// them, and `stored` those that the rank stores. Both have a mesh, and divide the examples
    /// along its axis `axis`.
    pub fn of(whole: &Function, stored: &Function, axis: &str) -> State {
        let (parameters, ranks) = (parameters(whole), whole.mesh.extent(axis).unwrap_or(1));
        let mut state = State::default();
        let mut wanted = vec![];
        for (input, value) in whole.inputs.iter().zip(&whole.body.inputs) {
            if !matches!(input.role, InputRole::State | InputRole::Param) {
                continue;
            }
            let index = stored.input_index(&input.name).expect("shards keep the inputs");
            let own = bytes(stored.input_type(index));
            if parameters.contains(value) {
                state.parameters += own;
                wanted.push(elements(whole.body.ty(*value)));
            } else {
                state.optimizer += own;
            }
        }
        // A gradient has as many elements as its parameter, or the rank's part of them. Large ones
        // come first, so that a part is not taken for a whole.
        let mut sums = sums(stored, axis);
        wanted.sort_unstable_by(|a, b| b.cmp(a));
        for count in wanted {
            let is_gradient = |sum: &Sum| match sum.is_part {
                true => sum.elements.saturating_mul(ranks as u64) == count,
                false => sum.elements == count,
            };
            let found = sums.iter().position(is_gradient);
            state.gradients += found.map_or(0, |index| sums.remove(index).bytes);
        }
        state.other_sums = sums.iter().map(|sum| sum.bytes).sum();
        state
    }

    /// Parameters, states of the optimiser and gradients together.
    pub fn total(&self) -> u64 {
        self.parameters + self.optimizer + self.gradients
    }
}

/// The result of a sum over the ranks that divide the examples.
struct Sum {
    elements: u64,
    bytes: u64,
    /// It is the rank's part.
    is_part: bool,
}

fn sums(function: &Function, axis: &str) -> Vec<Sum> {
    let body = &function.body;
    let found = body.equations.iter().filter_map(|equation| {
        let (over, is_part) = match &equation.op {
            Op::PReduce(op) if op.kind == PReduceKind::Sum => (&op.over, false),
            Op::PsumScatter(op) => (&op.over, true),
            _ => return None,
        };
        if !over.iter().any(|name| name == axis) {
            return None;
        }
        let ty = body.ty(equation.results[0]);
        Some(Sum { elements: elements(ty), bytes: bytes(ty), is_part })
    });
    found.collect()
}

fn elements(ty: &TensorType) -> u64 {
    ty.elements().map_or(u64::MAX, |count| count as u64)
}

fn bytes(ty: &TensorType) -> u64 {
    ty.bytes().map_or(u64::MAX, |bytes| bytes as u64)
}
