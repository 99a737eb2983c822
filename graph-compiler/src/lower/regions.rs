//! Kernels of a function, including those of its regions.
//!
//! A region of control flow is viewed, fused and lowered like a separate function, once, however
//! often it runs. The construct around it is one kernel, which reads and writes memory like a
//! call.

use super::assemble::{Body, assemble};
use super::name::Names;
use crate::calls;
use crate::fuse;
use crate::kernels::Kernels;
use crate::kernels::control::{Control, Form, form, signature};
use crate::pipeline::within;
use crate::view::{View, Work};
use std::collections::{BTreeMap, BTreeSet};
use wengert_core::graph::{Function, Input, Output, ValueId};
use wengert_core::{LocationTable, Result, Target};

/// The kernels of a function without dimension variables and composites. Without `fuse`, each
/// equation is a kernel.
pub(crate) fn kernels(function: &Function, target: &Target, fuse: bool) -> Result<Kernels> {
    of(function, false, &function.locations, target, fuse, &mut Names::default())
}

/// The kernels of a function or a region. Equations of a region use the outermost function's
/// location table. `is_step` is true for a step of a loop.
fn of(
    function: &Function,
    is_step: bool,
    locations: &LocationTable,
    target: &Target,
    fuse: bool,
    names: &mut Names,
) -> Result<Kernels> {
    let mut view = within("view", || View::new(function))?;
    if fuse && target.gemm_epilogue {
        within("epilogue", || calls::epilogues(&mut view));
    }
    let fused = within("fuse", || fuse::fuse(&view, target, fuse));
    let mut controls: BTreeMap<usize, Control> = BTreeMap::new();
    let inputs = function.body.inputs.iter().zip(&function.inputs);
    let name_of: BTreeMap<ValueId, &str> =
        inputs.map(|(v, input)| (*v, input.name.as_str())).collect();
    for (n, equation) in function.body.equations.iter().enumerate() {
        if !matches!(view.work[n], Work::Control) {
            continue;
        }
        let form = form(&equation.op, equation.operands.len(), equation.results.len());
        let first = match form {
            Form::Branch => 1,
            Form::Loop(l) => l.first_carry(),
        };
        let outside: Vec<Option<&str>> =
            equation.operands[first..].iter().map(|v| name_of.get(v).copied()).collect();
        let regions = equation.regions.iter().enumerate().map(|(k, body)| {
            let (mut inputs, mut outputs) =
                signature(form, k, body.inputs.len(), body.outputs.len());
            rename(&mut inputs, &mut outputs, &outside);
            let name = format!("{}.{}", function.name, equation.op.name());
            let region = Function {
                name,
                inputs,
                outputs,
                body: body.to_body(),
                locations: LocationTable::default(),
            };
            of(&region, matches!(form, Form::Loop(_)), locations, target, fuse, names)
        });
        let regions = regions.collect::<Result<_>>()?;
        controls.insert(n, Control { op: equation.op.clone(), regions });
    }
    let everywhere = fuse && is_step;
    let body = Body { function, view: &view, fused: &fused, locations, target, everywhere };
    let mut kernels = within("lower", || assemble(&body, controls, names))?;
    if fuse && target.joins {
        within("join", || calls::join(&mut kernels));
    }
    Ok(kernels)
}

/// Values with a name outside keep it in the region: a capture unchanged, a carry or a slice with
/// its role as prefix.
fn rename(inputs: &mut [Input], outputs: &mut [Output], outside: &[Option<&str>]) {
    let mut taken: BTreeSet<String> = inputs.iter().map(|input| input.name.clone()).collect();
    let mut called: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (n, output) in outputs.iter().enumerate() {
        called.entry(output.name.clone()).or_default().push(n);
    }
    for (n, outside) in outside.iter().enumerate() {
        let Some(outside) = outside else { continue };
        let old = inputs[n].name.clone();
        let new = match ["carry.", "slice."].iter().find(|what| old.starts_with(**what)) {
            Some(what) if !outside.starts_with(what) => format!("{what}{outside}"),
            _ => (*outside).to_owned(),
        };
        // If an operand is passed twice in one role, only the first input gets its name.
        if taken.contains(&new) {
            continue;
        }
        // The output that replaces a carry has the carry's name.
        let replacing = called.remove(&old).unwrap_or_default();
        replacing.iter().for_each(|n| outputs[*n].name.clone_from(&new));
        called.entry(new.clone()).or_default().extend(replacing);
        taken.remove(&old);
        taken.insert(new.clone());
        inputs[n].name = new;
    }
}
