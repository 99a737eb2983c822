//! The way back: a function without the updates that the pass gave it.
//!
//! An update is found by its form alone, the one that [`Lora::apply`](super::Lora::apply) makes:
//! w + (P·s)·Q of a weight, or x·w + ((x·P)·s)·Q of a product with it. The sum is replaced by its
//! first operand, what only the update needed is removed, and s is the number in the function. What
//! has another form is refused, so a function that is returned is the adapted one at updates of 0.

use super::adapter::{Adapter, OutputAxis, summed, swaps};
use super::rewrite::{ordered, products};
use super::{DOWN, UP};
use crate::rewrite::dce;
use std::collections::BTreeMap;
use wengert_core::graph::{Equation, Function, InputRole, ValueId, verify};
use wengert_core::id::IdVec;
use wengert_core::op::{Binary, DotGeneral};
use wengert_core::{Op, Result, TensorType, diagnostic};

/// An update of a weight that a function has.
#[derive(Clone, PartialEq, Debug)]
pub struct Update {
    /// The weight and the parameters of the update.
    pub adapter: Adapter,
    /// s of w + s·P·Q, rounded to the dtype of the weight.
    pub scale: f64,
}

/// A function without updates, and those that it had.
#[derive(Clone, PartialEq, Debug)]
pub struct Plain {
    /// The function.
    pub function: Function,
    /// The updates, in the order of the inputs.
    pub updates: Vec<Update>,
}

/// An update that is looked for.
struct Sought {
    adapter: Adapter,
    weight: ValueId,
    /// The left factor, `[…, r]`.
    left: ValueId,
    /// The right factor, `[r, …]`.
    right: ValueId,
    /// s, once a use is found.
    scale: Option<f64>,
}

/// Removes the updates of a function.
///
/// ```
/// # use wengert_compiler::lora::{Lora, remove};
/// # use wengert_core::graph::parse_program;
/// # fn main() -> wengert_core::Result<()> {
/// let text = "func @f(%x: f32[B,6], param %w: f32[6,5]) -> (y: f32[B,5]) {
///   %0: f32[B,5] = dot_general %x, %w {contract=[[1],[0]]}
///   return %0
/// }";
/// let program = parse_program(text, "f.ir")?;
/// let adapted = Lora::new(2)?.alpha(3.0)?.path("w")?.apply(program.get("f")?)?;
/// let plain = remove(&adapted)?;
/// assert_eq!(plain.function, *program.get("f")?);
/// assert_eq!((plain.updates[0].adapter.rank, plain.updates[0].scale), (2, 1.5));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// A parameter of an adapter is there without the other one or without the weight; it is state,
/// which the function trains; its shape does not fit the weight; the function reads it otherwise
/// than in an update, or not at all.
pub fn remove(function: &Function) -> Result<Plain> {
    let mut sought = sought(function)?;
    let mut plain = function.clone();
    let base = updates_of(function, &mut sought)?;
    let resolve = |value: &mut ValueId| {
        while let Some(under) = base.get(value) {
            *value = *under;
        }
    };
    for equation in &mut plain.body.equations {
        equation.operands.iter_mut().for_each(resolve);
    }
    plain.body.outputs.iter_mut().for_each(resolve);
    let (mut plain, _) = dce(plain, u64::MAX);
    let mut is_removed: IdVec<ValueId, bool> = plain.body.values.ids().map(|_| false).collect();
    for name in sought.iter().flat_map(|sought| [sought.adapter.down(), sought.adapter.up()]) {
        let input = plain.input_index(&name).expect("`sought` has found it");
        let value = plain.body.inputs[input];
        let read = plain.body.equations.iter().find(|equation| equation.operands.contains(&value));
        if read.is_some() || plain.body.outputs.contains(&value) {
            return Err(other_form(function, &name));
        }
        is_removed[value] = true;
    }
    let kept = plain.body.inputs.iter().map(|value| !is_removed[*value]);
    let mut kept = kept.collect::<Vec<bool>>().into_iter();
    plain.inputs.retain(|_| kept.next() == Some(true));
    plain.body.inputs.retain(|value| !is_removed[*value]);
    let plain = plain.renumber();
    if let Err(fault) = verify(&plain) {
        panic!("the removal of updates breaks an invariant of the graph: {fault}");
    }
    let update = |Sought { adapter, scale, .. }: Sought| match scale {
        Some(scale) => Ok(Update { adapter, scale }),
        None => Err(other_form(function, &adapter.down())),
    };
    let updates = sought.into_iter().map(update).collect::<Result<_>>()?;
    Ok(Plain { function: plain, updates })
}

