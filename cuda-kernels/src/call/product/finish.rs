//! The end of a sum: the epilogue, each step of which has the bits of the graph op that it stands
//! for, and the store.

use super::super::draft::Draft;
use super::super::index::advance;
use super::super::number::{Number, Place};
use super::Product;
use crate::ptx::{Binary, Code, Compare, Reg, Space, Type};
use crate::scalar::{self, Functions};
use crate::stage::{Access, Memory, Slot};
use wengert_core::call::{Activation, Epilogue};
use wengert_core::nest::ScalarOp;

/// Destination of a kernel's sums.
pub(super) struct Destination {
    /// The result, or the parts that another stage adds up.
    out: Reg,
    bias: Option<Reg>,
    residual: Option<Reg>,
    finishes: bool,
    /// Elements of `out`.
    number: Number,
    /// Strides of `out`: parts, batch, rows.
    strides: [i64; 3],
    /// Vector width of stores: their columns begin at a multiple of it.
    pub vector: usize,
}

impl Destination {
    /// The result.
    pub fn result(draft: &mut Draft, product: &Product) -> Destination {
        let bias = product.bias_argument().map(|n| draft.pointer("bias", Slot::read(n)));
        let residual = product.residual_argument();
        let in_place = residual.is_some() && residual == product.in_place;
        let access = if in_place { Access::ReadWrite } else { Access::Write };
        let memory = Memory::Argument(product.result_argument);
        let out = draft.pointer("out", Slot { memory, access });
        let residual = match residual {
            Some(_) if in_place => Some(out),
            Some(n) => Some(draft.pointer("residual", Slot::read(n))),
            None => None,
        };
        let number = Number(product.result);
        let strides = [0, product.out.batch, product.out.row];
        let aligned = (product.alignment / number.size() as usize).max(1);
        let mut vector = number.vector().min(product.sums().vector()).min(aligned);
        while strides.iter().chain([&(product.n as i64)]).any(|n| n % vector as i64 != 0) {
            vector /= 2;
        }
        Destination { out, bias, residual, finishes: true, number, strides, vector }
    }

    /// The parts of a sum, in the workspace: `[part, batch, m, n]`.
    pub fn parts(draft: &mut Draft, product: &Product, parts: usize) -> Destination {
        let number = product.sums();
        let out = draft.pointer("parts", product.parts_slot(parts, Access::Write));
        let strides = [product.batch * product.m * product.n, product.m * product.n, product.n];
        let mut vector = number.vector();
        while !product.n.is_multiple_of(vector) {
            vector /= 2;
        }
        let strides = strides.map(|s| s as i64);
        Destination { out, bias: None, residual: None, finishes: false, number, strides, vector }
    }

    /// Byte offset of the first row of a batch's product.
    pub fn start(&self, code: &mut Code, part: Reg, batch: Reg) -> Reg {
        let zero = code.mov(Type::U64, 0);
        let start = advance(code, zero, part, self.strides[0] * self.number.size());
        advance(code, start, batch, self.strides[1] * self.number.size())
    }

    /// Byte offset of a row.
    pub fn row(&self, code: &mut Code, start: Reg, row: Reg) -> Reg {
        advance(code, start, row, self.strides[2] * self.number.size())
    }

    /// Byte offset of a column of a row.
    pub fn column(&self, code: &mut Code, row: Reg, column: Reg) -> Reg {
        advance(code, row, column, self.number.size())
    }

    /// The bias of `count` neighbouring columns, from `column` on; none if there is no bias.
    pub fn bias(&self, code: &mut Code, column: Reg, count: usize, valid: Option<Reg>) -> Vec<Reg> {
        let Some(bias) = self.bias else { return vec![] };
        let address = advance(code, bias, column, self.number.size());
        let raw = self.number.load(code, Space::Global, Place { address, offset: 0, valid }, count);
        raw.into_iter().map(|raw| self.number.widen(code, raw)).collect()
    }

    /// Stores neighbouring elements of a row, where `valid` holds. `offset` is the byte offset of
    /// the first one; `bias` is that of their columns.
    pub fn store(
        &self,
        code: &mut Code,
        functions: &mut Functions,
        epilogue: &Epilogue,
        (offset, valid): (Reg, Option<Reg>),
        sums: &[Reg],
        bias: &[Reg],
    ) {
        let at = |code: &mut Code, base: Reg| {
            let address = code.binary(Binary::Add, Type::S64, base, offset);
            Place { address, offset: 0, valid }
        };
        let out = at(code, self.out);
        if !self.finishes {
            self.number.store(code, Space::Global, out, sums);
            return;
        }
        let residual = self.residual.map(|base| {
            let place = if base == self.out { out } else { at(code, base) };
            self.number.load(code, Space::Global, place, sums.len())
        });
        let mut values = vec![];
        for (n, sum) in sums.iter().enumerate() {
            let mut value = self.number.round(code, *sum);
            if let Some(bias) = bias.get(n) {
                value = self.number.add(code, value, *bias);
            }
            if let Some(activation) = epilogue.activation {
                value = activate(code, functions, self.number, activation, value);
            }
            if let Some(residual) = &residual {
                let other = self.number.widen(code, residual[n]);
                value = self.number.add(code, value, other);
            }
            values.push(self.number.narrow(code, value));
        }
        self.number.store(code, Space::Global, out, &values);
    }
}

fn activate(
    code: &mut Code,
    functions: &mut Functions,
    number: Number,
    activation: Activation,
    x: Reg,
) -> Reg {
    let mut tanh = |code: &mut Code, x: Reg| {
        let wide = number.widened().0;
        let value = scalar::emit(code, functions, ScalarOp::Tanh, &[wide], wide, &[x])
            .expect("tanh of f32 and of f64 has a program");
        number.round(code, value)
    };
    match activation {
        // The maximum of −0 and 0 is 0; a NaN stays NaN.
        Activation::Relu => {
            let below = code.compare(Compare::Le, number.wide(), x, number.zero());
            code.select(number.wide(), number.zero(), x, below)
        }
        Activation::Tanh => tanh(code, x),
        // x·½ · (1 + tanh(√(2/π)·(x²·x·0.044715 + x))), from left to right, in the order of the
        // library's graph.
        Activation::GeluTanh => {
            let square = number.mul(code, x, x);
            let cube = number.mul(code, square, x);
            let scaled = number.mul(code, cube, number.constant(0.044715));
            let sum = number.add(code, scaled, x);
            let inner = number.mul(code, sum, number.constant((2.0 / std::f64::consts::PI).sqrt()));
            let inner = tanh(code, inner);
            let more = number.add(code, inner, number.constant(1.0));
            let half = number.mul(code, x, number.constant(0.5));
            number.mul(code, half, more)
        }
    }
}
