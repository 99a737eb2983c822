//! Concrete tensors: the constants of a graph, and the inputs and outputs of a run.

mod arrays;

use crate::allocation::reserved;
use crate::diagnostic::{Diagnostic, Result, bail, ensure};
use crate::dtype::DType;
use crate::float8::{f8e4m3fn, f8e5m2};
use crate::scalar::{Native, Scalar};
use crate::ty::TensorType;
use half::{bf16, f16};
use ndarray::{ArcArray, ArrayBase, ArrayD, ArrayViewD, Data, Dimension, IxDyn};
use std::fmt;

macro_rules! literal {
    ($($variant:ident, $t:ty;)*) => {
        /// A tensor with its values, on a shared ndarray in standard (row-major) layout. Cloning
        /// copies a pointer.
        ///
        /// Equality is equality of dtype, shape and bits.
        #[derive(Clone)]
        pub enum Literal {
            $(
                #[doc = concat!("Elements of `", stringify!($t), "`.")]
                $variant(ArcArray<$t, IxDyn>),
            )*
        }

        impl Literal {
            /// Type of the elements.
            pub fn dtype(&self) -> DType {
                match self { $(Literal::$variant(_) => DType::$variant,)* }
            }

            /// Extents.
            pub fn shape(&self) -> &[usize] {
                match self { $(Literal::$variant(a) => a.shape(),)* }
            }

            /// Element number `flat` in row-major order.
            pub fn get(&self, flat: usize) -> Scalar {
                match self {
                    $(Literal::$variant(a) => Scalar::of(
                        a.as_slice().expect("literals are in standard layout")[flat]
                    ),)*
                }
            }

            /// The same elements in another shape with the same element count.
            pub fn reshape(&self, shape: &[usize]) -> Result<Literal> {
                let wrong = |_| {
                    Diagnostic::new(format!(
                        "{} elements do not fill shape {shape:?}",
                        self.len()
                    ))
                };
                Ok(match self {
                    $(Literal::$variant(a) => Literal::$variant(
                        a.clone().into_shape_with_order(IxDyn(shape)).map_err(wrong)?
                    ),)*
                })
            }
        }

        $(
            impl Element for $t {
                fn wrap(array: ArcArray<$t, IxDyn>) -> Literal { Literal::$variant(array) }
                fn unwrap(literal: &Literal) -> Option<&ArcArray<$t, IxDyn>> {
                    match literal { Literal::$variant(a) => Some(a), _ => None }
                }
                fn into_array(literal: Literal) -> Option<ArcArray<$t, IxDyn>> {
                    match literal { Literal::$variant(a) => Some(a), _ => None }
                }
            }

            impl From<$t> for Literal {
                fn from(value: $t) -> Self {
                    Literal::from_vec(&[], vec![value]).expect("one element fills a scalar")
                }
            }
        )*
    };
}

/// Element types of a [`Literal`].
pub trait Element: Native {
    /// Wraps an array in standard layout.
    fn wrap(array: ArcArray<Self, IxDyn>) -> Literal;
    /// The array, if the literal has this dtype.
    fn unwrap(literal: &Literal) -> Option<&ArcArray<Self, IxDyn>>;
    /// [`unwrap`](Self::unwrap) of a literal that is no longer needed.
    fn into_array(literal: Literal) -> Option<ArcArray<Self, IxDyn>>;
}

literal! {
    Bool, bool;
    U8, u8;
    I8, i8;
    I32, i32;
    I64, i64;
    U32, u32;
    U64, u64;
    F16, f16;
    BF16, bf16;
    F32, f32;
    F64, f64;
    F8E4M3FN, f8e4m3fn;
    F8E5M2, f8e5m2;
}

impl Literal {
    /// Copies an ndarray of any layout.
    pub fn from_array<T: Element, S: Data<Elem = T>, D: Dimension>(
        array: &ArrayBase<S, D>,
    ) -> Literal {
        let values: Vec<T> = array.iter().copied().collect();
        Literal::from_vec(array.shape(), values)
            .expect("an array has as many elements as its shape says")
    }

    /// A literal of elements in row-major order.
    pub fn from_vec<T: Element>(shape: &[usize], values: Vec<T>) -> Result<Literal> {
        let count = values.len();
        ArrayD::from_shape_vec(IxDyn(shape), values)
            .map(|a| T::wrap(a.into_shared()))
            .map_err(|_| Diagnostic::new(format!("{count} elements do not fill shape {shape:?}")))
    }

