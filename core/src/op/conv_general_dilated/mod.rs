//! `conv_general_dilated`: convolutions over 1 to 3 axes, with strides, paddings, dilations of
//! both operands and groups.
//!
//! The three layouts are permutations as in `jax.lax`: of the left operand (batch, feature,
//! spatial…), of the right one (output feature, input feature, spatial…), and of the result
//! (batch, feature, spatial…). Entry i is the array axis of role i. The default is channels last
//! for all three (`NHWC`, `HWIO`, `NHWC`), the layout of [`Call::Convolution`]. The cotangent of
//! a filter of that layout is such a call too, of another [`Direction`]; all other layouts are
//! permuted.

mod batch;
mod transpose;

use crate::call::{self, Call, Direction, Window};
use crate::op::dot_general::{check_result, factor};
use crate::op::prelude::*;
use crate::op::window::dilated;

attributes! {
    /// `conv_general_dilated %x, %w {padding=[[1,1]], stride=[2]}`:
    ///
    /// `result[b, o, c] = Σ_{k, i} x[b, (o·stride + k·rhs_dilation − low) / lhs_dilation, i] ·
    /// w[k, i, c]`, where a term counts only if the division is exact and the position lies in
    /// the operand. Halves are accumulated in f32.
    ConvGeneralDilated {
        /// Distance between neighbouring windows, for each spatial axis.
        stride: Vec<usize>,
        /// Padding before and after, for each spatial axis of the dilated operand; negative
        /// crops.
        padding: Vec<(Dim, Dim)>,
        /// Distance between neighbours in the dilated left operand, for each spatial axis; empty:
        /// 1.
        lhs_dilation: Vec<usize> = vec![],
        /// Distance between neighbours in the dilated right operand, for each spatial axis;
        /// empty: 1.
        rhs_dilation: Vec<usize> = vec![],
        /// Groups of features: group g of the input gives group g of the output features.
        feature_group_count: Dim = Dim::constant(1),
        /// Groups of the batch: group g of the batch gives group g of the output features.
        batch_group_count: Dim = Dim::constant(1),
        /// Axes of the left operand: batch, feature, spatial…; empty: channels last.
        lhs_spec: Vec<usize> = vec![],
        /// Axes of the right operand: output feature, input feature, spatial…; empty: channels
        /// last.
        rhs_spec: Vec<usize> = vec![],
        /// Axes of the result: batch, feature, spatial…; empty: channels last.
        out_spec: Vec<usize> = vec![],
        /// Dtype of the result, lax' `preferred_element_type`. The operands are converted to it
        /// first. It is by default the operands' dtype and is never narrower: for floats a float,
        /// for signed integers a signed integer or a float, for unsigned integers and bools any
        /// number. For bools it is required.
        result: Option<DType> = None,
    }
}

/// The axes of three arrays, resolved.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Specs {
    lhs: Vec<usize>,
    rhs: Vec<usize>,
    out: Vec<usize>,
}

impl Specs {
    /// Channels last.
    fn canonical(spatial: usize) -> Self {
        let image: Vec<usize> = [0, spatial + 1].into_iter().chain(1..=spatial).collect();
        let rhs = [spatial + 1, spatial].into_iter().chain(0..spatial).collect();
        Specs { lhs: image.clone(), rhs, out: image }
    }

    /// The layouts of the cotangent of a filter, where image, filter and result have their
    /// channels last: see [`transpose`].
    fn of_filter_gradient(spatial: usize) -> Self {
        let Specs { lhs, rhs, out } = Specs::canonical(spatial);
        let swapped = |spec: Vec<usize>| transpose::swapped(&spec);
        Specs { lhs: swapped(lhs), rhs: swapped(out), out: swapped(rhs) }
    }
}

/// `dim / groups`; `None` if it is not exact.
fn group_of(dim: &Dim, groups: &Dim) -> Option<Dim> {
    dim.checked_exact_div(groups)
}

