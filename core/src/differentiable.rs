//! Types that hold tensors: models, tuples and vectors of models, optimiser moments.
//!
//! The trait follows Swift's `Differentiable`: a type has a `TangentVector`, can be moved along one, and gives access to all its
//! differentiable variables by key path (`layers.0.weight`), by which optimisers and files address them.
//! `#[derive(Differentiable)]` implements it for structs and enums whose fields are `Differentiable`; `#[no_derivative]`
//! excludes a field. A derived type is its own tangent vector, so gradients have the type of the model.
//!
//! ```
//! use wengert_core::{DType, Differentiable, Initializer, Tensor, TensorType};
//!
//! #[derive(Differentiable)]
//! #[differentiable(crate = wengert_core)] // not needed by users of `wengert`
//! struct Layer {
//!     weight: Tensor,
//!     bias: Option<Tensor>,
//!     #[no_derivative]
//!     name: String,
//! }
//!
//! let zeros = |n: usize| Tensor::variable(TensorType::new(DType::F32, [n]), Initializer::Zeros);
//! let layers = vec![Layer { weight: zeros(2), bias: Some(zeros(3)), name: "first".into() }];
//! let paths: Vec<String> = layers.tensors().iter().map(|(path, _)| path.to_string()).collect();
//! assert_eq!(paths, ["0.weight", "0.bias"]);
//! ```
//!
//! A field that holds no tensors must be marked; without the mark the compiler says so, at the field:
//!
//! ```compile_fail,E0277
//! # use wengert_core::{Differentiable, Tensor};
//! #[derive(Differentiable)]
//! #[differentiable(crate = wengert_core)]
//! struct Layer {
//!     weight: Tensor,
//!     name: String, // `String` holds no tensors that could be differentiated
//! }
//! ```

use crate::graph::tensor::Tensor;
use std::fmt;

/// Where a tensor sits in a model: field names and indices joined by dots.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct KeyPath(String);

impl KeyPath {
    /// A path of one name; the empty name is no prefix at all.
    pub fn root(name: &str) -> Self {
        KeyPath(name.into())
    }

    /// The path of a part.
    #[must_use]
    pub fn child(&self, name: impl fmt::Display) -> Self {
        if self.0.is_empty() { KeyPath(name.to_string()) } else { KeyPath(format!("{}.{name}", self.0)) }
    }

    /// As a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A value that holds tensors and can be differentiated with respect to them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` holds no tensors that could be differentiated",
    label = "not `Differentiable`",
    note = "derive it with `#[derive(Differentiable)]`, or mark the field that has this type with `#[no_derivative]`"
)]
pub trait Differentiable: Sized {
    /// What derivatives with respect to a value of this type are. The tangent of a tangent is itself.
    type TangentVector: Differentiable<TangentVector = Self::TangentVector>;

    /// Visits every differentiable tensor with its key path, in a fixed order.
    fn visit_tensors(&self, path: &KeyPath, visit: &mut dyn FnMut(&KeyPath, &Tensor));

    /// The same value with every differentiable tensor replaced, in the same order.
    fn map_tensors(&self, path: &KeyPath, map: &mut dyn FnMut(&KeyPath, &Tensor) -> Tensor) -> Self;

    /// The tangent vector made of one tensor for each tensor of `self`, in the same order.
    fn tangent(
        &self,
        path: &KeyPath,
        make: &mut dyn FnMut(&KeyPath, &Tensor) -> Tensor,
    ) -> Self::TangentVector;

    /// `self + direction`, tensor by tensor. A manifold writes its own.
    fn move_along(&self, direction: &Self::TangentVector) -> Self {
        let mut steps = direction.tensors().into_iter();
        self.map_tensors(&KeyPath::default(), &mut |_, t| match steps.next() {
            Some((_, step)) => t + &step,
            None => t.clone(),
        })
    }

    /// The zero tangent; depends on the shapes only.
    fn zero_tangent(&self) -> Self::TangentVector {
        self.tangent(&KeyPath::default(), &mut |_, t| t.zeros_like())
    }

    /// All differentiable tensors by key path.
    fn tensors(&self) -> Vec<(KeyPath, Tensor)> {
        let mut all = Vec::new();
        self.visit_tensors(&KeyPath::default(), &mut |path, t| all.push((path.clone(), t.clone())));
        all
    }
}

impl Differentiable for Tensor {
    type TangentVector = Tensor;
    fn visit_tensors(&self, path: &KeyPath, visit: &mut dyn FnMut(&KeyPath, &Tensor)) {
        visit(path, self);
    }
    fn map_tensors(&self, path: &KeyPath, map: &mut dyn FnMut(&KeyPath, &Tensor) -> Tensor) -> Self {
        map(path, self)
    }
    fn tangent(&self, path: &KeyPath, make: &mut dyn FnMut(&KeyPath, &Tensor) -> Tensor) -> Tensor {
        make(path, self)
    }
}

