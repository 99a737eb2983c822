//! Reductions and prefixes: partial results, and the programs that combine them.
//!
//! If lanes are elements of one row (the vector axes are inner axes), the accumulators of a
//! tree's lanes are contiguous and take the elements of a block in turn. A tree of 16 lanes is
//! then one vector addition. If lanes are rows (the vector axes are parallel), every accumulator
//! is a block, one for each lane of the tree.

use super::frame::Frame;
use super::layout::Layout;
use crate::kernels::{self, CHUNK, Fold, Kernel, LaneFold, Scan, moves};
use crate::simd::Simd;
use wengert_core::nest::{Combine, Instr, Reg, ScalarOp, Tree};
use wengert_core::{DType, Id, Scalar};

/// A compiled combine program, with the addresses of its registers.
#[derive(Debug)]
pub(super) struct Program {
    /// Bytes of an element, for each component of the tuple.
    pub sizes: Vec<usize>,
    identity: Vec<Scalar>,
    /// The whole program, if it is one instruction on `(left, right)`.
    single: Option<Kernel>,
    fold: Option<Fold>,
    lane_fold: Option<LaneFold>,
    pub scan: Option<Scan>,
    steps: Vec<(Kernel, usize, [usize; 3])>,
    constants: Vec<(usize, Scalar)>,
    results: Vec<usize>,
    /// Offsets in scratch memory of the blocks of the program's own registers; operands have
    /// none.
    homes: Vec<usize>,
    /// Offset of a table of their addresses.
    table: usize,
    lanes: usize,
}

impl Program {
    /// Compiles a program for blocks of up to `lanes`; `layout` reserves the memory.
    pub fn new(combine: &Combine, lanes: usize, simd: Simd, layout: &mut Layout) -> Self {
        let tuple = combine.identity.len();
        let dtypes: Vec<DType> = combine.registers.iter().map(|(_, d)| *d).collect();
        let single = match combine.body.as_slice() {
            [Instr::Scalar { result, op, operands }]
                if tuple == 1
                    && operands[..] == [Reg::new(0), Reg::new(1)]
                    && combine.results[..] == [*result] =>
            {
                kernels::scalar(*op, dtypes[0], simd).map(|kernel| (*op, kernel))
            }
            _ => None,
        };
        let op = single.map(|(op, _)| op);
        let mut program = Program {
            sizes: combine.identity.iter().map(|s| s.dtype().size()).collect(),
            identity: combine.identity.clone(),
            single: single.map(|(_, kernel)| kernel),
            fold: op.and_then(|op| kernels::fold(op, dtypes[0], simd)),
            lane_fold: op.and_then(|op| kernels::lane_fold(op, dtypes[0])),
            scan: op.and_then(|op| kernels::scan(op, dtypes[0])),
            steps: vec![],
            constants: vec![],
            results: combine.results.iter().map(|r| r.index()).collect(),
            homes: vec![0; dtypes.len()],
            table: 0,
            lanes,
        };
        if program.single.is_some() {
            return program;
        }
        for (reg, dtype) in dtypes.iter().enumerate().skip(2 * tuple) {
            program.homes[reg] = layout.block(dtype.size(), lanes);
        }
        for instr in &combine.body {
            match instr {
                Instr::Scalar { result, op, operands } => {
                    let kernel = kernel(*op, operands, *result, &|r| dtypes[r.index()], simd);
                    let mut arguments = [0; 3];
                    arguments.iter_mut().zip(operands).for_each(|(a, r)| *a = r.index());
                    program.steps.push((kernel, result.index(), arguments));
                }
                Instr::Const { result, value } => program.constants.push((result.index(), *value)),
                _ => unreachable!(
                    "a verified combine program has scalar instructions and constants only"
                ),
            }
        }
        // A result that is an operand is copied first: writing another result may clobber it.
        for k in 0..tuple {
            let result = program.results[k];
            if result < 2 * tuple && result != k {
                let size = dtypes[result].size();
                program.homes.push(layout.block(size, lanes));
                program.steps.push((
                    kernels::copy(size, simd),
                    program.homes.len() - 1,
                    [result, 0, 0],
                ));
                program.results[k] = program.homes.len() - 1;
            }
        }
        program.table = layout.array([program.homes.len(), size_of::<*mut u8>()]);
        program
    }

    /// Components of a tuple.
    pub fn tuple(&self) -> usize {
        self.sizes.len()
    }

    /// Writes the constants; once for every thread that begins.
    pub fn begin(&self, frame: &Frame<'_>) {
        for (reg, value) in &self.constants {
            // SAFETY: the home of a register has room for a block.
            unsafe { splat_scalar(frame.at(self.homes[*reg]), *value, self.lanes) };
        }
    }

