//! Functions that run on several ranks, which not every target executes.

use wengert_core::graph::Function;
use wengert_core::{Diagnostic, Result, Target};

/// Error: the function has a mesh, and the target joins no ranks. It names the first equation that
/// is a collective.
pub(crate) fn check(function: &Function, target: &Target) -> Result<()> {
    let (name, mesh) = (&function.name, &function.mesh);
    if mesh.is_empty() || target.calls.contains(&"collective") {
        return Ok(());
    }
    let numbered = function.numbered();
    let collective = numbered.iter().find(|n| n.equation.op.collective().is_some());
    let (ranks, target) = (mesh.ranks(), &target.name);
    let error = match collective {
        None => Diagnostic::new(format!(
            "@{name} runs on the {ranks} ranks of {mesh}, and {target} joins no ranks"
        )),
        Some(n) => {
            let op = n.equation.op.name();
            let at = function.locations.origin(n.equation.location).clone();
            let what = format!("@{name}: `{op}` is a collective, and {target} joins no ranks");
            Diagnostic::new(what).at(at, op)
        }
    };
    Err(error.help("run it on the CPUs of the ranks: device `cpu`"))
}
