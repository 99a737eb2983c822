//! Branches and loops, whose bodies are graphs.
//!
//! A branch whose condition is known is imported in place. A loop whose steps are known in number
//! becomes a `scan` if its carried values keep their types, and is else unrolled, which also allows
//! sequences and shapes that grow.

use super::{Call, Row, whole};
use crate::form::Form;
use crate::model::{Attribute, Graph};
use crate::refusal::{Class, refuse};
use crate::value::Value;
use wengert_core::build::control;
use wengert_core::{Diagnostic, Dim, Literal, Result, Scalar, Tensor};

pub(super) const ROWS: &[Row] =
    &[whole("If", 1, branch), whole("Loop", 1, repeat), whole("Scan", 9, scan)];

/// Most steps of a loop that is unrolled.
const UNROLLED: i64 = 1024;

fn graph<'g>(call: &'g Call<'_, '_, '_>, name: &str) -> Result<&'g Graph> {
    match call.attribute(name) {
        Some(Attribute::Graph(graph)) => Ok(graph),
        _ => Err(Diagnostic::new(format!("attribute `{name}` is no graph"))),
    }
}

/// The first error among tensors, or of what made them.
fn poisoned(results: Result<Vec<Tensor>>, count: usize) -> Vec<Tensor> {
    results.unwrap_or_else(|error| vec![Tensor::poisoned(error); count.max(1)])
}

fn branch(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let (then, other) = (graph(call, "then_branch")?, graph(call, "else_branch")?);
    if let Some(known) = call.value(0)?.known().ok().filter(|c| c.len() == 1) {
        return call.body(if known.get(0).to_f64() != 0.0 { then } else { other }, vec![]);
    }
    let condition = call.tensor(0)?.reshape(Vec::<Dim>::new());
    let tensors = |graph: &Graph, forms: &mut Vec<Form>| -> Result<Vec<Tensor>> {
        let mut list = vec![];
        for value in call.region(graph, vec![])? {
            forms.push(Form::of(&value, &|value| call.as_tensor(value), &mut list)?);
        }
        Ok(list)
    };
    let count = call.results();
    let (mut forms, mut others) = (vec![], vec![]);
    let results = control::cond(
        &condition,
        || poisoned(tensors(then, &mut forms), count),
        || poisoned(tensors(other, &mut others), count),
    );
    if forms.len() == others.len() && forms != others {
        let reason = "its branches have sequences of different lengths, or different dtypes";
        return Err(refuse(Class::Container, reason));
    }
    if let Some(error) = results.iter().find_map(Tensor::error) {
        return Err(error.clone());
    }
    let mut results = results.into_iter();
    let values = forms.iter().map(|form| form.value(&mut results)).collect::<Option<Vec<_>>>();
    values.ok_or_else(|| Diagnostic::new("its branches have different numbers of results"))
}

fn number(value: &Value) -> Option<f64> {
    value.known().ok().filter(|l| l.len() == 1).map(|l| l.get(0).to_f64())
}

fn repeat(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let body = graph(call, "body")?;
    let most =
        match call.given(0) {
            Some(value) => Some(number(value).ok_or_else(|| {
                refuse(Class::Operand, "the number of steps is not known at import")
            })? as i64),
            None => None,
        };
    let mut goes_on = match call.given(1) {
        Some(value) => number(value)
            .map(|n| n != 0.0)
            .ok_or_else(|| refuse(Class::Operand, "the condition is not known at import"))?,
        None => true,
    };
    let carried = call.count().max(2) - 2;
    let mut values =
        (0..carried).map(|n| call.value(n + 2).cloned()).collect::<Result<Vec<_>>>()?;
    let stacked = call.results().saturating_sub(carried);
    let mut stacks: Vec<Vec<Tensor>> = vec![vec![]; stacked];
    let mut step = 0;
    while goes_on && most.is_none_or(|most| step < most) {
        if step >= UNROLLED {
            return Err(refuse(Class::Operand, format!("a loop of more than {UNROLLED} steps")));
        }
        let counter = Value::Tensor(Tensor::constant(Literal::full(&[], Scalar::of(step))));
        let holds = Value::Tensor(Tensor::constant(Literal::full(&[], Scalar::of(true))));
        let inputs = [vec![counter, holds], values].concat();
        let mut results = call.body(body, inputs)?;
        if results.len() < 1 + carried + stacked {
            return Err(Diagnostic::new("the body has too few results"));
        }
        for (stack, value) in stacks.iter_mut().zip(results.drain(1 + carried..)) {
            stack.push(call.as_tensor(&value)?);
        }
        values = results.drain(1..).collect();
        goes_on = number(&results[0])
            .map(|n| n != 0.0)
            .ok_or_else(|| refuse(Class::Shape, "the number of steps depends on data"))?;
        step += 1;
    }
    for stack in &stacks {
        if stack.is_empty() {
            return Err(refuse(Class::Shape, "a loop without steps has results for each step"));
        }
        values.push(Value::Tensor(Tensor::stack(stack, 0)));
    }
    Ok(values)
}

fn scan(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let body = graph(call, "body")?;
    let sequences = usize::try_from(call.int("num_scan_inputs", 1)?).unwrap_or(usize::MAX);
    let Some(carried) = call.count().checked_sub(sequences) else {
        return Err(Diagnostic::new(format!("{sequences} sequences of {} operands", call.count())));
    };
    let stacked = call.results().saturating_sub(carried);
    let list = |name: &str, count: usize| -> Result<Vec<i64>> {
        let list = call.some_ints(name)?.unwrap_or_else(|| vec![0; count]);
        match list.len() == count {
            true => Ok(list),
            false => Err(Diagnostic::new(format!("attribute `{name}` has {} entries", list.len()))),
        }
    };
    let (axes, turns) =
        (list("scan_input_axes", sequences)?, list("scan_input_directions", sequences)?);
    let (out_axes, out_turns) =
        (list("scan_output_axes", stacked)?, list("scan_output_directions", stacked)?);
    let start = (0..carried).map(|n| call.tensor(n)).collect::<Result<Vec<_>>>()?;
    let mut xs = vec![];
    for n in 0..sequences {
        let x = call.tensor(carried + n)?;
        let axis = call.axis(axes[n], x.rank())?;
        let mut order: Vec<i64> = (0..x.rank() as i64).filter(|a| *a != axis as i64).collect();
        order.insert(0, axis as i64);
        let x = x.permute(&order);
        xs.push(if turns[n] == 0 { x } else { x.reverse(0) });
    }
    let count = carried + stacked;
    let (last, all) = control::scan(&start, &xs, |state: &Vec<Tensor>, x: &Vec<Tensor>| {
        let inputs = state.iter().chain(x).cloned().map(Value::Tensor).collect();
        let results = call.region(body, inputs).and_then(|values| {
            values.iter().map(|value| call.as_tensor(value)).collect::<Result<Vec<_>>>()
        });
        let mut next = poisoned(results, count);
        next.resize(count, next[0].clone());
        let outputs = next.split_off(carried);
        (next, outputs)
    });
    let mut results: Vec<Value> = last.into_iter().map(Value::Tensor).collect();
    for (n, stack) in all.into_iter().enumerate() {
        let stack = if out_turns[n] == 0 { stack } else { stack.reverse(0) };
        let axis = call.axis(out_axes[n], stack.rank())?;
        let mut order: Vec<i64> = (1..stack.rank() as i64).collect();
        order.insert(axis, 0);
        results.push(Value::Tensor(stack.permute(&order)));
    }
    Ok(results)
}
