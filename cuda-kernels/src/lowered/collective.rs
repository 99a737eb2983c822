//! Lowering of collectives to exchanges and kernels.
//!
//! No library adds: a sum of NCCL depends on its algorithm and the number of ranks. Here a
//! reduction moves bytes first, and then a kernel combines the operands of the group in the tree of
//! the [contract](wengert_core::call::Collective). The kernels are compiled from nests, so every
//! addition has the bits of the nest interpreter, which are those of the CPU.
//!
//! | collective | commands |
//! |---|---|
//! | `psum`, `pmax`, `pmin` of few bytes | collect all operands; combine them |
//! | `psum`, `pmax`, `pmin` | deal a share of each operand; combine; collect the shares |
//! | `psum_scatter` | pack; deal the parts; combine |
//! | `all_gather` | collect the operands; put them in place |
//! | `all_to_all` | pack; deal the parts; put them in place |
//! | `ppermute` | permute |
//! | `axis_index` | position |
//!
//! *Pack* and *put in place* permute axes, and are left out where parts are neighbours. Shares are
//! those of [`Pattern::Deal`]: they have the same size on all ranks, so all ranks have the same
//! kernels, and where they overlap two ranks compute the same bits.

use super::Command;
use super::exchange::{Exchange, Pattern};
use super::prepare::{Preparing, alignment};
use crate::call::collective::{ALIGNMENT, MOST_RANKS, SMALL};
use crate::nest;
use wengert_core::call::{Collective, CollectiveKind};
use wengert_core::nest::{Affine, Nest, NestBuilder, ScalarOp};
use wengert_core::plan::{Access, Place};
use wengert_core::{DType, Diagnostic, Result, diagnostic};

