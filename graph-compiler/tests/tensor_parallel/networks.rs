//! Training steps, divided as in Megatron-LM.

use super::arranged::{Case, outputs, outputs_of_shards};
use wengert_compiler::autodiff::operators::value_and_grad;
use wengert_compiler::ranks::{DataParallel, Sharding, Shards};
use wengert_core::build::FunctionBuilder;
use wengert_core::graph::Function;
use wengert_core::op::{Attention, AttentionKind};
use wengert_core::{DType, Scalar, Tensor};
use wengert_testing::ranks::{build, count, f32s, i32s, inputs, param};

/// SGD, or an optimiser with a moment, whose gradients are clipped by their norm.
fn update(f: &mut FunctionBuilder, model: &[Tensor], gradient: &[Tensor], moments: bool) {
    let norm = gradient.iter().map(|g| g.square().sum()).reduce(|a, b| a + b).unwrap().sqrt();
    for (i, (w, g)) in model.iter().zip(gradient).enumerate() {
        let shape: Vec<usize> = w.shape().iter().map(|d| d.as_extent().unwrap()).collect();
        if !moments {
            f.update(&format!("model.{i}"), &(w - g * 0.1));
            continue;
        }
        let moment = f.state(&format!("moment.{i}"), param(&shape)) * 0.9;
        let moment = moment + g / (&norm + 1.0) * 0.1;
        f.update(&format!("moment.{i}"), &moment);
        f.update(&format!("model.{i}"), &(w - moment * 0.1 - w * 0.001));
    }
    if moments {
        f.output("norm", norm);
    }
}

/// An MLP with a residual addition.
fn mlp(moments: bool) -> Function {
    build("step", |f| {
        let x = f.input("x", f32s(&[8, 6]));
        let y = f.input("y", f32s(&[8, 6]));
        let shapes: [&[usize]; 4] = [&[6, 8], &[8], &[8, 6], &[6]];
        let model = f.state("model", shapes.map(param).to_vec());
        let (loss, gradient) = value_and_grad(&model, |m| {
            let hidden = (x.dot(&m[0]) + &m[1]).tanh();
            (&x + hidden.dot(&m[2]) + &m[3] - &y).square().mean()
        });
        update(f, &model, &gradient, moments);
        f.output("loss", loss);
    })
}

#[test]
fn a_step_of_sgd() {
    let case = Case {
        function: mlp(false),
        batch: &["x", "y"],
        classes: 1,
        splits: &[("model.0", [1, 1]), ("model.2", [0, 1])],
        // The bias of the hidden layer follows.
        divided: &[("model.0", "1"), ("model.1", "0"), ("model.2", "0")],
    };
    case.check(&[2, 4, 8], 4);
    let (_, of_rank) = case.of_rank(2);
    // One sum in the forward pass, and none backward: x has no gradient.
    let counts = ["psum", "all_gather", "dynamic_slice"].map(|op| count(&of_rank, op));
    assert_eq!(counts, [1, 0, 0], "{of_rank}");
}

#[test]
fn moments_and_norms_of_divided_gradients() {
    let case = Case {
        function: mlp(true),
        batch: &["x", "y"],
        classes: 1,
        splits: &[("model.0", [1, 1]), ("model.2", [0, 1])],
        divided: &[
            ("model.0", "1"),
            ("model.1", "0"),
            ("model.2", "0"),
            ("moment.0", "1"),
            ("moment.1", "0"),
            ("moment.2", "0"),
        ],
    };
    case.check(&[2, 4], 4);
    let (_, of_rank) = case.of_rank(2);
    // The forward sum, and three squares of divided gradients.
    let counts = ["psum", "all_gather", "dynamic_slice"].map(|op| count(&of_rank, op));
    assert_eq!(counts, [4, 0, 0], "{of_rank}");
}

