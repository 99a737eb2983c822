//! Options of a device.

use std::path::PathBuf;

/// Options of a device. `threads` is for the CPU. The file and the choices of products and the
/// capture are for GPUs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceOptions {
    /// Number of threads, the calling one included, from 1 to 4096. None is the number in the
    /// environment variable `WENGERT_THREADS`, else that of the processors which the process may
    /// use; all sessions of the process then share these threads. The bits are the same for any
    /// number.
    pub threads: Option<usize>,
    /// Whether the steps of a run are captured into a CUDA graph and replayed as one. The bits
    /// are the same either way. The environment variable `WENGERT_CUDA_CAPTURE=0` changes the
    /// default to off.
    pub capture: bool,
    /// A file with the fastest cuBLASLt algorithms for one GPU and library version. The same file
    /// gives the same bits.
    pub tuning: Option<PathBuf>,
    /// Whether products that the tuning file lacks are measured at compile time and added to it.
    pub autotune: bool,
    /// Whether cuBLASLt may use its fastest algorithms for f32: round operands to tf32, and add a
    /// residual before a bias. Results then differ from other devices' by more than the order of
    /// sums.
    pub fast_products: bool,
    /// Whether the bits of a row do not depend on the number of rows that are computed with it: of
    /// examples of a batch, of tokens of a prompt. Products are then by kernels of this library,
    /// and neither they nor reductions are split for more parallelism, which costs time where there
    /// are few rows. Without it, the same compiled shape gives the same bits.
    pub batch_invariant: bool,
    /// Whether GPUs may compute `exp`, `log`, `tanh`, `sqrt` and quotients of f32 by approximate
    /// instructions, with the errors that [`wengert_core::nest::approximate`] states, where their
    /// own code computes them: not in attention and other calls. Halves are computed in f32.
    /// Results then differ from other devices' in these errors. It has no effect on initial values
    /// of variables, and none on devices without such instructions: the CPU and the interpreter.
    pub approximate_functions: bool,
    /// Most bytes of all memory that a function may take: its variables, inputs, outputs,
    /// constants and arena. Where its plan would take more, results are recomputed instead of
    /// kept; the bits are the same. A function that cannot run within the budget is an error.
    pub memory_budget: Option<u64>,
    /// Most operations of one run of a plan from a file ([`wengert_core::plan::work`]); a run
    /// that would take more is an error. A file may hold loops of any length, hence the limit.
    /// The default is [`format::plan::WORK_LIMIT`](crate::format::plan::WORK_LIMIT). Functions
    /// compiled in this process have no limit.
    pub work_limit: u64,
    /// Whether an index out of range makes the run an error ([`wengert_compiler::indices`]),
    /// instead of the op's defined result. Other results keep their bits. A run additionally
    /// reduces the indices of each lookup and copies the variables that it replaces.
    pub check_indices: bool,
    /// Whether what a function computes from its parameters alone is computed once and kept, before
    /// the first run and after each change of a variable, instead of in each run
    /// ([`wengert_compiler::invariants`]). It takes the memory of these results besides; the bits
    /// are the same. It has no effect on functions that replace variables, on plans from files,
    /// and where functions are interpreted.
    pub keep_invariants: bool,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        let capture = std::env::var_os("WENGERT_CUDA_CAPTURE").is_none_or(|value| value != "0");
        let work_limit = crate::format::plan::WORK_LIMIT;
        DeviceOptions {
            threads: None,
            capture,
            tuning: None,
            autotune: false,
            fast_products: false,
            batch_invariant: false,
            approximate_functions: false,
            memory_budget: None,
            work_limit,
            check_indices: false,
            keep_invariants: false,
        }
    }
}
