//! Losses of training.

use super::{Call, Row, one, row};
use crate::value::Value;
use wengert_core::{DType, Diagnostic, Result, Tensor};

pub(super) const ROWS: &[Row] = &[
    row("SoftmaxCrossEntropyLoss", 12, |call| {
        let logarithms = call.tensor(0)?.log_softmax(1);
        let loss = likelihood(call, &logarithms)?;
        Ok(vec![Value::Tensor(loss), Value::Tensor(logarithms)])
    }),
    row("NegativeLogLikelihoodLoss", 12, |call| one(likelihood(call, &call.tensor(0)?)?)),
];

/// The negative logarithms `x[n, target[n, d…], d…]`, weighted by their classes and reduced.
fn likelihood(call: &Call<'_, '_, '_>, x: &Tensor) -> Result<Tensor> {
    let target = call.tensor(1)?.convert(DType::I64);
    if x.rank() < 2 || target.rank() + 1 != x.rank() {
        return Err(Diagnostic::new(format!("labels {} of scores {}", target.ty(), x.ty())));
    }
    let ignored = call.some_int("ignore_index")?;
    let kept = ignored.map(|index| target.ne(index));
    // Any class will do where the label is ignored.
    let label = kept.as_ref().map_or(target.clone(), |kept| kept.select(&target, 0i64));
    let picked = -x.take_along_axis(&label.unsqueeze(1), 1).squeeze(1);
    let weight = match (call.optional(2)?, &kept) {
        (Some(weight), kept) => {
            let of_label = weight.index_select(0, &label);
            Some(kept.as_ref().map_or(of_label.clone(), |kept| kept.select(&of_label, 0.0)))
        }
        (None, Some(kept)) => Some(kept.convert(x.dtype())),
        (None, None) => None,
    };
    let loss = match (&kept, &weight) {
        // A score that is not finite must not reach the sum.
        (Some(kept), Some(weight)) => kept.select(&picked * weight, 0.0),
        (None, Some(weight)) => &picked * weight,
        _ => picked,
    };
    Ok(match call.text("reduction", "mean")? {
        "none" => loss,
        "sum" => loss.sum(),
        "mean" => match weight {
            Some(weight) => loss.sum() / weight.sum(),
            None => loss.mean(),
        },
        other => return call.refuse("reduction", other),
    })
}
