//! A fake of cuBLASLt, written from its documentation: column-major matrices, `op`, leading
//! dimensions, batches, bias, on the host's memory. Sums are made in f64. The sum, `beta·C` and the
//! bias are added in the scale type, in this order, and D is rounded once at the end. 8-bit floats
//! have scales. The fake
//! checks sizes of attributes, alignments and bounds as the library does.

use super::stream::Node;
use super::{put, status, with};
use crate::driver::blas::Lt;
use cudarc::cublaslt::sys::*;
use half::{bf16, f16};
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::rc::Rc;
use wengert_core::{DType, Scalar};

const INVALID_VALUE: u32 = 7;
const NOT_SUPPORTED: u32 = 15;

#[derive(Default)]
pub(super) struct LtState {
    handles: usize,
    descriptions: BTreeMap<usize, Description>,
    layouts: BTreeMap<usize, Matrix>,
    preferences: BTreeMap<usize, BTreeMap<u32, u64>>,
}

#[derive(Clone)]
struct Description {
    compute: cublasComputeType_t,
    scale: cudaDataType,
    attributes: BTreeMap<u32, u64>,
}

#[derive(Clone, Copy, PartialEq)]
struct Matrix {
    dtype: cudaDataType,
    rows: u64,
    columns: u64,
    ld: i64,
    batch: u64,
    stride: u64,
}

impl LtState {
    pub(super) fn is_empty(&self) -> bool {
        self.handles == 0
            && self.descriptions.is_empty()
            && self.layouts.is_empty()
            && self.preferences.is_empty()
    }
}

pub(super) fn library() -> Lt {
    let api = crate::driver::blas::LtApi {
        cublasLtCreate,
        cublasLtDestroy,
        cublasLtMatmulDescCreate,
        cublasLtMatmulDescDestroy,
        cublasLtMatmulDescSetAttribute,
        cublasLtMatrixLayoutCreate,
        cublasLtMatrixLayoutDestroy,
        cublasLtMatrixLayoutSetAttribute,
        cublasLtMatmulPreferenceCreate,
        cublasLtMatmulPreferenceDestroy,
        cublasLtMatmulPreferenceSetAttribute,
        cublasLtMatmulAlgoGetHeuristic,
        cublasLtMatmulAlgoCheck,
        cublasLtMatmulAlgoConfigGetAttribute,
        cublasLtMatmul,
    };
    Lt { api, path: "fake".into(), version: 131_000, name: Some(status_name) }
}

unsafe extern "C" fn status_name(code: u32) -> *const c_char {
    match code {
        INVALID_VALUE => c"CUBLAS_STATUS_INVALID_VALUE",
        NOT_SUPPORTED => c"CUBLAS_STATUS_NOT_SUPPORTED",
        _ => c"CUBLAS_STATUS_OTHER",
    }
    .as_ptr()
}

unsafe extern "C" fn cublasLtCreate(handle: *mut cublasLtHandle_t) -> u32 {
    status(with(|s| {
        s.enter("cublasLtCreate")?;
        s.lt.handles += 1;
        // SAFETY: an out-pointer of the API.
        unsafe { put(handle, 0x77 as cublasLtHandle_t) };
        Ok(())
    }))
}

extern "C" fn cublasLtDestroy(_handle: cublasLtHandle_t) -> u32 {
    with(|s| s.lt.handles -= 1);
    0
}

unsafe extern "C" fn cublasLtMatmulDescCreate(
    description: *mut cublasLtMatmulDesc_t,
    compute: cublasComputeType_t,
    scale: cudaDataType,
) -> u32 {
    status(with(|s| {
        s.enter("cublasLtMatmulDescCreate")?;
        let handle = s.handle();
        s.lt.descriptions
            .insert(handle, Description { compute, scale, attributes: BTreeMap::new() });
        // SAFETY: an out-pointer of the API.
        unsafe { put(description, handle as cublasLtMatmulDesc_t) };
        Ok(())
    }))
}

