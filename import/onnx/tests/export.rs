//! Exported functions are imported again and compared in the interpreter: each op, dtypes, symbolic
//! dimensions. And what is refused.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use wengert_core::build::FunctionBuilder;
use wengert_core::graph::{Function, InputRole};
use wengert_core::op::{RandomBits, Softmax, SoftmaxKind};
use wengert_core::{
    Binding, DType, Diagnostic, Dim, Initializer, Literal, Op, Tensor, TensorType, interpret,
};
use wengert_onnx::{
    ExportOptions, Imported, OPSETS, Options, export_rules, read, unexported, write,
};
use wengert_testing::samples;

fn imported(model: Vec<u8>) -> Result<Imported, Diagnostic> {
    let alone = |path: &std::path::Path| Err(Diagnostic::new(path.display().to_string()));
    read("m.onnx", Bytes::from(model), &alone, &Options::default())
}

fn options(opset: i64) -> ExportOptions {
    ExportOptions { opset, ..ExportOptions::default() }
}

/// Names of the nodes of a model, which stand in it as text.
fn has(model: &[u8], node: &str) -> bool {
    let field = [&[0x22, node.len() as u8], node.as_bytes()].concat();
    model.windows(field.len()).any(|bytes| bytes == field)
}

/// The results of a model that is imported again.
fn again(
    model: Vec<u8>,
    function: &Function,
    binding: &Binding,
    operands: &[Literal],
) -> Result<Vec<Literal>, Diagnostic> {
    let imported = imported(model)?;
    let known = &imported.program.functions()[0];
    let names: BTreeSet<&String> = function.inputs.iter().map(|input| &input.name).collect();
    let operand = |name: &String| {
        let original = imported.names.get(name).unwrap_or(name);
        assert!(names.contains(original), "{name}");
        operands[function.input_index(original).unwrap()].clone()
    };
    let given: Vec<Literal> = known.inputs.iter().map(|input| operand(&input.name)).collect();
    interpret::run(&known.bind(binding)?, &given)
}

/// The difference of two results, relative to the largest number.
fn difference(found: &Literal, wanted: &Literal) -> f64 {
    assert_eq!(found.ty(), wanted.ty());
    if !wanted.dtype().is_float() {
        return if found == wanted { 0.0 } else { f64::INFINITY };
    }
    let numbers = |l: &Literal| l.scalars().map(|s| s.to_f64()).collect::<Vec<_>>();
    let (found, wanted) = (numbers(found), numbers(wanted));
    let finite = wanted.iter().filter(|x| x.is_finite()).map(|x| x.abs());
    let scale = finite.fold(f64::MIN_POSITIVE, f64::max);
    let error = |(x, y): (&f64, &f64)| match x == y || (x.is_nan() && y.is_nan()) {
        true => 0.0,
        false => (x - y).abs() / scale,
    };
    // `max` would lose NaN.
    let errors = found.iter().zip(&wanted).map(error);
    errors.fold(0.0, |most, e| if e.is_nan() || e > most { e } else { most })
}

