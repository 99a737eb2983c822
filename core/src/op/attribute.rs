//! Attributes: the data of an op besides operands, in the one form shared by text and files.
//!
//! Every op converts to and from a map of named [`Attribute`]s. Text and files hold no other data
//! of an op, so no internal type becomes a file format.

use crate::diagnostic::{Diagnostic, Result};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::literal::Literal;
use crate::scalar::Scalar;
use std::collections::BTreeMap;

/// The value of an attribute.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Attribute {
    /// `true`
    Bool(bool),
    /// `3`, `B`, `2*B+1`: integers are constant dimensions.
    Dim(Dim),
    /// `f32`
    DType(DType),
    /// `"text"`
    Text(String),
    /// `@f`
    Function(String),
    /// `f32(1.5)`
    Scalar(Scalar),
    /// `f32[2] [1.0, 2.0]`
    Literal(Literal),
    /// `[a, b, c]`
    List(Vec<Attribute>),
}

/// Attributes by name, sorted.
pub type Attributes = BTreeMap<&'static str, Attribute>;

/// A Rust type that attributes are made of.
pub trait Field: Sized {
    /// The value as an attribute.
    fn to_attribute(&self) -> Attribute;
    /// The value of an attribute. Errors: the attribute has another form; the error says which is
    /// expected.
    fn from_attribute(attribute: Attribute) -> Result<Self>;
    /// Visits every dimension inside.
    fn visit_dims(&self, _visit: &mut dyn FnMut(&Dim)) {}
    /// Replaces every dimension inside by its image.
    fn map_dims(&mut self, _map: &mut dyn FnMut(&Dim) -> Result<Dim>) -> Result<()> {
        Ok(())
    }
}

fn expected<T>(what: &str, found: &Attribute) -> Result<T> {
    let mut found = format!("{found:?}");
    if found.len() > 80 {
        found = found.chars().take(80).collect::<String>() + "…";
    }
    Err(Diagnostic::new(format!("expected {what}, found {found}")))
}

macro_rules! simple_field {
    ($($t:ty, $variant:ident, $what:literal;)*) => {$(
        impl Field for $t {
            fn to_attribute(&self) -> Attribute { Attribute::$variant(self.clone()) }
            fn from_attribute(attribute: Attribute) -> Result<Self> {
                match attribute {
                    Attribute::$variant(v) => Ok(v),
                    other => expected($what, &other),
                }
            }
        }
    )*};
}
simple_field! {
    bool, Bool, "`true` or `false`";
    String, Text, "a text in quotes";
    DType, DType, "a dtype";
    Scalar, Scalar, "a scalar such as `f32(1.5)`";
    Literal, Literal, "a literal";
}

impl Field for Dim {
    fn to_attribute(&self) -> Attribute {
        Attribute::Dim(self.clone())
    }
    fn from_attribute(attribute: Attribute) -> Result<Self> {
        match attribute {
            Attribute::Dim(d) => Ok(d),
            other => expected("a dimension", &other),
        }
    }
    fn visit_dims(&self, visit: &mut dyn FnMut(&Dim)) {
        visit(self);
    }
    fn map_dims(&mut self, map: &mut dyn FnMut(&Dim) -> Result<Dim>) -> Result<()> {
        *self = map(self)?;
        Ok(())
    }
}

impl Field for i64 {
    fn to_attribute(&self) -> Attribute {
        Attribute::Dim(Dim::constant(*self))
    }
    fn from_attribute(attribute: Attribute) -> Result<Self> {
        match &attribute {
            Attribute::Dim(d) => {
                d.as_constant().map_or_else(|| expected("an integer", &attribute), Ok)
            }
            other => expected("an integer", other),
        }
    }
}

impl Field for usize {
    fn to_attribute(&self) -> Attribute {
        Attribute::Dim(Dim::from(*self))
    }
    fn from_attribute(attribute: Attribute) -> Result<Self> {
        let value = i64::from_attribute(attribute)?;
        usize::try_from(value).map_err(|_| {
            Diagnostic::new(format!("expected an integer of at least 0, found {value}"))
        })
    }
}

impl<T: Field> Field for Vec<T> {
    fn to_attribute(&self) -> Attribute {
        Attribute::List(self.iter().map(Field::to_attribute).collect())
    }
    fn from_attribute(attribute: Attribute) -> Result<Self> {
        match attribute {
            Attribute::List(items) => items.into_iter().map(T::from_attribute).collect(),
            other => expected("a list", &other),
        }
    }
    fn visit_dims(&self, visit: &mut dyn FnMut(&Dim)) {
        self.iter().for_each(|t| t.visit_dims(visit));
    }
    fn map_dims(&mut self, map: &mut dyn FnMut(&Dim) -> Result<Dim>) -> Result<()> {
        self.iter_mut().try_for_each(|t| t.map_dims(map))
    }
}

/// `None` is written as an empty list where it is not the default; otherwise it is absent. `Some`
/// is written as the value.
impl<T: Field> Field for Option<T> {
    fn to_attribute(&self) -> Attribute {
        self.as_ref().map_or(Attribute::List(vec![]), Field::to_attribute)
    }
    fn from_attribute(attribute: Attribute) -> Result<Self> {
        match attribute {
            Attribute::List(items) if items.is_empty() => Ok(None),
            other => T::from_attribute(other).map(Some),
        }
    }
}

impl<A: Field, B: Field> Field for (A, B) {
    fn to_attribute(&self) -> Attribute {
        Attribute::List(vec![self.0.to_attribute(), self.1.to_attribute()])
    }
    fn from_attribute(attribute: Attribute) -> Result<Self> {
        match attribute {
            Attribute::List(items) if items.len() == 2 => {
                let mut items = items.into_iter();
                let mut next = || items.next().expect("there are two items");
                Ok((A::from_attribute(next())?, B::from_attribute(next())?))
            }
            other => expected("a pair", &other),
        }
    }
}

/// Removes attribute `name` and converts it. An absent attribute has its default. Errors: the
/// attribute has another form, or it is absent and has no default.
pub fn take<T: Field>(
    attributes: &mut BTreeMap<String, Attribute>,
    name: &str,
    default: Option<T>,
) -> Result<T> {
    match attributes.remove(name) {
        Some(a) => T::from_attribute(a).map_err(|d| d.context(format!("attribute `{name}`"))),
        None => default.ok_or_else(|| Diagnostic::new(format!("attribute `{name}` is missing"))),
    }
}

/// The conversions that `attributes!` implements.
pub trait AttributeStruct: Sized {
    /// The struct's documentation. It begins with the op in text, in backticks.
    const DOC: &'static str;
    /// The kind, for a family; else nothing.
    type Kind;
    /// Names of all attributes.
    fn names() -> Vec<&'static str>;
    /// The attributes as a map; those equal to their default are omitted.
    fn to_attributes(&self) -> Attributes;
    /// Takes the struct's attributes out of the map.
    fn from_attributes(kind: Self::Kind, map: &mut BTreeMap<String, Attribute>) -> Result<Self>;
    /// Visits every dimension inside.
    fn visit_dims(&self, visit: &mut dyn FnMut(&Dim));
    /// Replaces every dimension inside by its image.
    fn map_dims(&mut self, map: &mut dyn FnMut(&Dim) -> Result<Dim>) -> Result<()>;
}
