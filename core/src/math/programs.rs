//! The recorded programs against the native functions: bit for bit.

use super::{MathProgram, f32 as single, f64 as double, moderate, program};
use crate::dtype::DType;
use crate::id::IdVec;
use crate::nest::evaluate::{Evaluator, evaluator};
use crate::nest::{
    Instr, Reg,
    ScalarOp::{self, *},
};
use crate::scalar::{Native, Scalar};
use wengert_testing::Random;

/// A program whose instructions have been resolved: each an evaluator and the positions of
/// operands and result.
struct ResolvedProgram<'a> {
    program: &'a MathProgram,
    steps: Vec<(Evaluator, [usize; 3])>,
    values: Vec<u64>,
}

impl<'a> ResolvedProgram<'a> {
    fn new(program: &'a MathProgram) -> Self {
        let mut steps = Vec::new();
        let mut values: Vec<u64> = vec![0; program.registers.len()];
        for instr in &program.body {
            match instr {
                Instr::Scalar { result, op, operands } => {
                    let dtypes: Vec<DType> =
                        operands.iter().map(|r| program.registers[*r]).collect();
                    let function =
                        evaluator(*op, &dtypes, program.registers[*result]).expect("well typed");
                    let mut places = [0; 3];
                    for (place, operand) in places.iter_mut().zip(operands) {
                        *place = crate::id::Id::index(*operand);
                    }
                    steps.push((function, places));
                }
                Instr::Const { result, value } => {
                    values[crate::id::Id::index(*result)] = value.bits();
                    // A constant is written before the program runs; its step does nothing.
                    steps.push((|[x, ..]| x, [crate::id::Id::index(*result); 3]));
                }
                other => panic!("{other:?} is no scalar instruction"),
            }
        }
        ResolvedProgram { program, steps, values }
    }

    fn run(&mut self, operands: &[u64]) -> u64 {
        self.values[..operands.len()].copy_from_slice(operands);
        for (index, (function, places)) in self.steps.iter().enumerate() {
            self.values[operands.len() + index] = function(places.map(|p| self.values[p]));
        }
        self.values[crate::id::Id::index(self.program.result)]
    }
}

/// The properties of a float type that the tests need.
trait Sample: Native {
    const MANTISSA: u32;
    const EXPONENT: u32;
    /// Number of random arguments.
    const RANDOM: u64;
    /// Arguments where functions change their formula, and special values of some of them.
    fn seams() -> Vec<Self>;

    fn is_nan(bits: u64) -> bool {
        bits & !(1 << (Self::MANTISSA + Self::EXPONENT))
            > ((1 << Self::EXPONENT) - 1) << Self::MANTISSA
    }

    /// Every exponent with several mantissas and both signs, and arguments around the seams.
    fn arguments() -> Vec<u64> {
        let mut random = Random(1);
        let mask = (1 << Self::MANTISSA) - 1;
        let mut all = Vec::new();
        for exponent in 0..1_u64 << Self::EXPONENT {
            let mantissas = [0, 1, 2, mask, mask - 1, mask / 2, random.bits(), random.bits()];
            all.extend(mantissas.map(|m| (exponent << Self::MANTISSA) | (m & mask)));
        }
        for seam in Self::seams() {
            all.extend((0..65).map(|k| seam.to_bits64().wrapping_add(k).saturating_sub(32)));
        }
        let sign = 1 << (Self::MANTISSA + Self::EXPONENT);
        all.iter().flat_map(|bits| [*bits, bits ^ sign]).collect()
    }
}

impl Sample for f32 {
    const MANTISSA: u32 = 23;
    const EXPONENT: u32 = 8;
    const RANDOM: u64 = 1 << 20;
    fn seams() -> Vec<f32> {
        let powers = [52, 79, 106].map(|k| 2.0_f32.powi(k));
        let quarters = (1..100).map(|k| k as f32 * std::f32::consts::FRAC_PI_4);
        let others = [
            0.55,
            0.92,
            1.0,
            4.0,
            10.0,
            18.0,
            89.0,
            104.0,
            103.97,
            2.98e-8,
            0.707_106_77,
            16_777_216.0,
            8_388_607.5,
            1e38,
            105_032.87,
        ];
        others.into_iter().chain(powers).chain(quarters).collect()
    }
}

