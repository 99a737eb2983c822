//! What values are for, and where they come from.

use super::class::Class;
use wengert_core::graph::{Body, Equation, ValueId};
use wengert_core::id::IdVec;
use wengert_core::{DType, LocationId, Op};

/// Where a value in f32 comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// An input, a constant, or a function of these.
    Leaf,
    /// A product, and what is made of halves.
    Half,
    /// A sum, a statistic, and what is made of these.
    Wide,
}

/// An input or output of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Port {
    /// Whether it is a variable: a weight, or a state.
    pub is_variable: bool,
    /// Whether the policy keeps products with that variable in f32.
    pub is_kept: bool,
    /// The dtype that the policy gives it in place of f32.
    pub stored: Option<Stored>,
}

/// A dtype in place of f32.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stored {
    pub dtype: DType,
    /// The location of the conversion.
    pub location: LocationId,
}

/// What a value is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Use {
    /// A product depends on it, within the body.
    pub product: bool,
    /// It becomes a state, perhaps after movements and elementwise ops.
    pub state: bool,
    /// It is a variable with which products stay in f32, after movements, or becomes one, after
    /// movements and elementwise ops.
    pub is_kept: bool,
    /// Where the elementwise ops that begin at it end.
    pub end: End,
}

/// The value in which all elementwise ops that begin at a value end, or the sum that they end in.
///
/// The ops between the two become one kernel, with all values in registers. The derivative of a
/// GELU is an example: it reads x in three places, and ends in one product with the cotangent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum End {
    /// Nothing reads the value.
    #[default]
    Unread,
    /// It is that value.
    In(ValueId),
    /// Readers are of other classes, or end in several values. The value is its own end.
    Here,
}

impl End {
    /// The end of a value with this end so far, if one more reader ends there.
    fn with(self, other: End) -> End {
        match (self, other) {
            (End::Unread, end) => end,
            (end, other) if end == other => end,
            _ => End::Here,
        }
    }
}

/// The uses of the values of a body, whose equations have these classes.
pub(super) fn uses(
    classes: &[Class],
    body: &Body,
    inputs: &[Port],
    outputs: &[Port],
) -> IdVec<ValueId, Use> {
    let mut uses: IdVec<ValueId, Use> = body.values.ids().map(|_| Use::default()).collect();
    for (output, port) in body.outputs.iter().zip(outputs) {
        uses[*output].state |= port.is_variable;
        uses[*output].is_kept |= port.is_kept;
        uses[*output].end = End::Here;
    }
    for (input, port) in body.inputs.iter().zip(inputs) {
        uses[*input].is_kept = port.is_kept;
    }
    for (equation, class) in body.equations.iter().zip(classes) {
        if *class == Class::Movement
            && equation.operands.iter().any(|operand| uses[*operand].is_kept)
        {
            equation.results.iter().for_each(|result| uses[*result].is_kept = true);
        }
    }
    for (equation, class) in body.equations.iter().zip(classes).rev() {
        let class = *class;
        let is_of_result =
            |which: fn(&Use) -> bool| equation.results.iter().any(|result| which(&uses[*result]));
        let takes_halves = class == Class::Product && !is_kept(&uses, equation);
        let product = takes_halves || is_of_result(|of| of.product);
        let is_element = matches!(class, Class::Elementwise | Class::Addition | Class::Movement);
        let state = is_element && is_of_result(|of| of.state);
        let is_kept = is_element && is_of_result(|of| of.is_kept);
        let end = match (class, &equation.results[..]) {
            (Class::Elementwise | Class::Addition, &[result]) => match uses[result].end {
                End::In(end) => End::In(end),
                End::Here | End::Unread => End::In(result),
            },
            // A reduction and the ops before it are one kernel as well.
            (_, &[result]) if matches!(equation.op, Op::Reduce(_)) => End::In(result),
            _ => End::Here,
        };
        for operand in &equation.operands {
            let of = &mut uses[*operand];
            of.end = of.end.with(end);
            if body.ty(*operand).dtype == DType::F32 {
                of.product |= product;
                of.state |= state;
                of.is_kept |= is_kept;
            }
        }
    }
    uses
}

/// Whether an equation reads a variable with which products stay in f32, or computes the gradient
/// of one.
pub(super) fn is_kept(uses: &IdVec<ValueId, Use>, equation: &Equation) -> bool {
    equation.operands.iter().chain(&equation.results).any(|value| uses[*value].is_kept)
}

impl Use {
    /// Whether a value that is made of halves is worth rounding.
    pub fn wants_half(&self) -> bool {
        self.product && !self.state
    }

    /// Whether it is in registers only, in the kernel of its readers.
    pub fn is_between(&self) -> bool {
        matches!(self.end, End::In(_))
    }
}
