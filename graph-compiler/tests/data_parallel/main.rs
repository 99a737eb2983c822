//! Data parallelism: 1, 2 and 4 ranks give the same bits, near those of the function of one
//! device.
#![allow(clippy::unwrap_used)] // Helpers outside of `#[test]` functions unwrap too.

mod control;

use wengert_compiler::autodiff::operators::value_and_grad;
use wengert_compiler::ranks::DataParallel;
use wengert_compiler::vmap::operators::vmap;
use wengert_core::build::FunctionBuilder;
use wengert_core::graph::{Function, InputRole, OutputRole, parse_program};
use wengert_core::interpret::{run, run_ranks};
use wengert_core::op::{
    Attention, AttentionKind, ConvGeneralDilated, ReduceWindow, WindowKind, Windows,
};
use wengert_core::{DType, Initializer, Literal, Scalar, Tensor, TensorType};
use wengert_testing::ranks::{build, count, f32s, i32s, inputs, numbers, param, part};
use wengert_testing::samples::{self, Sample};

/// The outputs of a function on its ranks. Those that vary are joined along axis 0; the others
/// are the same on all ranks.
fn outputs(of_rank: &Function, batch: &[&str], inputs: &[Literal]) -> Vec<Literal> {
    let ranks = of_rank.mesh.ranks();
    let given = |rank: usize| {
        let pairs = of_rank.inputs.iter().zip(inputs);
        let of = |(input, x): (&wengert_core::graph::Input, &Literal)| match batch
            .contains(&&*input.name)
        {
            true => part(x, [0, 1], rank, ranks),
            false => x.clone(),
        };
        pairs.map(of).collect::<Vec<Literal>>()
    };
    let given: Vec<Vec<Literal>> = (0..ranks).map(given).collect();
    let made = run_ranks(of_rank, &given).unwrap_or_else(|e| panic!("{e}\n{of_rank}"));
    let output = |i: usize| {
        if of_rank.output_type(i).varying.is_empty() {
            assert!(made.iter().all(|on| on[i] == made[0][i]), "output {i} is invariant");
            return made[0][i].clone();
        }
        let mut shape = made[0][i].shape().to_vec();
        shape[0] *= ranks;
        let bytes: Vec<u8> = made.iter().flat_map(|on| on[i].to_bytes()).collect();
        Literal::from_bytes(made[0][i].dtype(), &shape, &bytes).unwrap()
    };
    (0..of_rank.outputs.len()).map(output).collect()
}

/// Checks a function for several M and N. Returns the function of two ranks for M = 4.
fn check(function: &Function, batch: &[&str], classes: i32) -> Function {
    for seed in 0..2 {
        let inputs = inputs(function, classes, seed);
        let wanted = run(function, &inputs).unwrap();
        for microbatches in [1, 4, 8] {
            let mut first: Option<Vec<Literal>> = None;
            for ranks in [1, 2, 4].into_iter().filter(|n| microbatches >= *n) {
                let options =
                    DataParallel::new(batch.to_vec()).ranks(ranks).microbatches(microbatches);
                let of_rank = options.apply(function).unwrap_or_else(|e| panic!("{e}"));
                assert_eq!(of_rank.mesh.ranks(), ranks);
                let text = of_rank.to_string();
                let again = parse_program(&text, "f.ir").unwrap_or_else(|e| panic!("{e}\n{text}"));
                assert_eq!(again.to_string(), text);
                let made = outputs(&of_rank, batch, &inputs);
                for (i, (a, b)) in made.iter().zip(&wanted).enumerate() {
                    let name = &function.outputs[i].name;
                    for (a, b) in numbers(a).into_iter().zip(numbers(b)) {
                        assert!(
                            (a - b).abs() <= 2e-5 * (1.0 + b.abs()),
                            "M = {microbatches}, N = {ranks}: `{name}` has {a}, not {b}"
                        );
                    }
                }
                match &first {
                    None => first = Some(made),
                    Some(first) => {
                        let same = first.iter().zip(&made).all(|(a, b)| a == b);
                        assert!(same, "M = {microbatches}: the bits of {ranks} ranks differ");
                    }
                }
            }
        }
    }
    DataParallel::new(batch.to_vec()).ranks(2).microbatches(4).apply(function).unwrap()
}