#[test]
fn each_op_has_a_rule_or_a_reason() {
    let with: BTreeSet<&str> = export_rules().map(|rule| rule.op).collect();
    let without: BTreeSet<&str> = unexported().iter().map(|(op, _)| *op).collect();
    assert_eq!(with.len(), export_rules().count(), "an op has two rules");
    assert!(with.is_disjoint(&without));
    let all: BTreeSet<&str> = Op::catalogue().iter().map(|entry| entry.name).collect();
    let known: BTreeSet<&str> = with.union(&without).copied().collect();
    // A transposed op occurs in linear programs only, and has no name in the catalogue's text.
    let missing: Vec<_> = all.difference(&known).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let unknown: Vec<_> = known.difference(&all).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

/// The samples of all ops with this dtype for the floats, in this op set.
fn samples_agree(dtype: DType, opset: i64, tolerance: f64, least: usize) {
    let (mut compared, mut refused, mut wrong) = (0, 0, vec![]);
    for entry in samples::catalogue() {
        for (number, sample) in entry.samples.iter().enumerate() {
            let operands = sample.literals(dtype, number as u64 + 1);
            let Some(function) = sample.function(&operands) else { continue };
            let name = format!("{} sample {number}", entry.name);
            // The order of NaN is the runtime's.
            let is_nan = |l: &Literal| l.scalars().any(|s| s.to_f64().is_nan());
            if ["argsort", "sort"].contains(&entry.name) && operands.iter().any(is_nan) {
                continue;
            }
            let model = match write(&function, &BTreeMap::new(), &options(opset)) {
                Ok(model) => model,
                Err(error) => {
                    let text = error.to_string();
                    // An error says which equation, and what to do.
                    assert!(text.contains("cannot be exported") && error.help.is_some(), "{text}");
                    assert_eq!(error.places.len(), 1, "{text}");
                    refused += 1;
                    continue;
                }
            };
            let wanted = interpret::run(&function, &operands).unwrap();
            match again(model, &function, &Binding::new(), &operands) {
                Ok(found) => {
                    let errors = found.iter().zip(&wanted).map(|(f, w)| difference(f, w));
                    let error = errors.fold(0.0, |most, e| if e <= most { most } else { e });
                    if error <= tolerance {
                        compared += 1;
                    } else {
                        wrong.push(format!("{name}: {error}"));
                    }
                }
                // A loop's number of steps depends on data, and is not imported.
                Err(error) if entry.name == "while" => {
                    assert!(error.to_string().contains("not known at import"), "{error}");
                }
                Err(error) => wrong.push(format!("{name}: {error}")),
            }
        }
    }
    println!("{dtype}, op set {opset}: {compared} compared, {refused} refused");
    assert!(wrong.is_empty(), "{} are wrong\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared >= least, "{compared}");
}

#[test]
fn samples_of_f32_agree() {
    samples_agree(DType::F32, *OPSETS.start(), 1e-5, 700);
}

#[test]
fn samples_of_f32_agree_in_the_last_op_set() {
    samples_agree(DType::F32, *OPSETS.end(), 1e-5, 700);
}

#[test]
fn samples_of_f64_agree() {
    samples_agree(DType::F64, *OPSETS.start(), 1e-5, 700);
}

#[test]
fn samples_of_f16_agree() {
    samples_agree(DType::F16, 23, 4e-3, 700);
}

#[test]
fn samples_of_bf16_agree() {
    samples_agree(DType::BF16, 23, 3e-2, 700);
}

fn variable(name: &str) -> Dim {
    Dim::variable(name)
}

/// A layer whose shapes are computed from the input's, with a normalization and an activation.
fn layer() -> Function {
    FunctionBuilder::build("predict", |f| {
        let (b, t) = (variable("B"), variable("T"));
        let x = f.input("x", TensorType::new(DType::F32, [b.clone(), t.clone(), 4i64.into()]));
        let vector =
            |n: usize| Tensor::variable(TensorType::new(DType::F32, [n]), Initializer::Zeros);
        let weight = Tensor::variable(TensorType::new(DType::F32, [4usize, 6]), Initializer::Zeros);
        let weight = f.param("fc.weight", weight);
        let (scale, bias) = (f.param("norm.weight", vector(6)), f.param("norm.bias", vector(6)));
        let shape = [b.clone(), t.clone(), 6i64.into()];
        let normal = x.dot(&weight).standardize(-1, 1e-5);
        let scaled = normal * scale.broadcast_in_dim(shape.to_vec(), &[2])
            + bias.broadcast_in_dim(shape.to_vec(), &[2]);
        let active = scaled.gelu().relu();
        let rows = b.checked_mul(&t).unwrap();
        f.output("y", active.reshape([rows, 6i64.into()]));
        let doubled = Tensor::concatenate(&[&active, &active], 1);
        f.output("z", doubled.softmax(-1));
        f.output("n", Tensor::dim_as_value(t.checked_scale(2).unwrap(), DType::I32));
    })
    .unwrap()
}

fn weights() -> BTreeMap<String, Literal> {
    let of = |shape: &[usize]| {
        let n: usize = shape.iter().product();
        let values = (0..n).map(|i| (i as f32 * 0.7).sin()).collect();
        Literal::from_vec(shape, values).unwrap()
    };
    let all = [("fc.weight", &[4, 6][..]), ("norm.weight", &[6]), ("norm.bias", &[6])];
    all.into_iter().map(|(name, shape)| (name.to_owned(), of(shape))).collect()
}

#[test]
fn names_parameters_and_symbolic_dimensions_are_kept() {
    let function = layer();
    let weights = weights();
    let model = write(&function, &weights, &ExportOptions::default()).unwrap();
    for node in ["LayerNormalization", "Gelu", "Relu", "Softmax", "MatMul"] {
        assert!(has(&model, node), "{node}");
    }
    for node in ["Erf", "Expand", "Where"] {
        assert!(!has(&model, node), "{node}");
    }
    let imported = imported(model.clone()).unwrap();
    let known = &imported.program.functions()[0];
    assert_eq!(imported.parameters, weights);
    let types: Vec<String> =
        (0..3).map(|n| format!("{} {}", known.outputs[n].name, known.output_type(n))).collect();
    assert_eq!(types, ["y f32[B*T,6]", "z f32[B,2*T,6]", "n i32[]"]);
    let x = known.input_index("x").unwrap();
    assert_eq!(known.input_type(x).to_string(), "f32[B,T,4]");
    for (b, t) in [(1, 1), (2, 3)] {
        let binding = Binding::new().with("B", b).with("T", t);
        let values = (0..b * t * 4).map(|i| (i as f32).cos()).collect();
        let x = Literal::from_vec(&[b as usize, t as usize, 4], values).unwrap();
        let operand = |name: &String| weights.get(name).unwrap_or(&x).clone();
        let operands: Vec<Literal> = function.inputs.iter().map(|i| operand(&i.name)).collect();
        let wanted = interpret::run(&function.bind(&binding).unwrap(), &operands).unwrap();
        let found = again(model.clone(), &function, &binding, &operands).unwrap();
        for (found, wanted) in found.iter().zip(&wanted) {
            assert!(difference(found, wanted) < 1e-5);
        }
    }
}

#[test]
fn a_scaled_normalization_is_one_node_where_there_is_one() {
    let function = FunctionBuilder::build("f", |f| {
        let shape = [variable("B"), 4i64.into()];
        let x = f.input("x", TensorType::new(DType::F32, shape.clone()));
        let scale = f.input("scale", TensorType::new(DType::F32, [4usize]));
        f.output("y", x.rms_normalize(-1, 1e-6) * scale.broadcast_in_dim(shape.to_vec(), &[1]));
    })
    .unwrap();
    let binding = Binding::new().with("B", 2);
    let of = |shape: &[usize], values: Vec<f32>| Literal::from_vec(shape, values).unwrap();
    let operands = [
        of(&[2, 4], (0..8).map(|i| i as f32 - 3.5).collect()),
        of(&[4], vec![1.0, -2.0, 0.5, 3.0]),
    ];
    let wanted = interpret::run(&function.bind(&binding).unwrap(), &operands).unwrap();
    for (opset, is_node) in [(21, false), (23, true)] {
        let model = write(&function, &BTreeMap::new(), &options(opset)).unwrap();
        assert_eq!(has(&model, "RMSNormalization"), is_node);
        let found = again(model, &function, &binding, &operands).unwrap();
        assert!(difference(&found[0], &wanted[0]) < 1e-5);
    }
}

#[test]
fn a_bound_dimension_is_a_number() {
    let options =
        ExportOptions { binding: Binding::new().with("T", 5), ..ExportOptions::default() };
    let model = write(&layer(), &weights(), &options).unwrap();
    let imported = imported(model).unwrap();
    let known = &imported.program.functions()[0];
    assert_eq!(known.output_type(0).to_string(), "f32[5*B,6]");
}

#[test]
fn a_value_that_is_missing_is_named() {
    let mut weights = weights();
    weights.remove("norm.bias");
    let error = write(&layer(), &weights, &ExportOptions::default()).unwrap_err().to_string();
    assert!(error.contains("variable `norm.bias`") && error.contains("--params"), "{error}");
    weights.insert("norm.bias".into(), Literal::zeros(DType::F32, &[5]));
    let error = write(&layer(), &weights, &ExportOptions::default()).unwrap_err().to_string();
    assert!(error.contains("has type f32[6], its value f32[5]"), "{error}");
}

#[test]
fn an_unknown_op_set_is_refused() {
    let error = write(&layer(), &weights(), &options(20)).unwrap_err().to_string();
    assert!(error.contains("op set 20") && error.contains("21 to 28"), "{error}");
}

#[test]
fn an_error_names_the_equation() {
    let function = FunctionBuilder::build("f", |f| {
        let key = f.key("key");
        let bits = RandomBits { dtype: DType::U32, shape: vec![3i64.into()] };
        f.output("y", Tensor::apply(bits, &[&key]));
    })
    .unwrap();
    let error = write(&function, &BTreeMap::new(), &ExportOptions::default()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("@f: `%1 = random_bits` cannot be exported"), "{text}");
    assert!(text.contains("export.rs:") && text.contains("an input of the function"), "{text}");
    // What no output depends on is left out.
    let function = FunctionBuilder::build("f", |f| {
        let x = f.input("x", TensorType::new(DType::F32, [3usize]));
        let key = f.key("key");
        let bits = RandomBits { dtype: DType::U32, shape: vec![3i64.into()] };
        let _unused = Tensor::apply(bits, &[&key]);
        f.output("y", Tensor::apply(Softmax { kind: SoftmaxKind::Softmax, axis: 0 }, &[&x]));
    })
    .unwrap();
    assert_eq!(function.inputs[1].role, InputRole::Key);
    write(&function, &BTreeMap::new(), &ExportOptions::default()).unwrap();
}

#[test]
fn a_dimension_variable_that_no_input_gives_is_named() {
    let function = FunctionBuilder::build("f", |f| {
        let n = variable("N");
        let x = f.input("x", TensorType::new(DType::F32, [n.checked_mul(&n).unwrap()]));
        f.output("y", x.reshape([n.clone(), n.clone()]));
    })
    .unwrap();
    let error = write(&function, &BTreeMap::new(), &ExportOptions::default()).unwrap_err();
    assert!(error.to_string().contains("--bind N=N"), "{error}");
    let options =
        ExportOptions { binding: Binding::new().with("N", 2), ..ExportOptions::default() };
    write(&function, &BTreeMap::new(), &options).unwrap();
}

#[test]
fn an_output_may_be_an_input_or_stand_twice() {
    let function = FunctionBuilder::build("f", |f| {
        let x = f.input("x", TensorType::new(DType::F32, [2usize]));
        let s = f.state(
            "s",
            Tensor::variable(TensorType::new(DType::F32, [2usize]), Initializer::Zeros),
        );
        let y = &x + &s;
        f.output("same", &x);
        f.output("first", &y);
        f.output("second", &y);
        f.update("s", &y);
    })
    .unwrap();
    let s = Literal::from_vec(&[2], vec![1.0f32, 2.0]).unwrap();
    let state = BTreeMap::from([("s".to_owned(), s.clone())]);
    let model = write(&function, &state, &ExportOptions::default()).unwrap();
    let known = imported(model).unwrap();
    let outputs: Vec<&str> =
        known.program.functions()[0].outputs.iter().map(|o| o.name.as_str()).collect();
    assert_eq!(outputs, ["same", "first", "second", "s.new"]);
}
