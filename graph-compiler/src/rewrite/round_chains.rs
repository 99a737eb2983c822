//! Rounds a chain of elementwise ops on halves once, at its end.
//!
//! Each op on halves computes in f32 and rounds. In `x/2 · (1 + tanh(c·(x + k·x³)))` that is ten
//! roundings, each an error of half a unit in the last place, and on a GPU two or three of the four
//! instructions of an addition. The value of an op that only one other op reads is in a register,
//! wherever that is. So the graph keeps it in f32:
//!
//! ```text
//!                                    %0: f32 = convert_element_type %x
//! %0: bf16 = mul %x, %x              %1: f32 = mul %0, %0
//! %1: bf16 = mul %0, %x          →   %2: f32 = mul %1, %0
//! %2: bf16 = tanh %1                 %3: f32 = tanh %2
//!                                    %4: bf16 = convert_element_type %3
//! ```
//!
//! PyTorch's compiler and XLA do the same. The invariants:
//!
//! 1. A value is rounded if it has several readers, is a result, or if anything but an elementwise
//!    function reads it: all of its readers see the same bits, and none of its copies in memory is
//!    wider than before.
//! 2. Constants, inputs and explicit conversions are halves as written.
//! 3. In a chain, the strong product with a finite number is the product. They differ in the sign
//!    of zeros only.
//! 4. Whether a value is rounded depends on its readers in the graph, not on kernels. So this comes
//!    before `recompute`, which repeats chains, and after `round_once`, which takes additions to
//!    products.
//!
//! One walk over the equations.

use super::{of_regions, push, repeated, spend, with_fuel};
use crate::addend::users;
use std::collections::BTreeMap;
use wengert_core::graph::{Body, Equation, Function, ValueId};
use wengert_core::op::{Binary, ConvertElementType};
use wengert_core::{DType, Literal, Op, Scalar};

/// Keeps values of chains in f32; at most `fuel` of them.
pub(crate) fn round_chains(function: Function, fuel: u64) -> (Function, u64) {
    with_fuel(function, fuel, of_body)
}

fn of_body(body: &mut Body, left: &mut u64) {
    for equation in &mut body.equations {
        of_regions(equation, left, &of_body);
    }
    let users = users(body);
    let is_link = |n: usize| is_link(body, &body.equations[n]);
    // For each equation whose value stays in f32, the equation that reads it.
    let inner: Vec<Option<usize>> = (0..body.equations.len())
        .map(|n| {
            let reader = is_link(n).then(|| users[body.equations[n].results[0]]).flatten();
            reader.filter(|n| is_link(*n) && spend(left))
        })
        .collect();
    if inner.iter().all(Option::is_none) {
        return;
    }
    let (numbers, mut sums) = (numbers(body), BTreeMap::new());
    for (n, equation) in std::mem::take(&mut body.equations).into_iter().enumerate() {
        let continues = equation.operands.iter().any(|v| sums.contains_key(v));
        if inner[n].is_none() && !continues {
            body.equations.push(equation);
            continue;
        }
        let Equation { mut op, operands, results, location, .. } = equation;
        let coefficient = operands.first().and_then(|v| numbers.get(v));
        if op == Op::Binary(Binary::MulZero) && coefficient.is_some_and(|c| c.to_f64().is_finite())
        {
            op = Binary::Mul.into();
        }
        let operands: Vec<ValueId> = operands
            .iter()
            .map(|v| match sums.get(v) {
                Some(sum) => *sum,
                None => match numbers.get(v) {
                    Some(number) => {
                        let value = Literal::full(&[], *number).convert(DType::F32);
                        repeated(body, value, *v, location)
                    }
                    // Each reader converts the value itself. A common conversion would be read in
                    // place of the value, which then looks dead to `recompute`.
                    None => push(body, ConvertElementType { dtype: DType::F32 }, &[*v], location),
                },
            })
            .collect();
        let result = push(body, op, &operands, location);
        if inner[n].is_some() {
            sums.insert(results[0], result);
        } else {
            let dtype = body.ty(results[0]).dtype;
            let op = ConvertElementType { dtype }.into();
            let operands = vec![result];
            body.equations.push(Equation { op, operands, results, regions: vec![], location });
        }
    }
}

/// The values whose elements are all one constant.
fn numbers(body: &Body) -> BTreeMap<ValueId, Scalar> {
    let mut found = BTreeMap::new();
    for equation in &body.equations {
        let number = match (&equation.op, &equation.operands[..]) {
            (Op::Constant(constant), _) if constant.value.shape().is_empty() => {
                constant.value.splat()
            }
            (Op::BroadcastInDim(_), [x]) => found.get(x).copied(),
            _ => None,
        };
        if let Some(number) = number {
            found.insert(equation.results[0], number);
        }
    }
    found
}

