//! Graphs of any number of equations, of several shapes.

use wengert::control::{fold, scan};
use wengert::prelude::{AdamW, Linear, Program, value_and_grad};
use wengert::{DType, Differentiable, Initializer, Literal, Result, Tensor, TensorType};

/// Elements of a tensor: few, since nothing is run.
const WIDTH: usize = 8;

/// A shape of graphs. Each can expose a superlinear loop of a compiler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// One elementwise chain in which every value has two uses or three.
    Chain,
    /// Parallel layers, each with its own parameters and output.
    Layers,
    /// A deep network's training step: forward, backward, AdamW.
    Training,
    /// One sum of many terms of one input.
    Sum,
    /// Parameters, each with its own function, and one concatenation of all results.
    Concatenation,
    /// A loop whose step is a chain that captures a parameter for every link.
    Loop,
    /// Consecutive small loops, each with its own numbers.
    Loops,
}

/// The layers of a deep network.
#[derive(Differentiable)]
struct Deep {
    layers: Vec<Linear>,
}

impl Form {
    /// Every shape.
    pub const ALL: [Form; 7] = [
        Form::Chain,
        Form::Layers,
        Form::Training,
        Form::Sum,
        Form::Concatenation,
        Form::Loop,
        Form::Loops,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Form::Chain => "chain",
            Form::Layers => "layers",
            Form::Training => "training",
            Form::Sum => "sum",
            Form::Concatenation => "concatenation",
            Form::Loop => "loop",
            Form::Loops => "loops",
        }
    }

    /// A short description.
    pub fn description(self) -> &'static str {
        match self {
            Form::Chain => "one elementwise chain, every value used two or three times",
            Form::Layers => "layers side by side, each with parameters and an output of its own",
            Form::Training => "a deep network's training step: forward, backward, AdamW",
            Form::Sum => "one sum of many terms",
            Form::Concatenation => "one concatenation of many parts",
            Form::Loop => {
                "a loop whose step is a long chain, with a captured parameter for each link"
            }
            Form::Loops => "small loops one behind the other, each with numbers of its own",
        }
    }

    /// A program whose function `f` has about `equations` equations, including those of regions.
    ///
    /// Errors: those of the builder; none are known.
    pub fn program(self, equations: usize) -> Result<Program> {
        // Equations per unit and of the fixed part follow from two small graphs.
        let (few, many) = (8, 16);
        let (least, most) = (count(&self.of(few)?), count(&self.of(many)?));
        let each = (most - least) as f64 / (many - few) as f64;
        let units = (equations.saturating_sub(least) as f64 / each).round() as usize + few;
        self.of(units)
    }

    /// A program of `units` links, layers, terms or parts.
    fn of(self, units: usize) -> Result<Program> {
        let vector = |n: usize| TensorType::new(DType::F32, [n]);
        let mut program = Program::new();
        program.function("f", |f| match self {
            Form::Chain => {
                let (x, y) = (f.input("x", vector(WIDTH)), f.input("y", vector(WIDTH)));
                f.output("z", chain(&x, &y, units));
            }
            Form::Layers => {
                let x = f.input("x", TensorType::new(DType::F32, [4, WIDTH]));
                for i in 0..units {
                    let layer = f.param(&format!("layers.{i}"), Linear::new(WIDTH, WIDTH));
                    f.output(&format!("y{i}"), layer.call(&x).relu());
                }
            }
            Form::Training => {
                let x = f.input("x", TensorType::new(DType::F32, [4, WIDTH]));
                let layers = (0..units).map(|_| Linear::new(WIDTH, WIDTH)).collect();
                let model = f.state("model", Deep { layers });
                let (loss, gradient) = value_and_grad(&model, |model| {
                    let y = model.layers.iter().fold(x.clone(), |x, layer| layer.call(&x).tanh());
                    (&y * &y).sum()
                });
                AdamW::new(1e-3).step(f, &model, &gradient);
                f.output("loss", loss);
            }
            Form::Sum => {
                let x = f.input("x", vector(WIDTH));
                let term = |i: usize| (&x * i as f64).tanh();
                f.output("y", (1..units).fold(term(0), |sum, i| sum + term(i)));
            }
            Form::Concatenation => {
                let part = |_| Tensor::variable(vector(WIDTH), Initializer::Zeros);
                let parts: Vec<Tensor> = f.param("parts", (0..units).map(part).collect());
                let parts: Vec<Tensor> =
                    parts.iter().map(|part| part.tanh().reverse(&[0])).collect();
                f.output("y", Tensor::concatenate(&parts.iter().collect::<Vec<_>>(), 0));
            }
            Form::Loop => {
                let x = f.input("x", TensorType::new(DType::F32, [3, WIDTH]));
                let y = f.input("y", vector(WIDTH));
                let scale = || Tensor::variable(vector(WIDTH), Initializer::Zeros);
                let scales: Vec<Tensor> = f.param("scales", (0..units).map(|_| scale()).collect());
                let step = |y: &Tensor, x: &Tensor| {
                    let link = |y: Tensor, scale: &Tensor| (y * scale).tanh() + x;
                    let next = scales.iter().fold(y.clone(), link);
                    (next.clone(), next.exp())
                };
                let (last, all) = scan(&y, &x, step);
                f.output("last", last);
                f.output("all", all);
            }
            Form::Loops => {
                let x = f.input("x", TensorType::new(DType::F32, [3, WIDTH]));
                let y = f.input("y", vector(WIDTH));
                let step = |y: Tensor, i: usize| {
                    let numbers: Vec<f32> = (0..WIDTH).map(|k| (i * WIDTH + k) as f32).collect();
                    let numbers = Literal::from_vec(&[WIDTH], numbers);
                    fold(&y, &x, |y, x| match numbers {
                        Ok(numbers) => (y * x).tanh() + Tensor::constant(numbers),
                        Err(error) => Tensor::poisoned(error),
                    })
                };
                f.output("y", (0..units).fold(y, step));
            }
        })?;
        Ok(program)
    }
}

/// Links of four equations.
fn chain(x: &Tensor, y: &Tensor, links: usize) -> Tensor {
    let (mut a, mut b) = (x.clone(), y.clone());
    for _ in 0..links {
        let c = a.tanh();
        let d = &c * &b;
        let e = &d + &a;
        (a, b) = (e - c, d);
    }
    a
}

/// Number of equations of a program's functions, including those of regions.
pub fn count(program: &Program) -> usize {
    fn of(body: &wengert::core::graph::Body) -> usize {
        body.equations.iter().map(|e| 1 + e.regions.iter().map(|r| of(r)).sum::<usize>()).sum()
    }
    program.functions().iter().filter(|f| f.name == "f").map(|f| of(&f.body)).sum()
}
