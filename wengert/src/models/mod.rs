//! Whole networks, made of [layers](crate::nn): what is measured, and what a program may start from.
//!
//! Their variables have the names that the published weights have.

mod gpt;

pub use gpt::{Gpt, GptBlock, GptMlp, GptSettings};
