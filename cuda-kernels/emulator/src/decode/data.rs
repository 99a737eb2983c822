//! Moves, conversions, selections and comparisons.

use super::arithmetic::float_format;
use super::modifiers::Modifiers;
use super::program::{Boolean, Comparison, Op, Operand, Property};
use super::{Builder, Class, Frame, Result};
use crate::parse::syntax::{self, Space, Type};
use crate::semantics::convert::{Conversion, Kind};
use crate::semantics::exact::{F16, F32, Rounding};
use crate::semantics::float::Relation;
use crate::semantics::rows;
use crate::semantics::scalar::Scalar;

/// `and`, `or`, `xor`.
pub(super) fn boolean(name: &str) -> Option<Boolean> {
    Some(match name {
        "and" => Boolean::And,
        "or" => Boolean::Or,
        "xor" => Boolean::Xor,
        _ => return None,
    })
}

/// A relation by its name, and whether it holds for NaN.
fn relation(name: &str) -> Option<(Relation, bool)> {
    Some(match name {
        "eq" => (Relation::Equal, false),
        "ne" => (Relation::NotEqual, false),
        "lt" | "lo" => (Relation::Less, false),
        "le" | "ls" => (Relation::LessEqual, false),
        "gt" | "hi" => (Relation::Greater, false),
        "ge" | "hs" => (Relation::GreaterEqual, false),
        "equ" => (Relation::Equal, true),
        "neu" => (Relation::NotEqual, true),
        "ltu" => (Relation::Less, true),
        "leu" => (Relation::LessEqual, true),
        "gtu" => (Relation::Greater, true),
        "geu" => (Relation::GreaterEqual, true),
        "num" => (Relation::Numbers, false),
        "nan" => (Relation::NaN, false),
        _ => return None,
    })
}

