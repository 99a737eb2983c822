//! Attention, forward and backward, without a matrix of scores in memory (Dao and others,
//! *FlashAttention*, 2022; Dao, *FlashAttention-2*, 2023).
//!
//! A block of threads owns a block of the rows of one head. It iterates over the blocks of
//! columns of that head. Both are in shared memory; scores, and values computed from them, never
//! leave the multiprocessor.
//!
//! | kernel | rows | columns | a block of rows has | for each block of columns |
//! |---|---|---|---|---|
//! | [`forward`] | queries | keys | out, l | `s = q·kᵀ`, `out += exp(s − max)·v` |
//! | [`backward`], of queries | queries | keys | q̄ | `s = q·kᵀ`, `p̄ = c̄·vᵀ`, `q̄ += s̄·k` |
//! | [`backward`], of keys | keys | queries | k̄, v̄ | `sᵀ = k·qᵀ`, `p̄ᵀ = v·c̄ᵀ`, `v̄ += pᵀ·c̄`, `k̄ += s̄ᵀ·q` |
//!
//! Few queries to many keys, as in decoding, have a plan of their own ([`decode`]), which divides
//! the keys among blocks of threads. Its two kernels are not written on an [`Engine`].
//!
//! | kernel of [`decode`] | a block of threads has | result |
//! |---|---|---|
//! | `partial` | a range of keys, and all rows of its head of keys | partial results, in the workspace |
//! | `combine` | a row, and some columns | out, l |
//!
//! The backward pass computes scores twice, once in each kernel: seven products instead of five.
//! In return, each sum belongs to one block of threads, which adds in a fixed order. So there are
//! no atomics, no buffers to zero first, and no partial sums of cotangents in memory.
//!
//! The three kernels of the first table consist of the same two products, with different
//! elementwise work between them: rows by columns, and the result of that work by rows of columns.
//! So they are written once, on an [`Engine`] that holds blocks of scores in registers and
//! multiplies: [`fma`] for every dtype, [`mma`] for halves, [`wgmma`] for halves on Hopper.
//!
//! Blocks of columns that no row of a block sees are skipped. Keys and values that no query of a
//! block sees are not loaded: beyond a prefix they may be NaN. Rows and columns beyond the last
//! ones are zeros in shared memory; their scores are hidden like masked ones.

mod backward;
mod columns;
mod decode;
mod fma;
mod forward;
mod mma;
mod overlap;
mod rows;
mod scores;
mod wgmma;

use super::draft::Draft;
use super::index::{advance, check_extent, digits, quotient};
use super::number::Number;
use super::{Kernels, Terms};
use crate::ptx::{Binary, Code, Compare, Reg, Space, Type};
use crate::stage::{Access, Compiled, Memory, Slot};
use overlap::Overlapped;
use rows::{Held, Rows, Tile};
use scores::{Bias, Powers};
use wengert_core::call::{Attention, Contract};
use wengert_core::{DType, Diagnostic, Result};

/// The rows, or columns, of a block of which a thread holds scores.
#[derive(Clone, Debug)]
struct Slots {
    /// The first.
    first: Reg,
    /// Distances of all of them from the first.
    far: Vec<i64>,
}

impl Slots {
    /// Whether they are pairs of neighbours.
    fn pairs(&self) -> bool {
        self.far.chunks(2).all(|pair| matches!(pair, [a, b] if *b == a + 1))
    }
}

/// Emits the numbers that are added to the scores of a thread.
type Added<'a> = &'a dyn Fn(&mut Code) -> Vec<Reg>;

/// A number in two registers. A lane's accumulators of a fragment of scores are four consecutive
/// registers, in which a number of a row or of a column occurs twice.
type Twice = [Reg; 2];

/// Products of the rows of two tiles that have begun, or, if the engine's products are
/// synchronous, that are still to be computed.
struct Pending<'a> {
    rows: &'a Held,
    columns: Tile,
    /// Scores that are being computed; none if the products have not begun.
    sums: Vec<Reg>,
    /// The number of asynchronous groups up to this one.
    group: u32,
}

/// The sums that a kernel computes from a block of scores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    /// One sum, with weights from one product.
    Forward,
    /// One sum, with weights from two products.
    OfQueries,
    /// Two sums, with weights from two products.
    OfKeys,
}

