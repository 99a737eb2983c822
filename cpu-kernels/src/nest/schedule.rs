//! The schedule of a nest: the axes that lie along the lanes of a block.
//!
//! Lanes are either neighbouring **elements** of one row (the last inner axes of each phase), or
//! neighbouring **rows** (the last parallel axes) with inner axes as plain loops. The first suits
//! a softmax over the last axis, the second elementwise nests and sums over leading axes. Both
//! can run every nest, so the choice is one of cost. The cost is estimated from the memory access
//! pattern of each access.

use super::address::{Pattern, VectorAxes};
use super::lower::{FlatNest, Op, Phase, Place};
use super::sum::Sum;
use crate::kernels::CHUNK;
use wengert_core::Id;
use wengert_core::nest::{AxisId, BufferRole, ScalarOp};

/// Number of lanes below which another axis is included.
const FEW: usize = 64;
/// Cost of the step from one block of rows to the next, in nanoseconds, roughly.
const BLOCK: f64 = 60.0;
/// Cost of an iteration over rows in a loop that only runs native code, and of each of its
/// instructions, in nanoseconds, roughly.
const TURN: f64 = 8.0;
const INSTRUCTION: f64 = 0.5;

/// The kind of a block's lanes.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Schedule {
    /// Elements of a row; the vector axes of each phase.
    Elements(Vec<VectorAxes>),
    /// Rows; their vector axes.
    Rows(VectorAxes),
}

impl Schedule {
    /// Every schedule that the nest has.
    pub fn both(nest: &FlatNest<'_>) -> Vec<Schedule> {
        let elements = nest.phases.iter().map(|phase| last_axes(nest, &phase.axes, phase.prefix));
        let mut all = vec![Schedule::Elements(elements.collect())];
        if !nest.parallel.is_empty() {
            all.push(Schedule::Rows(last_axes(nest, &nest.parallel, false)));
        }
        all
    }

    /// The cheaper of the two schedules, for blocks of up to `lanes`; `native` says whether there
    /// is native code.
    pub fn choose(nest: &FlatNest<'_>, lanes: usize, row_limit: usize, native: bool) -> Schedule {
        let elements: Vec<VectorAxes> =
            nest.phases.iter().map(|phase| last_axes(nest, &phase.axes, phase.prefix)).collect();
        let rows = Self::rows(nest, lanes, native);
        let row_bytes: usize = nest
            .nest
            .buffers
            .iter()
            .filter(|(_, b)| b.role == BufferRole::Row)
            .map(|(_, b)| b.elements().saturating_mul(b.dtype.size()))
            .fold(0, usize::saturating_add);
        let too_large = row_bytes.saturating_mul(lanes.min(rows.positions())) > row_limit;
        if nest.parallel.is_empty() || too_large {
            return Schedule::Elements(elements);
        }
        let by_elements: f64 = nest
            .phases
            .iter()
            .zip(&elements)
            .map(|(phase, vector)| cost(nest, phase, vector, 1, lanes))
            .sum::<f64>();
        let count = rows.positions().min(lanes);
        let by_rows = of_rows(nest, &rows, lanes, native);
        // The cost by elements is for one row, the cost by rows for `count` rows.
        if by_rows <= by_elements * count as f64 {
            Schedule::Rows(rows)
        } else {
            Schedule::Elements(elements)
        }
    }

    /// The vector axes of the schedule by rows: the last parallel axes. Or the last axis alone,
    /// where several are short but an access does not step through them as through one axis.
    fn rows(nest: &FlatNest<'_>, lanes: usize, native: bool) -> VectorAxes {
        let several = last_axes(nest, &nest.parallel, false);
        let Some(last) = several.axes.last().filter(|_| several.axes.len() > 1) else {
            return several;
        };
        let alone = VectorAxes { axes: vec![*last], extents: vec![nest.extent(*last)] };
        let each = |rows: &VectorAxes| {
            of_rows(nest, rows, lanes, native) / rows.positions().clamp(1, lanes) as f64
        };
        if alone.positions() >= CHUNK && each(&alone) < each(&several) { alone } else { several }
    }
}

/// Cost of a block of rows, in nanoseconds, roughly.
fn of_rows(nest: &FlatNest<'_>, rows: &VectorAxes, lanes: usize, native: bool) -> f64 {
    let count = rows.positions().min(lanes);
    if let [phase] = nest.phases.as_slice()
        && native
        && rows.positions() <= lanes
        && rows.axes.len() < nest.parallel.len()
        && phase.axes.is_empty()
        && phase.reductions.is_empty()
        && phase.body.iter().all(|op| steady(rows, op))
    {
        let vectors = count.div_ceil(CHUNK) as f64;
        return TURN + INSTRUCTION * vectors * phase.body.len() as f64;
    }
    BLOCK + nest.phases.iter().map(|phase| cost(nest, phase, rows, count, lanes)).sum::<f64>()
}

/// The last axis, and the axes before it while their positions together are few.
fn last_axes(nest: &FlatNest<'_>, axes: &[AxisId], only_last: bool) -> VectorAxes {
    let mut vector = VectorAxes::default();
    for axis in axes.iter().rev() {
        if !vector.axes.is_empty()
            && (only_last || vector.positions() >= FEW || vector.positions() == 0)
        {
            break;
        }
        vector.axes.insert(0, *axis);
        vector.extents.insert(0, nest.extent(*axis));
    }
    vector
}

