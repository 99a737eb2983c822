//! `#[derive(Differentiable)]`.
//!
//! The derived type is its own tangent vector. Each field is visited under its name (its index in tuple structs and variants), which
//! gives key paths such as `layers.0.weight`; the variant of an enum is no part of the path. A field marked `#[no_derivative]` is not
//! visited, and cloned where a copy of the value is made.
//!
//! The expansion names the trait as `::wengert::core::Differentiable`. A crate that uses `wengert-core` without `wengert` says so on
//! the type: `#[differentiable(crate = wengert_core)]`.
#![forbid(unsafe_code)]

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{format_ident, quote, quote_spanned};
use std::collections::BTreeSet;
use syn::spanned::Spanned;
use syn::{
    Attribute, Data, DeriveInput, Error, Field, Fields, Index, Member, Path, Result, parse_macro_input,
    parse_quote,
};

/// Implements `Differentiable` for a struct or an enum whose fields are `Differentiable` with themselves as tangent vector.
/// `#[no_derivative]` excludes a field. Type parameters of the other fields are bound accordingly.
#[proc_macro_derive(Differentiable, attributes(no_derivative, differentiable))]
pub fn differentiable(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(input).unwrap_or_else(Error::into_compile_error).into()
}

/// What is generated for one struct, or one variant of an enum: match arms of the three methods.
struct Arms {
    visit: TokenStream,
    map: TokenStream,
    tangent: TokenStream,
}

