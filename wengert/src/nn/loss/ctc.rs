//! Connectionist temporal classification.
//!
//! A network gives a distribution over classes for each step of a sequence, and the labels are a
//! shorter sequence without times. An *alignment* assigns a label or the blank to each step; with
//! repetitions merged and blanks dropped it spells the labels. The loss is −ln of the sum of the
//! probabilities of all alignments.
//!
//! The sum is a dynamic program over the *extended labels* e of 2·S + 1 entries: the labels, with a
//! blank before, between and behind them. α(t, s) is the logarithm of the probability of all
//! beginnings of alignments that are at entry s at step t:
//!
//! ```text
//! α(t, s) = ln p(t, e(s)) + ln(exp α(t−1, s) + exp α(t−1, s−1) + exp α(t−1, s−2))
//! ```
//!
//! The last term exists if e(s) is a label other than e(s−2): then the blank between may be
//! skipped. A `scan` over the steps computes α, so its derivative is the backward recursion.
//!
//! In place of −∞ there is [`IMPOSSIBLE`]: a difference of two infinities would be NaN, and so
//! would the derivative.

use super::Reduction;
use wengert_core::build::control::scan;
use wengert_core::{
    DType, Diagnostic, Dim, Literal, Location, Scalar, Tensor, TensorType, diagnostic,
};

/// The logarithm of the probability 0. The logarithm of a possible beginning is far above.
const IMPOSSIBLE: f64 = -1e30;

/// For each example, −ln of the probability that a sequence of distributions spells the labels
/// (Graves, Fernández, Gomez and Schmidhuber, *Connectionist temporal classification*, 2006).
///
/// The mean divides the loss of each example by the number of its labels (at least 1) first, as
/// PyTorch does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ctc {
    /// The class of the blank.
    pub blank: usize,
    /// Whether the loss of labels that no alignment spells is 0 instead of +∞. Either has the
    /// gradient 0.
    pub zero_infinity: bool,
    /// Of the examples.
    pub reduction: Reduction,
}

impl Ctc {
    /// The loss of logarithms of probabilities, floats `[T, B, C]` ([`Tensor::log_softmax`] of
    /// logits along the last axis), for labels, integers `[B, S]`. Example b has
    /// `input_lengths[b]` steps and `label_lengths[b]` labels, integers `[B]`; what follows in the
    /// tensors is ignored.
    ///
    /// An example of more than T steps or S labels, or with a label that is the blank or out of
    /// range, has the loss NaN.
    ///
    /// # Errors
    ///
    /// An operand has another shape or dtype; there is no column of labels; the blank is not
    /// below C.
    #[track_caller]
    pub fn call(
        &self,
        log_probabilities: &Tensor,
        labels: &Tensor,
        input_lengths: &Tensor,
        label_lengths: &Tensor,
    ) -> Tensor {
        let _user = Location::caller().attributed();
        let operands = [log_probabilities, labels, input_lengths, label_lengths];
        if let Some(poisoned) = operands.iter().find(|t| t.error().is_some()) {
            return (*poisoned).clone();
        }
        if let Err(error) = self.check(operands) {
            return Tensor::fail_of(&operands, error);
        }
        let [labels, input_lengths, label_lengths] = operands_as_indices(&operands[1..]);
        let wide = log_probabilities.dtype().wide();
        let log_p = log_probabilities.convert(wide).max(IMPOSSIBLE);
        let alpha = self.forward(&log_p, &labels, &input_lengths);
        let losses = -ends(&alpha, &label_lengths);
        let none = if self.zero_infinity { 0.0 } else { f64::INFINITY };
        let losses = losses.gt(-0.5 * IMPOSSIBLE).select(&losses.full_like(none), &losses);
        let valid = self.valid(&log_p, &labels, &input_lengths, &label_lengths);
        let losses = valid.select(&losses, &losses.full_like(f64::NAN));
        match self.reduction {
            Reduction::Mean => (losses / label_lengths.max(1).convert(wide)).mean(),
            reduction => reduction.call(&losses),
        }
    }

