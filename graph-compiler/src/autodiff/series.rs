//! Power series: what a body makes of a curve, to any order, from the one derivative rule of each op.
//!
//! Let the inputs of a body move along curves x(s) of which the derivatives at s = 0 are known. Wanted are the derivatives of the outputs
//! y(s) at 0. Nesting `jvp` n times gives them, and 2ⁿ times the equations. Here every value has a *series*, y⁽⁰⁾, y⁽¹⁾, y⁽²⁾, …, of which each
//! op computes a member from members of the same and of lower order:
//!
//! - **linear**: the op itself, order by order;
//! - **products** (multilinear ops, and ops that are linear in each operand that moves): Leibniz' rule, (x·y)⁽ᵏ⁾ = Σ C(k,i) · x⁽ⁱ⁾ · y⁽ᵏ⁻ⁱ⁾;
//! - **quotients**: Leibniz' rule for x = z·y, solved for z⁽ᵏ⁾;
//! - **nonlinear**: y = f(x) has the derivative y′ = f′(x, y)·x′, and the op's jvp rule *is* that right-hand side: a graph of ops over x, y
//!   and x′. Its members of order k−1 are those of y of order k. They need y to order k−1 only, so a rule may use its own result, as those of
//!   `exp`, `tanh` and `sqrt` do: the rule is a differential equation, solved one order at a time (a *relaxed* series);
//! - **custom**: as nonlinear, with the user's rule;
//! - **zero**: nothing moves;
//! - **composite**: the series of the decomposition.
//!
//! So there is no second rule. A rule's graph is made of nodes, one for each op applied to given operands, wherever it comes from
//! (*hash-consing*): the rule of `sin` asks for cos x, the rule of that for sin x, which is there. Therefore rules close in a few nodes, and a
//! program of m equations has O(m·n²) of them to order n. (`pow` and its like, whose rules go on to new functions xʸ⁻¹, xʸ⁻², …, have O(n³).)
//!
//! Members are derivatives, not Taylor coefficients (which are the derivatives over k!): the series of x′ is then that of x, moved by one, and
//! what solves y′ = g needs no division. All numbers that are brought in are binomial coefficients, so rational programs stay exact.

use super::activity::Activity;
use super::jvp::{decompose, decomposed, duals_of_linear, jvp, zeros};
use super::{add, current_scope, custom, record, sound};
use std::collections::HashMap;
use std::rc::Rc;
use wengert_core::graph::build::{Closure, Scope};
use wengert_core::graph::{Body, Equation, ValueId};
use wengert_core::op::derivative::{Custom, Derivative, Jvp, JvpRule, TransposeRule};
use wengert_core::op::{Binary, Unary};
use wengert_core::{IdVec, Initializer, Op, Result, Tensor, TensorType};

/// The derivatives of a value along a curve, from the first; `None` is zero.
pub type Series = Vec<Option<Tensor>>;

/// Runs `body` along a curve: `primals` is where it starts, `series` are the curve's derivatives there, `order` of them for each input.
/// Returns the outputs, and as many derivatives of each.
///
/// As with [`jvp`](super::jvp()), equations go to the innermost scope among those of their operands, and the body's locations must be those of
/// the current scope's function.
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
    let inputs: Vec<Value> = primals.iter().zip(series).map(|(x, s)| nodes.given(x.clone(), s)).collect();
    let values = nodes.instantiate(body, &inputs, &activity)?;
    // One order after the other, and equations as they come: nothing has to be asked for far down the graph.
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

/// Something given, or an op applied to values.
struct Node {
    applied: Option<Rc<Applied>>,
    /// Types of the results.
    types: Vec<TensorType>,
    /// Whether the results have series at all; if not, they are constant.
    moves: bool,
    rule: Rule,
    /// Members of the results' series, by order, as far as they have been asked for.
    known: Vec<Vec<Option<Tensor>>>,
}

struct Applied {
    /// Op, regions and location; its operands and results are those of the body it comes from.
    equation: Equation,
    operands: Vec<Value>,
}