extern "C" fn cublasLtMatmulDescDestroy(description: cublasLtMatmulDesc_t) -> u32 {
    with(|s| s.lt.descriptions.remove(&(description as usize))).map_or(INVALID_VALUE, |_| 0)
}

/// Reads a number of `bytes` bytes; an error if another size is expected.
///
/// # Safety
/// `value` has that many bytes.
unsafe fn number(value: *const c_void, bytes: usize, expected: usize) -> Result<u64, u32> {
    if bytes != expected {
        return Err(INVALID_VALUE);
    }
    let mut number = [0; 8];
    // SAFETY: the caller guarantees it, and there are at most 8.
    unsafe { number.as_mut_ptr().copy_from_nonoverlapping(value.cast(), bytes) };
    Ok(u64::from_le_bytes(number))
}

unsafe extern "C" fn cublasLtMatmulDescSetAttribute(
    description: cublasLtMatmulDesc_t,
    attribute: cublasLtMatmulDescAttributes_t,
    value: *const c_void,
    bytes: usize,
) -> u32 {
    use cublasLtMatmulDescAttributes_t as A;
    let expected = match attribute {
        A::CUBLASLT_MATMUL_DESC_TRANSA
        | A::CUBLASLT_MATMUL_DESC_TRANSB
        | A::CUBLASLT_MATMUL_DESC_EPILOGUE
        | A::CUBLASLT_MATMUL_DESC_A_SCALE_MODE
        | A::CUBLASLT_MATMUL_DESC_B_SCALE_MODE
        | A::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE => 4,
        _ => 8,
    };
    status(with(|s| {
        s.enter("cublasLtMatmulDescSetAttribute")?;
        // SAFETY: the value has that many bytes.
        let value = unsafe { number(value, bytes, expected)? };
        let description =
            s.lt.descriptions.get_mut(&(description as usize)).ok_or(INVALID_VALUE)?;
        description.attributes.insert(attribute as u32, value);
        Ok(())
    }))
}

unsafe extern "C" fn cublasLtMatrixLayoutCreate(
    layout: *mut cublasLtMatrixLayout_t,
    dtype: cudaDataType,
    rows: u64,
    columns: u64,
    ld: i64,
) -> u32 {
    status(with(|s| {
        s.enter("cublasLtMatrixLayoutCreate")?;
        if rows == 0 || columns == 0 || ld < rows as i64 {
            return Err(INVALID_VALUE);
        }
        let handle = s.handle();
        s.lt.layouts.insert(handle, Matrix { dtype, rows, columns, ld, batch: 1, stride: 0 });
        // SAFETY: an out-pointer of the API.
        unsafe { put(layout, handle as cublasLtMatrixLayout_t) };
        Ok(())
    }))
}

extern "C" fn cublasLtMatrixLayoutDestroy(layout: cublasLtMatrixLayout_t) -> u32 {
    with(|s| s.lt.layouts.remove(&(layout as usize))).map_or(INVALID_VALUE, |_| 0)
}

unsafe extern "C" fn cublasLtMatrixLayoutSetAttribute(
    layout: cublasLtMatrixLayout_t,
    attribute: cublasLtMatrixLayoutAttribute_t,
    value: *const c_void,
    bytes: usize,
) -> u32 {
    use cublasLtMatrixLayoutAttribute_t as A;
    status(with(|s| {
        s.enter("cublasLtMatrixLayoutSetAttribute")?;
        let layout = s.lt.layouts.get_mut(&(layout as usize)).ok_or(INVALID_VALUE)?;
        // SAFETY: the value has that many bytes.
        unsafe {
            match attribute {
                A::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT => layout.batch = number(value, bytes, 4)?,
                A::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET => {
                    layout.stride = number(value, bytes, 8)?
                }
                _ => return Err(INVALID_VALUE),
            }
        }
        Ok(())
    }))
}

