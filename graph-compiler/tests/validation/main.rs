//! Translation validation: the result of each pass on random functions is interpreted and compared
//! with its input.
//!
//! [`functions`] draws functions with everything that passes look at. Each function goes through
//! the pipeline for a CPU or a GPU. After every pass the interpreter must give the same bits. A
//! pass may declare that it keeps only the value
//! ([`Keeps::Value`](wengert_compiler::pipeline::Keeps)); then the results must agree within the
//! running error analysis of both sides
//! ([`worst_case`](wengert_compiler::certificate::worst_case)). After the graph, the kernels of
//! each equation are compared with the graph by the same analysis. Fusion, addends, followers and
//! the plan must give the same bits. Every rule of `simplify` is also applied alone. A failing
//! function is [shrunk](shrink) and printed with the pass, the seed and the inputs.
//!
//! `WENGERT_VALIDATION_CASES=100000 WENGERT_VALIDATION_SEED=1 cargo test --release --test
//! validation` runs as many cases as requested.

#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not helpers.
#![allow(clippy::print_stdout)] // Prints the counts of comparisons.

mod faults;
mod passes;
mod shrink;

use passes::{Seen, check, check_precision, check_rule};
use shrink::shrink;
use wengert_compiler::rewrite::rules;
use wengert_core::graph::Function;
use wengert_core::{Literal, Result, Target, interpret};
use wengert_testing::targets::gpu;
use wengert_testing::{Random, functions};

/// The seeds of a test: the number of functions that it draws, and the seed of the first.
fn extent(usual: u64) -> std::ops::Range<u64> {
    let number = |name: &str, usual: u64| match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is a number")),
        Err(_) => usual,
    };
    let first = number("WENGERT_VALIDATION_SEED", 0);
    first..first + number("WENGERT_VALIDATION_CASES", usual)
}

fn inputs(function: &Function, seed: u64, wild: bool) -> Vec<Literal> {
    let mut random = Random(seed ^ 0x1234_5678);
    (0..function.inputs.len())
        .map(|n| functions::literal(&mut random, function.input_type(n), wild))
        .collect()
}

/// CPUs and GPUs cut sums and form trees differently.
fn target(seed: u64) -> Target {
    if seed.is_multiple_of(3) { gpu() } else { Target::cpu() }
}

/// The message of a failure, with the smallest function found that fails in the same pass.
fn report(
    seed: u64,
    function: &Function,
    inputs: &[Literal],
    found: String,
    fails: &shrink::Fails<'_>,
) -> String {
    let culprit = |text: &str| text.split(':').next().unwrap_or_default().to_owned();
    let same = culprit(&found);
    let (function, inputs, found) =
        shrink(function, inputs, found, &|f, i| fails(f, i).filter(|how| culprit(how) == same));
    let given: Vec<String> = function
        .inputs
        .iter()
        .zip(&inputs)
        .map(|(port, l)| format!("  {} = {l}", port.name))
        .collect();
    format!("seed {seed}: {found}\n{function}\n{}", given.join("\n"))
}

/// Draws functions and checks each with the given check. It runs all of them, so that a failure
/// shows how many there are.
fn every(
    seeds: std::ops::Range<u64>,
    draw: impl Fn(u64) -> Result<Function>,
    examine: impl Fn(u64, &Function, &mut Seen) -> std::result::Result<(), String>,
) -> Seen {
    let (mut seen, mut drawn, mut wrong) = (Seen::default(), 0, Vec::new());
    let count = (seeds.end - seeds.start) as usize;
    for seed in seeds {
        // A random step may not be defined on its operands.
        let Ok(function) = draw(seed) else { continue };
        drawn += 1;
        wrong.extend(examine(seed, &function, &mut seen).err());
    }
    println!(
        "{drawn} functions of {count}; compared {:?}, doubtful {}",
        seen.compared, seen.doubtful
    );
    assert!(wrong.is_empty(), "{} are wrong, the first of them\n{}", wrong.len(), wrong[0]);
    assert!(drawn * 10 >= count * 9, "{drawn} of {count} functions are defined");
    seen
}

fn size(seed: u64) -> usize {
    3 + (seed % 23) as usize
}

fn through(wild: bool) -> impl Fn(u64, &Function, &mut Seen) -> std::result::Result<(), String> {
    move |seed, function, seen| {
        let (given, target) = (inputs(function, seed, wild), target(seed));
        check(function, &given, &target, !wild, seen).map_err(|found| {
            let fails = |f: &Function, i: &[Literal]| {
                check(f, i, &target, !wild, &mut Seen::default()).err()
            };
            report(seed, function, &given, found, &fails)
        })
    }
}

