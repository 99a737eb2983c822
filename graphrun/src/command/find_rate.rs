//! `graphrun train --find-rate`: a range test of learning rates.

use crate::console::{Console, Failure, Outcome, Status};
use crate::interrupt::Interrupt;
use crate::table::Table;
use serde_json::json;
use wengert::core::graph::Program;
use wengert::data::source::Source;
use wengert::train::{Options, RateSearch, RateTrial, TrainError, find_rate};
use wengert::{Recipe, Session};

/// A search, and how it is printed.
pub(super) struct Search<'a> {
    pub program: &'a Program,
    pub recipe: &'a Recipe,
    pub data: &'a dyn Source,
    pub options: Options<'a>,
    /// Number of steps.
    pub steps: Option<u64>,
    /// The first and the last rate.
    pub range: Option<(f64, f64)>,
    pub is_json: bool,
}

impl Search<'_> {
    /// Tries the rates and prints a row for each.
    pub fn run(
        &self,
        session: &mut Session,
        interrupt: &Interrupt,
        console: &mut Console<'_>,
    ) -> Outcome {
        let mut search = RateSearch::default();
        (search.from, search.to) = self.range.unwrap_or((search.from, search.to));
        search.steps = self.steps.unwrap_or(search.steps);
        let Search { program, recipe, data, options, .. } = *self;
        let mut warnings = Vec::new();
        let found = find_rate(session, program, recipe, data, options, &search, &mut |event| {
            warnings.extend(super::train::warning(&event));
        });
        warnings.iter().for_each(|warning| console.warn(warning));
        let curve = match found {
            Ok(curve) => curve,
            Err(TrainError::Diverged(diagnostic)) => {
                return Err(Failure::new(Status::Failed, diagnostic));
            }
            Err(TrainError::Failed(diagnostic) | TrainError::Elsewhere(diagnostic)) => {
                return Err(diagnostic.into());
            }
            Err(TrainError::Stopped(diagnostic)) => {
                let (signal, status) =
                    interrupt.signal().unwrap_or(("a signal", Status::Interrupted));
                console.note(format_args!("{signal}: {}", diagnostic.message));
                return Ok(status);
            }
        };
        if self.is_json {
            for RateTrial { rate, loss, smoothed } in &curve.trials {
                console.line(json!({ "rate": rate, "loss": loss, "smoothed": smoothed }))?;
            }
            let (suggestion, diverged) = (curve.suggestion, curve.diverged);
            console.line(json!({ "suggestion": suggestion, "diverged": diverged }))?;
            return Ok(Status::Good);
        }
        let mut table = Table::new(0, ["rate", "loss", "smoothed"]);
        for RateTrial { rate, loss, smoothed } in &curve.trials {
            table.row([format!("{rate:.3e}"), format!("{loss:.6}"), format!("{smoothed:.6}")]);
        }
        console.text(table)?;
        if curve.diverged {
            console.line("the loss diverges at the next rate, or has grown fourfold")?;
        }
        match curve.suggestion {
            Some(rate) => console
                .line(format_args!("suggestion: {rate:.1e}, where the loss falls most steeply"))?,
            None => console.line("no suggestion: the smoothed loss falls at no rate")?,
        }
        Ok(Status::Good)
    }
}
