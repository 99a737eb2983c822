//! `vmap` on functions: names, roles, a batch of unknown extent, random programs, mistakes.

use super::examples::{looped, stack};
use wengert_compiler::autodiff::function::{Grad, grad};
use wengert_compiler::vmap::function::{Vmap, vmap};
use wengert_core::build::FunctionBuilder;
use wengert_core::graph::{Function, InputRole, OutputRole, Program};
use wengert_core::{Binding, DType, Dim, Initializer, Literal, Scalar, Tensor, TensorType};
use wengert_testing::Random;
use wengert_testing::derivative::{f64s, flat, run};
use wengert_testing::programs::random_program;

fn literal(shape: &[usize], random: &mut Random) -> Literal {
    random_literal(&f64s(shape), random)
}

fn random_literal(ty: &TensorType, random: &mut Random) -> Literal {
    let shape = ty.extents().unwrap();
    let number = |random: &mut Random| {
        let number = random.bits() % 8192;
        match ty.dtype {
            DType::Bool => Scalar::of(number % 2 == 1),
            d if d.is_float() => Scalar::from_f64(d, number as f64 / 2048.0 - 2.0),
            d => Scalar::from_i64(d, number as i64 % 13 - 3),
        }
    };
    let scalars: Vec<Scalar> =
        (0..shape.iter().product::<usize>()).map(|_| number(random)).collect();
    Literal::from_scalars(ty.dtype, &shape, &scalars).unwrap()
}

/// logits = x·w + b, with a counter, and with noise from a key.
fn model() -> Program {
    let mut program = Program::new();
    program
        .function("predict", |f| {
            let x = f.input("x", f64s(&[3]));
            let key = f.key("key");
            let variable = |shape: &[usize]| Tensor::variable(f64s(shape), Initializer::Zeros);
            let w = f.param("model.w", variable(&[3, 2]));
            let b = f.param("model.b", variable(&[2]));
            let count = f.state("count", variable(&[]));
            let y = x.dot(&w) + &b + key.uniform(DType::F64, [2usize]);
            f.output("y", &y);
            f.output("loss", y.square().sum());
            f.output("norm", w.square().sum());
            f.update("count", &(&count + 1.0));
        })
        .unwrap();
    program
}

fn names(function: &Function) -> Vec<&str> {
    function.outputs.iter().map(|o| o.name.as_str()).collect()
}

fn mapped(program: &Program, request: &Vmap<'_>) -> Function {
    vmap(program, "predict", request).unwrap_or_else(|e| panic!("{e}")).function
}

#[test]
fn a_function_on_a_batch_has_the_names_of_the_function() {
    let program = model();
    let derived =
        vmap(&program, "predict", &Vmap { inputs: &[("x", 0)], ..Default::default() }).unwrap();
    let f = &derived.function;
    assert_eq!(f.name, "predict_vmap");
    assert_eq!(names(f), names(program.get("predict").unwrap()));
    assert_eq!(f.input_type(0).to_string(), "f64[B,3]");
    assert_eq!(*f.input_type(2), f64s(&[3, 2]));
    assert_eq!(f.inputs[1].role, InputRole::Key);
    assert_eq!(f.output_type(0).to_string(), "f64[B,2]");
    assert_eq!(f.output_type(1).to_string(), "f64[B]");
    // Shared results are repeated, and a warning says so. The counter counts runs, not examples.
    assert_eq!(f.output_type(2).to_string(), "f64[B]");
    assert_eq!(derived.warnings.len(), 1);
    assert!(
        derived.warnings[0]
            .to_string()
            .contains("`norm` does not depend on the inputs that are mapped")
    );
    let count = f.output_index("count", OutputRole::State).unwrap();
    assert_eq!(*f.output_type(count), f64s(&[]));
}

/// Every choice of an axis for every input, including variables and keys.
#[test]
fn a_function_on_a_batch_is_the_loop() {
    let program = model();
    let function = program.get("predict").unwrap();
    let mut random = Random(11);
    let rank = |i: usize| function.input_type(i).rank();
    for choice in 1..1u32 << function.inputs.len() {
        for last in [false, true] {
            let chosen: Vec<usize> =
                (0..function.inputs.len()).filter(|i| choice >> i & 1 == 1).collect();
            let axis = |i: usize| if last { rank(i) } else { 0 };
            let inputs: Vec<(&str, usize)> =
                chosen.iter().map(|i| (function.inputs[*i].name.as_str(), axis(*i))).collect();
            let request = Vmap { inputs: &inputs, size: Some(Dim::from(3usize)), out_axis: 0 };
            let f = mapped(&program, &request);
            let examples: Vec<Vec<Literal>> = (0..function.inputs.len())
                .map(|i| {
                    let count = if chosen.contains(&i) { 3 } else { 1 };
                    (0..count)
                        .map(|_| random_literal(function.input_type(i), &mut random))
                        .collect()
                })
                .collect();
            let given: Vec<Literal> = examples
                .iter()
                .enumerate()
                .map(|(i, e)| if chosen.contains(&i) { stack(e, axis(i)) } else { e[0].clone() })
                .collect();
            let mut wanted = looped(function, &examples, 3, 0);
            let count = function.output_index("count", OutputRole::State).unwrap();
            if !chosen.contains(&4) {
                wanted[count] =
                    run(function, &examples.iter().map(|e| e[0].clone()).collect::<Vec<_>>())
                        [count]
                        .clone();
            }
            assert_eq!(run(&f, &given), wanted, "{inputs:?}");
        }
    }
}

