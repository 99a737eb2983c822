//! Instructions that each lane executes independently, and the dispatch of all instructions.

use super::Machine;
use super::address::{from_generic, window};
use super::block::Common;
use super::warp::{Next, Warp, lanes};
use crate::Approximations;
use crate::decode::program::{Boolean, Comparison, Instruction, Op, Operand, Property};
use crate::parse::syntax::{Space, Special};
use crate::sanitize::{Fault, FaultKind};
use crate::semantics::exact::Format;
use crate::semantics::float;
use crate::semantics::integer;
use crate::semantics::rows::{CompareRows, Rows, WARP};

type Result<T> = std::result::Result<T, Box<Fault>>;

fn property(format: Format, property: Property, bits: u64) -> bool {
    let magnitude = bits & (format.sign() - 1);
    let finite = magnitude < format.infinity();
    match property {
        Property::Finite => finite,
        Property::Infinite => magnitude == format.infinity(),
        Property::Number => magnitude <= format.infinity(),
        Property::NotANumber => magnitude > format.infinity(),
        Property::Normal => finite && magnitude != 0 && !format.is_subnormal(bits),
        Property::Subnormal => format.is_subnormal(bits),
    }
}

impl Warp {
    /// Executes an instruction other than a branch in the `active` lanes, at least one, of split
    /// `index`.
    pub(crate) fn execute(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        i: &Instruction,
        index: usize,
        pc: u32,
        mask: u32,
        active: u32,
    ) -> Result<Next> {
        match &i.op {
            Op::Rows(rows) => self.rows(machine, *rows, i, active),
            Op::Scalar(scalar, bits) => {
                let mut inputs = [[0; WARP]; 4];
                for (row, &input) in inputs.iter_mut().zip(&i.inputs) {
                    *row = self.any(machine, input);
                }
                let cut = if *bits == 64 { u64::MAX } else { (1 << bits) - 1 };
                let mut result = [0; WARP];
                for lane in lanes(active) {
                    let operands = inputs.map(|row| row[lane]);
                    let value = scalar.evaluate(operands);
                    result[lane] = cut
                        & match machine.options.approximations {
                            Approximations::Nearest => value,
                            Approximations::Seeded(seed) => scalar.deviate(operands, value, seed),
                        };
                }
                self.set_any(i.outputs[0], active, &result);
            }
            Op::Logic(table) => {
                let (a, b, c) = (
                    self.word(machine, i.inputs[0]),
                    self.word(machine, i.inputs[1]),
                    self.word(machine, i.inputs[2]),
                );
                let mut result = [0; WARP];
                for lane in 0..WARP {
                    result[lane] = integer::logic(a[lane], b[lane], c[lane], *table);
                }
                self.set_word(i.outputs[0], active, &result);
            }
            Op::Select => {
                let p = self.predicate(machine, i.inputs[2]);
                if matches!(i.outputs[0], Operand::Word(_)) {
                    let (a, b) = (self.word(machine, i.inputs[0]), self.word(machine, i.inputs[1]));
                    let mut result = [0; WARP];
                    for lane in 0..WARP {
                        result[lane] = if p >> lane & 1 == 1 { a[lane] } else { b[lane] };
                    }
                    self.set_word(i.outputs[0], active, &result);
                } else {
                    let (a, b) =
                        (self.double(machine, i.inputs[0]), self.double(machine, i.inputs[1]));
                    let mut result = [0; WARP];
                    for lane in 0..WARP {
                        result[lane] = if p >> lane & 1 == 1 { a[lane] } else { b[lane] };
                    }
                    self.set_double(i.outputs[0], active, &result);
                }
            }
            Op::Compare { comparison, combine, value } => {
                let (p, q) = self.compare(machine, *comparison, i, active);
                let c = i.inputs.get(2).map(|&c| self.predicate(machine, c));
                let with = |p: u32| match (combine, c) {
                    (Some(Boolean::And), Some(c)) => p & c,
                    (Some(Boolean::Or), Some(c)) => p | c,
                    (Some(Boolean::Xor), Some(c)) => p ^ c,
                    _ => p,
                };
                match value {
                    None => {
                        self.set_predicate(i.outputs[0], active, with(p));
                        if let Some(&second) = i.outputs.get(1) {
                            self.set_predicate(second, active, with(q));
                        }
                    }
                    Some(value) => {
                        let (p, q) = (with(p), with(q));
                        let pair = matches!(comparison, Comparison::Pair { .. });
                        let row = std::array::from_fn(|lane| {
                            let low = if p >> lane & 1 == 1 { *value } else { 0 };
                            if !pair {
                                return low;
                            }
                            let high = if q >> lane & 1 == 1 { *value } else { 0 };
                            low & 0xffff | high & 0xffff_0000
                        });
                        self.set_word(i.outputs[0], active, &row);
                    }
                }
            }
            Op::Predicates(boolean, negate) => {
                let a = self.predicate(machine, i.inputs[0]);
                let b = i.inputs.get(1).map_or(0, |&b| self.predicate(machine, b));
                let value = match boolean {
                    Some(Boolean::And) => a & b,
                    Some(Boolean::Or) => a | b,
                    Some(Boolean::Xor) => a ^ b,
                    None => a,
                };
                self.set_predicate(i.outputs[0], active, if *negate { !value } else { value });
            }
            Op::Carry { subtract, uses, sets } => {
                self.carry(machine, i, active, *subtract, *uses, *sets)
            }
            Op::MultiplyCarry { high, signed, uses, sets } => {
                self.multiply_carry(machine, i, active, (*high, *signed), *uses, *sets);
            }
            Op::Join { bits } => {
                let mut row = [0; WARP];
                for (at, &input) in i.inputs.iter().enumerate() {
                    let part = self.any(machine, input);
                    let cut = if *bits == 64 { u64::MAX } else { (1 << bits) - 1 };
                    for lane in 0..WARP {
                        row[lane] |= (part[lane] & cut) << (at as u32 * bits);
                    }
                }
                self.set_any(i.outputs[0], active, &row);
            }
            Op::Split { bits } => {
                let whole = self.any(machine, i.inputs[0]);
                for (at, &output) in i.outputs.iter().enumerate() {
                    let part = whole.map(|value| value >> (at as u32 * bits) & ((1 << bits) - 1));
                    self.set_any(output, active, &part);
                }
            }
            Op::ReadSpecial(special) => {
                let value = match special {
                    Special::Clock | Special::Clock64 => self.clock,
                    Special::ClockHigh => self.clock >> 32,
                    // A clock of one gigahertz that does not depend on the host.
                    Special::Globaltimer | Special::GlobaltimerLow => self.clock,
                    _ => self.clock >> 32,
                };
                self.set_any(i.outputs[0], active, &[value; WARP]);
            }
            Op::Load(access) => self.load(machine, common, i, *access, pc, active)?,
            Op::Store(access) => self.store(machine, common, i, *access, pc, active)?,
            Op::Atomic { access, operation } => {
                self.atomic(machine, common, i, (*access, *operation), pc, active)?;
            }
            Op::CopyAsync { bytes, to, from, sized, ignores, level } => {
                let form = (*bytes, *to, *from, *sized, *ignores, *level);
                self.copy_async(machine, common, i, form, pc, active)?;
            }
            Op::CommitAsync => self.copies.commit(active),
            Op::WaitAsync(groups) => self.wait_async(machine, common, *groups, pc, active)?,
            Op::ToGeneric(space) => {
                let row = self
                    .any(machine, i.inputs[0])
                    .map(|address| address.wrapping_add(window(*space)));
                self.set_any(i.outputs[0], active, &row);
            }
            Op::FromGeneric(space) => {
                let row = self
                    .any(machine, i.inputs[0])
                    .map(|address| address.wrapping_sub(window(*space)));
                self.set_any(i.outputs[0], active, &row);
            }
            Op::IsSpace(space) => {
                let row = self.any(machine, i.inputs[0]);
                let mut p = 0;
                for lane in lanes(active) {
                    let (found, address) = from_generic(row[lane]);
                    let constant = found == Space::Global
                        && machine
                            .memory
                            .find(super::address::untag(address).0)
                            .is_some_and(|index| machine.memory.allocations[index].read_only);
                    let found = if constant { Space::Const } else { found };
                    p |= u32::from(found == *space) << lane;
                }
                self.set_predicate(i.outputs[0], active, p);
            }
            Op::Branch(_) => unreachable!("branches are taken in the loop"),
            Op::BranchTable(targets) => {
                let row = *self.word(machine, i.inputs[0]);
                let mut ways: Vec<(u32, u32)> = Vec::new();
                if mask != active {
                    ways.push((mask & !active, pc + 1));
                }
                for lane in lanes(active) {
                    let Some(&target) = targets.get(row[lane] as usize) else {
                        let message = format!(
                            "the index {} is beyond the {} targets",
                            row[lane],
                            targets.len()
                        );
                        let kind = FaultKind::OutOfBounds(Space::Const);
                        return Err(self.fault(machine, common, kind, message, pc, 1 << lane));
                    };
                    match ways.iter_mut().find(|(_, known)| *known == target) {
                        Some((lanes, _)) => *lanes |= 1 << lane,
                        None => ways.push((1 << lane, target)),
                    }
                }
                if let [(_, target)] = ways[..] {
                    self.splits.get(index).pc = target;
                } else {
                    if let Some(tally) = &mut common.tally {
                        tally.diverge(pc);
                    }
                    let meet = machine.program.reconvergence[pc as usize];
                    self.splits.part(index, &ways, meet, self.live);
                }
                return Ok(Next::Choose);
            }
            Op::Exit => {
                self.hopper_exit(machine, common, pc, active)?;
                self.exit(common, index, pc + 1, active);
                if self.live == 0 {
                    common.live_warps &= !(1 << self.index);
                } else {
                    self.gather(machine, common)?;
                }
                common.after_exit(machine);
                return Ok(Next::Choose);
            }
            Op::Trap(message) => {
                return Err(self.fault(
                    machine,
                    common,
                    FaultKind::Trap,
                    (*message).to_owned(),
                    pc,
                    active,
                ));
            }
            Op::Barrier(barrier) => {
                self.barrier(machine, common, *barrier, index, pc, (mask, active))?;
                return Ok(Next::Choose);
            }
            Op::WarpBarrier
            | Op::Shuffle(_)
            | Op::Vote(_)
            | Op::Match { .. }
            | Op::WarpReduce(_)
            | Op::Elect
            | Op::LoadMatrix { .. }
            | Op::StoreMatrix { .. }
            | Op::MoveMatrix
            | Op::Matrix(_)
            | Op::Fragment(_)
            | Op::FragmentProduct(..) => {
                return self.together(machine, common, i, index, pc, (mask, active));
            }
            Op::ActiveMask => self.set_word(i.outputs[0], active, &[active; WARP]),
            Op::Fence { wide } => {
                std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
                if *wide {
                    self.fenced = Some((common.order.time, common.order.all_time));
                }
            }
            Op::Hopper(hopper) => {
                return self.hopper(machine, common, i, hopper, index, pc, (mask, active));
            }
            Op::Nothing => {}
        }
        Ok(Next::On)
    }

