//! Matrix products.

use super::contract::{Contract, fits, named, product};
use super::reference::{Reference, Sum, rounding, rounds};
use crate::diagnostic::{Diagnostic, Result};
use crate::dtype::DType;
use crate::literal::Literal;
use crate::op::attribute::{Attribute, Field};
use crate::op::define::attributes;
use crate::scalar::Scalar;
use crate::ty::TensorType;

attributes! {
    /// `out = epilogue(Σₖ lhs[m,k] · rhs[k,n])` for each matrix of a batch.
    ///
    /// Arguments: lhs, rhs, then bias and residual if the epilogue has them, then out. Products
    /// and sums are computed in `accumulate`. The back end chooses the order of the sum over k,
    /// fixed for given extents (an opaque sum: compared within a bound).
    Gemm {
        /// Number of products.
        batch: usize = 1,
        /// Rows of lhs and out.
        m: usize,
        /// Columns of rhs and out.
        n: usize,
        /// Columns of lhs, rows of rhs; 0 gives zeros.
        k: usize,
        /// Strides of lhs.
        lhs: Matrix,
        /// Strides of rhs.
        rhs: Matrix,
        /// Dtype of lhs and rhs.
        operand: DType,
        /// Dtype of products and sums: the operands', or f32 for halves.
        accumulate: DType,
        /// Dtype of out, bias and residual. Out is dense `[batch, m, n]`.
        result: DType,
        /// Operations on each sum before it is stored.
        epilogue: Epilogue = Epilogue::default(),
    }
}

/// Strides of a batch of matrices in a buffer; in text `[batch, row, column]`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Matrix {
    /// Stride of matrices.
    pub batch: usize,
    /// Stride of rows.
    pub row: usize,
    /// Stride of columns.
    pub column: usize,
}

/// Operations on a sum, in this order: convert to `result`, add bias, activate, add residual.
/// Each step has the bits of the graph op that it stands for. In text it is the list of steps,
/// such as `["bias", "relu", "residual"]`.
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

impl Activation {
    /// Every activation.
    pub const ALL: [Activation; 3] = [Activation::Relu, Activation::Tanh, Activation::GeluTanh];

    /// Name in text.
    pub const fn name(self) -> &'static str {
        match self {
            Activation::Relu => "relu",
            Activation::Tanh => "tanh",
            Activation::GeluTanh => "gelu_tanh",
        }
    }

    fn apply(self, x: f64) -> f64 {
        match self {
            // A NaN stays a NaN.
            Activation::Relu => {
                if x <= 0.0 {
                    0.0
                } else {
                    x
                }
            }
            Activation::Tanh => x.tanh(),
            Activation::GeluTanh => {
                let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
                x * (0.5 * (1.0 + inner.tanh()))
            }
        }
    }

    /// Bound of the error at `x`, which is known up to `error`, in arithmetic of `dtype`:
    /// Lipschitz constant, and the function's own roundings.
    fn error(self, dtype: DType, x: f64, error: f64) -> f64 {
        match self {
            Activation::Relu => error,
            Activation::Tanh => error + 3.0 * rounding(dtype, x.tanh()),
            // The derivative is below 1.13. The argument of tanh carries six roundings, damped by
            // |y|·sech²y < 0.45, and 1 + tanh cancels to an absolute error of one rounding of 1.
            Activation::GeluTanh => 1.13 * error + 16.0 * rounding(dtype, x),
        }
    }
}

impl Field for Matrix {
    fn to_attribute(&self) -> Attribute {
        vec![self.batch, self.row, self.column].to_attribute()
    }
    fn from_attribute(attribute: Attribute) -> Result<Self> {
        match Vec::from_attribute(attribute)?.as_slice() {
            [batch, row, column] => Ok(Matrix { batch: *batch, row: *row, column: *column }),
            _ => Err(Diagnostic::new(
                "a matrix is `[batch, row, column]`, the distances of its elements",
            )),
        }
    }
}

impl Field for Epilogue {
    fn to_attribute(&self) -> Attribute {
        let steps = self.bias.then_some("bias").into_iter();
        let steps = steps.chain(self.activation.map(Activation::name));
        let steps = steps.chain(self.residual.then_some("residual"));
        Attribute::List(steps.map(|step| Attribute::Text(step.into())).collect())
    }
    fn from_attribute(attribute: Attribute) -> Result<Self> {
        let wrong = || {
            Diagnostic::new("an epilogue is a list of steps").help(
                "\"bias\", then \"relu\", \"tanh\" or \"gelu_tanh\", then \"residual\"; each may \
                 be absent",
            )
        };
        let Attribute::List(steps) = attribute else { return Err(wrong()) };
        let mut steps = steps.into_iter().peekable();
        let mut next = |wanted: &str| {
            steps.next_if(|s| matches!(s, Attribute::Text(t) if t == wanted)).is_some()
        };
        let bias = next("bias");
        let activation = Activation::ALL.into_iter().find(|a| next(a.name()));
        let residual = next("residual");
        if steps.next().is_some() {
            Err(wrong())
        } else {
            Ok(Epilogue { bias, activation, residual })
        }
    }
}

