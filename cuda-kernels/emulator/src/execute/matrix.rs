//! `ldmatrix`, `stmatrix`, `movmatrix`, `mma`.

use super::Machine;
use super::access::{put, take};
use super::address::from_generic;
use super::block::Common;
use super::check::{READ, WRITE};
use super::warp::{Warp, lanes};
use crate::decode::program::{Element, Instruction, Matrix};
use crate::parse::syntax::Space;
use crate::sanitize::{Fault, FaultKind};
use crate::semantics::convert::{Conversion, Kind, extend};
use crate::semantics::exact::{F16, F32, F64, Rounding};
use crate::semantics::float::{double, odd_single, single};
use crate::semantics::matrix::{a_element, b_element, c_element, multiply};
use crate::semantics::rows::{Doubles, WARP, Words};

type Result<T> = std::result::Result<T, Box<Fault>>;
type Form = (u32, bool, i64, Option<Space>);

/// An element as a double, which holds every 16-bit, 8-bit and tf32 value exactly.
fn to_double(element: Element, bits: u64) -> f64 {
    let kind = match element {
        Element::Float(F64) => return f64::from_bits(bits),
        Element::Float(F32) => return f64::from(f32::from_bits(bits as u32)),
        Element::Float(format) => Kind::Float(format),
        Element::E4M3 => Kind::E4M3,
        Element::Integer { bits: width, signed } => {
            return if signed { extend(bits, width) as f64 } else { bits as f64 };
        }
    };
    // tf32 ignores the low bits of an f32.
    f64::from_bits(Conversion::new(Kind::Float(F64), kind).evaluate(bits))
}

/// `c + a·b` by the model of `semantics::matrix`.
pub(crate) fn product(matrix: &Matrix, a: &[u64], b: &[u64], c: &mut [u64]) {
    let shape = matrix.shape;
    match matrix.c {
        Element::Integer { .. } => {
            let signed = |element: Element, bits: u64| match element {
                Element::Integer { bits: width, signed: true } => extend(bits, width),
                _ => bits as i64,
            };
            let x: Vec<i64> = a.iter().map(|&bits| signed(matrix.a, bits)).collect();
            let y: Vec<i64> = b.iter().map(|&bits| signed(matrix.b, bits)).collect();
            let mut sums: Vec<i64> = c.iter().map(|&bits| i64::from(bits as u32 as i32)).collect();
            multiply(shape, &x, &y, &mut sums, |sum, x, y| sum + x * y);
            for (bits, sum) in c.iter_mut().zip(sums) {
                let sum =
                    if matrix.saturate { sum.clamp(i32::MIN.into(), i32::MAX.into()) } else { sum };
                *bits = u64::from(sum as u32);
            }
        }
        _ => {
            let x: Vec<f64> = a.iter().map(|&bits| to_double(matrix.a, bits)).collect();
            let y: Vec<f64> = b.iter().map(|&bits| to_double(matrix.b, bits)).collect();
            let mut sums: Vec<f64> = c.iter().map(|&bits| to_double(matrix.c, bits)).collect();
            if matrix.c == Element::Float(F64) {
                multiply(shape, &x, &y, &mut sums, |sum, x, y| x.mul_add(y, sum));
            } else {
                multiply(shape, &x, &y, &mut sums, |sum, x, y| sum + x * y);
            }
            for (bits, sum) in c.iter_mut().zip(sums) {
                *bits = match matrix.c {
                    Element::Float(F64) => double(sum),
                    Element::Float(F16) => F16
                        .pack(F32.unpack(odd_single(sum).to_bits().into()), Rounding::NearestEven),
                    _ => u64::from(single(sum as f32)),
                };
            }
        }
    }
}

impl Warp {
    /// The rows' addresses in shared memory.
    fn matrix_rows(
        &self,
        machine: &Machine<'_>,
        common: &Common,
        i: &Instruction,
        (count, _, offset, space): Form,
        pc: u32,
    ) -> Result<Doubles> {
        let mut addresses = self.addresses(machine, i.inputs[0], offset);
        if space.is_none() {
            for (lane, address) in addresses.iter_mut().enumerate().take(count as usize * 8) {
                match from_generic(*address) {
                    (Space::Shared, place) => *address = place,
                    _ => {
                        let message = "the row of a matrix is not in shared memory".to_owned();
                        let kind = FaultKind::OutOfBounds(Space::Shared);
                        return Err(
                            self.fault_at(machine, common, kind, message, pc, lane, *address)
                        );
                    }
                }
            }
        }
        Ok(addresses)
    }

