//! Instructions.

use super::builder::Label;
use super::hopper::Hopper;
use super::lanes::Lanes;
use super::spelling::spelled;
use super::types::{Operand, Reg, Space, Type};
use std::fmt;

spelled! {
    /// Operations of one operand.
    Unary;

    /// Copy.
    Mov "mov";
    /// −x.
    Neg "neg";
    /// |x|.
    Abs "abs";
    /// Bitwise complement.
    Not "not";
    /// Correctly rounded square root.
    Sqrt "sqrt.rn";
    /// Correctly rounded reciprocal.
    Reciprocal "rcp.rn";
    /// 2 to the power of an f32, within 2 ulp; subnormal numbers are flushed to zero.
    Exp2 "ex2.approx.ftz";
    /// The binary logarithm of an f32, within 2⁻²² near 1; subnormal numbers are flushed to zero.
    Log2 "lg2.approx.ftz";
    /// The binary logarithm of an f32, within 2⁻²²: absolutely between ½ and 2, else relatively.
    ApproximateLog2 "lg2.approx";
    /// tanh of an f32, within 2⁻¹¹ relatively.
    ApproximateTanh "tanh.approx";
    /// The square root of an f32, within 2⁻²³ relatively.
    ApproximateSqrt "sqrt.approx";
    /// 1 / x of an f32, within 1 ulp; subnormal numbers are flushed to zero.
    ApproximateReciprocal "rcp.approx.ftz";
    /// Number of one bits; the result is 32 bits wide.
    Popc "popc";
    /// Number of leading zeros; the result is 32 bits wide.
    Clz "clz";
}

spelled! {
    /// Operations of two operands.
    Binary;

    /// x + y.
    Add "add";
    /// x − y.
    Sub "sub";
    /// x · y; for integers the lower half.
    Mul "mul.lo";
    /// The upper half of an integer product.
    MulHigh "mul.hi";
    /// x / y.
    Div "div";
    /// x / y of f32, within 2 ulp.
    ApproximateDiv "div.full";
    /// Integer remainder.
    Rem "rem";
    /// The minimum; for floats, a NaN operand is ignored.
    Min "min";
    /// The maximum; for floats, a NaN operand is ignored.
    Max "max";
    /// The minimum; NaN if either operand is (f32 and halves only).
    MinNan "min.NaN";
    /// The maximum; NaN if either operand is (f32 and halves only).
    MaxNan "max.NaN";
    /// Bitwise and.
    And "and";
    /// Bitwise or.
    Or "or";
    /// Bitwise exclusive or.
    Xor "xor";
    /// Shift left; 0 for shifts beyond the width.
    Shl "shl";
    /// Shift right, arithmetic for signed types. Shifts beyond the width give 0 or all sign bits.
    Shr "shr";
}

spelled! {
    /// Operations of three operands.
    Ternary;

    /// x · y + z, rounded once.
    Fma "fma.rn";
    /// The lower half of x · y, plus z.
    Mad "mad.lo";
    /// x · y + z of integers; the product, z and the result are twice as wide as x and y.
    MadWide "mad.wide";
}

spelled! {
    /// Comparisons.
    Compare;

    /// Equal; false with NaN.
    Eq "eq";
    /// Not equal; false with NaN.
    Ne "ne";
    /// Not equal; true with NaN.
    Neu "neu";
    /// Less.
    Lt "lt";
    /// Less or equal.
    Le "le";
    /// Greater.
    Gt "gt";
    /// Greater or equal.
    Ge "ge";
    /// Whether an operand is NaN.
    Nan "nan";
}

spelled! {
    /// Rounding of conversions.
    Rounding;

    /// No rounding.
    Exact "";
    /// To the nearest, ties to even.
    Nearest ".rn";
    /// Towards zero.
    Zero ".rz";
    /// To an integer: nearest, ties to even.
    IntegerNearest ".rni";
    /// To an integer, towards zero.
    IntegerZero ".rzi";
    /// To an integer, downwards.
    IntegerDown ".rmi";
    /// To an integer, upwards.
    IntegerUp ".rpi";
    /// To tf32: nearest, ties away from zero.
    NearestAway ".rna";
}

