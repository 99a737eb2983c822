//! The files of the example `digits`, without its command line.

use python_free_examples::digits::{self, digits, program, recipe};
use std::path::Path;
use wengert::prelude::*;
use wengert::train::{Event, Options, train};

/// Writes `digits.graph`, `digits.safetensors`, `digits.npz` and `x.npy`.
pub fn write(folder: &Path) -> Result<()> {
    let (program, recipe, data) = (program()?, recipe(), digits()?);
    let mut session = Session::open(Device::Cpu)?;
    let mut observe = |_: Event<'_>| {};
    train(&mut session, &program, &recipe, &data, Options::default(), &mut observe).unwrap();
    digits::write(folder, &session, program, recipe, &data)
}
