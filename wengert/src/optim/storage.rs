//! How an optimiser stores what it updates: the dtype of moments, and the rounding of halves.

use super::step::Variable;
use wengert_core::build::FunctionBuilder;
use wengert_core::{DType, Initializer, Location, Tensor, diagnostic};

/// The storage of an optimiser's state.
#[derive(Clone, Debug, Default)]
pub(super) struct Storage {
    /// The dtype of moments, instead of that of the arithmetic.
    pub moments: Option<DType>,
    /// The key of stochastic rounding.
    pub key: Option<Tensor>,
}

/// States that a variable has, each with its own random numbers.
#[derive(Clone, Copy)]
pub(super) enum Role {
    /// The variable itself.
    Value,
    /// A moment, by its number.
    Moment(u32),
}

/// A moment of a variable.
pub(super) struct Moment {
    path: String,
    dtype: DType,
    number: u32,
    /// Its value, in the dtype of the arithmetic.
    pub value: Tensor,
}

impl Storage {
    /// Declares a moment: zeros with the shape of the variable's gradient.
    pub fn moment(
        &self,
        f: &mut FunctionBuilder,
        [name, what]: [&str; 2],
        number: u32,
        variable: &Variable,
    ) -> Moment {
        let path = format!("{name}.{what}.{}", variable.path);
        let dtype = self.moments.unwrap_or(variable.wide());
        if !dtype.is_float() {
            let error = diagnostic!("moments of {dtype}: a moment is a float")
                .at(Location::caller(), "updated here")
                .help("store moments in bf16, f16 or f32");
            f.scope().fail(&error);
        }
        let ty = variable.gradient.ty().with_dtype(dtype);
        let state = f.state(&path, Tensor::variable(ty, Initializer::Zeros));
        let value = state.convert(variable.wide());
        Moment { path, dtype, number, value }
    }

    /// Sets the next value of a moment.
    pub fn update(
        &self,
        f: &mut FunctionBuilder,
        moment: &Moment,
        variable: &Variable,
        next: &Tensor,
    ) {
        let next = self.round(next, moment.dtype, variable, Role::Moment(moment.number));
        f.update(&moment.path, &next);
    }

    /// The next value of a state, in its dtype.
    #[track_caller]
    pub fn round(&self, next: &Tensor, dtype: DType, variable: &Variable, role: Role) -> Tensor {
        match &self.key {
            Some(key) if dtype.is_half() && next.dtype() != dtype => {
                let number = |role: u32| i64::from(3 * variable.index + role);
                let key = match role {
                    Role::Value => key.fold_in(number(0)),
                    Role::Moment(moment @ 0..2) => key.fold_in(number(1 + moment)),
                    // Few optimisers have more than two moments.
                    Role::Moment(moment) => key.fold_in(number(0)).fold_in(i64::from(moment)),
                };
                next.round_stochastically(dtype, &key)
            }
            _ => next.convert(dtype),
        }
    }
}
