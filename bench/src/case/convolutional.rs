//! Training steps of a small convolutional network: [`Convnet`], the mean cross-entropy of its
//! logits, Adam.
//!
//! There is no dropout, so that all contenders compute the same.

use super::plain::{cross_entropy, linear, linear_back};
use super::training::{Algorithm, RATE, check_steps};
use super::{Case, Drawn, Float, Kind, Made, drawn, first, program, read};
use crate::data::{labels, uniform};
use crate::parity::Parity;
use crate::record::Work;
use crate::resident::Resident;
use serde::{Deserialize, Serialize};
use wengert::models::{Convnet, ConvnetSettings};
use wengert::prelude::{Adam, cross_entropy as loss_of, value_and_grad};
use wengert::{DType, Literal, Result};

/// Two convolutions of 3 × 3, each followed by a relu and 2 × 2 pooling, then two affine layers
/// with a relu between.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Convolutional {
    /// Height and width of an image, a multiple of 4.
    pub extent: usize,
    /// Channels of an image.
    pub channels: usize,
    /// Output channels of the convolutions.
    pub features: [usize; 2],
    /// Elements between the affine layers.
    pub width: usize,
    /// Classes.
    pub classes: usize,
    /// Images of a step.
    pub batch: usize,
}

impl Convolutional {
    fn settings(&self) -> ConvnetSettings {
        let Convolutional { extent, channels, features, width, classes, .. } = *self;
        ConvnetSettings { image: [extent; 2], channels, features, width, classes, dropout: 0.0 }
    }

    /// Number of elements of an image after the convolutions.
    fn flat(&self) -> usize {
        self.features[1] * (self.extent / 4).pow(2)
    }

    /// Initial values of the network: weights within Kaiming's bounds, and nonzero biases.
    fn parameters(&self) -> Vec<Drawn> {
        let Convolutional { channels, features: [first, second], width, classes, .. } = *self;
        let layers = [
            ("conv1", vec![3, 3, channels, first]),
            ("conv2", vec![3, 3, first, second]),
            ("fc1", vec![self.flat(), width]),
            ("fc2", vec![width, classes]),
        ];
        let of_layer = |(name, shape): (&str, Vec<usize>)| {
            let outputs = shape[shape.len() - 1];
            let bound = (6.0 * outputs as f64 / shape.iter().product::<usize>() as f64).sqrt();
            let weight = (format!("{name}.weight"), shape, [-bound, bound]);
            [weight, (format!("{name}.bias"), vec![outputs], [-0.1, 0.1])]
        };
        layers.into_iter().flat_map(of_layer).collect()
    }
}

pub(super) fn cases(small: bool) -> Vec<Case> {
    let mnist = Convolutional {
        extent: 28,
        channels: 1,
        features: [16, 32],
        width: 128,
        classes: 10,
        batch: 64,
    };
    let tiny =
        Convolutional { extent: 8, features: [3, 4], width: 6, classes: 5, batch: 3, ..mnist };
    vec![case(if small { tiny } else { mnist })]
}

/// The work of a step: each layer's products, its weights' gradient, and except for the first
/// layer its input's gradient. Parameters and two moments are read and written, the batch is
/// read.
fn case(network: Convolutional) -> Case {
    let Convolutional { extent, channels, features: [first, second], width, classes, batch } =
        network;
    let products = [
        extent * extent * 9 * channels * first,
        extent * extent / 4 * 9 * first * second,
        network.flat() * width,
        width * classes,
    ]
    .map(|n| n as u64);
    let parameters = network.settings().parameters() as u64;
    let pixels = (extent * extent * channels) as u64;
    Case {
        id: format!(
            "step convnet {extent}x{extent}x{channels} {first}-{second}-{width}-{classes} \
             adam B{batch}"
        ),
        group: "steps".into(),
        dtype: Float::F32,
        work: Work {
            elements: parameters,
            bytes: 24 * parameters + batch as u64 * (4 * pixels + 4),
            flops: 2 * batch as u64 * (3 * products.iter().sum::<u64>() - products[0]),
        },
        reference: None,
        kind: Kind::Convolutional { network },
    }
}

pub(super) fn make(network: &Convolutional) -> Result<Made> {
    let Convolutional { extent, channels, classes, batch, .. } = *network;
    let of_x = [batch, extent, extent, channels];
    let program = program(|f| {
        let (x, y) = (read(f, "x", DType::F32, &of_x), read(f, "y", DType::I32, &[batch]));
        let model = f.state("model", Convnet::new(&network.settings()));
        let (loss, gradient) = value_and_grad(&model, |m| loss_of(&m.call(&x, None), &y));
        Adam::new(RATE).step(f, &model, &gradient);
        f.create("loss", &loss);
    })?;
    let mut variables = drawn(network.parameters())?;
    variables.push(("x".into(), uniform("x", DType::F32, &of_x, 0.0, 1.0)?));
    variables.push(("y".into(), labels("y", batch, classes)?));
    Ok(Made { program, variables, init: Some(1), check })
}

fn check(resident: &mut Resident, case: &Case, variables: &[(String, Literal)]) -> Result<Parity> {
    let Kind::Convolutional { network } = &case.kind else {
        unreachable!("this is the check of convolutional networks")
    };
    let values = |name: &str| first(variables, name).scalars().map(|s| s.to_f64());
    let x: Vec<f64> = values("x").collect();
    let y: Vec<usize> = values("y").map(|v| v as usize).collect();
    let names = network.parameters().into_iter().map(|(name, ..)| format!("model.{name}"));
    let plain = |parameters: &[Vec<f64>]| plain(network, parameters, &x, &y);
    let names = names.collect::<Vec<_>>();
    check_steps(resident, &names, Algorithm::Adam, case.dtype.bound(), &plain)
}

