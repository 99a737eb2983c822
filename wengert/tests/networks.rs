//! Whole networks: names and counts of their variables, causal masks, gradients.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use wengert::core::{KeyPath, interpret};
use wengert::models::{
    Bert, BertSettings, Convnet, ConvnetSettings, Gpt, GptSettings, LstmModel, LstmModelSettings,
    Mlp, ResNet, ResNetSettings, UNet, UNetSettings,
};
use wengert::prelude::*;
use wengert_testing::Random;

const TINY: GptSettings =
    GptSettings { vocabulary: 11, positions: 6, width: 8, heads: 2, layers: 2 };

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
    for name in [
        "wte.weight",
        "wpe.weight",
        "h.11.ln_1.bias",
        "h.0.attn.c_attn.weight",
        "h.3.attn.c_proj.bias",
    ] {
        assert!(shapes.iter().any(|(found, _)| found == name), "{name}");
    }
    for name in ["h.5.ln_2.weight", "h.2.mlp.c_fc.weight", "h.2.mlp.c_proj.bias", "ln_f.weight"] {
        assert!(shapes.iter().any(|(found, _)| found == name), "{name}");
    }
}

/// The count of numbers in a model. `names` are some of its variables' names.
fn count<M: Differentiable>(model: &M, names: &[&str]) -> usize {
    let shapes = shapes(model);
    for name in names {
        assert!(shapes.iter().any(|(found, _)| found == name), "{name}");
    }
    shapes.iter().map(|(_, count)| count).sum()
}

#[test]
fn a_bert_has_the_names_and_numbers_of_the_published_ones() {
    let names = [
        "embeddings.word_embeddings.weight",
        "embeddings.token_type_embeddings.weight",
        "embeddings.LayerNorm.bias",
        "encoder.layer.5.attention.self.query.weight",
        "encoder.layer.0.attention.output.LayerNorm.weight",
        "encoder.layer.3.intermediate.dense.bias",
        "encoder.layer.3.output.dense.weight",
        "pooler.dense.weight",
    ];
    assert_eq!(count(&Bert::new(&BertSettings::MINILM_L6), &names), 22_713_216);
    assert_eq!(BertSettings::MINILM_L6.parameters(), 22_713_216);
    assert_eq!(count(&Bert::new(&BertSettings::BASE), &names), 109_482_240);
    assert_eq!(BertSettings::BASE.parameters(), 109_482_240);
    assert_eq!(BertSettings::LARGE.parameters(), 335_141_888);
}

#[test]
fn a_resnet_has_the_names_and_numbers_of_the_published_ones() {
    let names = [
        "conv1.weight",
        "bn1.weight",
        "layer1.0.downsample.0.weight",
        "layer1.0.downsample.1.bias",
        "layer3.5.conv2.weight",
        "layer4.2.bn3.bias",
        "fc.bias",
    ];
    let model = ResNet::new(&ResNetSettings::RESNET_50);
    assert_eq!(count(&model, &names), 25_557_032);
    assert_eq!(ResNetSettings::RESNET_50.parameters(), 25_557_032);
    assert_eq!(ResNetSettings::RESNET_101.parameters(), 44_549_160);
    assert_eq!(ResNetSettings::RESNET_152.parameters(), 60_192_808);
    let names =
        ["bn1.running_mean", "layer2.0.downsample.1.running_var", "layer4.2.bn3.running_mean"];
    // Means and variances of 53 norms: as many numbers as the norms' weights and biases.
    assert_eq!((count(&model.statistics(), &names), model.statistics().len()), (53_120, 53));
}

