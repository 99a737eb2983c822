//! Whole networks against PyTorch in double precision: their results, and their variables after ten
//! steps of AdamW. `generate.py` wrote the files. [`layers`], [`losses`] and [`papers`] compare
//! functions.
#![allow(clippy::print_stdout)] // Prints the greatest error that was found.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

mod cases;
mod layers;
mod losses;
mod optim;
mod papers;

use std::path::PathBuf;
use wengert::core::Scalar;
use wengert::data::Arrays;
use wengert::models::{
    Bert, BertSettings, Convnet, ConvnetSettings, Gpt, GptSettings, Llama, LlamaSettings,
    LstmModel, LstmModelSettings, Mlp, ResNet, ResNetSettings, UNet, UNetSettings,
};
use wengert::nn::{Statistics, with_dtype};
use wengert::prelude::*;

/// The bound on deviations, relative to the greatest number of a tensor.
const BOUND: f64 = 1e-9;

fn arrays(file: &str) -> Arrays {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/torch")
        .join(file)
        .with_extension("npz");
    wengert::data::read_all(&path).unwrap()
}

fn doubles(literal: &Literal) -> Vec<f64> {
    literal.scalars().map(Scalar::to_f64).collect()
}

/// The distance of two tensors, relative to the greatest number of the second.
fn apart(found: &Literal, wanted: &Literal) -> f64 {
    assert_eq!(found.ty(), wanted.ty());
    let (found, wanted) = (doubles(found), doubles(wanted));
    let greatest = wanted.iter().fold(0.0, |m: f64, w| m.max(w.abs()));
    let apart = found.iter().zip(&wanted).map(|(f, w)| (f - w).abs()).fold(0.0, f64::max);
    // A NaN fails the comparison.
    assert!(found.iter().all(|f| f.is_finite()));
    apart / greatest
}

/// The results of a network for given inputs.
struct Made {
    loss: Tensor,
    values: Vec<Tensor>,
    statistics: Statistics,
}

impl Made {
    fn of(loss: Tensor, values: Vec<Tensor>) -> Self {
        Made { loss, values, statistics: Statistics::new() }
    }
}

/// Trains a network as the file says and compares all results. Returns the session with the
/// variables after the last step.
fn agrees<M: Differentiable<TangentVector = M>>(
    file: &str,
    (model, statistics): (M, Statistics),
    make: impl Fn(&M, &Statistics, &dyn Fn(&str) -> Tensor) -> Made,
) -> (Session, Arrays) {
    let arrays = arrays(file);
    let is_given = |name: &str| {
        !["begin.", "end.", "value.", "losses", "predicted"].iter().any(|p| name.starts_with(p))
    };
    let given: Vec<(&str, Literal)> = arrays
        .iter()
        .map(|(name, a)| (name.as_str(), a.clone()))
        .filter(|(name, _)| is_given(name))
        .collect();
    let mut program = Program::new();
    program
        .function("step", |f| {
            let inputs: Vec<(&str, Tensor)> =
                given.iter().map(|(name, a)| (*name, f.input(name, a.ty()))).collect();
            let input = |name: &str| inputs.iter().find(|(n, _)| *n == name).unwrap().1.clone();
            let model = f.state("model", with_dtype(&model, DType::F64));
            let statistics = f.state("model", with_dtype(&statistics, DType::F64));
            let (loss, (values, seen), gradient) = value_aux_and_grad(&model, |model| {
                let made = make(model, &statistics, &input);
                (made.loss, (made.values, made.statistics))
            });
            AdamW::new(3e-3).step(f, &model, &gradient);
            for (path, value) in seen.tensors() {
                f.update(&format!("model.{path}"), &value);
            }
            f.output("loss", loss);
            values.iter().enumerate().for_each(|(n, value)| f.output(&format!("value.{n}"), value));
        })
        .unwrap();
    let mut session = Session::open(Device::Cpu).unwrap();
    session.initialize(&program, 1).unwrap();
    // The file has exactly the network's variables.
    let of_model = |path: &str| path.strip_prefix("model.").map(str::to_owned);
    let mut paths: Vec<String> =
        session.variables().unwrap().keys().filter_map(|path| of_model(path)).collect();
    paths.sort();
    let begins: Vec<&str> = arrays.keys().filter_map(|name| name.strip_prefix("begin.")).collect();
    assert_eq!(paths, begins);
    for path in &paths {
        session.set_variable(&format!("model.{path}"), &arrays[&format!("begin.{path}")]).unwrap();
    }
    let mut step = session.compile(&program, "step", bind!()).unwrap();
    let mut furthest: f64 = 0.0;
    let mut compare = |name: &str, found: &Literal, wanted: &Literal| {
        let apart = apart(found, wanted);
        assert!(apart <= BOUND, "{file}: {name} is {apart:.1e} from what it should be");
        furthest = furthest.max(apart);
    };
    for (n, wanted) in doubles(&arrays["losses"]).into_iter().enumerate() {
        let outputs = step.run(&given).unwrap();
        compare(&format!("loss {n}"), outputs.get("loss").unwrap(), &Literal::from(wanted));
        for (name, value) in outputs.iter().unwrap().filter(|(name, _)| n == 0 && *name != "loss") {
            compare(name, value, &arrays[name]);
        }
    }
    for path in &paths {
        let (begin, end) = (&arrays[&format!("begin.{path}")], &arrays[&format!("end.{path}")]);
        assert_ne!(begin, end, "{path} has not moved");
        compare(path, &session.variable(&format!("model.{path}")).unwrap(), end);
    }
    println!("{file}: {} variables, {furthest:.1e}", paths.len());
    (session, arrays)
}

