//! How each equation is computed: whole, or for the rank's part.
//!
//! Two passes over the equations decide. The forward pass follows divided variables: an op that
//! treats the parts of an axis alike is computed for the part, unless its result is larger. Such a
//! result, a vector that is repeated for each example, would be gathered later, with more bytes.
//! The backward pass follows demand: a
//! value that is read by part only, such as a gradient that is added to a moment, is computed for
//! the part, and so are its operands. Only ops whose elements do not depend on other elements are
//! computed by part, because the order of a sum may depend on the shape.

use crate::ranks::axes::{Along, Fate, Typed};
use wengert_core::Op;
use wengert_core::graph::{Body, Equation, Function, ValueId};
use wengert_core::id::IdVec;
use wengert_core::mesh::Varying;
use wengert_core::op::collective::{PReduce, PReduceKind};

/// How an equation is computed.
#[derive(Clone, Debug)]
pub(super) enum Way {
    /// On every rank for all elements.
    Whole,
    /// For the rank's part.
    Part(Along),
    /// A sum over the ranks, of which each gets its part of this axis.
    Scatter(usize),
}

/// The ranks among which variables are divided.
#[derive(Clone, Copy)]
pub(super) struct Among<'a> {
    /// Axes of the mesh.
    pub over: &'a [String],
    /// The number of ranks along these.
    pub ranks: usize,
}

/// The readers of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Demand {
    /// There is none yet.
    Nothing,
    /// All read the rank's part of this axis.
    Part(usize),
    /// Some read it whole, or parts of different axes.
    Whole,
}

impl Demand {
    fn add(&mut self, other: Demand) {
        *self = match (*self, other) {
            (Demand::Nothing, other) => other,
            (known, Demand::Nothing) => known,
            (known, other) if known == other => known,
            _ => Demand::Whole,
        };
    }

    fn of(axis: Option<usize>) -> Self {
        axis.map_or(Demand::Whole, Demand::Part)
    }
}

/// A body, analysed.
pub(super) struct Analysis {
    /// How each equation is computed.
    pub ways: Vec<Way>,
}

impl Analysis {
    /// `inputs` and `outputs` have the axes along which they are divided among the `ranks` along
    /// axes of the mesh, `over`. With `scatters`, sums over these are divided where only parts of
    /// them are read.
    pub fn of(
        function: &Function,
        among: Among<'_>,
        inputs: &[Option<usize>],
        outputs: &[Option<usize>],
        scatters: bool,
    ) -> Self {
        let body = &function.body;
        let mut part: IdVec<ValueId, Option<usize>> = body.values.iter().map(|_| None).collect();
        for (value, axis) in body.inputs.iter().zip(inputs) {
            part[*value] = *axis;
        }
        let mut ways: Vec<Way> = Vec::with_capacity(body.equations.len());
        for equation in &body.equations {
            let way = forward(body, equation, &part, among);
            if let Way::Part(along) = &way {
                for (result, fate) in equation.results.iter().zip(&along.results) {
                    part[*result] = kept(*fate);
                }
            }
            ways.push(way);
        }
        let mut demand: IdVec<ValueId, Demand> =
            body.values.iter().map(|_| Demand::Nothing).collect();
        for (value, axis) in body.outputs.iter().zip(outputs) {
            demand[*value].add(Demand::of(*axis));
        }
        for (equation, way) in body.equations.iter().zip(&mut ways).rev() {
            if matches!(way, Way::Whole) {
                *way = backward(body, equation, &demand, among, scatters);
            }
            for (i, operand) in equation.operands.iter().enumerate() {
                let axis = match way {
                    Way::Part(along) => along.operands[i],
                    Way::Whole | Way::Scatter(_) => None,
                };
                demand[*operand].add(Demand::of(axis));
            }
        }
        Analysis { ways }
    }
}

/// The axis that is kept.
pub(super) fn kept(fate: Fate) -> Option<usize> {
    match fate {
        Fate::Kept(axis) => Some(axis),
        Fate::Reduced(_) | Fate::Whole => None,
    }
}

/// Whether each element of the results is one of the operands', or depends on elements at its own
/// place only.
fn independent(op: &Op) -> bool {
    op.traits().elementwise
        || matches!(
            op,
            Op::Permute(_)
                | Op::Reshape(_)
                | Op::BroadcastInDim(_)
                | Op::Constant(_)
                | Op::Slice(_)
                | Op::Pad(_)
                | Op::Concatenate(_)
        )
}

/// What an equation does along single axes, if it may be computed by part.
fn candidates(body: &Body, equation: &Equation, among: Among<'_>) -> Vec<Along> {
    let differs = |v: &ValueId| {
        let varying = &body.ty(*v).varying;
        among.over.iter().any(|axis| varying.contains(axis))
    };
    if !independent(&equation.op) || equation.results.iter().any(differs) {
        return vec![];
    }
    let mut all = Typed::of(body, equation).axes(among.ranks);
    all.retain(|along| {
        along.zero.is_none() && along.results.iter().all(|fate| kept(*fate).is_some())
    });
    all
}

/// By part if an operand is divided, and the op keeps its axis.
fn forward(
    body: &Body,
    equation: &Equation,
    part: &IdVec<ValueId, Option<usize>>,
    among: Among<'_>,
) -> Way {
    let divided = |v: &&ValueId| part[**v].is_some();
    if !equation.operands.iter().any(|v| divided(&v)) {
        return Way::Whole;
    }
    let elements = |v: &ValueId| body.ty(*v).elements().unwrap_or(usize::MAX);
    let most = equation.operands.iter().filter(divided).map(elements).max().unwrap_or(0);
    if equation.results.iter().any(|v| elements(v) > most) {
        return Way::Whole;
    }
    let fits = |along: &Along| {
        let mut pairs = equation.operands.iter().zip(&along.operands);
        pairs.all(|(v, axis)| part[*v].is_none() || part[*v] == *axis)
    };
    match candidates(body, equation, among).into_iter().find(fits) {
        Some(along) => Way::Part(along),
        None => Way::Whole,
    }
}

/// By part if all readers of all results want parts of one axis.
fn backward(
    body: &Body,
    equation: &Equation,
    demand: &IdVec<ValueId, Demand>,
    among: Among<'_>,
    scatters: bool,
) -> Way {
    let wanted = |v: &ValueId| match demand[*v] {
        Demand::Part(axis) => Some(axis),
        Demand::Nothing | Demand::Whole => None,
    };
    let Some(axes) = equation.results.iter().map(wanted).collect::<Option<Vec<usize>>>() else {
        return Way::Whole;
    };
    if let (Op::PReduce(PReduce { kind: PReduceKind::Sum, over }), [axis]) =
        (&equation.op, &axes[..])
    {
        let same = Varying::over(over) == Varying::over(among.over);
        return if scatters && same { Way::Scatter(*axis) } else { Way::Whole };
    }
    let fits = |along: &Along| {
        along.results.iter().zip(&axes).all(|(fate, axis)| kept(*fate) == Some(*axis))
    };
    match candidates(body, equation, among).into_iter().find(fits) {
        Some(along) => Way::Part(along),
        None => Way::Whole,
    }
}
