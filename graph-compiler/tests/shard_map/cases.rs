//! The cases of `generate.py`.

use wengert_compiler::autodiff::operators::grad;
use wengert_compiler::vmap::operators::vmap;
use wengert_core::op::AllGather;
use wengert_core::{DType, Mesh, Tensor, TensorType};

/// How a case is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// JAX has no derivative.
    Value,
    /// Value and derivatives are exact.
    Linear,
    /// Values, derivatives, and the derivative of the cotangents.
    Curved,
}

type Body = Box<dyn Fn(&[Tensor]) -> Vec<Tensor>>;

/// A function of the ranks of a mesh.
pub struct Case {
    pub name: String,
    pub mesh: Mesh,
    pub inputs: Vec<TensorType>,
    pub function: Body,
    pub kind: Kind,
}

fn f64s(shape: &[usize], varying: &[&str]) -> TensorType {
    TensorType::new(DType::F64, shape.iter().copied()).varying_over(varying)
}

/// The extents of a matrix from those along an axis and along the other one.
fn around(axis: usize, extent: usize, other: usize) -> Vec<usize> {
    if axis == 0 { vec![extent, other] } else { vec![other, extent] }
}

type Over = Vec<String>;

fn gather_invariant(over: Over, axis: usize, size: usize) -> AllGather {
    AllGather { over, axis, size, tiled: false, invariant: true }
}

type Unary = Box<dyn Fn(&Tensor) -> Tensor>;
type Along = Box<dyn Fn(&Tensor, Over) -> Tensor>;

/// Each collective of groups of `size` ranks, with the extents of its operand.
fn collectives(over: &[String], size: usize) -> Vec<(String, Unary, Vec<usize>)> {
    let shape = if size == 2 { [2, 2] } else { [1, 2] };
    let mut all: Vec<(String, Unary, Vec<usize>)> = Vec::new();
    let mut add = |name: String, shape: &[usize], f: Along| {
        let over = over.to_vec();
        all.push((name, Box::new(move |x: &Tensor| f(x, over.clone())), shape.to_vec()));
    };
    add("psum".into(), &shape, Box::new(|x, over| x.psum(over)));
    add("pmean".into(), &shape, Box::new(|x, over| x.pmean(over)));
    add("pmax".into(), &shape, Box::new(|x, over| x.pmax(over)));
    add("pmin".into(), &shape, Box::new(|x, over| x.pmin(over)));
    for axis in 0..3 {
        let gather = Box::new(move |x: &Tensor, over: Over| x.all_gather(over, axis));
        add(format!("all_gather_{axis}"), &shape, gather);
        let invariant = Box::new(move |x: &Tensor, over: Over| {
            Tensor::apply(gather_invariant(over, axis, size), &[x])
        });
        add(format!("all_gather_invariant_{axis}"), &shape, invariant);
    }
    for axis in 0..2 {
        let gather = Box::new(move |x: &Tensor, over: Over| x.all_gather_tiled(over, axis));
        add(format!("all_gather_tiled_{axis}"), &shape, gather);
        let invariant = Box::new(move |x: &Tensor, over: Over| x.all_gather_invariant(over, axis));
        add(format!("all_gather_invariant_tiled_{axis}"), &shape, invariant);
        let scatter = Box::new(move |x: &Tensor, over: Over| x.psum_scatter(over, axis));
        add(format!("psum_scatter_{axis}"), &around(axis, size, 2), scatter);
        let scatter = Box::new(move |x: &Tensor, over: Over| x.psum_scatter_tiled(over, axis));
        add(format!("psum_scatter_tiled_{axis}"), &around(axis, 2 * size, 1), scatter);
        for concat in 0..2 {
            let exchange = move |x: &Tensor, over: Over| x.all_to_all(over, axis, concat);
            let name = format!("all_to_all_{axis}_{concat}");
            add(name, &around(axis, size, 2), Box::new(exchange));
            let exchange = move |x: &Tensor, over: Over| x.all_to_all_tiled(over, axis, concat);
            let name = format!("all_to_all_tiled_{axis}_{concat}");
            add(name, &around(axis, 4, 2), Box::new(exchange));
        }
    }
    let rotation: Vec<(usize, usize)> = (0..size).map(|rank| (rank, (rank + 1) % size)).collect();
    let rotate = move |x: &Tensor, over: Over| x.ppermute(over, &rotation);
    add("ppermute_rotation".into(), &shape, Box::new(rotate));
    let partial = |x: &Tensor, over: Over| x.ppermute(over, &[(1, 0)]);
    add("ppermute_partial".into(), &shape, Box::new(partial));
    let index = |x: &Tensor, over: Over| x * Tensor::axis_index(over).convert(DType::F64);
    add("axis_index".into(), &shape, Box::new(index));
    all
}

