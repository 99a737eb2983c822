//! A parsed PTX text, with its kernels ready for execution.

use crate::decode::{self, program::Program};
use crate::parse::syntax::Tree;
use crate::parse::{self, ParseError};
use std::sync::atomic::{AtomicU64, Ordering};

/// A parsed PTX text: all its kernels are ready for execution.
#[derive(Debug)]
pub struct Module {
    pub(crate) id: u64,
    pub(crate) tree: Tree,
    lines: Vec<String>,
    /// `//` comment lines: (line, text).
    comments: Vec<(u32, String)>,
    kernels: Vec<Kernel>,
}

/// A kernel: the facts that a launch needs.
#[derive(Debug)]
pub struct Kernel {
    name: String,
    parameters: Vec<Parameter>,
    required_threads: Option<[u32; 3]>,
    most_threads: Option<[u32; 3]>,
    required_cluster: Option<[u32; 3]>,
    register_limit: Option<u32>,
    registers: u32,
    line: u32,
    pub(crate) program: Program,
}

/// A parameter of a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// Its name in the text.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its alignment in bytes.
    pub align: u32,
    /// Whether the text declares it as a pointer (`.ptr`); nvcc never does.
    pub pointer: bool,
}

/// A module has no such kernel.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the module has no kernel `{name}`; it has: {}", known.join(", "))]
pub struct NoKernel {
    /// The requested name.
    pub name: String,
    /// The names of the kernels.
    pub known: Vec<String>,
}

impl Module {
    /// Parses a PTX text.
    ///
    /// # Errors
    /// Line, column and reason of the first part that is not PTX, or that this crate does not
    /// execute. An unsupported instruction is an error here, not when it is reached.
    pub fn parse(text: &str) -> Result<Module, ParseError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        if text.len() > 1 << 28 {
            return Err(ParseError::new("", 1, 1, "a text of more than 256 MiB is not read"));
        }
        let (tree, comments) = parse::parse(text)?;
        let mut kernels = Vec::new();
        for (index, function) in tree.functions.iter().enumerate() {
            if !function.entry || function.body.is_none() {
                continue;
            }
            let program = decode::decode(text, &tree, index)?;
            kernels.push(Kernel {
                name: function.name.clone(),
                parameters: function.variables[..function.parameters]
                    .iter()
                    .map(|v| Parameter {
                        name: v.name.clone(),
                        bytes: v.bytes,
                        align: v.align,
                        pointer: v.pointer,
                    })
                    .collect(),
                required_threads: function.required_threads,
                most_threads: function.most_threads,
                required_cluster: function.required_cluster,
                register_limit: function.register_limit,
                registers: function.registers.len() as u32,
                line: function.line,
                program,
            });
        }
        let lines = text.lines().map(|line| line.trim().chars().take(160).collect()).collect();
        Ok(Module { id: NEXT.fetch_add(1, Ordering::Relaxed), tree, lines, comments, kernels })
    }

    /// Names of the kernels, in order of the text.
    pub fn kernels(&self) -> Vec<&str> {
        self.kernels.iter().map(|kernel| kernel.name.as_str()).collect()
    }

    /// The kernel of that name.
    pub fn kernel(&self, name: &str) -> Result<&Kernel, NoKernel> {
        self.kernels.iter().find(|kernel| kernel.name == name).ok_or_else(|| NoKernel {
            name: name.to_owned(),
            known: self.kernels.iter().map(|kernel| kernel.name.clone()).collect(),
        })
    }

    /// The target of the text, such as `sm_80`.
    pub fn target(&self) -> &str {
        &self.tree.target
    }

    /// A line of the text, from 1.
    pub(crate) fn line(&self, line: u32) -> String {
        self.lines.get(line.wrapping_sub(1) as usize).cloned().unwrap_or_default()
    }

    /// The last comment line above `line` within the kernel.
    pub(crate) fn comment(&self, kernel: &Kernel, line: u32) -> Option<String> {
        let after = self.comments.partition_point(|&(at, _)| at < line);
        let (at, text) = self.comments[..after].iter().rev().find(|(_, text)| !text.is_empty())?;
        (*at >= kernel.line).then(|| text.clone())
    }
}

impl Kernel {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its parameters, in order.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Bytes of static shared memory of a block.
    pub fn static_shared(&self) -> u32 {
        self.program.shared_bytes
    }

    /// `.reqntid`: the block extents that a launch must have.
    pub fn required_threads(&self) -> Option<[u32; 3]> {
        self.required_threads
    }

    /// `.maxntid`: the maximum number of threads of a block, as extents whose product counts.
    pub fn most_threads(&self) -> Option<[u32; 3]> {
        self.most_threads
    }

    /// `.reqnctapercluster`: the extents of a cluster, in blocks, that a launch must have.
    pub fn required_cluster(&self) -> Option<[u32; 3]> {
        self.required_cluster
    }

    /// Registers of a thread when the kernel begins: `.maxnreg`, or the number that lets a block of
    /// the declared size use all 65536 registers of a multiprocessor.
    pub(crate) fn registers_at_start(&self) -> Option<u32> {
        let threads = || self.required_threads.or(self.most_threads);
        let share = || {
            let threads: u32 = threads()?.iter().product();
            Some((65536 / threads.max(1).next_multiple_of(128) / 8 * 8).min(255))
        };
        self.register_limit.or_else(share)
    }

    /// Registers that the text declares; ptxas needs far fewer.
    pub fn registers(&self) -> u32 {
        self.registers
    }

    /// Instructions after inlining.
    pub fn instructions(&self) -> usize {
        self.program.code.len()
    }
}