    fn rows(&mut self, machine: &Machine<'_>, rows: Rows, i: &Instruction, active: u32) {
        let input = &i.inputs;
        let output = i.outputs[0];
        match rows {
            Rows::W1(f) => {
                let row = f(self.word(machine, input[0]));
                self.set_word(output, active, &row);
            }
            Rows::W2(f) => {
                let row = f(self.word(machine, input[0]), self.word(machine, input[1]));
                self.set_word(output, active, &row);
            }
            Rows::W3(f) => {
                let row = f(
                    self.word(machine, input[0]),
                    self.word(machine, input[1]),
                    self.word(machine, input[2]),
                );
                self.set_word(output, active, &row);
            }
            Rows::D1(f) => {
                let row = f(self.double(machine, input[0]));
                self.set_double(output, active, &row);
            }
            Rows::D2(f) => {
                let row = f(self.double(machine, input[0]), self.double(machine, input[1]));
                self.set_double(output, active, &row);
            }
            Rows::D3(f) => {
                let row = f(
                    self.double(machine, input[0]),
                    self.double(machine, input[1]),
                    self.double(machine, input[2]),
                );
                self.set_double(output, active, &row);
            }
            Rows::WToD(f) => {
                let row = f(self.word(machine, input[0]));
                self.set_double(output, active, &row);
            }
            Rows::DToW(f) => {
                let row = f(self.double(machine, input[0]));
                self.set_word(output, active, &row);
            }
            Rows::WWToD(f) => {
                let row = f(self.word(machine, input[0]), self.word(machine, input[1]));
                self.set_double(output, active, &row);
            }
            Rows::WWDToD(f) => {
                let row = f(
                    self.word(machine, input[0]),
                    self.word(machine, input[1]),
                    self.double(machine, input[2]),
                );
                self.set_double(output, active, &row);
            }
            Rows::DWToD(f) => {
                let row = f(self.double(machine, input[0]), self.word(machine, input[1]));
                self.set_double(output, active, &row);
            }
        }
    }

