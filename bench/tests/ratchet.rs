//! A ratchet on the kernels of the GPU suite.
//!
//! `gpu-kernels.csv` has what is counted of each kernel: launches, registers, occupancy, spills,
//! bytes of the arguments, sectors of a request, instructions of a block. No time is in it. A
//! change that makes a figure worse by more than 3 % fails, and the message says which. A change
//! that makes one better, or that divides the work into other kernels, is written by
//!
//! ```text
//! WENGERT_BLESS=1 cargo nextest run -p wengert-bench --test ratchet
//! ```
//!
//! and the table's difference is a part of the change. The totals of a program may not become
//! worse even then, unless the table is deleted first.

#![allow(clippy::unwrap_used)]

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use wengert::device::predicted::tools::Tools;
use wengert::device::predicted::{Options, Predicted, architecture, card, predict};
use wengert::{bind, pipeline, target};
use wengert_bench::gpu_model::suite;
use wengert_ci::toolkit::Toolkit;

/// What a figure may grow, relative to the table.
const TOLERANCE: f64 = 0.03;

/// The card whose machine code and limits are looked at.
const CARD: &str = "h200";

/// A kernel of a program, or the program's totals.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Figures {
    program: String,
    /// The kernel's name and its blocks; `all` for the totals.
    kernel: String,
    launches: u64,
    registers: u32,
    occupancy: u32,
    spills: u32,
    /// Bytes of the arguments of a launch; of all launches in the totals.
    bytes: u64,
    sectors: f64,
    /// Warp instructions of a block; of all launches in the totals.
    instructions: f64,
}

/// Rounds so that the table has no digits that say nothing.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// The kernels of a program by their names, then the totals.
fn figures(program: &str, found: &Predicted) -> Vec<Figures> {
    assert!(found.unknown.is_empty(), "{program}: {:?}", found.unknown);
    let own = found.rows.iter().filter(|row| row.occupancy.is_some());
    let mut all: Vec<Figures> = own
        .map(|row| Figures {
            program: program.into(),
            kernel: format!("{} {}", row.kernel, row.blocks),
            launches: row.times,
            registers: row.registers,
            occupancy: row.occupancy.map_or(0, |o| o.percent()),
            spills: row.spills.0 + row.spills.1,
            bytes: row.memory,
            sectors: rounded(row.sectors),
            instructions: rounded(row.instructions / row.blocks as f64),
        })
        .collect();
    all.sort_by(|a, b| (&a.kernel, a.bytes).cmp(&(&b.kernel, b.bytes)));
    // Launches that differ only in what their arguments share are one row.
    all.dedup_by(|next, row| {
        let same = next.kernel == row.kernel && next.bytes == row.bytes;
        if same {
            row.launches += next.launches;
            row.sectors = row.sectors.max(next.sectors);
            row.instructions = row.instructions.max(next.instructions);
        }
        same
    });
    let sum = |of: fn(&wengert::device::predicted::Row) -> f64| {
        let own = found.rows.iter().filter(|row| row.occupancy.is_some());
        own.map(|row| row.times as f64 * of(row)).sum::<f64>()
    };
    all.push(Figures {
        program: program.into(),
        kernel: "all".into(),
        launches: found.rows.iter().map(|row| row.times).sum(),
        registers: all.iter().map(|f| f.registers).max().unwrap_or(0),
        occupancy: all.iter().map(|f| f.occupancy).min().unwrap_or(0),
        spills: all.iter().map(|f| f.spills).sum(),
        bytes: sum(|row| row.memory as f64) as u64,
        sectors: 0.0,
        instructions: rounded(sum(|row| row.instructions)),
    });
    all
}

/// What became worse, as sentences.
fn worse(old: &Figures, new: &Figures) -> Vec<String> {
    let mut found = Vec::new();
    let mut grew = |what: &str, old: f64, new: f64| {
        if new > old * (1.0 + TOLERANCE) {
            found.push(format!("{what} {old} -> {new}"));
        }
    };
    grew("launches", old.launches as f64, new.launches as f64);
    grew("registers", old.registers.into(), new.registers.into());
    grew("bytes of spills", old.spills.into(), new.spills.into());
    grew("bytes", old.bytes as f64, new.bytes as f64);
    grew("sectors of a request", old.sectors, new.sectors);
    grew("instructions", old.instructions, new.instructions);
    if f64::from(new.occupancy) < f64::from(old.occupancy) * (1.0 - TOLERANCE) {
        found.push(format!("occupancy {} % -> {} %", old.occupancy, new.occupancy));
    }
    let name = |what: String| format!("{} {}: {what}", new.program, new.kernel);
    found.into_iter().map(name).collect()
}

