//! Generation of a tangent vector type: the differentiable fields, each with the tangent vector
//! of its type.

use crate::implement::{implementation, members, own_form};
use crate::model::{Field, Model, Variant, collect, parameter_name};
use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote};
use std::collections::BTreeSet;
use syn::{DeriveInput, GenericParam, Generics, Member, parse_quote};

/// The parameters of a synthesized type: those that occur in fields with a derivative, and the
/// bounds that mention no others.
pub fn kept_generics(model: &Model) -> Generics {
    let (varying, _) = model.occurrences();
    let mut kept = model.generics.clone();
    let dropped: BTreeSet<String> =
        kept.params.iter().map(parameter_name).filter(|name| !varying.contains(name)).collect();
    kept.params =
        kept.params.into_iter().filter(|p| varying.contains(&parameter_name(p))).collect();
    if kept.params.is_empty() {
        return Generics::default();
    }
    if let Some(bounds) = &mut kept.where_clause {
        let of_kept = |predicate: &syn::WherePredicate| {
            let mut found = BTreeSet::new();
            collect(predicate.to_token_stream(), &dropped, &mut found);
            found.is_empty()
        };
        bounds.predicates = bounds.predicates.iter().filter(|p| of_kept(p)).cloned().collect();
    }
    let types: Vec<Ident> = kept.type_params().map(|p| p.ident.clone()).collect();
    let root = &model.root;
    let bounds = kept.make_where_clause();
    bounds.predicates.extend(
        types
            .iter()
            .map(|name| -> syn::WherePredicate { parse_quote!(#name: #root::Differentiable) }),
    );
    // Defaults belong to the original type.
    for parameter in &mut kept.params {
        match parameter {
            GenericParam::Type(p) => (p.eq_token, p.default) = (None, None),
            GenericParam::Const(p) => (p.eq_token, p.default) = (None, None),
            GenericParam::Lifetime(_) => {}
        }
    }
    kept
}

/// The type, and its implementation as its own tangent vector.
pub fn synthesize(model: &Model, name: &Ident, input: &DeriveInput) -> TokenStream {
    let root = &model.root;
    let generics = kept_generics(model);
    let variants: Vec<Variant> = model
        .variants
        .iter()
        .map(|variant| Variant {
            name: variant.name.clone(),
            fields: members(variant, false)
                .into_iter()
                .map(|(f, member)| tangent_field(root, f, member))
                .collect(),
        })
        .collect();
    let visibility = &input.vis;
    let doc = format!("A tangent vector of [`{}`].", model.name);
    let (_, _, bounds) = generics.split_for_impl();
    let is_enum = matches!(input.data, syn::Data::Enum(_));
    let bodies = variants.iter().map(|variant| body(variant, is_enum));
    let item = if is_enum {
        let names = variants.iter().map(|v| &v.name);
        quote!(#visibility enum #name #generics #bounds {
            #(#[allow(missing_docs)] #names #bodies,)*
        })
    } else {
        let is_tuple = variants[0].fields.iter().any(|f| matches!(f.member, Member::Unnamed(_)));
        let body = bodies.into_iter().next();
        match (is_tuple, variants[0].fields.is_empty()) {
            (true, _) => quote!(#visibility struct #name #generics #body #bounds;),
            (false, true) => quote!(#visibility struct #name #generics #bounds {}),
            (false, false) => quote!(#visibility struct #name #generics #bounds #body),
        }
    };
    let own =
        Model { root: root.clone(), name: name.clone(), generics: generics.clone(), variants };
    let implementation = implementation(&own, &generics, &own_form());
    quote! {
        #[doc = #doc]
        #item
        #implementation
    }
}

fn tangent_field(root: &TokenStream, field: &Field, member: Member) -> Field {
    let ty = &field.ty;
    Field {
        member,
        key: field.key.clone(),
        ty: parse_quote!(<#ty as #root::Differentiable>::TangentVector),
        visibility: field.visibility.clone(),
        is_marked: false,
        binding: format_ident!("{}", field.binding),
        tangent: format_ident!("{}", field.tangent),
    }
}

/// `{ a: A, … }` or `(A, …)`. A field of a struct has the visibility of the original field.
fn body(variant: &Variant, is_enum: bool) -> TokenStream {
    let fields = variant.fields.iter().map(|field| {
        let (doc, ty) = (format!("The tangent of `{}`.", field.key), &field.ty);
        let visibility = (!is_enum).then_some(&field.visibility);
        match &field.member {
            Member::Named(name) => quote!(#[doc = #doc] #visibility #name: #ty),
            Member::Unnamed(_) => quote!(#[doc = #doc] #visibility #ty),
        }
    });
    let is_tuple = variant.fields.iter().any(|f| matches!(f.member, Member::Unnamed(_)));
    match (variant.fields.is_empty(), is_tuple) {
        (true, _) if is_enum => quote!(),
        (_, true) => quote!((#(#fields),*)),
        (_, false) => quote!({ #(#fields),* }),
    }
}