    fn check(&self, operands: [&Tensor; 4]) -> Result<(), Diagnostic> {
        let [log_p, labels, input_lengths, label_lengths] = operands;
        let batch = &labels.shape()[..labels.rank().min(1)];
        let fits = log_p.rank() == 3
            && labels.rank() == 2
            && log_p.dtype().is_float()
            && [labels, input_lengths, label_lengths].iter().all(|t| t.dtype().is_integer())
            && [&log_p.shape()[1..2], input_lengths.shape(), label_lengths.shape()] == [batch; 3];
        if !fits {
            let [log_p, labels, steps, counts] = operands.map(Tensor::ty);
            return Err(diagnostic!(
                "log-probabilities have type {log_p}, labels {labels}, lengths of inputs {steps}, \
                 of labels {counts}"
            )
            .help(
                "log-probabilities are floats [steps, batch, classes], labels are integers [batch, \
                 labels], lengths are integers [batch]",
            ));
        }
        if !labels.shape()[1].at_least(1) {
            return Err(diagnostic!("a CTC loss of labels {}", labels.ty())
                .help("give at least one column of labels; label lengths of 0 are fine"));
        }
        let (blank, classes) = (self.blank, &log_p.shape()[2]);
        if !Dim::from(blank).checked_add(&1.into()).is_some_and(|n| n.at_most(classes)) {
            return Err(diagnostic!("class {blank} of {classes} is the blank")
                .help("the blank is one of the classes, counted from 0"));
        }
        Ok(())
    }

    /// α of each example's last step, `[B, 2·S + 1]`.
    #[track_caller]
    fn forward(&self, log_p: &Tensor, labels: &Tensor, input_lengths: &Tensor) -> Tensor {
        let (entries, skips) = self.extended(labels);
        if entries.error().is_some() {
            return entries;
        }
        let [batch, count] = [0, 1].map(|axis| entries.shape()[axis].clone());
        let steps = log_p.shape()[0].clone();
        let at = entries.broadcast_to(&[steps.clone(), batch.clone(), count.clone()]);
        let emissions = log_p.take_along_axis(&at, 2);
        let dtype = input_lengths.dtype();
        let numbers = Tensor::iota(dtype, [steps], 0);
        let of_steps = [batch.clone(), count.clone()];
        let lengths = input_lengths.broadcast_in_dim(of_steps.to_vec(), &[0]);
        // Before the first step an alignment is at the first blank, of which step 0 may be.
        let is_first = Tensor::iota(DType::I32, of_steps.clone(), 1).eq(0);
        let zeros = Tensor::zeros(&TensorType::new(log_p.dtype(), of_steps));
        let impossible = zeros.full_like(IMPOSSIBLE);
        let begin = is_first.select(&zeros, &impossible);
        let (last, _) = scan(&begin, &(emissions, numbers), |alpha, (emission, number)| {
            let skipped = skips.select(&shifted(alpha, 2), &impossible);
            let next = log_sum([alpha, &shifted(alpha, 1), &skipped]) + emission;
            let there = number.lt(&lengths);
            (there.select(&next, alpha), Vec::<Tensor>::new())
        });
        last
    }

