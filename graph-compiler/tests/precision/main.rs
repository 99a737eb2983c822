//! The dtypes of parameters and results under a policy of precision.

#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not helpers.

mod bits;
mod mistakes;

use wengert_compiler::precision::{Dtypes, Precision};
use wengert_core::DType;
use wengert_core::graph::{Program, parse_program, verify_program};

/// An initializer, a training step with a moment, and a function that predicts.
const MODEL: &str = "
func @init(key %key: u32[2]) -> (state m.w: f32[2,2], state m.b: f32[2], state adam.m.w: f32[2,2]) {
  %0: f32[] = constant {value=f32[] 0.3}
  %1: f32[2,2] = broadcast_in_dim %0 {dims=[], shape=[2,2]}
  %2: f32[2] = broadcast_in_dim %0 {dims=[], shape=[2]}
  return %1, %2, %1
}

func @step(%x: f32[4,2], state %m.w: f32[2,2], state %m.b: f32[2], state %adam.m.w: f32[2,2])
  -> (loss: f32[], state m.w: f32[2,2], state m.b: f32[2], state adam.m.w: f32[2,2]) {
  %0: f32[4,2] = dot_general %x, %m.w {contract=[[1],[0]]}
  %1: f32[4,2] = broadcast_in_dim %m.b {dims=[1], shape=[4,2]}
  %2: f32[4,2] = add %0, %1
  %3: f32[4,2] = square %2
  %4: f32[] = reduce_sum %3 {axes=[0,1]}
  %5: f32[2,2] = dot_general %x, %2 {contract=[[0],[0]]}
  %6: f32[2,2] = add %adam.m.w, %5
  %7: f32[2,2] = sub %m.w, %6
  return %4, %7, %m.b, %6
}

func @predict(%x: f32[4,2], param %m.w: f32[2,2], param %m.b: f32[2]) -> (y: f32[4,2]) {
  %0: f32[4,2] = dot_general %x, %m.w {contract=[[1],[0]]}
  %1: f32[4,2] = broadcast_in_dim %m.b {dims=[1], shape=[4,2]}
  %2: f32[4,2] = add %0, %1
  return %2
}
";

fn program() -> Program {
    parse_program(MODEL, "model.ir").unwrap()
}

/// The types of the inputs and outputs of a function, by name.
fn types(program: &Program, function: &str) -> Vec<(String, DType)> {
    let function = program.get(function).unwrap();
    let inputs = function.inputs.iter().enumerate();
    let outputs = function.outputs.iter().enumerate();
    let inputs = inputs.map(|(n, i)| (i.name.clone(), function.input_type(n).dtype));
    inputs
        .chain(outputs.map(|(n, o)| (format!("-> {}", o.name), function.output_type(n).dtype)))
        .collect()
}

fn dtypes_of(program: &Program, function: &str) -> Vec<(String, &'static str)> {
    types(program, function).into_iter().map(|(name, dtype)| (name, dtype.name())).collect()
}

