//! `graphrun bench`: what it prints, and what it refuses. No number of a time is compared with
//! another.

use crate::graphrun;
use serde_json::Value;
use std::path::Path;
use tempfile::TempDir;

const PROGRAM: &str = "\
func @product(%x: f32[B,32], %w: f32[32,16]) -> (y: f32[B,16]) {
  %0: f32[B,16] = dot_general %x, %w {contract=[[1],[0]]}
  return %0
}

func @slow(%x: f32[B,32], %w: f32[32,16]) -> (y: f32[B,16]) {
  %n: i32[] = constant {value=i32[] 200}
  %0: f32[B,16] = dot_general %x, %w {contract=[[1],[0]]}
  %1: f32[B,16] = exp %0
  %2: f32[B,16] = sin %1
  %3: f32[B,16] = exp %2
  return %3
}

func @one(%x: f32[]) -> (y: f32[]) {
  %0: f32[] = neg %x
  return %0
}
";

fn place() -> TempDir {
    let place = TempDir::new().unwrap();
    std::fs::write(place.path().join("f.ir"), PROGRAM).unwrap();
    place
}

fn json(folder: &Path, arguments: &[&str]) -> Value {
    let brief = ["--seconds", "0.2", "--json"];
    let ran = graphrun(folder, &[&["bench"], arguments, &brief].concat());
    assert_eq!(ran.status, 0, "{ran:?}");
    serde_json::from_str(&ran.out).unwrap()
}

#[test]
fn times_and_rates_are_printed() {
    let place = place();
    let brief = ["bench", "f.ir@product", "--bind", "B=8", "--seconds", "0.2"];
    let ran = graphrun(place.path(), &brief);
    assert_eq!(ran.status, 0, "{ran:?}");
    let parts = [
        "f.ir@product on cpu with {B=8}\n",
        "  minimum ",
        "  median ",
        "±",
        "  p90 ",
        "  p99 ",
        " runs/s\n",
        "  work        8,192 operations, 3,584 bytes: ",
        "GB/s (elementwise loop)\n",
        "(product of f32)",
        "  roofline ",
    ];
    for part in parts {
        assert!(ran.out.contains(part), "{part}: {ran:?}");
    }
}

#[test]
fn json_has_the_same_numbers() {
    let place = place();
    let found = json(place.path(), &["f.ir@product", "--bind", "B=8", "--within", "1e-9"]);
    assert_eq!(found["function"], "f.ir@product");
    assert_eq!(found["device"], "cpu");
    let time = |name: &str| found["time"][name].as_f64().unwrap();
    let sorted = ["min", "median_low", "median", "median_high", "p90", "p99"].map(time);
    assert!(sorted.is_sorted() && sorted[0] > 0.0, "{found}");
    assert!(time("runs") >= 3.0);
    assert_eq!(found["work"]["operations"], 2 * 8 * 32 * 16);
    assert_eq!(found["work"]["bytes"], 4 * (8 * 32 + 32 * 16 + 8 * 16));
    let rate = found["work"]["operations_per_second"].as_f64().unwrap();
    assert!((rate * time("median") / 8192.0 - 1.0).abs() < 1e-6, "{found}");
    let roofline = &found["work"]["roofline"];
    let seconds = roofline["seconds"].as_f64().unwrap();
    let of_bytes = 3584.0 / roofline["bytes_per_second"].as_f64().unwrap();
    let of_operations = 8192.0 / roofline["operations_per_second"].as_f64().unwrap();
    assert!((seconds / of_bytes.max(of_operations) - 1.0).abs() < 1e-6, "{found}");
    let found = json(place.path(), &["f.ir@one", "--no-roofline"]);
    assert_eq!(found["work"]["roofline"], Value::Null);
    let found = json(place.path(), &["f.ir@one", "--device", "interpreter"]);
    assert_eq!(
        (&found["device"], &found["work"]["roofline"]),
        (&"interpreter".into(), &Value::Null)
    );
}

#[test]
fn contenders_are_compared_in_turns() {
    let place = place();
    let brief = ["--bind", "B=8"];
    let found =
        json(place.path(), &[&["f.ir@product", "--compare", "f.ir@slow"][..], &brief].concat());
    assert_eq!(
        (&found["first"]["function"], &found["second"]["function"]),
        (&"f.ir@product".into(), &"f.ir@slow".into())
    );
    assert!(found["rounds"].as_u64().unwrap() >= 6, "{found}");
    for name in ["ratio", "null"] {
        let of = |end: &str| found[name][end].as_f64().unwrap();
        assert!(of("low") <= of("median") && of("median") <= of("high"), "{found}");
    }
    let verdicts = ["faster", "slower", "same", "too noisy"].map(Value::from);
    assert!(verdicts.contains(&found["verdict"]), "{found}");

    let variant = ["bench", "f.ir@product", "--compare-with", "--threads 1", "--seconds", "0.2"];
    let ran = graphrun(place.path(), &[&variant[..], &brief].concat());
    assert_eq!(ran.status, 0, "{ran:?}");
    for part in ["first ", "second ", "--threads 1 on cpu\n", "ratio ", "null ", "in turns\n"] {
        assert!(ran.out.contains(part), "{part}: {ran:?}");
    }
    let is_noisy = ran.out.ends_with("no conclusion\n");
    assert_eq!(ran.err.contains("warning: the machine is too noisy to tell"), is_noisy, "{ran:?}");
    let found = json(
        place.path(),
        &[&["f.ir@product", "--compare-with", "--device interpreter"][..], &brief].concat(),
    );
    assert_eq!(found["second"]["device"], "interpreter");
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let place = place();
    let bind = ["--bind", "B=8"];
    for (arguments, says) in [
        (&["f.ir@product", "--seconds", "0"][..], "a number above 0"),
        (&["f.ir@product", "--within", "nan"], "a number above 0"),
        (&["f.ir@product", "--compare", "g.ir"], "g.ir"),
        (&["f.ir@product", "--compare", "f.ir@absent"], "there is no function `@absent`"),
        (&["f.ir@product", "--compare-with", "--threads 0"], "0 is not in 1..=4096"),
        (&["f.ir@product", "--compare-with", "--epochs 2"], "--epochs"),
        (&["f.ir@product", "--compare-with", "--device tpu"], "tpu"),
    ] {
        let ran = graphrun(place.path(), &[&["bench"], arguments, &bind].concat());
        assert!(ran.status == 2 && ran.err.contains(says), "{says}: {ran:?}");
        assert_eq!(ran.out, "");
    }
    let ran = graphrun(place.path(), &["bench", "f.ir@product"]);
    assert!(ran.status == 2 && ran.err.contains("--bind B="), "{ran:?}");
    let ran = graphrun(place.path(), &["bench", "f.ir@one", "--device", "cuda:7"]);
    assert_eq!((ran.status, ran.out.as_str()), (3, ""), "{ran:?}");
}
