//! A product in cuBLASLt's terms: column-major matrices, `D = op(A)·op(B) + beta·C + bias`.
//!
//! This crate's matrices are row-major. A row-major matrix *is* its transpose in column-major
//! order, without a copy. So `out = lhs·rhs` is computed as `outᵀ = rhsᵀ·lhsᵀ`: A is rhs, B is
//! lhs, D is out, and m and n are swapped. cuBLASLt's row order is not used, for two reasons. Its
//! bias runs along the *rows* of D, which are the columns of out: exactly the bias of a layer.
//! And all its kernels are made for column order.
//!
//! A matrix is expressible if one of its two strides is 1. The other is the leading dimension,
//! and which of them is 1 decides `op`.

use crate::driver::allocation::Address;
use cudarc::cublaslt::sys::{cublasComputeType_t, cudaDataType};
use std::fmt;
use wengert_core::DType;
use wengert_core::call::{Gemm, Matrix, Scale, Scales};

/// A product, in cuBLASLt's terms.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Problem {
    /// Rows of D: columns of out.
    pub m: u64,
    /// Columns of D: rows of out.
    pub n: u64,
    /// The contracted extent.
    pub k: u64,
    /// Number of products.
    pub batch: u32,
    /// m × k after `op`: rhs.
    pub a: Layout,
    /// k × n after `op`: lhs.
    pub b: Layout,
    /// m × n: out; C (the residual) has the same layout.
    pub d: Layout,
    /// Dtypes of A and of B: equal, but for 8-bit floats.
    pub operands: [DType; 2],
    /// Scales of 8-bit floats. A is rhs, and B lhs.
    pub scales: Option<Scales>,
    /// Dtype of C, D and bias.
    pub result: DType,
    /// Whether f32 operands may be rounded to tf32.
    pub tf32: bool,
    /// Whether C is added.
    pub accumulate: bool,
    /// Whether a bias is added: one number for each row of D.
    pub bias: bool,
}

/// Layout of a matrix, in elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Layout {
    /// `op` transposes it.
    pub transposed: bool,
    /// Leading dimension: stride of the columns.
    pub ld: u64,
    /// Stride of the matrices of a batch.
    pub batch: u64,
}

/// Addresses of the matrices, named as in this crate: lhs, rhs, out.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Operands {
    /// cuBLASLt's B.
    pub lhs: Address,
    /// cuBLASLt's A.
    pub rhs: Address,
    /// cuBLASLt's C, if it accumulates; may be `out`.
    pub residual: Address,
    /// cuBLASLt's D.
    pub out: Address,
    /// The bias, if it is added.
    pub bias: Address,
    /// The scales of lhs and of rhs, if there are some.
    pub scales: [Address; 2],
}

/// Minimum alignment of addresses in bytes: powers of two up to 256. Algorithms are chosen for
/// it, and addresses are checked against it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Alignment {
    /// Of lhs.
    pub lhs: u32,
    /// Of rhs.
    pub rhs: u32,
    /// Of residual and out.
    pub out: u32,
    /// Of the bias.
    pub bias: u32,
}

impl Alignment {
    /// The maximum, which allocations and a plan's buffers have.
    pub const FULL: Alignment = Alignment { lhs: 256, rhs: 256, out: 256, bias: 256 };

    /// The alignment of these addresses. For a buffer that moves with a loop's counter, it is
    /// that of the first address and of the stride, taken as an address.
    pub fn of(operands: &Operands) -> Alignment {
        Alignment {
            lhs: operands.lhs.alignment(),
            rhs: operands.rhs.alignment(),
            out: operands.out.alignment().min(operands.residual.alignment()),
            bias: operands.bias.alignment(),
        }
    }

    /// The alignment that both guarantee.
    #[must_use]
    pub fn and(self, other: Alignment) -> Alignment {
        Alignment {
            lhs: self.lhs.min(other.lhs),
            rhs: self.rhs.min(other.rhs),
            out: self.out.min(other.out),
            bias: self.bias.min(other.bias),
        }
    }

    /// True if these addresses have at least this alignment.
    pub fn holds(&self, operands: &Operands) -> bool {
        Alignment::of(operands).and(*self) == *self
    }
}

/// Layout of a row-major matrix of `rows` × `columns` as its transpose in column-major order.
fn layout(matrix: &Matrix, rows: usize, columns: usize) -> Option<Layout> {
    let batch = matrix.batch as u64;
    // The stride of a single row or column does not matter.
    let row = if rows == 1 { columns } else { matrix.row };
    if (matrix.column == 1 || columns == 1) && row >= columns {
        return Some(Layout { transposed: false, ld: row as u64, batch });
    }
    let column = if columns == 1 { rows } else { matrix.column };
    if (matrix.row == 1 || rows == 1) && column >= rows {
        return Some(Layout { transposed: true, ld: column as u64, batch });
    }
    None
}

/// Layout of an operand whose `rows` rows lie along the sum; of A, `op` transposes it.
fn along_the_sum(row: usize, rows: usize, gemm: &Gemm) -> Option<Layout> {
    let ld = if rows == 1 { gemm.k } else { row };
    (ld >= gemm.k).then_some(Layout { transposed: false, ld: ld as u64, batch: 0 })
}

