//! Printer of nests; `docs/ir.md` has the grammar, [`super::parse`] the parser.
//!
//! Every value of these types prints, including invalid ones, since errors show them: ids that do
//! not exist print as `?`. A nest that the verifier accepts parses back unchanged.

use super::{
    Access, Affine, AxisId, BufferId, BufferRole, Combine, Guard, Instr, Nest, Phase, Prefix,
    Reduction, Reg, Term, Tree,
};
use crate::dtype::DType;
use crate::id::{Id, IdVec};
use crate::text::{joined, print_layout};
use std::fmt;

impl BufferRole {
    /// Keyword in text.
    pub const fn name(self) -> &'static str {
        match self {
            BufferRole::In => "in",
            BufferRole::Out => "out",
            BufferRole::InOut => "inout",
            BufferRole::Row => "row",
        }
    }
}

impl fmt::Display for Nest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nest @{}(", self.name)?;
        for (n, (id, buffer)) in self.parameters().enumerate() {
            f.write_str(if n > 0 { ", " } else { "" })?;
            self.write_buffer(f, id, buffer.role)?;
        }
        f.write_str(") {\n")?;
        for (id, buffer) in self.buffers.iter().filter(|(_, b)| b.role == BufferRole::Row) {
            f.write_str("  ")?;
            self.write_buffer(f, id, buffer.role)?;
            f.write_str("\n")?;
        }
        if !self.parallel.is_empty() {
            f.write_str("  parallel")?;
            self.write_axes(f, &self.parallel)?;
            f.write_str("\n")?;
        }
        for phase in &self.phases {
            self.write_phase(f, phase)?;
        }
        f.write_str("}\n")
    }
}

/// Displays one instruction of a nest.
pub struct InstrText<'a>(pub &'a Nest, pub &'a Instr);

impl fmt::Display for InstrText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write_instr(f, self.1, &self.0.registers)
    }
}

/// Displays one reduction of a nest.
pub struct ReductionText<'a>(pub &'a Nest, pub &'a Reduction);

impl fmt::Display for ReductionText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write_reduction(f, self.1)
    }
}

/// Displays an index expression of a nest.
pub struct AffineText<'a>(pub &'a Nest, pub &'a Affine);

impl fmt::Display for AffineText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write_affine(f, self.1)
    }
}

type Registers = IdVec<Reg, DType>;

impl Nest {
    fn buffer_name(&self, id: BufferId) -> &str {
        self.buffers.get(id).map_or("?", |b| &b.name)
    }

    fn axis_name(&self, id: AxisId) -> &str {
        self.axes.get(id).map_or("?", |a| &a.name)
    }

    fn write_buffer(
        &self,
        f: &mut fmt::Formatter<'_>,
        id: BufferId,
        role: BufferRole,
    ) -> fmt::Result {
        let buffer = &self.buffers[id];
        let layout = print_layout(&buffer.shape, buffer.pitch);
        write!(f, "{} %{}: {}{layout}", role.name(), buffer.name, buffer.dtype)
    }

    fn write_axes(&self, f: &mut fmt::Formatter<'_>, axes: &[AxisId]) -> fmt::Result {
        for (n, id) in axes.iter().enumerate() {
            let extent = self.axes.get(*id).map_or(0, |a| a.extent);
            write!(f, "{} {}: {extent}", if n > 0 { "," } else { "" }, self.axis_name(*id))?;
        }
        Ok(())
    }

    fn write_phase(&self, f: &mut fmt::Formatter<'_>, phase: &Phase) -> fmt::Result {
        f.write_str("  phase")?;
        self.write_axes(f, &phase.axes)?;
        f.write_str(" {\n")?;
        for instr in &phase.body {
            f.write_str("    ")?;
            self.write_instr(f, instr, &self.registers)?;
            f.write_str("\n")?;
        }
        for reduction in &phase.reductions {
            f.write_str("    ")?;
            self.write_reduction(f, reduction)?;
            f.write_str("\n")?;
        }
        f.write_str("  }\n")
    }

    fn write_instr(
        &self,
        f: &mut fmt::Formatter<'_>,
        instr: &Instr,
        registers: &Registers,
    ) -> fmt::Result {
        if !instr.results().is_empty() {
            write_results(f, instr.results(), registers)?;
        }
        match instr {
            Instr::Scalar { op, operands, .. } => {
                write!(f, "{} {}", op.name(), joined(operands, ", "))
            }
            Instr::Const { value, .. } => write!(f, "const {value}"),
            Instr::Index { value, .. } => {
                f.write_str("index ")?;
                self.write_affine(f, value)
            }
            Instr::Test { guards, .. } => {
                f.write_str("test ")?;
                self.write_guards(f, guards)
            }
            Instr::Load { access, fill, .. } => {
                f.write_str("load ")?;
                self.write_access(f, access)?;
                if !access.guards.is_empty() || fill.is_some() {
                    f.write_str(" ")?;
                    self.write_guards(f, &access.guards)?;
                }
                if let Some(fill) = fill {
                    write!(f, " else {fill}")?;
                }
                Ok(())
            }
            Instr::Store { access, value, total } => {
                f.write_str("store ")?;
                self.write_access(f, access)?;
                write!(f, ", {value}")?;
                if let Some(total) = total {
                    f.write_str(" total")?;
                    self.write_combine(f, &total.combine)?;
                    write!(f, " {}", total.tree)?;
                }
                if !access.guards.is_empty() {
                    f.write_str(" ")?;
                    self.write_guards(f, &access.guards)?;
                }
                Ok(())
            }
            Instr::Prefix(Prefix { values, combine, reverse, .. }) => {
                let reverse = if *reverse { " reverse" } else { "" };
                write!(f, "prefix{reverse}({})", joined(values, ", "))?;
                self.write_combine(f, combine)
            }
        }
    }

