//! Prepares products, measures algorithms for them, and enqueues them.

use super::algorithm::{Algorithm, HeuristicResult};
use super::api::Lt;
use super::descriptor::{Description, MatrixLayout, Preference};
use super::form::{Form, Why};
use super::problem::{Alignment, Operands, Problem};
use super::tuning::{Key, Tuned, Tuning};
use crate::driver::allocation::Address;
use crate::driver::context::Device;
use crate::driver::error::{DeviceError, Result};
use crate::driver::primary::LtHandle;
use cudarc::cublaslt::sys::cublasLtHandle_t;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};
use wengert_core::DType;
use wengert_core::call::{Scale, Scales};

/// Alignment of the workspace.
const WORKSPACE_ALIGNMENT: u32 = 256;
/// The first version with scales of rows, as [`Lt::version`].
const SCALES_OF_ROWS: u32 = 120_900;
/// Algorithms that `--autotune` measures.
const MEASURED: usize = 16;

/// cuBLASLt on a device. The handle is the [primary context's](crate::driver::primary), which the
/// device keeps.
pub struct Blas {
    device: Device,
    pub(super) lt: Arc<Lt>,
    handle: cublasLtHandle_t,
}

// SAFETY: a handle of cuBLASLt may be used from any thread, and from several at once (cuBLASLt
// documentation, thread safety).
unsafe impl Send for Blas {}
// SAFETY: as above.
unsafe impl Sync for Blas {}

/// A product, ready to be executed any number of times.
pub struct Prepared {
    problem: Problem,
    alignment: Alignment,
    algorithm: Algorithm,
    /// The form that the library accepted: remaining addends, and differences.
    form: Option<Form>,
    /// Behind a lock, since each execution writes the address of the bias into it.
    description: Mutex<Description>,
    a: MatrixLayout,
    b: MatrixLayout,
    d: MatrixLayout,
    /// Source of the algorithm, and failed attempts: a line each.
    pub notes: Vec<String>,
}

// SAFETY: descriptors are plain memory of the library; the one that changes is behind a lock.
unsafe impl Send for Prepared {}
// SAFETY: as above.
unsafe impl Sync for Prepared {}

impl Prepared {
    /// The algorithm.
    pub fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    /// The prepared form, if it is a plan's GEMM: the done and the remaining steps. It may be the
    /// plain form of the requested one.
    pub fn form(&self) -> Option<&Form> {
        self.form.as_ref()
    }

    /// The product.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }
}

impl Device {
    /// cuBLASLt for this device, started by the first call in this process.
    ///
    /// Errors: the library is missing, too old, or does not start.
    pub fn blas(&self) -> Result<Blas> {
        self.context.not_capturing("starting cuBLASLt")?;
        self.context.enter()?;
        let LtHandle { lt, handle } = self.context.lt()?;
        Ok(Blas { device: self.clone(), lt, handle })
    }
}

impl Blas {
    /// The library.
    pub fn library(&self) -> &Lt {
        &self.lt
    }

    /// Prepares a form of a plan's GEMM; if the library has no algorithm for its addends, the
    /// plain form, if there is one. `in_place`: the residual's buffer is out's.
    ///
    /// The inner error says why cuBLASLt does not do it; a kernel of this crate does it then.
    pub fn prepare(
        &self,
        form: &Form,
        in_place: bool,
        alignment: &Alignment,
        workspace: u64,
        tuning: &Tuning,
    ) -> Result<Result<Prepared, Why>> {
        let why = match self.prepare_problem(&form.problem, alignment, workspace, tuning)? {
            Ok(prepared) => return Ok(Ok(Prepared { form: Some(form.clone()), ..prepared })),
            Err(why) => why,
        };
        let plain = match form.plain(in_place) {
            Some(Ok(plain)) if plain.problem != form.problem => plain,
            Some(Err(overwritten)) => return Ok(Err(overwritten)),
            _ => return Ok(Err(why)),
        };
        tracing::debug!(%why, problem = %form.problem, "the addends are left");
        Ok(self.prepare_problem(&plain.problem, alignment, workspace, tuning)?.map(
            |mut prepared| {
                prepared.notes.insert(0, format!("addends are a kernel of their own: {why}"));
                Prepared { form: Some(plain), ..prepared }
            },
        ))
    }

