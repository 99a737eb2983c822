//! The part of a GEMM that cuBLASLt can do, decided from its description alone.
//!
//! A plan's GEMM fixes every bit except the order of the sum: the order of the addends, the dtype
//! in which they are added, and the roundings ([`Addends`]). cuBLASLt computes
//! `alpha·A·B + beta·C + bias` in the dtype of the sums, adds C before the bias, and rounds once:
//!
//! | dtype of the result | addends | cuBLASLt | |
//! |---|---|---|---|
//! | a half, sums of f32 | any | residual as C, then bias, one rounding | the plan's form |
//! | that of the sums | bias alone | bias | the plan's form |
//! | that of the sums | residual alone | `beta = 1` | the plan's form |
//! | that of the sums | bias, then residual | adds the residual first | another order |
//! | f32, operands of 8-bit floats | bias | a bias of bf16 | another bias |
//!
//! So a [`Form`] has two parts: a prefix of the addends that cuBLASLt adds, and the rest, which a
//! kernel of this crate adds to `out` afterwards. Nothing is left for a result of halves, because
//! it would be rounded twice. C may be `out` itself. cuBLASLt's activations are not used
//! (decision 88): its ReLU makes a NaN 0, and its GELU has another tanh. An activation is a nest
//! that follows the product.
//! [`Rules::STRICT`] permits the plan's form only. The user may permit other bits
//! ([`Rules::RELAXED`]); a form then lists each difference. Nothing here depends on a library or a
//! GPU. [`super::Blas::prepare`] finds forms that the installed library refuses. It falls back to
//! [`Form::plain`], or to kernels of this crate.

use super::problem::{Layout, Problem, data_type};
use std::fmt;
use wengert_core::DType;
use wengert_core::call::{Addends, Gemm};

/// Permitted differences from the plan.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Rules {
    /// f32 operands may be rounded to tf32 (10 bits of mantissa).
    pub tf32: bool,
    /// The residual may be added before the bias.
    pub reordered: bool,
}

impl Rules {
    /// No differences.
    pub const STRICT: Rules = Rules { tf32: false, reordered: false };
    /// All differences.
    pub const RELAXED: Rules = Rules { tf32: true, reordered: true };
}

/// A GEMM by cuBLASLt, and the rest of its addends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Form {
    /// The product that cuBLASLt does.
    pub problem: Problem,
    /// The addends that cuBLASLt adds.
    pub done: Addends,
    /// The remaining ones, for another kernel on out.
    pub left: Addends,
    /// Differences of the result from the plan's; empty under strict rules.
    pub differences: Vec<Difference>,
}

/// A difference of a result from the plan's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Difference {
    /// f32 operands are rounded to tf32.
    Tf32,
    /// The residual is added before the bias.
    Order,
}

/// Reason why cuBLASLt does not do a GEMM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Why {
    /// An extent is 0.
    Empty,
    /// cuBLASLt has no dtype with these semantics (integers wrap).
    DType(DType),
    /// The strides of an operand do not form a matrix: neither is 1, or rows overlap.
    NoMatrix {
        /// `lhs` or `rhs`.
        operand: &'static str,
    },
    /// An extent or a stride exceeds 31 bits.
    TooLarge,
    /// cuBLASLt has no such product of 8-bit floats.
    Float8(&'static str),
    /// The residual is in out's memory, and would be needed after out is written.
    ResidualOverwritten,
    /// The library has no algorithm for it on this GPU within the workspace.
    NoAlgorithm {
        /// Version of cuBLASLt.
        version: String,
        /// Its answer, if not an empty list.
        answer: String,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Empty => f.write_str("nothing is multiplied"),
            Why::DType(dtype) => write!(f, "cuBLASLt has no product of {dtype} that wraps"),
            Why::NoMatrix { operand } => {
                write!(f, "the strides of {operand} are no matrix to cuBLASLt")
            }
            Why::Float8(why) => write!(f, "cuBLASLt multiplies 8-bit floats {why}"),
            Why::TooLarge => f.write_str("an extent or a stride is beyond 31 bits"),
            Why::ResidualOverwritten => f.write_str(
                "the residual is in the buffer of the result, and cuBLASLt would \
                 overwrite it too early",
            ),
            Why::NoAlgorithm { version, answer } if answer.is_empty() => {
                write!(f, "cuBLASLt {version} has no algorithm for it")
            }
            Why::NoAlgorithm { version, answer } => {
                write!(f, "cuBLASLt {version} answers {answer}")
            }
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Difference::Tf32 => "operands are rounded to tf32",
            Difference::Order => "the residual is added before the bias",
        })
    }
}

