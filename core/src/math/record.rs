//! Recording of elementary functions: symbols that record the operations on them.
//!
//! A [`Symbol`] stands for a value of a Rust type. An operation on symbols appends a scalar
//! instruction to their [`Recorder`]. Calling a function of this module on symbols therefore
//! records its straight-line program, a [`MathProgram`]. The recorder keeps one register for each
//! constant, and one for equal instructions on equal operands, and finally removes dead
//! instructions. It folds nothing, so the program computes the same steps as the native function.

use super::value::{Double, Float, Integer, Single, Value};
use crate::dtype::DType;
use crate::id::{Id, IdVec};
use crate::nest::{Instr, Reg, ScalarOp, evaluate::evaluate};
use crate::scalar::{Native, Scalar};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Sub};

/// An approximated scalar instruction as a program of exact ones.
///
/// The program has its own registers: the first ones stand for the operands, then come those that
/// the body defines, in order. No instruction is duplicate or dead.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MathProgram {
    /// Number of operands.
    pub operands: usize,
    /// The dtype of every register.
    pub registers: IdVec<Reg, DType>,
    /// Only `Scalar` instructions that are not approximated, and `Const`.
    pub body: Vec<Instr>,
    /// The register that holds the result.
    pub result: Reg,
}

impl MathProgram {
    /// Evaluates the program, instruction by instruction. The operands must have its dtype.
    pub fn evaluate(&self, operands: &[Scalar]) -> Scalar {
        assert_eq!(operands.len(), self.operands, "as many operands as the instruction has");
        let mut values: IdVec<Reg, Scalar> = operands.iter().copied().collect();
        for instr in &self.body {
            let value = match instr {
                Instr::Scalar { result, op, operands } => {
                    let operands: Vec<Scalar> = operands.iter().map(|r| values[*r]).collect();
                    evaluate(*op, &operands, self.registers[*result])
                }
                Instr::Const { value, .. } => *value,
                _ => unreachable!("the recorder makes no other instructions"),
            };
            values.push(value);
        }
        values[self.result]
    }

    /// Number of scalar instructions, without constants.
    pub fn size(&self) -> usize {
        self.body.iter().filter(|i| matches!(i, Instr::Scalar { .. })).count()
    }
}

/// The definition of a register.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    Operand(usize),
    Const(Scalar),
    /// An instruction, its operands (as many as its arity), and the dtype of its result.
    Scalar(ScalarOp, [Option<Reg>; 3], DType),
}

#[derive(Default)]
struct Tape {
    origins: Vec<Origin>,
    known: BTreeMap<Origin, Reg>,
}

/// The tape of instructions that symbols append to.
#[derive(Default)]
pub struct Recorder {
    tape: RefCell<Tape>,
}

/// A register of a [`Recorder`], used as a value of type `T`.
pub struct Symbol<'a, T> {
    recorder: &'a Recorder,
    register: Reg,
    kind: PhantomData<T>,
}

impl<T> Clone for Symbol<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Symbol<'_, T> {}

impl Recorder {
    /// The next operand of the program. Operands come before all instructions.
    pub fn operand<T: Native>(&self) -> Symbol<'_, T> {
        let index = self.tape.borrow().origins.len();
        self.add(Origin::Operand(index))
    }

    fn add<T: Native>(&self, origin: Origin) -> Symbol<'_, T> {
        let mut tape = self.tape.borrow_mut();
        let tape = &mut *tape;
        let register = *tape.known.entry(origin).or_insert_with(|| {
            tape.origins.push(origin);
            Reg::new(tape.origins.len() - 1)
        });
        Symbol { recorder: self, register, kind: PhantomData }
    }

    fn emit<T: Native>(&self, op: ScalarOp, operands: &[Reg]) -> Symbol<'_, T> {
        let mut registers = [None; 3];
        for (slot, operand) in registers.iter_mut().zip(operands) {
            *slot = Some(*operand);
        }
        self.add(Origin::Scalar(op, registers, T::DTYPE))
    }

    /// The program that computes `result`. All its operands have the dtype `dtype`.
    pub fn finish(&self, result: Reg, dtype: DType) -> MathProgram {
        let tape = self.tape.borrow();
        let mut needed = vec![false; tape.origins.len()];
        needed[result.index()] = true;
        for (index, origin) in tape.origins.iter().enumerate().rev() {
            match origin {
                Origin::Operand(_) => needed[index] = true,
                Origin::Scalar(_, operands, _) if needed[index] => {
                    operands.iter().flatten().for_each(|r| needed[r.index()] = true);
                }
                Origin::Scalar(..) | Origin::Const(_) => {}
            }
        }
        let mut program = MathProgram {
            operands: 0,
            registers: IdVec::new(),
            body: Vec::new(),
            result: Reg::new(0),
        };
        let mut places = vec![Reg::new(0); tape.origins.len()];
        for (index, origin) in tape.origins.iter().enumerate().filter(|(index, _)| needed[*index]) {
            let result = Reg::new(program.registers.len());
            places[index] = result;
            program.registers.push(match origin {
                Origin::Operand(_) => {
                    program.operands += 1;
                    dtype
                }
                Origin::Const(value) => {
                    program.body.push(Instr::Const { result, value: *value });
                    value.dtype()
                }
                Origin::Scalar(op, operands, dtype) => {
                    let operands = operands.iter().flatten().map(|r| places[r.index()]).collect();
                    program.body.push(Instr::Scalar { result, op: *op, operands });
                    *dtype
                }
            });
        }
        program.result = places[result.index()];
        // The program is kept for the rest of the process.
        program.registers.shrink_to_fit();
        program.body.shrink_to_fit();
        program
    }
}

