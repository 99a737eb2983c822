//! Metrics of an evaluation.
//!
//! An evaluation runs a function on one batch after the other. There are two kinds of metrics:
//!
//! - **Of a number per batch.** The function computes it, and the numbers are added:
//!   [`Aggregate::Mean`], [`PerExample`](Aggregate::PerExample), [`Sum`](Aggregate::Sum). A sum of
//!   floats within a batch is rounded, so the last bits of the metric may depend on the size of the
//!   batches.
//! - **Of values per example.** The function gives an output whose first axis counts the examples:
//!   losses, scores, predicted classes ([`crate::nn::metrics`]). The evaluation counts in integers,
//!   or adds in f64 in the order of the examples. The metric does not depend on the size of the
//!   batches, if the values of an example do not.
//!
//! | aggregate | text | output | is |
//! |---|---|---|---|
//! | [`Aggregate::Mean`] | `mean` | a number | the mean of batches, weighted by their examples |
//! | [`Aggregate::PerExample`] | `per_example` | a number | the sum over the number of examples |
//! | [`Aggregate::Sum`] | `sum` | a number | the sum |
//! | [`Aggregate::Elements`] | `elements` | floats `[B, …]` | the mean of all elements |
//! | [`Aggregate::Perplexity`] | `perplexity` | losses `[B, …]` | e to the mean of all elements |
//! | [`Aggregate::Auc`] | `auc:LABELS` | scores `[B, …]` | the area under the ROC curve |
//! | [`Aggregate::Classes`] | `accuracy:COUNT:LABELS` | classes `[B, …]` | the share of right ones |
//! | | `precision.AVERAGE:COUNT:LABELS` | | see [`ClassMeasure::Precision`] |
//! | | `recall.AVERAGE:COUNT:LABELS` | | see [`ClassMeasure::Recall`] |
//! | | `f1.AVERAGE:COUNT:LABELS` | | see [`ClassMeasure::F1`] |
//! | | `confusion:COUNT:LABELS` | | a matrix of counts |
//!
//! `AVERAGE` is `macro`, `micro` or the number of a class. `elements:WEIGHTS` and
//! `perplexity:WEIGHTS` weight the elements. `LABELS` and `WEIGHTS` name an output of the function,
//! or a data input of it, of the same shape as the output.

use std::fmt;
use std::str::FromStr;
use wengert_core::graph::{Function, InputRole, OutputRole};
use wengert_core::nearest::nearest;
use wengert_core::{DType, Diagnostic, Result, TensorType, diagnostic};

/// A number, or a matrix, that an evaluation reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metric {
    /// Its name in reports, e.g. `accuracy`.
    pub name: String,
    /// The output that it aggregates, e.g. `correct`.
    pub output: String,
    /// How the values of batches are combined.
    pub aggregate: Aggregate,
}

/// How the values of several batches become one number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Aggregate {
    /// A mean of means: each batch is weighted by its number of examples.
    Mean,
    /// The sum over batches, divided by the number of examples: for a count such as `correct`.
    PerExample,
    /// The sum over batches.
    Sum,
    /// The mean of all elements: of squared or absolute errors, of hits among the
    /// [first k](crate::nn::metrics::top_k_hits).
    Elements {
        /// Weights of the elements, such as a mask; without them each element counts once.
        weights: Option<String>,
    },
    /// e to the mean of all elements, which are cross-entropies.
    Perplexity {
        /// Weights of the elements.
        weights: Option<String>,
    },
    /// The area under the ROC curve: the probability that the score of a random positive example is
    /// greater than that of a random negative one, where equal scores count half (Mann and Whitney
    /// 1947). It is computed exactly, by ranks.
    Auc {
        /// Whether each example is positive: integers or truth values, 0 or 1.
        labels: String,
    },
    /// A measure of predicted classes, which are integers, such as
    /// [`predictions`](crate::nn::metrics::predictions) gives them.
    Classes {
        /// The right classes.
        labels: String,
        /// Number of classes.
        count: u64,
        /// The measure.
        measure: ClassMeasure,
    },
}

/// A measure of predicted classes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClassMeasure {
    /// The share of predictions that are right.
    Accuracy,
    /// Of the predictions of a class, the share that is right; 0 if there are none.
    Precision(Average),
    /// Of the examples of a class, the share that is predicted; 0 if there are none.
    Recall(Average),
    /// The harmonic mean of precision and recall; 0 if neither is defined.
    F1(Average),
    /// The matrix of counts by right class (row) and predicted class (column).
    Confusion,
}

/// How the measures of classes become one number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Average {
    /// The mean over the classes that occur among labels or predictions.
    Macro,
    /// The measure of the counts of all classes together.
    Micro,
    /// The measure of one class.
    Class(u64),
}

/// Most classes of a measure that is a number.
const MOST_CLASSES: u64 = 1 << 24;
/// Most classes of a matrix.
const MOST_CONFUSED: u64 = 1024;

