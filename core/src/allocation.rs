//! Fallible allocation: the interpreters and literals give an error where memory runs out.

use crate::diagnostic::{Diagnostic, Result};

/// An empty vector with a capacity of `count` elements.
///
/// Error, of kind device: out of memory.
pub(crate) fn reserved<T>(count: usize) -> Result<Vec<T>> {
    let mut vector = Vec::new();
    vector.try_reserve_exact(count).map_err(|_| {
        let bytes = (count as u128) * (size_of::<T>() as u128);
        Diagnostic::of_device(format!("there is no memory for {bytes} bytes"))
            .help("bind smaller dimensions")
    })?;
    Ok(vector)
}
