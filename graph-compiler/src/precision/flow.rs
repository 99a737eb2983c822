//! What values are for, and where they come from.

use super::Precision;
use super::class::Class;
use wengert_core::DType;
use wengert_core::graph::{Body, ValueId};
use wengert_core::id::IdVec;

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

/// What a value is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Use {
    /// A product depends on it, within the body.
    pub product: bool,
    /// It becomes a state, perhaps after movements and elementwise ops.
    pub state: bool,
    /// Number of equations that read it, and of outputs.
    pub readers: usize,
    /// The class of the last reader, if an equation reads it.
    pub reader: Option<Class>,
}

/// The uses of the values of a body. `states` says which outputs are states.
pub(super) fn uses(policy: &Precision, body: &Body, states: &[bool]) -> IdVec<ValueId, Use> {
    let mut uses: IdVec<ValueId, Use> = body.values.ids().map(|_| Use::default()).collect();
    for (output, is_state) in body.outputs.iter().zip(states) {
        uses[*output].state |= is_state;
        uses[*output].readers += 1;
    }
    for equation in body.equations.iter().rev() {
        let class = policy.class(&equation.op);
        let is_of_result =
            |which: fn(&Use) -> bool| equation.results.iter().any(|result| which(&uses[*result]));
        let product = class == Class::Product || is_of_result(|of| of.product);
        let is_element = matches!(class, Class::Elementwise | Class::Addition | Class::Movement);
        let state = is_element && is_of_result(|of| of.state);
        for operand in &equation.operands {
            if body.ty(*operand).dtype != DType::F32 {
                continue;
            }
            let of = &mut uses[*operand];
            of.product |= product;
            of.state |= state;
            of.readers += 1;
            of.reader = Some(class);
        }
    }
    uses
}

impl Use {
    /// Whether a value that is made of halves is worth rounding.
    pub fn wants_half(&self) -> bool {
        self.product && !self.state
    }

    /// Whether the only use is an equation of one of these classes.
    pub fn is_only(&self, classes: &[Class]) -> bool {
        self.readers == 1 && self.reader.is_some_and(|reader| classes.contains(&reader))
    }
}
