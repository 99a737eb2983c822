//! Calls: what is not a nest, as a closed list. Each is a contract over dense buffers that a back end claims or not
//! ([`crate::target::Target`]); an op that yields a call has a decomposition in graph ops as its oracle.
//!
//! All extents and strides count elements. Arguments of a call are listed operands first, result last.

use crate::diagnostic::{Diagnostic, Result};
use crate::dtype::DType;
use crate::ty::TensorType;

/// A call.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Call {
    /// Matrix product with prologue and epilogue.
    Gemm(Gemm),
    /// Convolution, in one of three directions.
    Convolution(Convolution),
    /// Scatter with addition.
    ScatterAdd(ScatterAdd),
}

/// `out = epilogue(Σₖ lhs[m,k] · rhs[k,n])` for each of a batch.
///
/// Arguments: lhs, rhs, then bias and residual where the epilogue has them, then out. Products and sums are made in
/// `accumulate`; the order of the sum over k is the back end's, fixed for given extents (an opaque sum: compared within a bound).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Gemm {
    /// Number of products.
    pub batch: usize,
    /// Rows of lhs and out.
    pub m: usize,
    /// Columns of rhs and out.
    pub n: usize,
    /// Columns of lhs, rows of rhs; 0 gives zeros.
    pub k: usize,
    /// How lhs lies in its buffer.
    pub lhs: Matrix,
    /// How rhs lies in its buffer.
    pub rhs: Matrix,
    /// Dtype of lhs and rhs.
    pub operand: DType,
    /// Dtype of products and sums: the operands', or f32 for halves.
    pub accumulate: DType,
    /// Dtype of out, bias and residual. Out is dense `[batch, m, n]`.
    pub result: DType,
    /// What is done to each sum before it is stored.
    pub epilogue: Epilogue,
}

/// A batch of matrices in a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Matrix {
    /// Distance of matrices.
    pub batch: usize,
    /// Distance of rows.
    pub row: usize,
    /// Distance of columns.
    pub column: usize,
}

/// What becomes of a sum, in this order: convert to `result`, add bias, activate, add residual. Each step has the bits of the graph
/// op that it stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Epilogue {
    /// Adds `bias[n]`.
    pub bias: bool,
    /// Applies a function.
    pub activation: Option<Activation>,
    /// Adds `residual[batch, m, n]`, which may be the out buffer itself (accumulation).
    pub residual: bool,
}

/// Functions of an epilogue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Activation {
    /// `max(x, 0)`.
    Relu,
    /// `tanh x`.
    Tanh,
    /// `x · ½(1 + tanh(√(2/π)(x + 0.044715x³)))`.
    GeluTanh,
}

/// Convolution with channels last: input `[batch, spatial…, groups · in]`, filter `[spatial…, in, groups · out]`, result
/// `[batch, spatial…, groups · out]`, all dense. Group g uses the input channels `g·in..` and gives the result channels `g·out..`.
///
/// `result[b, o, c] = Σ_{k, i} input[b, (o·stride + k·rhs_dilation − low) / lhs_dilation, i] · filter[k, i, c]`, where a term counts only
/// if the division is exact and the position lies in the input.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Convolution {
    /// Which of the three tensors is computed from the other two.
    pub direction: Direction,
    /// Number of images.
    pub batch: usize,
    /// Number of groups.
    pub groups: usize,
    /// Channels of the input for each group.
    pub input_channels: usize,
    /// Channels of the result for each group.
    pub output_channels: usize,
    /// One entry for each spatial axis (1 to 3).
    pub window: Vec<Window>,
    /// Dtype of all three tensors; halves are accumulated in f32.
    pub dtype: DType,
}

/// One spatial axis of a convolution.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Window {
    /// Extent of the input.
    pub input: usize,
    /// Extent of the filter.
    pub filter: usize,
    /// Extent of the result.
    pub output: usize,
    /// Distance of windows.
    pub stride: usize,
    /// Padding before the first element; negative crops. Padding behind follows from the extents.
    pub low: i64,
    /// Distance of input elements in the dilated input.
    pub lhs_dilation: usize,
    /// Distance of filter elements in the dilated filter.
    pub rhs_dilation: usize,
}

/// Directions of a convolution. Arguments: the two given tensors in the order input, filter, result; then the computed one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Direction {
    /// Result from input and filter.
    Forward,
    /// Cotangent of the input from filter and the result's cotangent.
    InputGradient,
    /// Cotangent of the filter from input and the result's cotangent.
    FilterGradient,
}

