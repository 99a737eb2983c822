//! Builder of code. It allocates registers, appends instructions by a method for each kind, and
//! nests loops and branches.

use super::instruction::{Binary, Compare, Inst, Line, Rounding, Statement, Ternary, Unary};
use super::types::{Operand, Reg, Space, Type, Width};
use std::collections::BTreeSet;
use std::fmt;

/// A label in the code of one function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Label(u32);

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "$L{}", self.0)
    }
}

/// The body of a kernel or function under construction.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Code {
    /// Registers of each width.
    counts: [u32; 4],
    labels: u32,
    pub(super) lines: Vec<Line>,
}

impl Code {
    /// Empty code.
    pub fn new() -> Self {
        Code::default()
    }

    /// Lines so far.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Removes the lines with these numbers.
    pub fn remove(&mut self, lines: &BTreeSet<usize>) {
        let mut number = 0;
        self.lines.retain(|_| {
            number += 1;
            !lines.contains(&(number - 1))
        });
    }

    /// The number of registers of this width.
    pub fn registers(&self, width: Width) -> u32 {
        self.counts[width as usize]
    }

    /// A new register, undefined.
    pub fn reg(&mut self, width: Width) -> Reg {
        let count = &mut self.counts[width as usize];
        *count += 1;
        Reg { width, number: *count - 1 }
    }

    /// A new register for a value of this type, undefined.
    pub fn reg_of(&mut self, ty: Type) -> Reg {
        self.reg(ty.width())
    }

    /// A comment about the code that follows.
    pub fn comment(&mut self, text: impl Into<String>) {
        self.lines.push(Line::Comment(text.into().replace('\n', " ")));
    }

    /// Keeps ptxas from unrolling the loop whose body begins here. Unrolled, it may load so much in
    /// advance that registers spill.
    pub fn no_unroll(&mut self) {
        self.lines.push(Line::NoUnroll);
    }

    /// Appends an instruction.
    pub fn push(&mut self, inst: Inst) {
        self.push_where(None, inst);
    }

    /// Appends an instruction that is executed only where `predicate` holds.
    pub fn push_if(&mut self, predicate: Reg, inst: Inst) {
        self.push_where(Some(predicate), inst);
    }

    /// Appends an instruction that is executed only where the predicate, if there is one, holds.
    pub fn push_where(&mut self, predicate: Option<Reg>, inst: Inst) {
        let guard = predicate.map(|predicate| (predicate, false));
        self.lines.push(Line::Statement(Statement { guard, inst }));
    }

    /// Copies into a new register.
    pub fn mov(&mut self, ty: Type, from: impl Into<Operand>) -> Reg {
        self.unary(Unary::Mov, ty, from)
    }

    /// Copies into an existing register, which is then a mutable variable.
    pub fn assign(&mut self, ty: Type, to: Reg, from: impl Into<Operand>) {
        self.push(Inst::Unary(Unary::Mov, ty, to, from.into()));
    }

    /// `op x`. The result of `popc` and `clz` has 32 bits.
    pub fn unary(&mut self, op: Unary, ty: Type, x: impl Into<Operand>) -> Reg {
        let counts = matches!(op, Unary::Popc | Unary::Clz);
        let result = self.reg(if counts { Width::B32 } else { ty.width() });
        self.push(Inst::Unary(op, ty, result, x.into()));
        result
    }

    /// `x op y`.
    pub fn binary(
        &mut self,
        op: Binary,
        ty: Type,
        x: impl Into<Operand>,
        y: impl Into<Operand>,
    ) -> Reg {
        let result = self.reg_of(ty);
        self.binary_into(result, op, ty, x, y);
        result
    }

    /// `x op y` into an existing register.
    pub fn binary_into(
        &mut self,
        result: Reg,
        op: Binary,
        ty: Type,
        x: impl Into<Operand>,
        y: impl Into<Operand>,
    ) {
        self.push(Inst::Binary(op, ty, result, x.into(), y.into()));
    }

    /// `x · y + z` in one of its forms.
    pub fn ternary(
        &mut self,
        op: Ternary,
        ty: Type,
        x: impl Into<Operand>,
        y: impl Into<Operand>,
        z: impl Into<Operand>,
    ) -> Reg {
        let result = self.reg(if op == Ternary::MadWide { Width::B64 } else { ty.width() });
        self.push(Inst::Ternary(op, ty, result, x.into(), y.into(), z.into()));
        result
    }