/// A step of SGD of a network of two layers.
fn mlp(f: &mut FunctionBuilder) {
    let x = f.input("x", f32s(&[16, 6]));
    let y = f.input("y", i32s(&[16]));
    let model = f.state("model", vec![param(&[6, 8]), param(&[8]), param(&[8, 3]), param(&[3])]);
    let (loss, gradient) = value_and_grad(&model, |m| {
        let hidden = (x.dot(&m[0]) + &m[1]).relu();
        (hidden.dot(&m[2]) + &m[3]).softmax_cross_entropy(&y).mean()
    });
    for (i, (w, g)) in model.iter().zip(&gradient).enumerate() {
        f.update(&format!("model.{i}"), &(w - g * 0.1));
    }
    f.output("loss", loss);
}

#[test]
fn a_step_of_sgd() {
    let of_rank = check(&build("step", mlp), &["x", "y"], 3);
    // One sum for each of the four gradients and for the loss, and one copy of the forward pass.
    assert_eq!(count(&of_rank, "psum"), 5, "{of_rank}");
    assert_eq!(count(&of_rank, "scan"), 1, "{of_rank}");
    assert_eq!(count(&of_rank, "softmax_cross_entropy"), 1, "{of_rank}");
}

/// Dropout, whose mask is drawn for the whole batch; clipping by the norm of the gradients;
/// metrics of the batch and of each example; a weighted loss, whose divisor is a sum.
#[test]
fn random_bits_norms_and_metrics() {
    let function = build("step", |f| {
        let x = f.input("x", f32s(&[16, 6]));
        let y = f.input("y", i32s(&[16]));
        let weight = f.input("weight", f32s(&[16]));
        let key = f.key("key");
        let model = f.state("model", vec![param(&[6, 8]), param(&[8, 3])]);
        let mask = key.dropout_mask(DType::F32, [16usize, 8], 0.4);
        let weight = weight.square();
        let logits = |m: &[Tensor]| (x.dot(&m[0]).tanh() * &mask).dot(&m[1]);
        let (loss, gradient) = value_and_grad(&model, |m| {
            let each = logits(m).softmax_cross_entropy(&y);
            (each * &weight).sum() / weight.sum()
        });
        let squares = gradient.iter().map(|g| g.square().sum());
        let norm = squares.reduce(|a, b| a + b).unwrap().sqrt();
        let factor = (&norm + 1.0).reciprocal();
        for (i, (w, g)) in model.iter().zip(&gradient).enumerate() {
            f.update(&format!("model.{i}"), &(w - g * &factor));
        }
        let logits = logits(&model);
        f.output("loss", loss);
        f.output("norm", norm);
        f.output("greatest", logits.max_axes(&[0, 1]));
        f.output("class", logits.argmax(1));
        f.output("correct", logits.argmax(1).eq(&y).convert(DType::I32).sum());
    });
    let of_rank = check(&function, &["x", "y", "weight"], 3);
    let class = of_rank.output_index("class", OutputRole::Output).unwrap();
    assert_eq!(of_rank.output_type(class).to_string(), "i32[8]{data}");
    assert_eq!(count(&of_rank, "pmax"), 1);
}

/// Batch normalisation has the statistics of the whole batch: two sums forward, whose results
/// every example uses, and two backward.
#[test]
fn batch_normalisation_is_synchronised() {
    let function = build("step", |f| {
        let x = f.input("x", f32s(&[16, 6]));
        let model = f.state("model", vec![param(&[6, 4]), param(&[4])]);
        let (loss, gradient) = value_and_grad(&model, |m| {
            let h = x.dot(&m[0]);
            let mean = h.mean_axes(&[0]);
            let centred = &h - mean.broadcast_in_dim(h.shape().to_vec(), &[1]);
            let variance = centred.square().mean_axes(&[0]);
            let scale = (variance + 1e-3).rsqrt() * &m[1];
            (centred * scale.broadcast_in_dim(h.shape().to_vec(), &[1])).tanh().sum() / 16.0
        });
        for (i, (w, g)) in model.iter().zip(&gradient).enumerate() {
            f.update(&format!("model.{i}"), &(w - g * 0.1));
        }
        f.output("loss", loss);
    });
    check(&function, &["x"], 1);
}

