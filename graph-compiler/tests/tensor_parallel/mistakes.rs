//! Requests that cannot be met are errors that help.

use wengert_compiler::ranks::{Split, TensorParallel};
use wengert_core::graph::parse_program;

const MLP: &str = "func @mlp(%x: f32[8,4], param %up: f32[4,6], param %down: f32[6,4], param %s: \
                   f32[]) -> (f32[8,4]) {
    %0: f32[8,6] = dot_general %x, %up {contract=[[1],[0]]}
    %1: f32[8,4] = dot_general %0, %down {contract=[[1],[0]]}
    return %1
}";

fn error(parallel: &TensorParallel, text: &str) -> String {
    let program = parse_program(text, "f.ir").unwrap();
    let function = &program.functions()[0];
    let found = parallel.choose(function).and_then(|splits| splits.apply(function));
    found.map(|f| panic!("{f}")).unwrap_err().to_string()
}

#[test]
fn requests_that_do_not_fit_are_refused() {
    let of = |ranks: usize, path: &str, split: Split| {
        TensorParallel::new(ranks).split(path, split).unwrap()
    };
    let cases: &[(TensorParallel, &str, &[&str])] = &[
        (TensorParallel::new(0), MLP, &["0 ranks"]),
        (
            TensorParallel::new(2),
            MLP,
            &["no variable is divided", "2 ranks along `tensor`", "`up`, `down`, `s`"],
        ),
        (of(2, "gate", 1.into()), MLP, &["@mlp has no variable `gate`", "`up`, `down`, `s`"]),
        (of(2, "x", 0.into()), MLP, &["@mlp has no variable `x`"]),
        (
            of(4, "up", 1.into()),
            MLP,
            &["`up`, f32[4,6], has extent 6 along axis 1", "4 equal parts", "f.ir:1"],
        ),
        (
            of(2, "up", Split::from(1).blocks(2)),
            MLP,
            &["has extent 6 along axis 1", "2 equal parts in each of 2 blocks"],
        ),
        (of(2, "up", Split::from(1).blocks(0)), MLP, &["in 0 blocks", "at least one block"]),
        (of(2, "up", 2.into()), MLP, &["`up`, f32[4,6], has no axis 2", "0 to 1"]),
        (of(2, "s", 0.into()), MLP, &["`s`, f32[], has no axis 0", "it is one number"]),
        (
            of(2, "up", 1.into()).split("u*", 0).unwrap(),
            MLP,
            &["`up` is to be divided along axis 1 and along axis 0"],
        ),
        (of(2, "up", 1.into()).axis("a b"), MLP, &["no name for an axis"]),
        (
            of(2, "w", 0.into()),
            "func @f mesh(tensor=2) (param %w: f32[4]) -> (f32[4]) {\n return %w\n}",
            &["@f has mesh(tensor=2) already", "data parallelism comes afterwards"],
        ),
        (
            of(2, "w", 0.into()),
            "func @f(param %w: f32[4], %x: f32[B]) -> (f32[B]) {\n return %x\n}",
            &["@f has the dimension variable B"],
        ),
        (
            of(2, "w", 1.into()),
            "func @f(%x: f32[4,4], param %w: f32[4,6]) -> (f32[4,3,2]) {
               %0: f32[4,6] = dot_general %x, %w {contract=[[1],[0]]}
               %1: f32[4,3,2] = reshape %0 {shape=[4,3,2]}
               return %1
             }",
            &[
                "`reshape` makes f32[4,3,2] of f32[4,6]",
                "f.ir:3",
                "no axis of the result falls into 2 parts",
                "divides the number of heads",
            ],
        ),
    ];
    for (parallel, text, parts) in cases {
        let found = error(parallel, text);
        for part in *parts {
            assert!(found.contains(part), "`{part}` is not in:\n{found}");
        }
    }
    let error = TensorParallel::new(2).split("[", 0).unwrap_err().to_string();
    assert!(error.contains("no pattern"), "{error}");
}

/// With one rank there is nothing to divide.
#[test]
fn one_rank_runs_the_function_itself() {
    let program = parse_program(MLP, "f.ir").unwrap();
    let function = &program.functions()[0];
    let splits = TensorParallel::new(1).split("up", 1).unwrap().choose(function).unwrap();
    assert_eq!((splits.ranks(), splits.iter().count()), (1, 0));
    assert_eq!(splits.apply(function).unwrap().to_string(), function.to_string());
}

/// An evaluation takes the variables of the step, which have its types.
#[test]
fn another_function_with_these_variables() {
    let program = parse_program(MLP, "f.ir").unwrap();
    let parallel = TensorParallel::new(2).split("up", 1).unwrap();
    let splits = parallel.choose(&program.functions()[0]).unwrap();
    let text = "func @g(param %up: f32[4,6]) -> (f32[]) {
        %0: f32[] = reduce_sum %up {axes=[0,1]}
        return %0
    }";
    let apply = |text: &str| splits.apply(&parse_program(text, "g.ir").unwrap().functions()[0]);
    let of_rank = apply(text).unwrap();
    assert_eq!(of_rank.input_type(0).to_string(), "f32[4,3]{tensor}");
    assert_eq!(of_rank.output_type(0).to_string(), "f32[]");
    let error = apply(&text.replace("4,6", "4,5")).unwrap_err().to_string();
    assert!(error.contains("`up` is f32[4,5] here"), "{error}");
}

#[test]
fn divisions_are_texts() {
    for (text, split) in [("1", Split::from(1)), ("0/3", Split::from(0).blocks(3))] {
        assert_eq!(text.parse::<Split>().unwrap(), split);
        assert_eq!(split.to_string(), text);
    }
    for text in ["", "x", "1/0", "1/", "/3", "-1", "1/2/3"] {
        let error = text.parse::<Split>().unwrap_err().to_string();
        assert!(error.contains("is no division of a variable"), "{error}");
    }
}
