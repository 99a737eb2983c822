//! The bytes of a literal, without a copy where memory order is file order.

use std::borrow::Cow;
use wengert_core::{Literal, with_native};

/// The elements as little-endian bytes in row-major order; borrowed on little-endian machines.
pub fn little_endian(literal: &Literal) -> Cow<'_, [u8]> {
    if cfg!(target_endian = "big") {
        return Cow::Owned(literal.to_bytes());
    }
    with_native!(literal.dtype(), T => {
        Cow::Borrowed(bytemuck::cast_slice(literal.as_slice::<T>().expect("the dtype is its own")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert_core::{DType, Scalar};

    #[test]
    fn agree_with_the_element_by_element_conversion() {
        for dtype in DType::ALL {
            let values: Vec<_> = (0..5).map(|i| Scalar::from_i64(dtype, 3 * i - 4)).collect();
            let literal = Literal::from_scalars(dtype, &[5], &values).unwrap();
            assert_eq!(little_endian(&literal), literal.to_bytes(), "{dtype}");
        }
    }
}
