//! Flow analysis of a kernel: reconvergence points of diverged threads, and the allocation of
//! registers to rows.
//!
//! **Reconvergence.** Threads that diverge at a branch reconverge at its immediate
//! post-dominator: the first instruction that every path to the exit passes. It is found by the
//! algorithm of Cooper, Harvey and Kennedy ("A simple, fast dominance algorithm", 2001) on the
//! reversed graph.
//!
//! **Registers.** Compilers write PTX with thousands of registers, each written once. Here they
//! share rows, allocated by linear scan, so that a warp's file stays in cache. Liveness also
//! gives the registers that some path reads before it writes them. Only those can be read
//! uninitialised, so only those are checked at run time, in rows of their own; all others cost
//! nothing.

use super::Builder;
use super::hopper::Hopper;
use super::program::{Instruction, Op, Operand, Program};
use crate::parse::ParseError;
use crate::parse::syntax::Special;

/// A set of registers.
#[derive(Clone, PartialEq)]
struct Bits(Vec<u64>);

impl Bits {
    fn new(size: usize) -> Bits {
        Bits(vec![0; size.div_ceil(64)])
    }

    fn insert(&mut self, bit: u32) {
        self.0[bit as usize / 64] |= 1 << (bit % 64);
    }

    fn has(&self, bit: u32) -> bool {
        self.0[bit as usize / 64] >> (bit % 64) & 1 == 1
    }

    fn each(&self, mut f: impl FnMut(u32)) {
        for (at, &word) in self.0.iter().enumerate() {
            let mut word = word;
            while word != 0 {
                f(at as u32 * 64 + word.trailing_zeros());
                word &= word - 1;
            }
        }
    }
}

struct Block {
    first: usize,
    /// One past the last instruction.
    end: usize,
    next: Vec<usize>,
}

fn is_product(instruction: &Instruction) -> bool {
    matches!(&instruction.op, Op::Hopper(op) if matches!(**op, Hopper::Product(_)))
}

fn register(operand: Operand) -> Option<u32> {
    match operand {
        Operand::Word(r) | Operand::Double(r) | Operand::Predicate(r) => Some(r),
        Operand::Constant(_) | Operand::Sink => None,
    }
}

impl Instruction {
    fn reads(&self, mut f: impl FnMut(u32)) {
        if let Some((predicate, _)) = self.guard {
            f(predicate);
        }
        self.inputs.iter().copied().filter_map(register).for_each(f);
    }

    fn writes(&self, f: impl FnMut(u32)) {
        self.outputs.iter().copied().filter_map(register).for_each(f);
    }

    /// Branch targets, and whether control may fall through.
    fn targets(&self) -> (&[u32], bool) {
        match &self.op {
            Op::Branch(target) => (std::slice::from_ref(target), self.guard.is_some()),
            Op::BranchTable(targets) => (targets, self.guard.is_some()),
            Op::Exit | Op::Trap(_) => (&[], self.guard.is_some()),
            _ => (&[], true),
        }
    }

    fn ends_block(&self) -> bool {
        matches!(self.op, Op::Branch(_) | Op::BranchTable(_) | Op::Exit | Op::Trap(_))
    }
}

fn blocks(code: &[Instruction]) -> (Vec<Block>, Vec<bool>) {
    let mut leaders = vec![false; code.len() + 1];
    leaders[0] = true;
    for (pc, instruction) in code.iter().enumerate() {
        if instruction.ends_block() {
            leaders[pc + 1] = true;
            for &target in instruction.targets().0 {
                leaders[target as usize] = true;
            }
        }
    }
    let mut block_of = vec![0; code.len() + 1];
    let mut blocks: Vec<Block> = Vec::new();
    for pc in 0..code.len() {
        if leaders[pc] {
            blocks.push(Block { first: pc, end: pc, next: Vec::new() });
        }
        let last = blocks.len() - 1;
        block_of[pc] = last;
        blocks[last].end = pc + 1;
    }
    block_of[code.len()] = blocks.len();
    for block in &mut blocks {
        let (targets, falls) = code[block.end - 1].targets();
        block.next = targets.iter().map(|&target| block_of[target as usize]).collect();
        if falls {
            block.next.push(block_of[block.end]);
        }
        block.next.sort_unstable();
        block.next.dedup();
    }
    (blocks, leaders)
}

