//! Scatter, bit for bit in the order of the scatter positions.
//!
//! The updates of one element must be applied in a fixed order (additions of floats, and
//! replacements). So no two threads may change the same element, and atomic additions cannot be
//! used. There are three ways:
//!
//! - *Directly* ([`direct`]): each element of a window belongs to a thread. It serves few
//!   positions, as of a row that is written into a cache: the rest of the result is not touched.
//! - *By scanning* ([`scan`]): each element of the result belongs to a thread, which goes through
//!   all positions. It serves few positions, a small result, and windows that overlap in part
//!   (the gradient of a slice at a variable start), where an element may be in many windows.
//! - *By sorting* ([`sort`], [`segments`]): it serves windows that are equal or disjoint (rows of
//!   a table: the gradient of an embedding). Positions are sorted stably by the start of their
//!   window, with those outside at the end. Then equal starts follow each other in increasing
//!   order of position, and one thread combines an element of all of them. All of it is bound by
//!   memory bandwidth, except where one row has very many updates: its additions are sequential.
//!
//! Either way the result is first a copy of the operand, unless it is in place.

mod direct;
mod scan;
mod segments;
pub(super) mod sort;

use super::draft::Draft;
use super::index::{check_extent, digits};
use super::number::{Number, Place};
use super::{Kernels, Terms};
use crate::ptx::{Binary, Code, Compare, Reg, Rounding, Space, Type};
use crate::stage::{Access, Compiled, Memory, Slot, Stage};
use wengert_core::call::{self, Contract, ScatterKind};
use wengert_core::{DType, Result};

/// Parameters of a scatter.
#[derive(Clone, Debug)]
struct Scatter {
    kind: ScatterKind,
    number: Number,
    index: DType,
    /// Whether each component of an index vector is clamped.
    clip: bool,
    /// Elements of the result.
    elements: usize,
    /// Axes of the result.
    axes: Vec<Axis>,
    /// For each component of an index vector: the axis along which it moves the window.
    moved: Vec<usize>,
    /// Extents of the scatter positions, and their strides in the updates.
    positions: Vec<(usize, usize)>,
    /// Whether the result aliases the operand.
    in_place: bool,
    /// Alignment of arguments, in bytes.
    alignment: usize,
}

/// An axis of the result.
#[derive(Clone, Copy, Debug)]
struct Axis {
    extent: usize,
    /// Stride of the elements.
    stride: usize,
    /// Extent of a window.
    window: usize,
    /// Stride of a window's elements in the updates.
    update: usize,
}

/// The start of a window.
struct Start {
    /// For each axis that windows move along, the coordinate; unspecified if the window is not
    /// inside.
    at: Vec<(usize, Reg)>,
    /// Whether the whole window is inside; none if it always is.
    inside: Option<Reg>,
}

/// Maximum number of elements × positions for scanning: at this product, scanning takes about as
/// long as the launches of a sort.
const SCANNED: usize = 1 << 24;
/// Maximum number of elements for scanning if the windows could be written directly: up to here,
/// one launch that reads all elements takes less time than a copy and a second launch.
const COPIED: usize = 1 << 16;
const THREADS: usize = 256;

/// Strides of a dense array.
fn distances(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis].max(1);
    }
    strides
}

impl Scatter {
    /// Maximum number of elements that one instruction moves.
    fn vector(&self) -> usize {
        self.number.vector().min(self.alignment / self.number.size() as usize).max(1)
    }

    fn new(call: &call::Scatter, in_place: bool, alignment: usize) -> Scatter {
        let (strides, in_updates) = (distances(&call.operand), distances(&call.updates));
        let axis = |(axis, extent): (usize, &usize)| Axis {
            extent: *extent,
            stride: strides[axis],
            window: 1,
            update: 0,
        };
        let mut axes: Vec<Axis> = call.operand.iter().enumerate().map(axis).collect();
        let kept = (0..axes.len()).filter(|a| !call.inserted_window_dims.contains(a));
        for (axis, update) in kept.zip(&call.update_window_dims) {
            (axes[axis].window, axes[axis].update) = (call.updates[*update], in_updates[*update]);
        }
        let positions = (0..call.updates.len())
            .filter(|a| !call.update_window_dims.contains(a))
            .map(|a| (call.updates[a], in_updates[a]))
            .collect();
        Scatter {
            kind: call.kind,
            number: Number(call.dtype),
            index: call.index,
            clip: call.clip,
            elements: call.operand.iter().product(),
            axes,
            moved: call.scatter_dims_to_operand_dims.clone(),
            positions,
            in_place,
            alignment,
        }
    }

