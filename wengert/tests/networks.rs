//! Whole networks: names and numbers of their variables, what they may see, gradients.
#![allow(clippy::unwrap_used)] // Clippy sees tests, but not the functions that serve them.

mod inputs;

use inputs::values;
use wengert::core::{KeyPath, interpret};
use wengert::models::{Gpt, GptSettings};
use wengert::prelude::*;
use wengert::random::SplitMix64;

const TINY: GptSettings = GptSettings { vocabulary: 11, positions: 6, width: 8, heads: 2, layers: 2 };

fn shapes<M: Differentiable>(model: &M) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    model.visit_tensors(&KeyPath::default(), &mut |path, tensor| {
        let count = tensor.shape().iter().map(|d| d.as_extent().unwrap()).product();
        found.push((path.to_string(), count));
    });
    found
}

#[test]
fn a_gpt_has_the_names_and_numbers_of_the_published_one() {
    let shapes = shapes(&Gpt::new(&GptSettings::SMALL));
    let count: usize = shapes.iter().map(|(_, count)| count).sum();
    assert_eq!((count, shapes.len()), (124_439_808, 148));
    assert_eq!(GptSettings::SMALL.parameters(), count);
    assert_eq!(GptSettings::MEDIUM.parameters(), 354_823_168);
    assert_eq!(GptSettings::LARGE.parameters(), 774_030_080);
    assert_eq!(GptSettings::XL.parameters(), 1_557_611_200);
    for name in
        ["wte.weight", "wpe.weight", "h.11.ln_1.bias", "h.0.attn.c_attn.weight", "h.3.attn.c_proj.bias"]
    {
        assert!(shapes.iter().any(|(found, _)| found == name), "{name}");
    }
    for name in ["h.5.ln_2.weight", "h.2.mlp.c_fc.weight", "h.2.mlp.c_proj.bias", "ln_f.weight"] {
        assert!(shapes.iter().any(|(found, _)| found == name), "{name}");
    }
}

#[test]
#[should_panic(expected = "a width of 8 is not shared by 3 heads")]
fn heads_share_the_width() {
    Gpt::new(&GptSettings { heads: 3, ..TINY });
}

/// Logits `[1, 6, 11]` of a network with random variables.
fn logits(tokens: &[i32]) -> Vec<f64> {
    let mut program = Program::new();
    program
        .function("logits", |f| {
            let tokens = f.input("tokens", i32("1,T"));
            let model = f.param("gpt", nn::with_dtype(&Gpt::new(&TINY), DType::F64));
            f.output("logits", model.call(&tokens));
        })
        .unwrap();
    let function = program.get("logits").unwrap().bind(&bind!(T = tokens.len() as i64)).unwrap();
    let mut stream = SplitMix64::new(5);
    let mut given = vec![Literal::from_vec(&[1, tokens.len()], tokens.to_vec()).unwrap()];
    given.extend((1..function.inputs.len()).map(|i| values(function.input_type(i), 0.5, &mut stream)));
    interpret::run(&function, &given).unwrap()[0].scalars().map(|s| s.to_f64()).collect()
}

#[test]
fn a_gpt_does_not_see_what_follows() {
    let (a, b) = (logits(&[3, 1, 4, 1, 5, 9]), logits(&[3, 1, 4, 2, 6, 5]));
    assert_eq!(a[..3 * 11], b[..3 * 11]);
    assert!(a[3 * 11..].iter().zip(&b[3 * 11..]).all(|(a, b)| a != b));
    // Nor does it matter how much follows.
    let short = logits(&[3, 1, 4]);
    assert!(short.iter().zip(&a).all(|(a, b)| (a - b).abs() < 1e-12));
}

#[test]
fn attention_says_what_it_takes() {
    let mut program = Program::new();
    let error = program
        .function("f", |f| {
            let x = f.input("x", f32("B,T,8"));
            f.output("y", nn::dot_product_attention(&x, &x, &x, nn::Mask::None, None));
        })
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("queries of attention have type f32[B,T,8]") && error.contains("networks.rs"),
        "{error}"
    );
}
