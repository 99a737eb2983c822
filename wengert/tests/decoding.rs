//! A model gives a token the same logits, bit for bit, however they are computed: the sequence at
//! once or with caches, a prompt in chunks of any length, alone or in a batch, on one thread or on
//! more (CPU).
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use wengert::core::KeyPath;
use wengert::core::build::FunctionBuilder;
use wengert::models::{Llama, LlamaSettings};
use wengert::nn::RotaryScaling;
use wengert::prelude::*;
use wengert::{DType, DeviceOptions};

const SETTINGS: LlamaSettings = LlamaSettings {
    vocabulary: 131,
    width: 96,
    layers: 2,
    heads: 6,
    key_value_heads: 2,
    intermediate: 160,
    positions: 600,
    base: 1e4,
    scaling: RotaryScaling::None,
    epsilon: 1e-5,
    tied: false,
};
/// Tokens of a sequence: more than the longest chunk, and several blocks of keys.
const LENGTH: usize = 576;

/// How logits are computed.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// Tokens of a call with caches; None: the whole sequence at once, without caches.
    chunk: Option<usize>,
    batch: usize,
    threads: usize,
}

/// The whole sequence, and a step with caches for each of some lengths.
fn program(settings: &LlamaSettings, batch: usize, dtype: DType, lengths: &[usize]) -> Program {
    let mut program = Program::new();
    let llama = |f: &mut FunctionBuilder| {
        let llama = f.param("llama", Llama::new(settings));
        llama.map_tensors(&KeyPath::default(), &mut |_, t| t.convert(dtype))
    };
    program
        .function("whole", |f| {
            let tokens = f.input("tokens", i32("B,T"));
            let model = llama(f);
            f.output("logits", model.call(&tokens));
        })
        .unwrap();
    for length in lengths {
        program
            .function(&step(*length), |f| {
                let model = llama(f);
                let caches = f.state("caches", model.first_caches(batch));
                let tokens = f.input("tokens", i32([batch, *length]));
                let position = f.input("position", i32(""));
                let (logits, caches) = model.call_cached(&tokens, &caches, &position);
                for (path, tensor) in caches.tensors() {
                    f.update(&format!("caches.{path}"), &tensor);
                }
                f.output("logits", logits);
            })
            .unwrap();
    }
    program
}

/// The name of the step of so many tokens.
fn step(length: usize) -> String {
    format!("step_{length}")
}

/// Token `t` of sequence `b`.
fn token(settings: &LlamaSettings, b: usize, t: usize) -> i32 {
    ((t * t + 7 * t + 31 * b * t + 5 * b) % settings.vocabulary) as i32
}

/// The bytes of the logits of sequence 0.
fn logits(settings: &LlamaSettings, dtype: DType, way: Way) -> Vec<u8> {
    let Way { chunk, batch, threads } = way;
    let lengths: Vec<usize> = chunk.into_iter().flat_map(|c| [c, LENGTH % c]).collect();
    let lengths = lengths.into_iter().filter(|length| *length > 0).collect::<Vec<_>>();
    let program = program(settings, batch, dtype, &lengths);
    let options = DeviceOptions { threads: Some(threads), ..DeviceOptions::default() };
    let mut session = Session::open_with(Device::Cpu, &options).unwrap();
    session.initialize(&program, 3).unwrap();
    let tokens = |from: usize, to: usize| {
        let of = |b: usize| (from..to).map(move |t| token(settings, b, t));
        Literal::from_vec(&[batch, to - from], (0..batch).flat_map(of).collect()).unwrap()
    };
    let first = |logits: &Literal| {
        let bytes = logits.to_bytes();
        bytes[..bytes.len() / batch].to_vec()
    };
    let Some(chunk) = chunk else {
        let bound = bind!(B = batch as i64, T = LENGTH as i64);
        let mut whole = session.compile(&program, "whole", bound).unwrap();
        let found = whole.run(&[("tokens", tokens(0, LENGTH))]).unwrap();
        return first(found.get("logits").unwrap());
    };
    let mut all = Vec::new();
    let mut from = 0;
    while from < LENGTH {
        let length = chunk.min(LENGTH - from);
        let mut compiled = session.compile(&program, &step(length), bind!()).unwrap();
        while from + length <= LENGTH {
            let position = Literal::from(from as i32);
            let inputs = [("tokens", tokens(from, from + length)), ("position", position)];
            all.extend(first(compiled.run(&inputs).unwrap().get("logits").unwrap()));
            from += length;
        }
    }
    all
}

/// Compares ways of computing with the whole sequence on one thread.
fn check(settings: &LlamaSettings, dtype: DType, ways: &[Way]) {
    let wanted = logits(settings, dtype, Way { chunk: None, batch: 1, threads: 1 });
    assert_eq!(wanted.len(), LENGTH * settings.vocabulary * dtype.size());
    let numbers = Literal::from_bytes(dtype, &[wanted.len() / dtype.size()], &wanted).unwrap();
    assert!(numbers.scalars().all(|x| x.to_f64().is_finite()));
    for way in ways {
        let found = logits(settings, dtype, *way);
        let row = settings.vocabulary * dtype.size();
        let apart = found.chunks(row).zip(wanted.chunks(row)).position(|(a, b)| a != b);
        let same = found.len() == wanted.len() && apart.is_none();
        assert!(same, "{dtype} {way:?}: position {apart:?}");
    }
}

#[test]
fn logits_have_the_same_bits_with_and_without_a_cache() {
    let ways = [(None, 1, 2), (Some(1), 1, 2), (Some(64), 1, 1), (Some(512), 1, 2)];
    let ways = ways.map(|(chunk, batch, threads)| Way { chunk, batch, threads });
    for dtype in [DType::F32, DType::BF16] {
        check(&SETTINGS, dtype, &ways);
        check(&LlamaSettings { tied: true, ..SETTINGS }, dtype, &ways);
    }
}

#[test]
fn logits_have_the_same_bits_alone_and_in_a_batch() {
    let ways = [(None, 3, 2), (None, 8, 1), (Some(64), 3, 1), (Some(512), 8, 2), (Some(1), 8, 2)];
    let ways = ways.map(|(chunk, batch, threads)| Way { chunk, batch, threads });
    for dtype in [DType::F32, DType::BF16] {
        check(&SETTINGS, dtype, &ways);
    }
}