/// `out = operand`, then `out[start(s) + w] += updates[s, w]` for each scatter position s in row-major order and each window position
/// w: additions to one element happen in the order of s. A window of which any part is out of bounds is skipped.
///
/// Arguments: operand, indices, updates, out; out may be the operand's buffer. Dimension numbers are those of `jax.lax.scatter_add`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ScatterAdd {
    /// Shape of operand and out.
    pub operand: Vec<usize>,
    /// Shape of the indices; its last axis is the index vector.
    pub indices: Vec<usize>,
    /// Shape of the updates.
    pub updates: Vec<usize>,
    /// Axes of the updates that are window axes, ascending.
    pub update_window_dims: Vec<usize>,
    /// Axes of the operand at which the window has extent 1 and which updates lack, ascending.
    pub inserted_window_dims: Vec<usize>,
    /// For each component of an index vector the axis of the operand it starts.
    pub scatter_dims_to_operand_dims: Vec<usize>,
    /// Dtype of operand, updates and out; halves are added in their own dtype, one rounding per addition.
    pub dtype: DType,
    /// Dtype of the indices: i32 or i64.
    pub index: DType,
}

impl Call {
    /// Types of the operands, in order.
    pub fn operands(&self) -> Vec<TensorType> {
        match self {
            Call::Gemm(g) => {
                let span = |m: &Matrix, rows: usize, columns: usize| {
                    if g.batch * rows * columns == 0 {
                        return 0;
                    }
                    1 + (g.batch - 1) * m.batch + (rows - 1) * m.row + (columns - 1) * m.column
                };
                let mut types = vec![
                    TensorType::new(g.operand, [span(&g.lhs, g.m, g.k)]),
                    TensorType::new(g.operand, [span(&g.rhs, g.k, g.n)]),
                ];
                if g.epilogue.bias {
                    types.push(TensorType::new(g.result, [g.n]));
                }
                if g.epilogue.residual {
                    types.push(TensorType::new(g.result, [g.batch, g.m, g.n]));
                }
                types
            }
            Call::Convolution(c) => {
                let all = c.tensors();
                let computed = c.direction.computed();
                all.into_iter().enumerate().filter(|(i, _)| *i != computed).map(|(_, t)| t).collect()
            }
            Call::ScatterAdd(s) => vec![
                TensorType::new(s.dtype, s.operand.iter().copied()),
                TensorType::new(s.index, s.indices.iter().copied()),
                TensorType::new(s.dtype, s.updates.iter().copied()),
            ],
        }
    }

    /// Type of the result.
    pub fn result(&self) -> TensorType {
        match self {
            Call::Gemm(g) => TensorType::new(g.result, [g.batch, g.m, g.n]),
            Call::Convolution(c) => c.tensors().swap_remove(c.direction.computed()),
            Call::ScatterAdd(s) => TensorType::new(s.dtype, s.operand.iter().copied()),
        }
    }

    /// Operands (by position) whose buffer may be the result's.
    pub fn in_place(&self) -> Vec<usize> {
        match self {
            Call::Gemm(g) if g.epilogue.residual => vec![2 + g.epilogue.bias as usize],
            Call::ScatterAdd(_) => vec![0],
            _ => vec![],
        }
    }

    /// Multiplications and additions.
    pub fn flops(&self) -> u64 {
        match self {
            Call::Gemm(g) => 2 * (g.batch * g.m * g.n) as u64 * g.k as u64,
            Call::Convolution(c) => {
                let window: usize = c.window.iter().map(|w| w.filter * w.output).product();
                2 * (c.batch * c.groups * c.input_channels * c.output_channels) as u64 * window as u64
            }
            Call::ScatterAdd(s) => s.updates.iter().product::<usize>() as u64,
        }
    }

