//! Losses and their derivatives. `losses.py` wrote the file.

use super::cases::{Case, Inputs, compare};
use wengert::Tensor;
use wengert::nn::loss::{
    BinaryCrossEntropy, CosineEmbedding, CrossEntropy, Ctc, Focal, Huber, KlDivergence,
    MeanAbsoluteError, MeanSquaredError, Reduction, SmoothL1, TripletMargin,
};

/// A case of one result.
fn one<'a>(name: impl Into<String>, loss: impl Fn(Inputs<'_>) -> Tensor + 'a) -> Case<'a> {
    (name.into(), Box::new(move |input| vec![loss(input)]))
}

#[test]
fn losses_and_their_derivatives() {
    let each = Reduction::None;
    let mut cases = vec![
        one("mae", |i| MeanAbsoluteError { reduction: each }.call(&i("x"), &i("t"))),
        one("huber", |i| Huber { delta: 0.75, reduction: each }.call(&i("x"), &i("t"))),
        one("smooth_l1", |i| SmoothL1 { beta: 0.5, ..Default::default() }.call(&i("x"), &i("t"))),
        one("bce", |i| {
            let loss = BinaryCrossEntropy { reduction: each, ..Default::default() };
            loss.call(&i("x"), &i("t"))
        }),
        one("bce_weighted", |i| {
            let (positive_weight, weight) = (Some(i("p")), Some(i("w")));
            let reduction = Reduction::Mean;
            BinaryCrossEntropy { positive_weight, weight, reduction }.call(&i("x"), &i("t"))
        }),
        one("focal", |i| Focal::default().call(&i("x"), &i("t"))),
        one("focal_soft", |i| {
            Focal { gamma: 0.5, alpha: None, reduction: each }.call(&i("x"), &i("t"))
        }),
        one("cosine", |i| {
            let loss = CosineEmbedding { margin: 0.125, reduction: each };
            loss.call(&i("a"), &i("b"), &i("similar"))
        }),
    ];
    let euclidean = TripletMargin { reduction: each, ..Default::default() };
    for (name, loss) in [
        ("triplet_euclidean", TripletMargin { margin: 1.5, ..euclidean }),
        ("triplet_swapped", TripletMargin { margin: 2.0, swap: true, ..euclidean }),
        ("triplet_manhattan", TripletMargin { order: 1.0, ..euclidean }),
        ("triplet_cubic", TripletMargin { order: 3.0, ..euclidean }),
    ] {
        cases.push(one(name, move |i| loss.call(&i("a"), &i("p"), &i("n"))));
    }
    for (reduction, suffix) in
        [(Reduction::Mean, "mean"), (Reduction::Sum, "sum"), (Reduction::None, "none")]
    {
        let cross_entropy = CrossEntropy { reduction, ..Default::default() };
        let with_ignored = CrossEntropy { ignored: Some(-100), ..cross_entropy.clone() };
        let smoothed =
            CrossEntropy { label_smoothing: 0.15, ignored: Some(3), ..cross_entropy.clone() };
        cases.extend([
            one(format!("mse_{suffix}"), move |i| {
                MeanSquaredError { reduction }.call(&i("x"), &i("t"))
            }),
            one(format!("kl_{suffix}"), move |i| {
                let loss = KlDivergence { log_targets: false, reduction };
                loss.call(&i("x").log_softmax(1), &i("t"))
            }),
            one(format!("kl_logs_{suffix}"), move |i| {
                let loss = KlDivergence { log_targets: true, reduction };
                loss.call(&i("x").log_softmax(1), &i("t"))
            }),
            one(format!("cross_entropy_{suffix}"), move |i| {
                cross_entropy.call(&i("x"), &i("labels"))
            }),
            one(format!("cross_entropy_ignored_{suffix}"), move |i| {
                with_ignored.call(&i("x"), &i("labels"))
            }),
            one(format!("cross_entropy_smooth_{suffix}"), move |i| {
                smoothed.call(&i("x"), &i("labels"))
            }),
            one(format!("cross_entropy_all_{suffix}"), move |i| {
                let (ignored, class_weights) = (Some(-100), Some(i("weights")));
                CrossEntropy { label_smoothing: 0.3, ignored, class_weights, reduction }
                    .call(&i("x"), &i("labels"))
            }),
        ]);
    }
    let ctc = Ctc { zero_infinity: true, reduction: each, ..Default::default() };
    for (name, loss) in [
        ("ctc_mean", Ctc { reduction: Reduction::Mean, ..ctc }),
        ("ctc_sum", Ctc { reduction: Reduction::Sum, ..ctc }),
        ("ctc_none", ctc),
        ("ctc_blank", Ctc { blank: 3, ..ctc }),
    ] {
        cases.push(one(name, move |i| {
            loss.call(&i("x").log_softmax(2), &i("labels"), &i("steps"), &i("counts"))
        }));
    }
    compare("losses", &cases, |_| 1e-12);
}
