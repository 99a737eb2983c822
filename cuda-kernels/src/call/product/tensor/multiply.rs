//! The instruction of a product on tensor cores, and the layout of its operands.

use super::Product;
use crate::architecture::Architecture;
use crate::call::product::Gather;
use crate::ptx::{Binary, Code, Inst, Reg, Type};
use wengert_core::DType;

/// The instruction, and the layout of its operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Multiply {
    /// m, n, k.
    pub shape: [usize; 3],
    /// Types of lhs and rhs.
    pub operands: [Type; 2],
    pub sum: Type,
    /// Number of instructions whose results are added up before they are added to a sum; 1 if each
    /// adds to the sum.
    pub chain: usize,
    /// Terms of the sum in a step of the block.
    pub step: usize,
    /// Bytes of padding of a strip's rows: where they lie along the sum, and where they lie along
    /// the outer index.
    pub pads: [usize; 2],
}

impl Multiply {
    pub fn of(product: &Product, architecture: Architecture) -> Multiply {
        let half = |operand| Multiply {
            shape: [16, 8, 16],
            operands: [operand; 2],
            sum: Type::F32,
            chain: 1,
            step: 32,
            pads: [16, 16],
        };
        match product.operand {
            DType::F16 => half(Type::F16),
            DType::BF16 => half(Type::BF16),
            DType::F32 => Multiply {
                shape: [16, 8, 8],
                operands: [Type::TF32; 2],
                sum: Type::F32,
                chain: 1,
                step: 16,
                pads: [16, 32],
            },
            DType::F64 => Multiply {
                shape: [8, 8, 4],
                operands: [Type::F64; 2],
                sum: Type::F64,
                chain: 1,
                step: 16,
                pads: [32, 32],
            },
            DType::F8E4M3FN | DType::F8E5M2 => {
                let float8 = |gather: &Gather| match gather.number.0 {
                    DType::F8E4M3FN => Type::E4M3,
                    _ => Type::E5M2,
                };
                let operands = [float8(&product.lhs), float8(&product.rhs)];
                let chain = if architecture.adds_float8_in_f32() { 1 } else { 2 };
                Multiply { shape: [16, 8, 32], operands, chain, step: 64, ..half(Type::F16) }
            }
            other => unreachable!("tensor cores are not asked for {other}"),
        }
    }

    /// Adds the products of fragments to sums.
    ///
    /// Tensor cores of Ada and Hopper add products of 8-bit floats with about 14 bits
    /// (DeepSeek-AI, *DeepSeek-V3 Technical Report*, 2024, §3.3.2). So a chain of them begins at 0,
    /// and its sum is added in f32.
    pub fn add(&self, code: &mut Code, sum: &[Reg], terms: &[[&[Reg]; 2]]) {
        let apart = self.chain > 1;
        let mut c: Vec<Reg> = match apart {
            true => vec![code.mov(self.sum, 0f32); sum.len()],
            false => sum.to_vec(),
        };
        for [a, b] in terms {
            let d = match apart {
                true => (0..sum.len()).map(|_| code.reg_of(self.sum)).collect(),
                false => sum.to_vec(),
            };
            code.push(Inst::MatrixMultiply {
                shape: self.shape.map(|n| n as u32),
                accumulator: self.sum,
                operands: self.operands,
                d: d.clone(),
                a: a.to_vec(),
                b: b.to_vec(),
                c,
            });
            c = d;
        }
        if apart {
            for (sum, part) in sum.iter().zip(c) {
                code.binary_into(*sum, Binary::Add, self.sum, *sum, part);
            }
        }
    }

    /// Elements of 16 bits, or pairs of 8-bit ones, of which [`Inst::LoadMatrix`] makes fragments.
    pub fn by_matrices(&self) -> bool {
        self.shape[2] >= 16
    }
}
