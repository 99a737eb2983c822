//! Power series: derivatives of a body along a curve, to any order, from the one derivative rule
//! of each op.
//!
//! Let the inputs of a body move along curves x(s) whose derivatives at s = 0 are known. This
//! module computes the derivatives of the outputs y(s) at 0. Nesting `jvp` n times gives them too,
//! but with 2ⁿ times the equations. Here every value has a *series*, y⁽⁰⁾, y⁽¹⁾, y⁽²⁾, …. An op
//! computes the member of order k of its result from its operands' members up to order k, and from
//! the result's members of lower order:
//!
//! - **linear**: the op itself, order by order;
//! - **products** (multilinear ops, and ops that are linear in each operand that moves): Leibniz'
//!   rule, (x·y)⁽ᵏ⁾ = Σ C(k,i) · x⁽ⁱ⁾ · y⁽ᵏ⁻ⁱ⁾;
//! - **quotients**: Leibniz' rule for x = z·y, solved for z⁽ᵏ⁾;
//! - **nonlinear**: y = f(x) has the derivative y′ = f′(x, y)·x′. The op's jvp rule is the
//!   right-hand side, as a graph of ops over x, y and x′. The member of order k−1 of this graph is
//!   the member of order k of y, and needs y up to order k−1 only. So a rule may use the op's own
//!   result, as the rules of `exp`, `tanh` and `sqrt` do. Such a rule is a differential equation
//!   that is solved one order at a time (a *relaxed* series);
//! - **custom**: as nonlinear, with the user's rule;
//! - **zero**: all members from the first on are zero;
//! - **composite**: the series of the decomposition.
//!
//! So an op needs no second rule for series. The graphs of rules are *hash-consed*: the same op on
//! the same operands is one node, whichever rule asks for it. For example, the rule of `sin` needs
//! cos x, and the rule of `cos` needs sin x, which already exists. A chain of rules therefore ends
//! after a few nodes, and a program of m equations has O(m·n²) equations up to order n. Rules of
//! `pow` and similar ops lead to ever new functions xʸ⁻¹, xʸ⁻², …, with O(n³) equations.
//!
//! Members are derivatives, not Taylor coefficients (the derivatives divided by k!). The
//! series of x′ is then that of x, shifted by one, and y′ = g is solved without division. The
//! only numbers introduced are binomial coefficients, so rational programs stay exact.

mod members;
mod tangents;

use super::activity::Activity;
use super::jvp::{decompose, decomposed, zeros};
use super::{current_scope, custom, record};
use std::collections::HashMap;
use std::rc::Rc;
use wengert_core::build::{Closure, Scope};
use wengert_core::graph::{Body, Equation, Region, ValueId};
use wengert_core::op::Binary;
use wengert_core::op::derivative::{Custom, Derivative, JvpRule, TangentRule, TransposeRule};
use wengert_core::{IdVec, Op, Result, Tensor, TensorType};

/// The derivatives of a value along a curve, from the first; `None` is zero.
pub type Series = Vec<Option<Tensor>>;

/// Runs `body` along a curve that starts at `primals`. `series` are the curve's derivatives
/// there, `order` of them for each input. Returns the outputs, and as many derivatives of each.
///
/// As with [`jvp`](super::jvp()), equations go to the innermost scope among those of their
/// operands, and the body's locations must be those of the current scope's function.
pub fn series(
    body: &Body,
    primals: &[Tensor],
    series: &[Series],
    order: usize,
) -> Result<(Vec<Tensor>, Vec<Series>)> {
    assert_eq!(primals.len(), body.inputs.len(), "series: one primal for each input");
    assert_eq!(series.len(), body.inputs.len(), "series: one series for each input");
    let mut nodes = Nodes::new()?;
    let wanted: Vec<bool> = body.outputs.iter().map(|v| body.ty(*v).dtype.is_float()).collect();
    let activity = Activity::of(body, &wanted);
    let inputs: Vec<Value> =
        primals.iter().zip(series).map(|(x, s)| nodes.given(x.clone(), s)).collect();
    let values = nodes.instantiate(body, &inputs, &activity)?;
    // Computes one order after the other, and each in the order of equations. This bounds the
    // recursion into operands.
    for k in 0..=order {
        let marks = if k == 0 { &activity.live } else { &activity.differentiated };
        for value in body.equations.iter().flat_map(|e| &e.results).filter(|v| marks[**v]) {
            nodes.derivative(values[*value].expect("an equation that is live has values"), k)?;
        }
    }
    let mut outputs = (Vec::new(), Vec::new());
    for output in &body.outputs {
        let value = values[*output].expect("outputs are live");
        outputs.0.push(nodes.present(value)?);
        outputs.1.push((1..=order).map(|k| nodes.derivative(value, k)).collect::<Result<_>>()?);
    }
    Ok(outputs)
}