    /// A literal with all elements `value`.
    pub fn full(shape: &[usize], value: Scalar) -> Literal {
        crate::with_native!(value.dtype(), T => {
            <T as Element>::wrap(ArrayD::from_elem(IxDyn(shape), value.get::<T>()).into_shared())
        })
    }

    /// A literal of zeros.
    pub fn zeros(dtype: DType, shape: &[usize]) -> Literal {
        Literal::full(shape, Scalar::zero(dtype))
    }

    /// A literal of scalars in row-major order. Each must have the dtype.
    pub fn from_scalars(dtype: DType, shape: &[usize], values: &[Scalar]) -> Result<Literal> {
        if let Some(wrong) = values.iter().find(|v| v.dtype() != dtype) {
            bail!("element {wrong:?} in a literal of {dtype}");
        }
        crate::with_native!(dtype, T => {
            Literal::from_vec(shape, values.iter().map(|v| v.get::<T>()).collect())
        })
    }

    /// A literal of little-endian bytes in row-major order. A byte of a bool must be 0 or 1.
    ///
    /// Errors: too few or too many bytes; out of memory.
    pub fn from_bytes(dtype: DType, shape: &[usize], bytes: &[u8]) -> Result<Literal> {
        let size = dtype.size();
        let wanted = shape.iter().try_fold(size, |n, e| n.checked_mul(*e));
        ensure!(
            wanted == Some(bytes.len()),
            "{} bytes for a literal of {dtype}{shape:?}, which has {}",
            bytes.len(),
            wanted.map_or("too many".into(), |w| w.to_string())
        );
        if dtype == DType::Bool && bytes.iter().any(|b| *b > 1) {
            bail!("a byte of a bool literal is neither 0 nor 1");
        }
        crate::with_native!(dtype, T => {
            let mut elements: Vec<T> = reserved(bytes.len() / size)?;
            elements.extend(bytes.chunks_exact(size_of::<T>()).map(T::from_little_endian));
            Literal::from_vec(shape, elements)
        })
    }

    /// Little-endian bytes in row-major order.
    pub fn to_bytes(&self) -> Vec<u8> {
        let size = self.dtype().size();
        let mut bytes = Vec::with_capacity(self.len() * size);
        crate::with_native!(self.dtype(), T => {
            for v in self.as_slice::<T>().expect("the dtype is its own") {
                bytes.extend_from_slice(&v.to_bits64().to_le_bytes()[..size]);
            }
        });
        bytes
    }

    /// Elements in row-major order, if the dtype is `T`.
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        T::unwrap(self).map(|a| a.as_slice().expect("literals are in standard layout"))
    }

    /// The array, if the dtype is `T`.
    pub fn as_array<T: Element>(&self) -> Option<ArrayViewD<'_, T>> {
        T::unwrap(self).map(|a| a.view())
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape().iter().product()
    }

    /// True if there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its type.
    pub fn ty(&self) -> TensorType {
        TensorType::new(self.dtype(), self.shape().iter().copied())
    }

    /// Elements in row-major order.
    pub fn scalars(&self) -> impl ExactSizeIterator<Item = Scalar> + '_ {
        (0..self.len()).map(|i| self.get(i))
    }

    /// The element to which all elements are equal bit for bit, if there is one.
    pub fn splat(&self) -> Option<Scalar> {
        let first = (!self.is_empty()).then(|| self.get(0))?;
        self.scalars().all(|s| s == first).then_some(first)
    }

    /// The same bits as elements of another dtype of the same size.
    ///
    /// Errors: the sizes differ; a byte of a bool would be neither 0 nor 1.
    pub fn bitcast(&self, dtype: DType) -> Result<Literal> {
        if dtype == self.dtype() {
            return Ok(self.clone());
        }
        ensure!(
            dtype.size() == self.dtype().size(),
            "the bits of {} are not those of {dtype}", self.dtype();
            help "bits keep the size of an element"
        );
        Literal::from_bytes(dtype, self.shape(), &self.to_bytes())
    }

    /// Elements converted to another dtype (`as` of Rust between integers and floats: saturating,
    /// truncating).
    pub fn convert(&self, dtype: DType) -> Literal {
        // One loop for each pair of dtypes, since data sets of millions of elements are converted
        // here.
        crate::with_native!(self.dtype(), S => {
            let values = self.as_slice::<S>().expect("the dtype is its own");
            crate::with_native!(dtype, D => {
                let values: Vec<D> = values.iter().map(|v| convert::<S, D>(*v)).collect();
                Literal::from_vec(self.shape(), values)
                    .expect("there are as many elements as before")
            })
        })
    }
}