impl<T: Differentiable> Differentiable for Vec<T> {
    type TangentVector = Vec<T::TangentVector>;
    fn visit_tensors(&self, path: &KeyPath, visit: &mut dyn FnMut(&KeyPath, &Tensor)) {
        self.iter().enumerate().for_each(|(i, item)| item.visit_tensors(&path.child(i), visit));
    }
    fn map_tensors(&self, path: &KeyPath, map: &mut dyn FnMut(&KeyPath, &Tensor) -> Tensor) -> Self {
        self.iter().enumerate().map(|(i, item)| item.map_tensors(&path.child(i), map)).collect()
    }
    fn tangent(
        &self,
        path: &KeyPath,
        make: &mut dyn FnMut(&KeyPath, &Tensor) -> Tensor,
    ) -> Self::TangentVector {
        self.iter().enumerate().map(|(i, item)| item.tangent(&path.child(i), make)).collect()
    }
}

impl<T: Differentiable, const N: usize> Differentiable for [T; N] {
    type TangentVector = [T::TangentVector; N];
    fn visit_tensors(&self, path: &KeyPath, visit: &mut dyn FnMut(&KeyPath, &Tensor)) {
        self.iter().enumerate().for_each(|(i, item)| item.visit_tensors(&path.child(i), visit));
    }
    fn map_tensors(&self, path: &KeyPath, map: &mut dyn FnMut(&KeyPath, &Tensor) -> Tensor) -> Self {
        std::array::from_fn(|i| self[i].map_tensors(&path.child(i), map))
    }
    fn tangent(
        &self,
        path: &KeyPath,
        make: &mut dyn FnMut(&KeyPath, &Tensor) -> Tensor,
    ) -> Self::TangentVector {
        std::array::from_fn(|i| self[i].tangent(&path.child(i), make))
    }
}

/// What is there has the path of the option: an optional `bias` is `bias`, not `bias.0`.
impl<T: Differentiable> Differentiable for Option<T> {
    type TangentVector = Option<T::TangentVector>;
    fn visit_tensors(&self, path: &KeyPath, visit: &mut dyn FnMut(&KeyPath, &Tensor)) {
        self.iter().for_each(|item| item.visit_tensors(path, visit));
    }
    fn map_tensors(&self, path: &KeyPath, map: &mut dyn FnMut(&KeyPath, &Tensor) -> Tensor) -> Self {
        self.as_ref().map(|item| item.map_tensors(path, map))
    }
    fn tangent(
        &self,
        path: &KeyPath,
        make: &mut dyn FnMut(&KeyPath, &Tensor) -> Tensor,
    ) -> Self::TangentVector {
        self.as_ref().map(|item| item.tangent(path, make))
    }
}

impl<T: Differentiable> Differentiable for Box<T> {
    type TangentVector = Box<T::TangentVector>;
    fn visit_tensors(&self, path: &KeyPath, visit: &mut dyn FnMut(&KeyPath, &Tensor)) {
        (**self).visit_tensors(path, visit);
    }
    fn map_tensors(&self, path: &KeyPath, map: &mut dyn FnMut(&KeyPath, &Tensor) -> Tensor) -> Self {
        Box::new((**self).map_tensors(path, map))
    }
    fn tangent(
        &self,
        path: &KeyPath,
        make: &mut dyn FnMut(&KeyPath, &Tensor) -> Tensor,
    ) -> Self::TangentVector {
        Box::new((**self).tangent(path, make))
    }
}

macro_rules! tuple {
    ($($t:ident $i:tt),*) => {
        impl<$($t: Differentiable),*> Differentiable for ($($t,)*) {
            type TangentVector = ($($t::TangentVector,)*);
            #[allow(unused_variables)]
            fn visit_tensors(&self, path: &KeyPath, visit: &mut dyn FnMut(&KeyPath, &Tensor)) {
                $(self.$i.visit_tensors(&path.child($i), visit);)*
            }
            #[allow(unused_variables, clippy::unused_unit)]
            fn map_tensors(&self, path: &KeyPath, map: &mut dyn FnMut(&KeyPath, &Tensor) -> Tensor) -> Self {
                ($(self.$i.map_tensors(&path.child($i), map),)*)
            }
            #[allow(unused_variables, clippy::unused_unit)]
            fn tangent(
                &self,
                path: &KeyPath,
                make: &mut dyn FnMut(&KeyPath, &Tensor) -> Tensor,
            ) -> Self::TangentVector {
                ($(self.$i.tangent(&path.child($i), make),)*)
            }
        }
    };
}
tuple!();
tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