/// Index of each element of each 3 × 3 window in images `[B, extent, extent, channels]`; None in
/// the zero padding.
fn windows(extent: usize, channels: usize, images: usize) -> impl Iterator<Item = Option<usize>> {
    let in_window = move |n: usize| {
        let (channel, tap, place) = (n % channels, n / channels % 9, n / channels / 9);
        let (image, row, column) =
            (place / extent / extent, place / extent % extent, place % extent);
        let (row, column) = ((row + tap / 3).checked_sub(1)?, (column + tap % 3).checked_sub(1)?);
        let is_inside = row < extent && column < extent;
        is_inside.then_some(((image * extent + row) * extent + column) * channels + channel)
    };
    (0..images * extent * extent * 9 * channels).map(in_window)
}

/// A convolution that keeps height and width. Returns the windows and the result.
fn convolve(x: &[f64], weight: &[f64], bias: &[f64], extent: usize) -> (Vec<f64>, Vec<f64>) {
    let channels = weight.len() / 9 / bias.len();
    let images = x.len() / (extent * extent * channels);
    let cut: Vec<f64> =
        windows(extent, channels, images).map(|at| at.map_or(0.0, |at| x[at])).collect();
    let y = linear(&cut, weight, bias);
    (cut, y)
}

/// The relu of the greatest of each 2 × 2 elements of images, and its index.
fn pool(x: &[f64], extent: usize, channels: usize) -> (Vec<f64>, Vec<usize>) {
    let half = extent / 2;
    let greatest = |n: usize| {
        let (channel, column, row) = (n % channels, n / channels % half, n / channels / half);
        let at =
            |tap: usize| ((2 * row + tap / 2) * extent + 2 * column + tap % 2) * channels + channel;
        (0..4).map(at).fold(at(0), |best, at| if x[at] > x[best] { at } else { best })
    };
    let places: Vec<usize> = (0..x.len() / 4).map(greatest).collect();
    (places.iter().map(|at| x[*at].max(0.0)).collect(), places)
}

/// The cotangent of the pooling's operand: it goes to the greatest element if that is above zero.
fn pool_back(pooled: &[f64], places: &[usize], cotangent: &[f64]) -> Vec<f64> {
    let mut back = vec![0.0; 4 * pooled.len()];
    for ((value, at), cotangent) in pooled.iter().zip(places).zip(cotangent) {
        back[*at] = if *value > 0.0 { *cotangent } else { 0.0 };
    }
    back
}

/// Loss and gradients of a step, parameters in the order of [`Convolutional::parameters`].
fn plain(network: &Convolutional, p: &[Vec<f64>], x: &[f64], y: &[usize]) -> (f64, Vec<Vec<f64>>) {
    let Convolutional { extent, features: [first, second], batch, .. } = *network;
    let (cut_1, y_1) = convolve(x, &p[0], &p[1], extent);
    let (pooled_1, places_1) = pool(&y_1, extent, first);
    let (cut_2, y_2) = convolve(&pooled_1, &p[2], &p[3], extent / 2);
    let (pooled_2, places_2) = pool(&y_2, extent / 2, second);
    let hidden: Vec<f64> = linear(&pooled_2, &p[4], &p[5]).iter().map(|v| v.max(0.0)).collect();
    let mut logits = linear(&hidden, &p[6], &p[7]);
    let loss = cross_entropy(&mut logits, y);

    let mut g: Vec<Vec<f64>> = p.iter().map(|p| vec![0.0; p.len()]).collect();
    let mut of_hidden = linear_back(&hidden, &p[6], &logits, &mut g[6..8]);
    of_hidden.iter_mut().zip(&hidden).for_each(|(c, v)| *c = if *v > 0.0 { *c } else { 0.0 });
    let of_pooled_2 = linear_back(&pooled_2, &p[4], &of_hidden, &mut g[4..6]);
    let of_y_2 = pool_back(&pooled_2, &places_2, &of_pooled_2);
    let of_cut_2 = linear_back(&cut_2, &p[2], &of_y_2, &mut g[2..4]);
    let mut of_pooled_1 = vec![0.0; pooled_1.len()];
    for (at, cotangent) in windows(extent / 2, first, batch).zip(of_cut_2) {
        at.into_iter().for_each(|at| of_pooled_1[at] += cotangent);
    }
    let of_y_1 = pool_back(&pooled_1, &places_1, &of_pooled_1);
    linear_back(&cut_1, &p[0], &of_y_1, &mut g[0..2]);
    (loss, g)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parity::assert_gradient;

    #[test]
    fn steps_are_counted_by_hand() {
        let case = cases(false).remove(0);
        assert_eq!(case.id, "step convnet 28x28x1 16-32-128-10 adam B64");
        assert_eq!(case.work.elements, 160 + 4640 + 1569 * 128 + 129 * 10);
        let products = [784 * 9 * 16, 196 * 144 * 32, 1568 * 128, 1280];
        assert_eq!(case.work.flops, 128 * (3 * products.iter().sum::<u64>() - products[0]));
    }

    #[test]
    fn the_plain_step_is_right() {
        let network = Convolutional {
            extent: 4,
            channels: 2,
            features: [2, 3],
            width: 3,
            classes: 3,
            batch: 2,
        };
        let values = |(_, value): (String, Literal)| -> Vec<f64> {
            value.scalars().map(|s| s.to_f64()).collect()
        };
        let parameters = drawn(network.parameters()).unwrap().into_iter().map(values).collect();
        let x = values((String::new(), uniform("x", DType::F32, &[64], 0.0, 1.0).unwrap()));
        assert_gradient(parameters, 1e-8, |parameters| plain(&network, parameters, &x, &[2, 0]));
    }
}
