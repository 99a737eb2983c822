//! The U-Net of diffusion (Ho, Jain and Abbeel, *Denoising diffusion probabilistic models*, 2020,
//! appendix B) with one level, and the loss of its training (algorithm 1).

use wengert::nn::GroupNorm;
use wengert::nn::loss::MeanSquaredError;
use wengert::prelude::*;

/// A U-Net with a residual block and attention on the way down, in the middle, and on the way up.
#[derive(Differentiable, Clone)]
pub struct Denoiser {
    time: [Linear; 2],
    begin: Conv2d,
    down: Block,
    halve: Conv2d,
    middle: Block,
    double: Conv2d,
    up: Block,
    norm: GroupNorm,
    end: Conv2d,
    #[no_derivative]
    width: usize,
}

/// Two convolutions with the embedding of the time added between them, in a residual branch; then
/// attention among the pixels, in another.
#[derive(Differentiable, Clone)]
struct Block {
    norms: [GroupNorm; 3],
    convolutions: [Conv2d; 2],
    time: Linear,
    shortcut: Option<Linear>,
    queries_keys_values: Linear,
    mixed: Linear,
}

impl Block {
    fn new(inputs: usize, outputs: usize, time: usize, groups: usize) -> Self {
        let norm = |channels| GroupNorm::new(groups, channels);
        let convolution = |inputs| Conv2d::new(inputs, outputs, [3, 3]).same();
        Block {
            norms: [norm(inputs), norm(outputs), norm(outputs)],
            convolutions: [convolution(inputs), convolution(outputs)],
            time: Linear::new(time, outputs),
            shortcut: (inputs != outputs).then(|| Linear::new(inputs, outputs)),
            queries_keys_values: Linear::new(outputs, 3 * outputs),
            mixed: Linear::new(outputs, outputs),
        }
    }

    /// Images `[B, height, width, inputs]` to `[B, height, width, outputs]`, for times
    /// `[B, time]`.
    fn call(&self, x: &Tensor, time: &Tensor) -> Tensor {
        let hidden = self.convolutions[0].call(&self.norms[0].call(x).silu());
        let hidden = hidden + self.time.call(&time.silu()).unsqueeze([1, 2]);
        let hidden = self.convolutions[1].call(&self.norms[1].call(&hidden).silu());
        let x = self.shortcut.as_ref().map_or(x.clone(), |shortcut| shortcut.call(x)) + hidden;

        // One head, of which each pixel is a position.
        let pixels = self.norms[2].call(&x).flatten_axes(1, 2).unsqueeze(2);
        let parts = self.queries_keys_values.call(&pixels).chunk(3, -1);
        let mixed =
            nn::dot_product_attention(&parts[0], &parts[1], &parts[2], nn::Mask::None, None);
        &x + self.mixed.call(&mixed).reshape(x.shape().to_vec())
    }
}

impl Denoiser {
    pub fn new(channels: usize, width: usize, groups: usize) -> Self {
        let time = 4 * width;
        Denoiser {
            time: [Linear::new(width, time), Linear::new(time, time)],
            begin: Conv2d::new(channels, width, [3, 3]).same(),
            down: Block::new(width, width, time, groups),
            halve: Conv2d::new(width, width, [3, 3]).stride([2, 2]).padding([1, 1]),
            middle: Block::new(width, 2 * width, time, groups),
            double: Conv2d::new(2 * width, 2 * width, [3, 3]).same(),
            up: Block::new(3 * width, width, time, groups),
            norm: GroupNorm::new(groups, width),
            end: Conv2d::new(width, channels, [3, 3]).same(),
            width,
        }
    }

    /// The noise in images `[B, height, width, channels]` at times `[B]`.
    pub fn call(&self, x: &Tensor, times: &Tensor) -> Tensor {
        let half = self.width / 2;
        let exponents = Tensor::linspace(x.dtype(), 0.0, -(1e4f64.ln()), half);
        let angles = times.convert(x.dtype()).outer(&exponents.exp());
        let time = Tensor::concatenate(&[angles.sin(), angles.cos()], -1);
        let time = self.time[1].call(&self.time[0].call(&time).silu());

        let down = self.down.call(&self.begin.call(x), &time);
        let middle = self.middle.call(&self.halve.call(&down), &time);
        let wide = middle.repeat_interleave(2, 1).repeat_interleave(2, 2);
        let up = Tensor::concatenate(&[self.double.call(&wide), down], -1);
        let up = self.up.call(&up, &time);
        self.end.call(&self.norm.call(&up).silu())
    }

    /// The mean squared error of the noise that is found in noisy images (equation 14), for images
    /// in −1..=1, times from 0 to 999, and normally distributed noise.
    pub fn loss(&self, images: &Tensor, times: &Tensor, noise: &Tensor) -> Tensor {
        let kept = (1.0 - Tensor::linspace(images.dtype(), 1e-4, 0.02, 1000)).cumprod(0);
        let kept = kept.index_select(0, times).unsqueeze([1, 2, 3]);
        let noisy = kept.sqrt() * images + (1.0 - &kept).sqrt() * noise;
        MeanSquaredError::default().call(&self.call(&noisy, times), noise)
    }
}
