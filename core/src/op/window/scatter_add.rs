//! `window_scatter_add`: one value for each window, added to the element at its position.

use super::super::attribute::{Attribute, AttributeStruct, Attributes, attributes};
use super::super::compute::Compute;
use super::super::derivative::{Derivative, Transpose};
use super::super::elementwise::{Domain, wrap};
use super::super::{Batch, Cost, Entry, Op, Operation, Traits, operand_count};
use super::{Terms, WindowGather, Windows, check_positions, for_each, samples, widened};
use crate::build::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::graph::Region;
use crate::interpret::{Array, Cell, Cells, Real, Regions};
use crate::nest::{Combine, ScalarOp};
use crate::scalar::Scalar;
use crate::ty::TensorType;
use std::collections::BTreeMap;

attributes! {
    /// The attributes besides the windows.
    Shaped {
        /// Shape of the result.
        shape: Vec<Dim>,
    }
}

/// `window_scatter_add %x, %positions {shape=[4], stride=[2], window=[2]}`: the transpose of
/// [`WindowGather`]: element j of the result is the sum of `x[o]` over the windows o of a tensor
/// of that shape whose position `positions[o]` is element j. See [`Windows`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct WindowScatterAdd {
    /// Shape of the result.
    pub shape: Vec<Dim>,
    /// The geometry of the windows over the result.
    pub windows: Windows,
}

fn transpose(t: &Transpose<'_>) -> Vec<Option<Tensor>> {
    let Op::WindowScatterAdd(op) = t.op else { unreachable!("the rule of window_scatter_add") };
    let Some(ct) = &t.cotangents[0] else { return vec![None, None] };
    let gather = WindowGather { windows: op.windows.clone() };
    vec![Some(Tensor::apply(gather, &[ct, t.operands[1].known()])), None]
}

