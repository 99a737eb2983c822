//! Samples of all ops, and random functions.

use super::{Exported, folder};
use wengert::core::{Binding, DType, Literal};
use wengert_ci::onnx_suite;
use wengert_testing::Random;
use wengert_testing::functions;
use wengert_testing::samples::{self, Sample};

/// The op set that ONNX Runtime runs samples in, beside the first.
const LATER: i64 = 23;

/// Where results differ by the choice of a runtime: the order of NaN, and maxima of windows without
/// a number.
fn is_open(name: &str, given: &[Literal], wanted: &[Literal]) -> bool {
    let any = |literals: &[Literal], f: fn(f64) -> bool| {
        literals.iter().any(|l| l.dtype().is_float() && l.scalars().any(|s| f(s.to_f64())))
    };
    let ordered = ["argmax", "argmin", "argsort", "sort", "top_k", "top_k_indices"];
    let windows = ["reduce_window_max", "reduce_window_min"];
    (ordered.contains(&name) && any(given, f64::is_nan))
        || (windows.contains(&name) && any(wanted, f64::is_infinite))
}

#[test]
fn samples_give_the_same_in_onnx_runtime() {
    for (dtype, opset) in [(DType::F32, 21), (DType::F32, LATER), (DType::F16, 21)] {
        let folder = folder(&format!("samples_{dtype}_{opset}"));
        let mut written = 0;
        for entry in samples::catalogue() {
            for (number, sample) in entry.samples.iter().enumerate() {
                let given = sample.literals(dtype, number as u64 + 1);
                // Samples without floats are those of f32.
                let has = given.iter().any(|literal| literal.dtype() == dtype);
                if dtype != DType::F32 && !has {
                    continue;
                }
                let Some(function) = sample.function(&given) else { continue };
                let Ok(case) = Exported::new(&function, &Binding::new(), given, opset) else {
                    continue;
                };
                if is_open(entry.name, &case.given, &case.wanted) {
                    continue;
                }
                case.keep(&folder.join(format!("{}_{number}", entry.name)));
                written += 1;
            }
        }
        let ran = onnx_suite::run_models(&folder).unwrap();
        println!("{dtype}, op set {opset}: {ran}");
        assert_eq!(ran, written);
        assert!(ran >= 200, "{ran}");
    }
}

fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// Random functions of f32: `WENGERT_PROGRAMS` of them, from seed `WENGERT_PROGRAMS_SEED`.
#[test]
fn random_functions_give_the_same_in_onnx_runtime() {
    let count = setting("WENGERT_PROGRAMS", 20);
    let mut seed = setting("WENGERT_PROGRAMS_SEED", 0);
    let folder = folder(&format!("random_{seed}"));
    let without = wengert::onnx::unexported();
    let is_exported = |sample: &Sample| without.iter().all(|(op, _)| sample.op.name() != *op);
    let samples: Vec<Sample> = functions::samples().into_iter().filter(is_exported).collect();
    let (mut written, mut refused) = (0, 0);
    while written < count {
        seed += 1;
        let size = 3 + (seed % 23) as usize;
        let Ok(function) = functions::function(seed, size, &samples) else { continue };
        let types: Vec<_> = (0..function.inputs.len()).map(|n| function.input_type(n)).collect();
        if types.iter().any(|ty| ty.dtype.is_float() && ty.dtype != DType::F32) {
            continue;
        }
        let mut random = Random(seed);
        let given: Vec<Literal> = types.iter().map(|ty| random.literal(ty)).collect();
        match Exported::new(&function, &Binding::new(), given, 21) {
            Ok(case) => {
                case.keep(&folder.join(format!("{seed}")));
                written += 1;
            }
            Err(error) => {
                println!("{seed}: {error}");
                refused += 1;
                assert!(refused <= 10 + count / 4, "{refused} are refused");
            }
        }
    }
    let ran = onnx_suite::run_models(&folder).unwrap();
    println!("{ran} run, {refused} refused");
    assert_eq!(ran as u64, count);
}
