//! The names that every family's samples need.

pub(super) use super::sample::{
    RegionRule, Sample, SampleOperand, floats, region, values, wide_floats,
};
pub(super) use wengert_core::graph::Region;
pub(super) use wengert_core::{DType, Dim, Literal, Op, Scalar, Tensor, TensorType};
