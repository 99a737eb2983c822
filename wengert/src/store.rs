//! The session's variables: bytes at fixed, aligned addresses, which runs change in place.
//!
//! A training step replaces every parameter and moment. Were they literals, each step would make new ones; here a plan
//! writes over the old bytes where its planner has proved that it may (state is donated), and copies where it may not. Literals are
//! made only where a user looks at a variable or a file is written.

use crate::data::Arrays;
use crate::data::bytes::little_endian;
use std::collections::BTreeMap;
use wengert_core::{DType, Diagnostic, Literal, Result, TensorType};
use wengert_cpu::AlignedBytes;

/// Variables by key path.
#[derive(Debug, Default)]
pub struct Store(BTreeMap<String, Stored>);

/// A variable: its type, and its elements little endian in row-major order.
#[derive(Debug)]
pub struct Stored {
    ty: TensorType,
    bytes: AlignedBytes,
}

impl Stored {
    /// Zeros of a type without dimension variables.
    ///
    /// Error: there is not so much memory.
    pub fn zeros(dtype: DType, shape: &[usize]) -> Result<Stored> {
        let ty = TensorType::new(dtype, shape.iter().copied());
        let bytes = ty.bytes().ok_or_else(|| Diagnostic::new(format!("{ty} is larger than any memory")))?;
        Ok(Stored { ty, bytes: AlignedBytes::new(bytes)? })
    }

    /// A copy of a literal.
    pub fn new(literal: &Literal) -> Result<Stored> {
        let mut stored = Stored::zeros(literal.dtype(), literal.shape())?;
        stored.bytes.copy_from_slice(&little_endian(literal));
        Ok(stored)
    }

    /// Its type.
    pub fn ty(&self) -> &TensorType {
        &self.ty
    }

    /// Its elements.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its elements, to change.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// A copy of it.
    pub fn to_literal(&self) -> Literal {
        let shape = self.ty.extents().expect("the types of variables have no dimension variables");
        Literal::from_bytes(self.ty.dtype, &shape, &self.bytes)
            .expect("runs write as many elements as the type has, and bools that are 0 or 1")
    }
}

impl Store {
    /// The variable of a key path.
    pub fn get(&self, path: &str) -> Option<&Stored> {
        self.0.get(path)
    }

    /// Key paths, sorted.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Every variable, sorted by key path, to change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Stored)> {
        self.0.iter_mut().map(|(path, stored)| (path.as_str(), stored))
    }

    /// Creates or replaces a variable. One of the same type keeps its address.
    pub fn set(&mut self, path: &str, value: &Literal) -> Result<()> {
        match self.0.get_mut(path) {
            Some(stored) if stored.ty == value.ty() => stored.bytes.copy_from_slice(&little_endian(value)),
            _ => drop(self.0.insert(path.into(), Stored::new(value)?)),
        }
        Ok(())
    }

    /// Makes sure that there is a variable of this type; one that is made holds zeros.
    pub fn make(&mut self, path: &str, dtype: DType, shape: &[usize]) -> Result<()> {
        let wanted = TensorType::new(dtype, shape.iter().copied());
        if self.0.get(path).is_none_or(|stored| stored.ty != wanted) {
            self.0.insert(path.into(), Stored::zeros(dtype, shape)?);
        }
        Ok(())
    }

    /// Removes every variable.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Copies of all.
    pub fn to_arrays(&self) -> Arrays {
        self.0.iter().map(|(path, stored)| (path.clone(), stored.to_literal())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_keep_bits_and_addresses() {
        let mut store = Store::default();
        let literal = Literal::from_vec(&[3], vec![1.0f32, -0.0, f32::NAN]).unwrap();
        store.set("w", &literal).unwrap();
        let address = store.get("w").unwrap().bytes().as_ptr();
        store.make("w", DType::F32, &[3]).unwrap();
        assert_eq!(store.get("w").unwrap().to_literal(), literal);
        store.set("w", &Literal::zeros(DType::F32, &[3])).unwrap();
        assert_eq!(store.get("w").unwrap().bytes().as_ptr(), address);
        store.make("w", DType::Bool, &[2]).unwrap();
        assert_eq!(store.to_arrays(), [("w".to_owned(), Literal::zeros(DType::Bool, &[2]))].into());
        assert!(store.make("x", DType::F64, &[1 << 60]).is_err());
        assert_eq!(store.paths().collect::<Vec<_>>(), ["w"]);
    }
}
