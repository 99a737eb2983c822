//! Ten models, each written from its paper with the public interface of the library, against
//! PyTorch. `papers.py` wrote the files. Three of the models are in the examples, where they are
//! trained.

mod diffusion;
mod llama;
mod mixture_of_experts;
mod pointnet;
mod siamese;
mod translator;
mod wavenet;

use super::cases::{Inputs, compare, layer};
use python_free_examples::dqn::{QNetwork, Steps};
use python_free_examples::speech::Recognizer;
use python_free_examples::vae::Vae;
use wengert::Tensor;
use wengert::nn::RunningStatistics;

/// Compares the results of a model and their derivatives with its file.
fn agrees(model: &str, results: impl Fn(Inputs<'_>) -> Vec<Tensor>) {
    let case = (model.to_owned(), Box::new(results) as _);
    compare(&format!("papers/{model}"), &[case], |_| 1e-10);
}

#[test]
fn a_llama() {
    let sizes = llama::Sizes {
        vocabulary: 11,
        width: 12,
        inner: 10,
        heads: 6,
        key_value_heads: 3,
        layers: 2,
    };
    agrees("llama", |i| {
        let model = layer(&llama::Llama::new(&sizes), i);
        let tokens = i("tokens");
        vec![model.call(&tokens.slice(wengert::s![.., ..-1])), model.loss(&tokens)]
    });
}

#[test]
fn a_mixture_of_experts() {
    agrees("mixture_of_experts", |i| {
        let model = layer(&mixture_of_experts::Experts::new(4, 3, 5, 2), i);
        let (y, importance, load) = model.call(&i("x"), &i("normal"));
        vec![y, importance, load]
    });
}

#[test]
fn a_diffusion_u_net() {
    agrees("diffusion", |i| {
        let model = layer(&diffusion::Denoiser::new(2, 4, 2), i);
        vec![model.loss(&i("images"), &i("times"), &i("noise"))]
    });
}

#[test]
fn a_q_network() {
    agrees("dqn", |i| {
        let network =
            |name: &str| layer(&QNetwork::new(6, 5, 3), &|path| i(&format!("{name}.{path}")));
        let steps = Steps {
            observations: i("observations"),
            actions: i("actions"),
            rewards: i("rewards"),
            ended: i("ended"),
            next: i("next"),
        };
        vec![network("network").loss(&network("target"), &steps)]
    });
}

#[test]
fn a_variational_autoencoder() {
    agrees("vae", |i| layer(&Vae::new(7, 5, 2), i).bound(&i("x"), |_| i("noise")).to_vec());
}

#[test]
fn a_translator() {
    agrees("translator", |i| {
        let model = layer(&translator::Translator::new([7, 6], 3, 4), i);
        let (sentences, translations) = (i("sentences"), i("translations"));
        let logits = model.call(&sentences, &translations.slice(wengert::s![..-1]));
        vec![logits, model.loss(&sentences, &translations)]
    });
}

#[test]
fn a_pointnet() {
    agrees("pointnet", |i| {
        let statistics: Vec<RunningStatistics> = (0..9)
            .map(|n| RunningStatistics {
                running_mean: i(&format!("mean.{n}")),
                running_var: i(&format!("var.{n}")),
            })
            .collect();
        let model = layer(&pointnet::PointNet::new(4, 3), i);
        let (logits, loss, after) = model.train(&i("x"), &statistics);
        let after = after.into_iter().flat_map(|s| [s.running_mean, s.running_var]);
        [logits, loss].into_iter().chain(after).collect()
    });
}

#[test]
fn a_wavenet() {
    agrees("wavenet", |i| {
        let model = layer(&wavenet::WaveNet::new(3, 4, 3, 2), i);
        let waves = i("waves");
        let codes = wavenet::encode(&waves.slice(wengert::s![.., ..-1]));
        vec![model.loss(&waves), model.call(&codes).slice(wengert::s![.., -1])]
    });
}

#[test]
fn a_siamese_network() {
    agrees("siamese", |i| {
        let model = layer(&siamese::Siamese::new(8, [2, 3], 4), i);
        let embeddings = model.call(&i("images"));
        let loss = siamese::semi_hard_loss(&embeddings, &i("labels"), 0.2);
        vec![embeddings, loss]
    });
}

#[test]
fn a_recognizer_of_speech() {
    agrees("speech", |i| {
        let model = layer(&Recognizer::new(3, 4, 5), i);
        let (frames, counts) = (i("frames"), i("frame_counts"));
        let loss = model.loss(&frames, &counts, &i("labels"), &i("label_counts"));
        vec![model.call(&frames), loss]
    });
}
