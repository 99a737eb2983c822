//! A loop around vector code: sixteen elements per iteration, several iterations interleaved, and
//! a masked tail.

use super::allocate::{
    INDEX, NEEDED, SCRATCH, Surroundings, TAIL, TAIL_UPPER, VECTORS, in_table, on_stack, pressure,
    spread, write,
};
use super::code::Code;
use super::encode::{Address, Assembler, Condition, Gpr, Place, Vector, Width};
use super::instruction::*;
use super::lower::{Builder, Lanes};
use std::collections::BTreeMap;
use wengert_core::nest::ScalarOp;
use wengert_core::{DType, Diagnostic};

/// The program of one iteration, before code generation.
#[derive(Clone, Default, Debug)]
pub(crate) struct Program {
    builder: Builder,
    /// Instructions that must run in order, iteration after iteration.
    folds: Vec<Instruction>,
    /// Accumulators: the pointer, the dtype and the value.
    carried: Vec<(usize, Accumulator)>,
    pointers: usize,
}

#[derive(Clone, Copy, Debug)]
struct Accumulator {
    value: Value,
    wide: bool,
    upper: bool,
}

/// Sixteen lanes of a value of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Register(Lanes);

impl Program {
    /// Loads the elements of a new pointer of the table; also returns its number.
    pub fn load(&mut self, dtype: DType) -> (Register, usize) {
        let pointer = self.pointer();
        (Register(self.builder.load(pointer, dtype)), pointer)
    }

    /// The single element of a new pointer of the table; also returns its number.
    pub fn uniform(&mut self, dtype: DType) -> (Register, usize) {
        let pointer = self.pointer();
        (Register(self.builder.uniform(Source::Uniform(pointer), dtype)), pointer)
    }

    /// A constant.
    pub fn constant(&mut self, value: wengert_core::Scalar) -> Register {
        Register(self.builder.constant(value))
    }

    /// A scalar instruction; `None` if it has no rule, and then the program is unchanged.
    pub fn scalar(
        &mut self,
        op: ScalarOp,
        operands: &[Register],
        dtypes: &[DType],
        result: DType,
    ) -> Option<Register> {
        let lanes: Vec<Lanes> = operands.iter().map(|r| r.0).collect();
        let length = self.builder.instructions.len();
        let made = self.builder.scalar(op, &lanes, dtypes, result);
        if made.is_none() {
            self.builder.instructions.truncate(length);
        }
        made.map(Register)
    }

    /// 0 where the first operand is 0, else the product of the others; of f32.
    pub fn product(&mut self, operands: [Register; 3]) -> Option<Register> {
        self.builder.product(operands.map(|r| r.0)).map(Register)
    }

    /// Stores elements to a new pointer of the table, which it returns.
    pub fn store(&mut self, dtype: DType, value: Register) -> usize {
        let pointer = self.pointer();
        self.builder.store(pointer, dtype, value.0);
        pointer
    }

    /// Stores elements to a pointer that the program loads from.
    pub fn store_at(&mut self, pointer: usize, dtype: DType, value: Register) {
        self.builder.store(pointer, dtype, value.0);
    }

    /// Combines element e with accumulator e mod 16 at a new pointer of the table, which it
    /// returns; `None` if the instruction has no rule or works on masks, or if too few registers
    /// would be left beside the accumulators.
    pub fn fold(&mut self, op: ScalarOp, dtype: DType, value: Register) -> Option<usize> {
        if dtype.is_half() || dtype.size() < 4 {
            return None;
        }
        let pointer = self.pointers;
        let upper = [false, true];
        let accumulators = match value.0 {
            Lanes::One(_) => Lanes::One(self.builder.value(Class::Vector)),
            Lanes::Two(_) => Lanes::Two(upper.map(|_| self.builder.value(Class::Vector))),
            Lanes::Mask(_) => return None,
        };
        let of = |lanes: Lanes| match lanes {
            Lanes::One(v) | Lanes::Mask(v) => vec![v],
            Lanes::Two(both) => both.to_vec(),
        };
        let values = of(accumulators);
        if self.carried.len() + values.len() > VECTORS - NEEDED {
            return None;
        }
        let start = self.builder.instructions.len();
        let made = self.builder.scalar(op, &[accumulators, value.0], &[dtype; 2], dtype);
        let mut folded = self.builder.instructions.split_off(start);
        let results = of(made?);
        for (k, (result, value)) in results.iter().zip(&values).enumerate() {
            let accumulator = Accumulator { value: *value, wide: values.len() == 2, upper: k == 1 };
            self.carried.push((pointer, accumulator));
            match folded.iter_mut().find(|i| i.result == Some(*result)) {
                Some(last) if last.mask.is_none() => last.result = Some(*value),
                _ => {
                    // A mask operand has the same element width.
                    let code = if values.len() == 2 { MOVE_WIDE } else { MOVE };
                    folded.push(Instruction::new(Form::Unary, code, *value, &[*result]));
                }
            }
        }
        self.folds.extend(folded);
        self.pointers += 1;
        Some(pointer)
    }

