//! Functions, branches and loops.

use super::graph::{Exporter, Value, attribute_graph, attribute_int};
use super::table::{Rule, rule};
use super::walk::{Call, refuse};
use wengert_core::graph::Region;
use wengert_core::{DType, Op, Result, Scalar, TensorType};

pub(super) const RULES: &[Rule] = &[
    rule("call", "the nodes of the function", |e, c| first(e, c, 0)),
    rule("custom_jvp", "the nodes of the function", |e, c| first(e, c, 0)),
    rule("custom_vjp", "the nodes of the function", |e, c| first(e, c, 0)),
    rule("checkpoint", "the nodes of the function", |e, c| first(e, c, 0)),
    rule("custom_linear_solve", "the nodes of the solver", |e, c| first(e, c, 1)),
    rule("cond", "If", |e, c| {
        let condition = e.reshaped(&c.values[0], &[])?;
        let regions = &c.equation.regions;
        choice(e, c, &condition, &regions[0], |e| branch(e, c, &regions[1]))
    }),
    rule("switch", "If, for each region but the last", |e, c| switch(e, c, 0)),
    rule("scan", "Scan", scan),
    rule("while", "Loop; with stacks it is refused", while_loop),
];

/// The results of a region, whose nodes come in place of the equation.
fn first(e: &mut Exporter, c: &Call<'_>, region: usize) -> Result<Vec<Value>> {
    let mut results = e.body(&c.equation.regions[region], c.values.clone(), c.locations)?;
    results.truncate(c.results.len());
    Ok(results)
}

/// The results of a region of a branch, with all their elements.
fn branch(e: &mut Exporter, c: &Call<'_>, region: &Region) -> Result<Vec<Value>> {
    let results = e.body(region, c.values[1..].to_vec(), c.locations)?;
    full(e, &results, &c.results)
}

fn full(e: &mut Exporter, values: &[Value], types: &[TensorType]) -> Result<Vec<Value>> {
    values.iter().zip(types).map(|(value, ty)| e.expanded(value, &ty.shape)).collect()
}

/// The results of one of two branches.
fn choice(
    e: &mut Exporter,
    c: &Call<'_>,
    condition: &Value,
    then: &Region,
    other: impl FnOnce(&mut Exporter) -> Result<Vec<Value>>,
) -> Result<Vec<Value>> {
    let then = e.graph("then", &[], |e| branch(e, c, then))?;
    let other = e.graph("else", &[], other)?;
    let attributes =
        vec![attribute_graph("then_branch", then), attribute_graph("else_branch", other)];
    Ok(e.node("If", &[condition], attributes, c.results.clone()))
}

/// The regions from number `from` on: each but the last is a branch.
fn switch(e: &mut Exporter, c: &Call<'_>, from: usize) -> Result<Vec<Value>> {
    let regions = &c.equation.regions;
    if from + 1 == regions.len() {
        return branch(e, c, &regions[from]);
    }
    let which = e.reshaped(&c.values[0], &[])?;
    let number = e.scalar(Scalar::from_i64(DType::I32, from as i64));
    let condition = e.elementwise("LessOrEqual", &[&which, &number], DType::Bool);
    choice(e, c, &condition, &regions[from], |e| switch(e, c, from + 1))
}

