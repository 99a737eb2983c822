//! Layers, losses, linear algebra, Fourier transforms, optimisers.

use crate::{building, says};
use wengert::linalg;
use wengert::nn::loss::linear_cross_entropy;
use wengert::nn::{
    BatchNorm, GroupNorm, Gru, InstanceNorm, Mask, SelfAttention, dot_product_attention,
};
use wengert::optim::Rate;
use wengert::prelude::*;

#[test]
fn a_linear_layer_of_another_width() {
    says(
        building(|f| {
            let x = f.input("x", f32("B,5")); //~ x
            let layer = f.param("layer", Linear::new(2, 3)); //~ layer
            f.output("y", layer.call(&x)); //~ here
        }),
        "
        @f: dot_general: axis 1 of f32[B,5] has extent 5, axis 0 of f32[2,3] has 2
          --> {here}: dot_general
          --> {x}: an operand, f32[B,5], is made here
          --> {layer}: an operand, f32[2,3], is made here
          help: extents of paired axes must be equal
        ",
    );
}

#[test]
fn a_convolution_of_another_number_of_channels() {
    says(
        building(|f| {
            let x = f.input("x", f32("B,8,8,1")); //~ x
            let layer = f.param("layer", Conv2d::new(3, 16, [3, 3])); //~ layer
            f.output("y", layer.call(&x)); //~ here
        }),
        "
        @f: conv_general_dilated: 1 input features in 1 groups, and a filter of type \
            f32[3,3,3,16] for 3
          --> {here}: conv_general_dilated
          --> {x}: an operand, f32[B,8,8,1], is made here
          --> {layer}: an operand, f32[3,3,3,16], is made here
          help: the filter's input features are those of one group
        ",
    );
}

#[test]
fn a_convolution_of_what_is_no_image() {
    says(
        building(|f| {
            let x = f.input("x", f32("B,64")); //~ x
            let layer = f.param("layer", Conv2d::new(3, 16, [3, 3])); //~ layer
            f.output("y", layer.call(&x)); //~ here
        }),
        "
        @f: conv_general_dilated: operands have types f32[B,64] and f32[3,3,3,16]
          --> {here}: conv_general_dilated
          --> {x}: an operand, f32[B,64], is made here
          --> {layer}: an operand, f32[3,3,3,16], is made here
          help: both have one dtype and one rank
        ",
    );
}

#[test]
fn a_convolution_with_a_stride_of_zero() {
    says(
        building(|f| {
            let x = f.input("x", f32("B,8,8,3")); //~ x
            let layer = f.param("layer", Conv2d::new(3, 16, [3, 3]).stride([0, 1])); //~ layer
            f.output("y", layer.call(&x)); //~ here
        }),
        "
        @f: conv_general_dilated: strides, dilations and group counts are at least 1
          --> {here}: conv_general_dilated
          --> {x}: an operand, f32[B,8,8,3], is made here
          --> {layer}: an operand, f32[3,3,3,16], is made here
        ",
    );
}

#[test]
fn an_embedding_of_floats() {
    says(
        building(|f| {
            let x = f.input("x", f32("B"));
            let layer = f.param("layer", Embedding::new(10, 4)); //~ layer
            f.output("y", layer.call(&x)); //~ here
        }),
        "
        @f: gather: indices of type f32[B,1]
          --> {here}: gather
          --> {layer}: an operand, f32[10,4], is made here
          --> {here}: an operand, f32[B,1], is made here
          help: indices are integers: convert them
        ",
    );
}

#[test]
fn a_norm_of_another_width() {
    says(
        building(|f| {
            let x = f.input("x", f32("B,5"));
            let layer = f.param("layer", LayerNorm::new(4)); //~ layer
            f.output("y", layer.call(&x)); //~ here
        }),
        "
        @f: mul: operands have types f32[B,5] and f32[4]
          --> {here}: mul
          --> {here}: an operand, f32[B,5], is made here
          --> {layer}: an operand, f32[4], is made here
          help: shapes must be equal, or broadcast: aligned at the last axis, extents equal or 1
        ",
    );
}

