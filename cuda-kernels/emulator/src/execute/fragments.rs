//! `wmma`: loads, stores and products of fragments; `decode::fragments` describes their layout.

use super::Machine;
use super::block::Common;
use super::matrix::product;
use super::warp::Warp;
use crate::decode::program::{Access, Fragment, Instruction, Level, Matrix, Ordering};
use crate::sanitize::Fault;
use crate::semantics::rows::{Doubles, WARP};

type Result<T> = std::result::Result<T, Box<Fault>>;

/// The matrix in the registers of a fragment, in rows.
fn gather(rows: &[Doubles], bits: usize, count: usize) -> Vec<u64> {
    let per = (32 / bits).max(1);
    let slots = rows.len() * per;
    let cut = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
    (0..count)
        .map(|at| {
            let (lane, slot) = (at / slots, at % slots);
            rows[slot / per][lane] >> (bits * (slot % per)) & cut
        })
        .collect()
}

impl Warp {
    /// `wmma.load`, `wmma.store`
    pub(crate) fn fragment(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        i: &Instruction,
        fragment: &Fragment,
        pc: u32,
        active: u32,
    ) -> Result<()> {
        let (count, bytes) = (fragment.height * fragment.width, fragment.bits / 8);
        let per = (32 / fragment.bits as usize).max(1);
        let slots = fragment.registers * per;
        let base = self.addresses(machine, i.inputs[0], fragment.offset);
        let stride = *self.word(machine, i.inputs[1]);
        let mut registers: Vec<Doubles> = if fragment.store {
            self.inputs(machine, i, 2)
        } else {
            vec![[0; WARP]; fragment.registers]
        };
        let access = Access {
            space: fragment.space,
            cluster: false,
            bytes,
            count: 1,
            offset: 0,
            signed: false,
            register_bits: fragment.bits,
            ordering: Ordering::WEAK,
            level: Level::L1,
        };
        for slot in 0..slots {
            let shift = fragment.bits as usize * (slot % per);
            let mut addresses = base;
            let mut mask = active;
            for lane in 0..WARP {
                let at = lane * slots + slot;
                if fragment.store && at >= count {
                    mask &= !(1 << lane);
                }
                let (row, column) = (at % count / fragment.width, at % count % fragment.width);
                let (far, near) = if fragment.by_rows { (row, column) } else { (column, row) };
                let element = far as u64 * u64::from(stride[lane]) + near as u64;
                addresses[lane] = addresses[lane].wrapping_add(element * u64::from(bytes));
            }
            let spaces = match fragment.space {
                Some(space) => vec![(space, mask)],
                None => self.spaces(&mut addresses, mask),
            };
            let register = slot / per;
            for (space, mask) in spaces {
                if fragment.store {
                    let row = registers[register].map(|value| value >> shift);
                    self.store_to(machine, common, access, space, &addresses, mask, pc, &[row])?;
                } else {
                    let mut row = [[0; WARP]];
                    self.load_from(machine, common, access, space, &addresses, mask, pc, &mut row)?;
                    for (value, part) in registers[register].iter_mut().zip(row[0]) {
                        *value |= part << shift;
                    }
                }
            }
        }
        for (&output, row) in i.outputs.iter().zip(&registers) {
            self.set_any(output, active, row);
        }
        Ok(())
    }

    /// `wmma.mma`
    pub(crate) fn fragment_product(
        &mut self,
        machine: &Machine<'_>,
        i: &Instruction,
        matrix: &Matrix,
        [a_registers, b_registers]: [usize; 2],
        active: u32,
    ) {
        let shape = matrix.shape;
        let inputs = self.inputs(machine, i, 0);
        let (a, rest) = inputs.split_at(a_registers);
        let (b, c) = rest.split_at(b_registers);
        let a = gather(a, matrix.a.bits(), shape.m * shape.k);
        let b = gather(b, matrix.b.bits(), shape.k * shape.n);
        let bits = matrix.c.bits();
        let mut c = gather(c, bits, shape.m * shape.n);
        product(matrix, &a, &b, &mut c);
        let per = (32 / bits).max(1);
        let slots = i.outputs.len() * per;
        let mut results = vec![[0u64; WARP]; i.outputs.len()];
        for lane in 0..WARP {
            for slot in 0..slots {
                results[slot / per][lane] |=
                    c[(lane * slots + slot) % c.len()] << (bits * (slot % per));
            }
        }
        for (&output, row) in i.outputs.iter().zip(&results) {
            self.set_any(output, active, row);
        }
    }
}
