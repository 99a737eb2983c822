//! Types that hold tensors: models, tuples and vectors of models, optimiser moments.
//!
//! The trait follows Swift's `Differentiable`. A type has a
//! [`TangentVector`](Differentiable::TangentVector), the type of its derivatives. A value can be
//! moved along a tangent vector. Every differentiable tensor of a value has a key path
//! (`layers.0.weight`), by which optimisers and files address it. `#[derive(Differentiable)]`
//! implements the trait for structs and enums whose fields are `Differentiable`;
//! `#[no_derivative]` excludes a field.
//!
//! **Vector spaces.** Most types are their own tangent vectors, so gradients have the type of the
//! model. Such a type is a [`VectorSpace`]: its values can be added and scaled, and every shape
//! has a zero.
//!
//! **Manifolds.** A type whose values cannot be added (rotations, points of a sphere) has a
//! tangent vector of another type, and defines `move_along`: `q.move_along(v)` is the exponential
//! map at `q`. A struct with such a field has a tangent struct, which the derive generates on
//! request: `#[differentiable(synthesize = ArmTangent)]`.
//!
//! **Components.** Derivatives are computed tensor by tensor.
//! [`tangent`](Differentiable::tangent) builds a tangent vector from one component for each
//! tensor of the value, and [`components`](Differentiable::components) is its inverse. A tangent
//! vector may have its own coordinates (three for a rotation stored as four numbers). They are
//! then those of an orthonormal basis, so tangents and cotangents are built by the same rule and
//! need no types of their own.
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
//! assert_eq!(layers.tensor("0.bias")?.ty().to_string(), "f32[3]");
//! # Ok::<(), wengert_core::Diagnostic>(())
//! ```
//!
//! A field that holds no tensors must be marked. Without the mark, compiling fails at the field:
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

mod containers;
mod no_derivative;
mod vector_space;

pub use no_derivative::NoDerivative;
pub use vector_space::{Itself, VectorSpace};

use crate::build::Scope;
use crate::build::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result, bail, ensure};
use crate::location::Location;
use std::fmt;

/// Path of a tensor in a model: field names and indices joined by dots.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct KeyPath(String);

impl KeyPath {
    /// A path of one name. The empty name gives the empty path.
    pub fn root(name: &str) -> Self {
        KeyPath(name.into())
    }

