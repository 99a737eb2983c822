//! A function or region to be planned.

use super::moves::Moves;
use super::nests::Nests;
use super::planned::Planned;
use super::run::Run;
use super::slots::{Arena, Slots};
use crate::kernels::Kernels;
use crate::pass::Pass;
use wengert_core::plan::{NestId, Plan};
use wengert_core::{Binding, Result, Target};

/// A pass that decides the order of kernels.
pub(crate) type OrderPass = Pass<for<'a, 'k, 't> fn(&'a mut Part<'k, 't>) -> Result<()>>;
/// A pass that decides addresses, for a given order.
pub(crate) type LayoutPass = Pass<for<'a, 'r, 't> fn(&'a mut Layout<'r, 't>) -> Result<()>>;

/// The passes of memory planning, in their order.
#[derive(Clone, Copy)]
pub(crate) struct Passes {
    /// Passes that order kernels.
    pub order: &'static [OrderPass],
    /// Passes that lay out memory. They run for each order that a budget makes planning try.
    pub layout: &'static [LayoutPass],
}

/// The plans of a kernel's regions. Most kernels have none.
#[derive(Default)]
pub(super) struct Regions {
    pub plans: Vec<Planned<Plan>>,
    /// Bytes of the arena that the regions need.
    pub workspace: u64,
    /// Offset of the regions' own arenas in it: after the predicate of a while.
    pub arena: u64,
}

/// A function or region to be planned.
pub(crate) struct Part<'k, 't> {
    pub(super) kernels: &'k Kernels,
    pub(super) target: &'k Target,
    pub(super) binding: &'k Binding,
    pub(super) passes: Passes,
    /// Whether memory is spent so that kernels can share launches: the bytes of small buffers rest
    /// after their last use, and small updates are late.
    pub(super) rests: bool,
    pub(super) nests: Nests<'t>,
    /// The planned regions of each kernel.
    pub(super) regions: Vec<Regions>,
    /// The workspace of each kernel.
    pub(super) workspaces: Vec<u64>,
    /// The order of the kernels' first executions.
    pub(super) order: Vec<usize>,
}

/// A run of a part's kernels whose layout is being decided.
pub(crate) struct Layout<'r, 't> {
    pub(super) run: Run<'r>,
    pub(super) alignment: u64,
    pub(super) rests: bool,
    pub(super) nests: Nests<'t>,
    pub(super) workspaces: Vec<u64>,
    pub(super) moves: Moves,
    pub(super) slots: Slots,
    pub(super) arena: Arena,
}

/// A run with its layout decided.
pub(super) struct Laid<'k> {
    pub run: Run<'k>,
    /// The nest of each kernel.
    pub nests: Vec<Option<NestId>>,
    pub moves: Moves,
    pub slots: Slots,
    pub arena: Arena,
}

impl<'k, 't> Part<'k, 't> {
    /// The part, with the order of its kernels.
    pub(super) fn new(
        kernels: &'k Kernels,
        target: &'k Target,
        binding: &'k Binding,
        passes: Passes,
        rests: bool,
        nests: Nests<'t>,
    ) -> Result<Self> {
        let (regions, workspaces) = (Vec::new(), Vec::new());
        let order = (0..kernels.kernels.len()).collect();
        let mut part =
            Part { kernels, target, binding, passes, rests, nests, regions, workspaces, order };
        for pass in passes.order {
            pass.within(|run| run(&mut part))?;
        }
        Ok(part)
    }

    /// The layout without repetitions.
    pub(super) fn given(&mut self) -> Result<Laid<'k>> {
        self.lay(Run::given(self.kernels, self.order.clone()))
    }

    /// Decides the layout of a run.
    pub(super) fn lay<'r>(&mut self, run: Run<'r>) -> Result<Laid<'r>> {
        let mut layout = Layout {
            alignment: self.target.alignment,
            rests: self.rests,
            nests: self.nests.of_run(&run),
            workspaces: run.workspaces(&self.workspaces),
            moves: Moves::default(),
            slots: Slots::default(),
            arena: Arena::default(),
            run,
        };
        for pass in self.passes.layout {
            pass.within(|run| run(&mut layout))?;
        }
        let Layout { run, nests, moves, slots, arena, .. } = layout;
        Ok(Laid { run, nests: nests.of_kernel, moves, slots, arena })
    }
}
