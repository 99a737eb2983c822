//! The steps of a plan, with their costs.

use super::{LONGEST_LINE, short};
use serde::Serialize;
use wengert_compiler::kernels::cost::{Cost, Rates};
use wengert_core::Id;
use wengert_core::call::Contract;
use wengert_core::plan::{Plan, Step, follower};

/// A step of the plan.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Kernel {
    /// The nest's number and name, or the call and its extents.
    pub name: String,
    /// `nest`, `call`, `copy`, `loop` or `branch`.
    pub kind: &'static str,
    /// Its text, without nested steps.
    pub text: String,
    /// Its nest.
    pub nest: Option<usize>,
    /// The equations that it computes, perhaps in part.
    pub equations: Vec<usize>,
    /// The step that contains it.
    pub within: Option<usize>,
    /// The number of times that it runs, if every loop around it runs to its limit.
    pub times: u64,
    /// Scalar operations of one run of it. A fused multiply-add counts as two.
    pub operations: u64,
    /// Bytes that it reads in one run, each buffer once.
    pub read: u64,
    /// Bytes that it writes in one run.
    pub written: u64,
    /// Seconds of one run at the rates of the roofline.
    pub predicted: f64,
    /// The product on whose tiles it may run, within the product's own time.
    pub follows: Option<usize>,
    /// Measured seconds in one run of the function.
    pub seconds: Option<f64>,
    /// Number of steps that were measured together, since they run one nest. The time is divided
    /// among them.
    pub shared: usize,
}

pub(super) fn kernels(plan: &Plan, steps: Vec<Vec<usize>>, rates: &Rates) -> Vec<Kernel> {
    let mut found = Vec::with_capacity(steps.len());
    block(plan, &plan.steps, None, 1, rates, &mut found);
    for (kernel, equations) in found.iter_mut().zip(steps) {
        kernel.equations = equations;
    }
    found
}

/// Adds the steps of a block, each of which runs `times` times.
fn block(
    plan: &Plan,
    steps: &[Step],
    within: Option<usize>,
    times: u64,
    rates: &Rates,
    found: &mut Vec<Kernel>,
) {
    let mut before: Option<(usize, &Step)> = None;
    for step in steps {
        let number = found.len();
        let (kind, name, nest) = match step {
            Step::Nest { nest, .. } => {
                ("nest", format!("{nest} {}", plan.nests[*nest].name), Some(nest.index()))
            }
            Step::Call { call, .. } => ("call", call.description(), None),
            Step::Start { call, .. } => ("start", call.description(), None),
            Step::Wait(transfer) => ("wait", format!("wait {}", transfer.id), None),
            Step::Copy { .. } => ("copy", "copy".into(), None),
            Step::Loop(l) => {
                ("loop", format!("loop {}, at most {} times", l.id, l.trip.limit()), None)
            }
            Step::If { .. } => ("branch", "if".into(), None),
            Step::Switch { arms, .. } => ("branch", format!("switch of {}", arms.len()), None),
        };
        let follows = before
            .filter(|(_, product)| follower(plan, product, step).is_some())
            .map(|(product, _)| product);
        let cost = Cost::of_step(plan, step);
        let text = wengert_core::plan::print::StepText(plan, step).to_string();
        found.push(Kernel {
            name,
            kind,
            text: short(&text, LONGEST_LINE),
            nest,
            equations: Vec::new(),
            within,
            times,
            operations: cost.operations,
            read: cost.read,
            written: cost.written,
            predicted: rates.seconds_of_step(plan, step),
            follows,
            seconds: None,
            shared: 1,
        });
        let inside = match step {
            Step::Loop(l) => times.saturating_mul(l.trip.limit()),
            _ => times,
        };
        for steps in step.blocks() {
            block(plan, steps, Some(number), inside, rates, found);
        }
        before = Some((number, step));
    }
}
