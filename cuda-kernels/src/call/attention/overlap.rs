//! The loop of the forward kernel where sums overlap with the softmax of the next block.
//!
//! The softmax of a block waits for the block's scores, and the sum of weighted rows waits for the
//! softmax. In the order of [`Columns::each`] a warpgroup therefore multiplies or computes powers,
//! never both. Here a step adds the rows of the block before, while it computes its own weights
//! (Shah and others, *FlashAttention-3*, 2024, section 3.2):
//!
//! ```text
//! scores 0, weights 0
//! for n in 1..:   begin scores n; begin sums += weights n-1 · values n-1;
//!                 wait for the scores; weights n; wait for the sums; rescale them; pack weights n
//! sums += weights of the last block · its values
//! ```
//!
//! Packed weights stay in registers from a step to the next, so registers hold a block of scores, a
//! block of packed weights and the sums. Values arrive one step after keys. Both have two buffers:
//!
//! | during step n | buffer n mod 2 | the other buffer |
//! |---|---|---|
//! | keys | block n is read | block n + 1 arrives |
//! | values | block n arrives | block n − 1 is read |
//!
//! The rescaling follows the sum of the block before, as in the other order, so each number is
//! computed by the same operations.

use super::Engine;
use super::columns::Columns;
use super::forward::{Rescaled, Steps};
use super::rows::Tile;
use crate::ptx::{Binary, Code, Compare, Inst, Reg, Type};
use crate::scalar::Functions;

/// An engine whose weighted sums go on while the thread computes, from weights that it has packed.
pub(super) trait Overlapped: Engine {
    /// Registers of a block of packed weights.
    fn packed(&self, code: &mut Code) -> Vec<Reg>;
    /// Packs weights. No product may still read the registers.
    fn pack(&self, code: &mut Code, weights: &[Reg], packed: &[Reg]);
    /// [`Engine::accumulate`] with packed weights.
    fn accumulate_packed(&self, code: &mut Code, sums: &[Reg], packed: &[Reg], columns: &Tile);
}

/// The loop.
pub(super) struct Overlap<'a> {
    /// Keys and values.
    pub columns: &'a Columns<'a>,
    pub engine: &'a dyn Overlapped,
    pub steps: &'a Steps<'a>,
}

const KEYS: usize = 0;
const VALUES: usize = 1;

impl Overlap<'_> {
    /// Emits it for the keys of a range and the queries of a tile, which is being loaded.
    pub fn each(
        &self,
        code: &mut Code,
        functions: &mut Functions,
        queries: &Tile,
        [from, to]: [Reg; 2],
    ) {
        let Overlap { engine, steps, .. } = *self;
        let sums = &steps.running.sums;
        let step = engine.extents()[1] as i64;
        let distance = engine.ahead();
        let some = code.compare(Compare::Lt, Type::S32, from, to);
        let (first, second) = (code.mov(Type::U32, 0), code.mov(Type::U32, distance));
        code.when(some, |code| self.load(code, KEYS, from, first));
        engine.send(code);
        engine.arrive(code);
        code.push(Inst::Barrier);
        let held = engine.hold(code, queries);
        code.when(some, |code| {
            let next = code.binary(Binary::Add, Type::S32, from, step);
            self.request(code, [next, to], second, [from, first]);
            let keys = self.tile(code, KEYS, first);
            let pending = engine.begin(code, &held, &keys);
            let products = engine.product(code, pending, None);
            // Sums are zeros: there is nothing to rescale.
            let (weights, _) = steps.weights(code, functions, products, from, Rescaled::Later);
            let packed = engine.packed(code);
            engine.pack(code, &weights, &packed);
            // The buffer of the step's keys.
            let now = code.mov(Type::U32, distance);
            code.count(next, to, step, |code, from| {
                engine.arrive(code);
                code.push(Inst::Barrier);
                let other = code.binary(Binary::Sub, Type::U32, distance, now);
                let next = code.binary(Binary::Add, Type::S32, from, step);
                self.request(code, [next, to], other, [from, now]);
                let keys = self.tile(code, KEYS, now);
                let values = self.tile(code, VALUES, other);
                let pending = engine.begin(code, &held, &keys);
                engine.accumulate_packed(code, sums, &packed, &values);
                let products = engine.product(code, pending, None);
                let (weights, moved) =
                    steps.weights(code, functions, products, from, Rescaled::Later);
                let moved = moved.expect("an engine that overlaps approximates powers");
                steps.running.catch_up(code, engine, &moved);
                engine.pack(code, &weights, &packed);
                code.assign(Type::U32, now, other);
            });
            engine.arrive(code);
            code.push(Inst::Barrier);
            let last = code.binary(Binary::Sub, Type::U32, distance, now);
            let values = self.tile(code, VALUES, last);
            engine.accumulate_packed(code, sums, &packed, &values);
            engine.settle(code);
        });
    }

    /// Keys or values in the buffer that begins `place` bytes after the first one.
    fn tile(&self, code: &mut Code, part: usize, place: Reg) -> Tile {
        let tile = self.columns.tiles[part];
        Tile { base: code.binary(Binary::Add, Type::U32, tile.base, place), ..tile }
    }

    fn load(&self, code: &mut Code, part: usize, from: Reg, place: Reg) {
        let tile = self.tile(code, part, place);
        self.engine.fill(code, &self.columns.rows[part], from, &tile);
    }

    /// Asks for the keys of the next block, if there is one, and for the values of this one.
    fn request(
        &self,
        code: &mut Code,
        [next, to]: [Reg; 2],
        to_keys: Reg,
        [from, to_values]: [Reg; 2],
    ) {
        let more = code.compare(Compare::Lt, Type::S32, next, to);
        code.when(more, |code| self.load(code, KEYS, next, to_keys));
        self.load(code, VALUES, from, to_values);
        self.engine.send(code);
    }
}