/// Splits axis `from` into `groups` and the rest, and merges the groups, as the outer part, into
/// axis `into`.
fn regroup(x: &Tensor, from: usize, into: usize, groups: &Dim) -> Tensor {
    if x.error().is_some() {
        return x.clone();
    }
    let rest = group_of(&x.shape()[from], groups);
    let merged = x.shape()[into].checked_mul(groups);
    let (Some(rest), Some(merged)) = (rest, merged) else {
        return x.fail(Diagnostic::new(format!("{} does not fall into {groups} groups", x.ty())));
    };
    let mut split = x.shape().to_vec();
    split.splice(from..=from, [groups.clone(), rest.clone()]);
    let target = if into > from { into + 1 } else { into };
    let mut order: Vec<usize> = (0..split.len()).filter(|a| *a != from).collect();
    let at = order.iter().position(|a| *a == target).expect("the axis remains");
    order.insert(at, from);
    let mut shape = x.shape().to_vec();
    (shape[from], shape[into]) = (rest, merged);
    x.reshape(split).permute(&order).reshape(shape)
}

impl ConvGeneralDilated {
    /// Stride 1 and no padding over `spatial` axes, channels last.
    pub fn new(spatial: usize) -> Self {
        ConvGeneralDilated {
            stride: vec![1; spatial],
            padding: vec![(Dim::constant(0), Dim::constant(0)); spatial],
            lhs_dilation: vec![],
            rhs_dilation: vec![],
            feature_group_count: Dim::constant(1),
            batch_group_count: Dim::constant(1),
            lhs_spec: vec![],
            rhs_spec: vec![],
            out_spec: vec![],
            result: None,
        }
    }

    /// Number of groups, of features or of the batch.
    fn groups(&self) -> &Dim {
        if self.batch_group_count == Dim::constant(1) {
            &self.feature_group_count
        } else {
            &self.batch_group_count
        }
    }

    /// Number of spatial axes.
    fn spatial(&self) -> usize {
        self.stride.len()
    }

    fn lhs_dilation(&self, i: usize) -> usize {
        self.lhs_dilation.get(i).copied().unwrap_or(1)
    }

    fn rhs_dilation(&self, i: usize) -> usize {
        self.rhs_dilation.get(i).copied().unwrap_or(1)
    }

    /// The axis of the output features in the result, and in the right operand.
    pub fn output_features(&self) -> [usize; 2] {
        let specs = self.specs();
        [specs.out[1], specs.rhs[0]]
    }

    fn specs(&self) -> Specs {
        let default = Specs::canonical(self.spatial());
        let given =
            |spec: &[usize], other: Vec<usize>| if spec.is_empty() { other } else { spec.to_vec() };
        Specs {
            lhs: given(&self.lhs_spec, default.lhs),
            rhs: given(&self.rhs_spec, default.rhs),
            out: given(&self.out_spec, default.out),
        }
    }

    /// Extent of the result along spatial axis `i`. Errors: it is not known, and why.
    fn output(&self, i: usize, input: &Dim, filter: &Dim) -> Result<Dim> {
        let overflow = || Diagnostic::new(format!("the extents along spatial axis {i} overflow"));
        let window = dilated(filter, self.rhs_dilation(i)).ok_or_else(overflow)?;
        let room = dilated(input, self.lhs_dilation(i))
            .and_then(|d| d.checked_add(&self.padding[i].0))
            .and_then(|d| d.checked_add(&self.padding[i].1))
            .and_then(|d| d.checked_sub(&window))
            .ok_or_else(overflow)?;
        if room.as_constant().is_some_and(|r| r < 0) {
            return Ok(Dim::constant(0));
        }
        let stride = i64::try_from(self.stride[i]).map_err(|_| overflow())?;
        room.checked_floor_div(stride)
            .filter(|_| room.at_least(0))
            .and_then(|d| d.checked_add(&Dim::constant(1)))
            .ok_or_else(|| {
                Diagnostic::new(format!(
                    "the extent of the result along spatial axis {i} is no dimension"
                ))
                .help("give that axis a number instead of dimension variables")
            })
    }

