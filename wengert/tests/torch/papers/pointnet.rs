//! PointNet (Qi, Su, Mo and Guibas, *PointNet: deep learning on point sets*, 2017) for
//! classification, with the transform of the points and the orthogonality loss (equation 2).

use wengert::nn::{BatchNorm, RunningStatistics};
use wengert::prelude::*;

/// A linear map of each vector, a batch norm and a relu.
#[derive(Differentiable, Clone)]
struct Layer {
    linear: Linear,
    norm: BatchNorm,
}

impl Layer {
    fn new(inputs: usize, outputs: usize) -> Self {
        Layer {
            linear: Linear::kaiming(inputs, outputs).without_bias(),
            norm: BatchNorm::new(outputs),
        }
    }
}

/// A matrix `k × k` for each set of points, from the set itself.
#[derive(Differentiable, Clone)]
struct Transform {
    points: Vec<Layer>,
    set: Vec<Layer>,
    output: Linear,
    #[no_derivative]
    k: usize,
}

/// The network.
#[derive(Differentiable, Clone)]
pub struct PointNet {
    transform: Transform,
    points: Vec<Layer>,
    features: Transform,
    more: Vec<Layer>,
    set: Vec<Layer>,
    output: Linear,
}

/// The running statistics of all norms in their order, and those after this step.
struct Running<'a> {
    before: std::slice::Iter<'a, RunningStatistics>,
    after: Vec<RunningStatistics>,
}

impl Running<'_> {
    fn apply(&mut self, layers: &[Layer], x: &Tensor) -> Tensor {
        layers.iter().fold(x.clone(), |x, layer| {
            let before = self.before.next().expect("each norm has statistics");
            let (y, after) = layer.norm.train(&layer.linear.call(&x), before);
            self.after.push(after);
            y.relu()
        })
    }
}

/// Layers between these widths.
fn layers(widths: &[usize]) -> Vec<Layer> {
    widths.windows(2).map(|pair| Layer::new(pair[0], pair[1])).collect()
}

impl Transform {
    fn new(k: usize, width: usize) -> Self {
        Transform {
            points: layers(&[k, width, 2 * width]),
            set: layers(&[2 * width, width]),
            output: Linear::new(width, k * k),
            k,
        }
    }

    /// `[B, k, k]` of points `[B, N, k]`: the identity and what the set adds.
    fn call(&self, points: &Tensor, running: &mut Running<'_>) -> Tensor {
        let set = running.apply(&self.points, points).max_axes(1);
        let flat = self.output.call(&running.apply(&self.set, &set));
        flat.unflatten(-1, [self.k, self.k]) + Tensor::eye(points.dtype(), self.k, self.k)
    }
}

impl PointNet {
    pub fn new(width: usize, classes: usize) -> Self {
        PointNet {
            transform: Transform::new(3, width),
            points: layers(&[3, width]),
            features: Transform::new(width, width),
            more: layers(&[width, 2 * width]),
            set: layers(&[2 * width, width]),
            output: Linear::new(width, classes),
        }
    }

    /// Training: logits `[B, classes]` of points `[B, N, 3]`, the loss that keeps the transform of
    /// features orthogonal, and the running statistics of all norms, from those before.
    pub fn train(
        &self,
        points: &Tensor,
        statistics: &[RunningStatistics],
    ) -> (Tensor, Tensor, Vec<RunningStatistics>) {
        let mut running = Running { before: statistics.iter(), after: Vec::new() };
        let transform = self.transform.call(points, &mut running);
        let x = running.apply(&self.points, &points.matmul(&transform));
        let transform = self.features.call(&x, &mut running);
        let x = running.apply(&self.more, &x.matmul(&transform)).max_axes(1);
        let logits = self.output.call(&running.apply(&self.set, &x));

        let square = transform.matmul(&transform.matrix_transpose());
        let identity = Tensor::eye(square.dtype(), square.dim(-1), square.dim(-1));
        let loss = (identity - square).square().sum_axes([-2, -1]).mean();
        (logits, loss, running.after)
    }
}
