//! Peak memory of a function in the graph interpreter, computed before it runs.

use super::Cell;
use crate::graph::{Body, Function};
use crate::id::IdVec;
use crate::ty::TensorType;

/// The most bytes that [`run`](super::run) holds at once besides its input literals. Every
/// element of a live value takes a [`Cell`], and results become literals at the end.
///
/// An op that is not elementwise is assumed to need a second copy of its results while it
/// computes them. The function has no dimension variables.
pub fn peak_bytes(function: &Function) -> u64 {
    let body = &function.body;
    let sum = |values: &[crate::graph::ValueId]| {
        values.iter().map(|v| cells(body.ty(*v))).fold(0, u64::saturating_add)
    };
    let outputs =
        body.outputs.iter().map(|v| body.ty(*v).bytes().map_or(u64::MAX, |bytes| bytes as u64));
    sum(&body.inputs)
        .saturating_add(made(body))
        .saturating_add(outputs.fold(0, u64::saturating_add))
}

/// The most bytes of live values defined by the equations of a body.
fn made(body: &Body) -> u64 {
    let mut last_use: IdVec<_, usize> = body.values.ids().map(|_| 0).collect();
    for (i, equation) in body.equations.iter().enumerate() {
        equation.operands.iter().for_each(|v| last_use[*v] = i);
    }
    body.outputs.iter().for_each(|v| last_use[*v] = usize::MAX);
    let mut is_given: IdVec<_, bool> = body.values.ids().map(|_| false).collect();
    body.inputs.iter().for_each(|v| is_given[*v] = true);
    let (mut live, mut most) = (0u64, 0u64);
    for (i, equation) in body.equations.iter().enumerate() {
        let results =
            equation.results.iter().map(|v| cells(body.ty(*v))).fold(0, u64::saturating_add);
        let inside = equation.regions.iter().map(|region| made(region)).max().unwrap_or(0);
        let scratch = if equation.op.traits().elementwise { 0 } else { results };
        live = live.saturating_add(results);
        most = most.max(live.saturating_add(scratch).saturating_add(inside));
        let mut operands = equation.operands.clone();
        operands.sort_unstable();
        operands.dedup();
        for operand in operands.iter().filter(|v| last_use[**v] == i && !is_given[**v]) {
            live = live.saturating_sub(cells(body.ty(*operand)));
        }
    }
    most
}

fn cells(ty: &TensorType) -> u64 {
    let elements = ty.elements().map_or(u64::MAX, |elements| elements as u64);
    elements.saturating_mul(size_of::<Cell<f64>>() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::parse_program;

    #[test]
    fn values_count_while_they_live() {
        let peak = |body: &str| {
            let text = format!("func @f(%x: f32[1000]) -> (f32[1000]) {{\n{body}\n}}");
            peak_bytes(&parse_program(&text, "f.ir").unwrap().functions()[0])
        };
        // 16 bytes for each element of a value, 4 for each of the output.
        assert_eq!(peak("return %x"), 20_000);
        assert_eq!(peak("%0: f32[1000] = exp %x\n return %0"), 36_000);
        // At most two values besides the input are live.
        let chain =
            "%0: f32[1000] = exp %x\n %1: f32[1000] = exp %0\n %2: f32[1000] = exp %1\n return %2";
        assert_eq!(peak(chain), 52_000);
        assert_eq!(peak("%0: f32[1000] = reverse %x {axes=[0]}\n return %0"), 52_000);
    }
}
