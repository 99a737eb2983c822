//! The passes of memory planning, which [`crate::pipeline`] lists.

use super::emit::emit;
use super::homes::Homes;
use super::part::{Layout, Part, Regions};
use super::planned::Planned;
use super::slots::{self, Slots};
use crate::kernels::control::Form;
use crate::kernels::{Kernel, Kernels, Work};
use crate::schedule::{self, Costs};
use wengert_core::plan::Plan;
use wengert_core::{Result, Target};

/// The pass `plan_regions`.
pub(crate) fn plan_regions(part: &mut Part<'_, '_>) -> Result<()> {
    let kernels = part.kernels;
    let regions = kernels.kernels.iter().map(|kernel| regions_of(part, kernel));
    part.regions = regions.collect::<Result<_>>()?;
    let workspace = |k| workspace(part.kernels, k, part.target, &part.regions);
    part.workspaces = (0..part.kernels.kernels.len()).map(workspace).collect();
    Ok(())
}

/// Plans the regions of a kernel, each without repetitions.
fn regions_of(part: &mut Part<'_, '_>, kernel: &Kernel) -> Result<Regions> {
    let Work::Control(control) = &kernel.work else { return Ok(Regions::default()) };
    let Part { target, binding, passes, rests, .. } = *part;
    let plans = control.regions.iter().map(|region| {
        let nests = part.nests.of_region(region);
        let mut inner = Part::new(region, target, binding, passes, rests, nests)?;
        let laid = inner.given()?;
        Ok(emit(&inner, &laid))
    });
    let plans: Vec<Planned<Plan>> = plans.collect::<Result<_>>()?;
    let conditional = matches!(control.form(kernel), Form::Loop(l) if l.conditional);
    let arena = if conditional { target.alignment } else { 0 };
    // One region runs at a time.
    let most = plans.iter().map(|p| p.plan.arena).max().unwrap_or(0);
    Ok(Regions { plans, workspace: arena + most, arena })
}

/// Bytes that kernel `k` needs besides its buffers: the workspace of a call, or the arena of
/// regions.
fn workspace(kernels: &Kernels, k: usize, target: &Target, regions: &[Regions]) -> u64 {
    match &kernels.kernels[k].work {
        Work::Call(call) => target.workspace(call),
        Work::Followed(followed) => target.workspace(&followed.call),
        Work::Nest(_) => 0,
        Work::Control(_) => regions[k].workspace,
    }
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
    part.order = schedule::order(kernels, &costs, part.rests);
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
    layout.moves = super::moves::moves(&layout.run.kernels, &layout.slots.homes);
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
    layout.arena = layout.slots.solve(layout.alignment, layout.rests)?;
    Ok(())
}
