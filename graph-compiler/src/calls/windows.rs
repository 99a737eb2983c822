//! Updates of a small window of a large tensor.
//!
//! As a loop over elements, `dynamic_update_slice` computes every element of its result. A scatter
//! is a call whose result may take the place of its operand. It then writes the window only: a row
//! of a cache costs a row, whatever the length of the cache. A copy of the operand is needed only
//! if something else still reads the operand.
//!
//! A window of zeros that is added to another tensor is the gradient of a slice. In the backward
//! half of a loop it is added to the sum of all steps. It becomes a `scatter_add` onto zeros, and
//! `accumulate` makes that one onto the sum.
//!
//! These stay loops, since a loop is fused with its neighbours: updates of small tensors, windows
//! that are a large part of the tensor, other updates of a repeated number (which is stored
//! nowhere yet), and updates of an input of the function, which must not be overwritten.

use super::decompose::{Replacement, replaced};
use wengert_core::call::ScatterKind;
use wengert_core::graph::{Body, Equation, Function, InputRole, ValueId};
use wengert_core::id::IdVec;
use wengert_core::op::{Binary, DynamicUpdateSlice};
use wengert_core::{Op, Result, Target, Tensor};

/// Fewest elements of a tensor whose window is scattered.
const LARGE: usize = 1 << 12;
/// Fewest windows that the tensor would hold.
const WINDOWS: usize = 4;

/// Replaces updates of windows by scatters, at most `fuel` of them.
pub(crate) fn windows(function: Function, target: &Target, fuel: u64) -> Result<(Function, u64)> {
    let (function, stored) = scattered(function, ScatterKind::Replace, target, fuel)?;
    let (function, added) = scattered(function, ScatterKind::Add, target, fuel - stored)?;
    Ok((function, stored + added))
}

fn scattered(
    function: Function,
    kind: ScatterKind,
    target: &Target,
    fuel: u64,
) -> Result<(Function, u64)> {
    if !target.calls.contains(&kind.name()) {
        return Ok((function, 0));
    }
    let choose = |body: &Body| {
        let values = Values::new(body, &function);
        let equations = body.equations.iter();
        equations.map(|e| is_window(body, e) && values.admit(e, kind)).collect()
    };
    let expand = |_: &Body, _: &Equation, operands: &[Tensor]| {
        Ok(vec![DynamicUpdateSlice::as_scatter(operands, kind)])
    };
    let replaced = replaced(&function, &Replacement { choose: &choose, expand: &expand }, fuel)?;
    Ok(replaced.unwrap_or((function, 0)))
}

/// Whether an equation updates a small window of a large tensor.
fn is_window(body: &Body, equation: &Equation) -> bool {
    let (Op::DynamicUpdateSlice(_), [x, update, ..]) = (&equation.op, &equation.operands[..])
    else {
        return false;
    };
    let [all, window] = [x, update].map(|v| body.ty(*v).elements().unwrap_or(0));
    all >= LARGE && window > 0 && window <= all / WINDOWS
}

/// What the values of a body are.
struct Values {
    /// Whether a value repeats a number.
    repeated: IdVec<ValueId, bool>,
    /// Whether it is 0.0 everywhere.
    zeros: IdVec<ValueId, bool>,
    /// Whether it must not be overwritten.
    kept: IdVec<ValueId, bool>,
    /// Number of operands that it is, and whether one of them is that of a sum.
    uses: IdVec<ValueId, (u32, bool)>,
    /// Whether it is an output of the body.
    output: IdVec<ValueId, bool>,
}

impl Values {
    fn new(body: &Body, function: &Function) -> Values {
        let none = || body.values.ids().map(|_| false).collect::<IdVec<ValueId, bool>>();
        let (mut repeated, mut zeros, mut kept, mut output) = (none(), none(), none(), none());
        let mut uses: IdVec<ValueId, (u32, bool)> = body.values.ids().map(|_| (0, false)).collect();
        if std::ptr::eq(body, &function.body) {
            let inputs = body.inputs.iter().zip(&function.inputs);
            inputs.for_each(|(value, input)| kept[*value] = input.role != InputRole::State);
        }
        for equation in &body.equations {
            let sum = matches!(equation.op, Op::Binary(Binary::Add));
            for operand in &equation.operands {
                let (count, added) = uses[*operand];
                uses[*operand] = (count + 1, added || sum);
            }
            let Some(result) = equation.results.first() else { continue };
            match &equation.op {
                Op::Constant(constant) => {
                    repeated[*result] = true;
                    zeros[*result] = constant.value.scalars().all(|s| s.to_f64() == 0.0);
                }
                Op::BroadcastInDim(_) => {
                    repeated[*result] = true;
                    zeros[*result] = zeros[equation.operands[0]];
                }
                _ => {}
            }
        }
        for value in &body.outputs {
            uses[*value].0 += 1;
            output[*value] = true;
        }
        Values { repeated, zeros, kept, uses, output }
    }