/// A network without running statistics.
fn alone<M>(model: M) -> (M, Statistics) {
    (model, Statistics::new())
}

#[test]
fn gpt() {
    let settings = GptSettings { vocabulary: 13, positions: 7, width: 12, heads: 3, layers: 2 };
    agrees("gpt", alone(Gpt::new(&settings)), |m, _, input| {
        Made::of(m.loss(&input("x"), &input("y")), vec![m.call(&input("x"))])
    });
}

#[test]
fn bert() {
    let settings = BertSettings {
        vocabulary: 17,
        positions: 9,
        types: 2,
        width: 12,
        intermediate: 20,
        heads: 3,
        layers: 2,
    };
    agrees("bert", alone(Bert::new(&settings)), |m, _, input| {
        let (x, mask) = (input("x"), input("mask"));
        let hidden = m.call(&x, &mask, Some(&input("types")));
        let pooled = m.pool(&hidden);
        let there = mask.broadcast_in_dim(hidden.shape().to_vec(), &[0, 1]);
        let hidden = there.select(&hidden, &hidden.zeros_like());
        let embedding = m.embed(&x, &mask);
        let near = |a: &Tensor, b: &str| (a - input(b)).square().mean();
        let loss =
            near(&embedding, "wanted.0") + near(&pooled, "wanted.1") + hidden.integer_pow(4).mean();
        Made::of(loss, vec![hidden, pooled, embedding])
    });
}

#[test]
fn llama() {
    let settings = LlamaSettings {
        vocabulary: 13,
        width: 16,
        layers: 2,
        heads: 4,
        key_value_heads: 2,
        intermediate: 20,
        positions: 9,
        base: 50.0,
        ..LlamaSettings::LLAMA_2_7B
    };
    agrees("llama", alone(Llama::new(&settings)), |m, _, input| {
        Made::of(m.loss(&input("x"), &input("y")), vec![m.call(&input("x"))])
    });
}

#[test]
fn mlp() {
    agrees("mlp", alone(Mlp::new(&[5, 9, 7, 3], Activation::Silu)), |m, _, input| {
        let logits = m.call(&input("x"));
        Made::of(cross_entropy(&logits, &input("y")), vec![logits])
    });
}

#[test]
fn convnet() {
    let settings = ConvnetSettings {
        image: [8, 12],
        channels: 2,
        features: [3, 5],
        width: 7,
        classes: 4,
        dropout: 0.5,
    };
    agrees("convnet", alone(Convnet::new(&settings)), |m, _, input| {
        let logits = m.call(&input("x"), None);
        Made::of(cross_entropy(&logits, &input("y")), vec![logits])
    });
}

#[test]
fn lstm() {
    let settings =
        LstmModelSettings { vocabulary: 9, embedding: 5, width: 6, layers: 2, dropout: 0.5 };
    agrees("lstm", alone(LstmModel::new(&settings)), |m, _, input| {
        let (logits, last) = m.call(&input("x"), &m.zero_state(3usize), None);
        let values = vec![logits.clone(), last[1].hidden.clone(), last[0].cell.clone()];
        Made::of(cross_entropy(&logits, &input("y")), values)
    });
}

/// Images in f64, scaled by 1/16.
fn shades(x: &Tensor) -> Tensor {
    x.convert(DType::F64) * (1.0 / 16.0)
}

#[test]
fn resnet() {
    let settings = ResNetSettings { channels: 3, width: 2, blocks: [1, 2, 1, 1], classes: 3 };
    let model = ResNet::new(&settings);
    let statistics = model.statistics();
    let (mut session, arrays) = agrees("resnet", (model, statistics), |m, statistics, input| {
        let (logits, statistics) = m.train(&shades(&input("x")), statistics);
        Made { loss: cross_entropy(&logits, &input("y")), values: vec![logits], statistics }
    });
    // Prediction uses the final running statistics.
    let mut program = Program::new();
    program
        .function("predict", |f| {
            let x = f.input("x", arrays["x"].ty());
            let model = ResNet::new(&settings);
            let statistics = f.param("model", with_dtype(&model.statistics(), DType::F64));
            let model = f.param("model", with_dtype(&model, DType::F64));
            f.output("predicted", model.call(&shades(&x), &statistics));
        })
        .unwrap();
    let mut predict = session.compile(&program, "predict", bind!()).unwrap();
    let outputs = predict.run(&[("x", &arrays["x"])]).unwrap();
    assert!(apart(outputs.get("predicted").unwrap(), &arrays["predicted"]) <= BOUND);
}

#[test]
fn unet() {
    let settings = UNetSettings { channels: 1, width: 2, depth: 2, classes: 3 };
    agrees("unet", alone(UNet::new(&settings)), |m, _, input| {
        let logits = m.call(&input("x"));
        Made::of(cross_entropy(&logits, &input("y")), vec![logits])
    });
}
