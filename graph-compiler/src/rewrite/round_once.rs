//! Rounds a product of halves once, after its addends.
//!
//! `dot_general` of halves adds in f32 and rounds its result. In `x·w + b + r` every addition
//! rounds again: three roundings for one element. BLAS libraries round once, after
//! `alpha·A·B + beta·C` and the bias of the epilogue. Kernels have the sum in an f32 register at
//! that point too. So the graph says so, for every target:
//!
//! ```text
//! %0: bf16 = dot_general %x, %w               %0: f32 = dot_general %x, %w {result=f32}
//! %1: bf16 = broadcast_in_dim %b              %1: f32 = add %0, convert(%r)
//! %2: bf16 = add %0, %1                  →    %2: f32 = add %1, broadcast_in_dim(convert(%b))
//! %3: bf16 = add %2, %r                       %3: bf16 = convert_element_type %2
//! ```
//!
//! The residual comes before the bias, in whichever order the user adds them. The pass `addends`
//! absorbs exactly this form into the call, so that no f32 tensor is stored. The invariants:
//!
//! 1. Only the roundings of `dot_general` and of additions of halves are moved. An explicit
//!    conversion stays, and so does everything in f32 or f64.
//! 2. A value with another use is rounded before it is used: all of its readers see the same bits.
//! 3. At most one bias and one residual ([`Addend`]) belong to a product. An addition is part of
//!    one product only, of the first in the order of the equations.
//!
//! Other elementwise consumers, such as activations, take the rounded result. In f32 they would
//! need the sums in f32, twice the bytes, wherever a product and its follower are two kernels.
//! `round_chains` does the same for chains of these.
//!
//! One walk over the equations.

use super::dce::dce;
use super::{of_regions, push, spend, with_fuel};
use crate::addend::{Addend, Addends, columns, users};
use std::collections::BTreeMap;
use wengert_core::call::Call;
use wengert_core::graph::{Body, Equation, Function, ValueId};
use wengert_core::op::{Binary, Compute, ConvertElementType, DotGeneral};
use wengert_core::{DType, LocationId, Op};

/// Rounds products of halves after their addends; at most `fuel` of them.
pub(crate) fn round_once(function: Function, fuel: u64) -> (Function, u64) {
    let (function, spent) = with_fuel(function, fuel, of_body);
    // What is left of the addends in halves has no reader.
    if spent > 0 { (dce(function, u64::MAX).0, spent) } else { (function, spent) }
}

/// A product of halves and its addends.
struct Chain {
    /// The equation of the product.
    product: usize,
    /// The equations of the additions; the last one gives the result.
    additions: Vec<usize>,
    residual: Option<ValueId>,
    /// The broadcast that is added, and its operand.
    bias: Option<(Op, ValueId)>,
}

fn of_body(body: &mut Body, left: &mut u64) {
    for equation in &mut body.equations {
        of_regions(equation, left, &of_body);
    }
    let chains = chains(body, left);
    if chains.is_empty() {
        return;
    }
    let last = |chain: &Chain| *chain.additions.last().expect("a chain has additions");
    let products: BTreeMap<usize, usize> =
        chains.iter().enumerate().map(|(n, chain)| (chain.product, n)).collect();
    let ends: BTreeMap<usize, usize> =
        chains.iter().enumerate().map(|(n, chain)| (last(chain), n)).collect();
    let mut dropped = vec![false; body.equations.len()];
    chains.iter().flat_map(|chain| &chain.additions).for_each(|n| dropped[*n] = true);
    let equations = std::mem::take(&mut body.equations);
    let mut sums: Vec<Option<ValueId>> = vec![None; chains.len()];
    let mut wide: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    for (n, equation) in equations.into_iter().enumerate() {
        if let Some(chain) = products.get(&n) {
            let Op::DotGeneral(dot) = equation.op else { unreachable!("a chain begins with one") };
            let dot = DotGeneral { result: Some(DType::F32), ..dot };
            sums[*chain] = Some(push(body, dot, &equation.operands, equation.location));
        } else if let Some(chain) = ends.get(&n) {
            let sum = sums[*chain].expect("a product comes before its addends");
            chains[*chain].finish(body, sum, &equation, &mut wide);
        } else if !dropped[n] {
            body.equations.push(equation);
        }
    }
}

