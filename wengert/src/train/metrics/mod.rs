//! Metrics over all examples of an evaluation, batch after batch.
//!
//! An [`Accumulator`] takes the outputs of each batch and keeps only what its metric needs: sums,
//! counts by class, or for the area under the ROC curve all scores. [`crate::recipe::Aggregate`]
//! has the definitions.

mod auc;
mod classes;

use crate::outputs::Outputs;
use crate::recipe::{Aggregate, Metric};
use auc::Ranks;
pub use classes::Confusion;
use classes::Counts;
use wengert_core::{DType, Literal, Native, Result, diagnostic, with_native};

/// The values of metrics.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Measured {
    /// Names and values of the metrics that are numbers, in the recipe's order.
    pub metrics: Vec<(String, f64)>,
    /// Names and values of the metrics that are matrices.
    pub matrices: Vec<(String, Confusion)>,
}

/// The batch that is evaluated.
pub(super) struct Batch<'a> {
    /// The outputs of the function.
    pub outputs: &'a Outputs,
    /// Those of its inputs that metrics take.
    pub inputs: &'a [(&'a str, Literal)],
    /// The number of its first example.
    pub first: usize,
    /// Number of its examples.
    pub count: usize,
}

impl Batch<'_> {
    /// An output that has the examples along its first axis.
    fn rows(&self, name: &str) -> Result<&Literal> {
        let literal = self.outputs.get(name)?;
        match literal.shape().first() {
            Some(rows) if *rows == self.count => Ok(literal),
            _ => {
                Err(diagnostic!("output `{name}` is {} for {} examples", literal.ty(), self.count)
                    .help("the first axis of the output counts the examples of the batch"))
            }
        }
    }

    /// An output or input with the shape of `first`.
    fn second(&self, name: &str, first: &Literal) -> Result<&Literal> {
        let found = match self.outputs.iter()?.any(|(output, _)| output == name) {
            true => self.outputs.get(name)?,
            false => {
                let input = self.inputs.iter().find(|(input, _)| *input == name);
                &input.expect("the recipe was checked against the function").1
            }
        };
        match found.shape() == first.shape() {
            true => Ok(found),
            false => {
                Err(diagnostic!("`{name}` is {}, the metric's output {}", found.ty(), first.ty())
                    .help("both have the same shape"))
            }
        }
    }

    /// The example of an element.
    fn example(&self, of: &Literal, element: usize) -> usize {
        let width = of.shape()[1..].iter().product::<usize>().max(1);
        self.first + element / width
    }
}

/// What a metric keeps of the batches.
pub(super) struct Accumulator<'a> {
    metric: &'a Metric,
    kept: Kept,
}

enum Kept {
    /// A sum, and what it is divided by.
    Sum(f64, f64),
    Ranks(Ranks),
    Counts(Counts),
}

impl<'a> Accumulator<'a> {
    pub fn new(metric: &'a Metric) -> Self {
        let kept = match metric.aggregate {
            Aggregate::Auc { .. } => Kept::Ranks(Ranks::default()),
            Aggregate::Classes { count, measure, .. } => Kept::Counts(Counts::new(count, measure)),
            Aggregate::Sum
            | Aggregate::Mean
            | Aggregate::PerExample
            | Aggregate::Elements { .. }
            | Aggregate::Perplexity { .. } => Kept::Sum(0.0, 0.0),
        };
        Accumulator { metric, kept }
    }

