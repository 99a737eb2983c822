//! Replaces composites by their decompositions, in a function and in the regions of its control
//! flow.
//!
//! Loops without steps are composites too: their results are their initial values.

use crate::autodiff::unpoisoned;
use wengert_core::build::Scope;
use wengert_core::graph::{Body, Equation, Function, ValueId};
use wengert_core::id::IdVec;
use wengert_core::op::{Compute, Control};
use wengert_core::{Diagnostic, Location, LocationTable, Op, Result, Target, Tensor};

/// Prefix of the rule of a location for equations by which this pass replaced a composite.
/// Derivative rules, which expand composites too, use other names. Kernels are named after this
/// rule, and a text has no other.
pub(crate) const EXPAND: &str = "expand(";

/// Maximum number of nested decompositions: regions within regions are inlined one layer at a
/// time.
const DEPTH: usize = 128;

/// The function without composites and unclaimed calls, and the number of replacements (at most
/// `fuel`).
pub(crate) fn decompose(function: Function, target: &Target, fuel: u64) -> Result<(Function, u64)> {
    let choose = |body: &Body| chosen(body, |equation| is_composite(body, equation, target));
    until_none(function, &Replacement { choose: &choose, expand: &expand }, fuel)
}

/// The function with each `custom_vjp` replaced by its forward half, and the number of
/// replacements (at most `fuel`). A copy of that half computes the residuals, if there was one.
/// The two are equal as long as neither has been trimmed.
pub(crate) fn inline_rules(function: Function, fuel: u64) -> Result<(Function, u64)> {
    let choose = |body: &Body| chosen(body, |e| matches!(e.op, Op::CustomVjp(_)));
    until_none(function, &Replacement { choose: &choose, expand: &expand }, fuel)
}

/// Replaces the chosen equations, also within their replacements.
fn until_none(
    mut function: Function,
    replacement: &Replacement<'_>,
    fuel: u64,
) -> Result<(Function, u64)> {
    let mut spent = 0;
    for _ in 0..DEPTH {
        let Some(next) = replaced(&function, replacement, fuel - spent)? else {
            return Ok((function, spent));
        };
        spent += next.1;
        function = next.0;
        if spent == fuel {
            return Ok((function, spent));
        }
    }
    Err(Diagnostic::new(format!("@{}: a decomposition does not come to an end", function.name)))
}

/// How an equation is computed.
fn compute<'a>(body: &Body, equation: &'a Equation) -> Compute<'a> {
    equation.op.compute(
        &body.types(&equation.operands),
        &body.types(&equation.results),
        &equation.regions,
    )
}

/// Whether an equation has to be replaced. Facets of literals are not computed.
fn is_composite(body: &Body, equation: &Equation, target: &Target) -> bool {
    if matches!(equation.op, Op::Constant(_)) {
        return false;
    }
    match compute(body, equation) {
        Compute::Decompose(_) => true,
        Compute::Call(call) | Compute::CallOrDecompose(call, _) => !target.claims(&call),
        Compute::Control => takes_no_step(&equation.op),
        _ => false,
    }
}

fn takes_no_step(op: &Op) -> bool {
    match op.control() {
        Some(Control::Scan(scan)) => scan.length.as_constant() == Some(0),
        Some(Control::While(op)) => op.limit() == 0,
        _ => false,
    }
}

/// The function with some equations, which are not control flow, replaced by their regions;
/// `None` if there are none.
pub(crate) fn inline_regions(
    function: &Function,
    which: impl Fn(&Equation) -> bool,
) -> Result<Option<Function>> {
    let choose = |body: &Body| chosen(body, &which);
    let replacement = Replacement { choose: &choose, expand: &expand };
    Ok(replaced(function, &replacement, u64::MAX)?.map(|(function, _)| function))
}

/// The function with calls, checkpoints and rules of users replaced by their contents.
pub(crate) fn inline_wrappers(function: &Function) -> Result<Function> {
    let is_wrapper = |equation: &Equation| {
        matches!(
            equation.op,
            Op::Checkpoint(_) | Op::FunctionCall(_) | Op::CustomJvp(_) | Op::CustomVjp(_)
        )
    };
    let mut function = function.clone();
    while let Some(inlined) = inline_regions(&function, is_wrapper)? {
        function = inlined;
    }
    Ok(function)
}

/// Which equations of a body are replaced.
type Choose<'c> = dyn Fn(&Body) -> Vec<bool> + 'c;

/// The results of an equation, from its operands.
type Expand<'c> = dyn Fn(&Body, &Equation, &[Tensor]) -> Result<Vec<Tensor>> + 'c;

/// Which equations are replaced, and their results by other ops.
pub(super) struct Replacement<'c> {
    pub choose: &'c Choose<'c>,
    pub expand: &'c Expand<'c>,
}

