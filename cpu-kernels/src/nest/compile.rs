//! From a lowered nest to steps: which loop each instruction stands in, which registers are the same in all lanes, and
//! where their blocks lie.

use super::address::{Condition, Offset, OffsetBuilder, Tables, VectorAxes};
use super::combine::{self, Reduction};
use super::layout::Layout;
use super::lower::{Guard, Lowered, Op, Phase, Place};
use super::program::{Direct, Load, Loop, Memory, PhaseProgram, Prefix, Step, Store};
use super::schedule::{Schedule, plain};
use super::sum::Sum;
use crate::kernels::CHUNK;
use crate::simd::Simd;
use wengert_core::nest::{AxisId, BufferId, BufferRole, Reg};
use wengert_core::{DType, Id};

/// Bytes of registers' blocks that a core's first cache holds beside the streams of a nest.
const REGISTER_BYTES: usize = 24 << 10;
/// Bytes of row storage for a block of rows that a core's second cache holds.
const ROW_LIMIT: usize = 256 << 10;
/// Lanes of a block at most, and the numbers to fall back to if registers take too much room.
const LANES: [usize; 3] = [512, 256, 128];

/// The steps of a nest, and what they need.
pub(super) struct Compiled {
    pub phases: Vec<PhaseProgram>,
    /// Steps that run once when a thread begins.
    pub begin: Vec<Step>,
    /// Scalar loops over parallel axes, outermost first.
    pub outer: Vec<Loop>,
    /// The parallel axes that lanes lie along.
    pub rows: Option<VectorAxes>,
    pub lanes: usize,
    /// Where every register's own block lies.
    pub homes: Vec<usize>,
    pub tables: Vec<Vec<i64>>,
    /// Index vectors needed at once.
    pub depth: usize,
    pub reductions: usize,
    pub layout: Layout,
}

/// What is known of a register.
#[derive(Clone, Copy, Default)]
struct Register {
    /// All lanes are the same.
    uniform: bool,
    /// Something reads more lanes than one.
    wide: bool,
    /// The loop it is computed in: 0 before the first.
    level: usize,
    /// Phase and position of its definition, and of its last use.
    defined: (usize, usize),
    used: (usize, usize),
    /// Its block may be used again within the phase.
    reusable: bool,
}

/// Compiles a nest for the schedule that suits it.
pub(super) fn compile(lowered: &Lowered<'_>, simd: Simd, schedule: Option<bool>) -> Compiled {
    let pick = |lanes: usize| {
        let chosen = Schedule::choose(lowered, lanes, ROW_LIMIT);
        let all = Schedule::both(lowered);
        match schedule {
            Some(rows) => all.into_iter().find(|s| matches!(s, Schedule::Rows(_)) == rows).unwrap_or(chosen),
            None => chosen,
        }
    };
    let mut last = None;
    for most in LANES {
        let schedule = pick(most);
        let positions = match &schedule {
            Schedule::Rows(vector) => vector.positions(),
            Schedule::Elements(vectors) => vectors.iter().map(VectorAxes::positions).max().unwrap_or(1),
        };
        // Blocks of about the same length, rather than full ones and a short one.
        let blocks = positions.div_ceil(most).max(1);
        let lanes = positions.div_ceil(blocks).max(1).next_multiple_of(CHUNK);
        let (compiled, registers) = Compiler::new(lowered, &schedule, lanes, simd).compile();
        let fits = registers <= REGISTER_BYTES || lanes <= LANES[LANES.len() - 1];
        last = Some(compiled);
        if fits {
            break;
        }
    }
    last.expect("there is a number of lanes to try")
}

struct Compiler<'a, 'n> {
    nest: &'a Lowered<'n>,
    schedule: &'a Schedule,
    lanes: usize,
    simd: Simd,
    registers: Vec<Register>,
    homes: Vec<usize>,
    tables: Tables,
    layout: Layout,
    depth: usize,
    begin: Vec<Step>,
    /// Where row storage lies, by buffer.
    rows: Vec<usize>,
    reductions: usize,
}