/// A function of the curve's parameter: a result of a node, differentiated `order` times.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Value {
    node: usize,
    result: usize,
    order: usize,
}

/// A given tensor, or an op applied to values.
struct Node {
    applied: Option<Rc<Applied>>,
    /// Types of the results.
    types: Vec<TensorType>,
    /// Whether the results vary along the curve. If not, they are constant.
    moves: bool,
    rule: Rule,
    /// Members of the results' series computed so far, by order.
    known: Vec<Vec<Option<Tensor>>>,
}

struct Applied {
    /// Op, regions and location. Its operands and results are those of the body it comes from.
    equation: Equation,
    operands: Vec<Value>,
}

/// How the series members of a node are computed, from the first on.
#[derive(Clone)]
enum Rule {
    /// The members are given, or are zero.
    Given,
    /// The op, applied order by order.
    Linear(TransposeRule),
    /// Leibniz' rule over the operands that move, by number. The closure is the op as a linear map
    /// of that operand, if this map is not the op itself.
    Product(Rc<Vec<(usize, Option<Closure>)>>),
    /// Leibniz' rule, solved for the result.
    Quotient,
    /// The series of the derivative.
    Nonlinear(Tangents),
    /// As `Nonlinear`, after its graph has been made: the derivative of each result.
    Solved(Rc<Vec<Option<Value>>>),
}

/// Source of the tangents of a nonlinear op.
#[derive(Clone, Copy)]
enum Tangents {
    /// From the op's rule.
    Own(JvpRule),
    /// From the user's rule.
    Custom(Custom),
    /// From the regions of control flow.
    Control,
}

struct Nodes {
    scope: Scope,
    nodes: Vec<Node>,
    // Used for look-up only; its order is never observed.
    index: HashMap<(Op, Vec<Value>, Vec<Region>), usize>,
}

impl Nodes {
    fn new() -> Result<Self> {
        Ok(Nodes { scope: current_scope()?, nodes: vec![], index: HashMap::new() })
    }

    /// A value given from outside.
    fn given(&mut self, start: Tensor, series: &[Option<Tensor>]) -> Value {
        let moves = start.dtype().is_float() && series.iter().any(Option::is_some);
        let types = vec![start.ty().clone()];
        let mut known = vec![vec![Some(start)]];
        known.extend(series.iter().map(|member| vec![member.clone()]));
        self.nodes.push(Node { applied: None, types, moves, rule: Rule::Given, known });
        Value { node: self.nodes.len() - 1, result: 0, order: 0 }
    }

    /// The live values of a body.
    fn instantiate(
        &mut self,
        body: &Body,
        inputs: &[Value],
        activity: &Activity,
    ) -> Result<IdVec<ValueId, Option<Value>>> {
        let mut values: IdVec<ValueId, Option<Value>> = body.values.ids().map(|_| None).collect();
        for (input, value) in body.inputs.iter().zip(inputs) {
            values[*input] = Some(*value);
        }
        for equation in &body.equations {
            if !equation.results.iter().any(|v| activity.live[*v]) {
                continue;
            }
            let operands = equation.operands.iter();
            let operands =
                operands.map(|v| values[*v].expect("a body defines values before their use"));
            let results =
                self.apply(equation, body.types(&equation.results), operands.collect())?;
            for (value, result) in equation.results.iter().zip(results) {
                values[*value] = Some(result);
            }
        }
        Ok(values)
    }

    /// The outputs of a closure applied to values.
    fn outputs(&mut self, closure: &Closure, inputs: &[Value]) -> Result<Vec<Value>> {
        let mut inputs = inputs.to_vec();
        inputs.extend(closure.captures.iter().map(|t| self.given(t.clone(), &[])));
        let body = &closure.body;
        let activity = Activity::of(body, &vec![false; body.outputs.len()]);
        let values = self.instantiate(body, &inputs, &activity)?;
        Ok(body.outputs.iter().map(|v| values[*v].expect("outputs are live")).collect())
    }

