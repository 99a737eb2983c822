//! Scalar instructions: the complete set that a back end implements.
//!
//! The list is closed and small. An op of the graph language is spelt with these in its `compute`
//! facet, so a new op that can be spelt this way changes no back end.

use crate::dtype::DType;

/// Dtypes that an instruction takes, besides the rules of its arity and result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// f32, f64.
    Float,
    /// f32.
    Single,
    /// f32, f64 and integers.
    Number,
    /// Integers and bool.
    Bits,
    /// Integers.
    Integer,
    /// Everything, halves included.
    Any,
    /// Everything but halves.
    Comparable,
}

macro_rules! scalar_ops {
    ($($(#[$doc:meta])* $variant:ident $name:literal $arity:literal $class:ident;)*) => {
        /// A scalar instruction. Operands and result have one dtype, except for comparisons
        /// (result bool), `select` (first operand bool) and conversions.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum ScalarOp {
            $($(#[$doc])* $variant,)*
        }

        impl ScalarOp {
            /// Every instruction.
            pub const ALL: &[ScalarOp] = &[$(ScalarOp::$variant,)*];

            /// Mnemonic in text.
            pub const fn name(self) -> &'static str {
                match self { $(ScalarOp::$variant => $name,)* }
            }

            /// Number of operands.
            pub const fn arity(self) -> usize {
                match self { $(ScalarOp::$variant => $arity,)* }
            }

            /// Dtypes of the (last) operand.
            pub const fn class(self) -> Class {
                match self { $(ScalarOp::$variant => Class::$class,)* }
            }
        }
    };
}

scalar_ops! {
    /// −x; wraps for integers.
    Neg "neg" 1 Number;
    /// |x|; wraps for the lowest integer.
    Abs "abs" 1 Number;
    /// Bitwise complement; logical for bool.
    Not "not" 1 Bits;
    /// Number of bits that are 1.
    Popcnt "popcnt" 1 Integer;
    /// Number of zero bits above the highest bit that is 1; all bits of the dtype for 0.
    Clz "clz" 1 Integer;
    /// Largest integer not above x.
    Floor "floor" 1 Float;
    /// Smallest integer not below x.
    Ceil "ceil" 1 Float;
    /// Nearest integer, ties to even.
    RoundEven "round_even" 1 Float;
    /// Nearest integer towards zero.
    Trunc "trunc" 1 Float;
    /// Correctly rounded square root.
    Sqrt "sqrt" 1 Float;
    /// eˣ.
    Exp "exp" 1 Float;
    /// eˣ − 1.
    Expm1 "expm1" 1 Float;
    /// ln x.
    Log "log" 1 Float;
    /// ln (1 + x).
    Log1p "log1p" 1 Float;
    /// sin x.
    Sin "sin" 1 Float;
    /// cos x.
    Cos "cos" 1 Float;
    /// tanh x.
    Tanh "tanh" 1 Float;
    /// erf x.
    Erf "erf" 1 Float;
    /// log₂ x.
    Log2 "log2" 1 Float;
    /// asin x.
    Asin "asin" 1 Float;
    /// acos x.
    Acos "acos" 1 Float;
    /// sinh x.
    Sinh "sinh" 1 Float;
    /// cosh x.
    Cosh "cosh" 1 Float;
    /// asinh x.
    Asinh "asinh" 1 Float;
    /// acosh x.
    Acosh "acosh" 1 Float;
    /// atanh x.
    Atanh "atanh" 1 Float;
    /// ∛x.
    Cbrt "cbrt" 1 Float;
    /// 1 − erf x.
    Erfc "erfc" 1 Float;
    /// The inverse of erf.
    ErfInv "erf_inv" 1 Float;
    /// ln |Γ(x)|.
    Lgamma "lgamma" 1 Float;
    /// The derivative of ln Γ.
    Digamma "digamma" 1 Float;
    /// x + y; wraps for integers.
    Add "add" 2 Number;
    /// x − y; wraps for integers.
    Sub "sub" 2 Number;
    /// x · y; wraps for integers.
    Mul "mul" 2 Number;
    /// x / y. Integers truncate; x / 0 is −1 (all bits set), and the lowest integer / −1 wraps.
    Div "div" 2 Number;
    /// Remainder of the truncating division, with the sign of x (`fmod`). Integers: x rem 0 is x.
    Rem "rem" 2 Number;
    /// The smaller; NaN if one is NaN; −0 is below +0.
    Min "min" 2 Number;
    /// The greater; NaN if one is NaN; −0 is below +0.
    Max "max" 2 Number;
    /// xʸ.
    Pow "pow" 2 Float;
    /// Angle of (y, x) = (first, second).
    Atan2 "atan2" 2 Float;
    /// Bitwise and; logical for bool.
    And "and" 2 Bits;
    /// Bitwise or; logical for bool.
    Or "or" 2 Bits;
    /// Bitwise exclusive or; logical for bool.
    Xor "xor" 2 Bits;
    /// x shifted left by y; 0 where y is outside 0..bits.
    ShiftLeft "shift_left" 2 Integer;
    /// x shifted right, filled with zeros; 0 where y is outside 0..bits.
    ShiftRightLogical "shift_right_logical" 2 Integer;
    /// x shifted right, filled with the sign bit; all sign bits where y is outside 0..bits.
    ShiftRightArithmetic "shift_right_arithmetic" 2 Integer;
    /// High half of the double-width product (u32: Philox).
    MulHigh "mul_high" 2 Integer;
    /// x · y + z, rounded once.
    Fma "fma" 3 Float;
    /// Equal (bool result); false if one is NaN.
    Eq "eq" 2 Comparable;
    /// Not equal (bool result); true if one is NaN.
    Ne "ne" 2 Comparable;
    /// Less (bool result).
    Lt "lt" 2 Comparable;
    /// Less or equal (bool result).
    Le "le" 2 Comparable;
    /// The second where the first (bool) is true, else the third.
    Select "select" 3 Any;
    /// Conversion to the result's dtype. Between floats and from integers to floats: to nearest
    /// even. Float to integer truncates and saturates; NaN gives 0. Integers wrap. To bool:
    /// `!= 0`.
    Convert "convert" 1 Any;
    /// The same bits as another dtype of the same size.
    Bitcast "bitcast" 1 Any;
    /// eˣ within a [bound](super::approximate).
    ApproxExp "approx_exp" 1 Single;
    /// ln x within a [bound](super::approximate).
    ApproxLog "approx_log" 1 Single;
    /// tanh x within a [bound](super::approximate).
    ApproxTanh "approx_tanh" 1 Single;
    /// √x within a [bound](super::approximate).
    ApproxSqrt "approx_sqrt" 1 Single;
    /// x / y within a [bound](super::approximate).
    ApproxDiv "approx_div" 2 Single;
}

impl ScalarOp {
    /// The instruction with that mnemonic.
    pub fn from_name(name: &str) -> Option<ScalarOp> {
        ScalarOp::ALL.iter().copied().find(|op| op.name() == name)
    }

    /// eq, ne, lt, le.
    pub const fn is_comparison(self) -> bool {
        matches!(self, ScalarOp::Eq | ScalarOp::Ne | ScalarOp::Lt | ScalarOp::Le)
    }

    /// The dtype of the result for operands of these dtypes: bool for comparisons, else that of
    /// the last operand. For conversions the caller chooses the dtype instead.
    pub fn result(self, operands: &[DType]) -> DType {
        if self.is_comparison() {
            DType::Bool
        } else {
            operands.last().copied().unwrap_or(DType::Bool)
        }
    }

    /// Checks that the instruction exists for these dtypes. The error names the dtypes it takes.
    pub fn check(self, operands: &[DType], result: DType) -> Result<(), String> {
        let name = self.name();
        if operands.len() != self.arity() {
            return Err(format!(
                "`{name}` takes {} operands, not {}",
                self.arity(),
                operands.len()
            ));
        }
        let last = operands[operands.len() - 1];
        if !self.class().contains(last) {
            let hint = match last {
                d if d.is_half() => ": convert to f32 first",
                d if d.is_float8() => ": kernels have its bits, u8",
                _ => "",
            };
            return Err(format!("`{name}` takes {}, not {last}{hint}", self.class().describe()));
        }
        if result.is_float8() {
            return Err(format!("`{name}` cannot give {result}: kernels have its bits, u8"));
        }
        let uniform = match self {
            ScalarOp::Convert => return Ok(()),
            ScalarOp::Bitcast => {
                let same_size = last.size() == result.size();
                let has_bool = last == DType::Bool || result == DType::Bool;
                return if same_size && !has_bool {
                    Ok(())
                } else {
                    Err(format!(
                        "`bitcast` needs dtypes of one size other than bool, not {last} and \
                         {result}"
                    ))
                };
            }
            ScalarOp::Select if operands[0] != DType::Bool => {
                return Err(format!(
                    "the first operand of `select` is a bool, not {}",
                    operands[0]
                ));
            }
            ScalarOp::Select => &operands[1..],
            _ => operands,
        };
        if let Some(other) = uniform.iter().find(|d| **d != last) {
            return Err(format!("operands of `{name}` have one dtype, not {other} and {last}"));
        }
        let wanted = self.result(operands);
        if wanted == result {
            Ok(())
        } else {
            Err(format!("`{name}` of {last} results in {wanted}, not {result}"))
        }
    }

    /// Whether it is a function of [`crate::math`], which fixes its bits. They may differ from the
    /// exactly rounded result within [`ulp_bound`](crate::math::ulp_bound).
    pub const fn is_elementary(self) -> bool {
        use ScalarOp::*;
        matches!(
            self,
            Exp | Expm1
                | Log
                | Log1p
                | Sin
                | Cos
                | Tanh
                | Erf
                | Log2
                | Asin
                | Acos
                | Sinh
                | Cosh
                | Asinh
                | Acosh
                | Atanh
                | Cbrt
                | Erfc
                | ErfInv
                | Lgamma
                | Digamma
                | Pow
                | Atan2
        )
    }
}

impl Class {
    /// The dtypes, for messages.
    pub const fn describe(self) -> &'static str {
        match self {
            Class::Float => "f32 or f64",
            Class::Single => "f32",
            Class::Number => "f32, f64 or integers",
            Class::Bits => "integers or bool",
            Class::Integer => "integers",
            Class::Any => "any dtype but 8-bit floats",
            Class::Comparable => "any dtype but halves and 8-bit floats",
        }
    }

    /// Whether `dtype` is in the class.
    pub const fn contains(self, dtype: DType) -> bool {
        let half = dtype.is_half();
        match self {
            Class::Float => dtype.is_float() && !half,
            Class::Single => matches!(dtype, DType::F32),
            Class::Number => (dtype.is_float() && !half) || dtype.is_integer(),
            Class::Bits => dtype.is_integer() || matches!(dtype, DType::Bool),
            Class::Integer => dtype.is_integer(),
            Class::Any => !dtype.is_float8(),
            Class::Comparable => !half && !dtype.is_float8(),
        }
    }
}

/// Integer division as in [`ScalarOp::Div`], on integers kept wrapped to `dtype` in an `i64`.
pub fn integer_div(x: i64, y: i64, dtype: DType) -> i64 {
    match (y, dtype) {
        (0, _) => -1,
        (_, DType::U64) => ((x as u64) / (y as u64)) as i64,
        _ => x.wrapping_div(y),
    }
}

/// Integer remainder as in [`ScalarOp::Rem`], on integers kept wrapped to `dtype` in an `i64`.
pub fn integer_rem(x: i64, y: i64, dtype: DType) -> i64 {
    match (y, dtype) {
        (0, _) => x,
        (_, DType::U64) => ((x as u64) % (y as u64)) as i64,
        _ => x.wrapping_rem(y),
    }
}
