//! A nest that follows a product: it runs on each finished part of the product, on the same
//! thread.
//!
//! Rows are independent, so their order is free; each is run once.
//! [`wengert_core::nest::follows`] ensures that a row reads only its own element of the product.

use super::CompiledNest;
use super::address::VectorAxes;
use crate::memory::{Span, Workspace};
use std::ops::Range;
use wengert_core::Diagnostic;

/// A nest with its checked buffers, to be run part by part.
pub(crate) struct Follower<'a> {
    nest: &'a CompiledNest,
    spans: &'a [Span],
    aliased: u64,
}

/// Rows of a nest: some rows for each line of a matrix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// The first row.
    pub first: usize,
    /// Lines of the matrix.
    pub lines: usize,
    /// Distance between the lines, in rows of the nest.
    pub distance: usize,
    /// Rows of the nest in each line.
    pub rows: usize,
}

impl CompiledNest {
    /// Prepares a run by parts. Together the parts must be all rows, each once.
    ///
    /// Errors: those of [`run`](CompiledNest::run).
    pub(crate) fn follower<'a>(
        &'a self,
        workspace: &Workspace,
        spans: &'a [Span],
    ) -> Result<Follower<'a>, Diagnostic> {
        let aliased =
            self.check(workspace, spans).map_err(|e| e.context(format!("nest @{}", self.name)))?;
        Ok(Follower { nest: self, spans, aliased })
    }
}

impl Follower<'_> {
    /// Bytes of scratch memory.
    pub fn scratch(&self) -> usize {
        self.nest.scratch_bytes()
    }

    /// The buffers with one element for each of so many rows, which are all: their addresses, and
    /// the bytes of an element. Each address occurs once, that of the tile included.
    pub fn elements(&self, rows: usize) -> impl Iterator<Item = (*const u8, usize)> + '_ {
        let at = |n: usize| self.spans[n].pointer().cast_const();
        let new = move |n: &usize| (0..*n).all(|before| at(before) != at(*n));
        let size = move |n: usize| {
            let bytes = self.nest.parameters[n].bytes;
            (rows > 0 && bytes.is_multiple_of(rows)).then(|| (at(n), bytes / rows))
        };
        (0..self.spans.len()).filter(new).filter_map(size).filter(|(_, size)| *size > 0)
    }

    /// Runs some rows; `scratch` begins at a multiple of [`crate::memory::ALIGNMENT`].
    ///
    /// # Safety
    ///
    /// The spans are valid, as for [`CompiledNest::run_on`]. While these rows run, no other
    /// thread runs them, writes the memory that they read, or uses the memory that they write.
    pub unsafe fn run(&self, scratch: &mut [u8], part: Part) {
        let mut runner = self.nest.runner(scratch, self.spans, self.aliased);
        runner.begin();
        let positions = self.nest.rows.as_ref().map(VectorAxes::positions);
        if let Some(repeat) = self
            .nest
            .repeat
            .as_ref()
            .filter(|_| part.distance > 0 && positions == Some(part.distance))
        {
            // A line of the matrix is an iteration of the loops over rows.
            let (line, first) = (part.first / part.distance, part.first % part.distance);
            runner.repeat_rows(line..line + part.lines, first..first + part.rows, repeat);
        } else if part.rows == part.distance {
            runner.rows(part.first..part.first + part.lines * part.rows);
        } else {
            for line in 0..part.lines {
                let first = part.first + line * part.distance;
                runner.rows(first..first + part.rows);
            }
        }
    }
}

impl super::run::Runner<'_> {
    /// Runs some rows, in the order of the parallel axes.
    fn rows(&mut self, rows: Range<usize>) {
        let nest = self.nest;
        let Some(vector) = &nest.rows else { return self.units(rows) };
        let (positions, period, lanes) = (vector.positions(), vector.period(), nest.lanes);
        let mut at = rows.start;
        while at < rows.end {
            let (outer, from) = (at / positions, at % positions);
            let to = positions.min(from + rows.end - at);
            self.enter(outer);
            for position in (from..to).step_by(lanes) {
                let phases = 0..self.nest.phases.len();
                self.block_of_rows(position, lanes.min(to - position), period, phases);
            }
            at += to - from;
        }
    }
}