impl Sample for f64 {
    const MANTISSA: u32 = 52;
    const EXPONENT: u32 = 11;
    const RANDOM: u64 = 1 << 16;
    fn seams() -> Vec<f64> {
        let quarters = (1..100).map(|k| f64::from(k) * std::f64::consts::FRAC_PI_4);
        let others = [
            5.0e-17,
            3.7e-9,
            1.0,
            6.0,
            20.0,
            40.0,
            710.0,
            709.782_712_893_384,
            746.0,
            745.133_219_101_941_1,
            std::f64::consts::SQRT_2,
            std::f64::consts::FRAC_1_SQRT_2,
            libm::scalbn(6_381_956_970_095_103.0, 797),
            9_007_199_254_740_992.0,
        ];
        others.into_iter().chain(quarters).collect()
    }
}

fn same<T: Sample>(op: ScalarOp, operands: &[u64], recorded: u64, native: T) {
    let native = native.to_bits64();
    assert!(
        recorded == native || (T::is_nan(recorded) && T::is_nan(native)),
        "{op:?} {:?}: recorded {recorded:#x}, native {native:#x}",
        operands.iter().map(|bits| Scalar::from_bits(T::DTYPE, *bits)).collect::<Vec<_>>(),
    );
}

fn unary<T: Sample>(op: ScalarOp, native: fn(T) -> T) {
    unary_of(op, native, T::RANDOM);
}

fn unary_of<T: Sample>(op: ScalarOp, native: fn(T) -> T, random_ones: u64) {
    let mut machine = ResolvedProgram::new(program(op, T::DTYPE).expect("it has a program"));
    let mut check =
        |bits: u64| same(op, &[bits], machine.run(&[bits]), native(T::from_bits64(bits)));
    T::arguments().into_iter().for_each(&mut check);
    let mut random = Random(2);
    for _ in 0..random_ones {
        check(T::from_bits64(random.bits()).to_bits64());
    }
}

fn binary<T: Sample>(op: ScalarOp, native: fn(T, T) -> T) {
    let mut machine = ResolvedProgram::new(program(op, T::DTYPE).expect("it has a program"));
    let mut check = |x: u64, y: u64| {
        let (x, y) = (T::from_bits64(x).to_bits64(), T::from_bits64(y).to_bits64());
        same(op, &[x, y], machine.run(&[x, y]), native(T::from_bits64(x), T::from_bits64(y)));
    };
    let arguments = T::arguments();
    let mut random = Random(3);
    let some = |random: &mut Random| *random.pick(&arguments);
    // About as many as for f32.
    for &x in arguments.iter().step_by(if T::DTYPE == DType::F64 { 7 } else { 1 }) {
        for special in [0.0, 1.0, 2.0, 3.0, 0.5, f64::INFINITY, f64::NAN] {
            for special in [special, -special] {
                let special = <T as Native>::from_f64(special).to_bits64();
                check(x, special);
                check(special, x);
            }
        }
        check(x, x);
        check(x, random.bits());
        check(random.bits(), x);
        check(x, some(&mut random));
    }
    for k in 0..T::RANDOM {
        let (x, y) = (random.bits(), random.bits());
        // Half of them around 1 and 32, where a power is neither 0 nor infinite.
        let near = |bits: u64, exponent: i32| {
            let unit = <T as Native>::from_f64(
                (f64::from((bits >> 33) as u32) / f64::powi(2.0, 31) - 0.5) * 2.0,
            );
            <T as Native>::from_f64(unit.to_f64() * f64::powi(2.0, exponent)).to_bits64()
        };
        if k % 2 == 0 { check(x, y) } else { check(near(x, 2), near(y, 5)) }
    }
}

#[test]
fn f32_exponentials_are_their_programs() {
    unary(Exp, single::exp::<f32>);
    unary(Expm1, single::expm1::<f32>);
    unary(Tanh, single::tanh::<f32>);
    unary(Erf, single::erf::<f32>);
}

