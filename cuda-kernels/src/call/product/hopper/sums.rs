//! The sums of a block's tile, and the products that are added to them.

use super::strip::Strip;
use super::{ROWS, Side, Tile};
use crate::call::index::divide;
use crate::call::product::fragments::{COLUMNS, Fragments};
use crate::ptx::descriptor::Layout;
use crate::ptx::hopper::{Hopper, Left, Product};
use crate::ptx::{Binary, Code, Compare, Inst, Reg, Rounding, Type};
use wengert_core::DType;

/// Products of 8-bit floats whose sum is made from 0 and then added in f32: 64 terms, as on Ada.
const CHAIN: usize = 2;

/// A lane's sums.
pub(super) struct Sums {
    pub fragments: Fragments,
    operands: [Type; 2],
    /// Products of a step.
    products: usize,
    /// The sums of each chain of a step; none if every product adds to the sums.
    chains: Vec<Vec<Reg>>,
    /// A predicate that holds, and one that does not.
    always: Reg,
    never: Reg,
}

impl Sums {
    pub fn new(code: &mut Code, thread: Reg, tile: Tile, strips: [&Strip<'_>; 2]) -> Sums {
        // Warp w has rows 16·w to 16·w + 15 of the tile.
        let (warp, lane) = divide(code, thread, 32);
        let (quad, within) = divide(code, lane, 4);
        let row = code.binary(Binary::Shl, Type::B32, warp, 4);
        let row = code.binary(Binary::Add, Type::S32, row, quad);
        let column = code.binary(Binary::Shl, Type::B32, within, 1);
        let fragment = |code: &mut Code| (0..4).map(|_| code.mov(Type::F32, 0f32)).collect();
        let sums = vec![(0..tile.columns / COLUMNS).map(|_| fragment(code)).collect()];
        let (extents, first, rows) = ([ROWS, tile.columns], [row, column], 16);
        let operands = strips.map(|strip| match strip.loader.gather.number.0 {
            DType::F16 => Type::F16,
            DType::BF16 => Type::BF16,
            DType::F8E4M3FN => Type::E4M3,
            DType::F8E5M2 => Type::E5M2,
            other => unreachable!("warpgroups are not asked for {other}"),
        });
        let products = strips[0].depth() / Product::depth(operands[0]) as usize;
        let chains = if operands[0].bytes() == 1 { products / CHAIN } else { 0 };
        let registers = 4 * tile.columns / COLUMNS;
        let chains =
            (0..chains).map(|_| (0..registers).map(|_| code.reg_of(Type::F32)).collect()).collect();
        let zero = code.mov(Type::S32, 0);
        let always = code.compare(Compare::Eq, Type::S32, zero, 0);
        let never = code.compare(Compare::Ne, Type::S32, zero, 0);
        let fragments = Fragments { tile: extents, first, rows, sums };
        Sums { fragments, operands, products, chains, always, never }
    }

    /// Begins the products of a buffer's strips: as a group, or each chain as one.
    pub fn begin(&self, code: &mut Code, sides: &[Side<'_>], buffer: Reg) {
        let far = code.binary(Binary::Shr, Type::U32, buffer, 4);
        let far = code.convert(Rounding::Exact, Type::U64, Type::U32, far);
        let start: Vec<Reg> = sides
            .iter()
            .map(|side| code.binary(Binary::Add, Type::U64, side.descriptor, far))
            .collect();
        let whole = self.fragments.sums[0].concat();
        code.push(Inst::Hopper(Hopper::ProductFence));
        for n in 0..self.products {
            let [a, b] = [0, 1].map(|side: usize| match sides[side].strip.at(n) {
                0 => start[side],
                far => code.binary(Binary::Add, Type::U64, start[side], Layout::step(far)),
            });
            let (d, adds) = match self.chains.get(n / CHAIN) {
                Some(chain) if n % CHAIN == 0 => (chain, self.never),
                Some(chain) => (chain, self.always),
                None => (&whole, self.always),
            };
            let transposed = [0, 1].map(|side: usize| sides[side].strip.is_transposed());
            let product =
                Product::new(self.operands, d.clone(), Left::Shared(a), b, adds, transposed);
            code.push(Inst::Hopper(Hopper::Product(product)));
            if n + 1 == self.products || (!self.chains.is_empty() && (n + 1) % CHAIN == 0) {
                code.push(Inst::Hopper(Hopper::ProductCommit));
            }
        }
    }

    /// Steps whose products may go on when [`end`](Self::end) has been executed.
    pub fn going_on(&self) -> usize {
        if self.chains.is_empty() { 1 } else { 0 }
    }

    /// Waits for the products of the last step; those that have just begun go on. Or waits for each
    /// chain, and adds its sums, while the next chain goes on.
    pub fn end(&self, code: &mut Code) {
        if self.chains.is_empty() {
            code.push(Inst::Hopper(Hopper::ProductWait(1)));
        }
        let whole = self.fragments.sums[0].concat();
        for (n, chain) in self.chains.iter().enumerate() {
            let others = self.chains.len() - 1 - n;
            code.push(Inst::Hopper(Hopper::ProductWait(others as u32)));
            for (sum, part) in whole.iter().zip(chain) {
                code.binary_into(*sum, Binary::Add, Type::F32, *sum, *part);
            }
        }
    }
}