fn expand(mut input: DeriveInput) -> Result<TokenStream> {
    let root = root(&input.attrs)?;
    let parameters: BTreeSet<String> = input.generics.type_params().map(|p| p.ident.to_string()).collect();
    // Type parameters that occur in fields with a derivative, and in fields without.
    let (mut varying, mut fixed) = (BTreeSet::new(), BTreeSet::new());
    let mut arms = Vec::new();
    match &input.data {
        Data::Struct(data) => {
            arms.push(arms_of(&root, quote!(Self), &data.fields)?);
            occurrences(&data.fields, &parameters, &mut varying, &mut fixed);
        }
        Data::Enum(data) => {
            for variant in &data.variants {
                if let Some(attribute) = variant.attrs.iter().find(|a| a.path().is_ident("no_derivative")) {
                    return Err(Error::new_spanned(
                        attribute,
                        "`#[no_derivative]` marks fields: put it on each field",
                    ));
                }
                let name = &variant.ident;
                arms.push(arms_of(&root, quote!(Self::#name), &variant.fields)?);
                occurrences(&variant.fields, &parameters, &mut varying, &mut fixed);
            }
        }
        Data::Union(data) => {
            return Err(Error::new(
                data.union_token.span(),
                "a union cannot be differentiated: it does not know its fields",
            ));
        }
    }
    let bounds = input.generics.make_where_clause();
    for name in &varying {
        let parameter = format_ident!("{name}");
        bounds.predicates.push(parse_quote!(#parameter: #root::Differentiable<TangentVector = #parameter>));
    }
    for name in fixed.difference(&varying) {
        let parameter = format_ident!("{name}");
        bounds.predicates.push(parse_quote!(#parameter: ::core::clone::Clone));
    }
    let name = &input.ident;
    let (generics, arguments, bounds) = input.generics.split_for_impl();
    let visit = arms.iter().map(|a| &a.visit);
    let map = arms.iter().map(|a| &a.map);
    let tangent = arms.iter().map(|a| &a.tangent);
    Ok(quote! {
        #[automatically_derived]
        #[allow(unused_variables, unused_qualifications, clippy::all)]
        impl #generics #root::Differentiable for #name #arguments #bounds {
            type TangentVector = Self;
            fn visit_tensors(
                &self,
                path: &#root::KeyPath,
                visit: &mut dyn ::core::ops::FnMut(&#root::KeyPath, &#root::Tensor),
            ) {
                match *self { #(#visit)* }
            }
            fn map_tensors(
                &self,
                path: &#root::KeyPath,
                map: &mut dyn ::core::ops::FnMut(&#root::KeyPath, &#root::Tensor) -> #root::Tensor,
            ) -> Self {
                match *self { #(#map)* }
            }
            fn tangent(
                &self,
                path: &#root::KeyPath,
                make: &mut dyn ::core::ops::FnMut(&#root::KeyPath, &#root::Tensor) -> #root::Tensor,
            ) -> Self {
                match *self { #(#tangent)* }
            }
        }
    })
}

/// The crate that has the trait.
fn root(attributes: &[Attribute]) -> Result<TokenStream> {
    let mut root = quote!(::wengert::core);
    for attribute in attributes {
        if attribute.path().is_ident("no_derivative") {
            return Err(Error::new_spanned(attribute, "`#[no_derivative]` marks fields, not types"));
        }
        if attribute.path().is_ident("differentiable") {
            attribute.parse_nested_meta(|meta| {
                if !meta.path.is_ident("crate") {
                    return Err(
                        meta.error("expected `crate = path`, e.g. `#[differentiable(crate = wengert_core)]`")
                    );
                }
                let path: Path = meta.value()?.parse()?;
                root = quote!(#path);
                Ok(())
            })?;
        }
    }
    Ok(root)
}

fn has_derivative(field: &Field) -> Result<bool> {
    let mut marked = false;
    for attribute in &field.attrs {
        if attribute.path().is_ident("no_derivative") {
            attribute.meta.require_path_only()?;
            marked = true;
        } else if attribute.path().is_ident("differentiable") {
            return Err(Error::new_spanned(attribute, "`#[differentiable(…)]` stands on the type"));
        }
    }
    Ok(!marked)
}

fn arms_of(root: &TokenStream, constructor: TokenStream, fields: &Fields) -> Result<Arms> {
    let (mut bindings, mut visits, mut maps, mut tangents) = (vec![], vec![], vec![], vec![]);
    for (i, field) in fields.iter().enumerate() {
        let (member, key) = match &field.ident {
            Some(name) => (Member::Named(name.clone()), unraw(name)),
            None => (Member::Unnamed(Index::from(i)), i.to_string()),
        };
        let binding = Ident::new(&format!("field_{i}"), Span::mixed_site());
        bindings.push(quote!(#member: ref #binding));
        // Errors about the field's type point at it, and still count as generated code.
        let (ty, span) = (&field.ty, Span::mixed_site().located_at(field.ty.span()));
        if has_derivative(field)? {
            let path = quote!(&#root::KeyPath::child(path, #key));
            let of = quote_spanned!(span=> <#ty as #root::Differentiable>);
            visits.push(quote!(#of::visit_tensors(#binding, #path, visit);));
            maps.push(quote!(#member: #of::map_tensors(#binding, #path, map)));
            tangents.push(quote!(#member: #of::tangent(#binding, #path, make)));
        } else {
            let of = quote_spanned!(span=> <#ty as ::core::clone::Clone>);
            let clone = quote!(#member: #of::clone(#binding));
            maps.push(clone.clone());
            tangents.push(clone);
        }
    }
    let pattern = quote!(#constructor { #(#bindings),* });
    Ok(Arms {
        visit: quote!(#pattern => { #(#visits)* }),
        map: quote!(#pattern => #constructor { #(#maps),* },),
        tangent: quote!(#pattern => #constructor { #(#tangents),* },),
    })
}

/// The name as it is written in key paths: `r#type` is `type`.
fn unraw(name: &Ident) -> String {
    let name = name.to_string();
    name.strip_prefix("r#").map(str::to_owned).unwrap_or(name)
}

/// Which type parameters occur in fields with (`varying`) and without (`fixed`) a derivative.
fn occurrences(
    fields: &Fields,
    parameters: &BTreeSet<String>,
    varying: &mut BTreeSet<String>,
    fixed: &mut BTreeSet<String>,
) {
    fn collect(tokens: TokenStream, parameters: &BTreeSet<String>, found: &mut BTreeSet<String>) {
        for token in tokens {
            match token {
                TokenTree::Ident(name) if parameters.contains(&name.to_string()) => {
                    found.insert(name.to_string());
                }
                TokenTree::Group(group) => collect(group.stream(), parameters, found),
                _ => {}
            }
        }
    }
    for field in fields {
        let ty = &field.ty;
        let marked = field.attrs.iter().any(|a| a.path().is_ident("no_derivative"));
        collect(quote!(#ty), parameters, if marked { fixed } else { varying });
    }
}
