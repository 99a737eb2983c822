//! Discrete Fourier transforms: [`fft`], [`ifft`], [`rfft`], [`irfft`] along the last axis,
//! [`fftn`] and [`ifftn`] along any.
//!
//! `X[k] = Σⱼ x[j]·e^(−2πi·jk/n)`. The sign, and the factor 1/n of the inverse, are those of NumPy
//! and JAX. A complex tensor is a pair (re, im) of tensors of one type, f32 or f64. Any length is
//! allowed.
//!
//! **How.** Where n = r·m, with j = m·j₁ + j₂ and k = k₁ + r·k₂, the sum splits in two:
//! transforms of length r over j₁, a twiddle factor e^(−2πi·j₂k₁/n), and transforms of length m
//! over j₂. A transform is thus a sequence of stages, one for each factor of n. Each stage is one
//! product with a small matrix and one rotation of the results. Between stages the axes are in
//! Stockham's order, finished indices after unfinished ones, so no final reordering is needed.
//! Real and imaginary part are an axis of extent 2, so a complex product with a matrix is a real
//! one with a matrix of twice the size. A prime factor that is too large for a matrix is a
//! convolution, computed by transforms of a power of two (Bluestein).
//!
//! **Derivatives.** A transform consists of products with constants, reshapes and permutations,
//! all of them linear. Forward mode runs it on tangents. Its transpose has the same products in
//! reverse order, so reverse mode has the cost of the transform and no residuals.
//!
//! **Exactness.** The angle of a factor is a fraction of a turn with an integer numerator. The
//! numerator is reduced to at most an eighth of a turn before the conversion to float, so factors
//! are as exact as their dtype for any length.
//!
//! ```
//! use wengert::prelude::*;
//! use wengert::fft::{irfft, rfft};
//! # fn main() -> Result<()> {
//! // A circular convolution is a product of spectra.
//! let mut program = Program::new();
//! program.function("convolve", |f| {
//!     let (a, b) = (f.input("a", f64("4")), f.input("b", f64("4")));
//!     let ((p, q), (r, s)) = (rfft(&a), rfft(&b));
//!     f.output("c", irfft(&(&p * &r - &q * &s, &p * &s + &q * &r), 4));
//! })?;
//! let mut session = Session::open(Device::Interpreter)?;
//! let a = Literal::from_vec(&[4], vec![1.0, 2.0, 0.0, 0.0])?;
//! let b = Literal::from_vec(&[4], vec![5.0, 0.0, 0.0, 7.0])?;
//! let c = session.compile(&program, "convolve", bind!())?.run(&[("a", a), ("b", b)])?;
//! let c = c.get("c").expect("it is an output").clone();
//! for (i, wanted) in [19.0, 10.0, 0.0, 7.0].into_iter().enumerate() {
//!     assert!((c.get(i).to_f64() - wanted).abs() < 1e-13);
//! }
//! # Ok(())
//! # }
//! ```

mod bluestein;
mod real;
mod roots;
mod stages;

pub use real::{irfft, rfft};

use crate::core::build::Scope;
use crate::{DType, Diagnostic, Location, Result, Tensor, diagnostic};

/// Real and imaginary part.
pub type Complex = (Tensor, Tensor);

/// Direction of a transform: the sign of the exponent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    /// e^(−2πi·jk/n)
    Forward,
    /// e^(2πi·jk/n), without a factor
    Inverse,
}

/// The transform along the last axis.
///
/// Errors: parts of different types, dtypes other than f32 and f64, a last extent that is 0 or
/// not a known number.
#[track_caller]
pub fn fft(x: &Complex) -> Complex {
    along(x, &[last(x)], Direction::Forward, Location::caller())
}

/// The inverse of [`fft`]: the sum with the opposite sign, divided by the number of elements.
#[track_caller]
pub fn ifft(x: &Complex) -> Complex {
    along(x, &[last(x)], Direction::Inverse, Location::caller())
}

/// The transform along several axes, one after another; `fftn(x, &[0, 1])` of a matrix is what
/// NumPy calls `fft2`.
#[track_caller]
pub fn fftn(x: &Complex, axes: &[usize]) -> Complex {
    along(x, axes, Direction::Forward, Location::caller())
}

