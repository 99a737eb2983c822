//! Recomputes cheap values in a loop, instead of keeping them for every step.
//!
//! The derivative of a loop is a loop that runs backwards over the stacks of the first one, one
//! stack for each value that the derivative needs. Derivative rules keep their factors, such as σ
//! and σ·(1 − σ) of a gate, so many stacks are functions of other stacks. Such a stack is written
//! once, read once, and occupies memory in between, although its elements take only a few
//! instructions. So the second loop computes them from the rows that it reads anyway.
//!
//! Fusion does the same to values outside of loops (`fuse/values.rs`). But fusion sees one body
//! at a time, and these values pass from body to body.

use super::{Parts, with_regions};
use std::collections::BTreeMap;
use wengert_core::graph::{Body, Equation, Function, ValueId};
use wengert_core::id::IdVec;
use wengert_core::op::{Control, Cost};

/// Maximum number of equations that are repeated for a stack.
const SHORT: usize = 16;

/// Recomputes, in loop steps, stacks that are cheap functions of values that the step reads; at
/// most `fuel` stacks.
pub(crate) fn unstack(function: Function, fuel: u64) -> (Function, u64) {
    with_regions(function, fuel, of_body)
}

/// The readers of a value of a body.
#[derive(Clone, Default)]
struct Uses {
    /// The equations that read it.
    equations: Vec<usize>,
    /// Whether it is a result of the body.
    given: bool,
}

fn of_body(body: &mut Body, left: &mut u64) {
    // A called function has one body for all its calls, so it is left alone.
    for equation in body.equations.iter_mut().filter(|e| e.op.callee().is_none()) {
        equation.regions.iter_mut().for_each(|region| of_body(region, left));
    }
    let scans: Vec<usize> =
        (0..body.equations.len()).filter(|n| is_scan(&body.equations[*n])).collect();
    if scans.len() < 2 {
        return;
    }
    let mut uses: IdVec<ValueId, Uses> = body.values.ids().map(|_| Uses::default()).collect();
    body.outputs.iter().for_each(|v| uses[*v].given = true);
    for (n, equation) in body.equations.iter().enumerate() {
        equation.operands.iter().for_each(|v| uses[*v].equations.push(n));
    }
    for n in scans {
        Stacks::of(body, n).unstack(body, &uses, left);
    }
}

fn is_scan(equation: &Equation) -> bool {
    matches!(equation.op.control(), Some(Control::Scan(_))) && equation.op.callee().is_none()
}

/// The operand that gives the number of steps of a scan, if there is one.
fn count(scan: &Equation) -> Option<ValueId> {
    let parts = Parts::of(scan).expect("it is a loop");
    (parts.first > 0).then(|| scan.operands[0])
}

/// The stacks of a scan.
struct Stacks {
    scan: Equation,
    parts: Parts,
    /// For each value of the region the equation that computes it.
    definitions: BTreeMap<ValueId, usize>,
    /// For each scan that reads stacks: the values of this region that are available in its
    /// region.
    known: BTreeMap<usize, Known>,
}

/// The values of another region that are available in a region.
struct Known {
    values: BTreeMap<ValueId, ValueId>,
    /// Equations that compute further ones, to be put in front.
    made: Vec<Equation>,
}

impl Stacks {
    fn of(body: &Body, n: usize) -> Stacks {
        let scan = body.equations[n].clone();
        let made = scan.regions[0].equations.iter().enumerate();
        let definitions = made.flat_map(|(n, e)| e.results.iter().map(move |v| (*v, n))).collect();
        let parts = Parts::of(&scan).expect("it is a loop");
        Stacks { scan, parts, definitions, known: BTreeMap::new() }
    }

    fn unstack(mut self, body: &mut Body, uses: &IdVec<ValueId, Uses>, left: &mut u64) {
        let outputs = &self.scan.regions[0].outputs;
        let defined = |n: &usize| self.definitions.get(&outputs[*n]).copied();
        let mut order: Vec<usize> = (self.parts.carries..outputs.len()).collect();
        order.retain(|n| defined(n).is_some());
        // Values come before the values that are computed from them.
        order.sort_by_key(defined);
        for n in order {
            let stack = self.scan.results[n];
            let readers = &uses[stack].equations;
            if *left == 0 || uses[stack].given || readers.is_empty() {
                continue;
            }
            let value = self.scan.regions[0].outputs[n];
            let again: Option<Vec<Vec<usize>>> = readers
                .iter()
                .map(|reader| self.again(&body.equations[*reader], *reader, stack, value))
                .collect();
            let Some(again) = again else { continue };
            *left -= 1;
            for (reader, equations) in readers.iter().zip(again) {
                self.make(&mut body.equations[*reader], *reader, stack, value, &equations);
            }
        }
        for (reader, known) in self.known {
            body.equations[reader].regions[0].equations.splice(..0, known.made);
        }
    }

