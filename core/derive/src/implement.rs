//! The implementation of the trait.

use crate::attributes::Tangent;
use crate::model::{Field, Model, Variant, constructor};
use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::{Index, Member, Path, PathArguments, parse_quote};

/// The form of a tangent vector in generated code.
pub struct TangentForm {
    /// Its type.
    ty: TokenStream,
    /// Its type as the path of constructors and patterns.
    path: TokenStream,
    /// Whether it is the type itself. Then it has the marked fields too, and each field must be
    /// its own tangent vector.
    is_itself: bool,
}

/// `impl Differentiable for Model`.
pub fn implement(model: &Model, tangent: &Tangent) -> TokenStream {
    let (varying, fixed) = model.occurrences();
    let form = match tangent {
        Tangent::Itself => TangentForm { ty: quote!(Self), path: quote!(Self), is_itself: true },
        Tangent::Given(path) => {
            TangentForm { ty: quote!(#path), path: without_arguments(path), is_itself: false }
        }
        Tangent::Synthesized(name) => {
            let kept = crate::synthesize::kept_generics(model);
            let (_, arguments, _) = kept.split_for_impl();
            TangentForm { ty: quote!(#name #arguments), path: quote!(#name), is_itself: false }
        }
    };
    let (root, mut generics) = (&model.root, model.generics.clone());
    let types: Vec<String> = generics.type_params().map(|p| p.ident.to_string()).collect();
    let bounds = generics.make_where_clause();
    for name in varying.iter().filter(|name| types.contains(name)) {
        let parameter = format_ident!("{name}");
        bounds.predicates.push(match form.is_itself {
            true => parse_quote!(#parameter: #root::Differentiable<TangentVector = #parameter>),
            false => parse_quote!(#parameter: #root::Differentiable),
        });
    }
    for name in fixed.iter().filter(|name| types.contains(name)) {
        let parameter = format_ident!("{name}");
        bounds.predicates.push(parse_quote!(#parameter: ::core::clone::Clone));
    }
    implementation(model, &generics, &form)
}

/// The implementation with the given bounds.
pub fn implementation(model: &Model, generics: &syn::Generics, form: &TangentForm) -> TokenStream {
    let (root, name) = (&model.root, &model.name);
    let arms = |make: &dyn Fn(&Variant) -> TokenStream| -> TokenStream {
        let arms = model.variants.iter().map(make);
        quote!(match *self { #(#arms)* })
    };
    let visit = arms(&|v| visit_arm(model, v));
    let map = arms(&|v| {
        rebuild_arm(v, &quote!(Self), true, &|f| {
            let (of, binding, path) = (trait_of(root, f), &f.binding, path_of(root, f));
            quote!(#of::map_tensors(#binding, #path, map))
        })
    });
    let tangent = arms(&|v| {
        rebuild_arm(v, &form.path, form.is_itself, &|f| {
            let (of, binding, path) = (trait_of(root, f), &f.binding, path_of(root, f));
            itself(root, f, form, quote!(#of::tangent(#binding, #path, make)))
        })
    });
    let zero = arms(&|v| {
        rebuild_arm(v, &form.path, form.is_itself, &|f| {
            let (of, binding) = (trait_of(root, f), &f.binding);
            itself(root, f, form, quote!(#of::zero_tangent(#binding)))
        })
    });
    let components = pairs(
        model,
        form,
        quote!(tangent),
        &|v| components_arm(model, v, form),
        &|what| quote!(#root::differentiable::mismatched_components(self, tangent, #what, give)),
    );
    let move_along = pairs(
        model,
        form,
        quote!(direction),
        &|v| move_arm(model, v, form),
        &|what| quote!(#root::differentiable::mismatch(self, direction, #what)),
    );
    let tangent_type = &form.ty;
    let (generics, arguments, bounds) = generics.split_for_impl();
    let key_path = quote!(path: &#root::KeyPath);
    quote! {
        #[automatically_derived]
        #[allow(unused_variables, unused_qualifications, clippy::all)]
        impl #generics #root::Differentiable for #name #arguments #bounds {
            type TangentVector = #tangent_type;
            fn visit_tensors(
                &self,
                #key_path,
                visit: &mut dyn ::core::ops::FnMut(&#root::KeyPath, &#root::Tensor),
            ) {
                #visit
            }
            fn map_tensors(
                &self,
                #key_path,
                map: &mut dyn ::core::ops::FnMut(&#root::KeyPath, &#root::Tensor) -> #root::Tensor,
            ) -> Self {
                #map
            }
            fn tangent(
                &self,
                #key_path,
                make: &mut dyn ::core::ops::FnMut(&#root::KeyPath, &#root::Tensor) -> #root::Tensor,
            ) -> Self::TangentVector {
                #tangent
            }
            #[track_caller]
            fn components(
                &self,
                tangent: &Self::TangentVector,
                give: &mut dyn ::core::ops::FnMut(&#root::Tensor),
            ) {
                #components
            }
            #[track_caller]
            fn move_along(&self, direction: &Self::TangentVector) -> Self {
                #move_along
            }
            #[track_caller]
            fn zero_tangent(&self) -> Self::TangentVector {
                #zero
            }
        }
    }
}

/// The form of a synthesized tangent vector, which is its own tangent vector.
pub fn own_form() -> TangentForm {
    TangentForm { ty: quote!(Self), path: quote!(Self), is_itself: true }
}

fn trait_of(root: &TokenStream, field: &Field) -> TokenStream {
    let ty = &field.ty;
    quote_spanned!(field.span()=> <#ty as #root::Differentiable>)
}

fn path_of(root: &TokenStream, field: &Field) -> TokenStream {
    let key = &field.key;
    quote!(&#root::KeyPath::child(path, #key))
}

/// A field's tangent vector, converted to the field's type if the tangent vector is the type
/// itself.
fn itself(
    root: &TokenStream,
    field: &Field,
    form: &TangentForm,
    tangent: TokenStream,
) -> TokenStream {
    if !form.is_itself {
        return tangent;
    }
    let (ty, of) = (&field.ty, trait_of(root, field));
    quote_spanned!(field.span()=>
        <#of::TangentVector as #root::differentiable::Itself<#ty>>::itself(#tangent))
}

/// A reference to a part of a tangent vector.
fn part(root: &TokenStream, field: &Field, form: &TangentForm) -> TokenStream {
    let tangent = &field.tangent;
    if !form.is_itself {
        return quote!(#tangent);
    }
    let (ty, of) = (&field.ty, trait_of(root, field));
    quote_spanned!(field.span()=>
        <#of::TangentVector as #root::differentiable::Itself<#ty>>::of(#tangent))
}

/// `Self::Variant { 0: ref field_0, … }`.
fn pattern(variant: &Variant) -> TokenStream {
    let constructor = constructor(&quote!(Self), variant);
    let bindings = variant.fields.iter().map(|f| {
        let (member, binding) = (&f.member, &f.binding);
        quote!(#member: ref #binding)
    });
    quote!(#constructor { #(#bindings),* })
}

fn visit_arm(model: &Model, variant: &Variant) -> TokenStream {
    let pattern = pattern(variant);
    let visits = variant.varying().map(|f| {
        let (of, binding, path) = (trait_of(&model.root, f), &f.binding, path_of(&model.root, f));
        quote!(#of::visit_tensors(#binding, #path, visit);)
    });
    quote!(#pattern => { #(#visits)* })
}

/// An arm that builds a value of type `of` field by field; marked fields are cloned or omitted.
fn rebuild_arm(
    variant: &Variant,
    of: &TokenStream,
    with_marked: bool,
    make: &dyn Fn(&Field) -> TokenStream,
) -> TokenStream {
    let (pattern, made) = (pattern(variant), rebuilt(variant, of, with_marked, make));
    quote!(#pattern => #made,)
}

fn rebuilt(
    variant: &Variant,
    of: &TokenStream,
    with_marked: bool,
    make: &dyn Fn(&Field) -> TokenStream,
) -> TokenStream {
    let constructor = constructor(of, variant);
    let fields = members(variant, with_marked).into_iter().map(|(field, member)| {
        let value = if field.is_marked { clone_of(field) } else { make(field) };
        quote!(#member: #value)
    });
    quote!(#constructor { #(#fields),* })
}

fn clone_of(field: &Field) -> TokenStream {
    let (ty, binding) = (&field.ty, &field.binding);
    quote_spanned!(field.span()=> <#ty as ::core::clone::Clone>::clone(#binding))
}

/// Fields with their member in a type that includes or omits the marked ones.
pub fn members<'v>(variant: &'v Variant, with_marked: bool) -> Vec<(&'v Field, Member)> {
    let kept = variant.fields.iter().filter(|f| with_marked || !f.is_marked);
    let member = |(i, field): (usize, &'v Field)| match &field.member {
        Member::Named(_) => (field, field.member.clone()),
        Member::Unnamed(_) => (field, Member::Unnamed(Index::from(i))),
    };
    kept.enumerate().map(member).collect()
}

/// A match with an arm for a value and a tangent vector of the same variant, and one for
/// different variants.
fn pairs(
    model: &Model,
    form: &TangentForm,
    tangent: TokenStream,
    arm: &dyn Fn(&Variant) -> TokenStream,
    mismatch: &dyn Fn(&str) -> TokenStream,
) -> TokenStream {
    if model.variants.is_empty() {
        return quote!(match *self {});
    }
    let arms = model.variants.iter().map(|variant| {
        let (value, made) = (pattern(variant), arm(variant));
        let constructor = constructor(&form.path, variant);
        let parts = members(variant, form.is_itself).into_iter().filter(|(f, _)| !f.is_marked);
        let parts = parts.map(|(field, member)| {
            let tangent = &field.tangent;
            quote!(#member: ref #tangent)
        });
        quote!((&#value, &#constructor { #(#parts,)* .. }) => #made,)
    });
    let several = model.variants.len() > 1;
    let otherwise =
        several.then(|| mismatch("it is of another variant of the enum")).map(|m| quote!(_ => #m,));
    quote!(match (self, #tangent) { #(#arms)* #otherwise })
}

fn components_arm(model: &Model, variant: &Variant, form: &TangentForm) -> TokenStream {
    let gives = variant.varying().map(|f| {
        let (of, binding, part) =
            (trait_of(&model.root, f), &f.binding, part(&model.root, f, form));
        quote!(#of::components(#binding, #part, give);)
    });
    quote!({ #(#gives)* })
}

fn move_arm(model: &Model, variant: &Variant, form: &TangentForm) -> TokenStream {
    rebuilt(variant, &quote!(Self), true, &|f| {
        let (of, binding, part) =
            (trait_of(&model.root, f), &f.binding, part(&model.root, f, form));
        quote!(#of::move_along(#binding, #part))
    })
}

/// The path of a type in constructors: `Tangent` for `Tangent<T>`.
fn without_arguments(path: &Path) -> TokenStream {
    let mut path = path.clone();
    path.segments.iter_mut().for_each(|s| s.arguments = PathArguments::None);
    quote!(#path)
}