impl Operation for WindowScatterAdd {
    fn name(&self) -> &'static str {
        "window_scatter_add"
    }

    fn infer(&self, operands: &[TensorType], _regions: &[Region]) -> Result<Vec<TensorType>> {
        operand_count(operands, 2)?;
        let x = &operands[0];
        Domain::Number.check(x.dtype)?;
        if let Some(extent) = self.shape.iter().find(|d| !d.at_least(0)) {
            return Err(Diagnostic::new(format!("a result of extent {extent}")));
        }
        let result = x.with_shape(self.shape.clone());
        crate::graph::verify::well_formed(&result)?;
        let windows = self.windows.infer(&self.shape)?;
        if x.shape != windows {
            return Err(Diagnostic::new(format!(
                "an operand of type {x} for windows over {result}"
            ))
            .help(format!("there are {} of them", x.with_shape(windows))));
        }
        check_positions(&operands[1], &windows)?;
        Ok(vec![result])
    }

    fn evaluate<R: Real>(
        &self,
        operands: &[Array<R>],
        results: &[TensorType],
        _regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        let (x, positions) = (&operands[0], &operands[1]);
        let shape = results[0].extents().expect("the interpreter runs bound functions only");
        let zero = Cell::<R>::from_scalar(Scalar::zero(x.dtype));
        let mut cells = Cells::filled(zero, shape.iter().product())?;
        let flat =
            |at: &[usize]| at.iter().zip(&shape).fold(0, |flat, (i, extent)| flat * extent + i);
        let axes = self.windows.axes(&shape, &x.shape);
        let mut window = vec![0; x.shape.len()];
        for (cell, position) in x.cells.iter().zip(positions.cells.iter()) {
            for_each(&axes, &window, |number, at| {
                if number as i64 != position.bits() {
                    return;
                }
                let total = &mut cells[flat(at)];
                *total = match (&*total, cell) {
                    (Cell::Real(a), Cell::Real(b)) => Cell::Real(a.add(b)),
                    (a, b) => Cell::Bits(wrap(a.bits().wrapping_add(b.bits()), x.dtype)),
                };
            });
            super::super::advance(&mut window, &x.shape);
        }
        Ok(vec![Array::new(x.dtype, shape, cells)])
    }

    fn compute<'a>(
        &'a self,
        operands: &[TensorType],
        results: &[TensorType],
        _regions: &'a [Region],
    ) -> Compute<'a> {
        let extents =
            |ty: &TensorType| ty.extents().expect("compute is asked for bound types only");
        let (dtype, shape) = (operands[0].dtype, extents(&results[0]));
        let terms = Terms::of_elements(self.windows.axes(&shape, &extents(&operands[0])));
        let carried = if dtype.is_half() { DType::F32 } else { dtype };
        let (zero, none) = (Scalar::zero(dtype), Scalar::of(i32::MAX));
        let term = move |c: &mut dyn super::ElementContext, term: super::Found| {
            let (zero, none) = (c.constant(zero), c.constant(none));
            let number = c.index(&term.number, DType::I32);
            let position = c.guarded(1, &term.index, term.guards.clone(), none);
            let element = c.guarded(0, &term.index, term.guards, zero);
            let chosen = c.scalar(ScalarOp::Eq, &[position, number]);
            let element = c.scalar(ScalarOp::Select, &[chosen, element, zero]);
            widened(c, element)
        };
        if terms.is_written_out() {
            return Compute::Element {
                rule: Box::new(move |c, index| {
                    let mut total = None;
                    for found in terms.written_out(index) {
                        let element = term(c, found);
                        total = Some(match total {
                            None => element,
                            Some(total) => c.scalar(ScalarOp::Add, &[total, element]),
                        });
                    }
                    let total = total.expect("an element has at least one term");
                    if c.dtype(total) == dtype { total } else { c.convert(total, dtype) }
                }),
                indirect: vec![],
            };
        }
        let rank = shape.len();
        Compute::Reduce {
            extents: shape.iter().chain(&terms.counts).copied().collect(),
            axes: (rank..2 * rank).collect(),
            values: Box::new(move |c, index| {
                vec![term(c, terms.find(&index[..rank], &index[rank..]))]
            }),
            combine: Combine::sum(carried),
            project: vec![0],
        }
    }

    fn derivative(&self) -> Derivative {
        Derivative::Linear(transpose)
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.all(WindowScatterAdd { shape: b.shape(&self.shape), windows: self.windows.batched() })
    }

    fn traits(&self) -> Traits {
        Traits { cost: Cost::Loop, elementwise: false, commutative: false }
    }

    fn attributes(&self) -> Attributes {
        let mut attributes = self.windows.to_attributes();
        attributes.extend(Shaped { shape: self.shape.clone() }.to_attributes());
        attributes
    }

    fn parse(name: &str, attributes: &mut BTreeMap<String, Attribute>) -> Option<Result<Self>> {
        (name == "window_scatter_add").then(|| {
            let into = Shaped::from_attributes(attributes)?;
            Ok(WindowScatterAdd {
                shape: into.shape,
                windows: Windows::from_attributes(attributes)?,
            })
        })
    }

    fn visit_dims(&self, visit: &mut dyn FnMut(&Dim)) {
        self.shape.iter().for_each(&mut *visit);
        AttributeStruct::visit_dims(&self.windows, visit);
    }

    fn map_dims(&mut self, map: &mut dyn FnMut(&Dim) -> Result<Dim>) -> Result<()> {
        for dim in &mut self.shape {
            *dim = map(dim)?;
        }
        AttributeStruct::map_dims(&mut self.windows, map)
    }

    fn entries() -> Vec<Entry> {
        vec![Entry {
            name: "window_scatter_add",
            doc: "The transpose of `window_gather`. Each element of the result is the sum of x \
                  over the windows whose given position is that element. Halves are added in f32.",
            derivative: "linear",
            samples: samples::with_positions(
                |windows, shape| WindowScatterAdd { shape, windows }.into(),
                false,
            ),
        }]
    }
}
