//! Thirty planted non-finite values, and programs without one.

use crate::programs::{Network, networks};
use crate::sabotage::{op, push};
use wengert::Location;
use wengert::core::graph::{Body, Equation, Function, ValueId, parse_program};
use wengert::core::op::{
    BroadcastInDim, Constant, ConvertElementType, DotGeneral, Op, Reduce, ReduceKind,
};
use wengert::core::{LocationId, Scalar};
use wengert::isolate::nan::{Finding, Made, Seen, first_non_finite};
use wengert::prelude::*;

/// The line of the equation that makes the value.
const LINE: u32 = 1000;

/// A body that grows by equations which make a non-finite value.
struct Plant<'b> {
    body: &'b mut Body,
    equations: Vec<Equation>,
    /// The location of the fault.
    here: LocationId,
    /// That of the equations around it.
    around: LocationId,
    /// A float value of the network, and the same with finite elements 0.
    value: ValueId,
    zeros: ValueId,
}

impl Plant<'_> {
    fn add(&mut self, op: impl Into<Op>, operands: &[ValueId], location: LocationId) -> ValueId {
        let equations = std::mem::take(&mut self.body.equations);
        let result = push(self.body, op.into(), operands, location);
        self.equations.append(&mut self.body.equations);
        self.body.equations = equations;
        result
    }

    /// Numbers in the shape of the value.
    fn number(&mut self, number: f32) -> ValueId {
        let ty = self.body.ty(self.value).clone();
        let value = Literal::full(&[], Scalar::from_f64(ty.dtype, f64::from(number)));
        let scalar = self.add(Constant { value }, &[], self.around);
        self.add(BroadcastInDim { shape: ty.shape, dims: vec![] }, &[scalar], self.around)
    }

    fn around(&mut self, name: &str, operands: &[ValueId]) -> ValueId {
        self.add(op(name), operands, self.around)
    }

    fn here(&mut self, name: &str, operands: &[ValueId]) -> ValueId {
        self.add(op(name), operands, self.here)
    }

    /// `value` of which the last element is `number`, and the others are 1.
    fn last(&mut self, number: f32) -> ValueId {
        let ty = self.body.ty(self.value).clone();
        let mut values = vec![Scalar::one(ty.dtype); ty.elements().unwrap()];
        *values.last_mut().unwrap() = Scalar::from_f64(ty.dtype, f64::from(number));
        let value = Literal::from_scalars(ty.dtype, &ty.extents().unwrap(), &values).unwrap();
        let constant = self.add(Constant { value }, &[], self.around);
        self.around("add", &[constant, self.zeros])
    }
}

