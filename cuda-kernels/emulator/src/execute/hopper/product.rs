//! `wgmma`: asynchronous products of a warpgroup.
//!
//! Warp w of a warpgroup computes rows 16w to 16w + 15 of D. Here each warp computes its rows by
//! itself.
//!
//! A product takes place when its warp waits for its group, in the order of issue. Registers are
//! watched by row: the decoder gives every register of a product a row of its own.

use super::super::Machine;
use super::super::access::take;
use super::super::block::Common;
use super::super::warp::{FULL, Warp};
use super::proxy::Operation;
use super::{Result, hash};
use crate::decode::hopper::Product;
use crate::decode::program::{Element, Instruction, Operand};
use crate::launch::Asynchrony;
use crate::sanitize::race::Entry;
use crate::sanitize::{Fault, FaultKind};
use crate::semantics::convert::extend;
use crate::semantics::descriptor::Descriptor;
use crate::semantics::exact::F16;
use crate::semantics::matrix::{Shape, a_element};
use crate::semantics::rows::WARP;
use crate::semantics::tensor_core::{Factor, Sums, add_integers};

/// State of a register that products use.
#[derive(Clone, Copy, Default)]
pub(crate) struct Register {
    /// Lanes that have written it.
    written: u32,
    /// It was accessed since the last `wgmma.fence`.
    touched: bool,
    /// Products that have it as accumulator, and as A, and have not been waited for.
    accumulates: u16,
    multiplies: u16,
    /// The columns of the products that accumulate in it.
    columns: u16,
}

/// A product that has not been waited for.
pub(super) struct Pending {
    pub(super) warp: u32,
    /// Number of the group, once it is committed.
    group: Option<u32>,
    pub(super) pc: u32,
    product: Product,
    a: Option<Descriptor>,
    b: Descriptor,
    adds: bool,
    /// The groups of 16 bytes that it reads.
    reads: Vec<u32>,
    done: bool,
}

/// Place of value `i` of a lane in the 16 rows of its warp: row, column.
fn d_place(lane: usize, i: usize) -> (usize, usize) {
    (lane / 4 + 8 * (i / 2 % 2), 8 * (i / 4) + lane % 4 * 2 + i % 2)
}

impl Pending {
    /// The groups of 16 bytes that a warp reads.
    fn groups(product: &Product, a: Option<Descriptor>, b: Descriptor, warp: u32) -> Vec<u32> {
        let bytes = register_bytes(product.a);
        let mut groups = Vec::new();
        let mut operand = |descriptor: Descriptor, rows: std::ops::Range<u32>, transposed| {
            let (k, t) = (product.k as u32, 16 / bytes);
            if transposed {
                for k in 0..k {
                    for r in rows.clone().step_by(t as usize) {
                        groups.push(descriptor.place(r, k, bytes, true));
                    }
                }
            } else {
                for r in rows {
                    for k in (0..k).step_by(t as usize) {
                        groups.push(descriptor.place(r, k, bytes, false));
                    }
                }
            }
        };
        if let Some(a) = a {
            let first = warp % 4 * 16;
            operand(a, first..first + 16, product.a_transposed);
        }
        operand(b, 0..product.n as u32, product.b_transposed);
        groups
    }
}

/// Bytes of an element in memory.
fn register_bytes(element: Element) -> u32 {
    element.bits() as u32 / 8
}

impl Warp {
    /// Checks an instruction that accesses registers of products.
    pub(crate) fn check_pinned(
        &mut self,
        machine: &Machine<'_>,
        common: &Common,
        i: &Instruction,
        pc: u32,
        active: u32,
    ) -> Result<()> {
        let words = |operands: &[Operand]| -> Vec<usize> {
            operands
                .iter()
                .filter_map(|o| if let Operand::Word(r) = o { Some(*r as usize) } else { None })
                .collect()
        };
        let (reads, writes) = (words(&i.inputs), words(&i.outputs));
        for &r in reads.iter().chain(&writes) {
            let Some(register) = self.registers.get_mut(r) else { continue };
            if register.accumulates > 0 || register.multiplies > 0 {
                let role = if register.accumulates > 0 { "D" } else { "A" };
                let message = format!(
                    "a register of {role} is accessed before `wgmma.wait_group` has waited for \
                     its product"
                );
                let kind = FaultKind::RegisterInFlight;
                return Err(self.fault(machine, common, kind, message, pc, active));
            }
            register.touched = true;
        }
        for r in writes {
            if let Some(register) = self.registers.get_mut(r) {
                register.written |= active;
            }
        }
        Ok(())
    }