#[test]
fn a_batch_norm_of_another_number_of_channels() {
    says(
        building(|f| {
            let x = f.input("x", f32("B,5"));
            let norm = BatchNorm::new(4);
            let running = f.state("running", norm.first_statistics());
            let norm = f.param("norm", norm); //~ norm
            let (y, _) = norm.train(&x, &running); //~ here
            f.output("y", y);
        }),
        "
        @f: mul: operands have types f32[4] and f32[5]
          --> {here}: mul
          --> {norm}: an operand, f32[4], is made here
          --> {here}: an operand, f32[5], is made here
          help: shapes must be equal, or broadcast: aligned at the last axis, extents equal or 1
        ",
    );
}

#[test]
fn groups_that_do_not_divide_the_channels() {
    says(
        building(|f| {
            let x = f.input("x", f32("B,4,4,6")); //~ x
            let layer = f.param("layer", GroupNorm::new(4, 6));
            f.output("y", layer.call(&x)); //~ here
        }),
        "
        @f: 4 groups do not divide 6 channels
          --> {here}
          --> {x}: an operand, f32[B,4,4,6], is made here
          help: give a number of groups that divides the number of channels
        ",
    );
}

#[test]
fn a_group_norm_of_another_number_of_channels() {
    says(
        building(|f| {
            let x = f.input("x", f32("B,4,4,6")); //~ x
            let layer = f.param("layer", GroupNorm::new(4, 8)); //~ layer
            f.output("y", layer.call(&x)); //~ here
        }),
        "
        @f: a group norm with weights f32[8] of f32[B,4,4,6]
          --> {here}
          --> {x}: an operand, f32[B,4,4,6], is made here
          --> {layer}: an operand, f32[8], is made here
          help: it takes [batch, …, channels], and its weights are [channels]
        ",
    );
}

#[test]
fn an_instance_norm_without_positions() {
    says(
        building(|f| {
            let x = f.input("x", f32("B,6")); //~ x
            let layer = f.param("layer", InstanceNorm::new(6)); //~ layer
            f.output("y", layer.call(&x)); //~ here
        }),
        "
        @f: an instance norm with weights f32[6] of f32[B,6]
          --> {here}
          --> {x}: an operand, f32[B,6], is made here
          --> {layer}: an operand, f32[6], is made here
          help: it takes [batch, positions, channels], or more axes of positions, and its weights \
              are [channels]
        ",
    );
}

#[test]
fn a_gru_of_other_inputs() {
    says(
        building(|f| {
            let x = f.input("x", f32("T,B,3")); //~ x
            let layer = f.param("layer", Gru::new(4, 5)); //~ layer
            let (all, _) = layer.call(&x, &layer.zero_state("B")); //~ here
            f.output("all", all);
        }),
        "
        @f: dot_general: axis 2 of f32[T,B,3] has extent 3, axis 0 of f32[4,15] has 4
          --> {here}: dot_general
          --> {x}: an operand, f32[T,B,3], is made here
          --> {layer}: an operand, f32[4,15], is made here
          help: extents of paired axes must be equal
        ",
    );
}

#[test]
fn heads_that_do_not_divide_the_width() {
    says(
        building(|f| {
            let x = f.input("x", f32("B,T,12")); //~ x
            let layer = f.param("layer", SelfAttention::new(12, 5, Mask::Causal));
            f.output("y", layer.call(&x)); //~ here
        }),
        "
        @f: a width of 12 is not divided by 5 heads
          --> {here}
          --> {x}: an operand, f32[B,T,12], is made here
          help: the width is a multiple of the number of heads
        ",
    );
}

#[test]
fn attention_of_tensors_of_three_axes() {
    says(
        building(|f| {
            let q = f.input("q", f32("B,T,8")); //~ q
            f.output("y", dot_product_attention(&q, &q, &q, Mask::None, None)); //~ here
        }),
        "
        @f: queries of attention have type f32[B,T,8]
          --> {here}
          --> {q}: an operand, f32[B,T,8], is made here
          help: they are [batch, positions, heads, width]
        ",
    );
}

