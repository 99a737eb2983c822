//! The session's variables: bytes at fixed addresses, updated in place.
//!
//! A training step replaces every parameter and moment. As literals, each step would allocate new
//! ones. Instead a plan overwrites the old bytes where its planner has proved that it may (state
//! is donated), and copies elsewhere. Literals are made only when a variable is read or a file is
//! written.
//!
//! Variables are in the memory of the session's device: in GPU memory for plans on a GPU, else in
//! host memory. On a GPU, variables created together, as by a program's `init`, share one
//! allocation.

#[cfg(feature = "cuda")]
mod cuda;

use crate::available_memory;
use crate::data::Arrays;
use crate::data::bytes::little_endian;
#[cfg(feature = "cuda")]
use cuda::OnDevice;
use std::collections::BTreeMap;
use wengert_core::{DType, Diagnostic, Literal, Result, TensorType};
use wengert_cpu::AlignedBytes;
#[cfg(feature = "cuda")]
use wengert_cuda::driver;

/// Variables by key path.
#[derive(Debug, Default)]
pub struct Store {
    variables: BTreeMap<String, Stored>,
    /// The GPU that holds them; `None` for the host.
    #[cfg(feature = "cuda")]
    device: Option<driver::Device>,
}

/// A variable: its type, and its elements little endian in row-major order.
#[derive(Debug)]
pub struct Stored {
    ty: TensorType,
    bytes: Bytes,
}

/// The memory of the elements.
#[derive(Debug)]
enum Bytes {
    Host(AlignedBytes),
    #[cfg(feature = "cuda")]
    Device(OnDevice),
}

impl Stored {
    /// Its type.
    pub fn ty(&self) -> &TensorType {
        &self.ty
    }

    /// Its elements, for devices that use the host's memory.
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Host(bytes) => bytes,
            #[cfg(feature = "cuda")]
            Bytes::Device(_) => {
                unreachable!("only plans of a GPU use the variables of a session on that GPU")
            }
        }
    }

    /// Its elements, mutable, for devices that use the host's memory.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.bytes {
            Bytes::Host(bytes) => bytes,
            #[cfg(feature = "cuda")]
            Bytes::Device(_) => {
                unreachable!("only plans of a GPU use the variables of a session on that GPU")
            }
        }
    }

    /// The address of its elements in the memory of the session's GPU.
    #[cfg(feature = "cuda")]
    pub fn address(&self) -> driver::Address {
        match &self.bytes {
            Bytes::Host(_) => unreachable!("a session on a GPU keeps its variables there"),
            Bytes::Device(bytes) => bytes.address(),
        }
    }

    /// A copy as a literal.
    ///
    /// Errors: the device that holds it has failed.
    pub fn to_literal(&self) -> Result<Literal> {
        let shape = self.ty.extents().expect("the types of variables have no dimension variables");
        let literal = |bytes: &[u8]| {
            Literal::from_bytes(self.ty.dtype, &shape, bytes)
                .expect("runs write as many elements as the type has, and bools that are 0 or 1")
        };
        match &self.bytes {
            Bytes::Host(bytes) => Ok(literal(bytes)),
            #[cfg(feature = "cuda")]
            Bytes::Device(bytes) => Ok(literal(&bytes.read()?)),
        }
    }

    fn write(&mut self, value: &Literal) -> Result<()> {
        match &mut self.bytes {
            Bytes::Host(bytes) => {
                bytes.copy_from_slice(&little_endian(value));
                Ok(())
            }
            #[cfg(feature = "cuda")]
            Bytes::Device(bytes) => bytes.write(&little_endian(value)),
        }
    }
}

impl Store {
    /// An empty store, whose variables will be on this GPU.
    #[cfg(feature = "cuda")]
    pub fn on(device: driver::Device) -> Store {
        Store { variables: BTreeMap::new(), device: Some(device) }
    }

    /// The variable of a key path.
    pub fn get(&self, path: &str) -> Option<&Stored> {
        self.variables.get(path)
    }

