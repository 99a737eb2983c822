//! Tiles of rows in shared memory, with the swizzle of 128 bytes.
//!
//! A *panel* has 64 halves of each row, which fill a row of the swizzle. The panels of a tile
//! follow each other. A tile begins at a multiple of the swizzle's pattern, and so does every
//! eighth row of a panel, so the permutation of a row depends on its number mod 8 alone.
//!
//! | read as | along the sum | a product has | from a product to the next |
//! |---|---|---|---|
//! | rows of A, or columns of B | the width | 16 halves of a panel | 32 bytes, or a panel |
//! | terms of B, transposed | the rows | 16 rows of all panels | 16 rows |

use super::super::super::index::divide;
use super::super::rows::{Division, Rows, Share, Tile};
use super::THREADS;
use super::shape::{DEPTH, Shape};
use crate::ptx::descriptor::{Layout, Swizzle};
use crate::ptx::{Binary, Code, Reg, Ternary, Type};

const SWIZZLE: Swizzle = Swizzle::Bytes128;
/// Bytes of a row of a panel.
pub(super) const ROW: usize = SWIZZLE.row() as usize;
/// Halves of a row of a panel.
pub(super) const PANEL: usize = ROW / 2;
/// Bytes after which the swizzle repeats.
pub(super) const PATTERN: usize = SWIZZLE.pattern() as usize;
/// Bytes that the swizzle keeps together.
const UNIT: usize = 16;

/// The layout of a tile along the width.
const ALONG: Layout = Layout { swizzle: SWIZZLE, leading: UNIT as u32, stride: PATTERN as u32 };

/// The descriptor of a tile, or of some of its rows, whose width is summed over.
pub(super) fn along(code: &mut Code, address: Reg) -> Reg {
    code.descriptor(address, ALONG)
}

/// The descriptor of a tile whose rows are summed over.
pub(super) fn across(code: &mut Code, tile: &Tile) -> Reg {
    let leading = (tile.rows * ROW) as u32;
    code.descriptor(tile.base, Layout { leading, ..ALONG })
}

/// Bytes from the first to the n-th product along the width.
pub(super) fn along_step(tile: &Tile, n: usize) -> usize {
    let steps = PANEL / DEPTH;
    n / steps * tile.rows * ROW + n % steps * 2 * DEPTH
}

/// Bytes from the first to the n-th product across.
pub(super) fn across_step(n: usize) -> usize {
    n * DEPTH * ROW
}

/// A descriptor of a matrix further on.
pub(super) fn further(code: &mut Code, descriptor: Reg, bytes: usize) -> Reg {
    match bytes {
        0 => descriptor,
        _ => code.binary(Binary::Add, Type::U64, descriptor, Layout::step(bytes as u32)),
    }
}

/// The thread's share of the copies between rows of memory and a tile, and the address of its
/// first piece in the tile. Its pieces are a multiple of eight rows apart.
pub(super) fn share(
    code: &mut Code,
    shape: &Shape,
    thread: Reg,
    rows: &Rows,
    first: Reg,
    tile: &Tile,
) -> (Share, Reg) {
    let division =
        Division { threads: THREADS, vector: rows.vector, depth: shape.depth, tile: tile.rows };
    let share = Share::new(code, thread, division, rows, first);
    let repeats = share.distances().all(|far| far.is_multiple_of(PATTERN / ROW));
    assert!(repeats, "the permutation is that of the first piece");
    let (panel, column) = match shape.panels() {
        1 => (None, share.column),
        _ => {
            let (panel, column) = divide(code, share.column, PANEL);
            (Some(panel), column)
        }
    };
    let row = code.binary(Binary::Mul, Type::S32, share.row, ROW as i64);
    let place = code.ternary(Ternary::Mad, Type::S32, column, 2, row);
    let place = code.swizzled(SWIZZLE, place);
    let place = match panel {
        None => place,
        Some(panel) => {
            code.ternary(Ternary::Mad, Type::S32, panel, (tile.rows * ROW) as i64, place)
        }
    };
    let to = code.binary(Binary::Add, Type::U32, tile.base, place);
    (share, to)
}

/// The address of two neighbouring halves of a tile, which the xor with a multiple of 16 takes to
/// the other units of its row of a panel. `column` is below 8.
pub(super) fn pair(code: &mut Code, tile: &Tile, row: Reg, column: Reg) -> Reg {
    let line = code.binary(Binary::And, Type::B32, row, (PATTERN / ROW) as i64 - 1);
    let at = code.ternary(Ternary::Mad, Type::S32, row, ROW as i64, tile.base);
    let at = code.ternary(Ternary::Mad, Type::S32, line, UNIT as i64, at);
    code.ternary(Ternary::Mad, Type::S32, column, 2, at)
}

/// The address of the pair 8·n columns further on, and the offset of its panel.
pub(super) fn eighth(code: &mut Code, tile: &Tile, pair: Reg, n: usize) -> (Reg, i64) {
    let units = ROW / UNIT;
    let panel = n / units * tile.rows * ROW;
    let at = match n % units {
        0 => pair,
        unit => code.binary(Binary::Xor, Type::B32, pair, (unit * UNIT) as i64),
    };
    (at, panel as i64)
}