    fn compare(
        &self,
        machine: &Machine<'_>,
        comparison: Comparison,
        i: &Instruction,
        active: u32,
    ) -> (u32, u32) {
        match comparison {
            Comparison::Rows(CompareRows::W(f)) => {
                let p = f(self.word(machine, i.inputs[0]), self.word(machine, i.inputs[1]));
                (p, !p)
            }
            Comparison::Rows(CompareRows::D(f)) => {
                let p = f(self.double(machine, i.inputs[0]), self.double(machine, i.inputs[1]));
                (p, !p)
            }
            Comparison::Float { format, relation, unordered, flush } => {
                let (a, b) = (self.any(machine, i.inputs[0]), self.any(machine, i.inputs[1]));
                let mut p = 0;
                for lane in lanes(active) {
                    let holds =
                        float::compare(format, relation, unordered, flush, a[lane], b[lane]);
                    p |= u32::from(holds) << lane;
                }
                (p, !p)
            }
            Comparison::Pair { format, relation, unordered, flush } => {
                let (a, b) = (self.any(machine, i.inputs[0]), self.any(machine, i.inputs[1]));
                let (mut p, mut q) = (0, 0);
                for lane in lanes(active) {
                    let holds = |shift: u32| {
                        let (a, b) = (a[lane] >> shift & 0xffff, b[lane] >> shift & 0xffff);
                        u32::from(float::compare(format, relation, unordered, flush, a, b))
                    };
                    p |= holds(0) << lane;
                    q |= holds(16) << lane;
                }
                (p, q)
            }
            Comparison::Test { format, property: wanted } => {
                let a = self.any(machine, i.inputs[0]);
                let mut p = 0;
                for lane in lanes(active) {
                    p |= u32::from(property(format, wanted, a[lane])) << lane;
                }
                (p, !p)
            }
        }
    }

