//! The LSTM of the example, at a size that trains within seconds.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use python_free_examples::lstm::{Characters, Settings, program, recipe};
use wengert::Scalar;
use wengert::prelude::*;
use wengert::train::{Event, Options, train};

fn small() -> Settings {
    Settings {
        embedding: 8,
        width: 24,
        streams: 8,
        window: 16,
        dropout: 0.1,
        rate: 2e-2,
        steps: 200,
        sample: 30,
        ..Settings::default()
    }
}

#[test]
fn it_learns_from_window_to_window_and_writes() {
    let (play, settings) = (Characters::play().unwrap(), small());
    let (program, recipe) = (program(play.alphabet.len(), &settings).unwrap(), recipe(&settings));
    let mut data = play.arrays(&settings).unwrap();
    // The beginning of the last tenth is enough here.
    for name in ["test_x", "test_y"] {
        let begin = data[name].as_slice::<u8>().unwrap()[..500].to_vec();
        data.insert(name.into(), Literal::from_vec(&[1, 500], begin).unwrap());
    }
    let mut session = Session::open(Device::Cpu).unwrap();
    let mut losses = Vec::new();
    let mut observe = |event: Event<'_>| {
        if let Event::Step(record) = event {
            losses.push(record.loss);
        }
    };
    let report =
        train(&mut session, &program, &recipe, &data, Options::default(), &mut observe).unwrap();
    // The initial loss is that of uniform guesses.
    let uniform = (play.alphabet.len() as f64).ln();
    assert!((losses[0] - uniform).abs() < 0.3, "{losses:?}");
    assert!(report.metrics[0].1 < 4.2, "{:?} bits", report.metrics);
    // The next run continues with the states of the streams.
    let hidden = session.variable("streams.hidden").unwrap();
    assert_eq!(hidden.shape(), [8, 24]);
    assert!(hidden.scalars().all(|s| s.to_f64() != 0.0 && s.to_f64().abs() < 1.0));

    let prompt = play.numbers_of("ROSALIND").unwrap();
    let mut sample = session.compile(&program, "sample", bind!(T = 8)).unwrap();
    let mut write = |key: u64, temperature: f32| {
        let temperature = Literal::full(&[], Scalar::of(temperature));
        let given = [
            ("prompt", prompt.clone()),
            ("temperature", temperature),
            ("key", recipe.key_for(key)),
        ];
        play.text(sample.run(&given).unwrap().get("text").unwrap())
    };
    let text = write(1, 0.7);
    assert_eq!(text.chars().count(), 30);
    assert!(text.chars().all(|c| play.alphabet.contains(&c)), "{text:?}");
    assert_eq!(text, write(1, 0.7));
    assert_ne!(text, write(2, 0.7));
    // At a low temperature the sample is the likeliest character for every seed.
    assert_eq!(write(1, 1e-6), write(2, 1e-6));
}

#[test]
fn windows_of_a_stream_follow_each_other_from_batch_to_batch() {
    let text: String = (0..200).map(|n| char::from_u32(0x100 + n).unwrap()).collect();
    let characters = Characters::of(&text).unwrap();
    let settings = Settings { streams: 3, window: 10, ..Settings::default() };
    let data = characters.arrays(&settings).unwrap();
    let rows = |name: &str| -> Vec<Vec<u8>> {
        data[name].as_slice::<u8>().unwrap().chunks(10).map(<[u8]>::to_vec).collect()
    };
    let (x, y) = (rows("train_x"), rows("train_y"));
    // 180 characters to train on. The last of them has no successor.
    assert_eq!(data["train_x"].shape(), [15, 10]);
    for (n, (x_row, y_row)) in x.iter().zip(&y).enumerate() {
        assert!(x_row.iter().zip(y_row).all(|(x, y)| *y == x + 1));
        if let Some(later) = x.get(n + 3) {
            assert_eq!(later[0], x_row[9] + 1);
        }
    }
    assert_eq!([x[0][0], x[1][0], x[2][0]], [0, 50, 100]);
    assert_eq!(data["test_x"].shape(), [1, 19]);
    assert_eq!(
        (data["test_x"].get(0).to_i64(), data["test_y"].get(18).to_i64()),
        (Some(180), Some(199))
    );

    let error = characters.arrays(&Settings { streams: 100, ..settings }).unwrap_err();
    assert!(error.message.contains("200 characters are too few"), "{error}");
    let many: String = (0..300).map(|n| char::from_u32(0x100 + n).unwrap()).collect();
    assert!(Characters::of(&many).unwrap_err().message.contains("300 different characters"));
    assert!(characters.numbers_of("x").unwrap_err().message.contains("'x'"));
}

#[test]
fn a_window_is_one_loop_forwards_and_one_backwards_however_long() {
    let equations = |window: usize| {
        let program = program(20, &Settings { window, ..small() }).unwrap();
        let step = program.get("train_step").unwrap();
        let scans = step.body.equations.iter().filter(|e| e.op.name() == "scan").count();
        assert_eq!(scans, 2);
        step.to_string().lines().count()
    };
    assert_eq!(equations(10), equations(1000));
}

#[test]
fn clipping_within_the_recurrence_keeps_a_gradient_small_that_explodes() {
    // The first moments after one step are a tenth of the gradient.
    let gradient = |clip: f64| {
        let settings = Settings { clip, dropout: 0.0, window: 60, ..small() };
        let program = program(20, &settings).unwrap();
        let mut session = Session::open(Device::Cpu).unwrap();
        let key = Literal::from_vec(&[2], vec![1u32, 7]).unwrap();
        session.compile(&program, "init", bind!()).unwrap().run(&[("key", key.clone())]).unwrap();
        let weight = session.variable("model.lstm.recurrent").unwrap();
        let large: Vec<f32> = weight.scalars().map(|s| 12.0 * s.to_f64() as f32).collect();
        let large = Literal::from_vec(weight.shape(), large).unwrap();
        session.set_variable("model.lstm.recurrent", &large).unwrap();
        let numbers: Vec<i32> = (0..8 * 60).map(|n| n * n % 19).collect();
        let numbers = Literal::from_vec(&[8, 60], numbers).unwrap();
        let mut step = session.compile(&program, "train_step", bind!()).unwrap();
        step.run(&[("x", numbers.clone()), ("y", numbers), ("key", key)]).unwrap();
        let moment = session.variable("adamw.m.model.lstm.recurrent").unwrap();
        moment.scalars().map(|s| s.to_f64().powi(2)).sum::<f64>().sqrt() * 10.0
    };
    let (clipped, plain) = (gradient(1.0), gradient(1e30));
    // 60 steps of 24 · 8 elements, each at most 1/(60 · 8), bound the gradient by about ten.
    // Without clipping it grows with every step.
    assert!(clipped < 10.0 && plain > 100.0 * clipped, "{clipped}, {plain}");
}
