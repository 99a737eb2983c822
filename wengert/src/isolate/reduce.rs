//! A failing function shrunk to a minimal one that fails in the same way.
//!
//! [`reduce`] tries smaller cases and keeps each that still fails: delta debugging (Zeller and
//! Hildebrandt 2002). Its steps, in turn until none helps:
//!
//! 1. drop outputs;
//! 2. drop equations: halves, then ever smaller ranges. A value that a dropped equation computed
//!    becomes an input, with the value that it had in the run;
//! 3. replace loops by one of their steps, branches by the one that is taken, calls by their
//!    functions;
//! 4. replace the results of an equation by its operands;
//! 5. shrink extents;
//! 6. simplify constants and the values of inputs.
//!
//! The failure is a closure: it says whether a case fails, and in which way. A reduction is
//! deterministic if the closure is, and asks it a bounded number of times. A panic of the closure
//! is a way of failing too.
//!
//! ```
//! use wengert::isolate::{cut::Case, reduce::{Limits, reduce}};
//! use wengert::{Literal, core::graph::{Function, parse_program}};
//! # fn main() -> wengert::Result<()> {
//! let text = "func @f(%x: f32[8]) -> (f32[]) {
//!     %0: f32[8] = exp %x
//!     %1: f32[8] = tanh %0
//!     %2: f32[8] = log %1
//!     %3: f32[] = reduce_sum %2 {axes=[0]}
//!     return %3
//! }";
//! let program = parse_program(text, "f.ir")?;
//! let case = Case::plain(program.get("f")?, &[Literal::zeros(wengert::DType::F32, &[8])])?;
//! let mut fails = |function: &Function, _: &[Literal]| {
//!     let has_tanh = function.body.equations.iter().any(|e| e.op.name() == "tanh");
//!     has_tanh.then(|| "it has a tanh".to_owned())
//! };
//! let reduced = reduce(&case, Limits::default(), &mut fails, &mut |_| ())?;
//! assert_eq!(reduced.case.function.body.equations.len(), 1);
//! assert_eq!(reduced.case.function.input_type(0).to_string(), "f32[1]");
//! # Ok(())
//! # }
//! ```

use super::cut::{Case, Record};
use super::shrink;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use wengert_core::graph::{Function, verify};
use wengert_core::{Literal, Result, diagnostic};

/// The way in which a case fails; `None` if it does not.
pub type Fails<'a> = dyn FnMut(&Function, &[Literal]) -> Option<String> + 'a;

/// Bounds of a reduction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The most cases that are tried.
    pub attempts: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { attempts: 5000 }
    }
}

/// The progress of a reduction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// The step that has made the case smaller.
    pub step: &'static str,
    /// Cases that have been tried.
    pub attempts: usize,
    /// Equations of the function, those of regions included.
    pub equations: u64,
    /// Elements of its inputs.
    pub elements: usize,
}

/// A minimal case.
#[derive(Clone, PartialEq, Debug)]
pub struct Reduced {
    /// The case.
    pub case: Case,
    /// The way in which it fails.
    pub failure: String,
    /// Cases that were tried.
    pub attempts: usize,
    /// Whether no step makes it smaller. Otherwise the attempts were used up.
    pub is_minimal: bool,
}

/// Shrinks a case as long as it fails in the same way.
///
/// Errors: the case does not fail.
pub fn reduce(
    case: &Case,
    limits: Limits,
    fails: &mut Fails<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Reduced> {
    let Some(failure) = outcome(fails, case) else {
        return Err(diagnostic!("@{} does not fail", case.function.name)
            .help("give the values with which it fails, or another kind of failure"));
    };
    let case = case.clone();
    let mut reducer =
        Reducer { case, record: None, failure, attempts: 1, limits, fails, progress, step: "" };
    let mut is_minimal = false;
    while !is_minimal && !reducer.is_exhausted() {
        let before = reducer.case.clone();
        reducer.round();
        is_minimal = before == reducer.case;
    }
    let is_minimal = is_minimal && !reducer.is_exhausted();
    let Reducer { case, failure, attempts, .. } = reducer;
    Ok(Reduced { case, failure, attempts, is_minimal })
}

/// The failure of a case. A panic is one, named by its message.
fn outcome(fails: &mut Fails<'_>, case: &Case) -> Option<String> {
    let run = AssertUnwindSafe(|| fails(&case.function, &case.inputs));
    catch_unwind(run).unwrap_or_else(|panic| Some(format!("panic: {}", panic_text(&*panic))))
}

/// The message of a panic without its numbers, which differ between cases.
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("without a message");
    let mut out = String::new();
    for c in text.lines().next().unwrap_or_default().chars().take(200) {
        match c.is_ascii_digit() {
            true if out.ends_with('#') => {}
            true => out.push('#'),
            false => out.push(c),
        }
    }
    out
}

struct Reducer<'a> {
    case: Case,
    /// The values of the case, if they have been asked for.
    record: Option<Record>,
    failure: String,
    attempts: usize,
    limits: Limits,
    fails: &'a mut Fails<'a>,
    progress: &'a mut dyn FnMut(Progress),
    step: &'static str,
}

