//! Whole networks: names and counts of their variables, causal masks, gradients.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use wengert::core::{KeyPath, interpret};
use wengert::models::{
    Bert, BertSettings, Convnet, ConvnetSettings, Gpt, GptSettings, Llama, LlamaSettings,
    LstmModel, LstmModelSettings, Mlp, ResNet, ResNetSettings, UNet, UNetSettings,
};
use wengert::prelude::*;
use wengert_testing::Random;
use wengert_testing::random::floats;

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
fn a_llama_has_the_names_and_numbers_of_the_published_ones() {
    let names = [
        "model.embed_tokens.weight",
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.31.self_attn.o_proj.weight",
        "model.layers.7.mlp.gate_proj.weight",
        "model.layers.7.input_layernorm.weight",
        "model.layers.7.post_attention_layernorm.weight",
        "model.norm.weight",
        "lm_head.weight",
    ];
    assert_eq!(count(&Llama::new(&LlamaSettings::LLAMA_2_7B), &names), 6_738_415_616);
    assert_eq!(LlamaSettings::LLAMA_2_7B.parameters(), 6_738_415_616);
    assert_eq!(count(&Llama::new(&LlamaSettings::LLAMA_3_8B), &names), 8_030_261_248);
    // A tied head has no variable.
    let tied = Llama::new(&LlamaSettings::LLAMA_3_2_1B);
    assert_eq!(count(&tied, &["model.layers.15.mlp.down_proj.weight"]), 1_235_814_400);
    assert!(tied.tensors().iter().all(|(path, _)| path.as_str() != "lm_head.weight"));
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

const TINY_LLAMA: LlamaSettings = LlamaSettings {
    vocabulary: 13,
    width: 16,
    layers: 2,
    heads: 4,
    key_value_heads: 2,
    intermediate: 20,
    positions: 9,
    ..LlamaSettings::LLAMA_2_7B
};

/// Logits `[2, 7, 13]` of a Llama with random variables: of whole sequences if `chunk` is None,
/// otherwise of parts of `chunk` tokens one after the other, with caches that are state. The
/// caches are longer than the sequences.
fn llama_logits(settings: &LlamaSettings, chunk: Option<usize>) -> Vec<f32> {
    const LENGTH: usize = 7;
    let tokens: [[i32; LENGTH]; 2] = [[3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5, 8, 9, 12]];
    let part = |from: usize, to: usize| {
        let rows = tokens.iter().flat_map(|row| row[from..to].to_vec()).collect();
        Literal::from_vec(&[2, to - from], rows).unwrap()
    };
    let mut program = Program::new();
    program
        .function("whole", |f| {
            let tokens = f.input("tokens", i32("2,T"));
            let llama = f.param("llama", Llama::new(settings));
            f.output("logits", llama.call(&tokens));
        })
        .unwrap();
    for length in 1..=LENGTH {
        program
            .function(&format!("part{length}"), |f| {
                let tokens = f.input("tokens", TensorType::new(DType::I32, [2, length]));
                let position = f.input("position", i32(""));
                let llama = Llama::new(settings);
                let caches = f.state("caches", llama.first_caches(2));
                let llama = f.param("llama", llama);
                let (logits, caches) = llama.call_cached(&tokens, &caches, &position);
                for (path, tensor) in caches.tensors() {
                    f.update(&format!("caches.{path}"), &tensor);
                }
                f.output("logits", logits);
            })
            .unwrap();
    }
    let mut session = Session::open(Device::Cpu).unwrap();
    session.initialize(&program, 1).unwrap();
    let mut stream = Random(5);
    for (path, value) in session.variables().unwrap() {
        if path.starts_with("llama.") {
            session.set_variable(&path, &stream.scaled(&value.ty(), 0.5)).unwrap();
        }
    }
    let Some(chunk) = chunk else {
        let mut whole = session.compile(&program, "whole", bind!(T = LENGTH as i64)).unwrap();
        let outputs = whole.run(&[("tokens", part(0, LENGTH))]).unwrap();
        return outputs.get("logits").unwrap().as_slice::<f32>().unwrap().to_vec();
    };
    let mut logits = [vec![], vec![]];
    for from in (0..LENGTH).step_by(chunk) {
        let to = LENGTH.min(from + chunk);
        let mut step = session.compile(&program, &format!("part{}", to - from), bind!()).unwrap();
        let given = [("tokens", part(from, to)), ("position", Literal::from(from as i32))];
        let outputs = step.run(&given).unwrap();
        let found = outputs.get("logits").unwrap().as_slice::<f32>().unwrap();
        let of_example = found.len() / 2;
        logits.iter_mut().zip(found.chunks(of_example)).for_each(|(all, new)| all.extend(new));
    }
    logits.concat()
}

/// Compares logits by caches in chunks of 1, of 3 and of all tokens with those of whole sequences.
#[track_caller]
fn assert_chunks_agree(settings: &LlamaSettings, tolerance: f32) {
    let whole = llama_logits(settings, None);
    let greatest = whole.iter().fold(0.0f32, |m, v| m.max(v.abs()));
    assert!(greatest > 0.1 && whole.iter().all(|v| v.is_finite()), "{greatest}");
    for chunk in [1, 3, 7] {
        let found = llama_logits(settings, Some(chunk));
        assert_eq!(found.len(), whole.len());
        for (found, wanted) in found.iter().zip(&whole) {
            let apart = (found - wanted).abs();
            assert!(apart <= tolerance * greatest, "chunks of {chunk}: {found} and {wanted}");
        }
    }
}

#[test]
fn a_llama_with_caches_gives_the_logits_of_whole_sequences() {
    assert_chunks_agree(&TINY_LLAMA, 1e-5);
    let scaling = nn::RotaryScaling::Llama3 { factor: 4.0, trained: 6, low: 1.0, high: 4.0 };
    let other = LlamaSettings { key_value_heads: 1, base: 50.0, scaling, tied: true, ..TINY_LLAMA };
    assert_chunks_agree(&other, 1e-5);
}

#[test]
fn a_llama_learns() {
    for tied in [false, true] {
        let settings = LlamaSettings { tied, ..TINY_LLAMA };
        let mut program = Program::new();
        program
            .function("step", |f| {
                let (x, y) = (f.input("x", i32("2,6")), f.input("y", i32("2,6")));
                let model = f.state("model", Llama::new(&settings));
                let (loss, gradient) = value_and_grad(&model, |m| m.loss(&x, &y));
                AdamW::new(1e-2).step(f, &model, &gradient);
                f.output("loss", loss);
            })
            .unwrap();
        let mut session = Session::open(Device::Cpu).unwrap();
        session.initialize(&program, 3).unwrap();
        let mut step = session.compile(&program, "step", bind!()).unwrap();
        let given = ["x", "y"].map(|name| {
            let next = i32::from(name == "y");
            let tokens = (0..12).map(|n| (5 * (n + next)) % 13).collect();
            (name, Literal::from_vec(&[2, 6], tokens).unwrap())
        });
        let losses: Vec<f64> =
            (0..60).map(|_| floats(step.run(&given).unwrap().get("loss").unwrap())[0]).collect();
        // Equal probabilities for 13 tokens have a loss of 2.56.
        assert!((losses[0] - 13f64.ln()).abs() < 0.1 && losses[59] < 0.5, "{losses:?}");
    }
}

#[test]
fn a_llama_says_what_it_takes() {
    let said = |settings: LlamaSettings, tokens: &str, caches: usize| {
        let mut program = Program::new();
        let built = program.function("f", |f| {
            let tokens = f.input("tokens", i32(tokens));
            let llama = f.param("llama", Llama::new(&settings));
            let zeros = llama.zero_caches(2);
            let first = Tensor::constant(0i32);
            let (logits, _) = llama.call_cached(&tokens, &zeros[..caches], &first);
            f.output("cached", logits);
            f.output("whole", llama.call(&tokens));
        });
        built.unwrap_err().to_string()
    };
    for (settings, tokens, caches, message) in [
        (TINY_LLAMA, "6", 2, "tokens of type i32[6]"),
        (TINY_LLAMA, "2,6", 1, "1 caches for 2 layers"),
        (TINY_LLAMA, "2,10", 2, "10 positions in a cache of 9"),
        (
            LlamaSettings { key_value_heads: 3, ..TINY_LLAMA },
            "2,6",
            2,
            "4 heads of queries share 3 heads of keys",
        ),
        (LlamaSettings { heads: 3, key_value_heads: 1, ..TINY_LLAMA }, "2,6", 2, "3 heads"),
        (LlamaSettings { heads: 0, ..TINY_LLAMA }, "2,6", 2, "0 heads of queries"),
        (LlamaSettings { width: 12, ..TINY_LLAMA }, "2,6", 2, "a rotation of heads of width 3"),
    ] {
        let said = said(settings, tokens, caches);
        assert!(said.contains(message) && said.contains("networks.rs"), "{said}");
    }
}
