//! `wmma`: matrices whose distribution over the lanes is implementation-defined.
//!
//! PTX specifies only the number of registers of a fragment, and that all lanes load, multiply
//! and store together. Here a fragment holds its matrix in rows, one value after the other: lane
//! 0's registers first. If the registers have more room than the matrix needs, it is repeated, so
//! that code which works on all elements of a fragment alike finds a value in each.

use super::modifiers::Modifiers;
use super::program::{Fragment, Matrix, Op};
use super::{Builder, Class, Frame, Result};
use crate::parse::syntax::{self, Type};
use crate::semantics::matrix::Shape;

/// Shapes by name: m, n, k.
const SHAPES: [(&str, (usize, usize, usize)); 5] = [
    ("m16n16k16", (16, 16, 16)),
    ("m8n32k16", (8, 32, 16)),
    ("m32n8k16", (32, 8, 16)),
    ("m16n16k8", (16, 16, 8)),
    ("m8n8k4", (8, 8, 4)),
];

impl<'a> Builder<'a> {
    pub(super) fn wmma(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        let what = m.first().unwrap_or("");
        let shape = SHAPES.iter().find(|(name, _)| m.take(name)).map(|&(_, shape)| shape);
        let (true, true, Some((rows, columns, k))) = (m.take("sync"), m.take("aligned"), shape)
        else {
            return Ok(false);
        };
        if what == "mma" {
            return self.fragment_product(frame, i, m, Shape { m: rows, n: columns, k, packed: 1 });
        }
        let (height, width) = match (what, m.one_of(&["a", "b", "c", "d"])) {
            ("load", Some("a")) => (rows, k),
            ("load", Some("b")) => (k, columns),
            ("load", Some("c")) | ("store", Some("d")) => (rows, columns),
            _ => return Ok(false),
        };
        let Some(layout) = m.one_of(&["row", "col"]) else {
            return self.error(i, "the layout is .row or .col");
        };
        let said = m.space();
        let ty = self.one_type(i, m)?;
        let store = what == "store";
        let strided = i.operands.len() == 3;
        self.exactly(i, if strided { 3 } else { 2 })?;
        let (data, place) =
            if store { (&i.operands[1], &i.operands[0]) } else { (&i.operands[0], &i.operands[1]) };
        let (variable, base, offset) = self.address(frame, i, place)?;
        let space = self.space_of(frame, said, variable);
        let class = if ty.bits() == 64 { Class::Double } else { Class::Word };
        let syntax::Operand::Vector(elements) = data else {
            return self.error(i, "a fragment is a vector");
        };
        let (mut outputs, mut inputs) = (Vec::new(), vec![base]);
        if strided {
            let stride = self.source(frame, i, &i.operands[2], Type::Bits(32))?;
            self.expect(i, stride, Class::Word)?;
            inputs.push(stride);
        } else {
            let dense = if layout == "row" { width } else { height };
            inputs.push(self.value(dense as u64));
        }
        for element in elements {
            let register = if store {
                self.source(frame, i, element, ty)?
            } else {
                self.target(frame, i, element)?
            };
            self.expect(i, register, class)?;
            if store { inputs.push(register) } else { outputs.push(register) }
        }
        let values = elements.len() as u32 * if ty.bits() == 64 { 1 } else { 32 / ty.bits() };
        if (values as usize * 32) < height * width {
            return self.error(i, "the fragment has too few registers for the matrix");
        }
        let fragment = Fragment {
            height,
            width,
            by_rows: layout == "row",
            bits: ty.bits(),
            registers: elements.len(),
            space,
            offset,
            store,
        };
        self.emit(frame, i, Op::Fragment(Box::new(fragment)), outputs, inputs);
        Ok(true)
    }

    fn fragment_product(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
        shape: Shape,
    ) -> Result<bool> {
        // The layouts were applied when the fragments were loaded.
        if m.one_of(&["row", "col"]).is_none() || m.one_of(&["row", "col"]).is_none() {
            return self.error(i, "the layouts are .row or .col");
        }
        let saturate = m.take("satfinite");
        m.take("rn");
        let (d, a, b, c) = match m.types()[..] {
            [d, c] => (d, Type::Float(16), Type::Float(16), c),
            [d, a, b, c] => (d, a, b, c),
            _ => return self.error(i, "`wmma.mma` has two or four types"),
        };
        let (Some(a_element), Some(b_element), Some(c_element), true) = (
            super::control::element(a),
            super::control::element(b),
            super::control::accumulator(c),
            c == d,
        ) else {
            return self.error(i, "these types of matrices are not supported");
        };
        self.exactly(i, 4)?;
        let (mut outputs, mut inputs) = (Vec::new(), Vec::new());
        let sizes = [shape.m * shape.n, shape.m * shape.k, shape.k * shape.n, shape.m * shape.n];
        let mut counts = Vec::new();
        for (at, (operand, ty)) in i.operands.iter().zip([d, a, b, c]).enumerate() {
            let syntax::Operand::Vector(elements) = operand else {
                return self.error(i, "a fragment is a vector");
            };
            let class = if ty.bits() == 64 { Class::Double } else { Class::Word };
            if elements.len() * 32 * if ty.bits() == 64 { 1 } else { 32 / ty.bits() as usize }
                < sizes[at]
            {
                return self.error(i, "the fragment has too few registers for the matrix");
            }
            counts.push(elements.len());
            for element in elements {
                let register = if at == 0 {
                    self.target(frame, i, element)?
                } else {
                    self.source(frame, i, element, ty)?
                };
                self.expect(i, register, class)?;
                if at == 0 { outputs.push(register) } else { inputs.push(register) }
            }
        }
        let matrix = Matrix { shape, a: a_element, b: b_element, c: c_element, saturate };
        let op = Op::FragmentProduct(Box::new(matrix), [counts[1], counts[2]]);
        self.emit(frame, i, op, outputs, inputs);
        Ok(true)
    }
}
