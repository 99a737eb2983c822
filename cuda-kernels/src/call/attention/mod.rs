//! Attention, forward and backward, without a matrix of scores in memory (Dao and others, *FlashAttention*, 2022; Dao, *FlashAttention-2*, 2023).
//!
//! A block of threads has a block of the rows of one head and goes along the blocks of its columns, both in shared memory; what a block of scores is made
//! into never leaves the multiprocessor.
//!
//! | kernel | rows | columns | a block of rows has | for each block of columns |
//! |---|---|---|---|---|
//! | [`forward`] | queries | keys | out, l | `s = q·kᵀ`, `out += exp(s − max)·v` |
//! | [`backward`], of queries | queries | keys | q̄ | `s = q·kᵀ`, `p̄ = c̄·vᵀ`, `q̄ += s̄·k` |
//! | [`backward`], of keys | keys | queries | k̄, v̄ | `sᵀ = k·qᵀ`, `p̄ᵀ = v·c̄ᵀ`, `v̄ += pᵀ·c̄`, `k̄ += s̄ᵀ·q` |
//!
//! Backward, scores are made twice, once for each kernel: seven products instead of five. In return every sum has one block of threads, that adds in a fixed
//! order: nothing is atomic, nothing is zeroed before, and no sums of the cotangents lie in memory.
//!
//! All three are the same two products (of rows with columns, and of what became of that with rows of columns) with different things between, so they are
//! written once, on an [`Engine`] that holds blocks of scores in registers and multiplies.
//!
//! Columns that no row of a block sees are left out. Rows and columns behind the last ones are zeros in shared memory; what they make is hidden like what a mask hides.

mod backward;
mod columns;
mod fma;
mod forward;
mod mma;
mod rows;

use super::draft::Draft;
use super::index::{advance, check_extent, digits};
use super::number::{Number, Place};
use crate::ptx::{Binary, Code, Compare, Operand, Reg, Space, Ternary, Type, Unary};
use crate::scalar::{self, Functions};
use crate::stage::{Access, Compiled, Memory, Slot};
use mma::Work;
use rows::{Rows, Tile};
use wengert_core::Result;
use wengert_core::call::Attention;
use wengert_core::nest::ScalarOp;

/// Which numbers of a block, of rows or of columns, a thread has scores of.
#[derive(Clone, Debug)]
struct Slots {
    /// The first.
    first: Reg,
    /// Distances of all from the first.
    far: Vec<i64>,
}

/// Multiplies blocks. Scores of a thread are listed row by row, and so are the sums that weighed rows are added up to.
trait Engine {
    /// Rows and columns of a block.
    fn extents(&self) -> [usize; 2];
    /// Threads of a block of threads.
    fn threads(&self) -> usize;
    /// Blocks of threads that shall be resident on a multiprocessor. Where nothing is said, ptxas takes fewer registers than it needs, for one more.
    fn resident(&self) -> u32;
    /// The dtype of sums.
    fn sums(&self) -> Number;
    /// Whether powers may be those that the machine approximates.
    fn approximates(&self) -> bool;
    /// Rows of the thread.
    fn rows(&self) -> &Slots;
    /// Columns of the thread.
    fn columns(&self) -> &Slots;
    /// The bits in which lanes differ that share rows.
    fn lanes(&self) -> &[i64];
    /// Loads rows of a head, from one on, into a tile; those of others may still be on their way.
    fn fill(&self, code: &mut Code, rows: &Rows, first: Reg, tile: &Tile);
    /// Bytes from a tile of columns to the other one, into which columns may be loaded while these are computed with; 0 if there is no other.
    fn ahead(&self) -> i64;
    /// Ends what the thread has loaded into tiles so far.
    fn send(&self, code: &mut Code);
    /// Waits for what the thread has loaded into tiles.
    fn arrive(&self, code: &mut Code);
    /// Scores of the thread: sums of products of the rows of two tiles.
    fn product(&self, code: &mut Code, rows: &Tile, columns: &Tile) -> Vec<Reg>;
    /// Sums that are 0.
    fn zeros(&self, code: &mut Code) -> Vec<Reg>;
    /// Adds the rows of a tile, weighed by a block of scores, to sums. All threads do it, and none may have used scores of others before.
    fn accumulate(&self, code: &mut Code, sums: &[Reg], weights: &[Reg], columns: &Tile);
    /// Stores sums as rows of a head, from one on.
    fn store(&self, code: &mut Code, sums: &[Reg], rows: &Rows, first: Reg);
}

