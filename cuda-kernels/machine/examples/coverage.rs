//! Checks that files of machine code are understood: every line, branch and cost.
//!
//! ```text
//! nvdisasm -gp -c k.cubin > k.sass
//! cargo run -p wengert-machine --example coverage -- FILE.sass…
//! ```
//!
//! Costs are those of every card with the code's compute capability.
#![allow(clippy::print_stdout, reason = "it is a command")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use wengert_machine::card::Card;
use wengert_machine::pipe;
use wengert_machine::predict::{LoadLatency, warp_time};
use wengert_machine::sass::{Facts, Flow, Module};

fn main() -> ExitCode {
    // Failures, with the files that have them.
    let mut failures: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let (mut kernels, mut instructions, mut loops) = (0, 0, 0);
    for path in std::env::args().skip(1) {
        let mut fail = |message: String| {
            failures.entry(message).or_default().insert(path.clone());
        };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) => {
                fail(e.to_string());
                continue;
            }
        };
        let module = match Module::parse(&text) {
            Ok(module) => module,
            Err(e) => {
                fail(e.to_string());
                continue;
            }
        };
        for kernel in &module.kernels {
            kernels += 1;
            let flow = match Flow::new(kernel) {
                Ok(flow) => flow,
                Err(e) => {
                    fail(e.to_string());
                    continue;
                }
            };
            let facts = Facts::new(kernel, &flow);
            instructions += facts.instructions;
            loops += facts.loops.len();
            let fits = |c: &&Card| c.architecture.number == module.architecture;
            let cards: Vec<&Card> = Card::all().iter().filter(fits).collect();
            if cards.is_empty() {
                fail(format!("no card is of sm_{}", module.architecture));
            }
            for card in cards {
                let mut known = true;
                for i in &kernel.code {
                    if let Err(e) = pipe::cost(i, card) {
                        fail(e.to_string());
                        known = false;
                    }
                }
                if known {
                    let once = vec![1.0; flow.blocks.len()];
                    let latency = LoadLatency(card.l2_latency.value);
                    if let Err(e) = warp_time(kernel, &flow, &once, latency, card) {
                        fail(e.to_string());
                    }
                }
            }
        }
    }
    println!("{kernels} kernels, {instructions} instructions, {loops} innermost loops");
    for (message, files) in &failures {
        let first = files.first().map_or("", String::as_str);
        println!("{message}: {} files, such as {first}", files.len());
    }
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
