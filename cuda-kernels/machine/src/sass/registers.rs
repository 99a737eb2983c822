//! Registers that an instruction reads and writes.
//!
//! SASS names the first register of a group and gives its size by modifiers: `LDG.E.128 R4, …`
//! writes R4 to R7, `[R20.64]` reads R20 and R21. The rules here follow the operand lists of
//! NVIDIA's "CUDA Binary Utilities", "Instruction Set Reference". They serve an estimate of
//! latencies: a register too many delays the estimate of an instruction, it does not change
//! counts.

use super::Instruction;

/// A register of a lane or of a warp.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Register {
    /// `R5`.
    General(u32),
    /// `UR5`.
    Uniform(u32),
    /// `P5`.
    Predicate(u32),
    /// `UP5`.
    UniformPredicate(u32),
}

/// Registers of an instruction.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Registers {
    /// Written.
    pub writes: Vec<Register>,
    /// Read; the guard included.
    pub reads: Vec<Register>,
}

/// Opcodes whose first operand is no result.
const WITHOUT_RESULT: [&str; 46] = [
    "ST",
    "STG",
    "STS",
    "STL",
    "STSM",
    "STT",
    "STTM",
    "RED",
    "REDG",
    "REDAS",
    "REDS",
    "LDGSTS",
    "BRA",
    "BRX",
    "JMP",
    "JMX",
    "CALL",
    "RET",
    "EXIT",
    "BSSY",
    "BSYNC",
    "BREAK",
    "BAR",
    "MEMBAR",
    "NOP",
    "WARPSYNC",
    "DEPBAR",
    "LDGDEPBAR",
    "CCTL",
    "ERRBAR",
    "UBLKCP",
    "UTMALDG",
    "UTMASTG",
    "UTMAREDG",
    "UTMAPF",
    "ARRIVES",
    "NANOSLEEP",
    "KILL",
    "BPT",
    "FENCE",
    "WARPGROUP",
    "UTMACMDFLUSH",
    "UTMACCTL",
    "UBLKPF",
    "YIELD",
    "STAS",
];

impl Instruction {
    /// The registers that it reads and writes.
    pub fn registers(&self) -> Registers {
        let mut found = Registers::default();
        if let Some(guard) = &self.guard {
            found.reads.extend(group(&guard.predicate, 1));
        }
        let mut operands = self.operands.iter().peekable();
        if !WITHOUT_RESULT.contains(&self.opcode.as_str()) {
            // Predicates before the result, the result, predicates right behind it.
            while let Some(o) = operands.next_if(|o| is_predicate(o)) {
                found.writes.extend(group(o, 1));
            }
            let only_predicates = self.opcode.contains("SETP") || self.opcode == "PLOP3";
            if !only_predicates {
                if let Some(o) = operands.next() {
                    let count = self.result_registers();
                    let (writes, also_reads) = result(o, count);
                    found.writes.extend(writes);
                    found.reads.extend(also_reads);
                }
                while let Some(o) = operands.next_if(|o| is_predicate(o) && !o.starts_with('!')) {
                    found.writes.extend(group(o, 1));
                }
            }
        }
        for (position, operand) in operands.enumerate() {
            let count = self.source_registers(position);
            found.reads.extend(registers_in(operand, count));
        }
        found
    }

    fn is_wide(&self) -> bool {
        matches!(self.opcode.as_str(), "DADD" | "DMUL" | "DFMA" | "DSETP" | "DMNMX")
    }

    /// Registers of the result.
    fn result_registers(&self) -> u32 {
        match self.opcode.as_str() {
            "HMMA" | "IMMA" | "QMMA" | "OMMA" | "BMMA" => {
                let half = self.modifiers.iter().find(|m| ["F16", "F32"].contains(&m.as_str()));
                if half.is_some_and(|m| m == "F16") { 2 } else { 4 }
            }
            "DMMA" => 4,
            // Each warp holds a quarter of the 64 rows: N/2 registers of f32.
            "HGMMA" | "IGMMA" | "QGMMA" | "BGMMA" => {
                let shape = self.modifiers.iter().find_map(|m| m.split('x').nth(1)?.parse().ok());
                let columns: u32 = shape.filter(|n| *n <= 256).unwrap_or(8);
                if self.has("F16") { columns / 4 } else { columns / 2 }
            }
            "LDSM" => match () {
                () if self.has("4") || self.has("x4") => 4,
                () if self.has("2") || self.has("x2") => 2,
                () => 1,
            },
            "IMAD" | "UIMAD" if self.has("WIDE") => 2,
            "CS2R" if !self.has("32") => 2,
            "FFMA2" | "FADD2" | "FMUL2" => 2,
            "F2F" | "I2F" if self.has("F64") => 2,
            "F2I" | "F2F" if self.has("S64") || self.has("U64") => 2,
            _ if self.is_wide() => 2,
            "LDG" | "LD" | "LDS" | "LDL" | "LDC" | "ULDC" | "LDCU" | "ATOM" | "ATOMG" | "ATOMS"
            | "MOV64IUR" => self.width().div_ceil(4),
            _ => 1,
        }
    }

