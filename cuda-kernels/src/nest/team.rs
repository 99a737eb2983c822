//! A team of threads for a row.
//!
//! A team is 2 to 1024 threads, a power of two. A team of up to 32 threads consists of
//! neighbouring lanes of a warp (or a part of it), and exchanges values by shuffles. A larger
//! team is a block, and exchanges values through shared memory. A *column* team's threads are not
//! neighbours: neighbouring threads of its block belong to neighbouring rows. So a reduction along
//! an outer axis reads whole lines of memory. A column team may do several neighbouring rows, whose
//! elements are one vector access.

use super::emit::{Copy, Emit};
use crate::architecture::WARP;
use crate::ptx::{Inst, Operand, Reg};
use std::collections::BTreeMap;
use wengert_core::DType;
use wengert_core::Id;
use wengert_core::nest::merge::MergedAxis;
use wengert_core::nest::{Affine, AxisId, BufferId, Nest};

/// Maximum number of blocks of a launch along x.
pub(super) const MAX_GRID: u64 = (1 << 31) - 1;

/// The threads of a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Layout {
    /// Threads of a row.
    pub threads: u32,
    /// Rows of a block.
    pub rows: u32,
    /// Neighbouring rows of a thread; 1 except in a column team.
    pub vector: u32,
    /// Whether neighbouring threads belong to neighbouring rows.
    pub columns: bool,
}

impl Layout {
    /// Teams that each do a row.
    pub const fn team(threads: u32, rows: u32) -> Self {
        Layout { threads, rows, vector: 1, columns: false }
    }

    /// Teams whose threads are apart.
    pub const fn columns(threads: u32, rows: u32, vector: u32) -> Self {
        Layout { threads, rows, vector, columns: true }
    }

    /// Whether threads of a team exchange by shuffles alone.
    pub fn in_warp(self) -> bool {
        !self.columns && self.threads <= WARP
    }

    /// Teams of a block.
    pub fn teams(self) -> u32 {
        self.rows / self.vector
    }

    /// Threads of a block.
    pub fn block(self) -> u32 {
        self.threads * self.teams()
    }
}

/// State of a team during emission.
pub(super) struct Team<'a> {
    pub layout: Layout,
    pub nest: &'a Nest,
    /// Pairs of parameters that alias.
    pub in_place: &'a [(usize, usize)],
    /// The number of the thread in its team, and its axis.
    pub thread: Reg,
    pub axis: AxisId,
    /// The number of the team in its block.
    pub team: Reg,
    /// The number of the thread in its block.
    pub linear: Reg,
    /// Lane mask of the team, for shuffles.
    pub members: Operand,
    /// Shared memory for exchanging values, and the bytes of it in use.
    pub exchange: Option<(Reg, usize)>,
    /// Memory for the results of a row, and its bytes.
    pub results: Option<(Reg, usize)>,
    pub storage: Storage,
}

/// The row storages of a block's teams, in shared memory.
#[derive(Default)]
pub(super) struct Storage {
    /// The name of the array that has them, team by team.
    pub array: &'static str,
    /// Bytes of a team's.
    pub bytes: i64,
    /// Where each buffer begins in a team's.
    pub at: BTreeMap<BufferId, i64>,
}

impl Team<'_> {
    /// Synchronises the team, and makes its writes visible.
    pub fn wait(&self, emit: &mut Emit<'_>) {
        if self.layout.in_warp() {
            emit.code.push(Inst::WarpBarrier(self.members.clone()));
        } else {
            emit.code.push(Inst::Barrier);
        }
    }
}

/// Bytes of a register in an exchange.
pub(super) fn exchange_size(dtype: DType) -> usize {
    dtype.size().max(4)
}

/// Sets the axes of groups to the digits of a number, the last one fastest.
pub(super) fn place(copy: &mut Copy, groups: &[MergedAxis], number: &Affine) {
    let mut rest = number.clone();
    for (n, group) in groups.iter().enumerate().rev() {
        let extent = group.extent as i64;
        let innermost = group.axes.last().expect("no group is empty").index();
        copy.axes[innermost] = if n == 0 { rest.clone() } else { rest.modulo(extent) };
        rest = rest.floor_div(extent);
    }
}