/// The products of a body that have addends; takes fuel for each.
fn chains(body: &Body, left: &mut u64) -> Vec<Chain> {
    let mut found = Vec::new();
    if !body.equations.iter().enumerate().any(|(n, _)| is_product(body, n)) {
        return found;
    }
    let (users, definitions) = (users(body), body.definitions());
    let addends = Addends { body, definitions: &definitions };
    let mut taken = vec![false; body.equations.len()];
    for product in 0..body.equations.len() {
        let equation = &body.equations[product];
        let Op::DotGeneral(dot) = &equation.op else { continue };
        if !is_product(body, product) {
            continue;
        }
        let columns = columns(body, equation, dot);
        let mut chain = Chain { product, additions: vec![], residual: None, bias: None };
        let mut value = equation.results[0];
        while let Some(next) = users[value].filter(|n| !taken[*n]) {
            if !chain.add(&addends, value, next, columns) {
                break;
            }
            value = body.equations[next].results[0];
        }
        if chain.additions.is_empty() || !spend(left) {
            continue;
        }
        chain.additions.iter().for_each(|n| taken[*n] = true);
        found.push(chain);
    }
    found
}

/// Whether an equation is a product of halves that rounds to halves, as a call.
fn is_product(body: &Body, n: usize) -> bool {
    let equation = &body.equations[n];
    let Op::DotGeneral(_) = &equation.op else { return false };
    let (operands, results) = (body.types(&equation.operands), body.types(&equation.results));
    operands[0].dtype.is_half()
        && results[0].dtype == operands[0].dtype
        && matches!(equation.op.compute(&operands, &results, &[]), Compute::Call(Call::Gemm(_)))
}

impl Chain {
    /// Takes the addition in equation `next` to the value of the chain, if it is one.
    fn add(&mut self, addends: &Addends<'_>, value: ValueId, next: usize, columns: usize) -> bool {
        let equation = &addends.body.equations[next];
        let (Op::Binary(Binary::Add), [x, y]) = (&equation.op, equation.operands.as_slice()) else {
            return false;
        };
        let other = if *x == value { *y } else { *x };
        match addends.of(other, columns) {
            Some(Addend::Bias(operand)) if self.bias.is_none() => {
                let broadcast = addends.definition(other).expect("a bias is a broadcast");
                self.bias = Some((broadcast.op.clone(), operand));
            }
            Some(Addend::Residual(residual)) if self.residual.is_none() => {
                self.residual = Some(residual);
            }
            _ => return false,
        }
        self.additions.push(next);
        true
    }

    /// Appends the additions in f32 and the rounding to the result of `last`.
    fn finish(
        &self,
        body: &mut Body,
        mut sum: ValueId,
        last: &Equation,
        wide: &mut BTreeMap<ValueId, ValueId>,
    ) {
        let location = last.location;
        if let Some(residual) = self.residual {
            let residual = widened(body, residual, location, wide);
            sum = push(body, Binary::Add, &[sum, residual], location);
        }
        if let Some((broadcast, operand)) = &self.bias {
            let operand = widened(body, *operand, location, wide);
            let bias = push(body, broadcast.clone(), &[operand], location);
            sum = push(body, Binary::Add, &[sum, bias], location);
        }
        let dtype = body.ty(last.results[0]).dtype;
        body.equations.push(Equation {
            op: ConvertElementType { dtype }.into(),
            operands: vec![sum],
            results: last.results.clone(),
            regions: vec![],
            location,
        });
    }
}

