//! The steps of [`reduce`](super::reduce): a case to a smaller one. Each gives `None` where it does
//! not apply. The smaller case need not fail; the reduction finds out.

use super::cut::{Case, Record, part};
use super::walk::{chosen, whole_region};
use std::collections::{BTreeMap, BTreeSet};
use wengert_core::graph::{
    Body, Equation, Function, Input, InputRole, Output, OutputRole, ValueId,
};
use wengert_core::interpret::Array;
use wengert_core::op::{Constant, Control, Op};
use wengert_core::{Dim, Id, Literal, LocationId, Result, Scalar, TensorType, diagnostic};

/// The case that keeps these equations. Their values that the others used are outputs, and values
/// of the others that they use are inputs.
pub(super) fn kept(case: &Case, record: &Record, kept: &[bool]) -> Option<Case> {
    let body = &case.function.body;
    let mut wanted: BTreeSet<ValueId> = body.outputs.iter().copied().collect();
    for (equation, _) in body.equations.iter().zip(kept).filter(|(_, kept)| !**kept) {
        wanted.extend(&equation.operands);
    }
    let mut names: BTreeSet<&str> = BTreeSet::new();
    let mut outputs: Vec<(String, ValueId)> = Vec::new();
    let computed: BTreeSet<ValueId> = results(body, kept).collect();
    for (name, value) in case.function.outputs.iter().zip(&body.outputs) {
        // A value that is an output twice is one output.
        if wanted.remove(value) && computed.contains(value) {
            names.insert(&name.name);
            outputs.push((name.name.clone(), *value));
        }
    }
    for value in results(body, kept).filter(|value| wanted.contains(value)) {
        let mut name = format!("y{}", value.index());
        while names.contains(name.as_str()) {
            name.push('_');
        }
        outputs.push((name, value));
    }
    if outputs.is_empty() {
        return None;
    }
    Some(part(case, record, kept, &outputs))
}

fn results<'a>(body: &'a Body, kept: &'a [bool]) -> impl Iterator<Item = ValueId> + 'a {
    let equations = body.equations.iter().zip(kept).filter(|(_, kept)| **kept);
    equations.flat_map(|(equation, _)| equation.results.iter().copied())
}

/// The case with the results of an equation replaced by operands of the same types.
pub(super) fn bypassed(case: &Case, number: usize) -> Option<Case> {
    let body = &case.function.body;
    let equation = &body.equations[number];
    let mut stands_for: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    for result in &equation.results {
        let same = equation.operands.iter().find(|v| body.ty(**v) == body.ty(*result))?;
        stands_for.insert(*result, *same);
    }
    let mut case = case.clone();
    let body = &mut case.function.body;
    body.equations.remove(number);
    replace(body, &stands_for);
    let outputs = case.outputs();
    Some(case.of_outputs(&outputs))
}

fn replace(body: &mut Body, stands_for: &BTreeMap<ValueId, ValueId>) {
    let replace = |value: &mut ValueId| *value = *stands_for.get(value).unwrap_or(value);
    body.equations.iter_mut().for_each(|e| e.operands.iter_mut().for_each(replace));
    body.outputs.iter_mut().for_each(replace);
}

/// The case with the region of a construct in place of the construct: the branch that is taken,
/// the function that is called, or one step of a loop.
///
/// The inputs of a step become inputs of the function, and so do the results of the loop; the
/// outputs of the step become outputs.
pub(super) fn opened(case: &Case, record: &Record, number: usize) -> Option<Case> {
    let function = &case.function;
    let equation = &function.body.equations[number];
    let (region, operands) = match equation.op.control() {
        Some(Control::Branch) => {
            let selector = Array::from_literal(record.get(equation.operands[0])?).ok()?;
            (chosen(&equation.op, &selector, equation.regions.len()), &equation.operands[1..])
        }
        Some(Control::Scan(_) | Control::While(_)) => return step(case, record, number),
        None => (whole_region(&equation.op)?, &equation.operands[..]),
    };
    let mut new = case.clone();
    let body = &mut new.function.body;
    let (equations, outputs) = spliced(body, &equation.regions[region], operands);
    let stands_for = equation.results.iter().copied().zip(outputs).collect();
    body.equations.splice(number..=number, equations);
    replace(body, &stands_for);
    let outputs = new.outputs();
    Some(new.of_outputs(&outputs))
}