impl Matrix {
    /// Number of elements from the first to the last of a batch of matrices.
    fn span(&self, batch: usize, rows: usize, columns: usize) -> usize {
        if batch * rows * columns == 0 {
            return 0;
        }
        1 + (batch - 1) * self.batch + (rows - 1) * self.row + (columns - 1) * self.column
    }
}

impl Contract for Gemm {
    named!("gemm");

    fn operands(&self) -> Vec<TensorType> {
        let mut types = vec![
            TensorType::new(self.operand, [self.lhs.span(self.batch, self.m, self.k)]),
            TensorType::new(self.operand, [self.rhs.span(self.batch, self.k, self.n)]),
        ];
        if self.epilogue.bias {
            types.push(TensorType::new(self.result, [self.n]));
        }
        if self.epilogue.residual {
            types.push(self.result_type());
        }
        types
    }

    fn results(&self) -> Vec<TensorType> {
        vec![self.result_type()]
    }

    /// Strides may not reach every element of lhs and rhs.
    fn may_be_larger(&self, operand: usize) -> bool {
        operand < 2
    }

    fn in_place(&self) -> Vec<usize> {
        self.epilogue.residual.then_some(2 + self.epilogue.bias as usize).into_iter().collect()
    }

    fn count(&self, least: usize) -> u64 {
        product(least, &[2, self.batch, self.m, self.n, self.k])
    }

    fn may_be_followed(&self) -> bool {
        true
    }

    fn description(&self) -> String {
        let batch = if self.batch > 1 { format!("{} times ", self.batch) } else { String::new() };
        let order = |m: &Matrix| if m.column == 1 && m.row > 0 { 'n' } else { 't' };
        let Gemm { m, n, k, lhs, rhs, .. } = self;
        format!("gemm {batch}{m}x{n}x{k} {}{}", order(lhs), order(rhs))
    }

    fn verify(&self) -> Result<()> {
        for (what, m, rows, columns) in
            [("lhs", &self.lhs, self.m, self.k), ("rhs", &self.rhs, self.k, self.n)]
        {
            fits(what, &[self.batch, rows, columns])?;
            fits(what, &[self.batch.max(1), m.batch.max(1)])?;
            fits(what, &[rows.max(1), m.row.max(1)])?;
            fits(what, &[columns.max(1), m.column.max(1)])?;
        }
        fits("out", &[self.batch, self.m, self.n])?;
        let accumulate = if self.operand.is_half() { DType::F32 } else { self.operand };
        if self.operand == DType::Bool || self.accumulate != accumulate {
            return Err(Diagnostic::new(format!(
                "gemm of {} accumulates in {accumulate}",
                self.operand
            )));
        }
        if self.result != self.operand && self.result != self.accumulate {
            return Err(Diagnostic::new(format!(
                "gemm of {} cannot give {}",
                self.operand, self.result
            )));
        }
        if self.epilogue.activation.is_some() && !self.result.is_float() {
            return Err(Diagnostic::new("an activation needs a float result"));
        }
        Ok(())
    }

    fn evaluate(&self, operands: &[Literal]) -> Vec<Reference> {
        let (lhs, rhs) = (&operands[0], &operands[1]);
        let mut rest = operands[2..].iter();
        let bias = if self.epilogue.bias { rest.next() } else { None };
        let residual = if self.epilogue.residual { rest.next() } else { None };
        let mut reference = Reference::new(self.result_type());
        for b in 0..self.batch {
            for i in 0..self.m {
                for j in 0..self.n {
                    let mut sum = Sum::new(self.accumulate);
                    for k in 0..self.k {
                        let x =
                            lhs.get(b * self.lhs.batch + i * self.lhs.row + k * self.lhs.column);
                        let y =
                            rhs.get(b * self.rhs.batch + k * self.rhs.row + j * self.rhs.column);
                        sum.add_product(x, y);
                    }
                    let (value, error) = sum.finish();
                    let at = (b * self.m + i) * self.n + j;
                    let bias = bias.map(|t| t.get(j));
                    let residual = residual.map(|t| t.get(at));
                    let (value, error) = self.finish(value, error, bias, residual);
                    reference.push(value, error);
                }
            }
        }
        vec![reference]
    }
}

impl Gemm {
    fn result_type(&self) -> TensorType {
        TensorType::new(self.result, [self.batch, self.m, self.n])
    }

    /// The epilogue on one sum.
    fn finish(
        &self,
        sum: Scalar,
        error: f64,
        bias: Option<Scalar>,
        residual: Option<Scalar>,
    ) -> (Scalar, f64) {
        let dtype = self.result;
        if !dtype.is_float() {
            let bits = [Some(sum), bias, residual].into_iter().flatten().filter_map(Scalar::to_i64);
            return (Scalar::from_i64(dtype, bits.fold(0, i64::wrapping_add)), 0.0);
        }
        let (mut value, mut error) = rounds(dtype, sum.to_f64(), error);
        if let Some(bias) = bias {
            (value, error) = rounds(dtype, value.to_f64() + bias.to_f64(), error);
        }
        if let Some(activation) = self.epilogue.activation {
            error = activation.error(dtype, value.to_f64(), error);
            (value, error) = rounds(dtype, activation.apply(value.to_f64()), error);
        }
        if let Some(residual) = residual {
            (value, error) = rounds(dtype, value.to_f64() + residual.to_f64(), error);
        }
        (value, error)
    }
}