/// Multiplies blocks. The scores of a thread are listed row by row, and so are the sums of
/// weighted rows.
trait Engine {
    /// Rows and columns of a block.
    fn extents(&self) -> [usize; 2];
    /// Threads of a block of threads.
    fn threads(&self) -> usize;
    /// Minimum number of resident blocks of threads on a multiprocessor. Without it, ptxas limits
    /// registers below what the kernel needs, to fit one more block.
    fn resident(&self) -> u32;
    /// The dtype of sums.
    fn sums(&self) -> Number;
    /// Whether the machine's approximate powers may be used.
    fn approximates(&self) -> bool;
    /// Powers of its scores.
    fn powers(&self) -> Powers {
        Powers { sums: self.sums(), approximate: self.approximates() }
    }
    /// Rows of the thread.
    fn rows(&self) -> &Slots;
    /// Columns of the thread.
    fn columns(&self) -> &Slots;
    /// The bits in which the lanes that share rows differ.
    fn lanes(&self) -> &[i64];
    /// Loads rows of a head, from row `first` on, into a tile. Rows loaded by other threads may
    /// still be in flight.
    fn fill(&self, code: &mut Code, rows: &Rows, first: Reg, tile: &Tile);
    /// Bytes from a tile of columns to its second buffer, into which the next columns are
    /// prefetched; 0 if there is none.
    fn ahead(&self) -> i64;
    /// Commits the thread's tile loads so far.
    fn send(&self, code: &mut Code);
    /// Waits for the thread's tile loads, and for what reads the tiles of the step before.
    fn arrive(&self, code: &mut Code);
    /// A tile of rows as the left operand of products with all blocks of columns. It has arrived.
    fn hold(&self, code: &mut Code, tile: &Tile) -> Held;
    /// Begins the products of the rows of two tiles, which have arrived, if the engine's products
    /// are asynchronous. They end in the order in which they were begun.
    fn begin<'a>(&self, _: &mut Code, rows: &'a Held, columns: &Tile) -> Pending<'a> {
        Pending { rows, columns: *columns, sums: vec![], group: 0 }
    }
    /// Scores of the thread: sums of products of the rows of two tiles, and a number added to
    /// each of them. The numbers are emitted where the engine adds them.
    fn product(&self, code: &mut Code, pending: Pending<'_>, added: Option<Added<'_>>) -> Vec<Reg>;
    /// Whether products and weighted sums go on while the thread computes. Its sums and weights
    /// must not be accessed before [`arrive`](Self::arrive) or [`settle`](Self::settle).
    fn asynchronous(&self) -> bool {
        false
    }
    /// The end of its kernels' names.
    fn suffix(&self) -> &'static str {
        ""
    }
    /// Waits for all products and weighted sums.
    fn settle(&self, _: &mut Code) {}
    /// Sums initialised to 0.
    fn zeros(&self, code: &mut Code) -> Vec<Reg>;
    /// Adds the rows of a tile, weighted by a block of scores, to sums. All threads do it, and
    /// none may have used scores of others before.
    fn accumulate(&self, code: &mut Code, sums: &[Reg], weights: &[Reg], columns: &Tile);
    /// The engine, if its forward kernel adds the rows of a block while it computes the weights of
    /// the next one.
    fn overlapped(&self) -> Option<&dyn Overlapped> {
        None
    }
    /// Stores sums as rows of a head, from row `first` on. The tile of rows is not used any more.
    fn store(&self, code: &mut Code, sums: &[Reg], rows: &Rows, first: Reg, tile: &Tile);
}

/// A call, the alignment of its addresses, and whether warpgroups multiply where they can.
struct Problem<'a> {
    call: &'a Attention,
    alignment: usize,
    warpgroups: bool,
}