    /// The element after an update; both operands in the dtype of arithmetic.
    fn combine(&self, code: &mut Code, x: Reg, update: Reg) -> Reg {
        match self.kind {
            ScatterKind::Add => self.number.add(code, x, update),
            ScatterKind::Mul => self.number.mul(code, x, update),
            ScatterKind::Min => self.number.extremum(code, true, x, update),
            ScatterKind::Max => self.number.extremum(code, false, x, update),
            ScatterKind::Replace => update,
        }
    }

    /// Name of a kernel of this scatter.
    fn kernel(&self, part: &str) -> String {
        format!("{}_{part}_{}", self.kind.name(), self.number.0)
    }

    /// Number of scatter positions.
    fn count(&self) -> usize {
        self.positions.iter().map(|p| p.0).product()
    }

    /// Elements of a window.
    fn window(&self) -> usize {
        self.axes.iter().map(|a| a.window).product()
    }

    /// The vector width of a window: every group of this many elements that begins at a multiple of
    /// it is contiguous in the result and in the updates.
    fn window_vector(&self) -> usize {
        let Some((last, rest)) = self.axes.split_last() else { return 1 };
        if last.update != 1 || last.window == 1 {
            return 1;
        }
        let strides = rest.iter().flat_map(|a| [a.stride, a.update]);
        let moved = self.moved.contains(&(self.axes.len() - 1));
        let moved = moved && last.window < last.extent;
        let all: Vec<usize> = strides
            .chain(self.positions.iter().map(|p| p.1))
            .chain([last.window, last.extent])
            .collect();
        let mut vector = if moved { 1 } else { self.vector() };
        while !all.iter().all(|n| n.is_multiple_of(vector)) {
            vector /= 2;
        }
        vector
    }

    /// The addresses of a window's element in the result and in the updates, of the window at the
    /// origin and of the first position.
    fn within(&self, code: &mut Code, [out, updates]: [Reg; 2], element: Reg) -> (Reg, Reg) {
        let windows: Vec<usize> = self.axes.iter().map(|a| a.window).collect();
        let (mut to, mut from) = (out, updates);
        for (axis, at) in self.axes.iter().zip(digits(code, element, &windows)) {
            to = super::index::advance(code, to, at, axis.stride as i64 * self.number.size());
            from = super::index::advance(code, from, at, axis.update as i64 * self.number.size());
        }
        (to, from)
    }

    /// Elements of the result, in the dtype of arithmetic, as variables.
    fn elements_at(&self, code: &mut Code, address: Reg, vector: usize) -> Vec<Reg> {
        let raw = self.number.load(code, Space::Global, Place::at(address, 0), vector);
        raw.into_iter()
            .map(|raw| {
                let value = self.number.widen(code, raw);
                code.mov(self.number.wide(), value)
            })
            .collect()
    }

    /// Combines the updates at an address with elements.
    fn combine_at(&self, code: &mut Code, address: Reg, elements: &[Reg]) {
        let raw = self.number.load(code, Space::Global, Place::at(address, 0), elements.len());
        for (element, raw) in elements.iter().zip(raw) {
            let value = self.number.widen(code, raw);
            let next = self.combine(code, *element, value);
            code.assign(self.number.wide(), *element, next);
        }
    }

    /// Stores elements.
    fn store_at(&self, code: &mut Code, address: Reg, elements: &[Reg]) {
        let raw: Vec<Reg> = elements.iter().map(|e| self.number.narrow(code, *e)).collect();
        self.number.store(code, Space::Global, Place::at(address, 0), &raw);
    }

    /// Whether windows with different starts have no element in common.
    fn apart(&self) -> bool {
        self.moved.iter().map(|a| &self.axes[*a]).all(|a| a.window == 1 || a.window == a.extent)
    }

