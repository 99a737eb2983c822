//! Kernels and the functions that they call, as text.

use super::builder::Code;
use super::instruction::{Inst, Line, Statement};
use super::types::{Reg, Type, Width};
use std::fmt;

/// A kernel.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Kernel {
    /// Its name: letters, digits and `_`.
    pub name: String,
    /// Its purpose, in one or several lines.
    pub remark: String,
    /// Parameters of the launch.
    pub parameters: Vec<Parameter>,
    /// Threads of a block, exactly.
    pub threads: u32,
    /// Minimum number of resident blocks on a multiprocessor, which bounds the registers of a
    /// thread; 0: no bound.
    pub resident: u32,
    /// Arrays in shared memory.
    pub shared: Vec<SharedArray>,
    /// Whether it uses [`Kernel::DYNAMIC`], whose size the launch gives.
    pub dynamic_shared: bool,
    /// Whether it may be launched before its predecessors have ended. Its blocks then take the
    /// multiprocessors that are free first. That divides a few long blocks unevenly.
    pub early: bool,
    /// Arrays of each thread.
    pub local: Vec<SharedArray>,
    /// Its code.
    pub code: Code,
}

/// A parameter of a kernel.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Its type. `U64` with an alignment is an address in global memory.
    pub ty: Type,
    /// Known alignment of the address, in bytes; 0 if it is no address.
    pub align: u32,
}

/// An array of bytes in shared (or local) memory.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SharedArray {
    /// Its name.
    pub name: String,
    /// Alignment in bytes.
    pub align: u32,
    /// Its length.
    pub bytes: u32,
}

/// A function that kernels call. Parameters and results are registers of its code.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its purpose, in one line.
    pub remark: String,
    /// Registers that receive the arguments.
    pub parameters: Vec<(Type, Reg)>,
    /// Registers that hold the results where the code ends.
    pub results: Vec<(Type, Reg)>,
    /// Its code, which falls through to its end.
    pub code: Code,
}

/// A function that the driver provides. It has no result.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Extern {
    /// Its name.
    pub name: String,
    /// Types of its parameters.
    pub parameters: Vec<Type>,
}

impl Kernel {
    /// The name of the shared memory whose size the launch gives.
    pub const DYNAMIC: &'static str = "dynamic_shared";

    /// The instruction by which a kernel waits until the preceding ones have ended and their
    /// results are visible (PTX ISA, `griddepcontrol`).
    pub const WAIT: &'static str = "griddepcontrol.wait";

    /// The instructions with which a kernel begins that may be launched early. Its blocks wait
    /// until its predecessors have ended, and only then let the next kernel be launched. If they
    /// let it before they wait, many kernels would wait at a time, in the place of the one that
    /// works.
    pub(super) const ORDER: &'static str =
        "griddepcontrol.wait;\n    griddepcontrol.launch_dependents;";

    /// Bytes of statically allocated shared memory.
    pub fn static_shared(&self) -> u32 {
        self.shared.iter().map(|s| s.bytes.next_multiple_of(s.align)).sum()
    }

    /// Whether it has an instruction that multiplies 8-bit floats.
    pub(super) fn multiplies_float8(&self) -> bool {
        self.code.lines.iter().any(|line| match line {
            Line::Statement(Statement { inst: Inst::MatrixMultiply { operands, .. }, .. }) => {
                operands.iter().any(|ty| matches!(ty, Type::E4M3 | Type::E5M2))
            }
            _ => false,
        })
    }

    /// Whether it has an instruction that exists for `.target sm_90a` only.
    pub(super) fn needs_hopper(&self) -> bool {
        let needs = |line: &Line| matches!(line, Line::Statement(s) if s.inst.needs_hopper());
        self.code.lines.iter().any(needs)
    }