impl<'a, 'n> Compiler<'a, 'n> {
    fn new(nest: &'a Lowered<'n>, schedule: &'a Schedule, lanes: usize, simd: Simd) -> Self {
        let count = nest.nest.registers.len();
        Compiler {
            nest,
            schedule,
            lanes,
            simd,
            registers: vec![Register::default(); count],
            homes: vec![0; count],
            tables: Tables::default(),
            layout: Layout::default(),
            depth: 1,
            begin: vec![],
            rows: vec![0; nest.nest.buffers.len()],
            reductions: 0,
        }
    }

    /// The steps, and the bytes of registers' blocks.
    fn compile(mut self) -> (Compiled, usize) {
        self.analyse();
        self.place_registers();
        let registers = self.layout.end();
        for (id, buffer) in self.nest.nest.buffers.iter().filter(|(_, b)| b.role == BufferRole::Row) {
            let copies = if self.by_rows() { self.lanes } else { 1 };
            let elements: usize = buffer.shape.iter().product();
            self.rows[id.index()] = self.layout.bytes(elements * copies * buffer.dtype.size());
        }
        let phases = (0..self.nest.phases.len()).map(|p| self.phase(p)).collect();
        let no_axes = VectorAxes::default();
        let vector = match self.schedule {
            Schedule::Rows(vector) => vector,
            Schedule::Elements(_) => &no_axes,
        };
        let outer = plain(&self.nest.parallel, vector).map(|a| self.loop_over(a, false)).collect();
        let rows = self.by_rows_of().cloned();
        let compiled = Compiled {
            phases,
            begin: self.begin,
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

    fn by_rows_of(&self) -> Option<&'a VectorAxes> {
        match self.schedule {
            Schedule::Rows(vector) => Some(vector),
            Schedule::Elements(_) => None,
        }
    }

    fn by_rows(&self) -> bool {
        self.by_rows_of().is_some()
    }

    /// The axes that lanes of a phase lie along.
    fn vector(&self, phase: usize) -> &'a VectorAxes {
        match self.schedule {
            Schedule::Rows(vector) => vector,
            Schedule::Elements(vectors) => &vectors[phase],
        }
    }

    fn loop_over(&self, axis: AxisId, reverse: bool) -> Loop {
        Loop { axis: axis.index() as u32, extent: self.nest.extent(axis), reverse }
    }

    fn loops(&self, phase: usize) -> Vec<AxisId> {
        plain(&self.nest.phases[phase].axes, self.vector(phase)).collect()
    }

    /// Number of the innermost level of a phase.
    fn innermost(&self, phase: usize) -> usize {
        self.loops(phase).len() + usize::from(!self.by_rows() && !self.vector(phase).axes.is_empty())
    }

    fn dtype(&self, reg: Reg) -> DType {
        self.nest.nest.registers[reg]
    }

    /// Finds uniform registers, levels, and who needs full blocks.
    fn analyse(&mut self) {
        for p in 0..self.nest.phases.len() {
            let phase = &self.nest.phases[p];
            for (at, op) in phase.body.iter().enumerate() {
                let (uniform, level) = self.nature(p, op);
                for reg in op.results() {
                    let register = &mut self.registers[reg.index()];
                    *register =
                        Register { uniform, level, defined: (p, at), used: (p, at), ..Register::default() };
                }
                self.note_uses(op, (p, at), uniform);
            }
            let end = phase.body.len();
            for reduction in phase.reductions {
                for reg in &reduction.values {
                    self.registers[reg.index()].used = (p, end);
                    self.registers[reg.index()].wide = true;
                }
                for reg in &reduction.results {
                    self.registers[reg.index()] = Register {
                        uniform: !self.by_rows(),
                        defined: (p, end),
                        used: (p, end),
                        ..Register::default()
                    };
                }
            }
        }
        for reg in 0..self.registers.len() {
            let register = self.registers[reg];
            let (phase, at) = register.defined;
            let innermost = register.level == self.innermost(phase);
            let in_body = at < self.nest.phases[phase].body.len();
            self.registers[reg].reusable =
                !register.uniform && innermost && in_body && register.used.0 == phase;
        }
    }

