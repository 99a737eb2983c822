//! Types, registers and operands.

use super::spelling::spelled;
use std::fmt;

/// The width of a register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Width {
    /// A predicate.
    Pred,
    /// 16 bits.
    B16,
    /// 32 bits.
    B32,
    /// 64 bits.
    B64,
}

impl Width {
    /// Every width.
    pub const ALL: [Width; 4] = [Width::Pred, Width::B16, Width::B32, Width::B64];

    /// Prefix of the names of registers of this width.
    pub const fn prefix(self) -> &'static str {
        match self {
            Width::Pred => "%p",
            Width::B16 => "%h",
            Width::B32 => "%r",
            Width::B64 => "%d",
        }
    }

    /// Type in the declaration of registers of this width.
    pub const fn declaration(self) -> &'static str {
        match self {
            Width::Pred => ".pred",
            Width::B16 => ".b16",
            Width::B32 => ".b32",
            Width::B64 => ".b64",
        }
    }
}

/// A virtual register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Reg {
    /// How many bits it holds.
    pub width: Width,
    /// Its number among those of its width.
    pub number: u32,
}

impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.width.prefix(), self.number)
    }
}

macro_rules! types {
    ($($(#[$doc:meta])* $variant:ident $name:literal $bytes:literal $width:ident;)*) => {
        /// The type of an instruction.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum Type {
            $($(#[$doc])* $variant,)*
        }

        impl Type {
            /// Its name, with the dot.
            pub const fn name(self) -> &'static str {
                match self { $(Type::$variant => $name,)* }
            }

            /// Bytes in memory; 1 for a predicate, which cannot be stored.
            pub const fn bytes(self) -> u32 {
                match self { $(Type::$variant => $bytes,)* }
            }

            /// Width of the registers that hold it. Bytes are held in 32-bit registers, which
            /// loads, stores and conversions allow.
            pub const fn width(self) -> Width {
                match self { $(Type::$variant => Width::$width,)* }
            }
        }
    };
}

types! {
    /// A predicate.
    Pred ".pred" 1 Pred;
    /// 8 bits.
    B8 ".b8" 1 B32;
    /// Unsigned, 8 bits.
    U8 ".u8" 1 B32;
    /// Signed, 8 bits.
    S8 ".s8" 1 B32;
    /// 8-bit float with 3 bits of mantissa; operand of matrix products only.
    E4M3 ".e4m3" 1 B32;
    /// 8-bit float with 2 bits of mantissa; operand of matrix products only.
    E5M2 ".e5m2" 1 B32;
    /// 16 bits.
    B16 ".b16" 2 B16;
    /// Unsigned, 16 bits.
    U16 ".u16" 2 B16;
    /// IEEE 754 half precision.
    F16 ".f16" 2 B16;
    /// The upper half of an f32.
    BF16 ".bf16" 2 B16;
    /// 32 bits.
    B32 ".b32" 4 B32;
    /// Unsigned, 32 bits.
    U32 ".u32" 4 B32;
    /// Signed, 32 bits.
    S32 ".s32" 4 B32;
    /// IEEE 754 single precision.
    F32 ".f32" 4 B32;
    /// An f32 of which a tensor core reads the upper 19 bits.
    TF32 ".tf32" 4 B32;
    /// Two halves, the first in the lower 16 bits.
    F16x2 ".f16x2" 4 B32;
    /// Two bf16, the first in the lower 16 bits.
    BF16x2 ".bf16x2" 4 B32;
    /// 64 bits.
    B64 ".b64" 8 B64;
    /// Unsigned, 64 bits.
    U64 ".u64" 8 B64;
    /// Signed, 64 bits.
    S64 ".s64" 8 B64;
    /// IEEE 754 double precision.
    F64 ".f64" 8 B64;
}

impl Type {
    /// f16, bf16, f32, tf32, f64, and the packed halves.
    pub const fn is_float(self) -> bool {
        matches!(
            self,
            Type::F16
                | Type::BF16
                | Type::F32
                | Type::TF32
                | Type::F64
                | Type::F16x2
                | Type::BF16x2
        )
    }

    /// The untyped type of the same width.
    pub const fn bits(self) -> Type {
        match self.width() {
            Width::Pred => Type::Pred,
            Width::B16 => Type::B16,
            Width::B32 => match self.bytes() {
                1 => Type::B8,
                _ => Type::B32,
            },
            Width::B64 => Type::B64,
        }
    }
}

spelled! {
    /// A memory space.
    Space;

    /// Of the device.
    Global ".global";
    /// Of a thread block.
    Shared ".shared";
    /// Of a thread.
    Local ".local";
    /// Parameters of a kernel.
    Param ".param";
}

spelled! {
    /// A register that the machine sets; each is 32 bits wide.
    Special;

    /// Number of the thread in its block, along x.
    TidX "%tid.x";
    /// Number of the block, along x.
    CtaidX "%ctaid.x";
    /// Number of the thread in its warp.
    Lane "%laneid";
    /// Number of the block among those of its part of a [`Bundle`](super::Bundle), which declares
    /// and sets it.
    Block "%block";
}

/// An operand that an instruction reads.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Operand {
    /// A register.
    Reg(Reg),
    /// An integer constant.
    Int(i64),
    /// The bits of an f32.
    F32(u32),
    /// The bits of an f64.
    F64(u64),
    /// A special register.
    Special(Special),
    /// The address of a shared or local array.
    Symbol(String),
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Reg(reg) => reg.fmt(f),
            Operand::Int(value) => value.fmt(f),
            Operand::F32(bits) => write!(f, "0f{bits:08X}"),
            Operand::F64(bits) => write!(f, "0d{bits:016X}"),
            Operand::Special(special) => f.write_str(special.name()),
            Operand::Symbol(name) => f.write_str(name),
        }
    }
}

macro_rules! operands {
    ($($from:ty, |$x:ident| $operand:expr;)*) => {$(
        impl From<$from> for Operand {
            fn from($x: $from) -> Self {
                $operand
            }
        }
    )*};
}

operands! {
    Reg, |register| Operand::Reg(register);
    &Reg, |register| Operand::Reg(*register);
    i64, |value| Operand::Int(value);
    f32, |value| Operand::F32(value.to_bits());
    f64, |value| Operand::F64(value.to_bits());
    Special, |special| Operand::Special(special);
}