/// The equations of a body with a property of their own.
fn chosen(body: &Body, which: impl Fn(&Equation) -> bool) -> Vec<bool> {
    body.equations.iter().map(which).collect()
}

/// Whether there is an equation to replace.
fn any(body: &Body, choose: &Choose<'_>) -> bool {
    let within = |equation: &Equation| {
        equation.op.control().is_some() && equation.regions.iter().any(|r| any(r, choose))
    };
    choose(body).contains(&true) || body.equations.iter().any(within)
}

/// The function with at most `fuel` equations replaced, and their number; `None` if there are
/// none.
pub(super) fn replaced(
    function: &Function,
    replacement: &Replacement<'_>,
    fuel: u64,
) -> Result<Option<(Function, u64)>> {
    if fuel == 0 || !any(&function.body, replacement.choose) {
        return Ok(None);
    }
    let scope = Scope::new(function.locations.clone());
    let mut replacing = Replacing { replacement, locations: &function.locations, left: fuel };
    let body = replacing.region(&function.body, &scope)?;
    let spent = fuel - replacing.left;
    let replaced = Function { body, locations: scope.locations(), ..function.clone() };
    Ok(Some((replaced.renumber(), spent)))
}

struct Replacing<'a> {
    replacement: &'a Replacement<'a>,
    locations: &'a LocationTable,
    left: u64,
}

impl Replacing<'_> {
    /// Rebuilds a body in a scope.
    fn region(&mut self, body: &Body, scope: &Scope) -> Result<Body> {
        let inputs: Vec<Tensor> = body
            .inputs
            .iter()
            .map(|v| scope.input_at(body.ty(*v).clone(), Location::Unknown))
            .collect();
        let outputs = scope.enter(|| self.equations(body, scope, &inputs))?;
        let closure = scope.close(&outputs)?;
        assert!(closure.captures.is_empty(), "a region is closed, and so is what takes its place");
        Ok(closure.body)
    }

    fn equations(&mut self, body: &Body, scope: &Scope, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let mut tensors: IdVec<ValueId, Option<Tensor>> = body.values.ids().map(|_| None).collect();
        for (value, tensor) in body.inputs.iter().zip(inputs) {
            tensors[*value] = Some(tensor.clone());
        }
        let Replacement { choose, expand } = self.replacement;
        for (equation, chosen) in body.equations.iter().zip(choose(body)) {
            let operands: Vec<Tensor> = equation
                .operands
                .iter()
                .map(|v| {
                    tensors[*v]
                        .clone()
                        .expect("the verifier found each value defined before its use")
                })
                .collect();
            let results = if self.left > 0 && chosen {
                self.left -= 1;
                match equation.regions.is_empty() || equation.op.control().is_some() {
                    true => {
                        let rule = format!("{EXPAND}{})", equation.op.name());
                        scope.derived(equation.location, rule, || {
                            expand(body, equation, &operands)
                        })?
                    }
                    // A region's equations have locations of their own.
                    false => expand(body, equation, &operands)?,
                }
            } else {
                let location: Location = self.locations.get(equation.location).clone();
                let mut regions = equation.regions.clone();
                if equation.op.control().is_some() {
                    for region in regions.iter_mut().filter(|r| any(r, choose)) {
                        *region = self.region(region, &scope.region())?.into();
                    }
                }
                Scope::emit(equation.op.clone(), &operands, regions, location)?
            };
            for (value, tensor) in equation.results.iter().zip(results) {
                unpoisoned([&tensor]).map_err(|e| e.context(equation.op.name()))?;
                assert_eq!(
                    tensor.ty(),
                    body.ty(*value),
                    "{} decomposes to what it infers",
                    equation.op.name()
                );
                tensors[*value] = Some(tensor);
            }
        }
        let output =
            |v: &ValueId| tensors[*v].clone().expect("the verifier found each output defined");
        Ok(body.outputs.iter().map(output).collect())
    }
}

/// The results of a composite, by other ops.
fn expand(body: &Body, equation: &Equation, operands: &[Tensor]) -> Result<Vec<Tensor>> {
    match compute(body, equation) {
        Compute::Decompose(rule) | Compute::CallOrDecompose(_, rule) => Ok(rule(operands)),
        Compute::Call(_) => {
            Err(Diagnostic::new(format!("`{}` has no decomposition", equation.op.name()))
                .help("compile for a target that claims the call"))
        }
        Compute::Control => {
            let carries = match equation.op.control() {
                Some(Control::Scan(scan)) => scan.parts(operands)?.carries,
                Some(Control::While(op)) => op.parts(operands)?.carries,
                _ => unreachable!("a branch takes one of its ways"),
            };
            let stacks =
                equation.results[carries.len()..].iter().map(|v| Tensor::zeros(body.ty(*v)));
            Ok(carries.iter().cloned().chain(stacks).collect())
        }
        _ => unreachable!("only composites are expanded"),
    }
}