    /// A comparison; the result is a predicate.
    pub fn compare(
        &mut self,
        op: Compare,
        ty: Type,
        x: impl Into<Operand>,
        y: impl Into<Operand>,
    ) -> Reg {
        let result = self.reg(Width::Pred);
        self.push(Inst::Compare(op, ty, result, x.into(), y.into()));
        result
    }

    /// `predicate ? x : y`.
    pub fn select(
        &mut self,
        ty: Type,
        x: impl Into<Operand>,
        y: impl Into<Operand>,
        predicate: Reg,
    ) -> Reg {
        let result = self.reg_of(ty);
        self.push(Inst::Select(ty, result, x.into(), y.into(), predicate));
        result
    }

    /// A conversion.
    pub fn convert(
        &mut self,
        rounding: Rounding,
        to: Type,
        from: Type,
        x: impl Into<Operand>,
    ) -> Reg {
        let result = self.reg_of(to);
        self.push(Inst::Convert { rounding, to, from, result, operand: x.into() });
        result
    }

    /// Loads one element.
    pub fn load(&mut self, space: Space, ty: Type, base: impl Into<Operand>, offset: i64) -> Reg {
        let result = self.reg_of(ty);
        self.push(Inst::load(space, ty, &[result], base, offset));
        result
    }

    /// Stores one element.
    pub fn store(
        &mut self,
        space: Space,
        ty: Type,
        base: impl Into<Operand>,
        offset: i64,
        value: impl Into<Operand>,
    ) {
        self.push(Inst::store(space, ty, base, offset, [value]));
    }

    /// A label that is not placed yet.
    pub fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels - 1)
    }

    /// Places a label here.
    pub fn place(&mut self, label: Label) {
        self.lines.push(Line::Label(label));
    }

    /// Jumps to a label.
    pub fn branch(&mut self, label: Label) {
        self.push(Inst::Branch(label));
    }

    /// Jumps to a label where the predicate holds.
    pub fn branch_if(&mut self, predicate: Reg, label: Label) {
        self.push_if(predicate, Inst::Branch(label));
    }

    /// Jumps to a label where the predicate does not hold.
    pub fn branch_unless(&mut self, predicate: Reg, label: Label) {
        let (guard, inst) = (Some((predicate, true)), Inst::Branch(label));
        self.lines.push(Line::Statement(Statement { guard, inst }));
    }

    /// Emits `body` for the threads in which the predicate holds.
    pub fn when<T>(&mut self, predicate: Reg, body: impl FnOnce(&mut Code) -> T) -> T {
        let end = self.label();
        self.branch_unless(predicate, end);
        let value = body(self);
        self.place(end);
        value
    }

    /// Emits `then` for the threads in which the predicate holds, `otherwise` for the others.
    pub fn either(
        &mut self,
        predicate: Reg,
        then: impl FnOnce(&mut Code),
        otherwise: impl FnOnce(&mut Code),
    ) {
        let (other, end) = (self.label(), self.label());
        self.branch_unless(predicate, other);
        then(self);
        self.branch(end);
        self.place(other);
        otherwise(self);
        self.place(end);
    }

    /// `for i in (from..to).step_by(step)` over 32-bit signed integers, for which `to + step`
    /// does not overflow. `i` is a register that the body may read.
    pub fn count<T>(
        &mut self,
        from: impl Into<Operand>,
        to: impl Into<Operand>,
        step: impl Into<Operand>,
        body: impl FnOnce(&mut Code, Reg) -> T,
    ) -> T {
        let (to, step) = (to.into(), step.into());
        let i = self.mov(Type::S32, from);
        let (begin, end) = (self.label(), self.label());
        let none = self.compare(Compare::Ge, Type::S32, i, to.clone());
        self.branch_if(none, end);
        self.place(begin);
        let value = body(self, i);
        self.binary_into(i, Binary::Add, Type::S32, i, step);
        let more = self.compare(Compare::Lt, Type::S32, i, to);
        self.branch_if(more, begin);
        self.place(end);
        value
    }
}