    fn check_attributes(&self, rank: usize) -> Result<()> {
        let n = self.spatial();
        ensure!(
            (1..=3).contains(&n) && rank == n + 2,
            "a convolution over {n} spatial axes of operands of rank {rank}";
            help "there are 1 to 3 spatial axes, one stride for each, and two axes more"
        );
        ensure!(
            self.padding.len() == n
                && [0, n].contains(&self.lhs_dilation.len())
                && [0, n].contains(&self.rhs_dilation.len()),
            "padding and dilations need one entry for each of the {n} spatial axes"
        );
        let mut steps = self.stride.iter().chain(&self.lhs_dilation).chain(&self.rhs_dilation);
        ensure!(
            steps.all(|v| *v != 0)
                && self.feature_group_count.at_least(1)
                && self.batch_group_count.at_least(1),
            "strides, dilations and group counts are at least 1"
        );
        let one = Dim::constant(1);
        if self.feature_group_count != one && self.batch_group_count != one {
            bail!("feature and batch groups cannot be combined");
        }
        let specs = self.specs();
        for (what, spec) in
            [("lhs_spec", specs.lhs), ("rhs_spec", specs.rhs), ("out_spec", specs.out)]
        {
            distinct_axes(what, &spec, rank)?;
            ensure!(spec.len() == rank, "{what} {spec:?} for operands of rank {rank}";
                help "name each axis once");
        }
        Ok(())
    }
}