/// The immediate post-dominator of each block; the number of blocks stands for the exit.
fn post_dominators(blocks: &[Block]) -> Vec<usize> {
    let exit = blocks.len();
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); exit + 1];
    for (at, block) in blocks.iter().enumerate() {
        if block.next.is_empty() {
            before[exit].push(at);
        }
        for &next in &block.next {
            before[next].push(at);
        }
    }
    // Post-order of the reversed graph, from the exit.
    let mut order = vec![usize::MAX; exit + 1];
    let mut sequence = Vec::new();
    let mut seen = vec![false; exit + 1];
    let mut stack = vec![(exit, 0)];
    seen[exit] = true;
    while let Some((at, child)) = stack.pop() {
        if let Some(&next) = before[at].get(child) {
            stack.push((at, child + 1));
            if !seen[next] {
                seen[next] = true;
                stack.push((next, 0));
            }
        } else {
            order[at] = sequence.len();
            sequence.push(at);
        }
    }
    let mut dominator = vec![usize::MAX; exit + 1];
    dominator[exit] = exit;
    let exit_only = [exit];
    let mut changed = true;
    while changed {
        changed = false;
        for &at in sequence.iter().rev().filter(|&&at| at != exit) {
            let next: &[usize] =
                if blocks[at].next.is_empty() { &exit_only } else { &blocks[at].next };
            let mut meet = usize::MAX;
            for &next in next {
                if dominator[next] == usize::MAX {
                    continue;
                }
                if meet == usize::MAX {
                    meet = next;
                    continue;
                }
                let mut other = next;
                while meet != other {
                    while order[meet] < order[other] {
                        meet = dominator[meet];
                    }
                    while order[other] < order[meet] {
                        other = dominator[other];
                    }
                }
            }
            if dominator[at] != meet {
                dominator[at] = meet;
                changed = true;
            }
        }
    }
    // Blocks that never reach the exit get the exit as their reconvergence point: no other is
    // sound.
    dominator.iter().take(exit).map(|&d| if d == usize::MAX { exit } else { d }).collect()
}

/// Registers that are live at the beginning and end of each block.
fn liveness(code: &[Instruction], blocks: &[Block], registers: usize) -> (Vec<Bits>, Vec<Bits>) {
    let mut starts = Vec::new();
    let mut kills = Vec::new();
    for block in blocks {
        let (mut uses, mut kill) = (Bits::new(registers), Bits::new(registers));
        for instruction in &code[block.first..block.end] {
            instruction.reads(|r| {
                if !kill.has(r) {
                    uses.insert(r);
                }
            });
            // A guarded write keeps the old value in some threads.
            if instruction.guard.is_none() {
                instruction.writes(|r| kill.insert(r));
            }
        }
        starts.push(uses);
        kills.push(kill);
    }
    let mut ends = vec![Bits::new(registers); blocks.len()];
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); blocks.len()];
    for (at, block) in blocks.iter().enumerate() {
        for &next in block.next.iter().filter(|&&next| next < blocks.len()) {
            before[next].push(at);
        }
    }
    let mut queue: Vec<usize> = (0..blocks.len()).collect();
    let mut queued = vec![true; blocks.len()];
    while let Some(at) = queue.pop() {
        queued[at] = false;
        let mut end = std::mem::replace(&mut ends[at], Bits(Vec::new()));
        for &next in blocks[at].next.iter().filter(|&&next| next < blocks.len()) {
            for (word, &more) in end.0.iter_mut().zip(&starts[next].0) {
                *word |= more;
            }
        }
        let mut changed = false;
        for ((start, &end), &kill) in starts[at].0.iter_mut().zip(&end.0).zip(&kills[at].0) {
            let new = *start | (end & !kill);
            changed |= new != *start;
            *start = new;
        }
        ends[at] = end;
        if changed {
            for &previous in &before[at] {
                if !std::mem::replace(&mut queued[previous], true) {
                    queue.push(previous);
                }
            }
        }
    }
    (starts, ends)
}

/// Allocator of the rows of one class of registers.
#[derive(Default)]
struct Rows {
    count: u32,
    free: Vec<u32>,
    /// Ends of the intervals in use, latest first, with their rows.
    used: std::collections::BinaryHeap<std::cmp::Reverse<(u64, u32)>>,
}