impl<'a, T: Native> Symbol<'a, T> {
    /// Its register in the recorder.
    pub fn register(self) -> Reg {
        self.register
    }

    fn unary<R: Native>(self, op: ScalarOp) -> Symbol<'a, R> {
        self.recorder.emit(op, &[self.register])
    }

    fn binary<R: Native>(self, op: ScalarOp, other: Self) -> Symbol<'a, R> {
        self.recorder.emit(op, &[self.register, other.register])
    }

    fn constant(self, value: T) -> Self {
        self.recorder.add(Origin::Const(Scalar::of(value)))
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident;)*) => {$(
        impl<T: Native> $trait for Symbol<'_, T> {
            type Output = Self;
            fn $method(self, other: Self) -> Self {
                self.binary(ScalarOp::$op, other)
            }
        }
    )*};
}
operators! {
    Add add Add;
    Sub sub Sub;
    Mul mul Mul;
    Div div Div;
    BitAnd bitand And;
    BitOr bitor Or;
    BitXor bitxor Xor;
}

impl<T: Native> Neg for Symbol<'_, T> {
    type Output = Self;
    fn neg(self) -> Self {
        self.unary(ScalarOp::Neg)
    }
}

impl<T: Native> Not for Symbol<'_, T> {
    type Output = Self;
    fn not(self) -> Self {
        self.unary(ScalarOp::Not)
    }
}

/// Methods that are one instruction.
macro_rules! instructions {
    ($($method:ident($($other:ident)?) -> $output:ty = $op:ident;)*) => {$(
        fn $method(self $(, $other: Self)?) -> $output {
            self.recorder.emit(ScalarOp::$op, &[self.register $(, $other.register)?])
        }
    )*};
}

impl<'a, T: Native> Value for Symbol<'a, T> {
    type Literal = T;
    type Mask = Symbol<'a, bool>;
    fn literal(self, value: T) -> Self {
        self.constant(value)
    }
    fn choose(condition: Self::Mask, yes: Self, no: Self) -> Self {
        yes.recorder.emit(ScalarOp::Select, &[condition.register, yes.register, no.register])
    }
    instructions! {
        equals(other) -> Self::Mask = Eq;
        differs(other) -> Self::Mask = Ne;
        is_below(other) -> Self::Mask = Lt;
        is_at_most(other) -> Self::Mask = Le;
    }
}

macro_rules! symbols {
    ($($float:ident $bits:ident;)*) => {$(
        impl Integer for Symbol<'_, $bits> {
            instructions! {
                wrapping_add(other) -> Self = Add;
                wrapping_sub(other) -> Self = Sub;
                wrapping_mul(other) -> Self = Mul;
                mul_high(other) -> Self = MulHigh;
                shift_left_by(count) -> Self = ShiftLeft;
                shift_right_by(count) -> Self = ShiftRightLogical;
            }
            fn shift_left(self, count: u32) -> Self {
                self.shift_left_by(self.constant(count.into()))
            }
            fn shift_right(self, count: u32) -> Self {
                self.shift_right_by(self.constant(count.into()))
            }
            fn shift_right_signed(self, count: u32) -> Self {
                self.binary(ScalarOp::ShiftRightArithmetic, self.constant(count.into()))
            }
        }

        impl<'a> Float for Symbol<'a, $float> {
            type Bits = Symbol<'a, $bits>;
            fn mul_add(self, factor: Self, term: Self) -> Self {
                self.recorder.emit(ScalarOp::Fma, &[self.register, factor.register, term.register])
            }
            instructions! {
                abs() -> Self = Abs;
                sqrt() -> Self = Sqrt;
                round_even() -> Self = RoundEven;
                to_bits() -> Self::Bits = Bitcast;
            }
            fn from_bits(bits: Self::Bits) -> Self {
                bits.unary(ScalarOp::Bitcast)
            }
            fn with_sign_of(self, other: Self) -> Self {
                let sign = self.to_bits().constant(1 << ($bits::BITS - 1));
                let magnitude = self.to_bits() & self.to_bits().constant(!(1 << ($bits::BITS - 1)));
                Self::from_bits(magnitude | (other.to_bits() & sign))
            }
            fn is_negative(self) -> Symbol<'a, bool> {
                let sign = self.to_bits().constant(1 << ($bits::BITS - 1));
                self.to_bits().is_at_least(sign)
            }
        }
    )*};
}
symbols! {
    f32 u32;
    f64 u64;
}

impl<'a> Single for Symbol<'a, f32> {
    type Wide = Symbol<'a, f64>;
    fn widen(self) -> Self::Wide {
        self.unary(ScalarOp::Convert)
    }
    fn narrow(wide: Self::Wide) -> Self {
        wide.unary(ScalarOp::Convert)
    }
    fn from_signed(integer: Self::Bits) -> Self {
        integer.unary::<i32>(ScalarOp::Bitcast).unary(ScalarOp::Convert)
    }
}

impl Double for Symbol<'_, f64> {}