    /// `wgmma.fence`
    pub(super) fn product_fence(&mut self) {
        self.product_fenced = true;
        self.registers.iter_mut().for_each(|register| register.touched = false);
    }

    /// `wgmma.commit_group`
    pub(super) fn product_commit(&mut self, common: &mut Common) {
        let next = &mut common.hopper.product_groups[self.index as usize];
        let group = *next;
        *next += 1;
        for pending in &mut common.hopper.products {
            if pending.warp == self.index && pending.group.is_none() {
                pending.group = Some(group);
            }
        }
    }

    /// The value of an operand that all lanes must share.
    fn uniform(
        &self,
        machine: &Machine<'_>,
        common: &Common,
        operand: Operand,
        pc: u32,
    ) -> Result<u64> {
        let row = self.any(machine, operand);
        if row.iter().all(|&value| value == row[0]) {
            return Ok(row[0]);
        }
        let message = "the lanes give different descriptors".to_owned();
        Err(self.fault(machine, common, FaultKind::InvalidDescriptor, message, pc, FULL))
    }

    /// `wgmma.mma_async`
    pub(super) fn product(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        i: &Instruction,
        product: &Product,
        pc: u32,
    ) -> Result<()> {
        let fault =
            |this: &Self, common: &Common, kind: FaultKind, message: String| -> Box<Fault> {
                this.fault(machine, common, kind, message, pc, FULL)
            };
        let a_count = if product.a_in_registers { Product::A_REGISTERS } else { 1 };
        let (a_inputs, rest) = i.inputs.split_at(a_count);
        let mut operands = [0; 2];
        let decode = |this: &Self, common: &Common, bits: u64| {
            Descriptor::decode(bits)
                .map_err(|message| fault(this, common, FaultKind::InvalidDescriptor, message))
        };
        let a = if product.a_in_registers {
            None
        } else {
            operands[0] = self.uniform(machine, common, a_inputs[0], pc)?;
            Some(decode(self, common, operands[0])?)
        };
        operands[1] = self.uniform(machine, common, rest[0], pc)?;
        let b = decode(self, common, operands[1])?;
        self.step(machine, common, operands, pc)?;
        let scale = self.predicate(machine, rest[1]);
        if scale != 0 && scale != FULL {
            let message = "the lanes differ in whether D is added to".to_owned();
            return Err(fault(self, common, FaultKind::WarpgroupDivergence, message));
        }
        let adds = scale == FULL;
        if !self.product_fenced {
            let message = "the first product of a warp needs a `wgmma.fence` before it".to_owned();
            return Err(fault(self, common, FaultKind::ProductFenceMissing, message));
        }
        let row = |operand: &Operand| match operand {
            Operand::Word(r) => Some(*r as usize),
            _ => None,
        };
        let a_rows: Vec<usize> =
            if a.is_none() { a_inputs.iter().filter_map(row).collect() } else { Vec::new() };
        let d_rows: Vec<usize> = i.outputs.iter().filter_map(row).collect();
        let initialised = machine.options.sanitize.uninitialised;
        for &r in &a_rows {
            let register = self.registers[r];
            if register.accumulates > 0 {
                let message = "a register of A is the accumulator of a product that has not been \
                               waited for"
                    .to_owned();
                return Err(fault(self, common, FaultKind::RegisterInFlight, message));
            }
            if initialised && register.written != FULL {
                let message = "a register of A has not been written".to_owned();
                return Err(fault(self, common, FaultKind::UninitialisedRegister, message));
            }
        }
        for &r in &d_rows {
            let register = self.registers[r];
            if register.multiplies > 0 {
                let message = "a register of D is A of a product that has not been waited for";
                let kind = FaultKind::RegisterInFlight;
                return Err(fault(self, common, kind, message.to_owned()));
            }
            if register.accumulates > 0 && usize::from(register.columns) != product.n {
                let message = format!(
                    "the accumulator is that of a product with {} columns that has not been \
                     waited for",
                    register.columns
                );
                return Err(fault(self, common, FaultKind::RegisterInFlight, message));
            }
            if adds && initialised && register.written != FULL && register.accumulates == 0 {
                let message = "the accumulator has not been written".to_owned();
                return Err(fault(self, common, FaultKind::UninitialisedRegister, message));
            }
        }
        if a_rows.iter().chain(&d_rows).any(|&r| self.registers[r].touched) {
            let message =
                "a register of A or D was accessed, and no `wgmma.fence` lies between".to_owned();
            return Err(fault(self, common, FaultKind::ProductFenceMissing, message));
        }
        let own = common.hopper.cluster.rank;
        let reads = Pending::groups(product, a, b, self.index);
        let from_b =
            reads.len() - product.n * product.k / (16 / register_bytes(product.b) as usize);
        for (at, &place) in reads.iter().enumerate() {
            let swizzle = if at < from_b { a.unwrap_or(b).swizzle } else { b.swizzle };
            let operation = Operation { writes: false, layout: Some(swizzle) };
            self.check_async(machine, common, own, (place, 16), operation, pc, 0)?;
        }
        for &place in &reads {
            common.shared.hopper.mark(place, true);
        }
        for &r in &a_rows {
            self.registers[r].multiplies += 1;
        }
        for &r in &d_rows {
            self.registers[r].accumulates += 1;
            self.registers[r].columns = product.n as u16;
        }
        common.hopper.products.push(Pending {
            warp: self.index,
            group: None,
            pc,
            product: *product,
            a,
            b,
            adds,
            reads,
            done: false,
        });
        if let Asynchrony::Seeded(seed) = machine.options.asynchrony
            && hash(seed, pc.into(), self.clock) & 1 == 1
        {
            self.do_products(machine, common, |_| true);
        }
        Ok(())
    }

