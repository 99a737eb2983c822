//! The rest of an epilogue after a library's product: a kernel of this crate on the result, built
//! as a nest, so that each step has the bits of its graph op.

use wengert_core::call::{Activation, Epilogue, Gemm};
use wengert_core::nest::{Affine, Nest, NestBuilder, Reg, ScalarOp};
use wengert_core::{DType, Scalar};

/// The nest, and the GEMM's argument of each of its parameters. The result is changed in place.
pub(super) fn epilogue(gemm: &Gemm, left: &Epilogue) -> (Nest, Vec<usize>) {
    let (dtype, shape) = (gemm.result, [gemm.batch, gemm.m, gemm.n]);
    let mut nest = NestBuilder::new("epilogue");
    let mut arguments = Vec::new();
    let bias = left.bias.then(|| {
        arguments.push(2);
        nest.input("bias", dtype, &[gemm.n])
    });
    let residual = left.residual.then(|| {
        arguments.push(2 + usize::from(gemm.epilogue.bias));
        nest.input("residual", dtype, &shape)
    });
    arguments.push(2 + usize::from(gemm.epilogue.bias) + usize::from(gemm.epilogue.residual));
    let out = nest.in_place("out", dtype, &shape);
    let axes =
        [nest.parallel("b", gemm.batch), nest.parallel("i", gemm.m), nest.parallel("j", gemm.n)];
    let [] = nest.phase([]);
    let at = axes.map(Affine::axis);
    let mut value = nest.load(out, &at);
    if let Some(bias) = bias {
        let bias = nest.load(bias, &at[2..]);
        value = nest.scalar_widened(ScalarOp::Add, &[value, bias]);
    }
    if let Some(activation) = left.activation {
        value = activate(&mut nest, activation, value);
    }
    if let Some(residual) = residual {
        let residual = nest.load(residual, &at);
        value = nest.scalar_widened(ScalarOp::Add, &[value, residual]);
    }
    nest.store(out, &at, value);
    (nest.finish().expect("the nest is well formed, whatever the extents"), arguments)
}

/// The activation, with the ops of the graph.
fn activate(nest: &mut NestBuilder, activation: Activation, x: Reg) -> Reg {
    let dtype = nest.dtype(x);
    let number = |nest: &mut NestBuilder, value: f64| nest.constant(Scalar::from_f64(dtype, value));
    match activation {
        Activation::Relu => {
            let wide = if dtype.is_half() { DType::F32 } else { dtype };
            let (value, zero) = (nest.convert(x, wide), nest.constant(Scalar::from_f64(wide, 0.0)));
            let negative = nest.scalar(ScalarOp::Le, &[value, zero]);
            let value = nest.scalar(ScalarOp::Select, &[negative, zero, value]);
            nest.convert(value, dtype)
        }
        Activation::Tanh => nest.scalar_widened(ScalarOp::Tanh, &[x]),
        Activation::GeluTanh => {
            let times = |nest: &mut NestBuilder, a, b| nest.scalar_widened(ScalarOp::Mul, &[a, b]);
            let square = times(nest, x, x);
            let cube = times(nest, square, x);
            let small = number(nest, 0.044715);
            let cube = times(nest, cube, small);
            let sum = nest.scalar_widened(ScalarOp::Add, &[cube, x]);
            let factor = number(nest, (2.0 / std::f64::consts::PI).sqrt());
            let inner = times(nest, sum, factor);
            let tanh = nest.scalar_widened(ScalarOp::Tanh, &[inner]);
            let one = number(nest, 1.0);
            let weight = nest.scalar_widened(ScalarOp::Add, &[tanh, one]);
            let half = number(nest, 0.5);
            let half = times(nest, x, half);
            times(nest, half, weight)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert_core::call::{Call, Matrix};
    use wengert_core::nest::{interpret, verify};
    use wengert_core::{Binding, Literal, TensorType};

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
    fn a_product_and_what_is_left_are_the_whole() {
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            let activations = Activation::ALL.map(Some).into_iter().chain([None]);
            for (n, activation) in activations.enumerate() {
                let epilogue_of_all = Epilogue { bias: n != 1, activation, residual: n != 2 };
                let gemm = Gemm {
                    batch: 2,
                    m: 3,
                    n: 4,
                    k: 5,
                    lhs: Matrix { batch: 15, row: 5, column: 1 },
                    rhs: Matrix { batch: 0, row: 4, column: 1 },
                    operand: dtype,
                    accumulate: if dtype.is_half() { DType::F32 } else { dtype },
                    result: dtype,
                    epilogue: epilogue_of_all,
                };
                let whole = Call::Gemm(gemm.clone());
                let operands: Vec<Literal> = whole
                    .operands()
                    .iter()
                    .enumerate()
                    .map(|(i, ty)| random(ty, i as u64 + 7))
                    .collect();
                let plain = Call::Gemm(Gemm { epilogue: Epilogue::default(), ..gemm.clone() });
                let product = plain.reference(&operands[..2]).unwrap().literal();
                let (nest, arguments) = epilogue(&gemm, &epilogue_of_all);
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
