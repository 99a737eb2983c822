//! Networks in which the tests plant faults.

use wengert::Location;
use wengert::autodiff::function::{Grad, grad};
use wengert::core::graph::{self, Body, Function};
use wengert::core::{Id, LocationId, LocationTable, Scalar};
use wengert::isolate::cut::Case;
use wengert::models::{Convnet, ConvnetSettings, Mlp};
use wengert::nn::loss::CrossEntropy;
use wengert::prelude::*;
use wengert_testing::Random;

/// A function with values: floats in ±1, integers 0 and 1.
pub fn case(function: &Function, seed: u64) -> Case {
    let mut random = Random(seed);
    let inputs = (0..function.inputs.len()).map(|n| {
        let ty = function.input_type(n);
        if ty.dtype.is_float() {
            return random.literal(ty);
        }
        let count = ty.elements().unwrap();
        let values: Vec<Scalar> =
            (0..count).map(|_| Scalar::from_i64(ty.dtype, random.below(2) as i64)).collect();
        Literal::from_scalars(ty.dtype, &ty.extents().unwrap(), &values).unwrap()
    });
    Case::plain(function, &inputs.collect::<Vec<_>>()).unwrap()
}

/// The function with a line of its own for each equation: `name:1:1`, `name:2:1`, ….
fn lined(function: &Function, name: &str) -> Function {
    fn body(old: &Body, name: &str, table: &mut LocationTable, line: &mut u32) -> Body {
        let mut new = old.clone();
        for equation in &mut new.equations {
            *line += 1;
            equation.location = table.intern(Location::source(name, *line, 1));
            for region in &mut equation.regions {
                *region = body(region, name, table, line).into();
            }
        }
        new
    }
    let (mut table, mut line) = (LocationTable::default(), 0);
    let mut function = function.clone();
    function.body = body(&function.body, name, &mut table, &mut line);
    function.inputs.iter_mut().for_each(|input| input.location = LocationId::new(0));
    function.locations = table;
    function
}

fn built(build: impl FnOnce(&mut FunctionBuilder)) -> Program {
    let mut program = Program::new();
    program.function("f", build).unwrap();
    program
}

fn mlp_program() -> Program {
    built(|f| {
        let x = f.input("x", f32("4,6"));
        let labels = f.input("labels", i32("4"));
        let model = f.param("model", Mlp::new(&[6, 8, 8, 3], Activation::Tanh));
        let logits = model.call(&x);
        f.output("loss", CrossEntropy::default().call(&logits, &labels));
        f.output("norm", (&logits * &logits).sum().sqrt());
    })
}

fn attention_program() -> Program {
    built(|f| {
        let x = f.input("x", f32("2,5,8"));
        let weight = f.param("weight", Tensor::variable(f32("8,24").unwrap(), Initializer::Zeros));
        let projected = x.matmul(&weight);
        let heads = |t: &Tensor| t.unflatten(-1, [2, 4]).permute([0, 2, 1, 3]);
        let parts: Vec<Tensor> = projected.chunk(3, -1).iter().map(heads).collect();
        let scores = Tensor::einsum("bhqd,bhkd->bhqk", &parts[..2]) / 2.0;
        let hidden = scores.ones_like().triu(1).gt(0.0);
        // The mask is meant: its infinities are no fault.
        let masked = scores.masked_fill(&hidden, f32::NEG_INFINITY);
        let powers = (&masked - masked.max_keepdims(-1)).exp();
        let attention = &powers / powers.sum_keepdims(-1);
        let mixed = attention.matmul(&parts[2]).permute([0, 2, 1, 3]).flatten(-2);
        let deviation = &mixed - mixed.mean_keepdims(-1);
        let normal = deviation / (mixed.var_keepdims(-1) + 1e-3).sqrt();
        let gate = (&normal + &x).logistic();
        f.output("loss", (gate * &normal).square().mean());
        f.output("y", normal);
    })
}

fn lstm_program() -> Program {
    built(|f| {
        let x = f.input("x", f32("5,2,3"));
        let model = f.param("model", Lstm::new(3, 4));
        let (all, last) = model.call(&x, &model.zero_state(2));
        let score = (last.cell.exp() - &last.hidden).sum();
        f.output("loss", (all.square().mean() + score / 8.0).sqrt());
        f.output("all", all);
    })
}

fn convnet_program() -> Program {
    let settings = ConvnetSettings {
        image: [4, 4],
        channels: 2,
        features: [3, 4],
        width: 5,
        classes: 3,
        dropout: 0.0,
    };
    built(|f| {
        let x = f.input("x", f32("2,4,4,2"));
        let labels = f.input("labels", i32("2"));
        let model = f.param("model", Convnet::new(&settings));
        let logits = model.call(&x, None);
        f.output("loss", CrossEntropy::default().call(&logits, &labels));
        f.output("probabilities", logits.softmax(-1));
    })
}

/// A network and its gradient by all floats.
pub struct Network {
    pub name: &'static str,
    pub forward: Case,
    pub gradient: Case,
}

/// A network of each kind.
pub fn networks() -> Vec<Network> {
    let programs = [
        ("mlp", mlp_program()),
        ("attention", attention_program()),
        ("lstm", lstm_program()),
        ("convnet", convnet_program()),
    ];
    let network = |(seed, (name, program)): (usize, (&'static str, Program))| {
        let function = lined(program.get("f").unwrap(), name);
        let floats =
            (0..function.inputs.len()).filter(|n| function.input_type(*n).dtype.is_float());
        let wrt: Vec<&str> = floats.map(|n| function.inputs[n].name.as_str()).collect();
        let request = Grad { of: Some("loss"), wrt: &wrt, value: true, seed: false };
        let program = graph::Program::from_functions(vec![function.clone()]).unwrap();
        let gradient = grad(&program, "f", &request).unwrap().function;
        let gradient = lined(&gradient, &format!("{name}_gradient"));
        let seed = seed as u64 + 1;
        Network { name, forward: case(&function, seed), gradient: case(&gradient, seed) }
    };
    programs.into_iter().enumerate().map(network).collect()
}

/// The network of a name.
pub fn network<'n>(networks: &'n [Network], name: &str) -> &'n Network {
    networks.iter().find(|network| network.name == name).unwrap()
}

/// The line of the first equation of an op, in the order of the run.
pub fn first(body: &Body, op: &str, locations: &LocationTable) -> Option<String> {
    body.equations.iter().find_map(|equation| {
        let inside = equation.regions.iter().find_map(|region| first(region, op, locations));
        let line = || locations.origin(equation.location).to_string();
        inside.or_else(|| (equation.op.name() == op).then(line))
    })
}
