//! Products: `out[b, i, j] = Σₖ lhs[b, i, k] · rhs[b, k, j] + addends`, where the elements of lhs
//! and rhs may be gathered.
//!
//! A GEMM is a product, and so is a convolution in each of its directions (*implicit GEMM*: the
//! matrix of patches is never materialised; its addresses are computed from indices when a tile
//! is loaded). These kernels compute products:
//!
//! | kernel | for | bound by |
//! |---|---|---|
//! | [`tiled`] | every dtype | fused multiply-adds, if tiles are full |
//! | [`tensor`] | halves; 8-bit floats; f64; f32 as tf32, where asked for | tensor cores |
//! | [`hopper`] | large matrices of halves or 8-bit floats, on Hopper | tensor cores |
//! | [`few`] | up to 8 rows, where the matrix lies along the columns | memory |
//! | [`dot`] | up to 8 rows or columns, where the matrix lies along the sum | memory |
//! | [`direct`] | one row or one column elsewhere; groups of one or two channels | memory |
//!
//! Where few tiles have a long sum, the sum is split into parts whose depths are multiples of the
//! tile's. The parts are written to the workspace, and a second stage ([`sum`]) adds them up in
//! order. Their number depends on the extents alone, and so do the bits.

mod direct;
mod dot;
mod few;
mod finish;
mod fragments;
mod gather;
mod hopper;
mod loader;
mod sum;
mod tensor;
mod tiled;

pub(super) use gather::{ALIGNMENT, Digit, Gather, Meeting, Moves};

use super::Terms;
use super::index::{check_extent, digits};
use super::number::Number;
use crate::nest::Follower;
use crate::ptx::{Code, Reg};
use crate::stage::{Access, Compiled, Memory, Slot, Stage};
use wengert_core::call::{Addends, Contract, Scales};
use wengert_core::{DType, Result};

/// A batch of products.
#[derive(Clone, Debug)]
pub(super) struct Product {
    /// Prefix of the kernels' names.
    pub name: String,
    /// Number of products: the batch, or the groups.
    pub batch: usize,
    /// Rows of lhs and out.
    pub m: usize,
    /// Columns of rhs and out.
    pub n: usize,
    /// Terms of a sum.
    pub k: usize,
    /// Elements of the first operand.
    pub lhs: Gather,
    /// Elements of the second operand.
    pub rhs: Gather,
    /// Indices of lhs and rhs among the call's arguments.
    pub arguments: [usize; 2],
    /// Dtype of lhs, and of rhs, but for 8-bit floats.
    pub operand: DType,
    /// What sums are multiplied by; the arguments after lhs and rhs.
    pub scales: Option<Scales>,
    /// Dtype of out and addends.
    pub result: DType,
    /// Layout of out; neighbouring columns are contiguous.
    pub out: Out,
    /// Added to sums; bias and residual are the arguments after lhs, rhs and scales.
    pub addends: Addends,
    /// The nest that runs on the result's elements.
    pub follower: Option<Follower>,
    /// Index of out among the call's arguments.
    pub result_argument: usize,
    /// The argument that the result aliases.
    pub in_place: Option<usize>,
    /// Bytes of workspace for parts of sums.
    pub workspace: u64,
    /// Alignment of out, bias and residual, in bytes.
    pub alignment: usize,
    /// Whether f32 operands may be rounded to tf32.
    pub tf32: bool,
}

/// Layout of out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Out {
    /// Stride of the products.
    pub batch: i64,
    /// Stride of the rows.
    pub row: i64,
}

/// A block's part of the work.
struct Position {
    batch: Reg,
    part: Reg,
    row: Reg,
    column: Reg,
}

impl Product {
    /// The same product on addresses with an alignment of `bytes`.
    pub fn aligned(mut self, bytes: usize) -> Product {
        (self.alignment, self.lhs.alignment, self.rhs.alignment) = (bytes, bytes, bytes);
        self
    }

    /// The dtype of sums.
    fn sums(&self) -> Number {
        Number(self.operand).widened()
    }

    /// Whether tensor cores compute it.
    fn tensor_cores(&self) -> bool {
        let dtype = match self.operand {
            DType::F16 | DType::BF16 | DType::F64 | DType::F8E4M3FN | DType::F8E5M2 => true,
            DType::F32 => self.tf32,
            _ => false,
        };
        dtype && self.k > 0
    }

    fn bias_argument(&self) -> Option<usize> {
        self.addends.bias.then_some(2 + 2 * usize::from(self.scales.is_some()))
    }

    fn residual_argument(&self) -> Option<usize> {
        let before = 2 * usize::from(self.scales.is_some()) + usize::from(self.addends.bias);
        self.addends.residual.then_some(2 + before)
    }

    /// The workspace for `parts` parts of every sum.
    fn parts_slot(&self, parts: usize, access: Access) -> Slot {
        let bytes = (parts * self.batch * self.m * self.n) as u64 * self.sums().size() as u64;
        Slot { memory: Memory::Workspace { offset: 0, bytes }, access }
    }

    /// The number of parts that sums are split into, if `tiles` blocks would compute them whole,
    /// and a part is at least `least` deep.
    fn parts(&self, tiles: usize, least: usize) -> usize {
        let bytes = (self.batch * self.m * self.n) as u64 * self.sums().size() as u64;
        let room = (self.workspace / bytes.max(1)) as usize;
        let wanted = FULL.div_ceil(tiles).min(self.k / least).min(room);
        if tiles >= FULL / 2 { 1 } else { wanted.max(1) }
    }