#[test]
fn other_networks_have_as_many_numbers_as_they_say() {
    assert_eq!(
        count(&UNet::new(&UNetSettings::ORIGINAL), &["down.3.conv1.weight", "up.0.up.bias"]),
        31_030_658
    );
    assert_eq!(UNetSettings::ORIGINAL.parameters(), 31_030_658);
    let convnet = Convnet::new(&ConvnetSettings::MNIST);
    assert_eq!(count(&convnet, &["conv2.bias", "fc1.weight"]), 206_922);
    assert_eq!(ConvnetSettings::MNIST.parameters(), 206_922);
    let widths = [784, 300, 10];
    let mlp = Mlp::new(&widths, Activation::Relu);
    assert_eq!((count(&mlp, &["layers.1.bias"]), Mlp::parameters(&widths)), (238_510, 238_510));
    let settings =
        LstmModelSettings { vocabulary: 64, embedding: 32, width: 48, layers: 3, dropout: 0.0 };
    let lstm = LstmModel::new(&settings);
    assert_eq!(count(&lstm, &["lstm.2.recurrent", "out.weight"]), 57_984);
    assert_eq!(settings.parameters(), 57_984);
}

/// PyTorch's weights are converted to this library's layout. An error names a missing weight and a
/// weight of another shape.
#[test]
fn weights_of_pytorch_are_turned() {
    let literal = |shape: &[usize]| {
        let count: usize = shape.iter().product();
        Literal::from_vec(shape, (0..count).map(|n| n as f32).collect()).unwrap()
    };
    let settings = ResNetSettings { channels: 3, width: 2, blocks: [1, 1, 1, 1], classes: 5 };
    let model = ResNet::new(&settings);
    let mut given: wengert::data::Arrays = (model.clone(), model.statistics())
        .tensors()
        .into_iter()
        .map(|(path, tensor)| {
            let mut shape = tensor.ty().extents().unwrap();
            match shape[..] {
                [height, width, inputs, outputs] => shape = vec![outputs, inputs, height, width],
                [inputs, outputs] => shape = vec![outputs, inputs],
                _ => {}
            }
            (path.to_string().split_once('.').unwrap().1.to_owned(), literal(&shape))
        })
        .collect();
    given.insert("bn1.num_batches_tracked".into(), literal(&[]));
    let turned = model.from_torch(&given).unwrap();
    assert_eq!(turned.len(), given.len() - 1);
    let (filters, fc) = (&turned["conv1.weight"], &turned["fc.weight"]);
    assert_eq!((filters.shape(), fc.shape()), (&[7, 7, 3, 2][..], &[64, 5][..]));
    // Height 1, width 2, input 0, output 1 of [2, 3, 7, 7]; input 3, output 2 of [5, 64].
    assert_eq!(filters.get((7 + 2) * 3 * 2 + 1).to_f64(), f64::from(3 * 49 + 7 + 2));
    assert_eq!(fc.get(3 * 5 + 2).to_f64(), f64::from(2 * 64 + 3));
    assert_eq!(turned["layer1.0.bn2.running_var"], given["layer1.0.bn2.running_var"]);

    let fitting = given.insert("fc.weight".into(), literal(&[64, 5])).unwrap();
    let error = model.from_torch(&given).unwrap_err();
    assert!(error.message.contains("`fc.weight` is f32[64,5] in the model"), "{error}");
    given.insert("fc.weight".into(), fitting);
    given.remove("bn1.running_mean");
    let error = model.from_torch(&given).unwrap_err();
    assert!(error.message.contains("no weights for `bn1.running_mean`"), "{error}");
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
    let mut stream = Random(5);
    let mut given = vec![Literal::from_vec(&[1, tokens.len()], tokens.to_vec()).unwrap()];
    given.extend((1..function.inputs.len()).map(|i| stream.scaled(function.input_type(i), 0.5)));
    interpret::run(&function, &given).unwrap()[0].scalars().map(|s| s.to_f64()).collect()
}

#[test]
fn a_gpt_does_not_see_what_follows() {
    let (a, b) = (logits(&[3, 1, 4, 1, 5, 9]), logits(&[3, 1, 4, 2, 6, 5]));
    assert_eq!(a[..3 * 11], b[..3 * 11]);
    assert!(a[3 * 11..].iter().zip(&b[3 * 11..]).all(|(a, b)| a != b));
    // Later tokens do not matter.
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
        error.contains("queries of attention have type f32[B,T,8]")
            && error.contains("networks.rs"),
        "{error}"
    );
}
