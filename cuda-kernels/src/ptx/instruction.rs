//! Instructions.

use super::builder::Label;
use super::types::{Operand, Reg, Space, Type};
use std::fmt;

/// Operations of one operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Unary {
    /// Copy.
    Mov,
    /// −x.
    Neg,
    /// |x|.
    Abs,
    /// Bitwise complement.
    Not,
    /// Correctly rounded square root.
    Sqrt,
    /// 2 to the power of an f32, within 2 ulp; subnormal numbers are flushed to zero.
    Exp2,
    /// Number of one bits; the result is 32 bits wide.
    Popc,
    /// Number of leading zeros; the result is 32 bits wide.
    Clz,
}

/// Operations of two operands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Binary {
    /// x + y.
    Add,
    /// x − y.
    Sub,
    /// x · y; for integers the lower half.
    Mul,
    /// The upper half of an integer product.
    MulHigh,
    /// The product of integers, twice as wide as the operands.
    MulWide,
    /// x / y.
    Div,
    /// Integer remainder.
    Rem,
    /// The minimum; for floats, a NaN operand is ignored.
    Min,
    /// The maximum; for floats, a NaN operand is ignored.
    Max,
    /// The minimum; NaN if either operand is (f32 and halves only).
    MinNan,
    /// The maximum; NaN if either operand is (f32 and halves only).
    MaxNan,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// Shift left; 0 for shifts beyond the width.
    Shl,
    /// Shift right, arithmetic for signed types. Shifts beyond the width give 0 or all sign bits.
    Shr,
}

/// Operations of three operands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ternary {
    /// x · y + z, rounded once.
    Fma,
    /// The lower half of x · y, plus z.
    Mad,
    /// x · y + z of integers; the product, z and the result are twice as wide as x and y.
    MadWide,
}

/// Comparisons.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Compare {
    /// Equal; false with NaN.
    Eq,
    /// Not equal; false with NaN.
    Ne,
    /// Not equal; true with NaN.
    Neu,
    /// Less.
    Lt,
    /// Less or equal.
    Le,
    /// Greater.
    Gt,
    /// Greater or equal.
    Ge,
    /// Whether an operand is NaN.
    Nan,
}

/// Rounding of conversions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rounding {
    /// No rounding.
    Exact,
    /// To the nearest, ties to even.
    Nearest,
    /// Towards zero.
    Zero,
    /// To an integer: nearest, ties to even.
    IntegerNearest,
    /// To an integer, towards zero.
    IntegerZero,
    /// To an integer, downwards.
    IntegerDown,
    /// To an integer, upwards.
    IntegerUp,
    /// To tf32: nearest, ties away from zero.
    NearestAway,
}

/// Cache policy of a global load or store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Cache {
    /// Default policy.
    #[default]
    All,
    /// Through the read-only path. No thread may write these bytes while the kernel runs.
    ReadOnly,
    /// Used once: evicted first.
    Streaming,
}

/// Source lane of a shuffle.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Shuffle {
    /// The lane with a number lower by the operand.
    Up,
    /// The lane with a number higher by the operand.
    Down,
    /// The lane whose number differs in the operand's bits.
    Butterfly,
    /// The lane with the operand as its number.
    Index,
}

