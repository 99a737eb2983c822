//! The walk that gives the equations of a body their dtypes.

use super::Precision;
use super::class::Class;
use super::flow::{Kind, Port, Stored, Use, is_kept, uses};
use crate::rewrite::push;
use std::collections::BTreeSet;
use wengert_core::graph::{Body, Equation, ValueId};
use wengert_core::id::IdVec;
use wengert_core::op::{ConvGeneralDilated, ConvertElementType, DotGeneral};
use wengert_core::{DType, LocationId, Op};

/// A value of the old body in the new one.
#[derive(Clone, Copy)]
struct Held {
    kind: Kind,
    /// The value in its dtype; of a half, the value before it is rounded. `None` if all readers
    /// have the half.
    wide: Option<ValueId>,
    /// The half.
    half: Option<ValueId>,
    /// Whether it repeats a smaller tensor, or is a scalar.
    repeats: bool,
    /// Whether it is a weight, or a weight whose elements were moved.
    is_weight: bool,
}

impl Held {
    fn wide(kind: Kind, value: ValueId) -> Self {
        Held { kind, wide: Some(value), half: None, repeats: false, is_weight: false }
    }

    fn half(value: ValueId) -> Self {
        Held { kind: Kind::Half, wide: None, half: Some(value), repeats: false, is_weight: false }
    }

    /// A parameter that is stored in halves, or one whose elements were moved.
    fn stored(value: ValueId) -> Self {
        Held { kind: Kind::Leaf, ..Held::half(value) }
    }

    fn is_stored(&self) -> bool {
        self.kind == Kind::Leaf && self.wide.is_none()
    }
}

/// The body under a policy, except that some equations, by their numbers, stay in f32. The types
/// of inputs and outputs stay, unless a port says how they are stored. For each equation of the new
/// body there is the number of the old one for which it was made.
pub(super) fn body(
    policy: &Precision,
    old: &Body,
    inputs: &[Port],
    outputs: &[Port],
    kept: &BTreeSet<usize>,
) -> (Body, Vec<usize>) {
    let class = |(number, equation): (usize, &Equation)| match kept.contains(&number) {
        true => Class::Wide,
        false => policy.class(&equation.op),
    };
    let classes: Vec<Class> = old.equations.iter().enumerate().map(class).collect();
    let mut walk = Walk {
        policy,
        old,
        uses: uses(&classes, old, inputs, outputs),
        body: Body::default(),
        held: old.values.ids().map(|_| None).collect(),
    };
    for (input, port) in old.inputs.iter().zip(inputs) {
        let ty = old.ty(*input);
        let ty = port.stored.map_or_else(|| ty.clone(), |stored| ty.with_dtype(stored.dtype));
        let value = walk.body.values.push(ty);
        walk.body.inputs.push(value);
        let held = match port.stored {
            Some(stored) if stored.dtype == walk.half_dtype() => Held::stored(value),
            // Converted below.
            Some(_) | None => Held::wide(Kind::Leaf, value),
        };
        walk.hold(*input, Held { is_weight: port.is_variable, ..held });
    }
    for (input, port) in old.inputs.iter().zip(inputs) {
        let held = walk.of(*input);
        if let (Some(stored), Some(value)) = (port.stored, held.wide) {
            let wide = walk.convert(value, DType::F32, stored.location);
            walk.hold(*input, Held { wide: Some(wide), ..held });
        }
    }
    let mut origins = Vec::new();
    for (number, (equation, class)) in old.equations.iter().zip(&classes).enumerate() {
        walk.equation(equation, *class);
        origins.resize(walk.body.equations.len(), number);
    }
    let location = old.equations.last().map(|last| last.location);
    for (output, port) in old.outputs.iter().zip(outputs) {
        if let Some(stored) = port.stored {
            let value = walk.stored(*output, inputs, stored);
            walk.body.outputs.push(value);
            continue;
        }
        let value = match (walk.of(*output).wide, location) {
            (Some(value), _) => value,
            (None, Some(location)) => walk.wide(*output, location),
            // An input that is stored in halves.
            (None, None) => walk.wide(*output, LocationId(0)),
        };
        walk.body.outputs.push(value);
    }
    origins.resize(walk.body.equations.len(), old.equations.len().saturating_sub(1));
    (walk.body, origins)
}

struct Walk<'a> {
    policy: &'a Precision,
    old: &'a Body,
    uses: IdVec<ValueId, Use>,
    body: Body,
    held: IdVec<ValueId, Option<Held>>,
}