/// A call, and what its addresses are multiples of.
struct Problem<'a> {
    call: &'a Attention,
    alignment: usize,
}

impl Problem<'_> {
    fn wide(&self) -> Number {
        Number(self.call.wide())
    }

    /// Queries, keys and values: the argument that each is a part of.
    fn operand(&self, part: usize) -> usize {
        if self.call.packed { 0 } else { part }
    }

    /// The pointers of queries, keys and values.
    fn three(&self, draft: &mut Draft) -> [Reg; 3] {
        if self.call.packed {
            return [draft.pointer("qkv", Slot::read(0)); 3];
        }
        [("q", 0), ("k", 1), ("v", 2)].map(|(name, n)| draft.pointer(name, Slot::read(n)))
    }

    /// The pointer of the bias, if there is one.
    fn bias(&self, draft: &mut Draft) -> Option<Reg> {
        let argument = self.call.packed_or_three();
        (!self.call.bias.is_empty()).then(|| draft.pointer("bias", Slot::read(argument)))
    }

    /// A result of which a kernel writes a part: the cotangents of one of queries, keys and values.
    fn cotangent(&self, draft: &mut Draft, name: &str, part: usize) -> Reg {
        let argument = self.call.primals() + 3 + self.operand(part);
        let access = if self.call.packed { Access::ReadWrite } else { Access::Write };
        draft.pointer(name, Slot { memory: Memory::Argument(argument), access })
    }

    /// Example, head and number of the block of rows of a block of threads. Those of a head follow each other, since they read the same columns; under a causal mask those with
    /// most to do come first, which of queries are the last.
    fn position(&self, code: &mut Code, block: Reg, blocks: usize, last_first: bool) -> ([Reg; 2], Reg) {
        let all = digits(code, block, &[self.call.batch, self.call.heads, blocks]);
        let block = match last_first {
            true => code.binary(Binary::Sub, Type::S32, blocks as i64 - 1, all[2]),
            false => all[2],
        };
        ([all[0], all[1]], block)
    }

    /// What is added to the scores of a head.
    fn bias_of(&self, code: &mut Code, pointer: Option<Reg>, [b, n]: [Reg; 2]) -> Option<Bias> {
        let pointer = pointer?;
        let (call, size) = (self.call, self.wide().size());
        let head = (call.bias[2] * call.keys) as i64 * size;
        let distance = |axis: usize, bytes: i64| if call.bias[axis] == 1 { 0 } else { bytes };
        let of_example = advance(code, pointer, b, distance(0, call.bias[1] as i64 * head));
        let address = advance(code, of_example, n, distance(1, head));
        Some(Bias { address, row: distance(2, call.keys as i64 * size) })
    }

    /// Where l, or m, of a head begins.
    fn logarithms(&self, code: &mut Code, pointer: Reg, [b, n]: [Reg; 2]) -> Reg {
        let bytes = self.call.queries as i64 * self.wide().size();
        let of_example = advance(code, pointer, b, self.call.heads as i64 * bytes);
        advance(code, of_example, n, bytes)
    }
}

/// What is added to the scores of one head.
#[derive(Clone, Copy)]
struct Bias {
    address: Reg,
    /// Bytes from a query's to the next's.
    row: i64,
}

