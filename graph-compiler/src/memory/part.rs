//! A function or region to be planned, and the passes over it.

use super::Planned;
use super::budget::Run;
use super::emit;
use super::homes::Homes;
use super::moves::{self, Moves};
use super::nests::Nests;
use super::regions::Regions;
use super::slots::{self, Arena, Slots};
use crate::kernels::Kernels;
use crate::pass::{Pass, within};
use crate::schedule::{self, Costs};
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

/// A function or region to be planned.
pub(crate) struct Part<'k, 't> {
    pub(super) kernels: &'k Kernels,
    pub(super) target: &'k Target,
    pub(super) binding: &'k Binding,
    passes: Passes,
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
    run: Run<'r>,
    alignment: u64,
    nests: Nests<'t>,
    workspaces: Vec<u64>,
    moves: Moves,
    slots: Slots,
    arena: Arena,
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
        nests: Nests<'t>,
    ) -> Result<Self> {
        let (regions, workspaces) = (Vec::new(), Vec::new());
        let order = (0..kernels.kernels.len()).collect();
        let mut part = Part { kernels, target, binding, passes, nests, regions, workspaces, order };
        for pass in passes.order {
            pass.within(|run| run(&mut part))?;
        }
        Ok(part)
    }

    /// The plan of a region, without repetitions.
    pub(super) fn region(&mut self, region: &Kernels) -> Result<Planned<Plan>> {
        let nests = self.nests.of_region(region);
        let mut part = Part::new(region, self.target, self.binding, self.passes, nests)?;
        let laid = part.given()?;
        Ok(part.emit(&laid))
    }

    /// The layout without repetitions.
    pub(super) fn given(&mut self) -> Result<Laid<'k>> {
        self.lay(Run::given(self.kernels, self.order.clone()))
    }

    /// Decides the layout of a run.
    pub(super) fn lay<'r>(&mut self, run: Run<'r>) -> Result<Laid<'r>> {
        let mut layout = Layout {
            alignment: self.target.alignment,
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

    /// Emits the plan, without its nests: they are in the table.
    pub(super) fn emit(&self, laid: &Laid<'_>) -> Planned<Plan> {
        within("emit", || emit::emit(self, laid))
    }
}

/// The pass `plan_regions`.
pub(crate) fn plan_regions(part: &mut Part<'_, '_>) -> Result<()> {
    part.regions = Regions::plan(part)?;
    let workspace = |k| slots::workspace(part.kernels, k, part.target, &part.regions);
    part.workspaces = (0..part.kernels.kernels.len()).map(workspace).collect();
    Ok(())
}

/// The pass `schedule`.
pub(crate) fn schedule(part: &mut Part<'_, '_>) -> Result<()> {
    let kernels = part.kernels;
    let mut bytes = Homes::fixed(kernels).arena_bytes(kernels);
    let aligned =
        |bytes: u64| bytes.checked_next_multiple_of(part.target.alignment).unwrap_or(bytes);
    bytes.iter_mut().for_each(|(_, b)| *b = aligned(*b));
    let workspace: Vec<u64> = part.workspaces.iter().map(|bytes| aligned(*bytes)).collect();
    let numbers = 0..kernels.kernels.len();
    let in_place: Vec<_> =
        numbers.map(|k| slots::in_place(kernels, k, &bytes, &mut part.nests)).collect();
    let costs = Costs { bytes: &bytes, workspace: &workspace, in_place: &in_place };
    part.order = schedule::order(kernels, &costs);
    Ok(())
}

/// The pass `homes`.
pub(crate) fn homes(layout: &mut Layout<'_, '_>) -> Result<()> {
    let Layout { run, nests, .. } = layout;
    let homes = Homes::fixed(&run.kernels).donate(&run.kernels, &run.order, nests);
    layout.slots = Slots::new(&run.kernels, homes);
    Ok(())
}

/// The pass `moves`.
pub(crate) fn moves(layout: &mut Layout<'_, '_>) -> Result<()> {
    layout.moves = moves::moves(&layout.run.kernels, &layout.slots.homes);
    Ok(())
}

/// The pass `slots`.
pub(crate) fn slots(layout: &mut Layout<'_, '_>) -> Result<()> {
    let Layout { run, nests, workspaces, moves, slots, .. } = layout;
    slots.assign(&run.kernels, &run.order, workspaces, moves, nests);
    Ok(())
}

/// The pass `offsets`.
pub(crate) fn offsets(layout: &mut Layout<'_, '_>) -> Result<()> {
    layout.arena = layout.slots.solve(layout.alignment)?;
    Ok(())
}
