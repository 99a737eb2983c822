//! The syntax tree of a PTX text, with names resolved.

/// A memory space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Space {
    /// Memory of the device, visible to every thread.
    Global,
    /// Memory of a block.
    Shared,
    /// Memory of a thread.
    Local,
    /// The kernel's parameters.
    Param,
    /// Constants of the module.
    Const,
}

impl std::fmt::Display for Space {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Space::Global => "global",
            Space::Shared => "shared",
            Space::Local => "local",
            Space::Param => "parameter",
            Space::Const => "constant",
        })
    }
}

/// A fundamental type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Type {
    /// `.b8`…`.b128`: untyped bits.
    Bits(u32),
    /// `.u8`…`.u64`
    Unsigned(u32),
    /// `.s8`…`.s64`
    Signed(u32),
    /// `.f16`, `.f32`, `.f64`
    Float(u32),
    /// `.f16x2`
    HalfPair,
    /// `.bf16`
    Brain,
    /// `.bf16x2`
    BrainPair,
    /// `.tf32`
    Tensor32,
    /// `.e4m3`, as in `mma`.
    E4M3,
    /// `.e5m2`
    E5M2,
    /// `.e4m3x2`
    E4M3Pair,
    /// `.e5m2x2`
    E5M2Pair,
    /// `.pred`
    Predicate,
}

impl Type {
    pub(crate) fn named(name: &str) -> Option<Type> {
        Some(match name {
            "b8" => Type::Bits(8),
            "b16" => Type::Bits(16),
            "b32" => Type::Bits(32),
            "b64" => Type::Bits(64),
            "b128" => Type::Bits(128),
            "u8" => Type::Unsigned(8),
            "u16" => Type::Unsigned(16),
            "u32" => Type::Unsigned(32),
            "u64" => Type::Unsigned(64),
            "s8" => Type::Signed(8),
            "s16" => Type::Signed(16),
            "s32" => Type::Signed(32),
            "s64" => Type::Signed(64),
            "f16" => Type::Float(16),
            "f32" => Type::Float(32),
            "f64" => Type::Float(64),
            "f16x2" => Type::HalfPair,
            "bf16" => Type::Brain,
            "bf16x2" => Type::BrainPair,
            "tf32" => Type::Tensor32,
            "e4m3" => Type::E4M3,
            "e5m2" => Type::E5M2,
            "e4m3x2" => Type::E4M3Pair,
            "e5m2x2" => Type::E5M2Pair,
            "pred" => Type::Predicate,
            _ => return None,
        })
    }

    /// Width in bits; a predicate has 1.
    pub(crate) fn bits(self) -> u32 {
        match self {
            Type::Bits(n) | Type::Unsigned(n) | Type::Signed(n) | Type::Float(n) => n,
            Type::HalfPair | Type::BrainPair | Type::Tensor32 => 32,
            Type::Brain | Type::E4M3Pair | Type::E5M2Pair => 16,
            Type::E4M3 | Type::E5M2 => 8,
            Type::Predicate => 1,
        }
    }

    /// Width in bytes.
    pub(crate) fn bytes(self) -> u32 {
        self.bits().div_ceil(8)
    }

    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Type::Signed(_))
    }
}

/// A register of a function: its index among the function's registers.
pub(crate) type RegisterId = u32;

/// A variable, named in an operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum VariableId {
    /// Of the module.
    Module(u32),
    /// Of the enclosing function: parameters first.
    Function(u32),
}

/// Part of an initialiser.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Initial {
    Bytes(Vec<u8>),
    /// The address of a module variable plus an offset, stored in `bytes` bytes.
    Address {
        variable: u32,
        offset: i64,
        bytes: u32,
    },
}

/// A variable or parameter in memory.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) space: Space,
    pub(crate) align: u32,
    pub(crate) bytes: u64,
    /// `extern .shared x[]`: its size is given by the launch.
    pub(crate) dynamic: bool,
    pub(crate) initial: Vec<Initial>,
    /// A function's parameter that is a register.
    pub(crate) register: Option<RegisterId>,
    /// `.ptr`: a parameter known to be a pointer.
    pub(crate) pointer: bool,
    pub(crate) line: u32,
}

/// An operand of an instruction.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Operand {
    Register(RegisterId),
    Special(Special),
    Integer(u64),
    Single(u32),
    Double(u64),
    Variable(VariableId, i64),
    /// `{a, b}`
    Vector(Vec<Operand>),
    /// `[base + offset]`
    Address(Box<Operand>, i64),
    /// `[map, {x, y}]`: a tensor map and coordinates.
    Tensor(Box<Operand>, Vec<Operand>),
    /// `!p`
    Not(Box<Operand>),
    /// `p|q`
    Pair(Box<Operand>, Box<Operand>),
    /// A label, a function or a list of targets: resolved when the body is complete.
    Name(String),
    /// `(a, b)` of a call.
    List(Vec<Operand>),
    /// `_`
    Sink,
}

