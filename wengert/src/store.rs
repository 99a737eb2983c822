//! The session's variables: bytes at fixed addresses, updated in place.
//!
//! A training step replaces every parameter and moment. As literals, each step would allocate new
//! ones. Instead a plan overwrites the old bytes where its planner has proved that it may (state
//! is donated), and copies elsewhere. Literals are made only when a variable is read or a file is
//! written.
//!
//! Variables are in the memory of the session's device, which an [`Allocator`] gives: in GPU
//! memory for plans on a GPU, else in host memory.

use crate::available_memory;
use crate::data::Arrays;
use crate::data::bytes::little_endian;
use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;
use wengert_core::{DType, Literal, Result, TensorType, diagnostic};
use wengert_cpu::AlignedBytes;

/// Variables by key path.
#[derive(Debug)]
pub struct Store {
    variables: BTreeMap<String, Stored>,
    allocator: Box<dyn Allocator>,
    /// Number of changes of the users' variables.
    version: u64,
    /// Number of functions with invariants.
    functions: u64,
}

/// How the names of invariants begin. They are a compiled function's own: users see neither their
/// names nor their values.
const INVARIANT: &str = "__invariant_";

/// A device's memory for variables.
pub trait Allocator: Debug + Send {
    /// Allocates zeroed memory of these sizes in bytes.
    ///
    /// Error: there is not enough.
    fn zeros(&self, sizes: &[usize]) -> Result<Vec<Box<dyn VariableMemory>>>;
}

/// The memory of a variable's elements.
pub trait VariableMemory: Any + Debug + Send {
    /// The bytes, after all runs that change them.
    ///
    /// Error: the device has failed.
    fn read(&self) -> Result<Cow<'_, [u8]>>;

    /// Replaces the bytes by as many others.
    ///
    /// Error: the device has failed.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;
}

/// The host's memory.
#[derive(Debug)]
struct HostMemory;

impl Allocator for HostMemory {
    fn zeros(&self, sizes: &[usize]) -> Result<Vec<Box<dyn VariableMemory>>> {
        let all = sizes.iter().map(|bytes| *bytes as u64).fold(0, u64::saturating_add);
        available_memory::check(all, || "the session's variables".into())?;
        let zeros = |bytes: &usize| -> Result<Box<dyn VariableMemory>> {
            Ok(Box::new(AlignedBytes::new(*bytes)?))
        };
        sizes.iter().map(zeros).collect()
    }
}

impl VariableMemory for AlignedBytes {
    fn read(&self) -> Result<Cow<'_, [u8]>> {
        Ok(Cow::Borrowed(self))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.copy_from_slice(bytes);
        Ok(())
    }
}

/// A variable: its type, and its elements little endian in row-major order.
#[derive(Debug)]
pub struct Stored {
    ty: TensorType,
    memory: Box<dyn VariableMemory>,
}

/// Why the memory of a variable has the type that a device expects.
const OF_THE_DEVICE: &str = "the variables of a session are in the memory of its device";

impl Stored {
    /// Its type.
    pub fn ty(&self) -> &TensorType {
        &self.ty
    }

    /// The memory of its elements, for the device that has allocated it.
    pub fn memory<M: VariableMemory>(&self) -> &M {
        let memory: &dyn Any = &*self.memory;
        memory.downcast_ref().expect(OF_THE_DEVICE)
    }

    /// [`memory`](Self::memory), mutable.
    pub fn memory_mut<M: VariableMemory>(&mut self) -> &mut M {
        let memory: &mut dyn Any = &mut *self.memory;
        memory.downcast_mut().expect(OF_THE_DEVICE)
    }

    /// The bytes of its elements.
    ///
    /// Error: the device that holds them has failed.
    pub fn read(&self) -> Result<Cow<'_, [u8]>> {
        self.memory.read()
    }

    /// A copy as a literal.
    ///
    /// Errors: the device that holds it has failed.
    pub fn to_literal(&self) -> Result<Literal> {
        let shape = self.ty.extents().expect("the types of variables have no dimension variables");
        Ok(Literal::from_bytes(self.ty.dtype, &shape, &self.read()?)
            .expect("runs write as many elements as the type has, and bools that are 0 or 1"))
    }
}