#[inline(always)]
fn convert<S: Native, D: Native>(value: S) -> D {
    match Scalar::of(value).to_i64() {
        Some(i) if S::DTYPE != DType::U64 => Scalar::from_i64(D::DTYPE, i).get::<D>(),
        _ => D::from_f64(value.to_f64()),
    }
}

impl PartialEq for Literal {
    fn eq(&self, other: &Self) -> bool {
        self.dtype() == other.dtype()
            && self.shape() == other.shape()
            && crate::with_native!(self.dtype(), T => {
                let (a, b) = (self.as_slice::<T>(), other.as_slice::<T>());
                let (a, b) = (a.expect("the dtype is its own"), b.expect("dtypes are equal"));
                a.iter().zip(b).all(|(a, b)| a.to_bits64() == b.to_bits64())
            })
    }
}

impl Eq for Literal {}

impl std::hash::Hash for Literal {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.dtype().hash(state);
        self.shape().hash(state);
        for s in self.scalars() {
            s.bits().hash(state);
        }
    }
}

impl fmt::Display for Literal {
    /// `2x2xf32=1.0 2.0 3.0 4.0`, as `graphrun run --input` also takes it. Large literals are
    /// shortened, unless the format is alternate (`{:#}`).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for extent in self.shape() {
            write!(f, "{extent}x")?;
        }
        write!(f, "{}=", self.dtype())?;
        let shown = if f.alternate() { self.len() } else { 1024 };
        for (i, s) in self.scalars().enumerate().take(shown) {
            write!(f, "{}{s}", if i > 0 { " " } else { "" })?;
        }
        if self.len() > shown {
            write!(f, " … ({} elements)", self.len())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip_for_every_dtype() {
        for dtype in DType::ALL {
            let values: Vec<_> = (0..6).map(|i| Scalar::from_i64(dtype, i - 2)).collect();
            let literal = Literal::from_scalars(dtype, &[2, 3], &values).unwrap();
            assert_eq!(Literal::from_bytes(dtype, &[2, 3], &literal.to_bytes()).unwrap(), literal);
        }
        assert!(Literal::from_bytes(DType::F32, &[2], &[0; 7]).is_err());
        assert!(Literal::from_bytes(DType::Bool, &[1], &[2]).is_err());
    }

    #[test]
    fn conversions_are_those_of_as() {
        let wide = Literal::from_vec(&[4], vec![-1i64, 300, i64::MIN, (1 << 53) + 1]).unwrap();
        assert_eq!(wide.convert(DType::U8).as_slice::<u8>().unwrap(), [255, 44, 0, 1]);
        assert_eq!(wide.convert(DType::F64).get(3), Scalar::of(((1i64 << 53) + 1) as f64));
        assert_eq!(Literal::from(u64::MAX).convert(DType::F32), Literal::from(u64::MAX as f32));
        let floats = Literal::from_vec(&[4], vec![-1.5f32, 300.0, f32::NAN, 2.5]).unwrap();
        assert_eq!(floats.convert(DType::U8).as_slice::<u8>().unwrap(), [0, 255, 0, 2]);
        assert_eq!(floats.convert(DType::Bool).as_slice::<bool>().unwrap(), [true; 4]);
    }

    #[test]
    fn bits_keep_their_size() {
        let bits = Literal::from_vec(&[2], vec![0x38u8, 0xff]).unwrap();
        let floats = bits.bitcast(DType::F8E4M3FN).unwrap();
        assert_eq!(floats.to_string(), "2xf8e4m3fn=1.0 nan(0xff)");
        assert_eq!(floats.bitcast(DType::U8).unwrap(), bits);
        assert!(bits.bitcast(DType::F16).is_err() && bits.bitcast(DType::Bool).is_err());
    }

    #[test]
    fn equality_is_of_bits() {
        assert_eq!(Literal::from(f32::NAN), Literal::from(f32::NAN));
        assert_ne!(Literal::from(0.0f32), Literal::from(-0.0f32));
    }

    #[test]
    fn transposed_arrays_are_copied_in_row_major_order() {
        let a = ndarray::arr2(&[[1i32, 2], [3, 4]]);
        assert_eq!(Literal::from_array(&a.t()).as_slice::<i32>().unwrap(), [1, 3, 2, 4]);
    }
}
