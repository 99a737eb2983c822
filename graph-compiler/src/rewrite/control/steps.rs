//! Values that depend on the number of the step alone are computed in front of the loop.
//!
//! A loop with a counter often takes row `i` of a tensor, and writes to row `start + i` of another.
//! As equations of the step these are small kernels of their own: the slice, and the sum that an
//! update needs as its index. Two rewrites remove them from the steps of a `scan` whose counter is
//! an `iota` among its slices:
//!
//! - A `dynamic_slice` of one row of a capture at the counter is a slice of the scan, if there are
//!   as many rows as steps. A slice of a scan is an address and takes no kernel.
//! - A scalar that elementwise ops make of the counter and of captures, and that another op reads,
//!   is computed for all steps at once. Its steps read a slice of that.

use super::{Parts, replace_uses, spend, with_regions};
use std::collections::{BTreeMap, BTreeSet};
use wengert_core::graph::{Body, Equation, Function, ValueId};
use wengert_core::id::IdVec;
use wengert_core::op::{BroadcastInDim, Control, Reshape};
use wengert_core::{Dim, LocationId, Op, TensorType};

/// Most steps whose scalars are computed at once.
const STEPS: i64 = 1 << 20;

/// Most equations in a chain that makes a scalar.
const DEPTH: usize = 32;

/// Moves values of counters out of loops; at most `fuel` values.
pub(crate) fn steps(function: Function, fuel: u64) -> (Function, u64) {
    with_regions(function, fuel, of_body)
}

fn of_body(body: &mut Body, left: &mut u64) {
    let mut equations: Vec<Equation> = Vec::with_capacity(body.equations.len());
    let mut iotas: BTreeSet<ValueId> = BTreeSet::new();
    for mut equation in std::mem::take(&mut body.equations) {
        equation.regions.iter_mut().for_each(|region| of_body(region, left));
        match (&equation.op, equation.op.control()) {
            (Op::Iota(iota), _) if iota.shape.len() == 1 && iota.dtype.is_integer() => {
                iotas.extend(&equation.results);
            }
            (_, Some(Control::Scan(scan))) => {
                if let Some(length @ 2..=STEPS) = scan.length.as_constant() {
                    let counters = counters(&equation, &iotas);
                    if counters.contains(&true) {
                        let moving = Moving::new(body, &equation, &counters, length);
                        moving.move_out(&mut equation, &mut equations, left);
                    }
                }
            }
            _ => {}
        }
        equations.push(equation);
    }
    body.equations = equations;
}

/// For each input of a scan's region, whether it is the number of the step.
fn counters(scan: &Equation, iotas: &BTreeSet<ValueId>) -> Vec<bool> {
    let parts = Parts::of(scan).expect("it is a loop");
    let inputs = scan.regions[0].inputs.len();
    let slices = parts.carries..inputs - parts.captures;
    let operands = scan.operands[parts.first..].iter().enumerate();
    operands.map(|(n, operand)| slices.contains(&n) && iotas.contains(operand)).collect()
}

/// Moves values of one scan in front of it.
struct Moving<'a> {
    body: &'a mut Body,
    length: Dim,
    /// The user's line of the scan.
    location: LocationId,
    /// The outer values of captures.
    captured: BTreeMap<ValueId, ValueId>,
    /// Scalars of the region that elementwise ops make of the counter, captures and constants.
    scalars: BTreeMap<ValueId, Scalar>,
    /// Equations in front of the scan.
    before: Vec<Equation>,
    /// New slices of the scan: the stack, and the input of the region.
    slices: Vec<(ValueId, ValueId)>,
}

/// A scalar that can be computed for all steps at once.
struct Scalar {
    made: Option<Equation>,
    /// Length of the longest chain of equations that make it.
    depth: usize,
    /// Whether it depends on the number of the step.
    counted: bool,
    /// The values of all steps, if they are computed.
    stack: Option<ValueId>,
}