/// The ways of making a non-finite value: a name, the op, whether the last element alone is
/// non-finite, the kind of the value, and the equations. They return a value that depends on it.
type Way = (&'static str, bool, &'static str, fn(&mut Plant<'_>) -> ValueId);

const WAYS: [Way; 15] = [
    ("log", true, "-inf", |p| {
        let x = p.last(0.0);
        p.here("log", &[x])
    }),
    ("div", false, "nan", |p| {
        let zeros = p.zeros;
        p.here("div", &[zeros, zeros])
    }),
    ("div", true, "inf", |p| {
        let (one, x) = (p.number(1.0), p.last(0.0));
        p.here("div", &[one, x])
    }),
    ("exp", true, "inf", |p| {
        let x = p.last(89.0);
        p.here("exp", &[x])
    }),
    ("sqrt", true, "nan", |p| {
        let x = p.last(-1.0);
        p.here("sqrt", &[x])
    }),
    ("mul", true, "inf", |p| {
        let (x, large) = (p.last(3e38), p.number(3.0));
        p.here("mul", &[x, large])
    }),
    // The infinities are meant, their difference is not.
    ("sub", false, "nan", |p| {
        let masked = p.number(f32::NEG_INFINITY);
        p.here("sub", &[masked, masked])
    }),
    // So here: zero times infinity.
    ("mul", true, "nan", |p| {
        let (infinite, x) = (p.number(f32::INFINITY), p.last(0.0));
        p.here("mul", &[infinite, x])
    }),
    ("pow", true, "nan", |p| {
        let (x, half) = (p.last(-2.0), p.number(0.5));
        p.here("pow", &[x, half])
    }),
    ("rsqrt", true, "inf", |p| {
        let x = p.last(0.0);
        p.here("rsqrt", &[x])
    }),
    ("reduce_sum", false, "inf", |p| {
        let x = p.number(3e38);
        let axes = 0..p.body.ty(x).rank();
        let shape = p.body.ty(x).shape.clone();
        let sum = p.add(Reduce::new(ReduceKind::Sum, axes), &[x], p.here);
        p.add(BroadcastInDim { shape, dims: vec![] }, &[sum], p.around)
    }),
    ("dot_general", false, "inf", |p| {
        let x = p.number(1e30);
        let shape = p.body.ty(x).shape.clone();
        let all: Vec<usize> = (0..shape.len()).collect();
        let dot =
            DotGeneral { contract: (all.clone(), all), batch: (vec![], vec![]), result: None };
        let sum = p.add(dot, &[x, x], p.here);
        p.add(BroadcastInDim { shape, dims: vec![] }, &[sum], p.around)
    }),
    ("convert_element_type", true, "inf", |p| {
        let x = p.last(1e5);
        let half = p.add(ConvertElementType { dtype: DType::F16 }, &[x], p.here);
        p.add(ConvertElementType { dtype: DType::F32 }, &[half], p.around)
    }),
    ("atanh", true, "inf", |p| {
        let x = p.last(1.0);
        let x = p.around("min", &[x, x]);
        let one = p.number(1.0);
        // The others are 1 too, so they are made 0 here.
        let zero = p.around("sub", &[one, one]);
        let last = p.last(0.0);
        let is_last = p.around("sub", &[one, last]);
        let x = p.around("mul", &[x, is_last]);
        let x = p.around("add", &[x, zero]);
        p.here("atanh", &[x])
    }),
    ("log", true, "nan", |p| {
        let x = p.last(-1e-30);
        p.here("log", &[x])
    }),
];

/// The place of a fault: the number of the equation after which it is planted, in the function or
/// in the first region.
fn planted(function: &Function, share: usize, way: &Way) -> Option<(Function, usize, bool)> {
    let mut function = function.clone();
    let here = function.locations.intern(Location::source("planted.rs", LINE, 1));
    let around = function.locations.intern(Location::source("planted.rs", 1, 1));
    let inside = function.body.equations.iter().position(|e| e.op.name() == "scan");
    let body = match inside {
        Some(number) => &mut *function.body.equations[number].regions[0],
        None => &mut function.body,
    };
    // The places of floats that are more than scalars.
    let fits = |equation: &Equation| {
        let ty = body.ty(equation.results[0]);
        equation.results.len() == 1 && ty.dtype == DType::F32 && ty.elements() > Some(1)
    };
    let places: Vec<usize> =
        (0..body.equations.len()).filter(|n| fits(&body.equations[*n])).collect();
    let place = places[share % places.len()];
    let value = body.equations[place].results[0];
    let mut plant = Plant { body, equations: vec![], here, around, value, zeros: value };
    let zero = plant.number(0.0);
    plant.zeros = zero;
    let bad = (way.3)(&mut plant);
    let new = plant.around("add", &[value, bad]);
    let equations = plant.equations;
    let elements = body.ty(value).elements().unwrap();
    for equation in &mut body.equations[place + 1..] {
        let replace = |v: &mut ValueId| *v = if *v == value { new } else { *v };
        equation.operands.iter_mut().for_each(replace);
    }
    body.equations.splice(place + 1..place + 1, equations);
    let function = function.renumber();
    wengert::core::graph::verify(&function).ok()?;
    Some((function, elements, inside.is_some()))
}

fn is_right(found: Option<&Finding>, way: &Way, elements: usize, inside: bool) -> bool {
    let Some(Finding::Equation(made)) = found else { return false };
    let Made { origin, frames, index, value, operands, ty, .. } = made;
    let flat = index.iter().zip(ty.extents().unwrap()).fold(0, |at, (i, extent)| at * extent + i);
    let expected = if way.1 { elements - 1 } else { 0 };
    origin.op == way.0
        && origin.location == Location::source("planted.rs", LINE, 1)
        && flat == expected
        && kind(value.to_f64()) == way.2
        && operands.len() == made_of(way.0)
        && (frames.first().map(|frame| frame.step) == Some(Some(0))) == inside
}

/// The kind of a number that is not finite.
fn kind(number: f64) -> &'static str {
    match number {
        f64::INFINITY => "inf",
        f64::NEG_INFINITY => "-inf",
        _ if number.is_nan() => "nan",
        _ => "finite",
    }
}

fn made_of(op: &str) -> usize {
    match op {
        "div" | "mul" | "sub" | "pow" | "dot_general" => 2,
        _ => 1,
    }
}

#[test]
fn thirty_planted_values_are_found() {
    let networks: Vec<Network> = networks();
    let (mut planted_ones, mut found_ones) = (0, 0);
    for (n, way) in WAYS.iter().cycle().take(30).enumerate() {
        // Each way is planted in two networks, at different places.
        let network = &networks[(n + n / WAYS.len()) % networks.len()];
        let case = if n % 3 == 0 { &network.gradient } else { &network.forward };
        let (function, elements, inside) = planted(&case.function, 7 * n + 1, way).unwrap();
        let found = first_non_finite(&function, &case.inputs).unwrap();
        planted_ones += 1;
        if is_right(found.as_ref(), way, elements, inside) {
            found_ones += 1;
        } else {
            println!("MISSED {n}, {} in {}: {found:?}", way.0, network.name);
        }
    }
    println!("planted non-finite values: {found_ones} of {planted_ones} found");
    assert_eq!((found_ones, planted_ones), (30, 30));
}

/// Also attention with a mask of −∞.
#[test]
fn networks_without_a_fault_have_no_finding() {
    for network in networks() {
        for case in [&network.forward, &network.gradient] {
            let found = first_non_finite(&case.function, &case.inputs).unwrap();
            assert_eq!(found, None, "{}", network.name);
        }
    }
}

fn find(text: &str, inputs: &[Literal]) -> Option<Finding> {
    let program = parse_program(text, "f.ir").unwrap();
    first_non_finite(&program.functions()[0], inputs).unwrap()
}

fn floats(values: &[f32]) -> Literal {
    Literal::from_vec(&[values.len()], values.to_vec()).unwrap()
}

#[test]
fn inputs_that_are_not_finite_are_named() {
    let text = "func @f(%x: f32[3], %mask: f32[3]) -> (f32[3]) {
        %0: f32[3] = add %x, %mask
        %1: f32[3] = exp %0
        return %1
    }";
    let (x, masked) = (floats(&[1.0, 2.0, 3.0]), floats(&[0.0, f32::NEG_INFINITY, 0.0]));
    assert_eq!(find(text, &[x.clone(), masked]), None);
    let nan = find(text, &[x.clone(), floats(&[0.0, 0.0, f32::NAN])]);
    let Some(Finding::Input { name, index, .. }) = nan else { panic!("{nan:?}") };
    assert_eq!((name.as_str(), index), ("mask", vec![2]));
    // An infinity that reaches an output.
    let infinite = find(text, &[x, floats(&[0.0, f32::INFINITY, 0.0])]);
    let Some(Finding::Input { name, value, .. }) = infinite else { panic!("{infinite:?}") };
    assert_eq!((name.as_str(), value.to_f64()), ("mask", f64::INFINITY));
}