    fn write_reduction(&self, f: &mut fmt::Formatter<'_>, reduction: &Reduction) -> fmt::Result {
        write_results(f, &reduction.results, &self.registers)?;
        write!(f, "reduce({})", joined(&reduction.values, ", "))?;
        self.write_combine(f, &reduction.combine)?;
        write!(f, " {}", reduction.tree)
    }

    fn write_combine(&self, f: &mut fmt::Formatter<'_>, combine: &Combine) -> fmt::Result {
        if let Some(name) = combine.name() {
            return write!(f, " {name}");
        }
        f.write_str(" combine(")?;
        for (n, value) in combine.identity.iter().enumerate() {
            write!(
                f,
                "{}{}: {} = {value}",
                if n > 0 { ", " } else { "" },
                Reg::new(n),
                value.dtype()
            )?;
        }
        let n = combine.identity.len();
        for k in n..2 * n {
            write!(f, "{}{}", if k > n { ", " } else { "; " }, Reg::new(k))?;
        }
        f.write_str(") {\n")?;
        for instr in &combine.body {
            f.write_str("      ")?;
            self.write_instr(f, instr, &combine.registers)?;
            f.write_str("\n")?;
        }
        write!(f, "      return {}\n    }}", joined(&combine.results, ", "))
    }

    fn write_access(&self, f: &mut fmt::Formatter<'_>, access: &Access) -> fmt::Result {
        write!(f, "%{}[", self.buffer_name(access.buffer))?;
        for (n, index) in access.indices.iter().enumerate() {
            f.write_str(if n > 0 { ", " } else { "" })?;
            self.write_affine(f, index)?;
        }
        f.write_str(if access.clamp { "] clamp" } else { "]" })
    }

    fn write_guards(&self, f: &mut fmt::Formatter<'_>, guards: &[Guard]) -> fmt::Result {
        f.write_str("{")?;
        for (n, guard) in guards.iter().enumerate() {
            f.write_str(if n > 0 { ", " } else { "" })?;
            self.write_affine(f, &guard.index)?;
            write!(f, " in {}..{}", guard.low, guard.high)?;
        }
        f.write_str("}")
    }

    fn write_affine(&self, f: &mut fmt::Formatter<'_>, affine: &Affine) -> fmt::Result {
        for (n, (term, coefficient)) in affine.terms.iter().enumerate() {
            match coefficient {
                1 => f.write_str(if n > 0 { "+" } else { "" })?,
                -1 => f.write_str("-")?,
                c if *c < 0 => write!(f, "{c}*")?,
                c => write!(f, "{}{c}*", if n > 0 { "+" } else { "" })?,
            }
            match term {
                Term::Axis(axis) => f.write_str(self.axis_name(*axis))?,
                Term::Reg(reg) => write!(f, "{reg}")?,
                Term::FloorDiv(inner, divisor) => {
                    f.write_str("floor_div(")?;
                    self.write_affine(f, inner)?;
                    write!(f, ", {divisor})")?;
                }
                Term::Mod(inner, divisor) => {
                    f.write_str("mod(")?;
                    self.write_affine(f, inner)?;
                    write!(f, ", {divisor})")?;
                }
            }
        }
        if affine.constant < 0 || affine.terms.is_empty() {
            write!(f, "{}", affine.constant)
        } else if affine.constant > 0 {
            write!(f, "+{}", affine.constant)
        } else {
            Ok(())
        }
    }
}

fn write_results(
    f: &mut fmt::Formatter<'_>,
    results: &[Reg],
    registers: &Registers,
) -> fmt::Result {
    for (n, result) in results.iter().enumerate() {
        f.write_str(if n > 0 { ", " } else { "" })?;
        match registers.get(*result) {
            Some(dtype) => write!(f, "{result}: {dtype}")?,
            None => write!(f, "{result}: ?")?,
        }
    }
    f.write_str(" = ")
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.block {
            0 => write!(f, "tree({})", self.lanes),
            block => write!(f, "tree({}, {block})", self.lanes),
        }
    }
}
