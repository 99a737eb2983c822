//! Symbolic tensors: the values that a user of the builder computes with.
//!
//! A [`Tensor`] has one of four states. *Traced*: a value of a function being built. *Literal*: a
//! constant that belongs to no function yet, so that `2.0 * &x` needs no context. *Variable*: the
//! type and the initializer of a model's parameter, which
//! [`FunctionBuilder::param`](super::FunctionBuilder::param) or `state` turns into an
//! input. *Poisoned*: the first error; every operation on it yields it again.
//!
//! **Queries on a poisoned tensor.** Each has an answer, so that the user's code continues until
//! the function reports the error. Its type is f32 with [`MAX_RANK`] axes, the most that a tensor
//! can have, so every axis of the intended tensor exists. Each dimension is
//! [poisoned](Dim::poisoned) by the same error. If the user's code panics nevertheless, the
//! function still reports the error ([`Scope::guarded`]).
//!
//! Operations are methods and overloaded operators (see [`super::operators`]). All are
//! `#[track_caller]`, so each equation records the user's source line.

use super::Scope;
use super::axes::Axis;
use super::function::IntoType;
use crate::diagnostic::{Diagnostic, Result};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::graph::verify::types::MAX_RANK;
use crate::graph::{Region, ValueId};
use crate::literal::Literal;
use crate::location::Location;
use crate::op::Op;
use crate::ty::TensorType;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

/// A symbolic tensor. Cloning copies a pointer.
#[derive(Clone)]
pub struct Tensor(Repr);

#[derive(Clone)]
enum Repr {
    Traced { scope: Scope, value: ValueId, ty: Rc<TensorType> },
    Literal(Rc<(Literal, TensorType)>),
    Variable(Rc<Variable>),
    Poisoned(Rc<Poison>),
}

/// An error, and the placeholder type of the poisoned tensor.
struct Poison {
    error: Arc<Diagnostic>,
    ty: TensorType,
}

/// A parameter before it is part of a function.
#[derive(Clone, PartialEq, Debug)]
pub struct Variable {
    /// Dtype and shape.
    pub ty: TensorType,
    /// Rule for its initial value.
    pub initializer: Initializer,
    /// Source location of its construction.
    pub location: Location,
}

/// Rule for the initial value of a variable.
#[derive(Clone, PartialEq, Debug)]
pub enum Initializer {
    /// Zeros.
    Zeros,
    /// Ones.
    Ones,
    /// Given values, of the variable's type.
    Constant(Literal),
    /// Uniform in `low..high`.
    Uniform {
        /// Least value.
        low: f64,
        /// Exclusive upper bound.
        high: f64,
    },
    /// Normally distributed.
    Normal {
        /// Mean.
        mean: f64,
        /// Standard deviation.
        std: f64,
    },
}

impl Tensor {
    pub(super) fn traced(scope: Scope, value: ValueId, ty: TensorType) -> Self {
        Tensor(Repr::Traced { scope, value, ty: Rc::new(ty) })
    }

    /// A poisoned tensor.
    pub fn poisoned(error: Diagnostic) -> Self {
        let error = Arc::new(error);
        let ty = TensorType::of(DType::F32, vec![Dim::poisoned(error.clone()); MAX_RANK]);
        Tensor(Repr::Poisoned(Rc::new(Poison { error, ty })))
    }

    /// A constant.
    pub fn constant(value: impl Into<Literal>) -> Self {
        let literal = value.into();
        let ty = literal.ty();
        Tensor(Repr::Literal(Rc::new((literal, ty))))
    }

    /// A parameter of a model, to be passed to `param` or `state` of a function builder. Poisoned,
    /// if the description of the type is wrong, or a dimension of it is poisoned.
    #[track_caller]
    pub fn variable(ty: impl IntoType, initializer: Initializer) -> Self {
        let location = Location::caller();
        match ty.into_type() {
            Ok(ty) => match ty.error() {
                Some(error) => Tensor::poisoned(error.clone()),
                None => Tensor(Repr::Variable(Rc::new(Variable { ty, initializer, location }))),
            },
            Err(error) => Tensor::poisoned(error.at(location, "declared here")),
        }
    }

    /// Dtype and shape; if poisoned, f32 with [`MAX_RANK`] axes of poisoned dimensions.
    pub fn ty(&self) -> &TensorType {
        match &self.0 {
            Repr::Traced { ty, .. } => ty,
            Repr::Literal(literal) => &literal.1,
            Repr::Variable(variable) => &variable.ty,
            Repr::Poisoned(poison) => &poison.ty,
        }
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.ty().dtype
    }

    /// Shape. [`dim`](Self::dim) returns one dimension and checks the axis.
    pub fn shape(&self) -> &[Dim] {
        &self.ty().shape
    }

    /// The dimension of an axis. If the axis does not exist, the error is recorded in the
    /// function and the dimension is poisoned.
    #[track_caller]
    pub fn dim(&self, axis: impl Axis) -> Dim {
        let of_error = |poison: Tensor| poison.shape()[0].clone();
        match self.op_axis("dim", axis) {
            Ok(axis) => match self.shape().get(axis) {
                Some(dim) => dim.clone(),
                None => of_error(self.no_axis("dim", axis)),
            },
            Err(poison) => of_error(poison),
        }
    }

    /// Number of axes; [`MAX_RANK`] if poisoned.
    pub fn rank(&self) -> usize {
        self.ty().rank()
    }

    /// The error, if poisoned.
    pub fn error(&self) -> Option<&Diagnostic> {
        match &self.0 {
            Repr::Poisoned(poison) => Some(&poison.error),
            _ => None,
        }
    }

