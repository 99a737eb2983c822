//! Sequences of known length, and values that may be absent, which is known, too.

use super::{Call, Row, one, row, whole};
use crate::model::Attribute;
use crate::refusal::{Class, refuse};
use crate::value::Value;
use wengert_core::{Diagnostic, Dim, Literal, Result, Scalar, Tensor};

pub(super) const ROWS: &[Row] = &[
    row("SequenceConstruct", 11, |call| {
        let all = (0..call.count()).map(|n| call.value(n).cloned()).collect::<Result<Vec<_>>>()?;
        Ok(vec![Value::Sequence(all)])
    }),
    row("SequenceEmpty", 11, |_| Ok(vec![Value::Sequence(vec![])])),
    row("SequenceAt", 11, |call| {
        let values = sequence(call, 0)?;
        let at = element(values.len(), position(call, 1)?.unwrap_or(0))?;
        Ok(vec![values[at].clone()])
    }),
    row("SequenceLength", 11, |call| {
        let length = Literal::full(&[], Scalar::of(sequence(call, 0)?.len() as i64));
        one(Tensor::constant(length))
    }),
    row("SequenceInsert", 11, |call| {
        let mut values = sequence(call, 0)?.to_vec();
        // One more than the elements: the end is a place, too.
        let at = match position(call, 2)? {
            Some(at) if at < 0 => element(values.len(), at)?,
            Some(at) => element(values.len() + 1, at)?,
            None => values.len(),
        };
        values.insert(at, call.value(1)?.clone());
        Ok(vec![Value::Sequence(values)])
    }),
    row("SequenceErase", 11, |call| {
        let mut values = sequence(call, 0)?.to_vec();
        values.remove(element(values.len(), position(call, 1)?.unwrap_or(-1))?);
        Ok(vec![Value::Sequence(values)])
    }),
    row("ConcatFromSequence", 11, |call| {
        let parts = sequence(call, 0)?;
        let parts = parts.iter().map(|value| call.as_tensor(value)).collect::<Result<Vec<_>>>()?;
        let axis = call.int("axis", 0)?;
        one(match call.flag("new_axis", false)? {
            true => Tensor::stack(&parts, axis),
            false => Tensor::concatenate(&parts, axis),
        })
    }),
    row("SplitToSequence", 11, split_to_sequence),
    whole("SequenceMap", 17, sequence_map),
    row("Optional", 15, |call| Ok(vec![call.given(0).cloned().unwrap_or(Value::Absent)])),
    row("OptionalHasElement", 15, |call| {
        let is_there = !matches!(call.given(0), None | Some(Value::Absent));
        one(Tensor::constant(Literal::full(&[], Scalar::of(is_there))))
    }),
    row("OptionalGetElement", 15, |call| match call.value(0)? {
        Value::Absent => Err(Diagnostic::new("the element of an optional value that is absent")),
        value => Ok(vec![value.clone()]),
    }),
];

fn sequence<'v>(call: &'v Call<'_, '_, '_>, n: usize) -> Result<&'v [Value]> {
    match call.value(n)? {
        Value::Sequence(values) => Ok(values),
        _ => Err(Diagnostic::new(format!("operand {n} is no sequence"))),
    }
}

/// An operand that is a position, if it is there.
fn position(call: &Call<'_, '_, '_>, n: usize) -> Result<Option<i64>> {
    Ok(match call.given(n) {
        Some(_) => call.ints(n)?.first().copied(),
        None => None,
    })
}

fn element(length: usize, at: i64) -> Result<usize> {
    let index = if at < 0 { at + length as i64 } else { at };
    let index = usize::try_from(index).ok().filter(|index| *index < length);
    index.ok_or_else(|| Diagnostic::new(format!("element {at} of a sequence of {length}")))
}

fn split_to_sequence(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    let axis = call.axis(call.int("axis", 0)?, x.rank())?;
    let extent = x.shape()[axis].as_constant();
    let extent = extent.ok_or_else(|| {
        refuse(Class::Shape, format!("an extent of {} in parts", x.shape()[axis]))
    })?;
    let is_list = call.given(1).is_some() && call.known(1)?.shape().len() == 1;
    let sizes: Vec<i64> = match call.given(1) {
        Some(_) if is_list => call.ints(1)?,
        given => {
            let size = match given {
                Some(_) => position(call, 1)?.unwrap_or(1),
                None => 1,
            };
            if size < 1 {
                return Err(Diagnostic::new(format!("parts of extent {size}")));
            }
            let count = call.parts((extent + size - 1) / size)?;
            (0..count as i64).map(|n| size.min(extent - n * size)).collect()
        }
    };
    let parts = x.split(sizes.into_iter().map(Dim::constant).collect::<Vec<_>>(), axis);
    let dropped = call.given(1).is_none() && !call.flag("keepdims", true)?;
    let part = |part: Tensor| Value::Tensor(if dropped { part.squeeze(axis) } else { part });
    Ok(vec![Value::Sequence(parts.into_iter().map(part).collect())])
}

/// A graph of the elements of sequences with the same number, and of values for all of them.
fn sequence_map(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let Some(Attribute::Graph(body)) = call.attribute("body") else {
        return Err(Diagnostic::new("attribute `body` is no graph"));
    };
    let length = sequence(call, 0)?.len();
    let operands = (0..call.count()).map(|n| call.value(n)).collect::<Result<Vec<_>>>()?;
    let mut results = vec![vec![]; call.results()];
    for n in 0..length {
        let of = |operand: &&Value| match operand {
            Value::Sequence(values) => values.get(n).cloned().ok_or_else(|| {
                Diagnostic::new(format!("sequences of {length} and of {}", values.len()))
            }),
            other => Ok((*other).clone()),
        };
        let inputs = operands.iter().map(of).collect::<Result<Vec<_>>>()?;
        let found = call.body(body, inputs)?;
        if found.len() < results.len() {
            return Err(Diagnostic::new("the body has too few results"));
        }
        results.iter_mut().zip(found).for_each(|(list, value)| list.push(value));
    }
    Ok(results.into_iter().map(Value::Sequence).collect())
}
