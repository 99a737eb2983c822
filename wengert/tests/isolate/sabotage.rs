//! Faults to plant: changes of equations that keep their types.

use std::collections::BTreeMap;
use wengert::core::graph::{Body, Equation, Function, ValueId};
use wengert::core::op::{Attribute, Op};
use wengert::core::{Id, LocationId, LocationTable};

/// An op without attributes.
pub fn op(name: &str) -> Op {
    Op::from_attributes(name, BTreeMap::<String, Attribute>::new()).unwrap()
}

/// How an equation is made wrong.
#[derive(Clone, Copy, Debug)]
pub enum Wrong {
    /// The result is twice as large.
    Double,
    /// The result has the other sign.
    Negate,
    /// A factor is dropped: the result is the first operand.
    Drop,
    /// The operands are swapped.
    Swap,
    /// Another op is in its place.
    Op(&'static str),
}

/// The location of an equation's source, as text.
pub fn line(equation: &Equation, locations: &LocationTable) -> String {
    locations.origin(equation.location).to_string()
}

/// Applies `wrong` to the equations that `chooses` names, in program order, regions included.
pub fn sabotaged(
    function: &Function,
    wrong: Wrong,
    mut chooses: impl FnMut(&Body, &Equation) -> bool,
) -> Function {
    let mut function = function.clone();
    function.body = body(&function.body, wrong, &mut chooses);
    function.renumber()
}

fn body(old: &Body, wrong: Wrong, chooses: &mut dyn FnMut(&Body, &Equation) -> bool) -> Body {
    let mut new = old.clone();
    new.equations.clear();
    let mut stands_for: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    for equation in &old.equations {
        let chosen = chooses(old, equation);
        let mut equation = equation.clone();
        let replace = |v: &mut ValueId| *v = *stands_for.get(v).unwrap_or(v);
        equation.operands.iter_mut().for_each(replace);
        for region in &mut equation.regions {
            *region = body(region, wrong, chooses).renumber().into();
        }
        let location = equation.location;
        let result = equation.results.first().copied();
        if chosen && let Wrong::Op(name) = wrong {
            equation.op = op(name);
        }
        if chosen && matches!(wrong, Wrong::Swap) {
            equation.operands.swap(0, 1);
        }
        let first = equation.operands.first().copied();
        if !(chosen && matches!(wrong, Wrong::Drop)) {
            new.equations.push(equation);
        }
        let Some(result) = result.filter(|_| chosen) else { continue };
        match wrong {
            Wrong::Double => {
                let twice = push(&mut new, op("add"), &[result, result], location);
                stands_for.insert(result, twice);
            }
            Wrong::Negate => {
                let negative = push(&mut new, op("neg"), &[result], location);
                stands_for.insert(result, negative);
            }
            Wrong::Drop => {
                stands_for.insert(result, first.unwrap());
            }
            Wrong::Swap | Wrong::Op(_) => {}
        }
    }
    let replace = |v: &mut ValueId| *v = *stands_for.get(v).unwrap_or(v);
    new.outputs.iter_mut().for_each(replace);
    new
}

/// Appends an equation whose result has the type of its first operand.
pub fn push(body: &mut Body, op: Op, operands: &[ValueId], location: LocationId) -> ValueId {
    let types = body.types(operands);
    let ty = op.infer(&types, &[]).unwrap().remove(0);
    let result = body.values.push(ty);
    let (operands, results) = (operands.to_vec(), vec![result]);
    body.equations.push(Equation { op, operands, results, regions: vec![], location });
    assert!(result.index() + 1 == body.values.len());
    result
}