/// How a node gets the members of its series from the first on.
#[derive(Clone)]
enum Rule {
    /// There are none, or they are given.
    Given,
    /// The op, order by order.
    Linear(TransposeRule),
    /// Leibniz' rule over the operands that move. Each has the op as a linear map of it, if that is another program than the op itself.
    Product(Rc<Vec<(usize, Option<Closure>)>>),
    /// Leibniz' rule, solved for the result.
    Quotient,
    /// The series of the derivative.
    Nonlinear(Tangents),
    /// The same when its graph has been made: the derivative of each result.
    Solved(Rc<Vec<Option<Value>>>),
}

/// Where the tangents of a nonlinear op come from.
#[derive(Clone, Copy)]
enum Tangents {
    /// From the op's rule.
    Own(JvpRule),
    /// From the user's.
    Custom(Custom),
}

struct Nodes {
    scope: Scope,
    nodes: Vec<Node>,
    // Looked up only; its order is never observed.
    index: HashMap<(Op, Vec<Value>, Vec<Body>), usize>,
}

impl Nodes {
    fn new() -> Result<Self> {
        Ok(Nodes { scope: current_scope()?, nodes: vec![], index: HashMap::new() })
    }

    /// A value that comes from outside.
    fn given(&mut self, start: Tensor, series: &[Option<Tensor>]) -> Value {
        let moves = start.dtype().is_float() && series.iter().any(Option::is_some);
        let types = vec![start.ty().clone()];
        let mut known = vec![vec![Some(start)]];
        known.extend(series.iter().map(|member| vec![member.clone()]));
        self.nodes.push(Node { applied: None, types, moves, rule: Rule::Given, known });
        Value { node: self.nodes.len() - 1, result: 0, order: 0 }
    }