/// How cuBLASLt does this GEMM, or why it does not. `in_place`: the residual's buffer is out's.
pub fn supports(gemm: &Gemm, rules: Rules, in_place: bool) -> Result<Form, Why> {
    if gemm.batch == 0 || gemm.m == 0 || gemm.n == 0 || gemm.k == 0 {
        return Err(Why::Empty);
    }
    if data_type(gemm.operand).is_none() || data_type(gemm.result).is_none() {
        return Err(Why::DType(gemm.operand));
    }
    let mut problem = Problem::of(gemm, rules.tf32)
        .map_err(|operand| Why::NoMatrix { operand: ["lhs", "rhs"][operand] })?;
    let extents = [problem.m, problem.n, problem.k, problem.a.ld, problem.b.ld, problem.d.ld];
    if extents.iter().any(|e| *e > i32::MAX as u64) || gemm.batch > i32::MAX as usize {
        return Err(Why::TooLarge);
    }
    if let Some(why) = float8(&problem) {
        return Err(Why::Float8(why));
    }
    let mut differences = Vec::new();
    if problem.tf32 {
        differences.push(Difference::Tf32);
    }
    let (done, mut of_addends) = done(gemm, rules);
    differences.append(&mut of_addends);
    problem.accumulate = done.residual;
    problem.bias = done.bias;
    Form { problem, done, left: left(gemm.addends, done), differences }.apart(in_place)
}

/// Why cuBLASLt has no such product of 8-bit floats (cuBLAS documentation, `cublasLtMatmul`).
fn float8(problem: &Problem) -> Option<&'static str> {
    let Problem { operands, scales, a, b, d, .. } = problem;
    let sixteenths = |n: &u64| n.is_multiple_of(16);
    let rows = |m: &Layout| m.ld.is_multiple_of(16) && m.batch.is_multiple_of(16);
    match () {
        () if !operands[0].is_float8() => None,
        () if *operands == [DType::F8E5M2; 2] => Some("of which one is f8e4m3fn"),
        () if !([problem.m, problem.k, d.ld].iter().all(sixteenths) && rows(a) && rows(b)) => {
            Some("if rows and columns are multiples of 16")
        }
        () if scales.is_some_and(|scales| scales.lhs != scales.rhs) => {
            Some("with scales of both operands or of both rows and columns")
        }
        () => None,
    }
}

/// The addends that cuBLASLt adds under these rules: always a prefix.
fn done(gemm: &Gemm, rules: Rules) -> (Addends, Vec<Difference>) {
    let wanted = gemm.addends;
    // With a result in f32, its bias would be bf16.
    if gemm.operand.is_float8() && wanted.bias && !gemm.narrows() {
        return (Addends::default(), Vec::new());
    }
    let reorders = wanted.bias && wanted.residual && !gemm.narrows();
    match (reorders, rules.reordered) {
        (false, _) => (wanted, Vec::new()),
        (true, true) => (wanted, vec![Difference::Order]),
        (true, false) => (Addends { residual: false, ..wanted }, Vec::new()),
    }
}

fn left(wanted: Addends, done: Addends) -> Addends {
    Addends { bias: wanted.bias && !done.bias, residual: wanted.residual && !done.residual }
}