unsafe extern "C" fn cublasLtMatmulPreferenceCreate(
    preference: *mut cublasLtMatmulPreference_t,
) -> u32 {
    status(with(|s| {
        s.enter("cublasLtMatmulPreferenceCreate")?;
        let handle = s.handle();
        s.lt.preferences.insert(handle, BTreeMap::new());
        // SAFETY: an out-pointer of the API.
        unsafe { put(preference, handle as cublasLtMatmulPreference_t) };
        Ok(())
    }))
}

extern "C" fn cublasLtMatmulPreferenceDestroy(preference: cublasLtMatmulPreference_t) -> u32 {
    with(|s| s.lt.preferences.remove(&(preference as usize))).map_or(INVALID_VALUE, |_| 0)
}

unsafe extern "C" fn cublasLtMatmulPreferenceSetAttribute(
    preference: cublasLtMatmulPreference_t,
    attribute: cublasLtMatmulPreferenceAttributes_t,
    value: *const c_void,
    bytes: usize,
) -> u32 {
    use cublasLtMatmulPreferenceAttributes_t as A;
    let expected = if attribute == A::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES { 8 } else { 4 };
    status(with(|s| {
        s.enter("cublasLtMatmulPreferenceSetAttribute")?;
        // SAFETY: the value has that many bytes.
        let value = unsafe { number(value, bytes, expected)? };
        let preference = s.lt.preferences.get_mut(&(preference as usize)).ok_or(INVALID_VALUE)?;
        preference.insert(attribute as u32, value);
        Ok(())
    }))
}

/// Three algorithms: 7 needs nothing, 8 needs 1 MiB, 9 needs 64 KiB. The last is the fastest, see
/// [`cublasLtMatmul`].
const ALGORITHMS: [(u64, usize); 3] = [(7, 0), (8, 1 << 20), (9, 64 << 10)];

fn algorithm(id: u64, workspace: usize) -> cublasLtMatmulHeuristicResult_t {
    cublasLtMatmulHeuristicResult_t {
        algo: cublasLtMatmulAlgo_t { data: [id, 0, 0, 0, 0, 0, 0, 0xabcd] },
        workspaceSize: workspace,
        state: cublasStatus_t::CUBLAS_STATUS_SUCCESS,
        wavesCount: 1.0,
        reserved: [0; 4],
    }
}

unsafe extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    _handle: cublasLtHandle_t,
    description: cublasLtMatmulDesc_t,
    a: cublasLtMatrixLayout_t,
    b: cublasLtMatrixLayout_t,
    c: cublasLtMatrixLayout_t,
    d: cublasLtMatrixLayout_t,
    preference: cublasLtMatmulPreference_t,
    requested: c_int,
    results: *mut cublasLtMatmulHeuristicResult_t,
    returned: *mut c_int,
) -> u32 {
    use cublasLtMatmulDescAttributes_t as D;
    use cublasLtMatmulPreferenceAttributes_t as P;
    status(with(|s| {
        s.enter("cublasLtMatmulAlgoGetHeuristic")?;
        let description = s.lt.descriptions.get(&(description as usize)).ok_or(INVALID_VALUE)?;
        let layout = |layout: cublasLtMatrixLayout_t| {
            s.lt.layouts.get(&(layout as usize)).ok_or(INVALID_VALUE)
        };
        layout(c)?;
        if !multiplies(description, [layout(a)?, layout(b)?, layout(d)?]) {
            return Err(NOT_SUPPORTED);
        }
        let preference = s.lt.preferences.get(&(preference as usize)).ok_or(INVALID_VALUE)?;
        let get = |attribute: P| preference.get(&(attribute as u32)).copied();
        assert_eq!(
            get(P::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK),
            Some(2),
            "reproducible sums only"
        );
        assert!(
            get(P::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES).is_some_and(|a| a.is_power_of_two())
        );
        let epilogue =
            description.attributes.get(&(D::CUBLASLT_MATMUL_DESC_EPILOGUE as u32)).copied();
        if epilogue == Some(cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS as u64) {
            let bias = description.attributes.get(&(D::CUBLASLT_MATMUL_DESC_BIAS_POINTER as u32));
            assert!(bias.is_some_and(|b| *b != 0), "a bias is there when algorithms are chosen");
        }
        let bound = get(P::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES).unwrap_or(0) as usize;
        let fits =
            ALGORITHMS.iter().filter(|(_, workspace)| *workspace <= bound).take(requested as usize);
        let mut count = 0;
        for (id, workspace) in fits {
            // SAFETY: the list has room for as many as are requested.
            unsafe { put(results.add(count), algorithm(*id, *workspace)) };
            count += 1;
        }
        // SAFETY: an out-pointer of the API.
        unsafe { put(returned, count as c_int) };
        Ok(())
    }))
}

