//! Differences of two plans.

use super::{Change, Item, hashed};
use similar::{Algorithm, DiffOp, capture_diff_slices};
use std::collections::BTreeMap;
use wengert_core::call::Contract;
use wengert_core::plan::{Account, Argument, Plan, Step, Transfer, account};

/// The differences of two plans: sizes, the interface, and kernels in the order of their steps.
/// Kernels are matched by their code, whatever their names and addresses.
pub fn plans(a: &Plan, b: &Plan) -> Vec<Change> {
    let mut changes = Vec::new();
    let (first, second) = (account(a), account(b));
    let facts = |plan: &Plan, account: &Account| {
        let bytes = |n: u64| format!("{n} bytes");
        vec![
            ("function".to_owned(), format!("@{}", plan.function)),
            ("target".to_owned(), plan.target.name.clone()),
            ("binding".to_owned(), plan.binding.to_string()),
            ("kernels".to_owned(), kernels(plan).len().to_string()),
            ("buffers".to_owned(), plan.values.len().to_string()),
            ("arena".to_owned(), bytes(account.arena)),
            ("peak".to_owned(), bytes(account.peak.bytes)),
            ("workspace".to_owned(), bytes(account.workspace)),
            ("inputs".to_owned(), bytes(account.inputs)),
            ("outputs".to_owned(), bytes(account.outputs)),
            ("parameters".to_owned(), bytes(account.parameters)),
            ("state".to_owned(), bytes(account.state)),
            ("constants".to_owned(), bytes(account.constants)),
            ("total".to_owned(), bytes(account.total())),
        ]
    };
    for ((name, from), (_, to)) in facts(a, &first).into_iter().zip(facts(b, &second)) {
        if from != to {
            let item = |value: &str| Item::new(format!("{name} {value}"));
            let (from, how) = (item(&from), format!("now {to}"));
            changes.push(Change::Changed { from, to: item(&to), how });
        }
    }
    let (left, right) = (kernels(a), kernels(b));
    let keys = |kernels: &[Kernel]| -> Vec<u64> { kernels.iter().map(|k| k.code).collect() };
    for op in capture_diff_slices(Algorithm::Myers, &keys(&left), &keys(&right)) {
        let (old, new) = (op.old_range(), op.new_range());
        if matches!(op, DiffOp::Equal { .. }) {
            continue;
        }
        changes.extend(left[old].iter().map(|k| Change::Removed(Item::new(&k.text))));
        changes.extend(right[new].iter().map(|k| Change::Added(Item::new(&k.text))));
    }
    changes
}

/// A kernel of a plan.
struct Kernel {
    /// A hash of its code and operands, without its name and addresses.
    code: u64,
    text: String,
}

/// The kernels and copies of a plan in the order of its steps.
fn kernels(plan: &Plan) -> Vec<Kernel> {
    let mut kernels = Vec::new();
    let inputs: BTreeMap<_, &str> =
        plan.inputs.iter().map(|input| (input.value, input.name.as_str())).collect();
    let shape = |value| {
        let value: &wengert_core::plan::Value = &plan.values[value];
        let extents: Vec<String> = value.shape.iter().map(usize::to_string).collect();
        format!("{}[{}]", value.dtype, extents.join(","))
    };
    // The inputs of a run have names; other operands are known by their types.
    let listed = |arguments: &[Argument]| {
        let one = |argument: &Argument| match inputs.get(&argument.value) {
            Some(name) => format!("{name}: {}", shape(argument.value)),
            None => shape(argument.value),
        };
        arguments.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    plan.visit(&mut |step| {
        let (code, text) = match step {
            Step::Nest { nest, arguments } => {
                let mut nest = plan.nests[*nest].clone();
                let name = std::mem::take(&mut nest.name);
                let operands = listed(arguments);
                (format!("{nest}{operands}"), format!("nest {name} ({operands})"))
            }
            Step::Call { call, arguments, .. } => {
                let text = format!("call {} ({})", call.name(), listed(arguments));
                (format!("{call:?}{text}"), text)
            }
            Step::Start { transfer, call } => {
                let Transfer { operand, result, .. } = transfer;
                let operands = listed(&[operand.clone(), result.clone()]);
                let text = format!("start {} ({operands})", call.name());
                (format!("{call:?}{text}"), text)
            }
            Step::Wait(transfer) => {
                let text = format!("wait {}", shape(transfer.result.value));
                (text.clone(), text)
            }
            Step::Copy { value, .. } => {
                let text = format!("copy {}", shape(*value));
                (text.clone(), text)
            }
            Step::Loop(l) => {
                let text = format!("loop of at most {} steps", l.trip.limit());
                (text.clone(), text)
            }
            Step::If { .. } => ("if".into(), "if".into()),
            Step::Switch { arms, .. } => {
                let text = format!("switch of {} branches", arms.len());
                (text.clone(), text)
            }
        };
        kernels.push(Kernel { code: hashed(&code), text });
    });
    kernels
}
