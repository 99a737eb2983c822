//! `#[derive(Differentiable)]`.

use std::marker::PhantomData;
use wengert_core::{DType, Differentiable, Initializer, KeyPath, Tensor, TensorType};

fn tensor(n: usize) -> Tensor {
    Tensor::variable(TensorType::new(DType::F32, [n]), Initializer::Zeros)
}

/// Key path and extent of each tensor.
fn paths(value: &impl Differentiable) -> Vec<String> {
    value.tensors().iter().map(|(path, t)| format!("{path}:{}", t.shape()[0])).collect()
}

/// Replaces each tensor by one that is longer by 100, and asserts that map and tangent agree.
fn grow<T: Differentiable<TangentVector = T>>(value: &T) -> T {
    let longer = |t: &Tensor| tensor(100 + t.shape()[0].as_extent().expect("the extents here are numbers"));
    let mapped = value.map_tensors(&KeyPath::default(), &mut |_, t| longer(t));
    let tangent = value.tangent(&KeyPath::default(), &mut |_, t| longer(t));
    assert_eq!(paths(&mapped), paths(&tangent));
    mapped
}

#[derive(Differentiable)]
#[differentiable(crate = wengert_core)]
struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
    #[no_derivative]
    width: usize,
}

fn linear(n: usize, bias: bool) -> Linear {
    Linear { weight: tensor(n), bias: bias.then(|| tensor(n + 1)), width: n }
}

#[derive(Differentiable)]
#[differentiable(crate = wengert_core)]
struct Pair(Linear, Tensor, #[no_derivative] &'static str);

#[derive(Differentiable)]
#[differentiable(crate = wengert_core)]
struct Nothing;

#[derive(Differentiable)]
#[differentiable(crate = wengert_core)]
struct Model<H, M> {
    layers: Vec<Linear>,
    r#type: [Tensor; 2],
    pair: Pair,
    head: Box<H>,
    nothing: Nothing,
    #[no_derivative]
    marker: PhantomData<M>,
    #[no_derivative]
    activation: fn(&Tensor) -> Tensor,
}

#[derive(Differentiable)]
#[differentiable(crate = wengert_core)]
enum Layer {
    Dense(Linear),
    Residual { inner: Box<Layer>, scale: Tensor },
    Flatten,
    Dropout(#[no_derivative] f64),
}

#[derive(Differentiable)]
#[differentiable(crate = wengert_core)]
enum Tree<T> {
    Leaf(T),
    Node(Vec<Tree<T>>),
}

#[test]
fn structs_are_visited_field_by_field() {
    let model = Model::<Pair, u8> {
        layers: vec![linear(1, true), linear(3, false)],
        r#type: [tensor(4), tensor(5)],
        pair: Pair(linear(6, false), tensor(7), "name"),
        head: Box::new(Pair(linear(8, false), tensor(9), "head")),
        nothing: Nothing,
        marker: PhantomData,
        activation: |t| t.clone(),
    };
    let expected = [
        "layers.0.weight:1",
        "layers.0.bias:2",
        "layers.1.weight:3",
        "type.0:4",
        "type.1:5",
        "pair.0.weight:6",
        "pair.1:7",
        "head.0.weight:8",
        "head.1:9",
    ];
    assert_eq!(paths(&model), expected);
    let grown = grow(&model);
    assert_eq!(paths(&grown)[3], "type.0:104");
    assert_eq!((grown.pair.2, grown.layers[1].width), ("name", 3));
    assert!(grown.layers[1].bias.is_none());
    let (_, _) = (grown.marker, grown.activation);
}

#[test]
fn enums_are_visited_in_their_variant() {
    let layers = vec![
        Layer::Dense(linear(1, true)),
        Layer::Residual { inner: Box::new(Layer::Dense(linear(3, false))), scale: tensor(4) },
        Layer::Flatten,
        Layer::Dropout(0.5),
    ];
    assert_eq!(paths(&layers), ["0.0.weight:1", "0.0.bias:2", "1.inner.0.weight:3", "1.scale:4"]);
    let grown = grow(&layers);
    assert!(matches!(grown[2], Layer::Flatten));
    assert!(matches!(grown[3], Layer::Dropout(p) if p == 0.5));
}

#[test]
fn types_may_be_recursive_and_generic() {
    let tree = Tree::Node(vec![Tree::Leaf(tensor(1)), Tree::Node(vec![Tree::Leaf(tensor(2))])]);
    assert_eq!(paths(&tree), ["0.0.0:1", "0.1.0.0.0:2"]);
    assert_eq!(paths(&grow(&tree)), ["0.0.0:101", "0.1.0.0.0:102"]);
}