    /// Whether an update of a window is worth a scatter of that kind.
    fn admit(&self, equation: &Equation, kind: ScatterKind) -> bool {
        let (x, result) = (equation.operands[0], equation.results[0]);
        match kind {
            ScatterKind::Add => self.zeros[x] && self.uses[result] == (1, true),
            _ => !self.repeated[x] && (!self.kept[x] || self.output[result]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert_core::graph::{parse_program, verify};
    use wengert_core::{Literal, interpret};
    use wengert_testing::random::Random;

    const HEAD: &str = "func @f(state %s: f32[128,64], %x: f32[128,64], %u: f32[2,64], %i: i32[]) \
                        -> (state s: f32[128,64], y: f32[128,64]) {
       %0: i32[] = constant {value=i32[] 0}
       %1: f32[] = constant {value=f32[] 0.0}
       %2: f32[128,64] = broadcast_in_dim %1 {shape=[128,64]}";

    /// The function before and after, and the names of the ops that are new. Both compute the same.
    fn windowed(rest: &str) -> Vec<&'static str> {
        let text = format!("{HEAD}\n{rest}\n}}");
        let program = parse_program(&text, "test.ir").unwrap_or_else(|e| panic!("{e}"));
        let before = program.functions()[0].clone();
        let (after, changes) =
            windows(before.clone(), &Target::cpu(), u64::MAX).expect("it is replaced");
        verify(&after).expect("it is valid");
        let types = before.body.types(&before.body.inputs);
        for start in [-3, 0, 5, 126, 200] {
            let mut random = Random(7);
            let mut given: Vec<Literal> = types[..3].iter().map(|t| random.literal(t)).collect();
            given.push(Literal::from(start));
            assert_eq!(
                interpret::run(&after, &given).expect("it runs"),
                interpret::run(&before, &given).expect("it runs")
            );
        }
        let scatters = |f: &Function| {
            let names = f.body.equations.iter().map(|e| e.op.name());
            names.filter(|n| n.starts_with("scatter")).collect::<Vec<_>>()
        };
        assert_eq!(scatters(&after).len() as u64, changes);
        assert_eq!(windows(before.clone(), &Target::cpu(), 0).expect("no change"), (before, 0));
        scatters(&after)
    }

    #[test]
    fn a_small_window_of_what_may_be_overwritten_is_scattered() {
        assert_eq!(
            windowed("%3: f32[128,64] = dynamic_update_slice %s, %u, %i, %0\nreturn %3, %x"),
            ["scatter"]
        );
        assert_eq!(
            windowed(
                "%3: f32[128,64] = neg %x
                 %4: f32[128,64] = dynamic_update_slice %3, %u, %i, %0
                 return %s, %4"
            ),
            ["scatter"]
        );
    }

    #[test]
    fn an_input_is_copied_only_if_the_result_is_an_output() {
        assert_eq!(
            windowed("%3: f32[128,64] = dynamic_update_slice %x, %u, %i, %0\nreturn %s, %3"),
            ["scatter"]
        );
        let read = "%3: f32[128,64] = dynamic_update_slice %x, %u, %i, %0
                    %4: f32[128,64] = neg %3
                    return %s, %4";
        assert!(windowed(read).is_empty());
    }

    #[test]
    fn a_window_of_zeros_is_scattered_if_it_is_added() {
        let added = "%3: f32[128,64] = dynamic_update_slice %2, %u, %i, %0
                     %4: f32[128,64] = add %s, %3
                     return %4, %x";
        assert_eq!(windowed(added), ["scatter_add"]);
        let read = "%3: f32[128,64] = dynamic_update_slice %2, %u, %i, %0
                    %4: f32[128,64] = mul %s, %3
                    return %4, %x";
        assert!(windowed(read).is_empty());
    }
}
