//! Residual networks (He, Zhang, Ren and Sun 2016) of bottleneck blocks, in any size.

use super::torch::{Layout, from_torch};
use crate::data::Arrays;
use crate::nn::{BatchNorm, Conv2d, Linear, RunningStatistics, Statistics, parameters};
use wengert_core::build::Padding;
use wengert_core::{Differentiable, Location, Result, Tensor};

/// Sizes of the network.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ResNetSettings {
    /// Channels of an image.
    pub channels: usize,
    /// Channels of the first convolution, and within the first stage's blocks; twice as many in
    /// each stage after it.
    pub width: usize,
    /// Blocks of each of the four stages.
    pub blocks: [usize; 4],
    /// Classes.
    pub classes: usize,
}

/// Output channels of a block per channel within it.
const EXPANSION: usize = 4;

impl ResNetSettings {
    /// ResNet-50, 26 million parameters.
    pub const RESNET_50: Self =
        ResNetSettings { channels: 3, width: 64, blocks: [3, 4, 6, 3], classes: 1000 };
    /// ResNet-101, 45 million.
    pub const RESNET_101: Self = ResNetSettings { blocks: [3, 4, 23, 3], ..Self::RESNET_50 };
    /// ResNet-152, 60 million.
    pub const RESNET_152: Self = ResNetSettings { blocks: [3, 8, 36, 3], ..Self::RESNET_50 };

    /// Number of learnt parameters, running statistics excluded.
    pub fn parameters(&self) -> usize {
        parameters(&ResNet::new(self))
    }
}

/// A residual network with stride in the blocks' middle convolution (ResNet "v1.5"). Its
/// variables and [running statistics](Self::statistics) have torchvision's names.
///
/// ```
/// # use wengert::prelude::*;
/// # use wengert::models::{ResNet, ResNetSettings};
/// # fn main() -> Result<()> {
/// # let settings = ResNetSettings { channels: 3, width: 2, blocks: [1, 1, 1, 1], classes: 5 };
/// # let mut program = Program::new();
/// program.function("train_step", |f| {
///     let (x, y) = (f.input("x", f32("B,32,32,3")), f.input("y", i32("B")));
///     let model = ResNet::new(&settings);
///     let (statistics, model) = (f.state("model", model.statistics()), f.state("model", model));
///     let (loss, seen, gradient) = value_aux_and_grad(&model, |m| {
///         let (logits, seen) = m.train(&x, &statistics);
///         (cross_entropy(&logits, &y), seen)
///     });
///     AdamW::new(1e-3).step(f, &model, &gradient);
///     for (path, value) in seen.tensors() {
///         f.update(&format!("model.{path}"), &value);
///     }
///     f.output("loss", loss);
/// })?;
/// # program.get("train_step").map(|_| ())
/// # }
/// ```
#[derive(Differentiable, Clone, Debug)]
pub struct ResNet {
    /// 7 × 7, stride 2.
    pub conv1: Conv2d,
    /// After `conv1`.
    pub bn1: BatchNorm,
    /// The first stage, at a quarter of the image's size.
    pub layer1: Vec<Bottleneck>,
    /// At an eighth.
    pub layer2: Vec<Bottleneck>,
    /// At a sixteenth.
    pub layer3: Vec<Bottleneck>,
    /// At a thirty-second.
    pub layer4: Vec<Bottleneck>,
    /// To the logits.
    pub fc: Linear,
}

/// Reduces the channels by 1 × 1, convolves by 3 × 3, and expands the channels by 1 × 1; the
/// block's input is added.
#[derive(Differentiable, Clone, Debug)]
pub struct Bottleneck {
    /// 1 × 1.
    pub conv1: Conv2d,
    /// After `conv1`.
    pub bn1: BatchNorm,
    /// 3 × 3.
    pub conv2: Conv2d,
    /// After `conv2`.
    pub bn2: BatchNorm,
    /// 1 × 1.
    pub conv3: Conv2d,
    /// After `conv3`.
    pub bn3: BatchNorm,
    /// Projection of the block's input, if the output has another shape.
    pub downsample: Option<(Conv2d, BatchNorm)>,
}

/// Applies the norm of a key path to a tensor.
type Normalize<'a> = dyn FnMut(&str, &BatchNorm, &Tensor) -> Tensor + 'a;

impl ResNet {
    /// A network before training.
    #[track_caller]
    pub fn new(settings: &ResNetSettings) -> Self {
        let _user = Location::caller().attributed();
        let ResNetSettings { channels, width, blocks, classes } = *settings;
        let mut inputs = width;
        let mut stage = |stage: usize| -> Vec<Bottleneck> {
            let within = width << stage;
            let block = |n| {
                let stride = if n == 0 && stage > 0 { 2 } else { 1 };
                let block = Bottleneck::new(inputs, within, stride, n == 0);
                inputs = EXPANSION * within;
                block
            };
            (0..blocks[stage]).map(block).collect()
        };
        let [layer1, layer2, layer3, layer4] = [0, 1, 2, 3].map(&mut stage);
        ResNet {
            conv1: Conv2d::new(channels, width, [7, 7]).stride([2, 2]).same().without_bias(),
            bn1: BatchNorm::new(width),
            layer1,
            layer2,
            layer3,
            layer4,
            fc: Linear::new(inputs, classes),
        }
    }

