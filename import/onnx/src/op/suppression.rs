//! Suppression of boxes that overlap better ones.

use super::selection::{Places, folded};
use super::{Call, Row, one, whole};
use crate::refusal::{Class, refuse};
use crate::value::Value;
use wengert_core::build::control;
use wengert_core::op::Binary;
use wengert_core::{DType, Diagnostic, Dim, Result, Tensor, TensorType};

pub(super) const ROWS: &[Row] =
    &[whole("NonMaxSuppression", 10, |call| folded(call, non_max_suppression))];

/// Ratios of the areas of the intersection and of the union of boxes, `[batch, boxes, boxes]`.
fn overlaps(boxes: &Tensor, centred: bool) -> Tensor {
    let part = |n: i64| boxes.slice_axis(2, n, n + 1).squeeze(2);
    let range = |n: i64| match centred {
        true => {
            let half = part(n + 2) * 0.5;
            (part(n) - &half, part(n) + &half)
        }
        false => {
            let (a, b) = (part(n), part(n + 2));
            (a.binary(Binary::Min, &b), a.binary(Binary::Max, &b))
        }
    };
    let ranges = [range(0), range(1)];
    let pairs = |x: &Tensor| (x.unsqueeze(2), x.unsqueeze(1));
    let common = ranges.each_ref().map(|(low, high)| {
        let ((low_a, low_b), (high_a, high_b)) = (pairs(low), pairs(high));
        let length = high_a.binary(Binary::Min, &high_b) - low_a.binary(Binary::Max, &low_b);
        length.binary(Binary::Max, &length.zeros_like())
    });
    let intersection = &common[0] * &common[1];
    let [length_a, length_b] = ranges.map(|(low, high)| high - low);
    let (own, other) = pairs(&(length_a * length_b));
    let union = own + other - &intersection;
    union.gt(0.0).select(&intersection / &union, &intersection.zeros_like())
}

/// The best boxes of each class, of which none overlaps a better one too much.
fn non_max_suppression(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let (boxes, scores) = (call.tensor(0)?, call.tensor(1)?);
    let ([_, classes, count], [_, _, Some(4)]) =
        (scores.shape(), [0, 1, 2].map(|n| boxes.shape().get(n).and_then(Dim::as_constant)))
    else {
        let text = format!("boxes {} with scores {}", boxes.ty(), scores.ty());
        return Err(Diagnostic::new(text).help("they are [batch, n, 4] and [batch, classes, n]"));
    };
    let all = count
        .as_constant()
        .ok_or_else(|| refuse(Class::Shape, format!("the number of boxes is {count}")))?;
    let steps = (call.number(2)?.unwrap_or(0.0) as i64).clamp(0, all);
    if steps == 0 {
        let shape = vec![Dim::constant(0), Dim::constant(3)];
        return one(Tensor::zeros(&TensorType::of(DType::I64, shape)));
    }
    let scalar = |n: usize| -> Result<Option<Tensor>> {
        Ok(call.optional(n)?.map(|x| x.reshape(Vec::<Dim>::new())))
    };
    let shared = overlaps(&boxes, call.flag("center_point_box", false)?);
    let limit = scalar(3)?.unwrap_or_else(|| Tensor::constant(0f32));
    let hides = shared.gt(&limit.broadcast_to(shared.shape()));
    let shape = scores.shape().to_vec();
    let alive = match scalar(4)? {
        Some(least) => scores.gt(&least.broadcast_to(&shape)),
        None => scores.eq(&scores),
    };
    let number = Tensor::iota(DType::I32, shape.clone(), 2);
    let turns = Tensor::iota(DType::I32, [steps], 0);
    let (_, chosen) = control::scan(&alive, &turns, |alive: &Tensor, _: &Tensor| {
        let lowest = scores.full_like(f64::NEG_INFINITY);
        let best = alive.select(&scores, &lowest).argmax(2).convert(DType::I32);
        let is_left = alive.convert(DType::I32).max_axes(2);
        let found = is_left.ne(0).select(&best, &best.full_like(-1.0));
        let row = best.unsqueeze(2).broadcast_to(&shape);
        let hidden = hides.convert(DType::I32).take_along_axis(&row, 1).ne(0);
        let next = alive & &!(hidden | number.eq(&row));
        (next, found)
    });
    // In the order of batches, classes and scores.
    let flat = chosen.permute([1, 2, 0]).reshape([-1]);
    let places = Places::of(call, &flat.ge(0))?;
    let at = places.at.convert(DType::I64);
    let classes = Tensor::dim_as_value(classes.clone(), DType::I64);
    let pair = &at / steps;
    let columns = [
        pair.binary(Binary::Div, &classes),
        pair.binary(Binary::Rem, &classes),
        flat.index_select(0, &places.at).convert(DType::I64),
    ];
    one(places.masked(&Tensor::stack(&columns, 1), 0))
}