    /// Key paths, sorted.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.variables.keys().map(String::as_str)
    }

    /// Every variable, sorted by key path, mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Stored)> {
        self.variables.iter_mut().map(|(path, stored)| (path.as_str(), stored))
    }

    /// Creates or replaces a variable. One of the same type keeps its address.
    pub fn set(&mut self, path: &str, value: &Literal) -> Result<()> {
        let shape = value.shape().to_vec();
        self.make(&[(path, value.dtype(), &shape)])?;
        self.variables.get_mut(path).expect("it was just made").write(value)
    }

    /// Creates or replaces several variables; new ones are allocated together.
    pub fn set_all<'a>(
        &mut self,
        values: impl Iterator<Item = (&'a String, &'a Literal)>,
    ) -> Result<()> {
        let values: Vec<_> = values.collect();
        let wanted: Vec<_> =
            values.iter().map(|(path, v)| (path.as_str(), v.dtype(), v.shape())).collect();
        self.make(&wanted)?;
        values.into_iter().try_for_each(|(path, value)| self.set(path, value))
    }

    /// Ensures that variables of these types exist; new ones hold zeros.
    ///
    /// Errors: there is not enough memory.
    pub fn make(&mut self, wanted: &[(&str, DType, &[usize])]) -> Result<()> {
        let mut new = Vec::new();
        for (path, dtype, shape) in wanted {
            let ty = TensorType::new(*dtype, shape.iter().copied());
            if self.variables.get(*path).is_none_or(|stored| stored.ty != ty) {
                let too_large = || {
                    Diagnostic::new(format!("variable `{path}`: {ty} is larger than any memory"))
                };
                let bytes = ty.bytes().ok_or_else(too_large)?;
                new.push((*path, ty, bytes));
            }
        }
        let places = self.places(&new.iter().map(|(_, _, bytes)| *bytes).collect::<Vec<_>>())?;
        for ((path, ty, _), bytes) in new.into_iter().zip(places) {
            self.variables.insert(path.into(), Stored { ty, bytes });
        }
        Ok(())
    }

    /// Allocates zeroed buffers of these sizes in bytes.
    fn places(&self, sizes: &[usize]) -> Result<Vec<Bytes>> {
        #[cfg(feature = "cuda")]
        if let Some(device) = &self.device {
            let places = OnDevice::zeros(device, sizes)?;
            return Ok(places.into_iter().map(Bytes::Device).collect());
        }
        let all = sizes.iter().map(|bytes| *bytes as u64).fold(0, u64::saturating_add);
        available_memory::check(all, || "the session's variables".into())?;
        sizes.iter().map(|bytes| Ok(Bytes::Host(AlignedBytes::new(*bytes)?))).collect()
    }

    /// Removes a variable, if it exists.
    pub fn remove(&mut self, path: &str) {
        self.variables.remove(path);
    }

    /// Removes every variable.
    pub fn clear(&mut self) {
        self.variables.clear();
    }

    /// Copies of all variables.
    ///
    /// Errors: the device that holds them has failed.
    pub fn to_arrays(&self) -> Result<Arrays> {
        self.variables
            .iter()
            .map(|(path, stored)| Ok((path.clone(), stored.to_literal()?)))
            .collect()
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
        store.make(&[("w", DType::F32, &[3])]).unwrap();
        assert_eq!(store.get("w").unwrap().to_literal().unwrap(), literal);
        store.set("w", &Literal::zeros(DType::F32, &[3])).unwrap();
        assert_eq!(store.get("w").unwrap().bytes().as_ptr(), address);
        store.make(&[("w", DType::Bool, &[2])]).unwrap();
        assert_eq!(
            store.to_arrays().unwrap(),
            [("w".to_owned(), Literal::zeros(DType::Bool, &[2]))].into()
        );
        assert!(store.make(&[("x", DType::F64, &[1 << 60])]).is_err());
        assert_eq!(store.paths().collect::<Vec<_>>(), ["w"]);
    }
}