/// Atomic operations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Atomic {
    /// Adds.
    Add,
    /// Keeps the minimum.
    Min,
    /// Keeps the maximum.
    Max,
    /// Stores the new value.
    Exchange,
    /// Increments; wraps to 0 after the operand.
    Increment,
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
        /// Whether integers saturate.
        saturate: bool,
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
        /// Cache policy; global memory only.
        cache: Cache,
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
        /// Cache policy; global memory only.
        cache: Cache,
        /// Type of an element.
        ty: Type,
        /// Address.
        base: Operand,
        /// Byte offset from the address.
        offset: i64,
        /// Stored values.
        values: Vec<Operand>,
    },
    /// Reads a 32-bit register of another lane. `clamp` gives the lane segments (PTX ISA,
    /// `shfl.sync`: operand c).
    Shuffle {
        /// Source lane.
        mode: Shuffle,
        /// Result.
        result: Reg,
        /// The value that this lane contributes.
        value: Reg,
        /// Distance, bits or lane number.
        lane: Operand,
        /// Segment mask and bound.
        clamp: u32,
        /// Mask of the participating lanes.
        members: Operand,
    },
    /// The lanes in which a predicate holds.
    Ballot(Reg, Reg, Operand),
    /// Waits for all threads of the block, at barrier 0.
    Barrier,
    /// Waits for lanes of the warp.
    WarpBarrier(Operand),
    /// Orders memory accesses at device scope.
    FenceDevice,
    /// Atomic read-modify-write of a word; returns the old value.
    Atomic {
        /// Memory space.
        space: Space,
        /// Operation.
        operation: Atomic,
        /// Type of the word.
        ty: Type,
        /// Old value.
        result: Reg,
        /// Address.
        base: Operand,
        /// Byte offset from the address.
        offset: i64,
        /// Operand.
        value: Operand,
    },
    /// Compare-and-exchange of a word; returns the old value.
    CompareExchange {
        /// Memory space.
        space: Space,
        /// Type of the word.
        ty: Type,
        /// Old value.
        result: Reg,
        /// Address.
        base: Operand,
        /// Expected value.
        expected: Operand,
        /// Stored if the old value is the expected one.
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
        /// Type of a and b.
        operand: Type,
        /// Result.
        d: Vec<Reg>,
        /// Left fragment.
        a: Vec<Reg>,
        /// Right fragment.
        b: Vec<Reg>,
        /// Addend.
        c: Vec<Reg>,
    },
    /// Calls a function of the module.
    Call {
        /// Its name.
        function: String,
        /// Destinations.
        results: Vec<(Type, Reg)>,
        /// Arguments.
        arguments: Vec<(Type, Operand)>,
    },
    /// Jumps to a label.
    Branch(Label),
    /// Jumps to a label; uniform across the warp.
    BranchUniform(Label),
    /// Ends the thread, or the function.
    Return,
    /// Stops the kernel with an error.
    Trap,
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
    /// A comment, of one line.
    Comment(String),
}

impl Binary {
    fn mnemonic(self, ty: Type) -> &'static str {
        let float = ty.is_float();
        match self {
            Binary::Add if float => "add.rn",
            Binary::Add => "add",
            Binary::Sub if float => "sub.rn",
            Binary::Sub => "sub",
            Binary::Mul if float => "mul.rn",
            Binary::Mul => "mul.lo",
            Binary::MulHigh => "mul.hi",
            Binary::MulWide => "mul.wide",
            Binary::Div if float => "div.rn",
            Binary::Div => "div",
            Binary::Rem => "rem",
            Binary::Min => "min",
            Binary::Max => "max",
            Binary::MinNan => "min.NaN",
            Binary::MaxNan => "max.NaN",
            Binary::And => "and",
            Binary::Or => "or",
            Binary::Xor => "xor",
            Binary::Shl => "shl",
            Binary::Shr => "shr",
        }
    }
}

impl Unary {
    const fn mnemonic(self) -> &'static str {
        match self {
            Unary::Mov => "mov",
            Unary::Neg => "neg",
            Unary::Abs => "abs",
            Unary::Not => "not",
            Unary::Sqrt => "sqrt.rn",
            Unary::Exp2 => "ex2.approx.ftz",
            Unary::Popc => "popc",
            Unary::Clz => "clz",
        }
    }
}

impl Ternary {
    const fn mnemonic(self) -> &'static str {
        match self {
            Ternary::Fma => "fma.rn",
            Ternary::Mad => "mad.lo",
            Ternary::MadWide => "mad.wide",
        }
    }
}