impl Operation for ConvGeneralDilated {
    named!(
        "conv_general_dilated",
        "result[b, o, c] = Σ x[b, (o·stride + k·rhs_dilation − low) / lhs_dilation, i] · w[k, i, \
         c] over k and i, with groups and any layout. Halves are accumulated in f32. With \
         `result`, operands are converted to it first; integers and bools too, to wider integers \
         or floats."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x, w] = t.exactly()?;
        ensure!(x.dtype == w.dtype && x.rank() == w.rank(), "operands have types {x} and {w}";
            help "both have one dtype and one rank");
        let dtype = self.result.unwrap_or(x.dtype);
        Domain::Number.check(dtype).map_err(|error| match x.dtype {
            DType::Bool => error.help("give a `result` to convert bools to, such as i32 or f32"),
            _ => error,
        })?;
        check_result(x.dtype, dtype)?;
        self.check_attributes(x.rank())?;
        let specs = self.specs();
        let (batch, features) = (&x.shape[specs.lhs[0]], &x.shape[specs.lhs[1]]);
        let (outputs, inputs) = (&w.shape[specs.rhs[0]], &w.shape[specs.rhs[1]]);
        let groups = |what: &str, dim: &Dim, count: &Dim| {
            group_of(dim, count).ok_or_else(|| {
                Diagnostic::new(format!("{what} {dim} do not fall into {count} groups"))
            })
        };
        ensure!(
            groups("input features", features, &self.feature_group_count)? == *inputs,
            "{features} input features in {} groups, and a filter of type {w} for {inputs}",
            self.feature_group_count;
            help "the filter's input features are those of one group"
        );
        groups("output features", outputs, &self.feature_group_count)?;
        groups("output features", outputs, &self.batch_group_count)?;
        let batch = groups("the batch's", batch, &self.batch_group_count)?;
        let mut shape = vec![Dim::constant(0); x.rank()];
        (shape[specs.out[0]], shape[specs.out[1]]) = (batch, outputs.clone());
        for i in 0..self.spatial() {
            let (input, filter) = (&x.shape[specs.lhs[2 + i]], &w.shape[specs.rhs[2 + i]]);
            ensure!(
                filter.at_least(1),
                "a filter of type {w} has no element along spatial axis {i}"
            );
            shape[specs.out[2 + i]] = self.output(i, input, filter)?;
        }
        let result = TensorType::of(dtype, shape);
        // Strides, dilations and paddings that overflow the arithmetic of positions.
        if let Some(call) = self.call(x, w, &result) {
            Call::Convolution(call).verify()?;
        }
        Ok(vec![result])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let dtype = e.results[0].dtype;
        let (x, w) = (factor(&e.operands[0], dtype)?, factor(&e.operands[1], dtype)?);
        let (specs, n, float) = (self.specs(), self.spatial(), dtype.is_float());
        let low: Vec<i64> = self
            .padding
            .iter()
            .map(|p| p.0.as_constant().expect("the interpreter runs bound functions only"))
            .collect();
        let (inputs, outputs) = (w.shape[specs.rhs[1]], w.shape[specs.rhs[0]]);
        let kernel: Vec<usize> = specs.rhs[2..].iter().map(|a| w.shape[*a]).collect();
        // Without input features every sum is empty, however many taps there are.
        let taps: usize = if inputs == 0 { 0 } else { kernel.iter().product() };
        let count =
            |groups: &Dim| groups.as_extent().expect("the interpreter runs bound functions only");
        let (feature_groups, batch_groups) =
            (count(&self.feature_group_count), count(&self.batch_group_count));
        let batch = x.shape[specs.lhs[0]] / batch_groups;
        let (mut at_x, mut at_w) = (vec![0; n + 2], vec![0; n + 2]);
        e.build(|index| {
            let (b, c) = (index[specs.out[0]], index[specs.out[1]]);
            let group = |count: usize| c / (outputs / count);
            at_x[specs.lhs[0]] = group(batch_groups) * batch + b;
            at_w[specs.rhs[0]] = c;
            let (mut real, mut bits, mut k) = (R::from_i64(0), 0i64, vec![0; n]);
            for _ in 0..taps {
                let inside = (0..n).all(|i| {
                    let window =
                        index[specs.out[2 + i]] * self.stride[i] + k[i] * self.rhs_dilation(i);
                    let (position, dilation) =
                        (window as i64 - low[i], self.lhs_dilation(i) as i64);
                    let extent = x.shape[specs.lhs[2 + i]] as i64;
                    (at_x[specs.lhs[2 + i]], at_w[specs.rhs[2 + i]]) =
                        (position.div_euclid(dilation) as usize, k[i]);
                    position % dilation == 0 && (0..extent).contains(&position.div_euclid(dilation))
                });
                for i in 0..if inside { inputs } else { 0 } {
                    at_x[specs.lhs[1]] = group(feature_groups) * inputs + i;
                    at_w[specs.rhs[1]] = i;
                    match (x.at(&at_x), w.at(&at_w)) {
                        (Cell::Real(p), Cell::Real(q)) => real = real.add(&p.mul(q)),
                        (p, q) => bits = bits.wrapping_add(p.bits().wrapping_mul(q.bits())),
                    }
                }
                advance(&mut k, &kernel);
            }
            if float { Cell::Real(real) } else { Cell::Bits(wrap(bits, dtype)) }
        })
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let (specs, n) = (self.specs(), self.spatial());
        let (operand, result) = (l.operands[0].dtype, l.results[0].dtype);
        // A call of halves has a result of halves, or their sums.
        if result != operand && !(operand.is_half() && result == DType::F32) {
            let wide = result.wide();
            return Compute::Decompose(Box::new(move |tensors| {
                let [x, w] = [0, 1].map(|i| tensors[i].convert(wide));
                let conv = ConvGeneralDilated { result: None, ..self.clone() };
                vec![Tensor::apply(conv, &[&x, &w]).convert(result)]
            }));
        }
        if self.batch_group_count == Dim::constant(1) && specs == Specs::canonical(n) {
            let call = self.call(&l.operands[0], &l.operands[1], &l.results[0]);
            return Compute::Call(Call::Convolution(
                call.expect("compute is asked for bound types only"),
            ));
        }
        if self.feature_group_count == Dim::constant(1) && specs == Specs::of_filter_gradient(n) {
            let call =
                self.call(&l.operands[0], &l.operands[1], &l.results[0]).map(of_filter_gradient);
            return Compute::Call(Call::Convolution(
                call.expect("compute is asked for bound types only"),
            ));
        }
        Compute::Decompose(Box::new(move |tensors| {
            // From the given axes to (batch, spatial…, feature) and (spatial…, input feature,
            // output feature).
            let image = |s: &[usize]| [&s[..1], &s[2..], &s[1..2]].concat();
            let mut x = tensors[0].permute(&image(&specs.lhs));
            let w =
                tensors[1].permute(&[&specs.rhs[2..], &specs.rhs[1..2], &specs.rhs[..1]].concat());
            if self.batch_group_count != Dim::constant(1) {
                // Groups of the batch, merged into the feature axis, are groups of features.
                x = regroup(&x, 0, n + 1, &self.batch_group_count);
            }
            let conv = ConvGeneralDilated {
                feature_group_count: self.groups().clone(),
                batch_group_count: Dim::constant(1),
                lhs_spec: vec![],
                rhs_spec: vec![],
                out_spec: vec![],
                ..self.clone()
            };
            let result = Tensor::apply(conv, &[&x, &w]);
            let mut permutation = vec![0; n + 2];
            image(&specs.out)
                .iter()
                .enumerate()
                .for_each(|(canonical, axis)| permutation[*axis] = canonical);
            vec![result.permute(&permutation)]
        }))
    }

    const DERIVATIVE: Derivative = Derivative::Multilinear(transpose::transpose);

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        batch::batch(self, b)
    }
}

