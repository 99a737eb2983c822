//! The rewriting of a body by rules.
//!
//! One pass walks over the equations in order. Each gets the current names of its operands and is
//! offered to the rules. The first rule that applies replaces its result by another value.
//! Equations that a rule emits are offered to the rules at once, so chains collapse in one pass;
//! matches that arise later are found by the next pass. Every application spends one unit of
//! fuel.

use super::{Rule, rules};
use wengert_core::graph::{Body, Equation, Function, ValueId};
use wengert_core::id::IdVec;
use wengert_core::op::{BroadcastInDim, Constant, PVary};
use wengert_core::{Dim, Literal, LocationId, Op, Scalar, TensorType};

/// Maximum depth of rule applications to emitted equations; the next pass continues.
const DEPTH: usize = 8;

/// Applies all rules in one pass; the number of applications is at most `fuel`.
pub(crate) fn simplify(mut function: Function, fuel: u64) -> (Function, u64) {
    let rules: Vec<&Rule> = rules().collect();
    let (body, spent) = Rewriter::run(function.body, &rules, fuel);
    function.body = body;
    (function, spent)
}

/// A body that is being rewritten.
pub(crate) struct Rewriter<'r> {
    rules: &'r [&'r Rule],
    fuel: u64,
    values: IdVec<ValueId, TensorType>,
    equations: Vec<Equation>,
    /// For each value its equation's position in `equations`.
    definitions: IdVec<ValueId, Option<usize>>,
    /// Location of the current equation. Equations that rules emit for it inherit it.
    location: LocationId,
    depth: usize,
}