impl Default for Store {
    /// An empty store in the host's memory.
    fn default() -> Store {
        Store::new(Box::new(HostMemory))
    }
}

impl Store {
    /// An empty store, whose variables will be in memory of this allocator.
    pub fn new(allocator: Box<dyn Allocator>) -> Store {
        Store { variables: BTreeMap::new(), allocator, version: 0, functions: 0 }
    }

    /// The variable of a key path.
    pub fn get(&self, path: &str) -> Option<&Stored> {
        self.variables.get(path)
    }

    /// Key paths of the users' variables, sorted.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.variables.keys().map(String::as_str).filter(|path| !path.starts_with(INVARIANT))
    }

    /// Checks that a user's variable does not have the name of an invariant.
    ///
    /// Errors: it has.
    pub fn check_name(path: &str) -> Result<()> {
        if path.starts_with(INVARIANT) {
            return Err(diagnostic!("`{path}`: names that begin with `{INVARIANT}` are reserved")
                .help("give the variable another name"));
        }
        Ok(())
    }

    /// Names for the invariants of a function, by their number; other functions have others.
    pub fn invariant_names(&mut self) -> impl Fn(usize) -> String + use<> {
        let function = self.functions;
        self.functions += 1;
        move |number| format!("{INVARIANT}{function}.{number}")
    }

    /// Changes whenever a variable may have: values that were computed from the variables of
    /// another version are out of date.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Notes that a run has replaced variables.
    pub fn changed(&mut self) {
        self.version += 1;
    }

    /// Every variable, sorted by key path, mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Stored)> {
        self.variables.iter_mut().map(|(path, stored)| (path.as_str(), stored))
    }

    /// Creates or replaces a variable. One of the same type keeps its address.
    ///
    /// Errors: there is not enough memory.
    pub fn set(&mut self, path: &str, value: &Literal) -> Result<()> {
        if !path.starts_with(INVARIANT) {
            self.changed();
        }
        self.make(&[(path, value.dtype(), value.shape())])?;
        let stored = self.variables.get_mut(path).expect("it was just made");
        stored.memory.write(&little_endian(value))
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
                let too_large = || diagnostic!("variable `{path}`: {ty} is larger than any memory");
                let bytes = ty.bytes().ok_or_else(too_large)?;
                new.push((*path, ty, bytes));
            }
        }
        let sizes: Vec<usize> = new.iter().map(|(_, _, bytes)| *bytes).collect();
        let memories = self.allocator.zeros(&sizes)?;
        for ((path, ty, _), memory) in new.into_iter().zip(memories) {
            self.variables.insert(path.into(), Stored { ty, memory });
        }
        Ok(())
    }

    /// Removes a variable, if it exists.
    pub fn remove(&mut self, path: &str) {
        self.changed();
        self.variables.remove(path);
    }

    /// Removes every variable of the users.
    pub fn clear(&mut self) {
        self.changed();
        self.variables.retain(|path, _| path.starts_with(INVARIANT));
    }

    /// Copies of all variables.
    ///
    /// Errors: the device that holds them has failed.
    pub fn to_arrays(&self) -> Result<Arrays> {
        self.variables
            .iter()
            .filter(|(path, _)| !path.starts_with(INVARIANT))
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
        let address = store.get("w").unwrap().read().unwrap().as_ptr();
        store.make(&[("w", DType::F32, &[3])]).unwrap();
        assert_eq!(store.get("w").unwrap().to_literal().unwrap(), literal);
        store.set("w", &Literal::zeros(DType::F32, &[3])).unwrap();
        assert_eq!(store.get("w").unwrap().read().unwrap().as_ptr(), address);
        store.make(&[("w", DType::Bool, &[2])]).unwrap();
        assert_eq!(
            store.to_arrays().unwrap(),
            [("w".to_owned(), Literal::zeros(DType::Bool, &[2]))].into()
        );
        assert!(store.make(&[("x", DType::F64, &[1 << 60])]).is_err());
        assert_eq!(store.paths().collect::<Vec<_>>(), ["w"]);
    }
}
