//! Low-rank adaptation: the adapted function against the function at the weights plus their
//! updates, its gradients against differences, and mistakes.

#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not helpers.

use wengert_compiler::autodiff::function::{Grad, grad};
use wengert_compiler::lora::{Lora, OutputAxis, Plain, remove};
use wengert_core::graph::{Function, Program, parse_program};
use wengert_core::ndarray::Array2;
use wengert_core::{DType, Initializer, Literal, interpret};
use wengert_testing::Random;
use wengert_testing::functions::literal;

/// Functions of a weight `m.w`, each with the axis of its outputs. The last ones read it otherwise
/// than as a factor.
const USES: &[(&str, OutputAxis)] = &[
    (
        "func @f(%x: f64[3,4,6], param %m.w: f64[6,5]) -> (y: f64[3,4,5]) {
           %0: f64[3,4,5] = dot_general %x, %m.w {contract=[[2],[0]]}
           return %0
         }",
        OutputAxis::Last,
    ),
    (
        "func @f(%x: f64[3,6], param %m.w: f64[5,6]) -> (y: f64[3,5]) {
           %0: f64[6,5] = permute %m.w {permutation=[1,0]}
           %1: f64[3,5] = dot_general %x, %0 {contract=[[1],[0]]}
           return %1
         }",
        OutputAxis::First,
    ),
    (
        "func @f(%x: f64[3,6], param %m.w: f64[5,6]) -> (y: f64[5,3]) {
           %0: f64[5,3] = dot_general %m.w, %x {contract=[[1],[1]]}
           return %0
         }",
        OutputAxis::First,
    ),
    // A table that is the matrix of the last layer as well.
    (
        "func @f(%x: f64[3], param %m.w: f64[7,5]) -> (y: f64[3,7]) {
           %0: i32[3] = iota {axis=0, dtype=i32, shape=[3]}
           %1: i32[3,1] = reshape %0 {shape=[3,1]}
           %2: f64[3,5] = gather %m.w, %1 {collapsed_slice_dims=[0], offset_dims=[1], \
             slice_sizes=[1,5], start_index_map=[0]}
           %3: f64[3,7] = dot_general %2, %m.w {contract=[[1],[1]]}
           %4: f64[3,7] = broadcast_in_dim %x {dims=[0], shape=[3,7]}
           %5: f64[3,7] = add %3, %4
           return %5
         }",
        OutputAxis::First,
    ),
    (
        "func @f(%x: f64[3,6], param %m.w: f64[6,5]) -> (y: f64[3,6]) {
           %0: f64[3,5] = dot_general %x, %m.w {contract=[[1],[0]]}
           %1: f64[3,5] = tanh %0
           %2: f64[3,6] = dot_general %1, %m.w {contract=[[1],[1]]}
           return %2
         }",
        OutputAxis::Last,
    ),
    (
        "func @f(%x: f64[3,6], param %m.w: f64[6,5]) -> (y: f64[6,6]) {
           %0: f64[5,6] = permute %m.w {permutation=[1,0]}
           %1: f64[6,6] = dot_general %m.w, %0 {contract=[[1],[0]]}
           return %1
         }",
        OutputAxis::First,
    ),
    (
        "func @f(%x: f64[2,3,5,5], param %m.w: f64[4,3,2,2]) -> (y: f64[2,4,4,4]) {
           %0: f64[2,4,4,4] = conv_general_dilated %x, %m.w \
             {lhs_spec=[0,1,2,3], out_spec=[0,1,2,3], padding=[[0,0],[0,0]], \
             rhs_spec=[0,1,2,3], stride=[1,1]}
           return %0
         }",
        OutputAxis::First,
    ),
    (
        "func @f(%x: f64[2,5,5,3], param %m.w: f64[2,2,3,4]) -> (y: f64[2,4,4,4]) {
           %0: f64[2,4,4,4] = conv_general_dilated %x, %m.w \
             {padding=[[0,0],[0,0]], stride=[1,1]}
           return %0
         }",
        OutputAxis::Last,
    ),
    (
        "func @f(%x: f64[3,6], param %m.w: f64[6,5]) -> (y: f64[6,5]) {
           %0: f64[6,5] = sin %m.w
           return %0
         }",
        OutputAxis::Last,
    ),
    (
        "func @f(%x: f64[6], param %m.w: f64[6,6]) -> (y: f64[6]) {
           %0: f64[6] = scan %x, %m.w {captures=1, carries=1, length=3}
             region (%c: f64[6], %w: f64[6,6]) {
               %1: f64[6] = dot_general %c, %w {contract=[[0],[0]]}
               %2: f64[6] = tanh %1
               return %2
             }
           return %0
         }",
        OutputAxis::Last,
    ),
];