#[test]
fn f32_logarithms_and_angles_are_their_programs() {
    unary(Log, single::log::<f32>);
    unary(Log1p, single::log1p::<f32>);
    unary(Sin, single::sin::<f32>);
    unary(Cos, single::cos::<f32>);
}

#[test]
fn f32_rare_functions_are_their_programs() {
    for (op, native) in [
        (Log2, single::log2::<f32> as fn(f32) -> f32),
        (Asin, single::asin::<f32>),
        (Acos, single::acos::<f32>),
        (Sinh, single::sinh::<f32>),
        (Cosh, single::cosh::<f32>),
        (Asinh, single::asinh::<f32>),
        (Acosh, single::acosh::<f32>),
        (Atanh, single::atanh::<f32>),
        (Cbrt, single::cbrt::<f32>),
        (Erfc, single::erfc::<f32>),
        (ErfInv, single::erf_inv::<f32>),
        (Lgamma, single::lgamma::<f32>),
        (Digamma, single::digamma::<f32>),
    ] {
        unary_of(op, native, 1 << 14);
    }
}

#[test]
fn f64_rare_functions_are_their_programs() {
    for (op, native) in [
        (Log2, double::log2::<f64> as fn(f64) -> f64),
        (Asin, double::asin::<f64>),
        (Acos, double::acos::<f64>),
        (Sinh, double::sinh::<f64>),
        (Cosh, double::cosh::<f64>),
        (Asinh, double::asinh::<f64>),
        (Acosh, double::acosh::<f64>),
        (Atanh, double::atanh::<f64>),
        (Cbrt, double::cbrt::<f64>),
        (Erfc, double::erfc::<f64>),
        (ErfInv, double::erf_inv::<f64>),
        (Lgamma, double::lgamma::<f64>),
        (Digamma, double::digamma::<f64>),
    ] {
        unary_of(op, native, 1 << 14);
    }
}

#[test]
fn polygammas_are_their_programs() {
    let mut random = Random(4);
    for n in [1, 2, 7, 30] {
        let (narrow, wide) = (
            super::polygamma(n, DType::F32).expect("on f32"),
            super::polygamma(n, DType::F64).expect("on f64"),
        );
        assert!(super::polygamma(n, DType::F16).is_none());
        for k in 0..2000 {
            let x = random.unit() * 40.0 - 20.0;
            let x = if k % 50 == 0 { x.round() } else { x };
            let recorded = wide.evaluate(&[Scalar::of(x)]).bits();
            same(Digamma, &[x.to_bits()], recorded, double::polygamma(n, x));
            let x = x as f32;
            let recorded = narrow.evaluate(&[Scalar::of(x)]).bits();
            same(Digamma, &[x.to_bits().into()], recorded, single::polygamma(n, x));
        }
    }
}

#[test]
fn f32_pow_and_atan2_are_their_programs() {
    binary(Pow, single::pow::<f32>);
    binary(Atan2, single::atan2::<f32>);
}

#[test]
fn f64_exponentials_are_their_programs() {
    unary(Exp, double::exp::<f64>);
    unary(Expm1, double::expm1::<f64>);
    unary(Tanh, double::tanh::<f64>);
    unary(Erf, double::erf::<f64>);
}

#[test]
fn f64_logarithms_and_angles_are_their_programs() {
    unary(Log, double::log::<f64>);
    unary(Log1p, double::log1p::<f64>);
    unary(Sin, double::sin::<f64>);
    unary(Cos, double::cos::<f64>);
}

#[test]
fn f64_pow_and_atan2_are_their_programs() {
    binary(Pow, double::pow::<f64>);
    binary(Atan2, double::atan2::<f64>);
}

/// The machine above and [`MathProgram::evaluate`] are two evaluators of the same program.
#[test]
fn a_program_evaluates_itself() {
    for op in ScalarOp::ALL.iter().filter(|op| op.is_elementary()) {
        for dtype in [DType::F32, DType::F64] {
            let Some(program) = program(*op, dtype) else { continue };
            let mut machine = ResolvedProgram::new(program);
            for (x, y) in [(0.5, 1.5), (-3.25, 2.0), (1e30, -1e-3), (f64::INFINITY, 0.0)] {
                let operands: Vec<Scalar> =
                    [x, y].iter().take(op.arity()).map(|v| Scalar::from_f64(dtype, *v)).collect();
                let bits: Vec<u64> = operands.iter().map(|s| s.bits()).collect();
                assert_eq!(
                    program.evaluate(&operands).bits(),
                    machine.run(&bits),
                    "{op:?} {dtype}"
                );
            }
        }
    }
}

