//! A kernel under construction: its code, and the parameters that the code has used so far.

use super::index::INDICES;
use super::product::ALIGNMENT;
use crate::ptx::{Code, Kernel, Operand, Parameter, Reg, SharedArray, Space, Special, Type};
use crate::scalar::Functions;
use crate::stage::{Slot, Stage};
use wengert_core::{Diagnostic, Result};

/// A kernel under construction.
#[derive(Default)]
pub(super) struct Draft {
    /// Its code.
    pub code: Code,
    /// Functions that it calls.
    pub functions: Functions,
    parameters: Vec<Parameter>,
    arguments: Vec<Slot>,
    shared: Vec<SharedArray>,
    dynamic: u32,
    spread: bool,
    alignment: u32,
}

impl Draft {
    /// A kernel whose buffers have the alignment of a plan's whole values.
    pub fn new() -> Draft {
        Draft::aligned(ALIGNMENT)
    }

    /// A kernel whose buffers have this alignment in bytes.
    pub fn aligned(alignment: usize) -> Draft {
        Draft { alignment: alignment as u32, ..Draft::default() }
    }

    /// The address of a buffer.
    pub fn pointer(&mut self, name: &str, slot: Slot) -> Reg {
        self.parameters.push(Parameter { name: name.into(), ty: Type::U64, align: self.alignment });
        self.arguments.push(slot);
        self.code.load(Space::Param, Type::U64, Operand::Symbol(name.into()), 0)
    }

    /// The address of a new array in shared memory.
    pub fn shared(&mut self, name: &str, bytes: u32) -> Reg {
        self.shared.push(SharedArray { name: name.into(), align: 16, bytes });
        self.code.mov(Type::U32, Operand::Symbol(name.into()))
    }

    /// The address of dynamic shared memory.
    pub fn dynamic_shared(&mut self, bytes: u32) -> Reg {
        self.dynamic = bytes;
        self.code.mov(Type::U32, Operand::Symbol(Kernel::DYNAMIC.into()))
    }

    /// States that the kernel has long blocks, which are to be spread over all multiprocessors: it
    /// is not launched [early](Kernel::early).
    pub fn spread(&mut self) {
        self.spread = true;
    }

    /// The number of the thread in its block.
    pub fn thread(&mut self) -> Reg {
        self.code.mov(Type::U32, Special::TidX)
    }

    /// The number of the block.
    pub fn block(&mut self) -> Reg {
        self.code.mov(Type::U32, Special::CtaidX)
    }

    /// The stage that launches `blocks` blocks of `threads` threads.
    ///
    /// Errors: there are more blocks than a grid has.
    pub fn stage(
        self,
        name: String,
        remark: String,
        threads: u32,
        resident: u32,
        blocks: usize,
    ) -> Result<Stage> {
        if blocks >= INDICES {
            return Err(Diagnostic::new(format!(
                "`{name}` needs {blocks} thread blocks, and a grid has 2^31"
            ))
            .help("divide the call into several"));
        }
        Ok(Stage {
            kernel: Kernel {
                name,
                remark,
                parameters: self.parameters,
                threads,
                resident,
                shared: self.shared,
                dynamic_shared: self.dynamic > 0,
                early: !self.spread,
                local: vec![],
                code: self.code,
            },
            functions: self.functions.into_values().collect(),
            grid: [blocks as u32, 1, 1],
            dynamic_shared: self.dynamic,
            arguments: self.arguments,
        })
    }
}