    /// The axes that windows move along, ascending, and the number of possible starts along each.
    fn places(&self) -> Vec<(usize, usize)> {
        let moved = (0..self.axes.len()).filter(|a| self.moved.contains(a));
        moved.map(|a| (a, self.axes[a].extent - self.axes[a].window + 1)).collect()
    }

    /// The result's buffer, for reading and writing.
    fn result(&self) -> Slot {
        Slot { memory: Memory::Argument(3), access: Access::ReadWrite }
    }

    /// The start of the window of a scatter position.
    fn start(&self, code: &mut Code, indices: Reg, position: Reg) -> Start {
        let number = Number(self.index);
        let vector = self.moved.len() as i64;
        let address = super::index::advance(code, indices, position, vector * number.size());
        let component = |code: &mut Code, n: usize| {
            let place = Place::at(address, n as i64 * number.size());
            let index = number.load(code, Space::Global, place, 1)[0];
            if !self.clip {
                return index;
            }
            let Axis { extent, window, .. } = self.axes[self.moved[n]];
            let ty = if self.index == DType::I32 { Type::S32 } else { Type::S64 };
            let index = code.binary(Binary::Max, ty, index, 0);
            code.binary(Binary::Min, ty, index, (extent - window) as i64)
        };
        let (mut at, mut inside) = (vec![], None);
        for (axis, places) in self.places() {
            let components: Vec<usize> =
                (0..self.moved.len()).filter(|n| self.moved[*n] == axis).collect();
            let last = places as i64 - 1;
            let (start, good) = match components[..] {
                // As unsigned numbers, negative ones exceed every extent.
                [one] if self.index == DType::I32 => {
                    let start = component(code, one);
                    (start, code.compare(Compare::Le, Type::U32, start, last))
                }
                _ => {
                    let mut sum: Option<Reg> = None;
                    for n in components {
                        let mut term = component(code, n);
                        if self.index == DType::I32 {
                            term = code.convert(Rounding::Exact, Type::S64, Type::S32, term);
                        }
                        sum = Some(match sum {
                            None => term,
                            Some(sum) => saturating_sum(code, sum, term),
                        });
                    }
                    let sum = sum.expect("an axis that windows move along has a component");
                    let good = code.compare(Compare::Le, Type::U64, sum, last);
                    (code.convert(Rounding::Exact, Type::U32, Type::U64, sum), good)
                }
            };
            inside = super::index::both(code, inside, Some(good));
            at.push((axis, start));
        }
        Start { at, inside }
    }

    /// Byte offset of the updates of a scatter position.
    fn update(&self, code: &mut Code, updates: Reg, position: Reg) -> Reg {
        let size = self.number.size();
        if self.positions.windows(2).all(|p| p[0].1 == p[1].0 * p[1].1) {
            let distance = self.positions.last().map_or(0, |p| p.1) as i64;
            return super::index::advance(code, updates, position, distance * size);
        }
        let extents: Vec<usize> = self.positions.iter().map(|p| p.0).collect();
        let all = digits(code, position, &extents);
        all.into_iter().zip(&self.positions).fold(updates, |address, (digit, (_, stride))| {
            super::index::advance(code, address, digit, *stride as i64 * size)
        })
    }
}

/// Saturating x + y of signed 64-bit numbers.
fn saturating_sum(code: &mut Code, x: Reg, y: Reg) -> Reg {
    let sum = code.binary(Binary::Add, Type::S64, x, y);
    // The sum overflowed if both operands have a sign that the sum has not.
    let a = code.binary(Binary::Xor, Type::B64, x, sum);
    let b = code.binary(Binary::Xor, Type::B64, y, sum);
    let both = code.binary(Binary::And, Type::B64, a, b);
    let over = code.compare(Compare::Lt, Type::S64, both, 0);
    let sign = code.binary(Binary::Shr, Type::S64, x, 63);
    let end = code.binary(Binary::Xor, Type::B64, sign, i64::MAX);
    code.select(Type::S64, end, sum, over)
}

impl Kernels for call::Scatter {
    fn compile(&self, terms: &Terms<'_>) -> Result<Compiled> {
        compile(&Scatter::new(self, terms.in_place.is_some(), terms.alignment))
    }

    /// For a sort of the indices of the updates.
    fn workspace(&self) -> u64 {
        self.count(0).saturating_mul(32).saturating_add(64 << 10)
    }
}

