//! Cost of an instruction: the pipe that executes it, and for how long.
//!
//! A multiprocessor has four partitions, each with a scheduler that issues one warp instruction
//! per clock, and pipes that take it. A **pipe** with n lanes on a multiprocessor has n/4 on each
//! partition and is busy for 32/(n/4) clocks with one warp instruction. Some pipes are shared by
//! the partitions; their cost is stated as if each partition had a quarter, which is the same in
//! total.
//!
//! [`cost`] first finds the [`Class`] of an opcode, then reads lanes from the card. An opcode
//! without a class is an error, so that no instruction is free by accident.
//!
//! Sources of the classes: Nsight Compute, Profiling Guide, "Pipelines"; CUDA Binary Utilities,
//! "Instruction Set Reference". Where f32 has 128 lanes (8.6 and later), they are two halves of
//! 64: `FMAHeavy`, which also multiplies integers, and `FMALite`. An f32 instruction takes either
//! half; an integer product takes the heavy one, so it counts against both [`Pipe::Fma`] and
//! [`Pipe::FmaHeavy`].

mod opcodes;
mod tensor;

use crate::card::Card;
use crate::sass::Instruction;

/// A unit of execution.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Pipe {
    /// Arithmetic of f32.
    Fma,
    /// The half of it that also multiplies integers.
    FmaHeavy,
    /// Integers, logic, comparisons, moves.
    Alu,
    /// Pairs of f16, where they have a pipe of their own (8.0).
    Half,
    /// f64.
    Double,
    /// Transcendental functions and conversions.
    Special,
    /// Memory instructions and shuffles.
    Memory,
    /// Tensor cores.
    Tensor,
    /// The uniform datapath.
    Uniform,
    /// Branches, barriers, constants, special registers.
    Control,
    /// Bulk copies.
    Bulk,
}

impl Pipe {
    /// Every pipe.
    pub const ALL: [Pipe; 11] = [
        Pipe::Fma,
        Pipe::FmaHeavy,
        Pipe::Alu,
        Pipe::Half,
        Pipe::Double,
        Pipe::Special,
        Pipe::Memory,
        Pipe::Tensor,
        Pipe::Uniform,
        Pipe::Control,
        Pipe::Bulk,
    ];

    /// Its name in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Pipe::Fma => "fma",
            Pipe::FmaHeavy => "fma heavy",
            Pipe::Alu => "alu",
            Pipe::Half => "half",
            Pipe::Double => "double",
            Pipe::Special => "special",
            Pipe::Memory => "memory",
            Pipe::Tensor => "tensor",
            Pipe::Uniform => "uniform",
            Pipe::Control => "control",
            Pipe::Bulk => "bulk",
        }
    }
}

/// Opcodes of one cost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// `FFMA`, `FADD`, `FMUL`.
    Float,
    /// Two f32 operations of a lane: `FFMA2`.
    FloatPair,
    /// `IMAD`.
    Multiply,
    /// `IMAD.WIDE`, `IMAD.HI`: two passes.
    MultiplyWide,
    /// `IADD3`, `LOP3`, `ISETP`, `MOV`.
    Integer,
    /// `HFMA2`.
    Half,
    /// `DFMA`.
    Double,
    /// `MUFU`, `I2F`, `POPC`.
    Special,
    /// A conversion from or to 64 bits.
    Convert64,
    /// Loads of global memory.
    GlobalLoad,
    /// Loads of shared memory.
    SharedLoad,
    /// Loads of local memory.
    LocalLoad,
    /// `SHFL`.
    Shuffle,
    /// Stores, reductions, cache control: no result is waited for.
    Store,
    /// `ATOM`: the result comes from L2.
    Atomic,
    /// Products of warps: `HMMA`.
    Tensor,
    /// Products of warp groups or of tensor memory: `HGMMA`, `UTCHMMA`.
    TensorAsynchronous,
    /// `UMOV`, `UIADD3`.
    Uniform,
    /// `LDC`, `S2R`.
    Constant,
    /// `BRA`, `EXIT`, `BSSY`.
    Branch,
    /// `BAR`.
    Barrier,
    /// Waits that take an issue slot only: `DEPBAR`, `NOP`.
    Wait,
    /// `UTMALDG`.
    Bulk,
}

/// The cost of one warp instruction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// Its class.
    pub class: Class,
    /// Pipes and for how many clocks one partition's share of them is busy; at most two.
    pub busy: [Option<(Pipe, f64)>; 2],
    /// Clocks until its result can be used, without those of a memory beyond L1.
    pub latency: f64,
}

