//! Counts of n-grams.

use super::{Call, Row, one, row};
use crate::model::Attribute;
use crate::refusal::{Class, refuse};
use crate::value::Value;
use wengert_core::{DType, Diagnostic, Dim, Literal, Result, Tensor};

pub(super) const ROWS: &[Row] = &[row("TfIdfVectorizer", 9, tf_idf)];

/// Most pairs of a length and of a distance between items: each is a few equations.
const MOST_KINDS: i64 = 1024;

fn tf_idf(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let x = call.ranked(0, 1)?;
    if x.rank() > 2 || !x.dtype().is_integer() {
        return Err(Diagnostic::new(format!("{} is no list of integers, or batch", x.ty())));
    }
    let list = |name: &str| -> Result<Vec<i64>> {
        let found = call.some_bounds(name)?;
        found.ok_or_else(|| Diagnostic::new(format!("attribute `{name}` is missing")))
    };
    let (pool, starts, places) =
        (list("pool_int64s")?, list("ngram_counts")?, list("ngram_indexes")?);
    let [shortest, longest] = [call.int("min_gram_length", 1)?, call.int("max_gram_length", 1)?];
    let skips = call.int("max_skip_count", 0)?;
    if skips < 0 || longest.saturating_mul(skips + 1) > MOST_KINDS {
        return call.refuse("max_skip_count", format_args!("{skips} for up to {longest} items"));
    }
    let length = x.shape()[x.rank() - 1]
        .as_constant()
        .ok_or_else(|| refuse(Class::Shape, format!("n-grams of {}", x.ty())))?;
    let width = call.listed(&[places.iter().max().map_or(0, |place| place.saturating_add(1))])?;
    let axis = x.rank() - 1;
    let mut shape = x.shape()[..axis].to_vec();
    shape.push(width.into());
    let ty = wengert_core::TensorType::of(DType::F32, shape);
    let mut counts = Tensor::zeros(&ty);
    let mut known = 0;
    for n in 1..=starts.len() {
        let end = starts.get(n).map_or(Ok(pool.len()), |end| usize::try_from(*end));
        let part = usize::try_from(starts[n - 1]).ok().zip(end.ok());
        let part = part.and_then(|(start, end)| pool.get(start..end));
        let part = part.filter(|part| part.len() % n == 0).ok_or_else(|| {
            Diagnostic::new(format!("`ngram_counts` is {starts:?}, for a pool of {}", pool.len()))
        })?;
        let grams = part.len() / n;
        let own = places.get(known..known + grams).filter(|own| own.iter().all(|p| *p >= 0));
        let own = own.ok_or_else(|| Diagnostic::new("`ngram_indexes` has too few entries"))?;
        known += grams;
        if grams == 0 || !(shortest..=longest).contains(&(n as i64)) {
            continue;
        }
        // The place of each n-gram among the counts.
        let mut matrix = vec![0f32; call.listed(&[grams as i64, width as i64])?];
        own.iter()
            .enumerate()
            .for_each(|(gram, place)| matrix[gram * width + *place as usize] = 1.0);
        let matrix = Tensor::constant(Literal::from_vec(&[grams, width], matrix)?);
        for step in 1..=if n == 1 { 1 } else { skips + 1 } {
            let windows = length - (n as i64 - 1) * step;
            if windows <= 0 {
                break;
            }
            let mut found: Option<Tensor> = None;
            for item in 0..n {
                let start = item as i64 * step;
                let of_item = part.iter().skip(item).step_by(n).copied().collect();
                let of_item = Literal::from_vec(&[grams], of_item)?.convert(x.dtype());
                let part = x.slice_axis(axis, start, start + windows).unsqueeze(-1);
                let mut pairs = part.shape().to_vec();
                pairs[axis + 1] = Dim::from(grams);
                let of_item = Tensor::constant(of_item).broadcast_to(&pairs);
                let same = part.broadcast_to(&pairs).eq(&of_item);
                found = Some(match found.take() {
                    Some(found) => found & same,
                    None => same,
                });
            }
            let found = found.expect("an n-gram has an item").convert(DType::F32);
            let of_grams = found.sum_axes(axis as i64);
            let own = match axis {
                0 => of_grams.unsqueeze(0).matmul(&matrix).squeeze(0),
                _ => of_grams.matmul(&matrix),
            };
            counts = counts + own;
        }
    }
    let mode = call.text("mode", "TF")?;
    let weights = match call.attribute("weights") {
        Some(Attribute::Floats(_)) if places.iter().enumerate().any(|(n, p)| n as i64 != *p) => {
            // Runtimes take a weight for each count, and the standard for each n-gram.
            return call.refuse("weights", "given for n-grams in another order than their counts");
        }
        Some(_) => call.some_floats("weights")?,
        None => None,
    };
    let weights = weights.filter(|_| mode != "TF").map(|all| -> Result<Tensor> {
        let all: Vec<f32> = all.into_iter().map(|weight| weight as f32).collect();
        Ok(Tensor::constant(Literal::from_vec(&[width], all)?))
    });
    let counts = match mode {
        "TF" | "TFIDF" => counts,
        "IDF" => counts.gt(0.0).convert(DType::F32),
        other => return call.refuse("mode", other),
    };
    one(match weights.transpose()? {
        Some(weights) => counts * weights,
        None => counts,
    })
}