/// Rows of a table, attention, a normalisation: examples along axis 0 of values of several ranks,
/// and merged with positions.
#[test]
fn a_transformer() {
    let function = build("step", |f| {
        let x = f.input("tokens", i32s(&[8, 5]));
        let y = f.input("targets", i32s(&[8, 5]));
        let shapes: [&[usize]; 4] = [&[7, 8], &[8, 24], &[8, 8], &[8, 7]];
        let model = f.state("model", shapes.map(param).to_vec());
        let (loss, gradient) = value_and_grad(&model, |m| {
            let h = m[0].gather_rows(&x);
            let n = h.standardize(2, 1e-5);
            let heads = [8usize, 5, 3, 2, 4];
            let qkv = n.reshape([40usize, 8]).dot(&m[1]).reshape(heads);
            let part = |i: i64| qkv.slice_axis(2, i, i + 1).reshape([8usize, 5, 2, 4]);
            let attention = Attention {
                kind: AttentionKind::Value,
                causal: true,
                bias: false,
                prefix: false,
                scale: Scalar::of(0.5f64),
            };
            let [q, k, v] = [0, 1, 2].map(part);
            let out = Tensor::apply_many(attention, &[&q, &k, &v]).swap_remove(0);
            let h = h + out.reshape([8usize, 5, 8]).dot(&m[2]);
            h.dot(&m[3]).softmax_cross_entropy(&y).mean()
        });
        for (i, (w, g)) in model.iter().zip(&gradient).enumerate() {
            f.update(&format!("model.{i}"), &(w - g * 0.1));
        }
        f.output("loss", loss);
    });
    check(&function, &["tokens", "targets"], 7);
}

/// Images that are moved at random, convolutions, pooling, dropout, and AdamW's moments.
#[test]
fn a_convnet() {
    let function = build("step", |f| {
        let x = f.input("x", f32s(&[8, 6, 6, 1]));
        let y = f.input("y", i32s(&[8]));
        let key = f.key("key");
        let keys = key.split_key(2);
        let shapes: [&[usize]; 4] = [&[3, 3, 1, 4], &[4], &[3, 3, 4, 6], &[6, 5]];
        let model = f.state("model", shapes.map(param).to_vec());
        let moments = f.state("moments", shapes.map(param).to_vec());
        let starts = (keys[0].uniform(DType::F32, [8usize, 2]) * 3.0).convert(DType::I32);
        let around = x.pad(&[(0, 0), (1, 1), (1, 1), (0, 0)], 0.0);
        let moved = vmap(&(around, starts), |(image, start)| {
            let start = Tensor::concatenate(&[start, &start.slice_axis(0, 0, 1).zeros_like()], 0);
            image.dynamic_slice(&[&start], [6usize, 6, 1])
        });
        let (loss, gradient) = value_and_grad(&model, |m| {
            let convolved =
                |x: &Tensor, w: &Tensor| Tensor::apply(ConvGeneralDilated::new(2), &[x, w]);
            let h = (convolved(&moved, &m[0]) + &m[1]).relu();
            let windows = Windows::new(&[1, 2, 2, 1], &[1, 2, 2, 1]);
            let h = Tensor::apply(ReduceWindow { kind: WindowKind::Max, windows }, &[&h]);
            let h = h.pad(&[(0, 0), (1, 1), (1, 1), (0, 0)], 0.0);
            let h = convolved(&h, &m[2]).mean_axes(&[1, 2]);
            let h = h * keys[1].dropout_mask(DType::F32, [8usize, 6], 0.25);
            h.dot(&m[3]).softmax_cross_entropy(&y).mean()
        });
        for (i, ((w, m), g)) in model.iter().zip(&moments).zip(&gradient).enumerate() {
            let m = m * 0.9 + g * 0.1;
            f.update(&format!("model.{i}"), &(w - &m * 0.1));
            f.update(&format!("moments.{i}"), &m);
        }
        f.output("loss", loss);
    });
    check(&function, &["x", "y"], 5);
}

/// Halves are added in f32, and rounded once.
#[test]
fn halves() {
    let function = build("step", |f| {
        let x = f.input("x", TensorType::new(DType::BF16, [8usize, 6]));
        let w = f.param(
            "w",
            Tensor::variable(TensorType::new(DType::BF16, [6usize, 3]), Initializer::Zeros),
        );
        f.output("sum", x.dot(&w).sum_axes(&[0]));
    });
    let inputs = inputs(&function, 1, 5);
    let made = |ranks: usize, microbatches: usize| {
        let options = DataParallel::new(["x"]).ranks(ranks).microbatches(microbatches);
        outputs(&options.apply(&function).unwrap(), &["x"], &inputs)
    };
    for ranks in [2, 4] {
        assert_eq!(made(1, 8), made(ranks, 8));
    }
}