impl Preparing<'_> {
    /// The commands of a collective. `places` are its operand, if it has one, and its result.
    ///
    /// Errors: a reduction over more than [`MOST_RANKS`] ranks; the plan reserves too little
    /// workspace.
    pub(super) fn collective(
        &mut self,
        call: &Collective,
        places: &[Place],
        workspace: Option<Place>,
        commands: &mut Vec<Command>,
    ) -> Result<()> {
        use CollectiveKind::{AllGather, AllToAll, AxisIndex, Max, Min, Permute, Sum, SumScatter};
        let ranks = self.plan.mesh.size(&call.over)?;
        let result = places.last().expect("a call has a result");
        if result.bytes == 0 {
            return Ok(());
        }
        if call.kind.is_reduction() && ranks > MOST_RANKS {
            let kind = call.kind.name();
            return Err(diagnostic!(
                "`{kind}` over {ranks} ranks, and GPUs combine the operands of {MOST_RANKS}"
            )
            .help("combine over one axis of the mesh after another"));
        }
        let mut scratch = Scratch { whole: workspace, used: 0 };
        let (outer, part) = (call.outer, call.part());
        let block = (part * call.dtype.size()) as u64;
        let all = block.saturating_mul(ranks as u64);
        let operand = &places[0];
        match call.kind {
            AxisIndex => {
                commands
                    .push(Command::Position { over: call.over.clone(), result: result.clone() });
            }
            Permute => {
                let pattern = Pattern::Permute(call.perm.clone());
                self.exchange(call, pattern, operand, result, commands);
            }
            Sum | Max | Min if ranks > 1 => {
                self.reduce(call, ranks, [operand, result], &mut scratch, commands)?;
            }
            // The operand of a rank alone is its result.
            Sum | Max | Min => {
                self.exchange(call, Pattern::Collect { block }, operand, result, commands);
            }
            SumScatter => {
                let row = call.inner;
                let packed =
                    self.permuted(call, operand, [outer, ranks, row], &mut scratch, commands)?;
                let dealt = scratch.take(all)?;
                self.exchange(call, Pattern::Deal { block }, &packed, &dealt, commands);
                self.nest_of(&combined(call, ranks, part)?, &[dealt, result.clone()], commands)?;
            }
            AllGather if outer == 1 => {
                self.exchange(call, Pattern::Collect { block }, operand, result, commands);
            }
            AllGather => {
                let gathered = scratch.take(all)?;
                self.exchange(call, Pattern::Collect { block }, operand, &gathered, commands);
                let nest = transposition(call.dtype, [ranks, outer, call.inner]);
                self.nest_of(&nest, &[gathered, result.clone()], commands)?;
            }
            AllToAll => {
                let row = call.inner;
                let packed =
                    self.permuted(call, operand, [outer, ranks, row], &mut scratch, commands)?;
                let pattern = Pattern::Deal { block };
                if call.rows == 1 {
                    self.exchange(call, pattern, &packed, result, commands);
                    return Ok(());
                }
                let dealt = scratch.take(all)?;
                self.exchange(call, pattern, &packed, &dealt, commands);
                let nest = transposition(call.dtype, [ranks, call.rows, part / call.rows]);
                self.nest_of(&nest, &[dealt, result.clone()], commands)?;
            }
        }
        Ok(())
    }

    /// A reduction whose result every rank gets whole.
    fn reduce(
        &mut self,
        call: &Collective,
        ranks: usize,
        [operand, result]: [&Place; 2],
        scratch: &mut Scratch,
        commands: &mut Vec<Command>,
    ) -> Result<()> {
        let (element, count) = (call.dtype.size() as u64, call.part());
        let all = operand.bytes.saturating_mul(ranks as u64);
        if all <= SMALL {
            let gathered = scratch.take(all)?;
            let pattern = Pattern::Collect { block: operand.bytes };
            self.exchange(call, pattern, operand, &gathered, commands);
            return self.nest_of(
                &combined(call, ranks, count)?,
                &[gathered, result.clone()],
                commands,
            );
        }
        let share = count.div_ceil(ranks);
        let block = share as u64 * element;
        let dealt = scratch.take(block * ranks as u64)?;
        self.exchange(call, Pattern::Deal { block }, operand, &dealt, commands);
        let own = scratch.take(block)?;
        self.nest_of(&combined(call, ranks, share)?, &[dealt, own.clone()], commands)?;
        self.exchange(call, Pattern::Collect { block }, &own, result, commands);
        Ok(())
    }

    /// An array `[a, b, ·]` as `[b, a, ·]`, in the workspace; the array itself if that is the same.
    fn permuted(
        &mut self,
        call: &Collective,
        array: &Place,
        [a, b, row]: [usize; 3],
        scratch: &mut Scratch,
        commands: &mut Vec<Command>,
    ) -> Result<Place> {
        if a == 1 {
            return Ok(array.clone());
        }
        let packed = scratch.take(array.bytes)?;
        let nest = transposition(call.dtype, [a, b, row]);
        self.nest_of(&nest, &[array.clone(), packed.clone()], commands)?;
        Ok(packed)
    }

    /// The commands of an exchange, one after the other.
    fn exchange(
        &mut self,
        call: &Collective,
        pattern: Pattern,
        source: &Place,
        target: &Place,
        commands: &mut Vec<Command>,
    ) {
        let exchange = Exchange {
            number: self.exchanges,
            over: call.over.clone(),
            pattern,
            source: Place { access: Access::Read, ..source.clone() },
            target: Place { access: Access::Write, ..target.clone() },
        };
        self.exchanges += 1;
        commands.extend([Command::Start(exchange.clone()), Command::Wait(exchange)]);
    }

    /// The launch of a nest with an operand and a result.
    fn nest_of(
        &mut self,
        nest: &Nest,
        places: &[Place; 2],
        commands: &mut Vec<Command>,
    ) -> Result<()> {
        let options = nest::Options { alignment: alignment(places), ..nest::Options::default() };
        let compiled = nest::compile(nest, self.architecture, &[], &options)?;
        let placed = self.place(compiled, &format!("call collective, {}", nest.name));
        self.launch(&placed, places, None, commands)
    }
}

