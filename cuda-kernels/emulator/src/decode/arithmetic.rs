//! Integer, floating-point and bitwise instructions.

use super::modifiers::Modifiers;
use super::program::Op;
use super::{Builder, Class, Frame, Result};
use crate::parse::syntax::{self, Type};
use crate::semantics::approximate::Function;
use crate::semantics::exact::{BF16, F16, F32, F64, Format, Rounding};
use crate::semantics::float::{Float, Operation};
use crate::semantics::integer::Permutation;
use crate::semantics::rows;
use crate::semantics::scalar::{HalvesInteger, Scalar};

/// The format of a float type, and whether two values share the word.
pub(super) fn float_format(ty: Type) -> Option<(Format, bool)> {
    Some(match ty {
        Type::Float(16) => (F16, false),
        Type::Float(32) => (F32, false),
        Type::Float(64) => (F64, false),
        Type::Brain => (BF16, false),
        Type::HalfPair => (F16, true),
        Type::BrainPair => (BF16, true),
        _ => return None,
    })
}

const B32: Type = Type::Bits(32);

impl<'a> Builder<'a> {
    pub(super) fn arithmetic(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        match i.opcode.as_str() {
            "add" | "sub" | "mul" | "mad" | "fma" | "div" | "rem" | "min" | "max" | "abs"
            | "neg" | "sqrt" | "rcp" | "copysign" => self.typed(frame, i, m),
            "addc" | "subc" | "madc" => self.carried(frame, i, m),
            "and" | "or" | "xor" | "not" => self.logical(frame, i, m),
            "cnot" | "popc" | "clz" | "brev" | "shl" | "shr" | "sad" => self.plain(frame, i, m),
            "mul24" | "mad24" => {
                let high = m.one_of(&["hi", "lo"]) == Some("hi");
                let ty = self.one_type(i, m)?;
                let add = i.opcode == "mad24";
                let scalar = Scalar::Multiply24 { signed: ty.is_signed(), high, add };
                self.scalar(frame, i, scalar, if add { &[B32; 3] } else { &[B32; 2] })
            }
            "bfe" => {
                let ty = self.one_type(i, m)?;
                self.scalar(
                    frame,
                    i,
                    Scalar::Extract { width: ty.bits(), signed: ty.is_signed() },
                    &[ty, B32, B32],
                )
            }
            "bfi" => {
                let ty = self.one_type(i, m)?;
                self.scalar(frame, i, Scalar::Insert { width: ty.bits() }, &[ty, ty, B32, B32])
            }
            "bfind" => {
                let shift_amount = m.take("shiftamt");
                let ty = self.one_type(i, m)?;
                self.scalar(
                    frame,
                    i,
                    Scalar::Find { width: ty.bits(), signed: ty.is_signed(), shift_amount },
                    &[ty],
                )
            }
            "fns" => {
                m.take("b32");
                self.scalar(frame, i, Scalar::NthSet, &[B32; 3])
            }
            "bmsk" => {
                let wrap = m.one_of(&["clamp", "wrap"]) == Some("wrap");
                m.take("b32");
                self.scalar(frame, i, Scalar::BitMask { wrap }, &[B32; 2])
            }
            "szext" => {
                let wrap = m.one_of(&["clamp", "wrap"]) == Some("wrap");
                let signed = self.one_type(i, m)?.is_signed();
                self.scalar(frame, i, Scalar::Extend { signed, wrap }, &[B32; 2])
            }
            "prmt" => {
                m.take("b32");
                let mode = match m.one_of(&["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]) {
                    None => Permutation::Index,
                    Some("f4e") => Permutation::ForwardFour,
                    Some("b4e") => Permutation::BackwardFour,
                    Some("rc8") => Permutation::ReplicateEight,
                    Some("ecl") => Permutation::EdgeLeft,
                    Some("ecr") => Permutation::EdgeRight,
                    Some(_) => Permutation::ReplicateSixteen,
                };
                self.scalar(frame, i, Scalar::Permute(mode), &[B32; 3])
            }
            "shf" => {
                let left = m.one_of(&["l", "r"]) == Some("l");
                let wrap = m.one_of(&["clamp", "wrap"]) == Some("wrap");
                m.take("b32");
                self.scalar(frame, i, Scalar::Funnel { left, wrap }, &[B32; 3])
            }
            "lop3" => self.logic3(frame, i, m),
            "dp4a" | "dp2a" => {
                let high = m.one_of(&["hi", "lo"]) == Some("hi");
                let types = m.types();
                let [a, b] = types[..] else { return self.error(i, "two types are wanted") };
                let signed = (a.is_signed(), b.is_signed());
                let scalar = if i.opcode == "dp4a" {
                    Scalar::Dot4 { signed }
                } else {
                    Scalar::Dot2 { signed, high }
                };
                self.scalar(frame, i, scalar, &[B32; 3])
            }
            "ex2" | "lg2" | "sin" | "cos" | "tanh" | "rsqrt" => self.function(frame, i, m),
            _ => Ok(false),
        }
    }

    pub(super) fn one_type(&self, i: &syntax::Instruction, m: &mut Modifiers<'a>) -> Result<Type> {
        match m.ty() {
            Some(ty) => Ok(ty),
            None => self.error(i, format!("`{}` has one type", i.opcode)),
        }
    }

    fn plain(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        let ty = self.one_type(i, m)?;
        let name = i.opcode.as_str();
        match rows::integer1(name, ty)
            .or_else(|| rows::integer2(name, ty))
            .or_else(|| rows::integer3(name, ty))
        {
            Some(rows) => self.rows(frame, i, rows, ty),
            None => Ok(false),
        }
    }

    fn logical(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        if !m.take("pred") {
            return self.plain(frame, i, m);
        }
        let boolean = super::data::boolean(&i.opcode);
        self.exactly(i, if boolean.is_some() { 3 } else { 2 })?;
        let output = self.target(frame, i, &i.operands[0])?;
        self.expect(i, output, Class::Predicate)?;
        let mut inputs = Vec::new();
        for operand in &i.operands[1..] {
            let input = self.source(frame, i, operand, Type::Predicate)?;
            self.expect(i, input, Class::Predicate)?;
            inputs.push(input);
        }
        self.emit(frame, i, Op::Predicates(boolean, boolean.is_none()), vec![output], inputs);
        Ok(true)
    }

    fn logic3(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        m.take("b32");
        self.exactly(i, 5)?;
        let syntax::Operand::Integer(table) = i.operands[4] else {
            return self.error(i, "the truth table of `lop3` is a constant");
        };
        let output = self.target(frame, i, &i.operands[0])?;
        self.expect(i, output, Class::Word)?;
        let mut inputs = Vec::new();
        for operand in &i.operands[1..4] {
            let input = self.source(frame, i, operand, B32)?;
            self.expect(i, input, Class::Word)?;
            inputs.push(input);
        }
        self.emit(frame, i, Op::Logic(table as u8), vec![output], inputs);
        Ok(true)
    }

    /// Instructions that exist for integers and floats.
    fn typed(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        if m.has("cc") {
            return self.carried(frame, i, m);
        }
        if m.has("u16x2") || m.has("s16x2") {
            return self.halves(frame, i, m);
        }
        let types = m.types();
        let Some(&ty) = types.first() else {
            return self.error(i, format!("`{}` has a type", i.opcode));
        };
        // `add.f32.f16` and similar, of newer architectures.
        if types.len() > 1 {
            return self.error(i, "mixed types are not supported");
        }
        let name = i.opcode.as_str();
        if float_format(ty).is_some() || (matches!(ty, Type::Bits(_)) && name == "copysign") {
            return self.floating(frame, i, m, ty);
        }
        let mut full = name.to_owned();
        if matches!(name, "mul" | "mad") {
            match m.one_of(&["lo", "hi", "wide"]) {
                Some(half) => full = format!("{name}.{half}"),
                None => {
                    return self.error(i, format!("`{name}` of integers says .lo, .hi or .wide"));
                }
            }
        }
        for modifier in ["sat", "relu"] {
            if m.take(modifier) {
                full = format!("{full}.{modifier}");
            }
        }
        match rows::integer1(&full, ty)
            .or_else(|| rows::integer2(&full, ty))
            .or_else(|| rows::integer3(&full, ty))
        {
            Some(rows) => self.rows(frame, i, rows, ty),
            None => Ok(false),
        }
    }

    /// `add.u16x2`, `min.s16x2` and similar, whose types no other instruction has.
    fn halves(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        let signed = match m.one_of(&["u16x2", "s16x2"]) {
            Some(name) => name == "s16x2",
            None => return Ok(false),
        };
        let relu = m.take("relu");
        let operation = match i.opcode.as_str() {
            "add" => HalvesInteger::Add,
            "min" => HalvesInteger::Minimum { signed, relu },
            "max" => HalvesInteger::Maximum { signed, relu },
            _ => return Ok(false),
        };
        self.scalar(frame, i, Scalar::HalvesInteger(operation), &[B32; 2])
    }

    fn floating(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
        ty: Type,
    ) -> Result<bool> {
        let name = i.opcode.as_str();
        let Some((format, pair)) = float_format(ty) else { return Ok(false) };
        let flush = m.take("ftz");
        let approximate = m.take("approx");
        let full = m.take("full");
        let operation = match name {
            "add" => Operation::Add,
            "sub" => Operation::Subtract,
            "mul" => Operation::Multiply,
            "fma" | "mad" => Operation::FusedMultiplyAdd,
            "div" if approximate || full => {
                return self.scalar(frame, i, Scalar::DivideApproximately { flush }, &[ty, ty]);
            }
            "div" => Operation::Divide,
            "rcp" | "sqrt" if approximate => {
                let function = if name == "rcp" { Function::Reciprocal } else { Function::Root };
                let scalar = if format == F64 {
                    Scalar::ApproximateUpper(function)
                } else {
                    Scalar::Approximate(function, format, flush)
                };
                return self.scalar(frame, i, scalar, &[ty]);
            }
            "rcp" => Operation::Reciprocal,
            "sqrt" => Operation::SquareRoot,
            "min" => Operation::Minimum,
            "max" => Operation::Maximum,
            "abs" => Operation::Absolute,
            "neg" => Operation::Negate,
            "copysign" => {
                return match rows::float(name, ty, false) {
                    Some(rows) => self.rows(frame, i, rows, ty),
                    None => Ok(false),
                };
            }
            _ => return Ok(false),
        };
        let rounds = !matches!(
            operation,
            Operation::Minimum | Operation::Maximum | Operation::Absolute | Operation::Negate
        );
        let rounding = if rounds { m.rounding() } else { None };
        if rounding.is_none() && matches!(name, "fma" | "div" | "rcp" | "sqrt") {
            return self.error(i, format!("`{name}` says how it rounds"));
        }
        let float = Float {
            rounding: rounding.unwrap_or(Rounding::NearestEven),
            flush,
            saturate: m.take("sat"),
            relu: m.take("relu"),
            nan: m.take("NaN"),
            xor_sign: m.take("xorsign") | m.take("abs") | m.take("xorsign.abs"),
            ..Float::new(operation, format)
        };
        // Where the row functions lack `.ftz`, values are computed one by one.
        let common = Float { flush, ..Float::new(operation, format) };
        if float == common
            && let Some(rows) = rows::float(if name == "mad" { "fma" } else { name }, ty, flush)
        {
            return self.rows(frame, i, rows, ty);
        }
        let count = match operation {
            Operation::FusedMultiplyAdd => 3,
            Operation::Reciprocal
            | Operation::SquareRoot
            | Operation::Absolute
            | Operation::Negate => 1,
            _ => 2,
        };
        if matches!(operation, Operation::Minimum | Operation::Maximum) && i.operands.len() == 4 {
            return self.error(i, "`min` and `max` of three are not supported");
        }
        self.scalar(
            frame,
            i,
            if pair { Scalar::Pair(float) } else { Scalar::Float(float) },
            &[ty, ty, ty][..count],
        )
    }

    fn function(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        let ty = self.one_type(i, m)?;
        if !m.take("approx") {
            return self.error(i, format!("`{}` says .approx", i.opcode));
        }
        let flush = m.take("ftz");
        let function = match i.opcode.as_str() {
            "ex2" => Function::Exp2,
            "lg2" => Function::Log2,
            "sin" => Function::Sine,
            "cos" => Function::Cosine,
            "tanh" => Function::Tanh,
            _ => Function::ReciprocalRoot,
        };
        let scalar = match float_format(ty) {
            Some((F64, _)) => Scalar::ApproximateUpper(function),
            Some((format, true)) => Scalar::ApproximatePair(function, format),
            Some((format, false)) => Scalar::Approximate(function, format, flush),
            None => return Ok(false),
        };
        self.scalar(frame, i, scalar, &[ty])
    }

    /// Chains of more than 64 bits: `add.cc`, `addc`, `sub.cc`, `subc`, `mad.lo.cc`, `madc.hi.cc`.
    fn carried(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        let (uses, sets) = (i.opcode.ends_with('c'), m.take("cc"));
        let ty = self.one_type(i, m)?;
        let class = if ty.bits() == 64 { Class::Double } else { Class::Word };
        let multiplies = i.opcode.starts_with("mad");
        let op = if multiplies {
            let high = m.one_of(&["hi", "lo"]) == Some("hi");
            Op::MultiplyCarry { high, signed: ty.is_signed(), uses, sets }
        } else {
            Op::Carry { subtract: i.opcode.starts_with("sub"), uses, sets }
        };
        self.exactly(i, if multiplies { 4 } else { 3 })?;
        let output = self.target(frame, i, &i.operands[0])?;
        self.expect(i, output, class)?;
        let mut inputs = Vec::new();
        for operand in &i.operands[1..] {
            let input = self.source(frame, i, operand, ty)?;
            self.expect(i, input, class)?;
            inputs.push(input);
        }
        // The carry of a sum of constants still needs the width.
        if output == super::program::Operand::Sink {
            return self.error(i, "the result goes to a register");
        }
        self.emit(frame, i, op, vec![output], inputs);
        Ok(true)
    }
}