    /// Prepares a product that need not come from a plan.
    pub fn prepare_problem(
        &self,
        problem: &Problem,
        alignment: &Alignment,
        workspace: u64,
        tuning: &Tuning,
    ) -> Result<Result<Prepared, Why>> {
        let of_rows = |scales: Scales| [scales.lhs, scales.rhs].contains(&Scale::Rows);
        if problem.scales.is_some_and(of_rows) && self.lt.version < SCALES_OF_ROWS {
            let version = self.lt.version_text();
            let answer = "that scales of rows need version 12.9".into();
            return Ok(Err(Why::NoAlgorithm { version, answer }));
        }
        let mut prepared = self.describe(problem, alignment)?;
        let key = self.key(problem, alignment, workspace);
        if let Some(tuned) = tuning.get(&key) {
            match self.check(&prepared, tuned, workspace)? {
                Ok(algorithm) => {
                    prepared.notes.push(format!("{} (tuned)", algorithm.text));
                    prepared.algorithm = algorithm;
                    return Ok(Ok(prepared));
                }
                Err(why) => {
                    prepared.notes.push(format!("the tuning file's algorithm is not used: {why}"))
                }
            }
        }
        Ok(self.heuristic(&prepared, workspace, 1)?.map(|mut found| {
            prepared.algorithm = found.swap_remove(0);
            prepared.notes.push(prepared.algorithm.text.clone());
            prepared
        }))
    }

    /// The key of a product in tuning files.
    pub fn key(&self, problem: &Problem, alignment: &Alignment, workspace: u64) -> Key {
        let Alignment { lhs, rhs, out, bias } = alignment;
        Key {
            device: self.device.found().name.clone(),
            cublas_lt: self.lt.version,
            product: format!("{problem} aligned {lhs},{rhs},{out},{bias} workspace {workspace}"),
        }
    }

    /// Descriptors for a problem, without an algorithm.
    fn describe(&self, problem: &Problem, alignment: &Alignment) -> Result<Prepared> {
        self.device.context.not_capturing("preparing a product")?;
        self.device.context.enter()?;
        let lt = &self.lt;
        let [a, b, d] = problem.stored();
        Ok(Prepared {
            problem: problem.clone(),
            alignment: *alignment,
            algorithm: Algorithm {
                opaque: HeuristicResult::NONE.algorithm,
                workspace: 0,
                text: String::new(),
            },
            form: None,
            description: Mutex::new(Description::new(lt, problem, alignment)?),
            a: MatrixLayout::new(lt, problem.operands[0], a, problem.batch)?,
            b: MatrixLayout::new(lt, problem.operands[1], b, problem.batch)?,
            d: MatrixLayout::new(lt, problem.result, d, problem.batch)?,
            notes: Vec::new(),
        })
    }

    /// The first algorithms that the library offers; at least one.
    fn heuristic(
        &self,
        prepared: &Prepared,
        workspace: u64,
        most: usize,
    ) -> Result<Result<Vec<Algorithm>, Why>> {
        let lt = &*self.lt;
        let preference = Preference::new(&self.lt, workspace, &prepared.alignment)?;
        let mut results = vec![HeuristicResult::NONE; most];
        let mut returned = 0;
        let description = prepared.description.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: all descriptors live; the list has room for `most` results, whose layout is the
        // library's (asserted in `algorithm`).
        let code = unsafe {
            lt.api.cublasLtMatmulAlgoGetHeuristic(
                self.handle,
                description.handle,
                prepared.a.handle,
                prepared.b.handle,
                prepared.d.handle,
                prepared.d.handle,
                preference.handle,
                most as i32,
                results.as_mut_ptr().cast(),
                &mut returned,
            )
        };
        drop(description);
        let none =
            |answer: String| Ok(Err(Why::NoAlgorithm { version: lt.version_text(), answer }));
        // A version says "not supported" for a feature that it lacks, or "invalid value" for an
        // attribute value that it does not know.
        const INVALID_VALUE: u32 = 7;
        const NOT_SUPPORTED: u32 = 15;
        let doing = || format!("looking for an algorithm for {}", prepared.problem);
        match lt.check(code, doing) {
            Ok(()) => {}
            Err(error) if matches!(code.code, INVALID_VALUE | NOT_SUPPORTED) => {
                return none(match error.cause {
                    crate::driver::Cause::Call { name, .. } => name,
                    _ => String::new(),
                });
            }
            Err(error) => return Err(error),
        }
        results.truncate(returned.max(0) as usize);
        let usable = |r: &&HeuristicResult| r.state == 0 && r.workspace as u64 <= workspace;
        let found: Vec<_> = results
            .iter()
            .filter(usable)
            .map(|r| Algorithm::new(lt, r.algorithm, r.workspace as u64))
            .collect();
        if found.is_empty() { none(String::new()) } else { Ok(Ok(found)) }
    }

