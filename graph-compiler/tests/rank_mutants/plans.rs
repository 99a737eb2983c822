//! Plans of several ranks: training steps, sharded variables, and each collective.

use wengert_compiler::autodiff::operators::value_and_grad;
use wengert_compiler::pipeline::{Options, compile};
use wengert_compiler::ranks::{DataParallel, Sharding, Shards};
use wengert_core::build::FunctionBuilder;
use wengert_core::build::control::{cond, fori};
use wengert_core::graph::{Function, Program};
use wengert_core::op::{
    Attention, AttentionKind, ConvGeneralDilated, PReduceKind, ReduceWindow, WindowKind, Windows,
};
use wengert_core::plan::Plan;
use wengert_core::{
    Binding, DType, Initializer, Mesh, Scalar, Target, Tensor, TensorType, Verified,
};

fn f32s(shape: &[usize]) -> TensorType {
    TensorType::new(DType::F32, shape.iter().copied())
}

fn i32s(shape: &[usize]) -> TensorType {
    TensorType::new(DType::I32, shape.iter().copied())
}

fn variable(shape: &[usize]) -> Tensor {
    Tensor::variable(f32s(shape), Initializer::Zeros)
}

fn build(f: impl FnOnce(&mut FunctionBuilder)) -> Function {
    FunctionBuilder::build("step", f).unwrap_or_else(|e| panic!("{e}"))
}

/// Outputs the loss, and updates the model by SGD with momentum.
fn descend(f: &mut FunctionBuilder, shapes: &[&[usize]], loss: impl Fn(&[Tensor]) -> Tensor) {
    let all = || shapes.iter().map(|shape| variable(shape)).collect::<Vec<Tensor>>();
    let (model, moments) = (f.state("model", all()), f.state("moments", all()));
    let (loss, gradient) = value_and_grad(&model, |m| loss(m));
    for (i, ((w, m), g)) in model.iter().zip(&moments).zip(&gradient).enumerate() {
        let m = m * 0.9 + g;
        f.update(&format!("model.{i}"), &(w - &m * 0.1));
        f.update(&format!("moments.{i}"), &m);
    }
    f.output("loss", loss);
}

fn mlp(width: usize) -> Function {
    build(|f| {
        let (x, y) = (f.input("x", f32s(&[8, 6])), f.input("y", i32s(&[8])));
        descend(f, &[&[6, width], &[width], &[width, 8], &[8]], |m| {
            let hidden = (x.dot(&m[0]) + &m[1]).relu();
            (hidden.dot(&m[2]) + &m[3]).softmax_cross_entropy(&y).mean()
        });
    })
}

fn convnet() -> Function {
    build(|f| {
        let (x, y) = (f.input("x", f32s(&[8, 6, 6, 1])), f.input("y", i32s(&[8])));
        descend(f, &[&[3, 3, 1, 4], &[4], &[2, 2, 4, 6], &[6, 5]], |m| {
            let convolved =
                |x: &Tensor, w: &Tensor| Tensor::apply(ConvGeneralDilated::new(2), &[x, w]);
            let h = (convolved(&x, &m[0]) + &m[1]).relu();
            let windows = Windows::new(&[1, 2, 2, 1], &[1, 2, 2, 1]);
            let h = Tensor::apply(ReduceWindow { kind: WindowKind::Max, windows }, &[&h]);
            let h = convolved(&h, &m[2]).mean_axes(&[1, 2]);
            h.dot(&m[3]).softmax_cross_entropy(&y).mean()
        });
    })
}

fn attention() -> Function {
    build(|f| {
        let (x, y) = (f.input("x", i32s(&[8, 5])), f.input("y", i32s(&[8, 5])));
        descend(f, &[&[7, 8], &[8, 24], &[8, 7]], |m| {
            let h = m[0].gather_rows(&x);
            let heads = [8usize, 5, 3, 2, 4];
            let qkv = h.standardize(2, 1e-5).reshape([40usize, 8]).dot(&m[1]).reshape(heads);
            let part = |i: i64| qkv.slice_axis(2, i, i + 1).reshape([8usize, 5, 2, 4]);
            let attention = Attention {
                kind: AttentionKind::Value,
                causal: true,
                bias: false,
                prefix: false,
                scale: Scalar::of(0.5f64),
            };
            let [q, k, v] = [0, 1, 2].map(part);
            let out = Tensor::apply_many(attention, &[&q, &k, &v]).swap_remove(0);
            let h = h + out.reshape([8usize, 5, 8]);
            h.dot(&m[2]).softmax_cross_entropy(&y).mean()
        });
    })
}

fn on_mesh(mesh: &Mesh, body: impl FnOnce(&mut FunctionBuilder)) -> Function {
    build(|f| {
        f.mesh(mesh.axes().iter().cloned());
        body(f);
    })
}

