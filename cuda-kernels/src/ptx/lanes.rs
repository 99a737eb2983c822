//! Shuffles: values that move between lanes of a warp.

use super::builder::Code;
use super::instruction::{Inst, Shuffle};
use super::types::{Operand, Reg, Type, Width};

/// All lanes of a warp.
const ALL: i64 = 0xffff_ffff;

/// The source lane of a shuffle.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Lanes {
    /// Kind of `lane`.
    pub mode: Shuffle,
    /// Distance, bits or number of a lane.
    pub lane: Operand,
    /// Lane segments (PTX ISA, `shfl.sync`: operand c).
    pub clamp: u32,
    /// Mask of the participating lanes.
    pub members: Operand,
}

impl Lanes {
    /// In the whole warp, the lane with this number.
    pub fn of(number: impl Into<Operand>) -> Self {
        Lanes { mode: Shuffle::Index, lane: number.into(), clamp: 31, members: Operand::Int(ALL) }
    }

    /// In the whole warp, the lane whose number differs in these bits.
    pub fn butterfly(bits: impl Into<Operand>) -> Self {
        Lanes { mode: Shuffle::Butterfly, lane: bits.into(), clamp: 31, members: Operand::Int(ALL) }
    }
}

impl Code {
    /// The value of the source lane's register, of 32 bits or of 64; the halves of 64 bits are
    /// shuffled separately.
    pub fn shuffle(&mut self, from: &Lanes, value: Reg) -> Reg {
        let result = self.reg(value.width);
        self.shuffle_into(result, from, value);
        result
    }

    /// [`shuffle`](Self::shuffle) into an existing register.
    pub fn shuffle_into(&mut self, result: Reg, from: &Lanes, value: Reg) {
        if value.width == Width::B64 {
            let halves = [self.reg(Width::B32), self.reg(Width::B32)];
            self.push(Inst::Unpack(Type::B64, halves.to_vec(), value));
            let halves = halves.map(|half| self.shuffle(from, half));
            self.push(Inst::Pack(Type::B64, result, halves.to_vec()));
            return;
        }
        assert_eq!(value.width, Width::B32, "predicates and halves are made words first");
        self.push(Inst::Shuffle(result, value, from.clone()));
    }
}