impl Compare {
    const fn mnemonic(self) -> &'static str {
        match self {
            Compare::Eq => "eq",
            Compare::Ne => "ne",
            Compare::Neu => "neu",
            Compare::Lt => "lt",
            Compare::Le => "le",
            Compare::Gt => "gt",
            Compare::Ge => "ge",
            Compare::Nan => "nan",
        }
    }
}

impl Rounding {
    const fn suffix(self) -> &'static str {
        match self {
            Rounding::Exact => "",
            Rounding::Nearest => ".rn",
            Rounding::Zero => ".rz",
            Rounding::IntegerNearest => ".rni",
            Rounding::IntegerZero => ".rzi",
            Rounding::IntegerDown => ".rmi",
            Rounding::IntegerUp => ".rpi",
            Rounding::NearestAway => ".rna",
        }
    }
}

impl Shuffle {
    const fn mnemonic(self) -> &'static str {
        match self {
            Shuffle::Up => "up",
            Shuffle::Down => "down",
            Shuffle::Butterfly => "bfly",
            Shuffle::Index => "idx",
        }
    }
}

impl Atomic {
    const fn mnemonic(self) -> &'static str {
        match self {
            Atomic::Add => "add",
            Atomic::Min => "min",
            Atomic::Max => "max",
            Atomic::Exchange => "exch",
            Atomic::Increment => "inc",
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

fn braced<T: fmt::Display>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    format!("{{{}}}", items.join(", "))
}

/// `.v2`, for example.
fn vector_suffix(count: usize) -> String {
    if count == 1 { String::new() } else { format!(".v{count}") }
}

fn address(base: &Operand, offset: i64) -> String {
    if offset == 0 { format!("[{base}]") } else { format!("[{base}+{offset}]") }
}

impl fmt::Display for Inst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Inst::Unary(op @ (Unary::Mov | Unary::Not), ty, d, a) => {
                write!(f, "{}{} {d}, {a}", op.mnemonic(), ty.bits().name())
            }
            Inst::Unary(op @ (Unary::Popc | Unary::Clz), ty, d, a) => {
                write!(f, "{}{} {d}, {a}", op.mnemonic(), ty.bits().name())
            }
            Inst::Unary(op, ty, d, a) => write!(f, "{}{} {d}, {a}", op.mnemonic(), ty.name()),
            Inst::Binary(op, ty, d, a, b) => {
                let name = match op {
                    Binary::And | Binary::Or | Binary::Xor | Binary::Shl => ty.bits().name(),
                    _ => ty.name(),
                };
                write!(f, "{}{name} {d}, {a}, {b}", op.mnemonic(*ty))
            }
            Inst::Ternary(op, ty, d, a, b, c) => {
                write!(f, "{}{} {d}, {a}, {b}, {c}", op.mnemonic(), ty.name())
            }
            Inst::Compare(op, ty, d, a, b) => {
                write!(f, "setp.{}{} {d}, {a}, {b}", op.mnemonic(), ty.name())
            }
            Inst::Select(ty, d, a, b, p) => {
                write!(f, "selp{} {d}, {a}, {b}, {p}", ty.bits().name())
            }
            Inst::Convert { rounding, saturate, to, from, result, operand } => {
                let sat = if *saturate { ".sat" } else { "" };
                write!(
                    f,
                    "cvt{}{sat}{}{} {result}, {operand}",
                    rounding.suffix(),
                    to.name(),
                    from.name()
                )
            }
            Inst::ConvertPair(to, d, high, low) => {
                write!(f, "cvt.rn{}.f32 {d}, {high}, {low}", to.name())
            }
            Inst::Pack(ty, d, parts) => write!(f, "mov{} {d}, {}", ty.bits().name(), braced(parts)),
            Inst::Unpack(ty, parts, a) => {
                write!(f, "mov{} {}, {a}", ty.bits().name(), braced(parts))
            }
            Inst::Load { space, cache, ty, results, base, offset } => {
                let cache = match cache {
                    Cache::All => "",
                    Cache::ReadOnly => ".nc",
                    Cache::Streaming => ".cs",
                };
                let (vector, shape, at) =
                    (vector(results), vector_suffix(results.len()), address(base, *offset));
                write!(f, "ld{}{cache}{shape}{} {vector}, {at}", space.name(), ty.name())
            }
            Inst::Store { space, cache, ty, base, offset, values } => {
                let cache = if *cache == Cache::Streaming { ".cs" } else { "" };
                let (shape, at) = (vector_suffix(values.len()), address(base, *offset));
                write!(f, "st{}{cache}{shape}{} {at}, {}", space.name(), ty.name(), vector(values))
            }
            Inst::Shuffle { mode, result, value, lane, clamp, members } => {
                write!(
                    f,
                    "shfl.sync.{}.b32 {result}, {value}, {lane}, {clamp}, {members}",
                    mode.mnemonic()
                )
            }
            Inst::Ballot(d, p, members) => write!(f, "vote.sync.ballot.b32 {d}, {p}, {members}"),
            Inst::Barrier => f.write_str("bar.sync 0"),
            Inst::WarpBarrier(members) => write!(f, "bar.warp.sync {members}"),
            Inst::FenceDevice => f.write_str("fence.acq_rel.gpu"),
            Inst::Atomic { space, operation, ty, result, base, offset, value } => {
                let ty = if *operation == Atomic::Exchange { ty.bits() } else { *ty };
                let at = address(base, *offset);
                write!(
                    f,
                    "atom{}.{}{} {result}, {at}, {value}",
                    space.name(),
                    operation.mnemonic(),
                    ty.name()
                )
            }
            Inst::CompareExchange { space, ty, result, base, expected, value } => {
                let (space, ty) = (space.name(), ty.bits().name());
                write!(f, "atom{space}.cas{ty} {result}, [{base}], {expected}, {value}")
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
            Inst::MatrixMultiply { shape: [m, n, k], accumulator, operand, d, a, b, c } => {
                let (x, y) = (accumulator.name(), operand.name());
                write!(f, "mma.sync.aligned.m{m}n{n}k{k}.row.col{x}{y}{y}{x} ")?;
                write!(f, "{}, {}, {}, {}", braced(d), braced(a), braced(b), braced(c))
            }
            Inst::Call { .. } => self.fmt_call(f),
            Inst::Branch(label) => write!(f, "bra {label}"),
            Inst::BranchUniform(label) => write!(f, "bra.uni {label}"),
            Inst::Return => f.write_str("ret"),
            Inst::Trap => f.write_str("trap"),
        }
    }
}

impl Inst {
    /// A call declares `.param` variables for its arguments and results.
    fn fmt_call(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inst::Call { function, results, arguments } = self else {
            unreachable!("only calls come here")
        };
        f.write_str("{ ")?;
        for (n, (ty, operand)) in arguments.iter().enumerate() {
            let bits = ty.bits().name();
            write!(f, ".param {bits} a{n}; st.param{bits} [a{n}], {operand}; ")?;
        }
        for (n, (ty, _)) in results.iter().enumerate() {
            write!(f, ".param {} c{n}; ", ty.bits().name())?;
        }
        let names = |prefix: &str, count: usize| {
            (0..count).map(|n| format!("{prefix}{n}")).collect::<Vec<_>>().join(", ")
        };
        let (given, gotten) = (names("a", arguments.len()), names("c", results.len()));
        write!(f, "call.uni ({gotten}), {function}, ({given});")?;
        for (n, (ty, reg)) in results.iter().enumerate() {
            write!(f, " ld.param{} {reg}, [c{n}];", ty.bits().name())?;
        }
        f.write_str(" }")
    }

    /// Whether it ends with a semicolon.
    pub(super) const fn is_simple(&self) -> bool {
        !matches!(self, Inst::Call { .. })
    }
}