    /// The position of a block's work. Tiles along columns are consecutive, so that neighbouring
    /// blocks share rows of lhs in the cache.
    fn position(
        &self,
        code: &mut Code,
        block: Reg,
        [rows, columns]: [usize; 2],
        parts: usize,
    ) -> Position {
        use crate::ptx::{Binary, Type};
        let tiles = [self.m.div_ceil(rows), self.n.div_ceil(columns)];
        let all = digits(code, block, &[self.batch, parts, tiles[0], tiles[1]]);
        let row = code.binary(Binary::Mul, Type::S32, all[2], rows as i64);
        let column = code.binary(Binary::Mul, Type::S32, all[3], columns as i64);
        Position { batch: all[0], part: all[1], row, column }
    }
}

/// Most rows, or columns, that are few: each load of the larger operand serves all of them, and the
/// multiply-adds take less time than the loads.
pub(super) const FEW: usize = 8;
/// Fewest terms of a sum that lanes divide.
const SUM: usize = 64;

/// Blocks that fill a large GPU: two for each of its multiprocessors.
const FULL: usize = 256;

/// Parts into which the sum of a product may be split.
const SPLITS: u64 = 8;
/// Most bytes of workspace of a product: the amount that cuBLASLt's algorithms request on Hopper.
const MAX_WORKSPACE: u64 = 32 << 20;

/// Workspace of a product: its sum may be split into parts, which are then added in a fixed order.
pub(super) fn workspace(call: &impl Contract) -> u64 {
    let [result] = call.results().try_into().expect("a product has one result");
    let elements = result.elements().map_or(u64::MAX, |n| n as u64);
    elements.saturating_mul(4 * SPLITS).min(MAX_WORKSPACE)
}

/// Whether a kernel that reads the larger operand once, for a few rows of the other, is faster than
/// the library. For several rows of halves the library's are faster: tensor cores multiply them in
/// the time of the loads.
pub(super) fn reads_once(product: &Product) -> bool {
    if product.operand.is_float8() {
        return false;
    }
    let one = product.m.min(product.n) == 1;
    (one || !product.operand.is_half()) && (few::fits(product) || dot::fits(product))
}

/// The kernels of a product.
///
/// Errors: an extent is larger than kernels can count.
pub(super) fn compile(product: &Product, terms: &Terms<'_>) -> Result<Compiled> {
    if product.batch == 0 || product.m == 0 || product.n == 0 {
        return Ok(Compiled { stages: vec![], workspace: 0 });
    }
    let product = &prepared(product, terms)?;
    let (stage, parts) = chosen(product, terms)?;
    finished(product, stage, parts)
}

/// The kernels of a product that warpgroups compute, however small the matrices are; none if they
/// have no such layout. Tiles of halves have 256 columns (`wide`) or 128.
#[cfg(test)]
pub(super) fn in_warpgroups(
    product: &Product,
    terms: &Terms<'_>,
    wide: bool,
) -> Result<Option<Compiled>> {
    let product = &prepared(product, terms)?;
    if !hopper::can(product, terms.architecture) {
        return Ok(None);
    }
    let (stage, parts) = match wide {
        _ if product.operand.is_float8() => hopper::stage(product)?,
        true => hopper::stage_of(product, hopper::WIDE)?,
        false => hopper::stage_of(product, hopper::NARROW)?,
    };
    finished(product, stage, parts).map(Some)
}

/// A product as its kernels see it.
fn prepared(product: &Product, terms: &Terms<'_>) -> Result<Product> {
    for (what, extent) in
        [("m", product.m), ("n", product.n), ("k", product.k), ("batch", product.batch)]
    {
        check_extent(what, extent)?;
    }
    let follower = terms.follower.cloned();
    let mut product =
        Product { tf32: terms.tf32, follower, ..product.clone() }.aligned(terms.alignment);
    if product.batch == 1 {
        // A stride of a batch of one moves nothing, but would prevent vector loads.
        (product.lhs.batch, product.rhs.batch, product.out.batch) = (0, 0, 0);
    }
    Ok(product)
}

/// The first stage of a product, and the number of parts of each sum.
fn chosen(product: &Product, terms: &Terms<'_>) -> Result<(Stage, usize)> {
    let thin = product.m.min(product.n);
    match () {
        // The order of sums depends on their length alone; without workspace they are not split.
        () if terms.batch_invariant => {
            let product = Product { workspace: 0, ..product.clone() };
            match () {
                () if product.batch > 1 && product.n <= 2 && !product.operand.is_float8() => {
                    direct::stage(&product)
                }
                () if product.tensor_cores() => tensor::stage(&product, terms.architecture),
                () => tiled::stage(&product),
            }
        }
        () if hopper::fits(product, terms.architecture) => hopper::stage(product),
        () if product.operand.is_float8() && product.tensor_cores() => {
            tensor::stage(product, terms.architecture)
        }
        () if few::fits(product) => few::stage(product),
        () if dot::fits(product) => dot::stage(product),
        () if thin == 1 || (thin == 2 && product.batch > 1) => direct::stage(product),
        () if product.tensor_cores() => tensor::stage(product, terms.architecture),
        () => tiled::stage(product),
    }
}

/// The stages of a product, from the first one on.
fn finished(product: &Product, stage: Stage, parts: usize) -> Result<Compiled> {
    let mut stages = vec![stage];
    if parts > 1 {
        stages.push(sum::stage(product, parts)?);
    }
    let workspace = match product.parts_slot(parts, Access::Read).memory {
        Memory::Workspace { bytes, .. } if parts > 1 => bytes,
        _ => 0,
    };
    Ok(Compiled { stages, workspace })
}
