//! Normalisations with fixed statistics, folded into the convolutions before them.
//!
//! A network for inference multiplies each channel of a convolution by a number and adds another:
//! a bias, a batch normalisation by running statistics, a learned scale. All numbers are computed
//! from parameters. Since a convolution is linear in its filter, the product with s needs no pass
//! over the image:
//!
//! ```text
//! ((conv(x, w) + b) − m) · s + t  =  conv(x, w·s) + ((b − m)·s + t)
//! ```
//!
//! The filter w·s and the sum behind it depend on parameters alone, so they are
//! [invariants](crate::invariants). The parameters stay as they are, and so does the function, but
//! for rounding: the products are rounded before they are added up. So no pass of the pipeline
//! does this, whose passes keep every bit for the program as it is written. It is for those that
//! read a model of another program, and for those who ask.
//!
//! A chain begins with a convolution of f32 or f64 whose filter depends on parameters alone. Its
//! links are sums, differences and products with numbers of the channels, each the only reader of
//! the one before. A chain without a product is left alone: a sum is added by the convolution's
//! kernel.
//!
//! Cost: two walks over the equations.

use crate::rewrite::{dce, push};
use std::collections::{BTreeMap, BTreeSet};
use wengert_core::graph::{Body, Equation, Function, InputRole, ValueId, verify};
use wengert_core::id::IdVec;
use wengert_core::op::{Binary, BroadcastInDim, Reshape, Unary};
use wengert_core::{DType, Dim, LocationId, Op};

/// A convolution and its links.
struct Chain {
    /// The number of the convolution's equation.
    convolution: usize,
    /// The ops, each with a value that has a number for each channel or for all.
    links: Vec<(Binary, ValueId)>,
    /// The axis of the channels in the result, and in the filter.
    axes: [usize; 2],
}

/// The function with normalisations folded into convolutions.
pub fn folded(function: &Function) -> Function {
    let chains = chains(function);
    if chains.is_empty() {
        return function.clone();
    }
    let body = rebuilt(&function.body, &chains);
    let (folded, _) = dce(Function { body, ..function.clone() }, u64::MAX);
    let folded = folded.renumber();
    if let Err(fault) = verify(&folded) {
        panic!("folding of normalisations breaks an invariant of the graph: {fault}");
    }
    folded
}

/// Values that depend on parameters and constants alone.
fn fixed(function: &Function) -> IdVec<ValueId, bool> {
    let body = &function.body;
    let mut fixed: IdVec<ValueId, bool> = body.values.ids().map(|_| false).collect();
    for (input, value) in function.inputs.iter().zip(&body.inputs) {
        fixed[*value] = input.role == InputRole::Param;
    }
    for equation in &body.equations {
        let is_fixed = equation.regions.is_empty() && equation.operands.iter().all(|v| fixed[*v]);
        equation.results.iter().for_each(|result| fixed[*result] = is_fixed);
    }
    fixed
}

/// The chains of a function, each by the number of the equation of its last link.
fn chains(function: &Function) -> BTreeMap<usize, Chain> {
    let body = &function.body;
    let (fixed, definitions, readers) = (fixed(function), body.definitions(), readers(body));
    let mut chains = BTreeMap::new();
    for (convolution, equation) in body.equations.iter().enumerate() {
        let Op::ConvGeneralDilated(op) = &equation.op else { continue };
        let (mut value, filter) = (equation.results[0], equation.operands[1]);
        let dtype = body.ty(value).dtype;
        if !matches!(dtype, DType::F32 | DType::F64)
            || body.ty(filter).dtype != dtype
            || !fixed[filter]
        {
            continue;
        }
        let axes = op.output_features();
        let mut chain = Chain { convolution, links: vec![], axes };
        let mut last = None;
        while let [Some(reader)] = readers[value][..] {
            let Equation { op: Op::Binary(op), operands, results, .. } = &body.equations[reader]
            else {
                break;
            };
            let other = match (op, &operands[..]) {
                (Binary::Add | Binary::Mul, [other, link]) if *link == value => *other,
                (Binary::Add | Binary::Mul | Binary::Sub, [link, other]) if *link == value => {
                    *other
                }
                _ => break,
            };
            let number = definitions[other].and_then(|n| of_channels(body, n, axes[0]));
            let Some(number) = number.filter(|number| fixed[*number]) else { break };
            chain.links.push((*op, number));
            (value, last) = (results[0], Some(reader));
        }
        if let Some(last) = last.filter(|_| chain.links.iter().any(|(op, _)| *op == Binary::Mul)) {
            chains.insert(last, chain);
        }
    }
    chains
}

