//! `eq`, `ne`, `lt`, `le`, `gt`, `ge`: elementwise comparisons, with a bool result.

use super::attribute::{Attribute, Attributes};
use super::compute::Compute;
use super::derivative::Derivative;
use super::elementwise::{compare_bits, widened};
use super::sample::{Sample, floats, values};
use super::{Batch, Cost, Entry, Operation, Traits, operand_count};
use crate::build::operators::Operand;
use crate::build::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result};
use crate::dtype::DType;
use crate::graph::Region;
use crate::interpret::{Array, Cell, Cells, Real, Regions};
use crate::nest::ScalarOp;
use crate::ty::TensorType;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Makes the enum and the tensor methods from the table.
macro_rules! compare {
    ($($(#[doc = $doc:literal])+ $variant:ident $name:ident;)*) => {
        /// An elementwise comparison. NaN is unordered: it makes all but `ne` false.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum Compare { $($(#[doc = $doc])+ $variant,)* }

        impl Compare {
            /// Every comparison.
            pub const ALL: &[Compare] = &[$(Compare::$variant,)*];

            const fn named(self) -> &'static str {
                match self { $(Compare::$variant => stringify!($name),)* }
            }

            const fn doc(self) -> &'static str {
                match self { $(Compare::$variant => concat!($($doc, "\n"),+),)* }
            }
        }

        impl Tensor {
            $($(#[doc = $doc])+
            ///
            /// Shapes broadcast as NumPy's do; a number takes the tensor's dtype.
            #[track_caller]
            pub fn $name(&self, other: impl Operand) -> Tensor {
                self.compare(Compare::$variant, &other.beside(self))
            })*
        }
    };
}

compare! {
    /// x = y, element by element; false for NaN.
    Eq eq;
    /// x ≠ y, element by element; true for NaN.
    Ne ne;
    /// x < y, element by element; false for NaN.
    Lt lt;
    /// x ≤ y, element by element; false for NaN.
    Le le;
    /// x > y, element by element; false for NaN.
    Gt gt;
    /// x ≥ y, element by element; false for NaN.
    Ge ge;
}

impl Compare {
    fn holds(self, order: Option<Ordering>) -> bool {
        match self {
            Compare::Eq => order == Some(Ordering::Equal),
            Compare::Ne => order != Some(Ordering::Equal),
            Compare::Lt => order == Some(Ordering::Less),
            Compare::Le => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Compare::Gt => order == Some(Ordering::Greater),
            Compare::Ge => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        }
    }
}

impl Operation for Compare {
    fn name(&self) -> &'static str {
        self.named()
    }

    fn infer(&self, operands: &[TensorType], _regions: &[Region]) -> Result<Vec<TensorType>> {
        operand_count(operands, 2)?;
        let (a, b) = (&operands[0], &operands[1]);
        if a != b {
            return Err(Diagnostic::new(format!("operands have types {a} and {b}"))
                .help("compare tensors of one dtype and shape"));
        }
        Ok(vec![a.with_dtype(DType::Bool)])
    }

    fn evaluate<R: Real>(
        &self,
        operands: &[Array<R>],
        _results: &[TensorType],
        _regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        let (x, y) = (&operands[0], &operands[1]);
        let order = |a: &Cell<R>, b: &Cell<R>| match (a, b) {
            (Cell::Real(a), Cell::Real(b)) => a.compare(b),
            (a, b) => Some(compare_bits(a.bits(), b.bits(), x.dtype)),
        };
        let pairs = x.cells.iter().zip(y.cells.iter());
        let cells = Cells::collect(pairs.map(|(a, b)| Cell::Bits(self.holds(order(a, b)) as i64)))?;
        Ok(vec![Array::new(DType::Bool, x.shape.clone(), cells)])
    }

    fn compute<'a>(
        &'a self,
        _operands: &[TensorType],
        _results: &[TensorType],
        _regions: &'a [Region],
    ) -> Compute<'a> {
        let (op, swapped) = match self {
            Compare::Eq => (ScalarOp::Eq, false),
            Compare::Ne => (ScalarOp::Ne, false),
            Compare::Lt => (ScalarOp::Lt, false),
            Compare::Le => (ScalarOp::Le, false),
            Compare::Gt => (ScalarOp::Lt, true),
            Compare::Ge => (ScalarOp::Le, true),
        };
        Compute::Element {
            rule: Box::new(move |c, index| {
                let (x, y) = (c.operand(0, index), c.operand(1, index));
                widened(c, &[x, y], |c, o| {
                    c.scalar(op, &if swapped { [o[1], o[0]] } else { [o[0], o[1]] })
                })
            }),
            indirect: vec![],
        }
    }

    fn derivative(&self) -> Derivative {
        Derivative::Zero
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.elementwise(*self)
    }

    fn traits(&self) -> Traits {
        let commutative = matches!(self, Compare::Eq | Compare::Ne);
        Traits { cost: Cost::Cheap, elementwise: true, commutative }
    }

    fn attributes(&self) -> Attributes {
        Attributes::new()
    }

    fn parse(name: &str, _attributes: &mut BTreeMap<String, Attribute>) -> Option<Result<Self>> {
        Compare::ALL.iter().copied().find(|c| c.named() == name).map(Ok)
    }

    fn entries() -> Vec<Entry> {
        Compare::ALL
            .iter()
            .map(|&op| Entry {
                name: op.named(),
                doc: op.doc(),
                derivative: Derivative::Zero.kind(),
                samples: vec![
                    Sample::new(op, vec![floats(&[3, 5], -1.0, 1.0), floats(&[3, 5], -1.0, 1.0)]),
                    Sample::new(
                        op,
                        vec![
                            values(&[2, 3], [1i32, 2, 3, -4, 5, 6]),
                            values(&[2, 3], [1i32, 3, 2, -4, -5, 6]),
                        ],
                    ),
                    Sample::new(
                        op,
                        vec![values(&[3], [u64::MAX, 0, 3]), values(&[3], [1u64, 1, 3])],
                    ),
                    Sample::new(op, vec![values(&[2], [false, true]), values(&[2], [true, true])]),
                    Sample::new(
                        op,
                        vec![
                            values(&[5], [0.0f32, f32::NAN, f32::INFINITY, 1.0, 2.0]),
                            values(&[5], [-0.0f32, f32::NAN, f32::INFINITY, f32::NAN, 1.0]),
                        ],
                    ),
                ],
            })
            .collect()
    }
}
