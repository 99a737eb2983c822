//! Result types of closures that have a Jacobian.

use wengert_core::{Differentiable, Tensor};

/// A closure's result that can have a Jacobian: a tensor, or several in tuples, arrays, vectors,
/// options.
#[diagnostic::on_unimplemented(
    message = "the Jacobian of a `{Self}` has no type",
    label = "not `Outputs`",
    note = "return a tensor, or a tuple, array or vector of tensors"
)]
pub trait Outputs: Differentiable {
    /// The same structure with a `T` for each tensor: its row of a Jacobian.
    type Each<T>;

    /// Calls `make` for each tensor, in the order of [`Differentiable::tensors`].
    fn each<T>(&self, make: &mut dyn FnMut() -> T) -> Self::Each<T>;
}

impl Outputs for Tensor {
    type Each<T> = T;
    fn each<T>(&self, make: &mut dyn FnMut() -> T) -> T {
        make()
    }
}

impl<O: Outputs> Outputs for Vec<O>
where
    Vec<O>: Differentiable,
{
    type Each<T> = Vec<O::Each<T>>;
    fn each<T>(&self, make: &mut dyn FnMut() -> T) -> Self::Each<T> {
        self.iter().map(|item| item.each(make)).collect()
    }
}

impl<O: Outputs> Outputs for Option<O>
where
    Option<O>: Differentiable,
{
    type Each<T> = Option<O::Each<T>>;
    fn each<T>(&self, make: &mut dyn FnMut() -> T) -> Self::Each<T> {
        self.as_ref().map(|item| item.each(make))
    }
}

impl<O: Outputs> Outputs for Box<O>
where
    Box<O>: Differentiable,
{
    type Each<T> = O::Each<T>;
    fn each<T>(&self, make: &mut dyn FnMut() -> T) -> Self::Each<T> {
        (**self).each(make)
    }
}

impl<O: Outputs, const N: usize> Outputs for [O; N]
where
    [O; N]: Differentiable,
{
    type Each<T> = [O::Each<T>; N];
    fn each<T>(&self, make: &mut dyn FnMut() -> T) -> Self::Each<T> {
        std::array::from_fn(|i| self[i].each(make))
    }
}

macro_rules! tuple {
    ($($t:ident $i:tt),+) => {
        impl<$($t: Outputs),+> Outputs for ($($t,)+)
        where
            ($($t,)+): Differentiable,
        {
            type Each<T> = ($($t::Each<T>,)+);
            fn each<T>(&self, make: &mut dyn FnMut() -> T) -> Self::Each<T> {
                ($(self.$i.each(make),)+)
            }
        }
    };
}
tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