impl<'r> Rewriter<'r> {
    /// The body after one pass, and the number of applications.
    pub fn run(body: Body, rules: &'r [&'r Rule], fuel: u64) -> (Body, u64) {
        let definitions = body.values.ids().map(|_| None).collect();
        let mut current: IdVec<ValueId, ValueId> = body.values.ids().collect();
        let mut rewriter = Rewriter {
            rules,
            fuel,
            values: body.values,
            equations: Vec::with_capacity(body.equations.len()),
            definitions,
            location: LocationId(0),
            depth: 0,
        };
        for mut equation in body.equations {
            equation.operands.iter_mut().for_each(|v| *v = current[*v]);
            for region in &mut equation.regions {
                let (rewritten, spent) =
                    Rewriter::run(std::mem::take(region).into_body(), rules, rewriter.fuel);
                *region = rewritten.into();
                rewriter.fuel -= spent;
            }
            rewriter.location = equation.location;
            let results = equation.results.clone();
            let replaced = rewriter.add(equation);
            for (old, new) in results.into_iter().zip(replaced) {
                current[old] = new;
            }
        }
        let outputs = body.outputs.iter().map(|v| current[*v]).collect();
        let body = Body {
            values: rewriter.values,
            inputs: body.inputs,
            equations: rewriter.equations,
            outputs,
        };
        // Values of equations that were given up are left.
        (body.renumber(), fuel - rewriter.fuel)
    }

    /// Adds an equation, or its replacement by a rule. Returns the values of its results.
    fn add(&mut self, equation: Equation) -> Vec<ValueId> {
        // There are no rules for collectives: `pvary`, whose elements are its operand's, is one.
        let has_rules = equation.results.len() == 1 && equation.op.collective().is_none();
        if self.fuel > 0 && self.depth < DEPTH && has_rules {
            self.depth += 1;
            let found = self.rules.iter().find_map(|rule| {
                let (count, fuel) = (self.equations.len(), self.fuel);
                let value = (rule.apply)(self, &equation);
                if value.is_none() {
                    // It may have emitted equations before it turned out not to apply. They would
                    // make a pass without changes change the body.
                    self.equations.truncate(count);
                    self.fuel = fuel;
                }
                value.map(|value| (rule, value))
            });
            self.depth -= 1;
            if let Some((rule, value)) = found {
                let value = self.varying_like(value, equation.results[0]);
                let (was, is) = (&self.values[equation.results[0]], &self.values[value]);
                assert_eq!(
                    was,
                    is,
                    "rule {} keeps the type of `{}`",
                    rule.name,
                    equation.op.name()
                );
                self.fuel = self.fuel.saturating_sub(1);
                return vec![value];
            }
        }
        let results = equation.results.clone();
        for result in &results {
            self.definitions[*result] = Some(self.equations.len());
        }
        self.equations.push(equation);
        results
    }

    /// A value that varies over the axes of the mesh over which `like` does. The value by which a
    /// rule replaces it may vary over fewer: x − x varies as x does, and zero does not.
    fn varying_like(&mut self, value: ValueId, like: ValueId) -> ValueId {
        let (was, is) = (&self.values[like], &self.values[value]);
        let more = was.varying.without(&is.varying);
        if more.is_empty() {
            return value;
        }
        let result = self.values.push(is.with_varying(is.varying.union(&more)));
        self.definitions.push(Some(self.equations.len()));
        self.equations.push(Equation {
            op: PVary { over: more.names() }.into(),
            operands: vec![value],
            results: vec![result],
            regions: vec![],
            location: self.location,
        });
        result
    }

    /// Emits an equation of one result; `None` if the op does not accept the operands.
    pub fn emit(&mut self, op: impl Into<Op>, operands: &[ValueId]) -> Option<ValueId> {
        let op = op.into();
        let types: Vec<TensorType> = operands.iter().map(|v| self.values[*v].clone()).collect();
        let ty = op.infer(&types, &[]).ok()?.pop()?;
        let result = self.values.push(ty);
        self.definitions.push(None);
        let (operands, location) = (operands.to_vec(), self.location);
        let equation = Equation { op, operands, results: vec![result], regions: vec![], location };
        self.add(equation).pop()
    }

    /// Type of a value.
    pub fn ty(&self, value: ValueId) -> &TensorType {
        &self.values[value]
    }

    /// Extents of a value.
    pub fn extents(&self, value: ValueId) -> Vec<usize> {
        self.values[value].extents().expect("functions are bound before they are rewritten")
    }

    /// Number of elements of a value.
    pub fn elements(&self, value: ValueId) -> usize {
        self.extents(value).iter().product()
    }

    /// The op and operands that define a value; `None` for inputs.
    pub fn definition(&self, value: ValueId) -> Option<(&Op, &[ValueId])> {
        let equation = &self.equations[self.definitions[value]?];
        Some((&equation.op, &equation.operands))
    }

    /// The scalar that all elements of a value equal, if that is known.
    pub fn splat(&self, value: ValueId) -> Option<Scalar> {
        match self.definition(value)? {
            (Op::Constant(constant), _) => constant.value.splat(),
            (Op::BroadcastInDim(_), [operand]) => match self.definition(*operand)? {
                (Op::Constant(constant), _) => constant.value.splat(),
                _ => None,
            },
            _ => None,
        }
    }

    /// The elements of a value, if it is a constant of the graph.
    pub fn literal(&self, value: ValueId) -> Option<Literal> {
        match self.definition(value)? {
            (Op::Constant(constant), _) => Some(constant.value.clone()),
            _ => None,
        }
    }

    /// A value of equal elements.
    pub fn full(&mut self, value: Scalar, shape: &[Dim]) -> Option<ValueId> {
        let scalar = self.emit(Constant { value: Literal::full(&[], value) }, &[])?;
        if shape.is_empty() {
            return Some(scalar);
        }
        self.emit(BroadcastInDim { shape: shape.to_vec(), dims: vec![] }, &[scalar])
    }

    /// A value of equal elements of the type of an equation's result.
    pub fn full_like(&mut self, value: Scalar, equation: &Equation) -> Option<ValueId> {
        let shape = self.values[equation.results[0]].shape.clone();
        self.full(value, &shape)
    }
}

#[cfg(test)]
mod tests;