unsafe extern "C" fn cublasLtMatmulAlgoCheck(
    _handle: cublasLtHandle_t,
    _description: cublasLtMatmulDesc_t,
    _a: cublasLtMatrixLayout_t,
    _b: cublasLtMatrixLayout_t,
    _c: cublasLtMatrixLayout_t,
    _d: cublasLtMatrixLayout_t,
    wanted: *const cublasLtMatmulAlgo_t,
    result: *mut cublasLtMatmulHeuristicResult_t,
) -> u32 {
    // SAFETY: a pointer of the API.
    let id = unsafe { (*wanted).data[0] };
    status(with(|s| {
        s.enter("cublasLtMatmulAlgoCheck")?;
        let (id, workspace) =
            ALGORITHMS.into_iter().find(|(n, _)| *n == id).ok_or(NOT_SUPPORTED)?;
        // SAFETY: an out-pointer of the API.
        unsafe { put(result, algorithm(id, workspace)) };
        Ok(())
    }))
}

unsafe extern "C" fn cublasLtMatmulAlgoConfigGetAttribute(
    algorithm: *const cublasLtMatmulAlgo_t,
    attribute: cublasLtMatmulAlgoConfigAttributes_t,
    value: *mut c_void,
    bytes: usize,
    written: *mut usize,
) -> u32 {
    use cublasLtMatmulAlgoConfigAttributes_t as C;
    match attribute {
        // SAFETY: pointers of the API; the value has room for 4 bytes.
        C::CUBLASLT_ALGO_CONFIG_ID if bytes == 4 => unsafe {
            put(value.cast(), (*algorithm).data[0] as u32);
            put(written, 4);
            0
        },
        C::CUBLASLT_ALGO_CONFIG_TILE_ID if bytes == 4 => unsafe {
            // SAFETY: as above.
            put(value.cast(), 20u32);
            0
        },
        _ => INVALID_VALUE,
    }
}

/// An element as a number.
fn load(dtype: cudaDataType, base: usize, at: u64) -> f64 {
    let at = at as usize;
    // SAFETY: the driver above has checked that the matrix lies in an allocation.
    unsafe {
        match dtype {
            cudaDataType::CUDA_R_16F => (*(base as *const f16).add(at)).to_f64(),
            cudaDataType::CUDA_R_16BF => (*(base as *const bf16).add(at)).to_f64(),
            cudaDataType::CUDA_R_32F => f64::from(*(base as *const f32).add(at)),
            cudaDataType::CUDA_R_64F => *(base as *const f64).add(at),
            cudaDataType::CUDA_R_8F_E4M3 => float8(DType::F8E4M3FN, *(base as *const u8).add(at)),
            cudaDataType::CUDA_R_8F_E5M2 => float8(DType::F8E5M2, *(base as *const u8).add(at)),
            other => panic!("{other:?} is not faked"),
        }
    }
}

fn float8(dtype: DType, bits: u8) -> f64 {
    Scalar::from_bits(dtype, bits.into()).to_f64()
}

