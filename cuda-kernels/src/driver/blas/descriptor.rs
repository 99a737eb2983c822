//! cuBLASLt's descriptors, each destroyed when dropped.

use super::api::Lt;
use super::problem::{Alignment, Layout, Operands, Problem, data_type};
use crate::driver::Address;
use crate::driver::error::{DeviceError, Result};
use cudarc::cublaslt::sys::*;
use std::ffi::c_void;
use std::sync::Arc;
use wengert_core::DType;
use wengert_core::call::{Scale, Scales};

/// Description of a product.
pub(super) struct Description {
    lt: Arc<Lt>,
    pub(super) handle: cublasLtMatmulDesc_t,
}

/// Layout of a matrix.
pub(super) struct MatrixLayout {
    lt: Arc<Lt>,
    pub(super) handle: cublasLtMatrixLayout_t,
}

/// Restrictions of algorithms.
pub(super) struct Preference {
    lt: Arc<Lt>,
    pub(super) handle: cublasLtMatmulPreference_t,
}

fn doing() -> String {
    "describing a product to cuBLASLt".into()
}

fn no_dtype(dtype: DType) -> DeviceError {
    DeviceError::refused(
        doing(),
        format!("cuBLASLt has no {dtype}"),
        "this GEMM is one for our own kernel",
    )
}

impl Description {
    /// The description of a problem, with a placeholder for the bias' address, which is not known
    /// yet. The heuristic does not read there, but takes the address' alignment for that of the
    /// bias (cublasLt.h, at CUBLASLT_MATMUL_DESC_BIAS_POINTER), so the placeholder has the
    /// alignment of the later address.
    pub(super) fn new(
        lt: &Arc<Lt>,
        problem: &Problem,
        alignment: &Alignment,
    ) -> Result<Description> {
        use cublasLtMatmulDescAttributes_t as A;
        let scale = data_type(problem.scale()).ok_or_else(|| no_dtype(problem.scale()))?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointer is valid for a write.
        let code =
            unsafe { lt.api.cublasLtMatmulDescCreate(&mut handle, problem.compute(), scale) };
        lt.check(code, doing)?;
        let this = Description { lt: lt.clone(), handle };
        // `cublasOperation_t`: 0 is N, 1 is T.
        let operation = |transposed: bool| i32::from(transposed);
        this.set(A::CUBLASLT_MATMUL_DESC_TRANSA, &operation(problem.a.transposed))?;
        this.set(A::CUBLASLT_MATMUL_DESC_TRANSB, &operation(problem.b.transposed))?;
        if problem.bias {
            let dtype = data_type(problem.result).ok_or_else(|| no_dtype(problem.result))?;
            let epilogue = cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS;
            this.set(A::CUBLASLT_MATMUL_DESC_EPILOGUE, &(epilogue as u32))?;
            this.set(A::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &(dtype as i32))?;
        }
        if let Some(Scales { lhs, rhs }) = problem.scales {
            // `cublasLtMatmulMatrixScale_t`: 0 is one scale, the default, which versions without
            // the attribute have; 3 is `OUTER_VEC_32F`, since 12.9.
            if [lhs, rhs].contains(&Scale::Rows) {
                this.set(A::CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &3i32)?;
                this.set(A::CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &3i32)?;
            }
        }
        this.point(
            problem,
            &Operands {
                bias: Address((1 << 32) + u64::from(alignment.bias)),
                scales: [Address(1 << 32), Address(1 << 33)],
                ..Operands::default()
            },
        )?;
        Ok(this)
    }

    /// Sets the addresses of the bias and of the scales.
    pub(super) fn point(&self, problem: &Problem, operands: &Operands) -> Result<()> {
        use cublasLtMatmulDescAttributes_t as A;
        if problem.bias {
            self.set(A::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &operands.bias.0)?;
        }
        if problem.scales.is_some() {
            let [lhs, rhs] = operands.scales;
            self.set(A::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &rhs.0)?;
            self.set(A::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &lhs.0)?;
        }
        Ok(())
    }

