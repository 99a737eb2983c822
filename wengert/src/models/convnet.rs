//! A small convolutional network.

use crate::nn::{Conv2d, Dropout, Linear, parameters};
use wengert_core::build::Padding;
use wengert_core::{Differentiable, Location, Tensor};

/// Sizes of the network.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ConvnetSettings {
    /// Height and width of an image, multiples of 4.
    pub image: [usize; 2],
    /// Channels of an image.
    pub channels: usize,
    /// Output channels of the two convolutions.
    pub features: [usize; 2],
    /// Elements between the two affine layers.
    pub width: usize,
    /// Classes.
    pub classes: usize,
    /// Dropout probability of these elements in training.
    pub dropout: f64,
}

impl ConvnetSettings {
    /// For the digits of MNIST: 28 × 28 pixels, ten classes.
    pub const MNIST: Self = ConvnetSettings {
        image: [28, 28],
        channels: 1,
        features: [16, 32],
        width: 128,
        classes: 10,
        dropout: 0.5,
    };

    /// Number of elements of an image after the convolutions.
    fn flat(&self) -> usize {
        self.image[0] / 4 * (self.image[1] / 4) * self.features[1]
    }

    /// Number of learnt parameters.
    pub fn parameters(&self) -> usize {
        parameters(&Convnet::new(self))
    }
}

/// Two convolutions of 3 × 3, each followed by a relu and 2 × 2 pooling, then two affine layers:
/// the form of LeNet (LeCun, Bottou, Bengio and Haffner 1998) with later improvements.
#[derive(Differentiable, Clone, Debug)]
pub struct Convnet {
    /// On the image.
    pub conv1: Conv2d,
    /// On the result of the first.
    pub conv2: Conv2d,
    /// On the flattened result.
    pub fc1: Linear,
    /// To the logits.
    pub fc2: Linear,
    #[no_derivative]
    dropout: Dropout,
}

impl Convnet {
    /// A network before training.
    ///
    /// # Panics
    ///
    /// If height or width of the images is no multiple of 4.
    #[track_caller]
    pub fn new(settings: &ConvnetSettings) -> Self {
        let _user = Location::caller().attributed();
        let ConvnetSettings { image, channels, features, width, classes, dropout } = *settings;
        assert!(
            image.iter().all(|n| n % 4 == 0),
            "images of {} × {} are not halved twice",
            image[0],
            image[1]
        );
        Convnet {
            conv1: Conv2d::new(channels, features[0], [3, 3]).same(),
            conv2: Conv2d::new(features[0], features[1], [3, 3]).same(),
            fc1: Linear::kaiming(settings.flat(), width),
            fc2: Linear::new(width, classes),
            dropout: Dropout::new(dropout),
        }
    }

    /// Logits `[B, classes]` of images `[B, height, width, channels]`. A key, as in training,
    /// enables dropout with its random numbers; without a key there is no dropout.
    #[track_caller]
    pub fn call(&self, x: &Tensor, key: Option<&Tensor>) -> Tensor {
        let _user = Location::caller().attributed();
        let pool = |x: &Tensor| x.relu().max_pool(&[2, 2], &[2, 2], &Padding::Valid);
        let x = pool(&self.conv2.call(&pool(&self.conv1.call(x))));
        let hidden = self.fc1.call(&x.flatten(1)).relu();
        self.fc2.call(&self.dropout.call(&hidden, key))
    }
}