    /// The algorithm of a tuning file, if the library accepts it.
    fn check(
        &self,
        prepared: &Prepared,
        tuned: &Tuned,
        workspace: u64,
    ) -> Result<Result<Algorithm, String>> {
        let lt = &*self.lt;
        let Some(opaque) = Algorithm::from_hex(&tuned.algorithm) else {
            return Ok(Err("it is not 64 bytes".into()));
        };
        let mut result = HeuristicResult::NONE;
        let description = prepared.description.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: all descriptors live; the result's layout is the library's. The library checks
        // the algorithm against the problem.
        let code = unsafe {
            lt.api.cublasLtMatmulAlgoCheck(
                self.handle,
                description.handle,
                prepared.a.handle,
                prepared.b.handle,
                prepared.d.handle,
                prepared.d.handle,
                &opaque,
                std::ptr::from_mut(&mut result).cast(),
            )
        };
        drop(description);
        if let Err(error) = lt.check(code, || "checking it".into()) {
            return Ok(Err(wengert_core::Diagnostic::from(error).message));
        }
        if result.workspace as u64 > workspace {
            return Ok(Err(format!("it needs {} bytes of workspace", result.workspace)));
        }
        Ok(Ok(Algorithm::new(lt, opaque, result.workspace as u64)))
    }

    /// Enqueues the product. `workspace` is the address of at least [`Algorithm::workspace`]
    /// bytes. May be captured.
    ///
    /// Errors: an address is less aligned than promised, or its matrix does not lie in an
    /// allocation.
    pub fn execute(
        &self,
        prepared: &Prepared,
        operands: &Operands,
        workspace: Address,
    ) -> Result<()> {
        let problem = &prepared.problem;
        let doing = || format!("the product {problem}");
        let refused = |why: String| Err(DeviceError::refused(doing(), why, "please report it"));
        // An unused address counts as aligned.
        let mut used = *operands;
        if !problem.accumulate {
            used.residual = used.out;
        }
        if !problem.bias {
            used.bias = Address(0);
        }
        if !prepared.alignment.holds(&used) {
            return refused(format!("{used:?} are not aligned to {:?}", prepared.alignment));
        }
        let needed = prepared.algorithm.workspace;
        if needed > 0 && workspace.alignment() < WORKSPACE_ALIGNMENT {
            return refused(format!(
                "a workspace at {workspace:?} is not aligned to {WORKSPACE_ALIGNMENT}"
            ));
        }
        let [a, b, d] = problem.stored().map(|matrix| problem.span(matrix));
        let [a_size, b_size] = problem.operands.map(|dtype| dtype.size() as u64);
        let result = problem.result.size() as u64;
        let bias = if problem.bias { problem.m * result } else { 0 };
        let scales = problem.scales.map_or([0; 2], |Scales { lhs, rhs }| {
            let bytes = |scale, rows: u64| if scale == Scale::Rows { 4 * rows } else { 4 };
            [bytes(lhs, problem.n), bytes(rhs, problem.m)]
        });
        for (address, bytes) in [
            (used.rhs, a * a_size),
            (used.lhs, b * b_size),
            (used.scales[0], scales[0]),
            (used.scales[1], scales[1]),
            (used.out, d * result),
            (used.residual, d * result),
            (used.bias, bias),
            (workspace, needed),
        ] {
            if bytes > 0 {
                self.device.within("a matrix product", address, bytes)?;
            }
        }
        let context = &*self.device.context;
        context.submitting("a matrix product")?;
        context.enter()?;
        let beta = f64::from(u8::from(problem.accumulate));
        let double = problem.scale() == DType::F64;
        let (single, whole) = ([1.0f32, beta as f32], [1.0f64, beta]);
        let scalar = |n: usize| -> *const c_void {
            if double { whole[n..].as_ptr().cast() } else { single[n..].as_ptr().cast() }
        };
        let pointer = |address: Address| address.0 as usize as *mut c_void;
        let description = prepared.description.lock().unwrap_or_else(PoisonError::into_inner);
        description.point(problem, &used)?;
        // SAFETY: all descriptors live. The matrices lie in allocations of this device and have
        // the alignment that the algorithm was chosen for, and so does the workspace. alpha and
        // beta are of the scale type, on the host (the default pointer mode), and read during the
        // call. The stream is of the context that the handle was made in.
        let code = unsafe {
            self.lt.api.cublasLtMatmul(
                self.handle,
                description.handle,
                scalar(0),
                pointer(used.rhs),
                prepared.a.handle,
                pointer(used.lhs),
                prepared.b.handle,
                scalar(1),
                pointer(used.residual),
                prepared.d.handle,
                pointer(used.out),
                prepared.d.handle,
                &prepared.algorithm.opaque,
                if needed > 0 { pointer(workspace) } else { std::ptr::null_mut() },
                needed as usize,
                context.stream.cast(),
            )
        };
        self.lt
            .check(code, || format!("{} ({})", doing(), prepared.algorithm.text))
            .map_err(|e| context.remember(e))
    }