/// The equations that read each value; `None` stands for the function's outputs.
fn readers(body: &Body) -> IdVec<ValueId, Vec<Option<usize>>> {
    let mut readers: IdVec<ValueId, Vec<Option<usize>>> =
        body.values.ids().map(|_| vec![]).collect();
    for (n, equation) in body.equations.iter().enumerate() {
        equation.operands.iter().for_each(|value| readers[*value].push(Some(n)));
    }
    body.outputs.iter().for_each(|value| readers[*value].push(None));
    readers
}

/// The value that an equation broadcasts along every axis but that of the channels, if it does: it
/// has a number for each channel.
fn of_channels(body: &Body, equation: usize, axis: usize) -> Option<ValueId> {
    let Equation { op: Op::BroadcastInDim(op), operands, .. } = &body.equations[equation] else {
        return None;
    };
    let is_one = |extent: &Dim| extent.as_constant() == Some(1);
    let shape = &body.ty(operands[0]).shape;
    let along = |(extent, of): (&Dim, &usize)| is_one(extent) || *of == axis;
    let has_channels = op.dims.contains(&axis)
        && shape.iter().zip(&op.dims).any(|(e, of)| *of == axis && *e == op.shape[axis]);
    (has_channels && shape.iter().zip(&op.dims).all(along)).then_some(operands[0])
}

/// The body with its chains replaced by convolutions with another filter, and sums.
fn rebuilt(old: &Body, chains: &BTreeMap<usize, Chain>) -> Body {
    let mut walk =
        Walk { old, body: Body::default(), new: old.values.ids().map(|_| None).collect() };
    for value in &old.inputs {
        let new = walk.body.values.push(old.ty(*value).clone());
        walk.body.inputs.push(new);
        walk.new[*value] = Some(new);
    }
    let convolutions: BTreeSet<usize> = chains.values().map(|chain| chain.convolution).collect();
    for (n, equation) in old.equations.iter().enumerate() {
        if let Some(chain) = chains.get(&n) {
            walk.chain(chain, equation);
            continue;
        }
        let operands: Option<Vec<ValueId>> =
            equation.operands.iter().map(|value| walk.new[*value]).collect();
        // The other links read a value that is not made.
        let Some(operands) = operands.filter(|_| !convolutions.contains(&n)) else { continue };
        let results: Vec<ValueId> =
            equation.results.iter().map(|v| walk.body.values.push(old.ty(*v).clone())).collect();
        for (old, new) in equation.results.iter().zip(&results) {
            walk.new[*old] = Some(*new);
        }
        walk.body.equations.push(Equation { operands, results, ..equation.clone() });
    }
    walk.body.outputs = old.outputs.iter().map(|value| walk.of(*value)).collect();
    walk.body
}

struct Walk<'a> {
    old: &'a Body,
    body: Body,
    /// The values of the new body, by those of the old one.
    new: IdVec<ValueId, Option<ValueId>>,
}

impl Walk<'_> {
    fn of(&self, old: ValueId) -> ValueId {
        self.new[old].expect("only links read the values of links")
    }

    /// A chain, in place of the equation of its last link.
    fn chain(&mut self, Chain { convolution, links, axes }: &Chain, last: &Equation) {
        let equation = &self.old.equations[*convolution];
        let [image, filter] = [0, 1].map(|n| self.of(equation.operands[n]));
        let (location, [channels, features]) = (equation.location, *axes);
        let shape = self.old.ty(last.results[0]).shape.to_vec();
        let (mut factor, mut term) = (None, None);
        for (op, number) in links {
            let of = self.list(*number, &shape[channels], last.location);
            let mut with = |before: Option<ValueId>, op: Binary| match before {
                Some(before) => push(&mut self.body, op, &[before, of], last.location),
                None => of,
            };
            match op {
                Binary::Mul => {
                    factor = Some(with(factor, Binary::Mul));
                    term = term.map(|term| with(Some(term), Binary::Mul));
                }
                Binary::Sub if term.is_none() => {
                    term = Some(push(&mut self.body, Unary::Neg, &[of], last.location));
                }
                op => term = Some(with(term, *op)),
            }
        }
        let factor = factor.expect("a chain has a product");
        let all = self.body.ty(filter).shape.to_vec();
        let factor = self.broadcast(factor, features, all, location);
        let filter = push(&mut self.body, Binary::Mul, &[filter, factor], location);
        let mut result = push(&mut self.body, equation.op.clone(), &[image, filter], location);
        if let Some(term) = term {
            let term = self.broadcast(term, channels, shape, last.location);
            result = push(&mut self.body, Binary::Add, &[result, term], last.location);
        }
        self.new[last.results[0]] = Some(result);
    }

    /// The numbers of the channels as a list.
    fn list(&mut self, old: ValueId, channels: &Dim, location: LocationId) -> ValueId {
        let value = self.of(old);
        let shape = vec![channels.clone()];
        match self.body.ty(value).shape.to_vec() == shape {
            true => value,
            false => push(&mut self.body, Reshape { shape }, &[value], location),
        }
    }

    fn broadcast(
        &mut self,
        list: ValueId,
        axis: usize,
        shape: Vec<Dim>,
        location: LocationId,
    ) -> ValueId {
        push(&mut self.body, BroadcastInDim { dims: vec![axis], shape }, &[list], location)
    }
}