/// The tree over an odd number of microbatches is that of `psum` over as many ranks.
#[test]
fn any_number_of_microbatches() {
    let function = build("sum", |f| {
        let x = f.input("x", f32s(&[24]));
        f.output("sum", x.exp().sum());
    });
    let inputs = inputs(&function, 1, 9);
    let made = |ranks: usize, microbatches: usize| {
        let options = DataParallel::new(["x"]).ranks(ranks).microbatches(microbatches);
        outputs(&options.apply(&function).unwrap(), &["x"], &inputs)
    };
    for (ranks, microbatches) in [(3, 3), (3, 6), (3, 12), (6, 12), (12, 12), (8, 8), (24, 24)] {
        assert_eq!(made(1, microbatches), made(ranks, microbatches), "{ranks}, {microbatches}");
    }
}

/// The whole text of a small function of two ranks with two microbatches each.
#[test]
fn the_text_of_a_function_of_a_rank() {
    let text = "func @step(%x: f32[8,2], param %w: f32[2]) -> (loss: f32[], y: f32[8]) {
        %0: f32[8] = dot_general %x, %w {contract=[[1],[0]]}
        %1: f32[] = reduce_sum %0 {axes=[0]}
        %2: f32[] = constant {value=f32[] 0.125}
        %3: f32[] = mul %1, %2
        return %3, %0
    }";
    let program = parse_program(text, "step.ir").unwrap();
    let options = DataParallel::new(["x"]).ranks(2).microbatches(4);
    let of_rank = options.apply(&program.functions()[0]).unwrap();
    assert_eq!(of_rank.to_string().trim(), TEXT.trim());
    assert_eq!(of_rank.inputs[1].role, InputRole::Param);
}

const TEXT: &str = r#"
func @step mesh(data=2) (%x: f32[4,2]{data}, param %w: f32[2]) -> (loss: f32[], y: f32[4]{data}) {
  %0: f32[] = constant {value=f32[] 0.125}
  %1: f32[2,2,2]{data} = reshape %x {shape=[2,2,2]}
  %2: f32[2]{data} = pvary %w {over=["data"]}
  %3: f32[2,2]{data}, %4: f32[2]{data} = scan %1, %2 {captures=1, carries=0, length=2}
    region (%5: f32[2,2]{data}, %6: f32[2]{data}) {
      %7: f32[2]{data} = dot_general %5, %6 {contract=[[1],[0]]}
      %8: f32[]{data} = reduce_sum %7 {axes=[0]}
      return %7, %8
    }
  %9: f32[4]{data} = reshape %3 {shape=[4]}
  %10: f32[1]{data} = slice %4 {limit=[1], start=[0]}
  %11: f32[]{data} = reshape %10 {shape=[]}
  %12: f32[1]{data} = slice %4 {limit=[2], start=[1]}
  %13: f32[]{data} = reshape %12 {shape=[]}
  %14: f32[]{data} = add %11, %13
  %15: f32[] = psum %14 {over=["data"]}
  %16: f32[] = mul %15, %0
  return %16, %9
}
"#;

/// Each op of the catalogue, with examples along each axis of one operand or of two: if the pass
/// divides it, the result is that of the whole op.
#[test]
fn every_op_is_divided_rightly_or_refused() {
    let mut divided = std::collections::BTreeMap::<&str, usize>::new();
    let mut refused = 0;
    for entry in samples::catalogue() {
        for sample in &entry.samples {
            let whole = sample.literals(DType::F64, 1);
            let types: Vec<TensorType> = whole.iter().map(Literal::ty).collect();
            if sample.infer(&types).is_err() {
                continue;
            }
            let axes = |i: usize| (0..types[i].rank()).map(move |axis| (i, axis));
            let all: Vec<(usize, usize)> = (0..types.len()).flat_map(axes).collect();
            let extent = |at: &(usize, usize)| whole[at.0].shape()[at.1];
            for a in &all {
                let alone = vec![*a];
                let pairs = all.iter().filter(|b| b.0 > a.0 && extent(b) == extent(a));
                let choices = std::iter::once(alone).chain(pairs.map(|b| vec![*a, *b]));
                for chosen in choices.filter(|_| extent(a) > 1) {
                    match divided_op(sample, &whole, &chosen, extent(a)) {
                        true => *divided.entry(entry.name).or_default() += 1,
                        false => refused += 1,
                    }
                }
            }
        }
    }
    assert!(refused > 100, "{refused}");
    let names = [
        "add",
        "select",
        "permute",
        "reshape",
        "broadcast_in_dim",
        "reduce_sum",
        "reduce_max",
        "dot_general",
        "conv_general_dilated",
        "gather",
        "scatter_add",
        "take_along_axis",
        "slice",
        "pad",
        "concatenate",
        "dynamic_slice",
        "dynamic_update_slice",
        "reduce_window_max",
        "window_gather",
        "window_scatter_add",
        "softmax",
        "standardize",
        "softmax_cross_entropy",
        "dot_product_attention",
        "dot_product_attention_vjp",
        "sort",
        "argmax",
        "cumsum",
        "triangular_solve",
        "random_bits",
        "top_k",
        "reverse",
    ];
    for name in names {
        assert!(divided.contains_key(name), "{name} is never divided: {divided:?}");
    }
}