    /// Fills `count` elements of component k of the tuple with the identity.
    ///
    /// # Safety
    ///
    /// `at` is valid to write `count` elements.
    pub unsafe fn identity(&self, at: *mut u8, k: usize, count: usize) {
        // SAFETY: the caller's promise.
        unsafe { splat_scalar(at, self.identity[k], count) };
    }

    /// `left[k] = combine(left, right)[k]` on blocks of `count` elements, where `blocks(k)` gives
    /// left and right.
    ///
    /// # Safety
    ///
    /// The count is a multiple of a chunk and at most the lanes compiled for. All blocks are
    /// valid for it. They do not overlap, or the count is one chunk.
    pub unsafe fn combine(
        &self,
        frame: &Frame<'_>,
        count: usize,
        blocks: impl Fn(usize) -> (*mut u8, *const u8),
    ) {
        // SAFETY: the caller's promise; the kernels were looked up for the dtypes of the tuple.
        unsafe {
            if let Some(kernel) = self.single {
                let (left, right) = blocks(0);
                return kernel(left, left, right, std::ptr::null(), count, 0);
            }
            let table = frame.at(self.table).cast::<*mut u8>();
            let tuple = self.tuple();
            for (k, home) in self.homes.iter().enumerate().skip(2 * tuple) {
                table.add(k).write(frame.at(*home));
            }
            for k in 0..tuple {
                let (left, right) = blocks(k);
                table.add(k).write(left);
                table.add(tuple + k).write(right.cast_mut());
            }
            for (kernel, result, [a, b, c]) in &self.steps {
                let at = |reg: usize| table.add(reg).read();
                kernel(at(*result), at(*a), at(*b), at(*c), count, 0);
            }
            for k in 0..tuple {
                let (from, to) = (table.add(self.results[k]).read(), table.add(k).read());
                if from != to {
                    std::ptr::copy(from, to, count * self.sizes[k]);
                }
            }
        }
    }
}

/// The kernel of an instruction of a verified body.
pub(super) fn kernel(
    op: ScalarOp,
    operands: &[Reg],
    result: Reg,
    dtype: &dyn Fn(Reg) -> DType,
    simd: Simd,
) -> Kernel {
    let last = dtype(operands[operands.len() - 1]);
    match op {
        ScalarOp::Convert => kernels::convert(last, dtype(result), simd),
        ScalarOp::Bitcast => kernels::copy(last.size(), simd),
        _ => kernels::scalar(op, last, simd)
            .expect("the verifier accepts only instructions that exist"),
    }
}

/// Fills a block with a value.
///
/// # Safety
///
/// `at` is valid to write `count` elements of the scalar's dtype.
pub(super) unsafe fn splat_scalar(at: *mut u8, value: Scalar, count: usize) {
    let bits = value.bits().to_le_bytes();
    let size = value.dtype().size();
    // SAFETY: the caller's promise; the low bytes come first, as in memory.
    unsafe {
        if count > 0 {
            std::ptr::copy_nonoverlapping(bits.as_ptr(), at, size);
            moves::splat(at, at, size, count);
        }
    }
}

/// A compiled reduction.
#[derive(Debug)]
pub(super) struct Reduction {
    pub program: Program,
    pub values: Vec<u32>,
    pub results: Vec<u32>,
    /// Lanes that each result's block needs; 0 means a whole block.
    pub spread: Vec<usize>,
    tree: Tree,
    /// Whether lanes are rows.
    rows: bool,
    /// Offsets of the accumulators, the totals, and two spare chunks for each component of the
    /// tuple.
    accumulators: Vec<usize>,
    totals: Vec<usize>,
    spare: Vec<[usize; 2]>,
    /// Number among the nest's reductions: the index of its progress.
    number: usize,
    lanes: usize,
}

/// Progress of a reduction.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Progress {
    /// Elements of the tree's current block so far.
    elements: usize,
    /// Blocks combined into the total.
    blocks: usize,
}

