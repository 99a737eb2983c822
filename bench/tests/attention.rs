//! Attention of this library and of Triton in the model. Their times are findings, and no test
//! holds them.

#![allow(clippy::unwrap_used)]

use wengert::device::predicted::tools::Tools;
use wengert::device::predicted::{Card, card};
use wengert_bench::gpu_model::attention::{HEADS, TILES, Tile, operations, own};
use wengert_ci::toolkit::Toolkit;

fn tools() -> Tools {
    let toolkit = Toolkit::find().unwrap_or_else(|e| panic!("{e}"));
    Tools::at(toolkit.tool("ptxas"), toolkit.tool("nvdisasm"))
}

/// Seconds of the products on tensor cores, for blocks of 128 queries.
fn products(positions: u32, width: u32, card: &Card) -> f64 {
    let blocks = f64::from(HEADS * positions / 128);
    let processors = card.multiprocessors.value;
    // The busiest multiprocessor runs so many blocks.
    let share = (blocks / processors).ceil() / blocks;
    let rate = 2.0 * card.tensor.f16_f32.value * card.boost.value;
    operations(positions, width) * share / rate
}

fn close(found: f64, expected: f64, share: f64, what: &str) {
    let error = (found / expected - 1.0).abs();
    assert!(error <= share, "{what}: {found:e}, expected {expected:e}");
}

#[test]
fn tritons_steps_extend_to_its_products_and_bytes() {
    let card = card("h200").unwrap();
    let tools = tools();
    for tile in [&TILES[0], &TILES[4]] {
        let module = tile.assemble(&tools).unwrap();
        let sample = tile.sample(&module, 1024, card).unwrap();
        let Tile { width, .. } = *tile;
        let tensor = sample.predict(card).resources.into_iter().find(|(r, _)| r.name() == "tensor");
        close(tensor.unwrap().1, products(1024, width, card), 0.001, "products");
        // Queries, keys, values and results. A few sectors are fetched twice.
        let bytes = 4 * 2 * HEADS * 1024 * width;
        close(sample.work.dram_bytes, bytes.into(), 0.03, "bytes of device memory");
    }
}

#[test]
fn attention_of_this_library_is_one_launch_that_takes_no_less_than_its_products() {
    let card = card("h200").unwrap();
    let found = own(64, 256, card, &tools()).unwrap();
    assert!(found.seconds > products(256, 64, card), "{}", found.seconds);
    assert!(found.registers > 0 && found.warps >= 8, "{} {}", found.registers, found.warps);
    assert_ne!(found.limit, "launch");
}
