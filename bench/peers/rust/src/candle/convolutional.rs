//! A convolutional network in candle, where images and filters have channels first.

use super::layers::Layers;
use crate::case::Convnet;
use anyhow::Result;
use candle_core::Tensor;

/// Converts the parameters of a network for channels-last images to one for channels-first images.
///
/// Error: candle fails.
pub fn turned(
    network: &Convnet,
    is_turned: bool,
    mut parameters: Vec<Tensor>,
) -> Result<Vec<Tensor>> {
    let (quarter, second, width) = (network.extent / 4, network.features[1], network.width);
    for n in [0, 2] {
        parameters[n] = parameters[n].permute((3, 2, 0, 1))?.contiguous()?;
    }
    // The first affine layer reads the elements of the convolutions' result in another order, so
    // the rows of its matrix are permuted.
    let by_row = if is_turned { parameters[4].t()? } else { parameters[4].clone() };
    let by_place = by_row.reshape((quarter, quarter, second, width))?.permute((2, 0, 1, 3))?;
    let by_row = by_place.reshape((second * quarter * quarter, width))?;
    parameters[4] = if is_turned { by_row.t()?.contiguous()? } else { by_row };
    Ok(parameters)
}

/// Logits of a batch of images.
///
/// Error: candle fails.
pub fn logits(layers: Layers<'_>, x: &Tensor) -> Result<Tensor> {
    let mut x = x.clone();
    for _ in 0..2 {
        let (weight, bias) = (layers.next()?, layers.next()?);
        let y = x.conv2d(weight, 1, 1, 1, 1)?.broadcast_add(&bias.reshape((1, (), 1, 1))?)?;
        x = y.relu()?.max_pool2d(2)?;
    }
    layers.affine(&layers.affine(&x.flatten_from(1)?)?.relu()?)
}
