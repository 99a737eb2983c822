//! Losses.

use crate::{building, says};
use wengert::nn::loss::{
    BinaryCrossEntropy, CosineEmbedding, CrossEntropy, Ctc, Focal, Huber, KlDivergence,
    MeanSquaredError, SmoothL1, TripletMargin,
};
use wengert::prelude::*;

#[test]
fn predictions_of_another_shape_than_the_targets() {
    says(
        building(|f| {
            let x = f.input("x", f32("B,3")); //~ x
            let t = f.input("t", f32("B")); //~ t
            f.output("loss", MeanSquaredError::default().call(&x, &t)); //~ here
        }),
        "
        @f: a loss of predictions f32[B,3], targets f32[B]
          --> {here}
          --> {x}: an operand, f32[B,3], is made here
          --> {t}: an operand, f32[B], is made here
          help: all have one float dtype and one shape
        ",
    );
}

#[test]
fn targets_that_are_integers() {
    says(
        building(|f| {
            let x = f.input("x", f32("B")); //~ x
            let t = f.input("t", i32("B")); //~ t
            f.output("loss", BinaryCrossEntropy::default().call(&x, &t)); //~ here
        }),
        "
        @f: a loss of logits f32[B], targets i32[B]
          --> {here}
          --> {x}: an operand, f32[B], is made here
          --> {t}: an operand, i32[B], is made here
          help: all have one float dtype and one shape
        ",
    );
}

#[test]
fn a_positive_weight_for_other_classes() {
    says(
        building(|f| {
            let x = f.input("x", f32("B,3"));
            let weight = f.input("weight", f32("4")); //~ weight
            let loss = BinaryCrossEntropy { positive_weight: Some(weight), ..Default::default() };
            f.output("loss", loss.call(&x, &x)); //~ here
        }),
        "
        @f: broadcast_in_dim: axis 0 of f32[4] has extent 4, axis 1 of f32[B,3] has 3
          --> {here}: broadcast_in_dim
          --> {weight}: an operand, f32[4], is made here
          help: extents must be equal, or 1 in the operand
        ",
    );
}

#[test]
fn a_huber_loss_that_squares_nothing() {
    for (build, message) in [
        (
            Box::new(|x: &Tensor| Huber { delta: 0.0, ..Default::default() }.call(x, x))
                as Box<dyn Fn(&Tensor) -> Tensor>,
            "@f: a Huber loss with δ of 0",
        ),
        (
            Box::new(|x: &Tensor| SmoothL1 { beta: f64::NAN, ..Default::default() }.call(x, x)),
            "@f: a Huber loss with δ of NaN",
        ),
        (
            Box::new(|x: &Tensor| Focal { gamma: -1.0, ..Default::default() }.call(x, x)),
            "@f: a focal loss with γ of -1",
        ),
        (
            Box::new(|x: &Tensor| Focal { alpha: Some(2.0), ..Default::default() }.call(x, x)),
            "@f: a focal loss with α of 2",
        ),
        (
            Box::new(|x: &Tensor| TripletMargin { order: 0.5, ..Default::default() }.call(x, x, x)),
            "@f: a norm of order of 0.5",
        ),
    ] {
        let said = building(|f| {
            let x = f.input("x", f32("B,3"));
            f.output("loss", build(&x));
        });
        assert!(said.starts_with(message), "{said}");
        assert!(said.contains("mistakes/losses.rs") && said.contains("help: it is "), "{said}");
    }
}

#[test]
fn labels_of_rows_that_there_are_not() {
    says(
        building(|f| {
            let logits = f.input("logits", f32("B,10")); //~ logits
            let labels = f.input("labels", i32("B,10")); //~ labels
            f.output("loss", CrossEntropy::default().call(&logits, &labels)); //~ here
        }),
        "
        @f: a loss of logits f32[B,10], labels i32[B,10]
          --> {here}
          --> {logits}: an operand, f32[B,10], is made here
          --> {labels}: an operand, i32[B,10], is made here
          help: logits have a last axis, and the axes before it are those of labels
        ",
    );
}

#[test]
fn labels_of_floats() {
    says(
        building(|f| {
            let logits = f.input("logits", f32("B,10")); //~ logits
            let labels = f.input("labels", f32("B")); //~ labels
            let loss = CrossEntropy { ignored: Some(-1), ..Default::default() };
            f.output("loss", loss.call(&logits, &labels)); //~ here
        }),
        "
        @f: softmax_cross_entropy: labels of dtype f32
          --> {here}: softmax_cross_entropy
          --> {logits}: an operand, f32[B,10], is made here
          --> {labels}: an operand, f32[B], is made here
          help: labels are the numbers of classes: an integer dtype
        ",
    );
}