    /// Measures the first algorithms that the library offers, and records the fastest in
    /// `tuning`. Overwrites the operands' buffers. Returns the entry.
    pub fn autotune(
        &self,
        problem: &Problem,
        alignment: &Alignment,
        workspace: (Address, u64),
        operands: &Operands,
        tuning: &mut Tuning,
    ) -> Result<Result<Tuned, Why>> {
        const WARM: usize = 2;
        const RUNS: usize = 8;
        let of_rows = |scales: Scales| [scales.lhs, scales.rhs].contains(&Scale::Rows);
        if problem.scales.is_some_and(of_rows) && self.lt.version < SCALES_OF_ROWS {
            let version = self.lt.version_text();
            let answer = "that scales of rows need version 12.9".into();
            return Ok(Err(Why::NoAlgorithm { version, answer }));
        }
        let mut prepared = self.describe(problem, alignment)?;
        let found = match self.heuristic(&prepared, workspace.1, MEASURED)? {
            Ok(found) => found,
            Err(why) => return Ok(Err(why)),
        };
        let (start, end) = (self.device.event(true)?, self.device.event(true)?);
        let mut best: Option<(f64, Algorithm)> = None;
        for algorithm in found {
            prepared.algorithm = algorithm;
            for _ in 0..WARM {
                self.execute(&prepared, operands, workspace.0)?;
            }
            start.record()?;
            for _ in 0..RUNS {
                self.execute(&prepared, operands, workspace.0)?;
            }
            end.record()?;
            end.wait()?;
            let microseconds = f64::from(end.milliseconds_since(&start)?) * 1e3 / RUNS as f64;
            tracing::debug!(microseconds, algorithm = prepared.algorithm.text, "measured");
            // On a tie the first, which the heuristic prefers.
            if best.as_ref().is_none_or(|(least, _)| microseconds < *least) {
                best = Some((microseconds, prepared.algorithm.clone()));
            }
        }
        let (microseconds, algorithm) = best.expect("the heuristic gave at least one");
        let tuned = Tuned { algorithm: algorithm.to_hex(), text: algorithm.text, microseconds };
        tuning.insert(self.key(problem, alignment, workspace.1), tuned.clone());
        Ok(Ok(tuned))
    }
}