    /// Whether it has an instruction of Hopper, which `.target sm_90` has too or not.
    pub(super) fn is_of_hopper(&self) -> bool {
        let is =
            |line: &Line| matches!(line, Line::Statement(Statement { inst: Inst::Hopper(_), .. }));
        self.code.lines.iter().any(is)
    }

    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>, overlaps: bool) -> fmt::Result {
        let parameter = |p: &Parameter| match p.align {
            0 => format!(".param {} {}", p.ty.name(), p.name),
            align => format!(".param {} .ptr .global .align {align} {}", p.ty.name(), p.name),
        };
        let parameters = list(&self.parameters, parameter);
        head(f, &self.remark, &self.name, &parameters, self.threads, self.resident)?;
        self.arrays(f)?;
        declare(f, &self.code)?;
        if overlaps && self.early {
            writeln!(f, "    {}", Kernel::ORDER)?;
        }
        lines(f, &self.code.lines)?;
        writeln!(f, "    ret;\n}}")
    }

    /// The declarations of its arrays.
    pub(super) fn arrays(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (space, arrays) in [(".shared", &self.shared), (".local", &self.local)] {
            for SharedArray { name, align, bytes } in arrays {
                writeln!(f, "    {space} .align {align} .b8 {name}[{bytes}];")?;
            }
        }
        Ok(())
    }
}

/// The beginning of a kernel, up to its brace. `parameters` is their text.
pub(super) fn head(
    f: &mut fmt::Formatter<'_>,
    text: &str,
    name: &str,
    parameters: &str,
    threads: u32,
    resident: u32,
) -> fmt::Result {
    remark(f, text)?;
    writeln!(f, ".visible .entry {name}(\n    {parameters}\n)")?;
    writeln!(f, ".reqntid {threads}, 1, 1")?;
    if resident > 0 {
        writeln!(f, ".minnctapersm {resident}")?;
    }
    writeln!(f, "{{")
}

fn remark(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    text.lines().try_for_each(|line| writeln!(f, "// {}", ascii(line)))
}

/// `ptxas` reads ASCII only, also in comments.
fn ascii(text: &str) -> String {
    text.replace('…', "...").replace(|c: char| !c.is_ascii(), "?")
}

fn list<T>(items: &[T], show: impl Fn(&T) -> String) -> String {
    items.iter().map(show).collect::<Vec<_>>().join(",\n    ")
}

impl fmt::Display for Extern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parameter = |(n, ty): (usize, &Type)| format!(".param {} given{n}", ty.bits().name());
        let parameters: Vec<_> = self.parameters.iter().enumerate().map(parameter).collect();
        writeln!(f, ".extern .func {}({});", self.name, parameters.join(", "))
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        remark(f, &self.remark)?;
        let of = |prefix: &str, regs: &[(Type, Reg)]| {
            let one = |(n, (ty, _)): (usize, &(Type, Reg))| {
                format!(".param {} {prefix}{n}", ty.bits().name())
            };
            regs.iter().enumerate().map(one).collect::<Vec<_>>().join(", ")
        };
        let (results, parameters) = (of("result", &self.results), of("given", &self.parameters));
        writeln!(f, ".func ({results}) {}({parameters})\n{{", self.name)?;
        declare(f, &self.code)?;
        for (n, (ty, reg)) in self.parameters.iter().enumerate() {
            writeln!(f, "    ld.param{} {reg}, [given{n}];", ty.bits().name())?;
        }
        lines(f, &self.code.lines)?;
        for (n, (ty, reg)) in self.results.iter().enumerate() {
            writeln!(f, "    st.param{} [result{n}], {reg};", ty.bits().name())?;
        }
        writeln!(f, "    ret;\n}}")
    }
}

pub(super) fn declare(f: &mut fmt::Formatter<'_>, code: &Code) -> fmt::Result {
    for width in Width::ALL {
        let count = code.registers(width);
        if count > 0 {
            writeln!(f, "    .reg {} {}<{count}>;", width.declaration(), width.prefix())?;
        }
    }
    Ok(())
}

pub(super) fn lines(f: &mut fmt::Formatter<'_>, lines: &[Line]) -> fmt::Result {
    for line in lines {
        match line {
            Line::Label(label) => writeln!(f, "{label}:")?,
            Line::NoUnroll => writeln!(f, "    .pragma \"nounroll\";")?,
            Line::Comment(text) => writeln!(f, "    // {}", ascii(text))?,
            Line::Statement(statement) => {
                f.write_str("    ")?;
                match statement.guard {
                    Some((predicate, true)) => write!(f, "@!{predicate} ")?,
                    Some((predicate, false)) => write!(f, "@{predicate} ")?,
                    None => {}
                }
                writeln!(
                    f,
                    "{}{}",
                    statement.inst,
                    if statement.inst.is_simple() { ";" } else { "" }
                )?;
            }
        }
    }
    Ok(())
}
