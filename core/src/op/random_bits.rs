//! `random_bits`: Philox 4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw
//! (2011).
//!
//! An element depends only on the key and on its position: the counter's lower two words are the
//! element's index in row-major order, its upper two are 0. A u32 is word 0 of the block. A u64
//! has word 0 in its lower half and word 1 in its upper, a u8 is the lowest byte of word 0. So
//! results do not depend on how the work is divided or ordered.

use crate::op::prelude::*;

attributes! {
    /// `random_bits %key {dtype=u32, shape=[…]}`: uniform bits from a key `u32[2]`; from keys
    /// `u32[…, 2]` bits of that shape for each.
    RandomBits {
        /// u8, u32 or u64.
        dtype: DType,
        /// Shape of the bits of one key; with several keys, their axes come before.
        shape: Vec<Dim>,
    }
}

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: u32 = 10;

/// The block for a counter and a key.
pub fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for round in 0..ROUNDS {
        if round > 0 {
            key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        }
        let product = |i: usize| u64::from(MULTIPLIERS[i]) * u64::from(counter[2 * i]);
        let (a, b) = (product(0), product(1));
        counter = [
            (b >> 32) as u32 ^ counter[1] ^ key[0],
            b as u32,
            (a >> 32) as u32 ^ counter[3] ^ key[1],
            a as u32,
        ];
    }
    counter
}

/// Emits words 0 and 1 of the block of counter (low, high, 0, 0).
fn emit(c: &mut dyn ElementContext, low: Reg, high: Reg, key: [Reg; 2]) -> [Reg; 2] {
    let zero = c.constant(Scalar::of(0u32));
    let multipliers = MULTIPLIERS.map(|m| c.constant(Scalar::of(m)));
    let mut counter = [low, high, zero, zero];
    for round in 0..ROUNDS {
        // The key of a round depends only on the key, so a back end can compute it once.
        let mut word = |i: usize| match round {
            0 => key[i],
            _ => {
                let step = c.constant(Scalar::of(WEYL[i].wrapping_mul(round)));
                c.scalar(ScalarOp::Add, &[key[i], step])
            }
        };
        let keys = [word(0), word(1)];
        let mut half = |i: usize, other: Reg, key: Reg| {
            let high = c.scalar(ScalarOp::MulHigh, &[multipliers[i], counter[2 * i]]);
            let low = c.scalar(ScalarOp::Mul, &[multipliers[i], counter[2 * i]]);
            let mixed = c.scalar(ScalarOp::Xor, &[high, other]);
            (c.scalar(ScalarOp::Xor, &[mixed, key]), low)
        };
        let (first, second) = half(1, counter[1], keys[0]);
        // The last round's words 2 and 3 are not used.
        let (third, fourth) = if round + 1 < ROUNDS {
            half(0, counter[3], keys[1])
        } else {
            (counter[2], counter[3])
        };
        counter = [first, second, third, fourth];
    }
    [counter[0], counter[1]]
}

impl Operation for RandomBits {
    named!(
        "random_bits",
        "Uniform bits: Philox 4x32-10 of the key and the element's row-major index. Several keys \
         give bits for each key."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x] = t.exactly()?;
        let (key, two) = (x, Dim::constant(2));
        let Some(keys) =
            key.shape.split_last().filter(|(n, _)| key.dtype == DType::U32 && **n == two)
        else {
            bail!("a key of type {key}";
                help "a key is u32[2]; the last axis of several keys has extent 2");
        };
        ensure!(
            self.dtype.is_unsigned_integer(),
            "random bits of dtype {}", self.dtype;
            help "random bits are u8, u32 or u64; `Tensor::uniform` and `Tensor::normal` make \
             floats of them"
        );
        let shape = keys.1.iter().chain(&self.shape).cloned().collect();
        Ok(vec![TensorType::of(self.dtype, shape)])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let shape = e.extents();
        let count: usize = shape[e.operands[0].shape.len() - 1..].iter().product();
        let mut position = 0;
        e.build(|_| {
            let (number, flat) = (position / count, (position % count) as u64);
            let key = [0, 1].map(|i| e.operands[0].cells[2 * number + i].bits() as u32);
            let block = philox([flat as u32, (flat >> 32) as u32, 0, 0], key);
            position += 1;
            let bits = u64::from(block[0]) | u64::from(block[1]) << 32;
            Cell::from_scalar(Scalar::from_bits(self.dtype, bits))
        })
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let keys = l.operands[0].rank() - 1;
        let extents = l.result_extents()[keys..].to_vec();
        let large = extents.iter().product::<usize>() > u32::MAX as usize;
        Compute::element(move |c, index| {
            let (key, index) = index.split_at(keys);
            let flat = index
                .iter()
                .zip(&extents)
                .fold(Affine::constant(0), |flat, (i, extent)| flat.scale(*extent as i64).add(i));
            let low = c.index(&flat, DType::U32);
            let high = if large {
                c.index(&flat.floor_div(1 << 32), DType::U32)
            } else {
                c.constant(Scalar::of(0u32))
            };
            let key = [0, 1].map(|i| c.operand(0, &[key, &[Affine::constant(i)]].concat()));
            let words = emit(c, low, high, key);
            match self.dtype {
                DType::U64 => {
                    let [low, high] = words.map(|w| c.convert(w, DType::U64));
                    let by = c.constant(Scalar::of(32u64));
                    let high = c.scalar(ScalarOp::ShiftLeft, &[high, by]);
                    c.scalar(ScalarOp::Or, &[low, high])
                }
                DType::U32 => words[0],
                other => c.convert(words[0], other),
            }
        })
    }

    const DERIVATIVE: Derivative = Derivative::Zero;

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        // Each example has its own key, and counts its own elements.
        b.unary(self.clone())
    }

    const TRAITS: Traits = Traits::of(Cost::Expensive);
}

#[cfg(test)]
mod tests {
    use super::philox;

    /// The known answers that the authors publish with their code (Random123, `kat_vectors`,
    /// philox4x32 with 10 rounds).
    #[test]
    fn known_answers() {
        let cases = [
            ([0; 4], [0; 2], [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]),
            (
                [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
                [0xa4093822, 0x299f31d0],
                [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
            ),
        ];
        for (counter, key, block) in cases {
            assert_eq!(philox(counter, key), block);
        }
    }
}
