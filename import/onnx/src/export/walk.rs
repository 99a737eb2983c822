//! The walk over a body: its live equations become nodes, those of called functions in their
//! place.

use super::graph::{Exporter, Value};
use super::pattern::{self, Pattern};
use super::table::{self, Refused};
use std::collections::BTreeMap;
use wengert_core::build::FunctionBuilder;
use wengert_core::graph::{Body, Equation, ValueId};
use wengert_core::op::compute::DecomposeRule;
use wengert_core::op::{Compute, Derivative};
use wengert_core::{
    DType, Diagnostic, Dim, IdVec, LocationTable, Op, Result, Scalar, Tensor, TensorType,
    diagnostic,
};

/// An equation to export.
pub(super) struct Call<'a> {
    pub equation: &'a Equation,
    pub op: &'a Op,
    /// The operands in the file.
    pub values: Vec<Value>,
    /// The types of the operands in the graph.
    pub types: Vec<TensorType>,
    /// The types of the results in the graph.
    pub results: Vec<TensorType>,
    /// Whether each result is used.
    pub used: Vec<bool>,
    /// The locations of the equations in regions.
    pub locations: Option<&'a LocationTable>,
}

impl Call<'_> {
    /// The dtype of the first operand.
    pub fn dtype(&self) -> DType {
        self.types[0].dtype
    }
}

/// The refusal of a rule.
pub(super) fn refuse<T>(reason: impl Into<String>, help: &str) -> Result<T> {
    Err(Diagnostic::new(reason).help(help))
}

impl Exporter {
    /// The outputs of a body for these inputs.
    pub fn body(
        &mut self,
        body: &Body,
        inputs: Vec<Value>,
        locations: Option<&LocationTable>,
    ) -> Result<Vec<Value>> {
        let patterns = pattern::find(body);
        let uses = uses(body, &patterns);
        let mut values: IdVec<ValueId, Option<Value>> = body.values.ids().map(|_| None).collect();
        for (input, value) in body.inputs.iter().zip(inputs) {
            values[*input] = Some(value);
        }
        for (number, equation) in body.equations.iter().enumerate() {
            if equation.results.iter().all(|result| !uses[*result]) {
                continue;
            }
            let pattern = patterns.get(&number);
            let operands = pattern.map_or(&equation.operands, |p| &p.operands);
            let of = |id: &ValueId| values[*id].clone().expect("a live value is defined");
            let call = Call {
                equation,
                op: &equation.op,
                values: operands.iter().map(of).collect(),
                types: body.types(operands),
                results: body.types(&equation.results),
                used: equation.results.iter().map(|result| uses[*result]).collect(),
                locations,
            };
            let results = match pattern {
                Some(pattern) => (pattern.rule)(self, &call, pattern),
                None => self.equation(&call),
            };
            let results = results.map_err(|error| at(error, equation, locations))?;
            for (id, value) in equation.results.iter().zip(results) {
                values[*id] = Some(value);
            }
        }
        Ok(body.outputs.iter().map(|id| values[*id].clone().expect("outputs are live")).collect())
    }

    /// The results of an equation, by the rule of its op.
    fn equation(&mut self, call: &Call<'_>) -> Result<Vec<Value>> {
        let dtypes = call.types.iter().chain(&call.results).map(|ty| ty.dtype);
        if dtypes.into_iter().any(DType::is_float8) {
            return refuse(
                "8-bit floats are not exported",
                "convert them to f16, bf16 or f32 in the program",
            );
        }
        // Not every runtime computes nothing.
        let empty = |ty: &TensorType| ty.shape.contains(&Dim::constant(0));
        if call.results.iter().all(empty) && table::find(call.op.name()).is_ok() {
            let none = |ty: &TensorType| {
                let zero = self.scalar(Scalar::zero(ty.dtype));
                self.expanded(&zero, &ty.shape)
            };
            return call.results.iter().map(none).collect();
        }
        match table::find(call.op.name()) {
            Ok(rule) => (rule.export)(self, call),
            Err(Refused { reason, help }) => refuse(reason, help),
        }
    }

    /// The results of what tensors compute in place of the equation.
    pub fn composed(
        &mut self,
        call: &Call<'_>,
        f: impl FnOnce(&[Tensor]) -> Vec<Tensor>,
    ) -> Result<Vec<Value>> {
        self.compute(&call.values, &call.types, f)
    }

