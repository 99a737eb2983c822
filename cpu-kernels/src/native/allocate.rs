//! Register allocation, during the emission of the code of one iteration of a loop.
//!
//! The code is straight-line, so every later use of a value is known. A register is taken from
//! the value whose next use is furthest away. An evicted invariant is read again from memory; any
//! other value is spilled, once. A memory operand is free where the instruction takes one:
//! invariants are broadcast by the instruction that reads them.

use super::encode::{Address, Assembler, Code, Gpr, Place, Vector, Width};
use super::instruction::*;
use std::collections::BTreeMap;

/// The mask of the tail's lanes, and of the upper eight of them.
pub(super) const TAIL: u8 = 1;
pub(super) const TAIL_UPPER: u8 = 7;
/// Mask registers for values.
const MASKS: std::ops::Range<u8> = 2..7;
/// Vector registers.
pub(super) const VECTORS: usize = 32;
/// Vector registers that an instruction may need at once: a fused multiply-add has three operands,
/// and overwrites a copy of one of them if all are read later. So at most `VECTORS - NEEDED` are
/// pinned.
pub(super) const NEEDED: usize = 4;

/// The loop-invariant state of the emission.
#[derive(Debug)]
pub(super) struct Surroundings {
    /// Registers that hold an invariant or a loop-carried value for the whole loop.
    pub pinned: BTreeMap<Value, u8>,
    /// Loop-carried values, and whether they are the upper eight lanes.
    pub carried: BTreeMap<Value, bool>,
    pub invariants: BTreeMap<Value, Invariant>,
    /// Addresses of the elements of invariants.
    pub elements: BTreeMap<Value, Address>,
    /// Registers with the pointers of the table, for streams, as many as there are.
    pub pointers: Vec<Option<Gpr>>,
    /// Bytes of the stack in use below spilled values.
    pub stack: i32,
}

/// The number of the first element of an iteration.
pub(super) const INDEX: Gpr = Gpr::Rax;
/// The table of pointers.
pub(super) const TABLE: Gpr = Gpr::Rdi;
/// Scratch register, clobbered at any time.
pub(super) const SCRATCH: Gpr = Gpr::Rdx;

/// An address on the stack.
pub(super) fn on_stack(displacement: i32) -> Address {
    Address::Based { base: Gpr::Rsp, index: None, displacement }
}

/// The address of the n-th pointer of the table.
pub(super) fn in_table(pointer: usize) -> Address {
    Address::Based { base: TABLE, index: None, displacement: pointer as i32 * 8 }
}

/// Emits the code of an iteration; with `tail`, of the masked last one. Returns the number of
/// spill slots.
pub(super) fn write(
    assembler: &mut Assembler,
    around: &Surroundings,
    instructions: &[Instruction],
    classes: &[Class],
    tail: bool,
) -> usize {
    let mut uses = vec![vec![]; classes.len()];
    for (at, instruction) in instructions.iter().enumerate() {
        instruction.reads().for_each(|value| uses[value as usize].push(at));
    }
    let mut vectors = vec![Holder::Free; VECTORS];
    around.pinned.iter().for_each(|(value, register)| {
        if classes[*value as usize] == Class::Vector {
            vectors[usize::from(*register)] = Holder::Pinned;
        }
    });
    let masks =
        (0..8).map(|k| if MASKS.contains(&k) { Holder::Free } else { Holder::Pinned }).collect();
    let mut writer = Writer {
        assembler,
        around,
        classes,
        tail,
        uses,
        at: 0,
        registers: vec![None; classes.len()],
        slots: vec![None; classes.len()],
        used_slots: 0,
        holders: [vectors, masks],
        locked: vec![],
    };
    for (at, instruction) in instructions.iter().enumerate() {
        writer.at = at;
        writer.instruction(instruction);
    }
    writer.used_slots
}

/// The vector register pressure, without invariants.
pub(super) fn pressure(
    instructions: &[Instruction],
    classes: &[Class],
    invariant: impl Fn(Value) -> bool,
) -> usize {
    let mut last = vec![0; classes.len()];
    for (at, instruction) in instructions.iter().enumerate() {
        instruction.reads().for_each(|value| last[value as usize] = at);
    }
    let counts = |value: Value| classes[value as usize] == Class::Vector && !invariant(value);
    let (mut live, mut most) = (0usize, 0);
    for (at, instruction) in instructions.iter().enumerate() {
        let mut dying: Vec<Value> =
            instruction.reads().filter(|v| counts(*v) && last[*v as usize] == at).collect();
        dying.sort_unstable();
        dying.dedup();
        live -= dying.len().min(live);
        live += usize::from(instruction.result.is_some_and(counts));
        most = most.max(live + usize::from(matches!(instruction.form, Form::Fma)));
    }
    most
}