impl Walk<'_> {
    fn hold(&mut self, old: ValueId, held: Held) {
        let repeats = held.repeats || self.old.ty(old).shape.is_empty();
        self.held[old] = Some(Held { repeats, ..held });
    }

    fn of(&self, old: ValueId) -> Held {
        self.held[old].expect("a value is defined before it is used")
    }

    fn is_f32(&self, old: ValueId) -> bool {
        self.old.ty(old).dtype == DType::F32
    }

    fn half_dtype(&self) -> DType {
        self.policy.dtypes().compute_dtype
    }

    /// A value of f32 in another dtype, for an output.
    fn stored(&mut self, old: ValueId, inputs: &[Port], stored: Stored) -> ValueId {
        let of_old = |port: &Port| port.stored.is_some_and(|of| of.dtype == stored.dtype);
        let mut ports = self.old.inputs.iter().zip(inputs).zip(&self.body.inputs);
        if let Some((_, value)) = ports.find(|((input, port), _)| **input == old && of_old(port)) {
            return *value;
        }
        if stored.dtype == self.half_dtype() {
            return self.half(old, stored.location);
        }
        let wide = self.wide(old, stored.location);
        self.convert(wide, stored.dtype, stored.location)
    }

    fn convert(&mut self, value: ValueId, dtype: DType, location: LocationId) -> ValueId {
        push(&mut self.body, ConvertElementType { dtype }, &[value], location)
    }

    /// The value in the dtype that it had. Each reader converts a half itself: a common conversion
    /// would be kept in memory in place of the half.
    fn wide(&mut self, old: ValueId, location: LocationId) -> ValueId {
        let held = self.of(old);
        match (held.wide, held.half) {
            (Some(value), _) => value,
            (None, Some(half)) => self.convert(half, DType::F32, location),
            (None, None) => unreachable!("a value is held in some dtype"),
        }
    }

    /// The half of a value in f32; a value of another dtype.
    fn half(&mut self, old: ValueId, location: LocationId) -> ValueId {
        let held = self.of(old);
        match (held.half, held.wide) {
            (Some(half), _) => half,
            (None, Some(value)) if self.is_f32(old) => {
                let half = self.convert(value, self.half_dtype(), location);
                self.held[old] = Some(Held { half: Some(half), ..held });
                half
            }
            (None, Some(value)) => value,
            (None, None) => unreachable!("a value is held in some dtype"),
        }
    }

    fn equation(&mut self, equation: &Equation, class: Class) {
        let is_mixed = equation.results.len() == 1 && self.is_f32(equation.results[0]);
        match class {
            Class::Product if self.is_product(equation) && !is_kept(&self.uses, equation) => {
                self.product(equation);
            }
            Class::Elementwise | Class::Addition if is_mixed => self.elementwise(equation, class),
            Class::Movement if is_mixed => self.movement(equation),
            Class::Normalization if is_mixed => self.normalization(equation),
            Class::Control if !is_kept(&self.uses, equation) => self.control(equation),
            // Constants, and other values that are made of nothing.
            _ if equation.operands.is_empty() => self.as_it_was(equation, Kind::Leaf),
            _ => self.as_it_was(equation, Kind::Wide),
        }
    }

    /// Whether the operands of a product are f32, and so are its results.
    fn is_product(&self, equation: &Equation) -> bool {
        let is_float = |value: &&ValueId| self.old.ty(**value).dtype.is_float();
        let mut floats = equation.operands.iter().chain(&equation.results).filter(is_float);
        floats.all(|value| self.is_f32(*value))
            && equation.operands.iter().any(|value| self.is_f32(*value))
    }

    fn uses_of(&self, equation: &Equation) -> Use {
        self.uses[equation.results[0]]
    }

    /// Emits an equation on operands in the dtypes that they had.
    fn as_it_was(&mut self, equation: &Equation, kind: Kind) {
        let location = equation.location;
        let operands = equation.operands.iter().map(|v| self.wide(*v, location)).collect();
        self.emit(equation, operands, |value| Held::wide(kind, value));
    }

    /// Emits an equation with the types that its results had.
    fn emit(
        &mut self,
        equation: &Equation,
        operands: Vec<ValueId>,
        held: impl Fn(ValueId) -> Held,
    ) {
        let results: Vec<ValueId> = equation
            .results
            .iter()
            .map(|result| self.body.values.push(self.old.ty(*result).clone()))
            .collect();
        for (old, new) in equation.results.iter().zip(&results) {
            self.hold(*old, held(*new));
        }
        self.body.equations.push(Equation { operands, results, ..equation.clone() });
    }

    /// A product of halves.
    fn product(&mut self, equation: &Equation) {
        let of = self.uses_of(equation);
        let location = equation.location;
        // Beside the products' operands, attention has a bias, logarithms and sums in f32.
        let fits = |operand: usize| match &equation.op {
            Op::Attention(op) => op.is_factor(&self.old.types(&equation.operands), operand),
            _ => true,
        };
        let fits: Vec<bool> = (0..equation.operands.len()).map(fits).collect();
        let operands: Vec<ValueId> = equation
            .operands
            .iter()
            .zip(fits)
            .map(|(v, fits)| if fits { self.half(*v, location) } else { self.wide(*v, location) })
            .collect();
        let wants_half = of.wants_half();
        let result = (!wants_half).then_some(DType::F32);
        let op = match equation.op.clone() {
            Op::DotGeneral(op) => DotGeneral { result, ..op }.into(),
            Op::ConvGeneralDilated(op) => ConvGeneralDilated { result, ..op }.into(),
            op => op,
        };
        let types = self.body.types(&operands);
        let types = op.infer(&types, &[]).expect("a product of f32 is a product of halves, too");
        let mut results = Vec::new();
        for (old, ty) in equation.results.iter().zip(types) {
            let is_half = ty.dtype == self.half_dtype();
            let new = self.body.values.push(ty);
            let kind = if wants_half { Kind::Half } else { Kind::Wide };
            let held = if is_half {
                Held { kind, ..Held::half(new) }
            } else {
                Held::wide(Kind::Wide, new)
            };
            self.hold(*old, held);
            results.push(new);
        }
        let regions = equation.regions.clone();
        self.body.equations.push(Equation { op, operands, results, regions, location });
    }

    /// The kind of a value that is made of operands element by element.
    fn kind(&self, equation: &Equation, class: Class) -> Kind {
        let (mut half, mut wide, mut repeated_wide) = (false, false, false);
        for operand in equation.operands.iter().filter(|v| self.is_f32(**v)) {
            let held = self.of(*operand);
            half |= held.kind == Kind::Half;
            wide |= held.kind == Kind::Wide;
            repeated_wide |= held.kind == Kind::Wide && held.repeats;
        }
        let rounds = match class {
            Class::Addition => !repeated_wide,
            _ => !wide,
        };
        match () {
            () if !half && !wide => Kind::Leaf,
            () if rounds && self.uses_of(equation).wants_half() => Kind::Half,
            () => Kind::Wide,
        }
    }

    fn elementwise(&mut self, equation: &Equation, class: Class) {
        let (location, result) = (equation.location, equation.results[0]);
        let kind = self.kind(equation, class);
        // Sums of halves are left to `round_once`, which adds to a product before it is rounded. A
        // bias is rounded like the weight of its product.
        let is_half = |v: &ValueId| self.of(*v).half.is_some() || self.of(*v).is_weight;
        let are_halves = equation.operands.iter().all(is_half);
        if kind == Kind::Half && class == Class::Addition && are_halves {
            let operands: Vec<ValueId> =
                equation.operands.iter().map(|v| self.half(*v, location)).collect();
            let sum = push(&mut self.body, equation.op.clone(), &operands, location);
            self.hold(result, Held::half(sum));
            return;
        }
        let operands: Vec<ValueId> =
            equation.operands.iter().map(|v| self.wide(*v, location)).collect();
        let value = push(&mut self.body, equation.op.clone(), &operands, location);
        let held = match kind == Kind::Half && !self.uses[result].is_between() {
            true => Held::half(self.convert(value, self.half_dtype(), location)),
            false => Held::wide(kind, value),
        };
        self.hold(result, held);
    }

    fn movement(&mut self, equation: &Equation) {
        let (location, old) = (equation.location, equation.results[0]);
        // Elements are joined, not added: wide ones stay wide.
        let kind = self.kind(equation, Class::Movement);
        let mut floats = equation.operands.iter().filter(|v| self.is_f32(**v)).peekable();
        let are_stored = floats.peek().is_some() && floats.all(|v| self.of(*v).is_stored());
        let mut operands = Vec::new();
        for operand in &equation.operands {
            operands.push(match kind {
                Kind::Half => self.half(*operand, location),
                Kind::Leaf if are_stored => self.half(*operand, location),
                Kind::Leaf | Kind::Wide => self.wide(*operand, location),
            });
        }
        let size = |value: &ValueId| self.old.ty(*value).shape.len();
        let grows = matches!(equation.op, Op::BroadcastInDim(_))
            && equation.operands.iter().any(|v| size(v) < size(&old));
        let repeats = grows || equation.operands.iter().all(|v| self.of(*v).repeats);
        let is_weight = equation.operands.iter().all(|v| self.of(*v).is_weight);
        let result = push(&mut self.body, equation.op.clone(), &operands, location);
        let held = match kind {
            Kind::Half => Held::half(result),
            Kind::Leaf if are_stored => Held::stored(result),
            Kind::Leaf | Kind::Wide => Held::wide(kind, result),
        };
        self.hold(old, Held { repeats, is_weight, ..held });
    }

    fn normalization(&mut self, equation: &Equation) {
        let location = equation.location;
        match self.kind(equation, Class::Normalization) {
            Kind::Half => {
                let operands: Vec<ValueId> =
                    equation.operands.iter().map(|v| self.half(*v, location)).collect();
                let result = push(&mut self.body, equation.op.clone(), &operands, location);
                self.hold(equation.results[0], Held::half(result));
            }
            kind => self.as_it_was(equation, kind),
        }
    }

    /// Loops and branches: their regions take and give the types that they had.
    fn control(&mut self, equation: &Equation) {
        let mut equation = equation.clone();
        for region in &mut equation.regions {
            let old = std::mem::take(region).into_body();
            // A carry is a state of the loop.
            let outputs = vec![Port { is_variable: true, ..Port::default() }; old.outputs.len()];
            let inputs = vec![Port::default(); old.inputs.len()];
            let (mixed, _) = body(self.policy, &old, &inputs, &outputs, &BTreeSet::new());
            *region = mixed.renumber().into();
        }
        self.as_it_was(&equation, Kind::Wide);
    }
}
