//! Sums of a tile as tensor cores leave them: fragments of 8 columns, which the lanes of a warp
//! have in registers. Of every eighth row, a lane has two neighbouring sums.

use super::finish::{Destination, Run};
use super::{Position, Product};
use crate::call::index::both;
use crate::ptx::{Binary, Code, Compare, Reg, Type};
use crate::scalar::Functions;
use wengert_core::Result;

/// Columns of a fragment.
pub(super) const COLUMNS: usize = 8;
/// Fragments whose columns are stored together. More of them would have their biases and scales in
/// registers at a time.
const TOGETHER: usize = 8;

/// A lane's sums of a block's tile.
pub(super) struct Fragments {
    /// Rows and columns of the tile.
    pub tile: [usize; 2],
    /// Row and column of the lane's first sum in the tile.
    pub first: [Reg; 2],
    /// Rows of a fragment: 8 or 16.
    pub rows: usize,
    /// For each row of fragments, for each column of them, the sums of the lane.
    pub sums: Vec<Vec<Vec<Reg>>>,
}

impl Fragments {
    /// Finishes the sums and stores them.
    ///
    /// Errors: an instruction of the follower has no code for GPUs.
    pub fn store(
        &self,
        code: &mut Code,
        functions: &mut Functions,
        product: &Product,
        position: &Position,
        destination: &mut Destination<'_>,
    ) -> Result<()> {
        let start = destination.start(code, position.part, position.batch);
        let vector = destination.vector.min(2);
        let edge = |code: &mut Code, index: Reg, extent: usize, tile: usize| {
            (!extent.is_multiple_of(tile))
                .then(|| code.compare(Compare::Lt, Type::S32, index, extent as i64))
        };
        let first_row = code.binary(Binary::Add, Type::S32, position.row, self.first[0]);
        let first_column = code.binary(Binary::Add, Type::S32, position.column, self.first[1]);
        let fragments: Vec<usize> = (0..self.sums[0].len()).collect();
        for fragments in fragments.chunks(TOGETHER) {
            let mut columns = vec![];
            for fragment in fragments {
                for at in (0..2).step_by(vector) {
                    let far = (fragment * COLUMNS + at) as i64;
                    let j = code.binary(Binary::Add, Type::S32, first_column, far);
                    let below = edge(code, j, product.n, self.tile[1]);
                    let shared = destination.columns(code, j, vector, below);
                    columns.push((*fragment, at, j, below, shared));
                }
            }
            for (row, sums) in self.sums.iter().enumerate() {
                for eighth in 0..self.rows / 8 {
                    let far = (row * self.rows + 8 * eighth) as i64;
                    let i = code.binary(Binary::Add, Type::S32, first_row, far);
                    let inside = edge(code, i, product.m, self.tile[0]);
                    let line = destination.row(code, start, i);
                    for (fragment, at, j, below, shared) in &columns {
                        let valid = both(code, inside, *below);
                        let offset = destination.column(code, line, *j);
                        let run = Run { at: [position.batch, i, *j], offset, valid };
                        let first = 2 * eighth + at;
                        let values = &sums[*fragment][first..first + vector];
                        destination.store(code, functions, run, values, shared)?;
                    }
                }
            }
        }
        Ok(())
    }
}
