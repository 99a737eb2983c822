//! Inlines regions that run exactly once.

use std::collections::BTreeMap;
use wengert_core::Op;
use wengert_core::graph::{Body, Equation, ValueId};
use wengert_core::id::IdVec;
use wengert_core::op::{Control, Reshape};

/// A region that runs exactly once for all inputs.
pub(super) struct Once {
    region: usize,
    /// Whether it is the step of a loop.
    step: bool,
}

/// The region of a construct that is known to run exactly once, if only one runs. `constants` are
/// the known numbers.
pub(super) fn once(
    body: &Body,
    constants: &BTreeMap<ValueId, Equation>,
    equation: &Equation,
) -> Option<Once> {
    match equation.op.control()? {
        Control::Branch => {
            let chooses = equation.operands[0];
            let Op::Constant(constant) = &constants.get(&chooses)?.op else { return None };
            let number = constant.value.get(0).to_i64()?;
            let region = match &equation.op {
                Op::Cond(_) => usize::from(number == 0),
                _ => usize::try_from(number).unwrap_or(0).min(equation.regions.len() - 1),
            };
            Some(Once { region, step: false })
        }
        Control::Scan(scan) => {
            let one = !scan.counted && scan.length.as_constant() == Some(1);
            // Reshapes convert between rows and wholes, so the types must be known.
            let known = body.types(&equation.operands).iter().all(|ty| ty.extents().is_some());
            (one && known).then_some(Once { region: 0, step: true })
        }
        Control::While(_) => None,
    }
}

/// Emits the region's equations. Returns the values that replace the results.
pub(super) fn emit(
    body: &mut Body,
    equation: &Equation,
    once: Once,
    equations: &mut Vec<Equation>,
) -> Vec<ValueId> {
    let region = &equation.regions[once.region];
    let mut values: IdVec<ValueId, Option<ValueId>> = region.values.ids().map(|_| None).collect();
    // A scan of one step has no count; a branch has its selector in front.
    let operands = if once.step { &equation.operands[..] } else { &equation.operands[1..] };
    for (input, operand) in region.inputs.iter().zip(operands) {
        values[*input] =
            Some(reshaped(body, equation, *operand, region.ty(*input).shape.clone(), equations));
    }
    for inner in &region.equations {
        let mut inner = inner.clone();
        let known =
            |v: &mut ValueId| *v = values[*v].expect("a region defines values before their use");
        inner.operands.iter_mut().for_each(known);
        for result in &mut inner.results {
            let new = body.values.push(region.ty(*result).clone());
            values[*result] = Some(new);
            *result = new;
        }
        equations.push(inner);
    }
    let mut results = Vec::new();
    for (output, result) in region.outputs.iter().zip(&equation.results) {
        let value = values[*output].expect("a region defines its outputs");
        let shape = body.ty(*result).shape.clone();
        results.push(reshaped(body, equation, value, shape, equations));
    }
    results
}

/// A value under another shape with as many elements: the row of a one-row stack, or the one-row
/// stack of a row.
fn reshaped(
    body: &mut Body,
    of: &Equation,
    value: ValueId,
    shape: Vec<wengert_core::Dim>,
    equations: &mut Vec<Equation>,
) -> ValueId {
    if body.ty(value).shape == shape {
        return value;
    }
    let ty = body.ty(value).with_shape(shape.clone());
    let result = body.values.push(ty);
    equations.push(Equation {
        op: Reshape { shape }.into(),
        operands: vec![value],
        results: vec![result],
        regions: vec![],
        location: of.location,
    });
    result
}