fn scan(e: &mut Exporter, c: &Call<'_>) -> Result<Vec<Value>> {
    let Op::Scan(op) = c.op else { unreachable!("the rule of scan") };
    let region = &c.equation.regions[0];
    let values = e.all_full(c)?;
    let parts = op.parts(&values)?;
    let of_types = op.parts(&c.types)?;
    // The number of the step, which a scan without slices needs, too.
    let counted = op.counted || parts.slices.is_empty();
    let mut operands: Vec<Value> = parts.carries.to_vec();
    let mut inputs: Vec<Value> =
        of_types.carries.iter().map(|ty| e.fresh("carry", ty.clone())).collect();
    for (slice, ty) in parts.slices.iter().zip(of_types.slices) {
        operands.push(slice.clone());
        inputs.push(e.fresh("slice", ty.with_shape(ty.shape[1..].to_vec())));
    }
    let mut step = None;
    if counted {
        let steps = e.compute(&[], &[], |_| {
            vec![wengert_core::Tensor::iota(DType::I32, [op.length.clone()], 0)]
        })?;
        operands.extend(steps);
        let input = e.fresh("step", TensorType::scalar(DType::I32));
        inputs.push(input.clone());
        step = Some(input);
    }
    let slices = parts.slices.len() + usize::from(counted);
    let outputs: Vec<TensorType> = region.types(&region.outputs);
    let body = e.graph("step", &inputs, |e| {
        let known = op.carries + parts.slices.len();
        let given = [&inputs[..known], parts.captures].concat();
        let mut results = e.body(region, given, c.locations)?;
        if let (Some(count), Some(step)) = (parts.count, &step) {
            // A step that does not run keeps the carries, and its parts of stacks are 0.
            let runs = e.elementwise("Less", &[step, count], DType::Bool);
            for (n, result) in results.iter_mut().enumerate() {
                let kept = match inputs[..op.carries].get(n) {
                    Some(carry) => carry.clone(),
                    None => e.scalar(Scalar::zero(result.ty.dtype)),
                };
                *result = super::elementwise::choose(e, &runs, result, &kept);
            }
        }
        full(e, &results, &outputs)
    })?;
    let turn = |count: usize| vec![usize::from(op.reverse); count];
    let mut attributes = vec![
        attribute_graph("body", body),
        attribute_int("num_scan_inputs", slices as i64),
        super::graph::attribute_ints("scan_input_directions", turn(slices)),
    ];
    let stacks = c.results.len() - op.carries;
    if stacks > 0 {
        let turns = super::graph::attribute_ints("scan_output_directions", turn(stacks));
        attributes.push(turns);
    }
    let operands: Vec<&Value> = operands.iter().collect();
    Ok(e.node("Scan", &operands, attributes, c.results.clone()))
}

fn while_loop(e: &mut Exporter, c: &Call<'_>) -> Result<Vec<Value>> {
    let Op::While(op) = c.op else { unreachable!("the rule of while") };
    let [condition, step] = &c.equation.regions[..] else {
        unreachable!("infer has counted the regions")
    };
    if c.results.len() > c.values.len() - op.captures {
        return refuse(
            "the stacks of a loop that ends early have no counterpart in ONNX",
            "they occur in derivatives: export the function itself",
        );
    }
    let values = e.all_full(c)?;
    let parts = op.parts(&values)?;
    let most = match &op.max_steps {
        Some(steps) => {
            let steps = e.dim(steps)?;
            e.reshaped(&steps, &[])?
        }
        None => Value::absent(),
    };
    let first = e.body(condition, values.clone(), c.locations)?.remove(0);
    let first = e.reshaped(&first, &[])?;
    let counter = e.fresh("step", TensorType::scalar(DType::I64));
    let holds = e.fresh("holds", TensorType::scalar(DType::Bool));
    let carries: Vec<Value> = c.results.iter().map(|ty| e.fresh("carry", ty.clone())).collect();
    let inputs = [&[counter, holds], carries.as_slice()].concat();
    let body = e.graph("step", &inputs, |e| {
        let given = [carries.as_slice(), parts.captures].concat();
        let next = e.body(step, given, c.locations)?;
        let next = full(e, &next, &c.results)?;
        let given = [next.as_slice(), parts.captures].concat();
        let goes_on = e.body(condition, given, c.locations)?.remove(0);
        let goes_on = e.reshaped(&goes_on, &[])?;
        Ok([&[goes_on], next.as_slice()].concat())
    })?;
    let operands: Vec<&Value> = [&most, &first].into_iter().chain(parts.carries).collect();
    Ok(e.node("Loop", &operands, vec![attribute_graph("body", body)], c.results.clone()))
}
