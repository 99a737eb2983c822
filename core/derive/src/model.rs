//! The input type of the derive, reduced to the parts that it needs.

use crate::attributes::{check_variant, is_marked};
use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use std::collections::BTreeSet;
use syn::spanned::Spanned;
use syn::{
    Data, DeriveInput, Error, Fields, GenericParam, Generics, Ident, Index, Member, Result, Type,
    Visibility,
};

/// A struct or an enum.
pub struct Model {
    /// The path of the crate that has the trait.
    pub root: TokenStream,
    /// Name of the type.
    pub name: Ident,
    /// Parameters and bounds of the type.
    pub generics: Generics,
    /// The variants; one for a struct.
    pub variants: Vec<Variant>,
}

/// A variant of an enum, or the fields of a struct.
pub struct Variant {
    /// `None` for a struct.
    pub name: Option<Ident>,
    /// The fields in order.
    pub fields: Vec<Field>,
}

/// A field.
pub struct Field {
    /// Name or index.
    pub member: Member,
    /// Name in key paths.
    pub key: String,
    /// Type of the field.
    pub ty: Type,
    /// Visibility of the field.
    pub visibility: Visibility,
    /// Whether it is marked `#[no_derivative]`.
    pub is_marked: bool,
    /// The variable of its value in generated code.
    pub binding: Ident,
    /// The variable of its part of a tangent vector in generated code.
    pub tangent: Ident,
}

impl Model {
    /// Reads a type and the marks of its fields.
    pub fn parse(input: &DeriveInput, root: TokenStream) -> Result<Self> {
        let variants = match &input.data {
            Data::Struct(data) => vec![Variant { name: None, fields: fields(&data.fields)? }],
            Data::Enum(data) => {
                let variant = |v: &syn::Variant| {
                    check_variant(&v.attrs)?;
                    Ok(Variant { name: Some(v.ident.clone()), fields: fields(&v.fields)? })
                };
                data.variants.iter().map(variant).collect::<Result<_>>()?
            }
            Data::Union(data) => {
                return Err(Error::new(
                    data.union_token.span(),
                    "a union cannot be differentiated, since it does not know which field it \
                     holds: make it an enum",
                ));
            }
        };
        Ok(Model { root, name: input.ident.clone(), generics: input.generics.clone(), variants })
    }

    /// The parameters that occur in fields with a derivative, and those that occur in the other
    /// fields only.
    pub fn occurrences(&self) -> (BTreeSet<String>, BTreeSet<String>) {
        let parameters: BTreeSet<String> =
            self.generics.params.iter().map(parameter_name).collect();
        let (mut varying, mut fixed) = (BTreeSet::new(), BTreeSet::new());
        for field in self.variants.iter().flat_map(|v| &v.fields) {
            let found = if field.is_marked { &mut fixed } else { &mut varying };
            collect(field.ty.to_token_stream(), &parameters, found);
        }
        let fixed = fixed.difference(&varying).cloned().collect();
        (varying, fixed)
    }
}

impl Variant {
    /// The fields with a derivative.
    pub fn varying(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter().filter(|f| !f.is_marked)
    }
}

impl Field {
    /// The span for generated code of the field: errors point at the field's type, and the span
    /// still counts as generated.
    pub fn span(&self) -> Span {
        Span::mixed_site().located_at(self.ty.span())
    }
}

/// `T` of `T: Clone`, `'a`, `N` of `const N: usize`.
pub fn parameter_name(parameter: &GenericParam) -> String {
    match parameter {
        GenericParam::Type(p) => p.ident.to_string(),
        GenericParam::Const(p) => p.ident.to_string(),
        GenericParam::Lifetime(p) => p.lifetime.ident.to_string(),
    }
}

/// Adds the names that occur in the tokens to `found`.
pub fn collect(tokens: TokenStream, names: &BTreeSet<String>, found: &mut BTreeSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(name) if names.contains(&name.to_string()) => {
                found.insert(name.to_string());
            }
            TokenTree::Group(group) => collect(group.stream(), names, found),
            _ => {}
        }
    }
}

fn fields(fields: &Fields) -> Result<Vec<Field>> {
    let field = |(i, field): (usize, &syn::Field)| {
        let (member, key) = match &field.ident {
            Some(name) => (Member::Named(name.clone()), unraw(name)),
            None => (Member::Unnamed(Index::from(i)), i.to_string()),
        };
        Ok(Field {
            member,
            key,
            ty: field.ty.clone(),
            visibility: field.vis.clone(),
            is_marked: is_marked(&field.attrs)?,
            binding: Ident::new(&format!("field_{i}"), Span::mixed_site()),
            tangent: Ident::new(&format!("tangent_{i}"), Span::mixed_site()),
        })
    };
    fields.iter().enumerate().map(field).collect()
}

/// The name in key paths: `r#type` is `type`.
fn unraw(name: &Ident) -> String {
    let name = name.to_string();
    name.strip_prefix("r#").map(str::to_owned).unwrap_or(name)
}

/// `Self` or `Self::Variant`.
pub fn constructor(of: &TokenStream, variant: &Variant) -> TokenStream {
    match &variant.name {
        Some(name) => quote!(#of::#name),
        None => of.clone(),
    }
}