/// Cost of a phase, in nanoseconds, roughly: for one row if the vector axes are inner ones, else
/// for `rows` rows.
fn cost(
    nest: &FlatNest<'_>,
    phase: &Phase<'_>,
    vector: &VectorAxes,
    rows: usize,
    lanes: usize,
) -> f64 {
    let inner: usize = phase.axes.iter().map(|a| nest.extent(*a)).product();
    let is_inner = vector.axes.first().is_some_and(|a| phase.axes.contains(a));
    let along = if is_inner { vector.positions() } else { rows };
    let count = along.clamp(1, lanes);
    let blocks = if is_inner { inner.div_ceil(count.max(1)) } else { inner };
    // A loop that only runs native code computes its pointers once.
    let step = if !is_inner && inner > 1 && phase.body.iter().all(|op| steady(vector, op)) {
        0.35
    } else {
        1.0
    };
    let block = |cost: f64, lane: f64| step * cost + lane * count.next_multiple_of(16) as f64;
    let mut sum = 0.0;
    for op in &phase.body {
        sum += match op {
            Op::Scalar { op, .. } => block(4.0, scalar_cost(*op)),
            Op::Chain { links, .. } => block(4.0, 0.05 * links.len() as f64),
            Op::Product { .. } => block(4.0, 0.05),
            Op::Const { .. } => 0.0,
            Op::Index { value, .. } => block(5.0, if vector.constant(value) { 0.0 } else { 1.0 }),
            Op::Test { .. } => block(8.0, 0.1),
            Op::Load { place, .. } | Op::Store { place, .. } => {
                block(6.0, access_cost(vector, place))
            }
            Op::Prefix(_) if is_inner => block(10.0, 2.0),
            Op::Prefix(_) => block(5.0, 0.1),
            // Groups are formed only after a schedule is chosen.
            Op::Group(_) => 0.0,
        };
    }
    for reduction in phase.reductions {
        let instructions = reduction.combine.body.len() as f64;
        let tree = reduction.tree.lanes as usize;
        sum += if !is_inner {
            block(5.0, 0.1 * instructions)
        } else if instructions == 1.0 {
            block(5.0, if tree >= 16 { 0.1 } else { 1.0 })
        } else {
            block(10.0, if tree >= 16 { 0.3 * instructions } else { 10.0 * instructions })
        };
        // Lanes are combined at the end of a row.
        sum += 20.0 / blocks.max(1) as f64;
    }
    sum * blocks as f64
}

fn scalar_cost(op: ScalarOp) -> f64 {
    match op {
        ScalarOp::Sin | ScalarOp::Cos | ScalarOp::Pow | ScalarOp::Atan2 | ScalarOp::Rem => 1.5,
        ScalarOp::Erfc | ScalarOp::ErfInv | ScalarOp::Lgamma | ScalarOp::Digamma => 4.0,
        ScalarOp::Asinh | ScalarOp::Acosh | ScalarOp::Atanh | ScalarOp::Log2 => 2.0,
        _ if op.is_elementary() => 0.4,
        ScalarOp::Div | ScalarOp::Sqrt => 0.15,
        _ => 0.05,
    }
}

fn access_cost(vector: &VectorAxes, place: &Place) -> f64 {
    let guards = place.guards.iter().filter(|g| !linear(vector, &g.value)).count() as f64;
    let access = match vector.pattern(&place.offset) {
        _ if !linear(vector, &place.offset) => 1.5,
        Pattern::Digits(_) => 0.75,
        Pattern::Step(0) => 0.05,
        Pattern::Step(1) => 0.05,
        Pattern::Step(_) => 1.5,
    };
    access + 2.0 * guards
}

/// True for arithmetic, and for accesses to neighbouring elements whose conditions hold for all
/// lanes or for none.
fn steady(vector: &VectorAxes, op: &Op) -> bool {
    match op {
        Op::Load { place, .. } | Op::Store { place, .. } => {
            let neighbours = matches!(vector.pattern(&place.offset), Pattern::Step(0 | 1));
            let conditions = place.guards.iter().all(|guard| vector.constant(&guard.value));
            conditions && neighbours && linear(vector, &place.offset)
        }
        Op::Scalar { .. } | Op::Chain { .. } | Op::Product { .. } | Op::Const { .. } => true,
        Op::Index { .. } | Op::Test { .. } | Op::Prefix(_) | Op::Group(_) => false,
    }
}

/// True if lanes differ by the axes' own coefficients only.
fn linear(vector: &VectorAxes, sum: &Sum) -> bool {
    sum.terms.iter().all(|(term, _)| match term {
        super::sum::Term::Register(_) => true,
        super::sum::Term::Div(e, _)
        | super::sum::Term::Mod(e, _)
        | super::sum::Term::Clamp(e, _) => vector.constant(e),
    })
}

/// The axes of a phase that are not vectorised.
pub(super) fn plain<'a>(
    axes: &'a [AxisId],
    vector: &'a VectorAxes,
) -> impl Iterator<Item = AxisId> + 'a {
    axes.iter().copied().filter(|a| !vector.axes.iter().any(|v| v.index() == a.index()))
}