/// The content of a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holder {
    Free,
    Pinned,
    Value(Value),
}

struct Writer<'a> {
    assembler: &'a mut Assembler,
    around: &'a Surroundings,
    classes: &'a [Class],
    tail: bool,
    /// The positions where each value is read.
    uses: Vec<Vec<usize>>,
    at: usize,
    registers: Vec<Option<u8>>,
    slots: Vec<Option<usize>>,
    used_slots: usize,
    /// Holders of the vector registers, and of the mask registers.
    holders: [Vec<Holder>; 2],
    /// Registers that the current instruction needs, by class.
    locked: Vec<(Class, u8)>,
}

impl Writer<'_> {
    fn class(&self, value: Value) -> Class {
        self.classes[value as usize]
    }

    fn holders(&mut self, class: Class) -> &mut Vec<Holder> {
        &mut self.holders[usize::from(class == Class::Mask)]
    }

    /// The next use of a value after the current instruction.
    fn next_use(&self, value: Value) -> Option<usize> {
        let uses = &self.uses[value as usize];
        uses.get(uses.partition_point(|at| *at <= self.at)).copied()
    }

    fn is_invariant(&self, value: Value) -> bool {
        self.around.invariants.contains_key(&value)
    }

    /// The register of a value, if it is in one.
    fn register(&self, value: Value) -> Option<u8> {
        self.around.pinned.get(&value).copied().or(self.registers[value as usize])
    }

    fn slot(&self, slot: usize) -> Address {
        on_stack(self.around.stack + 64 * slot as i32)
    }

    /// Takes a register for a value; it evicts the value whose next use is furthest away.
    fn take(&mut self, value: Value) -> u8 {
        let class = self.class(value);
        let mut chosen: Option<(usize, usize)> = None;
        for register in 0..self.holders(class).len() {
            let distance = match self.holders(class)[register] {
                Holder::Pinned => continue,
                Holder::Free => usize::MAX,
                Holder::Value(other) => {
                    if self.locked.contains(&(class, register as u8)) {
                        continue;
                    }
                    let next = self.next_use(other).unwrap_or(usize::MAX - 1);
                    // Reading an invariant again costs less than spilling another value.
                    if self.is_invariant(other) {
                        next.saturating_mul(2).min(usize::MAX - 1)
                    } else {
                        next
                    }
                }
            };
            if chosen.is_none_or(|(best, _)| distance > best) {
                chosen = Some((distance, register));
            }
        }
        let (_, register) = chosen.expect("an instruction needs fewer registers than there are");
        if let Holder::Value(other) = self.holders(class)[register] {
            self.evict(other, register as u8);
        }
        self.holders(class)[register] = Holder::Value(value);
        self.registers[value as usize] = Some(register as u8);
        self.locked.push((class, register as u8));
        register as u8
    }

    fn evict(&mut self, value: Value, register: u8) {
        self.registers[value as usize] = None;
        let needed = self.next_use(value).is_some() || self.reads_now(value);
        if !needed || self.is_invariant(value) || self.slots[value as usize].is_some() {
            return;
        }
        let slot = self.used_slots;
        self.used_slots += 1;
        self.slots[value as usize] = Some(slot);
        let address = self.slot(slot);
        self.transfer(self.class(value), [MOVE_OUT_WIDE, MASK_MOVE_OUT], register, address);
    }

    /// Moves a register to the stack, or from it: with the code for its class.
    fn transfer(&mut self, class: Class, codes: [Code; 2], register: u8, address: Address) {
        let [vector, mask] = codes;
        match class {
            Class::Vector => self.plain(vector, register, Place::Memory(address, 64)),
            Class::Mask => {
                self.assembler.mask(mask, false, register, 0, Place::Memory(address, 1), None);
            }
        }
    }

    /// The place on the stack of a value that lost its register.
    fn saved(&self, value: Value) -> Address {
        self.slot(self.slots[value as usize].expect("a value without a register is on the stack"))
    }

    fn reads_now(&self, value: Value) -> bool {
        self.uses[value as usize].binary_search(&self.at).is_ok()
    }

    /// An instruction of two operands, whole vectors.
    fn plain(&mut self, code: Code, reg: u8, place: Place) {
        self.assembler.vector(Vector::new(code, Width::Zmm, reg, place));
    }

    /// Brings a value into a register.
    fn source(&mut self, value: Value) -> u8 {
        let class = self.class(value);
        if let Some(register) = self.register(value) {
            self.locked.push((class, register));
            return register;
        }
        let register = self.take(value);
        match self.around.invariants.get(&value) {
            Some(invariant) => {
                let address = self.around.elements[&value];
                spread(self.assembler, invariant.lane, register, address);
            }
            None => self.transfer(class, [MOVE_WIDE, MASK_MOVE], register, self.saved(value)),
        }
        register
    }

    /// Whether an instruction may take a value as a memory operand.
    fn in_memory(&self, value: Value, width: Width) -> bool {
        if self.register(value).is_some() || self.class(value) == Class::Mask {
            return false;
        }
        match self.around.invariants.get(&value) {
            Some(invariant) => {
                matches!(invariant.lane, Lane::Wide | Lane::Narrow { .. }) && width == Width::Zmm
            }
            None => self.next_use(value).is_none(),
        }
    }

    /// The last operand of an instruction: a memory operand, if the value is in memory and its
    /// elements have the instruction's size.
    fn operand(&mut self, value: Value, code: Code, width: Width) -> Place {
        if !self.in_memory(value, width) {
            return Place::Register(self.source(value));
        }
        match self.around.invariants.get(&value) {
            Some(invariant) => {
                let bytes = if invariant.lane == Lane::Wide { 8 } else { 4 };
                if bytes != if code.wide { 8 } else { 4 } {
                    return Place::Register(self.source(value));
                }
                Place::Broadcast(self.around.elements[&value], bytes)
            }
            None => {
                let unit = match width {
                    Width::Xmm => 16,
                    Width::Ymm => 32,
                    Width::Zmm => 64,
                };
                Place::Memory(self.saved(value), unit)
            }
        }
    }

    /// Frees the registers of values after their last use.
    fn release(&mut self, instruction: &Instruction) {
        for value in instruction.reads() {
            if self.next_use(value).is_some() || self.around.pinned.contains_key(&value) {
                continue;
            }
            if let Some(register) = self.registers[value as usize].take() {
                let class = self.class(value);
                self.holders(class)[usize::from(register)] = Holder::Free;
            }
        }
    }

    /// Allocates the register of a result.
    fn result(&mut self, instruction: &Instruction) -> u8 {
        let value = instruction.result.expect("the form has a result");
        match self.around.pinned.get(&value) {
            Some(register) => *register,
            None => self.take(value),
        }
    }

    /// The mask of an instruction, and whether other lanes become 0.
    fn masking(&mut self, instruction: &Instruction) -> (u8, bool) {
        if let Some(mask) = instruction.mask {
            return (self.source(mask), !instruction.blends);
        }
        // In the tail, a loop-carried value keeps its lanes beyond the last element.
        match instruction.result.and_then(|result| self.around.carried.get(&result)) {
            Some(upper) if self.tail => (if *upper { TAIL_UPPER } else { TAIL }, false),
            _ => (0, false),
        }
    }

    /// The address of the elements of a stream.
    fn stream(&mut self, stream: Stream) -> Place {
        let base = match self.around.pointers[stream.pointer] {
            Some(register) => register,
            None => {
                self.assembler.load(SCRATCH, in_table(stream.pointer));
                SCRATCH
            }
        };
        let index = Some((INDEX, stream.size.trailing_zeros() as u8));
        let address = Address::Based { base, index, displacement: stream.offset as i32 };
        Place::Memory(address, stream.bytes as i32)
    }

    fn instruction(&mut self, instruction: &Instruction) {
        self.locked.clear();
        let Instruction { code, width, immediate, sources: [a, b, _], .. } = *instruction;
        let emit = |w: &mut Self, code, reg, second, place, (mask, zeroing)| {
            let vector = Vector::new(code, width, reg, place);
            w.assembler.vector(Vector { second, mask, zeroing, immediate, ..vector });
        };
        match instruction.form {
            Form::Load(stream) => {
                let place = self.stream(stream);
                let reg = self.result(instruction);
                let mask = self.tail_mask(stream);
                emit(self, code, reg, 0, place, (mask, mask != 0));
            }
            Form::Store(stream) => {
                let reg = self.source(a);
                let place = self.stream(stream);
                let mask = self.tail_mask(stream);
                self.release(instruction);
                let code = match code {
                    STREAM_OUT if self.tail => MOVE_OUT,
                    STREAM_OUT_WIDE if self.tail => MOVE_OUT_WIDE,
                    _ => code,
                };
                emit(self, code, reg, 0, place, (mask, false));
            }
            Form::Masks { long } => {
                let (second, place) = (self.source(a), Place::Register(self.source(b)));
                self.release(instruction);
                let reg = self.result(instruction);
                self.assembler.mask(code, long, reg, second, place, immediate);
            }
            Form::MaskUnary { long } => {
                let place = Place::Register(self.source(a));
                self.release(instruction);
                let reg = self.result(instruction);
                self.assembler.mask(code, long, reg, 0, place, immediate);
            }
            Form::Fma => self.fma(instruction),
            Form::Reversed => {
                let reg = self.source(a);
                let (mask, zeroing) = self.masking(instruction);
                self.release(instruction);
                let place = Place::Register(self.result(instruction));
                emit(self, code, reg, 0, place, (mask, zeroing));
            }
            Form::Unary | Form::FromMask => {
                let place = Place::Register(self.source(a));
                let (mask, zeroing) = self.masking(instruction);
                self.release(instruction);
                let reg = self.result(instruction);
                emit(self, code, reg, 0, place, (mask, zeroing));
            }
            Form::Binary { commutes } | Form::Compare { commutes } => {
                let swap = commutes && self.in_memory(a, width) && !self.in_memory(b, width);
                let (a, b) = if swap { (b, a) } else { (a, b) };
                let second = self.source(a);
                let place = match code {
                    WITH_UPPER_HALF => Place::Register(self.source(b)),
                    _ => self.operand(b, code, width),
                };
                let (mask, zeroing) = self.masking(instruction);
                self.release(instruction);
                let reg = self.result(instruction);
                emit(self, code, reg, second, place, (mask, zeroing));
            }
        }
    }

    fn tail_mask(&self, stream: Stream) -> u8 {
        match (self.tail, stream.upper) {
            (false, _) => 0,
            (true, false) => TAIL,
            (true, true) => TAIL_UPPER,
        }
    }

    /// `a · b + c` overwrites one of the three, preferably one without a later use.
    fn fma(&mut self, instruction: &Instruction) {
        let [a, b, c] = instruction.sources;
        let Instruction { code, width, .. } = *instruction;
        // A candidate is in a register, has no later use and is no invariant.
        let dies = |w: &Self, value: Value| {
            w.registers[value as usize].is_some()
                && !w.is_invariant(value)
                && w.next_use(value).is_none()
        };
        let (mask, _) = self.masking(instruction);
        let carried =
            instruction.result.is_some_and(|r| self.around.carried.contains_key(&r) && r == c);
        let write = |w: &mut Self, byte: u8, reg: u8, second: u8, place: Place| {
            let vector = Vector::new(Code { byte, ..code }, width, reg, place);
            w.assembler.vector(Vector { second, mask, ..vector });
        };
        let overwritten =
            if carried { Some(c) } else { [c, a, b].into_iter().find(|v| dies(self, *v)) };
        if overwritten.is_none_or(|value| value == c) {
            // c = a · b + c, on a copy of c if it has a later use.
            let (a, b) = if self.in_memory(a, width) { (b, a) } else { (a, b) };
            let second = self.source(a);
            let place = self.operand(b, code, width);
            let old = self.source(c);
            let result = if overwritten.is_some() {
                if carried {
                    old
                } else {
                    self.release(instruction);
                    self.give(instruction, old)
                }
            } else {
                // Before the release, since the register of a factor must not be overwritten yet.
                let result = self.result(instruction);
                self.release(instruction);
                self.plain(MOVE, result, Place::Register(old));
                result
            };
            write(self, 0xb8, result, second, place);
            return;
        }
        let (a, b) = if overwritten == Some(a) { (a, b) } else { (b, a) };
        let old = self.source(a);
        // a = a · b + c, with b as the last operand if it is in memory and c is not.
        let (byte, second, last) = match self.in_memory(b, width) && !self.in_memory(c, width) {
            true => (0x98, c, b),
            false => (0xa8, b, c),
        };
        let second = self.source(second);
        let place = self.operand(last, code, width);
        self.release(instruction);
        let result = self.give(instruction, old);
        write(self, byte, result, second, place);
    }

    /// Assigns a register that was just released to a result.
    fn give(&mut self, instruction: &Instruction, register: u8) -> u8 {
        let value = instruction.result.expect("the form has a result");
        if let Some(pinned) = self.around.pinned.get(&value) {
            let pinned = *pinned;
            self.plain(MOVE, pinned, Place::Register(register));
            return pinned;
        }
        self.holders(Class::Vector)[usize::from(register)] = Holder::Value(value);
        self.registers[value as usize] = Some(register);
        register
    }
}

/// Broadcasts an element to a register.
pub(super) fn spread(assembler: &mut Assembler, lane: Lane, register: u8, address: Address) {
    let (code, width, unit) = match lane {
        Lane::Narrow { .. } => (SPREAD, Width::Zmm, 4),
        Lane::Wide => (SPREAD_WIDE, Width::Zmm, 8),
        Lane::Half => (SPREAD_HALVES, Width::Ymm, 2),
        Lane::Mask => {
            assembler.mask(MASK_MOVE, false, register, 0, Place::Memory(address, 1), None);
            return;
        }
    };
    assembler.vector(Vector::new(code, width, register, Place::Memory(address, unit)));
}
