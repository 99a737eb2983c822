//! What a name of a model stands for while it is imported.

use crate::narrow::Narrow;
use crate::refusal::{Class, refuse};
use std::cell::OnceCell;
use std::rc::Rc;
use wengert_core::{DType, Diagnostic, Dim, Literal, Result, Tensor};

/// A value.
#[derive(Clone, Debug)]
pub enum Value {
    /// A tensor. One that is known at import is a constant ([`Tensor::literal`]).
    Tensor(Tensor),
    /// A tensor that stands for one of a dtype that programs lack. It has the dtype's carrier.
    Narrow(Narrow, Tensor),
    /// An initializer, which becomes a parameter when an op takes it as a tensor.
    Initial(Rc<Initial>),
    /// Integers that may depend on dimension variables: what is computed from shapes.
    Dims(Dims),
    /// A sequence of known length.
    Sequence(Vec<Value>),
    /// An optional value that is absent. One that is there is itself.
    Absent,
}

/// An initializer.
#[derive(Debug)]
pub struct Initial {
    /// The name of the parameter.
    pub name: String,
    /// Its first value.
    pub literal: Literal,
    /// The parameter, from the first op on that takes it.
    pub(crate) parameter: OnceCell<Tensor>,
}

/// A scalar, or a list, of integers.
#[derive(Clone, PartialEq, Debug)]
pub struct Dims {
    /// The integers.
    pub values: Vec<Dim>,
    /// Whether it is a scalar, and has one integer.
    pub scalar: bool,
    /// The dtype of the tensor that it stands for.
    pub dtype: DType,
}

impl Dims {
    /// A list of i64.
    pub fn list(values: Vec<Dim>) -> Dims {
        Dims { values, scalar: false, dtype: DType::I64 }
    }

    /// The numbers, if none depends on a variable.
    pub fn numbers(&self) -> Option<Vec<i64>> {
        self.values.iter().map(Dim::as_constant).collect()
    }

    /// The extents of the tensor.
    pub fn shape(&self) -> Vec<usize> {
        if self.scalar { vec![] } else { vec![self.values.len()] }
    }

    /// As a tensor: a constant if there is no variable.
    pub fn tensor(&self) -> Tensor {
        if let Some(numbers) = self.numbers() {
            let list = Literal::from_vec(&self.shape(), numbers).expect("one number for each");
            return Tensor::constant(list.convert(self.dtype));
        }
        let all: Vec<Tensor> =
            self.values.iter().map(|dim| Tensor::dim_as_value(dim.clone(), self.dtype)).collect();
        if self.scalar { all[0].clone() } else { Tensor::stack(&all, 0) }
    }
}

impl Value {
    /// A tensor, of a dtype that programs have or lack.
    pub(crate) fn of(tensor: Tensor, narrow: Option<Narrow>) -> Value {
        match narrow {
            Some(narrow) => Value::Narrow(narrow, tensor),
            None => Value::Tensor(tensor),
        }
    }

    /// The integers of a value that is known at import and is a scalar or a list.
    ///
    /// # Errors
    /// It is not known, or no such value.
    pub fn dims(&self) -> Result<Dims> {
        if let Value::Dims(dims) = self {
            return Ok(dims.clone());
        }
        let literal = self.known()?;
        let dtype = literal.dtype();
        if literal.shape().len() > 1 || !(dtype.is_integer() || dtype == DType::Bool) {
            return Err(refuse(Class::Operand, format!("{} is no list of integers", literal.ty())));
        }
        let literal = literal.convert(DType::I64);
        let values = literal.scalars().filter_map(|s| s.to_i64()).map(Dim::constant).collect();
        Ok(Dims { values, scalar: literal.shape().is_empty(), dtype })
    }

    /// The numbers of a value that is known at import.
    ///
    /// # Errors
    /// It is not known, or depends on a dimension variable.
    pub fn known(&self) -> Result<Literal> {
        match self {
            Value::Initial(initial) => Ok(initial.literal.clone()),
            Value::Tensor(tensor) | Value::Narrow(_, tensor) => {
                tensor.literal().cloned().ok_or_else(|| {
                    refuse(
                        Class::Operand,
                        format!("an operand of type {} is not known at import", tensor.ty()),
                    )
                })
            }
            Value::Dims(dims) => dims.tensor().literal().cloned().ok_or_else(|| {
                let names: Vec<String> = dims.values.iter().map(ToString::to_string).collect();
                refuse(Class::Operand, format!("an operand depends on extents: {names:?}"))
            }),
            Value::Sequence(_) => Err(refuse(Class::Container, "an operand is a sequence")),
            Value::Absent => Err(absent()),
        }
    }

    /// Whether its numbers are known at import, and it is no parameter.
    pub fn is_constant(&self) -> bool {
        match self {
            Value::Tensor(tensor) | Value::Narrow(_, tensor) => tensor.literal().is_some(),
            Value::Dims(dims) => dims.numbers().is_some(),
            Value::Initial(_) => false,
            Value::Sequence(values) => values.iter().all(Value::is_constant),
            Value::Absent => true,
        }
    }
}

/// An absent value in the place of a tensor.
pub(crate) fn absent() -> Diagnostic {
    refuse(Class::Container, "an optional value that is absent, in place of a tensor")
}
