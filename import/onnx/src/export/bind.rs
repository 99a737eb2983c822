//! Numbers for some of a function's dimension variables.

use std::borrow::Cow;
use wengert_core::graph::{Body, Function, Region, verify};
use wengert_core::{Binding, Result};

/// The function with these variables bound. Others may stay open.
pub(super) fn function<'a>(function: &'a Function, binding: &Binding) -> Result<Cow<'a, Function>> {
    if binding.is_empty() {
        return Ok(Cow::Borrowed(function));
    }
    let mut bound = function.clone();
    bound.body = body(&function.body, binding)?;
    verify(&bound)?;
    Ok(Cow::Owned(bound))
}

fn body(body: &Body, binding: &Binding) -> Result<Body> {
    let mut bound = body.clone();
    for (_, ty) in bound.values.iter_mut() {
        for dim in &mut ty.shape {
            *dim = dim.bind(binding)?;
        }
    }
    for equation in &mut bound.equations {
        equation.op.map_dims(&mut |dim| dim.bind(binding))?;
        for region in &mut equation.regions {
            *region = Region::from(self::body(region, binding)?);
        }
    }
    Ok(bound)
}