#[test]
fn key_paths_map_all_below_and_keys_become_inputs() {
    let program = model();
    let f =
        mapped(&program, &Vmap { inputs: &[("model", 0), ("key", 1)], size: None, out_axis: 0 });
    assert_eq!(f.input_type(2).to_string(), "f64[B,3,2]");
    assert_eq!(f.input_type(3).to_string(), "f64[B,2]");
    assert_eq!(
        (f.input_type(1).to_string(), f.inputs[1].role),
        ("u32[2,B]".into(), InputRole::Input)
    );
    assert_eq!(f.inputs[2].role, InputRole::Param);
    // Axis 1 of a batch of scalars does not exist.
    let error = vmap(&program, "predict", &Vmap { inputs: &[("x", 0)], size: None, out_axis: 2 })
        .unwrap_err();
    assert!(error.to_string().contains("output `y` of type f64[2] can have no axis 2"), "{error}");
}

/// Per-example gradients of a file: the gradient of a function, then its map. The batch gets a new
/// dimension variable.
#[test]
fn the_map_of_a_gradient_gives_a_gradient_for_each_example() {
    let mut program = model();
    let request = Grad { of: Some("loss"), wrt: &["model"], ..Default::default() };
    program.add(grad(&program, "predict", &request).unwrap().function).unwrap();
    let gradient = program.get("predict_grad").unwrap();
    let f = vmap(&program, "predict_grad", &Vmap { inputs: &[("x", 0)], ..Default::default() })
        .unwrap()
        .function;
    assert_eq!(names(&f), ["d_model.w", "d_model.b"]);
    assert_eq!(f.output_type(0).to_string(), "f64[B,3,2]");
    let bound = f.bind(&Binding::new().with("B", 4)).unwrap();
    let mut random = Random(12);
    let examples: Vec<Vec<Literal>> = (0..f.inputs.len())
        .map(|i| {
            let count = if i == 0 { 4 } else { 1 };
            (0..count).map(|_| random_literal(gradient.input_type(i), &mut random)).collect()
        })
        .collect();
    let mut given: Vec<Literal> = examples.iter().map(|e| e[0].clone()).collect();
    given[0] = stack(&examples[0], 0);
    assert_eq!(run(&bound, &given), looped(gradient, &examples, 4, 0));
}

#[test]
fn a_variable_of_the_functions_own_is_not_taken() {
    let mut program = Program::new();
    program
        .function("f", |f| {
            let x = f.input("x", TensorType::new(DType::F64, [Dim::variable("B"), 3i64.into()]));
            f.output("y", x.mean());
        })
        .unwrap();
    let map = |size| {
        let request = Vmap { inputs: &[("x", 0)], size, out_axis: 0 };
        vmap(&program, "f", &request).unwrap().function.input_type(0).to_string()
    };
    assert_eq!(map(None), "f64[B2,B,3]");
    assert_eq!(map(Some(Dim::variable("B"))), "f64[B,B,3]");
    let once =
        vmap(&program, "f", &Vmap { inputs: &[("x", 1)], ..Default::default() }).unwrap().function;
    let bound = once.bind(&Binding::new().with("B", 2).with("B2", 4)).unwrap();
    let x = literal(&[2, 4, 3], &mut Random(5));
    let values = flat(std::slice::from_ref(&x));
    for (n, mean) in flat(&run(&bound, &[x])).into_iter().enumerate() {
        let wanted = (0..6).map(|i| values[i / 3 * 12 + n * 3 + i % 3]).sum::<f64>() / 6.0;
        assert!((mean - wanted).abs() < 1e-15);
    }
}

