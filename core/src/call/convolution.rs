//! Convolutions.

use super::contract::{Contract, fits, named, product};
use super::reference::{Reference, Sum};
use crate::diagnostic::{Diagnostic, Result, bail, ensure};
use crate::dtype::DType;
use crate::literal::Literal;
use crate::op::attribute::{Attribute, Field};
use crate::op::define::{attributes, texts};
use crate::ty::TensorType;

attributes! {
    /// Convolution with channels last: input `[batch, spatial…, groups · in]`, filter
    /// `[spatial…, in, groups · out]`, result `[batch, spatial…, groups · out]`, all dense. Group
    /// g maps the input channels from `g·in` to the result channels from `g·out`.
    ///
    /// `result[b, o, c] = Σ_{k, i} input[b, (o·stride + k·rhs_dilation − low) / lhs_dilation, i] ·
    /// filter[k, i, c]`, where a term counts only if the division is exact and the position is
    /// inside the input.
    Convolution {
        /// Which of the three tensors is computed from the other two.
        direction: Direction,
        /// Number of images.
        batch: usize,
        /// Number of groups.
        groups: usize = 1,
        /// Input channels of each group.
        input_channels: usize,
        /// Result channels of each group.
        output_channels: usize,
        /// One entry for each spatial axis (1 to 3).
        window: Vec<Window>,
        /// Dtype of the two given tensors; halves are accumulated in f32.
        dtype: DType,
        /// Whether the result of halves has the dtype of the sums, f32, instead of theirs.
        wide: bool = false,
    }
}

/// One spatial axis of a convolution; in text
/// `[input, filter, output, stride, low, lhs_dilation, rhs_dilation]`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Window {
    /// Extent of the input.
    pub input: usize,
    /// Extent of the filter.
    pub filter: usize,
    /// Extent of the result.
    pub output: usize,
    /// Stride of windows.
    pub stride: usize,
    /// Padding before the first element; negative padding crops. Padding after the last element
    /// follows from the extents.
    pub low: i64,
    /// Stride of input elements in the dilated input.
    pub lhs_dilation: usize,
    /// Stride of filter elements in the dilated filter.
    pub rhs_dilation: usize,
}

texts! {
    /// Directions of a convolution. Arguments: the two given tensors in the order input, filter,
    /// result; then the computed tensor.
    Direction {
        /// Result from input and filter.
        Forward "forward",
        /// Cotangent of the input from filter and the result's cotangent.
        InputGradient "input_gradient",
        /// Cotangent of the filter from input and the result's cotangent.
        FilterGradient "filter_gradient",
    }
}

impl Direction {
    /// Position of the computed tensor among input, filter, result.
    pub const fn computed(self) -> usize {
        match self {
            Direction::InputGradient => 0,
            Direction::FilterGradient => 1,
            Direction::Forward => 2,
        }
    }
}

impl Field for Window {
    fn to_attribute(&self) -> Attribute {
        let extents = [self.input, self.filter, self.output, self.stride].map(|e| e.to_attribute());
        let rest = [self.lhs_dilation, self.rhs_dilation].map(|e| e.to_attribute());
        Attribute::List(extents.into_iter().chain([self.low.to_attribute()]).chain(rest).collect())
    }
    fn from_attribute(attribute: Attribute) -> Result<Self> {
        let numbers = Vec::<i64>::from_attribute(attribute)?;
        let [input, filter, output, stride, low, lhs_dilation, rhs_dilation] = numbers[..] else {
            bail!("a window has seven numbers";
                help "[input, filter, output, stride, low, lhs_dilation, rhs_dilation]");
        };
        let extent = |n: i64| {
            usize::try_from(n).map_err(|_| {
                Diagnostic::new(format!("{n} in a window: only `low` may be negative"))
            })
        };
        Ok(Window {
            input: extent(input)?,
            filter: extent(filter)?,
            output: extent(output)?,
            stride: extent(stride)?,
            low,
            lhs_dilation: extent(lhs_dilation)?,
            rhs_dilation: extent(rhs_dilation)?,
        })
    }
}

impl Window {
    /// The input position of output `o` and filter element `k`, if there is one.
    fn position(&self, o: usize, k: usize) -> Option<usize> {
        let dilated = (o * self.stride + k * self.rhs_dilation) as i64 - self.low;
        let dilated = usize::try_from(dilated).ok()?;
        let exact = dilated.is_multiple_of(self.lhs_dilation);
        exact.then_some(dilated / self.lhs_dilation).filter(|p| *p < self.input)
    }
}

impl Convolution {
    /// Dtype of the computed tensor.
    pub fn result_dtype(&self) -> DType {
        if self.wide { self.dtype.wide() } else { self.dtype }
    }

    /// Types of input, filter and result.
    pub fn tensors(&self) -> Vec<TensorType> {
        let spatial = |f: fn(&Window) -> usize| self.window.iter().map(f).collect::<Vec<_>>();
        let ty = |head: &[usize], space: Vec<usize>, tail: &[usize]| {
            TensorType::new(self.dtype, head.iter().chain(&space).chain(tail).copied())
        };
        let mut tensors = vec![
            ty(&[self.batch], spatial(|w| w.input), &[self.groups * self.input_channels]),
            ty(
                &[],
                spatial(|w| w.filter),
                &[self.input_channels, self.groups * self.output_channels],
            ),
            ty(&[self.batch], spatial(|w| w.output), &[self.groups * self.output_channels]),
        ];
        tensors[self.direction.computed()].dtype = self.result_dtype();
        tensors
    }

    fn result_type(&self) -> TensorType {
        self.tensors().swap_remove(self.direction.computed())
    }
}

impl Contract for Convolution {
    named!("convolution");

