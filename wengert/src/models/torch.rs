//! Conversion of weights from PyTorch's layout to the layout of the layers here.

use crate::data::Arrays;
use wengert_core::{Diagnostic, Differentiable, Literal, Result, diagnostic, with_native};

/// PyTorch's layout of a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Layout {
    /// The same as here.
    Same,
    /// A matrix `[outputs, inputs]`.
    Matrix,
    /// Filters `[outputs, inputs, height, width]`.
    Filters,
}

/// The variables of a model from a PyTorch file with the same names. `layout` returns the layout
/// of a tensor of this path and rank. Tensors of the file that the model does not have are
/// ignored.
///
/// Errors: a tensor that is missing, or has another type than the model's.
pub(super) fn from_torch<M: Differentiable>(
    model: &M,
    arrays: &Arrays,
    layout: impl Fn(&str, usize) -> Layout,
) -> Result<Arrays> {
    let mut variables = Arrays::new();
    for (path, tensor) in model.tensors() {
        let path = path.to_string();
        let Some(array) = arrays.get(&path) else {
            return Err(diagnostic!("there are no weights for `{path}` ({})", tensor.ty()));
        };
        let axes: &[usize] = match layout(&path, array.shape().len()) {
            Layout::Same => &[],
            Layout::Matrix => &[1, 0],
            Layout::Filters => &[2, 3, 1, 0],
        };
        let array = if axes.is_empty() { array.clone() } else { permuted(array, axes) };
        if array.ty() != *tensor.ty() {
            let message =
                format!("`{path}` is {} in the model, the weights are {}", tensor.ty(), array.ty());
            return Err(Diagnostic::new(message)
                .help("make the model of the settings that the weights have"));
        }
        variables.insert(path, array);
    }
    Ok(variables)
}

fn permuted(literal: &Literal, axes: &[usize]) -> Literal {
    with_native!(literal.dtype(), T => {
        let array = literal.as_array::<T>().expect("the dtype is its own");
        Literal::from_array(&array.permuted_axes(axes))
    })
}
