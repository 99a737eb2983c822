//! Measures of predicted classes, from counts.

use crate::recipe::{Average, ClassMeasure};
use std::fmt;

/// The counts of examples by right and predicted class.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Confusion {
    classes: usize,
    counts: Vec<u64>,
}

impl Confusion {
    /// The rows of the matrix: for each right class, the counts by predicted class.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[u64]> {
        self.counts.chunks(self.classes)
    }
}

impl fmt::Display for Confusion {
    /// One line for each right class, with aligned columns.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.counts.iter().map(|count| count.to_string().len()).max().unwrap_or(1);
        for row in self.rows() {
            let numbers: Vec<String> = row.iter().map(|count| format!("{count:>width$}")).collect();
            writeln!(f, "{}", numbers.join(" "))?;
        }
        Ok(())
    }
}

/// The counts that a measure needs.
pub(super) struct Counts {
    measure: ClassMeasure,
    of_classes: Vec<Count>,
    /// The matrix, if it is wanted.
    matrix: Vec<u64>,
}

/// The counts of a class.
#[derive(Clone, Copy, Default)]
struct Count {
    /// Examples of the class.
    labels: u64,
    /// Predictions of the class.
    predictions: u64,
    /// Predictions of the class that are right.
    right: u64,
}

impl Count {
    fn add(self, other: Count) -> Count {
        Count {
            labels: self.labels + other.labels,
            predictions: self.predictions + other.predictions,
            right: self.right + other.right,
        }
    }
}

impl Counts {
    pub fn new(classes: u64, measure: ClassMeasure) -> Self {
        let classes = usize::try_from(classes).expect("the recipe has limited the classes");
        let cells = if measure == ClassMeasure::Confusion { classes * classes } else { 0 };
        Counts { measure, of_classes: vec![Count::default(); classes], matrix: vec![0; cells] }
    }

    /// Adds an example. Both classes are less than the number of classes.
    pub fn add(&mut self, label: usize, predicted: usize) {
        self.of_classes[label].labels += 1;
        self.of_classes[predicted].predictions += 1;
        self.of_classes[label].right += u64::from(label == predicted);
        if !self.matrix.is_empty() {
            self.matrix[label * self.of_classes.len() + predicted] += 1;
        }
    }

    /// The measure, or the matrix.
    pub fn finish(self) -> Result<f64, Confusion> {
        let ratio = |part: u64, whole: u64| match whole {
            0 => 0.0,
            _ => part as f64 / whole as f64,
        };
        let precision = |count: Count| ratio(count.right, count.predictions);
        let recall = |count: Count| ratio(count.right, count.labels);
        // 2·(p·r)/(p + r), in counts.
        let f1 = |count: Count| ratio(2 * count.right, count.labels + count.predictions);
        match self.measure {
            ClassMeasure::Accuracy => Ok(recall(self.total())),
            ClassMeasure::Precision(average) => Ok(self.averaged(average, precision)),
            ClassMeasure::Recall(average) => Ok(self.averaged(average, recall)),
            ClassMeasure::F1(average) => Ok(self.averaged(average, f1)),
            ClassMeasure::Confusion => {
                Err(Confusion { classes: self.of_classes.len(), counts: self.matrix })
            }
        }
    }

    fn total(&self) -> Count {
        self.of_classes.iter().copied().fold(Count::default(), Count::add)
    }

    fn averaged(&self, average: Average, of: impl Fn(Count) -> f64) -> f64 {
        match average {
            Average::Micro => of(self.total()),
            Average::Class(class) => of(self.of_classes[class as usize]),
            Average::Macro => {
                let occurs = |count: &&Count| count.labels + count.predictions > 0;
                let values: Vec<f64> =
                    self.of_classes.iter().filter(occurs).map(|count| of(*count)).collect();
                match values.len() {
                    0 => 0.0,
                    n => values.iter().sum::<f64>() / n as f64,
                }
            }
        }
    }
}