/// [`opened`] for a loop.
fn step(case: &Case, record: &Record, number: usize) -> Option<Case> {
    let equation = &case.function.body.equations[number];
    // The first run of a `while` is that of its condition.
    let entries = case.entries(number, 2).ok()?;
    let (frame, inner) =
        entries.into_iter().rfind(|(frame, _)| frame.op != "while" || frame.region == 1)?;
    let mut new = case.clone();
    let Function { body, inputs, outputs, .. } = &mut new.function;
    let mut input = |body: &mut Body, value: ValueId, literal: Literal| {
        let mut name = format!("v{}", value.index());
        while inputs.iter().any(|input| input.name == name) {
            name.push('_');
        }
        inputs.push(Input { name, role: InputRole::Input, location: LocationId::new(0) });
        body.inputs.push(value);
        new.inputs.push(literal);
    };
    let mut given = Vec::new();
    for (n, literal) in inner.inputs.into_iter().enumerate() {
        let value = body.values.push(inner.function.input_type(n).clone());
        input(body, value, literal);
        given.push(value);
    }
    for result in &equation.results {
        input(body, *result, record.get(*result)?.clone());
    }
    let (equations, made) = spliced(body, &equation.regions[frame.region], &given);
    body.equations.splice(number..=number, equations);
    for (n, value) in made.into_iter().enumerate() {
        let mut name = format!("r{n}");
        while outputs.iter().any(|output| output.name == name) {
            name.push('_');
        }
        outputs.push(Output { name, role: OutputRole::Output });
        body.outputs.push(value);
    }
    // An output that is an input computes nothing.
    let computed: BTreeSet<ValueId> =
        body.equations.iter().flat_map(|e| e.results.iter().copied()).collect();
    let outputs = new.outputs();
    let outputs: Vec<_> = outputs.into_iter().filter(|(_, v)| computed.contains(v)).collect();
    (!outputs.is_empty()).then(|| new.of_outputs(&outputs))
}

/// The equations of a region with values of `body`, and the region's outputs.
fn spliced(body: &mut Body, region: &Body, operands: &[ValueId]) -> (Vec<Equation>, Vec<ValueId>) {
    let mut values: BTreeMap<ValueId, ValueId> =
        region.inputs.iter().copied().zip(operands.iter().copied()).collect();
    let mut equations = Vec::new();
    for equation in &region.equations {
        let mut equation = equation.clone();
        for result in &mut equation.results {
            let new = body.values.push(region.ty(*result).clone());
            values.insert(*result, new);
            *result = new;
        }
        equation.operands.iter_mut().for_each(|v| *v = values[v]);
        equations.push(equation);
    }
    let outputs = region.outputs.iter().map(|v| values[v]).collect();
    (equations, outputs)
}

/// The extents above 1 of the function's values.
pub(super) fn extents(case: &Case) -> BTreeSet<usize> {
    let all = case.function.body.values.iter();
    let all = all.flat_map(|(_, ty)| ty.shape.iter().filter_map(Dim::as_extent));
    all.filter(|extent| *extent > 1).collect()
}

/// The case with every extent `from` replaced by `to`, which is less. Values are cut off. `None` if
/// the types do not fit any more.
pub(super) fn resized(case: &Case, from: usize, to: usize) -> Option<Case> {
    let (from, to) = (i64::try_from(from).ok()?, i64::try_from(to).ok()?);
    let map = |dim: &Dim| match dim.as_constant() {
        Some(extent) if extent == from => Dim::constant(to),
        _ => dim.clone(),
    };
    let body = resized_body(&case.function.body, &map).ok()?;
    let function = Function { body, ..case.function.clone() };
    let inputs = case.inputs.iter().enumerate();
    let inputs = inputs.map(|(n, literal)| cropped(literal, function.input_type(n)));
    Some(Case { inputs: inputs.collect::<Result<_>>().ok()?, function })
}

