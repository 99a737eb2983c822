//! Arithmetic does not depend on how parameters and results are stored.

use wengert_compiler::precision::{Dtypes, Precision};
use wengert_core::graph::{Function, InputRole, OutputRole};
use wengert_core::{DType, Literal, interpret};
use wengert_testing::{Random, functions};

/// A random function whose inputs of f32 are parameters, and values for it.
fn draw(seed: u64) -> Option<(Function, Vec<Literal>)> {
    let mut function =
        functions::function(seed, 3 + (seed % 19) as usize, &functions::samples()).ok()?;
    let mut random = Random(seed ^ 0x0bad_5eed);
    let mut inputs = Vec::new();
    for n in 0..function.inputs.len() {
        let ty = function.input_type(n).clone();
        inputs.push(functions::literal(&mut random, &ty, false));
        if ty.dtype == DType::F32 && function.inputs[n].role == InputRole::Input {
            function.inputs[n].role = InputRole::Param;
        }
    }
    Some((function, inputs))
}

/// The bits of results, with one for all NaN.
fn bits(results: &[Literal]) -> Vec<Vec<Option<u64>>> {
    let bits = |x: f64| (!x.is_nan()).then_some(x.to_bits());
    results.iter().map(|of| of.scalars().map(|x| bits(x.to_f64())).collect()).collect()
}

/// A function under a policy with parameters in halves gives the bits of the same policy without,
/// at parameters that are numbers of the halves. Results are rounded at the end.
#[test]
fn parameters_in_halves_change_no_arithmetic() {
    let (mut compared, mut stored) = (0, 0);
    for seed in 0..400 {
        let Some((function, inputs)) = draw(seed) else { continue };
        for (param_dtype, compute_dtype, output_dtype) in [
            (DType::BF16, DType::BF16, DType::F32),
            (DType::F16, DType::BF16, DType::BF16),
            (DType::BF16, DType::F32, DType::F16),
            (DType::F16, DType::F16, DType::F16),
        ] {
            let dtypes = Dtypes { param_dtype, compute_dtype, output_dtype };
            let changed = Precision::custom(dtypes).unwrap().apply(&function).unwrap();
            let given: Vec<Literal> =
                (0..inputs.len()).map(|n| inputs[n].convert(changed.input_type(n).dtype)).collect();
            let found = interpret::run(&changed, &given).unwrap();
            let plain = match compute_dtype {
                DType::F32 => function.clone(),
                _ => Precision::custom(Dtypes { compute_dtype, ..Dtypes::default() })
                    .unwrap()
                    .apply(&function)
                    .unwrap(),
            };
            let rounded: Vec<Literal> =
                (0..inputs.len()).map(|n| given[n].convert(function.input_type(n).dtype)).collect();
            let wanted = interpret::run(&plain, &rounded).unwrap();
            let wanted: Vec<Literal> = wanted
                .iter()
                .zip(&found)
                .map(|(wanted, found)| wanted.convert(found.dtype()))
                .collect();
            assert_eq!(
                bits(&found),
                bits(&wanted),
                "seed {seed}, {dtypes:?}\n{function}\n{changed}"
            );
            let is_half = |n: usize| changed.input_type(n).dtype.is_half();
            stored += usize::from((0..inputs.len()).any(is_half));
            compared += 1;
            for (n, result) in found.iter().enumerate() {
                let is_result = function.outputs[n].role == OutputRole::Output;
                let is_f32 = is_result && function.output_type(n).dtype == DType::F32;
                let dtype = if is_f32 { output_dtype } else { function.output_type(n).dtype };
                assert_eq!(result.dtype(), dtype, "seed {seed}");
            }
        }
    }
    assert!(compared > 400 && stored * 2 > compared, "{stored} of {compared}");
}
