//! How an optimiser stores what it updates: the dtype of moments, and the rounding of halves.

use super::{Variable, wide};
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
    #[track_caller]
    pub fn moment(
        &self,
        f: &mut FunctionBuilder,
        [name, what]: [&str; 2],
        number: u32,
        variable: &Variable,
    ) -> Moment {
        let path = format!("{name}.{what}.{}", variable.path);
        let dtype = self.moments.unwrap_or(wide(&variable.value));
        if !dtype.is_float() {
            let error = diagnostic!("moments of {dtype}: a moment is a float")
                .at(Location::caller(), "updated here")
                .help("store moments in bf16, f16 or f32");
            f.scope().fail(&error);
        }
        let ty = variable.gradient.ty().with_dtype(dtype);
        let state = f.state(&path, Tensor::variable(ty, Initializer::Zeros));
        let value = state.convert(wide(&variable.value));
        Moment { path, dtype, number, value }
    }

    /// Sets the next value of a moment.
    #[track_caller]
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
                // A variable has at most two moments.
                let number = 3 * variable.index
                    + match role {
                        Role::Value => 0,
                        Role::Moment(number) => 1 + number,
                    };
                next.round_stochastically(dtype, &key.fold_in(i64::from(number)))
            }
            _ => next.convert(dtype),
        }
    }
}

/// The settings of optimisers that store halves.
macro_rules! storage_settings {
    ($name:ident, $($storage:tt)+) => {
        impl $name {
            /// Stores moments in a dtype, such as bf16, instead of that of the arithmetic, which is
            /// f32 or f64. Small changes of a half are lost, unless it is rounded
            /// [stochastically](Self::stochastic_rounding).
            #[must_use]
            pub fn moments(mut self, dtype: DType) -> Self {
                self.$($storage)+.moments = Some(dtype);
                self
            }

            /// Rounds updates of variables and moments in bf16 stochastically: to one of the two
            /// nearest numbers, so that the mean is exact (Gupta and others, *Deep Learning with
            /// Limited Numerical Precision*, 2015). The key is one of this step, such as a key
            /// input of the function. Each state gets random numbers of its own.
            #[must_use]
            pub fn stochastic_rounding(mut self, key: &Tensor) -> Self {
                self.$($storage)+.key = Some(key.clone());
                self
            }
        }
    };
}
pub(super) use storage_settings;
