//! What is wrong with the training of a model is said before it begins.

use crate::{data, model};
use wengert::core::graph::{Program, parse_program};
use wengert::data::Arrays;
use wengert::train::{Options, train};
use wengert::tune::{Loss, Optimizer, Tuning};
use wengert::{Device, Literal, Session, Weights};

fn program(text: &str) -> Program {
    parse_program(text, "model.ir").unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn says(tuning: &Tuning, program: &Program, texts: &[&str]) {
    let error = tuning.of(program, Arrays::new()).unwrap_err().to_string();
    for text in texts {
        assert!(error.contains(text), "{error}");
    }
}

const TWO: &str = "
func @predict(%x: f32[B,2], param %w: f32[2,2]) -> (a: f32[B,2], b: f32[2,2]) {
  %0: f32[B,2] = dot_general %x, %w {contract=[[1],[0]]}
  return %0, %w
}";

#[test]
fn choices_that_do_not_fit_the_model() {
    let error = "crossentropy".parse::<Loss>().unwrap_err().to_string();
    assert!(error.contains("did you mean `cross_entropy`?"), "{error}");
    let error = "adadelta".parse::<Optimizer>().unwrap_err().to_string();
    let all = "there are adamw, adam, muon, soap, lion, adafactor, rmsprop, adagrad, sgd, momentum";
    assert!(error.contains(all), "{error}");

    let two = program(TWO);
    let tuning = Tuning::new(Loss::CrossEntropy);
    says(&tuning, &two, &["several outputs", "`--output`", "`a`, `b`"]);
    let of = |output: &str| Tuning { output: Some(output.into()), ..tuning.clone() };
    says(&of("c"), &two, &["no output `c`", "`a`, `b`"]);
    says(&of("b"), &two, &["labels would have the type i32[2]"]);
    assert!(of("a").of(&two, Arrays::new()).is_ok());
    says(&of("a").freeze("v*").unwrap(), &two, &["no variable matches `v*`", "`w`"]);
    says(&of("a").freeze("*").unwrap(), &two, &["all variables are frozen"]);
    says(&of("a").lora("r=1,v".parse().unwrap()), &two, &["no variable matches `v`"]);
    says(&Tuning { labels: "x".into(), ..of("a") }, &two, &["the name of the labels, `x`"]);
    says(&Tuning { batch: 0, ..of("a") }, &two, &["batch of 0"]);
    says(&Tuning { learning_rate: -1.0, ..of("a") }, &two, &["a learning rate of -1"]);
    says(&Tuning { function: "f".into(), ..of("a") }, &two, &["there is no function `@f`"]);
    let arrays = [("y".to_owned(), "z".to_owned())].into();
    says(&Tuning { arrays, ..of("a") }, &two, &["the input `y`, which it lacks"]);

    let fixed = program(&TWO.replace("B,2", "1,2"));
    says(&of("a"), &fixed, &["has 1 examples, whatever the batch", "dynamic_axes"]);
    let flat = program(
        "func @predict(%x: f32[B], param %w: f32[]) -> (y: f32[B]) {
           %0: f32[B] = broadcast_in_dim %w {dims=[], shape=[B]}
           %1: f32[B] = mul %x, %0
           return %1
         }",
    );
    says(&tuning, &flat, &["no axis of classes", "binary_cross_entropy"]);
    assert!(Tuning::new(Loss::BinaryCrossEntropy).of(&flat, Arrays::new()).is_ok());
    let integers = program(
        "func @predict(%x: i32[B,2], param %w: i32[2,2]) -> (y: f32[B,2]) {
           %0: i32[B,2] = dot_general %x, %w {contract=[[1],[0]]}
           %1: f32[B,2] = convert_element_type %0 {dtype=f32}
           return %1
         }",
    );
    says(&tuning, &integers, &["no variable of floats to train", "quantized"]);
    let counts = program(
        "func @predict(%x: f32[B,2], param %w: f32[2,2]) -> (y: i32[B,2]) {
           %0: f32[B,2] = dot_general %x, %w {contract=[[1],[0]]}
           %1: i32[B,2] = convert_element_type %0 {dtype=i32}
           return %1
         }",
    );
    says(&tuning, &counts, &["which are no floats"]);
}

#[test]
fn labels_that_are_no_classes() {
    let file = model("convolutions").tuned(Tuning::new(Loss::CrossEntropy)).unwrap();
    let Weights::Inline(weights) = &file.weights else { panic!("a model has weights") };
    let recipe = file.recipe.as_ref().unwrap();
    let error = |labels: Literal| {
        let mut arrays = data("convolutions", "test");
        arrays.insert("labels".into(), labels);
        let mut session = Session::open(Device::Cpu).unwrap();
        let options = Options { weights: Some(weights), ..Options::default() };
        train(&mut session, &file.program, recipe, &arrays, options, &mut |_| ())
            .unwrap_err()
            .to_string()
    };
    let found = error(Literal::from_vec(&[360], vec![0.5f32; 360]).unwrap());
    assert!(found.contains("`labels`, row 0: 0.5 is no i32"), "{found}");
    let found = error(Literal::from_vec(&[360], vec![10i64; 360]).unwrap());
    assert!(found.contains("values from 0 to 9"), "{found}");
}
