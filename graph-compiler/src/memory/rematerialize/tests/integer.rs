//! The cheapest schedule by an integer program, after Checkmate (Jain et al., *Checkmate:
//! Breaking the memory wall with optimal tensor rematerialization*, 2020).
//!
//! Checkmate divides a schedule into stages; each ends with the first execution of one step. In a
//! stage each step runs at most once, in the given order. `R[t, i]` says whether step `i` runs in
//! stage `t`, `S[t, v]` whether value `v` is kept from the stage before, and `FREE[t, v, k]`
//! whether `v` is freed after step `k`. The memory at each place is a sum of these.
//!
//! This program differs in three ways. Between two first executions repetitions may come in *any*
//! order, and more than once. So a stage is divided into *passes*, each in the given order; with
//! as many passes as a stage has descents at most, no schedule is lost. Steps write several
//! values. And after the last first execution there is one more stage, at whose end the outputs
//! are present.
//!
//! `FREE` is a product of terms 1 − x. Jain et al. count the terms that are 0. Here a value
//! flows: its presence in a pass, less what was freed, bounds each later reader and the value
//! kept after the pass. This forces the same integers, `FREE` included, and its relaxation is so
//! much stronger that ten steps take a fraction of a second.

use super::super::computation::{Computation, NEVER, Schedule};
use microlp::{ComparisonOp, Error, OptimizationDirection, Variable};

/// Terms of a linear expression.
type Terms = Vec<(Variable, f64)>;

/// The program for one budget.
struct Program<'a> {
    computation: &'a Computation,
    writer: Vec<Option<usize>>,
    /// For each pass and step the variable of running it, where it may run.
    run: Vec<Vec<Option<Variable>>>,
    /// For each pass and value whether it is kept from the pass before. After the last pass,
    /// whether it is present at the end.
    kept: Vec<Vec<Option<Variable>>>,
    program: microlp::Problem,
}

impl<'a> Program<'a> {
    /// The variables, with `passes` passes per stage.
    fn new(computation: &'a Computation, passes: usize) -> Self {
        let steps = computation.steps.len();
        let mut writer = vec![None; computation.values.len()];
        for (number, step) in computation.steps.iter().enumerate() {
            step.writes.iter().for_each(|v| writer[*v] = Some(number));
        }
        let mut program = microlp::Problem::new(OptimizationDirection::Minimize);
        let (mut run, mut kept) = (Vec::new(), Vec::new());
        for stage in 0..=steps {
            let useful = useful(computation, stage);
            // Before the second step only one step might be repeated, and before the first none.
            let passes = if stage < 2 { 1 } else { passes };
            for pass in 0..passes {
                let mut row = vec![None; steps];
                for (number, step) in computation.steps.iter().enumerate().take(stage) {
                    let may = step.barrier != NEVER && stage <= step.barrier;
                    if may && step.writes.iter().any(|v| useful[*v]) {
                        row[number] = Some(program.add_binary_var(step.cost as f64));
                    }
                }
                if pass + 1 == passes && stage < steps {
                    row[stage] = Some(program.add_integer_var(0.0, (1, 1)));
                }
                run.push(row);
                let values = writer.iter().zip(&useful).map(|(writer, useful)| {
                    let made = writer.is_some_and(|w| w < stage);
                    (made && *useful).then(|| program.add_binary_var(0.0))
                });
                kept.push(values.collect());
            }
        }
        let outputs = writer.iter().zip(&computation.values).map(|(writer, value)| {
            let there = writer.is_some() && value.output;
            there.then(|| program.add_integer_var(0.0, (1, 1)))
        });
        kept.push(outputs.collect());
        Program { computation, writer, run, kept, program }
    }

    fn most(&mut self, terms: &[(Variable, f64)], bound: f64) {
        self.program.add_constraint(terms, ComparisonOp::Le, bound);
    }

    /// Values that steps write, each with its writer.
    fn written(&self) -> Vec<(usize, usize)> {
        self.writer.iter().enumerate().filter_map(|(v, w)| w.map(|w| (v, w))).collect()
    }