    /// The values of a body, as far as they are live.
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
            let operands = operands.map(|v| values[*v].expect("a body defines values before their use"));
            let results = self.apply(equation, body.types(&equation.results), operands.collect())?;
            for (value, result) in equation.results.iter().zip(results) {
                values[*value] = Some(result);
            }
        }
        Ok(values)
    }

    /// The outputs of a closure on values.
    fn outputs(&mut self, closure: &Closure, inputs: &[Value]) -> Result<Vec<Value>> {
        let mut inputs = inputs.to_vec();
        inputs.extend(closure.captures.iter().map(|t| self.given(t.clone(), &[])));
        let body = &closure.body;
        let activity = Activity::of(body, &vec![false; body.outputs.len()]);
        let values = self.instantiate(body, &inputs, &activity)?;
        Ok(body.outputs.iter().map(|v| values[*v].expect("outputs are live")).collect())
    }

    /// The results of an op applied to values: those of the node that does so already, if there is one.
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
            Derivative::Zero | Derivative::Composite | Derivative::Decomposed(_) => Rule::Given,
            Derivative::Opaque => return Err(custom::opaque_error(&self.scope, equation)),
            Derivative::Custom(rule) => Rule::Nonlinear(Tangents::Custom(rule)),
            Derivative::Linear(transpose) => Rule::Linear(transpose),
            Derivative::Multilinear(_) => Rule::Product(Rc::new(moving.iter().map(|i| (*i, None)).collect())),
            Derivative::Nonlinear(jvp) => Rule::Nonlinear(Tangents::Own(jvp)),
            Derivative::LinearIn(allowed, jvp, _) if moving.iter().all(|i| allowed.contains(i)) => {
                self.product(&applied, &types, &moving, Tangents::Own(jvp))?
            }
            Derivative::LinearIn(..) if equation.op == Op::Binary(Binary::Div) => Rule::Quotient,
            Derivative::LinearIn(_, jvp, _) => Rule::Nonlinear(Tangents::Own(jvp)),
        };
        let moves = !matches!(rule, Rule::Given);
        self.nodes.push(Node { applied: Some(Rc::new(applied)), types, moves, rule, known: vec![] });
        self.index.insert(key, self.nodes.len() - 1);
        Ok(results(self.nodes.len() - 1))
    }

    /// What stands for an op that moves and has no rule of its own: the decomposition of a composite, the transpose of a program.
    fn expanded(
        &self,
        equation: &Equation,
        rule: Derivative,
        operands: &[Value],
        results: &[TensorType],
    ) -> Result<Option<Closure>> {
        let types: Vec<TensorType> = operands.iter().map(|v| self.ty(*v).clone()).collect();
        match rule {
            Derivative::Composite => {
                let decompose = || decompose(equation, &types, results);
                // A region's equations have locations of their own.
                let body = match equation.regions.is_empty() {
                    true => {
                        let label = format!("decompose({})", equation.op.name());
                        self.scope.derived(equation.location, label, decompose)?
                    }
                    false => decompose()?,
                };
                Ok(Some(Closure { body, captures: vec![] }))
            }
            Derivative::Decomposed(decomposition) => {
                let body = decomposed(&self.scope, equation, decomposition, &types)?;
                Ok(Some(Closure { body, captures: vec![] }))
            }
            Derivative::Custom(Custom::Transposed { tangents }) => {
                let closure =
                    record(&types, |operands| custom::expand(&self.scope, equation, operands, tangents))?;
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

    /// The value itself as a tensor, be it zero.
    fn present(&mut self, value: Value) -> Result<Tensor> {
        match self.derivative(value, 0)? {
            Some(tensor) => Ok(tensor),
            None => zeros(self.ty(value)),
        }
    }

    /// The members of order `k` of a node's results, where those of lower order are known.
    fn members(&mut self, node: usize, k: usize) -> Result<Vec<Option<Tensor>>> {
        let applied = self.nodes[node].applied.clone().expect("of what is given, all members are known");
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
            Rule::Solved(derivatives) if k > 0 => {
                derivatives.iter().map(|d| d.map_or(Ok(None), |d| self.derivative(d, k - 1))).collect()
            }
            Rule::Given | Rule::Quotient | Rule::Nonlinear(_) | Rule::Solved(_) => {
                assert_eq!(k, 0, "constants have no members of higher order");
                let operands = operands.iter().map(|v| self.present(*v)).collect::<Result<Vec<_>>>()?;
                self.emit(equation, &operands)
            }
        }
    }

    /// The op itself, where the user put it.
    fn emit(&self, equation: &Equation, operands: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        let location = self.scope.location(equation.location);
        let results = Scope::emit(equation.op.clone(), operands, equation.regions.clone(), location)?;
        Ok(results.into_iter().map(Some).collect())
    }

    /// Emits what belongs to a member of higher order.
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
            // A linear op asks no more of the others than what they are like.
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
        self.derived(equation, || sound(duals_of_linear(equation, transpose, &operands, &results, &members)?))
    }

    /// The rule for the members of a product, if the op is one in the operands that move; else it is nonlinear.
    fn product(
        &mut self,
        applied: &Applied,
        types: &[TensorType],
        moving: &[usize],
        rule: Tangents,
    ) -> Result<Rule> {
        let mut factors = Vec::new();
        for i in moving {
            let (closure, _) = self.traced(applied, types, &[*i], rule)?;
            let Some(closure) = closure else { return Ok(Rule::Nonlinear(rule)) };
            // Linear in one operand is the op alone; a rule that speaks of the result speaks of that of other operands.
            let activity = Activity::of(&closure.body, &vec![false; closure.body.outputs.len()]);
            let results = applied.operands.len()..applied.operands.len() + types.len();
            if closure.body.inputs[results].iter().any(|v| activity.live[*v]) {
                return Ok(Rule::Nonlinear(rule));
            }
            factors.push((*i, Some(closure)));
        }
        Ok(Rule::Product(Rc::new(factors)))
    }

    /// Σ over orders of the factors that add up to `k`, of the products of those members, times the multinomial coefficient.
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
            // Those that move are filled in below.
            operands.push(match factors.iter().any(|(f, _)| *f == i) {
                true => Tensor::variable(self.ty(*value).clone(), Initializer::Zeros),
                false => self.present(*value)?,
            });
        }
        let mut sums = vec![None; results.len()];
        'terms: for orders in compositions(k, factors.len()) {
            for ((i, _), order) in factors.iter().zip(&orders) {
                let Some(member) = self.derivative(applied.operands[*i], *order)? else { continue 'terms };
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
                sums.into_iter().zip(terms).map(|(sum, term)| plus(sum, term)).collect::<Result<Vec<_>>>()
            })?;
        }
        Ok(sums)
    }

    /// z = x / y: from x = z·y follows x⁽ᵏ⁾ = Σ C(k,j) · z⁽ᵏ⁻ʲ⁾ · y⁽ʲ⁾, so z⁽ᵏ⁾ = (x⁽ᵏ⁾ − Σ over j > 0) / y. Products are strong, as in the rule of `div`.
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
            let (Some(dy), Some(dz)) = (self.derivative(y, j)?, self.derivative(z, k - j)?) else { continue };
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

    /// The derivative of each result as a value: the rule's graph on the operands, the results themselves, and the operands' derivatives.
    fn solve(&mut self, node: usize, applied: &Applied, rule: Tangents) -> Result<Vec<Option<Value>>> {
        let operands = &applied.operands;
        let moving: Vec<usize> = (0..operands.len()).filter(|i| self.moves(operands[*i])).collect();
        let types = self.nodes[node].types.clone();
        let (closure, present) = self.traced(applied, &types, &moving, rule)?;
        let Some(closure) = closure else { return Ok(vec![None; types.len()]) };
        let mut inputs = operands.clone();
        inputs.extend((0..types.len()).map(|result| Value { node, result, order: 0 }));
        inputs.extend(moving.iter().map(|i| Value { order: operands[*i].order + 1, ..operands[*i] }));
        let mut outputs = self.outputs(&closure, &inputs)?.into_iter();
        Ok(present.iter().map(|present| present.then(|| outputs.next()).flatten()).collect())
    }

    /// The rule as a closure of the operands, the results, and the tangents of the operands that move; and which results have a
    /// tangent. Nothing if none has.
    fn traced(
        &self,
        applied: &Applied,
        results: &[TensorType],
        moving: &[usize],
        rule: Tangents,
    ) -> Result<(Option<Closure>, Vec<bool>)> {
        let operands: Vec<TensorType> = applied.operands.iter().map(|v| self.ty(*v).clone()).collect();
        let tangents = moving.iter().map(|i| operands[*i].clone());
        let types: Vec<TensorType> = operands.iter().chain(results).cloned().chain(tangents).collect();
        let equation = &applied.equation;
        let mut present = Vec::new();
        let mut record = || {
            record(&types, |inputs| {
                let (operands, rest) = inputs.split_at(operands.len());
                let (results, given) = rest.split_at(results.len());
                let mut tangents = vec![None; operands.len()];
                moving.iter().zip(given).for_each(|(i, t)| tangents[*i] = Some(t.clone()));
                let tangents = match rule {
                    Tangents::Own(jvp) => {
                        let (op, regions) = (&equation.op, &equation.regions);
                        jvp(&Jvp { op, operands, results, tangents: &tangents, regions })
                    }
                    Tangents::Custom(rule) => {
                        custom::tangents(&self.scope, equation, rule, operands, results, &tangents, false)?
                    }
                };
                present = tangents.iter().map(Option::is_some).collect();
                Ok(tangents.into_iter().flatten().collect())
            })
        };
        let closure = match rule {
            Tangents::Own(_) => {
                self.scope.derived(equation.location, format!("jvp({})", equation.op.name()), record)?
            }
            // A region's equations have locations of their own.
            Tangents::Custom(_) => record()?,
        };
        Ok((Some(closure).filter(|_| present.contains(&true)), present))
    }
}