#[test]
fn attention_of_keys_of_another_width() {
    says(
        building(|f| {
            let q = f.input("q", f32("B,T,2,8")); //~ q
            let k = f.input("k", f32("B,S,2,4")); //~ k
            f.output("y", dot_product_attention(&q, &k, &k, Mask::None, None)); //~ here
        }),
        "
        @f: dot_product_attention: queries have type f32[B,T,2,8], keys f32[B,S,2,4], \
            values f32[B,S,2,4]
          --> {here}: dot_product_attention
          --> {q}: an operand, f32[B,T,2,8], is made here
          --> {k}: an operand, f32[B,S,2,4], is made here
          help: queries are [batch, positions, heads, width], keys and values alike, or with a \
              divisor of the heads; or all in one [batch, positions, 3, heads, width]
        ",
    );
}

#[test]
fn a_state_of_another_width() {
    says(
        building(|f| {
            let x = f.input("x", f32("T,B,3"));
            let layer = f.param("layer", Lstm::new(3, 5)); //~ layer
            let begin = Lstm::new(3, 4).zero_state("B");
            let (all, _) = layer.call(&x, &begin); //~ here
            f.output("all", all);
        }),
        "
        @f: dot_general: axis 1 of f32[B,4] has extent 4, axis 0 of f32[5,20] has 5
          --> {here}: dot_general
          --> {layer}: an operand, f32[5,20], is made here
          help: extents of paired axes must be equal
        ",
    );
}

#[test]
fn a_dropout_rate_above_one() {
    says(
        building(|f| {
            let x = f.input("x", f32("3"));
            let key = f.key("key"); //~ key
            f.output("y", Dropout::new(1.5).call(&x, Some(&key))); //~ here
        }),
        "
        @f: a dropout rate of 1.5
          --> {here}
          --> {key}: an operand, u32[2], is made here
          help: it is at least 0 and below 1
        ",
    );
}