    fn note_uses(&mut self, op: &Op<'_>, at: (usize, usize), uniform: bool) {
        let registers = &mut self.registers;
        op.visit_values(&mut |reg| {
            registers[reg.index()].used = at;
            registers[reg.index()].wide |= !uniform;
        });
        for sum in op.sums() {
            sum.visit_registers(&mut |reg| registers[reg.index()].used = at);
        }
    }

    /// Whether all lanes of an instruction are the same, and its level.
    fn nature(&self, p: usize, op: &Op<'_>) -> (bool, usize) {
        let innermost = self.innermost(p);
        let mut uniform = true;
        let mut level = 0;
        let mut meet = |reg: Reg| {
            let register = &self.registers[reg.index()];
            uniform &= register.uniform;
            if register.defined.0 == p {
                level = level.max(register.level);
            }
        };
        op.visit_values(&mut meet);
        for sum in op.sums() {
            sum.visit_registers(&mut meet);
        }
        let vector = self.vector(p);
        let loops = self.loops(p);
        for sum in op.sums() {
            uniform &= vector.constant(sum);
            for (d, axis) in loops.iter().enumerate() {
                if sum.depends_on(*axis) {
                    level = level.max(d + 1);
                }
            }
            if !self.by_rows() && !vector.constant(sum) {
                level = innermost;
            }
        }
        if let Op::Load { place, .. } | Op::Store { place, .. } = op {
            // Every lane has row storage of its own.
            uniform &= !(self.is_row(place.buffer) && self.by_rows());
        }
        let innermost_only = match op {
            Op::Load { place, .. } => self.stores_to(p, place.buffer),
            Op::Store { .. } | Op::Prefix(_) => true,
            _ => false,
        };
        uniform &= !matches!(op, Op::Prefix(_));
        if innermost_only {
            level = innermost;
        }
        (uniform, level)
    }

    fn is_row(&self, buffer: BufferId) -> bool {
        self.nest.nest.buffers[buffer].role == BufferRole::Row
    }

    fn stores_to(&self, phase: usize, buffer: BufferId) -> bool {
        let body = &self.nest.phases[phase].body;
        body.iter().any(|op| matches!(op, Op::Store { place, .. } if place.buffer == buffer))
    }

    /// Gives every register a block: its own, or one that was another's until here in the same phase.
    fn place_registers(&mut self) {
        let mut free: Vec<(usize, usize)> = vec![];
        let mut taken: Vec<(Reg, usize)> = vec![];
        for p in 0..self.nest.phases.len() {
            let phase = &self.nest.phases[p];
            for (at, op) in phase.body.iter().enumerate() {
                // A kernel may write over what it reads for the last time; others read while they write.
                let dying =
                    |used: usize| if matches!(op, Op::Scalar { .. }) { used <= at } else { used < at };
                taken.retain(|(reg, home)| {
                    let dies = dying(self.registers[reg.index()].used.1);
                    if dies {
                        free.push((self.nest.nest.registers[*reg].size(), *home));
                    }
                    !dies
                });
                for reg in op.results() {
                    let size = self.dtype(*reg).size();
                    if self.registers[reg.index()].reusable {
                        let found = free.iter().rposition(|(s, _)| *s == size);
                        let home = match found {
                            Some(k) => free.swap_remove(k).1,
                            None => self.layout.block(size, self.lanes),
                        };
                        self.homes[reg.index()] = home;
                        taken.push((*reg, home));
                    } else {
                        self.homes[reg.index()] = self.layout.block(size, self.spread(*reg));
                    }
                }
            }
            free.extend(taken.drain(..).map(|(reg, home)| (self.nest.nest.registers[reg].size(), home)));
            for reduction in phase.reductions {
                for reg in &reduction.results {
                    self.homes[reg.index()] = self.layout.block(self.dtype(*reg).size(), self.spread(*reg));
                }
            }
        }
    }

    /// Lanes of a register's block that are written.
    fn spread(&self, reg: Reg) -> usize {
        let register = self.registers[reg.index()];
        if register.uniform && !register.wide { CHUNK } else { self.lanes }
    }