    /// The extended labels, integers `[B, 2·S + 1]`, and whether an alignment may come to each from
    /// two entries before.
    #[track_caller]
    fn extended(&self, labels: &Tensor) -> (Tensor, Tensor) {
        let [batch, count] = [0, 1].map(|axis| labels.shape()[axis].clone());
        let Some(pairs) = count.checked_scale(2) else {
            let error = diagnostic!("a CTC loss of labels {}", labels.ty());
            let poisoned = Tensor::fail_of(&[labels], error.help("there are fewer labels"));
            return (poisoned.clone(), poisoned);
        };
        let column = labels.reshape([batch.clone(), count, 1.into()]);
        let blank = Scalar::from_i64(labels.dtype(), self.blank as i64);
        let pairs_of = Tensor::concatenate(&[&column.splat(blank), &column], 2);
        let last = Tensor::full(&TensorType::new(labels.dtype(), [batch.clone(), 1.into()]), blank);
        let entries = Tensor::concatenate(&[&pairs_of.reshape([batch, pairs]), &last], 1);
        let fill = Tensor::constant(Literal::full(&[], blank));
        let before = entries.pad(&[(0, 0), (2, -2)], fill);
        let skips = entries.ne(entries.splat(blank)).and(entries.ne(before));
        (entries, skips)
    }

    /// Whether an example's lengths and labels are in range, bools `[B]`.
    #[track_caller]
    fn valid(
        &self,
        log_p: &Tensor,
        labels: &Tensor,
        input_lengths: &Tensor,
        label_lengths: &Tensor,
    ) -> Tensor {
        let value = |dim: &Dim, like: &Tensor| Tensor::dim_as_value(dim.clone(), like.dtype());
        let within =
            |lengths: &Tensor, limit: &Dim| lengths.ge(0).and(lengths.le(value(limit, lengths)));
        let blank = Scalar::from_i64(labels.dtype(), self.blank as i64);
        let wrong = labels.lt(0).or(labels.ge(value(&log_p.shape()[2], labels)));
        let wrong = wrong.or(labels.eq(labels.splat(blank)));
        let number = Tensor::iota(label_lengths.dtype(), labels.shape().to_vec(), 1);
        let counts = number.lt(label_lengths.broadcast_in_dim(labels.shape().to_vec(), &[0]));
        let wrong = wrong.and(counts).convert(DType::I32).sum_axes(&[1]);
        within(input_lengths, &log_p.shape()[0])
            .and(within(label_lengths, &labels.shape()[1]))
            .and(wrong.eq(0))
    }
}

/// Labels and lengths in a dtype that holds every class and length.
#[track_caller]
fn operands_as_indices(operands: &[&Tensor]) -> [Tensor; 3] {
    [0, 1, 2].map(|i| {
        let operand = operands[i];
        operand.convert(match operand.dtype() {
            DType::I8 | DType::U8 | DType::I32 => DType::I32,
            _ => DType::I64,
        })
    })
}

/// α moved `by` entries to the right: impossible at the first.
#[track_caller]
fn shifted(alpha: &Tensor, by: i64) -> Tensor {
    alpha.pad(&[(0, 0), (by, -by)], IMPOSSIBLE)
}

/// ln Σ exp of finite terms.
#[track_caller]
fn log_sum<const N: usize>(terms: [&Tensor; N]) -> Tensor {
    // The derivative by the greatest term is 0, since it is subtracted and added.
    let greatest = terms[1..].iter().fold(terms[0].clone(), |max, term| max.max(*term));
    let greatest = greatest.stop_gradient();
    let sum = terms[1..]
        .iter()
        .fold((terms[0] - &greatest).exp(), |sum, term| sum + (*term - &greatest).exp());
    sum.log() + greatest
}

/// The logarithm of the probability of all alignments, `[B]`: they end at the last label or at the
/// blank behind it.
#[track_caller]
fn ends(alpha: &Tensor, label_lengths: &Tensor) -> Tensor {
    if alpha.error().is_some() {
        return alpha.clone();
    }
    let batch = label_lengths.shape()[0].clone();
    let at = |entry: &Tensor| {
        let column = entry.reshape([batch.clone(), 1.into()]);
        alpha.take_along_axis(&column, 1).reshape([batch.clone()])
    };
    let behind = label_lengths * 2;
    let label = at(&(&behind - 1));
    let label = label_lengths.gt(0).select(&label, &label.full_like(IMPOSSIBLE));
    log_sum([&at(&behind), &label])
}