/// The parts of tensor parallelism are divided among the ranks along `data`, without a change of
/// bits.
#[test]
fn shards_of_parts() {
    let function = build("step", |f| {
        let x = f.input("x", f32s(&[8, 40]));
        let shapes: [&[usize]; 3] = [&[40, 64], &[64, 40], &[2048]];
        let model = f.state("model", shapes.map(param).to_vec());
        let (loss, gradient) = value_and_grad(&model, |m| {
            let y = x.dot(&m[0]).tanh().dot(&m[1]) + m[2].slice_axis(0, 0, 40);
            y.square().sum() * (1.0 / 64.0)
        });
        update(f, &model, &gradient, true);
        f.output("loss", loss);
    });
    let case = Case {
        function,
        batch: &["x"],
        classes: 1,
        splits: &[("model.0", [1, 1]), ("model.1", [0, 1])],
        divided: &[],
    };
    let (splits, of_rank) = case.of_rank(2);
    let given = inputs(&case.function, 1, 3);
    for data in [1, 2, 4] {
        let both = DataParallel::new(["x"]).ranks(data).microbatches(4).apply(&of_rank).unwrap();
        let wanted = outputs(&both, case.batch, &splits, &given);
        for sharding in Sharding::ALL {
            let shards = Shards::choose(&both, sharding, []);
            let sharded = shards.apply(&both).unwrap();
            let divided: Vec<(&str, usize)> = shards.iter().collect();
            let moments = [("moment.0", 0), ("moment.1", 0), ("moment.2", 0)];
            let expected = match (data, sharding) {
                (1, _) | (_, Sharding::Replicated) => vec![],
                (_, Sharding::Parameters) => {
                    [&[("model.0", 0), ("model.1", 0), ("model.2", 0)], &moments[..]].concat()
                }
                _ => moments.to_vec(),
            };
            assert_eq!(divided, expected, "{data}, {sharding:?}");
            let found = outputs_of_shards(&sharded, case.batch, &splits, &shards, &given);
            assert!(found == wanted, "{data}, {sharding:?}: bits differ");
        }
    }
    // A function without axis `data`, such as an evaluation, runs on all ranks of the mesh.
    let both = DataParallel::new(["x"]).ranks(2).microbatches(4).apply(&of_rank).unwrap();
    for sharding in [Sharding::Replicated, Sharding::Parameters] {
        let shards = Shards::choose(&both, sharding, []);
        assert_eq!(shards.apply(&of_rank).unwrap().mesh, both.mesh);
    }
}

const HEADS: usize = 4;

/// The type of a projection's weight, and its heads.
#[derive(Clone, Copy, PartialEq)]
enum Projections {
    /// Queries, keys and values side by side in one matrix, and one operand of attention.
    Packed,
    /// A matrix each; two heads of queries share one of keys and values.
    Grouped,
}

/// A transformer of one layer with dropout, and its update.
fn transformer(projections: Projections) -> Function {
    build("step", |f| {
        const B: usize = 4;
        let x = f.input("tokens", i32s(&[B, 3]));
        let y = f.input("targets", i32s(&[B, 3]));
        let key = f.key("key");
        let packed = projections == Projections::Packed;
        let qkv: &[&[usize]] = if packed { &[&[8, 24]] } else { &[&[8, 8], &[8, 4], &[8, 4]] };
        let others: [&[usize]; 6] = [&[7, 8], &[8, 8], &[8, 16], &[16], &[16, 8], &[8, 7]];
        let shapes: Vec<&[usize]> = others.iter().chain(qkv).copied().collect();
        let model = shapes.iter().map(|shape| param(shape)).collect::<Vec<Tensor>>();
        let model = f.state("model", model);
        let mask = key.dropout_mask(DType::F32, [B, 3, 16], 0.3);
        let attention = Attention {
            kind: AttentionKind::Value,
            causal: true,
            bias: false,
            prefix: false,
            scale: Scalar::of(0.5f64),
        };
        let attend = |n: &Tensor, m: &[Tensor]| {
            let heads = |w: &Tensor, heads: usize| n.dot(w).reshape([B, 3, heads, 2]);
            let operands = match packed {
                true => vec![n.dot(&m[6]).reshape([B, 3, 3, HEADS, 2])],
                false => vec![heads(&m[6], HEADS), heads(&m[7], 2), heads(&m[8], 2)],
            };
            let operands: Vec<&Tensor> = operands.iter().collect();
            let out = Tensor::apply_many(attention, &operands).swap_remove(0);
            out.reshape([B, 3, 8]).dot(&m[1])
        };
        let (loss, gradient) = value_and_grad(&model, |m| {
            let h = m[0].gather_rows(&x);
            let h = &h + attend(&h.standardize(2, 1e-1), m);
            let hidden = (h.standardize(2, 1e-1).dot(&m[2]) + &m[3]).tanh() * &mask;
            let h = h + hidden.dot(&m[4]);
            h.dot(&m[5]).softmax_cross_entropy(&y).mean()
        });
        update(f, &model, &gradient, true);
        f.output("loss", loss);
    })
}