/// Compares tables. A kernel that is in one of them only is a change of the table.
fn compare(old: &[Figures], new: &[Figures]) -> Vec<String> {
    let key = |f: &Figures| (f.program.clone(), f.kernel.clone(), f.bytes);
    let known: BTreeMap<_, _> = old.iter().map(|f| (key(f), f)).collect();
    // Totals are compared whatever their bytes.
    let total = |f: &Figures| {
        old.iter().find(|o| o.program == f.program && o.kernel == "all" && f.kernel == "all")
    };
    let mut found = Vec::new();
    for f in new {
        match known.get(&key(f)).copied().or_else(|| total(f)) {
            Some(old) => found.extend(worse(old, f)),
            None => found.push(format!("{} {}: is not in the table", f.program, f.kernel)),
        }
    }
    let made: Vec<_> = new.iter().map(key).collect();
    for f in old.iter().filter(|f| f.kernel != "all" && !made.contains(&key(f))) {
        found.push(format!("{} {}: is in the table and not made", f.program, f.kernel));
    }
    found
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("gpu-kernels.csv")
}

/// The programs whose kernels are in the table. G2 and G3 are G1's kernels with other extents.
fn is_counted(label: &str, name: &str) -> bool {
    match label {
        "G1" | "G4" | "G6" => true,
        "G7" => name.contains(" 1024, forward and backward"),
        _ => false,
    }
}

#[test]
fn kernels_of_the_suite_are_no_worse_than_before() {
    let toolkit = Toolkit::find().unwrap();
    let tools = Tools::at(toolkit.tool("ptxas"), toolkit.tool("nvdisasm"));
    let card = card(CARD).unwrap();
    let target = target(&architecture(card).unwrap().name()).unwrap();
    let options = Options { waves: false, ..Options::default() };
    let mut new = Vec::new();
    for entry in suite().iter().filter(|e| is_counted(e.label, &e.name)) {
        let program = entry.program().unwrap();
        let plan =
            pipeline::compile(&program, "step", &bind!(), &target, &pipeline::Options::default());
        let found = predict(&plan.unwrap(), card, options, &tools).unwrap();
        new.extend(figures(&format!("{} {}", entry.label, entry.name), &found));
    }
    let old: Vec<Figures> = match csv::Reader::from_path(path()) {
        Ok(mut table) => table.deserialize().map(|row| row.unwrap()).collect(),
        Err(_) => Vec::new(),
    };
    let mut found = compare(&old, &new);
    if std::env::var_os("WENGERT_BLESS").is_some() {
        // Only totals that are worse count.
        found.retain(|line| line.contains(" all: ") && !line.contains("table"));
        assert!(found.is_empty(), "{}", found.join("\n"));
        let mut table = csv::Writer::from_path(path()).unwrap();
        new.iter().for_each(|figures| table.serialize(figures).unwrap());
        return table.flush().unwrap();
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn what_is_worse_is_named() {
    let good = Figures {
        program: "P".into(),
        kernel: "k 8".into(),
        launches: 10,
        registers: 100,
        occupancy: 50,
        spills: 0,
        bytes: 1000,
        sectors: 16.0,
        instructions: 1000.0,
    };
    let says = |change: fn(&mut Figures), text: &str| {
        let mut bad = good.clone();
        change(&mut bad);
        let found = worse(&good, &bad);
        assert!(found.len() == 1 && found[0].contains(text), "{found:?}");
    };
    says(|f| f.registers = 104, "registers 100 -> 104");
    says(|f| f.occupancy = 48, "occupancy 50 % -> 48 %");
    says(|f| f.spills = 4, "bytes of spills 0 -> 4");
    says(|f| f.bytes = 1031, "bytes 1000 -> 1031");
    says(|f| f.sectors = 17.0, "sectors of a request 16 -> 17");
    says(|f| f.instructions = 1031.0, "instructions 1000 -> 1031");
    says(|f| f.launches = 11, "launches 10 -> 11");
    // Within the tolerance, and better.
    let near = Figures { registers: 103, occupancy: 49, instructions: 900.0, ..good.clone() };
    assert_eq!(worse(&good, &near), [""; 0]);
    let renamed = Figures { kernel: "other 8".into(), ..good.clone() };
    assert_eq!(compare(std::slice::from_ref(&good), &[renamed]).len(), 2);
    let table = std::slice::from_ref(&good);
    assert_eq!(compare(table, table), [""; 0]);
}
