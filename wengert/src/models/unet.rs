//! A U-Net.

use crate::nn::{Conv2d, ConvTranspose2d, parameters};
use wengert_core::build::Padding;
use wengert_core::{Differentiable, Location, Tensor};

/// Sizes of the network.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UNetSettings {
    /// Channels of an image.
    pub channels: usize,
    /// Channels at full size; twice as many after each halving.
    pub width: usize,
    /// Number of times the image is halved.
    pub depth: usize,
    /// Classes of a pixel.
    pub classes: usize,
}

impl UNetSettings {
    /// The network of the paper: 31 million parameters.
    pub const ORIGINAL: Self = UNetSettings { channels: 1, width: 64, depth: 4, classes: 2 };

    /// Number of learnt parameters.
    pub fn parameters(&self) -> usize {
        parameters(&UNet::new(self))
    }
}

/// A network from images to images (Ronneberger, Fischer and Brox 2015). It halves the image
/// repeatedly while channels double, and then doubles it again; each step up also receives the
/// result of the step down at its size. Convolutions keep height and width, so the result has
/// those of the image.
#[derive(Differentiable, Clone, Debug)]
pub struct UNet {
    /// At each size on the way down, the largest first.
    pub down: Vec<ConvPair>,
    /// At the smallest size.
    pub bottom: ConvPair,
    /// At each size on the way up, the smallest first.
    pub up: Vec<Up>,
    /// To the classes, pixel by pixel.
    pub out: Conv2d,
}

/// Two convolutions of 3 × 3, each followed by a relu.
#[derive(Differentiable, Clone, Debug)]
pub struct ConvPair {
    /// The first.
    pub conv1: Conv2d,
    /// The second.
    pub conv2: Conv2d,
}

/// Doubles the size and concatenates the result of the way down at that size.
#[derive(Differentiable, Clone, Debug)]
pub struct Up {
    /// To twice the size and half the channels.
    pub up: ConvTranspose2d,
    /// On the concatenation.
    pub pair: ConvPair,
}

impl ConvPair {
    #[track_caller]
    fn new(inputs: usize, outputs: usize) -> Self {
        let _user = Location::caller().attributed();
        ConvPair {
            conv1: Conv2d::new(inputs, outputs, [3, 3]).same(),
            conv2: Conv2d::new(outputs, outputs, [3, 3]).same(),
        }
    }

    /// `[B, height, width, inputs]` to `[B, height, width, outputs]`.
    #[track_caller]
    pub fn call(&self, x: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        self.conv2.call(&self.conv1.call(x).relu()).relu()
    }
}

impl UNet {
    /// A network before training.
    #[track_caller]
    pub fn new(settings: &UNetSettings) -> Self {
        let _user = Location::caller().attributed();
        let UNetSettings { channels, width, depth, classes } = *settings;
        let level = |n: usize| width << n;
        let before = |n: usize| if n == 0 { channels } else { level(n - 1) };
        UNet {
            down: (0..depth).map(|n| ConvPair::new(before(n), level(n))).collect(),
            bottom: ConvPair::new(before(depth), level(depth)),
            up: (0..depth)
                .rev()
                .map(|n| Up {
                    up: ConvTranspose2d::new(level(n + 1), level(n), [2, 2]).stride([2, 2]),
                    pair: ConvPair::new(level(n + 1), level(n)),
                })
                .collect(),
            out: Conv2d::new(width, classes, [1, 1]),
        }
    }

    /// Logits of each pixel of images `[B, height, width, channels]`:
    /// `[B, height, width, classes]`. Height and width are multiples of 2 to the depth.
    #[track_caller]
    pub fn call(&self, x: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        let (mut x, mut seen) = (x.clone(), Vec::new());
        for pair in &self.down {
            let features = pair.call(&x);
            x = features.max_pool(&[2, 2], &[2, 2], &Padding::Valid);
            seen.push(features);
        }
        x = self.bottom.call(&x);
        for (up, seen) in self.up.iter().zip(seen.iter().rev()) {
            x = up.pair.call(&Tensor::concatenate(&[seen, &up.up.call(&x)], 3));
        }
        self.out.call(&x)
    }
}