/// The workspace of a call, whose parts are taken one after another.
struct Scratch {
    whole: Option<Place>,
    used: u64,
}

impl Scratch {
    /// Error: the plan reserves less.
    fn take(&mut self, bytes: u64) -> Result<Place> {
        let start = self.used;
        self.used = (start + bytes).next_multiple_of(ALIGNMENT);
        let reserved = self.whole.as_ref().map_or(0, |whole| whole.bytes);
        match &self.whole {
            Some(whole) if start + bytes <= reserved => {
                Ok(Place { offset: whole.offset + start, bytes, ..whole.clone() })
            }
            _ => Err(Diagnostic::new(format!(
                "its exchanges use {} bytes of workspace, {reserved} are reserved",
                start + bytes
            ))
            .help("compile the plan again with this version")),
        }
    }
}

/// `[a, b, ·]` to `[b, a, ·]`.
fn transposition(dtype: DType, [a, b, row]: [usize; 3]) -> Nest {
    // Bits are moved.
    let dtype = if dtype.size() == 1 { DType::U8 } else { dtype };
    let mut nest = NestBuilder::new("exchange_order");
    let from = nest.input("from", dtype, &[a, b, row]);
    let to = nest.output("to", dtype, &[b, a, row]);
    let axes = [nest.parallel("b", b), nest.parallel("a", a), nest.parallel("i", row)];
    let [] = nest.phase([]);
    let [of_b, of_a, i] = axes.map(Affine::axis);
    let value = nest.load(from, &[of_a.clone(), of_b.clone(), i.clone()]);
    nest.store(to, &[of_b, of_a, i], value);
    nest.finish().expect("the nest is well formed for all extents")
}

/// The operands of a group, `[ranks, count]`, combined in the tree of the contract.
///
/// Error: the dtype has no sums.
fn combined(call: &Collective, ranks: usize, count: usize) -> Result<Nest> {
    let dtype = call.dtype;
    if dtype == DType::Bool || dtype.is_float8() {
        return Err(diagnostic!("ranks add no {dtype}"));
    }
    let mut nest = NestBuilder::new(&format!("exchange_{}", call.kind.name()));
    let operands = nest.input("operands", dtype, &[ranks, count]);
    let out = nest.output("out", dtype, &[count]);
    let at = Affine::axis(nest.parallel("i", count));
    let [] = nest.phase([]);
    let wide = if dtype.is_half() { DType::F32 } else { dtype };
    let mut level = Vec::with_capacity(ranks);
    for rank in 0..ranks {
        let value = nest.load(operands, &[Affine::constant(rank as i64), at.clone()]);
        level.push(nest.convert(value, wide));
    }
    let is_float = wide.is_float();
    let mut join = |a, b| {
        let is_first = match call.kind {
            CollectiveKind::Max => nest.scalar(ScalarOp::Lt, &[b, a]),
            CollectiveKind::Min => nest.scalar(ScalarOp::Lt, &[a, b]),
            _ => return nest.scalar(ScalarOp::Add, &[a, b]),
        };
        // The second of equals, and any NaN. `max` and `min` order zeros by their signs.
        let is_first = match is_float {
            true => {
                let is_nan = nest.scalar(ScalarOp::Ne, &[a, a]);
                nest.scalar(ScalarOp::Or, &[is_first, is_nan])
            }
            false => is_first,
        };
        nest.scalar(ScalarOp::Select, &[is_first, a, b])
    };
    while level.len() > 1 {
        let pairs = level.chunks(2);
        level = pairs.map(|pair| if let [a, b] = pair { join(*a, *b) } else { pair[0] }).collect();
    }
    let sum = nest.convert(level[0], dtype);
    nest.store(out, &[at], sum);
    nest.finish()
}
