//! The choice of the collectives that are joined.
//!
//! One walk in the order of the equations, which for gradients is the order of the backward pass.
//! A small collective joins the open bucket of its kind, or opens one. A kind is an op with its
//! axes of the mesh, a dtype, and the axes over which the operand varies. A bucket is **closed**
//! by
//!
//! - a member that would make it larger than [`MOST_BYTES`], or give it more than [`MOST`];
//! - a member that is more than [`NEAR`] loops (products, reductions, calls) behind its first one:
//!   a bucket waits for its last operand;
//! - any exchange that depends on it, which its other members would delay;
//! - a loop or branch, whose time is not known.
//!
//! **No cycle.** A member depends only on buckets that are closed when it joins, by the third rule.
//! So if a bucket depends on another, its last member joined later than that of the other. A cycle
//! would need a bucket whose last member joined later than itself.
//!
//! # Sizes
//!
//! A collective that is joined saves its start, its messages and its wait, whatever its size, and
//! costs a copy of its operand. So it pays where the fixed cost is a good part of its time. An
//! all-to-all of two ranks in shared memory took 2.8 µs for 1 KiB and 18 µs for 64 KiB: the fixed
//! cost is that of 10 KiB. On a busy machine it took 26 and 108 µs, so 20 KiB
//! (`transport-check measure`, in a development build on two processors). So collectives of less
//! than 16 KiB are joined. In a bucket of 256 KiB the fixed cost is a twentieth of the time, and
//! joining more would gain little. MPI and the network were not measured.

use std::collections::BTreeSet;
use wengert_core::graph::{Body, Equation, ValueId};
use wengert_core::id::IdVec;
use wengert_core::mesh::Varying;
use wengert_core::op::Cost;
use wengert_core::op::collective::{AllGather, PReduce, PsumScatter};
use wengert_core::{DType, Op};

/// A collective of as many bytes stays alone: those of its operand or its result, whichever are
/// more.
pub(super) const SMALL: usize = 16 << 10;
/// Maximum number of bytes of a bucket.
pub(super) const MOST_BYTES: usize = 256 << 10;
/// Maximum number of members. Each is a parameter of the kernel that concatenates them.
pub(super) const MOST: usize = 32;
/// Maximum number of loops between the first and the last member: those of about two layers of a
/// transformer's backward pass.
pub(super) const NEAR: usize = 64;

/// Collectives that become one.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Bucket {
    /// The joined collective.
    pub op: Op,
    /// The numbers of the equations that it replaces, at least two, ascending.
    pub members: Vec<usize>,
}

/// A bucket while members may join it.
struct Open {
    op: Op,
    dtype: DType,
    varying: Varying,
    members: Vec<usize>,
    bytes: usize,
    /// The number of loops before the first member.
    loops: usize,
    is_open: bool,
}

/// The buckets of a body, by their last members.
pub(super) fn choose(body: &Body, equations: &[Equation]) -> Vec<Bucket> {
    let mut buckets: Vec<Open> = Vec::new();
    // The buckets on which a value depends. Those that are closed are dropped in time.
    let mut behind: IdVec<ValueId, Vec<usize>> = body.values.ids().map(|_| Vec::new()).collect();
    let mut loops = 0;
    for (number, equation) in equations.iter().enumerate() {
        let depends = equation.operands.iter().flat_map(|v| &behind[*v]).copied();
        let mut depends: BTreeSet<usize> = depends.filter(|b| buckets[*b].is_open).collect();
        if equation.op.control().is_some() {
            buckets.iter_mut().for_each(|bucket| bucket.is_open = false);
            depends.clear();
        }
        if equation.op.exchanges() {
            depends.iter().for_each(|b| buckets[*b].is_open = false);
            depends.clear();
        } else {
            loops += usize::from(equation.op.traits().cost == Cost::Loop);
        }
        if let Some((op, bytes)) = candidate(body, equation) {
            let ty = body.ty(equation.operands[0]);
            let alike = |open: &Open| {
                open.is_open
                    && open.op == op
                    && open.dtype == ty.dtype
                    && open.varying == ty.varying
            };
            let found = buckets.iter().rposition(alike);
            let fits = |open: &Open| {
                open.bytes + bytes <= MOST_BYTES
                    && open.members.len() < MOST
                    && loops - open.loops <= NEAR
            };
            let joined = match found {
                Some(b) if fits(&buckets[b]) => b,
                found => {
                    found.iter().for_each(|b| buckets[*b].is_open = false);
                    let (dtype, varying) = (ty.dtype, ty.varying.clone());
                    let (members, bytes) = (Vec::new(), 0);
                    buckets.push(Open { op, dtype, varying, members, bytes, loops, is_open: true });
                    buckets.len() - 1
                }
            };
            buckets[joined].members.push(number);
            buckets[joined].bytes += bytes;
            depends.insert(joined);
        }
        if !depends.is_empty() {
            equation.results.iter().for_each(|v| behind[*v] = depends.iter().copied().collect());
        }
    }
    let joined = buckets.into_iter().filter(|bucket| bucket.members.len() > 1);
    let mut joined: Vec<Bucket> =
        joined.map(|Open { op, members, .. }| Bucket { op, members }).collect();
    joined.sort_by_key(|bucket| bucket.members.last().copied());
    joined
}

/// The collective that joins an equation with others, and the equation's bytes. None if it is not
/// joined.
fn candidate(body: &Body, equation: &Equation) -> Option<(Op, usize)> {
    let op: Op = match &equation.op {
        Op::PReduce(op) => PReduce { kind: op.kind, over: op.over.clone() }.into(),
        Op::PsumScatter(PsumScatter { over, size, .. }) => {
            PsumScatter { over: over.clone(), axis: 0, size: *size, tiled: false }.into()
        }
        Op::AllGather(AllGather { over, size, invariant, .. }) => {
            let (over, invariant) = (over.clone(), *invariant);
            AllGather { over, axis: 0, size: *size, tiled: false, invariant }.into()
        }
        _ => return None,
    };
    let bytes = |v: &ValueId| body.ty(*v).bytes();
    let bytes = bytes(equation.operands.first()?)?.max(bytes(equation.results.first()?)?);
    (0 < bytes && bytes < SMALL).then_some((op, bytes))
}