#[test]
fn labels_that_are_floats() {
    says(
        building(|f| {
            let logits = f.input("logits", f32("B,10")); //~ logits
            let labels = f.input("labels", f32("B")); //~ labels
            f.output("loss", cross_entropy(&logits, &labels)); //~ here
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
fn labels_of_another_shape() {
    says(
        building(|f| {
            let logits = f.input("logits", f32("B,10")); //~ logits
            let labels = f.input("labels", i32("B,10")); //~ labels
            f.output("loss", cross_entropy(&logits, &labels)); //~ here
        }),
        "
        @f: softmax_cross_entropy: logits have type f32[B,10], labels i32[B,10]
          --> {here}: softmax_cross_entropy
          --> {logits}: an operand, f32[B,10], is made here
          --> {labels}: an operand, i32[B,10], is made here
          help: logits have the labels' shape and a last axis with one entry for each class
        ",
    );
}

#[test]
fn chunks_that_do_not_divide_the_rows() {
    says(
        building(|f| {
            let hidden = f.input("hidden", f32("7,4")); //~ hidden
            let weight = f.input("weight", f32("10,4")); //~ weight
            let labels = f.input("labels", i32("7")); //~ labels
            f.output("loss", linear_cross_entropy(&hidden, &weight, &labels, 2)); //~ here
        }),
        "
        @f: 7 rows in 2 chunks
          --> {here}
          --> {hidden}: an operand, f32[7,4], is made here
          --> {weight}: an operand, f32[10,4], is made here
          --> {labels}: an operand, i32[7], is made here
          help: give a number of chunks that divides the number of rows
        ",
    );
}

#[test]
fn the_factor_of_a_matrix_that_is_not_square() {
    says(
        building(|f| {
            let a = f.input("a", f32("3,4")); //~ a
            f.output("l", linalg::cholesky(&a)); //~ here
        }),
        "
        @f: cholesky of f32[3,4]
          --> {here}
          --> {a}: an operand, f32[3,4], is made here
          help: the last two axes are those of a square matrix
        ",
    );
}

#[test]
fn the_inverse_of_a_matrix_of_integers() {
    says(
        building(|f| {
            let a = f.input("a", i32("3,3")); //~ a
            f.output("y", linalg::inv(&a)); //~ here
        }),
        "
        @f: inv of i32[3,3]
          --> {here}
          --> {a}: an operand, i32[3,3], is made here
          help: matrices are of f32 or f64: convert it, e.g. by `.convert(DType::F32)`
        ",
    );
}

#[test]
fn a_right_hand_side_of_another_number_of_rows() {
    says(
        building(|f| {
            let a = f.input("a", f32("3,3")); //~ a
            let b = f.input("b", f32("4")); //~ b
            f.output("x", linalg::solve(&a, &b)); //~ here
        }),
        "
        @f: solve: a has type f32[3,3], b has type f32[4]
          --> {here}
          --> {a}: an operand, f32[3,3], is made here
          --> {b}: an operand, f32[4], is made here
          help: b has the dtype and the leading axes of a, then as many rows as a, and columns \
              unless it is a vector
        ",
    );
}

#[test]
fn a_transform_of_unknown_length() {
    says(
        building(|f| {
            let x = f.input("x", f32("T"));
            let (re, _) = wengert::fft::rfft(&x); //~ here
            f.output("re", re);
        }),
        "
        @f: a Fourier transform of T elements
          --> {here}: the transform is here
          help: the length decides on the steps, so it has to be a number; \
              other dimensions may be variables
        ",
    );
}

#[test]
fn a_transform_of_parts_of_different_types() {
    says(
        building(|f| {
            let re = f.input("re", f32("8"));
            let im = f.input("im", f32("4"));
            let (re, _) = wengert::fft::fft(&(re, im)); //~ here
            f.output("re", re);
        }),
        "
        @f: the real part is f32[8], the imaginary part f32[4]
          --> {here}: the transform is here
          help: both have one dtype and shape
        ",
    );
}

#[test]
fn an_optimiser_given_parameters() {
    says(
        building(|f| {
            let x = f.input("x", f32("B,2"));
            let layer = f.param("layer", Linear::new(2, 1));
            let gradient = grad(&layer, |l| l.call(&x).mean());
            Sgd::new(0.1).step(f, &layer, &gradient); //~ here
        }),
        "
        @f: an optimiser cannot update `weight`: it is not state
          --> {here}: updated here
          help: give `step` the model that `state` of the function returned
        ",
    );
}

#[test]
fn two_optimisers_of_one_name() {
    says(
        building(|f| {
            let x = f.input("x", f32("B,2"));
            let a = f.state("a", Linear::new(2, 1));
            let b = f.state("b", Linear::new(2, 1));
            let (da, db) = grad(&(a.clone(), b.clone()), |(a, b)| (a.call(&x) * b.call(&x)).mean());
            Adam::new(0.1).step(f, &a, &da); //~ first
            Adam::new(0.1).step(f, &b, &db); //~ here
        }),
        "
        @f: input `adam.step`: declared twice
          --> {here}: declared here
          --> {first}: declared first here
          help: give it another name
        ",
    );
}

#[test]
fn a_gradient_of_another_shape() {
    says(
        building(|f| {
            let w = f.state("w", Tensor::variable(f32("3").unwrap(), Initializer::Zeros)); //~ w
            let gradient = f.input("gradient", f32("4"));
            Sgd::new(0.1).step(f, &w, &gradient); //~ here
        }),
        "
        @f: a tensor of type f32[3] has a tangent of type f32[4]
          --> {here}: met here
          --> {w}: made here
          --> {here}: made here
          help: a tangent has the dtype and shape of its value
        ",
    );
}

#[test]
fn a_model_that_is_stepped_twice() {
    says(
        building(|f| {
            let w = f.state("w", Tensor::variable(f32("3").unwrap(), Initializer::Zeros));
            let gradient = f.input("gradient", f32("3"));
            Sgd::new(0.1).step(f, &w, &gradient); //~ first
            Sgd::new(0.1).step(f, &w, &gradient); //~ here
        }),
        "
        @f: state `w` is given twice
          --> {here}: given again here
          --> {first}: given first here
          help: give it another name
        ",
    );
}

#[test]
fn a_schedule_that_gives_no_scalar() {
    says(
        building(|f| {
            let w = f.state("w", Tensor::variable(f32("3").unwrap(), Initializer::Zeros));
            let gradient = f.input("gradient", f32("3"));
            let rate = Rate::scheduled(|step| step.broadcast_to(&[2.into()])); //~ rate
            AdamW::new(rate).step(f, &w, &gradient); //~ here
        }),
        "
        @f: mul: operands have types f32[3] and f32[2]
          --> {here}: mul
          --> {here}: an operand, f32[3], is made here
          --> {rate}: an operand, f32[2], is made here
          help: shapes must be equal, or broadcast: aligned at the last axis, extents equal or 1
        ",
    );
}
