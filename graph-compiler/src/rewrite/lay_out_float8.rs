//! Lays out the operands of products of 8-bit floats along the sum.
//!
//! Tensor cores read both operands along the sum. Halves that lie across it are transposed on the
//! way to registers, but no instruction transposes single bytes, and cuBLASLt has no such product
//! either. The pass transposes an operand in memory, which moves two bytes for each element. The
//! conversion to bf16 that the call replaces would move five.

use super::{of_regions, push, spend, with_fuel};
use crate::calls::float8_sources;
use wengert_core::call::Call;
use wengert_core::graph::{Body, Equation, Function, ValueId};
use wengert_core::id::IdVec;
use wengert_core::op::{Compute, ConvertElementType, DotGeneral, Permute};
use wengert_core::{Op, Target};

/// Transposes operands of at most `fuel` products, for targets that multiply 8-bit floats.
pub(crate) fn lay_out_float8(function: Function, target: &Target, fuel: u64) -> (Function, u64) {
    if target.float8_products { with_fuel(function, fuel, of_body) } else { (function, 0) }
}

fn of_body(body: &mut Body, left: &mut u64) {
    for equation in &mut body.equations {
        of_regions(equation, left, &of_body);
    }
    let definitions = body.definitions();
    let wanted: Vec<Option<[Transpose; 2]>> =
        (0..body.equations.len()).map(|n| transposes(body, &definitions, n)).collect();
    if wanted.iter().all(Option::is_none) {
        return;
    }
    let equations = std::mem::take(&mut body.equations);
    for (mut equation, wanted) in equations.into_iter().zip(wanted) {
        if let Some(sides) = wanted
            && spend(left)
        {
            for (side, transpose) in sides.into_iter().enumerate() {
                transpose.apply(body, &mut equation, side);
            }
        }
        body.equations.push(equation);
    }
}

/// How an operand gets its axes in the order batch, free, summed.
struct Transpose {
    /// The 8-bit floats.
    source: ValueId,
    permutation: Vec<usize>,
}

impl Transpose {
    fn apply(self, body: &mut Body, equation: &mut Equation, side: usize) {
        if self.permutation.is_sorted() {
            return;
        }
        let Op::DotGeneral(dot) = &mut equation.op else { unreachable!("it is a product") };
        let renumbered = |axes: &mut Vec<usize>| {
            for axis in axes {
                let of = |a: &usize| *a == *axis;
                *axis = self.permutation.iter().position(of).expect("it has every axis");
            }
        };
        match side {
            0 => [&mut dot.contract.0, &mut dot.batch.0].into_iter().for_each(renumbered),
            _ => [&mut dot.contract.1, &mut dot.batch.1].into_iter().for_each(renumbered),
        }
        let dtype = body.ty(equation.operands[side]).dtype;
        let permute = Permute { permutation: self.permutation };
        let bytes = push(body, permute, &[self.source], equation.location);
        let converted = push(body, ConvertElementType { dtype }, &[bytes], equation.location);
        equation.operands[side] = converted;
    }
}

/// The transposes of a product of 8-bit floats, if it needs any.
fn transposes(
    body: &Body,
    definitions: &IdVec<ValueId, Option<usize>>,
    product: usize,
) -> Option<[Transpose; 2]> {
    let sources = float8_sources(body, definitions, product)?;
    let equation = &body.equations[product];
    let Op::DotGeneral(dot) = &equation.op else { return None };
    let (operands, results) = (body.types(&equation.operands), body.types(&equation.results));
    if let Compute::Call(Call::Gemm(gemm)) = equation.op.compute(&operands, &results, &[])
        && (gemm.k <= 1 || (gemm.lhs.column == 1 && gemm.rhs.row == 1))
    {
        return None;
    }
    let side = |side: usize| {
        let DotGeneral { contract, batch, .. } = dot;
        let (contract, batch) = match side {
            0 => (&contract.0, &batch.0),
            _ => (&contract.1, &batch.1),
        };
        let rank = body.ty(sources[side]).rank();
        let free = (0..rank).filter(|axis| !contract.contains(axis) && !batch.contains(axis));
        let permutation = batch.iter().copied().chain(free).chain(contract.iter().copied());
        Transpose { source: sources[side], permutation: permutation.collect() }
    };
    Some([side(0), side(1)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert_core::graph::{parse_program, verify};

    fn laid_out(text: &str) -> String {
        let program = parse_program(text, "test.ir").unwrap_or_else(|e| panic!("{e}\n{text}"));
        let target = Target { float8_products: true, ..Target::cpu() };
        let (function, _) = lay_out_float8(program.functions()[0].clone(), &target, u64::MAX);
        verify(&function).unwrap_or_else(|e| panic!("{e}"));
        function.to_string()
    }

    #[test]
    fn operands_lie_along_the_sum() {
        let of = |contract: &str, x: &str, w: &str| {
            laid_out(&format!(
                "func @f(%x: f8e4m3fn[{x}], %w: f8e5m2[{w}]) -> (y: f32[4,6]) {{
                   %0: bf16[{x}] = convert_element_type %x {{dtype=bf16}}
                   %1: bf16[{w}] = convert_element_type %w {{dtype=bf16}}
                   %2: f32[4,6] = dot_general %0, %1 {{contract={contract}, result=f32}}
                   return %2
                 }}"
            ))
        };
        assert!(!of("[[1],[1]]", "4,8", "6,8").contains("permute"));
        let rhs = of("[[1],[0]]", "4,8", "8,6");
        assert_eq!(rhs.matches("f8e5m2[6,8] = permute %w").count(), 1, "{rhs}");
        assert_eq!(rhs.matches("permute").count(), 1, "{rhs}");
        let both = of("[[0],[0]]", "8,4", "8,6");
        assert_eq!(both.matches("permute").count(), 2, "{both}");
        let several = laid_out(
            "func @f(%x: f8e4m3fn[2,4,3], %w: f8e4m3fn[2,3,6]) -> (y: f32[4,6]) {
               %0: bf16[2,4,3] = convert_element_type %x {dtype=bf16}
               %1: bf16[2,3,6] = convert_element_type %w {dtype=bf16}
               %2: f32[4,6] = dot_general %0, %1 {contract=[[2,0],[1,0]], result=f32}
               return %2
             }",
        );
        assert!(several.contains("f8e4m3fn[4,3,2] = permute %x"), "{several}");
        assert!(several.contains("f8e4m3fn[6,3,2] = permute %w"), "{several}");
    }
}