    fn operands(&self) -> Vec<TensorType> {
        let mut tensors = self.tensors();
        tensors.remove(self.direction.computed());
        tensors
    }

    fn results(&self) -> Vec<TensorType> {
        vec![self.result_type()]
    }

    fn count(&self, least: usize) -> u64 {
        let window = self.window.iter().map(|w| product(least, &[w.filter, w.output]));
        let Convolution { batch, groups, input_channels, output_channels, .. } = *self;
        let channels = product(least, &[2, batch, groups, input_channels, output_channels]);
        window.fold(channels, u64::saturating_mul)
    }

    /// The filter's cotangent is a sum over all positions, in parts.
    fn has_tiles(&self) -> bool {
        self.direction != Direction::FilterGradient
    }

    fn description(&self) -> String {
        let side = |f: fn(&Window) -> usize| {
            let extents: Vec<String> = self.window.iter().map(|w| f(w).to_string()).collect();
            extents.join("x")
        };
        let (input, filter, output) = (side(|w| w.input), side(|w| w.filter), side(|w| w.output));
        let groups = match self.groups {
            0 | 1 => String::new(),
            groups => format!(" in {groups} groups"),
        };
        format!(
            "convolution {} {} of {input}x{} by {filter} to {output}x{}{groups}",
            self.direction.name(),
            self.batch,
            self.groups * self.input_channels,
            self.groups * self.output_channels
        )
    }

    fn verify(&self) -> Result<()> {
        ensure!(
            (1..=3).contains(&self.window.len()),
            "convolution over {} spatial axes", self.window.len();
            help "1 to 3 are possible"
        );
        ensure!(self.dtype.is_float() || self.dtype.is_integer(), "convolution of {}", self.dtype);
        ensure!(!self.wide || self.dtype.is_half(), "a wide convolution of {}", self.dtype;
            help "only halves have sums of another dtype");
        if self.groups == 0
            || self
                .window
                .iter()
                .any(|w| w.stride == 0 || w.lhs_dilation == 0 || w.rhs_dilation == 0)
        {
            bail!("groups, strides and dilations of a convolution are at least 1");
        }
        let all = |f: fn(&Window) -> usize, rest: &[usize]| {
            self.window.iter().map(f).chain(rest.iter().copied()).collect::<Vec<_>>()
        };
        fits("input", &all(|w| w.input, &[self.batch, self.groups, self.input_channels]))?;
        fits(
            "filter",
            &all(|w| w.filter, &[self.input_channels, self.groups, self.output_channels]),
        )?;
        fits("result", &all(|w| w.output, &[self.batch, self.groups, self.output_channels]))?;
        for w in &self.window {
            fits("window", &[w.output.max(1), w.stride])?;
            fits("window", &[w.filter.max(1), w.rhs_dilation])?;
            fits("window", &[w.input.max(1), w.lhs_dilation])?;
            ensure!(w.low.unsigned_abs() <= u32::MAX as u64, "padding {} of a convolution", w.low);
        }
        Ok(())
    }

    fn evaluate(&self, operands: &[Literal]) -> Vec<Reference> {
        let types = self.tensors();
        let computed = self.direction.computed();
        let accumulate = self.dtype.wide();
        let elements = types[computed].elements().expect("extents were verified");
        let mut sums: Vec<Sum> = (0..elements).map(|_| Sum::new(accumulate)).collect();
        let extents = |f: fn(&Window) -> usize| self.window.iter().map(f).collect::<Vec<_>>();
        let (input, filter, output) =
            (extents(|w| w.input), extents(|w| w.filter), extents(|w| w.output));
        let flat =
            |at: &[usize], extents: &[usize]| at.iter().zip(extents).fold(0, |n, (i, e)| n * e + i);
        let (cin, cout) = (self.input_channels, self.output_channels);
        each(&output, &mut |o| {
            each(&filter, &mut |k| {
                let meets =
                    self.window.iter().enumerate().map(|(axis, w)| w.position(o[axis], k[axis]));
                let Some(p) = meets.collect::<Option<Vec<_>>>() else { return };
                let volume = |e: &[usize]| e.iter().product::<usize>();
                for b in 0..self.batch {
                    for g in 0..self.groups {
                        for (i, c) in (0..cin).flat_map(|i| (0..cout).map(move |c| (i, c))) {
                            let at = [
                                (b * volume(&input) + flat(&p, &input)) * self.groups * cin
                                    + g * cin
                                    + i,
                                (flat(k, &filter) * cin + i) * self.groups * cout + g * cout + c,
                                (b * volume(&output) + flat(o, &output)) * self.groups * cout
                                    + g * cout
                                    + c,
                            ];
                            let mut given = (0..3).filter(|t| *t != computed).zip(operands);
                            let mut next = || {
                                let (tensor, literal) =
                                    given.next().expect("two of three tensors are given");
                                literal.get(at[tensor])
                            };
                            sums[at[computed]].add_product(next(), next());
                        }
                    }
                }
            });
        });
        let mut reference = Reference::new(types[computed].clone());
        for sum in sums {
            let (value, error) = sum.finish_in(self.result_dtype());
            reference.push(value, error);
        }
        vec![reference]
    }
}

/// Calls `f` for every index within the extents, in row-major order.
pub(super) fn each(extents: &[usize], f: &mut dyn FnMut(&[usize])) {
    if extents.contains(&0) {
        return;
    }
    let mut index = vec![0; extents.len()];
    loop {
        f(&index);
        let Some(axis) = (0..extents.len()).rev().find(|a| index[*a] + 1 < extents[*a]) else {
            return;
        };
        index[axis] += 1;
        index[axis + 1..].fill(0);
    }
}
