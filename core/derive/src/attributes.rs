//! The attributes of a type, and the marks of its fields.

use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned;
use syn::{Attribute, Error, Ident, Path, Result};

/// The contents of `#[differentiable(…)]` on a type.
pub struct Attributes {
    /// The path of the crate that has the trait.
    pub root: TokenStream,
    /// The tangent vector.
    pub tangent: Tangent,
}

/// The tangent vector of a type.
pub enum Tangent {
    /// The type itself.
    Itself,
    /// A user-defined type.
    Given(Path),
    /// A type of this name, to be generated.
    Synthesized(Ident),
}

const KEYS: &str = "expected `synthesize = NameOfTangent` (have the tangent vector made), \
                    `tangent = YourTangent` (name yours), or `crate = path::to::wengert_core`";

impl Attributes {
    /// Reads the attributes of a type.
    pub fn parse(attributes: &[Attribute]) -> Result<Self> {
        let (mut root, mut tangent) = (None, Tangent::Itself);
        for attribute in attributes {
            if attribute.path().is_ident("no_derivative") {
                return Err(Error::new_spanned(
                    attribute,
                    "`#[no_derivative]` marks fields, not types: put it on the fields that get no \
                     derivative",
                ));
            }
            if !attribute.path().is_ident("differentiable") {
                continue;
            }
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("crate") {
                    let path: Path = meta.value()?.parse()?;
                    return match root.replace(quote!(#path)) {
                        None => Ok(()),
                        Some(_) => Err(Error::new(path.span(), "`crate` is given twice: keep one")),
                    };
                }
                let new = if meta.path.is_ident("synthesize") {
                    Tangent::Synthesized(meta.value()?.parse()?)
                } else if meta.path.is_ident("tangent") {
                    Tangent::Given(meta.value()?.parse()?)
                } else {
                    return Err(meta.error(KEYS));
                };
                if !matches!(tangent, Tangent::Itself) {
                    return Err(meta.error(
                        "the tangent vector is given twice: keep `tangent`, to use a type of \
                         yours, or `synthesize`, to have one made",
                    ));
                }
                tangent = new;
                Ok(())
            })?;
        }
        Ok(Attributes { root: root.unwrap_or_else(|| quote!(::wengert::core)), tangent })
    }
}

/// Whether a field is marked `#[no_derivative]`.
pub fn is_marked(attributes: &[Attribute]) -> Result<bool> {
    let mut marked = false;
    for attribute in attributes {
        if attribute.path().is_ident("no_derivative") {
            if attribute.meta.require_path_only().is_err() {
                return Err(Error::new_spanned(
                    attribute,
                    "the mark takes no arguments: write `#[no_derivative]`",
                ));
            }
            if marked {
                return Err(Error::new_spanned(
                    attribute,
                    "the field is marked twice: remove one mark",
                ));
            }
            marked = true;
        } else if attribute.path().is_ident("differentiable") {
            return Err(Error::new_spanned(
                attribute,
                "`#[differentiable(…)]` stands on the type; a field without derivative is marked \
                 `#[no_derivative]`",
            ));
        }
    }
    Ok(marked)
}

/// Checks that a variant of an enum has no attributes of its own.
pub fn check_variant(attributes: &[Attribute]) -> Result<()> {
    for attribute in attributes {
        if attribute.path().is_ident("no_derivative") || attribute.path().is_ident("differentiable")
        {
            return Err(Error::new_spanned(
                attribute,
                "a variant has no derivative of its own: put `#[no_derivative]` on each of its \
                 fields",
            ));
        }
    }
    Ok(())
}