#[test]
fn a_label_smoothing_above_one() {
    says(
        building(|f| {
            let logits = f.input("logits", f32("B,10")); //~ logits
            let labels = f.input("labels", i32("B")); //~ labels
            let loss = CrossEntropy { label_smoothing: 1.5, ..Default::default() };
            f.output("loss", loss.call(&logits, &labels)); //~ here
        }),
        "
        @f: a label smoothing of 1.5
          --> {here}
          --> {logits}: an operand, f32[B,10], is made here
          --> {labels}: an operand, i32[B], is made here
          help: it is at least 0 and at most 1
        ",
    );
}

#[test]
fn an_ignored_label_that_the_dtype_does_not_hold() {
    says(
        building(|f| {
            let logits = f.input("logits", f32("B,10")); //~ logits
            let labels = f.input("labels", u8("B")); //~ labels
            let loss = CrossEntropy { ignored: Some(-100), ..Default::default() };
            f.output("loss", loss.call(&logits, &labels)); //~ here
        }),
        "
        @f: labels of u8 are never -100, the ignored label
          --> {here}
          --> {logits}: an operand, f32[B,10], is made here
          --> {labels}: an operand, u8[B], is made here
          help: give an ignored label that the dtype holds, or convert the labels
        ",
    );
}

#[test]
fn weights_of_other_classes() {
    says(
        building(|f| {
            let logits = f.input("logits", f32("B,10")); //~ logits
            let labels = f.input("labels", i32("B"));
            let weights = f.input("weights", f32("9")); //~ weights
            let loss = CrossEntropy { class_weights: Some(weights), ..Default::default() };
            f.output("loss", loss.call(&logits, &labels)); //~ here
        }),
        "
        @f: logits have type f32[B,10], class weights f32[9]
          --> {here}
          --> {logits}: an operand, f32[B,10], is made here
          --> {weights}: an operand, f32[9], is made here
          help: there is one weight for each class: floats of the logits' last extent
        ",
    );
}

#[test]
fn lengths_of_another_batch() {
    says(
        building(|f| {
            let logs = f.input("logs", f32("T,B,5")); //~ logs
            let labels = f.input("labels", i32("B,S")); //~ labels
            let steps = f.input("steps", i32("B")); //~ steps
            let counts = f.input("counts", i32("4")); //~ counts
            f.output("loss", Ctc::default().call(&logs, &labels, &steps, &counts)); //~ here
        }),
        "
        @f: log-probabilities have type f32[T,B,5], labels i32[B,S], lengths of inputs i32[B], of \
            labels i32[4]
          --> {here}
          --> {logs}: an operand, f32[T,B,5], is made here
          --> {labels}: an operand, i32[B,S], is made here
          --> {steps}: an operand, i32[B], is made here
          --> {counts}: an operand, i32[4], is made here
          help: log-probabilities are floats [steps, batch, classes], labels are integers [batch, \
              labels], lengths are integers [batch]
        ",
    );
}

#[test]
fn a_blank_that_is_no_class() {
    let said = building(|f| {
        let logs = f.input("logs", f32("T,B,5"));
        let labels = f.input("labels", i32("B,S"));
        let counts = f.input("counts", i32("B"));
        let loss = Ctc { blank: 5, ..Default::default() };
        f.output("loss", loss.call(&logs, &labels, &counts, &counts));
    });
    assert!(said.starts_with("@f: class 5 of 5 is the blank\n"), "{said}");
    assert!(said.contains("help: the blank is one of the classes, counted from 0"), "{said}");
}

#[test]
fn a_divergence_of_two_numbers() {
    says(
        building(|f| {
            let x = f.input("x", f32("")); //~ x
            f.output("loss", KlDivergence::default().call(&x, &x)); //~ here
        }),
        "
        @f: a divergence of f32[]
          --> {here}
          --> {x}: an operand, f32[], is made here
          help: distributions have an axis of classes, the last
        ",
    );
}

#[test]
fn similarities_of_one_and_minus_one() {
    says(
        building(|f| {
            let x = f.input("x", f32("B,3"));
            let y = f.input("y", i32("B")); //~ y
            f.output("loss", CosineEmbedding::default().call(&x, &x, &y)); //~ here
        }),
        "
        @f: similarities of dtype i32
          --> {here}
          --> {y}: an operand, i32[B], is made here
          help: they are bools, true for rows that are to be similar: compare, e.g. `y.gt(0)` for \
              labels of 1 and −1
        ",
    );
}

#[test]
fn triplets_of_numbers() {
    says(
        building(|f| {
            let x = f.input("x", f32("")); //~ x
            f.output("loss", TripletMargin::default().call(&x, &x, &x)); //~ here
        }),
        "
        @f: a triplet loss of f32[]
          --> {here}
          --> {x}: an operand, f32[], is made here
          help: vectors have at least one axis
        ",
    );
}