/// Asserts that every pass has changed at least `least` functions, so that its comparison is
/// meaningful.
fn assert_seen(seen: &Seen, names: &[&str], least: usize) {
    for name in names {
        let count = seen.compared.get(*name).copied().unwrap_or(0);
        assert!(count >= least, "`{name}` was compared {count} times");
    }
}

#[test]
fn every_pass_keeps_what_it_declares() {
    let samples = functions::samples();
    let seeds = extent(150);
    let many = (seeds.end - seeds.start) as usize;
    let seen = every(seeds, |seed| functions::function(seed, size(seed), &samples), through(false));
    assert_seen(&seen, &["simplify", "cse", "dce", "decompose", "lower", "fuse", "plan"], many / 5);
    assert_seen(&seen, &["trim", "hoist", "addends", "follow"], many / 75);
}

#[test]
fn special_elements_change_nothing() {
    let samples = functions::samples();
    let seeds = extent(100);
    let seeds = seeds.start + 1_000_000..seeds.end + 1_000_000;
    every(seeds, |seed| functions::function(seed, size(seed), &samples), through(true));
}

#[test]
fn long_sums_are_cut_within_their_bound() {
    let seeds = extent(8);
    let many = (seeds.end - seeds.start) as usize;
    let seen = every(seeds, functions::long, through(false));
    assert_seen(&seen, &["split_reductions"], many / 3);
}

#[test]
fn padded_rows_change_no_bit() {
    let seeds = extent(60);
    let many = (seeds.end - seeds.start) as usize;
    let seen = every(seeds, functions::wide, through(false));
    assert_seen(&seen, &["pad", "plan"], many / 8);
}

#[test]
fn halves_are_rounded_once_within_their_bound() {
    let draw = |seed: u64| {
        let dtype = if seed.is_multiple_of(2) { "bf16" } else { "f16" };
        let sums = match seed % 4 {
            0 | 1 => "%2: D[4,5] = add %0, %1\n%3: D[4,5] = add %2, %r",
            _ => "%2: D[4,5] = add %r, %0\n%3: D[4,5] = add %2, %1",
        };
        let text = format!(
            "func @f(%x: D[4,6], %w: D[6,5], %b: D[5], %r: D[4,5]) -> (y: D[4,5], z: D[4,4]) {{
               %0: D[4,5] = dot_general %x, %w {{contract=[[1],[0]]}}
               %1: D[4,5] = broadcast_in_dim %b {{dims=[1], shape=[4,5]}}
               {sums}
               %4: D[4,5] = tanh %3
               %5: D[4,4] = dot_general %4, %r {{contract=[[1],[1]]}}
               return %4, %5 }}"
        );
        let program =
            wengert_core::graph::parse_program(&text.replace("D[", &format!("{dtype}[")), "f.ir")?;
        Ok(program.functions()[0].clone())
    };
    let seen = every(extent(24), draw, through(false));
    assert_seen(&seen, &["round_once", "fuse", "addends", "follow", "plan"], 8);
}

#[test]
fn a_policy_rounds_within_its_bound() {
    let samples = functions::samples();
    let seeds = extent(200);
    let many = (seeds.end - seeds.start) as usize;
    let seen = every(
        seeds,
        |seed| functions::function(seed, size(seed), &samples),
        |seed, function, seen| {
            let given = inputs(function, seed, false);
            check_precision(function, &given, seen).map_err(|found| {
                let fails =
                    |f: &Function, i: &[Literal]| check_precision(f, i, &mut Seen::default()).err();
                report(seed, function, &given, found, &fails)
            })
        },
    );
    assert_seen(&seen, &["precision"], many / 20);
}

#[test]
fn every_rule_alone_changes_no_bit() {
    let samples = functions::samples();
    let seen = every(
        extent(150),
        |seed| functions::function(seed, size(seed), &samples),
        |seed, function, seen| {
            let given = inputs(function, seed, seed % 2 == 0);
            let wanted = interpret::run(function, &given).map_err(|e| e.to_string())?;
            rules().try_for_each(|rule| {
                check_rule(rule, function, &given, &wanted, seen).map_err(|found| {
                    let fails = |f: &Function, i: &[Literal]| {
                        let wanted = interpret::run(f, i).ok()?;
                        check_rule(rule, f, i, &wanted, &mut Seen::default()).err()
                    };
                    report(seed, function, &given, found, &fails)
                })
            })
        },
    );
    let (met, all) = (seen.compared.len(), rules().count());
    assert!(met * 2 >= all, "{met} of {all} rules were met");
}
