//! Attention calls and their operands.

use wengert_core::call::{Attention, Call};
use wengert_core::{DType, Literal, Scalar, TensorType};

pub const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

/// The attributes of an attention besides its extents and dtype.
#[derive(Clone, Copy)]
pub struct Kind {
    pub packed: bool,
    pub causal: bool,
    pub backward: bool,
}

pub fn attention(
    [batch, queries, keys, heads, width]: [usize; 5],
    kind: Kind,
    dtype: DType,
) -> Attention {
    let Kind { packed, causal, backward } = kind;
    let keys = if packed { queries } else { keys };
    let scale = Scalar::of(1.0 / (width as f64).sqrt());
    Attention {
        batch,
        queries,
        keys,
        heads,
        width,
        packed,
        bias: vec![],
        causal,
        backward,
        scale,
        dtype,
    }
}

/// The same call with a bias. `repeats` selects the axes (examples, heads, queries) along which the
/// bias is broadcast.
pub fn biased(call: Attention, repeats: [bool; 3]) -> Attention {
    let [batch, heads, queries] = [(0, call.batch), (1, call.heads), (2, call.queries)]
        .map(|(axis, extent)| if repeats[axis] { 1 } else { extent });
    Attention { bias: vec![batch, heads, queries, call.keys], ..call }
}

/// Operands of moderate size, so that no single score dominates. For a backward call they include
/// the results of the forward call.
pub fn attended(call: &Attention, seed: u64) -> Vec<Literal> {
    let small = |ty: &TensorType, seed: u64| {
        let shape = ty.extents().unwrap();
        let mut state = seed;
        let values: Vec<Scalar> = (0..shape.iter().product())
            .map(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let number = (state >> 20) as i64 % (1 << 20);
                Scalar::from_f64(ty.dtype, number as f64 / (1 << 19) as f64)
            })
            .collect();
        Literal::from_scalars(ty.dtype, &shape, &values).unwrap()
    };
    let forward = Call::Attention(Attention { backward: false, ..call.clone() });
    let mut operands: Vec<Literal> =
        forward.operands().iter().zip(seed..).map(|(ty, seed)| small(ty, seed)).collect();
    if call.backward {
        let [out, l]: [TensorType; 2] = forward.results().try_into().unwrap();
        let logarithms = forward.references(&operands).unwrap()[1].literal();
        operands.extend([logarithms, small(&out, seed + 17), small(&l, seed + 18)]);
    }
    operands
}