impl Problem<'_> {
    fn wide(&self) -> Number {
        Number(self.call.wide())
    }

    /// The argument that contains a part: queries, keys or values.
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

    /// m: the last operand, or the workspace, which the kernel of queries writes first.
    fn slot_of_sums(&self, across: bool) -> Slot {
        if !self.call.out_given {
            return Slot::read(self.call.primals() + 2);
        }
        let memory = Memory::Workspace { offset: 0, bytes: bytes_of_sums(self.call) };
        Slot { memory, access: if across { Access::Read } else { Access::Write } }
    }

    /// The pointer of the bias, if there is one.
    fn bias(&self, draft: &mut Draft) -> Option<Reg> {
        let argument = self.call.packed_or_three();
        (!self.call.bias.is_empty()).then(|| draft.pointer("bias", Slot::read(argument)))
    }

    /// The pointer of the prefix, if there is one.
    fn prefix(&self, draft: &mut Draft) -> Option<Reg> {
        let argument = self.call.prefix_operand();
        self.call.prefix.then(|| draft.pointer("prefix", Slot::read(argument)))
    }

    /// The prefix of an example, if there is one, clamped so that sums with the number of a query
    /// fit. At least −queries it still hides all keys, at most keys it still hides none.
    fn prefix_of(&self, code: &mut Code, pointer: Option<Reg>, example: Reg) -> Option<Reg> {
        let address = advance(code, pointer?, example, Number(DType::I32).size());
        let prefix = code.load(Space::Global, Type::S32, address, 0);
        let (least, most) = (-(self.call.queries as i64), self.call.keys as i64);
        let prefix = code.binary(Binary::Max, Type::S32, prefix, least);
        Some(code.binary(Binary::Min, Type::S32, prefix, most))
    }

    /// The end of the keys that the queries of a block see: `count` queries from `first` on.
    fn seen(&self, code: &mut Code, prefix: Option<Reg>, first: Reg, count: usize) -> Reg {
        let (call, keys) = (self.call, self.call.keys as i64);
        let at_most =
            |code: &mut Code, x: Reg, most: i64| code.binary(Binary::Min, Type::S32, x, most);
        let end = match (prefix, call.causal) {
            (None, false) => return code.mov(Type::S32, keys),
            (None, true) => code.binary(Binary::Add, Type::S32, first, count as i64),
            (Some(prefix), false) => code.binary(Binary::Max, Type::S32, prefix, 0),
            (Some(prefix), true) => {
                let last = code.binary(Binary::Add, Type::S32, first, count as i64 - 1);
                let last = at_most(code, last, call.queries as i64 - 1);
                let end = code.binary(Binary::Add, Type::S32, prefix, last);
                code.binary(Binary::Max, Type::S32, end, 0)
            }
        };
        at_most(code, end, keys)
    }

    /// The queries that see key `key`, in blocks of `step`: the beginning of their first block,
    /// and their end. No query sees it if the beginning is not below the end.
    fn queries_of(
        &self,
        code: &mut Code,
        prefix: Option<Reg>,
        key: Reg,
        step: usize,
    ) -> (Reg, Reg) {
        let queries = self.call.queries as i64;
        let (zero, end) = (code.mov(Type::S32, 0), code.mov(Type::S32, queries));
        match (prefix, self.call.causal) {
            (None, false) => (zero, end),
            // Keys of a block begin a block of queries.
            (None, true) => (key, end),
            (Some(prefix), false) => {
                let unseen = code.compare(Compare::Ge, Type::S32, key, prefix);
                (zero, code.select(Type::S32, 0, end, unseen))
            }
            (Some(prefix), true) => {
                let after = code.binary(Binary::Sub, Type::S32, key, prefix);
                let first = code.binary(Binary::Add, Type::S32, after, 1);
                let first = code.binary(Binary::Max, Type::S32, first, 0);
                assert!(step.is_power_of_two(), "blocks of columns are");
                (code.binary(Binary::And, Type::B32, first, -(step as i64)), end)
            }
        }
    }

    /// The first key that a query does not see, if that depends on a prefix; it may be out of
    /// range.
    fn limit(&self, code: &mut Code, prefix: Reg, query: Reg) -> Reg {
        match self.call.causal {
            true => code.binary(Binary::Add, Type::S32, prefix, query),
            false => prefix,
        }
    }

    /// A result of which a kernel writes one part: the cotangents of queries, keys or values.
    fn cotangent(&self, draft: &mut Draft, name: &str, part: usize) -> Reg {
        let argument = self.call.primals() + 3 + self.operand(part);
        let access = if self.call.packed { Access::ReadWrite } else { Access::Write };
        draft.pointer(name, Slot { memory: Memory::Argument(argument), access })
    }

    /// Example, head (of `heads`) and number of the block of rows of a block of threads. Blocks of
    /// one head are consecutive, since they read the same columns. Under a causal mask the blocks
    /// with the most work come first; for queries these are the last.
    fn position(
        &self,
        code: &mut Code,
        block: Reg,
        [heads, blocks]: [usize; 2],
        last_first: bool,
    ) -> ([Reg; 2], Reg) {
        let all = digits(code, block, &[self.call.batch, heads, blocks]);
        let block = match last_first {
            true => code.binary(Binary::Sub, Type::S32, blocks as i64 - 1, all[2]),
            false => all[2],
        };
        ([all[0], all[1]], block)
    }

    /// The head of keys that a head of queries attends to.
    fn of_keys(&self, code: &mut Code, [b, n]: [Reg; 2]) -> [Reg; 2] {
        [b, quotient(code, n, self.call.group)]
    }

    /// The first head of queries that attends to a head of keys.
    fn of_queries(&self, code: &mut Code, [b, n]: [Reg; 2]) -> [Reg; 2] {
        let group = self.call.group as i64;
        [b, if group == 1 { n } else { code.binary(Binary::Mul, Type::S32, n, group) }]
    }

    /// The bias of a head's scores.
    fn bias_of(&self, code: &mut Code, pointer: Option<Reg>, [b, n]: [Reg; 2]) -> Option<Bias> {
        let pointer = pointer?;
        let (call, size) = (self.call, self.wide().size());
        let head = (call.bias[2] * call.keys) as i64 * size;
        let distance = |axis: usize, bytes: i64| if call.bias[axis] == 1 { 0 } else { bytes };
        let of_example = advance(code, pointer, b, distance(0, call.bias[1] as i64 * head));
        let address = advance(code, of_example, n, distance(1, head));
        let row = distance(2, call.keys as i64 * size);
        Some(Bias { address, row, head: distance(1, head) })
    }

    /// Address of l, or m, of a head.
    fn logarithms(&self, code: &mut Code, pointer: Reg, [b, n]: [Reg; 2]) -> Reg {
        let bytes = self.call.queries as i64 * self.wide().size();
        let of_example = advance(code, pointer, b, self.call.heads as i64 * bytes);
        advance(code, of_example, n, bytes)
    }
}