/// An instruction whose cost is not known.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no cost is known for `{name}` on sm_{architecture}: {reason}")]
pub struct UnknownCost {
    /// The opcode with its modifiers.
    pub name: String,
    /// Compute capability.
    pub architecture: u32,
    /// The reason.
    pub reason: String,
}

/// The cost of an instruction on a card.
///
/// Errors: its opcode has no class; the card has no tensor cores for its types.
pub fn cost(i: &Instruction, card: &Card) -> Result<Cost, UnknownCost> {
    let unknown = |reason: &str| UnknownCost {
        name: i.name(),
        architecture: card.architecture.number,
        reason: reason.to_owned(),
    };
    let class = opcodes::class(i).ok_or_else(|| unknown("the opcode has no class"))?;
    let (rates, latencies) = (&card.architecture.rates, &card.architecture.latencies);
    // Clocks of a partition's share of a pipe with so many lanes on the multiprocessor.
    let clocks = |lanes: f64| 32.0 * PARTITIONS / lanes;
    let one = |pipe: Pipe, lanes: f64| [Some((pipe, clocks(lanes))), None];
    let is_split = rates.fma.value > rates.multiply.value;
    let heavy = |passes: f64| {
        let all = passes * clocks(rates.fma.value);
        let half = passes * clocks(rates.multiply.value);
        match is_split {
            true => [Some((Pipe::Fma, all)), Some((Pipe::FmaHeavy, half))],
            false => [Some((Pipe::Fma, half)), None],
        }
    };
    let busy = match class {
        Class::Float => one(Pipe::Fma, rates.fma.value),
        Class::FloatPair => one(Pipe::Fma, rates.fma.value / 2.0),
        Class::Multiply => heavy(1.0),
        Class::MultiplyWide => heavy(2.0),
        Class::Integer => one(Pipe::Alu, rates.alu.value),
        // 8.0 has a pipe of its own for pairs, with 64 lanes for bf16 (Guide, footnote of the
        // row of 16-bit floats). Later ones take the f32 pipe, or its heavy half.
        Class::Half if card.architecture.number == 80 => {
            let is_bf16 = i.modifiers.iter().any(|m| m.starts_with("BF16"));
            one(Pipe::Half, if is_bf16 { 64.0 } else { rates.half.value })
        }
        Class::Half if rates.half.value < rates.fma.value => heavy(1.0),
        Class::Half => one(Pipe::Fma, rates.half.value),
        Class::Double => one(Pipe::Double, rates.double.value),
        Class::Special => one(Pipe::Special, rates.special.value),
        Class::Convert64 => one(Pipe::Special, rates.convert_64.value),
        Class::GlobalLoad
        | Class::SharedLoad
        | Class::LocalLoad
        | Class::Shuffle
        | Class::Store
        | Class::Atomic => one(Pipe::Memory, rates.memory.value),
        Class::Tensor | Class::TensorAsynchronous => {
            let products = tensor::products(i).map_err(|reason| unknown(&reason))?;
            let rate = tensor::rate(i, &card.tensor).map_err(|reason| unknown(&reason))?;
            let share = match class {
                Class::Tensor => card.tensor.synchronous.value,
                _ => 1.0,
            };
            [Some((Pipe::Tensor, products * PARTITIONS / (rate * share))), None]
        }
        Class::Uniform => one(Pipe::Uniform, rates.uniform.value),
        Class::Constant | Class::Branch | Class::Barrier => one(Pipe::Control, rates.control.value),
        Class::Wait => [None, None],
        Class::Bulk => one(Pipe::Bulk, rates.bulk.value),
    };
    let latency = match class {
        Class::Float
        | Class::FloatPair
        | Class::Multiply
        | Class::MultiplyWide
        | Class::Integer
        | Class::Half => latencies.arithmetic.value,
        Class::Double => latencies.double.value,
        Class::Special | Class::Convert64 => latencies.special.value,
        Class::GlobalLoad | Class::LocalLoad | Class::Atomic => latencies.l1.value,
        Class::SharedLoad => latencies.shared.value,
        Class::Shuffle => latencies.shuffle.value,
        Class::Tensor => {
            let busy = busy[0].map_or(0.0, |(_, clocks)| clocks);
            latencies.tensor.value.max(busy)
        }
        Class::TensorAsynchronous => busy[0].map_or(0.0, |(_, clocks)| clocks),
        Class::Uniform | Class::Constant => match class {
            Class::Uniform => latencies.arithmetic.value * 2.0,
            _ => latencies.constant.value,
        },
        Class::Barrier => latencies.barrier.value,
        Class::Branch => latencies.branch.value,
        Class::Store | Class::Wait | Class::Bulk => 1.0,
    };
    Ok(Cost { class, busy, latency })
}