    /// The path of a child.
    #[must_use]
    pub fn child(&self, name: impl fmt::Display) -> Self {
        if self.0.is_empty() {
            KeyPath(name.to_string())
        } else {
            KeyPath(format!("{}.{name}", self.0))
        }
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

/// Receives each tensor of a value, with its key path.
pub type VisitTensor<'a> = &'a mut (dyn FnMut(&KeyPath, &Tensor) + 'a);

/// Makes a tensor from each tensor of a value and its key path.
pub type MakeTensor<'a> = &'a mut (dyn FnMut(&KeyPath, &Tensor) -> Tensor + 'a);

/// A value that holds tensors and can be differentiated with respect to them.
///
/// Laws: `visit_tensors`, `map_tensors`, `tangent` and `components` visit the tensors in the same
/// order. A tangent vector has as many tensors as its value, in that order. `components` of
/// `tangent` returns the original components, if `move_along` can produce them. Moving along the
/// zero tangent changes nothing.
#[diagnostic::on_unimplemented(
    message = "`{Self}` holds no tensors that could be differentiated",
    label = "not `Differentiable`",
    note = "derive it with `#[derive(Differentiable)]`, or mark the field that has this type with \
            `#[no_derivative]`"
)]
pub trait Differentiable: Sized {
    /// The type of derivatives with respect to a value of this type. The tangent of a tangent has
    /// the same type.
    type TangentVector: Differentiable<TangentVector = Self::TangentVector>;

    /// Visits every differentiable tensor with its key path, in a fixed order.
    fn visit_tensors(&self, path: &KeyPath, visit: VisitTensor<'_>);

    /// The same value with every differentiable tensor replaced, in the same order.
    fn map_tensors(&self, path: &KeyPath, map: MakeTensor<'_>) -> Self;

    /// The tangent vector made of one component for each tensor of `self`, in the same order.
    fn tangent(&self, path: &KeyPath, make: MakeTensor<'_>) -> Self::TangentVector;

    /// Splits a tangent vector into components: for each tensor of `self`, its direction when
    /// `self` moves along `tangent`. If the structures differ, the components are poisoned.
    ///
    /// A type overrides this if the coordinates of its tangent vectors are not those of its
    /// tensors.
    #[track_caller]
    fn components(&self, tangent: &Self::TangentVector, give: &mut dyn FnMut(&Tensor)) {
        tangent.visit_tensors(&KeyPath::default(), &mut |_, t| give(t));
    }

    /// Moves `self` along `direction`: each tensor is added to its component. A manifold
    /// overrides this. Integers do not change. If the structures differ, the result is poisoned.
    #[track_caller]
    fn move_along(&self, direction: &Self::TangentVector) -> Self {
        let (tensors, mut components) = (self.tensors(), Vec::new());
        self.components(direction, &mut |t| components.push(t.clone()));
        if tensors.len() != components.len() {
            let what =
                format!("it has {} tensors, the value has {}", components.len(), tensors.len());
            return mismatch(self, direction, &what);
        }
        // No closure, so that the equations have the caller's line as location.
        let mut moved = Vec::with_capacity(tensors.len());
        for ((_, tensor), component) in tensors.iter().zip(&components) {
            moved.push(move_tensor(tensor, component));
        }
        rebuild(self, moved)
    }

    /// The zero tangent. It depends on the shapes only.
    #[track_caller]
    fn zero_tangent(&self) -> Self::TangentVector {
        let caller = Location::caller();
        self.tangent(&KeyPath::default(), &mut |_, t| caller.attribute(|| t.zeros_like()))
    }

    /// All differentiable tensors by key path.
    fn tensors(&self) -> Vec<(KeyPath, Tensor)> {
        let mut all = Vec::new();
        self.visit_tensors(&KeyPath::default(), &mut |path, t| all.push((path.clone(), t.clone())));
        all
    }

    /// The differentiable tensor at a key path.
    ///
    /// Error: the path does not exist. The message lists the paths that do.
    #[track_caller]
    fn tensor(&self, path: &str) -> Result<Tensor> {
        let caller = Location::caller();
        let mut found = None;
        self.visit_tensors(&KeyPath::default(), &mut |at, t| {
            if at.as_str() == path {
                found.get_or_insert_with(|| t.clone());
            }
        });
        found.ok_or_else(|| no_such_path(self, path).at(caller, "asked for here"))
    }

    /// The same value with the tensors at some key paths replaced.
    ///
    /// Errors: a path does not exist or is given twice; a new tensor is poisoned or has another
    /// type.
    #[track_caller]
    fn with_tensors<'a>(
        &self,
        replacements: impl IntoIterator<Item = (&'a str, Tensor)>,
    ) -> Result<Self> {
        let mut replacements: Vec<(&str, Option<Tensor>)> =
            replacements.into_iter().map(|(path, tensor)| (path, Some(tensor))).collect();
        for (i, (path, tensor)) in replacements.iter().enumerate() {
            let (old, new) = (self.tensor(path)?, tensor.as_ref().expect("none is taken yet"));
            if let Some(error) = new.error() {
                return Err(error.clone());
            }
            ensure!(
                old.ty() == new.ty(),
                "`{path}` has type {}, the tensor to replace it has type {}", old.ty(), new.ty();
                help "a replacement keeps dtype and shape"
            );
            if replacements[..i].iter().any(|(earlier, _)| earlier == path) {
                bail!("`{path}` is replaced twice");
            }
        }
        Ok(self.map_tensors(&KeyPath::default(), &mut |at, t| {
            let replacement = replacements.iter_mut().find(|(path, _)| *path == at.as_str());
            replacement.and_then(|(_, tensor)| tensor.take()).unwrap_or_else(|| t.clone())
        }))
    }
}

fn no_such_path(value: &impl Differentiable, path: &str) -> Diagnostic {
    let mut paths: Vec<String> =
        value.tensors().iter().map(|(path, _)| format!("`{path}`")).collect();
    let hidden = paths.len().saturating_sub(12);
    paths.truncate(12);
    let paths = match (paths.is_empty(), hidden) {
        (true, _) => "it has none".into(),
        (false, 0) => format!("it has {}", paths.join(", ")),
        (false, hidden) => format!("it has {} and {hidden} more", paths.join(", ")),
    };
    Diagnostic::new(format!("there is no differentiable tensor `{path}`")).help(paths)
}

/// The same value with its tensors replaced by `tensors`, one for each.
pub(crate) fn rebuild<T: Differentiable>(value: &T, tensors: Vec<Tensor>) -> T {
    let mut tensors = tensors.into_iter();
    value.map_tensors(&KeyPath::default(), &mut |_, _| {
        tensors.next().expect("a value has as many tensors each time it is visited")
    })
}

/// `t + step` for tensors of one type. Integers have no tangents, so they do not change.
#[track_caller]
fn move_tensor(t: &Tensor, step: &Tensor) -> Tensor {
    match same_type(t, step) {
        Some(poison) => poison,
        None if !t.dtype().is_float() => t.clone(),
        None => t + step,
    }
}

/// Poison, if a tensor and its tangent differ in type. Without this check a sum would broadcast
/// them.
#[track_caller]
fn same_type(t: &Tensor, tangent: &Tensor) -> Option<Tensor> {
    if t.error().is_some() || tangent.error().is_some() || t.ty() == tangent.ty() {
        return [t, tangent].into_iter().find(|t| t.error().is_some()).cloned();
    }
    let message = format!("a tensor of type {} has a tangent of type {}", t.ty(), tangent.ty());
    let places = t.defined_at().into_iter().chain(tangent.defined_at());
    let error = Diagnostic::new(message).at(Location::caller(), "met here");
    let error = places.fold(error, |error, at| error.at(at, "made here"));
    Some(refuse(&[t, tangent], error.help("a tangent has the dtype and shape of its value")))
}

/// A poisoned tensor. The error is also recorded in the scope of the tensors, or in the current
/// scope.
fn refuse(tensors: &[&Tensor], error: Diagnostic) -> Tensor {
    if let Some(scope) = tensors.iter().find_map(|t| t.scope()).cloned().or_else(Scope::current) {
        scope.fail(&error);
    }
    Tensor::poisoned(error)
}

fn misfit(
    value: &impl Differentiable,
    tangent: &impl Differentiable,
    what: &str,
    at: Location,
) -> Tensor {
    let error = Diagnostic::new(format!("a tangent vector does not fit its value: {what}"))
        .at(at, "")
        .help("a tangent has the structure of its value: the same variants, and as many items");
    let tensors: Vec<Tensor> =
        [value.tensors(), tangent.tensors()].concat().into_iter().map(|(_, t)| t).collect();
    refuse(&tensors.iter().collect::<Vec<_>>(), error)
}

/// Result of moving a value along a tangent of another structure: its tensors are poisoned.
#[doc(hidden)]
#[track_caller]
pub fn mismatch<T: Differentiable>(value: &T, tangent: &T::TangentVector, what: &str) -> T {
    let poison = misfit(value, tangent, what, Location::caller());
    value.map_tensors(&KeyPath::default(), &mut |_, _| poison.clone())
}

/// The components of a tangent whose structure is not that of its value: all poisoned.
#[doc(hidden)]
#[track_caller]
pub fn mismatched_components<T: Differentiable>(
    value: &T,
    tangent: &T::TangentVector,
    what: &str,
    give: &mut dyn FnMut(&Tensor),
) {
    let poison = misfit(value, tangent, what, Location::caller());
    value.visit_tensors(&KeyPath::default(), &mut |_, _| give(&poison));
}

impl Differentiable for Tensor {
    type TangentVector = Tensor;
    fn visit_tensors(&self, path: &KeyPath, visit: VisitTensor<'_>) {
        visit(path, self);
    }
    fn map_tensors(&self, path: &KeyPath, map: MakeTensor<'_>) -> Self {
        map(path, self)
    }
    fn tangent(&self, path: &KeyPath, make: MakeTensor<'_>) -> Tensor {
        make(path, self)
    }
    #[track_caller]
    fn move_along(&self, direction: &Tensor) -> Tensor {
        move_tensor(self, direction)
    }
}