    fn set<T: Copy>(&self, attribute: cublasLtMatmulDescAttributes_t, value: &T) -> Result<()> {
        let bytes = size_of::<T>();
        // SAFETY: the value is valid for reads of its size, which the library checks against the
        // attribute's.
        let code = unsafe {
            let value = std::ptr::from_ref(value).cast::<c_void>();
            self.lt.api.cublasLtMatmulDescSetAttribute(self.handle, attribute, value, bytes)
        };
        self.lt.check(code, || format!("{} ({attribute:?})", doing()))
    }
}

impl MatrixLayout {
    /// `rows` × `columns` as stored, before `op`.
    pub(super) fn new(
        lt: &Arc<Lt>,
        dtype: DType,
        shape: (u64, u64, Layout),
        batch: u32,
    ) -> Result<MatrixLayout> {
        use cublasLtMatrixLayoutAttribute_t as A;
        let (rows, columns, layout) = shape;
        let code = data_type(dtype).ok_or_else(|| no_dtype(dtype))?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointer is valid for a write.
        let code = unsafe {
            lt.api.cublasLtMatrixLayoutCreate(&mut handle, code, rows, columns, layout.ld as i64)
        };
        lt.check(code, doing)?;
        let this = MatrixLayout { lt: lt.clone(), handle };
        if batch > 1 {
            this.set(A::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &(batch as i32))?;
            this.set(A::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &(layout.batch as i64))?;
        }
        Ok(this)
    }

    fn set<T: Copy>(&self, attribute: cublasLtMatrixLayoutAttribute_t, value: &T) -> Result<()> {
        let bytes = size_of::<T>();
        // SAFETY: the value is valid for reads of its size, which the library checks against the
        // attribute's.
        let code = unsafe {
            let value = std::ptr::from_ref(value).cast::<c_void>();
            self.lt.api.cublasLtMatrixLayoutSetAttribute(self.handle, attribute, value, bytes)
        };
        self.lt.check(code, || format!("{} ({attribute:?})", doing()))
    }
}

impl Preference {
    /// At most `workspace` bytes; matrices of this alignment. Sums that are split are combined
    /// out of place, in the accumulator's dtype, which gives the same bits each time.
    pub(super) fn new(lt: &Arc<Lt>, workspace: u64, alignment: &Alignment) -> Result<Preference> {
        use cublasLtMatmulPreferenceAttributes_t as A;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointer is valid for a write.
        let code = unsafe { lt.api.cublasLtMatmulPreferenceCreate(&mut handle) };
        lt.check(code, doing)?;
        let this = Preference { lt: lt.clone(), handle };
        this.set(A::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace)?;
        this.set(A::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &REDUCTIONS)?;
        this.set(A::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment.rhs)?;
        this.set(A::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &alignment.lhs)?;
        this.set(A::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &alignment.out)?;
        this.set(A::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &alignment.out)?;
        Ok(this)
    }

    fn set<T: Copy>(
        &self,
        attribute: cublasLtMatmulPreferenceAttributes_t,
        value: &T,
    ) -> Result<()> {
        let bytes = size_of::<T>();
        // SAFETY: the value is valid for reads of its size, which the library checks against the
        // attribute's.
        let code = unsafe {
            let value = std::ptr::from_ref(value).cast::<c_void>();
            self.lt.api.cublasLtMatmulPreferenceSetAttribute(self.handle, attribute, value, bytes)
        };
        self.lt.check(code, || format!("{} ({attribute:?})", doing()))
    }
}

/// Permitted reduction schemes: out of place in the compute type. Not in place (in the result's
/// dtype, one block after another), and not in the output's dtype (it rounds in between).
pub(super) const REDUCTIONS: u32 =
    cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;

impl Drop for Description {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once.
        let _ = unsafe { self.lt.api.cublasLtMatmulDescDestroy(self.handle) };
    }
}

impl Drop for MatrixLayout {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once.
        let _ = unsafe { self.lt.api.cublasLtMatrixLayoutDestroy(self.handle) };
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once.
        let _ = unsafe { self.lt.api.cublasLtMatmulPreferenceDestroy(self.handle) };
    }
}
