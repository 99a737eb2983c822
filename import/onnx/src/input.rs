//! Inputs of a model: their types, and the values that they are bound to.
//!
//! A sequence has as many inputs of the function as it has elements, `NAME.0` and so on. Their
//! number and shapes are options of the import, as is which optional values are absent.

use crate::import::{Importer, Options, plain_name};
use crate::model::{Element, Extent, Input, ValueType};
use crate::narrow::Narrow;
use crate::refusal::{Class, refuse};
use crate::value::Value;
use std::collections::BTreeSet;
use wengert_core::{Binding, Diagnostic, Dim, Literal, Location, Result, Tensor, TensorType};

impl Options {
    /// Checks that the names of options are those of inputs.
    ///
    /// # Errors
    /// The model has no such input.
    pub(crate) fn check(&self, inputs: &[Input]) -> Result<()> {
        let named = self.bound.keys().chain(self.sequences.keys()).chain(&self.absent);
        let missing = named.into_iter().find(|name| !inputs.iter().any(|i| i.name == **name));
        match missing {
            None => check_extents(inputs, &self.extents),
            Some(unknown) => {
                let inputs: Vec<&str> = inputs.iter().map(|i| i.name.as_str()).collect();
                Err(Diagnostic::new(format!("the model has no input `{unknown}` to bind"))
                    .help(format!("it has {}", inputs.join(", "))))
            }
        }
    }
}

impl Importer<'_, '_> {
    /// The value of an input of the model, which declares inputs of the function.
    pub(crate) fn input(&self, input: &Input, options: &Options) -> Result<Value> {
        let context = |e: Diagnostic| e.context(format_args!("input `{}`", input.name));
        if let Some(literal) = options.bound.get(&input.name) {
            return input.bound(literal);
        }
        let mut ty = input.ty.as_ref();
        if let Some(ValueType::Optional(inner)) = ty {
            if options.absent.contains(&input.name) {
                return Ok(Value::Absent);
            }
            ty = Some(inner);
        } else if options.absent.contains(&input.name) {
            return Err(context(Diagnostic::new("it is not optional, and cannot be absent")));
        }
        let shapes = options.sequences.get(&input.name);
        match (ty, shapes) {
            (Some(ValueType::Sequence(inner)), Some(shapes)) => {
                let element = match **inner {
                    ValueType::Tensor { element, .. } => element,
                    _ => return Err(context(refuse(Class::Container, "a sequence of sequences"))),
                };
                let value = |(n, shape): (usize, &Vec<Dim>)| {
                    let ty = TensorType::of(element.carrier(), shape.clone());
                    self.declared(&format!("{}.{n}", input.name), element.narrow(), |_| Ok(ty))
                };
                let values = shapes.iter().enumerate().map(value).collect::<Result<Vec<_>>>();
                Ok(Value::Sequence(values?))
            }
            (Some(ValueType::Sequence(_)), None) => {
                let reason = "the number and shapes of its elements are not known";
                let help = format!(
                    "give the shapes of the elements by `--sequence \"{}=[3],[2,4]\"`, or \
                     `Options::sequences`",
                    input.name
                );
                let message = format!("{reason} ({})", Class::Container);
                Err(context(Diagnostic::new(message).help(help)))
            }
            (_, Some(_)) => Err(context(Diagnostic::new("it is no sequence of elements"))),
            (ty, None) => {
                let of = |name: &str| {
                    let mut ty = tensor_type(ty, name).map_err(context)?;
                    for dim in &mut ty.shape {
                        *dim = dim.bind(&options.extents)?;
                    }
                    Ok(ty)
                };
                self.declared(&input.name, narrow(ty), of)
            }
        }
    }

    /// An input of the function.
    fn declared(
        &self,
        original: &str,
        narrow: Option<Narrow>,
        ty: impl FnOnce(&str) -> Result<TensorType>,
    ) -> Result<Value> {
        let name = self.declare(original);
        let ty = ty(&name)?;
        let at = Location::source(self.model.file.clone(), 0, 0);
        let builder = &mut *self.builder.borrow_mut();
        let tensor = at.attribute(|| builder.input(&name, ty));
        self.inputs.borrow_mut().push((name, original.to_owned(), narrow));
        Ok(Value::of(tensor, narrow))
    }
}

/// Checks that an input has each of these extents.
fn check_extents(inputs: &[Input], extents: &Binding) -> Result<()> {
    let mut known = BTreeSet::new();
    for input in inputs {
        if let Ok(ty) = tensor_type(input.ty.as_ref(), &plain_name(&input.name)) {
            ty.shape.iter().for_each(|dim| dim.collect_variables(&mut known));
        }
    }
    let Some((unknown, _)) = extents.iter().find(|(name, _)| !known.contains(*name)) else {
        return Ok(());
    };
    let known: Vec<&str> = known.iter().map(|name| &**name).collect();
    let help = match known.is_empty() {
        true => "all extents of its inputs are numbers".to_owned(),
        false => format!("there are {}", known.join(", ")),
    };
    Err(Diagnostic::new(format!("no input of the model has the extent `{unknown}`")).help(help))
}

/// The dtype of a tensor, or of an optional one, if programs lack it.
fn narrow(ty: Option<&ValueType>) -> Option<Narrow> {
    match ty {
        Some(ValueType::Tensor { element: Element::Narrow(narrow), .. }) => Some(*narrow),
        Some(ValueType::Optional(inner)) => narrow(Some(inner)),
        _ => None,
    }
}

/// The type of a tensor input of the function.
fn tensor_type(ty: Option<&ValueType>, name: &str) -> Result<TensorType> {
    match ty {
        Some(ValueType::Tensor { element, shape: Some(shape) }) => {
            let extent = |(axis, extent): (usize, &Extent)| match extent {
                Extent::Number(n) => Dim::constant(*n),
                Extent::Variable(variable) => {
                    Dim::variable(&plain_name(variable).replace('.', "_"))
                }
                Extent::Unknown => Dim::variable(&format!("{}_{axis}", name.replace('.', "_"))),
            };
            let shape = shape.iter().enumerate().map(extent).collect();
            Ok(TensorType::of(element.carrier(), shape))
        }
        Some(ValueType::Tensor { shape: None, .. }) | None => {
            Err(refuse(Class::Shape, "its rank is not known"))
        }
        Some(_) => Err(refuse(Class::Container, "it is no tensor")),
    }
}

impl Input {
    /// The value that it is bound to.
    fn bound(&self, literal: &Literal) -> Result<Value> {
        let narrow = narrow(self.ty.as_ref());
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
}
