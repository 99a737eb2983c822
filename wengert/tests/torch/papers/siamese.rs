//! A Siamese network with the triplet loss of FaceNet (Schroff, Kalenichenko and Philbin, *FaceNet:
//! a unified embedding for face recognition and clustering*, 2015), whose negatives are chosen
//! within the batch (section 3.2).

use wengert::core::build::Padding;
use wengert::prelude::*;

/// A convolutional network to vectors of length 1. All images of a triplet pass the same network.
#[derive(Differentiable, Clone)]
pub struct Siamese {
    convolutions: [Conv2d; 2],
    output: Linear,
}

impl Siamese {
    /// For images of `size × size` pixels; 4 divides the size.
    pub fn new(size: usize, channels: [usize; 2], width: usize) -> Self {
        let [first, second] = channels;
        Siamese {
            convolutions: [
                Conv2d::new(1, first, [3, 3]).same(),
                Conv2d::new(first, second, [3, 3]).same(),
            ],
            output: Linear::new((size / 4).pow(2) * second, width),
        }
    }

    /// The embeddings `[B, width]` of images `[B, size, size]`.
    pub fn call(&self, images: &Tensor) -> Tensor {
        let mut x = images.unsqueeze(-1);
        for convolution in &self.convolutions {
            x = convolution.call(&x).relu().max_pool(&[2, 2], &[2, 2], &Padding::Valid);
        }
        let embedding = self.output.call(&x.flatten(1));
        &embedding / embedding.norm_keepdims(-1, 2.0)
    }
}

/// The mean of `d(a, p) − d(a, n) + margin`, at least 0, over all pairs a ≠ p of one class, where d
/// is the squared distance of embeddings `[B, width]`. The negative n is *semi-hard*: the nearest
/// to a that is farther than p, or, if there is none, the farthest.
pub fn semi_hard_loss(embeddings: &Tensor, labels: &Tensor, margin: f64) -> Tensor {
    let differences = embeddings.unsqueeze(1) - embeddings.unsqueeze(0);
    let distances = differences.square().sum_axes(-1);
    let same = labels.unsqueeze(1).eq(labels.unsqueeze(0));
    let other = !&same;
    let batch = embeddings.dim(0);
    let pairs = &same & !Tensor::eye(DType::Bool, &batch, &batch);

    // Axes: anchor, positive, negative.
    let (to_positive, to_negative) = (distances.unsqueeze(2), distances.unsqueeze(1));
    let is_farther = to_negative.gt(&to_positive) & other.unsqueeze(1);
    let nearest = is_farther.select(&to_negative, f64::INFINITY).min_axes(-1);
    let farthest = other.select(&distances, f64::NEG_INFINITY).max_keepdims(-1);
    let negative = is_farther.any_axes(-1).select(nearest, farthest);

    let losses = (&distances - negative + margin).relu();
    let pairs = pairs.convert(losses.dtype());
    (losses * &pairs).sum() / pairs.sum()
}
