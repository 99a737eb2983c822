//! Kernels that are equal but for bounds.
//!
//! Nests of one function on values of different extents often have equal instructions, except for
//! the constants that indices are compared with: the updates of parameters of several shapes, for
//! example. A [`Template`] has a register ([`bound`]) in place of each such constant. Kernels of
//! one template have one body in a [`Bundle`](super::Bundle).
//!
//! Names, remarks and comments are not compared ([`Template::text`]). Code with loops keeps its
//! constants, since the assembler unrolls a loop whose number of iterations is constant.

use super::instruction::{Inst, Line, Statement};
use super::kernel::Kernel;
use super::types::{Operand, Type};
use std::collections::BTreeSet;

/// A kernel without its bounds.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Template {
    /// The kernel.
    pub kernel: Kernel,
    /// The type of each bound.
    pub types: Vec<Type>,
}

/// The register that holds a bound.
pub fn bound(number: usize) -> String {
    format!("%bound{number}")
}

impl Template {
    /// The template of a kernel, and the kernel's bounds.
    pub fn of(kernel: &Kernel) -> (Template, Vec<i64>) {
        let mut kernel = kernel.clone();
        let (mut types, mut bounds) = (Vec::new(), Vec::new());
        if !has_loop(&kernel.code.lines) {
            for line in &mut kernel.code.lines {
                let Line::Statement(Statement { inst: Inst::Compare(_, ty, _, _, limit), .. }) =
                    line
                else {
                    continue;
                };
                if let (Operand::Int(value), true) = (&*limit, is_integer(*ty)) {
                    bounds.push(*value);
                    *limit = Operand::Symbol(bound(types.len()));
                    types.push(*ty);
                }
            }
        }
        (Template { kernel, types }, bounds)
    }

    /// The template without the kernel's name, remark and comments. Kernels with equal texts can
    /// have one body.
    pub fn text(&self) -> Template {
        let mut text = self.clone();
        (text.kernel.name, text.kernel.remark) = Default::default();
        text.kernel.code.lines.retain(|line| !matches!(line, Line::Comment(_)));
        text
    }
}

fn is_integer(ty: Type) -> bool {
    !ty.is_float() && matches!(ty.bits(), Type::B32 | Type::B64)
}

/// Whether a branch goes back.
fn has_loop(lines: &[Line]) -> bool {
    let mut passed = BTreeSet::new();
    lines.iter().any(|line| match line {
        Line::Label(label) => {
            passed.insert(label.to_string());
            false
        }
        Line::Statement(Statement { inst: Inst::Branch(to), .. }) => {
            passed.contains(&to.to_string())
        }
        _ => false,
    })
}
