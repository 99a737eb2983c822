//! Targets for tests of the compiler.

use wengert_core::Target;
use wengert_core::target::{Approximations, Workspace};

/// A target like a GPU's: wide trees, followers of products, workspace for calls.
/// The compiler's tests do not know the crate of the kernels, which has the true one.
pub fn gpu() -> Target {
    Target {
        name: "gpu".into(),
        reduction_lanes: 1024,
        least_lanes: 1,
        column_lanes: 32,
        reduction_block: 1 << 16,
        busy_rows: 256,
        busy_columns: 16384,
        least_part: 1024,
        // Much fewer than a GPU's, so that small graphs have wide reductions.
        wide_columns: 64,
        band_rows: 4,
        alignment: 256,
        row_alignment: 16,
        row_storage: 44 << 10,
        attention_row: 1 << 10,
        attention_out: true,
        followers: true,
        residual_first: true,
        lays_out: false,
        rematerializes: true,
        approximations: Approximations::Available,
        workspace: Workspace::Promised(|_| 64 << 10),
        ..Target::cpu()
    }
}
