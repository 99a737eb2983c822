//! Which values are divided, and how each equation is computed.
//!
//! The analysis goes forward over the equations. A value is *whole*, the same on all ranks, or
//! divided by a [`Split`]. An equation with divided operands is computed by part if its op has an
//! axis along which it is independent, or which it reduces ([`crate::ranks::axes`]), in the place
//! of the division of an operand. Operands that do not fit are gathered or cut. If none fits, all
//! are gathered, and the equation is computed whole. A reduced axis gives partial results, which
//! are combined at once, so they are whole to later equations.

use super::split::{Follow, Split, follow};
use crate::ranks::axes::{Fate, Typed};
use crate::ranks::mixing::Mixing;
use wengert_core::graph::{Body, Equation, Function, ValueId};
use wengert_core::id::IdVec;
use wengert_core::{DType, Diagnostic, Op, Result};

/// A body, analysed.
pub(super) struct Analysis {
    /// How each equation is computed: by part, or whole.
    pub follows: Vec<Option<Follow>>,
    /// The division of each value; `None` if it is whole.
    pub splits: IdVec<ValueId, Option<Split>>,
}

impl Analysis {
    /// `inputs` has the divisions of the inputs among `ranks` ranks.
    ///
    /// Error: a reshape makes axes of a divided one that do not fall into parts.
    pub fn of(function: &Function, inputs: &[Option<Split>], ranks: usize) -> Result<Self> {
        let body = &function.body;
        let mut splits: IdVec<ValueId, Option<Split>> = body.values.iter().map(|_| None).collect();
        for (value, split) in body.inputs.iter().zip(inputs) {
            splits[*value] = *split;
        }
        let mut follows: Vec<Option<Follow>> = Vec::with_capacity(body.equations.len());
        for equation in &body.equations {
            let of: Vec<Option<Split>> = equation.operands.iter().map(|v| splits[*v]).collect();
            let mut found = None;
            if of.iter().any(Option::is_some) && equation.regions.is_empty() {
                // No collective combines bools.
                let is_exchanged = |follow: &Follow| {
                    let mut fates = equation.results.iter().zip(&follow.along.results);
                    !fates.any(|(value, fate)| {
                        matches!(fate, Fate::Reduced(_)) && body.ty(*value).dtype == DType::Bool
                    })
                };
                found = follow(&Typed::of(body, equation), &of, ranks).filter(is_exchanged);
                if let (None, Op::Reshape(_), [Some(split)]) = (&found, &equation.op, &of[..]) {
                    return Err(unequal(function, equation, *split, ranks));
                }
            }
            if let Some(follow) = &found {
                for (result, fate) in equation.results.iter().zip(&follow.along.results) {
                    if let Fate::Kept(axis) = fate {
                        splits[*result] = Some(follow.kept(*axis));
                    }
                }
            }
            follows.push(found);
        }
        Ok(Analysis { follows, splits })
    }
}

/// The error of a reshape whose axes do not fall into parts.
fn unequal(function: &Function, equation: &Equation, split: Split, ranks: usize) -> Diagnostic {
    let body: &Body = &function.body;
    let (from, to) = (body.ty(equation.operands[0]), body.ty(equation.results[0]));
    let blocks = match split.blocks {
        1 => String::new(),
        blocks => format!(" in {blocks} blocks"),
    };
    Mixing { function, body, equation }.problem(
        &format!(
            "makes {to} of {from}, of which each of {ranks} ranks has a part of axis {}{blocks}, \
             and no axis of the result falls into {ranks} parts there",
            split.axis
        ),
        "use a number of ranks that divides the number of heads; where matrices lie side by side \
         in an axis, such as those of queries, keys and values, give their number as blocks",
    )
}
