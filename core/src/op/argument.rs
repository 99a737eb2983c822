//! `argmax` and `argmin`: the index of the extremum along an axis.

use super::attribute::{Attribute, AttributeStruct, Attributes, attributes};
use super::compute::Compute;
use super::derivative::Derivative;
use super::elementwise::compare_bits;
use super::sample::{Sample, floats, values};
use super::{Batch, Cost, Entry, Operation, Traits, has_axis, operand_count};
use crate::build::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result};
use crate::dtype::DType;
use crate::graph::Region;
use crate::interpret::{Array, Cell, Real, Regions};
use crate::nest::Combine;
use crate::ty::TensorType;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Maximum or minimum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Extremum {
    /// The greatest element.
    Max,
    /// The least element.
    Min,
}

impl Extremum {
    /// Both kinds.
    pub const ALL: [Extremum; 2] = [Extremum::Max, Extremum::Min];

    const fn name(self) -> &'static str {
        match self {
            Extremum::Max => "argmax",
            Extremum::Min => "argmin",
        }
    }

    const fn doc(self) -> &'static str {
        match self {
            Extremum::Max => {
                "Index of the greatest element along `axis`. The first NaN wins, else the first of \
                 equal elements."
            }
            Extremum::Min => {
                "Index of the least element along `axis`. The first NaN wins, else the first of \
                 equal elements."
            }
        }
    }
}

mod attribute_struct {
    use super::*;
    attributes! {
        /// Attributes of `argmax` and `argmin`.
        AxisAndIndex {
            /// The axis that is reduced.
            axis: usize,
            /// Dtype of the result.
            index: DType = DType::I32,
        }
    }
}
use attribute_struct::AxisAndIndex;

/// `argmax %x {axis=1, index=i64}`: the index of the extremum along `axis`, which vanishes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Argument {
    /// Maximum or minimum.
    pub extremum: Extremum,
    /// The axis that is reduced.
    pub axis: usize,
    /// Dtype of the result: an integer that can count the axis.
    pub index: DType,
}