impl Builder<'_> {
    /// Flow analysis, and the finished program.
    pub(super) fn finish(mut self) -> Result<Program, ParseError> {
        let (blocks, leaders) = blocks(&self.code);
        let mut reconvergence = vec![self.code.len() as u32; self.code.len()];
        for (block, meet) in blocks.iter().zip(post_dominators(&blocks)) {
            reconvergence[block.end - 1] =
                blocks.get(meet).map_or(self.code.len() as u32, |b| b.first as u32);
        }
        let registers = self.registers.len();
        if blocks.len() as u64 * registers as u64 > 1 << 31 {
            let line = self.code.first().map_or(1, |i| i.line);
            return Err(ParseError::new(
                self.text,
                line,
                1,
                "the kernel is too large to be analysed",
            ));
        }
        let (starts, ends) = liveness(&self.code, &blocks, registers);
        // Special registers, and registers that may be read before they are written, keep a row
        // throughout.
        let mut watched = Bits::new(registers);
        let mut fixed = Bits::new(registers);
        if let Some(first) = starts.first() {
            first.each(|r| watched.insert(r));
        }
        for &(_, r) in &self.specials {
            watched.0[r as usize / 64] &= !(1 << (r % 64));
            fixed.insert(r);
        }
        // A `wgmma` uses its registers until it is waited for, which liveness does not see.
        let mut pinned = Bits::new(registers);
        let mut has_products = false;
        for instruction in self.code.iter().filter(|i| is_product(i)) {
            has_products = true;
            let operands = instruction.outputs.iter().chain(&instruction.inputs);
            for r in operands.copied().filter(|o| matches!(o, Operand::Word(_))) {
                register(r).into_iter().for_each(|r| pinned.insert(r));
            }
        }
        pinned.each(|r| {
            if !watched.has(r) {
                fixed.insert(r);
            }
        });
        let (row, counts) = self.share_rows(&blocks, &starts, &ends, &watched, &fixed);
        let rename = |operand: &mut Operand| match operand {
            Operand::Word(r) | Operand::Double(r) | Operand::Predicate(r) => *r = row[*r as usize],
            Operand::Constant(_) | Operand::Sink => {}
        };
        for instruction in &mut self.code {
            let mut any = false;
            instruction.reads(|r| any |= watched.has(r));
            instruction.writes(|r| any |= watched.has(r));
            instruction.watched = any;
            if has_products && !is_product(instruction) {
                let mut any = false;
                instruction.reads(|r| any |= pinned.has(r));
                instruction.writes(|r| any |= pinned.has(r));
                instruction.pinned = any;
            }
            instruction.outputs.iter_mut().chain(&mut instruction.inputs).for_each(rename);
            if let Some((predicate, _)) = &mut instruction.guard {
                *predicate = row[*predicate as usize];
            }
        }
        let specials: Vec<(Special, Operand)> = self
            .specials
            .iter()
            .map(|&(special, r)| {
                let mut operand = self.register(r);
                rename(&mut operand);
                (special, operand)
            })
            .collect();
        let mut watched_rows = [0; 3];
        watched.each(|r| watched_rows[class(self.registers[r as usize])] += 1);
        Ok(Program {
            code: self.code,
            constants: self.constants,
            words: counts[0],
            doubles: counts[1],
            predicates: counts[2],
            watched: watched_rows,
            specials,
            reconvergence,
            leaders,
            shared_bytes: self.shared_bytes,
            dynamic_align: self.dynamic_align,
            local_bytes: self.local_bytes,
            has_products,
        })
    }

    /// The row of each register, and the number of rows of each class. Watched registers come
    /// first.
    fn share_rows(
        &self,
        blocks: &[Block],
        starts: &[Bits],
        ends: &[Bits],
        watched: &Bits,
        fixed: &Bits,
    ) -> (Vec<u32>, [u32; 3]) {
        let registers = self.registers.len();
        // Reads happen at even times, writes at odd ones, so a result may reuse the row of an
        // operand that ends there.
        let mut spans = vec![(u64::MAX, 0); registers];
        let mut touch = |r: u32, time: u64| {
            let span: &mut (u64, u64) = &mut spans[r as usize];
            *span = (span.0.min(time), span.1.max(time));
        };
        for (at, block) in blocks.iter().enumerate() {
            starts[at].each(|r| touch(r, block.first as u64 * 2));
            ends[at].each(|r| touch(r, block.end as u64 * 2));
            for (pc, instruction) in self.code[block.first..block.end].iter().enumerate() {
                let time = (block.first + pc) as u64 * 2;
                instruction.reads(|r| touch(r, time));
                instruction.writes(|r| touch(r, time + 1));
            }
        }
        let mut rows = [Rows::default(), Rows::default(), Rows::default()];
        let mut row = vec![0; registers];
        for set in [watched, fixed] {
            set.each(|r| {
                let rows = &mut rows[class(self.registers[r as usize])];
                row[r as usize] = rows.count;
                rows.count += 1;
            });
        }
        let mut order: Vec<u32> = (0..registers as u32)
            .filter(|&r| spans[r as usize].0 != u64::MAX && !watched.has(r) && !fixed.has(r))
            .collect();
        order.sort_by_key(|&r| spans[r as usize]);
        for r in order {
            let (start, end) = spans[r as usize];
            let rows = &mut rows[class(self.registers[r as usize])];
            while let Some(&std::cmp::Reverse((used_until, free))) = rows.used.peek() {
                if used_until >= start {
                    break;
                }
                rows.used.pop();
                rows.free.push(free);
            }
            let taken = rows.free.pop().unwrap_or_else(|| {
                rows.count += 1;
                rows.count - 1
            });
            row[r as usize] = taken;
            rows.used.push(std::cmp::Reverse((end, taken)));
        }
        (row, [rows[0].count, rows[1].count, rows[2].count])
    }
}

fn class(bits: u8) -> usize {
    match bits {
        1 => 2,
        64 => 1,
        _ => 0,
    }
}