#[test]
fn meant_infinities_and_selected_nans_are_no_faults() {
    let text = "func @f(%x: f32[3]) -> (f32[], f32[3]) {
        %0: f32[3] = constant {value=f32[3] [inf, -inf, nan]}
        %1: f32[3] = constant {value=f32[3] [0.0, 0.0, 0.0]}
        %2: bool[3] = lt %x, %1
        %3: f32[3] = select %2, %0, %x
        %4: f32[3] = max %3, %1
        %5: f32[] = reduce_max %4 {axes=[0]}
        %6: f32[3] = reverse %3 {axes=[0]}
        return %5, %6
    }";
    assert_eq!(find(text, &[floats(&[-1.0, 1.0, 2.0])]), None);
    // Arithmetic with a constant NaN is a fault.
    let found = find(text, &[floats(&[1.0, 1.0, -2.0])]);
    let Some(Finding::Equation(made)) = found else { panic!("{found:?}") };
    assert_eq!((made.origin.op, made.index), ("max", vec![2]));
}

/// In a nested loop and a branch, with the operands of the sum that overflows.
#[test]
fn the_steps_around_a_fault_are_named() {
    let text = "func @f(%x: f32[4], %p: bool[]) -> (f32[]) {
        %0: f32[] = constant {value=f32[] 1.0}
        %1: f32[] = scan %0, %x {carries=1, length=4}
          region (%2: f32[], %3: f32[]) {
            %4: bool[] = lt %3, %2
            %5: f32[] = cond %4, %2, %3
              region (%6: f32[], %7: f32[]) {
                return %6
              }
              region (%8: f32[], %9: f32[]) {
                %10: f32[] = sub %8, %9
                %11: f32[] = log %10
                return %11
              }
            return %5
          }
        return %1
    }";
    let x = [floats(&[0.5, 0.25, 1.0, 2.0]), Literal::from(true)];
    let found = find(text, &x);
    let Some(Finding::Equation(made)) = found else { panic!("{found:?}") };
    let frames: Vec<String> = made.frames.iter().map(ToString::to_string).collect();
    assert_eq!(frames, ["step 2 of `scan` at f.ir:3:21", "branch 1 of `cond` at f.ir:6:25"],);
    assert_eq!(made.origin.location.to_string(), "f.ir:12:30");
    assert_eq!(made.operands[0].to_string(), "f32[], 0.0, made by `sub` at f.ir:11:30");
}

#[test]
fn the_row_and_column_of_a_product_are_shown() {
    let text = "func @f(%a: f32[2,3], %b: f32[3,2]) -> (f32[2,2]) {
        %0: f32[2,2] = dot_general %a, %b {contract=[[1],[0]]}
        return %0
    }";
    let a = Literal::from_vec(&[2, 3], vec![1.0f32, 2.0, 3.0, 1e30, 2e30, 3e30]).unwrap();
    let b = Literal::from_vec(&[3, 2], vec![1.0f32, 1e20, 2.0, 2e20, 3.0, 3e20]).unwrap();
    let found = find(text, &[a, b]);
    let Some(Finding::Equation(made)) = found else { panic!("{found:?}") };
    assert_eq!(made.index, [1, 1]);
    let range = |operand: usize| match &made.operands[operand].seen {
        Seen::Range { count, least, greatest, .. } => (*count, least.to_f64(), greatest.to_f64()),
        other => panic!("{other:?}"),
    };
    let f = |x: f32| f64::from(x);
    assert_eq!(range(0), (3, f(1e30), f(3e30)));
    assert_eq!(range(1), (3, f(1e20), f(3e20)));
}
