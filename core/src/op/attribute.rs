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

/// Defines the struct of an op's attributes with its conversions. A field with `= default` is
/// omitted in text and files if it equals the default. The default may depend on earlier fields,
/// by closure-free expressions of constants only.
///
/// `Name by kind: Kind` defines a family: one struct for several ops, whose `kind` is not an
/// attribute but the op's name. `.. inner: Inner` takes the attributes of another such struct.
macro_rules! attributes {
    ($(#[doc = $doc:literal])* $(#[derive($($more:ident),*)])?
    $name:ident $(by $kind:ident: $kinds:ty)? {
        $($(#[$fdoc:meta])* $field:ident: $t:ty $(= $default:expr)?,)*
        $(.. $(#[$idoc:meta])* $inner:ident: $it:ty,)?
    }) => {
        $(#[doc = $doc])*
        $(#[derive($($more),*)])?
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub struct $name {
            $(/// The member of the family.
            pub $kind: $kinds,)?
            $($(#[$fdoc])* pub $field: $t,)*
            $($(#[$idoc])* pub $inner: $it,)?
        }

        impl $crate::op::attribute::AttributeStruct for $name {
            const DOC: &'static str = concat!($($doc, "\n"),*);
            type Kind = ($($kinds,)?);

            fn names() -> Vec<&'static str> {
                [
                    vec![$(stringify!($field)),*],
                    $(<$it as $crate::op::attribute::AttributeStruct>::names(),)?
                ]
                .concat()
            }
            #[allow(unused_mut, clippy::let_and_return)]
            fn to_attributes(&self) -> $crate::op::attribute::Attributes {
                let mut map = $crate::op::attribute::Attributes::new();
                $(
                    #[allow(unused_variables)]
                    let is_default = false $(|| self.$field == { let d: $t = $default; d })?;
                    if !is_default {
                        map.insert(
                            stringify!($field),
                            $crate::op::attribute::Field::to_attribute(&self.$field),
                        );
                    }
                )*
                $(map.extend(self.$inner.to_attributes());)?
                map
            }
            fn from_attributes(
                ($($kind,)?): Self::Kind,
                #[allow(unused_variables, unused_mut)]
                map: &mut std::collections::BTreeMap<String, $crate::op::attribute::Attribute>,
            ) -> $crate::Result<Self> {
                Ok($name {
                    $($kind,)?
                    $($field: $crate::op::attribute::take::<$t>(map, stringify!($field), {
                        #[allow(unused_mut, unused_assignments)]
                        let mut default: Option<$t> = None;
                        $(default = Some($default);)?
                        default
                    })?,)*
                    $($inner: $crate::op::attribute::AttributeStruct::from_attributes((), map)?,)?
                })
            }
            fn visit_dims(&self, #[allow(unused_variables)] visit: &mut dyn FnMut(&$crate::Dim)) {
                $($crate::op::attribute::Field::visit_dims(&self.$field, visit);)*
                $($crate::op::attribute::AttributeStruct::visit_dims(&self.$inner, visit);)?
            }
            fn map_dims(
                &mut self,
                #[allow(unused_variables)]
                map: &mut dyn FnMut(&$crate::Dim) -> $crate::Result<$crate::Dim>,
            ) -> $crate::Result<()> {
                $($crate::op::attribute::Field::map_dims(&mut self.$field, map)?;)*
                $($crate::op::attribute::AttributeStruct::map_dims(&mut self.$inner, map)?;)?
                Ok(())
            }
        }
    };
}
pub(crate) use attributes;

/// The facets that follow from an op's name, its one-line documentation and its attributes.
///
/// - `named!("name", "doc")`: one op, with the rule `Self::DERIVATIVE`.
/// - `named!(kind: Kind, rule)`: a family. `Kind` has `ALL`, `name` and `doc`, and `rule` maps a
///   kind to its derivative.
/// - `named!(enum "%x")`: a table of ops without attributes, with `ALL`, `named`, `doc`, `rule`,
///   and its operands in text.
macro_rules! named {
    ($name:literal, $doc:expr) => {
        fn name(&self) -> &'static str {
            $name
        }

        fn parse(
            name: &str,
            attributes: &mut std::collections::BTreeMap<String, $crate::op::attribute::Attribute>,
        ) -> Option<$crate::Result<Self>> {
            (name == $name)
                .then(|| $crate::op::attribute::AttributeStruct::from_attributes((), attributes))
        }

        fn entries() -> Vec<$crate::op::Entry> {
            vec![$crate::op::Entry::of::<Self>($name, $doc, Self::DERIVATIVE)]
        }

        $crate::op::attribute::named!(struct);
    };
    ($kind:ident: $kinds:ty, $rule:expr) => {
        $crate::op::attribute::named!($kind: $kinds, <$kinds>::name, <$kinds>::doc, $rule);
    };
    ($kind:ident: $kinds:ty, $name:expr, $doc:expr, $rule:expr) => {
        fn name(&self) -> &'static str {
            $name(self.$kind)
        }

        fn derivative(&self) -> $crate::op::Derivative {
            $rule(self.$kind)
        }

        fn parse(
            name: &str,
            attributes: &mut std::collections::BTreeMap<String, $crate::op::attribute::Attribute>,
        ) -> Option<$crate::Result<Self>> {
            let kind = <$kinds>::ALL.into_iter().find(|kind| $name(*kind) == name)?;
            Some($crate::op::attribute::AttributeStruct::from_attributes((kind,), attributes))
        }

        fn entries() -> Vec<$crate::op::Entry> {
            let entry = |k| $crate::op::Entry::of::<Self>($name(k), $doc(k), $rule(k));
            <$kinds>::ALL.into_iter().map(entry).collect()
        }

        $crate::op::attribute::named!(struct);
    };
    (struct) => {
        fn attributes(&self) -> $crate::op::attribute::Attributes {
            $crate::op::attribute::AttributeStruct::to_attributes(self)
        }

        fn visit_dims(&self, visit: &mut dyn FnMut(&$crate::Dim)) {
            $crate::op::attribute::AttributeStruct::visit_dims(self, visit);
        }

        fn map_dims(
            &mut self,
            map: &mut dyn FnMut(&$crate::Dim) -> $crate::Result<$crate::Dim>,
        ) -> $crate::Result<()> {
            $crate::op::attribute::AttributeStruct::map_dims(self, map)
        }
    };
    (enum $operands:literal) => {
        fn name(&self) -> &'static str {
            self.named()
        }

        fn derivative(&self) -> $crate::op::Derivative {
            self.rule()
        }

        fn attributes(&self) -> $crate::op::attribute::Attributes {
            Default::default()
        }

        fn parse(
            name: &str,
            _: &mut std::collections::BTreeMap<String, $crate::op::attribute::Attribute>,
        ) -> Option<$crate::Result<Self>> {
            Self::ALL.iter().copied().find(|op| op.named() == name).map(Ok)
        }

        fn entries() -> Vec<$crate::op::Entry> {
            let entry = |op: &Self| $crate::op::Entry {
                name: op.named(),
                doc: op.doc(),
                derivative: op.rule().kind(),
                form: format!("{} {}", op.named(), $operands),
                attributes: vec![],
            };
            Self::ALL.iter().map(entry).collect()
        }
    };
}
pub(crate) use named;

/// Defines the members of a family, each with the op's name and its one-line documentation.
macro_rules! kinds {
    ($(#[$meta:meta])* $kinds:ident {
        $($(#[$doc:meta])* $kind:ident $name:literal $text:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum $kinds { $($(#[$doc])* $kind,)* }

        impl $kinds {
            /// Every kind.
            pub const ALL: [$kinds; [$($kinds::$kind),*].len()] = [$($kinds::$kind),*];

            const fn name(self) -> &'static str {
                match self { $($kinds::$kind => $name,)* }
            }

            const fn doc(self) -> &'static str {
                match self { $($kinds::$kind => $text,)* }
            }
        }
    };
}
pub(crate) use kinds;

/// Defines an enum that is an attribute: a text, the name of the variant.
macro_rules! texts {
    ($(#[$meta:meta])* $texts:ident { $($(#[$doc:meta])* $variant:ident $name:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $texts { $($(#[$doc])* $variant,)* }

        impl $texts {
            /// Every variant.
            pub const ALL: [$texts; [$($texts::$variant),*].len()] = [$($texts::$variant),*];

            /// The name in text.
            pub const fn name(self) -> &'static str {
                match self { $($texts::$variant => $name,)* }
            }
        }

        impl $crate::op::attribute::Field for $texts {
            fn to_attribute(&self) -> $crate::op::attribute::Attribute {
                $crate::op::attribute::Attribute::Text(self.name().into())
            }
            fn from_attribute(attribute: $crate::op::attribute::Attribute) -> $crate::Result<Self> {
                let found = $texts::ALL.into_iter().find(|t| t.to_attribute() == attribute);
                found.ok_or_else(|| {
                    let names = $texts::ALL.map(|t| format!("{:?}", t.name()));
                    let (last, others) = names.split_last().expect("an enum has variants");
                    let expected = format!("{} or {last}", others.join(", "));
                    $crate::Diagnostic::new(format!("expected {expected}, found {attribute:?}"))
                })
            }
        }
    };
}
pub(crate) use texts;

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
