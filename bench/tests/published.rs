//! The comparison of the model with published speeds: its machinery. Its figures are findings, and
//! no test holds them.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use wengert::device::predicted::card;
use wengert::device::predicted::foreign::Work;
use wengert::device::predicted::tools::Tools;
use wengert_bench::gpu_model::published::{Row, rows};
use wengert_ci::toolkit::Toolkit;

fn tools() -> Tools {
    let toolkit = Toolkit::find().unwrap_or_else(|e| panic!("{e}"));
    Tools::at(toolkit.tool("ptxas"), toolkit.tool("nvdisasm"))
}

fn row(name: &str) -> Row {
    rows().into_iter().find(|row| format!("{row:?}") == name).unwrap()
}

fn close(found: f64, expected: f64, share: f64, what: &str) {
    assert!((found / expected - 1.0).abs() <= share, "{what}: {found:e}, expected {expected:e}");
}

#[test]
fn every_row_has_a_card_a_source_and_work() {
    let all = rows();
    let names: BTreeSet<String> = all.iter().map(|row| format!("{row:?}")).collect();
    assert_eq!(names.len(), all.len(), "two rows have one name");
    let kernels: BTreeSet<&str> =
        all.iter().flat_map(|row| &row.runs).map(|run| run.entry).collect();
    assert!(kernels.len() >= 12, "{kernels:?}");
    for row in &all {
        card(row.card).unwrap();
        assert!(row.source.contains('(') || row.source.contains(','), "{row:?}: {}", row.source);
        assert!(row.published > 0.0 && row.amount > 0.0 && !row.runs.is_empty(), "{row:?}");
        for [short, long, all] in row.runs.iter().filter_map(|run| run.steps) {
            assert!(0 < short && short < long && long < all, "{row:?}");
        }
    }
}

#[test]
fn a_stream_moves_its_arrays_once() {
    let row = row("scale, 512 threads resident on h200");
    let module = row.code.assemble(&tools()).unwrap();
    let sample = row.runs[0].sample(&module, row.card).unwrap();
    let work = &sample.work;
    assert_eq!((work.occupancy.blocks, sample.sampled), (2, 2 * 132));
    assert_eq!(sample.misfit, 0.0);
    close(work.dram_bytes, row.amount, 0.001, "bytes of device memory");
    close(work.l2_bytes, row.amount, 0.001, "bytes of L2");
    // A thread has one load of 8 bytes in flight.
    assert_eq!(work.bytes_in_flight, 256.0);
    let card = card(row.card).unwrap();
    let seconds = sample.predict(card).seconds;
    assert!(row.amount / seconds < card.dram_achievable());
}

/// A figure of a launch, and its name.
type Field = (&'static str, fn(&Work) -> f64);

#[test]
fn steps_extend_to_the_whole_launch() {
    let row = row("SGEMM 4, 8 a thread on a6000");
    let module = row.code.assemble(&tools()).unwrap();
    let run = &row.runs[0];
    let card = card(row.card).unwrap();
    let at = |k: u32| module.sample(run.entry, &(run.launch)(k), card).unwrap();
    let (short, long, whole) = (at(32), at(64), at(160));
    let extended = short.extended(32.0, &long, 64.0, 160.0);
    let fields: [Field; 5] = [
        ("instructions", |w| w.instructions),
        ("wavefronts", |w| w.wavefronts),
        ("sectors", |w| w.l1_sectors),
        ("L2", |w| w.l2_bytes),
        ("DRAM", |w| w.dram_bytes),
    ];
    for (name, of) in fields {
        close(of(&extended.work), of(&whole.work), 0.01, name);
    }
    // The mean latency of loads changes a little with the share of L2's hits.
    close(extended.work.warp_clocks, whole.work.warp_clocks, 0.05, "clocks of a warp");
    for (pipe, clocks) in &whole.work.busy {
        close(extended.work.busy[pipe], *clocks, 0.01, pipe.name());
    }
}
