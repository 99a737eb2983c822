//! The function of one rank: loops over its microbatches, and collectives.

use super::DataParallel;
use super::axes::{Along, Fate};
use super::divide::Divide;
use super::examples::{Examples, Part, Stage};
use crate::autodiff::function::Maker;
use crate::autodiff::{record, unpoisoned};
use std::collections::BTreeMap;
use wengert_core::build::Scope;
use wengert_core::graph::{Equation, Function, ValueId};
use wengert_core::mesh::Varying;
use wengert_core::op::collective::{PReduce, PReduceKind};
use wengert_core::op::{Binary, Scan};
use wengert_core::{Dim, Location, Mesh, Result, Tensor, TensorType};

/// The extents of nested loops over `parts` microbatches, outermost first. Each loop adds what
/// its steps give in a balanced tree, so the nest is the tree of `psum` over `parts` operands:
/// the inner loops of 2 steps are its first levels, and the outermost has the odd factor.
fn nest(parts: usize) -> Vec<usize> {
    let pairs = parts.trailing_zeros();
    let odd = parts >> pairs;
    let outer = (odd > 1).then_some(odd);
    outer.into_iter().chain((0..pairs).map(|_| 2)).collect()
}

/// A value of a loop over microbatches.
#[derive(Clone, Copy)]
enum Made {
    /// It has the examples along this axis.
    ByExample(usize),
    /// A partial result.
    Partial(PReduceKind),
}

/// The function that is being made.
pub(super) struct Rewrite<'a> {
    pub options: &'a DataParallel,
    pub function: &'a Function,
    pub examples: &'a Examples,
}