    /// The results of what tensors compute from values of these types.
    pub fn compute(
        &mut self,
        values: &[Value],
        types: &[TensorType],
        f: impl FnOnce(&[Tensor]) -> Vec<Tensor>,
    ) -> Result<Vec<Value>> {
        let built = FunctionBuilder::build("composed", |b| {
            let inputs = types.iter().enumerate();
            let inputs: Vec<Tensor> =
                inputs.map(|(i, ty)| b.input(&format!("x{i}"), ty.clone())).collect();
            for (i, result) in f(&inputs).iter().enumerate() {
                b.output(&format!("y{i}"), result);
            }
        })?;
        self.body(&built.body, values.to_vec(), None)
    }

    /// The results of an op by the decomposition that the op itself has.
    pub fn decomposed(&mut self, call: &Call<'_>) -> Result<Vec<Value>> {
        let regions = &call.equation.regions;
        match call.op.derivative() {
            Derivative::Decomposed(rule) => {
                return self.composed(call, |tensors| rule(call.op, regions, tensors));
            }
            Derivative::Tangent(rule) => {
                return self
                    .composed(call, |tensors| (rule.decomposition)(call.op, regions, tensors));
            }
            _ => {}
        }
        let compute = call.op.compute(&call.types, &call.results, regions);
        let (Compute::Decompose(rule) | Compute::CallOrDecompose(_, rule)) = compute else {
            return Err(diagnostic!("ONNX has no such op, and it has no decomposition"));
        };
        let rule: DecomposeRule<'_> = rule;
        self.composed(call, |tensors| rule(tensors))
    }

    /// As [`decomposed`](Self::decomposed), for decompositions that need extents as numbers.
    pub fn decomposed_bound(&mut self, call: &Call<'_>) -> Result<Vec<Value>> {
        let types = call.types.iter().chain(&call.results);
        match types.flat_map(|ty| &ty.shape).find(|dim| dim.as_constant().is_none()) {
            Some(dim) => Err(symbolic(dim)),
            None => self.decomposed(call),
        }
    }

    /// An operand with its rank in the graph.
    pub fn ranked(&mut self, value: &Value, rank: usize) -> Result<Value> {
        if value.ty.rank() == rank {
            return Ok(value.clone());
        }
        let missing = rank - value.ty.rank();
        let axes = self.axes(&(0..missing).collect::<Vec<_>>());
        let ones = std::iter::repeat_n(Dim::constant(1), missing);
        let shape: Vec<Dim> = ones.chain(value.ty.shape.iter().cloned()).collect();
        let unsqueezed = self.op("Unsqueeze", &[value, &axes], vec![], value.ty.with_shape(shape));
        self.same_splat(value, &unsqueezed);
        Ok(unsqueezed)
    }

    /// Operand number `n` with all its elements.
    pub fn full(&mut self, call: &Call<'_>, n: usize) -> Result<Value> {
        self.expanded(&call.values[n], &call.types[n].shape)
    }

    /// All operands with all their elements.
    pub fn all_full(&mut self, call: &Call<'_>) -> Result<Vec<Value>> {
        (0..call.values.len()).map(|n| self.full(call, n)).collect()
    }
}

/// The error of a dimension that has to be a number.
pub(super) fn symbolic(dim: &Dim) -> Diagnostic {
    diagnostic!("ONNX needs extent `{dim}` as a number here")
        .help("bind its dimension variables: `--bind NAME=N`")
}

/// A dimension that has to be a number.
pub(super) fn constant(dim: &Dim) -> Result<i64> {
    dim.as_constant().ok_or_else(|| symbolic(dim))
}

/// Which values an output depends on.
fn uses(body: &Body, patterns: &BTreeMap<usize, Pattern>) -> IdVec<ValueId, bool> {
    let mut uses: IdVec<ValueId, bool> = body.values.ids().map(|_| false).collect();
    for output in &body.outputs {
        uses[*output] = true;
    }
    for (number, equation) in body.equations.iter().enumerate().rev() {
        if equation.results.iter().any(|result| uses[*result]) {
            let operands = patterns.get(&number).map_or(&equation.operands, |p| &p.operands);
            for operand in operands {
                uses[*operand] = true;
            }
        }
    }
    uses
}

/// The error with its equation, unless an equation inside has said so already.
fn at(error: Diagnostic, equation: &Equation, locations: Option<&LocationTable>) -> Diagnostic {
    let Some(locations) = locations else { return error };
    if !error.places.is_empty() {
        return error;
    }
    let name = equation.op.name();
    let result = equation.results.first().map_or_else(String::new, |id| format!("{id} = "));
    error
        .context(format_args!("`{result}{name}` cannot be exported"))
        .at(locations.origin(equation.location).clone(), name)
}
