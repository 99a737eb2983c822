//! Compiles a lowered nest to steps: the loop of each instruction, the registers that are the
//! same in all lanes, and the addresses of their blocks.

use super::address::{Offset, OffsetBuilder, Tables, VectorAxes};
use super::analyse::{Analysis, Reach};
use super::combine::{self, Reduction};
use super::condition::Condition;
use super::direct::{Forwarded, Overwritten};
use super::fuse;
use super::group::{self, Entry, Group};
use super::layout::Layout;
use super::lower::{FlatNest, Guard, Op, Place};
use super::product;
use super::program::{
    Direct, Load, Loop, Memory, Native, PhaseProgram, Pointer, Prefix, Step, Store,
};
use super::repeat::Repeat;
use super::schedule::{Schedule, plain};
use super::sum::Sum;
use crate::kernels::chain::{LONGEST, chain};
use crate::kernels::{self, CHUNK, Kernel, TURN};
use crate::simd::Simd;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wengert_core::nest::{AxisId, BufferRole, Reg};
use wengert_core::{Diagnostic, Id};

/// Bytes of registers' blocks that fit in L1 beside the streams of a nest.
const REGISTER_BYTES: usize = 24 << 10;
/// Bytes of row storage for a block of rows that fit in L2.
const ROW_LIMIT: usize = 256 << 10;
/// Most lanes of a block, and the numbers to fall back to if registers take too much room.
const LANES: [usize; 4] = [1024, 512, 256, 128];

/// The steps of a nest, and their resources.
pub(super) struct Compiled {
    pub phases: Vec<PhaseProgram>,
    /// Steps that run once when a task begins.
    pub begin: Vec<Step>,
    /// Steps that run once when a task begins, on the block of all rows.
    pub fixed: Vec<Step>,
    /// Scalar loops over parallel axes, outermost first.
    pub outer: Vec<Loop>,
    /// The parallel axes of the lanes, if lanes are rows.
    pub rows: Option<VectorAxes>,
    pub lanes: usize,
    /// Offsets of the registers' own blocks.
    pub homes: Vec<usize>,
    pub tables: Vec<Vec<i64>>,
    /// Index vectors needed at the same time.
    pub depth: usize,
    pub reductions: usize,
    pub layout: Layout,
}

/// Lanes of a block with few blocks of registers, since native code does its arithmetic.
const NATIVE_LANES: [usize; 3] = [8192, 4096, 2048];
/// Fewest blocks of rows, so that threads can share them.
const BLOCKS: usize = 32;