/// Whether the library multiplies these matrices, if they are of 8-bit floats ("To use FP8
/// kernels" in the documentation of `cublasLtMatmul`).
fn multiplies(description: &Description, [a, b, d]: [&Matrix; 3]) -> bool {
    use cublasLtMatmulDescAttributes_t as A;
    let float8 =
        |m: &Matrix| matches!(m.dtype, cudaDataType::CUDA_R_8F_E4M3 | cudaDataType::CUDA_R_8F_E5M2);
    if !float8(a) && !float8(b) {
        return true;
    }
    let get = |attribute: A| description.attributes.get(&(attribute as u32)).copied().unwrap_or(0);
    let transposed = [get(A::CUBLASLT_MATMUL_DESC_TRANSA), get(A::CUBLASLT_MATMUL_DESC_TRANSB)];
    let modes =
        [get(A::CUBLASLT_MATMUL_DESC_A_SCALE_MODE), get(A::CUBLASLT_MATMUL_DESC_B_SCALE_MODE)];
    let bias = get(A::CUBLASLT_MATMUL_DESC_EPILOGUE) != 0;
    float8(a)
        && float8(b)
        && !(a.dtype == b.dtype && a.dtype == cudaDataType::CUDA_R_8F_E5M2)
        && transposed == [1, 0]
        && [a.rows as i64, a.ld, b.ld, d.rows as i64].iter().all(|n| n % 16 == 0)
        && modes[0] == modes[1]
        && !(bias && d.dtype == cudaDataType::CUDA_R_32F)
        && description.compute == cublasComputeType_t::CUBLAS_COMPUTE_32F
}

fn store(dtype: cudaDataType, base: usize, at: u64, value: f64) {
    let at = at as usize;
    // SAFETY: as in `load`.
    unsafe {
        match dtype {
            cudaDataType::CUDA_R_16F => (base as *mut f16).add(at).write(f16::from_f64(value)),
            cudaDataType::CUDA_R_16BF => (base as *mut bf16).add(at).write(bf16::from_f64(value)),
            cudaDataType::CUDA_R_32F => (base as *mut f32).add(at).write(value as f32),
            cudaDataType::CUDA_R_64F => (base as *mut f64).add(at).write(value),
            other => panic!("{other:?} is not faked"),
        }
    }
}

/// All parameters of a product.
struct Matmul {
    description: Description,
    a: (usize, Matrix),
    b: (usize, Matrix),
    c: (usize, Matrix),
    d: (usize, Matrix),
    alpha: f64,
    beta: f64,
}

impl Matmul {
    fn attribute(&self, attribute: cublasLtMatmulDescAttributes_t) -> u64 {
        self.description.attributes.get(&(attribute as u32)).copied().unwrap_or(0)
    }

    fn run(&self) {
        use cublasLtEpilogue_t as E;
        use cublasLtMatmulDescAttributes_t as A;
        let transposed = [A::CUBLASLT_MATMUL_DESC_TRANSA, A::CUBLASLT_MATMUL_DESC_TRANSB]
            .map(|t| self.attribute(t) == 1);
        let op = |(base, matrix): (usize, Matrix), transposed: bool, batch: u64, i: u64, j: u64| {
            let (i, j) = if transposed { (j, i) } else { (i, j) };
            assert!(i < matrix.rows && j < matrix.columns);
            load(matrix.dtype, base, batch * matrix.stride + i + j * matrix.ld as u64)
        };
        let (m, n) = (self.d.1.rows, self.d.1.columns);
        let k = if transposed[0] { self.a.1.rows } else { self.a.1.columns };
        let epilogue = self.attribute(A::CUBLASLT_MATMUL_DESC_EPILOGUE) as u32;
        let biased = epilogue == E::CUBLASLT_EPILOGUE_BIAS as u32;
        assert!(biased || epilogue == 0, "no other epilogue is used");
        let bias = self.attribute(A::CUBLASLT_MATMUL_DESC_BIAS_POINTER) as usize;
        let dtype = self.d.1.dtype;
        if biased {
            assert_eq!(self.attribute(A::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE), dtype as u64);
        }
        let double = self.description.scale == cudaDataType::CUDA_R_64F;
        let scaled = |x: f64| if double { x } else { f64::from(x as f32) };
        // Mode 3 has a scale for each row of A, and for each column of B.
        let scale =
            |pointer: A, mode: A, at: u64| match (self.attribute(pointer), self.attribute(mode)) {
                (0, _) => 1.0,
                (base, 0) => load(cudaDataType::CUDA_R_32F, base as usize, 0),
                (base, 3) => load(cudaDataType::CUDA_R_32F, base as usize, at),
                (_, other) => panic!("scales of mode {other} are not faked"),
            };
        let scales = |i: u64, j: u64| {
            scale(A::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, A::CUBLASLT_MATMUL_DESC_A_SCALE_MODE, i)
                * scale(
                    A::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
                    A::CUBLASLT_MATMUL_DESC_B_SCALE_MODE,
                    j,
                )
        };
        for batch in 0..self.d.1.batch {
            for j in 0..n {
                for i in 0..m {
                    let product = |l| {
                        op(self.a, transposed[0], batch, i, l)
                            * op(self.b, transposed[1], batch, l, j)
                    };
                    let mut x =
                        scaled(self.alpha * scales(i, j) * (0..k).map(product).sum::<f64>());
                    if self.beta != 0.0 {
                        x = scaled(x + self.beta * op(self.c, false, batch, i, j));
                    }
                    if biased {
                        x = scaled(x + load(dtype, bias, i));
                    }
                    let at = batch * self.d.1.stride + i + j * self.d.1.ld as u64;
                    store(dtype, self.d.0, at, x);
                }
            }
        }
    }
}