fn compile(scatter: &Scatter) -> Result<Compiled> {
    let (count, window) = (scatter.count(), scatter.window());
    if scatter.elements == 0 {
        return Ok(Compiled { stages: vec![], workspace: 0 });
    }
    check_extent("the number of elements of a scatter's operand", scatter.elements)?;
    check_extent("the number of updates", count.saturating_mul(window))?;
    check_extent("the number of indices", count.saturating_mul(scatter.moved.len()))?;
    if count == 0 || window == 0 {
        let stages = if scatter.in_place { vec![] } else { vec![copy(scatter)?] };
        return Ok(Compiled { stages, workspace: 0 });
    }
    if direct::serves(scatter) && (scatter.in_place || scatter.elements > COPIED) {
        return directly(scatter);
    }
    if !scatter.apart() || scatter.elements.saturating_mul(count) <= SCANNED {
        return Ok(Compiled { stages: vec![scan::stage(scatter)?], workspace: 0 });
    }
    by_sorting(scatter)
}

/// The kernels of a scatter in every way that serves it, whatever its size.
#[cfg(test)]
pub(super) fn all_ways(call: &call::Scatter, in_place: Option<usize>) -> Result<Vec<Compiled>> {
    let scatter = Scatter::new(call, in_place.is_some(), super::product::ALIGNMENT);
    let mut ways = vec![];
    if scatter.elements > 0 && scatter.count() > 0 && scatter.window() > 0 {
        ways.push(Compiled { stages: vec![scan::stage(&scatter)?], workspace: 0 });
        if direct::serves(&scatter) {
            ways.push(directly(&scatter)?);
        }
        if scatter.apart() {
            ways.push(by_sorting(&scatter)?);
        }
    }
    Ok(ways)
}

fn directly(scatter: &Scatter) -> Result<Compiled> {
    let mut stages = if scatter.in_place { vec![] } else { vec![copy(scatter)?] };
    stages.push(direct::stage(scatter)?);
    Ok(Compiled { stages, workspace: 0 })
}

fn by_sorting(scatter: &Scatter) -> Result<Compiled> {
    let places: usize = scatter.places().iter().map(|p| p.1).product();
    // Windows that are not inside are sorted last, as if they began after all others.
    let sort = sort::Sort::new(scatter.count(), places + 1);
    let mut stages = if scatter.in_place { vec![] } else { vec![copy(scatter)?] };
    stages.push(segments::keys(scatter, sort.keys(0), places)?);
    stages.extend(sort.stages()?);
    stages.push(segments::stage(
        scatter,
        sort.keys(sort.passes()),
        sort.order(sort.passes()),
        places,
    )?);
    Ok(Compiled { stages, workspace: sort.workspace() })
}

/// Copies the operand to the result.
fn copy(scatter: &Scatter) -> Result<Stage> {
    let mut draft = Draft::aligned(scatter.alignment);
    let from = draft.pointer("operand", Slot::read(0));
    let to = draft.pointer("out", Slot::write(3));
    let (thread, block) = (draft.thread(), draft.block());
    let code = &mut draft.code;
    let number = scatter.number;
    let vector = scatter.vector();
    let whole = scatter.elements / vector;
    let index = code.ternary(crate::ptx::Ternary::Mad, Type::S32, block, THREADS as i64, thread);
    let move_one = |code: &mut Code, index: Reg, count: usize, offset: i64| {
        let [from, to] = [from, to].map(|base| {
            let address = super::index::advance(code, base, index, count as i64 * number.size());
            Place::at(address, offset)
        });
        let values = number.load(code, Space::Global, from, count);
        number.store(code, Space::Global, to, &values);
    };
    let inside = code.compare(Compare::Lt, Type::S32, index, whole as i64);
    code.when(inside, |code| move_one(code, index, vector, 0));
    let rest = scatter.elements % vector;
    if rest > 0 {
        let inside = code.compare(Compare::Lt, Type::S32, index, rest as i64);
        code.when(inside, |code| move_one(code, index, 1, (whole * vector) as i64 * number.size()));
    }
    let remark = format!("Copies {} elements.", scatter.elements);
    let blocks = whole.max(rest).div_ceil(THREADS);
    draft.stage(format!("scatter_copy_{}", number.0), remark, THREADS as u32, 0, blocks)
}
