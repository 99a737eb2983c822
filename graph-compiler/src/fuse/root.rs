//! A single root: its operands and accesses.

use crate::cluster::Axis;
use crate::emit::{Emitter, Memory, Parts, Read, simplify};
use crate::view::{View, Work, flatten};
use std::collections::BTreeSet;
use wengert_core::graph::ValueId;
use wengert_core::nest::Affine;
use wengert_core::op::{Compute, Cost};

/// How a root accesses a value, seen from a point of the root's space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Access {
    /// The element at the point's position.
    Same,
    /// The element at the position of the point's row, where the row is the leading part: this
    /// many points share an element.
    Row(usize),
    /// Any other.
    Other,
}

/// An equation whose results are realised.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    /// Index of the equation.
    pub equation: usize,
    /// Its iteration space: its result's axes, or its operands' for reductions and scans. Without
    /// axes of extent 1.
    pub space: Vec<Axis>,
    /// Whether it is a reduction or a scan.
    pub loops: bool,
    /// Whether it is a kernel of its own: a prefix sum, a call or a construct of control flow
    /// (the latter two have no space).
    pub closed: bool,
    /// Whether one of its equations is expensive.
    pub expensive: bool,
    /// Its reads of memory: the value whose shape is used, whether clamped, and the access.
    pub reads: Vec<(ValueId, bool, Access)>,
    /// Equations computed per element, itself included, each once.
    pub equations: Vec<usize>,
    /// Set if it iterates over a part of its result, and computes all parts at each point.
    pub parts: Option<Parts>,
}

impl Root {
    /// Emits the root into a scratch nest and classifies the reads.
    pub fn new(view: &View<'_>, memory: &Memory, equation: usize) -> Root {
        let eq = &view.body.equations[equation];
        let compute = match &view.work[equation] {
            Work::Compute(compute) => compute,
            Work::Call(_) | Work::Control => return Root::call(view, equation),
            Work::Literal(_) | Work::Covered => {
                panic!("fusion: neither literals nor what calls cover are roots")
            }
        };
        let (extents, inner) = match compute {
            Compute::Element { .. } => (&view.extents[eq.results[0]], vec![]),
            Compute::Reduce { extents, axes, .. } => (extents, axes.clone()),
            Compute::Prefix { axis, .. } => (&view.extents[eq.operands[0]], vec![*axis]),
            Compute::Call(_)
            | Compute::CallOrDecompose(..)
            | Compute::Control
            | Compute::Decompose(_) => {
                panic!("fusion: a composite is no root")
            }
        };
        let mut emitter = Emitter::new(view, memory, "root");
        let axes: Vec<_> = extents.iter().map(|e| emitter.builder.parallel("i", *e)).collect();
        emitter.phase(&[]);
        let index: Vec<Affine> = axes.iter().map(|a| emitter.simplify(&Affine::axis(*a))).collect();
        match compute {
            Compute::Reduce { .. } => {
                emitter.tuple(equation, &index);
            }
            Compute::Prefix { .. } => {
                emitter.element(eq.operands[0], &index);
            }
            _ => {
                emitter.rule(equation, &index);
            }
        }
        let scans = matches!(compute, Compute::Prefix { .. });
        let space =
            extents.iter().enumerate().map(|(a, e)| Axis { extent: *e, inner: inner.contains(&a) });
        let equations = equations(&emitter, equation);
        Root {
            equation,
            // A scan keeps its axis even if its extent is 1.
            space: space.filter(|a| a.extent != 1 || (a.inner && scans)).collect(),
            loops: !matches!(compute, Compute::Element { .. }),
            closed: scans,
            expensive: equations.iter().any(|e| view.cost[*e] >= Cost::Expensive),
            reads: reads(&emitter, extents, &index),
            equations,
            parts: None,
        }
    }

    /// A concatenation of parts of one shape, as a root that iterates over the elements of a
    /// part.
    pub fn in_parts(view: &View<'_>, memory: &Memory, equation: usize) -> Option<Root> {
        let parts = Parts::of(view, equation)?;
        let extents = &view.extents[view.body.equations[equation].operands[0]];
        let mut emitter = Emitter::new(view, memory, "root");
        let axes: Vec<_> = extents.iter().map(|e| emitter.builder.parallel("i", *e)).collect();
        emitter.phase(&[]);
        let index: Vec<Affine> = axes.iter().map(|a| Affine::axis(*a)).collect();
        for part in 0..parts.count {
            emitter.rule(equation, &parts.shifted(&index, part));
        }
        let equations = equations(&emitter, equation);
        let space = extents.iter().filter(|e| **e != 1).map(|e| Axis { extent: *e, inner: false });
        Some(Root {
            equation,
            space: space.collect(),
            loops: false,
            closed: false,
            expensive: equations.iter().any(|e| view.cost[*e] >= Cost::Expensive),
            reads: reads(&emitter, extents, &index),
            equations,
            parts: Some(parts),
        })
    }

    /// A call, or a construct of control flow. Its accesses to operands are unknown.
    fn call(view: &View<'_>, equation: usize) -> Root {
        let operands = &view.operands[equation];
        Root {
            equation,
            space: vec![],
            loops: true,
            closed: true,
            expensive: true,
            reads: operands.iter().map(|v| (*v, false, Access::Other)).collect(),
            equations: vec![equation],
            parts: None,
        }
    }

    /// Whether it is a reduction over other axes than the last.
    pub fn is_over_rows(&self) -> bool {
        self.loops && self.space.last().is_some_and(|axis| !axis.inner)
    }

    /// Number of points of its space.
    pub fn points(&self) -> usize {
        self.space.iter().map(|a| a.extent).product()
    }
}

/// The reads of an emitter, classified relative to the points of a space.
fn reads(
    emitter: &Emitter<'_, '_>,
    extents: &[usize],
    index: &[Affine],
) -> Vec<(ValueId, bool, Access)> {
    let view = emitter.view;
    let point = emitter.simplify(&flatten(extents, index));
    let whole: usize = extents.iter().product();
    let classify = |read: &Read| {
        if read.clamped {
            return Access::Other;
        }
        let simplified = |expression: &Affine| simplify(emitter.builder.draft(), &[], expression);
        let at = simplified(&flatten(&view.extents[read.value], &read.index));
        let count = view.count(read.value);
        if count == whole && at == point {
            Access::Same
        } else if count > 0
            && whole > 0
            && whole.is_multiple_of(count)
            && at == simplified(&point.floor_div((whole / count) as i64))
        {
            Access::Row(whole / count)
        } else {
            Access::Other
        }
    };
    let mut seen = BTreeSet::new();
    let all = emitter.reads.iter().map(|read| (read.value, read.clamped, classify(read)));
    all.filter(|read| seen.insert(*read)).collect()
}

/// The equations whose rules were applied, and the root's own, each once.
fn equations(emitter: &Emitter<'_, '_>, equation: usize) -> Vec<usize> {
    let all: BTreeSet<usize> = emitter.asked.iter().copied().chain([equation]).collect();
    all.into_iter().collect()
}