unsafe extern "C" fn cublasLtMatmul(
    _handle: cublasLtHandle_t,
    description: cublasLtMatmulDesc_t,
    alpha: *const c_void,
    a: *const c_void,
    a_layout: cublasLtMatrixLayout_t,
    b: *const c_void,
    b_layout: cublasLtMatrixLayout_t,
    beta: *const c_void,
    c: *const c_void,
    c_layout: cublasLtMatrixLayout_t,
    d: *mut c_void,
    d_layout: cublasLtMatrixLayout_t,
    algorithm: *const cublasLtMatmulAlgo_t,
    workspace: *mut c_void,
    workspace_bytes: usize,
    stream: cudaStream_t,
) -> u32 {
    status(with(|s| {
        s.enter("cublasLtMatmul")?;
        let description =
            s.lt.descriptions.get(&(description as usize)).cloned().ok_or(INVALID_VALUE)?;
        let layout = |layout: cublasLtMatrixLayout_t| {
            s.lt.layouts.get(&(layout as usize)).copied().ok_or(INVALID_VALUE)
        };
        let (a, b) = ((a as usize, layout(a_layout)?), (b as usize, layout(b_layout)?));
        let (c, d) = ((c as usize, layout(c_layout)?), (d as usize, layout(d_layout)?));
        // C and D are equal or disjoint; partial overlap is refused.
        assert!(
            c.0 == d.0 && c.1 == d.1 || c.0.abs_diff(d.0) >= (d.1.columns * d.1.ld as u64) as usize
        );
        // SAFETY: a pointer of the API.
        let id = unsafe { (*algorithm).data[0] };
        let (_, needed) = ALGORITHMS.into_iter().find(|(n, _)| *n == id).ok_or(INVALID_VALUE)?;
        if workspace_bytes < needed
            || (needed > 0 && (workspace.is_null() || !(workspace as usize).is_multiple_of(256)))
        {
            return Err(INVALID_VALUE);
        }
        let double = description.scale == cudaDataType::CUDA_R_64F;
        assert_eq!(double, description.compute == cublasComputeType_t::CUBLAS_COMPUTE_64F);
        // SAFETY: alpha and beta are of the scale type, on the host.
        let scalar = |p: *const c_void| unsafe {
            if double { p.cast::<f64>().read() } else { f64::from(p.cast::<f32>().read()) }
        };
        let (alpha, beta) = (scalar(alpha), scalar(beta));
        let matmul = Matmul { description, a, b, c, d, alpha, beta };
        // Time for measurements: the fake's clock counts the stream's work.
        let ticks = if id == 9 { 0 } else { 10 };
        s.submit(
            stream.cast(),
            Node::Other(Rc::new(move || {
                with(|s| s.clock += ticks);
                matmul.run();
            })),
        )
    }))
}
