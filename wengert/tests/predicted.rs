//! Predicted times of plans: what is known of them by hand, and mistakes.

#![allow(clippy::unwrap_used)]

use wengert::core::Verified;
use wengert::core::graph::parse_program;
use wengert::core::plan::Plan;
use wengert::device::predicted::tools::Tools;
use wengert::device::predicted::{
    Card, Options, Predicted, Row, architecture, card, machine_code, predict,
};
use wengert::prelude::*;
use wengert::{pipeline, target};
use wengert_ci::toolkit::Toolkit;

fn tools() -> Tools {
    let toolkit = Toolkit::find().unwrap();
    Tools::at(toolkit.tool("ptxas"), toolkit.tool("nvdisasm"))
}

fn plan(text: &str, architecture: &str) -> Verified<Plan> {
    let program = parse_program(text, "f.ir").unwrap();
    let target = target(architecture).unwrap();
    let options = pipeline::Options::default();
    pipeline::compile(&program, "f", &bind!(), &target, &options).unwrap()
}

fn predicted(text: &str, options: Options) -> Predicted {
    let found = predict(&plan(text, "sm_90"), card("h200").unwrap(), options, &tools()).unwrap();
    assert!(found.unknown.is_empty(), "{:?}", found.unknown);
    for row in &found.rows {
        assert!(row.misfit < 0.02, "{row:?}");
    }
    found
}

fn only(found: &Predicted) -> &Row {
    let [row] = &found.rows[..] else { panic!("{found:?}") };
    row
}

const SUM: &str = "func @f(%x: f32[16384,1024], %y: f32[16384,1024]) -> (f32[16384,1024]) {
  %0: f32[16384,1024] = abs %x
  %1: f32[16384,1024] = add %0, %y
  return %1
}";

#[test]
fn a_sum_of_large_arrays_is_limited_by_device_memory() {
    let found = predicted(SUM, Options::default());
    let row = only(&found);
    let bytes = 16384 * 1024 * 4;
    assert_eq!((row.times, row.limiter.name()), (1, "dram"), "{row:?}");
    // Each operand is read once, and the result is written once.
    let (read, written) = row.device_memory;
    assert!(read.abs_diff(2 * bytes) * 100 <= 2 * bytes, "{read} of {}", 2 * bytes);
    assert!(written.abs_diff(bytes) * 100 <= bytes, "{written} of {bytes}");
    // Lanes read 16 bytes each, side by side.
    assert_eq!(row.sectors, 16.0);
    assert_eq!(row.spills, (0, 0));
    let least = 3.0 * bytes as f64 / card("h200").unwrap().dram_achievable();
    assert!((least..1.1 * least).contains(&row.seconds), "{} of {least}", row.seconds);
    assert!(found.seconds() >= row.seconds);
}

#[test]
fn machine_code_tells_widths_and_occupancy() {
    for architecture in ["sm_80", "sm_90", "sm_100"] {
        let code = machine_code(&plan(SUM, architecture), &tools()).unwrap();
        let [kernel] = &code.kernels[..] else { panic!("{code:?}") };
        let accesses = &kernel.facts.accesses;
        assert!(accesses.global_loads.keys().eq(&[16]), "{architecture}: {kernel:?}");
        assert!(accesses.global_stores.keys().eq(&[16]), "{architecture}: {kernel:?}");
        assert_eq!(kernel.spills, (0, 0));
        assert!(kernel.occupancy.unwrap().percent() >= 50, "{architecture}: {kernel:?}");
        assert!(code.listing.contains(&kernel.kernel) && code.listing.contains("LDG.E.128"));
    }
    let mistake = machine_code(&plan(SUM, "cpu"), &tools()).unwrap_err();
    assert!(mistake.to_string().contains("for `cpu`"), "{mistake}");
}

#[test]
fn predictions_repeat() {
    assert_eq!(predicted(SUM, Options::default()), predicted(SUM, Options::default()));
}

#[test]
fn a_product_is_no_faster_than_its_operations() {
    let text = "func @f(%x: f32[1024,512], %y: f32[512,1024]) -> (f32[1024,1024]) {
  %0: f32[1024,1024] = dot_general %x, %y {contract=[[1],[0]]}
  return %0
}";
    let flops = 2.0 * 1024.0 * 1024.0 * 512.0;
    let card = card("h200").unwrap();
    let lanes = card.architecture.rates.fma.value * card.multiprocessors.value;
    let least = flops / (2.0 * lanes * card.boost.value);
    for library in [false, true] {
        let found = predicted(text, Options { library, ..Options::default() });
        let row = &found.rows[0];
        assert_eq!(row.kernel.starts_with("cublaslt"), library, "{row:?}");
        assert!(row.seconds >= least, "{} of {least}: {row:?}", row.seconds);
        assert!(row.seconds <= 20.0 * least, "{} of {least}: {row:?}", row.seconds);
    }
}

#[test]
fn launches_of_a_loop_are_counted() {
    let text = "func @f(%x: f32[4096], %s: f32[10,4096]) -> (f32[4096]) {
  %0: f32[4096] = scan %x, %s {carries=1, length=10} region (%c: f32[4096], %e: f32[4096]) {
    %1: f32[4096] = sin %c
    %2: f32[4096] = add %1, %e
    return %2
  }
  return %0
}";
    let found = predicted(text, Options::default());
    assert!(found.rows.iter().any(|row| row.times == 10), "{found:?}");
}

#[test]
fn every_card_has_kernels() {
    for card in Card::all() {
        let name = architecture(card).unwrap().name();
        let options = Options { waves: false, ..Options::default() };
        let found = predict(&plan(SUM, &name), card, options, &tools()).unwrap();
        assert!(found.unknown.is_empty(), "{}: {:?}", card.name, found.unknown);
        assert_eq!(only(&found).spills, (0, 0));
    }
}

#[test]
fn mistakes_are_named() {
    let says = |error: Diagnostic, text: &str| {
        assert!(error.to_string().contains(text), "{error}");
    };
    says(card("h300").unwrap_err(), "h200");
    let h200 = card("h200").unwrap();
    let error = predict(&plan(SUM, "sm_80"), h200, Options::default(), &tools()).unwrap_err();
    says(error, "compile it for sm_90");
    let absent = Tools::at("/no/ptxas", "/no/nvdisasm");
    let error = predict(&plan(SUM, "sm_90"), h200, Options::default(), &absent).unwrap_err();
    says(error, "cannot start `/no/ptxas`");
}