    /// The constraints of a pass: values that are read or kept are present and not freed, and the
    /// memory while each step runs is within the budget.
    fn constrain(&mut self, pass: usize, budget: u64) {
        let computation = self.computation;
        let mut taken: Terms = Vec::new();
        // For each value, its freed amount less its initial presence.
        let mut gone: Vec<Terms> = vec![Vec::new(); computation.values.len()];
        for (value, writer) in self.written() {
            let (kept, made) = (self.kept[pass][value], self.run[pass][writer]);
            gone[value] = kept.into_iter().chain(made).map(|v| (v, -1.0)).collect();
            taken.extend(kept.map(|kept| (kept, computation.values[value].bytes as f64)));
            // A value made in a pass is read only after that, so keeping it as well is useless.
            if let (Some(kept), Some(made)) = (kept, made) {
                self.most(&[(kept, 1.0), (made, 1.0)], 1.0);
            }
        }
        for (number, step) in computation.steps.iter().enumerate() {
            let Some(run) = self.run[pass][number] else { continue };
            let bytes: u64 = step.writes.iter().map(|v| computation.values[*v].bytes).sum();
            taken.push((run, bytes as f64));
            let mut here = taken.clone();
            here.push((run, step.workspace as f64));
            self.most(&sum(here), budget as f64);
            let mut touched: Vec<usize> = step.reads.iter().chain(&step.writes).copied().collect();
            touched.sort_unstable();
            touched.dedup();
            touched.retain(|v| self.writer[*v].is_some());
            for value in touched {
                if step.reads.contains(&value) {
                    let terms: Terms = gone[value].iter().copied().chain([(run, 1.0)]).collect();
                    self.most(&terms, 0.0);
                }
                let free = self.program.add_var(0.0, (0.0, 1.0));
                self.most(&[(free, 1.0), (run, -1.0)], 0.0);
                gone[value].push((free, 1.0));
                taken.push((free, -(computation.values[value].bytes as f64)));
            }
        }
        for (value, mut terms) in gone.into_iter().enumerate() {
            terms.extend(self.kept[pass + 1][value].map(|kept| (kept, 1.0)));
            if !terms.is_empty() {
                self.most(&terms, 0.0);
            }
        }
    }
}

/// For each value whether it is useful once the first `stage` steps have run: to later steps, to
/// the end, or to recompute a useful value.
fn useful(computation: &Computation, stage: usize) -> Vec<bool> {
    let mut useful: Vec<bool> = computation.values.iter().map(|v| v.output).collect();
    for (number, step) in computation.steps.iter().enumerate().rev() {
        if number >= stage || step.writes.iter().any(|v| useful[*v]) {
            step.reads.iter().for_each(|v| useful[*v] = true);
        }
    }
    useful
}

/// Merges terms of the same variable.
fn sum(mut terms: Terms) -> Terms {
    terms.sort_unstable_by_key(|(variable, _)| variable.idx());
    terms.dedup_by(|next, first| {
        let same = next.0 == first.0;
        first.1 += if same { next.1 } else { 0.0 };
        same
    });
    terms
}

/// The cheapest schedule within a budget in which the repetitions between two first executions
/// form at most `passes` passes in the given order. None if there is none.
pub(super) fn cheapest(computation: &Computation, budget: u64, passes: usize) -> Option<Schedule> {
    let mut program = Program::new(computation, passes);
    for pass in 0..program.run.len() {
        program.constrain(pass, budget);
    }
    match program.program.solve() {
        Ok(outcome) => {
            assert!(outcome.is_optimal(), "there was no limit of time");
            let solution = outcome.into_solution().unwrap();
            let runs = program.run.iter().flat_map(|row| row.iter().enumerate());
            let runs = runs.filter(|(_, run)| run.is_some_and(|run| solution.var_value(run) > 0.5));
            Some(Schedule { executions: runs.map(|(step, _)| step).collect() })
        }
        Err(Error::Infeasible) => None,
        Err(other) => panic!("the integer program of budget {budget}: {other}"),
    }
}