    pub(crate) fn load_matrices(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        i: &Instruction,
        form: Form,
        pc: u32,
        active: u32,
    ) -> Result<()> {
        let (count, transposed, ..) = form;
        let addresses = self.matrix_rows(machine, common, i, form, pc)?;
        let mut results = vec![[0u32; WARP]; count as usize];
        for (matrix, result) in results.iter_mut().enumerate() {
            let mut elements = [[0u16; 8]; 8];
            for (row, elements) in elements.iter_mut().enumerate() {
                let lane = matrix * 8 + row;
                let at =
                    self.shared(machine, common, (addresses[lane], 16), READ, false, pc, lane)?;
                for (column, element) in elements.iter_mut().enumerate() {
                    *element = take(&common.shared.bytes, at + column * 2, 2) as u16;
                }
            }
            for (lane, word) in result.iter_mut().enumerate() {
                let (row, column) = (lane / 4, lane % 4 * 2);
                let pick = |column: usize| {
                    u32::from(if transposed {
                        elements[column][row]
                    } else {
                        elements[row][column]
                    })
                };
                *word = pick(column) | pick(column + 1) << 16;
            }
        }
        for (&output, row) in i.outputs.iter().zip(&results) {
            self.set_word(output, active, row);
        }
        common.count_matrices(pc, count, &addresses);
        Ok(())
    }

    pub(crate) fn store_matrices(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        i: &Instruction,
        form: Form,
        pc: u32,
        active: u32,
    ) -> Result<()> {
        let (count, transposed, ..) = form;
        debug_assert!(active != 0, "instructions are executed by someone");
        let addresses = self.matrix_rows(machine, common, i, form, pc)?;
        for matrix in 0..count as usize {
            let words = *self.word(machine, i.inputs[1 + matrix]);
            for row in 0..8 {
                let lane = matrix * 8 + row;
                let at =
                    self.shared(machine, common, (addresses[lane], 16), WRITE, false, pc, lane)?;
                for column in 0..8 {
                    let (r, c) = if transposed { (column, row) } else { (row, column) };
                    let half = words[r * 4 + c / 2] >> (16 * (c % 2)) & 0xffff;
                    put(&mut common.shared.bytes, at + column * 2, 2, half.into());
                }
            }
        }
        common.count_matrices(pc, count, &addresses);
        Ok(())
    }

    /// The transpose of an 8×8 matrix in registers.
    pub(crate) fn move_matrix(&mut self, machine: &Machine<'_>, i: &Instruction, active: u32) {
        let words = *self.word(machine, i.inputs[0]);
        let row: Words = std::array::from_fn(|lane| {
            let (row, column) = (lane / 4, lane % 4 * 2);
            let pick = |c: usize| words[c * 4 + row / 2] >> (16 * (row % 2)) & 0xffff;
            pick(column) | pick(column + 1) << 16
        });
        self.set_word(i.outputs[0], active, &row);
    }

    /// Value `at` of a lane among registers that hold `width`-bit values.
    fn value(rows: &[Doubles], lane: usize, at: usize, width: usize, register: usize) -> u64 {
        let per = register / width;
        let word = rows[at / per][lane] >> (width * (at % per));
        if width == 64 { word } else { word & ((1 << width) - 1) }
    }

    /// `mma.sync`; see `semantics::matrix` for the model.
    pub(crate) fn matrix(
        &mut self,
        machine: &Machine<'_>,
        i: &Instruction,
        matrix: &Matrix,
        active: u32,
    ) {
        let shape = matrix.shape;
        let inputs = self.inputs(machine, i, 0);
        let is_double = matrix.c == Element::Float(F64);
        let register = if is_double { 64 } else { 32 };
        let width = if is_double { 64 } else { 32 / shape.packed };
        let c_width = match matrix.c {
            Element::Float(format) => format.bits() as usize,
            _ => 32,
        };
        let (a_registers, b_registers) =
            (shape.a_values() * width / register, shape.b_values() * width / register);
        let (a_rows, rest) = inputs.split_at(a_registers);
        let (b_rows, c_rows) = rest.split_at(b_registers);
        let mut a = vec![0u64; shape.m * shape.k];
        let mut b = vec![0u64; shape.k * shape.n];
        let mut c = vec![0u64; shape.m * shape.n];
        for lane in 0..WARP {
            for at in 0..shape.a_values() {
                let (row, k) = a_element(shape, lane, at);
                a[row * shape.k + k] = Self::value(a_rows, lane, at, width, register);
            }
            for at in 0..shape.b_values() {
                let (k, column) = b_element(shape, lane, at);
                b[k * shape.n + column] = Self::value(b_rows, lane, at, width, register);
            }
            for at in 0..shape.c_values() {
                let (row, column) = c_element(lane, at);
                c[row * shape.n + column] = Self::value(c_rows, lane, at, c_width, register);
            }
        }
        product(matrix, &a, &b, &mut c);
        let mut results = vec![[0u64; WARP]; i.outputs.len()];
        let per = register / c_width;
        for lane in 0..WARP {
            for at in 0..shape.c_values() {
                let (row, column) = c_element(lane, at);
                results[at / per][lane] |= c[row * shape.n + column] << (c_width * (at % per));
            }
        }
        for (&output, row) in i.outputs.iter().zip(&results) {
            self.set_any(output, active, row);
        }
        debug_assert!(lanes(active).count() > 0, "instructions are executed by someone");
    }
}