#[test]
fn a_transformer_with_packed_projections() {
    let case = Case {
        function: transformer(Projections::Packed),
        batch: &["tokens", "targets"],
        classes: 7,
        splits: &[
            ("model.1", [0, 1]),
            ("model.2", [1, 1]),
            ("model.4", [0, 1]),
            ("model.6", [1, 3]),
        ],
        divided: &[
            ("model.1", "0"),
            ("model.2", "1"),
            ("model.3", "0"),
            ("model.4", "0"),
            ("model.6", "1/3"),
            ("moment.1", "0"),
            ("moment.2", "1"),
            ("moment.3", "0"),
            ("moment.4", "0"),
            ("moment.6", "1/3"),
        ],
    };
    case.check(&[2, 4], 4);
    let (_, of_rank) = case.of_rank(2);
    // Attention and the MLP have one sum each forward, and one backward; five gradients are in the
    // norm. The dropout's mask is cut.
    let counts = ["psum", "all_gather", "dynamic_slice"].map(|op| count(&of_rank, op));
    assert_eq!(counts, [4 + 5, 0, 1], "{of_rank}");
}

#[test]
fn a_transformer_with_grouped_queries() {
    let case = Case {
        function: transformer(Projections::Grouped),
        batch: &["tokens", "targets"],
        classes: 7,
        splits: &[
            ("model.1", [0, 1]),
            ("model.2", [1, 1]),
            ("model.4", [0, 1]),
            ("model.[678]", [1, 1]),
        ],
        divided: &[
            ("model.1", "0"),
            ("model.2", "1"),
            ("model.3", "0"),
            ("model.4", "0"),
            ("model.6", "1"),
            ("model.7", "1"),
            ("model.8", "1"),
            ("moment.1", "0"),
            ("moment.2", "1"),
            ("moment.3", "0"),
            ("moment.4", "0"),
            ("moment.6", "1"),
            ("moment.7", "1"),
            ("moment.8", "1"),
        ],
    };
    case.check(&[2], 4);
    let (_, of_rank) = case.of_rank(2);
    // Backward, each of the three projections has a sum.
    let counts = ["psum", "all_gather", "dynamic_slice"].map(|op| count(&of_rank, op));
    assert_eq!(counts, [6 + 7, 0, 1], "{of_rank}");
}

/// Embeddings and the last layer divided too: what follows no division is gathered.
#[test]
fn divided_embeddings_and_logits_are_gathered() {
    let case = Case {
        function: transformer(Projections::Packed),
        batch: &["tokens", "targets"],
        classes: 7,
        splits: &[("model.0", [1, 1]), ("model.5", [0, 1]), ("model.3", [0, 1])],
        // Gradients of what is added to divided embeddings are divided, too.
        divided: &[
            ("model.0", "1"),
            ("model.1", "1"),
            ("model.2", "1"),
            ("model.3", "0"),
            ("model.4", "0"),
            ("model.5", "0"),
            ("moment.0", "1"),
            ("moment.1", "1"),
            ("moment.2", "1"),
            ("moment.3", "0"),
            ("moment.4", "0"),
            ("moment.5", "0"),
        ],
    };
    case.check(&[2, 4], 2);
    let (_, of_rank) = case.of_rank(2);
    assert!(count(&of_rank, "all_gather") > 0, "{of_rank}");
}
