//! The terms of windows, for loops over scalars.
//!
//! Only some terms can contribute: in a window over a dilated operand, every
//! `base_dilation`-th; of the windows that cover an element, one for each `stride`. [`Terms`]
//! enumerates exactly those. Up to `WRITTEN_OUT` terms are unrolled, which vectorises over the
//! results; more are a reduction.

use crate::op::ReduceKind;
use crate::op::prelude::*;
use crate::op::window::Axis;

/// Largest number of terms that is unrolled.
const WRITTEN_OUT: usize = 16;

/// One axis of a term: the position in the window, the index of the element or window, and the
/// guards under which the term contributes.
struct Term {
    /// Position in the window.
    k: Affine,
    /// Index of the element if terms are enumerated for a window, else index of the window.
    index: Affine,
    guards: Vec<Guard>,
}

/// The terms of all axes.
pub(super) struct Terms {
    axes: Vec<Axis>,
    /// Whether terms are the elements of a window; else they are the windows over an element.
    from_windows: bool,
    /// Number of terms along each axis.
    pub(super) counts: Vec<usize>,
}

/// A term over all axes.
pub(super) struct Found {
    /// Row-major number of the position in the window.
    pub(super) number: Affine,
    pub(super) index: Vec<Affine>,
    pub(super) guards: Vec<Guard>,
}

impl Terms {
    /// The elements of each window.
    pub(super) fn of_windows(axes: Vec<Axis>) -> Self {
        let count = |a: &Axis| {
            if a.steps() { (a.window as u64).div_ceil(a.base as u64) } else { a.window as u64 }
        };
        let counts = axes.iter().map(|a| count(a) as usize).collect();
        Terms { axes, from_windows: true, counts }
    }

    /// The windows over each element.
    pub(super) fn of_elements(axes: Vec<Axis>) -> Self {
        let count = |a: &Axis| if a.few() { a.covering() } else { a.window };
        let counts = axes.iter().map(|a| count(a) as usize).collect();
        Terms { axes, from_windows: false, counts }
    }

    fn count(&self) -> usize {
        self.counts.iter().product()
    }

    /// Whether the loop over the terms is unrolled.
    pub(super) fn is_written_out(&self) -> bool {
        self.count() <= WRITTEN_OUT
    }

    /// The terms of a point in order, for an unrolled loop.
    pub(super) fn written_out(&self, point: &[Affine]) -> Vec<Found> {
        let mut which = vec![0; self.counts.len()];
        (0..self.count())
            .map(|_| {
                let constants: Vec<Affine> =
                    which.iter().map(|i| Affine::constant(*i as i64)).collect();
                let found = self.find(point, &constants);
                advance(&mut which, &self.counts);
                found
            })
            .collect()
    }

    /// Term `which` of a point.
    pub(super) fn find(&self, point: &[Affine], which: &[Affine]) -> Found {
        let mut found = Found { number: Affine::constant(0), index: vec![], guards: vec![] };
        for (a, axis) in self.axes.iter().enumerate() {
            let term = match self.from_windows {
                true => axis.of_window(&point[a], &which[a]),
                false => axis.of_element(&point[a], &which[a]),
            };
            found.number = found.number.scale(axis.window).add(&term.k);
            found.index.push(term.index);
            found.guards.extend(term.guards);
        }
        found
    }

    /// The reduction of the terms of each point of the result; few terms are unrolled. `element`
    /// emits a term in the dtype of the computation.
    pub(super) fn reduced<'a>(
        self,
        l: &Lowering<'_, 'a>,
        kind: ReduceKind,
        element: impl Fn(&mut dyn ElementContext, Found) -> Reg + 'a,
    ) -> Compute<'a> {
        let (dtype, shape) = (l.results[0].dtype, l.result_extents());
        if self.is_written_out() {
            return Compute::element(move |c, index| {
                let mut total = None;
                for term in self.written_out(index) {
                    let element = element(c, term);
                    total = Some(match total {
                        None => element,
                        Some(total) => c.scalar(kind.instruction(), &[total, element]),
                    });
                }
                let total = total.expect("a point has at least one term");
                if c.dtype(total) == dtype { total } else { c.convert(total, dtype) }
            });
        }
        let rank = shape.len();
        Compute::Reduce {
            extents: shape.iter().chain(&self.counts).copied().collect(),
            axes: (rank..2 * rank).collect(),
            values: Box::new(move |c, index| {
                vec![element(c, self.find(&index[..rank], &index[rank..]))]
            }),
            combine: kind.program(dtype),
            project: vec![0],
        }
    }
}

impl Axis {
    /// Whether exactly every `base`-th position of a window has an element.
    fn steps(&self) -> bool {
        self.dilation == 1 && self.base > 1
    }

    /// Number of windows that may cover an element.
    fn covering(&self) -> i64 {
        (self.window - 1) * self.dilation / self.stride + 1
    }

    /// Whether enumerating these windows takes no more terms than enumerating the positions of a
    /// window.
    fn few(&self) -> bool {
        self.covering() <= self.window
    }

    /// Term i of window o.
    fn of_window(&self, o: &Affine, i: &Affine) -> Term {
        let start = o.scale(self.stride).offset(-self.low);
        let mut guards = Vec::new();
        let k = if self.steps() {
            let k = start.scale(-1).modulo(self.base).add(&i.scale(self.base));
            guards.push(Guard { index: k.clone(), low: 0, high: self.window });
            k
        } else {
            i.clone()
        };
        let position = start.add(&k.scale(self.dilation));
        if self.base > 1 && !self.steps() {
            guards.push(Guard { index: position.modulo(self.base), low: 0, high: 1 });
        }
        let index = position.floor_div(self.base);
        guards.push(Guard { index: index.clone(), low: 0, high: self.extent });
        Term { k, index, guards }
    }

    /// Term i of element j.
    fn of_element(&self, j: &Affine, i: &Affine) -> Term {
        let position = j.scale(self.base).offset(self.low);
        if !self.few() {
            let start = position.add(&i.scale(-self.dilation));
            let index = start.floor_div(self.stride);
            let guards = vec![
                Guard { index: start.modulo(self.stride), low: 0, high: 1 },
                Guard { index: index.clone(), low: 0, high: self.windows },
            ];
            return Term { k: i.clone(), index, guards };
        }
        let index = position.floor_div(self.stride).add(&i.scale(-1));
        let distance = position.add(&index.scale(-self.stride));
        let k = distance.floor_div(self.dilation);
        let mut guards = vec![
            Guard { index: index.clone(), low: 0, high: self.windows },
            Guard { index: k.clone(), low: 0, high: self.window },
        ];
        if self.dilation > 1 {
            guards.push(Guard { index: distance.modulo(self.dilation), low: 0, high: 1 });
        }
        Term { k, index, guards }
    }
}