impl Problem {
    /// The product alone, without its addends. The error is the operand that cuBLASLt cannot
    /// express: 0 for lhs, 1 for rhs.
    ///
    /// If all products of a batch share a rhs, and lhs is dense over the batch, they become one
    /// product of more rows.
    pub(super) fn of(gemm: &Gemm, tf32: bool) -> Result<Problem, usize> {
        let (mut batch, mut rows, mut lhs) = (gemm.batch, gemm.m, gemm.lhs);
        let row = if gemm.m == 1 { lhs.batch } else { lhs.row };
        let dense = lhs.batch == gemm.m * row && row >= gemm.k && (lhs.column == 1 || gemm.k == 1);
        if batch > 1 && gemm.rhs.batch == 0 && dense {
            rows *= batch;
            batch = 1;
            lhs = Matrix { batch: 0, row, column: 1 };
        }
        let (a, b) = match gemm.operand.is_float8() {
            true => (along_the_sum(gemm.rhs.column, gemm.n, gemm), along_the_sum(row, rows, gemm)),
            false => (layout(&gemm.rhs, gemm.k, gemm.n), layout(&lhs, rows, gemm.k)),
        };
        let b = b.map(|b| Layout { batch: lhs.batch as u64, ..b }).ok_or(0usize)?;
        let a = a.map(|a| Layout { batch: gemm.rhs.batch as u64, ..a }).ok_or(1usize)?;
        let a = Layout { transposed: a.transposed || gemm.operand.is_float8(), ..a };
        let [lhs_dtype, rhs_dtype] = gemm.factors();
        let unbatched = |l: Layout| if batch == 1 { Layout { batch: 0, ..l } } else { l };
        Ok(Problem {
            m: gemm.n as u64,
            n: rows as u64,
            k: gemm.k as u64,
            batch: batch as u32,
            a: unbatched(a),
            b: unbatched(b),
            d: unbatched(Layout {
                transposed: false,
                ld: gemm.out_row() as u64,
                batch: (rows * gemm.out_row()) as u64,
            }),
            operands: [rhs_dtype, lhs_dtype],
            scales: gemm.scales,
            result: gemm.result,
            tf32: tf32 && gemm.operand == DType::F32,
            accumulate: false,
            bias: false,
        })
    }

    /// Rows and columns of A, B and D as stored.
    pub(super) fn stored(&self) -> [(u64, u64, Layout); 3] {
        let shape = |rows, columns, l: Layout| {
            if l.transposed { (columns, rows, l) } else { (rows, columns, l) }
        };
        [
            shape(self.m, self.k, self.a),
            shape(self.k, self.n, self.b),
            shape(self.m, self.n, self.d),
        ]
    }

    /// Elements from the first to the last of a batch of matrices.
    pub(super) fn span(&self, (rows, columns, layout): (u64, u64, Layout)) -> u64 {
        rows + (columns - 1) * layout.ld + u64::from(self.batch - 1) * layout.batch
    }

    /// The type of multiplication and accumulation.
    pub(super) fn compute(&self) -> cublasComputeType_t {
        match self.operands[0] {
            DType::F64 => cublasComputeType_t::CUBLAS_COMPUTE_64F,
            _ if self.tf32 => cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            _ => cublasComputeType_t::CUBLAS_COMPUTE_32F,
        }
    }

    /// Dtype of alpha and beta.
    pub(super) fn scale(&self) -> DType {
        if self.operands[0] == DType::F64 { DType::F64 } else { DType::F32 }
    }
}

/// NVIDIA's name of a dtype.
pub(super) fn data_type(dtype: DType) -> Option<cudaDataType> {
    match dtype {
        DType::F16 => Some(cudaDataType::CUDA_R_16F),
        DType::BF16 => Some(cudaDataType::CUDA_R_16BF),
        DType::F32 => Some(cudaDataType::CUDA_R_32F),
        DType::F64 => Some(cudaDataType::CUDA_R_64F),
        DType::F8E4M3FN => Some(cudaDataType::CUDA_R_8F_E4M3),
        DType::F8E5M2 => Some(cudaDataType::CUDA_R_8F_E5M2),
        _ => None,
    }
}

impl fmt::Display for Problem {
    /// The whole problem in one line: the key of tuning files.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout =
            |l: &Layout| format!("{}{}+{}", if l.transposed { "T" } else { "N" }, l.ld, l.batch);
        write!(f, "{}x{}x{} batch {} ", self.m, self.n, self.k, self.batch)?;
        write!(f, "a {} b {} d {} ", layout(&self.a), layout(&self.b), layout(&self.d))?;
        match self.operands {
            [a, b] if a == b => write!(f, "{a} to {}", self.result)?,
            [a, b] => write!(f, "{a} by {b} to {}", self.result)?,
        }
        if let Some(Scales { lhs, rhs }) = self.scales {
            let name = |scale| if scale == Scale::Rows { "rows" } else { "whole" };
            write!(f, " scales {},{}", name(rhs), name(lhs))?;
        }
        if self.tf32 {
            f.write_str(" tf32")?;
        }
        if self.accumulate {
            f.write_str(" accumulate")?;
        }
        f.write_str(if self.bias { " Bias" } else { " Default" })
    }
}