/// Compiles a nest with the best schedule, with native code or without.
///
/// Error: there is no memory for code.
pub(super) fn compile(
    lowered: &FlatNest<'_>,
    simd: Simd,
    schedule: Option<bool>,
    native: bool,
) -> Result<Compiled, Diagnostic> {
    let lowered = &product::products(lowered);
    let pick = |lanes: usize| {
        let chosen = Schedule::choose(lowered, lanes, ROW_LIMIT, native);
        let all = Schedule::both(lowered);
        match schedule {
            Some(rows) => {
                all.into_iter().find(|s| matches!(s, Schedule::Rows(_)) == rows).unwrap_or(chosen)
            }
            None => chosen,
        }
    };
    let is_rows = |schedule: &Schedule| matches!(schedule, Schedule::Rows(_));
    let usual = is_rows(&pick(LANES[0]));
    let mut last = None;
    let mut known: Option<(Schedule, FlatNest<'_>)> = None;
    for most in NATIVE_LANES.into_iter().filter(|_| native).chain(LANES) {
        let schedule = pick(most);
        let rows = is_rows(&schedule);
        let positions = match &schedule {
            Schedule::Rows(vector) => vector.positions(),
            Schedule::Elements(vectors) => {
                vectors.iter().map(VectorAxes::positions).max().unwrap_or(1)
            }
        };
        if most > LANES[0] && (rows != usual || (rows && positions < BLOCKS * most)) {
            continue;
        }
        // Blocks of about equal length, rather than full ones and a short one.
        let blocks = positions.div_ceil(most).max(1);
        let lanes = positions.div_ceil(blocks).max(1).next_multiple_of(CHUNK);
        // Fusion depends on the kind of the lanes, not on their number.
        let fused = match known.take() {
            Some((same, fused)) if same == schedule => fused,
            _ if native => group::groups(lowered, &schedule)?,
            _ => fuse::chains(lowered, &schedule),
        };
        let (compiled, registers) = Compiler::new(&fused, &schedule, lanes, simd).compile();
        known = Some((schedule, fused));
        let fits = registers <= REGISTER_BYTES || lanes <= LANES[LANES.len() - 1];
        last = Some(compiled);
        if fits {
            break;
        }
    }
    Ok(last.expect("there is a number of lanes to try"))
}

struct Compiler<'a, 'n> {
    analysis: Analysis<'a, 'n>,
    lanes: usize,
    simd: Simd,
    homes: Vec<usize>,
    tables: Tables,
    layout: Layout,
    depth: usize,
    begin: Vec<Step>,
    fixed: Vec<Step>,
    /// Offsets of row storage, by buffer.
    rows: Vec<usize>,
    reductions: usize,
}

impl<'a, 'n> Compiler<'a, 'n> {
    fn new(nest: &'a FlatNest<'n>, schedule: &'a Schedule, lanes: usize, simd: Simd) -> Self {
        let count = nest.nest.registers.len();
        Compiler {
            analysis: Analysis::new(nest, schedule),
            lanes,
            simd,
            homes: vec![0; count],
            tables: Tables::default(),
            layout: Layout::default(),
            depth: 1,
            begin: vec![],
            fixed: vec![],
            rows: vec![0; nest.nest.buffers.len()],
            reductions: 0,
        }
    }

    /// The steps, and the bytes of registers' blocks in use.
    fn compile(mut self) -> (Compiled, usize) {
        self.place_registers();
        let mut registers = self.layout.end().unwrap_or(usize::MAX);
        for (id, buffer) in
            self.analysis.nest.nest.buffers.iter().filter(|(_, b)| b.role == BufferRole::Row)
        {
            let copies = if self.analysis.by_rows() { self.lanes } else { 1 };
            let extents = buffer.shape.iter().copied().chain([copies, buffer.dtype.size()]);
            self.rows[id.index()] = self.layout.array(extents);
        }
        let phases: Vec<PhaseProgram> =
            (0..self.analysis.nest.phases.len()).map(|p| self.phase(p)).collect();
        // A stream normally uses the memory of its buffer; its own block serves only the rest of
        // an axis.
        for step in phases.iter().flat_map(|phase| &phase.levels).flatten() {
            if let Step::Stream { size, direct: Direct::Always | Direct::Unaliased, .. } = step {
                registers = registers.saturating_sub(*size as usize * self.lanes);
            }
        }
        let no_axes = VectorAxes::default();
        let vector = match self.analysis.schedule {
            Schedule::Rows(vector) => vector,
            Schedule::Elements(_) => &no_axes,
        };
        let outer =
            plain(&self.analysis.nest.parallel, vector).map(|a| self.loop_over(a, false)).collect();
        let rows = self.analysis.by_rows_of().cloned();
        let compiled = Compiled {
            phases,
            begin: self.begin,
            fixed: self.fixed,
            outer,
            rows,
            lanes: self.lanes,
            homes: self.homes,
            tables: self.tables.rows,
            depth: self.depth,
            reductions: self.reductions,
            layout: self.layout,
        };
        (compiled, registers)
    }

    fn loop_over(&self, axis: AxisId, reverse: bool) -> Loop {
        Loop { axis: axis.index() as u32, extent: self.analysis.nest.extent(axis), reverse }
    }

    /// Assigns a block to every register: a new one, or that of a register that is dead in the
    /// same phase.
    fn place_registers(&mut self) {
        // Blocks that are free, by their size.
        type Free = BTreeMap<usize, Vec<usize>>;
        let release = |free: &mut Free, dying: &mut Vec<(usize, usize)>| {
            dying.drain(..).for_each(|(size, home)| free.entry(size).or_default().push(home));
        };
        let mut free = Free::new();
        for p in 0..self.analysis.nest.phases.len() {
            let phase = &self.analysis.nest.phases[p];
            // Size and home of the registers that are used for the last time at each position.
            let mut dying: Vec<Vec<(usize, usize)>> = vec![vec![]; phase.body.len() + 1];
            for (at, op) in phase.body.iter().enumerate() {
                if at > 0 {
                    release(&mut free, &mut dying[at - 1]);
                }
                // A kernel may overwrite an operand at its last use; other steps read while they
                // write.
                if op.is_arithmetic() {
                    release(&mut free, &mut dying[at]);
                }
                for reg in op.results() {
                    let size = self.analysis.dtype(*reg).size();
                    let register = self.analysis.registers[reg.index()];
                    if register.reusable && !self.is_fixed(op) {
                        let found = free.get_mut(&size).and_then(Vec::pop);
                        let home = found.unwrap_or_else(|| self.layout.block(size, self.lanes));
                        self.homes[reg.index()] = home;
                        dying[register.used.1].push((size, home));
                    } else {
                        self.homes[reg.index()] = self.layout.block(size, self.spread(*reg));
                    }
                }
            }
            dying.iter_mut().for_each(|dying| release(&mut free, dying));
            for reduction in phase.reductions {
                for reg in &reduction.results {
                    self.homes[reg.index()] =
                        self.layout.block(self.analysis.dtype(*reg).size(), self.spread(*reg));
                }
            }
        }
    }

    /// Whether an instruction gathers the same elements in each iteration of the loops over rows,
    /// such as the numbers of channels that are shuffled: then it runs once. Loads of neighbouring
    /// elements cost nothing. The elements are those of several rows, so no row writes them.
    fn is_fixed(&self, op: &Op<'_>) -> bool {
        let (Schedule::Rows(vector), Op::Load { place, fill: None, .. }) =
            (self.analysis.schedule, op)
        else {
            return false;
        };
        let stored = |p: usize| self.analysis.stores_to(p, place.buffer);
        vector.positions() <= self.lanes
            && vector.axes.len() < self.analysis.nest.parallel.len()
            && !self.analysis.is_row(place.buffer)
            && !(0..self.analysis.nest.phases.len()).any(stored)
            && !place.offset.terms.is_empty()
            && !vector.constant(&place.offset)
            && vector.decide(&place.offset)
    }

    /// Lanes of a register's block that are written.
    fn spread(&self, reg: Reg) -> usize {
        let register = self.analysis.registers[reg.index()];
        match register.reach {
            Reach::Chunk if register.uniform => CHUNK,
            Reach::Turn if register.uniform => TURN,
            _ => self.lanes,
        }
    }

    /// Lanes to fill with one value for a uniform register, else 0.
    fn uniform_spread(&self, reg: Reg) -> usize {
        if self.analysis.registers[reg.index()].uniform { self.spread(reg) } else { 0 }
    }

    /// The uniform operands, as bits.
    fn repeated(&self, operands: &[Reg]) -> u32 {
        let uniform = operands.iter().map(|reg| self.analysis.registers[reg.index()].uniform);
        uniform.enumerate().fold(0, |bits, (n, uniform)| bits | u32::from(uniform) << n)
    }

    fn phase(&mut self, p: usize) -> PhaseProgram {
        let phase = &self.analysis.nest.phases[p];
        let loops = self.analysis.loops(p);
        let last = loops.len().wrapping_sub(1);
        let backwards = |d: usize| self.analysis.by_rows() && phase.reverse && d == last;
        let mut program = PhaseProgram {
            loops: loops
                .iter()
                .enumerate()
                .map(|(d, a)| self.loop_over(*a, backwards(d)))
                .collect(),
            vector: (!self.analysis.by_rows() && !self.analysis.vector(p).axes.is_empty())
                .then(|| self.analysis.vector(p).clone()),
            reverse: phase.reverse,
            levels: (0..=self.analysis.innermost(p)).map(|_| vec![]).collect(),
            reductions: vec![],
            prefix: phase.prefix,
            runs: phase.axes.iter().all(|a| self.analysis.nest.extent(*a) > 0),
            repeat: None,
        };
        let contiguous: Vec<bool> =
            phase.body.iter().map(|op| self.stores_contiguously(p, op)).collect();
        let forwarded = Forwarded::new(&self.analysis, p, &contiguous);
        let overwritten = Overwritten::new(&self.analysis, p, &forwarded);
        for (at, op) in phase.body.iter().enumerate() {
            if let Some((store, direct)) = forwarded.store_of(at) {
                let Op::Store { place, value } = &phase.body[store] else {
                    unreachable!("found as a store")
                };
                let mut store = self.store(p, place, *value);
                store.direct = direct;
                program.levels[self.analysis.innermost(p)].push(Step::Bind(Box::new(store)));
            }
            let (_, level) = self.analysis.nature(p, op);
            let mut steps = self.steps(p, op, forwarded.of_store(at), &overwritten);
            match op {
                Op::Const { .. } => self.begin.append(&mut steps),
                _ if self.is_fixed(op) => self.fixed.append(&mut steps),
                _ => program.levels[level].append(&mut steps),
            }
        }
        let groups = phase
            .body
            .iter()
            .filter_map(|op| if let Op::Group(group) = op { Some(group) } else { None });
        let folded: BTreeSet<usize> =
            groups.flat_map(|group| group.folds.iter().copied()).collect();
        for (k, reduction) in phase.reductions.iter().enumerate() {
            let mut compiled = Reduction::new(
                reduction,
                self.analysis.by_rows(),
                self.lanes,
                self.reductions,
                self.simd,
                &mut self.layout,
            );
            compiled.spread =
                reduction.results.iter().map(|reg| self.uniform_spread(*reg)).collect();
            self.reductions += 1;
            program.reductions.push(compiled);
            if !folded.contains(&k) {
                program.levels[self.analysis.innermost(p)].push(Step::Accumulate(k));
            }
        }
        program.repeat = Repeat::of_phase(&program);
        program
    }

    /// The steps of an instruction; `stored` is when a store is superfluous.
    fn steps(
        &mut self,
        p: usize,
        op: &Op<'_>,
        stored: Direct,
        overwritten: &Overwritten,
    ) -> Vec<Step> {
        match op {
            Op::Const { result, value } => {
                vec![Step::Const { result: result.0, value: *value, lanes: self.spread(*result) }]
            }
            Op::Scalar { result, op, operands } => {
                let kernel =
                    combine::kernel(*op, operands, *result, &|r| self.analysis.dtype(r), self.simd);
                self.kernel(kernel, *result, operands)
            }
            Op::Product { result, operands } => {
                self.kernel(kernels::zero_or_product(self.simd), *result, operands)
            }
            Op::Chain { result, links, operands } => {
                let mut arguments = [result.0; LONGEST + 1];
                arguments.iter_mut().zip(operands).for_each(|(a, r)| *a = r.0);
                let (chain, repeat) = (chain(links, self.simd), self.repeated(operands));
                vec![Step::Chain { chain, result: result.0, arguments, repeat }]
            }
            Op::Group(group) => vec![Step::Native(Box::new(self.native(p, group)))],
            Op::Index { result, value } => vec![Step::Index {
                result: result.0,
                value: self.offset(p, value),
                dtype: self.analysis.dtype(*result),
                spread: self.uniform_spread(*result),
            }],
            Op::Test { result, guards } => vec![Step::Test {
                result: result.0,
                conditions: self.conditions(p, guards),
                spread: self.uniform_spread(*result),
            }],
            Op::Load { result, place, fill } => {
                let (memory, offset) = self.memory(p, place);
                let size = self.analysis.dtype(*result).size();
                let spread = self.uniform_spread(*result);
                let register = self.analysis.registers[result.index()];
                let direct = overwritten.load(&self.analysis, p, register, place);
                if let Memory::Parameter(k) = memory
                    && (place.guards.is_empty()
                        && spread == 0
                        && offset.is_linear()
                        && offset.step == 1)
                {
                    let (parameter, size) = (k as u32, size as u32);
                    return vec![Step::Stream {
                        result: result.0,
                        parameter,
                        size,
                        direct,
                        offset,
                    }];
                }
                vec![Step::Load(Box::new(Load {
                    result: result.0,
                    memory,
                    offset,
                    conditions: self.conditions(p, &place.guards),
                    fill: fill.map_or(result.0, |r| r.0),
                    size,
                    spread,
                    direct,
                }))]
            }
            Op::Store { place, value } => {
                let mut store = self.store(p, place, *value);
                store.direct = stored;
                vec![Step::Store(Box::new(store))]
            }
            Op::Prefix(prefix) => {
                let program =
                    combine::Program::new(&prefix.combine, self.lanes, self.simd, &mut self.layout);
                let lanes = if self.analysis.by_rows() { self.lanes } else { CHUNK };
                let states = program.sizes.iter().map(|s| self.layout.block(*s, lanes)).collect();
                let spare = program.sizes.iter().map(|s| self.layout.block(*s, CHUNK)).collect();
                vec![Step::Prefix(Box::new(Prefix {
                    program,
                    values: prefix.values.iter().map(|r| r.0).collect(),
                    results: prefix.results.iter().map(|r| r.0).collect(),
                    states,
                    spare,
                    reverse: prefix.reverse,
                }))]
            }
        }
    }

    fn native(&mut self, p: usize, group: &Group) -> Native {
        let entries = group.entries.iter().map(|entry| match entry {
            Entry::Register(reg) => Pointer::Register(reg.0),
            Entry::Memory { place, dtype, fill, .. } => {
                let ((memory, offset), size) = (self.memory(p, place), dtype.size());
                match fill {
                    None => Pointer::Memory { memory, offset, size },
                    Some(fill) => {
                        let conditions = self.conditions(p, &place.guards);
                        Pointer::Guarded { memory, offset, size, conditions, fill: fill.0 }
                    }
                }
            }
            Entry::Accumulators(k) => Pointer::Accumulators(*k),
        });
        Native {
            entries: entries.collect(),
            function: Arc::clone(&group.function),
            past: group.past.clone(),
            table: self.layout.array([2, group.entries.len(), size_of::<*mut u8>()]),
            folds: group.folds.clone(),
            size: group.size,
        }
    }

    /// The steps of a kernel.
    fn kernel(&self, kernel: Kernel, result: Reg, operands: &[Reg]) -> Vec<Step> {
        let mut arguments = [result.0; 3];
        arguments.iter_mut().zip(operands).for_each(|(a, r)| *a = r.0);
        let uniform = self.analysis.registers[result.index()].uniform;
        let repeat = if uniform { 0 } else { self.repeated(operands) };
        let mut steps = vec![Step::Kernel { kernel, result: result.0, arguments, uniform, repeat }];
        let lanes = self.spread(result);
        if uniform && lanes > CHUNK {
            let size = self.analysis.dtype(result).size();
            steps.push(Step::Splat { reg: result.0, size, lanes });
        }
        steps
    }

    fn store(&mut self, p: usize, place: &Place, value: Reg) -> Store {
        let (memory, offset) = self.memory(p, place);
        let conditions = self.conditions(p, &place.guards);
        let single = offset.is_uniform() && conditions.iter().all(Condition::is_uniform);
        let size = self.analysis.dtype(value).size();
        Store { value: value.0, memory, offset, conditions, size, single, direct: Direct::Never }
    }

    fn memory(&mut self, p: usize, place: &Place) -> (Memory, Offset) {
        if !self.analysis.is_row(place.buffer) {
            return (Memory::Parameter(place.buffer.index()), self.offset(p, &place.offset));
        }
        let memory = Memory::Row(self.rows[place.buffer.index()]);
        if !self.analysis.by_rows() {
            return (memory, self.offset(p, &place.offset));
        }
        let mut scaled = Sum::default();
        scaled.add(&place.offset, self.lanes as i64);
        (memory, self.offset(p, &scaled).interleaved())
    }

    /// Whether an instruction stores elements that are adjacent in memory.
    fn stores_contiguously(&mut self, p: usize, op: &Op<'_>) -> bool {
        let Op::Store { place, .. } = op else { return false };
        let (_, offset) = self.memory(p, place);
        offset.is_linear() && offset.step == 1
    }

    fn offset(&mut self, p: usize, sum: &Sum) -> Offset {
        let vector = self.analysis.vector(p);
        let (registers, dtypes) = (&self.analysis.registers, &self.analysis.nest.nest.registers);
        let mut builder = OffsetBuilder {
            vector,
            uniform: &|reg| registers[reg as usize].uniform,
            dtype: &|reg| dtypes[Reg(reg)],
            tables: &mut self.tables,
        };
        let offset = builder.build(sum, self.lanes);
        self.depth = self.depth.max(offset.depth());
        offset
    }

    fn conditions(&mut self, p: usize, guards: &[Guard]) -> Vec<Condition> {
        guards
            .iter()
            .map(|g| Condition { value: self.offset(p, &g.value), low: g.low, high: g.high })
            .collect()
    }
}
