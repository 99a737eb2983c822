//! Labels as vectors, and mixtures of examples.

use super::Examples;
use super::draws::beta;
use crate::data::exact::{Number, first};
use wengert_core::{DType, Literal, Native, Result, Scalar, diagnostic, with_native};

/// A further axis with 1 at the class.
pub(super) fn one_hot(
    batch: &Literal,
    classes: usize,
    dtype: DType,
    examples: &Examples<'_>,
) -> Result<Literal> {
    if !batch.dtype().is_integer() {
        return Err(diagnostic!("cannot make vectors of {} labels", batch.dtype())
            .help("labels are integers: convert them first"));
    }
    let last = classes as i128 - 1;
    let outside = |n: Number| !matches!(n, Number::Integer(n) if (0..=last).contains(&n));
    if let Some(found) = first(batch, outside) {
        let width = batch.shape()[1..].iter().product::<usize>().max(1);
        let row = examples.row(found.at / width);
        return Err(diagnostic!(
            "row {row}: label {} is out of range: there are classes from 0 to {last}",
            found.number
        ));
    }
    let shape = [batch.shape(), &[classes]].concat();
    let bytes = shape.iter().try_fold(dtype.size(), |n, e| n.checked_mul(*e));
    crate::available_memory::check(bytes.map_or(u64::MAX, |n| n as u64), || {
        format!("a batch {dtype}{shape:?}")
    })?;
    with_native!(dtype, T => {
        let (zero, one) = (Scalar::zero(dtype).get::<T>(), Scalar::one(dtype).get::<T>());
        let mut made = vec![zero; batch.len() * classes];
        for (at, class) in batch.scalars().enumerate() {
            let class = class.to_i64().expect("labels are integers") as usize;
            made[at * classes + class] = one;
        }
        Literal::from_vec(&shape, made)
    })
}

/// `λ` times each example plus `1 − λ` times the next one.
pub(super) fn mixup(batch: &Literal, alpha: Scalar, examples: &Examples<'_>) -> Result<Literal> {
    let dtype = batch.dtype();
    if !dtype.is_float() {
        return Err(diagnostic!("cannot mix {dtype} elements")
            .help("convert them to a float dtype first; labels are mixed as `one_hot` vectors"));
    }
    let count = batch.shape().first().copied().unwrap_or(0);
    with_native!(dtype, T => {
        let all = batch.as_slice::<T>().expect("the dtype is its own");
        let width = all.len().checked_div(count).unwrap_or(0);
        let mut made = Vec::with_capacity(all.len());
        for example in 0..count {
            let row = examples.row(example);
            let share = beta(&mut examples.draws.of("mixup", 0, row), alpha.to_f64());
            let one = &all[example * width..][..width];
            let other = &all[(example + 1) % count * width..][..width];
            made.extend(one.iter().zip(other).map(|(a, b)| {
                let (a, b) = (Native::to_f64(*a), Native::to_f64(*b));
                <T as Native>::from_f64(share * a + (1.0 - share) * b)
            }));
        }
        Literal::from_vec(batch.shape(), made)
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Draws, Transform};
    use super::*;

    fn apply(text: &str, batch: &Literal, rows: &[usize]) -> Result<Literal> {
        let transform: Transform = text.parse().unwrap();
        transform.apply(batch, &Examples::of(rows, Draws::new(3, 1)))
    }

    #[test]
    fn labels_become_vectors() {
        let labels = Literal::from_vec(&[3], vec![2i64, 0, 1]).unwrap();
        let made = apply("one_hot 3 f32", &labels, &[0, 1, 2]).unwrap();
        let wanted = vec![0.0f32, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0];
        assert_eq!(made, Literal::from_vec(&[3, 3], wanted).unwrap());
        let error = apply("one_hot 2 f32", &labels, &[7, 8, 9]).unwrap_err().to_string();
        assert!(error.contains("row 7: label 2 is out of range: there are classes from 0 to 1"));
        assert!(apply("one_hot 2 f32", &labels.convert(DType::F32), &[]).is_err());
    }

    #[test]
    fn inputs_and_labels_are_mixed_by_the_same_numbers() {
        let x = Literal::from_vec(&[3, 1], vec![0.0f64, 1.0, 4.0]).unwrap();
        let labels = Literal::from_vec(&[3], vec![0i32, 1, 2]).unwrap();
        let y = apply("one_hot 3 f64", &labels, &[9, 4, 6]).unwrap();
        let (x, y) = (
            apply("mixup 0.4", &x, &[9, 4, 6]).unwrap(),
            apply("mixup 0.4", &y, &[9, 4, 6]).unwrap(),
        );
        let values = [0.0, 1.0, 4.0];
        for example in 0..3 {
            let share = y.get(example * 3 + example).to_f64();
            let next = (example + 1) % 3;
            assert!((0.0..=1.0).contains(&share));
            assert_eq!(y.get(example * 3 + next).to_f64(), 1.0 - share);
            let wanted = share * values[example] + (1.0 - share) * values[next];
            assert_eq!(x.get(example).to_f64(), wanted);
        }
        assert!(apply("mixup 0.4", &labels, &[0, 1, 2]).is_err());
    }
}
