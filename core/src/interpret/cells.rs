//! The elements of an array under construction.
//!
//! They take as many bytes as the tensor, or sixteen for each element, so allocation may fail.
//! Rust's collections then abort the process. [`Cells`] is the only way to a new
//! [`Array`](super::Array), and each of its constructors returns an error instead.

use super::{Cell, Real};
use crate::allocation::reserved;
use crate::diagnostic::Result;
use std::ops::{Deref, DerefMut};

/// Elements in row-major order.
#[derive(Clone, PartialEq, Debug)]
pub struct Cells<R>(Vec<Cell<R>>);

impl<R: Real> Cells<R> {
    /// Collects an iterator.
    ///
    /// Error: out of memory.
    pub fn collect(cells: impl ExactSizeIterator<Item = Cell<R>>) -> Result<Self> {
        let mut collected = reserved(cells.len())?;
        collected.extend(cells);
        Ok(Cells(collected))
    }

    /// Collects an iterator of results.
    ///
    /// Errors: the iterator's first error; out of memory.
    pub fn try_collect(mut cells: impl ExactSizeIterator<Item = Result<Cell<R>>>) -> Result<Self> {
        let mut collected = reserved(cells.len())?;
        cells.try_for_each(|cell| cell.map(|cell| collected.push(cell)))?;
        Ok(Cells(collected))
    }

    /// `count` copies of a cell.
    ///
    /// Error: out of memory.
    pub fn filled(cell: Cell<R>, count: usize) -> Result<Self> {
        let mut filled = reserved(count)?;
        filled.resize(count, cell);
        Ok(Cells(filled))
    }

    /// A copy.
    ///
    /// Error: out of memory.
    pub fn copied(cells: &[Cell<R>]) -> Result<Self> {
        let mut copied = reserved(cells.len())?;
        copied.extend_from_slice(cells);
        Ok(Cells(copied))
    }

    pub(super) fn into_vec(self) -> Vec<Cell<R>> {
        self.0
    }
}

impl<R> Deref for Cells<R> {
    type Target = [Cell<R>];
    fn deref(&self) -> &[Cell<R>] {
        &self.0
    }
}

impl<R> DerefMut for Cells<R> {
    fn deref_mut(&mut self) -> &mut [Cell<R>] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::Kind;

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        let zero = Cell::<f64>::Bits(0);
        let error = Cells::filled(zero.clone(), usize::MAX / 64).unwrap_err();
        assert_eq!(error.kind, Kind::Device);
        assert!(error.message.contains("there is no memory"), "{error}");
        let many = std::iter::repeat_n(zero.clone(), usize::MAX / 64);
        assert!(Cells::collect(many.clone()).is_err() && Cells::try_collect(many.map(Ok)).is_err());
        assert_eq!(Cells::filled(zero, 3).unwrap().len(), 3);
    }
}
