//! SASS: the machine code of NVIDIA's GPUs, as text.
//!
//! [`Module::parse`] reads the output of `nvdisasm -gp -c` for a cubin that `ptxas -lineinfo`
//! made. Each instruction has its address, guard, opcode, operands, and the line of the PTX text
//! that it comes from. [`Flow`] is the control-flow graph of a kernel, with its loops. [`Facts`]
//! summarises what a kernel does to memory and in its loops.
//!
//! A **kernel** is a section `.text.NAME`. It holds the kernel and the subroutines that `ptxas`
//! added to it, such as the slow path of a division. These are entries of the same graph.
//!
//! ```
//! let text = "\t.target\tsm_90\n\
//!     \t.section\t.text.k,\"ax\",@progbits\n\
//!     \x20       .type           k,@function\n\
//!     k:\n\
//!     \t//## File \".nv_debug_ptx_txt\", line 7\n\
//!     \x20       /*0000*/                   FADD R0, R2, R3 ;\n\
//!     \x20       /*0010*/              @!P0 EXIT ;\n\
//!     \x20       /*0020*/                   EXIT ;\n";
//! let module = wengert_machine::sass::Module::parse(text).expect("it is well formed");
//! let code = &module.kernels[0].code;
//! assert_eq!((code[0].opcode.as_str(), code[0].line), ("FADD", Some(7)));
//! assert!(code[1].guard.as_ref().is_some_and(|g| g.negated));
//! ```

mod facts;
mod flow;
mod loops;
mod parse;
mod registers;

pub use facts::{Accesses, Facts, LoopFacts};
pub use flow::{Block, Flow, FlowError};
pub use loops::Loop;
pub use parse::ParseError;
pub use registers::{Register, Registers};

use std::collections::BTreeMap;

/// The machine code of a module.
#[derive(Clone, PartialEq, Debug)]
pub struct Module {
    /// Compute capability: 90 for `sm_90`.
    pub architecture: u32,
    /// Kernels, in the order of the text.
    pub kernels: Vec<Kernel>,
}

/// The code of one section.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Kernel {
    /// Name of the section without `.text.`.
    pub name: String,
    /// Instructions in the order of their addresses.
    pub code: Vec<Instruction>,
    /// Index of the instruction at each label.
    pub labels: BTreeMap<String, usize>,
    /// Names and first instructions of the functions: the kernel, then its subroutines.
    pub functions: Vec<(String, usize)>,
}

/// An instruction.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Instruction {
    /// Address in bytes from the start of the section.
    pub address: u64,
    /// Its guard, if any.
    pub guard: Option<Guard>,
    /// The opcode without modifiers: `LDG`.
    pub opcode: String,
    /// Modifiers in their order: `E`, `128`, `CONSTANT`.
    pub modifiers: Vec<String>,
    /// Operands as text, in their order.
    pub operands: Vec<String>,
    /// Labels that it names: the target of a branch or a call, or the targets of an indirect
    /// branch.
    pub targets: Vec<String>,
    /// Line of the PTX text, from 1.
    pub line: Option<u32>,
}

/// A predicate that decides whether a lane executes an instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Guard {
    /// The predicate: `P0`, `UP1`, `PT`.
    pub predicate: String,
    /// Whether lanes execute it where the predicate is false.
    pub negated: bool,
}

impl Instruction {
    /// Whether it has this modifier.
    pub fn has(&self, modifier: &str) -> bool {
        self.modifiers.iter().any(|m| m == modifier)
    }

    /// The opcode with its modifiers: `LDG.E.128`.
    pub fn name(&self) -> String {
        let parts = std::iter::once(&self.opcode).chain(&self.modifiers);
        parts.map(String::as_str).collect::<Vec<_>>().join(".")
    }

    /// Bytes of a lane that it moves, for a memory instruction: 4, unless a modifier says
    /// otherwise.
    pub fn width(&self) -> u32 {
        let width = |m: &String| match m.as_str() {
            "U8" | "S8" => Some(1),
            "U16" | "S16" => Some(2),
            "64" => Some(8),
            "128" | "ENL2" => Some(16),
            "256" => Some(32),
            _ => None,
        };
        self.modifiers.iter().find_map(width).unwrap_or(4)
    }
}

impl Module {
    /// Parses the output of `nvdisasm -gp -c`.
    ///
    /// Errors: a line of a section with code has none of the known forms; the text has no
    /// architecture; an instruction is outside of a function; a label is defined twice.
    pub fn parse(text: &str) -> Result<Module, ParseError> {
        parse::module(text)
    }

    /// The kernel with this name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|k| k.name == name)
    }
}
