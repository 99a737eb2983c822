//! Running the steps: loops over rows, inner axes and blocks.
//!
//! All unchecked accesses of a nest happen here and in [`super::combine`]. Their soundness rests
//! on conditions that are established where a [`CompiledNest`] is made and run:
//!
//! - The nest passed the verifier. So every access that is not clamped is in bounds by interval
//!   analysis, every register is written before it is read, and rows are independent.
//! - The buffers have the bytes and the alignment that the verifier assumed.
//! - The scratch memory has room for the layout.

use super::CompiledNest;
use super::address::{Offset, VectorAxes};
use super::combine::{Progress, splat_scalar};
use super::condition::{Passing, passing};
use super::frame::Frame;
use super::program::{Direct, Load, Memory, Native, PhaseProgram, Pointer, Prefix, Step, Store};
use crate::kernels::CHUNK;
use crate::kernels::moves::{self, RUN};
use crate::memory::ALIGNMENT;
use wengert_core::DType;

/// A frame, and the state of reductions.
pub(super) struct Runner<'a> {
    pub nest: &'a CompiledNest,
    pub frame: Frame<'a>,
    pub progress: &'a mut [Progress],
}

impl Runner<'_> {
    /// Runs the steps that precede all others of a task.
    pub fn begin(&mut self) {
        for (pointer, home) in self.frame.pointers.iter_mut().zip(&self.nest.homes) {
            *pointer = self.frame.scratch.wrapping_add(*home);
        }
        self.frame.set_block(0, 1, 1);
        for phase in &self.nest.phases {
            phase.reductions.iter().for_each(|r| r.program.begin(&self.frame));
            for step in phase.levels.iter().flatten() {
                if let Step::Prefix(prefix) = step {
                    prefix.program.begin(&self.frame);
                }
            }
        }
        self.steps(&self.nest.begin, None);
        if let Some(rows) = self.nest.rows.as_ref().filter(|_| !self.nest.fixed.is_empty()) {
            self.begin_block(rows, 0, rows.positions());
            self.steps(&self.nest.fixed, None);
        }
    }

    /// Runs some units: rows, or blocks of rows.
    pub fn units(&mut self, units: std::ops::Range<usize>) {
        let (positions, period) = match &self.nest.rows {
            Some(vector) => (vector.positions(), vector.period()),
            None => (1, 1),
        };
        if let Some(repeat) = &self.nest.repeat {
            return self.repeat_rows(units, 0..positions, repeat);
        }
        let lanes = self.nest.lanes;
        let blocks = positions.div_ceil(lanes);
        let mut block = units.start % blocks;
        self.enter(units.start / blocks);
        for unit in units {
            let position = block * lanes;
            let phases = self.nest.phases.len();
            let phases = self.nest.bands.map_or(0..phases, |bands| bands.phases(unit, phases));
            self.block_of_rows(position, lanes.min(positions - position), period, phases);
            block += 1;
            if block == blocks {
                block = 0;
                self.advance();
            }
        }
    }

    /// Sets the counters to an iteration of the outer axes, by its number.
    pub fn enter(&mut self, outer: usize) {
        let mut rest = outer;
        for outer in self.nest.outer.iter().rev() {
            self.frame.counters[outer.axis as usize] = (rest % outer.extent) as i64;
            rest /= outer.extent;
        }
    }

    /// Runs the phases for a block of rows (for one row, if lanes are elements) of the current
    /// iteration of the outer axes.
    pub fn block_of_rows(
        &mut self,
        position: usize,
        count: usize,
        period: usize,
        phases: std::ops::Range<usize>,
    ) {
        match &self.nest.rows {
            Some(rows) => self.begin_block(rows, position, count),
            None => self.frame.set_block(position, count, period),
        }
        for phase in &self.nest.phases[phases] {
            self.phase(phase);
        }
    }

    /// Sets the frame to a block of rows.
    pub fn begin_block(&mut self, rows: &VectorAxes, position: usize, count: usize) {
        let period = rows.period();
        self.frame.set_block(position, count, period);
        if period > 1 {
            self.frame.counters[rows.axes[0].0 as usize] = (position / period) as i64;
        }
    }

    /// Advances to the next iteration of the outer axes.
    fn advance(&mut self) {
        for outer in self.nest.outer.iter().rev() {
            let counter = &mut self.frame.counters[outer.axis as usize];
            *counter += 1;
            if *counter < outer.extent as i64 {
                return;
            }
            *counter = 0;
        }
    }

    fn phase(&mut self, phase: &PhaseProgram) {
        let block = (self.frame.position as usize, self.frame.count);
        for reduction in &phase.reductions {
            reduction.begin(&self.frame, self.progress);
        }
        if phase.runs {
            self.steps(&phase.levels[0], Some(phase));
            self.inner(phase, 0);
        }
        if phase.vector.is_some() {
            // Blocks of elements end here: the rest belongs to the row.
            self.frame.set_block(block.0, block.1, 1);
        }
        for reduction in &phase.reductions {
            reduction.finish(&mut self.frame, self.progress, &self.nest.homes);
        }
    }

    fn inner(&mut self, phase: &PhaseProgram, depth: usize) {
        if depth == phase.loops.len() {
            if phase.vector.is_some() {
                self.blocks(phase);
            }
            return;
        }
        if let Some(repeat) = phase.repeat.as_ref().filter(|_| depth + 1 == phase.loops.len()) {
            return self.repeat(phase, repeat);
        }
        let axis = phase.loops[depth];
        if phase.prefix && depth + 1 == phase.loops.len() && phase.vector.is_none() {
            self.restart(phase);
        }
        for k in 0..axis.extent {
            let k = if axis.reverse { axis.extent - 1 - k } else { k };
            self.frame.counters[axis.axis as usize] = k as i64;
            self.steps(&phase.levels[depth + 1], Some(phase));
            self.inner(phase, depth + 1);
        }
    }

    fn blocks(&mut self, phase: &PhaseProgram) {
        let Some(vector) = &phase.vector else { return };
        let (positions, period, lanes) = (vector.positions(), vector.period(), self.nest.lanes);
        if phase.prefix {
            self.restart(phase);
        }
        let blocks = positions.div_ceil(lanes);
        let steps = &phase.levels[phase.levels.len() - 1];
        for block in 0..blocks {
            let block = if phase.reverse { blocks - 1 - block } else { block };
            let position = block * lanes;
            self.frame.set_block(position, lanes.min(positions - position), period);
            if period > 1 {
                self.frame.counters[vector.axes[0].0 as usize] = (position / period) as i64;
            }
            self.steps(steps, Some(phase));
        }
    }

    /// Sets the states of a phase's prefixes to the identity.
    fn restart(&mut self, phase: &PhaseProgram) {
        for step in phase.levels.iter().flatten() {
            let Step::Prefix(prefix) = step else { continue };
            for (k, state) in prefix.states.iter().enumerate() {
                let lanes = if self.nest.rows.is_some() { self.frame.padded } else { CHUNK };
                // SAFETY: a state has a block's lanes if lanes are rows, else a chunk.
                unsafe { prefix.program.identity(self.frame.at(*state), k, lanes) };
            }
        }
    }

    fn home(&self, reg: u32) -> *mut u8 {
        self.frame.at(self.nest.homes[reg as usize])
    }

    fn steps(&mut self, steps: &[Step], phase: Option<&PhaseProgram>) {
        for step in steps {
            match step {
                Step::Kernel { kernel, result, arguments, uniform, repeat } => {
                    let count = if *uniform { CHUNK } else { self.frame.padded };
                    let [a, b, c] = arguments.map(|reg| self.frame.pointers[reg as usize]);
                    // SAFETY: the registers have blocks of at least `count` elements of the
                    // dtypes the kernel was looked up for. Homes have room for a block (uniform
                    // ones for a chunk, or more where it is needed), and memory replaces a home
                    // only for whole chunks of valid elements. Blocks are identical or disjoint:
                    // homes of live registers are distinct, and memory is written early only if
                    // no other instruction reads it.
                    unsafe {
                        kernel(self.frame.pointers[*result as usize], a, b, c, count, *repeat)
                    };
                }
                Step::Chain { chain, result, arguments, repeat } => {
                    let operands = arguments.map(|reg| self.frame.pointers[reg as usize]);
                    let target = self.frame.pointers[*result as usize];
                    // SAFETY: as above; a chain has a pointer for each operand, and some that it
                    // does not read.
                    unsafe { chain(target, operands.as_ptr(), self.frame.padded, *repeat) };
                }
                Step::Splat { reg, size, lanes } => {
                    let home = self.home(*reg);
                    // SAFETY: the home has that many lanes.
                    unsafe { moves::splat(home, home, *size, *lanes) };
                }
                Step::Const { result, value, lanes } => {
                    // SAFETY: the home has that many lanes.
                    unsafe { splat_scalar(self.home(*result), *value, *lanes) };
                }
                Step::Index { result, value, dtype, spread } => {
                    let home = self.home(*result);
                    if *spread > 0 {
                        let value = value.base(&self.frame);
                        let bytes = value.to_le_bytes();
                        // SAFETY: the home has that many lanes; integers wrap by dropping high
                        // bytes.
                        unsafe {
                            std::ptr::copy_nonoverlapping(bytes.as_ptr(), home, dtype.size());
                            moves::splat(home, home, dtype.size(), *spread);
                        }
                    } else if value.is_linear() {
                        let base = value.base(&self.frame);
                        // SAFETY: the home has a block's lanes; integers wrap by dropping high
                        // bytes.
                        unsafe {
                            moves::ramp(home, base, value.step, dtype.size(), self.frame.count)
                        };
                    } else {
                        value.fill(&mut self.frame, 0);
                        // SAFETY: the home has a block's lanes.
                        unsafe { narrow(home, self.frame.index(0), *dtype) };
                    }
                }
                Step::Test { result, conditions, spread } => {
                    let home = self.home(*result);
                    let pass = passing(conditions, &mut self.frame);
                    if *spread > 0 {
                        let holds = u8::from(pass.from < pass.to && !pass.masked);
                        // SAFETY: the home has that many lanes.
                        unsafe { home.write_bytes(holds, *spread) };
                    } else {
                        // SAFETY: the home has a block's lanes, and `from..to` lies within the
                        // block.
                        unsafe {
                            home.write_bytes(0, self.frame.count);
                            let passing = home.add(pass.from);
                            if pass.masked {
                                let mask = self.frame.mask().as_ptr().add(pass.from);
                                std::ptr::copy_nonoverlapping(mask, passing, pass.to - pass.from);
                            } else {
                                passing.write_bytes(1, pass.to - pass.from);
                            }
                        }
                    }
                }
                Step::Stream { result, parameter, size, direct, offset } => {
                    let (k, size) = (*parameter as usize, *size as usize);
                    let (count, first) = (self.frame.count, offset.base(&self.frame));
                    self.assert_inside(Some(k), first, 1, count, size);
                    let source =
                        self.frame.buffers[k].pointer().wrapping_add(first as usize * size);
                    let pointer = if count.is_multiple_of(CHUNK) && self.is_direct(*direct, Some(k))
                    {
                        source
                    } else {
                        let home = self.home(*result);
                        // SAFETY: the elements are in bounds, as the verifier proved; the home
                        // has a block's lanes.
                        unsafe { std::ptr::copy_nonoverlapping(source, home, count * size) };
                        home
                    };
                    self.frame.pointers[*result as usize] = pointer;
                }
                Step::Load(load) => self.load(load),
                Step::Bind(store) => self.bind(store),
                Step::Store(store) => self.store(store),
                Step::Prefix(prefix) => self.prefix(prefix),
                Step::Accumulate(k) => {
                    let reductions = phase.map_or(&[][..], |p| &p.reductions);
                    reductions[*k].accumulate(&self.frame, self.progress);
                }
                Step::Native(native) => self.native(native, phase),
            }
        }
    }

    /// Fills the table of a step with its pointers at this point of the loops.
    pub fn fill_table(&self, native: &Native, phase: Option<&PhaseProgram>) -> *mut *mut u8 {
        let reductions = phase.map_or(&[][..], |p| &p.reductions);
        debug_assert_eq!(native.entries.len(), native.function.pointers());
        let table = self.frame.at(native.table).cast::<*mut u8>();
        for (k, entry) in native.entries.iter().enumerate() {
            let pointer = match entry {
                Pointer::Register(reg) => self.frame.pointers[*reg as usize],
                Pointer::Memory { memory, offset, size } => self.element(memory, offset, *size),
                Pointer::Guarded { memory, offset, size, conditions, fill } => {
                    match conditions.iter().all(|condition| condition.holds(&self.frame)) {
                        true => self.element(memory, offset, *size),
                        false => self.frame.pointers[*fill as usize],
                    }
                }
                Pointer::Accumulators(k) => reductions[*k].native(&self.frame, self.progress),
            };
            // SAFETY: the table has room for all entries.
            unsafe { table.add(k).write(pointer) };
        }
        table
    }

    /// Address of the element of the block's first lane.
    fn element(&self, memory: &Memory, offset: &Offset, size: usize) -> *mut u8 {
        let (start, parameter) = self.memory(memory);
        let first = offset.base(&self.frame);
        self.assert_inside(parameter, first, 1, self.frame.count, size);
        start.wrapping_offset(first.wrapping_mul(size as i64) as isize)
    }

    fn native(&mut self, native: &Native, phase: Option<&PhaseProgram>) {
        let reductions = phase.map_or(&[][..], |p| &p.reductions);
        let table = self.fill_table(native, phase);
        // Memory that the step also reads is in the caches already.
        let apart = |k: usize| match &native.entries[k] {
            Pointer::Memory { memory: Memory::Parameter(p), .. } => {
                self.is_direct(Direct::Unaliased, Some(*p))
                    // SAFETY: the table has been filled.
                    && unsafe { table.add(k).read() }.addr().is_multiple_of(ALIGNMENT)
            }
            _ => false,
        };
        let past = native.past.as_ref().filter(|(_, pointers)| pointers.iter().all(|k| apart(*k)));
        let function = past.map_or(&native.function, |(function, _)| function);
        // SAFETY: the machine has AVX-512, or there would be no native code. Registers have
        // blocks of at least `count` elements, or one element if they are uniform. The elements
        // of memory are in bounds, as the verifier proved. Accumulators are sixteen, or a block.
        // Memory is shared only where the nest reads an element before it writes it, and native
        // code keeps that order.
        unsafe { function.run(table, self.frame.count) };
        native.folds.iter().for_each(|k| reductions[*k].taken(&self.frame, self.progress, 1));
    }

    /// Whether a buffer may now replace a register's block.
    fn is_direct(&self, direct: Direct, parameter: Option<usize>) -> bool {
        match direct {
            Direct::Always => true,
            Direct::Unaliased => {
                parameter.is_none_or(|k| k < 64 && self.frame.aliased & (1 << k) == 0)
            }
            Direct::Never => false,
        }
    }

    fn memory(&self, memory: &Memory) -> (*mut u8, Option<usize>) {
        match memory {
            Memory::Parameter(k) => (self.frame.buffers[*k].pointer(), Some(*k)),
            Memory::Row(at) => (self.frame.at(*at), None),
        }
    }

    /// In debug builds, checks elements of a parameter, `step` apart, against its bounds.
    fn assert_inside(
        &self,
        parameter: Option<usize>,
        first: i64,
        step: i64,
        count: usize,
        size: usize,
    ) {
        let Some(k) = parameter else { return };
        let last = first.wrapping_add(step.wrapping_mul(count as i64 - 1));
        for element in [first, last] {
            debug_assert!(
                element >= 0 && (element as usize + 1) * size <= self.frame.buffers[k].bytes(),
                "{}: element {element} of parameter {k} is out of bounds",
                self.nest.name
            );
        }
    }

    fn load(&mut self, load: &Load) {
        let home = self.home(load.result);
        let (memory, parameter) = self.memory(&load.memory);
        let size = load.size;
        let fill = self.frame.pointers[load.fill as usize];
        let element = |at: i64| memory.wrapping_offset(at.wrapping_mul(size as i64) as isize);
        if load.spread > 0 {
            let pass = passing(&load.conditions, &mut self.frame);
            debug_assert!(!pass.masked, "uniform conditions hold for all lanes or for none");
            let source = if pass.from < pass.to && !pass.masked {
                let at = load.offset.base(&self.frame);
                self.assert_inside(parameter, at, 1, 1, size);
                element(at)
            } else {
                fill
            };
            // SAFETY: the element is in bounds, as the verifier proved; the home has
            // `load.spread` lanes.
            unsafe { moves::splat(home, source, size, load.spread) };
            self.frame.pointers[load.result as usize] = home;
            return;
        }
        let count = self.frame.count;
        let lanes = passing(&load.conditions, &mut self.frame);
        if lanes != (Passing { from: 0, to: count, masked: false }) {
            // SAFETY: both have a block's lanes.
            unsafe { std::ptr::copy(fill, home, count * size) };
        }
        self.frame.pointers[load.result as usize] = home;
        let taken = lanes.to - lanes.from;
        if taken == 0 {
            return;
        }
        let target = home.wrapping_add(lanes.from * size);
        if load.offset.is_linear() && !lanes.masked {
            let step = load.offset.step;
            let first =
                load.offset.base(&self.frame).wrapping_add(step.wrapping_mul(lanes.from as i64));
            self.assert_inside(parameter, first, step, taken, size);
            let source = element(first);
            if step == 1 {
                if taken == count
                    && count.is_multiple_of(CHUNK)
                    && self.is_direct(load.direct, parameter)
                {
                    self.frame.pointers[load.result as usize] = source;
                } else {
                    // SAFETY: the lanes' elements are in bounds, as the verifier proved; the home
                    // has a block's lanes.
                    unsafe { std::ptr::copy_nonoverlapping(source, target, taken * size) };
                }
            } else {
                // SAFETY: as above.
                unsafe { moves::load_strided(target, source, step as isize, size, taken) };
            }
            return;
        }
        if let Some(table) = load.offset.tabulated().filter(|_| !lanes.masked) {
            let first = self.frame.position as usize;
            let (first, last) = (first + lanes.from, first + lanes.to);
            let offsets = &self.frame.tables[table][first..last];
            let source = element(load.offset.base(&self.frame));
            // SAFETY: all lanes' elements are in bounds, as the verifier proved.
            unsafe {
                if first.is_multiple_of(RUN) {
                    let runs = &self.frame.runs[table][first / RUN..last.div_ceil(RUN)];
                    moves::gather_runs(target, source, offsets, runs, size);
                } else {
                    moves::gather(target, source, offsets, size);
                }
            }
            return;
        }
        load.offset.fill(&mut self.frame, 0);
        let (offsets, mask) = self.frame.index_and_mask();
        let offsets = &offsets[lanes.from..lanes.to];
        if lanes.masked {
            // SAFETY: where the mask is not 0, the guards hold, and the element is in bounds.
            unsafe {
                moves::gather_masked(target, memory, offsets, &mask[lanes.from..lanes.to], size)
            };
        } else {
            // SAFETY: all lanes' elements are in bounds, as the verifier proved, or clamped.
            unsafe { moves::gather(target, memory, offsets, size) };
        }
    }

    /// Binds the stored register to memory: its next definition writes there.
    fn bind(&mut self, store: &Store) {
        let (memory, parameter) = self.memory(&store.memory);
        let direct =
            self.frame.count.is_multiple_of(CHUNK) && self.is_direct(store.direct, parameter);
        self.frame.pointers[store.value as usize] = if direct {
            let first = store.offset.base(&self.frame);
            self.assert_inside(parameter, first, 1, self.frame.count, store.size);
            memory.wrapping_offset(first.wrapping_mul(store.size as i64) as isize)
        } else {
            self.home(store.value)
        };
    }

    fn store(&mut self, store: &Store) {
        let value = self.frame.pointers[store.value as usize];
        if store.direct != Direct::Never && value != self.home(store.value) {
            // The register was bound to this memory.
            return;
        }
        let (memory, parameter) = self.memory(&store.memory);
        let size = store.size;
        let lanes = passing(&store.conditions, &mut self.frame);
        let taken =
            if store.single { (lanes.to - lanes.from).min(1) } else { lanes.to - lanes.from };
        if taken == 0 {
            return;
        }
        let source = value.wrapping_add(if store.single { 0 } else { lanes.from * size });
        if store.offset.is_linear() && !lanes.masked {
            let step = store.offset.step;
            let first =
                store.offset.base(&self.frame).wrapping_add(step.wrapping_mul(lanes.from as i64));
            self.assert_inside(parameter, first, step, taken, size);
            let target = memory.wrapping_offset(first.wrapping_mul(size as i64) as isize);
            // SAFETY: the lanes' elements are in bounds, as the verifier proved, and no other row
            // writes them. The register has a block's lanes, or one if a single element is
            // stored.
            unsafe {
                if step == 1 || taken == 1 {
                    std::ptr::copy(source, target, taken * size);
                } else {
                    moves::store_strided(target, source, step as isize, size, taken);
                }
            }
            return;
        }
        store.offset.fill(&mut self.frame, 0);
        if !lanes.masked {
            self.frame.mask().fill(1);
        }
        let (offsets, mask) = self.frame.index_and_mask();
        let range = lanes.from..lanes.to;
        // SAFETY: as above, where the mask is not 0.
        unsafe {
            moves::scatter_masked(memory, source, &offsets[range.clone()], &mask[range], size)
        };
    }

    fn prefix(&mut self, prefix: &Prefix) {
        let frame = &self.frame;
        let value = |k: usize| frame.pointers[prefix.values[k] as usize];
        let program = &prefix.program;
        if self.nest.rows.is_some() {
            // SAFETY: values, results and states have a block's lanes, of the tuple's dtypes.
            unsafe {
                program.combine(frame, frame.padded, |k| {
                    (frame.at(prefix.states[k]), value(k).cast_const())
                });
                for (k, result) in prefix.results.iter().enumerate() {
                    let bytes = frame.padded * program.sizes[k];
                    std::ptr::copy_nonoverlapping(
                        frame.at(prefix.states[k]),
                        self.home(*result),
                        bytes,
                    );
                }
            }
        } else if let Some(scan) = program.scan {
            // SAFETY: value and result have a block's lanes, of the dtype that the scan was
            // looked up for.
            unsafe {
                scan(
                    self.home(prefix.results[0]),
                    value(0),
                    frame.at(prefix.states[0]),
                    frame.count,
                    prefix.reverse,
                )
            };
        } else {
            for lane in 0..frame.count {
                let lane = if prefix.reverse { frame.count - 1 - lane } else { lane };
                // SAFETY: the lane is one of the block's; states and spare blocks have a chunk
                // each.
                unsafe {
                    for k in 0..program.tuple() {
                        let size = program.sizes[k];
                        std::ptr::copy_nonoverlapping(
                            value(k).add(lane * size),
                            frame.at(prefix.spare[k]),
                            size,
                        );
                    }
                    program.combine(frame, CHUNK, |k| {
                        (frame.at(prefix.states[k]), frame.at(prefix.spare[k]).cast_const())
                    });
                    for (k, result) in prefix.results.iter().enumerate() {
                        let size = program.sizes[k];
                        let to = self.home(*result).add(lane * size);
                        std::ptr::copy_nonoverlapping(frame.at(prefix.states[k]), to, size);
                    }
                }
            }
        }
        for result in &prefix.results {
            self.frame.pointers[*result as usize] = self.home(*result);
        }
    }
}

/// Writes integers to a block of a narrower or equal dtype; they wrap.
///
/// # Safety
///
/// The block is valid to write as many elements.
unsafe fn narrow(block: *mut u8, values: &[i64], dtype: DType) {
    // SAFETY: the caller's promise.
    unsafe {
        for (lane, value) in values.iter().enumerate() {
            match dtype.size() {
                1 => block.add(lane).write(*value as u8),
                4 => block.cast::<u32>().add(lane).write(*value as u32),
                _ => block.cast::<i64>().add(lane).write(*value),
            }
        }
    }
}