/// Each collective on both meshes, along their axes.
fn linear(name: &str, mesh: &Mesh, groups: &[&[&str]], all: &mut Vec<Case>) {
    let axes: Vec<&str> = mesh.axes().iter().map(|(axis, _)| &**axis).collect();
    for over in groups.iter().copied() {
        let (size, label) = (mesh.size(over).unwrap(), over.join("+"));
        let over_names: Over = over.iter().map(|axis| axis.to_string()).collect();
        let mut add = |label: String, input: TensorType, kind: Kind, function: Body| {
            let (name, mesh) = (format!("{name}.{label}"), mesh.clone());
            all.push(Case { name, mesh, inputs: vec![input], function, kind });
        };
        let cases = || collectives(&over_names, size).into_iter();
        for ((name, f, shape), (_, mapped, _)) in cases().zip(cases()) {
            let kind = if ["pmax", "pmin"].contains(&&*name) { Kind::Value } else { Kind::Linear };
            let one = Box::new(move |x: &[Tensor]| vec![f(&x[0])]);
            add(format!("{label}.{name}"), f64s(&shape, &axes), kind, one);
            if mesh.axes().len() == 2 && over == ["tensor"] {
                let each = Box::new(move |x: &[Tensor]| vec![vmap(&x[0], mapped.as_ref())]);
                let ty = f64s(&[&[3][..], &shape].concat(), &axes);
                add(format!("{label}.vmap.{name}"), ty, kind, each);
            }
        }
        let others: Vec<&str> = axes.iter().copied().filter(|a| !over.contains(a)).collect();
        let names = over_names.clone();
        let vary = Box::new(move |x: &[Tensor]| vec![x[0].pvary(names.clone())]);
        add(format!("{label}.pvary"), f64s(&[2], &others), Kind::Linear, vary);
        let index = Box::new(move |_: &[Tensor]| vec![Tensor::axis_index(over_names.clone())]);
        add(format!("{label}.index"), f64s(&[], &[]), Kind::Value, index);
    }
}

fn mlp(x: &[Tensor]) -> Vec<Tensor> {
    let [x, y, w, b, v] = x else { panic!("five inputs") };
    vec![((x.dot(w) + b).tanh().dot(v) - y).square().mean().pmean("data")]
}

fn tensor_parallel(x: &[Tensor]) -> Vec<Tensor> {
    let y = x[0].dot(&x[1]).tanh().dot(&x[2]).psum("tensor");
    let loss = y.square().mean().pmean("data");
    vec![y, loss]
}

fn gathered(x: &Tensor, over: &[&str]) -> Vec<Tensor> {
    let all = x.all_gather_tiled(over, 0);
    vec![all.sin().sum() * x * x + x]
}

fn gathered_invariant(x: &Tensor, over: &[&str]) -> Vec<Tensor> {
    let all = x.all_gather_invariant(over, 0);
    vec![&all * &all, all.sin().sum() * x]
}

fn varied(x: &[Tensor]) -> Vec<Tensor> {
    let (w, x) = (&x[0], &x[1]);
    vec![(w.square().pvary("data") * x).psum("data"), w * w * x]
}

fn parameters_by_part(x: &[Tensor]) -> Vec<Tensor> {
    let whole = x[1].all_gather_tiled("data", 1);
    vec![x[0].dot(&whole).tanh().square().mean().pmean("data")]
}

