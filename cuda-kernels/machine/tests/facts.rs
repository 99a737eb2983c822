//! Facts about recorded machine code: `tile.ptx` stages rows in shared memory and multiplies them
//! on tensor cores, in a loop that is not unrolled.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use wengert_machine::card::Card;
use wengert_machine::pipe::{Pipe, cost};
use wengert_machine::predict::{LoadLatency, warp_time};
use wengert_machine::sass::{Facts, Flow, Module};

fn module(name: &str) -> Module {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sass");
    Module::parse(&fs::read_to_string(folder.join(name)).unwrap()).unwrap()
}

#[test]
fn accesses_products_and_loops_are_counted() {
    for architecture in [80, 90, 120] {
        let module = module(&format!("tile.sm_{architecture}.sass"));
        assert_eq!(module.architecture, architecture);
        let kernel = module.kernel("tile").unwrap();
        let flow = Flow::new(kernel).unwrap();
        let facts = Facts::new(kernel, &flow);
        let one = |width: u32, count: u32| BTreeMap::from([(width, count)]);
        assert_eq!(facts.accesses.global_loads, one(16, 1));
        assert_eq!(facts.accesses.global_stores, one(8, 2));
        assert_eq!(facts.accesses.shared_stores, one(16, 1));
        assert_eq!(facts.accesses.fragments, 2);
        assert!(!facts.accesses.uses_local_memory());
        assert_eq!(facts.barriers, 2);
        assert_eq!(facts.tensor, BTreeMap::from([("HMMA.16816.F32".to_owned(), 1)]));
        // The loop begins at the label of the PTX text, after which it loads.
        assert_eq!(facts.loops.len(), 1);
        let inner = &facts.loops[0];
        assert_eq!((inner.opcodes["HMMA"], inner.opcodes["BAR"], inner.opcodes["LDG"]), (1, 2, 1));
        assert_eq!(inner.accesses.global_stores, BTreeMap::new());
        assert_eq!(inner.instructions, inner.opcodes.values().sum::<u32>());
        let load = kernel.code.iter().find(|i| i.opcode == "LDG").unwrap();
        let text = include_str!("sass/tile.ptx");
        let line = text.lines().nth(load.line.unwrap() as usize - 1).unwrap();
        assert!(line.contains("ld.global.v4"), "{line}");
    }
}

#[test]
fn every_instruction_of_recorded_code_has_a_cost() {
    for architecture in [80, 90, 120] {
        let card = Card::all().iter().find(|c| c.architecture.number == architecture).unwrap();
        for name in ["loops", "rolled", "tile"] {
            let module = module(&format!("{name}.sm_{architecture}.sass"));
            for i in module.kernels.iter().flat_map(|k| &k.code) {
                let cost = cost(i, card).unwrap();
                // Only waits are without a pipe.
                let is_wait = matches!(i.opcode.as_str(), "NOP" | "YIELD" | "DEPBAR");
                assert_eq!(cost.busy[0].is_none(), is_wait, "{}", i.name());
                assert!(
                    cost.busy
                        .into_iter()
                        .flatten()
                        .all(|(p, c)| { c > 0.0 && Pipe::ALL.contains(&p) })
                );
            }
        }
    }
}

/// Everything that is done with a text, whatever it says.
fn use_text(text: &str) {
    let Ok(module) = Module::parse(text) else { return };
    for kernel in &module.kernels {
        let Ok(flow) = Flow::new(kernel) else { continue };
        let facts = Facts::new(kernel, &flow);
        assert!(facts.instructions as usize <= kernel.code.len());
        let covered: usize = flow.blocks.iter().map(|b| b.end - b.first).sum();
        assert_eq!(covered, facts.instructions as usize);
        let once = vec![1.0; flow.blocks.len()];
        for card in Card::all() {
            if let Ok(time) = warp_time(kernel, &flow, &once, LoadLatency(500.0), card) {
                assert!(time.clocks.is_finite() && time.clocks >= 0.0);
            }
        }
    }
}

proptest! {
    #[test]
    fn damaged_text_is_an_error_or_another_kernel(
        file in prop::sample::select(vec![
            "tile.sm_80.sass", "loops.sm_90.sass", "tile.sm_120.sass",
        ]),
        edits in prop::collection::vec(
            (any::<prop::sample::Index>(), 0..4_u8, "[ -~]{0,12}"), 1..6
        ),
    ) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sass");
        let text = fs::read_to_string(folder.join(file)).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for (index, kind, new) in edits {
            let at = index.index(lines.len());
            match kind {
                0 => drop(lines.remove(at)),
                1 => lines.insert(at, new),
                2 => lines[at] = format!("{}{new}", lines[at]),
                // Other text in the place of the first operand.
                _ => lines[at] = lines[at].replacen(" R", &format!(" {new}R"), 1),
            }
        }
        use_text(&lines.join("\n"));
    }
}
