//! Control-flow graph of a kernel.
//!
//! A **block** is a run of instructions that is entered at its first and left at its last. Edges
//! are the ways on from its last instruction:
//!
//! - `BRA`, `JMP`: the target, and the next instruction if a guard or a predicate operand decides,
//!   or if the form is `BRA.DIV`, which jumps where lanes have diverged.
//! - `BRX`, `JMX`: the targets that the disassembler lists.
//! - `BSYNC B`: the target of the `BSSY B` that is in force, where the warp waits for its lanes.
//!   A forward analysis finds which these may be.
//! - `CALL`: the next instruction; the subroutine is a callee of the block.
//! - `RET`, `EXIT`, `KILL`, `BPT.TRAP`: none, and the next instruction if a guard decides.
//!
//! Edges and blocks that no path from an entry reaches are left out. These are the padding behind
//! a kernel's end.

use super::loops::{self, Loop};
use super::{Instruction, Kernel};
use std::collections::{BTreeMap, BTreeSet};

/// A basic block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    /// Its first instruction.
    pub first: usize,
    /// One more than its last instruction.
    pub end: usize,
    /// Blocks that may follow, in ascending order.
    pub successors: Vec<usize>,
    /// Blocks that it may follow, in ascending order.
    pub predecessors: Vec<usize>,
    /// Entry block of the subroutine that its last instruction calls.
    pub callee: Option<usize>,
    /// Whether a lane may end the kernel or the subroutine in it.
    pub leaves: bool,
}

/// The graph. Blocks are in the order of their addresses.
#[derive(Clone, PartialEq, Debug)]
pub struct Flow {
    /// Reachable blocks.
    pub blocks: Vec<Block>,
    /// Entry blocks: of the kernel, then of each reachable subroutine.
    pub entries: Vec<usize>,
    /// Loops; an inner one comes before the ones around it.
    pub loops: Vec<Loop>,
    /// Number of loops around each block.
    pub depth: Vec<u32>,
}

/// A graph that cannot be built.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("kernel `{kernel}`, address {address:#x}: {message}")]
pub struct FlowError {
    /// The kernel.
    pub kernel: String,
    /// Address of the instruction.
    pub address: u64,
    /// The reason.
    pub message: String,
}

/// How an instruction ends a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Jump,
    Indirect,
    Sync,
    Call,
    Leave,
    Falls,
}

fn end(i: &Instruction) -> End {
    match i.opcode.as_str() {
        "BRA" | "JMP" => End::Jump,
        "BRX" | "JMX" | "BRXU" | "JMXU" => End::Indirect,
        "BSYNC" => End::Sync,
        "CALL" => End::Call,
        "RET" | "EXIT" | "KILL" => End::Leave,
        "BPT" if i.has("TRAP") => End::Leave,
        _ => End::Falls,
    }
}

/// Whether the warp may also go on with the next instruction.
fn is_conditional(i: &Instruction) -> bool {
    let guarded = i.guard.as_ref().is_some_and(|g| g.negated || !g.predicate.ends_with("PT"));
    let by_operand = i.operands.iter().any(|o| {
        let name = o.trim_start_matches('!');
        (name.starts_with('P') || name.starts_with("UP")) && !name.ends_with("PT")
    });
    guarded || by_operand || i.has("DIV")
}

/// Whether no lane ever executes it.
fn is_never(i: &Instruction) -> bool {
    i.guard.as_ref().is_some_and(|g| g.negated && g.predicate.ends_with("PT"))
}

/// Targets of the `BSSY` in force, by barrier register.
type Barriers = BTreeMap<String, BTreeSet<usize>>;

