//! Eager scopes: define by run.
//!
//! In an *eager* scope an equation is evaluated as soon as it is emitted, if all its operands
//! have values. Its results then have values too ([`Tensor::value`]). So the builder's tensors,
//! with all their operators, methods, layers and derivatives, compute at once, without a second
//! set of operations. A program may read a value and branch on it.
//!
//! A child of an eager scope is eager too. Its inputs have values if these are given
//! ([`Scope::input_with_value`]): a closure that is differentiated at a point runs on the values
//! of that point. Inputs without values are symbolic, and so are all values that depend on them:
//! the tangents of a linear program, or the closure of a traced list.
//!
//! Evaluation is that of the graph interpreter, one equation at a time: over `f64`, rounded to
//! each result's dtype. So eager results have the bits that the interpreter computes for the same
//! equations in a function.

use super::tensor::Tensor;
use super::{Closure, Scope};
use crate::diagnostic::Result;
use crate::graph::{Body, Equation, Region, ValueId};
use crate::id::IdVec;
use crate::interpret::{self, Array};
use crate::literal::Literal;
use crate::location::{Location, LocationTable};
use crate::op::Op;
use crate::ty::TensorType;
use std::collections::{BTreeMap, HashMap};

/// Known values of an eager scope.
#[derive(Default)]
pub(super) struct Values {
    known: BTreeMap<ValueId, Array<f64>>,
    /// The results of each equation, keyed by op, operands and regions. Only lookups, so the
    /// order never matters.
    emitted: HashMap<(Op, Vec<ValueId>, Vec<Region>), Vec<ValueId>>,
}

impl Values {
    /// Records the array of a value.
    pub(super) fn set(&mut self, value: ValueId, array: Array<f64>) {
        self.known.insert(value, array);
    }

    /// The array of a value, if known.
    pub(super) fn array(&self, value: ValueId) -> Option<Array<f64>> {
        self.known.get(&value).cloned()
    }

    /// The results of an earlier equation with the same op, operands and regions.
    pub(super) fn emitted(&self, equation: &Equation) -> Option<Vec<ValueId>> {
        let key = (equation.op.clone(), equation.operands.clone(), equation.regions.clone());
        self.emitted.get(&key).cloned()
    }

    /// The arrays of the results, if all operands have values.
    pub(super) fn evaluate(
        &self,
        equation: &Equation,
        body: &Body,
        results: &[TensorType],
        locations: &LocationTable,
    ) -> Result<Option<Vec<Array<f64>>>> {
        let operands: Option<Vec<Array<f64>>> =
            equation.operands.iter().map(|v| self.known.get(v).cloned()).collect();
        let Some(operands) = operands.filter(|_| results.iter().all(|ty| ty.extents().is_some()))
        else {
            return Ok(None);
        };
        // A body with only this equation.
        let mut alone = Body::default();
        alone.inputs =
            equation.operands.iter().map(|v| alone.values.push(body.ty(*v).clone())).collect();
        alone.outputs = results.iter().map(|ty| alone.values.push(ty.clone())).collect();
        alone.equations.push(Equation {
            operands: alone.inputs.clone(),
            results: alone.outputs.clone(),
            ..equation.clone()
        });
        interpret::evaluate(&alone, locations, &operands).map(Some)
    }

    /// Records an emitted equation and the arrays of its results.
    pub(super) fn insert(&mut self, equation: &Equation, arrays: Option<Vec<Array<f64>>>) {
        for (value, array) in equation.results.iter().zip(arrays.into_iter().flatten()) {
            self.known.insert(*value, array);
        }
        let key = (equation.op.clone(), equation.operands.clone(), equation.regions.clone());
        self.emitted.entry(key).or_insert_with(|| equation.results.clone());
    }
}

impl Scope {
    /// An outermost eager scope.
    pub fn eager() -> Scope {
        Scope::outermost(LocationTable::default(), true)
    }

    /// Adds an input with its value. Only an eager scope keeps the value.
    pub fn input_with_value(&self, value: &Literal, location: Location) -> Tensor {
        let tensor = self.input_at(value.ty(), location);
        if self.is_eager() {
            let (_, id) = tensor.traced_value().expect("an input is traced");
            match Array::from_literal(value) {
                Ok(array) => self.set_value(id, array),
                Err(error) => return Tensor::poisoned(error),
            }
        }
        tensor
    }

    /// The array of a value, if known.
    pub fn known(&self, value: ValueId) -> Option<Array<f64>> {
        self.building().values.array(value)
    }

    /// The equations so far.
    pub fn body(&self) -> Body {
        self.building().body.clone()
    }