    /// The same program with non-temporal stores to these pointers, where their elements fill
    /// vectors.
    pub fn past_caches(&self, pointers: &[usize]) -> Program {
        let mut program = self.clone();
        for instruction in &mut program.builder.instructions {
            let Form::Store(stream) = instruction.form else { continue };
            if pointers.contains(&stream.pointer) {
                instruction.code = match instruction.code {
                    MOVE_OUT => STREAM_OUT,
                    MOVE_OUT_WIDE => STREAM_OUT_WIDE,
                    other => other,
                };
            }
        }
        program
    }

    /// Whether it has stores or folds.
    pub fn has_effects(&self) -> bool {
        let stores = self.builder.instructions.iter().any(|i| matches!(i.form, Form::Store(_)));
        stores || !self.folds.is_empty()
    }

    /// Number of vector instructions of an iteration.
    pub fn size(&self) -> usize {
        self.builder.instructions.len() + self.folds.len()
    }

    /// Whether all iterations share the value: an invariant, or an accumulator.
    fn is_shared(&self, value: Value) -> bool {
        self.builder.invariants.contains_key(&value)
            || self.carried.iter().any(|(_, accumulator)| accumulator.value == value)
    }

    fn pointer(&mut self) -> usize {
        self.pointers += 1;
        self.pointers - 1
    }

    /// The code of `count` iterations. Their instructions are interleaved, so that their
    /// latencies overlap.
    fn turns(&self, count: usize) -> (Vec<Instruction>, Vec<Class>) {
        let values = self.builder.classes.len();
        let mut classes = vec![];
        (0..count).for_each(|_| classes.extend_from_slice(&self.builder.classes));
        let renamed = |instruction: &Instruction, turn: usize| {
            let name = |value: Value| {
                if self.is_shared(value) { value } else { value + (turn * values) as Value }
            };
            let mut renamed = *instruction;
            renamed.sources = renamed.sources.map(name);
            renamed.result = renamed.result.map(name);
            renamed.mask = renamed.mask.map(name);
            match &mut renamed.form {
                Form::Load(stream) | Form::Store(stream) => {
                    stream.offset += turn * 16 * stream.size
                }
                _ => {}
            }
            renamed
        };
        let mut instructions = vec![];
        for instruction in &self.builder.instructions {
            instructions.extend((0..count).map(|turn| renamed(instruction, turn)));
        }
        for turn in 0..count {
            instructions.extend(self.folds.iter().map(|i| renamed(i, turn)));
        }
        (instructions, classes)
    }

    /// Compiles the program.
    ///
    /// Error: there is no memory for code.
    pub fn compile(&self) -> Result<Function, Diagnostic> {
        Code::new(&self.code()).map(|code| Function { code, pointers: self.pointers })
    }

    /// Number of iterations to interleave.
    fn interleaved(&self) -> usize {
        let accumulators = self.carried.len();
        let fits = |turns: &usize| {
            let (instructions, classes) = self.turns(*turns);
            let values = self.builder.classes.len() as Value;
            let most = pressure(&instructions, &classes, |v| self.is_shared(v % values.max(1)));
            most + accumulators + 3 <= VECTORS
        };
        let most = match self.size() {
            0..=12 => 2,
            13..=150 => 4,
            151..=400 => 2,
            _ => 1,
        };
        [4, 2].into_iter().filter(|turns| *turns <= most).find(fits).unwrap_or(1)
    }