fn other_form(function: &Function, name: &str) -> wengert_core::Diagnostic {
    diagnostic!("@{} does not read `{name}` as the factor of an update of low rank", function.name)
        .help(
            "an update has the form that `Lora::apply` and `graphrun import --train --lora` give \
             it: before any pass of the compiler, and in the function that only reads the weights",
        )
}

/// The adapters among the inputs of a function.
fn sought(function: &Function) -> Result<Vec<Sought>> {
    let mut found = Vec::<Sought>::new();
    for input in &function.inputs {
        let is_variable = matches!(input.role, InputRole::Param | InputRole::State);
        let ends = [DOWN, UP].map(|end| {
            let path = input.name.strip_suffix(end).and_then(|path| path.strip_suffix('.'));
            path.filter(|_| is_variable)
        });
        let Some(path) = ends.into_iter().flatten().next() else { continue };
        if found.iter().any(|sought| sought.adapter.path == path) {
            continue;
        }
        if input.role == InputRole::State {
            return Err(diagnostic!("@{} trains the update of `{path}`", function.name)
                .help("take the function that only reads the weights, such as @predict"));
        }
        let of = |name: &str| {
            let index = function.input_index(name).ok_or_else(|| {
                diagnostic!("@{} has `{}`, but no `{name}`", function.name, input.name).help(
                    "a weight `PATH` has an update of two factors, `PATH.lora_a` and `.lora_b`",
                )
            })?;
            Ok((function.body.inputs[index], function.input_type(index)))
        };
        let (weight, ty) = of(path)?;
        let (down, down_type) = of(&format!("{path}.{DOWN}"))?;
        let (up, up_type) = of(&format!("{path}.{UP}"))?;
        let adapter =
            adapter(path, ty, down_type, up_type).ok_or_else(|| {
                diagnostic!(
                "`{path}` of type {ty} has an update of {down_type} and {up_type}, which do not fit"
            )
            .help("the factors of a weight [in…, out] are [in…, r] and [r, out], those of a weight \
                 [out, in…] are [r, in…] and [out, r]")
            })?;
        let (left, right) = match adapter.output {
            OutputAxis::First => (up, down),
            OutputAxis::Last => (down, up),
        };
        found.push(Sought { adapter, weight, left, right, scale: None });
    }
    Ok(found)
}

/// The adapter of these types.
fn adapter(path: &str, weight: &TensorType, a: &TensorType, b: &TensorType) -> Option<Adapter> {
    // The rank is below the extent of the outputs, so at most one of the two fits.
    [OutputAxis::First, OutputAxis::Last].into_iter().find_map(|output| {
        let axis = match output {
            OutputAxis::First => b.shape.last(),
            OutputAxis::Last => b.shape.first(),
        };
        let rank = usize::try_from(axis?.as_constant()?).ok()?;
        let adapter = Adapter { path: path.to_owned(), weight: weight.clone(), output, rank };
        let fits = weight.rank() >= 2 && adapter.down_type() == *a && adapter.up_type() == *b;
        fits.then_some(adapter)
    })
}

/// What takes the place of each sum with an update.
fn updates_of(function: &Function, sought: &mut [Sought]) -> Result<BTreeMap<ValueId, ValueId>> {
    let search = Search { function, definitions: function.body.definitions() };
    let mut base = BTreeMap::new();
    for equation in &function.body.equations {
        let Some((number, scale)) = search.update(equation, sought) else { continue };
        let found = &mut sought[number];
        if found.scale.is_some_and(|known| known != scale) {
            return Err(diagnostic!(
                "@{} multiplies the update of `{}` by {} and by {scale}",
                function.name,
                found.adapter.path,
                found.scale.unwrap_or(scale)
            )
            .help("an update has the same factor wherever the weight is read"));
        }
        found.scale = Some(scale);
        base.insert(equation.results[0], equation.operands[0]);
    }
    Ok(base)
}