#[cfg(test)]
mod tests {
    use super::folded;
    use wengert_core::graph::{PrintOptions, parse_program, print};
    use wengert_core::{Literal, interpret};

    const NORMALIZED: &str = "
func @f(%x: f32[1,2,3,3], param %w: f32[2,2,2,2], param %b: f32[2], param %m: f32[2,1,1],
        param %s: f32[2]) -> (y: f32[1,2,2,2]) {
  %0: f32[1,2,2,2] = conv_general_dilated %x, %w {lhs_spec=[0,1,2,3], out_spec=[0,1,2,3], \
    padding=[[0,0],[0,0]], rhs_spec=[0,1,2,3], stride=[1,1]}
  %1: f32[1,2,2,2] = broadcast_in_dim %b {dims=[1], shape=[1,2,2,2]}
  %2: f32[1,2,2,2] = add %1, %0
  %3: f32[1,2,2,2] = broadcast_in_dim %m {dims=[1,2,3], shape=[1,2,2,2]}
  %4: f32[1,2,2,2] = sub %2, %3
  %5: f32[2] = sqrt %s
  %6: f32[1,2,2,2] = broadcast_in_dim %5 {dims=[1], shape=[1,2,2,2]}
  %7: f32[1,2,2,2] = mul %4, %6
  %8: f32[1,2,2,2] = add %7, %1
  %9: f32[1,2,2,2] = exp %8
  return %9
}";

    fn text(source: &str) -> String {
        let mut program = parse_program(source, "test.ir").unwrap();
        let function = folded(&program.functions()[0]);
        program.replace(function);
        print(&program, &PrintOptions::default())
    }

    #[test]
    fn a_normalization_becomes_a_filter_and_a_sum() {
        let text = text(NORMALIZED);
        let count = |op: &str| text.matches(&format!("= {op} ")).count();
        assert_eq!(["conv_general_dilated", "sub", "exp"].map(count), [1, 1, 1], "{text}");
        // Of the filter, and of the terms before the product.
        assert_eq!(count("mul"), 2, "{text}");
        assert!(text.contains("sub %b,"), "{text}");
    }

    #[test]
    fn the_results_are_the_same() {
        let program = parse_program(NORMALIZED, "test.ir").unwrap();
        let function = &program.functions()[0];
        let values: Vec<Literal> = function
            .body
            .inputs
            .iter()
            .map(|input| {
                let ty = function.body.ty(*input);
                let shape: Vec<usize> = ty.shape.iter().map(|d| d.as_extent().unwrap()).collect();
                let count: usize = shape.iter().product();
                // Small integers and squares: every number is exact.
                let numbers = (0..count).map(|n| [1.0f32, 4.0, 0.0, 9.0][n % 4]).collect();
                Literal::from_vec(&shape, numbers).unwrap()
            })
            .collect();
        let run = |function| interpret::run(function, &values).unwrap();
        assert_eq!(run(function), run(&folded(function)));
    }

    /// What another reader, an input or the image decides stays as it is.
    #[test]
    fn other_chains_are_left_alone() {
        for (from, to) in [
            ("return %9", "return %0"),
            ("param %s: f32[2]", "%s: f32[2]"),
            ("param %w", "%w"),
            ("sub %2, %3", "sub %3, %2"),
            ("mul %4, %6", "add %4, %6"),
        ] {
            let source = NORMALIZED.replace(from, to);
            let program = parse_program(&source, "test.ir").unwrap();
            let function = &program.functions()[0];
            assert_eq!(folded(function), *function, "{from}");
        }
    }
}
