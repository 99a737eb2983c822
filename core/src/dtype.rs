//! Element types.

use crate::diagnostic::Diagnostic;
use std::fmt;
use std::str::FromStr;

/// The type of a tensor's elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum DType {
    /// One byte, 0 or 1.
    Bool,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 8-bit integer, two's complement. Arithmetic wraps, as in all integer types here.
    I8,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned 64-bit integer.
    U64,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    BF16,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// 8-bit float with 4 bits of exponent and 3 of mantissa, without infinities: storage only,
    /// see [`crate::float8`].
    F8E4M3FN,
    /// 8-bit float with 5 bits of exponent and 2 of mantissa: storage only.
    F8E5M2,
}

impl DType {
    /// Every dtype, in the order of the definition above: the 8-bit floats come last.
    pub const ALL: [DType; 13] = [
        DType::Bool,
        DType::U8,
        DType::I8,
        DType::I32,
        DType::I64,
        DType::U32,
        DType::U64,
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
        DType::F8E4M3FN,
        DType::F8E5M2,
    ];

    /// The dtypes of nests and calls: all but the 8-bit floats, whose bits are u8 there.
    pub const IN_KERNELS: [DType; 11] = {
        let mut dtypes = [DType::Bool; 11];
        let mut n = 0;
        while n < dtypes.len() {
            dtypes[n] = DType::ALL[n];
            n += 1;
        }
        dtypes
    };

    /// Name in text and files.
    pub const fn name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::U8 => "u8",
            DType::I8 => "i8",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U32 => "u32",
            DType::U64 => "u64",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::F8E4M3FN => "f8e4m3fn",
            DType::F8E5M2 => "f8e5m2",
        }
    }

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            DType::Bool | DType::U8 | DType::I8 | DType::F8E4M3FN | DType::F8E5M2 => 1,
            DType::F16 | DType::BF16 => 2,
            DType::I32 | DType::U32 | DType::F32 => 4,
            DType::I64 | DType::U64 | DType::F64 => 8,
        }
    }

    /// Bits of one element in memory (8 for `bool`).
    pub const fn bits(self) -> u32 {
        self.size() as u32 * 8
    }

    /// f16, bf16, f32 or f64: the dtypes that have tangents.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
    }

    /// A signed or unsigned integer. `bool` is none.
    pub const fn is_integer(self) -> bool {
        self.is_signed_integer() || self.is_unsigned_integer()
    }

    /// i8, i32 or i64.
    pub const fn is_signed_integer(self) -> bool {
        matches!(self, DType::I8 | DType::I32 | DType::I64)
    }

    /// u8, u32 or u64.
    pub const fn is_unsigned_integer(self) -> bool {
        matches!(self, DType::U8 | DType::U32 | DType::U64)
    }

    /// f16 and bf16. Their arithmetic is done in f32 and rounded after every operation.
    pub const fn is_half(self) -> bool {
        matches!(self, DType::F16 | DType::BF16)
    }

    /// f8e4m3fn and f8e5m2: they are stored, moved and converted, but have no arithmetic and no
    /// tangents.
    pub const fn is_float8(self) -> bool {
        matches!(self, DType::F8E4M3FN | DType::F8E5M2)
    }

    /// Floats and 8-bit floats: dtypes whose elements are real numbers, infinities and NaN.
    pub const fn is_real(self) -> bool {
        self.is_float() || self.is_float8()
    }

    /// The dtype that kernels have for these elements: u8, the bits, for 8-bit floats, else the
    /// dtype itself.
    #[must_use]
    pub const fn stored(self) -> DType {
        if self.is_float8() { DType::U8 } else { self }
    }

    /// The unit roundoff: half the distance from 1 to the next number, the greatest relative error
    /// of one rounding (N. Higham, Accuracy and Stability of Numerical Algorithms, 2.1). 0 for
    /// integers and bool.
    pub const fn unit_roundoff(self) -> f64 {
        match self {
            DType::F8E5M2 => 1.0 / 8.0,
            DType::F8E4M3FN => 1.0 / 16.0,
            DType::BF16 => 1.0 / 256.0,
            DType::F16 => 1.0 / 2048.0,
            DType::F32 => f32::EPSILON as f64 / 2.0,
            DType::F64 => f64::EPSILON / 2.0,
            _ => 0.0,
        }
    }

    /// The dtype of intermediate results: f32 for halves, else the dtype itself.
    #[must_use]
    pub const fn wide(self) -> DType {
        if self.is_half() { DType::F32 } else { self }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = Diagnostic;

    fn from_str(s: &str) -> Result<Self, Diagnostic> {
        DType::ALL.into_iter().find(|d| d.name() == s).ok_or_else(|| {
            let names: Vec<_> = DType::ALL.iter().map(|d| d.name()).collect();
            Diagnostic::new(format!("unknown dtype `{s}`"))
                .help(format!("dtypes are {}", names.join(", ")))
        })
    }
}
