//! The mesh, its axes in types and collectives, and collectives under conditions: G11 and G12.

use super::{Checker, NOWHERE, Place, Violation, fail};
use crate::diagnostic::{Result, bail, ensure};
use crate::graph::{Body, Equation, Region};
use crate::mesh::Varying;
use crate::op::Control;
use crate::text::joined;
use crate::ty::TensorType;
use std::collections::BTreeMap;

/// The axes over which the collectives of called functions exchange data, by the address of the
/// body. Only lookups.
pub(super) type Exchanges = BTreeMap<usize, Varying>;

impl Checker<'_> {
    /// G11 for the mesh itself.
    pub(super) fn mesh(&self) -> Result<(), Box<Violation>> {
        let wrong =
            |d: crate::diagnostic::Diagnostic| fail(Place::Function, "", NOWHERE, d.context("G11"));
        self.function.mesh.verify().map_err(wrong)
    }

    /// G11 for a type.
    pub(super) fn varies(&self, ty: &TensorType) -> Result<()> {
        let mesh = &self.function.mesh;
        match ty.varying.axes().find(|axis| mesh.extent(axis).is_none()) {
            Some(axis) => Err(mesh.no_axis(axis).context("G11")),
            None => Ok(()),
        }
    }

    /// G11 and G12 for an equation that is a collective or calls a function.
    pub(super) fn collective(&mut self, equation: &Equation) -> Result<()> {
        let name = equation.op.name();
        if equation.op.callee().is_some() && !self.under.is_empty() {
            let exchanged = self.exchanged_by(&equation.regions[0]);
            return agreed(name, &exchanged, &self.under);
        }
        let Some(collective) = equation.op.collective() else { return Ok(()) };
        let size = self.function.mesh.size(collective.over).map_err(|d| d.context("G11"))?;
        let over = joined(collective.over, ", ");
        if let Some(said) = collective.size.filter(|said| *said != size) {
            bail!("G11: `{name}` says that there are {said} ranks over {over}, the mesh has {size}";
                help "`size` is the number of ranks over the axes that it names");
        }
        let least = collective.least;
        ensure!(
            least <= size,
            "G11: `{name}` names rank {}, there are {size} over {over}", least - 1;
            help "ranks are numbered from 0 to {}", size - 1
        );
        match collective.exchanges {
            true => agreed(name, &Varying::over(collective.over), &self.under),
            false => Ok(()),
        }
    }

    /// The axes over which the condition of a branch or loop varies.
    pub(super) fn condition(body: &Body, equation: &Equation) -> Varying {
        let of =
            |value: Option<&TensorType>| value.map(|ty| ty.varying.clone()).unwrap_or_default();
        match equation.op.control() {
            Some(Control::Branch) => of(equation.operands.first().map(|v| body.ty(*v))),
            Some(Control::Scan(scan)) if scan.counted => {
                of(equation.operands.first().map(|v| body.ty(*v)))
            }
            Some(Control::While(_)) => {
                let condition = equation.regions.first();
                of(condition.and_then(|r| r.outputs.first().and_then(|v| r.values.get(*v))))
            }
            _ => Varying::default(),
        }
    }

    fn exchanged_by(&mut self, body: &Region) -> Varying {
        if let Some(known) = self.exchanges.get(&body.address()) {
            return known.clone();
        }
        let mut all = Varying::default();
        for equation in &body.equations {
            if let Some(collective) = equation.op.collective().filter(|c| c.exchanges) {
                all = all.union(&Varying::over(collective.over));
            }
            for region in &equation.regions {
                all = all.union(&self.exchanged_by(region));
            }
        }
        self.exchanges.insert(body.address(), all.clone());
        all
    }
}

/// G12 for data that are exchanged over some axes, under conditions that vary over others.
fn agreed(name: &str, exchanged: &Varying, under: &Varying) -> Result<()> {
    let common = exchanged.common(under);
    ensure!(
        common.is_empty(),
        "G12: `{name}` exchanges data over {common} in a branch or loop whose condition varies \
         over {common}: some ranks would wait for others that do not come";
        help "make the condition the same on these ranks, e.g. by `pmax`, or take `{name}` out of \
              the branch or loop"
    );
    Ok(())
}
