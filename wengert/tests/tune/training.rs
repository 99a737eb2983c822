//! Training of imported and other models: accuracy, what changes and what does not.

use crate::{data, model, path};
use wengert::core::graph::{InputRole, PrintOptions, parse_program, print};
use wengert::data::{Arrays, npz};
use wengert::lora::{Lora, merge};
use wengert::models::{Gpt, GptSettings};
use wengert::prelude::*;
use wengert::recipe::Length;
use wengert::train::{Event, Options, evaluate, train};
use wengert::tune::{Loss, Optimizer, Tuning};
use wengert::{GraphFile, ProgramFile, Weights, onnx};

fn weights(file: &GraphFile) -> &Arrays {
    let Weights::Inline(weights) = &file.weights else { panic!("a model has weights") };
    weights
}

/// Trains, and returns the variables and the losses.
fn trained(file: &GraphFile, data: &Arrays, length: Option<Length>) -> (Session, Vec<f64>) {
    let mut session = Session::open(Device::Cpu).unwrap();
    let options = Options { weights: Some(weights(file)), length, ..Options::default() };
    let recipe = file.recipe.as_ref().unwrap();
    let mut losses = vec![];
    train(&mut session, &file.program, recipe, data, options, &mut |event| {
        if let Event::Step(record) = event {
            losses.push(record.loss);
        }
    })
    .unwrap_or_else(|error| panic!("{error}"));
    (session, losses)
}

fn accuracy(file: &GraphFile, weights: &Arrays, data: &Arrays) -> f64 {
    let mut session = Session::open(Device::Cpu).unwrap();
    let options = Options { weights: Some(weights), partial: true, ..Options::default() };
    let recipe = file.recipe.as_ref().unwrap();
    let found = evaluate(&mut session, &file.program, recipe, data, options).unwrap();
    found.metrics.iter().find(|(name, _)| name == "accuracy").unwrap().1
}

fn tuning() -> Tuning {
    let mut tuning = Tuning::new(Loss::CrossEntropy);
    tuning.learning_rate = 3e-3;
    tuning
}

/// The models know transposed digits. Upright ones are learnt with all weights, and with updates
/// of rank 4.
#[test]
fn classifiers_learn_with_and_without_lora() {
    for (name, pattern, least) in [
        ("convolutions", "conv2.weight,hidden.weight,head.weight", [0.9, 0.85]),
        ("transformer", "onnx__*,head.weight", [0.8, 0.7]),
    ] {
        let (images, test) = (data(name, "train"), data(name, "test"));
        let lora: Lora = format!("r=4,alpha=8,{pattern}").parse().unwrap();
        for (tuning, least) in [tuning(), tuning().lora(lora.clone())].into_iter().zip(least) {
            let file = model(name).tuned(tuning).unwrap();
            let first = accuracy(&file, weights(&file), &test);
            assert!(first < 0.3, "{name}: {first} before training");
            let (session, _) = trained(&file, &images, None);
            let variables = session.variables().unwrap();
            let last = accuracy(&file, &variables, &test);
            println!("{name}: accuracy {first:.3}, after training {last:.3}");
            assert!(last > least, "{name}: {last}");

            let step = file.program.get("train_step").unwrap();
            for (path, before) in weights(&file) {
                let input = step.input_index(path).map(|n| step.inputs[n].role);
                let is_same = variables[path] == *before;
                assert_eq!(is_same, input == Some(InputRole::Param), "{name}: {path}");
            }
            if step.input_index("head.weight.lora_a").is_none() {
                continue;
            }
            // Only adapters have moments.
            for input in step.inputs.iter().filter(|input| input.role == InputRole::State) {
                assert!(
                    input.name == "adamw.step" || input.name.contains(".lora_"),
                    "{name}: {} is a state",
                    input.name
                );
            }
            let mut of_model = variables.clone();
            of_model.retain(|path, _| weights(&file).contains_key(path));
            let merged = merge(&lora, &of_model).unwrap();
            let plain = model(name).into_file();
            assert!(merged.keys().eq(weights(&plain).keys()), "{name}");
            let image = [("image", test["image"].clone())];
            let mut outputs = [(&file, &of_model), (&plain, &merged)].map(|(file, weights)| {
                let mut session = Session::open(Device::Cpu).unwrap();
                session.set_variables(weights).unwrap();
                let mut predict =
                    session.compile(&file.program, "predict", bind!(batch = 360)).unwrap();
                predict.run(&image).unwrap().get("class").unwrap().clone()
            });
            let [adapted, merged] = &mut outputs;
            for (a, m) in adapted.scalars().zip(merged.scalars()) {
                let (a, m) = (a.to_f64(), m.to_f64());
                assert!((a - m).abs() <= 1e-4 * (1.0 + a.abs()), "{name}: {a}, merged {m}");
            }
        }
    }
}