spelled! {
    /// Source lane of a shuffle.
    Shuffle;

    /// The lane with a number lower by the operand.
    Up "up";
    /// The lane with a number higher by the operand.
    Down "down";
    /// The lane whose number differs in the operand's bits.
    Butterfly "bfly";
    /// The lane with the operand as its number.
    Index "idx";
}

/// An instruction. The destination comes first.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Inst {
    /// An operation of one operand.
    Unary(Unary, Type, Reg, Operand),
    /// An operation of two operands.
    Binary(Binary, Type, Reg, Operand, Operand),
    /// An operation of three operands.
    Ternary(Ternary, Type, Reg, Operand, Operand, Operand),
    /// A comparison; the result is a predicate.
    Compare(Compare, Type, Reg, Operand, Operand),
    /// The first operand where the predicate holds, else the second.
    Select(Type, Reg, Operand, Operand, Reg),
    /// Conversion between types: `cvt.rounding.to.from`.
    Convert {
        /// Rounding.
        rounding: Rounding,
        /// Type of the result.
        to: Type,
        /// Type of the operand.
        from: Type,
        /// Result.
        result: Reg,
        /// Operand.
        operand: Operand,
    },
    /// Converts two f32 to a pair of halves; the first operand becomes the upper half.
    ConvertPair(Type, Reg, Operand, Operand),
    /// Packs two halves into 32 or 64 bits; the lower first.
    Pack(Type, Reg, Vec<Reg>),
    /// Unpacks 32 or 64 bits into parts; the lower first.
    Unpack(Type, Vec<Reg>, Reg),
    /// Loads one, two or four elements.
    Load {
        /// Memory space.
        space: Space,
        /// Whether it takes the read-only path of global memory. Then no thread may write these
        /// bytes while the kernel runs.
        read_only: bool,
        /// Type of an element.
        ty: Type,
        /// Destinations.
        results: Vec<Reg>,
        /// Address.
        base: Operand,
        /// Byte offset from the address.
        offset: i64,
    },
    /// Stores one, two or four elements.
    Store {
        /// Memory space.
        space: Space,
        /// Type of an element.
        ty: Type,
        /// Address.
        base: Operand,
        /// Byte offset from the address.
        offset: i64,
        /// Stored values.
        values: Vec<Operand>,
    },
    /// Reads a 32-bit register of another lane: the result, and the value that this lane
    /// contributes.
    Shuffle(Reg, Reg, Lanes),
    /// The lanes in which a predicate holds.
    Ballot(Reg, Reg, Operand),
    /// Waits for all threads of the block, at barrier 0.
    Barrier,
    /// Waits for lanes of the warp.
    WarpBarrier(Operand),
    /// Adds to a word atomically; returns the old value.
    AtomicAdd {
        /// Memory space.
        space: Space,
        /// Type of the word.
        ty: Type,
        /// Old value.
        result: Reg,
        /// Address.
        base: Operand,
        /// Addend.
        value: Operand,
    },
    /// Asynchronous copy from global to shared memory. It writes 16 bytes: the first `size` come
    /// from memory, the rest are zeros.
    CopyAsync {
        /// Address in shared memory.
        to: Operand,
        /// Byte offset from the address.
        to_offset: i64,
        /// Address in global memory.
        from: Operand,
        /// Byte offset from the address.
        from_offset: i64,
        /// Bytes that are read.
        size: Operand,
    },
    /// Commits the copies so far as a group.
    CopyCommit,
    /// Waits until at most this many of the latest groups are in flight.
    CopyWait(u32),
    /// Loads 8×8 matrices of 16-bit elements from shared memory as fragments, one result for each
    /// matrix.
    LoadMatrix {
        /// Whether each matrix is transposed.
        transpose: bool,
        /// One, two or four registers.
        results: Vec<Reg>,
        /// Address of this lane's row.
        base: Operand,
        /// Byte offset from the address.
        offset: i64,
    },
    /// Product of matrix fragments: d = a·b + c (`mma.sync.aligned.SHAPE.row.col`).
    MatrixMultiply {
        /// m, n, k.
        shape: [u32; 3],
        /// Type of c and d.
        accumulator: Type,
        /// Types of a and b.
        operands: [Type; 2],
        /// Result.
        d: Vec<Reg>,
        /// Left fragment.
        a: Vec<Reg>,
        /// Right fragment.
        b: Vec<Reg>,
        /// Addend.
        c: Vec<Reg>,
    },
    /// Calls a function of the module, whose arguments and result have one type.
    Call {
        /// Its name.
        function: String,
        /// Type of the arguments and of the result.
        ty: Type,
        /// Destination.
        result: Reg,
        /// Arguments.
        arguments: Vec<Operand>,
    },
    /// Calls a function of the driver that has no result ([`Module::externs`](super::Module)).
    CallExtern {
        /// Its name.
        function: String,
        /// Arguments, each with its type.
        arguments: Vec<(Type, Operand)>,
    },
    /// An instruction of Hopper.
    Hopper(Hopper),
    /// Jumps to a label.
    Branch(Label),
}

