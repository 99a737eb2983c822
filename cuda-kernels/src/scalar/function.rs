//! Approximated functions.

use super::Functions;
use crate::ptx::{Code, Reg};
use wengert_core::nest::ScalarOp;
use wengert_core::{DType, Diagnostic, Result};

/// `op` of the operands, with the bits of [`wengert_core::math`].
pub(super) fn emit(
    _code: &mut Code,
    _functions: &mut Functions,
    op: ScalarOp,
    dtype: DType,
    _operands: &[Reg],
) -> Result<Reg> {
    Err(Diagnostic::new(format!("`{}` of {dtype} has no program for GPUs", op.name()))
        .help("run the program on the CPU"))
}
