//! Short names for types: `f32("B,64")`, `i32("B")`, `f32("")` or `f32([64, 10])`.
//!
//! A description may be invalid, so each returns a `Result`. `input` of a function builder
//! accepts it directly and reports the error with the caller's line.

use wengert_core::text::Cursor;
use wengert_core::{DType, Diagnostic, Dim, Result, TensorType, diagnostic};

/// A description of a shape: `"B,64"`, or an array of extents.
pub trait IntoShape {
    /// The extents.
    fn into_shape(self) -> Result<Vec<Dim>>;
}

impl IntoShape for &str {
    fn into_shape(self) -> Result<Vec<Dim>> {
        let text = format!("[{self}]");
        let wrong = |d: Diagnostic| {
            diagnostic!("`{self}` is no shape: {}", d.message)
                .help("write extents and dimension variables, such as `B,64` or `2*B+1`")
        };
        let mut cursor = Cursor::new("", &text);
        let shape = cursor.shape().map_err(wrong)?;
        cursor.expect_end().map_err(wrong)?;
        Ok(shape)
    }
}

impl IntoShape for &String {
    fn into_shape(self) -> Result<Vec<Dim>> {
        self.as_str().into_shape()
    }
}

impl<D: Into<Dim>, const N: usize> IntoShape for [D; N] {
    fn into_shape(self) -> Result<Vec<Dim>> {
        Ok(self.into_iter().map(Into::into).collect())
    }
}

impl IntoShape for Vec<Dim> {
    fn into_shape(self) -> Result<Vec<Dim>> {
        Ok(self)
    }
}

macro_rules! types {
    ($($name:ident $dtype:ident;)*) => {$(
        #[doc = concat!("`", stringify!($name), "[shape]`.")]
        pub fn $name(shape: impl IntoShape) -> Result<TensorType> {
            Ok(TensorType::of(DType::$dtype, shape.into_shape()?))
        }
    )*};
}

types! {
    bool Bool;
    u8 U8;
    i8 I8;
    i32 I32;
    i64 I64;
    u32 U32;
    u64 U64;
    f16 F16;
    bf16 BF16;
    f32 F32;
    f64 F64;
    f8e4m3fn F8E4M3FN;
    f8e5m2 F8E5M2;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_read() {
        assert_eq!(f32("B,64").unwrap().to_string(), "f32[B,64]");
        assert_eq!(i32("2*B+1").unwrap().to_string(), "i32[2*B+1]");
        assert_eq!(f64("").unwrap().to_string(), "f64[]");
        assert_eq!(bool([3usize, 4]).unwrap().to_string(), "bool[3,4]");
        for wrong in ["B,", "64]", "B 64", "1.5", "B,64] x"] {
            let error = f32(wrong).unwrap_err().to_string();
            assert!(error.contains(&format!("`{wrong}` is no shape")), "{error}");
        }
    }
}
