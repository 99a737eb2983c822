//! The GPT of the example, at a size that trains within seconds.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use python_free_examples::char_gpt::{Books, Settings, program, recipe};
use wengert::Scalar;
use wengert::models::Gpt;
use wengert::prelude::*;
use wengert::train::{Event, Options, train};

fn small() -> Settings {
    Settings {
        width: 16,
        heads: 2,
        layers: 2,
        window: 16,
        batch: 8,
        stride: 16,
        dropout: 0.0,
        rate: 2e-2,
        steps: 500,
        evaluate: 1000,
        sample: 30,
        ..Settings::default()
    }
}

/// A text in which each character determines the next.
fn alphabet(length: u32, from: u32) -> String {
    (0..length).map(|n| char::from_u32(from + n).unwrap()).collect()
}

#[test]
fn it_learns_and_writes() {
    let (books, settings) = (Books::two().unwrap(), small());
    let characters = books.characters.alphabet.len();
    let (program, recipe) = (program(characters, &settings).unwrap(), recipe(&settings));
    let mut data = books.arrays(&settings).unwrap();
    // The beginning of the last tenth is enough here.
    for (name, width) in [("test_x", 16), ("test_y", 8)] {
        let begin = data[name].as_slice::<u8>().unwrap()[..50 * width].to_vec();
        data.insert(name.into(), Literal::from_vec(&[50, width], begin).unwrap());
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
    let uniform = (characters as f64).ln();
    assert!((losses[0] - uniform).abs() < 0.3, "{losses:?}");
    // The final loss is below the entropy of the characters' frequencies.
    let mut counts = vec![1.0f64; characters];
    data["train_y"].as_slice::<u8>().unwrap().iter().for_each(|n| counts[usize::from(*n)] += 1.0);
    let all: f64 = counts.iter().sum();
    let guessed = data["test_y"].as_slice::<u8>().unwrap();
    let bits = guessed.iter().map(|n| -(counts[usize::from(*n)] / all).log2()).sum::<f64>();
    let often = bits / guessed.len() as f64;
    assert!(report.metrics[0].1 < often - 0.2, "{:?} bits, {often}", report.metrics);

    let mut sample = session.compile(&program, "sample", bind!()).unwrap();
    let mut write = |key: u64, temperature: f32| {
        let [prompt, given] = books.prompt("Alice ", &settings).unwrap();
        let temperature = ("temperature", Literal::full(&[], Scalar::of(temperature)));
        let run = sample.run(&[prompt, given, temperature, ("key", recipe.key_for(key))]).unwrap();
        books.characters.text(run.get("text").unwrap())
    };
    let text = write(1, 0.7);
    assert_eq!(text.chars().count(), 30);
    assert!(text.chars().all(|c| books.characters.alphabet.contains(&c)), "{text:?}");
    assert_eq!(text, write(1, 0.7));
    assert_ne!(text, write(2, 0.7));
    // At a low temperature the sample is the likeliest character for every seed.
    assert_eq!(write(1, 1e-6), write(2, 1e-6));
}

#[test]
fn what_is_written_follows_from_the_window_before_it_and_from_nothing_else() {
    // The generated text is longer than a window. Each character is the likeliest one after those
    // in the window.
    let settings = Settings { sample: 24, ..small() };
    let books = Books::of(&[alphabet(26, 'A' as u32)]).unwrap();
    let characters = books.characters.alphabet.len();
    let mut program = program(characters, &settings).unwrap();
    program
        .function("likeliest", |f| {
            let x = f.input("x", i32("1,T"));
            let logits = f.param("gpt", Gpt::new(&settings.gpt(characters))).call(&x);
            f.output("next", logits.argmax(2));
        })
        .unwrap();
    let mut session = Session::open(Device::Cpu).unwrap();
    session.initialize(&program, 3).unwrap();
    // Weights larger than the initial ones, so that the likeliest character is distinct.
    for (path, value) in session.variables().unwrap() {
        let larger = value.scalars().map(|s| s.to_f64() as f32 * 5.0).collect();
        session.set_variable(&path, &Literal::from_vec(value.shape(), larger).unwrap()).unwrap();
    }
    let [prompt, given] = books.prompt("ABC", &settings).unwrap();
    let temperature = ("temperature", Literal::full(&[], Scalar::of(1e-6f32)));
    let key = ("key", Literal::from_vec(&[2], vec![1u32, 2]).unwrap());
    let mut sample = session.compile(&program, "sample", bind!()).unwrap();
    let written = sample.run(&[prompt, given, temperature, key]).unwrap();
    let written = written.get("text").unwrap().as_slice::<i32>().unwrap().to_vec();
    let mut seen = books.characters.numbers_of("ABC").unwrap().as_slice::<i32>().unwrap().to_vec();
    for next in written {
        let window = seen[seen.len().saturating_sub(16)..].to_vec();
        let mut likeliest =
            session.compile(&program, "likeliest", bind!(T = window.len() as i64)).unwrap();
        let run = likeliest
            .run(&[("x", Literal::from_vec(&[1, window.len()], window).unwrap())])
            .unwrap();
        let wanted = *run.get("next").unwrap().as_slice::<i32>().unwrap().last().unwrap();
        assert_eq!(next, wanted, "behind {seen:?}");
        seen.push(next);
    }
}

#[test]
fn windows_stay_within_a_book_and_each_character_of_a_last_tenth_is_guessed_once() {
    let books = Books::of(&[alphabet(100, 0x100), alphabet(110, 0x200)]).unwrap();
    let settings = Settings { window: 8, stride: 3, ..small() };
    let data = books.arrays(&settings).unwrap();
    let rows = |name: &str| -> Vec<Vec<u8>> {
        let width = data[name].shape()[1];
        data[name].as_slice::<u8>().unwrap().chunks(width).map(<[u8]>::to_vec).collect()
    };
    let (x, y) = (rows("train_x"), rows("train_y"));
    for (x, y) in x.iter().zip(&y) {
        assert!(x.windows(2).all(|w| w[1] == w[0] + 1));
        assert!(x.iter().zip(y).all(|(x, y)| *y == x + 1));
        // Characters 0..90 of the first book and 100..199 of the second are training data.
        assert!(y[7] < 90 || (x[0] >= 100 && y[7] < 199), "{x:?}");
    }
    assert_eq!((x[0][0], x[1][0]), (0, 3));
    let guessed: Vec<u8> = rows("test_y").concat();
    // The last tenths have ten and eleven characters. Each gives two windows of four.
    assert_eq!(guessed, (92..100).chain(202..210).collect::<Vec<u8>>());
    for (x, y) in rows("test_x").iter().zip(rows("test_y")) {
        assert_eq!(x[7] + 1, y[3]);
        assert_eq!(x[0] + 5, y[0]);
    }

    let error = Books::of(&[alphabet(20, 0x100)]).unwrap().arrays(&small()).unwrap_err();
    assert!(error.message.contains("a book of 20 characters is too short"), "{error}");
    assert!(books.prompt("", &settings).unwrap_err().message.contains("nothing to go on from"));
    let [(_, prompt), (_, given)] = books.prompt(&alphabet(10, 0x100), &settings).unwrap();
    assert_eq!((prompt.get(0).to_i64(), given.get(0).to_i64()), (Some(2), Some(8)));
}

#[test]
fn the_network_of_the_example_has_as_many_parameters_as_it_says() {
    let characters = Books::two().unwrap().characters.alphabet.len();
    let gpt = Settings::default().gpt(characters);
    let count = |t: &Tensor| t.ty().elements().unwrap();
    let counted: usize = Gpt::new(&gpt).tensors().iter().map(|(_, t)| count(t)).sum();
    // Embeddings of characters and positions, four blocks, and the last norm.
    assert_eq!(counted, (characters + 128) * 128 + 4 * 198_272 + 256);
    assert_eq!(gpt.parameters(), counted);
    assert!((780_000..840_000).contains(&counted), "{counted}");
}
