//! Every network of `wengert::models`, with symbolic dimensions.

use super::{Exported, folder};
use wengert::core::Literal;
use wengert::core::graph::Function;
use wengert::models::{
    Bert, BertSettings, Convnet, ConvnetSettings, Gpt, GptSettings, Llama, LlamaSettings,
    LstmModel, LstmModelSettings, Mlp, ResNet, ResNetSettings, UNet, UNetSettings,
};
use wengert::prelude::*;
use wengert_ci::onnx_suite;
use wengert_testing::Random;
use wengert_testing::random::floats;

/// A network: its function, values of its dimension variables, and the number of its tokens.
struct Network {
    name: &'static str,
    function: Function,
    binding: Binding,
    tokens: usize,
    /// Nodes that stand for composites.
    nodes: &'static [&'static str],
}

fn network(
    name: &'static str,
    binding: Binding,
    tokens: usize,
    nodes: &'static [&'static str],
    build: impl FnOnce(&mut FunctionBuilder),
) -> Network {
    let mut program = Program::new();
    program.function("predict", build).unwrap();
    let function = program.get("predict").unwrap().clone();
    Network { name, function, binding, tokens, nodes }
}

fn networks() -> Vec<Network> {
    let gpt = GptSettings { vocabulary: 11, positions: 6, width: 8, heads: 2, layers: 2 };
    let bert = BertSettings {
        vocabulary: 17,
        positions: 9,
        types: 2,
        width: 8,
        intermediate: 16,
        heads: 2,
        layers: 2,
    };
    let llama = LlamaSettings {
        vocabulary: 13,
        width: 16,
        layers: 2,
        heads: 4,
        key_value_heads: 2,
        intermediate: 20,
        positions: 9,
        ..LlamaSettings::LLAMA_2_7B
    };
    let lstm = LstmModelSettings { vocabulary: 9, embedding: 5, width: 6, layers: 2, dropout: 0.5 };
    let resnet = ResNetSettings { channels: 3, width: 2, blocks: [1, 1, 1, 1], classes: 5 };
    let unet = UNetSettings { channels: 2, width: 3, depth: 2, classes: 3 };
    vec![
        network("mlp", bind!(B = 3), 0, &["Relu", "MatMul"], |f| {
            let x = f.input("x", f32("B,7"));
            let model = f.param("model", Mlp::new(&[7, 5, 4], Activation::Relu));
            f.output("y", model.call(&x).softmax(-1));
        }),
        network("convnet", bind!(B = 2), 0, &["Conv", "MaxPool", "Relu"], |f| {
            let settings = ConvnetSettings { image: [8, 12], ..ConvnetSettings::MNIST };
            let x = f.input("x", f32("B,8,12,1"));
            let model = f.param("model", Convnet::new(&settings));
            f.output("y", model.call(&x, None));
        }),
        network("resnet", bind!(B = 1), 0, &["Conv", "MaxPool"], move |f| {
            let x = f.input("x", f32("B,32,32,3"));
            let model = ResNet::new(&resnet);
            let statistics = f.state("statistics", model.statistics());
            let model = f.param("model", model);
            f.output("y", model.call(&x, &statistics));
        }),
        network("unet", bind!(B = 2), 0, &["Conv", "ConvTranspose", "MaxPool"], move |f| {
            let x = f.input("x", f32("B,8,12,2"));
            let model = f.param("model", UNet::new(&unet));
            f.output("y", model.call(&x));
        }),
        network("gpt", bind!(B = 2, T = 5), 11, &["LayerNormalization", "Gelu"], move |f| {
            let tokens = f.input("tokens", i32("B,T"));
            let model = f.param("model", Gpt::new(&gpt));
            f.output("y", model.call(&tokens));
        }),
        network("bert", bind!(B = 2, T = 6), 17, &["LayerNormalization", "Gelu"], move |f| {
            let tokens = f.input("tokens", i32("B,T"));
            let mask = f.input("mask", bool("B,T"));
            let model = f.param("model", Bert::new(&bert));
            let hidden = model.call(&tokens, &mask, None);
            f.output("hidden", &hidden);
            f.output("pooled", model.pool(&hidden));
            f.output("embedded", model.embed(&tokens, &mask));
        }),
        network("llama", bind!(B = 2, T = 7), 13, &["Sigmoid"], move |f| {
            let tokens = f.input("tokens", i32("B,T"));
            let model = f.param("model", Llama::new(&llama));
            f.output("y", model.call(&tokens));
        }),
        network("lstm", bind!(B = 2, T = 4), 9, &["Scan", "Tanh", "Sigmoid"], move |f| {
            let tokens = f.input("tokens", i32("T,B"));
            let model = f.param("model", LstmModel::new(&lstm));
            let begin = model.zero_state(tokens.shape()[1].clone());
            f.output("y", model.call(&tokens, &begin, None).0);
        }),
    ]
}

