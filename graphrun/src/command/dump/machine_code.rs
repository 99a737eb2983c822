//! The machine code of a plan's kernels.

use super::comment;
use crate::console::{Console, Outcome};
use crate::table::Table;
use std::collections::BTreeMap;
use wengert::core::Verified;
use wengert::core::plan::Plan;
use wengert::device::predicted::tools::Tools;
use wengert::device::predicted::{KernelCode, machine_code};

/// Prints the listing, and with `cost` a table of the kernels after it.
pub(super) fn print(plan: &Verified<Plan>, cost: bool, console: &mut Console<'_>) -> Outcome<()> {
    let code = machine_code(plan, &Tools::find()?)?;
    console.text(&code.listing)?;
    if cost {
        let header = [
            "kernel",
            "threads",
            "regs",
            "shared",
            "spill",
            "occ %",
            "instructions",
            "loops",
            "loads",
            "stores",
            "tensor",
        ];
        let mut table = Table::new(1, header);
        for kernel in &code.kernels {
            table.row(cells(kernel));
        }
        console.text(comment(&table.to_string()))?;
    }
    Ok(())
}

fn cells(kernel: &KernelCode) -> [String; 11] {
    let accesses = &kernel.facts.accesses;
    let loops = kernel.facts.loops.iter().map(|found| found.instructions.to_string());
    let tensor = kernel.facts.tensor.values().sum::<u32>();
    [
        kernel.kernel.clone(),
        kernel.threads.to_string(),
        kernel.registers.to_string(),
        kernel.shared.to_string(),
        (kernel.spills.0 + kernel.spills.1).to_string(),
        kernel.occupancy.map_or(String::new(), |found| found.percent().to_string()),
        kernel.facts.instructions.to_string(),
        loops.collect::<Vec<_>>().join(" "),
        widths(&[&accesses.global_loads, &accesses.asynchronous]),
        widths(&[&accesses.global_stores]),
        if tensor > 0 { tensor.to_string() } else { String::new() },
    ]
}

/// Accesses by the bytes of a lane, the widest first: `16x4 4x1` for four of 16 bytes and one of 4.
fn widths(kinds: &[&BTreeMap<u32, u32>]) -> String {
    let mut sums = BTreeMap::new();
    for (width, count) in kinds.iter().copied().flatten() {
        *sums.entry(*width).or_insert(0) += count;
    }
    let texts = sums.iter().rev().map(|(width, count)| format!("{width}x{count}"));
    texts.collect::<Vec<_>>().join(" ")
}
