//! What ops make of dtypes that programs lack.
//!
//! The rules of most ops do not know of them: a rule has the carriers of its operands, and its
//! results get the dtype of one of them. An op that this table lacks refuses such operands, unless
//! its rule asks for them ([`Call::carried`](super::Call::carried)), or passes values on.

use super::Row;
use crate::narrow::Narrow;
use crate::refusal::{Class, refuse};
use crate::value::Value;
use wengert_core::{DType, Diagnostic, Result, Tensor};

/// What an op makes of carriers.
#[derive(Clone, Copy)]
enum Effect {
    /// Numbers of an operand are moved, compared or chosen: they stay in its range. The first
    /// results, of this number, have its dtype.
    Keeps { operand: usize, results: usize },
    /// As before, and all operands have one dtype.
    Chooses,
    /// Numbers are computed from operands of one dtype, and brought back into its range.
    Computes,
    /// Numbers are computed from operand 0, and from others that may have other dtypes.
    Accumulates,
    /// Results of other dtypes, from operands of one.
    Compares,
    /// Results of other dtypes.
    Leaves,
}

/// The table.
fn effect(row: &Row) -> Option<Effect> {
    if !row.domain.is_empty() {
        return None;
    }
    let keeps = |operand, results| Some(Effect::Keeps { operand, results });
    match row.name {
        "Reshape" | "Flatten" | "Transpose" | "Squeeze" | "Unsqueeze" | "Expand" | "Tile"
        | "Trilu" | "DepthToSpace" | "SpaceToDepth" | "Gather" | "GatherElements" | "GatherND"
        | "Slice" | "Split" | "SplitToSequence" | "ReverseSequence" | "CenterCropPad"
        | "Compress" | "Pad" | "Sign" | "Relu" | "TensorScatter" | "ReduceMax" | "ReduceMin" => {
            keeps(0, usize::MAX)
        }
        "TopK" | "Unique" => keeps(0, 1),
        "Where" => keeps(1, 1),
        "OneHot" => keeps(2, 1),
        "Concat" | "Max" | "Min" | "Clip" | "Mod" | "Range" | "BitwiseAnd" | "BitwiseOr"
        | "BitwiseXor" => Some(Effect::Chooses),
        "Add" | "Sub" | "Mul" | "Div" | "Neg" | "Abs" | "BitShift" | "BitwiseNot" | "Einsum" => {
            Some(Effect::Computes)
        }
        "Scatter" | "ScatterElements" | "ScatterND" | "Col2Im" | "ReduceSum" | "ReduceProd" => {
            Some(Effect::Accumulates)
        }
        "Equal" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual" => Some(Effect::Compares),
        "Shape" | "Size" | "ArgMax" | "ArgMin" | "NonZero" => Some(Effect::Leaves),
        _ => None,
    }
}

/// The narrow dtype of the results of a node.
pub(crate) struct Carried {
    narrow: Narrow,
    results: usize,
    /// Whether they may be beyond its range.
    computed: bool,
}

impl Carried {
    /// Replaces operands by their carriers, if the op is in the table. The result says what its
    /// results are.
    ///
    /// # Errors
    /// Operands have several dtypes, and the op needs one.
    pub fn take(row: &Row, inputs: &mut [Option<Value>]) -> Result<Option<Carried>> {
        let narrow = |value: &Option<Value>| match value {
            Some(Value::Narrow(narrow, _)) => Some(*narrow),
            _ => None,
        };
        let Some(first) = inputs.iter().find_map(narrow) else { return Ok(None) };
        let Some(effect) = effect(row) else { return Ok(None) };
        if matches!(effect, Effect::Chooses | Effect::Computes | Effect::Compares)
            && inputs.iter().any(|input| input.is_some() && narrow(input) != Some(first))
        {
            return Err(Diagnostic::new(format!("an operand is {first}, and another is not")));
        }
        let (operand, results) = match effect {
            Effect::Keeps { operand, results } => (operand, results),
            Effect::Chooses | Effect::Computes | Effect::Accumulates => (0, usize::MAX),
            Effect::Compares | Effect::Leaves => (0, 0),
        };
        let of = inputs.get(operand).and_then(narrow);
        for input in inputs {
            if let Some(Value::Narrow(_, carrier)) = input {
                *input = Some(Value::Tensor(carrier.clone()));
            }
        }
        let computed = matches!(effect, Effect::Computes | Effect::Accumulates);
        Ok(of.map(|narrow| Carried { narrow, results, computed }))
    }

    /// The results of a rule, in their dtype.
    ///
    /// # Errors
    /// ONNX has no arithmetic of it.
    pub fn results(&self, mut results: Vec<Value>) -> Result<Vec<Value>> {
        for result in results.iter_mut().take(self.results) {
            self.restore(result)?;
        }
        Ok(results)
    }

    fn restore(&self, result: &mut Value) -> Result<()> {
        match result {
            Value::Tensor(carrier) => {
                let own = match self.computed {
                    true => self.narrow.restored(carrier)?,
                    false => carrier.clone(),
                };
                *result = Value::Narrow(self.narrow, own);
            }
            Value::Sequence(values) => values.iter_mut().try_for_each(|v| self.restore(v))?,
            _ => {}
        }
        Ok(())
    }
}

/// An operand that is read as a tensor, though its rule does not know of its dtype.
pub(crate) fn unknown(narrow: Narrow) -> Diagnostic {
    refuse(Class::DType, format!("an operand of {narrow}"))
}

/// The bits of a tensor as another dtype of the same size.
///
/// # Errors
/// The sizes differ, or are not imported.
pub(super) fn bitcast(
    x: &Tensor,
    from: Option<Narrow>,
    to: crate::model::Element,
) -> Result<Tensor> {
    use crate::model::Element;
    use wengert_core::op::Binary;
    let halves = |dtype: DType| matches!(dtype, DType::F16 | DType::BF16);
    let integer = |narrow: Narrow| narrow.is_integer().then_some(narrow.bits());
    match (from, to) {
        (Some(a), Element::Narrow(b)) if a == b => Ok(x.clone()),
        (Some(a), Element::Narrow(b)) if integer(a).is_some() && integer(a) == integer(b) => {
            Ok(b.cast(x, true))
        }
        (Some(a), Element::Plain(to)) if integer(a) == Some(16) && halves(to) => {
            let eight = x.full_like(8.0);
            let high = x.binary(Binary::ShiftRightLogical, &eight);
            let bytes = Tensor::stack(&[x.convert(DType::U8), high.convert(DType::U8)], -1);
            Ok(bytes.bitcast(to))
        }
        (None, Element::Narrow(b)) if integer(b) == Some(16) && halves(x.dtype()) => {
            let bytes = x.bitcast(DType::U8).convert(DType::I32);
            let part = |n: i64| bytes.slice_axis(-1, n, n + 1).squeeze(-1);
            Ok(b.cast(&(part(0) + part(1) * 256), true))
        }
        (Some(a), Element::Narrow(b)) => {
            Err(refuse(Class::DType, format!("the bits of {a} as {b}")))
        }
        (Some(a), Element::Plain(b)) => {
            Err(refuse(Class::DType, format!("the bits of {a} as {b}")))
        }
        (None, Element::Narrow(b)) => {
            Err(refuse(Class::DType, format!("the bits of {} as {b}", x.dtype())))
        }
        (None, Element::Plain(to)) => Ok(x.bitcast(to)),
    }
}
