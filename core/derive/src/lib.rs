//! `#[derive(Differentiable)]`.
//!
//! Each field is visited under its name (its index in tuple structs and variants), which gives
//! key paths such as `layers.0.weight`; the variant of an enum is not part of the path. A field
//! marked `#[no_derivative]` is not visited, and is cloned into copies of the value.
//!
//! The type's attribute chooses the tangent vector:
//!
//! | attribute | tangent vector |
//! |---|---|
//! | none | the type itself; each field must be its own tangent vector |
//! | `#[differentiable(synthesize = ArmTangent)]` | a generated type of that name, whose fields are the tangent vectors of the fields |
//! | `#[differentiable(tangent = MyTangent)]` | your type with the same variants and fields, of the fields' tangent vectors |
//!
//! A tangent vector of another type omits marked fields: in tuple structs the fields after them
//! move up, and keep their key paths.
//!
//! The expansion names the trait as `::wengert::core::Differentiable`. A crate that uses
//! `wengert-core` without `wengert` gives the path on the type:
//! `#[differentiable(crate = wengert_core)]`.
#![forbid(unsafe_code)]

mod attributes;
mod implement;
mod model;
mod synthesize;

use syn::{DeriveInput, Error, parse_macro_input};

/// Implements `Differentiable` for a struct or an enum whose fields are `Differentiable`.
///
/// `#[no_derivative]` excludes a field. On the type, `#[differentiable(synthesize = Name)]`
/// generates a tangent vector type of that name, `#[differentiable(tangent = Type)]` names an
/// existing one. Type parameters of differentiable fields are bound accordingly.
#[proc_macro_derive(Differentiable, attributes(no_derivative, differentiable))]
pub fn differentiable(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(input).unwrap_or_else(Error::into_compile_error).into()
}

fn expand(input: DeriveInput) -> syn::Result<proc_macro2::TokenStream> {
    let attributes = attributes::Attributes::parse(&input.attrs)?;
    let model = model::Model::parse(&input, attributes.root)?;
    let mut tokens = implement::implement(&model, &attributes.tangent);
    if let attributes::Tangent::Synthesized(name) = &attributes.tangent {
        tokens.extend(synthesize::synthesize(&model, name, &input));
    }
    Ok(tokens)
}