fn update_by_part(x: &[Tensor]) -> Vec<Tensor> {
    let (x, w) = (&x[0], &x[1]);
    let gradient = grad(&w.pvary("data"), |w| x.dot(w).sin().sum());
    let part = gradient.psum_scatter_tiled("data", 0);
    vec![w - part.square().all_gather_invariant("data", 0)]
}

fn exchanged(x: &[Tensor]) -> Vec<Tensor> {
    let there = x[0].all_to_all_tiled("data", 0, 1);
    vec![there.square().all_to_all_tiled("data", 1, 0) * &x[0]]
}

fn ring(x: &[Tensor]) -> Vec<Tensor> {
    let rotation = [(0, 1), (1, 2), (2, 3), (3, 0)];
    let (mut sum, mut passed) = (x[0].square(), x[0].clone());
    for _ in 0..3 {
        passed = passed.ppermute("data", &rotation);
        sum = sum + &passed * &x[0];
    }
    vec![sum]
}

fn softmax(x: &[Tensor]) -> Vec<Tensor> {
    let greatest = x[0].stop_gradient().max_axes(&[0]).pmax("tensor");
    let e = (&x[0] - greatest).exp();
    let sum = e.sum().psum("tensor");
    vec![e / sum]
}

/// Shapes of inputs, with the axes over which they vary.
type Inputs<'a> = &'a [(&'a [usize], &'a [&'a str])];

/// All cases.
pub fn cases() -> Vec<Case> {
    let line = Mesh::new([("data", 4)]).unwrap();
    let square = Mesh::new([("data", 2), ("tensor", 2)]).unwrap();
    let mut all = Vec::new();
    linear("4", &line, &[&["data"]], &mut all);
    let groups: [&[&str]; 4] = [&["data"], &["tensor"], &["data", "tensor"], &["tensor", "data"]];
    linear("2x2", &square, &groups, &mut all);
    let mut add = |name: &str, mesh: &Mesh, inputs: Inputs<'_>, function: Body| {
        let inputs = inputs.iter().map(|(shape, varying)| f64s(shape, varying)).collect();
        let (name, mesh) = (name.into(), mesh.clone());
        all.push(Case { name, mesh, inputs, function, kind: Kind::Curved });
    };
    let (d, t, both): (&[&str], &[&str], &[&str]) = (&["data"], &["tensor"], &["data", "tensor"]);
    add(
        "mlp",
        &line,
        &[(&[3, 2], d), (&[3, 2], d), (&[2, 3], &[]), (&[3], &[]), (&[3, 2], &[])],
        Box::new(mlp),
    );
    let layers: Inputs<'_> = &[(&[2, 3], d), (&[3, 2], t), (&[2, 2], t)];
    add("tensor_parallel", &square, layers, Box::new(tensor_parallel));
    let pair: &[usize] = &[2];
    add("gathered", &line, &[(pair, d)], Box::new(|x| gathered(&x[0], &["data"])));
    let over_both = Box::new(|x: &[Tensor]| gathered(&x[0], &["tensor", "data"]));
    add("gathered_over_both", &square, &[(pair, both)], over_both);
    let over_one = Box::new(|x: &[Tensor]| gathered(&x[0], &["tensor"]));
    add("gathered_over_one", &square, &[(pair, both)], over_one);
    let invariant = Box::new(|x: &[Tensor]| gathered_invariant(&x[0], &["data"]));
    add("gathered_invariant", &line, &[(pair, d)], invariant);
    let invariant = Box::new(|x: &[Tensor]| gathered_invariant(&x[0], &["tensor"]));
    add("gathered_invariant_over_one", &square, &[(pair, both)], invariant);
    add("varied", &square, &[(pair, &[]), (pair, both)], Box::new(varied));
    let parts: Inputs<'_> = &[(&[2, 2], d), (&[2, 1], d)];
    add("parameters_by_part", &line, parts, Box::new(parameters_by_part));
    let whole: Inputs<'_> = &[(&[2, 4], d), (&[4], &[])];
    add("update_by_part", &line, whole, Box::new(update_by_part));
    add("exchanged", &line, &[(&[4, 1], d)], Box::new(exchanged));
    add("ring", &line, &[(pair, d)], Box::new(ring));
    add("softmax", &square, &[(&[3], both)], Box::new(softmax));
    all
}