    /// Computes this warp's pending products that `now` selects, in order.
    fn do_products(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        now: impl Fn(&Pending) -> bool,
    ) {
        let mut products = std::mem::take(&mut common.hopper.products);
        for pending in &mut products {
            if pending.warp == self.index && !pending.done && now(pending) {
                self.compute(machine, common, pending);
                pending.done = true;
            }
        }
        common.hopper.products = products;
    }

    /// `wgmma.wait_group`: all but the last `groups` groups.
    pub(super) fn product_wait(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        groups: u32,
    ) -> Result<()> {
        let committed = common.hopper.product_groups[self.index as usize];
        let before = committed.saturating_sub(groups);
        let ends = |p: &Pending| p.group.is_some_and(|group| group < before);
        self.do_products(machine, common, ends);
        let products = std::mem::take(&mut common.hopper.products);
        let (ended, kept): (Vec<_>, Vec<_>) =
            products.into_iter().partition(|p| p.warp == self.index && ends(p));
        common.hopper.products = kept;
        for pending in ended {
            let now = Entry::new(
                common.order.time,
                common.order.block,
                self.index * WARP as u32,
                false,
                pending.pc,
            );
            for &place in &pending.reads {
                common.shared.hopper.mark(place, false);
                // Read until now: a later write is to be ordered after the wait.
                common.shared.races.access(place as usize, 16, now, false, &|_| true);
            }
            let i = &machine.program.code[pending.pc as usize];
            for operand in &i.outputs {
                if let Operand::Word(r) = operand {
                    let register = &mut self.registers[*r as usize];
                    register.accumulates -= 1;
                    register.written = FULL;
                }
            }
            if pending.product.a_in_registers {
                for operand in &i.inputs[..Product::A_REGISTERS] {
                    if let Operand::Word(r) = operand {
                        self.registers[*r as usize].multiplies -= 1;
                    }
                }
            }
        }
        Ok(())
    }