    /// The results of an op applied to values: those of the existing node with this op and
    /// operands, if any.
    fn apply(
        &mut self,
        equation: &Equation,
        types: Vec<TensorType>,
        operands: Vec<Value>,
    ) -> Result<Vec<Value>> {
        let count = types.len();
        let results = |node| (0..count).map(|result| Value { node, result, order: 0 }).collect();
        let key = (equation.op.clone(), operands, equation.regions.clone());
        if let Some(node) = self.index.get(&key) {
            return Ok(results(*node));
        }
        let operands = key.1.clone();
        let moving: Vec<usize> = (0..operands.len()).filter(|i| self.moves(operands[*i])).collect();
        let rule = if moving.is_empty() { Derivative::Zero } else { equation.op.derivative() };
        if let Some(closure) = self.expanded(equation, rule, &operands, &types)? {
            return self.outputs(&closure, &operands);
        }
        let applied = Applied { equation: equation.clone(), operands };
        let rule = match rule {
            Derivative::Zero
            | Derivative::Composite
            | Derivative::Decomposed(_)
            | Derivative::Tangent(_)
            | Derivative::Function => Rule::Given,
            Derivative::Opaque => return Err(custom::opaque_error(&self.scope, equation)),
            Derivative::Custom(rule) => Rule::Nonlinear(Tangents::Custom(rule)),
            Derivative::Control | Derivative::Checkpoint => Rule::Nonlinear(Tangents::Control),
            Derivative::Linear(_) | Derivative::SignedSum(_) => {
                Rule::Linear(rule.linear().expect("both kinds are linear"))
            }
            Derivative::Multilinear(_) => {
                Rule::Product(Rc::new(moving.iter().map(|i| (*i, None)).collect()))
            }
            Derivative::Nonlinear(jvp) => Rule::Nonlinear(Tangents::Own(jvp)),
            Derivative::LinearIn(allowed, jvp, _) if moving.iter().all(|i| allowed.contains(i)) => {
                self.product(&applied, &types, &moving, Tangents::Own(jvp))?
            }
            Derivative::LinearIn(..) if equation.op == Op::Binary(Binary::Div) => Rule::Quotient,
            Derivative::LinearIn(_, jvp, _) => Rule::Nonlinear(Tangents::Own(jvp)),
        };
        let moves = !matches!(rule, Rule::Given);
        self.nodes.push(Node {
            applied: Some(Rc::new(applied)),
            types,
            moves,
            rule,
            known: vec![],
        });
        self.index.insert(key, self.nodes.len() - 1);
        Ok(results(self.nodes.len() - 1))
    }

    /// The closure that replaces an op without a rule of its own, if an operand moves: the
    /// decomposition of a composite, or the transpose of a program.
    fn expanded(
        &self,
        equation: &Equation,
        rule: Derivative,
        operands: &[Value],
        results: &[TensorType],
    ) -> Result<Option<Closure>> {
        let types: Vec<TensorType> = operands.iter().map(|v| self.ty(*v).clone()).collect();
        match rule {
            Derivative::Composite | Derivative::Function => {
                let decompose = || decompose(equation, &types, results);
                // The equations of a region keep their own locations.
                let body = match equation.regions.is_empty() {
                    true => {
                        let label = format!("decompose({})", equation.op.name());
                        self.scope.derived(equation.location, label, decompose)?
                    }
                    false => decompose()?,
                };
                Ok(Some(Closure { body, captures: vec![] }))
            }
            Derivative::Decomposed(decomposition)
            | Derivative::Tangent(TangentRule { decomposition, .. }) => {
                let body = decomposed(&self.scope, equation, decomposition, &types)?;
                Ok(Some(Closure { body, captures: vec![] }))
            }
            Derivative::Custom(Custom::Transposed { tangents }) => {
                let closure = record(&types, |operands| {
                    custom::expand(&self.scope, equation, operands, tangents)
                })?;
                Ok(Some(closure))
            }
            _ => Ok(None),
        }
    }

    fn ty(&self, value: Value) -> &TensorType {
        &self.nodes[value.node].types[value.result]
    }

    fn moves(&self, value: Value) -> bool {
        self.nodes[value.node].moves && self.ty(value).dtype.is_float()
    }

    /// The member of order `k` of a value's series; order 0 is the value itself. `None` is zero.
    fn derivative(&mut self, value: Value, k: usize) -> Result<Option<Tensor>> {
        let order = value.order + k;
        if order > 0 && !self.moves(value) {
            return Ok(None);
        }
        while self.nodes[value.node].known.len() <= order {
            let next = self.nodes[value.node].known.len();
            let members = self.members(value.node, next)?;
            self.nodes[value.node].known.push(members);
        }
        Ok(self.nodes[value.node].known[order][value.result].clone())
    }

    /// The value itself as a tensor; zeros if it is `None`.
    fn present(&mut self, value: Value) -> Result<Tensor> {
        match self.derivative(value, 0)? {
            Some(tensor) => Ok(tensor),
            None => zeros(self.ty(value)),
        }
    }
}
