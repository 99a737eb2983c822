//! What a user of Wengert writes. The programs are in `examples/`, and the data they train on is in
//! `data/`. The longer parts of the programs are in this crate, so that tests can compare them with
//! independent results.
//!
//! - [`char_gpt`]: a GPT of characters, trained on two books.
//! - [`characters`]: texts as numbers, and the books.
//! - [`command`]: the command line that the programs share.
//! - [`convnet`]: a convolutional network that reads MNIST's digits.
//! - [`crf`]: a linear-chain conditional random field, all of it derivatives of one sum over paths.
//! - [`deep_equilibrium`]: a network of infinite depth, whose state is the root of an equation.
//! - [`digits`]: the images of handwritten digits that several examples learn to read, and the
//!   first network that does.
//! - [`dqn`]: Q-learning by a deep network, with a replay memory and a target network.
//! - [`graph_network`]: messages along the edges of a graph that is an input, on the friendships of
//!   a karate club.
//! - [`kfac`]: natural gradient descent with Kronecker factors of the curvature.
//! - [`lstm`]: a language model of characters, an LSTM whose steps are a `scan`.
//! - [`onnx_classifier`]: an ONNX classifier, fine-tuned with updates of low rank and exported
//!   again.
//! - [`newton`]: Newton's method by products with a Hessian that is never formed.
//! - [`neural_ode`]: differential equations learnt through a solver that chooses its steps, a loop
//!   with a condition.
//! - [`semantic_search`]: finds passages of a book by their meaning, with the weights of MiniLM.
//! - [`speech`]: vowels of synthetic speech, recognised without alignments.
//! - [`states`]: variables and moments in bf16, rounded to the nearest and stochastically.
//! - [`tree`]: a network over a recursive type of the user's, by recursion and as one graph for all
//!   trees.
//! - [`vae`]: a variational autoencoder that reads and writes digits.
//! - [`wengert_list`]: closures as Wengert lists, by define then run and by define by run.
//! - [`word_piece`]: the tokens that BERT reads.
#![forbid(unsafe_code)]

pub mod char_gpt;
pub mod characters;
pub mod command;
pub mod convnet;
pub mod crf;
pub mod deep_equilibrium;
pub mod digits;
pub mod dqn;
pub mod graph_network;
pub mod kfac;
pub mod lstm;
pub mod neural_ode;
pub mod newton;
pub mod onnx_classifier;
pub mod semantic_search;
pub mod speech;
pub mod states;
pub mod tree;
pub mod vae;
pub mod wengert_list;
pub mod word_piece;