impl Aggregate {
    /// Whether it is a number rather than a matrix.
    pub fn is_number(&self) -> bool {
        !matches!(self, Aggregate::Classes { measure: ClassMeasure::Confusion, .. })
    }

    /// The output or input that it takes besides the metric's output.
    pub fn second(&self) -> Option<&str> {
        match self {
            Aggregate::Mean | Aggregate::PerExample | Aggregate::Sum => None,
            Aggregate::Elements { weights } | Aggregate::Perplexity { weights } => {
                weights.as_deref()
            }
            Aggregate::Auc { labels } | Aggregate::Classes { labels, .. } => Some(labels),
        }
    }

    fn verify(&self) -> Result<()> {
        let Aggregate::Classes { count, measure, .. } = self else { return Ok(()) };
        let most = if self.is_number() { MOST_CLASSES } else { MOST_CONFUSED };
        if !(1..=most).contains(count) {
            return Err(diagnostic!("a measure of {count} classes")
                .help(format!("it has at least 1 and at most {most}")));
        }
        match measure {
            ClassMeasure::Precision(Average::Class(class))
            | ClassMeasure::Recall(Average::Class(class))
            | ClassMeasure::F1(Average::Class(class))
                if class >= count =>
            {
                Err(diagnostic!("a measure of class {class} of {count}")
                    .help(format!("classes are 0 to {}", count - 1)))
            }
            _ => Ok(()),
        }
    }
}

impl Metric {
    /// Checks what can be checked without a program.
    pub(super) fn verify(&self) -> Result<()> {
        self.aggregate
            .verify()
            .map_err(|error| error.context(format_args!("recipe: metric `{}`", self.name)))
    }

    /// Checks that a function has what the metric takes.
    pub(super) fn fits(&self, function: &Function) -> Result<()> {
        let checked = || match self.aggregate {
            Aggregate::Mean | Aggregate::PerExample | Aggregate::Sum => {
                super::is_number(function, &self.output)
            }
            _ => self.per_example(function),
        };
        checked().map_err(|error| error.context(format_args!("metric `{}`", self.name)))
    }

    fn per_example(&self, function: &Function) -> Result<()> {
        let index = super::output_index(function, &self.output)?;
        let ty = function.output_type(index);
        let name = format!("output `{}` of `@{}`", self.output, function.name);
        if ty.shape.is_empty() {
            return Err(diagnostic!("{name} is {ty}, a single number")
                .help("the metric takes an output whose first axis counts the examples"));
        }
        let is_of_classes = matches!(self.aggregate, Aggregate::Classes { .. });
        if is_of_classes && !ty.dtype.is_integer() {
            return Err(diagnostic!("{name} is {ty}, not of predicted classes").help(
                "predicted classes are integers: `nn::metrics::predictions` makes them of scores",
            ));
        }
        let Some(second) = self.aggregate.second() else { return Ok(()) };
        let other = second_type(function, second)?;
        if other.shape.len() != ty.shape.len() {
            return Err(diagnostic!("{name} is {ty}, but `{second}` is {other}").help(format!(
                "the metric takes one element of `{second}` for each of `{}`",
                self.output
            )));
        }
        let is_discrete = other.dtype.is_integer() || other.dtype == DType::Bool;
        let takes_labels =
            matches!(self.aggregate, Aggregate::Auc { .. } | Aggregate::Classes { .. });
        if takes_labels && !is_discrete {
            return Err(diagnostic!("the labels `{second}` of `@{}` are {other}", function.name)
                .help("labels are integers or truth values"));
        }
        Ok(())
    }
}

/// The type of an output, or else of a data input.
fn second_type<'a>(function: &'a Function, name: &str) -> Result<&'a TensorType> {
    if let Some(index) = function.output_index(name, OutputRole::Output) {
        return Ok(function.output_type(index));
    }
    let input = function.input_index(name);
    match input.filter(|index| function.inputs[*index].role == InputRole::Input) {
        Some(index) => Ok(function.input_type(index)),
        None => {
            let inputs = function.inputs.iter().filter(|input| input.role == InputRole::Input);
            let outputs = function.outputs.iter().filter(|o| o.role == OutputRole::Output);
            let names: Vec<&String> =
                outputs.map(|o| &o.name).chain(inputs.map(|i| &i.name)).collect();
            Err(diagnostic!("`@{}` has no output or data input `{name}`", function.name)
                .help(format!("it has {}", crate::data::listed(&names))))
        }
    }
}

/// The first words of the texts.
const NAMES: [&str; 11] = [
    "mean",
    "per_example",
    "sum",
    "elements",
    "perplexity",
    "auc",
    "accuracy",
    "precision",
    "recall",
    "f1",
    "confusion",
];

impl fmt::Display for Average {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Average::Macro => f.write_str("macro"),
            Average::Micro => f.write_str("micro"),
            Average::Class(class) => write!(f, "{class}"),
        }
    }
}