impl ConvGeneralDilated {
    /// The call, for operands with channels last and groups of features only; `None` if a
    /// dimension is variable.
    fn call(&self, x: &TensorType, w: &TensorType, y: &TensorType) -> Option<call::Convolution> {
        let specs = self.specs();
        let extent = |ty: &TensorType, axis: usize| ty.shape[axis].as_extent();
        let groups = self.groups().as_extent()?;
        // Other operands of another dtype are converted first.
        let is_wide = x.dtype.is_half() && y.dtype == DType::F32;
        let window = |i: usize| {
            Some(Window {
                input: extent(x, specs.lhs[2 + i])?,
                filter: extent(w, specs.rhs[2 + i])?,
                output: extent(y, specs.out[2 + i])?,
                stride: self.stride[i],
                low: self.padding[i].0.as_constant()?,
                lhs_dilation: self.lhs_dilation(i),
                rhs_dilation: self.rhs_dilation(i),
            })
        };
        Some(call::Convolution {
            direction: Direction::Forward,
            batch: extent(y, specs.out[0])?,
            groups,
            input_channels: extent(w, specs.rhs[1])?,
            output_channels: extent(w, specs.rhs[0])? / groups,
            window: (0..self.spatial()).map(window).collect::<Option<_>>()?,
            dtype: if is_wide { x.dtype } else { y.dtype },
            wide: is_wide,
        })
    }
}

/// A convolution with the layouts of a filter's cotangent, as the call for it. Its batch are the
/// image's channels, its input channels are the images, and its filter is the result's cotangent,
/// whose holes are the strides.
fn of_filter_gradient(found: call::Convolution) -> call::Convolution {
    let turned = |w: Window| Window {
        filter: w.output,
        output: w.filter,
        stride: w.rhs_dilation,
        rhs_dilation: w.stride,
        ..w
    };
    call::Convolution {
        direction: Direction::FilterGradient,
        batch: found.input_channels,
        input_channels: found.batch,
        window: found.window.into_iter().map(turned).collect(),
        ..found
    }
}
