//! Tiles that are transposed in shared memory.
//!
//! An elementwise nest may load along one axis and store along another, as in a permutation. Then
//! either loads or stores of neighbouring threads would be a whole line apart. A block therefore
//! takes a square of both axes. It loads with neighbouring threads along the loads' axis, stores
//! the elements to shared memory, and goes on with neighbouring threads along the stores' axis.
//! Rows of the square are padded by one word, so that a column of it lies in different banks.

use super::emit::{Copy, Emit};
use super::shape::is_plain;
use super::team::{MAX_GRID, exchange_size};
use super::vector::{from_memory, to_memory};
use crate::ptx::{
    Binary, Code, Inst, Operand, Reg, Rounding, SharedArray, Space, Special, Ternary, Type,
};
use crate::scalar::memory_type;
use wengert_core::nest::merge::MergedAxis;
use wengert_core::nest::{Access, Affine, AxisId, BufferRole, Instr, Nest, Term};
use wengert_core::{DType, Id, Result};

/// Rows and columns of a tile.
pub(super) const SIDE: u32 = 32;
/// Threads of a block: each has four elements of a tile.
pub(super) const THREADS: u32 = 256;
/// Elements of a thread, and their distance along the slower axis.
const COPIES: i64 = 4;
const APART: i64 = 8;

/// The transposed loads of a nest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Tile {
    /// The group of axes along which the transposed loads are contiguous. The stores' is the last
    /// one.
    pub across: usize,
    /// Which instructions of the body are transposed loads.
    pub loads: Vec<usize>,
}

/// The fill of a load: a constant, or none.
fn constant_fill(nest: &Nest, fill: Option<wengert_core::nest::Reg>) -> Option<Option<&Instr>> {
    let Some(fill) = fill else { return Some(None) };
    let body = &nest.phases.first()?.body;
    let found = body.iter().find(|i| i.results().contains(&fill))?;
    matches!(found, Instr::Const { .. }).then_some(Some(found))
}

/// Whether an access is known before the body has run: it does not depend on data.
fn is_static(access: &Access) -> bool {
    let mut from_data = false;
    for expression in access.expressions() {
        expression.visit_terms(&mut |t| from_data |= matches!(t, Term::Reg(_)));
    }
    !from_data
}

impl Tile {
    /// The transposed loads of a nest, if there are any.
    pub fn new(nest: &Nest, groups: &[MergedAxis]) -> Option<Tile> {
        let [phase] = nest.phases.as_slice() else { return None };
        if !phase.axes.is_empty() || !phase.reductions.is_empty() || groups.len() < 2 {
            return None;
        }
        let innermost = |g: &MergedAxis| *g.axes.last().expect("no group is empty");
        let (along, others) = groups.split_last()?;
        let contiguous = |access: &Access, axis: AxisId| {
            let element = super::element::element(nest, access);
            let is = element.coefficient(axis);
            is_plain(&element, axis).then_some(is)
        };
        let mut found: Option<Tile> = None;
        for (number, instr) in phase.body.iter().enumerate() {
            let Instr::Load { access, fill, .. } = instr else { continue };
            let turnable = nest.buffers[access.buffer].role == BufferRole::In
                && !access.clamp
                && is_static(access)
                && constant_fill(nest, *fill).is_some()
                && contiguous(access, innermost(along)).is_some_and(|c| c.abs() > 1);
            if !turnable {
                continue;
            }
            let across = others.iter().position(|g| contiguous(access, innermost(g)) == Some(1));
            match (&mut found, across) {
                (Some(tile), Some(across)) if tile.across == across => tile.loads.push(number),
                (None, Some(across)) => found = Some(Tile { across, loads: vec![number] }),
                _ => {}
            }
        }
        found
    }

    /// Bytes of shared memory.
    pub fn shared_bytes(&self, nest: &Nest) -> usize {
        self.loads.iter().map(|l| square_bytes(load_of(nest, *l).2)).sum()
    }
}

/// Access, fill and dtype of the load at that place of the body.
fn load_of(nest: &Nest, number: usize) -> (&Access, Option<wengert_core::nest::Reg>, DType) {
    match &nest.phases[0].body[number] {
        Instr::Load { access, fill, .. } => (access, *fill, nest.buffers[access.buffer].dtype),
        _ => unreachable!("only loads are transposed"),
    }
}

fn square_bytes(dtype: DType) -> usize {
    (SIDE as usize * (SIDE as usize + 1) * exchange_size(dtype)).next_multiple_of(16)
}