    /// The elements, if it is a constant that belongs to no function yet.
    pub fn literal(&self) -> Option<&Literal> {
        match &self.0 {
            Repr::Literal(literal) => Some(&literal.0),
            _ => None,
        }
    }

    /// Its value, if it is a constant or was evaluated eagerly ([`super::eager`]).
    ///
    /// Errors: the tensor is symbolic; the error that poisons it.
    pub fn value(&self) -> Result<Literal> {
        if let Some(literal) = self.literal() {
            return Ok(literal.clone());
        }
        let (scope, value) = self.traced_value()?;
        match scope.known(value) {
            Some(array) => array.to_literal(),
            None => Err(Diagnostic::new(format!(
                "a tensor of type {} has no value while the graph is being built",
                self.ty()
            ))
            .at(self.defined_at().unwrap_or_default(), "it is made here")
            .help("compile and run the function, or begin with `Tracked::new` to compute at once")),
        }
    }

    /// Its only element as a number (bools are 0 and 1), for Rust's `if` and `while` on eager
    /// tensors.
    ///
    /// Errors: those of [`value`](Self::value); the number of elements is not 1.
    pub fn item(&self) -> Result<f64> {
        let literal = self.value()?;
        match literal.len() {
            1 => Ok(literal.get(0).to_f64()),
            n => Err(Diagnostic::new(format!(
                "a tensor of type {} has {n} elements, not one",
                self.ty()
            ))
            .at(self.defined_at().unwrap_or_default(), "it is made here")
            .help("reduce it, e.g. with `.sum()`")),
        }
    }

    /// Type and initializer, if it is a variable.
    pub fn initializer(&self) -> Option<&Variable> {
        match &self.0 {
            Repr::Variable(variable) => Some(variable),
            _ => None,
        }
    }

    /// The scope in which it is traced, if it is.
    pub fn scope(&self) -> Option<&Scope> {
        match &self.0 {
            Repr::Traced { scope, .. } => Some(scope),
            _ => None,
        }
    }

    /// Scope and value, if traced.
    pub fn traced_value(&self) -> Result<(&Scope, ValueId)> {
        match &self.0 {
            Repr::Traced { scope, value, .. } => Ok((scope, *value)),
            Repr::Poisoned(poison) => Err((*poison.error).clone()),
            Repr::Variable(variable) => Err(Diagnostic::new(format!(
                "a variable of type {} is used before it belongs to a function",
                variable.ty
            ))
            .at(variable.location.clone(), "the variable is made here")
            .help(
                "pass the model to `param` or `state` of the function first, and use what they \
                 return",
            )),
            Repr::Literal(_) => Err(Diagnostic::new("a constant has no value in a function")),
        }
    }

    /// True if both are the same traced value.
    pub fn is_same(&self, other: &Tensor) -> bool {
        match (&self.0, &other.0) {
            (Repr::Traced { scope: a, value: v, .. }, Repr::Traced { scope: b, value: w, .. }) => {
                v == w && a.is_within(b) && b.is_within(a)
            }
            _ => false,
        }
    }

    /// Source location of its definition, if known.
    pub fn defined_at(&self) -> Option<Location> {
        let location = match &self.0 {
            Repr::Traced { scope, value, .. } => scope.location_of(*value),
            Repr::Variable(variable) => variable.location.clone(),
            _ => Location::Unknown,
        };
        (location != Location::Unknown).then_some(location)
    }

    /// Applies an op that has one result.
    #[track_caller]
    pub fn apply(op: impl Into<Op>, operands: &[&Tensor]) -> Tensor {
        Tensor::apply_many(op, operands).swap_remove(0)
    }

    /// Applies an op. If it fails, the function's builder records the error and there is one
    /// poisoned result.
    #[track_caller]
    pub fn apply_many(op: impl Into<Op>, operands: &[&Tensor]) -> Vec<Tensor> {
        Tensor::apply_with(op, operands, vec![])
    }

    /// Applies an op that runs regions, as [`Tensor::apply_many`] does.
    #[track_caller]
    pub fn apply_with(
        op: impl Into<Op>,
        operands: &[&Tensor],
        regions: Vec<Region>,
    ) -> Vec<Tensor> {
        Tensor::apply_op(op.into(), operands, regions, Location::caller())
    }

    /// [`apply_with`](Self::apply_with), compiled once for all ops.
    fn apply_op(
        op: Op,
        operands: &[&Tensor],
        regions: Vec<Region>,
        caller: Location,
    ) -> Vec<Tensor> {
        if let Some((poisoned, error)) = operands.iter().find_map(|t| Some((t, t.error()?))) {
            // The error may belong to another function or to none.
            if let Some(scope) = Scope::current() {
                scope.fail(error);
            }
            return vec![(*poisoned).clone()];
        }
        let operands: Vec<Tensor> = operands.iter().map(|t| (*t).clone()).collect();
        Scope::emit(op, &operands, regions, caller).unwrap_or_else(|error| {
            let scope = operands.iter().find_map(Tensor::scope).cloned().or_else(Scope::current);
            if let Some(scope) = scope {
                scope.fail(&error);
            }
            vec![Tensor::poisoned(error)]
        })
    }
}

impl AsRef<Tensor> for Tensor {
    fn as_ref(&self) -> &Tensor {
        self
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Traced { value, ty, .. } => write!(f, "{value}: {ty}"),
            Repr::Literal(literal) => write!(f, "constant {}", literal.0),
            Repr::Variable(variable) => write!(f, "variable {}", variable.ty),
            Repr::Poisoned(poison) => write!(f, "poisoned: {}", poison.error),
        }
    }
}