/// One product: the op on these members, of which those of the given orders are derivatives. If the op states its own jvp, a derivative
/// goes in as the tangent, so that the product is as strong as the rule has it.
fn term(
    equation: &Equation,
    factors: &[(usize, Option<Closure>)],
    operands: &[Tensor],
    orders: &[usize],
    results: &[TensorType],
) -> Result<Vec<Option<Tensor>>> {
    let tangent = (0..factors.len()).rev().find(|f| orders[*f] > 0).expect("one of them is a derivative");
    let (which, closure) = &factors[tangent];
    let Some(closure) = closure else {
        let location = wengert_core::Location::Unknown;
        let terms = Scope::emit(equation.op.clone(), operands, equation.regions.clone(), location)?;
        return Ok(terms.into_iter().map(|t| t.dtype().is_float().then_some(t)).collect());
    };
    let mut inputs = operands.to_vec();
    // The rule does not look at the results.
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
            // A product of binomial coefficients: whole at each step.
            result = result * total as f64 / i as f64;
        }
    }
    result
}

fn scaled(tensor: Tensor, weight: f64) -> Tensor {
    if weight == 1.0 { tensor } else { tensor * weight }
}

fn plus(a: Option<Tensor>, b: Option<Tensor>) -> Result<Option<Tensor>> {
    match (a, b) {
        (Some(a), Some(b)) => add(a, &b).map(Some),
        (a, b) => Ok(a.or(b)),
    }
}
