//! Ops and operand types as a hostile file may have them: samples after random mutations, most of
//! which `infer` has to refuse.

use crate::random::{Random, extents, literal};
use crate::samples::Sample;
use std::collections::BTreeMap;
use wengert_core::op::Attribute;
use wengert_core::{DType, Dim, Literal, Op, Scalar, TensorType};

impl Random {
    /// A small number, or one at the ends of a range.
    pub fn number(&mut self) -> i64 {
        const EXTREMES: [i64; 12] = [
            i64::MIN,
            i64::MIN + 1,
            -(1 << 40),
            -1,
            0,
            1,
            i32::MAX as i64,
            u32::MAX as i64 + 1,
            1 << 40,
            1 << 62,
            i64::MAX - 1,
            i64::MAX,
        ];
        match self.below(3) {
            0 => EXTREMES[self.below(EXTREMES.len())],
            _ => self.below(7) as i64 - 2,
        }
    }

    /// A dimension, which may have variables and be negative or very large.
    pub fn dim(&mut self) -> Dim {
        match self.below(5) {
            0 => Dim::variable("B"),
            1 => Dim::linear(
                self.number(),
                [("B".into(), self.number()), ("T".into(), self.number())],
            )
            .expect("two variables cannot overflow"),
            _ => Dim::constant(self.number()),
        }
    }

    fn mutate_type(&mut self, ty: &mut TensorType) {
        match self.below(5) {
            0 => ty.dtype = DType::ALL[self.below(DType::ALL.len())],
            1 => {
                let at = self.below(ty.rank() + 1);
                let dim = self.dim();
                ty.shape.insert(at, dim);
            }
            2 if ty.rank() > 0 => drop(ty.shape.remove(self.below(ty.rank()))),
            _ if ty.rank() > 0 => {
                let at = self.below(ty.rank());
                ty.shape[at] = self.dim();
            }
            _ => {}
        }
    }

    fn mutate_attribute(&mut self, attribute: &mut Attribute) {
        match attribute {
            Attribute::Dim(d) => *d = self.dim(),
            Attribute::DType(d) => *d = DType::ALL[self.below(DType::ALL.len())],
            Attribute::Bool(b) => *b = !*b,
            Attribute::Scalar(s) => *s = Scalar::zero(DType::ALL[self.below(DType::ALL.len())]),
            Attribute::List(items) => match self.below(4) {
                0 if !items.is_empty() => drop(items.remove(self.below(items.len()))),
                1 if !items.is_empty() => {
                    let copy = items[self.below(items.len())].clone();
                    items.insert(self.below(items.len() + 1), copy);
                }
                2 => items.push(Attribute::Dim(self.dim())),
                _ if !items.is_empty() => {
                    let at = self.below(items.len());
                    self.mutate_attribute(&mut items[at]);
                }
                _ => {}
            },
            _ => *attribute = Attribute::Text("x".into()),
        }
    }

    /// Floats in −1..=1, and integers at the ends of ranges.
    pub fn extreme_literal(&mut self, ty: &TensorType) -> Literal {
        literal(ty.dtype, &extents(ty), |dtype| match dtype {
            d if d.is_float() => Scalar::from_f64(d, self.below(9) as f64 / 4.0 - 1.0),
            d => Scalar::from_i64(d, self.number()),
        })
    }
}

/// A sample's op and operand types after random mutations.
pub fn mutated(random: &mut Random, samples: &[Sample]) -> (Option<Op>, Vec<TensorType>) {
    let sample = &samples[random.below(samples.len())];
    let dtype = [DType::F32, DType::F64, DType::BF16][random.below(3)];
    let mut types: Vec<TensorType> = sample.literals(dtype, 1).iter().map(Literal::ty).collect();
    let mut attributes: BTreeMap<String, Attribute> =
        sample.op.attributes().into_iter().map(|(k, v)| (k.to_string(), v)).collect();
    for _ in 0..1 + random.below(4) {
        match random.below(8) {
            0 if !types.is_empty() => drop(types.remove(random.below(types.len()))),
            1 if !types.is_empty() => types.push(types[random.below(types.len())].clone()),
            2..=4 if !types.is_empty() => {
                let at = random.below(types.len());
                random.mutate_type(&mut types[at]);
            }
            _ if !attributes.is_empty() => {
                let at = random.below(attributes.len());
                random.mutate_attribute(
                    attributes.values_mut().nth(at).expect("it is below the length"),
                );
            }
            _ => {}
        }
    }
    (Op::from_attributes(sample.op.name(), attributes).ok(), types)
}