    /// Lanes to fill with one value for a uniform register, else 0.
    fn uniform_spread(&self, reg: Reg) -> usize {
        if self.registers[reg.index()].uniform { self.spread(reg) } else { 0 }
    }

    fn phase(&mut self, p: usize) -> PhaseProgram {
        let phase = &self.nest.phases[p];
        let loops = self.loops(p);
        let last = loops.len().wrapping_sub(1);
        let backwards = |d: usize| self.by_rows() && phase.reverse && d == last;
        let mut program = PhaseProgram {
            loops: loops.iter().enumerate().map(|(d, a)| self.loop_over(*a, backwards(d))).collect(),
            vector: (!self.by_rows() && !self.vector(p).axes.is_empty()).then(|| self.vector(p).clone()),
            reverse: phase.reverse,
            levels: (0..=self.innermost(p)).map(|_| vec![]).collect(),
            reductions: vec![],
            prefix: phase.prefix,
            runs: phase.axes.iter().all(|a| self.nest.extent(*a) > 0),
        };
        let forwarded = self.forwarded(p);
        for (at, op) in phase.body.iter().enumerate() {
            if let Some((_, store, direct)) = forwarded.iter().find(|(defined, ..)| *defined == at) {
                let Op::Store { place, value } = &phase.body[*store] else {
                    unreachable!("found as a store")
                };
                let mut store = self.store(p, place, *value);
                store.direct = *direct;
                program.levels[self.innermost(p)].push(Step::Bind(Box::new(store)));
            }
            let (_, level) = self.nature(p, op);
            let mut steps = self.steps(p, at, op, &forwarded);
            match op {
                Op::Const { .. } => self.begin.append(&mut steps),
                _ => program.levels[level].append(&mut steps),
            }
        }
        for (k, reduction) in phase.reductions.iter().enumerate() {
            let mut compiled = Reduction::new(
                reduction,
                self.by_rows(),
                self.lanes,
                self.reductions,
                self.simd,
                &mut self.layout,
            );
            compiled.spread = reduction.results.iter().map(|reg| self.uniform_spread(*reg)).collect();
            self.reductions += 1;
            program.reductions.push(compiled);
            let innermost = self.innermost(p);
            program.levels[innermost].push(Step::Accumulate(k));
        }
        program
    }