impl Operation for Argument {
    fn name(&self) -> &'static str {
        self.extremum.name()
    }

    fn infer(&self, operands: &[TensorType], _regions: &[Region]) -> Result<Vec<TensorType>> {
        operand_count(operands, 1)?;
        let x = &operands[0];
        has_axis(x, self.axis)?;
        if !self.index.is_integer() {
            return Err(Diagnostic::new(format!("an index of dtype {}", self.index))
                .help("indices are integers"));
        }
        let extent = &x.shape[self.axis];
        if extent.as_constant() == Some(0) {
            return Err(Diagnostic::new(format!("axis {} of {x} is empty", self.axis))
                .help("nothing has no extremum: give it at least one element"));
        }
        // The greatest u64 is taken as the greatest i64, which no extent exceeds.
        let most = crate::Scalar::highest(self.index)
            .to_i64()
            .map_or(i64::MAX, |m| if m < 0 { i64::MAX } else { m });
        if extent.as_constant().is_some_and(|e| e - 1 > most) {
            return Err(Diagnostic::new(format!(
                "an index of dtype {} cannot count to {extent}",
                self.index
            ))
            .help("use `index=i64`"));
        }
        let mut shape = x.shape.clone();
        shape.remove(self.axis);
        Ok(vec![TensorType { dtype: self.index, shape }])
    }

    fn evaluate<R: Real>(
        &self,
        operands: &[Array<R>],
        results: &[TensorType],
        _regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        let x = &operands[0];
        let wanted = match self.extremum {
            Extremum::Max => Ordering::Greater,
            Extremum::Min => Ordering::Less,
        };
        let better = |new: &Cell<R>, best: &Cell<R>| match (new, best) {
            (Cell::Real(n), Cell::Real(b)) => match n.compare(b) {
                Some(order) => order == wanted,
                None => b.compare(b).is_some(),
            },
            (n, b) => compare_bits(n.bits(), b.bits(), x.dtype) == wanted,
        };
        Ok(vec![Array::from_fn(&results[0], |index| {
            let mut at = index.to_vec();
            at.insert(self.axis, 0);
            let mut best = 0;
            for i in 1..x.shape[self.axis] {
                let element = |i: usize| {
                    let mut at = at.clone();
                    at[self.axis] = i;
                    x.flat(&at)
                };
                if better(&x.cells[element(i)], &x.cells[element(best)]) {
                    best = i;
                }
            }
            Cell::Bits(best as i64)
        })?])
    }

    fn compute<'a>(
        &'a self,
        operands: &[TensorType],
        _results: &[TensorType],
        _regions: &'a [Region],
    ) -> Compute<'a> {
        let dtype = operands[0].dtype;
        if self.index.size() == 1 {
            // Reductions count in 32 bits or more.
            return Compute::Decompose(Box::new(move |tensors| {
                let wide = Argument { index: DType::I32, ..self.clone() };
                vec![Tensor::apply(wide, &[&tensors[0]]).convert(self.index)]
            }));
        }
        let carried = match dtype {
            d if d.is_half() => DType::F32,
            DType::Bool => DType::U8,
            d => d,
        };
        Compute::Reduce {
            extents: operands[0].extents().expect("compute is asked for bound types only"),
            axes: vec![self.axis],
            values: Box::new(move |c, index| {
                let x = c.operand(0, index);
                let x = if carried == dtype { x } else { c.convert(x, carried) };
                vec![x, c.index(&index[self.axis], self.index)]
            }),
            combine: match self.extremum {
                Extremum::Max => Combine::argmax(carried, self.index),
                Extremum::Min => Combine::argmin(carried, self.index),
            },
            project: vec![1],
        }
    }

    fn derivative(&self) -> Derivative {
        Derivative::Zero
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.unary(Argument { axis: self.axis + 1, ..self.clone() })
    }

    fn traits(&self) -> Traits {
        Traits { cost: Cost::Loop, elementwise: false, commutative: false }
    }

    fn attributes(&self) -> Attributes {
        AxisAndIndex { axis: self.axis, index: self.index }.to_attributes()
    }

    fn parse(name: &str, attributes: &mut BTreeMap<String, Attribute>) -> Option<Result<Self>> {
        let extremum = Extremum::ALL.into_iter().find(|e| e.name() == name)?;
        let attributes = AxisAndIndex::from_attributes(attributes);
        Some(attributes.map(|a| Argument { extremum, axis: a.axis, index: a.index }))
    }

    fn entries() -> Vec<Entry> {
        let entry = |extremum: Extremum| {
            let sample = |axis, index, operand| {
                Sample::new(Argument { extremum, axis, index }, vec![operand])
            };
            let nan = f32::NAN;
            Entry {
                name: extremum.name(),
                doc: extremum.doc(),
                derivative: Derivative::Zero.kind(),
                samples: vec![
                    sample(1, DType::I32, floats(&[3, 5], -2.0, 2.0)),
                    sample(0, DType::I64, floats(&[37, 2], -2.0, 2.0)),
                    sample(1, DType::U32, floats(&[2, 70, 2], -2.0, 2.0)),
                    sample(0, DType::U64, values(&[6], [3i32, -5, 9, 9, -5, 3])),
                    sample(0, DType::I32, values(&[4], [3u64, u64::MAX, 0, 0])),
                    sample(0, DType::I32, values(&[6], [1.0f32, nan, 5.0, nan, -7.0, 2.0])),
                    sample(
                        1,
                        DType::I32,
                        values(
                            &[2, 3],
                            [f32::INFINITY, f32::INFINITY, 1.0, -f32::INFINITY, -1.0, 0.0],
                        ),
                    ),
                    sample(0, DType::I32, values(&[3], [f32::NEG_INFINITY; 3])),
                    sample(0, DType::I32, values(&[2], [-0.0f32, 0.0])),
                    sample(1, DType::I8, floats(&[2, 6], -2.0, 2.0)),
                    sample(0, DType::U8, values(&[3], [3i8, 9, -9])),
                    sample(1, DType::I32, values(&[2, 3], [false, true, true, true, false, false])),
                    sample(0, DType::I32, floats(&[3, 0], -2.0, 2.0)),
                ],
            }
        };
        Extremum::ALL.into_iter().map(entry).collect()
    }
}
