//! Products: `out[b, i, j] = epilogue(Σₖ lhs[b, i, k] · rhs[b, k, j])`, where the elements of lhs and rhs may be gathered.
//!
//! A GEMM is one, and so is a convolution in each of its directions (*implicit GEMM*: the matrix of patches is never made, its elements are found
//! by arithmetic on indices when a tile is loaded). These kernels make them:
//!
//! | kernel | for | bound by |
//! |---|---|---|
//! | [`tiled`] | every dtype | fused multiply-adds, if tiles are full |
//! | [`tensor`] | f16 and bf16; f64; f32 as tf32, where asked for | tensor cores |
//! | [`dot`] | one row or one column, where the matrix lies along the sum | memory |
//! | [`direct`] | one row or one column; groups of one or two channels | memory |
//!
//! Where few tiles have a long sum, the sum is split into parts that are whole numbers of tiles deep; they are written to the workspace, and a
//! second stage ([`sum`]) adds them up in their order. How many there are depends on the extents alone, and so do the bits.

mod direct;
mod dot;
mod finish;
mod gather;
mod loader;
mod sum;
mod tensor;
mod tiled;

pub(super) use gather::{ALIGNMENT, Digit, Gather, Meeting, Moves};

use super::index::{check_extent, digits};
use super::number::Number;
use crate::architecture::Architecture;
use crate::ptx::{Code, Reg};
use crate::stage::{Access, Compiled, Memory, Slot};
use wengert_core::call::Epilogue;
use wengert_core::{DType, Result};

/// A batch of products.
#[derive(Clone, Debug)]
pub(super) struct Product {
    /// What the kernels are called after.
    pub name: String,
    /// Products, that of a batch or of groups.
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
    /// Arguments of the call that lhs and rhs are.
    pub arguments: [usize; 2],
    /// Dtype of lhs and rhs.
    pub operand: DType,
    /// Dtype of out, bias and residual.
    pub result: DType,
    /// Where the elements of out lie; neighbouring columns are neighbours.
    pub out: Out,
    /// What becomes of sums; bias and residual are the arguments that follow lhs and rhs.
    pub epilogue: Epilogue,
    /// The argument of the call that out is.
    pub result_argument: usize,
    /// The argument whose memory is the result's.
    pub in_place: Option<usize>,
    /// Bytes of workspace that parts of sums may take.
    pub workspace: u64,
    /// Bytes that the addresses of out, bias and residual are multiples of.
    pub alignment: usize,
    /// Whether operands of f32 may be rounded to tf32.
    pub tf32: bool,
}

/// Where out lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Out {
    /// Distance of products.
    pub batch: i64,
    /// Distance of rows.
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
    /// The same product on addresses that are multiples of so many bytes.
    pub fn aligned(mut self, bytes: usize) -> Product {
        (self.alignment, self.lhs.alignment, self.rhs.alignment) = (bytes, bytes, bytes);
        self
    }

    /// The dtype of sums.
    fn sums(&self) -> Number {
        Number(self.operand).widened()
    }

    /// Whether tensor cores make it.
    fn tensor_cores(&self) -> bool {
        let dtype = match self.operand {
            DType::F16 | DType::BF16 | DType::F64 => true,
            DType::F32 => self.tf32,
            _ => false,
        };
        dtype && self.k > 0
    }

    fn bias_argument(&self) -> Option<usize> {
        self.epilogue.bias.then_some(2)
    }

    fn residual_argument(&self) -> Option<usize> {
        self.epilogue.residual.then_some(2 + self.epilogue.bias as usize)
    }

    /// The workspace that holds so many parts of every sum.
    fn parts_slot(&self, parts: usize, access: Access) -> Slot {
        let bytes = (parts * self.batch * self.m * self.n) as u64 * self.sums().size() as u64;
        Slot { memory: Memory::Workspace { offset: 0, bytes }, access }
    }

    /// Into how many parts the sums shall be split, if `tiles` blocks make them whole, and a part is at least `least` deep.
    fn parts(&self, tiles: usize, least: usize) -> usize {
        let bytes = (self.batch * self.m * self.n) as u64 * self.sums().size() as u64;
        let room = (self.workspace / bytes.max(1)) as usize;
        let wanted = FULL.div_ceil(tiles).min(self.k / least).min(room);
        if tiles >= FULL / 2 { 1 } else { wanted.max(1) }
    }

    /// Which part of the work a block does; columns of tiles follow each other, so that blocks side by side share rows of lhs in the cache.
    fn position(&self, code: &mut Code, block: Reg, [rows, columns]: [usize; 2], parts: usize) -> Position {
        use crate::ptx::{Binary, Type};
        let tiles = [self.m.div_ceil(rows), self.n.div_ceil(columns)];
        let all = digits(code, block, &[self.batch, parts, tiles[0], tiles[1]]);
        let row = code.binary(Binary::Mul, Type::S32, all[2], rows as i64);
        let column = code.binary(Binary::Mul, Type::S32, all[3], columns as i64);
        Position { batch: all[0], part: all[1], row, column }
    }
}

/// Blocks that keep a large GPU busy: two for each of its multiprocessors.
const FULL: usize = 256;

/// The kernels of a product.
///
/// Errors: an extent is beyond what kernels count to.
pub(super) fn compile(product: &Product, architecture: Architecture) -> Result<Compiled> {
    if product.batch == 0 || product.m == 0 || product.n == 0 {
        return Ok(Compiled { stages: vec![], workspace: 0 });
    }
    for (what, extent) in [("m", product.m), ("n", product.n), ("k", product.k), ("batch", product.batch)] {
        check_extent(what, extent)?;
    }
    let mut product = product.clone();
    if product.batch == 1 {
        // A distance that nothing moves by would only keep vectors from being loaded.
        (product.lhs.batch, product.rhs.batch, product.out.batch) = (0, 0, 0);
    }
    let product = &product;
    let thin = product.m.min(product.n);
    let (stage, parts) = match () {
        () if thin == 1 && product.k >= 64 && dot::fits(product) => dot::stage(product)?,
        () if thin == 1 || (thin == 2 && product.batch > 1) => direct::stage(product)?,
        () if product.tensor_cores() => tensor::stage(product, architecture)?,
        () => tiled::stage(product)?,
    };
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
