//! Runs the passes from a body to kernels.
//!
//! A region of control flow goes through the passes like a separate function, once, however often
//! it runs. The construct around it is one kernel, which reads and writes memory like a call.

use super::{PIPELINE, Pass};
use crate::cluster::Fused;
use crate::kernels::Kernels;
use crate::kernels::control::{Control, Form};
use crate::lower::{self, Body, Names};
use crate::pass::within;
use crate::view::{View, Work};
use std::collections::BTreeMap;
use wengert_core::graph::Function;
use wengert_core::{LocationTable, Result, Target};

/// A pass from a body to kernels.
pub type KernelPass = Pass<for<'a, 'f, 'n> fn(&'a mut Unit<'f, 'n>) -> Result<()>>;

/// A function or region, and what the passes so far have made of it.
pub struct Unit<'f, 'n> {
    function: &'f Function,
    /// Whether it is a step of a loop.
    is_step: bool,
    /// The table of the outermost function.
    locations: &'f LocationTable,
    pub(super) target: &'f Target,
    /// Whether equations are fused.
    pub(super) fuse: bool,
    /// The names of all nests of the outermost function.
    names: &'n mut Names,
    pub(super) view: View<'f>,
    pub(super) fused: Fused,
    /// The constructs of control flow, by their equations.
    controls: BTreeMap<usize, Control>,
    pub(super) kernels: Kernels,
}

/// The kernels of a function without dimension variables and composites. Without `fuse`, each
/// equation is a kernel.
pub(super) fn kernels(function: &Function, target: &Target, fuse: bool) -> Result<Kernels> {
    let mut names = Names::default();
    Unit::new(function, false, &function.locations, target, fuse, &mut names)?.run()
}

impl<'f, 'n> Unit<'f, 'n> {
    fn new(
        function: &'f Function,
        is_step: bool,
        locations: &'f LocationTable,
        target: &'f Target,
        fuse: bool,
        names: &'n mut Names,
    ) -> Result<Self> {
        Ok(Unit {
            function,
            is_step,
            locations,
            target,
            fuse,
            names,
            view: within("view", || View::new(function))?,
            fused: Fused::default(),
            controls: BTreeMap::new(),
            kernels: Kernels::default(),
        })
    }

    fn run(mut self) -> Result<Kernels> {
        for pass in PIPELINE.kernels {
            pass.within(|run| run(&mut self))?;
        }
        Ok(self.kernels)
    }
}

/// The pass `regions`.
pub(super) fn regions(unit: &mut Unit<'_, '_>) -> Result<()> {
    for n in 0..unit.function.body.equations.len() {
        if !matches!(unit.view.work[n], Work::Control) {
            continue;
        }
        let (form, functions) = lower::regions(unit.function, n);
        let is_step = matches!(form, Form::Loop(_));
        let Unit { locations, target, fuse, ref mut names, .. } = *unit;
        let regions = functions
            .iter()
            .map(|region| Unit::new(region, is_step, locations, target, fuse, names)?.run());
        let regions = regions.collect::<Result<_>>()?;
        let op = unit.function.body.equations[n].op.clone();
        unit.controls.insert(n, Control { op, regions });
    }
    Ok(())
}

/// The pass `lower`.
pub(super) fn lower(unit: &mut Unit<'_, '_>) -> Result<()> {
    let body = Body {
        function: unit.function,
        view: &unit.view,
        fused: &unit.fused,
        locations: unit.locations,
        target: unit.target,
        everywhere: unit.fuse && unit.is_step,
    };
    let controls = std::mem::take(&mut unit.controls);
    unit.kernels = lower::assemble(&body, controls, unit.names)?;
    Ok(())
}