    fn code(&self) -> Vec<u8> {
        let turns = self.interleaved();
        let (main, main_classes) = self.turns(turns);
        let (tail, tail_classes) = self.turns(1);
        let mut a = Assembler::default();
        let mut around = self.surroundings(&mut a, &main, &main_classes);

        a.push(Gpr::Rbp);
        a.copy(Gpr::Rbp, Gpr::Rsp);
        let saved: Vec<Gpr> =
            SAVED.into_iter().filter(|r| around.pointers.contains(&Some(*r))).collect();
        saved.iter().for_each(|r| a.push(*r));
        a.and(Gpr::Rsp, -64);
        let stack = a.reserve(Gpr::Rsp);
        self.prepare(&mut a, &around);
        a.set(INDEX, 0);

        let (main_loop, rest, tail_loop, done) = (a.label(), a.label(), a.label(), a.label());
        let step = 16 * turns as i32;
        a.copy(Gpr::Rcx, Gpr::Rsi);
        a.and(Gpr::Rcx, -step);
        a.compare(INDEX, Gpr::Rcx);
        a.jump(Condition::NotBelow, rest);
        a.align();
        a.place(main_loop);
        let slots = write(&mut a, &around, &main, &main_classes, false);
        a.add(INDEX, step);
        a.compare(INDEX, Gpr::Rcx);
        a.jump(Condition::Below, main_loop);

        a.place(rest);
        a.compare(INDEX, Gpr::Rsi);
        a.jump(Condition::NotBelow, done);
        a.place(tail_loop);
        // Builds a mask of as many ones as elements are left; a mask register takes the low
        // sixteen.
        a.copy(Gpr::Rcx, Gpr::Rsi);
        a.subtract(Gpr::Rcx, INDEX);
        a.set(SCRATCH, 1);
        a.shift_left(SCRATCH);
        a.add(SCRATCH, -1);
        a.mask(MASK_OF_GENERAL, false, TAIL, 0, Place::Register(SCRATCH as u8), None);
        a.mask(MASK_SHIFT_RIGHT, false, TAIL_UPPER, 0, Place::Register(TAIL), Some(8));
        let tail_slots = write(&mut a, &around, &tail, &tail_classes, true);
        a.add(INDEX, 16);
        a.compare(INDEX, Gpr::Rsi);
        a.jump(Condition::Below, tail_loop);

        a.place(done);
        self.finish(&mut a, &around);
        around.stack += 64 * slots.max(tail_slots) as i32;
        a.fill(stack, -around.stack);
        let saved_bytes = saved.len() as i32 * 8;
        a.address(
            Gpr::Rsp,
            Address::Based { base: Gpr::Rbp, index: None, displacement: -saved_bytes },
        );
        saved.iter().rev().for_each(|r| a.pop(*r));
        a.pop(Gpr::Rbp);
        a.return_clean();
        a.finish()
    }

    /// Decides which registers are pinned for the whole loop, and the addresses of the
    /// invariants' elements.
    fn surroundings(
        &self,
        a: &mut Assembler,
        main: &[Instruction],
        classes: &[Class],
    ) -> Surroundings {
        let builder = &self.builder;
        let values = builder.classes.len() as Value;
        let mut pinned = BTreeMap::new();
        let mut next = 0u8;
        for (_, accumulator) in &self.carried {
            pinned.insert(accumulator.value, next);
            next += 1;
        }
        let most = pressure(main, classes, |v| self.is_shared(v % values.max(1)));
        // Three registers stay free for operands that an instruction cannot read from memory.
        let free = VECTORS.saturating_sub(most + pinned.len() + 3);
        let mut counts: BTreeMap<Value, usize> = BTreeMap::new();
        for value in main.iter().flat_map(Instruction::reads) {
            if builder.invariants.get(&value).is_some_and(|i| i.lane != Lane::Mask) {
                *counts.entry(value).or_default() += 1;
            }
        }
        let mut often: Vec<(Value, usize)> = counts.into_iter().collect();
        often.sort_by_key(|(value, count)| (std::cmp::Reverse(*count), *value));
        for (value, _) in often.into_iter().take(free) {
            pinned.insert(value, next);
            next += 1;
        }
        let mut cells = 0;
        let mut elements = BTreeMap::new();
        for (value, invariant) in &builder.invariants {
            let address = match (invariant.source, invariant.lane) {
                (Source::Constant(bits), Lane::Narrow { .. }) => a.constant(bits, 4),
                (Source::Constant(bits), Lane::Wide) => a.constant(bits, 8),
                (Source::Constant(bits), Lane::Half) => a.constant(bits, 2),
                (Source::Constant(_), Lane::Mask) | (Source::Uniform(_), _) => {
                    cells += 1;
                    on_stack(8 * (cells - 1))
                }
            };
            elements.insert(*value, address);
        }
        let mut streams: Vec<usize> = main
            .iter()
            .filter_map(|i| match i.form {
                Form::Load(stream) | Form::Store(stream) => Some(stream.pointer),
                _ => None,
            })
            .collect();
        streams.sort_unstable();
        streams.dedup();
        let mut pointers = vec![None; self.pointers];
        for (pointer, register) in streams.into_iter().zip(POINTERS) {
            pointers[pointer] = Some(register);
        }
        let carried =
            self.carried.iter().map(|(_, accumulator)| (accumulator.value, accumulator.upper));
        Surroundings {
            pinned,
            carried: carried.collect(),
            invariants: builder.invariants.clone(),
            elements,
            pointers,
            // Rounded up to whole vectors.
            stack: (8 * cells + 63) & !63,
        }
    }