    /// Adds a batch.
    ///
    /// Errors: an output has another shape than the metric takes; a label is no class.
    pub fn add(&mut self, batch: &Batch<'_>) -> Result<()> {
        let Metric { name, output, aggregate } = self.metric;
        let count = batch.count as f64;
        match (aggregate, &mut self.kept) {
            (Aggregate::Mean, Kept::Sum(sum, by)) => {
                *sum += count * batch.outputs.scalar(output)?;
                *by += count;
            }
            (Aggregate::PerExample | Aggregate::Sum, Kept::Sum(sum, by)) => {
                *sum += batch.outputs.scalar(output)?;
                *by += count;
            }
            (
                Aggregate::Elements { weights } | Aggregate::Perplexity { weights },
                Kept::Sum(sum, by),
            ) => {
                let values = batch.rows(output)?;
                match weights {
                    None => {
                        floats(values).for_each(|value| *sum += value);
                        *by += values.len() as f64;
                    }
                    Some(weights) => {
                        let weights = floats(batch.second(weights, values)?);
                        for (value, weight) in floats(values).zip(weights) {
                            // What does not count may be NaN or infinite.
                            if weight != 0.0 {
                                *sum += weight * value;
                                *by += weight;
                            }
                        }
                    }
                }
            }
            (Aggregate::Auc { labels }, Kept::Ranks(ranks)) => {
                let scores = batch.rows(output)?;
                let labels = integers(batch.second(labels, scores)?);
                for (n, (score, label)) in floats(scores).zip(labels).enumerate() {
                    if !(0..2).contains(&label) {
                        let example = batch.example(scores, n);
                        return Err(diagnostic!(
                            "metric `{name}`: the label of example {example} is {label}"
                        )
                        .help("a label is 1 for positive examples and 0 for negative ones"));
                    }
                    ranks.add(score, label == 1);
                }
            }
            (Aggregate::Classes { labels, count, .. }, Kept::Counts(counts)) => {
                let found = batch.rows(output)?;
                let right = integers(batch.second(labels, found)?);
                for (n, (found_class, label)) in integers(found).zip(right).enumerate() {
                    for (class, of) in [(label, "label"), (found_class, "predicted class")] {
                        if !(0..i128::from(*count)).contains(&class) {
                            let example = batch.example(found, n);
                            return Err(diagnostic!(
                                "metric `{name}`: the {of} of example {example} is {class}"
                            )
                            .help(format!("there are {count} classes, from 0 to {}", count - 1)));
                        }
                    }
                    counts.add(label as usize, found_class as usize);
                }
            }
            _ => unreachable!("`new` chooses what the aggregate keeps"),
        }
        Ok(())
    }

    /// Adds the value of the metric.
    ///
    /// Error: it is not defined for these examples.
    pub fn finish(self, measured: &mut Measured) -> Result<()> {
        let name = &self.metric.name;
        let value = match (&self.metric.aggregate, self.kept) {
            (Aggregate::Sum, Kept::Sum(sum, _)) => sum,
            (Aggregate::Perplexity { .. }, Kept::Sum(sum, by)) => (sum / by).exp(),
            (_, Kept::Sum(sum, by)) => sum / by,
            (_, Kept::Ranks(ranks)) => ranks.area().map_err(|class| {
                diagnostic!("metric `{name}` is not defined: all examples are {class}")
                    .help("the area under the ROC curve takes positive and negative examples")
            })?,
            (_, Kept::Counts(counts)) => match counts.finish() {
                Ok(value) => value,
                Err(matrix) => {
                    measured.matrices.push((name.clone(), matrix));
                    return Ok(());
                }
            },
        };
        measured.metrics.push((name.clone(), value));
        Ok(())
    }
}

/// The elements as f64, in order.
fn floats(literal: &Literal) -> Box<dyn Iterator<Item = f64> + '_> {
    with_native!(literal.dtype(), T => {
        let all = literal.as_slice::<T>().expect("the dtype is its own");
        Box::new(all.iter().map(|value| Native::to_f64(*value)))
    })
}

/// The elements of integers or truth values, in order.
fn integers(literal: &Literal) -> Box<dyn Iterator<Item = i128> + '_> {
    with_native!(literal.dtype(), T => {
        let all = literal.as_slice::<T>().expect("the dtype is its own");
        let is_signed = literal.dtype() != DType::Bool && literal.dtype().is_signed_integer();
        let bits = 8 * size_of::<T>() as u32;
        Box::new(all.iter().map(move |value| {
            let unsigned = Native::to_bits64(*value);
            match is_signed {
                // Shifts extend the sign.
                true => i128::from(((unsigned << (64 - bits)) as i64) >> (64 - bits)),
                false => i128::from(unsigned),
            }
        }))
    })
}