    /// Checks extents, dtypes and overflow: every product that [`Call::operands`] forms fits.
    pub fn verify(&self) -> Result<()> {
        let fits = |what: &str, extents: &[usize]| {
            extents
                .iter()
                .try_fold(1usize, |n, e| n.checked_mul(*e))
                .filter(|n| *n <= isize::MAX as usize / 16)
                .map(|_| ())
                .ok_or_else(|| Diagnostic::new(format!("{what}: extents {extents:?} overflow")))
        };
        match self {
            Call::Gemm(g) => {
                for (what, m, rows, columns) in [("lhs", &g.lhs, g.m, g.k), ("rhs", &g.rhs, g.k, g.n)] {
                    fits(what, &[g.batch, rows, columns])?;
                    fits(what, &[g.batch.max(1), m.batch.max(1)])?;
                    fits(what, &[rows.max(1), m.row.max(1)])?;
                    fits(what, &[columns.max(1), m.column.max(1)])?;
                }
                fits("out", &[g.batch, g.m, g.n])?;
                let accumulate = if g.operand.is_half() { DType::F32 } else { g.operand };
                if g.operand == DType::Bool || g.accumulate != accumulate {
                    return Err(Diagnostic::new(format!(
                        "gemm of {} accumulates in {accumulate}",
                        g.operand
                    )));
                }
                if g.result != g.operand && g.result != g.accumulate {
                    return Err(Diagnostic::new(format!("gemm of {} cannot give {}", g.operand, g.result)));
                }
                if g.epilogue.activation.is_some() && !g.result.is_float() {
                    return Err(Diagnostic::new("an activation needs a float result"));
                }
                Ok(())
            }
            Call::Convolution(c) => c.verify(&fits),
            Call::ScatterAdd(s) => s.verify(&fits),
        }
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

impl Convolution {
    /// Types of input, filter and result.
    pub fn tensors(&self) -> Vec<TensorType> {
        let spatial = |f: fn(&Window) -> usize| self.window.iter().map(f).collect::<Vec<_>>();
        let ty = |head: &[usize], space: Vec<usize>, tail: &[usize]| {
            TensorType::new(self.dtype, head.iter().chain(&space).chain(tail).copied())
        };
        vec![
            ty(&[self.batch], spatial(|w| w.input), &[self.groups * self.input_channels]),
            ty(&[], spatial(|w| w.filter), &[self.input_channels, self.groups * self.output_channels]),
            ty(&[self.batch], spatial(|w| w.output), &[self.groups * self.output_channels]),
        ]
    }

    fn verify(&self, fits: &dyn Fn(&str, &[usize]) -> Result<()>) -> Result<()> {
        if !(1..=3).contains(&self.window.len()) {
            return Err(Diagnostic::new(format!("convolution over {} spatial axes", self.window.len()))
                .help("1 to 3 are possible"));
        }
        if !self.dtype.is_float() && !self.dtype.is_integer() {
            return Err(Diagnostic::new(format!("convolution of {}", self.dtype)));
        }
        if self.groups == 0
            || self.window.iter().any(|w| w.stride == 0 || w.lhs_dilation == 0 || w.rhs_dilation == 0)
        {
            return Err(Diagnostic::new("groups, strides and dilations of a convolution are at least 1"));
        }
        let all = |f: fn(&Window) -> usize, rest: &[usize]| {
            self.window.iter().map(f).chain(rest.iter().copied()).collect::<Vec<_>>()
        };
        fits("input", &all(|w| w.input, &[self.batch, self.groups, self.input_channels]))?;
        fits("filter", &all(|w| w.filter, &[self.input_channels, self.groups, self.output_channels]))?;
        fits("result", &all(|w| w.output, &[self.batch, self.groups, self.output_channels]))?;
        for w in &self.window {
            fits("window", &[w.output.max(1), w.stride])?;
            fits("window", &[w.filter.max(1), w.rhs_dilation])?;
            fits("window", &[w.input.max(1), w.lhs_dilation])?;
            if w.low.unsigned_abs() > u32::MAX as u64 {
                return Err(Diagnostic::new(format!("padding {} of a convolution", w.low)));
            }
        }
        Ok(())
    }
}

impl ScatterAdd {
    fn verify(&self, fits: &dyn Fn(&str, &[usize]) -> Result<()>) -> Result<()> {
        fits("operand", &self.operand)?;
        fits("indices", &self.indices)?;
        fits("updates", &self.updates)?;
        let wrong = |what: String| Err(Diagnostic::new(format!("scatter_add: {what}")));
        if !matches!(self.index, DType::I32 | DType::I64) {
            return wrong(format!("indices of {}", self.index));
        }
        if self.dtype == DType::Bool {
            return wrong("bool cannot be added".into());
        }
        let ascending =
            |axes: &[usize], rank: usize| axes.is_sorted_by(|a, b| a < b) && axes.iter().all(|a| *a < rank);
        if !ascending(&self.update_window_dims, self.updates.len())
            || !ascending(&self.inserted_window_dims, self.operand.len())
        {
            return wrong("window axes must ascend and exist".into());
        }
        let Some((vector, positions)) = self.indices.split_last() else {
            return wrong("indices need an index vector axis".into());
        };
        if *vector != self.scatter_dims_to_operand_dims.len()
            || self.scatter_dims_to_operand_dims.iter().any(|a| *a >= self.operand.len())
        {
            return wrong("the index vector and scatter_dims_to_operand_dims disagree".into());
        }
        if self.update_window_dims.len() + self.inserted_window_dims.len() != self.operand.len()
            || self.updates.len() != self.update_window_dims.len() + positions.len()
        {
            return wrong("ranks of operand, indices and updates disagree".into());
        }
        let scatter: Vec<usize> = (0..self.updates.len())
            .filter(|a| !self.update_window_dims.contains(a))
            .map(|a| self.updates[a])
            .collect();
        if scatter != positions {
            return wrong(format!("updates have scatter extents {scatter:?}, indices {positions:?}"));
        }
        let window = (0..self.operand.len()).filter(|a| !self.inserted_window_dims.contains(a));
        for (axis, update) in window.zip(&self.update_window_dims) {
            if self.updates[*update] > self.operand[axis] {
                return wrong("a window is larger than the operand".into());
            }
        }
        Ok(())
    }
}
