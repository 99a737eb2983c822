//! Arrays of the graph interpreter.

use super::Real;
use super::cells::Cells;
use crate::allocation::reserved;
use crate::diagnostic::Result;
use crate::dtype::DType;
use crate::literal::Literal;
use crate::scalar::Scalar;
use crate::ty::TensorType;
use std::sync::Arc;

/// One element: a real number, or an integer, bool or 8-bit float as the bits of an `i64`.
///
/// Integers are wrapped to their dtype: sign-extended if it is signed, zero-extended if not (u64
/// by its bits).
#[derive(Clone, PartialEq, Debug)]
pub enum Cell<R> {
    /// An element of a float dtype.
    Real(R),
    /// An element of an integer dtype or bool, or the bits of an 8-bit float.
    Bits(i64),
}

impl<R: Real> Cell<R> {
    /// The real number. The dtype must be a float.
    pub fn real(&self) -> &R {
        match self {
            Cell::Real(r) => r,
            Cell::Bits(_) => {
                panic!("a float element is asked of an integer array: infer admits none")
            }
        }
    }

    /// The integer (bool: 0 or 1). The dtype must not be a float.
    pub fn bits(&self) -> i64 {
        match self {
            Cell::Bits(b) => *b,
            Cell::Real(r) => r.to_bits(),
        }
    }

    /// The cell of a concrete element.
    pub fn from_scalar(scalar: Scalar) -> Self {
        let bits = scalar.dtype().is_float8().then(|| scalar.bits() as i64);
        match bits.or(scalar.to_i64()) {
            Some(bits) => Cell::Bits(bits),
            None => Cell::Real(R::from_f64(scalar.to_f64())),
        }
    }

    /// The cell of a concrete element. Error: the element is infinite or NaN, and the number
    /// system has no such value.
    pub fn try_from_scalar(scalar: Scalar) -> Result<Self> {
        let value = scalar.to_f64();
        if scalar.dtype().is_float() && !value.is_finite() {
            return Ok(Cell::Real(R::from_i64(0).apply(&scalar.to_string(), |_| value)?));
        }
        Ok(Cell::from_scalar(scalar))
    }

    /// The cell rounded to a concrete element.
    pub fn to_scalar(&self, dtype: DType) -> Scalar {
        match self {
            Cell::Real(r) => Scalar::from_f64(dtype, r.to_f64()),
            Cell::Bits(b) if dtype.is_float8() => Scalar::from_bits(dtype, *b as u64),
            Cell::Bits(b) => Scalar::from_i64(dtype, *b),
        }
    }

    /// True for `true`.
    pub fn is_true(&self) -> bool {
        self.bits() != 0
    }
}

/// A dense tensor in row-major order.
#[derive(Clone, PartialEq, Debug)]
pub struct Array<R> {
    /// Element type, which decides how cells are read.
    pub dtype: DType,
    /// Extents.
    pub shape: Vec<usize>,
    /// Elements.
    pub cells: Arc<Vec<Cell<R>>>,
}

impl<R: Real> Array<R> {
    /// An array of elements in row-major order.
    pub fn new(dtype: DType, shape: Vec<usize>, cells: Cells<R>) -> Self {
        assert_eq!(
            shape.iter().product::<usize>(),
            cells.len(),
            "an array has as many cells as its shape says"
        );
        Array { dtype, shape, cells: Arc::new(cells.into_vec()) }
    }

    /// An array of type `ty` (without variables) whose element at each index is `f(index)`.
    ///
    /// Error: out of memory.
    pub fn from_fn(ty: &TensorType, mut f: impl FnMut(&[usize]) -> Cell<R>) -> Result<Self> {
        let shape = ty.extents().expect("the interpreter runs bound functions only");
        let count = shape.iter().product::<usize>();
        let mut index = vec![0; shape.len()];
        let cells = Cells::collect((0..count).map(|_| {
            let cell = f(&index);
            crate::op::advance(&mut index, &shape);
            cell
        }))?;
        Ok(Array::new(ty.dtype, shape, cells))
    }

    /// Element at an index.
    pub fn at(&self, index: &[usize]) -> &Cell<R> {
        &self.cells[self.flat(index)]
    }

    /// Position of an index in `cells`.
    pub fn flat(&self, index: &[usize]) -> usize {
        index.iter().zip(&self.shape).fold(0, |flat, (i, extent)| flat * extent + i)
    }

    /// Its type.
    pub fn ty(&self) -> TensorType {
        TensorType::new(self.dtype, self.shape.iter().copied())
    }

    /// The array of a literal.
    ///
    /// Error: out of memory.
    pub fn from_literal(literal: &Literal) -> Result<Self> {
        let cells = Cells::collect(literal.scalars().map(Cell::from_scalar))?;
        Ok(Array::new(literal.dtype(), literal.shape().to_vec(), cells))
    }

    /// The array rounded to a literal.
    ///
    /// Error: out of memory.
    pub fn to_literal(&self) -> Result<Literal> {
        crate::with_native!(self.dtype, T => {
            let mut elements: Vec<T> = reserved(self.cells.len())?;
            elements.extend(self.cells.iter().map(|c| c.to_scalar(self.dtype).get::<T>()));
            Literal::from_vec(&self.shape, elements)
        })
    }

    /// Rounds every element to the dtype.
    ///
    /// Error: out of memory while copying shared elements.
    pub(super) fn round(&mut self) -> Result<()> {
        if !self.dtype.is_float() || self.dtype == DType::F64 {
            return Ok(());
        }
        if Arc::get_mut(&mut self.cells).is_none() {
            self.cells = Arc::new(Cells::copied(&self.cells)?.into_vec());
        }
        let dtype = self.dtype;
        for cell in Arc::get_mut(&mut self.cells).expect("nothing else holds the copy") {
            if let Cell::Real(r) = cell {
                *r = r.round_to(dtype);
            }
        }
        Ok(())
    }
}
