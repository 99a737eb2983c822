//! Facts about a kernel that follow from its code alone.

use super::{Flow, Instruction, Kernel};
use std::collections::BTreeMap;

/// Instructions by bytes of a lane: 16 → 4 for four `LDG.E.128`.
pub type Widths = BTreeMap<u32, u32>;

/// Memory instructions in the code.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Accesses {
    /// Loads of global memory.
    pub global_loads: Widths,
    /// Stores to global memory.
    pub global_stores: Widths,
    /// Asynchronous copies from global to shared memory (`LDGSTS`).
    pub asynchronous: Widths,
    /// Loads of shared memory.
    pub shared_loads: Widths,
    /// Stores to shared memory.
    pub shared_stores: Widths,
    /// Loads of local memory: spilled registers, and arrays that are not in registers.
    pub local_loads: Widths,
    /// Stores to local memory.
    pub local_stores: Widths,
    /// Loads and stores of fragments for tensor cores (`LDSM`, `STSM`).
    pub fragments: u32,
    /// Atomic operations on global memory.
    pub global_atomics: u32,
    /// Atomic operations on shared memory.
    pub shared_atomics: u32,
    /// Bulk copies (`UBLKCP`, `UTMALDG`, …).
    pub bulk_copies: u32,
}

/// An innermost loop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoopFacts {
    /// Address of its first instruction.
    pub address: u64,
    /// PTX line of its first instruction that has one.
    pub line: Option<u32>,
    /// Instructions.
    pub instructions: u32,
    /// Instructions by opcode.
    pub opcodes: BTreeMap<String, u32>,
    /// Its memory instructions.
    pub accesses: Accesses,
}

/// Facts about a kernel.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Facts {
    /// Reachable instructions, those of subroutines included.
    pub instructions: u32,
    /// Instructions by opcode.
    pub opcodes: BTreeMap<String, u32>,
    /// Memory instructions.
    pub accesses: Accesses,
    /// Barriers of the block (`BAR`).
    pub barriers: u32,
    /// Products of tensor cores by full name.
    pub tensor: BTreeMap<String, u32>,
    /// Innermost loops in the order of their addresses.
    pub loops: Vec<LoopFacts>,
}

impl Accesses {
    fn add(&mut self, i: &Instruction) {
        let widths = match i.opcode.as_str() {
            "LDG" | "LD" => &mut self.global_loads,
            "STG" | "ST" => &mut self.global_stores,
            "LDGSTS" => &mut self.asynchronous,
            "LDS" => &mut self.shared_loads,
            "STS" => &mut self.shared_stores,
            "LDL" => &mut self.local_loads,
            "STL" => &mut self.local_stores,
            _ => {
                let count = match i.opcode.as_str() {
                    "LDSM" | "STSM" => &mut self.fragments,
                    "ATOM" | "ATOMG" | "RED" | "REDG" => &mut self.global_atomics,
                    "ATOMS" | "REDS" => &mut self.shared_atomics,
                    "UBLKCP" | "UBLKRED" | "UTMALDG" | "UTMASTG" | "UTMAREDG" => {
                        &mut self.bulk_copies
                    }
                    _ => return,
                };
                *count += 1;
                return;
            }
        };
        *widths.entry(i.width()).or_default() += 1;
    }

    /// Whether registers spill, or arrays are in local memory.
    pub fn uses_local_memory(&self) -> bool {
        !self.local_loads.is_empty() || !self.local_stores.is_empty()
    }
}

fn is_tensor(i: &Instruction) -> bool {
    i.opcode.ends_with("MMA")
}

impl Facts {
    /// The facts of a kernel and its graph.
    pub fn new(kernel: &Kernel, flow: &Flow) -> Facts {
        let mut facts = Facts::default();
        for block in &flow.blocks {
            for i in &kernel.code[block.first..block.end] {
                facts.instructions += 1;
                *facts.opcodes.entry(i.opcode.clone()).or_default() += 1;
                facts.accesses.add(i);
                facts.barriers += u32::from(i.opcode == "BAR");
                if is_tensor(i) {
                    *facts.tensor.entry(i.name()).or_default() += 1;
                }
            }
        }
        for l in flow.loops.iter().filter(|l| l.is_innermost) {
            let code = || {
                let blocks = l.blocks.iter().map(|&b| &flow.blocks[b]);
                blocks.flat_map(|b| &kernel.code[b.first..b.end])
            };
            let mut found = LoopFacts {
                address: code().next().map_or(0, |i| i.address),
                line: code().find_map(|i| i.line),
                instructions: 0,
                opcodes: BTreeMap::new(),
                accesses: Accesses::default(),
            };
            for i in code() {
                found.instructions += 1;
                *found.opcodes.entry(i.opcode.clone()).or_default() += 1;
                found.accesses.add(i);
            }
            facts.loops.push(found);
        }
        facts.loops.sort_by_key(|l| l.address);
        facts
    }
}
