//! Training steps of a U-Net: [`wengert::models::UNet`], the mean cross-entropy of each pixel's
//! logits, Adam.
//!
//! It has no plain loop: it is compiled for its [memory](crate::memory), and not timed.

use super::catalogue::GROUP_OF_MEMORY;
use super::training::RATE;
use super::{Case, Float, Kind, program, read};
use crate::record::Work;
use serde::{Deserialize, Serialize};
use wengert::models::{UNet as Model, UNetSettings};
use wengert::prelude::{Adam, cross_entropy, value_and_grad};
use wengert::{DType, Program, Result};

/// A network and the sizes of its batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UNet {
    /// Height and width of an image, a multiple of 2 to the depth.
    pub extent: usize,
    /// Channels of an image.
    pub channels: usize,
    /// Channels at full size; twice as many after each halving.
    pub width: usize,
    /// Number of times the image is halved.
    pub depth: usize,
    /// Classes of a pixel.
    pub classes: usize,
    /// Images of a step.
    pub batch: usize,
}

impl UNet {
    fn settings(&self) -> UNetSettings {
        let UNet { channels, width, depth, classes, .. } = *self;
        UNetSettings { channels, width, depth, classes }
    }

    pub(super) fn program(&self) -> Result<Program> {
        let UNet { extent, channels, batch, .. } = *self;
        program(|f| {
            let x = read(f, "x", DType::F32, &[batch, extent, extent, channels]);
            let y = read(f, "y", DType::I32, &[batch, extent, extent]);
            let model = f.state("model", Model::new(&self.settings()));
            let (loss, gradient) = value_and_grad(&model, |m| cross_entropy(&m.call(&x), &y));
            Adam::new(RATE).step(f, &model, &gradient);
            f.create("loss", &loss);
        })
    }

    /// Multiply-adds of an image's forward pass, and those of the first layer.
    fn products(&self) -> [u64; 2] {
        let UNet { extent, channels, width, depth, classes, .. } = *self;
        let level = |n: usize| width << n;
        let pixels = |n: usize| (extent >> n).pow(2);
        let pair = |n: usize, inputs: usize| pixels(n) * 9 * (inputs + level(n)) * level(n);
        let down = (0..=depth).map(|n| pair(n, if n == 0 { channels } else { level(n - 1) }));
        // Each pixel of the smaller image contributes to four.
        let up =
            (0..depth).map(|n| pixels(n + 1) * 4 * level(n + 1) * level(n) + pair(n, level(n + 1)));
        let all = down.chain(up).sum::<usize>() + pixels(0) * width * classes;
        [all, pixels(0) * 9 * channels * width].map(|n| n as u64)
    }
}

/// The paper's network. Its images of 572 × 572 are for convolutions that shrink the image, so
/// here they are 256 × 256.
pub(super) fn cases(small: bool) -> Vec<Case> {
    let original = UNet { extent: 256, channels: 1, width: 64, depth: 4, classes: 2, batch: 4 };
    let tiny = UNet { extent: 8, width: 3, depth: 2, batch: 2, ..original };
    vec![case(if small { tiny } else { original })]
}

/// The work of a step: each layer's products, its weights' gradient, and except for the first
/// layer its input's gradient. Parameters and two moments are read and written, the batch is
/// read.
fn case(network: UNet) -> Case {
    let UNet { extent, channels, width, depth, classes, batch } = network;
    let parameters = network.settings().parameters() as u64;
    let [products, first] = network.products();
    let (images, pixels) = (batch as u64, (extent * extent) as u64);
    Case {
        id: format!(
            "step unet {extent}x{extent}x{channels} C{width} D{depth} K{classes} adam B{batch}"
        ),
        group: GROUP_OF_MEMORY.into(),
        dtype: Float::F32,
        work: Work {
            elements: parameters,
            bytes: 24 * parameters + 4 * images * pixels * (channels as u64 + 1),
            flops: 2 * images * (3 * products - first),
        },
        reference: None,
        kind: Kind::UNet { network },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_counted_by_hand() {
        let network = UNet { extent: 4, channels: 1, width: 3, depth: 1, classes: 2, batch: 5 };
        let case = case(network);
        assert_eq!(case.id, "step unet 4x4x1 C3 D1 K2 adam B5");
        // Down 9·(1 + 3)·3 at 16 places and 9·(3 + 6)·6 at 4, up 4·6·3 at 4 and 9·(6 + 3)·3 at
        // 16, 3·2 at 16.
        let products = 16 * 108 + 4 * 486 + 4 * 72 + 16 * 243 + 16 * 6;
        assert_eq!(case.work.flops, 2 * 5 * (3 * products - 16 * 27));
        assert_eq!(cases(false)[0].work.elements, 31_030_658);
    }
}
