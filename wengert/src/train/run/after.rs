//! What is due after a step, and the end of a run.

use super::super::checkpoint::Progress;
use super::super::evaluate::Evaluation;
use super::super::metrics::Measured;
use super::super::save::Saving;
use super::super::{Event, Report, TrainError, weights};
use super::{Evaluated, Run, Stepped, report};
use crate::recipe::{Cadence, EPOCH_LOSS, qualified};
use wengert_core::Result;

impl Run<'_> {
    /// Whether something is due after a step by its cadence.
    fn is_on_cadence(&self, cadence: Cadence, stepped: &Stepped) -> bool {
        match cadence {
            Cadence::Never => false,
            Cadence::Steps(every) => self.progress.step.is_multiple_of(every),
            Cadence::Epochs(every) => {
                stepped.epoch_loss.is_some() && (stepped.record.epoch + 1).is_multiple_of(every)
            }
        }
    }

    /// Whether something is due after a step. Everything is due after the last one. What the
    /// observer of rank 0 wants counts for all ranks once they have agreed on it.
    fn is_due(&self, cadence: Cadence, stepped: &Stepped) -> bool {
        let ends = self.ends || (self.ranks.world().is_none() && self.stop.get());
        let is_last = self.progress.step == self.total || ends || self.stops_early();
        is_last || self.is_on_cadence(cadence, stepped)
    }

    /// Does what is due after a step. Returns whether a checkpoint is.
    pub(super) fn after(&mut self, stepped: &Stepped) -> Result<bool, TrainError> {
        let histograms = self.options.tensorboard.map(|board| board.histograms);
        if histograms.is_some_and(|cadence| self.is_due(cadence, stepped)) {
            self.histograms(stepped)?;
        }
        let is_best = self.evaluate_due(stepped)?;
        Ok(is_best || self.is_due(self.recipe.checkpoint, stepped))
    }

    /// Adds the distributions of the model's variables and of the gradients to the event file.
    fn histograms(&mut self, stepped: &Stepped) -> Result<()> {
        let step = self.progress.step;
        let of_model = weights::of_model(self.program, self.recipe);
        let mut types = self.stored.types(self.session);
        types.retain(|path, ty| {
            ty.dtype.is_float() && (of_model.is_empty() || of_model.contains(path.as_str()))
        });
        let names: Vec<&str> = types.keys().map(String::as_str).collect();
        let mut board = self.output.as_mut().and_then(|output| output.board.as_mut());
        // Other ranks send all variables also after an error of the file.
        let mut added = Ok(());
        self.stored.each_whole(self.session, &names, &mut |path, value| {
            if let (Some(board), Ok(())) = (&mut board, &added) {
                added = board.parameter(step, path, value);
            }
        })?;
        added?;
        board.map_or(Ok(()), |board| board.gradients(step, &stepped.outputs))
    }

    /// Writes a checkpoint to the run's folder, unless one of this step exists.
    pub(super) fn checkpoint(&mut self) -> Result<(), TrainError> {
        let step = self.progress.step;
        if self.checkpointed.is_none_or(|newest| newest == step) {
            return Ok(());
        }
        let saving = Saving { ranks: self.ranks, stored: &self.stored, common: self.common };
        saving.checkpoint(self.session, &mut self.output, &self.progress, self.observe)?;
        self.checkpointed = Some(step);
        Ok(())
    }

    /// Runs the evaluations that are due after a step, and takes the watched number. If early
    /// stopping ends the run by it, all evaluations are due. Returns whether the step is among the
    /// best.
    fn evaluate_due(&mut self, stepped: &Stepped) -> Result<bool, TrainError> {
        let (step, epoch) = (self.progress.step, stepped.record.epoch);
        let recipe = self.recipe;
        let watched = recipe.monitoring.watched.as_ref().map(|watched| watched.metric.as_str());
        let mut value = stepped.epoch_loss.filter(|_| watched == Some(EPOCH_LOSS));
        let mut is_best = false;
        let take = |progress: &mut Progress, value: &mut Option<f64>| {
            let value = value.take();
            value.is_some_and(|value| progress.watch.observe(step, value, &recipe.monitoring))
        };
        // The first round may end the run, and the second one does what is due then.
        for _ in 0..2 {
            for n in 0..self.evaluations.len() {
                let cadence = self.evaluations[n].evaluation.recipe.every;
                if self.evaluations[n].after == Some(step) || !self.is_due(cadence, stepped) {
                    continue;
                }
                self.evaluate(n)?;
                let on_cadence = self.is_on_cadence(cadence, stepped);
                let Evaluated { evaluation: Evaluation { set, .. }, measured, .. } =
                    &self.evaluations[n];
                let Measured { metrics, matrices } = measured;
                if on_cadence {
                    let is_watched = |name: &str| watched == Some(&*qualified(*set, name));
                    let found = metrics.iter().find(|(name, _)| is_watched(name));
                    value = value.or(found.map(|(_, value)| *value));
                }
                // Logged before the checkpoint is written, so that a run resumed from it has the
                // line.
                let event = Event::Evaluation { step, epoch, set: *set, metrics, matrices };
                report(event, &mut self.output, self.observe)?;
            }
            is_best |= take(&mut self.progress, &mut value);
        }
        Ok(is_best)
    }

    /// Runs an evaluation after the current step.
    fn evaluate(&mut self, number: usize) -> Result<(), TrainError> {
        let step = self.progress.step;
        let evaluated = &mut self.evaluations[number];
        let output = self.output.as_ref();
        evaluated.measured = evaluated.evaluation.run(self.session, Some(step), output)?;
        evaluated.after = Some(step);
        Ok(())
    }

    /// The evaluations after the last step.
    pub(super) fn last_evaluations(&mut self) -> Result<(), TrainError> {
        for number in 0..self.evaluations.len() {
            if self.evaluations[number].after != Some(self.progress.step) {
                // No step was left, or the run was stopped after the evaluations of its last step;
                // the metrics are still reported.
                self.evaluate(number)?;
            }
        }
        Ok(())
    }

    /// Writes the results.
    pub(super) fn end(mut self) -> Result<Report, TrainError> {
        let watch = &self.progress.watch;
        if self.stops_early()
            && self.progress.step < self.total
            && let Some(watched) = &self.recipe.monitoring.watched
            && let Some((best_step, best)) = watch.improved
        {
            let (step, waited) = (self.progress.step, watch.waited);
            let event = Event::EarlyStop { step, watched, waited, best, best_step };
            report(event, &mut self.output, self.observe)?;
        }
        if self.options.folder.is_some() {
            let saving = Saving { ranks: self.ranks, stored: &self.stored, common: self.common };
            let output = self.output.as_ref();
            saving.weights(self.session, output, self.program, self.recipe, &self.progress)?;
        }
        let mut metrics = Vec::new();
        for Evaluated { evaluation, measured, .. } in self.evaluations {
            let of_set = measured.metrics.into_iter();
            metrics.extend(of_set.map(|(name, v)| (qualified(evaluation.set, &name), v)));
        }
        Ok(Report {
            steps: self.progress.step,
            stopped: self.progress.step < self.total,
            resumed_at: self.resumed_at,
            metrics,
            best: self.progress.watch.best,
        })
    }
}
