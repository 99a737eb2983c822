//! Kernels that share a launch.
//!
//! The blocks of the launch are divided among the parts, in order. A part has the code of its
//! kernel in a scope of its own, so registers, labels and arrays keep their names. Its parameters
//! are parameters of the bundle, and it reads the number of its block from [`Special::Block`]
//! instead of [`Special::CtaidX`]. Threads beyond those of a part's kernel do nothing.

use super::instruction::{Inst, Line, Statement};
use super::kernel::{Kernel, Parameter, declare, head, lines};
use super::types::{Operand, Space, Special};
use std::fmt;

/// Kernels that share a launch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Bundle {
    /// Its name.
    pub name: String,
    /// Its kernels, each with the number of its blocks. None has dynamic shared memory.
    pub parts: Vec<(Kernel, u32)>,
}

impl Bundle {
    /// Whether a kernel can be a part whose blocks have `threads` threads. With fewer of its own,
    /// it has no barrier, since the others would not arrive there.
    pub fn takes(kernel: &Kernel, threads: u32) -> bool {
        let is_barrier =
            |line: &Line| matches!(line, Line::Statement(Statement { inst: Inst::Barrier, .. }));
        let waits = || kernel.code.lines().iter().any(is_barrier);
        !kernel.dynamic_shared
            && kernel.threads <= threads
            && (kernel.threads == threads || !waits())
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.parts.iter().map(|(kernel, _)| kernel.threads).max().unwrap_or(1)
    }

    /// Bytes of shared memory of a block.
    pub fn static_shared(&self) -> u32 {
        self.parts.iter().map(|(kernel, _)| kernel.static_shared()).sum()
    }

    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>, overlaps: bool) -> fmt::Result {
        let names: Vec<&str> = self.parts.iter().map(|(kernel, _)| kernel.name.as_str()).collect();
        let of = |n: usize, p: &Parameter| Parameter { name: renamed(n, &p.name), ..p.clone() };
        let parameters: Vec<Parameter> = self
            .parts
            .iter()
            .enumerate()
            .flat_map(|(n, (kernel, _))| kernel.parameters.iter().map(move |p| of(n, p)))
            .collect();
        let bounds = || self.parts.iter().map(|(kernel, _)| kernel.resident);
        let resident = if bounds().any(|r| r == 0) { 0 } else { bounds().min().unwrap_or(0) };
        let threads = self.threads();
        let remark = format!("A launch of {}.", names.join(", "));
        head(f, &remark, &self.name, &parameters, threads, resident)?;
        let block = Special::Block.name();
        writeln!(f, "    .reg .b32 {block}, %thread;\n    .reg .pred %other;")?;
        if overlaps && self.parts.iter().all(|(kernel, _)| kernel.early) {
            writeln!(f, "    {}", Kernel::ORDER)?;
        }
        writeln!(f, "    mov.u32 {block}, {};", Special::CtaidX.name())?;
        writeln!(f, "    mov.u32 %thread, {};", Special::TidX.name())?;
        for (n, (kernel, blocks)) in self.parts.iter().enumerate() {
            if n + 1 < self.parts.len() {
                writeln!(f, "    setp.ge.u32 %other, {block}, {blocks};\n    @%other bra $P{n};")?;
            }
            if kernel.threads < threads {
                writeln!(f, "    setp.ge.u32 %other, %thread, {};", kernel.threads)?;
                writeln!(f, "    @%other ret;")?;
            }
            writeln!(f, "    {{")?;
            kernel.arrays(f)?;
            declare(f, &kernel.code)?;
            let code: Vec<Line> = kernel.code.lines().iter().map(|l| of_part(n, l)).collect();
            lines(f, &code)?;
            writeln!(f, "    }}\n    ret;")?;
            if n + 1 < self.parts.len() {
                writeln!(f, "$P{n}:\n    sub.u32 {block}, {block}, {blocks};")?;
            }
        }
        writeln!(f, "}}")
    }
}

/// The name of a part's parameter.
fn renamed(part: usize, name: &str) -> String {
    format!("part{part}_{name}")
}

/// A line of a part: with the bundle's parameters, and the part's number of the block.
fn of_part(part: usize, line: &Line) -> Line {
    let mut line = line.clone();
    if let Line::Statement(Statement { inst, .. }) = &mut line {
        match inst {
            Inst::Load { space: Space::Param, base: Operand::Symbol(name), .. } => {
                *name = renamed(part, name);
            }
            Inst::Unary(.., operand @ Operand::Special(Special::CtaidX)) => {
                *operand = Operand::Special(Special::Block);
            }
            _ => {}
        }
    }
    line
}
