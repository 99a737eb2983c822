//! Facts about a kernel, and the predicted time of a launch.
//!
//! ```text
//! ptxas -arch=sm_90 -lineinfo -v k.ptx -o k.cubin 2> k.ptxas
//! nvdisasm -gp -c k.cubin > k.sass
//! cargo run -p wengert-machine --example predict -- \
//!     k.ptx k.sass k.ptxas KERNEL h200 BLOCKS THREADS [DYNAMIC_SHARED [k.counts]]
//! ```
//!
//! Without counts, it prints what follows from the code: resources, occupancy, accesses, and for
//! each innermost loop the clocks of a warp and of each pipe. With counts, it prints the
//! prediction. Counts are lines of text:
//!
//! ```text
//! grid 1024
//! blocks 256
//! warps 1024
//! line 17 ISSUED LANES DIVERGED GLOBAL_SECTORS SHARED_WAVEFRONTS ATOMIC_SECTORS
//! traffic L1_SECTORS L1_HITS L2_READ L2_WRITE DRAM_READ DRAM_WRITE
//! ```
#![allow(clippy::print_stdout, reason = "it is a command")]

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use wengert_emulator::count::{Counts, LineCounts};
use wengert_machine::card::Card;
use wengert_machine::join::join;
use wengert_machine::occupancy::occupancy;
use wengert_machine::pipe::{self, Pipe};
use wengert_machine::predict::{LoadLatency, Shape, Work, predict, warp_time};
use wengert_machine::ptx::statements;
use wengert_machine::ptxas;
use wengert_machine::sass::{Facts, Flow, Kernel, Module};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [ptx, sass, output, name, card, blocks, threads, rest @ ..] = &arguments[..] else {
        return Err("usage: PTX SASS PTXAS KERNEL CARD BLOCKS THREADS [SHARED [COUNTS]]".into());
    };
    let names = || Card::all().iter().map(|c| c.name).collect::<Vec<_>>().join(", ");
    let card = Card::from_name(card).ok_or_else(|| format!("cards are {}", names()))?;
    let module = Module::parse(&fs::read_to_string(sass)?)?;
    if module.architecture != card.architecture.number {
        println!(
            "note: code of sm_{} on a card of sm_{}",
            module.architecture, card.architecture.number
        );
    }
    let kernel = module.kernel(name).ok_or("no such kernel")?;
    let flow = Flow::new(kernel)?;
    let resources = ptxas::resources(&fs::read_to_string(output)?)?;
    let used = resources.iter().find(|r| r.kernel == *name).ok_or("ptxas names no such kernel")?;
    let dynamic: u32 = rest.first().map_or(Ok(0), |b| b.parse())?;
    let shape = Shape {
        blocks: blocks.parse()?,
        threads: threads.parse()?,
        registers: used.registers,
        shared: used.shared + dynamic,
    };
    print_facts(kernel, &flow, &shape, card)?;
    if let Some(path) = rest.get(1) {
        let counts = parse_counts(&fs::read_to_string(path)?)?;
        let executed = join(kernel, &flow, &statements(&fs::read_to_string(ptx)?), &counts)?;
        let work = Work::new(kernel, &flow, &executed, &counts, &shape, card)?;
        let found = predict(&work, card);
        println!("misfit of the join: {:.2} %", 100.0 * executed.misfit);
        println!("predicted: {:.3} us, limited by {}", found.seconds * 1e6, found.limiter.name());
        for (resource, seconds) in &found.resources {
            println!("  {:10} {:10.3} us", resource.name(), seconds * 1e6);
        }
        let (has, needs) = (found.in_flight / 1024.0, found.in_flight_needed / 1024.0);
        println!("in flight: {has:.0} KiB; the bandwidth of DRAM needs {needs:.0} KiB");
    }
    println!("figures without a source:");
    for (name, figure) in card.assumptions() {
        println!("  {name}: {} ({})", figure.value, figure.source.text());
    }
    Ok(())
}

fn print_facts(
    kernel: &Kernel,
    flow: &Flow,
    shape: &Shape,
    card: &Card,
) -> Result<(), Box<dyn Error>> {
    let facts = Facts::new(kernel, flow);
    println!("{} on {}: {} instructions", kernel.name, card.product, facts.instructions);
    let found = occupancy(&card.architecture.limits, shape.threads, shape.registers, shape.shared);
    let found = found.ok_or("a block does not fit")?;
    println!(
        "{} registers, {} bytes of shared memory: {} blocks resident, {} % by {:?}",
        shape.registers,
        shape.shared,
        found.blocks,
        found.percent(),
        found.limit
    );
    println!("{:?}", facts.accesses);
    println!("barriers {}, tensor {:?}", facts.barriers, facts.tensor);
    let once = vec![1.0; flow.blocks.len()];
    let time = warp_time(kernel, flow, &once, LoadLatency(card.l2_latency.value), card)?;
    for l in flow.loops.iter().filter(|l| l.is_innermost) {
        let mut busy: BTreeMap<Pipe, f64> = BTreeMap::new();
        let mut instructions = 0;
        for &b in &l.blocks {
            for i in &kernel.code[flow.blocks[b].first..flow.blocks[b].end] {
                instructions += 1;
                for (pipe, clocks) in pipe::cost(i, card)?.busy.into_iter().flatten() {
                    *busy.entry(pipe).or_default() += clocks;
                }
            }
        }
        let alone: f64 = l.blocks.iter().map(|&b| time.blocks[b]).sum();
        let address = kernel.code[flow.blocks[l.header].first].address;
        println!(
            "loop at {address:#x}: {instructions} instructions, {alone:.0} clocks alone from L2"
        );
        for (pipe, clocks) in busy {
            println!("  {:10} {clocks:8.1} clocks of a partition", pipe.name());
        }
    }
    Ok(())
}

fn parse_counts(text: &str) -> Result<Counts, Box<dyn Error>> {
    let mut counts = Counts::default();
    for line in text.lines().filter(|l| !l.trim().is_empty()) {
        let mut words = line.split_whitespace();
        let key = words.next().unwrap_or("");
        let numbers = words.map(str::parse).collect::<Result<Vec<u64>, _>>()?;
        match (key, &numbers[..]) {
            ("grid", [n]) => counts.grid = *n,
            ("blocks", [n]) => counts.blocks = *n,
            ("warps", [n]) => counts.warps = *n,
            ("line", &[line, issued, lanes, diverged, sectors, wavefronts, atomics]) => {
                let mut found = LineCounts { issued, lanes, diverged, ..LineCounts::default() };
                found.global.sectors = sectors;
                found.shared.wavefronts = wavefronts;
                found.atomics.sectors = atomics;
                counts.lines.insert(u32::try_from(line)?, found);
            }
            ("traffic", &[sectors, hits, l2_read, l2_write, dram_read, dram_write]) => {
                let traffic = &mut counts.traffic;
                (traffic.l1_sectors, traffic.l1_hits) = (sectors, hits);
                (traffic.l2_read, traffic.l2_write) = (l2_read, l2_write);
                (traffic.dram_read, traffic.dram_write) = (dram_read, dram_write);
            }
            _ => return Err(format!("`{line}` is no count").into()),
        }
    }
    Ok(counts)
}