    fn steps(&mut self, p: usize, at: usize, op: &Op<'_>, forwarded: &[(usize, usize, Direct)]) -> Vec<Step> {
        match op {
            Op::Const { result, value } => {
                vec![Step::Const { result: result.0, value: *value, lanes: self.spread(*result) }]
            }
            Op::Scalar { result, op, operands } => {
                let kernel = combine::kernel(*op, operands, *result, &|r| self.dtype(r), self.simd);
                let mut arguments = [result.0; 3];
                arguments.iter_mut().zip(*operands).for_each(|(a, r)| *a = r.0);
                let register = self.registers[result.index()];
                let mut steps =
                    vec![Step::Kernel { kernel, result: result.0, arguments, uniform: register.uniform }];
                if register.uniform && register.wide {
                    steps.push(Step::Splat { reg: result.0, size: self.dtype(*result).size() });
                }
                steps
            }
            Op::Index { result, value } => vec![Step::Index {
                result: result.0,
                value: self.offset(p, value),
                dtype: self.dtype(*result),
                spread: self.uniform_spread(*result),
            }],
            Op::Test { result, guards } => vec![Step::Test {
                result: result.0,
                conditions: self.conditions(p, guards),
                spread: self.uniform_spread(*result),
            }],
            Op::Load { result, place, fill } => {
                let (memory, offset) = self.memory(p, place);
                vec![Step::Load(Box::new(Load {
                    result: result.0,
                    memory,
                    offset,
                    conditions: self.conditions(p, &place.guards),
                    fill: fill.map_or(result.0, |r| r.0),
                    size: self.dtype(*result).size(),
                    spread: self.uniform_spread(*result),
                    direct: self.direct_load(p, *result, place, forwarded),
                }))]
            }
            Op::Store { place, value } => {
                let mut store = self.store(p, place, *value);
                let bound = forwarded.iter().find(|(_, store, _)| *store == at);
                store.direct = bound.map_or(Direct::Never, |(.., direct)| *direct);
                vec![Step::Store(Box::new(store))]
            }
            Op::Prefix(prefix) => {
                let program = combine::Program::new(&prefix.combine, self.lanes, self.simd, &mut self.layout);
                let lanes = if self.by_rows() { self.lanes } else { CHUNK };
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

    fn store(&mut self, p: usize, place: &Place, value: Reg) -> Store {
        let (memory, offset) = self.memory(p, place);
        let conditions = self.conditions(p, &place.guards);
        let (row, memory) = match memory {
            Memory::Parameter(k) => (false, k),
            Memory::Row(at) => (true, at),
        };
        let single = offset.is_uniform() && conditions.iter().all(Condition::is_uniform);
        let size = self.dtype(value).size();
        Store { value: value.0, memory, row, offset, conditions, size, single, direct: Direct::Never }
    }

    fn memory(&mut self, p: usize, place: &Place) -> (Memory, Offset) {
        if !self.is_row(place.buffer) {
            return (Memory::Parameter(place.buffer.index()), self.offset(p, &place.offset));
        }
        let memory = Memory::Row(self.rows[place.buffer.index()]);
        if !self.by_rows() {
            return (memory, self.offset(p, &place.offset));
        }
        let mut scaled = Sum::default();
        scaled.add(&place.offset, self.lanes as i64);
        (memory, self.offset(p, &scaled).interleaved())
    }

    fn offset(&mut self, p: usize, sum: &Sum) -> Offset {
        let vector = self.vector(p);
        let (registers, dtypes) = (&self.registers, &self.nest.nest.registers);
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

    /// The stores of a phase whose value may be written to memory where it is computed, as (position of the kernel,
    /// position of the store, when).
    fn forwarded(&mut self, p: usize) -> Vec<(usize, usize, Direct)> {
        let phase: &Phase<'n> = &self.nest.phases[p];
        let mut found: Vec<(usize, usize, Direct)> = vec![];
        for (at, op) in phase.body.iter().enumerate() {
            let Op::Store { place, value } = op else { continue };
            let register = self.registers[value.index()];
            let (_, defined) = register.defined;
            if !register.reusable
                || !place.guards.is_empty()
                || !matches!(phase.body[defined], Op::Scalar { .. })
                || found.iter().any(|(d, ..)| *d == defined)
            {
                continue;
            }
            let (_, offset) = self.memory(p, place);
            if !offset.is_linear() || offset.step != 1 {
                continue;
            }
            let mut direct = Direct::Always;
            for between in &phase.body[defined..at] {
                if let Op::Load { place: other, .. } = between {
                    if other.buffer == place.buffer {
                        direct = Direct::Never;
                    } else if direct == Direct::Always && !self.is_row(place.buffer) {
                        direct = Direct::Unaliased;
                    }
                }
            }
            if direct != Direct::Never {
                found.push((defined, at, direct));
            }
        }
        found
    }

    /// Whether a loaded register's block may be the memory itself: nothing may be written there before its last use.
    fn direct_load(
        &self,
        p: usize,
        result: Reg,
        place: &Place,
        forwarded: &[(usize, usize, Direct)],
    ) -> Direct {
        let register = self.registers[result.index()];
        let mut direct = Direct::Always;
        if register.used.0 != p {
            return Direct::Never;
        }
        for (at, op) in self.nest.phases[p].body.iter().enumerate() {
            let Op::Store { place: written, .. } = op else { continue };
            let early = forwarded.iter().find(|(_, store, _)| *store == at).map_or(at, |(d, ..)| *d);
            if register.reusable && register.used.1 <= early {
                continue;
            }
            if written.buffer == place.buffer {
                return Direct::Never;
            }
            if !self.is_row(written.buffer) && !self.is_row(place.buffer) {
                direct = Direct::Unaliased;
            }
        }
        direct
    }
}