impl Rewrite<'_> {
    /// The function of a rank. `batch` has the inputs with examples.
    pub fn run(&self, batch: &[usize]) -> Result<Function> {
        let (body, ranks) = (&self.function.body, self.options.ranks);
        let mut types = body.types(&body.inputs);
        if ranks > 1 {
            for input in batch {
                let part = part_of(&types[*input], 0, ranks);
                let varying = part.varying.union(&Varying::over(&[self.axis()]));
                types[*input] = part.with_varying(varying);
            }
        }
        let maker = Maker::with_types(self.function, &types);
        if ranks > 1 {
            let own = [(self.axis().into(), ranks)];
            let others = self.function.mesh.axes().iter().cloned();
            maker.scope.set_mesh(Mesh::new(own.into_iter().chain(others))?);
        }
        let outputs = maker.scope.clone().enter(|| self.equations(&maker.primals))?;
        let names = self.function.outputs.clone();
        maker.finish(self.function.name.clone(), names, &outputs)
    }

    fn axis(&self) -> &str {
        &self.options.axis
    }

    fn equations(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let body = &self.function.body;
        let scope = crate::autodiff::current_scope()?;
        let mut values: BTreeMap<ValueId, Tensor> = BTreeMap::new();
        values.extend(body.inputs.iter().copied().zip(inputs.iter().cloned()));
        let last = self.examples.stage.iter().map(|(_, stage)| *stage).max().unwrap_or(0);
        // The equations of each stage that have whole results.
        let mut whole: Vec<Vec<(&Equation, &Option<Along>)>> = vec![vec![]; last + 1];
        for (equation, along) in body.equations.iter().zip(&self.examples.along) {
            let stage = |value: &ValueId| self.examples.stage[*value];
            let place = match along {
                None => Some(equation.results.first().map_or(0, stage)),
                Some(along) => along.whole().next().map(|i| stage(&equation.results[i])),
            };
            if let Some(place) = place {
                whole[place].push((equation, along));
            }
        }
        let divide = Divide { scope: &scope, microbatches: self.options.microbatches };
        for (number, equations) in whole.into_iter().enumerate() {
            for (equation, along) in equations {
                let results = {
                    let value = |value: ValueId| values[&value].clone();
                    divide.whole(equation, along.as_ref(), &value)?
                };
                values.extend(results);
            }
            if let Some(stage) = self.examples.stages.get(number)
                && !stage.equations.is_empty()
            {
                let made = self.stage(&scope, stage, &values)?;
                values.extend(made);
            }
        }
        Ok(body.outputs.iter().map(|v| values[v].clone()).collect())
    }

    /// The values by example that a stage gives to others, and its combined results.
    fn stage(
        &self,
        scope: &Scope,
        stage: &Stage,
        values: &BTreeMap<ValueId, Tensor>,
    ) -> Result<Vec<(ValueId, Tensor)>> {
        let given = stage.given.iter().map(|part| {
            let tensor = &values[&part.0];
            Ok((
                match self.examples.axis[part.0] {
                    Some(_) => tensor.clone(),
                    None => self.part_of_rank(tensor, part.1)?,
                },
                part.1,
            ))
        });
        let given = given.collect::<Result<Vec<(Tensor, usize)>>>()?;
        let made: Vec<(ValueId, Made)> = stage
            .results
            .iter()
            .map(|(value, axis)| (*value, Made::ByExample(*axis)))
            .chain(stage.partial.iter().map(|(value, kind)| (*value, Made::Partial(*kind))))
            .collect();
        let kinds: Vec<Made> = made.iter().map(|(_, made)| *made).collect();
        let nest = nest(self.options.microbatches / self.options.ranks);
        let at_once = nest.is_empty();
        let step = |parts: &[Tensor]| -> Result<Vec<Tensor>> {
            let found = self.microbatch(scope, stage, values, parts, at_once)?;
            Ok(made.iter().map(|(value, _)| found[value].clone()).collect())
        };
        let results = looped(&nest, &given, &kinds, &step)?;
        let results = made.iter().zip(results).map(|((value, made), result)| {
            let result = match made {
                Made::Partial(kind) if !at_once => self.combined(&result, *kind, *value)?,
                _ => result,
            };
            Ok((*value, result))
        });
        results.collect()
    }

    /// The values of one microbatch. With `at_once` it is the rank's only one, and partial
    /// results are combined as soon as they exist.
    fn microbatch(
        &self,
        scope: &Scope,
        stage: &Stage,
        values: &BTreeMap<ValueId, Tensor>,
        given: &[Tensor],
        at_once: bool,
    ) -> Result<BTreeMap<ValueId, Tensor>> {
        let body = &self.function.body;
        let definitions = body.definitions();
        let divide = Divide { scope, microbatches: self.options.microbatches };
        let mut parts: BTreeMap<Part, Tensor> = BTreeMap::new();
        parts.extend(stage.given.iter().copied().zip(given.iter().cloned()));
        let mut partial: BTreeMap<ValueId, Tensor> = BTreeMap::new();
        let emit_part = |equation: &Equation, along: &Along, parts: &BTreeMap<Part, Tensor>| {
            let value = |value: ValueId, axis: Option<usize>| match axis {
                Some(axis) => parts[&(value, axis)].clone(),
                None => values[&value].clone(),
            };
            divide.equation(body, equation, along, &value)
        };
        for (part, along) in &stage.cuts {
            let at = definitions[part.0].expect("an equation computes it");
            let results = emit_part(&body.equations[at], along, &parts)?;
            parts.extend(results.into_iter().map(|result| (*part, result)));
        }
        for at in &stage.equations {
            let equation = &body.equations[*at];
            let along = self.examples.along[*at].as_ref().expect("an equation of the stage");
            let results = emit_part(equation, along, &parts)?;
            for ((value, fate), result) in equation.results.iter().zip(&along.results).zip(results)
            {
                match fate {
                    Fate::Kept(axis) => {
                        parts.insert((*value, *axis), result);
                    }
                    Fate::Whole => {}
                    Fate::Reduced(kind) => {
                        let result = scope.derived(equation.location, RULE, || {
                            result.convert(result.dtype().wide())
                        });
                        let result = match at_once {
                            true => self.combined(&result, *kind, *value)?,
                            false => result,
                        };
                        partial.insert(*value, result);
                    }
                }
            }
        }
        let by_example = stage.results.iter().map(|part| (part.0, parts[part].clone()));
        partial.extend(by_example);
        Ok(partial)
    }

    /// The combination of what the ranks have, in the dtype of `value`.
    fn combined(&self, x: &Tensor, kind: PReduceKind, value: ValueId) -> Result<Tensor> {
        let dtype = self.function.body.ty(value).dtype;
        let over = vec![self.axis().to_string()];
        let x = match self.options.ranks {
            1 => x.clone(),
            _ => Tensor::apply(PReduce { kind, over }, &[x]),
        };
        let x = x.convert(dtype);
        unpoisoned([&x])?;
        Ok(x)
    }

    /// The rank's part of a whole value.
    fn part_of_rank(&self, x: &Tensor, axis: usize) -> Result<Tensor> {
        let ranks = self.options.ranks;
        if ranks == 1 {
            return Ok(x.clone());
        }
        let x = part_of_rank(x, axis, &[self.axis()], ranks);
        unpoisoned([&x])?;
        Ok(x)
    }
}

/// The rule of locations of equations that the pass adds.
const RULE: &str = "data_parallel";

/// The part of a whole tensor that falls to the rank, by its position along the axes `over`.
pub(super) fn part_of_rank(
    x: &Tensor,
    axis: usize,
    over: &[impl AsRef<str>],
    ranks: usize,
) -> Tensor {
    let part = part_of(x.ty(), axis, ranks);
    let size = part.shape[axis].as_extent().expect("the function is bound");
    let over: Vec<String> = over.iter().map(|axis| axis.as_ref().to_owned()).collect();
    let start = Tensor::axis_index(over) * size as i64;
    x.dynamic_slice_in_dim(&start, size, axis)
}