#[test]
fn frozen_variables_keep_every_bit() {
    for optimizer in Optimizer::ALL {
        let tuning = Tuning { optimizer, ..tuning().freeze("conv*").unwrap() };
        let file = model("convolutions").tuned(tuning).unwrap();
        let (session, losses) =
            trained(&file, &data("convolutions", "train"), Some(Length::Steps(2)));
        assert_eq!(losses.len(), 2);
        for (path, before) in weights(&file) {
            let frozen = path.starts_with("conv") || path.starts_with("norm.running");
            assert_eq!(session.variable(path).unwrap() == *before, frozen, "{optimizer}: {path}");
        }
        let moments = session.variables().unwrap();
        let of_frozen = |path: &String| path.contains('.') && path.ends_with("conv1.weight");
        assert_eq!(moments.keys().filter(|path| of_frozen(path)).count(), 1, "{optimizer}");
    }
}

/// The file is read back, and its program is read from its text.
#[test]
fn a_file_is_read_and_written() {
    let lora = "r=4,head.weight".parse().unwrap();
    let file = model("transformer").tuned(tuning().lora(lora)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.graph");
    file.write(&path).unwrap();
    assert_eq!(GraphFile::read(&path).unwrap(), file);
    let text = print(&file.program, &PrintOptions::default());
    let read = parse_program(&text, "model.ir").unwrap();
    assert_eq!(print(&read, &PrintOptions::default()), text);
    let path = folder.path().join("model.ir");
    file.program.save(&path).unwrap();
    assert_eq!(GraphFile::read(&path).unwrap().program.functions().len(), 4);
}

#[test]
fn a_recipe_in_bf16_trains() {
    let mut file = model("transformer").tuned(tuning()).unwrap();
    let images = data("transformer", "train");
    let (_, wide) = trained(&file, &images, Some(Length::Steps(20)));
    file.recipe.as_mut().unwrap().precision = Some(Precision::bf16());
    let (_, halves) = trained(&file, &images, Some(Length::Steps(20)));
    assert_ne!(wide, halves);
    for (wide, half) in wide.iter().zip(&halves) {
        assert!((wide - half).abs() < 0.1 * wide, "{wide} in f32, {half} in bf16");
    }
    assert!(halves[19] < 0.5 * halves[0], "{halves:?}");
}

/// A model of the library, whose table of tokens is the matrix of the last layer as well.
#[test]
fn a_gpt_takes_lora() {
    let settings = GptSettings { vocabulary: 12, positions: 8, width: 16, heads: 2, layers: 2 };
    let mut program = Program::new();
    program
        .function("predict", |f| {
            let tokens = f.input("tokens", i32("B,8"));
            let gpt = f.param("gpt", Gpt::new(&settings));
            f.output("logits", gpt.call(&tokens));
        })
        .unwrap();
    let mut session = Session::open(Device::Cpu).unwrap();
    session.initialize(&program, 1).unwrap();
    let plain = session.variables().unwrap();
    let lora = Lora::new(4).and_then(|lora| lora.path("gpt.h.*.mlp.*.weight")).unwrap();
    let lora = lora.path("gpt.wte.*").unwrap();
    let file = tuning().lora(lora).of(&program, plain.clone()).unwrap();
    assert_eq!(weights(&file).len(), plain.len() + 2 * 5);

    let tokens: Vec<i32> = (0..64 * 8).map(|i| (i / 8 + i * i % 5) % 12).collect();
    let tokens = Literal::from_vec(&[64, 8], tokens).unwrap();
    let logits = |program: &wengert::core::graph::Program, weights: &Arrays| {
        let mut session = Session::open(Device::Cpu).unwrap();
        session.set_variables(weights).unwrap();
        let mut predict = session.compile(program, "predict", bind!(B = 64)).unwrap();
        predict.run(&[("tokens", tokens.clone())]).unwrap().get("logits").unwrap().clone()
    };
    assert_eq!(logits(&file.program, weights(&file)), logits(&program, &plain));

    // Each token is followed by the next one in its row.
    let next: Vec<i32> =
        tokens.as_slice::<i32>().unwrap().iter().map(|token| (token + 1) % 12).collect();
    let labels = Literal::from_vec(&[64, 8], next).unwrap();
    let arrays = Arrays::from([("tokens".into(), tokens.clone()), ("labels".into(), labels)]);
    let (session, losses) = trained(&file, &arrays, Some(Length::Steps(60)));
    assert!(losses[59] < 0.7 * losses[0], "{losses:?}");
    for (path, before) in &plain {
        assert_eq!(session.variable(path).unwrap(), *before, "{path}");
    }
}

/// With the statistics of the batch, a step of gradient descent at a rate of 1 subtracts PyTorch's
/// gradient. PyTorch's running variance is unbiased, that of ONNX is the mean square.
#[test]
fn training_forms_are_those_of_torch() {
    let options = onnx::Options { training: true, ..Default::default() };
    let model = onnx::import(path("convolutions.onnx"), &options).unwrap();
    let mut tuning = Tuning::new(Loss::CrossEntropy);
    (tuning.optimizer, tuning.learning_rate) = (Optimizer::Sgd, 1.0);
    let file = model.tuned(tuning).unwrap();
    let mut session = Session::open(Device::Cpu).unwrap();
    session.set_variables(weights(&file)).unwrap();
    let expected = npz::Npz::open(path("convolutions.npz")).unwrap().read_all().unwrap();
    let mut step = session.compile(&file.program, "train_step", bind!(batch = 16)).unwrap();
    step.run(&["image", "labels"].map(|name| (name, &expected[name]))).unwrap();
    let mut worst = 0.0f64;
    for (name, before) in weights(&file) {
        let after = session.variable(name).unwrap();
        let torch = expected.get(&format!("t.{name}")).or(expected.get(&format!("s.{name}")));
        let torch = torch.unwrap_or_else(|| panic!("`{name}` is no variable of the model"));
        for i in 0..before.len() {
            let [before, after, torch] = [before, &after, torch].map(|of| of.get(i).to_f64());
            let (found, wanted) = match name.as_str() {
                "norm.running_mean" => (after, torch),
                // 16 images of 8 × 8 pixels.
                "norm.running_var" => {
                    (after - 0.9 * before, (torch - 0.9 * before) * 1023.0 / 1024.0)
                }
                _ => (before - after, torch),
            };
            let error = (found - wanted).abs() / wanted.abs().max(1.0);
            assert!(error <= 1e-5, "{name}[{i}]: {found}, torch has {wanted}");
            worst = worst.max(error);
        }
    }
    println!("largest error {worst:.1e}");

    let error = onnx::import(path("transformer.onnx"), &options).unwrap_err().to_string();
    assert!(error.contains("no batch normalisation and no dropout"), "{error}");
}
