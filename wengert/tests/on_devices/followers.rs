//! An activation after a product is no kernel of its own on a GPU, in whatever way it is written.

use wengert::models::Mlp;
use wengert::nn::Activation;
use wengert::pipeline::{Options, compile};
use wengert::prelude::*;

/// The kernels of a network of two layers and a softmax.
fn kernels(activation: fn(&Tensor) -> Tensor) -> usize {
    let mut program = Program::new();
    program
        .function("predict", |f| {
            let x = f.input("x", TensorType::new(DType::F32, [32, 64]));
            let model = f.param("model", Mlp::new(&[64, 100, 10], Activation::Identity));
            let hidden = activation(&model.layers[0].call(&x));
            f.output("y", model.layers[1].call(&hidden).softmax(1));
        })
        .unwrap();
    let target = wengert::target("sm_90").unwrap();
    let plan = compile(&program, "predict", &bind!(), &target, &Options::default()).unwrap();
    wengert::ptx(&plan).unwrap().matches(".visible .entry").count()
}

#[test]
fn two_products_and_a_softmax_are_three_kernels() {
    let activations: [fn(&Tensor) -> Tensor; 7] = [
        |x| x.relu(),
        |x| x.max(0.0),
        |x| x.gelu(),
        |x| x.gelu_tanh(),
        |x| x.silu(),
        |x| x.tanh(),
        |x| x * x.logistic() + 1.0,
    ];
    for (n, activation) in activations.into_iter().enumerate() {
        assert_eq!(kernels(activation), 3, "activation {n}");
    }
}