/// The op of a sample on examples along these axes of operands, each a microbatch. Whether the
/// pass divides it.
fn divided_op(
    sample: &Sample,
    whole: &[Literal],
    chosen: &[(usize, usize)],
    examples: usize,
) -> bool {
    // Axis 0 of an input holds the examples.
    let to_front = |rank: usize, axis: usize| -> Vec<usize> {
        std::iter::once(axis).chain((0..rank).filter(|a| *a != axis)).collect()
    };
    let axis_of = |i: usize| chosen.iter().find(|c| c.0 == i).map(|c| c.1);
    let function = build("f", |f| {
        let mut operands = vec![];
        for (i, x) in whole.iter().enumerate() {
            let name = format!("x{i}");
            operands.push(match axis_of(i) {
                None => f.input(&name, x.ty()),
                Some(axis) => {
                    let order = to_front(x.shape().len(), axis);
                    let shape = order.iter().map(|a| x.shape()[*a]);
                    let given = f.input(&name, TensorType::new(x.dtype(), shape));
                    let back: Vec<usize> = (0..order.len())
                        .map(|a| order.iter().position(|o| *o == a).unwrap())
                        .collect();
                    given.permute(&back)
                }
            });
        }
        let types: Vec<TensorType> = operands.iter().map(|t| t.ty().clone()).collect();
        let regions = sample.regions(&types);
        let operands: Vec<&Tensor> = operands.iter().collect();
        let results = Tensor::apply_with(sample.op.clone(), &operands, regions);
        for (i, result) in results.iter().enumerate() {
            f.output(&format!("y{i}"), result);
        }
    });
    let names: Vec<String> = chosen.iter().map(|c| format!("x{}", c.0)).collect();
    let options = DataParallel::new(names).microbatches(examples);
    let Ok(made) = options.apply(&function) else { return false };
    let given = |(i, x): (usize, &Literal)| match axis_of(i) {
        None => x.clone(),
        Some(axis) => permuted(x, &to_front(x.shape().len(), axis)),
    };
    let given: Vec<Literal> = whole.iter().enumerate().map(given).collect();
    let (wanted, found) = (run(&function, &given).unwrap(), run(&made, &given).unwrap());
    for (a, b) in wanted.iter().zip(&found) {
        assert_eq!(a.ty(), b.ty(), "{:?}", sample.op);
        // The results of microbatches are rounded before they are added.
        let tolerance = match a.dtype() {
            DType::BF16 => 3e-2,
            DType::F16 => 4e-3,
            DType::F32 => 1e-6,
            _ => 1e-12,
        };
        for (a, b) in numbers(a).into_iter().zip(numbers(b)) {
            let near =
                a == b || (a - b).abs() <= tolerance * (1.0 + a.abs()) || a.is_nan() && b.is_nan();
            assert!(near, "{:?} on {chosen:?}: {b}, not {a}\n{made}", sample.op);
        }
    }
    true
}

fn permuted(x: &Literal, order: &[usize]) -> Literal {
    let function = build("p", |f| {
        let x = f.input("x", x.ty());
        f.output("y", x.permute(order));
    });
    run(&function, std::slice::from_ref(x)).unwrap().swap_remove(0)
}

/// The error of a function, given as text.
fn error(options: &DataParallel, text: &str) -> String {
    let program = parse_program(text, "f.ir").unwrap_or_else(|e| panic!("{e}"));
    match options.apply(&program.functions()[0]) {
        Ok(made) => panic!("no error\n{made}"),
        Err(error) => error.to_string(),
    }
}

