//! A convolutional network in burn, where images and filters have channels first.

use super::layers::{Form, Layers, Parameters};
use crate::case::Convnet;
use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn::tensor::module::{conv2d, max_pool2d};
use burn::tensor::ops::{ConvOptions, MaxPoolOptions};

/// Converts the parameters of a network for channels-last images to one for channels-first images.
/// The first affine layer reads the elements of the convolutions' result in another order, so the
/// rows of its matrix are permuted.
pub fn turned(network: &Convnet, form: Form, parameters: &mut Parameters) {
    let (quarter, second, width) = (network.extent / 4, network.features[1], network.width);
    parameters.change_matrix(0, form, |matrix| {
        let by_place = matrix.reshape([quarter, quarter, second, width]).permute([2, 0, 1, 3]);
        by_place.reshape([second * quarter * quarter, width])
    });
}

/// Logits of a batch of images.
pub fn logits(layers: &Layers<'_>, x: Tensor<4>) -> Tensor<2> {
    let mut x = x;
    for _ in 0..2 {
        let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
        let y = conv2d(x, layers.filter(), Some(layers.vector()), options);
        x = max_pool2d(relu(y), MaxPoolOptions::new([2, 2]));
    }
    layers.affine(relu(layers.affine(x.flatten(1, 3))))
}
