//! Products and the nests that follow them become one kernel, with the same bits.

use super::shapes::{f32s, fused, works};
use wengert_compiler::autodiff::operators::value_and_grad;
use wengert_compiler::kernels::{Kernels, Work};

/// The products with followers of a function: the names of the buffers that each writes.
fn pairs(kernels: &Kernels) -> Vec<Vec<&str>> {
    let followed = kernels.kernels.iter().filter(|k| matches!(k.work, Work::Followed(_)));
    followed.map(|k| k.writes.iter().map(|b| kernels.buffers[*b].name.as_str()).collect()).collect()
}

#[test]
fn an_activation_whose_operand_is_wanted_again_is_made_on_the_tile() {
    let kernels = fused(|f| {
        let x = f.input("x", f32s(&[6, 8]));
        let w = f.input("w", f32s(&[8, 5]));
        let b = f.input("b", f32s(&[5]));
        let before = x.dot(&w) + b;
        f.output("y", before.gelu_tanh());
        f.output("before", before);
    });
    assert_eq!(works(&kernels), ["gemm, nest"], "{kernels}");
    assert_eq!(pairs(&kernels), [["before", "y"]], "{kernels}");
}

#[test]
fn both_halves_of_a_network_with_gelu() {
    let kernels = fused(|f| {
        let x = f.input("x", f32s(&[16, 8]));
        let (w, v) = (f.input("w", f32s(&[8, 12])), f.input("v", f32s(&[12, 4])));
        let (loss, (dw, dv)) =
            value_and_grad(&(w, v), |(w, v)| x.dot(w).gelu_tanh().dot(v).square().sum());
        f.output("loss", loss);
        f.output("dw", dw);
        f.output("dv", dv);
    });
    // x·w and its GELU; the second layer; the loss and the cotangent of y; dy·vᵀ and the derivative
    // of the GELU; xᵀ·dh and hᵀ·dy.
    let followed = works(&kernels).iter().filter(|w| **w == "gemm, nest").count();
    assert!(followed >= 2, "{kernels}");
    let wide =
        kernels.kernels.iter().filter(|k| matches!(k.work, Work::Nest(_))).flat_map(|k| &k.reads);
    assert!(wide.into_iter().all(|b| kernels.buffers[*b].ty != f32s(&[16, 12])), "{kernels}");
}

#[test]
fn weights_are_updated_where_their_gradient_is_made() {
    let kernels = fused(|f| {
        let x = f.input("x", f32s(&[16, 8]));
        let w = f.input("w", f32s(&[8, 4]));
        let (loss, dw) = value_and_grad(&w, |w| x.dot(w).tanh().sum());
        f.output("loss", loss);
        f.output("w", &w - dw * 0.1);
    });
    // The activation, its derivative and the loss are one nest.
    assert_eq!(works(&kernels), ["gemm", "nest", "gemm, nest"], "{kernels}");
    assert_eq!(pairs(&kernels), [["dot_general", "w"]], "{kernels}");
}

#[test]
fn what_moves_much_more_than_the_product_stays_alone() {
    let kernels = fused(|f| {
        let x = f.input("x", f32s(&[16, 8]));
        let (w, m) = (f.input("w", f32s(&[8, 4])), f.input("m", f32s(&[8, 4])));
        let y = f.input("y", f32s(&[16, 4]));
        let gradient = x.permute(&[1, 0]).dot(&y).square();
        let momentum = &m * 0.9 + gradient;
        f.output("w", &w - &momentum * 0.1);
        f.output("m", momentum);
    });
    assert!(pairs(&kernels).is_empty(), "{kernels}");
}

#[test]
fn what_needs_more_of_the_product_waits_for_it() {
    // The softmax needs all elements of a row. The sum needs another row's element as well.
    let kernels = fused(|f| {
        let x = f.input("x", f32s(&[6, 8]));
        let w = f.input("w", f32s(&[8, 6]));
        f.output("y", x.dot(&w).softmax(1));
    });
    assert_eq!(works(&kernels), ["gemm", "nest"], "{kernels}");
    let kernels = fused(|f| {
        let x = f.input("x", f32s(&[6, 8]));
        let w = f.input("w", f32s(&[8, 6]));
        let y = x.dot(&w);
        f.output("y", &y + y.reverse(&[0]));
    });
    assert_eq!(works(&kernels), ["gemm", "nest"], "{kernels}");
}

#[test]
fn what_is_read_by_both_is_not_written_by_the_nest() {
    // The new w overwrites the old one, which the product still reads.
    let kernels = fused(|f| {
        let x = f.input("x", f32s(&[8, 8]));
        let w = f.input("w", f32s(&[8, 8]));
        f.output("w", x.dot(&w).exp() * &w);
    });
    assert_eq!(works(&kernels), ["gemm", "nest"], "{kernels}");
}

#[test]
fn a_pair_stands_where_everything_it_reads_is_there() {
    // The second nest needs the sum over the first product, so it cannot follow the product.
    let kernels = fused(|f| {
        let x = f.input("x", f32s(&[6, 8]));
        let w = f.input("w", f32s(&[8, 6]));
        let y = x.dot(&w);
        let total = y.sum();
        f.output("y", y.exp() * total.broadcast_in_dim(y.shape().to_vec(), &[]));
    });
    assert!(pairs(&kernels).is_empty(), "{kernels}");
}