/// Partitions of a multiprocessor.
pub const PARTITIONS: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sass::Module;

    pub(crate) fn instruction(text: &str) -> Instruction {
        let text = format!(
            ".target sm_90\n.section .text.k,\"ax\"\n.type k,@function\nk:\n/*0000*/ {text} ;\n"
        );
        Module::parse(&text).unwrap().kernels[0].code[0].clone()
    }

    fn busy(text: &str, card: &str) -> Vec<(Pipe, f64)> {
        let card = Card::from_name(card).unwrap();
        let cost = cost(&instruction(text), card).unwrap();
        cost.busy.into_iter().flatten().collect()
    }

    #[test]
    fn clocks_follow_from_the_lanes() {
        // 16 and 32 lanes of f32 a partition.
        assert_eq!(busy("FFMA R0, R1, R2, R3", "a100"), [(Pipe::Fma, 2.0)]);
        assert_eq!(busy("FFMA R0, R1, R2, R3", "h100"), [(Pipe::Fma, 1.0)]);
        assert_eq!(busy("IMAD R0, R1, R2, R3", "a100"), [(Pipe::Fma, 2.0)]);
        let split = [(Pipe::Fma, 1.0), (Pipe::FmaHeavy, 2.0)];
        assert_eq!(busy("IMAD R0, R1, R2, R3", "h100"), split);
        assert_eq!(busy("MUFU.EX2 R0, R1", "h100"), [(Pipe::Special, 8.0)]);
        assert_eq!(busy("DFMA R0, R2, R4, R6", "rtx4090"), [(Pipe::Double, 64.0)]);
        assert_eq!(busy("HFMA2 R0, R1, R2, R3", "a100"), [(Pipe::Half, 1.0)]);
        assert_eq!(busy("HFMA2.BF16_V2 R0, R1, R2, R3", "a100"), [(Pipe::Half, 2.0)]);
        assert_eq!(busy("HFMA2 R0, R1, R2, R3", "rtx4090"), split);
        assert_eq!(busy("LDG.E R0, desc[UR4][R2.64]", "h100"), [(Pipe::Memory, 4.0)]);
        assert_eq!(busy("NOP", "h100"), []);
    }

    #[test]
    fn tensor_cores_take_the_time_of_their_shape() {
        // 2048 products at 1024 a clock and multiprocessor.
        assert_eq!(busy("HMMA.16816.F32 R0, R4, R8, R0", "a100"), [(Pipe::Tensor, 8.0)]);
        assert_eq!(busy("HMMA.16816.F32.BF16 R0, R4, R8, R0", "rtx4090"), [(Pipe::Tensor, 32.0)]);
        assert_eq!(busy("HMMA.16816.F16 R0, R4, R8, R0", "rtx4090"), [(Pipe::Tensor, 16.0)]);
        // A warp group: each warp has 16 of the 64 rows; 16·256·16/512 clocks.
        let group = busy("HGMMA.64x256x16.F32.BF16 R24, gdesc[UR8], R24, !UPT", "h100");
        assert_eq!(group, [(Pipe::Tensor, 128.0)]);
        let warp = busy("HMMA.16816.F32 R0, R4, R8, R0", "h100");
        assert!((warp[0].1 - 4.0 / 0.629).abs() < 1e-9);
        let latency = |card: &str| {
            let card = Card::from_name(card).unwrap();
            cost(&instruction("HMMA.16816.F32 R0, R4, R8, R0"), card).unwrap().latency
        };
        // Sun 2022, table 3.
        assert_eq!(latency("a100"), 24.7);
        // A product that keeps its tensor core busy for 32 clocks.
        assert!(latency("rtx4090") >= 32.0);
    }

    #[test]
    fn an_unknown_instruction_is_named() {
        let h100 = Card::from_name("h100").unwrap();
        let message =
            |text: &str, card: &Card| cost(&instruction(text), card).unwrap_err().to_string();
        assert!(message("FROB.X R0", h100).contains("`FROB.X` on sm_90"));
        let a100 = Card::from_name("a100").unwrap();
        assert!(message("QMMA.16832.F32.E4M3.E4M3 R0, R4, R8, R0", a100).contains("no such"));
    }
}