    /// The equations that compute a value from other operands that a reader of its stack has
    /// anyway.
    fn again(
        &mut self,
        reader: &Equation,
        n: usize,
        stack: ValueId,
        value: ValueId,
    ) -> Option<Vec<usize>> {
        // Rows of steps that did not run are zeros, so they are not functions of other rows.
        let as_long =
            count(&self.scan).is_none_or(|steps| is_scan(reader) && count(reader) == Some(steps));
        if !is_scan(reader) || !as_long || !slices(reader).any(|(_, operand)| operand == stack) {
            return None;
        }
        if reader.operands.iter().filter(|v| **v == stack).count() != 1 {
            return None;
        }
        if !self.known.contains_key(&n) {
            self.known.insert(n, Known { values: self.shared(reader), made: Vec::new() });
        }
        let known = &self.known[&n].values;
        let region = &self.scan.regions[0];
        let (mut equations, mut tensors, mut expensive) = (Vec::new(), Vec::new(), false);
        let mut open = vec![value];
        while let Some(v) = open.pop() {
            if v != value && known.contains_key(&v) {
                if region.ty(v).elements() != Some(1) && !tensors.contains(&v) {
                    tensors.push(v);
                }
                continue;
            }
            let definition = *self.definitions.get(&v)?;
            let equation = &region.equations[definition];
            let traits = equation.op.traits();
            let simple =
                traits.elementwise && traits.cost <= Cost::Expensive || traits.cost == Cost::Free;
            if !simple || !equation.regions.is_empty() || equation.results.len() != 1 {
                return None;
            }
            if equations.contains(&definition) {
                continue;
            }
            expensive |= traits.cost == Cost::Expensive;
            equations.push(definition);
            if equations.len() > SHORT {
                return None;
            }
            open.extend(&equation.operands);
        }
        // An expensive function pays only if its sole operand is a tensor that is read anyway.
        equations.sort_unstable();
        (!expensive || tensors.len() == 1).then_some(equations)
    }

    /// Values available in both regions: rows of this scan's stacks that the reader slices, and
    /// operands that both read.
    fn shared(&self, reader: &Equation) -> BTreeMap<ValueId, ValueId> {
        let inputs = &reader.regions[0].inputs;
        let of_reader = Parts::of(reader).expect("it is a loop");
        let captured = |n: usize| n >= inputs.len() - of_reader.captures;
        let mut sliced: BTreeMap<ValueId, ValueId> = BTreeMap::new();
        let mut captures: BTreeMap<ValueId, ValueId> = BTreeMap::new();
        for (n, input) in inputs.iter().enumerate().skip(of_reader.carries) {
            let operand = reader.operands[of_reader.first + n];
            if captured(n) { &mut captures } else { &mut sliced }.insert(operand, *input);
        }
        let region = &self.scan.regions[0];
        let mut shared = BTreeMap::new();
        for n in self.parts.carries..region.inputs.len() {
            let operand = self.scan.operands[self.parts.first + n];
            let is_capture = n >= region.inputs.len() - self.parts.captures;
            if let Some(input) = if is_capture { &captures } else { &sliced }.get(&operand) {
                shared.insert(region.inputs[n], *input);
            }
        }
        for (result, output) in
            self.scan.results.iter().zip(&region.outputs).skip(self.parts.carries)
        {
            if let Some(input) = sliced.get(result) {
                shared.insert(*output, *input);
            }
        }
        shared
    }

    /// Computes a value in a reader's region by these equations, instead of reading it from its
    /// stack.
    fn make(
        &mut self,
        reader: &mut Equation,
        n: usize,
        stack: ValueId,
        value: ValueId,
        equations: &[usize],
    ) {
        let known = self.known.get_mut(&n).expect("what is shared was looked up before");
        let made = &self.scan.regions[0];
        let position =
            slices(reader).find(|(_, operand)| *operand == stack).expect("it is sliced").0;
        let first = Parts::of(reader).expect("it is a loop").first;
        reader.operands.remove(first + position);
        let region: &mut Body = &mut reader.regions[0];
        let part = region.inputs.remove(position);
        let mut local: BTreeMap<ValueId, ValueId> = BTreeMap::new();
        for n in equations {
            let equation = &made.equations[*n];
            let operand = |v| *local.get(v).unwrap_or_else(|| &known.values[v]);
            let operands = equation.operands.iter().map(operand).collect();
            let result = region.values.push(made.ty(equation.results[0]).clone());
            local.insert(equation.results[0], result);
            known.made.push(Equation { operands, results: vec![result], ..equation.clone() });
        }
        let again = local[&value];
        let rename = |v: &mut ValueId| {
            if *v == part {
                *v = again;
            }
        };
        region.equations.iter_mut().flat_map(|e| &mut e.operands).for_each(rename);
        region.outputs.iter_mut().for_each(rename);
        known.values.insert(value, again);
    }
}