/// The whole kernel; returns the number of blocks.
pub(super) fn kernel(
    emit: &mut Emit<'_>,
    tile: &Tile,
    groups: &[MergedAxis],
    limit: u64,
) -> Result<u32> {
    let nest = emit.nest;
    let last = groups.len() - 1;
    let side = SIDE as usize;
    let extents: Vec<usize> = groups
        .iter()
        .enumerate()
        .map(
            |(n, g)| if n == last || n == tile.across { g.extent.div_ceil(side) } else { g.extent },
        )
        .collect();
    let total: u64 = extents.iter().map(|e| *e as u64).product();
    let blocks = total.min(limit).min(MAX_GRID);
    let wide = total + blocks >= 1 << 31;
    let linear = emit.code.mov(Type::U32, Special::TidX);
    let x = emit.code.binary(Binary::And, Type::B32, linear, i64::from(SIDE) - 1);
    let y = emit.code.binary(Binary::Shr, Type::U32, linear, i64::from(SIDE.trailing_zeros()));
    let (x_axis, y_axis) = (emit.axis_in("x", side, x), emit.axis_in("y", APART as usize, y));
    let mut squares = Vec::new();
    for load in &tile.loads {
        let (_, _, dtype) = load_of(nest, *load);
        let name = format!("tile{}", emit.shared.len());
        let bytes = u32::try_from(square_bytes(dtype)).expect("a tile is small");
        emit.shared.push(SharedArray { name: name.clone(), align: 16, bytes });
        let base = emit.code.mov(Type::B32, Operand::Symbol(name));
        let (pitch, size) = (i64::from(SIDE) + 1, exchange_size(dtype) as i64);
        // Threads write along rows of the square, and read along columns.
        let row = emit.code.ternary(Ternary::Mad, Type::S32, y, pitch * size, base);
        let write = emit.code.ternary(Ternary::Mad, Type::S32, x, size, row);
        let column = emit.code.ternary(Ternary::Mad, Type::S32, x, pitch * size, base);
        let read = emit.code.ternary(Ternary::Mad, Type::S32, y, size, column);
        squares.push((write, read, pitch * size * APART, size * APART, dtype));
    }
    let block = emit.code.mov(Type::U32, Special::CtaidX);
    let first =
        if wide { emit.code.convert(Rounding::Exact, Type::U64, Type::U32, block) } else { block };
    emit.stride(first, total, blocks, |emit, block| {
        let axes = emit.decompose(block, "tile", &extents);
        let copies = |emit: &mut Emit<'_>, along: usize, across: usize| -> Vec<Copy> {
            // `along` goes from thread to thread, `across` in steps.
            (0..COPIES)
                .map(|k| {
                    let mut origin = emit.origin();
                    let mut predicates = Vec::new();
                    for (n, (group, axis)) in groups.iter().zip(&axes).enumerate() {
                        let start = Affine::axis(*axis).scale(i64::from(SIDE));
                        let place = if n == along {
                            start.add(&Affine::axis(x_axis))
                        } else if n == across {
                            start.add(&Affine::axis(y_axis)).offset(k * APART)
                        } else {
                            Affine::axis(*axis)
                        };
                        predicates.extend(emit.guard(&place, 0, group.extent as i64));
                        origin[group.axes.last().expect("no group is empty").index()] = place;
                    }
                    Copy { axes: origin, active: emit.all(predicates), stores: None }
                })
                .collect()
        };
        let body = &nest.phases[0].body;
        let loading = copies(emit, tile.across, last);
        emit.row = vec![vec![None; nest.registers.len()]; loading.len()];
        for (load, square) in tile.loads.iter().zip(&squares) {
            emit.code.comment(wengert_core::nest::print::InstrText(nest, &body[*load]).to_string());
            emit.begin_body(loading.len());
            let (access, fill, dtype) = load_of(nest, *load);
            if let Some(Some(Instr::Const { result, value })) = constant_fill(nest, fill) {
                let constant = emit.constant(*value);
                emit.body.iter_mut().for_each(|b| b[result.index()] = Some(constant));
            }
            let values = emit.load(access, fill, &loading);
            for (k, value) in values.into_iter().enumerate() {
                let value = to_memory(&mut emit.code, dtype, value);
                let (base, step) = (square.0, square.2);
                emit.code.store(Space::Shared, memory_type(dtype), base, k as i64 * step, value);
            }
        }
        emit.code.push(Inst::Barrier);
        emit.loaded.clear();
        for (load, (_, read, _, step, dtype)) in tile.loads.iter().zip(&squares) {
            let values =
                (0..COPIES).map(|k| element(&mut emit.code, *read, k * step, *dtype)).collect();
            emit.loaded.insert(*load, values);
        }
        let storing = copies(emit, last, tile.across);
        emit.begin_body(storing.len());
        emit.instructions(&nest.phases[0], &storing)?;
        // The next tile overwrites this one.
        if blocks < total {
            emit.code.push(Inst::Barrier);
        }
        Ok(())
    })?;
    Ok(u32::try_from(blocks).expect("bounded"))
}

/// An element of a square.
fn element(code: &mut Code, base: Reg, offset: i64, dtype: DType) -> Reg {
    let stored = code.load(Space::Shared, memory_type(dtype), base, offset);
    from_memory(code, dtype, stored)
}
