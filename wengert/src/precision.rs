//! Mixed precision: policies, and weights for programs under a policy.

use crate::data::Arrays;
use crate::signature::is_variable;
use std::borrow::Cow;
use std::collections::BTreeMap;
use wengert_core::graph::{OutputRole, Program};
use wengert_core::{DType, Literal, Result, diagnostic};

pub use wengert_compiler::precision::*;

/// Weights for a program that is under a policy: those of parameters that it stores in bf16 or f16
/// are rounded from f32 to the nearest number. All others are as they were.
///
/// [`train`](crate::train::train()) and [`evaluate`](crate::train::evaluate()) do so by the policy
/// of the recipe, and so do the commands with `--param-dtype`.
///
/// ```
/// use wengert::prelude::*;
/// # use wengert::{data::Arrays, precision::cast_to_param};
/// # fn main() -> Result<()> {
/// # let mut program = Program::new();
/// # program.function("predict", |f| {
/// #     let (x, layer) = (f.input("x", f32("B,4")), f.param("layer", nn::Linear::new(4, 2)));
/// #     f.output("y", layer.call(&x));
/// # })?;
/// # let weights: Arrays = [("layer.bias".to_owned(), Literal::from_vec(&[2], vec![1.0f32, 2.0])?)]
/// #     .into_iter()
/// #     .collect();
/// let policy = Precision::bf16().param_dtype(DType::BF16)?;
/// program.precision(&policy)?;
/// let weights = cast_to_param(&policy, &program, &weights)?;
/// assert_eq!(weights["layer.bias"].dtype(), DType::BF16);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// A finite number of f32 is beyond the largest number of the dtype.
pub fn cast_to_param<'a>(
    policy: &Precision,
    program: &Program,
    weights: &'a Arrays,
) -> Result<Cow<'a, Arrays>> {
    let dtype = policy.dtypes().param_dtype;
    if dtype == DType::F32 {
        return Ok(Cow::Borrowed(weights));
    }
    let types = dtypes(program);
    let mut cast = weights.clone();
    for (name, value) in &mut cast {
        if value.dtype() != DType::F32 || types.get(name.as_str()) != Some(&dtype) {
            continue;
        }
        let rounded = value.convert(dtype);
        if infinities(&rounded) > infinities(value) {
            return Err(diagnostic!(
                "a weight of `{name}` is beyond the largest number of {dtype}"
            )
            .help("store it in f32: `keep_param`, or `--keep-f32-param`"));
        }
        *value = rounded;
    }
    Ok(Cow::Owned(cast))
}

fn infinities(literal: &Literal) -> usize {
    literal.scalars().filter(|scalar| scalar.to_f64().is_infinite()).count()
}

/// The dtypes of the variables of a program.
fn dtypes(program: &Program) -> BTreeMap<&str, DType> {
    let mut found = BTreeMap::new();
    for function in program.functions() {
        for (n, input) in function.inputs.iter().enumerate() {
            if is_variable(input.role) {
                found.insert(input.name.as_str(), function.input_type(n).dtype);
            }
        }
        for (n, output) in function.outputs.iter().enumerate() {
            if output.role == OutputRole::State {
                found.insert(output.name.as_str(), function.output_type(n).dtype);
            }
        }
    }
    found
}
