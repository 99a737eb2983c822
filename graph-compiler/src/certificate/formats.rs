//! The numbers of a float dtype, as the error analysis sees them.

use wengert_core::DType;

/// The unit roundoff of a dtype: half the distance of 1 to the next number.
pub(super) fn unit(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-11),
        DType::BF16 => 2f64.powi(-8),
        DType::F32 => 2f64.powi(-24),
        _ => 2f64.powi(-53),
    }
}

/// The dtype in which an equation computes.
pub(super) fn carried(dtype: DType) -> DType {
    if dtype == DType::F64 { dtype } else { DType::F32 }
}

/// The least positive number.
pub(super) fn tiny(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-24),
        DType::BF16 => 2f64.powi(-133),
        DType::F32 => 2f64.powi(-149),
        _ => 5e-324,
    }
}

/// The greatest finite number.
pub(super) fn greatest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 65504.0,
        DType::BF16 => 3.3895e38,
        DType::F32 => f64::from(f32::MAX),
        _ => f64::MAX,
    }
}