impl<'a> Moving<'a> {
    fn new(body: &'a mut Body, scan: &Equation, counters: &[bool], length: i64) -> Self {
        let parts = Parts::of(scan).expect("it is a loop");
        let region = &scan.regions[0];
        let operands = &scan.operands[parts.first..];
        let first = region.inputs.len() - parts.captures;
        let (mut captured, mut scalars) = (BTreeMap::new(), BTreeMap::new());
        for (n, (input, operand)) in region.inputs.iter().zip(operands).enumerate() {
            if n >= first {
                captured.insert(*input, *operand);
            }
            let counted = counters[n];
            if counted || (n >= first && region.ty(*input).rank() == 0) {
                let stack = counted.then_some(*operand);
                scalars.insert(*input, Scalar { made: None, depth: 0, counted, stack });
            }
        }
        for equation in &region.equations {
            let [result] = equation.results[..] else { continue };
            let op = matches!(equation.op, Op::Constant(_)) || equation.op.traits().elementwise;
            let of: Option<Vec<&Scalar>> =
                equation.operands.iter().map(|v| scalars.get(v)).collect();
            let Some(of) = of.filter(|_| op && region.ty(result).rank() == 0) else { continue };
            let depth = of.iter().map(|s| s.depth + 1).max().unwrap_or(0);
            let counted = of.iter().any(|s| s.counted);
            if depth <= DEPTH {
                let made = Some(equation.clone());
                scalars.insert(result, Scalar { made, depth, counted, stack: None });
            }
        }
        let (length, location) = (Dim::from(length), scan.location);
        Moving { body, length, location, captured, scalars, before: vec![], slices: vec![] }
    }

    fn move_out(mut self, scan: &mut Equation, equations: &mut Vec<Equation>, left: &mut u64) {
        let parts = Parts::of(scan).expect("it is a loop");
        let region: &mut Body = &mut scan.regions[0];
        let indices = indices(region);
        let mut current: IdVec<ValueId, ValueId> = region.values.ids().collect();
        let mut all = std::mem::take(&mut region.equations);
        for equation in &mut all {
            let [result] = equation.results[..] else { continue };
            let made = self.scalars.get(&result).is_some_and(|s| s.counted && s.made.is_some());
            if made && indices[result] && spend(left) {
                let input = region.values.push(region.ty(result).clone());
                let stack = self.stack(region, result);
                self.slices.push((stack, input));
                current[result] = input;
            } else if let Some(rows) = self.rows(region, equation)
                && spend(left)
            {
                let ty = region.ty(result);
                let (shape, part) = (ty.shape.clone(), ty.with_shape(ty.shape[1..].to_vec()));
                let input = region.values.push(part);
                self.slices.push((rows, input));
                equation.op = Reshape { shape }.into();
                equation.operands = vec![input];
            }
        }
        region.equations = all;
        replace_uses(region, &current);
        let at = region.inputs.len() - parts.captures;
        let (operands, inputs): (Vec<_>, Vec<_>) = self.slices.into_iter().unzip();
        region.inputs.splice(at..at, inputs);
        scan.operands.splice(parts.first + at..parts.first + at, operands);
        parts.set(scan);
        equations.append(&mut self.before);
    }

    /// The tensor of which an equation takes the row of the step.
    fn rows(&self, region: &Body, equation: &Equation) -> Option<ValueId> {
        let (Op::DynamicSlice(slice), [x, row, ..]) = (&equation.op, &equation.operands[..]) else {
            return None;
        };
        let counter = self.scalars.get(row).is_some_and(|s| s.counted && s.made.is_none());
        let shape = &region.ty(*x).shape;
        let one = shape[0] == self.length && slice.slice_sizes[0] == Dim::from(1);
        let whole = slice.slice_sizes[1..] == shape[1..];
        if counter && one && whole { self.captured.get(x).copied() } else { None }
    }

    /// The values of a scalar in all steps.
    fn stack(&mut self, region: &Body, scalar: ValueId) -> ValueId {
        if let Some(stack) = self.scalars[&scalar].stack {
            return stack;
        }
        let ty = region.ty(scalar);
        let stacked = ty.with_shape(vec![self.length.clone()]);
        let stack = match self.scalars[&scalar].made.clone() {
            Some(made) if !made.operands.is_empty() => {
                let operands = made.operands.iter().map(|v| self.stack(region, *v)).collect();
                self.push(Equation { operands, ..made }, stacked)
            }
            constant => {
                let location = self.location;
                let one = match constant {
                    Some(constant) => self.push(constant, ty.clone()),
                    None => self.captured[&scalar],
                };
                let op = BroadcastInDim { shape: stacked.shape.clone(), dims: vec![] }.into();
                let (operands, results, regions) = (vec![one], vec![], vec![]);
                self.push(Equation { op, operands, results, regions, location }, stacked)
            }
        };
        self.scalars.get_mut(&scalar).expect("it was found").stack = Some(stack);
        stack
    }

