//! Layers and their derivatives. `layers.py` wrote the file.

use super::cases::{Case, Inputs, compare, layer};
use wengert::Tensor;
use wengert::nn::{
    ConvTranspose2d, CrossAttention, GroupNorm, GroupedQueryAttention, Gru, InstanceNorm,
    MixtureOfExperts, RmsNorm, Rotary, RotaryPairs, RotaryScaling, SwiGlu,
};

fn case(name: &str, f: impl Fn(Inputs<'_>) -> Vec<Tensor> + 'static) -> Case<'static> {
    (name.into(), Box::new(f))
}

#[test]
fn layers_and_their_derivatives() {
    let mut cases = vec![
        case("rms_norm", |i| vec![layer(&RmsNorm::new(6), i).call(&i("x"))]),
        case("group_norm", |i| vec![layer(&GroupNorm::new(3, 6), i).call(&i("x"))]),
        case("instance_norm", |i| vec![layer(&InstanceNorm::new(6), i).call(&i("x"))]),
        case("conv_transpose", |i| {
            let convolution = ConvTranspose2d::new(3, 4, [3, 2]).stride([2, 3]);
            vec![layer(&convolution, i).call(&i("x"))]
        }),
        case("swiglu", |i| vec![layer(&SwiGlu::new(4, 6), i).call(&i("x"))]),
        case("gru", |i| {
            let (all, last) = layer(&Gru::new(4, 5), i).call(&i("x"), &i("hidden"));
            vec![all, last]
        }),
        case("cross_attention", |i| {
            vec![layer(&CrossAttention::new(8, 6, 2), i).call(&i("x"), &i("memory"), None)]
        }),
        case("cross_attention_valid", |i| {
            let attention = layer(&CrossAttention::new(8, 6, 2), i);
            vec![attention.call(&i("x"), &i("memory"), Some(&i("valid")))]
        }),
        case("grouped_query_attention", |i| {
            let attention = GroupedQueryAttention::new(16, 4, 2).rotary(Rotary::new(4));
            vec![layer(&attention, i).call(&i("x"))]
        }),
    ];
    let narrow = Rotary { base: 500.0, ..Rotary::new(8) };
    let scaled = |scaling| Rotary { scaling, ..narrow };
    let wide = |base, scaling| Rotary { base, scaling, ..Rotary::new(64) };
    for (name, rotary) in [
        ("rotary", narrow),
        ("rotary_neighbours", Rotary { pairs: RotaryPairs::Neighbours, ..narrow }),
        ("rotary_linear", scaled(RotaryScaling::Linear { factor: 4.0 })),
        ("rotary_ntk", scaled(RotaryScaling::NtkAware { factor: 4.0 })),
        (
            "rotary_yarn",
            wide(1e4, RotaryScaling::Yarn { factor: 4.0, trained: 2048, fast: 32.0, slow: 1.0 }),
        ),
        (
            "rotary_llama3",
            wide(5e5, RotaryScaling::Llama3 { factor: 8.0, trained: 8192, low: 1.0, high: 4.0 }),
        ),
    ] {
        cases.push(case(name, move |i| vec![rotary.call(&i("x"), &i("at"))]));
    }
    for (name, top_k, capacity_factor) in
        [("mixture_of_experts_1", 1, 1.0), ("mixture_of_experts_2", 2, 0.75)]
    {
        cases.push(case(name, move |i| {
            let experts =
                MixtureOfExperts { capacity_factor, ..MixtureOfExperts::new(4, 5, 3, top_k) };
            let (y, loss) = layer(&experts, i).call(&i("x"));
            vec![y, loss]
        }));
    }
    // The frequencies of these two are computed in f32 by the generator.
    let bound = |case: &str| match case {
        "rotary_yarn" | "rotary_llama3" => 1e-6,
        _ => 1e-12,
    };
    compare("layers", &cases, bound);
}