impl Flow {
    /// The graph of a kernel.
    ///
    /// Errors: a branch has no known target; the code ends without `EXIT`; a subroutine is in
    /// another section.
    pub fn new(kernel: &Kernel) -> Result<Flow, FlowError> {
        let error = |at: usize, message: String| FlowError {
            kernel: kernel.name.clone(),
            address: kernel.code.get(at).map_or(0, |i| i.address),
            message,
        };
        let code = &kernel.code;
        if code.is_empty() {
            return Err(error(0, "it has no instructions".to_owned()));
        }
        let label = |at: usize, name: &str| -> Result<usize, FlowError> {
            let found = kernel.labels.get(name).copied().filter(|&i| i < code.len());
            found.ok_or_else(|| error(at, format!("`{name}` is not in this section")))
        };
        let starts = starts(kernel);
        let ranges: Vec<(usize, usize)> = {
            let ends = starts.iter().skip(1).copied().chain([code.len()]);
            starts.iter().copied().zip(ends).collect()
        };
        let block_of = |at: usize| starts.partition_point(|&s| s <= at) - 1;
        // Blocks are visited until the barriers at their entry no longer change.
        let mut known: Vec<Option<Barriers>> = vec![None; ranges.len()];
        let mut successors: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); ranges.len()];
        let mut callee: Vec<Option<usize>> = vec![None; ranges.len()];
        let mut leaves = vec![false; ranges.len()];
        let mut entries = vec![block_of(kernel.functions.first().map_or(0, |f| f.1))];
        let mut work: Vec<(usize, Barriers)> = vec![(entries[0], Barriers::new())];
        while let Some((block, arriving)) = work.pop() {
            let merged = match &known[block] {
                Some(old) => merge(old, &arriving),
                None => arriving,
            };
            if known[block].as_ref() == Some(&merged) {
                continue;
            }
            known[block] = Some(merged.clone());
            let mut barriers = merged;
            let (first, end_of) = ranges[block];
            for (offset, i) in code[first..end_of].iter().enumerate() {
                if i.opcode == "BSSY" {
                    let register = i.operands.first().cloned().unwrap_or_default();
                    let at = first + offset;
                    let name = i
                        .targets
                        .first()
                        .ok_or_else(|| error(at, "`BSSY` names no label".to_owned()))?;
                    barriers.insert(register, BTreeSet::from([label(at, name)?]));
                }
            }
            let at = end_of - 1;
            let last = &code[at];
            let kind = if is_never(last) { End::Falls } else { end(last) };
            let mut next: BTreeSet<usize> = BTreeSet::new();
            let falls = match kind {
                End::Jump | End::Indirect => {
                    if last.targets.is_empty() {
                        return Err(error(at, format!("`{}` has no known target", last.name())));
                    }
                    for name in &last.targets {
                        next.insert(block_of(label(at, name)?));
                    }
                    is_conditional(last)
                }
                End::Sync => {
                    let register = last.operands.first().cloned().unwrap_or_default();
                    let places = barriers.get(&register).cloned().unwrap_or_default();
                    next.extend(places.into_iter().map(block_of));
                    // Without a known `BSSY`, the warp goes on.
                    next.is_empty() || is_conditional(last)
                }
                End::Call => {
                    let name = last.targets.first().ok_or_else(|| {
                        error(at, "the subroutine of an indirect call is not known".to_owned())
                    })?;
                    let entry = block_of(label(at, name)?);
                    callee[block] = Some(entry);
                    if !entries.contains(&entry) {
                        entries.push(entry);
                    }
                    work.push((entry, Barriers::new()));
                    true
                }
                End::Leave => {
                    leaves[block] = true;
                    is_conditional(last)
                }
                End::Falls => true,
            };
            if falls {
                if block + 1 >= ranges.len() {
                    return Err(error(at, "the code ends without `EXIT`".to_owned()));
                }
                next.insert(block + 1);
            }
            work.extend(next.iter().map(|&b| (b, barriers.clone())));
            successors[block].extend(next);
        }
        Ok(assemble(&ranges, &known, &successors, &callee, &leaves, &entries))
    }

    /// The block of an instruction, if it is reachable.
    pub fn block_of(&self, instruction: usize) -> Option<usize> {
        let after = self.blocks.partition_point(|b| b.first <= instruction);
        let block = after.checked_sub(1)?;
        (instruction < self.blocks[block].end).then_some(block)
    }
}

/// First instructions of blocks, in ascending order.
fn starts(kernel: &Kernel) -> Vec<usize> {
    let mut starts: BTreeSet<usize> = BTreeSet::from([0]);
    starts.extend(kernel.functions.iter().map(|f| f.1));
    for (at, i) in kernel.code.iter().enumerate() {
        starts.extend(i.targets.iter().filter_map(|t| kernel.labels.get(t)));
        if end(i) != End::Falls {
            starts.insert(at + 1);
        }
    }
    starts.retain(|&s| s < kernel.code.len());
    starts.into_iter().collect()
}

fn merge(a: &Barriers, b: &Barriers) -> Barriers {
    let mut merged = a.clone();
    for (register, places) in b {
        merged.entry(register.clone()).or_default().extend(places);
    }
    merged
}