/// Whether an equation is a function of the elements of halves that rounds its result.
fn is_link(body: &Body, equation: &Equation) -> bool {
    let half = |v: &ValueId| body.ty(*v).dtype.is_half();
    matches!(equation.op, Op::Unary(_) | Op::Binary(_) | Op::IntegerPow(_))
        && equation.results.iter().all(half)
        && equation.operands.iter().all(half)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert_core::graph::{parse_program, verify};
    use wengert_core::interpret;

    fn function(text: &str) -> Function {
        let text = format!("func @f(%x: bf16[2], %y: bf16[2]) -> {text}");
        let program = parse_program(&text, "test.ir").unwrap_or_else(|e| panic!("{e}\n{text}"));
        program.functions()[0].clone()
    }

    fn ops(function: &Function) -> Vec<&'static str> {
        function.body.equations.iter().map(|e| e.op.name()).collect()
    }

    fn first(function: &Function, x: f64, y: f64) -> f64 {
        let of = |value: f64| {
            let value = Scalar::from_f64(DType::BF16, value);
            Literal::from_scalars(DType::BF16, &[2], &[value; 2]).expect("it fits")
        };
        interpret::run(function, &[of(x), of(y)]).expect("it runs")[0].get(0).to_f64()
    }

    #[test]
    fn a_chain_is_rounded_at_its_end() {
        let before = function(
            "(z: bf16[2]) { %0: bf16[2] = add %x, %y %1: bf16[2] = sub %0, %x return %1 }",
        );
        let (after, changes) = round_chains(before.clone(), u64::MAX);
        verify(&after).expect("it is valid");
        let convert = "convert_element_type";
        assert_eq!(ops(&after), [convert, convert, "add", convert, "sub", convert]);
        // 256 + 1 is 257 in f32, and 256 in bf16.
        assert_eq!([first(&before, 256.0, 1.0), first(&after, 256.0, 1.0)], [0.0, 1.0]);
        assert_eq!(changes, 1);
        assert_eq!(round_chains(before.clone(), 0), (before, 0));
        assert_eq!(round_chains(after.clone(), u64::MAX), (after, 0));
    }

    #[test]
    fn a_strong_product_with_a_number_is_a_product_of_numbers() {
        let before = function(
            "(z: bf16[2]) { %0: bf16[] = constant {value=bf16[] 0.1}
             %1: bf16[2] = broadcast_in_dim %0 {shape=[2]} %2: bf16[2] = mul_zero %1, %x
             %3: bf16[2] = mul_zero %y, %2 return %3 }",
        );
        let (after, changes) = round_chains(before.clone(), u64::MAX);
        verify(&after).expect("it is valid");
        assert_eq!(changes, 1);
        let convert = "convert_element_type";
        let wanted = [convert, "constant", "broadcast_in_dim", "mul", convert, "mul_zero", convert];
        let ops: Vec<_> = ops(&after).into_iter().skip(2).collect();
        assert!(wanted.iter().all(|op| ops.contains(op)), "{ops:?}");
        // The number is the half that is written, and the product is not rounded.
        let tenth = Scalar::from_f64(DType::BF16, 0.1).to_f64();
        assert_eq!(first(&after, 3.0, 1.0), Scalar::from_f64(DType::BF16, 3.0 * tenth).to_f64());
        assert_eq!(first(&after, 0.0, f64::INFINITY), 0.0);
    }

    #[test]
    fn a_value_with_other_readers_is_rounded() {
        for text in [
            // Two readers, a result, a reduction, one op.
            "(z: bf16[2]) { %0: bf16[2] = add %x, %y %1: bf16[2] = mul %0, %0
             %2: bf16[2] = sub %1, %0 return %2 }",
            "(z: bf16[2], w: bf16[2]) { %0: bf16[2] = add %x, %y %1: bf16[2] = sub %0, %x
             return %0, %1 }",
            "(z: bf16[]) { %0: bf16[2] = add %x, %y %1: bf16[] = reduce_sum %0 {axes=[0]}
             return %1 }",
            "(z: bf16[2]) { %0: bf16[2] = add %x, %y return %0 }",
        ] {
            let before = function(text);
            let (after, changes) = round_chains(before.clone(), u64::MAX);
            verify(&after).expect("it is valid");
            let rounded = after.body.equations.iter().position(|e| e.op.name() == "add");
            let sum = after.body.equations[rounded.expect("it is there")].results[0];
            assert_eq!(after.body.ty(sum).dtype, DType::BF16, "{text}");
            assert_eq!(changes, u64::from(text.contains("mul")), "{text}");
        }
    }
}