    /// The warp's 16 rows of a product.
    fn compute(&mut self, machine: &Machine<'_>, common: &Common, pending: &Pending) {
        let product = &pending.product;
        let i = &machine.program.code[pending.pc as usize];
        let (n, k) = (product.n, product.k);
        let bytes = register_bytes(product.a);
        let memory = &common.shared.bytes;
        let first = self.index % 4 * 16;
        let element = |descriptor: Descriptor, r: u32, k: usize, transposed: bool| {
            let place = descriptor.place(r, k as u32, bytes, transposed);
            take(memory, place as usize, bytes)
        };
        let mut a = vec![0; 16 * k];
        match pending.a {
            Some(descriptor) => {
                for (at, value) in a.iter_mut().enumerate() {
                    let r = first + (at / k) as u32;
                    *value = element(descriptor, r, at % k, product.a_transposed);
                }
            }
            None => {
                let packed = 4 / bytes as usize;
                let shape = Shape { m: 16, n: 8, k, packed };
                for lane in 0..WARP {
                    for at in 0..shape.a_values() {
                        let word = self.word(machine, i.inputs[at / packed])[lane];
                        let value = u64::from(word) >> (8 * bytes as usize * (at % packed));
                        let (row, column) = a_element(shape, lane, at);
                        a[row * k + column] = value & ((1 << (8 * bytes)) - 1);
                    }
                }
            }
        }
        let b: Vec<u64> = (0..n * k)
            .map(|at| element(pending.b, (at / k) as u32, at % k, product.b_transposed))
            .collect();
        let halves = product.d == Element::Float(F16);
        let per = if halves { 2 } else { 1 };
        let mut d = vec![0; 16 * n];
        let mut rows: Vec<[u32; WARP]> =
            i.outputs.iter().map(|&output| *self.word(machine, output)).collect();
        for lane in 0..WARP {
            for at in 0..n / 2 {
                let word = rows[at / per][lane];
                let value = if halves { word >> (16 * (at % 2)) & 0xffff } else { word };
                let (row, column) = d_place(lane, at);
                d[row * n + column] = value;
            }
        }
        multiply(product, &a, &b, &mut d, pending.adds);
        for lane in 0..WARP {
            for at in 0..n / 2 {
                let (row, column) = d_place(lane, at);
                let value = d[row * n + column];
                let word = &mut rows[at / per][lane];
                *word = match (halves, at % 2) {
                    (false, _) => value,
                    (true, 0) => *word & 0xffff_0000 | value,
                    (true, _) => *word & 0xffff | value << 16,
                };
            }
        }
        for (&output, row) in i.outputs.iter().zip(&rows) {
            self.set_word(output, FULL, row);
        }
    }
}

/// 16 rows of D, by the arithmetic of `semantics::tensor_core`. A is 16×k by rows, B is n×k by
/// columns, D is 16×n by rows.
fn multiply(product: &Product, a: &[u64], b: &[u64], d: &mut [u32], adds: bool) {
    let (n, k) = (product.n, product.k);
    if let Element::Integer { .. } = product.d {
        let signed = |element: Element, bits: u64| match element {
            Element::Integer { bits: width, signed: true } => extend(bits, width),
            _ => bits as i64,
        };
        let a: Vec<i64> = a.iter().map(|&bits| signed(product.a, bits)).collect();
        let b: Vec<i64> = b.iter().map(|&bits| signed(product.b, bits)).collect();
        for (at, d) in d.iter_mut().enumerate() {
            let (row, column) = (&a[at / n * k..][..k], &b[at % n * k..][..k]);
            let c = if adds { *d as i32 } else { 0 };
            *d = add_integers(c, row, column, product.saturate) as u32;
        }
        return;
    }
    let unpack = |element: Element, negate: bool, bits: &[u64]| -> Vec<Factor> {
        bits.iter().map(|&bits| Factor::new(element, bits, negate)).collect()
    };
    let a = unpack(product.a, product.a_negated, a);
    let b = unpack(product.b, product.b_negated, b);
    let sums = Sums::new(product.a, product.b, product.d);
    for (at, d) in d.iter_mut().enumerate() {
        let (row, column) = (&a[at / n * k..][..k], &b[at % n * k..][..k]);
        *d = sums.add(adds.then_some((*d).into()), row, column) as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accumulator_is_held_once() {
        for n in [8, 64, 256] {
            let mut seen = vec![0; 16 * n];
            for lane in 0..WARP {
                for i in 0..n / 2 {
                    let (row, column) = d_place(lane, i);
                    seen[row * n + column] += 1;
                }
            }
            assert!(seen.iter().all(|&count| count == 1), "{n}");
        }
        // PTX ISA, figure "WGMMA .m64nNk16 register fragment layout for accumulator matrix D":
        // d3 of lane 5 is row 9, column 3; d4 is row 1, column 10.
        assert_eq!(d_place(5, 3), (9, 3));
        assert_eq!(d_place(5, 4), (1, 10));
    }
}