impl Reduction {
    /// Compiles a reduction; `rows` tells whether lanes of a block are rows.
    pub fn new(
        reduction: &wengert_core::nest::Reduction,
        rows: bool,
        lanes: usize,
        number: usize,
        simd: Simd,
        layout: &mut Layout,
    ) -> Self {
        let tree = reduction.tree;
        let program =
            Program::new(&reduction.combine, lanes.max(tree.lanes as usize), simd, layout);
        let width = if rows {
            (tree.lanes as usize).saturating_mul(lanes)
        } else {
            tree.lanes as usize + CHUNK
        };
        let accumulators = program.sizes.iter().map(|size| layout.block(*size, width)).collect();
        let totals = program
            .sizes
            .iter()
            .map(|size| layout.block(*size, if rows { lanes } else { CHUNK }))
            .collect();
        let spare =
            program.sizes.iter().map(|size| [(); 2].map(|()| layout.block(*size, CHUNK))).collect();
        Reduction {
            values: reduction.values.iter().map(|r| r.0).collect(),
            results: reduction.results.iter().map(|r| r.0).collect(),
            spread: vec![],
            program,
            tree,
            rows,
            accumulators,
            totals,
            spare,
            number,
            lanes,
        }
    }

    fn tree_lanes(&self) -> usize {
        self.tree.lanes as usize
    }

    /// Address of the accumulator of a lane of the tree.
    fn accumulator(&self, frame: &Frame<'_>, k: usize, lane: usize) -> *mut u8 {
        let element = if self.rows { lane * self.lanes } else { lane };
        frame.at(self.accumulators[k] + element * self.program.sizes[k])
    }

    fn reset(&self, frame: &Frame<'_>) {
        for k in 0..self.program.tuple() {
            // SAFETY: the layout has this many accumulators.
            unsafe {
                if self.rows {
                    for lane in 0..self.tree_lanes() {
                        self.program.identity(self.accumulator(frame, k, lane), k, frame.padded);
                    }
                } else {
                    self.program.identity(
                        self.accumulator(frame, k, 0),
                        k,
                        self.tree_lanes() + CHUNK,
                    );
                }
            }
        }
    }

    /// The accumulators that native code adds the block's values to: one for each lane of the
    /// tree or, if lanes are rows, those of the next lane for each row.
    pub fn native(&self, frame: &Frame<'_>, progress: &[Progress]) -> *mut u8 {
        let lane = if self.rows { progress[self.number].elements % self.tree_lanes() } else { 0 };
        self.accumulator(frame, 0, lane)
    }

    /// Records that native code has added the values of `blocks` blocks.
    pub fn taken(&self, frame: &Frame<'_>, progress: &mut [Progress], blocks: usize) {
        progress[self.number].elements += if self.rows { blocks } else { blocks * frame.count };
    }

    /// Whether a row has several accumulators, which take turns.
    pub fn has_lanes(&self) -> bool {
        self.tree_lanes() > 1
    }

    /// Starts a row, or a block of rows.
    pub fn begin(&self, frame: &Frame<'_>, progress: &mut [Progress]) {
        progress[self.number] = Progress::default();
        self.reset(frame);
    }

    /// Adds the values of the block.
    pub fn accumulate(&self, frame: &Frame<'_>, progress: &mut [Progress]) {
        let progress = &mut progress[self.number];
        let block = match self.tree.block as usize {
            0 => usize::MAX,
            elements => elements,
        };
        let value = |k: usize| frame.pointers[self.values[k] as usize].cast_const();
        if self.rows {
            let lane = progress.elements % self.tree_lanes();
            // SAFETY: accumulators and values have as many lanes as the frame's block, padded.
            unsafe {
                self.program
                    .combine(frame, frame.padded, |k| (self.accumulator(frame, k, lane), value(k)));
            }
            self.advance(frame, progress, 1, block);
            return;
        }
        let mut taken = 0;
        while taken < frame.count {
            let lane = progress.elements % self.tree_lanes();
            let rest = (frame.count - taken).min(block - progress.elements);
            let at = |k: usize| value(k).wrapping_add(taken * self.program.sizes[k]);
            let count = self.take(frame, lane, rest, &at);
            self.advance(frame, progress, count, block);
            taken += count;
        }
    }