/// Each collective over each of these lists of axes, on operands of its own.
fn every(mesh: &Mesh, groups: &[&[&str]]) -> Function {
    let axes: Vec<&str> = mesh.axes().iter().map(|(axis, _)| &**axis).collect();
    on_mesh(mesh, |f| {
        for (g, over) in groups.iter().copied().enumerate() {
            let n = mesh.size(over).unwrap();
            let rotation: Vec<(usize, usize)> = (0..n).map(|rank| (rank, (rank + 1) % n)).collect();
            let mut add = |name: &str, shape: &[usize], op: &dyn Fn(&Tensor) -> Tensor| {
                let x = f.input(&format!("{name}{g}"), f32s(shape).varying_over(&axes));
                f.output(&format!("of_{name}{g}"), op(&x.sin()));
            };
            for kind in PReduceKind::ALL {
                add(&format!("{kind:?}"), &[3, 5], &|x| match kind {
                    PReduceKind::Sum => x.psum(over),
                    PReduceKind::Max => x.pmax(over),
                    PReduceKind::Min => x.pmin(over),
                });
            }
            add("gather", &[3, 2], &|x| x.all_gather(over, 1));
            add("gathered", &[3, 2], &|x| x.all_gather_invariant(over, 0));
            add("scatter", &[2 * n, 3], &|x| x.psum_scatter_tiled(over, 0));
            add("exchange", &[n, 6], &|x| x.all_to_all(over, 0, 1));
            add("permute", &[7], &|x| x.ppermute(over, &rotation));
            add("send", &[7], &|x| x.ppermute(over, &[(1, 0)]));
        }
    })
}

/// Collectives that depend on each other, in a loop, after it, and in branches.
fn control(mesh: &Mesh, first: &str, second: &str) -> Function {
    let axes: Vec<&str> = mesh.axes().iter().map(|(axis, _)| &**axis).collect();
    on_mesh(mesh, |f| {
        let x = f.input("x", f32s(&[6]).varying_over(&axes));
        let summed = fori(3, &x, |_, x| {
            let sum = x.psum(first) * 0.25 + x;
            sum.pmax(second) + x
        });
        let gathered = summed.all_gather(first, 0).sum_axes(&[0]);
        let whole = gathered.psum(axes.as_slice());
        let chosen = cond(
            &whole.sum().gt(0.0),
            || x.psum(first).psum(second),
            || x.pmin(second).pmax(first) * 2.0,
        );
        f.output("gathered", &gathered);
        f.output("chosen", &chosen);
    })
}

/// Two layers, of which the first is divided by columns and the second by rows.
fn tensor_parallel(mesh: &Mesh) -> Function {
    on_mesh(mesh, |f| {
        let x = f.input("x", f32s(&[4, 6]).varying_over(&["data"]));
        let w = f.input("w", f32s(&[6, 4]).varying_over(&["tensor"]));
        let v = f.input("v", f32s(&[4, 3]).varying_over(&["tensor"]));
        let (loss, (dw, dv)) = value_and_grad(&(w, v), |(w, v)| {
            let y = x.dot(w).tanh().dot(v).psum("tensor");
            y.square().mean().pmean("data")
        });
        f.output("loss", loss);
        f.output("dw", dw);
        f.output("dv", dv);
    })
}

/// A plan with its name.
pub type Named = (String, Plan);

fn square() -> Mesh {
    Mesh::new([("data", 2), ("tensor", 2)]).unwrap()
}

/// Each collective along both axes of a square of ranks, as calls or with starts and waits.
pub fn along_both_axes(overlaps: bool) -> Plan {
    let target = Target { overlaps_collectives: overlaps, ..Target::cpu() };
    plan_for(every(&square(), &[&["data"], &["tensor"]]), &target).into_inner()
}

/// All plans, compiled for the CPU.
pub fn plans() -> Vec<Named> {
    let mut functions: Vec<(String, Function)> = Vec::new();
    let parallel = |function: &Function, ranks: usize, microbatches: usize| {
        let options = DataParallel::new(["x", "y"]).ranks(ranks).microbatches(microbatches);
        options.apply(function).unwrap_or_else(|e| panic!("{e}"))
    };
    for (name, function) in [("mlp", mlp(8)), ("convnet", convnet()), ("attention", attention())] {
        for (ranks, microbatches) in [(2, 4), (4, 4)] {
            let of_rank = parallel(&function, ranks, microbatches);
            functions.push((format!("{name} on {ranks}"), of_rank));
        }
    }
    let wide = mlp(192);
    for ranks in [2, 4] {
        let of_rank = parallel(&wide, ranks, ranks);
        for sharding in [Sharding::States, Sharding::Gradients, Sharding::Parameters] {
            let sharded = Shards::choose(&of_rank, sharding, []).apply(&of_rank).unwrap();
            functions.push((format!("{sharding:?} on {ranks}"), sharded));
        }
    }
    let line = |ranks: usize| Mesh::new([("data", ranks)]).unwrap();
    let square = square();
    for ranks in [2, 4] {
        let function = every(&line(ranks), &[&["data"]]);
        functions.push((format!("each collective on {ranks}"), function));
        functions.push((format!("loops on {ranks}"), control(&line(ranks), "data", "data")));
    }
    let groups: [(&str, &[&[&str]]); 4] = [
        ("data", &[&["data"]]),
        ("data and tensor", &[&["data"], &["tensor"]]),
        ("both", &[&["data", "tensor"]]),
        ("both orders", &[&["tensor", "data"], &["data", "tensor"]]),
    ];
    for (name, groups) in groups {
        functions.push((format!("each collective over {name}"), every(&square, groups)));
    }
    functions.push(("loops on 2x2".into(), control(&square, "data", "tensor")));
    functions.push(("tensor parallel".into(), tensor_parallel(&square)));
    functions.into_iter().map(|(name, function)| (name, plan(function).into_inner())).collect()
}

fn plan(function: Function) -> Verified<Plan> {
    plan_for(function, &Target::cpu())
}

fn plan_for(function: Function, target: &Target) -> Verified<Plan> {
    let name = function.name.clone();
    let program = Program::from_functions(vec![function]).unwrap();
    compile(&program, &name, &Binding::new(), target, &Options::default())
        .unwrap_or_else(|e| panic!("{e}"))
}