    /// Adds an equation in front of the scan; returns its result.
    fn push(&mut self, equation: Equation, ty: TensorType) -> ValueId {
        let result = self.body.values.push(ty);
        self.before.push(Equation { results: vec![result], ..equation });
        result
    }
}

/// The values of a region that a call reads as an index: operands of scatters, also in another
/// shape. An
/// index of another op is computed in its kernel.
fn indices(region: &Body) -> IdVec<ValueId, bool> {
    let mut indices: IdVec<ValueId, bool> = region.values.ids().map(|_| false).collect();
    for equation in region.equations.iter().rev() {
        match &equation.op {
            Op::Scatter(_) => indices[equation.operands[1]] = true,
            // An index of one coordinate is a concatenation of one scalar.
            Op::Reshape(_) | Op::Concatenate(_) if equation.operands.len() == 1 => {
                let index = indices[equation.results[0]];
                indices[equation.operands[0]] |= index;
            }
            _ => {}
        }
    }
    indices
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert_core::graph::{parse_program, verify};
    use wengert_core::interpret;
    use wengert_testing::random::Random;

    /// The function before and after; both compute the same.
    fn moved(step: &str, reverse: bool) -> Function {
        let text = format!(
            "func @f(%c: f32[9,4], %x: f32[5,4], %n: i32[]) -> (y: f32[9,4]) {{
               %0: i32[5] = iota {{axis=0, dtype=i32, shape=[5]}}
               %1: f32[9,4] = scan %c, %0, %x, %n
                 {{captures=2, carries=1, length=5, reverse={reverse}}}
                 region (%a: f32[9,4], %i: i32[], %r: f32[5,4], %m: i32[]) {{
                   %z: i32[] = constant {{value=i32[] 0}}
                   {step}
                 }}
               return %1
             }}"
        );
        let program = parse_program(&text, "test.ir").unwrap_or_else(|e| panic!("{e}"));
        let before = program.functions()[0].clone();
        let (after, changes) = steps(before.clone(), u64::MAX);
        verify(&after).unwrap_or_else(|e| panic!("{e}\n{after}"));
        assert_eq!(changes > 0, after != before, "{after}");
        assert_eq!(steps(before.clone(), 0), (before.clone(), 0));
        let types = before.body.types(&before.body.inputs);
        let mut random = Random(3);
        let mut given: Vec<_> = types.iter().map(|ty| random.literal(ty)).collect();
        for start in [-2, 0, 3, 7] {
            given[2] = wengert_core::Literal::from(start);
            let [after, before] =
                [&after, &before].map(|f| interpret::run(f, &given).expect("it runs"));
            assert_eq!(after, before);
        }
        after
    }

    const SCATTER: &str = "scatter_dims_to_operand_dims=[0], update_window_dims=[0,1], \
                           inserted_window_dims=[], \
                           clip=true, unique_indices=true";

    #[test]
    fn a_row_at_the_counter_is_a_slice_and_its_place_is_computed_once() {
        for reverse in [false, true] {
            let step = format!(
                "%q: f32[1,4] = dynamic_slice %r, %i, %z {{slice_sizes=[1,4]}}
                 %k: i32[] = add %m, %i
                 %h: i32[1] = reshape %k {{shape=[1]}}
                 %j: i32[1] = concatenate %h {{axis=0}}
                 %w: f32[9,4] = scatter %a, %j, %q {{{SCATTER}}}
                 return %w"
            );
            let after = moved(&step, reverse);
            let (scan, front) = after.body.equations.split_last().expect("the scan is last");
            let names = front.iter().map(|e| e.op.name()).collect::<Vec<_>>();
            assert_eq!(names, ["iota", "broadcast_in_dim", "add"]);
            let left = &crate::rewrite::dce(after.clone(), u64::MAX).0;
            let region = &left.body.equations.last().expect("the scan is last").regions[0];
            let names = region.equations.iter().map(|e| e.op.name()).collect::<Vec<_>>();
            assert_eq!(names, ["reshape", "reshape", "concatenate", "scatter"], "{left}");
            assert_eq!(scan.operands.len(), 6);
        }
    }

    #[test]
    fn other_values_stay() {
        // Another row than that of the counter, and an index that no call reads.
        let stay = "%k: i32[] = add %m, %i
                    %q: f32[1,4] = dynamic_slice %r, %k, %z {slice_sizes=[1,4]}
                    %w: f32[9,4] = dynamic_update_slice %a, %q, %k, %z
                    return %w";
        assert!(moved(stay, false).to_string().contains("dynamic_slice"));
    }
}
