//! `#[derive(Differentiable)]`.
#![forbid(unsafe_code)]