/// The inverse of [`fftn`].
#[track_caller]
pub fn ifftn(x: &Complex, axes: &[usize]) -> Complex {
    along(x, axes, Direction::Inverse, Location::caller())
}

fn last(x: &Complex) -> usize {
    x.0.rank().saturating_sub(1)
}

fn along(x: &Complex, axes: &[usize], direction: Direction, caller: Location) -> Complex {
    let _user = caller.attributed();
    let run = || -> Result<Complex> {
        let extents =
            axes.iter().map(|axis| extent(&[&x.0, &x.1], *axis)).collect::<Result<Vec<usize>>>()?;
        in_scope_of(&x.0, || {
            let mut z = joined(x);
            for axis in axes {
                z = to(
                    &stages::transform(&to(&z, *axis, z.rank() - 2), direction),
                    z.rank() - 2,
                    *axis,
                );
            }
            match direction {
                Direction::Forward => Ok(parts(&z)),
                // Exact if the number is a power of two.
                Direction::Inverse => Ok(parts(&(z / extents.iter().product::<usize>() as f64))),
            }
        })
    };
    run().unwrap_or_else(|error| failed(error, caller))
}

/// Checks the parts of a complex tensor. Returns the extent of an axis.
fn extent(parts: &[&Tensor], axis: usize) -> Result<usize> {
    if let Some(error) = parts.iter().find_map(|t| t.error()) {
        return Err(error.clone());
    }
    let first = parts[0];
    if let Some(other) = parts.iter().find(|t| t.ty() != first.ty()) {
        return Err(diagnostic!(
            "the real part is {}, the imaginary part {}",
            first.ty(),
            other.ty()
        )
        .help("both have one dtype and shape"));
    }
    if !matches!(first.dtype(), DType::F32 | DType::F64) {
        return Err(diagnostic!("a Fourier transform of {}", first.ty())
            .help("convert it to f32 or f64 first"));
    }
    let Some(extent) = first.shape().get(axis) else {
        return Err(diagnostic!("a Fourier transform along axis {axis} of {}", first.ty())
            .help(format!("it has {} axes, counted from 0", first.rank())));
    };
    match extent.as_constant().map(usize::try_from) {
        Some(Ok(extent)) if extent > 0 => Ok(extent),
        Some(_) => Err(diagnostic!("a Fourier transform of no elements: {}", first.ty())
            .help("the axis has at least one element")),
        None => Err(diagnostic!("a Fourier transform of {extent} elements").help(
            "the length decides on the steps, so it has to be a number; other dimensions \
             may be variables",
        )),
    }
}

/// The parts of a transform that failed.
fn failed(error: Diagnostic, caller: Location) -> Complex {
    let error = error.at(caller, "the transform is here");
    if let Some(scope) = Scope::current() {
        scope.fail(&error);
    }
    let poison = Tensor::poisoned(error);
    (poison.clone(), poison)
}

/// Runs `f` in a scope where constants can be made. Tensors with values need no enclosing
/// function.
fn in_scope_of<T>(x: &Tensor, f: impl FnOnce() -> T) -> T {
    match x.scope().filter(|_| Scope::current().is_none()) {
        Some(scope) => scope.enter(f),
        None => f(),
    }
}

/// Both parts as one tensor, along a new last axis.
fn joined((re, im): &Complex) -> Tensor {
    let shape: Vec<_> = re.shape().iter().cloned().chain([1.into()]).collect();
    Tensor::concatenate(&[&re.reshape(shape.clone()), &im.reshape(shape)], re.rank())
}

/// Splits the last axis into the two parts.
fn parts(z: &Tensor) -> Complex {
    let axis = z.rank() - 1;
    let part = |i: usize| z.slice_axis(axis, i, i + 1).reshape(z.shape()[..axis].to_vec());
    (part(0), part(1))
}

/// `x` with axis `from` at position `to`.
fn to(x: &Tensor, from: usize, to: usize) -> Tensor {
    let mut order: Vec<usize> = (0..x.rank()).filter(|axis| *axis != from).collect();
    order.insert(to, from);
    x.permute(&order)
}
