//! Mistakes of a policy for a program.

use crate::program;
use wengert_compiler::precision::{Dtypes, Precision};
use wengert_core::graph::{Program, parse_program};
use wengert_core::{DType, Diagnostic, Result};

fn fails(policy: Result<Precision>, program: &Program) -> Diagnostic {
    policy.unwrap().apply_to_program(program).unwrap_err()
}

fn says(error: &Diagnostic, message: &str, help: &str) {
    assert_eq!(error.message, message);
    assert!(error.help.as_deref().is_some_and(|text| text.contains(help)), "{error}");
}

fn stored() -> Precision {
    Precision::bf16().param_dtype(DType::BF16).unwrap()
}

#[test]
fn patterns_match_something() {
    let program = program();
    let none = fails(Precision::bf16().only_function("predct*"), &program);
    says(&none, "no function matches `predct*`", "functions of the program are @init, @step");
    let none = fails(stored().param_path("model.*"), &program);
    says(&none, "no variable of f32 matches `model.*`", "`adam.m.w`, `m.b`, `m.w`");
    let none = fails(stored().keep_param("adam.*"), &program);
    says(&none, "no parameter matches `adam.*`", "parameters of the program are `m.b`, `m.w`");
    let useless = fails(Precision::bf16().keep_param("m.*"), &program);
    says(
        &useless,
        "`m.*` names parameters, and the policy has no dtype of parameters",
        "`param_dtype`, or `--param-dtype`",
    );
}

/// A session's variable has one type, whichever function runs.
#[test]
fn functions_share_their_parameters() {
    let shared = fails(stored().only_function("predict"), &program());
    says(
        &shared,
        "parameter `m.w` would be bf16, but @step takes it, too, and the policy is not for that \
         function",
        "let the policy match all functions that take it",
    );
    // The initializer need not match.
    let both = stored().only_function("predict").unwrap().only_function("step").unwrap();
    both.apply_to_program(&program()).unwrap();
}

#[test]
fn a_policy_changes_something() {
    let nothing = "a policy of precision changes nothing in this program";
    let all = fails(Precision::custom(Dtypes::default()), &program());
    says(&all, nothing, "all of its dtypes are f32");
    let text = "func @f(%x: f64[2], state %n: i32[]) -> (y: f64[2], state n: i32[]) {
        %0: f64[2] = tanh %x
        return %0, %n
    }";
    let other = parse_program(text, "f.ir").unwrap();
    says(&fails(Ok(Precision::f16()), &other), nothing, "no function has a product");
    let results = fails(Precision::bf16().output_dtype(DType::BF16), &other);
    says(&results, nothing, "no function has a result of f32");
    let stored = fails(Ok(stored()), &other);
    says(&stored, "the program has no parameters to be stored in bf16", "no variables of f32");
}