#[test]
fn programs_are_exact_typed_and_without_waste() {
    for op in ScalarOp::ALL {
        for dtype in DType::ALL {
            let Some(program) = program(*op, dtype) else {
                let defined = op.class().contains(dtype);
                assert!(!op.is_elementary() || !defined, "{op:?} {dtype} lacks a program");
                continue;
            };
            assert!(op.is_elementary());
            assert_eq!(program.operands, op.arity());
            let mut defined: IdVec<Reg, bool> = (0..program.operands).map(|_| false).collect();
            for instr in &program.body {
                if let Instr::Scalar { result, op, operands } = instr {
                    assert!(!op.is_elementary());
                    let dtypes: Vec<DType> =
                        operands.iter().map(|r| program.registers[*r]).collect();
                    op.check(&dtypes, program.registers[*result]).expect("well typed");
                }
                instr.visit_operands(&mut |r| defined[r] = true);
                assert_eq!(instr.results(), [defined.push(false)], "registers in order");
            }
            defined[program.result] = true;
            assert!(
                defined.iter().all(|(_, used)| *used),
                "{op:?} {dtype}: a register is of no use"
            );
        }
    }
}

/// Code size on a GPU: instructions, without constants.
#[test]
fn sizes_of_programs() {
    let sizes = |dtype: DType| {
        let ops = ScalarOp::ALL.iter().filter(|op| op.is_elementary());
        ops.filter_map(|op| Some((op.name(), program(*op, dtype)?.size()))).collect::<Vec<_>>()
    };
    assert_eq!(
        sizes(DType::F32),
        [
            ("exp", 27),
            ("expm1", 26),
            ("log", 36),
            ("log1p", 48),
            ("sin", 100),
            ("cos", 101),
            ("tanh", 39),
            ("erf", 43),
            ("log2", 94),
            ("asin", 47),
            ("acos", 57),
            ("sinh", 124),
            ("cosh", 67),
            ("asinh", 148),
            ("acosh", 152),
            ("atanh", 126),
            ("cbrt", 47),
            ("erfc", 155),
            ("erf_inv", 276),
            ("lgamma", 543),
            ("digamma", 420),
            ("pow", 91),
            ("atan2", 53),
        ]
    );
    assert_eq!(
        sizes(DType::F64),
        [
            ("exp", 52),
            ("expm1", 53),
            ("log", 57),
            ("log1p", 71),
            ("sin", 202),
            ("cos", 198),
            ("tanh", 74),
            ("erf", 101),
            ("log2", 92),
            ("asin", 45),
            ("acos", 55),
            ("sinh", 122),
            ("cosh", 65),
            ("asinh", 146),
            ("acosh", 150),
            ("atanh", 124),
            ("cbrt", 45),
            ("erfc", 153),
            ("erf_inv", 274),
            ("lgamma", 541),
            ("digamma", 418),
            ("pow", 173),
            ("atan2", 83),
        ]
    );
}

#[test]
fn moderate_programs_have_the_bits_of_whole_ones() {
    let short = moderate(Exp, DType::F32).expect("there is one");
    let bound = f32::from_bits(short.bound.bits() as u32);
    let whole = program(Exp, DType::F32).expect("there is one");
    assert!(short.program.size() < whole.size() * 2 / 3, "{}", short.program.size());
    let mut program = ResolvedProgram::new(short.program);
    for bits in (0..=bound.to_bits()).step_by(331).chain([bound.to_bits()]) {
        for x in [f32::from_bits(bits), -f32::from_bits(bits)] {
            let (got, expected) = (program.run(&[u64::from(x.to_bits())]), single::exp(x));
            assert_eq!(got, u64::from(expected.to_bits()), "exp {x:e}");
            assert_eq!(single::exp_moderate(x).to_bits(), expected.to_bits(), "exp {x:e}");
        }
    }
}