/// The graph of the reachable blocks, renumbered.
fn assemble(
    ranges: &[(usize, usize)],
    known: &[Option<Barriers>],
    successors: &[BTreeSet<usize>],
    callee: &[Option<usize>],
    leaves: &[bool],
    entries: &[usize],
) -> Flow {
    let mut number = vec![usize::MAX; ranges.len()];
    let reachable: Vec<usize> = (0..ranges.len()).filter(|&b| known[b].is_some()).collect();
    for (new, &old) in reachable.iter().enumerate() {
        number[old] = new;
    }
    let mut blocks: Vec<Block> = reachable
        .iter()
        .map(|&b| Block {
            first: ranges[b].0,
            end: ranges[b].1,
            successors: successors[b].iter().map(|&s| number[s]).collect(),
            predecessors: Vec::new(),
            callee: callee[b].map(|c| number[c]),
            leaves: leaves[b],
        })
        .collect();
    for from in 0..blocks.len() {
        for to in blocks[from].successors.clone() {
            blocks[to].predecessors.push(from);
        }
    }
    let entries: Vec<usize> = entries.iter().map(|&e| number[e]).collect();
    let loops = loops::find(&blocks, &entries);
    let mut depth = vec![0; blocks.len()];
    for l in &loops {
        l.blocks.iter().for_each(|&b| depth[b] += 1);
    }
    Flow { blocks, entries, loops, depth }
}

#[cfg(test)]
mod tests {
    use super::super::Module;
    use super::*;

    pub(crate) fn flow(body: &str) -> Result<Flow, FlowError> {
        let mut text = String::from(
            ".target sm_90\n.section .text.k,\"ax\",@progbits\n.type k,@function\nk:\n",
        );
        let mut address = 0;
        for line in body.lines().map(str::trim).filter(|l| !l.is_empty()) {
            match line.ends_with(':') {
                true => text.push_str(&format!("{line}\n")),
                false => {
                    text.push_str(&format!("/*{address:04x}*/ {line} ;\n"));
                    address += 16;
                }
            }
        }
        Flow::new(&Module::parse(&text).unwrap().kernels[0])
    }

    fn edges(flow: &Flow) -> Vec<Vec<usize>> {
        flow.blocks.iter().map(|b| b.successors.clone()).collect()
    }

    #[test]
    fn a_diamond_meets_at_the_target_of_its_bssy() {
        let found = flow(
            "BSSY B0, `(.L2)
             @P0 BRA `(.L1)
             FADD R0, R0, R1
             BSYNC B0
             .L1:
             FMUL R0, R0, R1
             BSYNC B0
             NOP
             .L2:
             EXIT",
        )
        .unwrap();
        // The `NOP` is not reachable.
        assert_eq!(edges(&found), [vec![1, 2], vec![3], vec![3], vec![]]);
        assert_eq!(found.blocks[3].predecessors, [1, 2]);
        assert!(found.blocks[3].leaves && found.loops.is_empty());
    }

    #[test]
    fn nested_loops_have_their_depth() {
        let found = flow(
            "MOV R0, RZ
             .L1:
             MOV R1, RZ
             .L2:
             FADD R2, R2, R3
             @P0 BRA `(.L2)
             @P1 BRA `(.L1)
             EXIT",
        )
        .unwrap();
        assert_eq!(edges(&found), [vec![1], vec![2], vec![2, 3], vec![1, 4], vec![]]);
        assert_eq!(found.depth, [0, 1, 2, 1, 0]);
        assert_eq!(found.loops.len(), 2);
        assert_eq!((found.loops[0].header, found.loops[0].is_innermost), (2, true));
        assert_eq!(found.loops[1].blocks, [1, 2, 3]);
        assert!(!found.loops[1].is_innermost);
    }

    #[test]
    fn branches_by_operand_calls_and_tables_have_their_edges() {
        let found = flow(
            "BRA.U UP0, `(.L1)
             CALL.REL.NOINC `(.F)
             BRX R2 -0x10 (*\"BRANCH_TARGETS .L1,.L3\"*)
             .L1:
             @P0 EXIT
             @!PT EXIT
             .L3:
             EXIT
             .F:
             RET.REL.NODEC R2 `(k)",
        )
        .unwrap();
        assert_eq!(
            edges(&found),
            [vec![1, 3], vec![2], vec![3, 5], vec![4], vec![5], vec![], vec![]]
        );
        assert_eq!(found.blocks[1].callee, Some(6));
        assert_eq!(found.entries, [0, 6]);
        assert!(found.blocks[3].leaves && !found.blocks[4].leaves);
    }

    #[test]
    fn what_cannot_be_followed_is_an_error() {
        let message = |body: &str| flow(body).unwrap_err().message;
        assert!(message("NOP").contains("without `EXIT`"));
        assert!(message("BRA `(.L9)\nEXIT").contains(".L9"));
        assert!(message("BRX R2 -0x10\nEXIT").contains("no known target"));
        assert!(message("CALL.ABS.NOINC R2\nEXIT").contains("indirect call"));
        assert!(message("BSSY B0\nEXIT").contains("names no label"));
    }
}