#[track_caller]
fn refuses(options: &DataParallel, text: &str, parts: &[&str]) {
    let error = error(options, text);
    for part in parts {
        assert!(error.contains(part), "`{part}` is missing in:\n{error}");
    }
}

#[test]
fn ops_that_mix_examples_are_refused() {
    let options = DataParallel::new(["x"]).ranks(2).microbatches(2);
    let on = |equation: &str, result: &str| {
        format!(
            "func @f(%x: f32[4,4], %w: f32[3], %i: i32[4,1]) -> ({result}) {{
               %0: {result} = {equation}
               return %0
             }}"
        )
    };
    let mixing =
        ["sort %x {axis=0}", "softmax %x {axis=0}", "cumsum %x {axis=0}", "reverse %x {axes=[0]}"];
    for equation in mixing {
        let op = equation.split(' ').next().unwrap();
        refuses(
            &options,
            &on(equation, "f32[4,4]"),
            &[
                &format!("@f: `{op}` mixes the examples, which are along axis 0, of extent 4"),
                &format!("in the equation `%0: f32[4,4] = {op}"),
                "f.ir:2",
                "let it act on each example alone",
            ],
        );
    }
    refuses(
        &options,
        &on("slice %x {limit=[2,4], start=[0,0]}", "f32[2,4]"),
        &["`slice` mixes the examples"],
    );
    refuses(
        &options,
        &on("reduce_prod %x {axes=[0]}", "f32[4]"),
        &["`reduce_prod` mixes the examples", "sums, means, maxima or minima"],
    );
    refuses(
        &options,
        &on("dot_general %x, %x {contract=[[1],[1]]}", "f32[4,4]"),
        &["combines different examples", "axis 0 of operand 0 and axis 0 of operand 1"],
    );
    let onto = "func @f(%x: f32[4,3], %w: f32[5,3], %i: i32[4,1]) -> (f32[5,3]) {
        %0: f32[5,3] = scatter_add %w, %i, %x {inserted_window_dims=[0], \
        scatter_dims_to_operand_dims=[0], update_window_dims=[1]}
        return %0
    }";
    refuses(&options, onto, &["operand 0, which is not known to be zero", "scatter onto zeros"]);
}

#[test]
fn requests_that_do_not_fit_are_refused() {
    let text = "func @f(%x: f32[12,2], %y: f32[6], param %w: f32[12]) -> (f32[2]) {
        %0: f32[2] = reduce_sum %x {axes=[0]}
        return %0
    }";
    let of = |names: &[&str]| DataParallel::new(names.to_vec());
    refuses(&of(&[]), text, &["no input is named to hold examples", "x, y, w"]);
    refuses(&of(&["z"]), text, &["there is no input `z`"]);
    refuses(&of(&["w"]), text, &["input `w`, f32[12], is a param", "f.ir:1"]);
    refuses(&of(&["x", "y"]), text, &["input `y`, f32[6], has 6 examples, but `x` has 12"]);
    refuses(
        &of(&["x"]).microbatches(8),
        text,
        &["has 12 examples, which are not 8 equal microbatches", "a batch of 8 examples"],
    );
    refuses(
        &of(&["x"]).ranks(2).microbatches(6),
        text,
        &["6 microbatches cannot be distributed over 2 ranks", "use 2 or 4 microbatches"],
    );
    refuses(
        &of(&["x"]).ranks(4).microbatches(2),
        text,
        &["2 microbatches cannot be distributed over 4 ranks"],
    );
    refuses(&of(&["x"]).ranks(0), text, &["0 ranks, and 1 microbatches"]);
    refuses(&of(&["x"]).ranks(2).microbatches(2).axis("a b"), text, &["no name for an axis"]);
    let meshed = "func @f mesh(data=2) (%x: f32[4]{data}) -> (f32[4]{data}) {
        %0: f32[4]{data} = exp %x
        return %0
    }";
    refuses(&of(&["x"]), meshed, &["@f has mesh(data=2) already, with axis `data`"]);
    let variable = "func @f(%x: f32[B]) -> (f32[B]) {
        %0: f32[B] = exp %x
        return %0
    }";
    refuses(&of(&["x"]), variable, &["@f has the dimension variable B", "bind it"]);
    let state = "func @f(%x: f32[4], state %s: f32[4]) -> (state s: f32[4]) {
        %0: f32[4] = add %x, %s
        return %0
    }";
    refuses(&of(&["x"]), state, &["state `s`, f32[4], would have a value for each example"]);
}
