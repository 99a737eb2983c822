//! Matrix products.

mod float8;

pub use float8::{Scale, Scales};

use super::Call;
use super::contract::{Contract, fits, product};
use super::reference::{Reference, Sum, rounds};
use crate::diagnostic::{Diagnostic, Result, ensure};
use crate::dtype::DType;
use crate::literal::Literal;
use crate::op::attribute::{Attribute, AttributeStruct, Attributes, Field};
use crate::op::define::attributes;
use crate::pitch::PaddedRows;
use crate::scalar::Scalar;
use crate::target::Target;
use crate::ty::TensorType;
use std::collections::BTreeMap;

attributes! {
    /// `out = scales · Σₖ lhs[m,k] · rhs[k,n] + addends` for each matrix of a batch.
    ///
    /// Arguments: lhs, rhs, then the scales of both if there are scales, then bias and residual if
    /// they are added, then out. Products and sums are computed in `accumulate`. The back end
    /// chooses the order of the sum over k and the scales, fixed for given extents (an opaque sum:
    /// compared within a bound).
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
        /// Dtype of lhs, and of rhs unless `rhs_operand` is given.
        operand: DType,
        /// Dtype of rhs if lhs is of the other 8-bit float. The arguments of 8-bit floats are u8,
        /// their bits.
        rhs_operand: Option<DType> = None,
        /// What the sums of 8-bit floats are multiplied by.
        scales: Option<Scales> = None,
        /// Dtype of products and sums: the operands', or f32 for halves and 8-bit floats.
        accumulate: DType,
        /// Dtype of out, bias and residual. Out is `[batch, m, n]`, and so is the residual.
        result: DType,
        /// Added to each sum before it is stored; see [`Addends`] for the order.
        addends: Addends = Addends::default(),
        /// [Pitch](crate::pitch) of out; none if out is dense. Not with a residual.
        pitch: Option<usize> = None,
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

/// Addends of a sum. In text it is the list of addends, such as `["bias", "residual"]`.
///
/// If sums have the dtype of the result, the bias is added first and then the residual. If they
/// are wider ([`Gemm::narrows`]: sums of f32, results of halves), the residual is added first and
/// then the bias, both in the dtype of the sums, and the result is rounded once. This is BLAS'
/// order: `alpha·A·B + beta·C`, then the epilogue. Each addition and the rounding have the bits of
/// the graph op that they stand for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Addends {
    /// `bias[n]`.
    pub bias: bool,
    /// `residual[batch, m, n]`, which may be the out buffer itself (accumulation).
    pub residual: bool,
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

impl Field for Addends {
    fn to_attribute(&self) -> Attribute {
        let addends = self.bias.then_some("bias").into_iter();
        let addends = addends.chain(self.residual.then_some("residual"));
        Attribute::List(addends.map(|addend| Attribute::Text(addend.into())).collect())
    }
    fn from_attribute(attribute: Attribute) -> Result<Self> {
        let all = [[false, false], [true, false], [false, true], [true, true]];
        let all = all.map(|[bias, residual]| Addends { bias, residual });
        all.into_iter().find(|a| a.to_attribute() == attribute).ok_or_else(|| {
            Diagnostic::new("addends are \"bias\", then \"residual\"; each may be absent")
                .help("in plans of this version an activation is a nest: compile again")
        })
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

    /// The strides of the same elements in a buffer with padding between its rows, or `None` if
    /// some elements of the matrices are not in the rows. Strides are those of the dense buffer if
    /// `from` is the extent of a row, and already those of the padded one if it is the pitch.
    fn within(&self, extents: [usize; 3], rows: PaddedRows, from: usize) -> Option<Matrix> {
        let mut last = 0usize;
        let mut stride = |extent: usize, stride: usize| {
            if extent <= 1 {
                return Some(stride);
            }
            if stride.is_multiple_of(from) {
                return (stride / from).checked_mul(rows.pitch);
            }
            last = last.checked_add((extent - 1).checked_mul(stride)?)?;
            Some(stride)
        };
        let batch = stride(extents[0], self.batch)?;
        let row = stride(extents[1], self.row)?;
        let column = stride(extents[2], self.column)?;
        (last < rows.extent).then_some(Matrix { batch, row, column })
    }
}

impl Contract for Gemm {
    fn names() -> &'static [&'static str] {
        &["gemm"]
    }

    fn parse(_: &str, attributes: &mut BTreeMap<String, Attribute>) -> Result<Self> {
        // The name of the addends in older plans.
        if !attributes.contains_key("addends")
            && let Some(addends) = attributes.remove("epilogue")
        {
            attributes.insert("addends".into(), addends);
        }
        AttributeStruct::from_attributes((), attributes)
    }

    fn name(&self) -> &'static str {
        "gemm"
    }

    fn attributes(&self) -> Attributes {
        self.to_attributes()
    }

    fn operands(&self) -> Vec<TensorType> {
        let [lhs, rhs] = self.factors().map(DType::stored);
        let mut types = vec![
            TensorType::new(lhs, [self.lhs.span(self.batch, self.m, self.k)]),
            TensorType::new(rhs, [self.rhs.span(self.batch, self.k, self.n)]),
        ];
        if let Some(Scales { lhs, rhs }) = self.scales {
            types.push(TensorType::new(DType::F32, [lhs.count(self.batch * self.m)]));
            types.push(TensorType::new(DType::F32, [rhs.count(self.n)]));
        }
        if self.addends.bias {
            types.push(TensorType::new(self.result, [self.n]));
        }
        if self.addends.residual {
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
        self.residual_argument().into_iter().collect()
    }

    fn pitch(&self) -> Option<usize> {
        self.pitch
    }

    fn stays_in_rows(&self, operand: usize, rows: PaddedRows) -> bool {
        self.operand_matrix(operand)
            .is_some_and(|(matrix, extents)| matrix.within(extents, rows, rows.pitch).is_some())
    }

    /// Lhs and rhs if they stay in the rows, and the result if its rows are those of the buffer.
    fn padded(&self, argument: usize, rows: PaddedRows) -> Option<Call> {
        let call = self.clone();
        if argument == self.operands().len() {
            let fits = rows.extent == self.n && !self.addends.residual;
            return fits.then_some(Call::Gemm(Gemm { pitch: Some(rows.pitch), ..call }));
        }
        let (matrix, extents) = self.operand_matrix(argument)?;
        let padded = matrix.within(extents, rows, rows.extent)?;
        Some(Call::Gemm(match argument {
            0 => Gemm { lhs: padded, ..call },
            _ => Gemm { rhs: padded, ..call },
        }))
    }

    fn count(&self, least: usize) -> u64 {
        product(least, &[2, self.batch, self.m, self.n, self.k])
    }

    fn has_tiles(&self) -> bool {
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
        fits("out", &[self.batch, self.m, self.out_row()])?;
        if let Some(pitch) = self.pitch {
            ensure!(
                pitch > self.n,
                "gemm of {} columns has a pitch of {pitch}, which leaves no padding",
                self.n
            );
            ensure!(!self.addends.residual, "gemm with a residual has no pitch");
        }
        if self.operand.is_float8() {
            return self.verify_float8();
        }
        ensure!(
            self.rhs_operand.is_none() && self.scales.is_none(),
            "gemm of {} has a dtype of rhs, or scales: those are of 8-bit floats",
            self.operand
        );
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
        Ok(())
    }

    fn claimed_by(&self, target: &Target) -> bool {
        !self.operand.is_float8() || target.float8_products
    }

    fn evaluate(&self, operands: &[Literal]) -> Vec<Reference> {
        let [x_dtype, y_dtype] = self.factors();
        let factor = |of: &Literal, at: usize, dtype: DType| match dtype.is_float8() {
            true => Scalar::from_bits(dtype, of.get(at).bits()),
            false => of.get(at),
        };
        let (lhs, rhs) = (&operands[0], &operands[1]);
        let mut rest = operands[2..].iter();
        let scales = self.scales.map(|scales| (scales, [(); 2].map(|()| rest.next())));
        let bias = if self.addends.bias { rest.next() } else { None };
        let residual = if self.addends.residual { rest.next() } else { None };
        let mut reference = Reference::new(self.result_type());
        for b in 0..self.batch {
            for i in 0..self.m {
                for j in 0..self.n {
                    let mut sum = Sum::new(self.accumulate);
                    for k in 0..self.k {
                        let at = |m: &Matrix, row: usize, column: usize| {
                            b * m.batch + row * m.row + column * m.column
                        };
                        let x = factor(lhs, at(&self.lhs, i, k), x_dtype);
                        let y = factor(rhs, at(&self.rhs, k, j), y_dtype);
                        sum.add_product(x, y);
                    }
                    let (mut value, mut error) = sum.finish();
                    if let Some((scales, [Some(of_lhs), Some(of_rhs)])) = scales {
                        let row = if scales.lhs == Scale::Rows { b * self.m + i } else { 0 };
                        let column = if scales.rhs == Scale::Rows { j } else { 0 };
                        let both = [of_lhs.get(row), of_rhs.get(column)].map(Scalar::to_f64);
                        (value, error) = float8::scaled(value.to_f64(), error, both);
                    }
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
    /// Strides and extents, `[batch, rows, columns]`, of lhs or rhs.
    fn operand_matrix(&self, operand: usize) -> Option<(Matrix, [usize; 3])> {
        match operand {
            0 => Some((self.lhs, [self.batch, self.m, self.k])),
            1 => Some((self.rhs, [self.batch, self.k, self.n])),
            _ => None,
        }
    }

    /// Dtypes of lhs and rhs.
    pub fn factors(&self) -> [DType; 2] {
        [self.operand, self.rhs_operand.unwrap_or(self.operand)]
    }

    /// The argument that is the bias, if there is one.
    pub fn bias_argument(&self) -> Option<usize> {
        self.addends.bias.then_some(2 + 2 * usize::from(self.scales.is_some()))
    }

    /// The argument that is the residual, if there is one.
    pub fn residual_argument(&self) -> Option<usize> {
        let before = 2 * usize::from(self.scales.is_some()) + usize::from(self.addends.bias);
        self.addends.residual.then_some(2 + before)
    }

    fn result_type(&self) -> TensorType {
        TensorType::new(self.result, [self.batch, self.m, self.n])
    }

    /// Distance of the rows of out: its pitch, or n.
    pub fn out_row(&self) -> usize {
        self.pitch.unwrap_or(self.n)
    }

    /// Whether sums are wider than the result. Then addends are added before the only rounding.
    pub fn narrows(&self) -> bool {
        self.result != self.accumulate
    }

    /// The addends of one sum, and the rounding to the result's dtype.
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
        let order = if self.narrows() { [residual, bias] } else { [bias, residual] };
        let (mut value, mut error) = (sum, error);
        for addend in order.into_iter().flatten() {
            (value, error) = rounds(self.accumulate, value.to_f64() + addend.to_f64(), error);
        }
        rounds(dtype, value.to_f64(), error)
    }
}
