//! The addends of a product (bias, residual) that a library does not add. A kernel of this crate
//! adds them to the library's result, which has the dtype of the sums: results of halves are
//! rounded after their addends, so the library adds all of these or none. The kernel is compiled
//! from a nest, so each addition has the bits of its graph op.

use wengert_core::call::{Addends, Contract, Gemm};
use wengert_core::nest::{Affine, Nest, NestBuilder, ScalarOp};

/// The nest, which changes the result in place, and the GEMM's argument for each parameter of the
/// nest. `left` states the addends that the library leaves.
pub(crate) fn addends(gemm: &Gemm, left: &Addends) -> (Nest, Vec<usize>) {
    assert!(!gemm.narrows(), "halves are rounded after their addends");
    let (dtype, shape) = (gemm.result, [gemm.batch, gemm.m, gemm.n]);
    let mut nest = NestBuilder::new("addends");
    let mut arguments = Vec::new();
    let bias = left.bias.then(|| {
        arguments.push(gemm.bias_argument().expect("the bias that is left is added"));
        nest.input("bias", dtype, &[gemm.n])
    });
    let residual = left.residual.then(|| {
        arguments.push(gemm.residual_argument().expect("the residual that is left is added"));
        nest.input("residual", dtype, &shape)
    });
    arguments.push(gemm.operands().len());
    let out = nest.in_place("out", dtype, &shape);
    nest.set_pitch(out, gemm.pitch);
    let axes =
        [nest.parallel("b", gemm.batch), nest.parallel("i", gemm.m), nest.parallel("j", gemm.n)];
    let [] = nest.phase([]);
    let at = axes.map(Affine::axis);
    let mut value = nest.load(out, &at);
    if let Some(bias) = bias {
        let bias = nest.load(bias, &at[2..]);
        value = nest.scalar(ScalarOp::Add, &[value, bias]);
    }
    if let Some(residual) = residual {
        let residual = nest.load(residual, &at);
        value = nest.scalar(ScalarOp::Add, &[value, residual]);
    }
    nest.store(out, &at, value);
    (nest.finish().expect("the nest is well formed for all extents"), arguments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert_core::call::{Call, Matrix};
    use wengert_core::nest::{interpret, verify};
    use wengert_core::{Binding, DType, Literal, Scalar, TensorType};

    fn random(ty: &TensorType, seed: u64) -> Literal {
        let mut state = seed;
        let shape = ty.bind(&Binding::new()).unwrap().extents().unwrap();
        let values = (0..shape.iter().product()).map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            Scalar::from_f64(ty.dtype, (state >> 40) as f64 / (1u64 << 22) as f64 - 2.0)
        });
        Literal::from_scalars(ty.dtype, &shape, &values.collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn a_plain_product_and_the_addends_give_the_fused_product() {
        for (operand, dtype) in
            [(DType::BF16, DType::F32), (DType::F32, DType::F32), (DType::F64, DType::F64)]
        {
            for wanted in [1, 2, 3].map(|n| Addends { bias: n & 1 != 0, residual: n & 2 != 0 }) {
                let gemm = Gemm {
                    batch: 2,
                    m: 3,
                    n: 4,
                    k: 5,
                    lhs: Matrix { batch: 15, row: 5, column: 1 },
                    rhs: Matrix { batch: 0, row: 4, column: 1 },
                    operand,
                    rhs_operand: None,
                    scales: None,
                    accumulate: dtype,
                    result: dtype,
                    addends: wanted,
                    pitch: None,
                };
                let whole = Call::Gemm(gemm.clone());
                let operands: Vec<Literal> = whole
                    .operands()
                    .iter()
                    .enumerate()
                    .map(|(i, ty)| random(ty, i as u64 + 7))
                    .collect();
                let plain = Call::Gemm(Gemm { addends: Addends::default(), ..gemm.clone() });
                let product = plain.reference(&operands[..2]).unwrap().literal();
                let (nest, arguments) = addends(&gemm, &wanted);
                verify(&nest).unwrap();
                let last = arguments.len() - 1;
                let mut inputs: Vec<Literal> =
                    arguments[..last].iter().map(|a| operands[*a].clone()).collect();
                inputs.push(product);
                let found = interpret(&nest, &inputs).unwrap().remove(0);
                let shape = whole.results()[0].extents().unwrap();
                let found = Literal::from_bytes(dtype, &shape, &found.to_bytes()).unwrap();
                whole.reference(&operands).unwrap().check(&found).unwrap();
            }
        }
    }
}