    /// The equations that compute `outputs` from `inputs`, as a closure. `inputs` become explicit
    /// inputs even if equations define them. Other inputs of this scope that are used are
    /// captured. All tensors must be constants or belong to this scope or one around it.
    pub fn between(&self, inputs: &[Tensor], outputs: &[Tensor]) -> Result<Closure> {
        let inputs = inputs.iter().map(|t| self.value_of(t)).collect::<Result<Vec<_>>>()?;
        let outputs = outputs.iter().map(|t| self.value_of(t)).collect::<Result<Vec<_>>>()?;
        let source = self.body();
        let mut needed: IdVec<ValueId, bool> = source.values.ids().map(|_| false).collect();
        outputs.iter().for_each(|v| needed[*v] = true);
        for equation in source.equations.iter().rev() {
            // The closure begins at its inputs: equations that define them are not needed.
            if equation.results.iter().any(|v| needed[*v] && !inputs.contains(v)) {
                equation.operands.iter().for_each(|v| needed[*v] = true);
            }
        }
        let mut taken = Taken { body: Body::default(), of: BTreeMap::new(), captured: vec![] };
        for input in &inputs {
            let value = taken.body.values.push(source.ty(*input).clone());
            taken.body.inputs.push(value);
            taken.of.entry(*input).or_insert(value);
        }
        for equation in &source.equations {
            if equation.results.iter().any(|v| needed[*v] && !inputs.contains(v)) {
                taken.take(equation, &source);
            }
        }
        let outputs = outputs.iter().map(|v| taken.value(*v, &source)).collect();
        let Taken { mut body, captured, .. } = taken;
        body.outputs = outputs;
        body.inputs.extend(captured.iter().map(|(_, value)| *value));
        let captures = captured
            .iter()
            .map(|(outer, _)| Tensor::traced(self.clone(), *outer, source.ty(*outer).clone()));
        let captures = captures.collect();
        Ok(Closure { body: body.renumber(), captures })
    }
}

/// An extract of a body.
struct Taken {
    body: Body,
    /// Values of the extract by values of the whole body, as far as visited.
    of: BTreeMap<ValueId, ValueId>,
    /// Captured values of the whole body, each with the value that stands for it.
    captured: Vec<(ValueId, ValueId)>,
}

impl Taken {
    fn value(&mut self, value: ValueId, source: &Body) -> ValueId {
        if let Some(known) = self.of.get(&value) {
            return *known;
        }
        if let Some((_, known)) = self.captured.iter().find(|(outer, _)| *outer == value) {
            return *known;
        }
        let new = self.body.values.push(source.ty(value).clone());
        self.captured.push((value, new));
        new
    }

    fn take(&mut self, equation: &Equation, source: &Body) {
        let operands = equation.operands.iter().map(|v| self.value(*v, source)).collect();
        let mut results = Vec::new();
        for result in &equation.results {
            let value = self.body.values.push(source.ty(*result).clone());
            // Another result of the same equation may be an input.
            self.of.entry(*result).or_insert(value);
            results.push(value);
        }
        self.body.equations.push(Equation { operands, results, ..equation.clone() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Unary;

    fn input(scope: &Scope, value: f64) -> Tensor {
        scope.input_with_value(&Literal::from(value), Location::Unknown)
    }

    #[test]
    fn equations_are_evaluated_as_they_are_emitted() {
        let scope = Scope::eager();
        let x = input(&scope, 3.0);
        let y = &x * &x + 1.0;
        assert_eq!(y.item().unwrap(), 10.0);
        // Results are rounded to their dtype.
        let half = Tensor::constant(half::f16::from_f32(1.0));
        let third = scope.enter(|| half.convert(crate::DType::F16) / 3.0);
        assert_eq!(third.item().unwrap(), half::f16::from_f32(1.0 / 3.0).to_f64());
        let symbolic = scope.child().input_at(x.ty().clone(), Location::Unknown);
        let error = (&symbolic + &x).item().unwrap_err();
        assert!(error.message.contains("has no value while the graph is being built"), "{error}");
        let pair = scope
            .input_with_value(&Literal::from_vec(&[2], vec![1.0, 2.0]).unwrap(), Location::Unknown);
        // Numbers are broadcast to the tensor's shape, even though no scope is entered.
        assert_eq!((&pair * 2.0).sum().item().unwrap(), 6.0);
        assert!(pair.item().unwrap_err().message.contains("2 elements"));
    }

    #[test]
    fn a_child_knows_what_it_captures() {
        let scope = Scope::eager();
        let x = input(&scope, 3.0);
        let child = scope.child();
        let y = child.input_with_value(&Literal::from(2.0), Location::Unknown);
        assert_eq!((&x - &y).item().unwrap(), 1.0);
    }

    #[test]
    fn what_lies_between_two_tensors_is_a_closure() {
        let scope = Scope::eager();
        let (x, a) = (input(&scope, 3.0), input(&scope, 5.0));
        let factor = a.unary(Unary::Exp);
        let middle = &x * &factor;
        let _beside = &x + &a;
        let end = &middle * &middle + &x;
        let closure = scope.between(std::slice::from_ref(&x), std::slice::from_ref(&end)).unwrap();
        assert_eq!((closure.body.equations.len(), closure.captures.len()), (4, 1));
        assert!(closure.captures[0].is_same(&a));
        // From an intermediate value: x is used too.
        let closure =
            scope.between(std::slice::from_ref(&middle), std::slice::from_ref(&end)).unwrap();
        assert_eq!((closure.body.equations.len(), closure.captures.len()), (2, 1));
        assert!(closure.captures[0].is_same(&x));
    }

    #[test]
    fn an_equation_that_is_there_is_not_emitted_again_where_that_is_wanted() {
        let scope = Scope::eager();
        let x = input(&scope, 3.0);
        let y = &x * &x;
        assert!(!(&x * &x).is_same(&y));
        assert!(scope.reuse(|| &x * &x).is_same(&y));
        assert!(!(&x * &x).is_same(&y));
    }
}