/// An instruction with its guard.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Statement {
    /// The instruction is executed only where this predicate holds (with `true`: does not hold).
    pub guard: Option<(Reg, bool)>,
    /// The instruction.
    pub inst: Inst,
}

/// A line of code.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Line {
    /// An instruction.
    Statement(Statement),
    /// A label.
    Label(Label),
    /// The loop that begins before is not unrolled (PTX ISA, `.pragma "nounroll"`).
    NoUnroll,
    /// A comment, of one line.
    Comment(String),
}

impl Binary {
    fn mnemonic(self, ty: Type) -> &'static str {
        match self {
            Binary::Add if ty.is_float() => "add.rn",
            Binary::Sub if ty.is_float() => "sub.rn",
            Binary::Mul if ty.is_float() => "mul.rn",
            Binary::Div if ty.is_float() => "div.rn",
            _ => self.name(),
        }
    }
}

/// `{a, b}`, or `a` alone.
fn vector<T: fmt::Display>(items: &[T]) -> String {
    match items {
        [one] => one.to_string(),
        _ => braced(items),
    }
}

pub(super) fn braced<T: fmt::Display>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    format!("{{{}}}", items.join(", "))
}

/// `.v2`, for example.
fn vector_suffix(count: usize) -> String {
    if count == 1 { String::new() } else { format!(".v{count}") }
}

pub(super) fn address(base: &Operand, offset: i64) -> String {
    if offset == 0 { format!("[{base}]") } else { format!("[{base}+{offset}]") }
}