/// A special register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    Laneid,
    Warpid,
    Nwarpid,
    Smid,
    Nsmid,
    Gridid,
    LanemaskEq,
    LanemaskLe,
    LanemaskLt,
    LanemaskGe,
    LanemaskGt,
    Clock,
    ClockHigh,
    Clock64,
    Globaltimer,
    GlobaltimerLow,
    GlobaltimerHigh,
    DynamicShared,
    TotalShared,
    ClusterRank,
    ClusterRanks,
    /// `%cluster_ctaid`: the block's coordinates in its cluster.
    ClusterCtaid(u8),
    /// `%cluster_nctaid`: blocks of a cluster along an axis.
    ClusterNctaid(u8),
    /// `%clusterid`: the cluster's coordinates in the grid.
    Clusterid(u8),
    Nclusterid(u8),
    IsExplicitCluster,
    WarpSize,
}

impl Special {
    /// `%tid.x` and others, given as `%tid` and `x`.
    pub(crate) fn named(name: &str, component: Option<&str>) -> Option<Special> {
        let axis = match component {
            Some("x") => Some(0),
            Some("y") => Some(1),
            Some("z") => Some(2),
            Some(_) => return None,
            None => None,
        };
        Some(match (name, axis) {
            ("%tid", Some(axis)) => Special::Tid(axis),
            ("%ntid", Some(axis)) => Special::Ntid(axis),
            ("%ctaid", Some(axis)) => Special::Ctaid(axis),
            ("%nctaid", Some(axis)) => Special::Nctaid(axis),
            ("%cluster_ctaid", Some(axis)) => Special::ClusterCtaid(axis),
            ("%cluster_nctaid", Some(axis)) => Special::ClusterNctaid(axis),
            ("%clusterid", Some(axis)) => Special::Clusterid(axis),
            ("%nclusterid", Some(axis)) => Special::Nclusterid(axis),
            ("%cluster_ctarank", None) => Special::ClusterRank,
            ("%cluster_nctarank", None) => Special::ClusterRanks,
            ("%is_explicit_cluster", None) => Special::IsExplicitCluster,
            ("%laneid", None) => Special::Laneid,
            ("%warpid", None) => Special::Warpid,
            ("%nwarpid", None) => Special::Nwarpid,
            ("%smid", None) => Special::Smid,
            ("%nsmid", None) => Special::Nsmid,
            ("%gridid", None) => Special::Gridid,
            ("%lanemask_eq", None) => Special::LanemaskEq,
            ("%lanemask_le", None) => Special::LanemaskLe,
            ("%lanemask_lt", None) => Special::LanemaskLt,
            ("%lanemask_ge", None) => Special::LanemaskGe,
            ("%lanemask_gt", None) => Special::LanemaskGt,
            ("%clock", None) => Special::Clock,
            ("%clock_hi", None) => Special::ClockHigh,
            ("%clock64", None) => Special::Clock64,
            ("%globaltimer", None) => Special::Globaltimer,
            ("%globaltimer_lo", None) => Special::GlobaltimerLow,
            ("%globaltimer_hi", None) => Special::GlobaltimerHigh,
            ("%dynamic_smem_size", None) => Special::DynamicShared,
            ("%total_smem_size", None) => Special::TotalShared,
            ("WARP_SZ", None) => Special::WarpSize,
            _ => return None,
        })
    }

    pub(crate) fn bits(self) -> u32 {
        if matches!(self, Special::Clock64 | Special::Globaltimer | Special::Gridid) {
            64
        } else {
            32
        }
    }
}

/// An instruction as it stands in the text.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Instruction {
    /// `@p` or `@!p` (true).
    pub(crate) guard: Option<(RegisterId, bool)>,
    pub(crate) opcode: String,
    pub(crate) modifiers: Vec<String>,
    pub(crate) operands: Vec<Operand>,
    pub(crate) line: u32,
    pub(crate) column: u32,
    /// Enclosing scope, for labels.
    pub(crate) scope: u32,
}

/// Part of a body.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Statement {
    Label(String, u32),
    Instruction(Instruction),
    /// `name: .branchtargets a, b;`
    Targets {
        name: String,
        labels: Vec<String>,
        scope: u32,
    },
}

/// A kernel or a device function.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) entry: bool,
    pub(crate) line: u32,
    /// Returns, then parameters, then the body's own.
    pub(crate) variables: Vec<Variable>,
    pub(crate) returns: usize,
    pub(crate) parameters: usize,
    /// Width in bits of each register; 1 for predicates.
    pub(crate) registers: Vec<u8>,
    pub(crate) body: Option<Vec<Statement>>,
    /// Enclosing scope of each scope; the outermost has itself.
    pub(crate) scopes: Vec<u32>,
    pub(crate) required_threads: Option<[u32; 3]>,
    pub(crate) most_threads: Option<[u32; 3]>,
    /// `.reqnctapercluster`: blocks of a cluster along x, y, z.
    pub(crate) required_cluster: Option<[u32; 3]>,
    /// `.maxnreg`: the registers of a thread when the kernel begins.
    pub(crate) register_limit: Option<u32>,
}

/// A whole module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    pub(crate) version: String,
    pub(crate) target: String,
    pub(crate) variables: Vec<Variable>,
    pub(crate) functions: Vec<Function>,
}
