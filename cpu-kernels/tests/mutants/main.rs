//! Hostile plans, executed: plans and nests of `core`'s filetests with several changes and extreme
//! extents. What the verifier accepts runs on one thread and on two, and touches nothing but its
//! memory.
//!
//! Memory is watched by one of two: AddressSanitizer, in a build with it, or this test's allocator,
//! which ends every aligned allocation (arena, scratch, the buffers of a run) at an inaccessible
//! page and begins it behind one. Either ends the process. A run takes a limited number of
//! operations, and a plan that takes longer than twenty seconds is reported.
//!
//! Everything follows from the seed and the number of a case. `ci/deep/plans` runs 100,000 of them
//! in each mode, in shards; it sets
//! - `WENGERT_FUZZ_FIRST` and `WENGERT_FUZZ_CASES`: which cases;
//! - `WENGERT_FUZZ_PROGRESS`: a file that gets a line with the number of the case at hand;
//! - `WENGERT_FUZZ_OPERATIONS`: how many operations a run may take;
//! - `WENGERT_GUARD=0`: no pages, under AddressSanitizer.

#![allow(clippy::unwrap_used)] // It is a test.

mod guard;
mod mutate;

use mutate::{Mutant, Mutator};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wengert_core::plan::{Account, Plan};
use wengert_core::{DType, Scalar};
use wengert_cpu::{AlignedBytes, Buffer, Executable, Memory, Pool, Simd};

#[global_allocator]
static ALLOCATOR: guard::Guarded = guard::Guarded;

/// Operations that a run may take, unless told otherwise: some seconds under AddressSanitizer.
const OPERATIONS: u64 = 1 << 27;
/// Bytes that a plan may take beside its executable, and the executable, to be run. Larger ones are only made ready.
const LARGEST: u64 = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(20);
const STANDSTILL: Duration = Duration::from_secs(1200);

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Memory of so many bytes, with numbers of all kinds in it.
fn filled(dtype: DType, bytes: u64, random: &mut mutate::Random) -> AlignedBytes {
    let mut memory = AlignedBytes::new(usize::try_from(bytes).unwrap()).unwrap();
    for element in memory.chunks_exact_mut(dtype.size()) {
        let scalar = match random.below(12) {
            _ if dtype == DType::Bool => Scalar::of(random.below(2) == 1),
            0 => Scalar::from_i64(dtype, i64::MAX),
            1 => Scalar::from_i64(dtype, i64::MIN),
            2 if dtype.is_float() => Scalar::from_f64(dtype, f64::NAN),
            _ => Scalar::from_i64(dtype, random.below(12) as i64 - 3),
        };
        element.copy_from_slice(&scalar.bits().to_le_bytes()[..dtype.size()]);
    }
    memory
}

/// What became of a mutant.
#[derive(PartialEq)]
enum Fate {
    /// No text, or the verifier refused it.
    Refused,
    /// There is not so much memory, or it was not tried.
    TooLarge,
    /// It ran, or was stopped at the limit of its work.
    Ran,
}

fn execute(plan: &Plan, pool: &Arc<Pool>, simd: Simd, random: &mut mutate::Random) -> Fate {
    let Ok(mut executable) = Executable::on(plan, pool.clone(), simd) else { return Fate::TooLarge };
    executable.limit(number("WENGERT_FUZZ_OPERATIONS", OPERATIONS));
    if Account::sizes(plan).total() > LARGEST || executable.bytes() as u64 > LARGEST {
        return Fate::TooLarge;
    }
    let mut memory = |value: wengert_core::plan::ValueId| {
        let value = &plan.values[value];
        filled(value.dtype, value.bytes(), random)
    };
    let inputs: Vec<AlignedBytes> = plan.inputs.iter().map(|i| memory(i.value)).collect();
    let mut outputs: Vec<AlignedBytes> = plan.outputs.iter().map(|o| memory(o.value)).collect();
    let mut variables: Vec<AlignedBytes> = plan.variables.iter().map(|v| memory(v.after)).collect();
    for _ in 0..2 {
        let inputs: Vec<Buffer<'_>> = inputs.iter().map(|m| Buffer::reading::<u8>(m)).collect();
        let mut outputs: Vec<Buffer<'_>> = outputs.iter_mut().map(|m| Buffer::writing::<u8>(m)).collect();
        let mut variables: Vec<Buffer<'_>> = variables.iter_mut().map(|m| Buffer::writing::<u8>(m)).collect();
        let run =
            executable.run(Memory { inputs: &inputs, outputs: &mut outputs, variables: &mut variables });
        if let Err(error) = run {
            let text = error.to_string();
            assert!(text.contains("operations that it may take"), "an accepted plan fails: {text}");
        }
    }
    Fate::Ran
}

/// Ends the process if one case takes too long: by the processor's time of all threads, which a busy machine does not lengthen, or if it stands still.
fn watch(case: Arc<AtomicU64>) {
    let seen = move || case.load(Ordering::Relaxed);
    std::thread::spawn(move || {
        let (mut last, mut since, mut spent) = (seen(), Instant::now(), guard::processor_time());
        loop {
            std::thread::sleep(Duration::from_millis(250));
            let now = seen();
            if now != last {
                (last, since, spent) = (now, Instant::now(), guard::processor_time());
            } else if now != u64::MAX
                && (guard::processor_time() - spent > PATIENCE || since.elapsed() > STANDSTILL)
            {
                eprintln!("mutant {now} takes longer than {PATIENCE:?}");
                std::process::abort();
            }
        }
    });
}

#[test]
fn accepted_mutants_touch_nothing_but_their_memory() {
    let (first, cases) = (number("WENGERT_FUZZ_FIRST", 0), number("WENGERT_FUZZ_CASES", 400));
    let seed = number("WENGERT_FUZZ_SEED", 20_261_124);
    let progress = std::env::var_os("WENGERT_FUZZ_PROGRESS");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/tests");
    let mutator = Mutator::of(&folder);
    let simd = Simd::available().last().unwrap();
    let pools = [1, 2].map(|threads| Arc::new(Pool::new(threads).unwrap()));
    let current = Arc::new(AtomicU64::new(u64::MAX));
    watch(current.clone());
    let (mut refused, mut large, mut ran) = (0u64, 0u64, 0u64);
    for case in first..first + cases {
        if let Some(path) = &progress {
            std::fs::write(path, format!("{case}\n")).unwrap();
        }
        current.store(case, Ordering::Relaxed);
        let mut random = mutate::Random::of(seed, case);
        let fate = match mutator.mutant(&mut random) {
            Mutant::Refused => Fate::Refused,
            Mutant::Accepted(plan) => {
                // A test that fails shows its output.
                println!("mutant {case}:\n{plan}");
                let fates = pools.each_ref().map(|pool| execute(&plan, pool, simd, &mut random));
                if fates.contains(&Fate::Ran) { Fate::Ran } else { Fate::TooLarge }
            }
        };
        match fate {
            Fate::Refused => refused += 1,
            Fate::TooLarge => large += 1,
            Fate::Ran => ran += 1,
        }
    }
    current.store(u64::MAX, Ordering::Relaxed);
    eprintln!("{} mutants: {refused} refused, {large} too large, {ran} executed with {}", cases, simd.name());
    assert!(ran > cases / 8 || cases < 200, "of {cases} mutants {ran} ran");
}
