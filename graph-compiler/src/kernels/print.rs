//! Kernels as readable text: every nest in the language of nests, then the buffers that each
//! kernel reads and writes.

use super::{Buffer, BufferId, Kernels, Work};
use std::collections::BTreeSet;
use std::fmt;
use wengert_core::Id;
use wengert_core::graph::OutputRole;
use wengert_core::graph::print::print_attributes;

impl fmt::Display for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.nests(&mut BTreeSet::new(), f)?;
        self.lines(0, f)
    }
}

impl Kernels {
    /// Every nest, including those of regions, each once.
    fn nests<'a>(
        &'a self,
        printed: &mut BTreeSet<&'a str>,
        f: &mut fmt::Formatter<'_>,
    ) -> fmt::Result {
        for kernel in &self.kernels {
            match &kernel.work {
                Work::Nest(nest) if printed.insert(&nest.name) => {
                    writeln!(f, "{}\n", nest.to_string().trim_end())?;
                }
                Work::Followed(followed) if printed.insert(&followed.follower.name) => {
                    writeln!(f, "{}\n", followed.follower.to_string().trim_end())?;
                }
                Work::Control(control) => {
                    control.regions.iter().try_for_each(|region| region.nests(printed, f))?;
                }
                Work::Nest(_) | Work::Call(_) | Work::Followed(_) => {}
            }
        }
        Ok(())
    }

    /// Reads and writes; regions below their constructs.
    fn lines(&self, depth: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let indent = "  ".repeat(depth);
        writeln!(f, "// {indent}kernels of @{}", self.function)?;
        for (input, buffer) in &self.inputs {
            let ty = &self.buffers[*buffer].ty;
            writeln!(f, "// {indent}{} {} = {ty}", input.role.name(), self.name(*buffer))?;
        }
        for (buffer, literal) in &self.constants {
            writeln!(f, "// {indent}constant {} = {}", self.name(*buffer), literal.ty())?;
        }
        for kernel in &self.kernels {
            let list = |buffers: &[BufferId]| {
                buffers.iter().map(|b| self.name(*b)).collect::<Vec<_>>().join(", ")
            };
            let typed: Vec<String> = kernel
                .writes
                .iter()
                .map(|b| {
                    let Buffer { ty, pitch, .. } = &self.buffers[*b];
                    let pitch = pitch.map_or(String::new(), |pitch| format!(" pitch {pitch}"));
                    format!("{}: {ty}{pitch}", self.name(*b))
                })
                .collect();
            let work = match &kernel.work {
                Work::Nest(nest) => format!("@{}", nest.name),
                Work::Call(call) => {
                    format!("call {}", call.name())
                }
                Work::Followed(followed) => {
                    let call = followed.call.name();
                    format!("call {call}, then @{}", followed.follower.name)
                }
                Work::Control(control) => {
                    let (mut name, attributes) =
                        (control.op.name().to_string(), control.op.attributes());
                    if !attributes.is_empty() {
                        name.push(' ');
                        print_attributes(&mut name, &attributes);
                    }
                    name
                }
            };
            writeln!(f, "// {indent}{} = {work}({})", typed.join(", "), list(&kernel.reads))?;
            if let Work::Control(control) = &kernel.work {
                control.regions.iter().try_for_each(|region| region.lines(depth + 1, f))?;
            }
        }
        for (output, ty, buffer) in &self.outputs {
            let role = if output.role == OutputRole::State { "state" } else { "output" };
            writeln!(f, "// {indent}{role} {}: {ty} = {}", output.name, self.name(*buffer))?;
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
