//! Computes members of a series, one order at a time: from those of the operands, and from the
//! node's own of lower order.

use super::{Applied, Nodes, Rule, Value};
use crate::autodiff::jvp::{apply, duals_of_linear, jvp};
use crate::autodiff::{plus, sound};
use std::rc::Rc;
use wengert_core::build::{Closure, Scope};
use wengert_core::graph::Equation;
use wengert_core::op::Unary;
use wengert_core::op::derivative::TransposeRule;
use wengert_core::{Initializer, Result, Tensor, TensorType};

impl Nodes {
    /// The members of order `k` of a node's results, where those of lower order are known.
    pub(super) fn members(&mut self, node: usize, k: usize) -> Result<Vec<Option<Tensor>>> {
        let applied =
            self.nodes[node].applied.clone().expect("of what is given, all members are known");
        let (equation, operands) = (&applied.equation, &applied.operands);
        let rule = self.nodes[node].rule.clone();
        if let (Rule::Nonlinear(tangents), true) = (&rule, k > 0) {
            let solved = Rc::new(self.solve(node, &applied, *tangents)?);
            self.nodes[node].rule = Rule::Solved(solved);
            return self.members(node, k);
        }
        match rule {
            Rule::Linear(transpose) => self.linear(node, &applied, transpose, k),
            Rule::Product(factors) => self.leibniz(node, &applied, &factors, k),
            Rule::Quotient if k > 0 => {
                let (x, y) = (operands[0], operands[1]);
                let z = Value { node, result: 0, order: 0 };
                Ok(vec![self.quotient(&applied, x, y, z, k)?])
            }
            Rule::Solved(derivatives) if k > 0 => derivatives
                .iter()
                .map(|d| d.map_or(Ok(None), |d| self.derivative(d, k - 1)))
                .collect(),
            Rule::Given | Rule::Quotient | Rule::Nonlinear(_) | Rule::Solved(_) => {
                assert_eq!(k, 0, "constants have no members of higher order");
                let operands =
                    operands.iter().map(|v| self.present(*v)).collect::<Result<Vec<_>>>()?;
                self.emit(equation, &operands)
            }
        }
    }

    /// Emits the op itself, at its source location.
    fn emit(&self, equation: &Equation, operands: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        let location = self.scope.location(equation.location);
        let results =
            Scope::emit(equation.op.clone(), operands, equation.regions.clone(), location)?;
        Ok(results.into_iter().map(Some).collect())
    }

    /// Emits the equations of a member of higher order.
    fn derived<T>(&self, equation: &Equation, f: impl FnOnce() -> Result<T>) -> Result<T> {
        self.scope.derived(equation.location, format!("jet({})", equation.op.name()), f)
    }

    fn linear(
        &mut self,
        node: usize,
        applied: &Applied,
        transpose: TransposeRule,
        k: usize,
    ) -> Result<Vec<Option<Tensor>>> {
        let (mut operands, mut members) = (Vec::new(), Vec::new());
        for value in &applied.operands {
            let ty = self.ty(*value).clone();
            if !ty.dtype.is_float() {
                operands.push(self.present(*value)?);
                members.push(None);
                continue;
            }
            members.push(self.derivative(*value, k)?);
            // A linear op uses only the types of the other operands.
            operands.push(Tensor::variable(ty, Initializer::Zeros));
        }
        let results = self.nodes[node].types.clone();
        if members.iter().all(Option::is_none) {
            return Ok(vec![None; results.len()]);
        }
        let equation = &applied.equation;
        let floats = applied.operands.iter().filter(|v| self.ty(**v).dtype.is_float()).count();
        if k == 0 && members.iter().flatten().count() == floats {
            let operands: Vec<Tensor> =
                operands.into_iter().zip(members).map(|(o, m)| m.unwrap_or(o)).collect();
            return self.emit(equation, &operands);
        }
        self.derived(equation, || {
            sound(duals_of_linear(equation, transpose, &operands, &results, &members)?)
        })
    }

