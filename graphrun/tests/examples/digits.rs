//! The files of the example `digits`, from the same program, recipe and data, without a build of
//! the example.

use std::path::Path;
use wengert::data::csv::{Header, Table};
use wengert::data::{Arrays, npy, npz};
use wengert::random::SplitMix64;
use wengert::recipe::{
    Aggregate, Batches, Cadence, EvaluateRecipe, InputRecipe, LastBatch, Length, Metric,
    Monitoring, StepRecipe, Transform,
};
use wengert::train::{Options, train};
use wengert::transform::{Draws, Examples};
use wengert::{GraphFile, Recipe, Scalar, prelude::*};

const TEST: usize = 360;
const STEPS: u32 = 20 * 1437u32.div_ceil(32);

#[derive(Differentiable)]
struct Mlp {
    hidden: Linear,
    out: Linear,
}

impl Mlp {
    fn new() -> Self {
        Mlp { hidden: Linear::kaiming(64, 128), out: Linear::new(128, 10) }
    }

    fn call(&self, x: &Tensor) -> Tensor {
        self.out.call(&self.hidden.call(x).relu())
    }
}

fn program() -> Result<Program> {
    let mut program = Program::new();
    program.function("train_step", |f| {
        let (x, y) = (f.input("x", f32("B,64")), f.input("y", i32("B")));
        let model = f.state("model", Mlp::new());
        let (loss, gradient) = value_and_grad(&model, |m| cross_entropy(&m.call(&x), &y));
        let rate = optim::Rate::warmup_cosine(5e-3, 20, STEPS, 0.0);
        AdamW::new(rate).report_rate().step(f, &model, &gradient);
        f.output("loss", loss);
        f.output(optim::GRAD_NORM, optim::global_norm(&gradient));
    })?;
    program.function("predict", |f| {
        let x = f.input("x", f32("B,64"));
        let model = f.param("model", Mlp::new());
        f.output("y", model.call(&x).softmax(1));
    })?;
    program.function("loss", |f| {
        let (x, y) = (f.input("x", f32("B,64")), f.input("y", i32("B")));
        let logits = f.param("model", Mlp::new()).call(&x);
        f.output("loss", cross_entropy(&logits, &y));
        f.output("correct", logits.argmax(1).eq(&y).convert(DType::I32).sum());
    })?;
    Ok(program)
}

fn recipe() -> Recipe {
    let images = |array: &str| {
        let sixteenth = Transform::Scale(Scalar::of(0.0625f32));
        InputRecipe::new("x", array).then(Transform::Convert(DType::F32)).then(sixteenth)
    };
    let labels = |array: &str| InputRecipe::new("y", array).then(Transform::Convert(DType::I32));
    let metric = |name: &str, output: &str, aggregate| Metric {
        name: name.into(),
        output: output.into(),
        aggregate,
    };
    let mean = metric("loss", "loss", Aggregate::Mean);
    Recipe {
        init: Some("init".into()),
        step: StepRecipe {
            function: "train_step".into(),
            inputs: vec![images("train_images"), labels("train_labels")],
            loss: "loss".into(),
        },
        evaluate: Some(EvaluateRecipe {
            function: "loss".into(),
            inputs: vec![images("test_images"), labels("test_labels")],
            batch_size: TEST as u64,
            metrics: vec![mean, metric("accuracy", "correct", Aggregate::PerExample)],
            every: Cadence::Epochs(1),
        }),
        batches: Batches { size: 32, shuffle: Some(1), blocks: None, last: LastBatch::Smaller },
        length: Length::Epochs(20),
        checkpoint: Cadence::Epochs(5),
        key_seed: 1,
        monitoring: Monitoring::default(),
        precision: None,
    }
}

/// The images and labels, in the example's order.
fn data() -> Result<Arrays> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../python-free-examples/data/digits.csv.gz");
    let table = Table::read(path, Header::Absent)?;
    let order = SplitMix64::new(1797).permutation(table.rows());
    let (test, train) = order.split_at(TEST);
    let mut arrays = Arrays::new();
    for (what, array) in
        [("images", table.slice(0..64, DType::U8)?), ("labels", table.column(64, DType::U8)?)]
    {
        let width = array.len() / table.rows();
        let elements = array.as_slice::<u8>().unwrap();
        for (part, rows) in [("test", test), ("train", train)] {
            let taken = rows.iter().flat_map(|row| &elements[row * width..(row + 1) * width]);
            let shape = [&[rows.len()], &array.shape()[1..]].concat();
            let taken = Literal::from_vec(&shape, taken.copied().collect())?;
            arrays.insert(format!("{part}_{what}"), taken);
        }
    }
    Ok(arrays)
}

/// Writes `digits.graph`, `digits.safetensors`, `digits.npz` and `x.npy`.
pub fn write(folder: &Path) -> Result<()> {
    let (program, recipe, data) = (program()?, recipe(), data()?);
    let mut session = Session::open(Device::Cpu)?;
    let mut observe = |_: wengert::train::Event<'_>| {};
    train(&mut session, &program, &recipe, &data, Options::default(), &mut observe).unwrap();
    let inputs = &recipe.evaluate.as_ref().unwrap().inputs;
    let all = Examples::all(Draws::new(recipe.key_seed, 0));
    npy::write(folder.join("x.npy"), &inputs[0].apply(data["test_images"].clone(), &all)?)?;
    let arrays = data.iter().map(|(name, array)| (name.as_str(), array));
    npz::write(folder.join("digits.npz"), arrays)?;
    session.save_for(folder.join("digits.safetensors"), &program, "predict")?;
    let file = GraphFile { recipe: Some(recipe), ..GraphFile::new(program) };
    file.write(folder.join("digits.graph"))
}