impl<'a> Builder<'a> {
    pub(super) fn data(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        match i.opcode.as_str() {
            "mov" => self.mov(frame, i, m),
            "cvt" => self.cvt(frame, i, m),
            "cvta" => self.cvta(frame, i, m),
            "isspacep" => {
                let Some(space) = m.space() else {
                    return self.error(i, "`isspacep` names a space");
                };
                self.exactly(i, 2)?;
                let output = self.target(frame, i, &i.operands[0])?;
                let input = self.source(frame, i, &i.operands[1], Type::Bits(64))?;
                self.emit(frame, i, Op::IsSpace(space), vec![output], vec![input]);
                Ok(true)
            }
            "selp" => {
                let ty = self.one_type(i, m)?;
                self.exactly(i, 4)?;
                let output = self.target(frame, i, &i.operands[0])?;
                let class = if ty.bits() == 64 { Class::Double } else { Class::Word };
                self.expect(i, output, class)?;
                let a = self.source(frame, i, &i.operands[1], ty)?;
                let b = self.source(frame, i, &i.operands[2], ty)?;
                self.expect(i, a, class)?;
                self.expect(i, b, class)?;
                let p = self.source(frame, i, &i.operands[3], Type::Predicate)?;
                self.expect(i, p, Class::Predicate)?;
                self.emit(frame, i, Op::Select, vec![output], vec![a, b, p]);
                Ok(true)
            }
            "slct" => {
                let flush = m.take("ftz");
                let types = m.types();
                let [ty, sign] = types[..] else { return self.error(i, "`slct` has two types") };
                let float = sign == Type::Float(32);
                self.scalar(frame, i, Scalar::SelectBySign { float, flush }, &[ty, ty, sign])
            }
            "setp" | "set" => self.set(frame, i, m),
            "testp" => {
                let ty = self.one_type(i, m)?;
                let Some((format, false)) = float_format(ty) else { return Ok(false) };
                let property = match m.first() {
                    Some("finite") => Property::Finite,
                    Some("infinite") => Property::Infinite,
                    Some("number") => Property::Number,
                    Some("notanumber") => Property::NotANumber,
                    Some("normal") => Property::Normal,
                    Some("subnormal") => Property::Subnormal,
                    _ => return self.error(i, "`testp` names a property"),
                };
                self.exactly(i, 2)?;
                let output = self.target(frame, i, &i.operands[0])?;
                let input = self.source(frame, i, &i.operands[1], ty)?;
                let comparison = Comparison::Test { format, property };
                self.emit(
                    frame,
                    i,
                    Op::Compare { comparison, combine: None, value: None },
                    vec![output],
                    vec![input, input],
                );
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn mov(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        let ty = self.one_type(i, m)?;
        self.exactly(i, 2)?;
        match (&i.operands[0], &i.operands[1]) {
            (syntax::Operand::Vector(_), syntax::Operand::Vector(_)) => {
                self.error(i, "`mov` packs or unpacks, not both at once")
            }
            (target, syntax::Operand::Vector(parts)) => {
                let bits = ty.bits() / parts.len().max(1) as u32;
                let output = self.target(frame, i, target)?;
                let mut inputs = Vec::new();
                for part in parts {
                    inputs.push(self.source(frame, i, part, Type::Bits(bits))?);
                }
                self.check_packing(i, ty, parts.len())?;
                self.emit(frame, i, Op::Join { bits }, vec![output], inputs);
                Ok(true)
            }
            (syntax::Operand::Vector(parts), source) => {
                let bits = ty.bits() / parts.len().max(1) as u32;
                self.check_packing(i, ty, parts.len())?;
                let input = self.source(frame, i, source, ty)?;
                let mut outputs = Vec::new();
                for part in parts {
                    outputs.push(self.target(frame, i, part)?);
                }
                self.emit(frame, i, Op::Split { bits }, outputs, vec![input]);
                Ok(true)
            }
            (target, source) => {
                let output = self.target(frame, i, target)?;
                if ty == Type::Predicate {
                    let input = self.source(frame, i, source, ty)?;
                    self.expect(i, output, Class::Predicate)?;
                    self.expect(i, input, Class::Predicate)?;
                    self.emit(frame, i, Op::Predicates(None, false), vec![output], vec![input]);
                    return Ok(true);
                }
                if let syntax::Operand::Name(name) = source {
                    return self.error(
                        i,
                        format!(
                            "`{name}` is no variable; addresses of functions are not supported"
                        ),
                    );
                }
                // `mov.u32 %r, %clock64` and similar truncate; `mov.u16 %rs, %tid.x` too.
                let input = self.source(frame, i, source, ty)?;
                let same = self.class(input).is_none_or(|class| Some(class) == self.class(output));
                match rows::integer1("mov", Type::Bits(ty.bits())) {
                    Some(rows)
                        if same
                            && (ty.bits() > 16
                                || self.width(output) == 16 && self.width(input) != 32) =>
                    {
                        let class = if ty.bits() == 64 { Class::Double } else { Class::Word };
                        self.expect(i, output, class)?;
                        self.emit(frame, i, Op::Rows(rows), vec![output], vec![input]);
                    }
                    _ => {
                        let kind = Kind::Unsigned(ty.bits());
                        let bits = self.width(output);
                        let scalar = Scalar::Convert(Conversion::new(kind, kind));
                        self.emit(frame, i, Op::Scalar(scalar, bits), vec![output], vec![input]);
                    }
                }
                Ok(true)
            }
        }
    }

    fn check_packing(&self, i: &syntax::Instruction, ty: Type, parts: usize) -> Result<()> {
        if matches!(parts, 2 | 4) && ty.bits() as usize / parts >= 8 {
            Ok(())
        } else {
            self.error(i, format!("{} bits are not made of {parts} registers", ty.bits()))
        }
    }

    fn cvt(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        if m.take("pack") {
            let saturate = m.take("sat");
            let types = m.types();
            let (Some(&to), true) = (types.first(), saturate) else {
                return self.error(i, "`cvt.pack` is supported with .sat and types");
            };
            let third = i.operands.len() == 4;
            let scalar = Scalar::Pack { width: to.bits(), signed: to.is_signed(), third };
            let types = [Type::Bits(32); 3];
            return self.scalar(frame, i, scalar, &types[..if third { 3 } else { 2 }]);
        }
        let types = m.types();
        let [to, from] = types[..] else { return self.error(i, "`cvt` has two types") };
        let whole_rounding = m.one_of(&["rni", "rzi", "rmi", "rpi"]);
        let rounding = match whole_rounding {
            Some("rni") => Some(Rounding::NearestEven),
            Some("rzi") => Some(Rounding::Zero),
            Some("rmi") => Some(Rounding::Down),
            Some(_) => Some(Rounding::Up),
            None => m.rounding(),
        };
        let plain = i.modifiers.len() == 2 + usize::from(rounding.is_some());
        let part = |ty: Type| match ty {
            Type::HalfPair => Type::Float(16),
            Type::BrainPair => Type::Brain,
            Type::E4M3Pair => Type::E4M3,
            Type::E5M2Pair => Type::E5M2,
            other => other,
        };
        let (Some(to_kind), Some(from_kind)) = (Kind::of(part(to)), Kind::of(part(from))) else {
            return Ok(false);
        };
        let conversion = Conversion {
            rounding: rounding.unwrap_or(Rounding::NearestEven),
            whole: whole_rounding.is_some(),
            flush: m.take("ftz"),
            saturate: m.take("sat"),
            relu: m.take("relu"),
            finite: m.take("satfinite"),
            ..Conversion::new(to_kind, from_kind)
        };
        let from_float = matches!(from_kind, Kind::Float(_) | Kind::E4M3);
        let to_integer = matches!(to_kind, Kind::Signed(_) | Kind::Unsigned(_));
        if from_float && to_integer && rounding.is_none() {
            return self.error(i, "a conversion from float to integer says how it rounds");
        }
        if !from_float && !to_integer && rounding.is_none() {
            return self.error(i, "a conversion from integer to float says how it rounds");
        }
        match (part(to) != to, part(from) != from) {
            (true, false) => {
                return self.scalar(frame, i, Scalar::ConvertPair(conversion), &[from, from]);
            }
            (true, true) if to.bits() > from.bits() => {
                return self.scalar(frame, i, Scalar::WidenPair(conversion), &[from]);
            }
            (true, true) => return self.scalar(frame, i, Scalar::WidenPair(conversion), &[from]),
            (false, true) => return Ok(false),
            (false, false) => {}
        }
        // The common pairs, if the registers have exactly those widths.
        let even = matches!(rounding, None | Some(Rounding::NearestEven));
        let common = match whole_rounding {
            Some(name) => rows::whole(to, from, name),
            None if even && to != from => rows::convert(to, from),
            None => None,
        };
        if let Some(rows) = common
            && plain
        {
            self.exactly(i, 2)?;
            let output = self.target(frame, i, &i.operands[0])?;
            let input = self.source(frame, i, &i.operands[1], from)?;
            let fits = |builder: &Self, operand: Operand, ty: Type| {
                let class = if ty.bits() == 64 { Class::Double } else { Class::Word };
                builder.class(operand).is_none_or(|found| found == class)
            };
            let narrow = to.bits() == 16 && self.width(output) != 16;
            // Signed results are sign-extended in a register that is wider than the type; 32 bits
            // never go into 16.
            if fits(self, output, to) && fits(self, input, from) && !narrow {
                return self.rows(frame, i, rows, from);
            }
        }
        self.scalar(frame, i, Scalar::Convert(conversion), &[from])
    }

    fn cvta(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        let to = m.take("to");
        let Some(space) = m.space() else { return self.error(i, "`cvta` names a space") };
        let ty = self.one_type(i, m)?;
        self.exactly(i, 2)?;
        if ty.bits() != 64 {
            return self.error(i, "generic addresses have 64 bits");
        }
        let output = self.target(frame, i, &i.operands[0])?;
        self.expect(i, output, Class::Double)?;
        let input = self.source(frame, i, &i.operands[1], ty)?;
        self.expect(i, input, Class::Double)?;
        // A call's parameters live in the thread's local memory.
        let space =
            if space == Space::Param && !frame.function.entry { Space::Local } else { space };
        let op = if to { Op::FromGeneric(space) } else { Op::ToGeneric(space) };
        self.emit(frame, i, op, vec![output], vec![input]);
        Ok(true)
    }

    fn set(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        let name = m.first().unwrap_or("");
        let Some((relation, unordered)) = relation(name) else {
            return self.error(i, format!("`.{name}` is no relation"));
        };
        let combine = m.one_of(&["and", "or", "xor"]).and_then(boolean);
        let flush = m.take("ftz");
        let types = m.types();
        let (ty, value) = match (types[..].first(), types.get(1), i.opcode.as_str()) {
            (Some(&ty), None, "setp") => (ty, None),
            (Some(&result), Some(&ty), "set") => {
                let one = match result {
                    Type::Float(32) => F32.pack(
                        crate::semantics::exact::Number::Finite(
                            crate::semantics::exact::Exact::integer(1),
                        ),
                        Rounding::Zero,
                    ) as u32,
                    Type::Float(16) => 0x3c00,
                    Type::Brain => 0x3f80,
                    Type::HalfPair => 0x3c00_3c00,
                    Type::BrainPair => 0x3f80_3f80,
                    _ if result.bits() == 16 => 0xffff,
                    _ => u32::MAX,
                };
                (ty, Some(one))
            }
            _ => return self.error(i, format!("`{}` has another number of types", i.opcode)),
        };
        let comparison = match float_format(ty) {
            Some((format, true)) => Comparison::Pair { format, relation, unordered, flush },
            Some((format, false)) => match rows::compare(ty, relation) {
                Some(rows) if !unordered && !flush && format != F16 => Comparison::Rows(rows),
                _ => Comparison::Float { format, relation, unordered, flush },
            },
            None => match rows::compare(ty, relation) {
                Some(rows) => Comparison::Rows(rows),
                None => return self.error(i, format!("`.{name}` does not compare such types")),
            },
        };
        self.exactly(i, if combine.is_some() { 4 } else { 3 })?;
        let mut outputs = Vec::new();
        match &i.operands[0] {
            syntax::Operand::Pair(p, q) if value.is_none() => {
                outputs.push(self.target(frame, i, p)?);
                outputs.push(self.target(frame, i, q)?);
            }
            single => outputs.push(self.target(frame, i, single)?),
        }
        let wanted = if value.is_none() { Class::Predicate } else { Class::Word };
        for &output in &outputs {
            self.expect(i, output, wanted)?;
        }
        let class = if ty.bits() == 64 { Class::Double } else { Class::Word };
        let mut inputs = Vec::new();
        for operand in &i.operands[1..3] {
            let input = self.source(frame, i, operand, ty)?;
            self.expect(i, input, class)?;
            inputs.push(input);
        }
        if combine.is_some() {
            let c = self.source(frame, i, &i.operands[3], Type::Predicate)?;
            self.expect(i, c, Class::Predicate)?;
            inputs.push(c);
        }
        self.emit(frame, i, Op::Compare { comparison, combine, value }, outputs, inputs);
        Ok(true)
    }
}