/// The sliced operands of a scan, with the region inputs that they become.
fn slices(scan: &Equation) -> impl Iterator<Item = (usize, ValueId)> + '_ {
    let parts = Parts::of(scan).expect("it is a loop");
    let inputs = scan.regions[0].inputs.len();
    (parts.carries..inputs - parts.captures).map(move |n| (n, scan.operands[parts.first + n]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert_core::graph::{parse_program, verify};
    use wengert_core::{Literal, interpret};

    /// A loop with stacks of σ(a), σ·(1 − σ), and the result of `made`, and a loop that runs
    /// backwards over them.
    fn function(made: &str, forward: &str, backward: &str, outputs: &str) -> Function {
        let text = format!(
            "func @f(%x: f32[4], %s: f32[5,4], %n: i32[]) -> (y: f32[4]{}) {{
               %0: f32[4], %1: f32[5,4], %2: f32[5,4], %3: f32[5,4] = \
                 scan {forward}%x, %s {{{}carries=1, length=5}}
                 region (%c: f32[4], %e: f32[4]) {{
                   %4: f32[] = constant {{value=f32[] 1.0}}
                   %5: f32[4] = broadcast_in_dim %4 {{shape=[4]}}
                   %6: f32[4] = add %c, %e
                   %7: f32[4] = logistic %6
                   %8: f32[4] = sub %5, %7
                   %9: f32[4] = mul %7, %8
                   %10: f32[4] = {made}
                   return %7, %7, %9, %10
                 }}
               %11: f32[4] = scan {backward}%0, %1, %2, %3 {{{}carries=1, length=5, reverse=true}}
                 region (%c: f32[4], %i: f32[4], %j: f32[4], %k: f32[4]) {{
                   %12: f32[4] = mul %c, %j
                   %13: f32[4] = mul %12, %k
                   %14: f32[4] = add %13, %i
                   return %14
                 }}
               return %11{outputs}
             }}",
            if outputs.is_empty() { "" } else { ", z: f32[5,4]" },
            if forward.is_empty() { "" } else { "counted=true, " },
            if backward.is_empty() { "" } else { "counted=true, " },
        );
        let program = parse_program(&text, "test.ir").unwrap_or_else(|e| panic!("{e}"));
        program.functions()[0].clone()
    }

    fn run(function: &Function) -> Vec<Literal> {
        let numbers = |n: usize| (0..n).map(|n| (n as f32 * 1.7).sin()).collect::<Vec<f32>>();
        let x = Literal::from_vec(&[4], numbers(4)).expect("it fits");
        let s = Literal::from_vec(&[5, 4], numbers(20)).expect("it fits");
        let n = Literal::from_vec(&[], vec![3i32]).expect("it fits");
        interpret::run(function, &[x, s, n]).expect("it runs")
    }

    /// The number of stacks that the second loop reads after `changes` changes.
    fn after(before: &Function, changes: u64) -> usize {
        let (after, made) = unstack(before.clone(), u64::MAX);
        verify(&after).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(made, changes, "{after}");
        assert_eq!(run(&after), run(before), "{after}");
        assert_eq!(unstack(after.clone(), u64::MAX), (after.clone(), 0));
        assert_eq!(unstack(before.clone(), 0), (before.clone(), 0));
        slices(&after.body.equations[1]).count()
    }

    #[test]
    fn what_is_cheap_is_made_of_what_is_read_anyway() {
        // σ·(1 − σ), and σ²·(1 − σ) computed from it.
        assert_eq!(after(&function("mul %7, %9", "", "", ""), 2), 1);
        // An expensive function of one tensor.
        assert_eq!(after(&function("exp %7", "", "", ""), 2), 1);
        // With a run-time number of steps that both loops share.
        assert_eq!(after(&function("mul %7, %9", "%n, ", "%n, ", ""), 2), 1);
    }

    #[test]
    fn what_is_not_stays() {
        // Operands without another reader stay: the sum, and the slice of the first loop.
        assert_eq!(after(&function("add %6, %7", "", "", ""), 1), 2);
        assert_eq!(after(&function("sub %e, %7", "", "", ""), 1), 2);
        // An expensive function of several tensors.
        assert_eq!(after(&function("div %6, %7", "", "", ""), 1), 2);
        // A result of the function, or a value with another reader, is a stack anyway.
        assert_eq!(after(&function("mul %7, %9", "", "", ", %2"), 1), 2);
        // Rows that the first loop leaves 0.
        assert_eq!(after(&function("mul %7, %9", "%n, ", "", ""), 0), 3);
    }
}