    /// The sum of products of members over all orders of the factors that add up to `k`, times
    /// the multinomial coefficient.
    fn leibniz(
        &mut self,
        node: usize,
        applied: &Applied,
        factors: &[(usize, Option<Closure>)],
        k: usize,
    ) -> Result<Vec<Option<Tensor>>> {
        let results = self.nodes[node].types.clone();
        let mut operands = Vec::new();
        for (i, value) in applied.operands.iter().enumerate() {
            // Operands that move are filled in below.
            operands.push(match factors.iter().any(|(f, _)| *f == i) {
                true => Tensor::variable(self.ty(*value).clone(), Initializer::Zeros),
                false => self.present(*value)?,
            });
        }
        let mut sums = vec![None; results.len()];
        'terms: for orders in compositions(k, factors.len()) {
            for ((i, _), order) in factors.iter().zip(&orders) {
                let Some(member) = self.derivative(applied.operands[*i], *order)? else {
                    continue 'terms;
                };
                operands[*i] = member;
            }
            if k == 0 {
                return self.emit(&applied.equation, &operands);
            }
            let terms = self.derived(&applied.equation, || {
                let terms = term(&applied.equation, factors, &operands, &orders, &results)?;
                let weight = multinomial(&orders);
                sound(terms.into_iter().map(|t| t.map(|t| scaled(t, weight))).collect())
            })?;
            sums = self.derived(&applied.equation, || {
                sums.into_iter()
                    .zip(terms)
                    .map(|(sum, term)| plus(sum, term))
                    .collect::<Result<Vec<_>>>()
            })?;
        }
        Ok(sums)
    }

    /// z = x / y: from x = z·y follows x⁽ᵏ⁾ = Σ C(k,j) · z⁽ᵏ⁻ʲ⁾ · y⁽ʲ⁾, so z⁽ᵏ⁾ = (x⁽ᵏ⁾ − Σ over
    /// j > 0) / y. Products are strong, as in the rule of `div`.
    fn quotient(
        &mut self,
        applied: &Applied,
        x: Value,
        y: Value,
        z: Value,
        k: usize,
    ) -> Result<Option<Tensor>> {
        let mut known = None;
        for j in 1..=k {
            let (Some(dy), Some(dz)) = (self.derivative(y, j)?, self.derivative(z, k - j)?) else {
                continue;
            };
            known = self.derived(&applied.equation, || {
                plus(known, Some(scaled(dy.scaled_by(&dz), multinomial(&[j, k - j]))))
            })?;
        }
        let x = self.derivative(x, k)?;
        if x.is_none() && known.is_none() {
            return Ok(None);
        }
        let ty = self.ty(y).clone();
        let reciprocal = Equation { op: Unary::Reciprocal.into(), ..applied.equation.clone() };
        let reciprocal = self.apply(&reciprocal, vec![ty], vec![y])?[0];
        let reciprocal = self.present(reciprocal)?;
        self.derived(&applied.equation, || {
            let numerator = match (x, known) {
                (Some(x), Some(known)) => x - known,
                (Some(x), None) => x,
                (None, known) => -known.expect("one of the two is there"),
            };
            Ok(sound(vec![Some(numerator.scaled_by(&reciprocal))])?.swap_remove(0))
        })
    }
}

/// One product: the op on these members, of the given orders. If the op states its own jvp, one
/// derivative is passed as the tangent, so that the product is strong if the rule's is.
fn term(
    equation: &Equation,
    factors: &[(usize, Option<Closure>)],
    operands: &[Tensor],
    orders: &[usize],
    results: &[TensorType],
) -> Result<Vec<Option<Tensor>>> {
    let tangent =
        (0..factors.len()).rev().find(|f| orders[*f] > 0).expect("one of them is a derivative");
    let (which, closure) = &factors[tangent];
    let Some(closure) = closure else {
        return apply(equation, operands);
    };
    let mut inputs = operands.to_vec();
    // The rule does not read the results.
    inputs.extend(results.iter().map(|ty| Tensor::variable(ty.clone(), Initializer::Zeros)));
    inputs.push(operands[*which].clone());
    inputs.extend(closure.captures.iter().cloned());
    let outputs = closure.body.outputs.len();
    let (terms, _) = jvp(&closure.body, &inputs, &vec![None; inputs.len()], &vec![false; outputs])?;
    Ok(terms.into_iter().map(Some).collect())
}

/// All ways to write `k` as a sum of `parts` numbers, in order.
fn compositions(k: usize, parts: usize) -> Vec<Vec<usize>> {
    match parts {
        0 => vec![],
        1 => vec![vec![k]],
        _ => (0..=k)
            .flat_map(|first| {
                let rest = compositions(k - first, parts - 1).into_iter();
                rest.map(move |rest| [vec![first], rest].concat())
            })
            .collect(),
    }
}

/// (Σ orders)! / Π orders!
fn multinomial(orders: &[usize]) -> f64 {
    let (mut total, mut result) = (0, 1.0);
    for order in orders {
        for i in 1..=*order {
            total += 1;
            // A product of binomial coefficients, an integer at each step.
            result = result * total as f64 / i as f64;
        }
    }
    result
}

fn scaled(tensor: Tensor, weight: f64) -> Tensor {
    if weight == 1.0 { tensor } else { tensor * weight }
}
