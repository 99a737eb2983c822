//! Contraction of labelled tensors: diagonals, sums, and products of pairs.

use super::subscripts::Label;
use crate::build::tensor::Tensor;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{Binary, DotGeneral, ReduceKind};

/// The extent that a dimension variable counts as when sizes are compared.
const ASSUMED_EXTENT: f64 = 64.0;

/// A tensor whose axes have names.
#[derive(Clone)]
pub(super) struct Factor {
    pub(super) tensor: Tensor,
    pub(super) labels: Vec<Label>,
}

/// The sums of products of `factors`, with the axes `output`. Extents agree, and every label of
/// the output is one of a factor.
pub(super) fn contract(factors: Vec<Factor>, output: &[Label]) -> Tensor {
    let factors = without_broadcasts(factors);
    let mut factors: Vec<Factor> = factors.into_iter().map(Factor::distinct).collect();
    while factors.len() > 1 {
        let (i, j) = cheapest(&factors, output);
        // Later positions first, so that the earlier one stays valid.
        let right = factors.remove(j);
        let left = factors.remove(i);
        let needed = |label: &Label| {
            output.contains(label) || factors.iter().any(|f| f.labels.contains(label))
        };
        // Axes that only one of the two has are summed over first.
        let (of_left, of_right) = (left.labels.clone(), right.labels.clone());
        let left = left.summed(&|label| needed(label) || of_right.contains(label));
        let right = right.summed(&|label| needed(label) || of_left.contains(label));
        let product = multiply(left, right, &needed, output);
        factors.insert(i, product);
    }
    let last = factors.pop().expect("subscripts have at least one term");
    let result = last.summed(&|label| output.contains(label));
    result.permuted(output).tensor
}

/// The factors without those axes of an ellipsis that have extent 1 where another factor has a
/// larger one.
fn without_broadcasts(factors: Vec<Factor>) -> Vec<Factor> {
    let one = Dim::constant(1);
    let wide: Vec<Label> = factors
        .iter()
        .flat_map(|f| f.labels.iter().zip(f.tensor.shape()))
        .filter(|(label, extent)| matches!(label, Label::Ellipsis(_)) && **extent != one)
        .map(|(label, _)| *label)
        .collect();
    let narrowed = |factor: Factor| {
        let kept: Vec<usize> = (0..factor.labels.len())
            .filter(|axis| {
                factor.tensor.shape()[*axis] != one || !wide.contains(&factor.labels[*axis])
            })
            .collect();
        let shape: Vec<Dim> =
            kept.iter().map(|axis| factor.tensor.shape()[*axis].clone()).collect();
        Factor {
            tensor: factor.tensor.reshape(shape),
            labels: kept.iter().map(|axis| factor.labels[*axis]).collect(),
        }
    };
    factors.into_iter().map(narrowed).collect()
}

/// The positions, ascending, of the two factors whose product takes the fewest multiplications; of
/// equal ones the smallest product, then the first.
fn cheapest(factors: &[Factor], output: &[Label]) -> (usize, usize) {
    let mut best = (0, 1);
    let mut least = (f64::INFINITY, f64::INFINITY);
    for i in 0..factors.len() {
        for j in i + 1..factors.len() {
            let others = || factors.iter().enumerate().filter(|(n, _)| *n != i && *n != j);
            let (left, right) = (&factors[i], &factors[j]);
            let remains = |label: &Label| {
                output.contains(label) || others().any(|(_, f)| f.labels.contains(label))
            };
            let extra = right.axes().filter(|(label, _)| !left.labels.contains(label));
            let axes: Vec<(Label, f64)> = left.axes().chain(extra).collect();
            let multiplications: f64 = axes.iter().map(|(_, extent)| extent).product();
            let elements: f64 =
                axes.iter().filter(|(label, _)| remains(label)).map(|(_, extent)| extent).product();
            if (multiplications, elements) < least {
                (best, least) = ((i, j), (multiplications, elements));
            }
        }
    }
    best
}

