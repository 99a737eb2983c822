//! A step of a run, and the checks of its numbers.

use super::super::ADVICE;
use super::super::folder::diverged;
use super::super::{Event, StepRecord, TrainError};
use super::{Run, report};
use crate::optim::LEAST_LOSS_SCALE;
use crate::outputs::Outputs;
use std::time::{Duration, Instant};

/// Steps of the current epoch in this process.
#[derive(Default)]
pub(super) struct InEpoch {
    steps: u64,
    examples: u64,
    time: Duration,
}

/// A step that is done.
pub(super) struct Stepped {
    pub record: StepRecord,
    pub outputs: Outputs,
    /// The mean loss of the epoch, if the step is its last.
    pub epoch_loss: Option<f64>,
}

impl Run<'_> {
    /// Computes a step, and reports it and the epoch that it ends.
    ///
    /// Errors: its loss is not finite, or its gradient with the least loss scale.
    pub(super) fn step(&mut self) -> Result<Stepped, TrainError> {
        let before = self.progress.step;
        let (epoch, ends_epoch) =
            (self.schedule.epoch_of(before), self.schedule.ends_epoch(before));
        let began = Instant::now();
        let next = self.feed.next()?;
        let (batch, waited) = next.expect("there is a batch for each step");
        let outputs = {
            let _span = tracing::debug_span!("step", number = before + 1).entered();
            let key = self.recipe.key_for(before + 1);
            self.step.run(self.session, batch.inputs.clone(), &key)?
        };
        let loss = self.recorded.loss(&outputs)?;
        let time = began.elapsed().saturating_sub(self.step.compiling());
        let number = before + 1;
        self.progress.step = number;
        if !loss.is_finite() {
            let advice = match batch.non_finite(&self.examples) {
                Some(fault) => format!("the data are at fault: {fault}"),
                None if number == 1 => {
                    "no update was made yet: look at the initial values and the scale of the data"
                        .into()
                }
                None => ADVICE.into(),
            };
            let what = format!("the loss is {loss} at step {number}");
            return Err(diverged(what, advice, self.output.as_ref()));
        }
        let read = self.recorded.read(&outputs)?;
        let examples = batch.rows.len() as u64;
        let record = StepRecord { step: number, epoch, examples, time, waited, ..read };
        if record.skipped && record.loss_scale.is_none_or(|scale| scale <= LEAST_LOSS_SCALE) {
            let what =
                format!("the gradient is not finite at step {number}, with the least loss scale");
            return Err(diverged(what, ADVICE.into(), self.output.as_ref()));
        }
        self.progress.epoch_loss += loss * examples as f64;
        self.progress.epoch_examples += record.examples;
        report(Event::Step(&record), &mut self.output, self.observe)?;
        self.in_epoch.steps += 1;
        self.in_epoch.examples += record.examples;
        self.in_epoch.time += time;
        let epoch_loss =
            ends_epoch.then(|| self.progress.epoch_loss / self.progress.epoch_examples as f64);
        if let Some(loss) = epoch_loss {
            let InEpoch { steps, examples, time } = std::mem::take(&mut self.in_epoch);
            let event = Event::Epoch { epoch, loss, last: &record, steps, examples, time };
            report(event, &mut self.output, self.observe)?;
            (self.progress.epoch_loss, self.progress.epoch_examples) = (0.0, 0);
        }
        Ok(Stepped { record, outputs, epoch_loss })
    }
}