    /// Registers of a source operand that does not give its own size.
    fn source_registers(&self, position: usize) -> u32 {
        match self.opcode.as_str() {
            "HMMA" | "IMMA" | "QMMA" | "OMMA" => match position {
                0 => 4,
                1 => 2,
                _ => self.result_registers(),
            },
            "DMMA" => 2,
            "ST" | "STG" | "STS" | "STL" | "STAS" if position > 0 => self.width().div_ceil(4),
            "STSM" if position > 0 => self.result_registers(),
            "RED" | "REDG" | "ATOM" | "ATOMG" | "ATOMS" if position > 0 => self.width().div_ceil(4),
            "IMAD" | "UIMAD" if self.has("WIDE") && position == 2 => 2,
            "FFMA2" | "FADD2" | "FMUL2" => 2,
            _ if self.is_wide() => 2,
            _ => 1,
        }
    }
}

fn is_predicate(operand: &str) -> bool {
    let name = operand.trim_start_matches('!');
    let number = name.strip_prefix("UP").or_else(|| name.strip_prefix('P'));
    number.is_some_and(|n| n == "T" || n.parse::<u32>().is_ok())
}

/// A result, and registers that it reads: an address in brackets is read.
fn result(operand: &str, count: u32) -> (Vec<Register>, Vec<Register>) {
    match operand.contains('[') {
        true => (Vec::new(), registers_in(operand, 1)),
        false => (registers_in(operand, count), Vec::new()),
    }
}

/// The registers that a name stands for, `count` of them from the first.
fn group(name: &str, count: u32) -> Vec<Register> {
    let name = name.trim_start_matches(['!', '-', '~', '|', '+']);
    let (make, digits): (fn(u32) -> Register, &str) = if let Some(d) = name.strip_prefix("UR") {
        (Register::Uniform, d)
    } else if let Some(d) = name.strip_prefix("UP") {
        (Register::UniformPredicate, d)
    } else if let Some(d) = name.strip_prefix('R') {
        (Register::General, d)
    } else if let Some(d) = name.strip_prefix('P') {
        (Register::Predicate, d)
    } else {
        return Vec::new();
    };
    // `RZ`, `PT` and special registers have no number; no number has more than three digits.
    match digits.parse::<u32>() {
        Ok(first) if first < 1000 => (first..first + count).map(make).collect(),
        _ => Vec::new(),
    }
}

/// All registers that an operand names. A suffix `.64` makes two registers of a name.
fn registers_in(operand: &str, count: u32) -> Vec<Register> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '_';
    let words = operand.split(|c: char| !is_word(c)).filter(|w| !w.is_empty());
    let mut found = Vec::new();
    for word in words {
        let mut parts = word.split('.');
        let name = parts.next().unwrap_or("");
        let is_pair = parts.any(|p| p == "64");
        // An address in brackets has a register or two, whatever the width of the data.
        let count = match (is_pair, operand.contains('[')) {
            (true, _) => 2,
            (false, true) => 1,
            (false, false) => count,
        };
        found.extend(group(name, count));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::Module;
    use super::Register::{General as R, Predicate as P, Uniform as U};
    use super::*;

    fn registers(text: &str) -> Registers {
        let text = format!(
            ".target sm_90\n.section .text.k,\"ax\"\n.type k,@function\nk:\n/*0000*/ {text} ;\n"
        );
        Module::parse(&text).unwrap().kernels[0].code[0].registers()
    }

    #[test]
    fn operands_have_their_sizes() {
        let cases: [(&str, Vec<Register>, Vec<Register>); 11] = [
            ("FFMA R0, R1.reuse, -R2, R3", vec![R(0)], vec![R(1), R(2), R(3)]),
            ("@!P1 FADD R0, |R1|, -RZ", vec![R(0)], vec![P(1), R(1)]),
            (
                "LDG.E.128.CONSTANT R4, desc[UR4][R20.64+0x200]",
                vec![R(4), R(5), R(6), R(7)],
                vec![U(4), R(20), R(21)],
            ),
            ("STG.E.64 desc[UR6][R4.64], R16", vec![], vec![U(6), R(4), R(5), R(16), R(17)]),
            ("ISETP.GE.AND P0, PT, R5, 0x200, PT", vec![P(0)], vec![R(5)]),
            ("LEA R20, P0, R0, UR4, 0x2", vec![R(20), P(0)], vec![R(0), U(4)]),
            ("SHFL.DOWN PT, R5, R4, 0x10, 0x1f", vec![R(5)], vec![R(4)]),
            (
                "HMMA.16816.F32 R0, R4, R8, R0",
                vec![R(0), R(1), R(2), R(3)],
                vec![R(4), R(5), R(6), R(7), R(8), R(9), R(0), R(1), R(2), R(3)],
            ),
            ("DFMA R0, R2, R4, R6", vec![R(0), R(1)], vec![R(2), R(3), R(4), R(5), R(6), R(7)]),
            ("IMAD.WIDE R2, R4, R5, R6", vec![R(2), R(3)], vec![R(4), R(5), R(6), R(7)]),
            ("LDS.64 R2, [R9+0x10]", vec![R(2), R(3)], vec![R(9)]),
        ];
        for (text, writes, reads) in cases {
            assert_eq!(registers(text), Registers { writes, reads }, "{text}");
        }
    }
}