    /// Initialises registers and cells before the loop.
    fn prepare(&self, a: &mut Assembler, around: &Surroundings) {
        for (value, invariant) in &around.invariants {
            let cell = around.elements[value];
            match (invariant.source, invariant.lane) {
                (Source::Constant(bits), Lane::Mask) => {
                    a.set(SCRATCH, if bits == 0 { 0 } else { 0xffff });
                    a.store(cell, SCRATCH);
                }
                (Source::Constant(_), _) => {}
                (Source::Uniform(pointer), lane) => {
                    a.load(SCRATCH, in_table(pointer));
                    let element = Address::Based { base: SCRATCH, index: None, displacement: 0 };
                    let whole =
                        matches!(lane, Lane::Narrow { bytes: 4, .. } | Lane::Wide | Lane::Half);
                    if let Some(register) = around.pinned.get(value).filter(|_| whole) {
                        spread(a, lane, *register, element);
                        continue;
                    }
                    let (bytes, signed) = match lane {
                        Lane::Narrow { bytes, signed } => (bytes, signed),
                        Lane::Wide => (8, false),
                        Lane::Half => (2, false),
                        Lane::Mask => (1, false),
                    };
                    a.load_element(SCRATCH, element, bytes, signed);
                    if lane == Lane::Mask {
                        a.negate(SCRATCH);
                    }
                    a.store(cell, SCRATCH);
                }
            }
            if let Some(register) = around.pinned.get(value) {
                spread(a, invariant.lane, *register, cell);
            }
        }
        for (pointer, register) in around.pointers.iter().enumerate() {
            if let Some(register) = register {
                a.load(*register, in_table(pointer));
            }
        }
        self.accumulators(a, around, false);
    }

    fn finish(&self, a: &mut Assembler, around: &Surroundings) {
        self.accumulators(a, around, true);
        let past = |i: &Instruction| i.code == STREAM_OUT || i.code == STREAM_OUT_WIDE;
        if self.builder.instructions.iter().any(past) {
            a.fence();
        }
    }

    /// Loads or stores the accumulators.
    fn accumulators(&self, a: &mut Assembler, around: &Surroundings, out: bool) {
        for (pointer, accumulator) in &self.carried {
            a.load(SCRATCH, in_table(*pointer));
            let displacement = if accumulator.upper { 64 } else { 0 };
            let code = match (out, accumulator.wide) {
                (false, false) => MOVE,
                (false, true) => MOVE_WIDE,
                (true, false) => MOVE_OUT,
                (true, true) => MOVE_OUT_WIDE,
            };
            let address = Address::Based { base: SCRATCH, index: None, displacement };
            let reg = around.pinned[&accumulator.value];
            a.vector(Vector::new(code, Width::Zmm, reg, Place::Memory(address, 64)));
        }
    }
}

/// Registers for pointers; the callee-saved ones come last.
const POINTERS: [Gpr; 9] =
    [Gpr::R8, Gpr::R9, Gpr::R10, Gpr::R11, Gpr::Rbx, Gpr::R12, Gpr::R13, Gpr::R14, Gpr::R15];
const SAVED: [Gpr; 5] = [Gpr::Rbx, Gpr::R12, Gpr::R13, Gpr::R14, Gpr::R15];

/// A compiled program.
#[derive(Debug)]
pub(crate) struct Function {
    code: Code,
    pointers: usize,
}

impl Function {
    /// Number of pointers in the table.
    pub fn pointers(&self) -> usize {
        self.pointers
    }

    /// Runs the program on `count` elements.
    ///
    /// # Safety
    ///
    /// The machine has the instructions of [`Simd::Avx512`](crate::simd::Simd::Avx512). The table
    /// has as many pointers as the program: to `count` elements of the dtypes that it loads and
    /// stores, to one element for a uniform, to sixteen accumulators. All are valid to read or
    /// write, and initialised; a bool is 0 or 1. Written memory overlaps no memory that is read,
    /// except that the program may read an element before it writes the same element. Where it
    /// stores past the caches, elements are aligned to 64 bytes.
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn run(&self, table: *const *mut u8, count: usize) {
        // SAFETY: the code was assembled as a function of this signature and begins at the start
        // of its pages. It preserves the callee-saved registers, and accesses only the memory
        // that the caller guarantees.
        unsafe {
            let function: unsafe extern "sysv64" fn(*const *mut u8, usize) =
                std::mem::transmute(self.code.start());
            function(table, count);
        }
    }

    /// Never called: there is no native code for this architecture.
    ///
    /// # Safety
    ///
    /// None is needed.
    #[cfg(not(target_arch = "x86_64"))]
    pub unsafe fn run(&self, _: *const *mut u8, _: usize) {
        unreachable!("native nests are compiled only where the machine has AVX-512")
    }
}