impl Reducer<'_> {
    fn is_exhausted(&self) -> bool {
        self.attempts >= self.limits.attempts
    }

    /// Replaces the case by a smaller one if that fails in the same way.
    fn adopt(&mut self, smaller: Option<Case>) -> bool {
        let Some(smaller) = smaller.filter(|_| !self.is_exhausted()) else { return false };
        if smaller == self.case || verify(&smaller.function).is_err() {
            return false;
        }
        self.attempts += 1;
        if outcome(self.fails, &smaller).as_ref() != Some(&self.failure) {
            return false;
        }
        (self.case, self.record) = (smaller, None);
        (self.progress)(Progress {
            step: self.step,
            attempts: self.attempts,
            equations: self.case.function.body.extent().equations,
            elements: self.case.inputs.iter().map(Literal::len).sum(),
        });
        true
    }

    /// The values of the case. `None` if the interpreter cannot run it.
    fn record(&mut self) -> Option<Record> {
        if self.record.is_none() {
            let case = &self.case;
            let record = catch_unwind(AssertUnwindSafe(|| case.record().ok()));
            self.record = record.ok().flatten();
        }
        self.record.clone()
    }

    fn count(&self) -> usize {
        self.case.function.body.equations.len()
    }

    /// Every step once.
    fn round(&mut self) {
        self.step = "outputs";
        self.outputs();
        self.step = "equations";
        self.equations();
        self.step = "regions";
        self.regions();
        self.step = "operands";
        self.operands();
        self.step = "extents";
        self.extents();
        self.step = "constants";
        self.constants();
        self.step = "inputs";
        self.inputs();
    }

    fn outputs(&mut self) {
        const ALONE: usize = 64;
        let outputs = self.case.outputs();
        if outputs.len() < 2 {
            return;
        }
        for output in outputs.iter().take(ALONE) {
            let alone = self.case.of_outputs(std::slice::from_ref(output));
            if self.adopt(Some(alone)) {
                return;
            }
        }
        let mut size = outputs.len() / 2;
        while size > 0 {
            let mut end = self.case.outputs().len();
            while end > 0 {
                let start = end.saturating_sub(size);
                let mut rest = self.case.outputs();
                rest.drain(start..end);
                let smaller = (!rest.is_empty()).then(|| self.case.of_outputs(&rest));
                self.adopt(smaller);
                end = start;
            }
            size /= 2;
        }
    }

    /// Keeps the equations whose number fits.
    fn keep(&mut self, fits: impl Fn(usize) -> bool) -> bool {
        let Some(record) = self.record() else { return false };
        let kept: Vec<bool> = (0..self.count()).map(fits).collect();
        let smaller = shrink::kept(&self.case, &record, &kept);
        let smaller = smaller.filter(|s| s.function.body.equations.len() < self.count());
        self.adopt(smaller)
    }

    /// Whether equation `number` has no operand: it stays beside the equations that use it, as long
    /// as ranges are kept.
    fn given(&self) -> Vec<bool> {
        let equations = self.case.function.body.equations.iter();
        equations.map(|e| e.operands.is_empty() && e.regions.is_empty()).collect()
    }

    fn equations(&mut self) {
        'smaller: while self.count() > 1 {
            for parts in [2, 4] {
                let size = self.count().div_ceil(parts);
                for start in (0..self.count()).step_by(size) {
                    let given = self.given();
                    if self.keep(|n| given[n] || (start..start + size).contains(&n)) {
                        continue 'smaller;
                    }
                }
            }
            break;
        }
        let mut size = self.count() / 2;
        while size > 0 && !self.is_exhausted() {
            let mut end = self.count();
            while end > 0 {
                let start = end.saturating_sub(size);
                self.keep(|n| !(start..end).contains(&n));
                end = start.min(self.count());
            }
            size /= 2;
        }
    }

    fn regions(&mut self) {
        let mut number = 0;
        while number < self.count() {
            let equation = &self.case.function.body.equations[number];
            let mut is_opened = false;
            if !equation.regions.is_empty()
                && let Some(record) = self.record()
            {
                let opened = shrink::opened(&self.case, &record, number);
                is_opened = self.adopt(opened);
            }
            // The equations of the region are in its place, and may have regions too.
            number += usize::from(!is_opened);
        }
    }

    fn operands(&mut self) {
        let mut end = self.count();
        while end > 0 {
            let smaller = shrink::bypassed(&self.case, end - 1);
            self.adopt(smaller);
            end = (end - 1).min(self.count());
        }
    }

    fn extents(&mut self) {
        for extent in shrink::extents(&self.case).into_iter().rev() {
            let smaller = [1, 2, 3, extent / 4, extent / 2, extent - 1];
            for to in smaller.into_iter().filter(|to| (1..extent).contains(to)) {
                let resized = shrink::resized(&self.case, extent, to);
                if self.adopt(resized) {
                    break;
                }
            }
        }
    }

    fn constants(&mut self) {
        for (number, literal) in shrink::constants(&self.case) {
            for simple in shrink::simpler(&literal) {
                if self.adopt(Some(shrink::with_constant(&self.case, number, simple))) {
                    break;
                }
            }
        }
    }

    fn inputs(&mut self) {
        for number in 0..self.case.inputs.len() {
            for simple in shrink::simpler(&self.case.inputs[number]) {
                if self.adopt(Some(shrink::with_input(&self.case, number, simple))) {
                    break;
                }
            }
        }
    }
}
