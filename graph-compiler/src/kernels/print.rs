//! Kernels as text, for people: every nest in the language of nests, then which kernel reads and writes which buffer.

use super::{BufferId, Kernels, Work};
use std::collections::BTreeSet;
use std::fmt;
use wengert_core::Id;
use wengert_core::graph::OutputRole;

impl fmt::Display for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printed = BTreeSet::new();
        for kernel in &self.kernels {
            if let Work::Nest(nest) = &kernel.work
                && printed.insert(&nest.name)
            {
                writeln!(f, "{}\n", nest.to_string().trim_end())?;
            }
        }
        writeln!(f, "// kernels of @{}", self.function)?;
        for (input, buffer) in &self.inputs {
            writeln!(f, "// {} {} = {}", input.role.name(), self.name(*buffer), self.buffers[*buffer].ty)?;
        }
        for (buffer, literal) in &self.constants {
            writeln!(f, "// constant {} = {}", self.name(*buffer), literal.ty())?;
        }
        for kernel in &self.kernels {
            let list =
                |buffers: &[BufferId]| buffers.iter().map(|b| self.name(*b)).collect::<Vec<_>>().join(", ");
            let typed: Vec<String> =
                kernel.writes.iter().map(|b| format!("{}: {}", self.name(*b), self.buffers[*b].ty)).collect();
            let work = match &kernel.work {
                Work::Nest(nest) => format!("@{}", nest.name),
                Work::Call(call) => format!("call {}", wengert_core::target::CallKind::of(call).name()),
            };
            writeln!(f, "// {} = {work}({})", typed.join(", "), list(&kernel.reads))?;
        }
        for (output, ty, buffer) in &self.outputs {
            let role = if output.role == OutputRole::State { "state" } else { "output" };
            writeln!(f, "// {role} {}: {ty} = {}", output.name, self.name(*buffer))?;
        }
        Ok(())
    }
}

impl Kernels {
    /// A buffer's name and number.
    fn name(&self, buffer: BufferId) -> String {
        format!("{}#{}", self.buffers[buffer].name, buffer.index())
    }
}