/// The index of the first row or column of a block.
fn begin(code: &mut Code, block: Reg, tile: usize) -> Reg {
    code.binary(Binary::Mul, Type::S32, block, tile as i64)
}

/// The engine of a kernel that iterates over `rows` rows, and its tiles: that many of rows, and
/// two of columns.
fn engine(
    draft: &mut Draft,
    problem: &Problem<'_>,
    work: Work,
    rows: usize,
) -> (Box<dyn Engine>, Vec<Tile>) {
    let tiles = [if work == Work::Forward { 1 } else { 2 }, 2];
    let call = problem.call;
    if problem.warpgroups
        && let Some(shape) = wgmma::Shape::new(call, work)
    {
        let (engine, tiles) = wgmma::Wgmma::new(draft, shape, tiles);
        return (Box::new(engine), tiles);
    }
    if call.dtype.is_half() && call.width <= mma::WIDEST {
        let shape = mma::Shape::new(call, rows, work);
        let (engine, tiles) = mma::Mma::new(draft, shape, tiles);
        return (Box::new(engine), tiles);
    }
    let tiles = tiles[0] + tiles[1];
    let shape = fma::Shape::new(Number(call.wide()), call.width, tiles);
    let (engine, tiles) = fma::Fma::new(draft, shape, tiles);
    (Box::new(engine), tiles)
}

/// Bytes of m in the workspace: 0 if it is an operand. Saturates.
fn bytes_of_sums(call: &Attention) -> u64 {
    if !call.out_given {
        return 0;
    }
    let extents = [call.batch, call.heads, call.queries, call.wide().size()];
    extents.into_iter().fold(1, |bytes: u64, extent| bytes.saturating_mul(extent as u64))
}

/// The kernels of the first table.
fn compile_in_blocks(problem: &Problem<'_>) -> Result<Compiled> {
    let stages = match problem.call.backward {
        false => vec![forward::stage(problem)?],
        true => vec![backward::stage(problem, false)?, backward::stage(problem, true)?],
    };
    Ok(Compiled { stages, workspace: bytes_of_sums(problem.call) })
}

/// The kernels on Hopper's warpgroups, whatever the numbers of queries and keys are; none if
/// warpgroups cannot multiply them.
#[cfg(test)]
pub(super) fn in_warpgroups(call: &Attention) -> Option<Result<Compiled>> {
    let alignment = super::product::ALIGNMENT;
    wgmma::can(call, alignment)
        .then(|| compile_in_blocks(&Problem { call, alignment, warpgroups: true }))
}

impl Kernels for Attention {
    fn compile(&self, terms: &Terms<'_>) -> Result<Compiled> {
        let target = crate::target::target(&terms.architecture.name());
        if !self.claimed_by(&target) {
            let message = format!("heads of width {} are too wide for it", self.width);
            return Err(Diagnostic::new(message)
                .help(format!("compile for `{}`, which decomposes it", target.name)));
        }
        for (what, extent) in [
            ("queries", self.queries),
            ("keys", self.keys),
            ("heads", self.heads),
            ("batch", self.batch),
        ] {
            check_extent(what, extent)?;
        }
        if self.prefix {
            check_extent("queries and keys", self.queries.saturating_add(self.keys))?;
        }
        let warpgroups = terms.architecture.multiplies_by_warpgroups()
            && !terms.batch_invariant
            && wgmma::fits(self, terms.alignment);
        let problem = Problem { call: self, alignment: terms.alignment, warpgroups };
        if !terms.batch_invariant
            && let Some(compiled) = decode::compile(&problem)
        {
            return compiled;
        }
        compile_in_blocks(&problem)
    }

    fn workspace(&self) -> u64 {
        decode::workspace(self).max(bytes_of_sums(self))
    }
}
