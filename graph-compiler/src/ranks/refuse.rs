//! Functions that run on several ranks, which no target executes yet.

use wengert_core::graph::Function;
use wengert_core::{Diagnostic, Result};

/// Error: the function has a mesh. It names the first equation that is a collective.
pub(crate) fn refuse(function: &Function) -> Result<()> {
    let numbered = function.numbered();
    let collective = numbered.iter().find(|n| n.equation.op.collective().is_some());
    let (name, mesh) = (&function.name, &function.mesh);
    let error = match collective {
        None if mesh.is_empty() => return Ok(()),
        None => Diagnostic::new(format!(
            "@{name} runs on the {} ranks of {mesh}, and no device joins ranks yet",
            mesh.ranks()
        )),
        Some(n) => {
            let op = n.equation.op.name();
            let at = function.locations.origin(n.equation.location).clone();
            Diagnostic::new(format!(
                "@{name}: `{op}` is a collective over ranks, and no device joins ranks yet"
            ))
            .at(at, op)
        }
    };
    Err(error.help("interpret the function on all its ranks, by `interpret::run_ranks`"))
}