impl fmt::Display for Aggregate {
    /// The text of a recipe's file, which parses back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let with = |f: &mut fmt::Formatter<'_>, name: &str, second: Option<&String>| match second {
            Some(second) => write!(f, "{name}:{second}"),
            None => f.write_str(name),
        };
        match self {
            Aggregate::Mean => f.write_str("mean"),
            Aggregate::PerExample => f.write_str("per_example"),
            Aggregate::Sum => f.write_str("sum"),
            Aggregate::Elements { weights } => with(f, "elements", weights.as_ref()),
            Aggregate::Perplexity { weights } => with(f, "perplexity", weights.as_ref()),
            Aggregate::Auc { labels } => with(f, "auc", Some(labels)),
            Aggregate::Classes { labels, count, measure } => {
                match measure {
                    ClassMeasure::Accuracy => f.write_str("accuracy")?,
                    ClassMeasure::Precision(average) => write!(f, "precision.{average}")?,
                    ClassMeasure::Recall(average) => write!(f, "recall.{average}")?,
                    ClassMeasure::F1(average) => write!(f, "f1.{average}")?,
                    ClassMeasure::Confusion => f.write_str("confusion")?,
                }
                write!(f, ":{count}:{labels}")
            }
        }
    }
}

impl FromStr for Aggregate {
    type Err = Diagnostic;

    fn from_str(text: &str) -> Result<Self> {
        let (head, second) = match text.split_once(':') {
            Some((head, second)) => (head, Some(second)),
            None => (text, None),
        };
        let (kind, average) = match head.split_once('.') {
            Some((kind, average)) => (kind, Some(average)),
            None => (head, None),
        };
        let wrong = || wrong(text, kind);
        let average = || match average {
            Some("macro") => Ok(Average::Macro),
            Some("micro") => Ok(Average::Micro),
            Some(class) => class.parse().map(Average::Class).map_err(|_| wrong()),
            None => Err(wrong()),
        };
        let measure = match kind {
            "mean" if text == kind => return Ok(Aggregate::Mean),
            "per_example" if text == kind => return Ok(Aggregate::PerExample),
            "sum" if text == kind => return Ok(Aggregate::Sum),
            "elements" if head == kind => {
                return Ok(Aggregate::Elements { weights: second.map(str::to_owned) });
            }
            "perplexity" if head == kind => {
                return Ok(Aggregate::Perplexity { weights: second.map(str::to_owned) });
            }
            "auc" if head == kind => {
                return Ok(Aggregate::Auc { labels: second.ok_or_else(wrong)?.to_owned() });
            }
            "accuracy" if head == kind => ClassMeasure::Accuracy,
            "confusion" if head == kind => ClassMeasure::Confusion,
            "precision" => ClassMeasure::Precision(average()?),
            "recall" => ClassMeasure::Recall(average()?),
            "f1" => ClassMeasure::F1(average()?),
            _ => return Err(wrong()),
        };
        let (count, labels) = second.and_then(|rest| rest.split_once(':')).ok_or_else(wrong)?;
        let count = count.parse().map_err(|_| wrong())?;
        Ok(Aggregate::Classes { labels: labels.to_owned(), count, measure })
    }
}

/// The error of a text that is no aggregate.
fn wrong(text: &str, kind: &str) -> Diagnostic {
    let all = "mean, per_example, sum, elements[:WEIGHTS], perplexity[:WEIGHTS], auc:LABELS, \
               accuracy:COUNT:LABELS, precision.macro:COUNT:LABELS (or .micro, or .CLASS), \
               recall.macro:COUNT:LABELS, f1.macro:COUNT:LABELS, confusion:COUNT:LABELS";
    diagnostic!("there is no metric `{text}`").help(match nearest(kind, NAMES) {
        Some(near) if near != kind => format!("did you mean `{near}`? there are {all}"),
        _ => format!("there are {all}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_parse_back() {
        for text in [
            "mean",
            "per_example",
            "sum",
            "elements",
            "elements:mask",
            "perplexity",
            "perplexity:mask:of",
            "auc:y",
            "accuracy:10:y",
            "precision.macro:10:y",
            "recall.micro:10:y",
            "f1.7:10:a:b",
            "confusion:3:labels",
        ] {
            assert_eq!(text.parse::<Aggregate>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for (text, help) in [
            ("median", "did you mean `mean`?"),
            ("mean:y", "there are mean,"),
            ("auc", "auc:LABELS"),
            ("f1:10:y", "f1.macro:COUNT:LABELS"),
            ("f1.both:10:y", "f1.macro:COUNT:LABELS"),
            ("accuracy.macro:10:y", "accuracy:COUNT:LABELS"),
            ("accuracy:y", "accuracy:COUNT:LABELS"),
            ("acuracy:10:y", "did you mean `accuracy`?"),
            ("", "there are mean,"),
        ] {
            let error = text.parse::<Aggregate>().unwrap_err();
            assert_eq!(error.message, format!("there is no metric `{text}`"));
            assert!(error.help.as_ref().unwrap().contains(help), "{error}");
        }
    }
}