    /// `d = a ± b ± carry`
    fn carry(
        &mut self,
        machine: &Machine<'_>,
        i: &Instruction,
        active: u32,
        subtract: bool,
        uses: bool,
        sets: bool,
    ) {
        let (a, b) = (self.any(machine, i.inputs[0]), self.any(machine, i.inputs[1]));
        let bits = if matches!(i.outputs[0], Operand::Double(_)) { 64 } else { 32 };
        let all = if bits == 64 { u128::from(u64::MAX) } else { u128::from(u32::MAX) };
        let (mut row, mut carry) = ([0; WARP], 0);
        for lane in 0..WARP {
            let (a, b) = (u128::from(a[lane]) & all, u128::from(b[lane]) & all);
            let c = if uses { u128::from(self.carry >> lane & 1) } else { 0 };
            // For subtraction the flag is the borrow.
            let sum = if subtract { a.wrapping_sub(b).wrapping_sub(c) } else { a + b + c };
            row[lane] = (sum & all) as u64;
            carry |= u32::from(sum >> bits & 1 == 1) << lane;
        }
        self.set_any(i.outputs[0], active, &row);
        if sets {
            self.carry = self.carry & !active | carry & active;
        }
    }

    /// `d = half of a·b, + c + carry`
    fn multiply_carry(
        &mut self,
        machine: &Machine<'_>,
        i: &Instruction,
        active: u32,
        (high, signed): (bool, bool),
        uses: bool,
        sets: bool,
    ) {
        let [a, b, c] = [0, 1, 2].map(|at| self.any(machine, i.inputs[at]));
        let bits = if matches!(i.outputs[0], Operand::Double(_)) { 64 } else { 32 };
        let all = if bits == 64 { u128::from(u64::MAX) } else { u128::from(u32::MAX) };
        let (mut row, mut carry) = ([0; WARP], 0);
        for lane in 0..WARP {
            let product = match (bits, signed) {
                (64, true) => (i128::from(a[lane] as i64) * i128::from(b[lane] as i64)) as u128,
                (64, false) => u128::from(a[lane]) * u128::from(b[lane]),
                (_, true) => (i64::from(a[lane] as i32) * i64::from(b[lane] as i32)) as u128,
                (_, false) => u128::from(a[lane] as u32) * u128::from(b[lane] as u32),
            };
            let half = if high { product >> bits } else { product } & all;
            let sum = half
                + (u128::from(c[lane]) & all)
                + if uses { u128::from(self.carry >> lane & 1) } else { 0 };
            row[lane] = (sum & all) as u64;
            carry |= u32::from(sum >> bits != 0) << lane;
        }
        self.set_any(i.outputs[0], active, &row);
        if sets {
            self.carry = self.carry & !active | carry & active;
        }
    }

    /// The rows of the inputs from `first` on, as 64 bits.
    pub(crate) fn inputs(
        &self,
        machine: &Machine<'_>,
        i: &Instruction,
        first: usize,
    ) -> Vec<[u64; WARP]> {
        i.inputs[first..].iter().map(|&input| self.any(machine, input)).collect()
    }
}
