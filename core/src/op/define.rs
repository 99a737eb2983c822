//! The macros with which an op is defined.
//!
//! - [`attributes!`] makes the struct of an op with its conversions;
//! - [`kinds!`] makes the enum of a family, ops that share a struct and differ by name;
//! - [`texts!`] makes an enum that is an attribute;
//! - [`named!`] makes the facets that follow from these: name, attributes, catalogue.

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

        $crate::op::define::named!(struct);
    };
    ($kind:ident: $kinds:ty, $rule:expr) => {
        $crate::op::define::named!($kind: $kinds, <$kinds>::name, <$kinds>::doc, $rule);
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

        $crate::op::define::named!(struct);
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

            /// The name of the op, and of a call that is made of it.
            pub const fn name(self) -> &'static str {
                match self { $($kinds::$kind => $name,)* }
            }

            pub(crate) const fn doc(self) -> &'static str {
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