/// A value in f32, converted once.
fn widened(
    body: &mut Body,
    value: ValueId,
    location: LocationId,
    wide: &mut BTreeMap<ValueId, ValueId>,
) -> ValueId {
    if let Some(known) = wide.get(&value) {
        return *known;
    }
    let converted = push(body, ConvertElementType { dtype: DType::F32 }, &[value], location);
    wide.insert(value, converted);
    converted
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert_core::graph::{parse_program, verify};
    use wengert_core::{Literal, Scalar, interpret};

    const HEAD: &str = "func @f(%x: bf16[2,3], %w: bf16[3,2], %b: bf16[2], %r: bf16[2,2]) -> (y: ";
    const PRODUCT: &str = "%0: bf16[2,2] = dot_general %x, %w {contract=[[1],[0]]}
         %1: bf16[2,2] = broadcast_in_dim %b {dims=[1], shape=[2,2]}";

    fn function(results: &str, rest: &str) -> Function {
        let text = format!("{HEAD}{results}) {{\n{PRODUCT}\n{rest}\n}}");
        let program = parse_program(&text, "test.ir").unwrap_or_else(|e| panic!("{e}\n{text}"));
        program.functions()[0].clone()
    }

    fn ops(function: &Function) -> Vec<&'static str> {
        function.body.equations.iter().map(|e| e.op.name()).collect()
    }

    /// The first element, for rows of x of 16, for w of 16 in its first row, and these addends.
    fn first(function: &Function, bias: f64, residual: f64) -> f64 {
        let of = |shape: &[usize], values: &[f64]| {
            let values: Vec<Scalar> =
                values.iter().map(|v| Scalar::from_f64(DType::BF16, *v)).collect();
            Literal::from_scalars(DType::BF16, shape, &values).expect("it fits")
        };
        let given = [
            of(&[2, 3], &[16.0; 6]),
            of(&[3, 2], &[16.0, 16.0, 0.0, 0.0, 0.0, 0.0]),
            of(&[2], &[bias; 2]),
            of(&[2, 2], &[residual; 4]),
        ];
        interpret::run(function, &given).expect("it runs")[0].get(0).to_f64()
    }

    #[test]
    fn a_sum_is_rounded_after_the_residual_and_the_bias() {
        for rest in [
            "%2: bf16[2,2] = add %0, %1\n%3: bf16[2,2] = add %2, %r\nreturn %3",
            "%2: bf16[2,2] = add %r, %0\n%3: bf16[2,2] = add %1, %2\nreturn %3",
        ] {
            let before = function("bf16[2,2]", rest);
            let (after, changes) = round_once(before.clone(), u64::MAX);
            verify(&after).expect("it is valid");
            assert_eq!(changes, 1);
            let wanted = [
                "dot_general",
                "convert_element_type",
                "add",
                "convert_element_type",
                "broadcast_in_dim",
                "add",
                "convert_element_type",
            ];
            assert_eq!(ops(&after), wanted);
            // 256 + 1 is 257 in f32, and 256 in bf16.
            assert_eq!([first(&before, 1.0, 1.0), first(&after, 1.0, 1.0)], [256.0, 258.0]);
            assert_eq!(round_once(before.clone(), 0), (before, 0));
            assert_eq!(round_once(after.clone(), u64::MAX), (after, 0));
        }
    }

    #[test]
    fn one_residual_is_converted_once_and_a_value_with_two_uses_is_rounded() {
        let text = "%2: bf16[2,2] = add %0, %r
             %3: bf16[2,2] = dot_general %2, %r {contract=[[1],[0]]}
             %4: bf16[2,2] = add %3, %r
             %5: bf16[2,2] = add %4, %2
             return %5";
        let (after, changes) = round_once(function("bf16[2,2]", text), u64::MAX);
        verify(&after).expect("it is valid");
        assert_eq!(changes, 2);
        let wanted = [
            "dot_general",
            "convert_element_type",
            "add",
            "convert_element_type",
            "dot_general",
            "add",
            "convert_element_type",
            "add",
        ];
        assert_eq!(ops(&after), wanted, "{after}");
    }

    #[test]
    fn other_roundings_stay() {
        for (results, rest) in [
            // The product has two uses.
            ("bf16[2,2], z: bf16[2,2]", "%2: bf16[2,2] = add %0, %r\nreturn %2, %0"),
            // A conversion that the user wrote.
            (
                "bf16[2,2]",
                "%2: f32[2,2] = dot_general %x, %w {contract=[[1],[0]], result=f32}
                 %3: bf16[2,2] = convert_element_type %2 {dtype=bf16}
                 %4: bf16[2,2] = add %3, %r\nreturn %4",
            ),
            // No addend: another op, and a number for each row.
            ("bf16[2,2]", "%2: bf16[2,2] = mul %0, %r\nreturn %2"),
            (
                "bf16[2,2]",
                "%2: bf16[2,2] = broadcast_in_dim %b {dims=[0], shape=[2,2]}
                 %3: bf16[2,2] = add %0, %2\nreturn %3",
            ),
        ] {
            let before = function(results, rest);
            assert_eq!(round_once(before.clone(), u64::MAX), (before, 0));
        }
    }
}