fn resized_type(ty: &TensorType, map: &impl Fn(&Dim) -> Dim) -> TensorType {
    ty.with_shape(ty.shape.iter().map(map).collect())
}

fn resized_body(body: &Body, map: &impl Fn(&Dim) -> Dim) -> Result<Body> {
    let mut body = body.clone();
    for (_, ty) in body.values.iter_mut() {
        *ty = resized_type(ty, map);
    }
    for equation in &mut body.equations {
        equation.op.map_dims(&mut |dim| Ok(map(dim)))?;
        if let Op::Constant(Constant { value }) = &mut equation.op {
            *value = cropped(value, &resized_type(&value.ty(), map))?;
        }
        for region in &mut equation.regions {
            *region = resized_body(region, map)?.into();
        }
        let operands = equation.operands.iter().map(|v| body.values[*v].clone());
        let operands: Vec<TensorType> = operands.collect();
        let inferred = equation.op.infer(&operands, &equation.regions)?;
        for (result, ty) in equation.results.iter().zip(inferred) {
            body.values[*result] = ty;
        }
    }
    Ok(body)
}

/// The elements of a literal at the indices of a type that is not larger.
fn cropped(literal: &Literal, ty: &TensorType) -> Result<Literal> {
    let shape = ty.extents().ok_or_else(|| diagnostic!("{ty} is not bound"))?;
    let fits = shape.len() == literal.shape().len()
        && shape.iter().zip(literal.shape()).all(|(new, old)| new <= old);
    if !fits {
        return Err(diagnostic!("{} has no part {ty}", literal.ty()));
    }
    let count = shape.iter().product();
    let scalars: Vec<Scalar> = (0..count)
        .map(|flat| {
            let index = super::index(&shape, flat);
            let old = index.iter().zip(literal.shape()).fold(0, |at, (i, extent)| at * extent + i);
            literal.get(old)
        })
        .collect();
    Literal::from_scalars(literal.dtype(), &shape, &scalars)
}

/// Simpler literals of the same type, the simplest first.
pub(super) fn simpler(literal: &Literal) -> Vec<Literal> {
    let (dtype, shape) = (literal.dtype(), literal.shape());
    let mut all = vec![Literal::full(shape, Scalar::one(dtype)), Literal::zeros(dtype, shape)];
    if literal.len() > 1 && !literal.is_empty() {
        all.push(Literal::full(shape, literal.get(0)));
    }
    if dtype.is_float() {
        for digits in [0, 1, 2] {
            let rounded = |s: Scalar| {
                let text = format!("{:.digits$e}", s.to_f64());
                Scalar::from_f64(dtype, text.parse().unwrap_or(s.to_f64()))
            };
            let scalars: Vec<Scalar> = literal.scalars().map(rounded).collect();
            all.extend(Literal::from_scalars(dtype, shape, &scalars));
        }
    }
    let weight = weight(literal);
    all.retain(|simple| self::weight(simple) < weight);
    all
}

/// The length of a literal's text: a literal that is simpler has less.
pub(super) fn weight(literal: &Literal) -> usize {
    match literal.splat() {
        // One and zero are equally simple.
        Some(scalar) if scalar.to_f64() == 0.0 || scalar.to_f64() == 1.0 => 1,
        Some(scalar) => 1 + scalar.to_string().len(),
        None => 8 + literal.scalars().map(|s| s.to_string().len()).sum::<usize>(),
    }
}

/// The case with another value for an input.
pub(super) fn with_input(case: &Case, number: usize, value: Literal) -> Case {
    let mut case = case.clone();
    case.inputs[number] = value;
    case
}

/// The constants of the function, by the number of their equation.
pub(super) fn constants(case: &Case) -> Vec<(usize, Literal)> {
    let equations = case.function.body.equations.iter().enumerate();
    let constants = equations.filter_map(|(n, equation)| match &equation.op {
        Op::Constant(constant) => Some((n, constant.value.clone())),
        _ => None,
    });
    constants.collect()
}

/// The case with another value for a constant.
pub(super) fn with_constant(case: &Case, number: usize, value: Literal) -> Case {
    let mut case = case.clone();
    case.function.body.equations[number].op = Constant { value }.into();
    case
}