/// A block of scores as a thread sees it.
struct Block<'a> {
    problem: &'a Problem<'a>,
    engine: &'a dyn Engine,
    /// Whether rows are keys and columns queries.
    across: bool,
    bias: Option<Bias>,
    /// First row and first column.
    first: [Reg; 2],
}

impl Block<'_> {
    /// Rows and columns of the thread.
    fn slots(&self) -> [&Slots; 2] {
        [self.engine.rows(), self.engine.columns()]
    }

    /// Queries and keys among rows and columns.
    fn queries_and_keys(&self) -> [usize; 2] {
        if self.across { [1, 0] } else { [0, 1] }
    }

    /// Scores from products, in the unit of powers: scaled, and with their bias.
    fn scored(&self, code: &mut Code, products: &[Reg]) -> Vec<Reg> {
        let (wide, call) = (self.problem.wide(), self.problem.call);
        let scale = scale(call, self.engine);
        let scores: Vec<Reg> =
            products.iter().map(|p| code.binary(Binary::Mul, wide.wide(), *p, scale.clone())).collect();
        let Some(bias) = self.bias else { return scores };
        let slots = self.slots();
        let [of_queries, of_keys] = self.queries_and_keys();
        let columns = slots[1].far.len();
        let begins = [0, 1].map(|n| code.binary(Binary::Add, Type::S32, self.first[n], slots[n].first));
        let mut sums = scores.clone();
        for (i, query) in slots[of_queries].far.iter().enumerate() {
            let t = code.binary(Binary::Add, Type::S32, begins[of_queries], *query);
            let inside = code.compare(Compare::Lt, Type::S32, t, call.queries as i64);
            let row = advance(code, bias.address, t, bias.row);
            let row = advance(code, row, begins[of_keys], wide.size());
            for (j, key) in slots[of_keys].far.iter().enumerate() {
                let s = code.binary(Binary::Add, Type::S32, begins[of_keys], *key);
                let valid = code.compare(Compare::Lt, Type::S32, s, call.keys as i64);
                let valid = code.binary(Binary::And, Type::Pred, valid, inside);
                let place = Place { address: row, offset: key * wide.size(), valid: Some(valid) };
                let added = wide.load(code, Space::Global, place, 1)[0];
                let at = if self.across { j * columns + i } else { i * columns + j };
                let unit = unit(self.engine);
                sums[at] = code.ternary(Ternary::Fma, wide.wide(), added, unit, scores[at]);
            }
        }
        sums
    }

    /// Writes over what belongs to a query and a key that it does not see, or that is not there.
    fn hide(&self, code: &mut Code, values: &[&[Reg]], hidden: f64) {
        let (call, tiles) = (self.problem.call, self.engine.extents());
        let [of_queries, of_keys] = self.queries_and_keys();
        let (queries, keys) = (self.first[of_queries], self.first[of_keys]);
        let extents = if self.across { [call.keys, call.queries] } else { [call.queries, call.keys] };
        // Nothing is hidden in most blocks. What rows that are not there make is never stored; columns that are not there are added up.
        let mut some: Option<Reg> = None;
        let mut or = |code: &mut Code, one: Reg| {
            some = Some(match some {
                None => one,
                Some(other) => code.binary(Binary::Or, Type::Pred, one, other),
            });
        };
        if call.causal {
            let last = code.binary(Binary::Add, Type::S32, keys, tiles[of_keys] as i64 - 1);
            let later = code.compare(Compare::Gt, Type::S32, last, queries);
            or(code, later);
        }
        if !extents[1].is_multiple_of(tiles[1]) {
            let end = code.binary(Binary::Add, Type::S32, self.first[1], tiles[1] as i64);
            let beyond = code.compare(Compare::Gt, Type::S32, end, extents[1] as i64);
            or(code, beyond);
        }
        let Some(some) = some else { return };
        let wide = self.engine.sums();
        let value = if hidden == 0.0 { wide.zero() } else { wide.constant(hidden) };
        code.when(some, |code| {
            let slots = self.slots();
            let begins = [0, 1].map(|n| code.binary(Binary::Add, Type::S32, self.first[n], slots[n].first));
            let columns = slots[1].far.len();
            for (j, column) in slots[1].far.iter().enumerate() {
                let at_column = code.binary(Binary::Add, Type::S32, begins[1], *column);
                let beyond = (!extents[1].is_multiple_of(tiles[1]))
                    .then(|| code.compare(Compare::Ge, Type::S32, at_column, extents[1] as i64));
                for (i, row) in slots[0].far.iter().enumerate() {
                    let mut gone = beyond;
                    if call.causal {
                        let at_row = code.binary(Binary::Add, Type::S32, begins[0], *row);
                        let (t, s) = if self.across { (at_column, at_row) } else { (at_row, at_column) };
                        let later = code.compare(Compare::Gt, Type::S32, s, t);
                        gone = Some(match gone {
                            None => later,
                            Some(other) => code.binary(Binary::Or, Type::Pred, later, other),
                        });
                    }
                    let gone = gone.expect("something may be hidden");
                    for block in values {
                        let to = block[i * columns + j];
                        let kept = code.select(wide.wide(), value.clone(), to, gone);
                        code.assign(wide.wide(), to, kept);
                    }
                }
            }
        });
    }
}