fn pairs(of: &[(&str, &'static str)]) -> Vec<(String, &'static str)> {
    of.iter().map(|(name, dtype)| ((*name).to_owned(), *dtype)).collect()
}

#[test]
fn parameters_have_one_dtype_in_all_functions() {
    let policy = Precision::bf16().param_dtype(DType::BF16).unwrap();
    let changed = policy.apply_to_program(&program()).unwrap();
    verify_program(&changed).unwrap();
    assert_eq!(
        dtypes_of(&changed, "init"),
        pairs(&[("key", "u32"), ("-> m.w", "bf16"), ("-> m.b", "bf16"), ("-> adam.m.w", "f32")])
    );
    // The moment and the loss keep their types.
    assert_eq!(
        dtypes_of(&changed, "step"),
        pairs(&[
            ("x", "f32"),
            ("m.w", "bf16"),
            ("m.b", "bf16"),
            ("adam.m.w", "f32"),
            ("-> loss", "f32"),
            ("-> m.w", "bf16"),
            ("-> m.b", "bf16"),
            ("-> adam.m.w", "f32")
        ])
    );
    let predict = [("x", "f32"), ("m.w", "bf16"), ("m.b", "bf16"), ("-> y", "f32")];
    assert_eq!(dtypes_of(&changed, "predict"), pairs(&predict));
    // The product reads the weight as it is stored.
    let text = changed.get("predict").unwrap().to_string();
    assert!(text.contains("dot_general %0, %m.w"), "{text}");
}

#[test]
fn some_parameters_and_functions_are_left_out() {
    let program = program();
    let policy = Precision::custom(Dtypes {
        param_dtype: DType::F16,
        compute_dtype: DType::BF16,
        output_dtype: DType::BF16,
    })
    .unwrap();
    let kept = policy.clone().keep_param("*.b").unwrap().apply_to_program(&program).unwrap();
    let predict = [("x", "f32"), ("m.w", "f16"), ("m.b", "f32"), ("-> y", "bf16")];
    assert_eq!(dtypes_of(&kept, "predict"), pairs(&predict));
    assert_eq!(dtypes_of(&kept, "init")[1..3], pairs(&[("-> m.w", "f16"), ("-> m.b", "f32")]));
    // With all parameters left out, the other dtypes are left.
    let all = policy.clone().keep_param("*").unwrap().apply_to_program(&program).unwrap();
    let predict = [("x", "f32"), ("m.w", "f32"), ("m.b", "f32"), ("-> y", "bf16")];
    assert_eq!(dtypes_of(&all, "predict"), pairs(&predict));
    // A restricted policy leaves other functions as they are.
    let results = Precision::bf16().output_dtype(DType::F16).unwrap();
    let only = results.only_function("pre*").unwrap().apply_to_program(&program).unwrap();
    for name in ["init", "step"] {
        assert_eq!(only.get(name).unwrap(), program.get(name).unwrap());
    }
    assert_eq!(dtypes_of(&only, "predict")[3..], pairs(&[("-> y", "f16")]));
}

/// A step alone does not tell parameters from moments, so the policy says which they are.
#[test]
fn parameters_of_a_step_are_named() {
    let text = MODEL.split("func ").nth(2).unwrap();
    let step = parse_program(&format!("func {text}"), "step.ir").unwrap();
    let policy = Precision::bf16().param_dtype(DType::BF16).unwrap();
    let error = policy.apply_to_program(&step).unwrap_err();
    assert!(error.message.contains("no parameters to be stored in bf16"), "{error}");
    let help = error.help.unwrap();
    assert!(help.contains("`--param-path`") && help.contains("`m.w`"), "{help}");
    let changed = policy.param_path("m.*").unwrap().apply_to_program(&step).unwrap();
    assert_eq!(
        dtypes_of(&changed, "step")[1..4],
        pairs(&[("m.w", "bf16"), ("m.b", "bf16"), ("adam.m.w", "f32")])
    );
}

/// Without further dtypes, custom policies are the two that have names.
#[test]
fn custom_policies_of_products_are_the_named_ones() {
    let program = program();
    for (dtype, named) in [(DType::BF16, Precision::bf16()), (DType::F16, Precision::f16())] {
        let custom =
            Precision::custom(Dtypes { compute_dtype: dtype, ..Dtypes::default() }).unwrap();
        assert_eq!(custom, named);
        let changed = named.apply_to_program(&program).unwrap();
        assert_eq!(changed.get("init").unwrap(), program.get("init").unwrap());
    }
}

#[test]
fn programs_print_and_parse() {
    let policy = Precision::bf16().param_dtype(DType::F16).unwrap();
    let changed = policy.output_dtype(DType::BF16).unwrap().apply_to_program(&program()).unwrap();
    let text: String = changed.functions().iter().map(|function| format!("{function}\n")).collect();
    let parsed = parse_program(&text, "printed.ir").unwrap();
    let again: String = parsed.functions().iter().map(|function| format!("{function}\n")).collect();
    assert_eq!(text, again);
}