struct Search<'a> {
    function: &'a Function,
    /// For each value, the number of the equation that defines it.
    definitions: IdVec<ValueId, Option<usize>>,
}

impl<'a> Search<'a> {
    fn definition(&self, value: ValueId) -> Option<&'a Equation> {
        self.definitions[value].map(|number| &self.function.body.equations[number])
    }

    fn product(&self, value: ValueId) -> Option<(&'a DotGeneral, &'a [ValueId])> {
        let equation = self.definition(value)?;
        match &equation.op {
            Op::DotGeneral(op) => Some((op, &equation.operands)),
            _ => None,
        }
    }

    /// A value without the number by which it is multiplied, and that number.
    fn unscaled(&self, value: ValueId) -> (ValueId, f64) {
        let number = |value: ValueId| {
            let mut equation = self.definition(value)?;
            if let Op::BroadcastInDim(_) = &equation.op {
                equation = self.definition(*equation.operands.first()?)?;
            }
            match &equation.op {
                Op::Constant(op) if op.value.shape().is_empty() => Some(op.value.get(0).to_f64()),
                _ => None,
            }
        };
        match self.definition(value) {
            Some(Equation { op: Op::Binary(Binary::Mul), operands, .. }) => {
                number(operands[1]).map_or((value, 1.0), |factor| (operands[0], factor))
            }
            _ => (value, 1.0),
        }
    }

    /// The number and the scale of the update that an equation adds.
    fn update(&self, equation: &Equation, sought: &[Sought]) -> Option<(usize, f64)> {
        let (Op::Binary(Binary::Add), &[base, update]) = (&equation.op, &equation.operands[..])
        else {
            return None;
        };
        let (op, operands) = self.product(update)?;
        self.of_weight(base, op, operands, sought)
            .or_else(|| self.of_product(base, op, operands, sought))
    }

    /// w + (P·s)·Q.
    fn of_weight(
        &self,
        base: ValueId,
        op: &DotGeneral,
        operands: &[ValueId],
        sought: &[Sought],
    ) -> Option<(usize, f64)> {
        let number = sought.iter().position(|sought| sought.weight == base)?;
        let (left, scale) = self.unscaled(operands[0]);
        let rank = self.function.body.ty(left).rank();
        let fits = left == sought[number].left
            && operands[1] == sought[number].right
            && *op == DotGeneral::matmul(rank);
        fits.then_some((number, scale))
    }

    /// x·w + ((x·P)·s)·Q.
    fn of_product(
        &self,
        base: ValueId,
        gives: &DotGeneral,
        operands: &[ValueId],
        sought: &[Sought],
    ) -> Option<(usize, f64)> {
        let product = self.definition(base)?;
        let (op, factors) = self.product(base)?;
        (0..2).find_map(|side| {
            let (matrix, other) = (factors[side], factors[1 - side]);
            let (number, transposed) = self.matrix(matrix, sought)?;
            let axis = summed(product, matrix)?;
            let axis = if transposed { 1 - axis } else { axis };
            let Sought { left, right, .. } = sought[number];
            let (first, second) = if axis == 0 { (left, right) } else { (right, left) };
            let (inner, scale) = self.unscaled(operands[1 - side]);
            let (takes, of_inner) = self.product(inner)?;
            let rank = self.function.body.ty(other).rank();
            let fits = operands[side] == second
                && *of_inner == ordered(side, first, other)
                && [takes, gives] == products(op, side, axis, rank).each_ref();
            fits.then_some((number, scale))
        })
    }

    /// The weight that a value is, and whether it is transposed.
    fn matrix(&self, value: ValueId, sought: &[Sought]) -> Option<(usize, bool)> {
        let of = |value: ValueId| {
            let number = sought.iter().position(|sought| sought.weight == value)?;
            (sought[number].adapter.weight.rank() == 2).then_some(number)
        };
        if let Some(number) = of(value) {
            return Some((number, false));
        }
        let equation = self.definition(value).filter(|equation| swaps(&equation.op))?;
        Some((of(equation.operands[0])?, true))
    }
}
