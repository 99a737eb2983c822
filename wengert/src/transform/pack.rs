//! Packing: several short sequences in one row.

use super::{Examples, Packed};
use wengert_core::{DType, Literal, Native, Result, Scalar, diagnostic, with_native};

/// Joins each `count` sequences of `[N, T]` into a row of `[N / count, length]`.
pub(super) fn pack(
    batch: &Literal,
    (count, length): (usize, usize),
    padding: Scalar,
    part: Packed,
    examples: &Examples<'_>,
) -> Result<Literal> {
    let (dtype, shape) = (batch.dtype(), batch.shape());
    let &[rows, width] = shape else {
        return Err(diagnostic!("cannot pack a batch {dtype}{shape:?}")
            .help("sequences are rows of a batch [N, T]"));
    };
    if rows % count != 0 {
        return Err(diagnostic!("cannot pack {rows} sequences, {count} in a row")
            .help("choose a batch size that is a multiple of it, and `LastBatch::Drop`"));
    }
    if padding.dtype() != dtype {
        return Err(diagnostic!("cannot pack {dtype} elements with the padding {padding:?}")
            .help(format!("write a padding of {dtype}")));
    }
    let made = [rows / count, length];
    // Segments and positions have the dtype of indices.
    let result = if part == Packed::Elements { dtype } else { DType::I32 };
    let bytes = made.iter().try_fold(result.size(), |n, e| n.checked_mul(*e));
    crate::available_memory::check(bytes.map_or(u64::MAX, |n| n as u64), || {
        format!("a batch {result}{made:?}")
    })?;
    with_native!(dtype, T => {
        let all = batch.as_slice::<T>().expect("the dtype is its own");
        let padding = padding.get::<T>();
        let is_padding = |value: &T| value.to_bits64() == padding.to_bits64();
        let mut elements = vec![padding; made[0] * length];
        let mut numbers = vec![0i32; made[0] * length];
        for row in 0..made[0] {
            let mut at = 0;
            for segment in 0..count {
                let sequence = &all[(row * count + segment) * width..][..width];
                let end = sequence.iter().rposition(|v| !is_padding(v)).map_or(0, |at| at + 1);
                if end > length - at {
                    let first = examples.row(row * count);
                    return Err(diagnostic!(
                        "{count} sequences from row {first} on do not fit {length} elements"
                    )
                    .help("pack fewer sequences in a row, or make rows longer"));
                }
                let place = row * length + at;
                elements[place..place + end].copy_from_slice(&sequence[..end]);
                for (position, number) in numbers[place..place + end].iter_mut().enumerate() {
                    *number = match part {
                        Packed::Positions => position as i32,
                        _ => segment as i32 + 1,
                    };
                }
                at += end;
            }
        }
        match part {
            Packed::Elements => Literal::from_vec(&made, elements),
            Packed::Segments | Packed::Positions => Literal::from_vec(&made, numbers),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Draws, Transform};
    use super::*;

    fn apply(text: &str, batch: &Literal) -> Result<Literal> {
        let transform: Transform = text.parse().unwrap();
        let rows: Vec<usize> = (20..20 + batch.shape()[0]).collect();
        transform.apply(batch, &Examples::of(&rows, Draws::new(0, 0)))
    }

    #[test]
    fn sequences_are_joined_without_their_padding() {
        let rows = vec![5i32, 0, 6, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];
        let batch = Literal::from_vec(&[4, 4], rows).unwrap();
        let made = |part: &str| {
            let literal = apply(&format!("pack 2 6 i32 0 {part}"), &batch).unwrap();
            assert_eq!(literal.shape(), [2, 6]);
            literal.as_slice::<i32>().unwrap().to_vec()
        };
        // Padding within a sequence stays.
        assert_eq!(made("elements"), [5, 0, 6, 7, 0, 0, 1, 2, 3, 4, 0, 0]);
        assert_eq!(made("segments"), [1, 1, 1, 2, 0, 0, 2, 2, 2, 2, 0, 0]);
        assert_eq!(made("positions"), [0, 1, 2, 0, 0, 0, 0, 1, 2, 3, 0, 0]);
        let says = |text: &str, says: &str| {
            let error = apply(text, &batch).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        };
        says("pack 2 3 i32 0 elements", "2 sequences from row 20 on do not fit 3 elements");
        says("pack 3 9 i32 0 elements", "cannot pack 4 sequences, 3 in a row");
        says("pack 2 9 u8 0 elements", "padding 0:u8");
        let flat = Literal::zeros(DType::I32, &[4]);
        assert!(apply("pack 2 9 i32 0 elements", &flat).is_err());
    }
}
