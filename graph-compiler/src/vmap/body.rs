//! The driver: a body on batched values.

use crate::autodiff::{Activity, current_scope, trace, unpoisoned};
use wengert_core::build::Scope;
use wengert_core::graph::{Body, Equation, ValueId};
use wengert_core::op::batch::RegionOutput;
use wengert_core::op::{Batch, BroadcastInDim, Permute, Reduce, ReduceKind};
use wengert_core::{Dim, IdVec, Location, Op, Result, Tensor, TensorType};

/// A value of a body that is mapped.
#[derive(Clone, Debug)]
pub enum Value {
    /// One value per example, along a leading axis.
    Batched(Tensor),
    /// The same for all examples.
    Shared(Tensor),
}

impl Value {
    /// The tensor of either variant.
    pub fn tensor(&self) -> &Tensor {
        match self {
            Value::Batched(tensor) | Value::Shared(tensor) => tensor,
        }
    }

    /// Whether there is one value per example.
    pub fn is_batched(&self) -> bool {
        matches!(self, Value::Batched(_))
    }

    /// The tensor with an axis of extent `size` at `axis`: the batch axis, or a new one along
    /// which a shared value is repeated. Emitted equations are located at `caller`.
    pub fn along(&self, axis: usize, size: &Dim, caller: &Location) -> Result<Tensor> {
        match self {
            Value::Batched(tensor) => moved(tensor, 0, axis, caller),
            Value::Shared(tensor) => {
                let shape = batched_type(tensor.ty(), axis, size).shape;
                let dims = (0..shape.len()).filter(|a| *a != axis).collect();
                emit(BroadcastInDim { shape, dims }.into(), tensor, caller)
            }
        }
    }
}

/// The type of a batch of values of type `example`, with the batch axis at `axis`.
pub(super) fn batched_type(example: &TensorType, axis: usize, size: &Dim) -> TensorType {
    let mut shape = example.shape.clone();
    shape.insert(axis, size.clone());
    example.with_shape(shape)
}

/// `x` with axis `from` moved to position `to`, the others in order.
pub(super) fn moved(x: &Tensor, from: usize, to: usize, caller: &Location) -> Result<Tensor> {
    if from == to {
        return Ok(x.clone());
    }
    let mut permutation: Vec<usize> = (0..x.rank()).filter(|axis| *axis != from).collect();
    permutation.insert(to, from);
    emit(Permute { permutation }.into(), x, caller)
}

fn emit(op: Op, x: &Tensor, caller: &Location) -> Result<Tensor> {
    Ok(Scope::emit(op, std::slice::from_ref(x), vec![], caller.clone())?.swap_remove(0))
}

/// Runs `body` on `inputs` and returns its outputs. Batched inputs hold `size` examples.
///
/// Equations go to the innermost scope among those of their operands. The body's locations must
/// be those of the current scope's function, as they are for closures traced in it.
pub fn batch(body: &Body, inputs: &[Value], size: &Dim) -> Result<Vec<Value>> {
    assert_eq!(inputs.len(), body.inputs.len(), "vmap: one value for each input");
    let scope = current_scope()?;
    let live = Activity::live(body);
    let mut values: IdVec<ValueId, Option<Value>> = body.values.ids().map(|_| None).collect();
    for (input, value) in body.inputs.iter().zip(inputs) {
        values[*input] = Some(value.clone());
    }
    for equation in &body.equations {
        if !equation.results.iter().any(|v| live[*v]) {
            continue;
        }
        let operands = equation.operands.iter();
        let operands: Vec<&Value> = operands
            .map(|v| values[*v].as_ref().expect("a body defines values before their use"))
            .collect();
        let results = map(&scope, body, equation, &operands, size)?;
        for (value, result) in equation.results.iter().zip(results) {
            values[*value] = Some(result);
        }
    }
    let output = |v: &ValueId| values[*v].clone().expect("a body defines its outputs");
    Ok(body.outputs.iter().map(output).collect())
}

/// The results of one equation.
fn map(
    scope: &Scope,
    body: &Body,
    equation: &Equation,
    operands: &[&Value],
    size: &Dim,
) -> Result<Vec<Value>> {
    let op = &equation.op;
    let tensors: Vec<Tensor> = operands.iter().map(|v| v.tensor().clone()).collect();
    let batched: Vec<bool> = operands.iter().map(|v| v.is_batched()).collect();
    let location = scope.location(equation.location);
    if !batched.contains(&true) {
        let results = Scope::emit(op.clone(), &tensors, equation.regions.clone(), location)?;
        return Ok(results.into_iter().map(Value::Shared).collect());
    }
    let types = body.types(&equation.results);
    let results = scope.derived(equation.location, format!("vmap({})", op.name()), || {
        // With no examples the results are empty, so no rule has to handle this case.
        if size.as_constant() == Some(0) {
            let zeros = |ty: &TensorType| Tensor::zeros(&batched_type(ty, 0, size));
            return types.iter().map(zeros).collect();
        }
        op.batch(&Batch {
            operands: &tensors,
            batched: &batched,
            size,
            results: &types,
            regions: &equation.regions,
            map_region: &|region, batched, wanted| {
                let (region, batched) = map_region(region, batched, wanted, size)?;
                Ok((region.into(), batched))
            },
        })
    });
    unpoisoned(&results)
        .map_err(|error| error.within(&scope.origin(equation.location), op.name()))?;
    for (result, ty) in results.iter().zip(&types) {
        assert_eq!(
            *result.ty(),
            batched_type(ty, 0, size),
            "the batching rule of {} gives a batch of its results",
            op.name()
        );
    }
    Ok(results.into_iter().map(Value::Batched).collect())
}

/// A region on a batch. Inputs are batched where the flags say so, outputs as `wanted`. Returns
/// whether each output is batched.
fn map_region(
    region: &Body,
    batched: &[bool],
    wanted: &[RegionOutput],
    size: &Dim,
) -> Result<(Body, Vec<bool>)> {
    let types = region.types(&region.inputs).into_iter().zip(batched);
    let types: Vec<TensorType> =
        types.map(|(ty, batched)| if *batched { batched_type(&ty, 0, size) } else { ty }).collect();
    let mut mapped = Ok(vec![]);
    let closure = trace(&types, |inputs| {
        let value = |(t, batched): (&Tensor, &bool)| match batched {
            true => Value::Batched(t.clone()),
            false => Value::Shared(t.clone()),
        };
        let inputs: Vec<Value> = inputs.iter().zip(batched).map(value).collect();
        let output = |(value, wanted): (&Value, &RegionOutput)| match wanted {
            RegionOutput::AsItIs => Ok((value.tensor().clone(), value.is_batched())),
            RegionOutput::Batched => Ok((value.along(0, size, &Location::Unknown)?, true)),
            RegionOutput::Summed => {
                let each = value.along(0, size, &Location::Unknown)?;
                Ok((
                    emit(Reduce::new(ReduceKind::Sum, [0]).into(), &each, &Location::Unknown)?,
                    false,
                ))
            }
        };
        let outputs = batch(region, &inputs, size);
        let outputs = outputs
            .and_then(|values| values.iter().zip(wanted).map(output).collect::<Result<Vec<_>>>());
        let (tensors, flags) = match outputs {
            Ok(outputs) => outputs.into_iter().unzip(),
            Err(error) => {
                mapped = Err(error);
                return vec![];
            }
        };
        mapped = Ok(flags);
        tensors
    })?;
    let mapped = mapped?;
    assert!(closure.captures.is_empty(), "a region uses its inputs only");
    Ok((closure.body, mapped))
}
