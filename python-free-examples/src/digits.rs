//! Images of handwritten digits: 1797 of 8 × 8 pixels from the UCI repository (Alpaydin and Kaynak
//! 1998). Each line of `data/digits.csv.gz` has 64 numbers from 0 to 16 and the digit.

use std::path::Path;
use wengert::data::csv::{Header, Table};
use wengert::data::{Arrays, npy, npz};
use wengert::prelude::*;
use wengert::random::SplitMix64;
use wengert::recipe::{
    Aggregate, Batches, Cadence, EvaluateRecipe, InputRecipe, LastBatch, Length, Metric,
    Monitoring, StepRecipe, Transform,
};
use wengert::transform::{Draws, Examples};
use wengert::{GraphFile, Recipe, Scalar};

/// Images for testing; the other 1437 are for training.
pub const TEST: usize = 360;

/// The digits in an order fixed by a seed: `train_images`, `train_labels`, `test_images`,
/// `test_labels`, all u8.
pub fn digits() -> Result<Arrays> {
    let table =
        Table::read(concat!(env!("CARGO_MANIFEST_DIR"), "/data/digits.csv.gz"), Header::Absent)?;
    split(&table, 64, TEST, 1797)
}

/// Splits a table of images into parts for testing and training, in an order fixed by a seed. Each
/// line of the table has `pixels` pixels and a label. `test_images` and `test_labels` have `test`
/// rows, `train_images` and `train_labels` the others; all are u8.
pub(crate) fn split(table: &Table, pixels: usize, test: usize, seed: u64) -> Result<Arrays> {
    let (pixels, labels) = (table.slice(0..pixels, DType::U8)?, table.column(pixels, DType::U8)?);
    let order = SplitMix64::new(seed).permutation(table.rows());
    let (test, train) = order.split_at(test);
    let rows = |array: &Literal, rows: &[usize]| {
        let width = array.len() / array.shape()[0];
        let elements = array.as_slice::<u8>().unwrap_or_default();
        let taken: Vec<u8> = rows
            .iter()
            .flat_map(|row| &elements[row * width..(row + 1) * width])
            .copied()
            .collect();
        let mut shape = array.shape().to_vec();
        shape[0] = rows.len();
        Literal::from_vec(&shape, taken)
    };
    Ok(Arrays::from([
        ("train_images".into(), rows(&pixels, train)?),
        ("train_labels".into(), rows(&labels, train)?),
        ("test_images".into(), rows(&pixels, test)?),
        ("test_labels".into(), rows(&labels, test)?),
    ]))
}

/// The inputs `x`, pixels from 0 to 1, and `y` of a program, from the arrays `<part>_images` and
/// `<part>_labels`.
pub fn inputs(arrays: &Arrays, part: &str) -> Result<[(&'static str, Literal); 2]> {
    let array = |what: &str| {
        let name = format!("{part}_{what}");
        arrays.get(&name).ok_or_else(|| Diagnostic::new(format!("there is no array `{name}`")))
    };
    let images = array("images")?;
    let pixels = images.scalars().map(|pixel| pixel.to_f64() as f32 / 16.0).collect();
    let images = Literal::from_vec(images.shape(), pixels)?;
    Ok([("x", images), ("y", array("labels")?.convert(DType::I32))])
}

const BATCH: u32 = 32;
const EPOCHS: u32 = 20;
/// Number of training steps. The learning rate decreases until the last one.
const STEPS: u32 = EPOCHS * 1437u32.div_ceil(BATCH);

/// A perceptron with one hidden layer.
#[derive(Differentiable)]
struct Mlp {
    hidden: Linear,
    out: Linear,
    #[no_derivative]
    activation: Activation,
}

impl Mlp {
    fn new(pixels: usize, width: usize, digits: usize) -> Self {
        let (hidden, out) = (Linear::kaiming(pixels, width), Linear::new(width, digits));
        Mlp { hidden, out, activation: Activation::Relu }
    }

    fn call(&self, x: &Tensor) -> Tensor {
        self.out.call(&self.activation.call(&self.hidden.call(x)))
    }
}

fn model() -> Mlp {
    Mlp::new(64, 128, 10)
}

/// The functions `train_step`, `predict` and `loss`, and `init` of the model, over any batch size.
pub fn program() -> Result<Program> {
    let mut program = Program::new();
    program.function("train_step", |f| {
        let x = f.input("x", f32("B,64"));
        let y = f.input("y", i32("B"));
        let model = f.state("model", model());
        let (loss, gradient) = value_and_grad(&model, |m| cross_entropy(&m.call(&x), &y));
        let rate = optim::Rate::warmup_cosine(5e-3, 20, STEPS, 0.0);
        AdamW::new(rate).report_rate().step(f, &model, &gradient);
        f.output("loss", loss);
        f.output(optim::GRAD_NORM, optim::global_norm(&gradient));
    })?;
    program.function("predict", |f| {
        let x = f.input("x", f32("B,64"));
        let model = f.param("model", model());
        f.output("y", model.call(&x).softmax(1));
    })?;
    program.function("loss", |f| {
        let x = f.input("x", f32("B,64"));
        let y = f.input("y", i32("B"));
        let model = f.param("model", model());
        let logits = model.call(&x);
        f.output("loss", cross_entropy(&logits, &y));
        f.output("correct", logits.argmax(1).eq(&y).convert(DType::I32).sum());
    })?;
    Ok(program)
}

/// How the program is trained: 20 epochs, and an evaluation after each.
pub fn recipe() -> Recipe {
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
            metrics: vec![
                metric("loss", "loss", Aggregate::Mean),
                metric("accuracy", "correct", Aggregate::PerExample),
            ],
            every: Cadence::Epochs(1),
        }),
        batches: Batches {
            size: BATCH.into(),
            shuffle: Some(1),
            blocks: None,
            last: LastBatch::Smaller,
        },
        length: Length::Epochs(EPOCHS.into()),
        checkpoint: Cadence::Epochs(5),
        key_seed: 1,
        microbatches: 1,
        precision: None,
        monitoring: Monitoring::default(),
    }
}

/// Writes `digits.graph` (the program and its recipe), `digits.safetensors` (the weights of a
/// session), `digits.npz` (the data) and `x.npy` (the test images as input of `predict`).
///
/// Errors: those of writing; the session has no weights of the program.
pub fn write(
    folder: &Path,
    session: &Session,
    program: Program,
    recipe: Recipe,
    data: &Arrays,
) -> Result<()> {
    let test = recipe.evaluate.iter().flat_map(|e| &e.inputs).find(|i| i.input == "x");
    if let Some(input) = test {
        let all = Examples::all(Draws::new(recipe.key_seed, 0));
        npy::write(folder.join("x.npy"), &input.apply(data[&input.array].clone(), &all)?)?;
    }
    let arrays = data.iter().map(|(name, array)| (name.as_str(), array));
    npz::write(folder.join("digits.npz"), arrays)?;
    session.save_for(folder.join("digits.safetensors"), &program, "predict")?;
    let file = GraphFile { recipe: Some(recipe), ..GraphFile::new(program) };
    file.write(folder.join("digits.graph"))
}
