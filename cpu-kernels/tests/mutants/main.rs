//! Hostile plans, executed: plans and nests of `core`'s filetests with several changes and extreme
//! extents. Each plan that the verifier accepts runs on one thread and on two. It must access only
//! its own memory.
//!
//! One of two tools checks the accesses: AddressSanitizer in a build with it, or this test's
//! allocator. The allocator places an inaccessible page before and after every aligned allocation
//! (arena, scratch, buffers of a run). Both end the process at a wrong access. A run is limited to
//! a number of operations. The test reports a plan that takes longer than twenty seconds.
//!
//! A case is determined by the seed and its number. `ci/deep/plans` runs 100,000 cases in each
//! mode, in shards. It sets
//! - `WENGERT_FUZZ_FIRST` and `WENGERT_FUZZ_CASES`: the range of cases;
//! - `WENGERT_FUZZ_SEED`: the seed;
//! - `WENGERT_FUZZ_PROGRESS`: a file to which the test writes the number of the current case;
//! - `WENGERT_FUZZ_OPERATIONS`: the maximum number of operations of a run;
//! - `WENGERT_GUARD=0`: no guard pages, under AddressSanitizer.

#![allow(clippy::unwrap_used)] // This is a test.

mod guard;
mod mutate;

use mutate::{Mutant, Mutator};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wengert_core::plan::{Account, Plan};
use wengert_core::{DType, Scalar, Verified};
use wengert_cpu::{AlignedBytes, Buffer, CpuExecutable, Pool, RunMemory, Simd};
use wengert_testing::Random;

#[global_allocator]
static ALLOCATOR: guard::Guarded = guard::Guarded;

/// Maximum number of operations of a run, unless set by the environment. They take some seconds
/// under AddressSanitizer.
const OPERATIONS: u64 = 1 << 27;
/// A plan is executed only if its memory and its executable each take at most this many bytes.
/// Larger plans are compiled, but not run.
const LARGEST: u64 = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(20);
const STANDSTILL: Duration = Duration::from_secs(1200);

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Memory of the given size, filled with numbers of all kinds.
fn filled(dtype: DType, bytes: u64, random: &mut Random) -> AlignedBytes {
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

/// The outcome of a mutant.
#[derive(PartialEq)]
enum Fate {
    /// The text does not parse, or the verifier refused it.
    Refused,
    /// RunMemory could not be allocated, or the plan is above the limit of bytes.
    TooLarge,
    /// The plan ran to its end or to its limit of operations.
    Ran,
}

fn execute(plan: &Verified<Plan>, pool: &Arc<Pool>, simd: Simd, random: &mut Random) -> Fate {
    let Ok(mut executable) = CpuExecutable::on(plan, pool.clone(), simd) else {
        return Fate::TooLarge;
    };
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
        let mut outputs: Vec<Buffer<'_>> =
            outputs.iter_mut().map(|m| Buffer::writing::<u8>(m)).collect();
        let mut variables: Vec<Buffer<'_>> =
            variables.iter_mut().map(|m| Buffer::writing::<u8>(m)).collect();
        let run = executable.run(RunMemory {
            inputs: &inputs,
            outputs: &mut outputs,
            variables: &mut variables,
        });
        if let Err(error) = run {
            let text = error.to_string();
            assert!(text.contains("operations of its limit"), "an accepted plan fails: {text}");
        }
    }
    Fate::Ran
}

/// Ends the process if one case takes too long. It measures the processor time of all threads,
/// since other load on the machine does not increase that. A second limit on elapsed time catches a
/// deadlock.
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
        let mut random = mutate::random(seed, case);
        let fate = match mutator.mutant(&mut random) {
            Mutant::Refused => Fate::Refused,
            Mutant::Accepted(plan) => {
                // The test harness shows this output if the test fails.
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
    eprintln!(
        "{} mutants: {refused} refused, {large} too large, {ran} executed with {}",
        cases,
        simd.name()
    );
    assert!(ran > cases / 8 || cases < 200, "of {cases} mutants {ran} ran");
}