fn program(text: &str) -> Program {
    parse_program(text, "model.ir").unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn lora() -> Lora {
    Lora::new(2).and_then(|lora| lora.alpha(3.0)).and_then(|lora| lora.path("m.*")).unwrap()
}

/// Random values for the inputs of a function.
fn inputs(function: &Function, seed: u64) -> Vec<Literal> {
    let mut random = Random(seed);
    let count = function.inputs.len();
    (0..count).map(|n| literal(&mut random, function.input_type(n), false)).collect()
}

fn matrix(literal: &Literal, rows: usize) -> Array2<f64> {
    let values = literal.as_slice::<f64>().unwrap().to_vec();
    Array2::from_shape_vec((rows, values.len() / rows), values).unwrap()
}

/// Where the scan's operands stand differs, so the position of the weight is looked up.
fn position(function: &Function, name: &str) -> usize {
    function.input_index(name).unwrap()
}

#[test]
fn an_adapted_function_is_the_function_at_weights_with_updates() {
    for (n, (text, output)) in USES.iter().enumerate() {
        let plain = program(text);
        let (adapters, adapted) =
            (lora().adapters(&plain).unwrap(), lora().apply_to_program(&plain).unwrap());
        assert_eq!(adapters[0].output, *output, "{text}");
        let (plain, function) = (&plain.functions()[0], &adapted.functions()[0]);
        assert_eq!(program(&function.to_string()).functions()[0].to_string(), function.to_string());
        let [w, a, b] = ["m.w", "m.w.lora_a", "m.w.lora_b"].map(|name| position(function, name));
        let mut values = inputs(function, n as u64);
        let of_plain = |values: &[Literal]| {
            let mut values = values.to_vec();
            values.drain(a..=b);
            values
        };

        // Without an update, every bit is that of the function.
        let some_b = values[b].clone();
        values[b] = Literal::full(some_b.shape(), wengert_core::Scalar::of(0.0f64));
        let (expected, found) = (
            interpret::run(plain, &of_plain(&values)).unwrap(),
            interpret::run(function, &values).unwrap(),
        );
        assert_eq!(found, expected, "{text}\n{function}");

        // With one, it is the function at w + s·P·Q.
        values[b] = some_b;
        let (left, right) = match output {
            OutputAxis::First => (&values[b], &values[a]),
            OutputAxis::Last => (&values[a], &values[b]),
        };
        let update = matrix(left, left.len() / 2).dot(&matrix(right, 2)) * 1.5;
        let weight = values[w].as_slice::<f64>().unwrap();
        let sums: Vec<f64> = weight.iter().zip(&update).map(|(w, u)| w + u).collect();
        let mut moved = of_plain(&values);
        moved[w] = Literal::from_vec(values[w].shape(), sums).unwrap();
        let (expected, found) =
            (interpret::run(plain, &moved).unwrap(), interpret::run(function, &values).unwrap());
        let pairs = expected[0].scalars().zip(found[0].scalars());
        for (expected, found) in pairs.map(|(e, f)| (e.to_f64(), f.to_f64())) {
            assert!((expected - found).abs() <= 1e-12 * (1.0 + expected.abs()), "{text}");
        }
    }
}

#[test]
fn gradients_of_adapters_equal_differences() {
    for (n, (text, _)) in USES.iter().enumerate() {
        let adapted = lora().apply_to_program(&program(text)).unwrap();
        let function = &adapted.functions()[0];
        let wrt = ["m.w.lora_a", "m.w.lora_b"];
        let request = Grad { of: Some("y"), wrt: &wrt, value: false, seed: true };
        let gradient = grad(&adapted, "f", &request).unwrap().function;
        let values = inputs(function, 100 + n as u64);
        let y = interpret::run(function, &values).unwrap().remove(0);
        let seed = literal(&mut Random(7), &y.ty(), false);
        let found =
            interpret::run(&gradient, &[values.clone(), vec![seed.clone()]].concat()).unwrap();
        for (name, found) in wrt.iter().zip(found) {
            let at = position(function, name);
            let x = values[at].as_slice::<f64>().unwrap().to_vec();
            for (i, found) in found.as_slice::<f64>().unwrap().iter().enumerate() {
                let moved = |h: f64| {
                    let mut x = x.clone();
                    x[i] += h;
                    let mut values = values.clone();
                    values[at] = Literal::from_vec(values[at].shape(), x).unwrap();
                    let y = interpret::run(function, &values).unwrap().remove(0);
                    let pairs = y.as_slice::<f64>().unwrap().iter().zip(seed.as_slice().unwrap());
                    pairs.map(|(y, s): (&f64, &f64)| y * s).sum::<f64>()
                };
                let expected = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                assert!(
                    (found - expected).abs() <= 1e-7 * (1.0 + expected.abs()),
                    "{name}[{i}]: {found}, by differences {expected}\n{text}"
                );
            }
        }
    }
}

#[test]
fn a_product_makes_no_update_of_the_size_of_the_weight() {
    let adapted = lora().apply_to_program(&program(USES[1].0)).unwrap();
    let body = &adapted.functions()[0].body;
    let products: Vec<String> = body
        .equations
        .iter()
        .filter(|equation| equation.op.name() == "dot_general")
        .map(|equation| body.ty(equation.results[0]).to_string())
        .collect();
    assert_eq!(products, ["f64[3,2]", "f64[3,5]", "f64[3,5]"], "{}", adapted.functions()[0]);
}

/// Without its updates, an adapted function is the function that was adapted: of the same value,
/// and the same adapted function if it is adapted again.
#[test]
fn updates_are_removed() {
    for (n, (text, output)) in USES.iter().enumerate() {
        for alpha in [2.0, 3.0] {
            let lora = lora().alpha(alpha).unwrap();
            let before = program(text).functions()[0].clone();
            let adapted = lora.apply(&before).unwrap();
            let Plain { function, updates } = remove(&adapted).unwrap();
            let [update] = &updates[..] else { panic!("{} updates of {text}", updates.len()) };
            assert_eq!((update.adapter.output, update.adapter.rank), (*output, 2), "{text}");
            assert_eq!(update.scale, alpha / 2.0, "{text}");
            assert_eq!(function.inputs, before.inputs, "{text}");
            let values = inputs(&before, n as u64);
            let [expected, found] =
                [&before, &function].map(|function| interpret::run(function, &values).unwrap());
            assert_eq!(found, expected, "{text}\n{function}");
            assert_eq!(lora.apply(&function).unwrap().to_string(), adapted.to_string());
        }
    }
    let before = program(USES[0].0).functions()[0].clone();
    let Plain { function, updates } = remove(&before).unwrap();
    assert!(updates.is_empty());
    assert_eq!(function, before);
}

#[test]
fn updates_of_another_form_are_not_removed() {
    let adapted = lora().apply(&program(USES[0].0).functions()[0]).unwrap().to_string();
    let says = |changes: &[(&str, &str)], expected: &str| {
        let text = changes.iter().fold(adapted.clone(), |text, (from, to)| text.replace(from, to));
        assert_ne!(text, adapted);
        let error = remove(&program(&text).functions()[0]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}\n{text}");
    };
    says(&[("%m.w.lora_b", "%other")], "has `m.w.lora_a`, but no `m.w.lora_b`");
    says(&[("%m.w:", "%v:"), ("%m.w ", "%v ")], "has `m.w.lora_a`, but no `m.w`");
    says(&[("= add ", "= sub ")], "does not read `m.w.lora_a` as the factor of an update");
    // A factor that is read elsewhere as well.
    let text = "func @f(%x: f64[3,6], param %w: f64[6,5], param %w.lora_a: f64[6,2], \
       param %w.lora_b: f64[2,5]) -> (y: f64[3,5], z: f64[6,2]) {
         %0: f64[3,2] = dot_general %x, %w.lora_a {contract=[[1],[0]]}
         %1: f64[3,5] = dot_general %0, %w.lora_b {contract=[[1],[0]]}
         %2: f64[3,5] = dot_general %x, %w {contract=[[1],[0]]}
         %3: f64[3,5] = add %2, %1
         %4: f64[6,2] = sin %w.lora_a
         return %3, %4
       }";
    let error = |text: &str| remove(&program(text).functions()[0]).unwrap_err().to_string();
    assert!(error(text).contains("does not read `w.lora_a`"), "{}", error(text));
    // An update of another value than that of the product.
    let of_other = text.replace("z: f64[6,2]", "z: f64[3,6]").replace(
        "%0: f64[3,2] = dot_general %x,",
        "%4: f64[3,6] = sin %x\n%0: f64[3,2] = dot_general %4,",
    );
    let of_other = of_other.replace("%4: f64[6,2] = sin %w.lora_a", "");
    assert!(error(&of_other).contains("does not read `w.lora_a`"), "{}", error(&of_other));
    let unread = "func @f(%x: f64[6], param %w: f64[6,5], param %w.lora_a: f64[6,2], \
       param %w.lora_b: f64[2,5]) -> (y: f64[6]) {
         return %x
       }";
    assert!(error(unread).contains("does not read `w.lora_a`"), "{}", error(unread));
    let trains = unread
        .replace("param %w.lora_a", "state %w.lora_a")
        .replace("(y: f64[6])", "(y: f64[6], state w.lora_a: f64[6,2])")
        .replace("return %x", "return %x, %w.lora_a");
    assert!(error(&trains).contains("@f trains the update of `w`"), "{}", error(&trains));
    let shapes = unread.replace("f64[2,5]", "f64[3,5]");
    assert!(error(&shapes).contains("which do not fit"), "{}", error(&shapes));
}