/// Values for all inputs: tokens below the vocabulary, masks that begin with true, variances that
/// are positive.
fn operands(network: &Network, function: &Function) -> Vec<Literal> {
    let mut random = Random(7);
    let mut value = |n: usize| {
        let (ty, name) = (function.input_type(n), &function.inputs[n].name);
        let extents = ty.extents().unwrap();
        match ty.dtype {
            DType::I32 => {
                let count = extents.iter().product::<usize>();
                let tokens = (0..count).map(|_| random.below(network.tokens) as i32).collect();
                Literal::from_vec(&extents, tokens).unwrap()
            }
            DType::Bool => {
                let last = extents[1];
                let count = extents.iter().product::<usize>();
                let known = (0..count).map(|i| i % last < 2 + i / last).collect();
                Literal::from_vec(&extents, known).unwrap()
            }
            _ if name.contains("var") => {
                let count = extents.iter().product::<usize>();
                let values = (0..count).map(|_| 0.5 + random.unit() as f32).collect();
                Literal::from_vec(&extents, values).unwrap()
            }
            _ => random.scaled(ty, 0.5),
        }
    };
    (0..function.inputs.len()).map(&mut value).collect()
}

/// The largest difference relative to the largest number.
fn difference(found: &Literal, wanted: &Literal) -> f64 {
    assert_eq!(found.ty(), wanted.ty());
    let (found, wanted) = (floats(found), floats(wanted));
    let scale = wanted.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    let errors = found.iter().zip(&wanted).map(|(x, y)| (x - y).abs());
    errors.fold(0.0, |most, e| if e <= most { most } else { e }) / scale
}

/// The network in this op set, which is imported again.
fn check(network: &Network, opset: i64, folder: &std::path::Path) {
    let Network { name, function, binding, .. } = network;
    let given = operands(network, &function.bind(binding).unwrap());
    let case = Exported::new(function, binding, given, opset);
    let case = case.unwrap_or_else(|e| panic!("{name}: {e}"));
    for node in network.nodes {
        assert!(case.has(node), "{name}: no {node}");
    }
    case.keep(&folder.join(format!("{name}_{opset}")));
    let imported = case.imported().unwrap_or_else(|e| panic!("{name}: {e}"));
    let known = &imported.program.functions()[0];
    assert_eq!(known.variables(), function.variables(), "{name}");
    let found = case.again(&imported, binding).unwrap();
    assert_eq!(found.len(), case.wanted.len(), "{name}");
    for (found, wanted) in found.iter().zip(&case.wanted) {
        let error = difference(found, wanted);
        assert!(error <= 1e-5, "{name}, op set {opset}: {error}");
    }
}

#[test]
fn networks_are_the_same_after_export() {
    let folder = folder("networks");
    let (networks, opsets) = (networks(), [21, 23]);
    for opset in opsets {
        networks.iter().for_each(|network| check(network, opset, &folder));
    }
    assert_eq!(onnx_suite::run_models(&folder).unwrap(), networks.len() * opsets.len());
}
