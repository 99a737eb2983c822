//! Whole networks, made of [layers](crate::nn), for measurements and as starting points of
//! programs.
//!
//! | network | sizes with a name | names of its variables |
//! |---|---|---|
//! | [`Gpt`] | [`GptSettings::SMALL`] to [`XL`](GptSettings::XL) | GPT-2's published weights |
//! | [`Bert`] | [`BertSettings::MINILM_L6`], [`BASE`](BertSettings::BASE), [`LARGE`](BertSettings::LARGE) | those of Hugging Face's `BertModel` |
//! | [`Llama`] | [`LlamaSettings::LLAMA_2_7B`], [`LLAMA_3_8B`](LlamaSettings::LLAMA_3_8B), [`LLAMA_3_2_1B`](LlamaSettings::LLAMA_3_2_1B) | those of Hugging Face's `LlamaForCausalLM` |
//! | [`ResNet`] | [`ResNetSettings::RESNET_50`], [`RESNET_101`](ResNetSettings::RESNET_101), [`RESNET_152`](ResNetSettings::RESNET_152) | torchvision's |
//! | [`UNet`] | [`UNetSettings::ORIGINAL`] | its fields |
//! | [`Convnet`] | [`ConvnetSettings::MNIST`] | its fields |
//! | [`Mlp`], [`LstmModel`] | | its fields |
//!
//! Weights have the layout of the [layers](crate::nn): matrices `[inputs, outputs]`, filters
//! `[height, width, inputs, outputs]`. PyTorch's are transposed; [`Bert::from_torch`],
//! [`Llama::from_torch`] and [`ResNet::from_torch`] convert them. Each network's settings count its
//! parameters.

mod bert;
mod convnet;
mod gpt;
mod llama;
mod lstm;
mod mlp;
mod resnet;
mod torch;
mod unet;

pub use bert::{
    Bert, BertAttention, BertDense, BertEmbeddings, BertEncoder, BertLayer, BertOutput,
    BertSelfAttention, BertSettings,
};
pub use convnet::{Convnet, ConvnetSettings};
pub use gpt::{Gpt, GptBlock, GptMlp, GptSettings};
pub use llama::{Llama, LlamaLayer, LlamaModel, LlamaSettings};
pub use lstm::{LstmModel, LstmModelSettings};
pub use mlp::Mlp;
pub use resnet::{Bottleneck, ResNet, ResNetSettings};
pub use unet::{ConvPair, UNet, UNetSettings, Up};
