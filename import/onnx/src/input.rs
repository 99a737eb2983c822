//! Inputs of a model: their types, and the values that they are bound to.

use crate::import::plain_name;
use crate::model::{Element, Extent, Input, ValueType};
use crate::narrow::Narrow;
use crate::refusal::{Class, refuse};
use crate::value::Value;
use wengert_core::{Diagnostic, Dim, Literal, Result, Tensor, TensorType};

impl Input {
    /// Its dtype, if programs lack it.
    pub fn narrow(&self) -> Option<Narrow> {
        match self.ty {
            Some(ValueType::Tensor { element: Element::Narrow(narrow), .. }) => Some(narrow),
            _ => None,
        }
    }

    /// The value that it is bound to.
    pub fn bound(&self, literal: &Literal) -> Result<Value> {
        let narrow = self.narrow();
        if let Some(narrow) = narrow.filter(|narrow| !narrow.has(literal)) {
            let message =
                format!("input `{}` is {narrow}, and its value {}", self.name, literal.ty());
            let (low, high) = narrow.range();
            return Err(Diagnostic::new(message).help(format!(
                "give numbers of {narrow}, from {low} to {high}, as {}",
                narrow.carrier()
            )));
        }
        Ok(Value::of(Tensor::constant(literal.clone()), narrow))
    }

    /// The type of a tensor input.
    pub fn tensor_type(&self, name: &str) -> Result<TensorType> {
        let context = |e: Diagnostic| e.context(format_args!("input `{}`", self.name));
        match &self.ty {
            Some(ValueType::Tensor { element, shape: Some(shape) }) => {
                let extent = |(axis, extent): (usize, &Extent)| match extent {
                    Extent::Number(n) => Dim::constant(*n),
                    Extent::Variable(variable) => {
                        Dim::variable(&plain_name(variable).replace('.', "_"))
                    }
                    Extent::Unknown => Dim::variable(&format!("{}_{axis}", name.replace('.', "_"))),
                };
                let shape = shape.iter().enumerate().map(extent).collect();
                Ok(TensorType { dtype: element.carrier(), shape })
            }
            Some(ValueType::Tensor { shape: None, .. }) | None => {
                Err(context(refuse(Class::Shape, "its rank is not known")))
            }
            Some(_) => Err(context(refuse(Class::Container, "it is no tensor"))),
        }
    }
}
