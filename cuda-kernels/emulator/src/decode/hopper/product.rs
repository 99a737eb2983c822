//! `wgmma`: products of a warpgroup.

use super::{Hopper, Needs, Product};
use crate::decode::control::{accumulator, element};
use crate::decode::modifiers::Modifiers;
use crate::decode::program::Op;
use crate::decode::{Builder, Class, Frame, Result};
use crate::parse::syntax::{self, Type};

impl<'a> Builder<'a> {
    pub(in crate::decode) fn wgmma(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        let what = m.first().unwrap_or("");
        self.needs(i, &format!("wgmma.{what}"), Needs::Hopper)?;
        if !(m.take("sync") && m.take("aligned")) {
            return self.error(i, "`wgmma` says .sync.aligned");
        }
        let simple = match what {
            "mma_async" => return self.product(frame, i, m),
            "fence" => Hopper::ProductFence,
            "commit_group" => Hopper::ProductCommit,
            "wait_group" => match *self.operand(i, 0)? {
                syntax::Operand::Integer(groups @ 0..=7) => Hopper::ProductWait(groups as u32),
                _ => return self.error(i, "the number of groups is a constant from 0 to 7"),
            },
            _ => return Ok(false),
        };
        self.exactly(i, usize::from(matches!(simple, Hopper::ProductWait(_))))?;
        self.emit(frame, i, Op::Hopper(Box::new(simple)), vec![], vec![]);
        Ok(true)
    }

    fn product(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        let shape = i.modifiers.iter().find_map(|word| {
            let (n, k) = word.strip_prefix("m64n")?.split_once('k')?;
            Some((word.as_str(), n.parse::<usize>().ok()?, k.parse::<usize>().ok()?))
        });
        let Some((word, n, k)) = shape else {
            return self.error(i, "the shape of a `wgmma` is .m64nNkK");
        };
        m.take(word);
        let saturate = m.take("satfinite");
        let [d_type, a_type, b_type] = m.types()[..] else {
            return self.error(i, "a `wgmma` has the types of D, A and B");
        };
        let wide = match (a_type, b_type, d_type) {
            (Type::Float(16), Type::Float(16), Type::Float(16 | 32))
            | (Type::Brain, Type::Brain, Type::Float(32)) => 16,
            (Type::Tensor32, Type::Tensor32, Type::Float(32)) => 8,
            (Type::E4M3 | Type::E5M2, Type::E4M3 | Type::E5M2, Type::Float(16 | 32))
            | (
                Type::Signed(8) | Type::Unsigned(8),
                Type::Signed(8) | Type::Unsigned(8),
                Type::Signed(32),
            ) => 32,
            _ => return self.error(i, "a `wgmma` does not multiply these types"),
        };
        let integer = d_type == Type::Signed(32);
        let fits = if integer {
            n % 16 == 0 && n >= 48 || matches!(n, 8 | 16 | 24 | 32)
        } else {
            n % 8 == 0
        };
        if k != wide || n == 0 || n > 256 || !fits {
            return self.error(i, format!("these types have no shape `.{word}`"));
        }
        let (Some(a), Some(b), Some(d)) = (element(a_type), element(b_type), accumulator(d_type))
        else {
            return self.error(i, "these types of matrices are not supported");
        };
        let a_in_registers = matches!(i.operands.get(1), Some(syntax::Operand::Vector(_)));
        // Only elements of 16 bits may be transposed.
        let scales = if integer { 0 } else { 2 };
        let layouts = match (k, a_in_registers) {
            (16, false) => 2,
            (16, true) => 1,
            _ => 0,
        };
        self.exactly(i, 4 + scales + layouts)?;
        let mut constants = Vec::new();
        for (at, operand) in i.operands[4..].iter().enumerate() {
            let syntax::Operand::Integer(value) = *operand else {
                return self.error(i, "the scales and layouts of a `wgmma` are constants");
            };
            match (at < scales, value as i64) {
                (true, 1 | -1) | (false, 0 | 1) => constants.push(value as i64),
                (true, _) => return self.error(i, "the scale of A or B is 1 or -1"),
                (false, _) => return self.error(i, "the layout of A or B is 0 or 1"),
            }
        }
        let scale = |at: usize| at < scales && constants[at] == -1;
        let layout = |at: usize| at < layouts && constants[scales + at] == 1;
        let registers = n / if d_type == Type::Float(16) { 4 } else { 2 };
        let (mut outputs, mut inputs) = (Vec::new(), Vec::new());
        let syntax::Operand::Vector(d_elements) = &i.operands[0] else {
            return self.error(i, "D is a vector of registers");
        };
        if d_elements.len() != registers {
            return self.error(i, format!("D has {registers} registers"));
        }
        for element in d_elements {
            let register = self.target(frame, i, element)?;
            self.expect(i, register, Class::Word)?;
            outputs.push(register);
        }
        match &i.operands[1] {
            syntax::Operand::Vector(elements) => {
                if elements.len() != Product::A_REGISTERS {
                    return self.error(i, "A has four registers");
                }
                for element in elements {
                    let register = self.source(frame, i, element, Type::Bits(32))?;
                    self.expect(i, register, Class::Word)?;
                    inputs.push(register);
                }
            }
            descriptor => {
                let descriptor = self.source(frame, i, descriptor, Type::Bits(64))?;
                self.expect(i, descriptor, Class::Double)?;
                inputs.push(descriptor);
            }
        }
        let descriptor = self.source(frame, i, &i.operands[2], Type::Bits(64))?;
        self.expect(i, descriptor, Class::Double)?;
        inputs.push(descriptor);
        let scale_d = match &i.operands[3] {
            syntax::Operand::Integer(value) => self.value(*value),
            other => self.source(frame, i, other, Type::Predicate)?,
        };
        self.expect(i, scale_d, Class::Predicate)?;
        inputs.push(scale_d);
        let product = Product {
            n,
            k,
            a,
            b,
            d,
            a_in_registers,
            a_transposed: !a_in_registers && layout(0),
            b_transposed: if a_in_registers { layout(0) } else { layout(1) },
            a_negated: scale(0),
            b_negated: scale(1),
            saturate,
        };
        self.emit(frame, i, Op::Hopper(Box::new(Hopper::Product(product))), outputs, inputs);
        Ok(true)
    }
}
