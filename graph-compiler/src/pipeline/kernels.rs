//! Runs the passes from a body to kernels.
//!
//! A region of control flow goes through the passes like a separate function, once, however often
//! it runs. The construct around it is one kernel, which reads and writes memory like a call.

use crate::cluster::Fused;
use crate::kernels::Kernels;
use crate::kernels::control::{Control, Form};
use crate::lower::{self, Body, Names};
use crate::pass::{Pass, within};
use crate::view::{View, Work};
use std::collections::BTreeMap;
use wengert_core::graph::Function;
use wengert_core::{LocationTable, Result, Target};

/// A pass from a body to kernels.
pub(crate) type KernelPass = Pass<for<'a, 'f, 'n> fn(&'a mut Unit<'f, 'n>) -> Result<()>>;

/// What a function and its regions have in common.
#[derive(Clone, Copy)]
pub(crate) struct Shared<'f> {
    pub target: &'f Target,
    /// Whether equations are fused. Without, each is a kernel.
    pub fuse: bool,
    /// The table of the function, which its regions use as well.
    locations: &'f LocationTable,
    passes: &'static [KernelPass],
}

/// A function or region, and what the passes so far have made of it.
pub(crate) struct Unit<'f, 'n> {
    function: &'f Function,
    /// Whether it is a step of a loop.
    is_step: bool,
    pub shared: Shared<'f>,
    /// The names of all nests of the function and its regions.
    names: &'n mut Names,
    pub view: View<'f>,
    pub fused: Fused,
    /// The constructs of control flow, by their equations.
    controls: BTreeMap<usize, Control>,
    pub kernels: Kernels,
}

/// The kernels of a function without dimension variables and composites.
pub(super) fn kernels(
    function: &Function,
    target: &Target,
    fuse: bool,
    passes: &'static [KernelPass],
) -> Result<Kernels> {
    let shared = Shared { target, fuse, locations: &function.locations, passes };
    Unit::lowered(function, false, shared, &mut Names::default())
}

impl<'f> Unit<'f, '_> {
    /// Runs the passes.
    fn lowered(
        function: &'f Function,
        is_step: bool,
        shared: Shared<'f>,
        names: &mut Names,
    ) -> Result<Kernels> {
        let mut unit = Unit {
            function,
            is_step,
            shared,
            names,
            view: within("view", || View::new(function))?,
            fused: Fused::default(),
            controls: BTreeMap::new(),
            kernels: Kernels::default(),
        };
        for pass in shared.passes {
            pass.within(|run| run(&mut unit))?;
        }
        Ok(unit.kernels)
    }
}

/// The pass `regions`.
pub(super) fn regions(unit: &mut Unit<'_, '_>) -> Result<()> {
    for (n, equation) in unit.function.body.equations.iter().enumerate() {
        if !matches!(unit.view.work[n], Work::Control) {
            continue;
        }
        let (form, functions) = lower::regions(unit.function, n);
        let is_step = matches!(form, Form::Loop(_));
        let (shared, names) = (unit.shared, &mut *unit.names);
        let regions = functions.iter().map(|region| Unit::lowered(region, is_step, shared, names));
        let regions = regions.collect::<Result<_>>()?;
        unit.controls.insert(n, Control { op: equation.op.clone(), regions });
    }
    Ok(())
}

/// The pass `lower`.
pub(super) fn lower(unit: &mut Unit<'_, '_>) -> Result<()> {
    let Shared { target, fuse, locations, .. } = unit.shared;
    let body = Body {
        function: unit.function,
        view: &unit.view,
        fused: &unit.fused,
        locations,
        target,
        everywhere: fuse && unit.is_step,
    };
    let controls = std::mem::take(&mut unit.controls);
    unit.kernels = lower::assemble(&body, controls, unit.names)?;
    Ok(())
}
