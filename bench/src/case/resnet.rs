//! Training steps of a residual network: [`wengert::models::ResNet`] with batch norms in
//! training, the mean cross-entropy of its logits, gradient descent with momentum.
//!
//! It has no plain loop: it is compiled for its [memory](crate::memory), and not timed.

use super::catalogue::GROUP_OF_MEMORY;
use super::{Case, Float, Kind, program, read};
use crate::record::Work;
use serde::{Deserialize, Serialize};
use wengert::models::{ResNet as Model, ResNetSettings};
use wengert::prelude::{Sgd, cross_entropy, value_aux_and_grad};
use wengert::{DType, Differentiable, Program, Result};

/// A network and the sizes of its batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResNet {
    /// Height and width of an image.
    pub extent: usize,
    /// Channels of an image.
    pub channels: usize,
    /// Channels of the first convolution.
    pub width: usize,
    /// Blocks of each stage.
    pub blocks: [usize; 4],
    /// Classes.
    pub classes: usize,
    /// Images of a step.
    pub batch: usize,
}

const RATE: f64 = 0.1;
const MOMENTUM: f64 = 0.9;

impl ResNet {
    fn settings(&self) -> ResNetSettings {
        let ResNet { channels, width, blocks, classes, .. } = *self;
        ResNetSettings { channels, width, blocks, classes }
    }

    pub(super) fn program(&self) -> Result<Program> {
        let ResNet { extent, channels, batch, .. } = *self;
        program(|f| {
            let x = read(f, "x", DType::F32, &[batch, extent, extent, channels]);
            let y = read(f, "y", DType::I32, &[batch]);
            let model = Model::new(&self.settings());
            let (statistics, model) =
                (f.state("model", model.statistics()), f.state("model", model));
            let (loss, seen, gradient) = value_aux_and_grad(&model, |m| {
                let (logits, seen) = m.train(&x, &statistics);
                (cross_entropy(&logits, &y), seen)
            });
            Sgd::new(RATE).momentum(MOMENTUM).step(f, &model, &gradient);
            for (path, value) in seen.tensors() {
                f.update(&format!("model.{path}"), &value);
            }
            f.create("loss", &loss);
        })
    }

    /// Multiply-adds of an image's forward pass, those of the first layer, and channels of all
    /// norms.
    fn counts(&self) -> [u64; 3] {
        let ResNet { extent, channels, width, blocks, classes, .. } = *self;
        let halved = |extent: usize| extent.div_ceil(2);
        let mut extent = halved(extent);
        let first = extent * extent * 49 * channels * width;
        let (mut all, mut norms, mut inputs) = (first, width, width);
        extent = halved(extent);
        for (stage, blocks) in blocks.into_iter().enumerate() {
            let within = width << stage;
            let outputs = 4 * within;
            for block in 0..blocks {
                // The block's middle convolution has the stride.
                all += extent * extent * inputs * within;
                if stage > 0 && block == 0 {
                    extent = halved(extent);
                }
                all += extent * extent * within * (9 * within + outputs);
                norms += 2 * within + outputs;
                if block == 0 {
                    all += extent * extent * inputs * outputs;
                    norms += outputs;
                }
                inputs = outputs;
            }
        }
        [all + inputs * classes, first, norms].map(|n| n as u64)
    }
}

pub(super) fn cases(small: bool) -> Vec<Case> {
    let resnet_50 = ResNet {
        extent: 224,
        channels: 3,
        width: 64,
        blocks: [3, 4, 6, 3],
        classes: 1000,
        batch: 16,
    };
    let tiny =
        ResNet { extent: 32, width: 2, blocks: [1, 2, 1, 1], classes: 5, batch: 2, ..resnet_50 };
    vec![case(if small { tiny } else { resnet_50 })]
}

/// The work of a step: each layer's products, its weights' gradient, and except for the first
/// layer its input's gradient. Parameters, velocities and running statistics are read and
/// written, the batch is read.
fn case(network: ResNet) -> Case {
    let ResNet { extent, channels, width, blocks, classes, batch } = network;
    let parameters = network.settings().parameters() as u64;
    let [products, first, norms] = network.counts();
    let images = batch as u64;
    let stages = blocks.map(|n| n.to_string()).join("-");
    Case {
        id: format!(
            "step resnet {extent}x{extent}x{channels} C{width} {stages} K{classes} \
             momentum B{batch}"
        ),
        group: GROUP_OF_MEMORY.into(),
        dtype: Float::F32,
        work: Work {
            elements: parameters,
            bytes: 16 * (parameters + norms)
                + 4 * images * ((extent * extent * channels) as u64 + 1),
            flops: 2 * images * (3 * products - first),
        },
        reference: None,
        kind: Kind::ResNet { network },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ResNet-50 has 4.09 billion multiply-adds, 25,557,032 parameters and 53,120 elements of
    /// running statistics.
    #[test]
    fn steps_are_counted_by_hand() {
        let case = cases(false).remove(0);
        let Kind::ResNet { network } = case.kind else { panic!("a residual network") };
        assert_eq!(network.counts(), [4_089_184_256, 112 * 112 * 49 * 3 * 64, 53_120 / 2]);
        assert_eq!(case.work.elements, 25_557_032);
        assert_eq!(case.id, "step resnet 224x224x3 C64 3-4-6-3 K1000 momentum B16");
    }
}