#[test]
fn a_policy_is_read_and_written() {
    let lora: Lora = "r=8, alpha=16,model.*.weight,head".parse().unwrap();
    assert_eq!((lora.rank(), lora.scale()), (8, 2.0));
    assert!(lora.is_for("model.0.weight") && lora.is_for("head") && !lora.is_for("model.0.bias"));
    assert_eq!(lora.to_string().parse::<Lora>().unwrap(), lora);
    assert!(!lora.is_for("model.x.weight.lora_a"));
    let adapters = "r=2,m.*".parse::<Lora>().unwrap().adapters(&program(USES[0].0)).unwrap();
    assert_eq!(adapters[0].beginning(), Initializer::Normal { mean: 0.0, std: 1.0 / 6f64.sqrt() });
    assert_eq!(adapters[0].down_type().to_string(), "f64[6,2]");
    assert_eq!(adapters[0].up_type().dtype, DType::F64);
}

#[test]
fn mistakes_are_said() {
    let text = |error: wengert_core::Diagnostic| error.to_string();
    let parsed = |policy: &str| text(policy.parse::<Lora>().unwrap_err());
    assert!(parsed("w").contains("LoRA `w` has no rank"));
    assert!(parsed("r=8").contains("is for no weight"));
    assert!(parsed("r=0,w").contains("rank 0 changes nothing"));
    assert!(parsed("r=x,w").contains("`r=x` is not a rank"));
    assert!(parsed("r=2,alpha=0,w").contains("an alpha of 0"));
    assert!(parsed("r=2,a***").contains("`a***` is no pattern of key paths"));

    let of = |policy: &str, program: &Program| {
        text(policy.parse::<Lora>().unwrap().apply_to_program(program).unwrap_err())
    };
    let plain = program(USES[0].0);
    let none = of("r=2,model.*", &plain);
    assert!(none.contains("no variable matches `model.*`") && none.contains("`m.w`"), "{none}");
    let large = of("r=5,m.w", &plain);
    assert!(large.contains("rank 5, which is not below 5"), "{large}");
    let twice = lora().apply_to_program(&plain).unwrap();
    assert!(of("r=2,m.*", &twice).contains("is adapted already"));
    let vector = program(
        "func @f(%x: f64[6], param %b: f64[6]) -> (y: f64[6]) {
           %0: f64[6] = add %x, %b
           return %0
         }",
    );
    assert!(of("r=2,b", &vector).contains("is no matrix of floats"));
    let stacked = program(
        "func @f(%x: f64[2,3,6], param %w: f64[2,6,5]) -> (y: f64[2,3,5]) {
           %0: f64[2,3,5] = dot_general %x, %w {batch=[[0],[0]], contract=[[2],[1]]}
           return %0
         }",
    );
    assert!(of("r=2,w", &stacked).contains("has more than two axes"));
    let step = program(
        "func @step(%x: f64[3,6], state %w: f64[6,5]) -> (y: f64[3,5], state w: f64[6,5]) {
           %0: f64[3,5] = dot_general %x, %w {contract=[[1],[0]]}
           return %0, %w
         }",
    );
    assert!(of("r=2,w", &step).contains("is replaced by @step"));
}