    /// Combines as many of `rest` values as one step can; the first goes to `lane`. Returns their
    /// number.
    fn take(
        &self,
        frame: &Frame<'_>,
        lane: usize,
        rest: usize,
        at: &dyn Fn(usize) -> *const u8,
    ) -> usize {
        let lanes = self.tree_lanes();
        let whole = rest / CHUNK * CHUNK;
        if let (Some(fold), CHUNK, 0, 1..) = (self.program.fold, lanes, lane, whole) {
            // SAFETY: there are CHUNK accumulators, and `whole` values are left.
            unsafe { fold(self.accumulator(frame, 0, 0), at(0), whole) };
            return whole;
        }
        if let Some(fold) = self
            .program
            .lane_fold
            .filter(|_| lanes < CHUNK || !lane.is_multiple_of(CHUNK) || whole == 0)
        {
            // SAFETY: there are `lanes` accumulators, a power of two, and `rest` values are left.
            unsafe { fold(self.accumulator(frame, 0, 0), at(0), rest, lane, lanes) };
            return rest;
        }
        if lane.is_multiple_of(CHUNK) && lanes >= CHUNK && whole > 0 {
            let count = whole.min(lanes - lane).min(self.program.lanes / CHUNK * CHUNK);
            // SAFETY: `count` values are left and as many accumulators; the two are apart.
            unsafe {
                self.program.combine(frame, count, |k| (self.accumulator(frame, k, lane), at(k)));
            }
            return count;
        }
        let count = rest.min(lanes - lane).min(CHUNK - lane % CHUNK);
        // SAFETY: `count` values are left and as many accumulators. The spare blocks have a chunk
        // each; their elements beyond the count are combined but not used.
        unsafe {
            for k in 0..self.program.tuple() {
                let (size, [left, right]) = (self.program.sizes[k], self.spare[k]);
                std::ptr::copy_nonoverlapping(
                    self.accumulator(frame, k, lane),
                    frame.at(left),
                    count * size,
                );
                std::ptr::copy_nonoverlapping(at(k), frame.at(right), count * size);
            }
            self.program.combine(frame, CHUNK, |k| {
                let [left, right] = self.spare[k];
                (frame.at(left), frame.at(right))
            });
            for k in 0..self.program.tuple() {
                let size = self.program.sizes[k];
                std::ptr::copy_nonoverlapping(
                    frame.at(self.spare[k][0]),
                    self.accumulator(frame, k, lane),
                    count * size,
                );
            }
        }
        count
    }

    fn advance(&self, frame: &Frame<'_>, progress: &mut Progress, count: usize, block: usize) {
        progress.elements += count;
        if progress.elements == block {
            self.finish_block(frame, progress);
            self.reset(frame);
        }
    }

    /// Combines the lanes by halving, and the block with the total.
    fn finish_block(&self, frame: &Frame<'_>, progress: &mut Progress) {
        let width = if self.rows { frame.padded } else { CHUNK };
        // SAFETY: halves do not overlap unless they are one chunk; totals have the width of an
        // accumulator's block.
        unsafe {
            let mut half = self.tree_lanes() / 2;
            while half > 0 {
                if self.rows {
                    for lane in 0..half {
                        self.program.combine(frame, width, |k| {
                            (
                                self.accumulator(frame, k, lane),
                                self.accumulator(frame, k, lane + half),
                            )
                        });
                    }
                } else {
                    let mut lane = 0;
                    while lane < half {
                        let count = (half - lane).next_multiple_of(CHUNK).min(self.program.lanes);
                        self.program.combine(frame, count, |k| {
                            (
                                self.accumulator(frame, k, lane),
                                self.accumulator(frame, k, lane + half),
                            )
                        });
                        lane += count;
                    }
                }
                half /= 2;
            }
            if progress.blocks == 0 {
                for k in 0..self.program.tuple() {
                    let bytes = width * self.program.sizes[k];
                    std::ptr::copy_nonoverlapping(
                        self.accumulator(frame, k, 0),
                        frame.at(self.totals[k]),
                        bytes,
                    );
                }
            } else {
                self.program.combine(frame, width, |k| {
                    (frame.at(self.totals[k]), self.accumulator(frame, k, 0))
                });
            }
        }
        progress.elements = 0;
        progress.blocks += 1;
    }

    /// Ends the row, or the block of rows: writes the results.
    pub fn finish(&self, frame: &mut Frame<'_>, progress: &mut [Progress], homes: &[usize]) {
        let progress = &mut progress[self.number];
        if progress.elements > 0 || progress.blocks == 0 {
            // Without elements, the accumulators hold the identity, and so does a tree of them.
            // The total is then set to the identity itself, which may differ for a combine
            // program that is not exact.
            let empty = progress.elements == 0;
            self.finish_block(frame, progress);
            if empty {
                for k in 0..self.program.tuple() {
                    let width = if self.rows { frame.padded } else { CHUNK };
                    // SAFETY: totals have `width` elements.
                    unsafe { self.program.identity(frame.at(self.totals[k]), k, width) };
                }
            }
        }
        for (k, result) in self.results.iter().enumerate() {
            let size = self.program.sizes[k];
            let home = frame.at(homes[*result as usize]);
            let total = frame.at(self.totals[k]);
            // SAFETY: the home of a result has a block's lanes, or as many as its spread.
            unsafe {
                match self.spread[k] {
                    0 => std::ptr::copy_nonoverlapping(total, home, frame.padded * size),
                    lanes => moves::splat(home, total, size, lanes),
                }
            }
            frame.pointers[*result as usize] = home;
        }
    }
}