impl Form {
    /// The same product without addends, for a library that cannot add them; `None` if the result
    /// is of halves, which are rounded after the addends.
    pub fn plain(&self, in_place: bool) -> Option<Result<Form, Why>> {
        if self.problem.result != self.problem.scale() {
            return None;
        }
        let left = Addends {
            bias: self.done.bias || self.left.bias,
            residual: self.done.residual || self.left.residual,
        };
        let problem = Problem { accumulate: false, bias: false, ..self.problem.clone() };
        let differences =
            self.differences.iter().copied().filter(|d| *d == Difference::Tf32).collect();
        Some(Form { problem, done: Addends::default(), left, differences }.apart(in_place))
    }

    /// True if cuBLASLt does the whole GEMM.
    pub fn is_whole(&self) -> bool {
        self.left == Addends::default()
    }

    /// An error if a remaining addend is a residual that is overwritten by then.
    fn apart(self, in_place: bool) -> Result<Form, Why> {
        if in_place && self.left.residual { Err(Why::ResidualOverwritten) } else { Ok(self) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert_core::call::Matrix;

    fn gemm(operand: DType, result: DType, addends: Addends) -> Gemm {
        Gemm {
            batch: 1,
            m: 8,
            n: 10,
            k: 64,
            lhs: Matrix { batch: 0, row: 64, column: 1 },
            rhs: Matrix { batch: 0, row: 10, column: 1 },
            operand,
            rhs_operand: None,
            scales: None,
            accumulate: if operand.is_half() { DType::F32 } else { operand },
            result,
            addends,
            pitch: None,
        }
    }

    fn addends(bias: bool, residual: bool) -> Addends {
        Addends { bias, residual }
    }

    #[test]
    fn strict_rules_take_what_has_the_same_bits_and_leave_the_rest() {
        let f32s = |e| supports(&gemm(DType::F32, DType::F32, e), Rules::STRICT, false).unwrap();
        for (wanted, done) in [
            (addends(false, false), addends(false, false)),
            (addends(true, false), addends(true, false)),
            (addends(false, true), addends(false, true)),
            (addends(true, true), addends(true, false)),
        ] {
            let form = f32s(wanted);
            assert_eq!(form.done, done, "{wanted:?}");
            assert_eq!(form.left, left(wanted, done));
            assert!(form.differences.is_empty());
            assert_eq!((form.problem.accumulate, form.problem.bias), (done.residual, done.bias));
            assert_eq!(form.is_whole(), wanted == done);
        }
        // Half operands with an f32 result are like f32.
        let both = addends(true, true);
        let wide = supports(&gemm(DType::BF16, DType::F32, both), Rules::STRICT, false).unwrap();
        assert_eq!((wide.done, wide.left), (addends(true, false), addends(false, true)));
    }

    #[test]
    fn halves_are_done_whole_also_in_place() {
        for dtype in [DType::F16, DType::BF16] {
            for wanted in [0, 1, 2, 3].map(|n| addends(n & 1 != 0, n & 2 != 0)) {
                for in_place in [false, true] {
                    let form = supports(&gemm(dtype, dtype, wanted), Rules::STRICT, in_place);
                    let form = form.unwrap();
                    assert!(form.is_whole() && form.differences.is_empty());
                    let Problem { accumulate, bias, .. } = form.problem;
                    assert_eq!((bias, accumulate), (wanted.bias, wanted.residual));
                    assert_eq!(form.plain(in_place), None);
                }
            }
        }
    }

    #[test]
    fn relaxed_rules_take_more_and_say_what_differs() {
        let relaxed = |d, e| supports(&gemm(d, d, e), Rules::RELAXED, false).unwrap();
        let form = relaxed(DType::F32, addends(true, true));
        assert!(form.is_whole() && form.problem.accumulate && form.problem.bias);
        assert_eq!(form.differences, [Difference::Tf32, Difference::Order]);
        assert!(relaxed(DType::F64, addends(false, true)).differences.is_empty());
    }

    #[test]
    fn a_residual_that_would_be_overwritten_is_noticed() {
        let wanted = addends(true, true);
        let g = gemm(DType::F32, DType::F32, wanted);
        assert_eq!(supports(&g, Rules::STRICT, true), Err(Why::ResidualOverwritten));
        assert!(supports(&g, Rules::RELAXED, true).unwrap().is_whole());
        let alone = gemm(DType::F32, DType::F32, addends(false, true));
        let form = supports(&alone, Rules::STRICT, true).unwrap();
        assert_eq!(form.plain(true), Some(Err(Why::ResidualOverwritten)));
        let plain = form.plain(false).unwrap().unwrap();
        assert_eq!((plain.left, plain.problem.accumulate), (addends(false, true), false));
    }

    #[test]
    fn what_cublaslt_has_no_words_for_is_told() {
        let plain = Addends::default();
        let why = |g: Gemm| supports(&g, Rules::STRICT, false).unwrap_err();
        let g = || gemm(DType::F32, DType::F32, plain);
        assert_eq!(why(Gemm { k: 0, ..g() }), Why::Empty);
        assert_eq!(why(Gemm { batch: 0, ..g() }), Why::Empty);
        assert_eq!(why(gemm(DType::I8, DType::I8, plain)), Why::DType(DType::I8));
        let odd = Matrix { batch: 0, row: 128, column: 2 };
        assert_eq!(why(Gemm { lhs: odd, ..g() }), Why::NoMatrix { operand: "lhs" });
        // A repeated row, and overlapping rows.
        for row in [0, 3] {
            let overlapping = Matrix { batch: 0, row, column: 1 };
            assert_eq!(why(Gemm { rhs: overlapping, ..g() }), Why::NoMatrix { operand: "rhs" });
        }
        let far = Matrix { batch: 0, row: 1 << 32, column: 1 };
        assert_eq!(why(Gemm { lhs: far, ..g() }), Why::TooLarge);
        assert!(why(Gemm { lhs: odd, ..g() }).to_string().contains("lhs"));
    }

    #[test]
    fn strides_become_leading_dimensions_and_transpositions() {
        let g = gemm(DType::F32, DType::F32, Addends::default());
        let of = |g: &Gemm| supports(g, Rules::STRICT, false).unwrap().problem;
        let problem = of(&g);
        assert_eq!(
            problem.to_string(),
            "10x8x64 batch 1 a N10+0 b N64+0 d N10+0 f32 to f32 Default"
        );
        let transposed = Gemm {
            lhs: Matrix { batch: 0, row: 1, column: 9 },
            rhs: Matrix { batch: 0, row: 1, column: 64 },
            ..g.clone()
        };
        assert_eq!(
            of(&transposed).to_string(),
            "10x8x64 batch 1 a T64+0 b T9+0 d N10+0 f32 to f32 Default"
        );
        // A batch that shares its rhs is one product of more rows.
        let batch = Gemm { batch: 3, lhs: Matrix { batch: 8 * 64, ..g.lhs }, ..g.clone() };
        assert_eq!(
            of(&batch).to_string(),
            "10x24x64 batch 1 a N10+0 b N64+0 d N10+0 f32 to f32 Default"
        );
        let apart = Gemm { batch: 3, lhs: Matrix { batch: 600, ..g.lhs }, ..g.clone() };
        assert_eq!(
            of(&apart).to_string(),
            "10x8x64 batch 3 a N10+0 b N64+600 d N10+80 f32 to f32 Default"
        );
        // The strides of a single row or column do not matter.
        let thin = Gemm { m: 1, lhs: Matrix { batch: 0, row: 0, column: 1 }, ..g.clone() };
        assert_eq!(of(&thin).b.ld, 64);
        let thin = Gemm {
            k: 1,
            lhs: Matrix { batch: 0, row: 5, column: 0 },
            rhs: Matrix { batch: 0, row: 0, column: 1 },
            ..g
        };
        assert_eq!((of(&thin).b.ld, of(&thin).a.ld), (5, 10));
    }
}