/// The type of one of `parts` equal parts along an axis.
pub(super) fn part_of(ty: &TensorType, axis: usize, parts: usize) -> TensorType {
    let mut shape = ty.shape.clone();
    let extent = shape[axis].as_extent().expect("the function is bound");
    shape[axis] = Dim::from(extent / parts);
    ty.with_shape(shape)
}

/// `step` for each part of `given`, tensors with the axis along which they fall into parts, in
/// nested loops of these extents. Results by example are joined, partial ones are combined.
fn looped(
    nest: &[usize],
    given: &[(Tensor, usize)],
    made: &[Made],
    step: &dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>,
) -> Result<Vec<Tensor>> {
    let Some((length, inner)) = nest.split_first() else {
        let tensors: Vec<Tensor> = given.iter().map(|(tensor, _)| tensor.clone()).collect();
        return step(&tensors);
    };
    let stacks: Vec<Tensor> = given.iter().map(|(x, axis)| stack(x, *axis, *length)).collect();
    unpoisoned(&stacks)?;
    let types: Vec<TensorType> =
        stacks.iter().map(|x| x.ty().with_shape(x.shape()[1..].to_vec())).collect();
    let closure = record(&types, |parts| {
        let given: Vec<(Tensor, usize)> =
            parts.iter().zip(given).map(|(part, (_, axis))| (part.clone(), *axis)).collect();
        looped(inner, &given, made, step)
    })?;
    let op = Scan {
        length: Dim::from(*length),
        carries: 0,
        captures: closure.captures.len(),
        reverse: false,
        counted: false,
        checkpoints: 0,
    };
    let operands: Vec<Tensor> = stacks.into_iter().chain(closure.captures.clone()).collect();
    let region = closure.body.renumber().into();
    let results = Scope::emit(op.into(), &operands, vec![region], Location::Unknown)?;
    let joined = results.iter().zip(made).map(|(result, made)| match made {
        Made::ByExample(axis) => unstack(result, *axis),
        Made::Partial(kind) => tree(result, *kind, *length),
    });
    let joined: Vec<Tensor> = joined.collect();
    unpoisoned(&joined)?;
    Ok(joined)
}

/// `x` as a stack of `length` parts of its axis `axis`.
fn stack(x: &Tensor, axis: usize, length: usize) -> Tensor {
    let mut shape = x.shape().to_vec();
    let extent = shape[axis].as_extent().expect("the function is bound");
    shape.splice(axis..=axis, [Dim::from(length), Dim::from(extent / length)]);
    let mut order: Vec<usize> = (0..shape.len()).filter(|a| *a != axis).collect();
    order.insert(0, axis);
    let split = x.reshape(shape);
    if axis == 0 { split } else { split.permute(&order) }
}

/// The parts of a stack, side by side along `axis`.
fn unstack(x: &Tensor, axis: usize) -> Tensor {
    let mut order: Vec<usize> = (1..x.rank()).collect();
    order.insert(axis, 0);
    let split = if axis == 0 { x.clone() } else { x.permute(&order) };
    let mut shape = split.shape().to_vec();
    let extent = |axis: usize| shape[axis].as_extent().expect("the function is bound");
    let joined = extent(axis) * extent(axis + 1);
    shape.splice(axis..=axis + 1, [Dim::from(joined)]);
    split.reshape(shape)
}

/// The parts of a stack, combined in the tree of `psum`.
fn tree(x: &Tensor, kind: PReduceKind, length: usize) -> Tensor {
    let part = |i: usize| x.slice_axis(0, i as i64, i as i64 + 1).reshape(x.shape()[1..].to_vec());
    let combine = match kind {
        PReduceKind::Sum => Binary::Add,
        PReduceKind::Max => Binary::Max,
        PReduceKind::Min => Binary::Min,
    };
    let mut level: Vec<Tensor> = (0..length).map(part).collect();
    while level.len() > 1 {
        let pair = |pair: &[Tensor]| match pair {
            [a, b] => Tensor::apply(combine, &[a, b]),
            _ => pair[0].clone(),
        };
        level = level.chunks(2).map(pair).collect();
    }
    level.swap_remove(0)
}

#[cfg(test)]
mod tests {
    use super::nest;

    #[test]
    fn pairs_are_inside_and_the_odd_factor_is_outside() {
        assert_eq!(nest(1), []);
        assert_eq!(nest(8), [2, 2, 2]);
        assert_eq!(nest(12), [3, 2, 2]);
        assert_eq!(nest(7), [7]);
    }
}