impl fmt::Display for Inst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Inst::Unary(op, ty, d, a) => {
                let ty = match op {
                    Unary::Mov | Unary::Not | Unary::Popc | Unary::Clz => ty.bits(),
                    _ => *ty,
                };
                write!(f, "{}{} {d}, {a}", op.name(), ty.name())
            }
            Inst::Binary(op, ty, d, a, b) => {
                let name = match op {
                    Binary::And | Binary::Or | Binary::Xor | Binary::Shl => ty.bits().name(),
                    _ => ty.name(),
                };
                write!(f, "{}{name} {d}, {a}, {b}", op.mnemonic(*ty))
            }
            Inst::Ternary(op, ty, d, a, b, c) => {
                write!(f, "{}{} {d}, {a}, {b}, {c}", op.name(), ty.name())
            }
            Inst::Compare(op, ty, d, a, b) => {
                write!(f, "setp.{}{} {d}, {a}, {b}", op.name(), ty.name())
            }
            Inst::Select(ty, d, a, b, p) => {
                write!(f, "selp{} {d}, {a}, {b}, {p}", ty.bits().name())
            }
            Inst::Convert { rounding, to, from, result, operand } => {
                let (rounding, to, from) = (rounding.name(), to.name(), from.name());
                write!(f, "cvt{rounding}{to}{from} {result}, {operand}")
            }
            Inst::ConvertPair(to, d, high, low) => {
                write!(f, "cvt.rn{}.f32 {d}, {high}, {low}", to.name())
            }
            Inst::Pack(ty, d, parts) => write!(f, "mov{} {d}, {}", ty.bits().name(), braced(parts)),
            Inst::Unpack(ty, parts, a) => {
                write!(f, "mov{} {}, {a}", ty.bits().name(), braced(parts))
            }
            Inst::Load { space, read_only, ty, results, base, offset } => {
                let cache = if *read_only { ".nc" } else { "" };
                let (vector, shape, at) =
                    (vector(results), vector_suffix(results.len()), address(base, *offset));
                write!(f, "ld{}{cache}{shape}{} {vector}, {at}", space.name(), ty.name())
            }
            Inst::Store { space, ty, base, offset, values } => {
                let (shape, at) = (vector_suffix(values.len()), address(base, *offset));
                write!(f, "st{}{shape}{} {at}, {}", space.name(), ty.name(), vector(values))
            }
            Inst::Shuffle(result, value, Lanes { mode, lane, clamp, members }) => {
                let mode = mode.name();
                write!(f, "shfl.sync.{mode}.b32 {result}, {value}, {lane}, {clamp}, {members}")
            }
            Inst::Ballot(d, p, members) => write!(f, "vote.sync.ballot.b32 {d}, {p}, {members}"),
            Inst::Barrier => f.write_str("bar.sync 0"),
            Inst::WarpBarrier(members) => write!(f, "bar.warp.sync {members}"),
            Inst::AtomicAdd { space, ty, result, base, value } => {
                write!(f, "atom{}.add{} {result}, [{base}], {value}", space.name(), ty.name())
            }
            Inst::CopyAsync { to, to_offset, from, from_offset, size } => {
                let (to, from) = (address(to, *to_offset), address(from, *from_offset));
                write!(f, "cp.async.cg.shared.global {to}, {from}, 16, {size}")
            }
            Inst::CopyCommit => f.write_str("cp.async.commit_group"),
            Inst::CopyWait(groups) => write!(f, "cp.async.wait_group {groups}"),
            Inst::LoadMatrix { transpose, results, base, offset } => {
                let trans = if *transpose { ".trans" } else { "" };
                let (count, at) = (results.len(), address(base, *offset));
                let results = braced(results);
                write!(f, "ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {results}, {at}")
            }
            Inst::MatrixMultiply { shape: [m, n, k], accumulator, operands, d, a, b, c } => {
                let (x, [y, z]) = (accumulator.name(), operands.map(Type::name));
                write!(f, "mma.sync.aligned.m{m}n{n}k{k}.row.col{x}{y}{z}{x} ")?;
                write!(f, "{}, {}, {}, {}", braced(d), braced(a), braced(b), braced(c))
            }
            Inst::Call { .. } => self.fmt_call(f),
            Inst::CallExtern { function, arguments } => {
                f.write_str("{ ")?;
                for (n, (ty, operand)) in arguments.iter().enumerate() {
                    let ty = ty.bits().name();
                    write!(f, ".param {ty} a{n}; st.param{ty} [a{n}], {operand}; ")?;
                }
                let given: Vec<String> = (0..arguments.len()).map(|n| format!("a{n}")).collect();
                write!(f, "call.uni {function}, ({}); }}", given.join(", "))
            }
            Inst::Hopper(hopper) => hopper.fmt(f),
            Inst::Branch(label) => write!(f, "bra {label}"),
        }
    }
}

impl Inst {
    /// Loads neighbouring elements into these registers.
    pub fn load(
        space: Space,
        ty: Type,
        results: &[Reg],
        base: impl Into<Operand>,
        offset: i64,
    ) -> Inst {
        let (results, base) = (results.to_vec(), base.into());
        Inst::Load { space, read_only: false, ty, results, base, offset }
    }

    /// Stores neighbouring elements.
    pub fn store(
        space: Space,
        ty: Type,
        base: impl Into<Operand>,
        offset: i64,
        values: impl IntoIterator<Item = impl Into<Operand>>,
    ) -> Inst {
        let (base, values) = (base.into(), values.into_iter().map(Into::into).collect());
        Inst::Store { space, ty, base, offset, values }
    }

    /// A call declares `.param` variables for its arguments and its result.
    fn fmt_call(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inst::Call { function, ty, result, arguments } = self else {
            unreachable!("only calls come here")
        };
        let ty = ty.bits().name();
        f.write_str("{ ")?;
        for (n, operand) in arguments.iter().enumerate() {
            write!(f, ".param {ty} a{n}; st.param{ty} [a{n}], {operand}; ")?;
        }
        let given: Vec<String> = (0..arguments.len()).map(|n| format!("a{n}")).collect();
        write!(f, ".param {ty} c0; call.uni (c0), {function}, ({}); ", given.join(", "))?;
        write!(f, "ld.param{ty} {result}, [c0]; }}")
    }

    /// Whether it ends with a semicolon.
    pub(super) const fn is_simple(&self) -> bool {
        !matches!(self, Inst::Call { .. } | Inst::CallExtern { .. })
    }
}