    fn stages(&self) -> [(&'static str, &[Bottleneck]); 4] {
        [
            ("layer1", &self.layer1),
            ("layer2", &self.layer2),
            ("layer3", &self.layer3),
            ("layer4", &self.layer4),
        ]
    }

    /// Initial running statistics of the network's norms.
    #[track_caller]
    pub fn statistics(&self) -> Statistics {
        let _user = Location::caller().attributed();
        let mut statistics = Statistics::from([("bn1".into(), self.bn1.first_statistics())]);
        for (stage, blocks) in self.stages() {
            for (n, block) in blocks.iter().enumerate() {
                for (name, norm) in block.norms() {
                    statistics.insert(format!("{stage}.{n}.{name}"), norm.first_statistics());
                }
            }
        }
        statistics
    }

    /// Prediction: logits `[B, classes]` of images `[B, height, width, channels]`, with running
    /// statistics.
    ///
    /// # Panics
    ///
    /// If the statistics are not those of such a network.
    #[track_caller]
    pub fn call(&self, x: &Tensor, statistics: &Statistics) -> Tensor {
        let _user = Location::caller().attributed();
        self.forward(x, &mut |path, norm, x| norm.call(x, running(statistics, path)))
    }

    /// Training: logits with the batch statistics of each norm, and the updated running
    /// statistics.
    ///
    /// # Panics
    ///
    /// If the statistics are not those of such a network.
    #[track_caller]
    pub fn train(&self, x: &Tensor, statistics: &Statistics) -> (Tensor, Statistics) {
        let _user = Location::caller().attributed();
        let mut seen = Statistics::new();
        let logits = self.forward(x, &mut |path, norm, x| {
            let (y, after) = norm.train(x, running(statistics, path));
            seen.insert(path.into(), after);
            y
        });
        (logits, seen)
    }

    #[track_caller]
    fn forward(&self, x: &Tensor, normalize: &mut Normalize<'_>) -> Tensor {
        let x = normalize("bn1", &self.bn1, &self.conv1.call(x)).relu();
        let mut x = x.max_pool(&[3, 3], &[2, 2], &Padding::Explicit(vec![(1, 1), (1, 1)]));
        for (stage, blocks) in self.stages() {
            for (n, block) in blocks.iter().enumerate() {
                x = block.call(&x, &mut |name, norm, x| {
                    normalize(&format!("{stage}.{n}.{name}"), norm, x)
                });
            }
        }
        self.fc.call(&x.mean_axes(&[1, 2]))
    }

    /// The variables and running statistics of a torchvision file.
    ///
    /// Errors: a tensor that is missing, or has another type than this network's.
    pub fn from_torch(&self, arrays: &Arrays) -> Result<Arrays> {
        let layout = |_: &str, rank| match rank {
            4 => Layout::Filters,
            2 => Layout::Matrix,
            _ => Layout::Same,
        };
        let mut all = from_torch(self, arrays, layout)?;
        all.extend(from_torch(&self.statistics(), arrays, layout)?);
        Ok(all)
    }
}

fn running<'a>(statistics: &'a Statistics, path: &str) -> &'a RunningStatistics {
    statistics.get(path).unwrap_or_else(|| panic!("there are no running statistics of `{path}`"))
}

impl Bottleneck {
    #[track_caller]
    fn new(inputs: usize, within: usize, stride: usize, is_first: bool) -> Self {
        let _user = Location::caller().attributed();
        let outputs = EXPANSION * within;
        let conv = |inputs, outputs, kernel: usize| {
            Conv2d::new(inputs, outputs, [kernel, kernel]).same().without_bias()
        };
        Bottleneck {
            conv1: conv(inputs, within, 1),
            bn1: BatchNorm::new(within),
            conv2: conv(within, within, 3).stride([stride, stride]),
            bn2: BatchNorm::new(within),
            conv3: conv(within, outputs, 1),
            bn3: BatchNorm::new(outputs),
            downsample: is_first.then(|| {
                (conv(inputs, outputs, 1).stride([stride, stride]), BatchNorm::new(outputs))
            }),
        }
    }

    fn norms(&self) -> Vec<(&'static str, &BatchNorm)> {
        let own = [("bn1", &self.bn1), ("bn2", &self.bn2), ("bn3", &self.bn3)];
        own.into_iter()
            .chain(self.downsample.iter().map(|(_, norm)| ("downsample.1", norm)))
            .collect()
    }

    #[track_caller]
    fn call(&self, x: &Tensor, normalize: &mut Normalize<'_>) -> Tensor {
        let _user = Location::caller().attributed();
        let y = normalize("bn1", &self.bn1, &self.conv1.call(x)).relu();
        let y = normalize("bn2", &self.bn2, &self.conv2.call(&y)).relu();
        let y = normalize("bn3", &self.bn3, &self.conv3.call(&y));
        let x = match &self.downsample {
            Some((conv, norm)) => normalize("downsample.1", norm, &conv.call(x)),
            None => x.clone(),
        };
        (y + x).relu()
    }
}
