//! Tensors of equally spaced numbers.

use super::failure::composed;
use super::operators::Number;
use super::tensor::Tensor;
use crate::diagnostic::{Diagnostic, bail, ensure};
use crate::dtype::DType;
use crate::literal::Literal;
use crate::scalar::Scalar;

impl Tensor {
    /// `start`, `start + step`, … below `stop` (above it, if the step is negative), as a vector of
    /// ⌈(stop − start) / step⌉ elements. [`Tensor::iota`] counts up to a dimension variable. Floats
    /// are `start + i · step`, halves computed in f32.
    ///
    /// # Errors
    /// The step is 0, or a number is infinite or NaN; the dtype is bool; there is no function to
    /// put it in.
    ///
    /// ```
    /// # use wengert_core::{build::FunctionBuilder, interpret, DType, Tensor};
    /// # let function = FunctionBuilder::build("f", |f| {
    /// f.output("up", Tensor::arange(DType::I32, 1, 8, 3));
    /// f.output("down", Tensor::arange(DType::F32, 1.0, 0.0, -0.25));
    /// # }).expect("the example is right");
    /// # let y = interpret::run(&function, &[]).expect("it runs");
    /// assert_eq!(y[0].as_slice::<i32>(), Some(&[1, 4, 7][..]));
    /// assert_eq!(y[1].as_slice::<f32>(), Some(&[1.0, 0.75, 0.5, 0.25][..]));
    /// ```
    #[track_caller]
    pub fn arange<N: Number>(dtype: DType, start: N, stop: N, step: N) -> Tensor {
        composed("arange", &[], || {
            ensure!(dtype != DType::Bool, "bools are no numbers"; help "ask for another dtype");
            // Integers are exact as i64. Floats are divided as f64.
            let of = |dtype: DType| [start, stop, step].map(|n| n.to_scalar(dtype));
            let whole = of(DType::I64).map(Scalar::to_i64);
            let [from, to, by] = of(DType::F64).map(Scalar::to_f64);
            ensure!([from, to, by].iter().all(|n| n.is_finite()) && by != 0.0,
                "from {from} to {to} in steps of {by}";
                help "the bounds are finite, and the step is finite and not 0");
            let are_whole = [from, to, by].iter().all(|n| n.fract() == 0.0);
            let count = match whole {
                [Some(from), Some(to), Some(by)] if dtype.is_integer() && are_whole => {
                    let span = (i128::from(to) - i128::from(from)) * i128::from(by.signum());
                    let by = i128::from(by).abs();
                    i64::try_from((span.max(0) + by - 1) / by).unwrap_or(i64::MAX)
                }
                _ if dtype.is_integer() => bail!(
                    "integers from {from} to {to} in steps of {by}";
                    help "give whole numbers, or ask for a float dtype"),
                // A count beyond i64 saturates, and no type has so many elements.
                _ => ((to - from) / by).ceil().max(0.0) as i64,
            };
            let wide = dtype.wide();
            let index = Tensor::iota(wide, [count], 0);
            let step = index.splat(step.to_scalar(wide));
            let start = index.splat(start.to_scalar(wide));
            Ok((start + index * step).convert(dtype))
        })
    }

    /// `count` numbers from `start` to `stop`, both included, at equal distances: a vector of
    /// floats. With a count of 1 it is `start` alone. The last element is exactly `stop`. Halves
    /// are computed in f32.
    ///
    /// # Errors
    /// The dtype is not that of a float; there is no function to put it in.
    ///
    /// ```
    /// # use wengert_core::{build::FunctionBuilder, interpret, DType, Tensor};
    /// # let function = FunctionBuilder::build("f", |f| {
    /// f.output("y", Tensor::linspace(DType::F32, 0.0, 1.0, 5));
    /// # }).expect("the example is right");
    /// # let y = interpret::run(&function, &[]).expect("it runs");
    /// assert_eq!(y[0].as_slice::<f32>(), Some(&[0.0, 0.25, 0.5, 0.75, 1.0][..]));
    /// ```
    #[track_caller]
    pub fn linspace(dtype: DType, start: f64, stop: f64, count: usize) -> Tensor {
        composed("linspace", &[], || {
            if !dtype.is_float() {
                return Err(Diagnostic::new(format!("{dtype} is no float dtype"))
                    .help("ask for floats and convert them, or use `arange`"));
            }
            let wide = dtype.wide();
            let index = Tensor::iota(wide, [count], 0);
            let step = (stop - start) / (count.max(2) - 1) as f64;
            let numbers = &index * step + start;
            if count < 2 {
                return Ok(numbers.convert(dtype));
            }
            let last = index.eq((count - 1) as f64);
            let stop = Tensor::constant(Literal::full(&[], Scalar::from_f64(wide, stop)));
            Ok(last.select(&stop, &numbers).convert(dtype))
        })
    }
}