impl Factor {
    /// Labels with their extents.
    fn axes(&self) -> impl Iterator<Item = (Label, f64)> + '_ {
        self.labels.iter().copied().zip(self.tensor.shape().iter().map(estimate))
    }

    fn axis(&self, label: Label) -> Option<usize> {
        self.labels.iter().position(|l| *l == label)
    }

    /// The diagonal over each label that occurs more than once.
    fn distinct(mut self) -> Factor {
        let repeated = |labels: &[Label]| {
            (0..labels.len()).find_map(|i| {
                let first = labels[..i].iter().position(|l| *l == labels[i])?;
                Some((first, i))
            })
        };
        while let Some((first, second)) = repeated(&self.labels) {
            let label = self.labels[first];
            self.tensor = self.tensor.diagonal(0, first, second);
            self.labels.remove(second);
            self.labels.remove(first);
            self.labels.push(label);
        }
        self
    }

    /// The sum over the labels that are not needed.
    fn summed(self, needed: &dyn Fn(&Label) -> bool) -> Factor {
        let axes: Vec<usize> =
            (0..self.labels.len()).filter(|axis| !needed(&self.labels[*axis])).collect();
        if axes.is_empty() {
            return self;
        }
        let kind = match self.tensor.dtype() {
            DType::Bool => ReduceKind::Or,
            _ => ReduceKind::Sum,
        };
        let labels = self.labels.iter().copied().filter(|label| needed(label)).collect();
        Factor { tensor: self.tensor.reduce(kind, axes), labels }
    }

    /// The axes in the order of `order`, which has the same labels.
    fn permuted(self, order: &[Label]) -> Factor {
        let axes: Vec<usize> = order.iter().filter_map(|label| self.axis(*label)).collect();
        Factor { tensor: self.tensor.permute(axes), labels: order.to_vec() }
    }

    /// The tensor with the axes of `order`, of extent 1 where it has none.
    fn aligned(self, order: &[Label]) -> Tensor {
        let own: Vec<Label> =
            order.iter().copied().filter(|label| self.labels.contains(label)).collect();
        let aligned = self.permuted(&own);
        let missing: Vec<usize> =
            (0..order.len()).filter(|axis| !own.contains(&order[*axis])).collect();
        aligned.tensor.unsqueeze(missing)
    }
}

/// The product of two factors, summed over the labels that both have and that are not needed.
fn multiply(
    left: Factor,
    right: Factor,
    needed: &dyn Fn(&Label) -> bool,
    output: &[Label],
) -> Factor {
    let mut shared: Vec<Label> =
        left.labels.iter().copied().filter(|label| right.labels.contains(label)).collect();
    // Batch axes come in the order of the result, which saves a permutation.
    shared.sort_by_key(|label| output.iter().position(|l| l == label));
    let (batch, contracted): (Vec<Label>, Vec<Label>) =
        shared.iter().partition(|label| needed(label));
    let free = |factor: &Factor| {
        let labels = factor.labels.iter().copied();
        labels.filter(|label| !shared.contains(label)).collect::<Vec<_>>()
    };
    let labels = [batch.clone(), free(&left), free(&right)].concat();
    if contracted.is_empty() {
        let kind = if left.tensor.dtype() == DType::Bool { Binary::And } else { Binary::Mul };
        let tensor = left.aligned(&labels).binary(kind, &right.aligned(&labels));
        return Factor { tensor, labels };
    }
    let axes = |factor: &Factor, labels: &[Label]| {
        labels.iter().filter_map(|label| factor.axis(*label)).collect::<Vec<_>>()
    };
    let dot = DotGeneral {
        contract: (axes(&left, &contracted), axes(&right, &contracted)),
        batch: (axes(&left, &batch), axes(&right, &batch)),
        result: None,
    };
    Factor { tensor: Tensor::apply(dot, &[&left.tensor, &right.tensor]), labels }
}

/// An extent, to compare sizes.
fn estimate(extent: &Dim) -> f64 {
    extent.as_constant().map_or(ASSUMED_EXTENT, |n| n as f64)
}
