//! Values as lists of tensors, and back.

use crate::narrow::Narrow;
use crate::value::Value;
use wengert_core::{Result, Tensor};

/// What a value is besides its tensors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// A tensor, whose dtype programs may lack.
    Tensor(Option<Narrow>),
    /// A sequence.
    Sequence(Vec<Form>),
    /// An optional value that is absent.
    Absent,
}

impl Form {
    /// Appends the tensors of a value to a list; `tensor` makes one of a value that stands for one.
    pub fn of(
        value: &Value,
        tensor: &dyn Fn(&Value) -> Result<Tensor>,
        list: &mut Vec<Tensor>,
    ) -> Result<Form> {
        Ok(match value {
            Value::Narrow(narrow, carrier) => {
                list.push(carrier.clone());
                Form::Tensor(Some(*narrow))
            }
            Value::Sequence(values) => {
                let forms = values.iter().map(|value| Form::of(value, tensor, list));
                Form::Sequence(forms.collect::<Result<Vec<Form>>>()?)
            }
            Value::Absent => Form::Absent,
            other => {
                list.push(tensor(other)?);
                Form::Tensor(None)
            }
        })
    }

    /// The value of the next tensors; `None` if they are too few.
    pub fn value(&self, tensors: &mut impl Iterator<Item = Tensor>) -> Option<Value> {
        Some(match self {
            Form::Tensor(narrow) => Value::of(tensors.next()?, *narrow),
            Form::Sequence(forms) => {
                let values = forms.iter().map(|form| form.value(tensors));
                Value::Sequence(values.collect::<Option<Vec<Value>>>()?)
            }
            Form::Absent => Value::Absent,
        })
    }

    /// The tensors of a value under names: those of a sequence `name.0`, `name.1` and so on.
    pub fn names(&self, name: &str, list: &mut Vec<(String, Option<Narrow>)>) {
        match self {
            Form::Tensor(narrow) => list.push((name.to_owned(), *narrow)),
            Form::Sequence(forms) => {
                for (n, form) in forms.iter().enumerate() {
                    form.names(&format!("{name}.{n}"), list);
                }
            }
            Form::Absent => {}
        }
    }
}