/// What scores are multiplied by so that [`power`] takes them: 1, or log₂ e for powers of 2.
fn unit(engine: &dyn Engine) -> Operand {
    let powers_of_two = engine.approximates();
    engine.sums().constant(if powers_of_two { std::f64::consts::LOG2_E } else { 1.0 })
}

/// The scale, in that unit.
fn scale(call: &Attention, engine: &dyn Engine) -> Operand {
    let unit = if engine.approximates() { std::f64::consts::LOG2_E } else { 1.0 };
    engine.sums().constant(call.scale.to_f64() * unit)
}

/// The power of a score in that unit.
fn power(code: &mut Code, functions: &mut Functions, engine: &dyn Engine, x: Reg) -> Reg {
    if engine.approximates() {
        return code.unary(Unary::Exp2, Type::F32, x);
    }
    let dtype = engine.sums().0;
    scalar::emit(code, functions, ScalarOp::Exp, &[dtype], dtype, &[x])
        .expect("exp of f32 and of f64 has a program")
}

/// The number of the first of a block.
fn begin(code: &mut Code, block: Reg, tile: usize) -> Reg {
    code.binary(Binary::Mul, Type::S32, block, tile as i64)
}

/// The engine of a kernel that goes along so many rows, and its tiles: so many of rows, and two of columns.
fn engine(draft: &mut Draft, call: &Attention, work: Work, rows: usize) -> (Box<dyn Engine>, Vec<Tile>) {
    let tiles = [if work == Work::Forward { 1 } else { 2 }, 2];
    if call.dtype.is_half() && call.width <= mma::WIDEST {
        let shape = mma::Shape::new(call.dtype, call.width, rows, work);
        let (engine, tiles) = mma::Mma::new(draft, shape, tiles);
        return (Box::new(engine), tiles);
    }
    let tiles = tiles[0] + tiles[1];
    let shape = fma::Shape::new(Number(call.wide()), call.width, tiles);
    let (engine, tiles) = fma::Fma::new(draft, shape, tiles);
    (Box::new(engine), tiles)
}

/// The kernels of an attention.
///
/// Errors: an extent is beyond what kernels count to.
pub(super) fn compile(call: &Attention, alignment: usize) -> Result<Compiled> {
    for (what, extent) in
        [("queries", call.queries), ("keys", call.keys), ("heads", call.heads), ("batch", call.batch)]
    {
        check_extent(what, extent)?;
    }
    let problem = Problem { call, alignment };
    let stages = match call.backward {
        false => vec![forward::stage(&problem)?],
        true => vec![backward::stage(&problem, false)?, backward::stage(&problem, true)?],
    };
    Ok(Compiled { stages, workspace: 0 })
}
