//! `window_gather`: one element of each window.

use super::super::attribute::{Attribute, AttributeStruct, Attributes};
use super::super::compute::Compute;
use super::super::derivative::{Derivative, Transpose};
use super::super::{Batch, Cost, Entry, Op, Operation, Traits, operand_count};
use super::{WindowScatterAdd, Windows, check_positions, samples};
use crate::build::tensor::Tensor;
use crate::diagnostic::Result;
use crate::dim::Dim;
use crate::graph::Region;
use crate::interpret::{Array, Cell, Real, Regions};
use crate::nest::{Affine, Guard};
use crate::scalar::Scalar;
use crate::ty::TensorType;
use std::collections::BTreeMap;

/// `window_gather %x, %positions {window=[2]}`: for each window, the element at the given
/// position, counted in row-major order within the window; 0 if the operand has no element there.
/// See [`Windows`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct WindowGather {
    /// The geometry of the windows.
    pub windows: Windows,
}

fn transpose(t: &Transpose<'_>) -> Vec<Option<Tensor>> {
    let Op::WindowGather(op) = t.op else { unreachable!("the rule of window_gather") };
    let Some(ct) = &t.cotangents[0] else { return vec![None, None] };
    let shape = t.operands[0].ty().shape.clone();
    let scatter = WindowScatterAdd { shape, windows: op.windows.clone() };
    vec![Some(Tensor::apply(scatter, &[ct, t.operands[1].known()])), None]
}

impl Operation for WindowGather {
    fn name(&self) -> &'static str {
        "window_gather"
    }

    fn infer(&self, operands: &[TensorType], _regions: &[Region]) -> Result<Vec<TensorType>> {
        operand_count(operands, 2)?;
        let windows = self.windows.infer(&operands[0].shape)?;
        check_positions(&operands[1], &windows)?;
        Ok(vec![operands[0].with_shape(windows)])
    }

    fn evaluate<R: Real>(
        &self,
        operands: &[Array<R>],
        results: &[TensorType],
        _regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        let (x, positions) = (&operands[0], &operands[1]);
        let shape = results[0].extents().expect("the interpreter runs bound functions only");
        let axes = self.windows.axes(&x.shape, &shape);
        Ok(vec![Array::from_fn(&results[0], |window| {
            let number = positions.at(window).bits();
            let mut rest = usize::try_from(number).ok().filter(|n| *n < self.windows.count());
            let mut at = vec![0; axes.len()];
            for (a, axis) in axes.iter().enumerate().rev() {
                let Some(n) = rest else { break };
                let extent = axis.window as usize;
                let element = axis.element(window[a], n % extent);
                at[a] = element.unwrap_or(0);
                rest = element.map(|_| n / extent);
            }
            match rest {
                Some(_) => x.at(&at).clone(),
                None => Cell::from_scalar(Scalar::zero(x.dtype)),
            }
        })?])
    }

    fn compute<'a>(
        &'a self,
        operands: &[TensorType],
        results: &[TensorType],
        _regions: &'a [Region],
    ) -> Compute<'a> {
        let extents =
            |ty: &TensorType| ty.extents().expect("compute is asked for bound types only");
        let (dtype, count) = (operands[0].dtype, self.windows.count() as i64);
        let axes = self.windows.axes(&extents(&operands[0]), &extents(&results[0]));
        Compute::Element {
            rule: Box::new(move |c, index| {
                let number = Affine::reg(c.operand(1, index));
                let mut guards = vec![Guard { index: number.clone(), low: 0, high: count }];
                let mut at = vec![Affine::constant(0); axes.len()];
                let mut stride = 1;
                for (a, axis) in axes.iter().enumerate().rev() {
                    let digits = number.floor_div(stride);
                    // The guard on the number bounds the first digit, so it takes no modulo.
                    // Simplification would drop that modulo from the index but not from the guard
                    // below.
                    let first = axes[..a].iter().all(|axis| axis.window == 1);
                    let k =
                        if first && axis.window > 1 { digits } else { digits.modulo(axis.window) };
                    stride *= axis.window;
                    let start = index[a].scale(axis.stride).offset(-axis.low);
                    let position = start.add(&k.scale(axis.dilation));
                    if axis.base > 1 {
                        guards.push(Guard { index: position.modulo(axis.base), low: 0, high: 1 });
                    }
                    at[a] = position.floor_div(axis.base);
                    guards.push(Guard { index: at[a].clone(), low: 0, high: axis.extent });
                }
                let zero = c.constant(Scalar::zero(dtype));
                c.guarded(0, &at, guards, zero)
            }),
            indirect: vec![0],
        }
    }

    fn derivative(&self) -> Derivative {
        Derivative::Linear(transpose)
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.all(WindowGather { windows: self.windows.batched() })
    }

    fn traits(&self) -> Traits {
        Traits { cost: Cost::Cheap, elementwise: false, commutative: false }
    }

    fn attributes(&self) -> Attributes {
        self.windows.to_attributes()
    }

    fn parse(name: &str, attributes: &mut BTreeMap<String, Attribute>) -> Option<Result<Self>> {
        let windows = || Windows::from_attributes(attributes);
        (name == "window_gather").then(windows).map(|w| w.map(|windows| WindowGather { windows }))
    }

    fn visit_dims(&self, visit: &mut dyn FnMut(&Dim)) {
        AttributeStruct::visit_dims(&self.windows, visit);
    }

    fn map_dims(&mut self, map: &mut dyn FnMut(&Dim) -> Result<Dim>) -> Result<()> {
        AttributeStruct::map_dims(&mut self.windows, map)
    }

    fn entries() -> Vec<Entry> {
        vec![Entry {
            name: "window_gather",
            doc: "For each window of x, the element at the given position. Positions in a window \
                  count in row-major order. A position outside x gives 0.",
            derivative: "linear",
            samples: samples::with_positions(|windows, _| WindowGather { windows }.into(), true),
        }]
    }
}