#[test]
fn mistakes_are_explained() {
    let program = model();
    let refused = |inputs: &[(&str, usize)], size: Option<Dim>| {
        vmap(&program, "predict", &Vmap { inputs, size, out_axis: 0 }).unwrap_err().to_string()
    };
    let text = refused(&[], None);
    assert!(
        text.contains("no input is named to map over") && text.contains("x, key, model.w"),
        "{text}"
    );
    let text = refused(&[("model.v", 0)], None);
    assert!(text.contains("no input `model.v`") && text.contains("did you mean"), "{text}");
    let text = refused(&[("x", 2)], None);
    assert!(
        text.contains("`x` of type f64[3] can have no axis 2") && text.contains("functions.rs:"),
        "{text}"
    );
    let text = refused(&[("model", 0), ("model.w", 1)], None);
    assert!(text.contains("`model.w` is mapped along two axes"), "{text}");
    let text = refused(&[("x", 0)], Some(Dim::constant(-1)));
    assert!(text.contains("a batch of -1 examples"), "{text}");

    let mut program = Program::new();
    let f = FunctionBuilder::build("sum", |f| {
        let x = f.input("x", f64s(&[]));
        let total = f.state("total", Tensor::variable(f64s(&[]), Initializer::Zeros));
        f.update("total", &(&total + &x));
    });
    program.add(f.unwrap()).unwrap();
    let map =
        |inputs: &[(&str, usize)]| vmap(&program, "sum", &Vmap { inputs, ..Default::default() });
    let text = map(&[("x", 0)]).unwrap_err().to_string();
    assert!(text.contains("state `total` would be replaced by a value for each example"), "{text}");
    assert!(text.contains("functions.rs:") && text.contains("map the state too"), "{text}");
    let each = map(&[("x", 0), ("total", 0)]).unwrap().function;
    assert_eq!(each.output_type(0).to_string(), "f64[B]");
}

/// Random programs of all ops of the catalogue, with some of their inputs mapped along some axes.
/// They equal the loop bit for bit.
#[test]
fn random_programs_on_a_batch_are_loops() {
    let mut compared = 0;
    for seed in 0..400 {
        let program = random_program(seed, 12);
        let mut random = Random(seed ^ 0xba7c4);
        for function in program.functions() {
            let binding = Binding::new().with("B", 2).with("T", 1);
            // A program may have no results, or may need dimensions that this binding lacks.
            let Ok(bound) = function.bind(&binding) else { continue };
            // Random ids do not ascend, and then the batched op is another function.
            if bound.to_string().contains("segment_sum") {
                continue;
            }
            let inputs: Vec<(&str, usize)> = function
                .inputs
                .iter()
                .enumerate()
                .filter_map(|(i, input)| {
                    let axis = random.below(bound.input_type(i).rank() + 1);
                    (random.below(2) == 0).then_some((input.name.as_str(), axis))
                })
                .collect();
            let axis_of =
                |name: &str| inputs.iter().find(|(n, _)| *n == name).map(|(_, axis)| *axis);
            let request = Vmap { inputs: &inputs, size: Some(Dim::from(3usize)), out_axis: 0 };
            let program = Program::from_functions(vec![bound.clone()]).unwrap();
            // A map is refused if a state would get a result that differs between examples, or if
            // no input is mapped.
            let Ok(derived) = vmap(&program, &function.name, &request) else { continue };
            let examples: Vec<Vec<Literal>> = (0..bound.inputs.len())
                .map(|i| {
                    let count = if axis_of(&bound.inputs[i].name).is_some() { 3 } else { 1 };
                    (0..count).map(|_| random_literal(bound.input_type(i), &mut random)).collect()
                })
                .collect();
            let given: Vec<Literal> = examples
                .iter()
                .zip(&bound.inputs)
                .map(|(e, input)| {
                    axis_of(&input.name).map_or_else(|| e[0].clone(), |axis| stack(e, axis))
                })
                .collect();
            let results = run(&derived.function, &given);
            let wanted = looped(&bound, &examples, 3, 0);
            for (i, output) in bound.outputs.iter().enumerate() {
                let state =
                    output.role == OutputRole::State && bound.input_index(&output.name).is_some();
                match axis_of(&output.name).filter(|_| state) {
                    None if state => {
                        assert_eq!(stack(&vec![results[i].clone(); 3], 0), wanted[i], "{seed}")
                    }
                    Some(axis) => {
                        let parts: Vec<Literal> = (0..3)
                            .map(|n| {
                                run(
                                    &bound,
                                    &examples
                                        .iter()
                                        .map(|e| e[n % e.len()].clone())
                                        .collect::<Vec<_>>(),
                                )[i]
                                    .clone()
                            })
                            .collect();
                        assert_eq!(results[i], stack(&parts, axis), "{seed}");
                    }
                    None => {
                        assert_eq!(results[i], wanted[i], "seed {seed}, output {}", output.name)
                    }
                }
                compared += 1;
            }
        }
    }
    assert!(compared > 300, "{compared}");
}
