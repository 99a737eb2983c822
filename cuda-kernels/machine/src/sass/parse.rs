//! Parser of disassembled text.
//!
//! The text is a sequence of lines. In a section with code, a line is one of: nothing, a comment,
//! a note of the PTX line, a directive, a label, an instruction. Other sections are skipped.
//!
//! ```text
//!     .section        .text.k,"ax",@progbits
//!         .type           k,@function
//! k:
//! .text.k:
//!     //## File ".nv_debug_ptx_txt", line 452
//!         /*0050*/               @P0 BRA `(.L_x_0) ;
//! .L_x_0:
//! ```

use super::{Guard, Instruction, Kernel, Module};

/// A line that is not understood.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line} of the disassembly: {message}")]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// The mistake.
    pub message: String,
}

/// Directives that may stand between instructions.
const DIRECTIVES: [&str; 15] = [
    ".align",
    ".global",
    ".globl",
    ".weak",
    ".local",
    ".type",
    ".size",
    ".other",
    ".sectionflags",
    ".sectioninfo",
    ".sectionentsize",
    ".elftype",
    ".headerflags",
    ".target",
    ".visible",
];

/// State of the parser.
#[derive(Default)]
struct Parser {
    architecture: Option<u32>,
    kernels: Vec<Kernel>,
    /// Whether the section has code.
    in_code: bool,
    /// Names that `.type NAME,@function` declared in this section.
    functions: Vec<String>,
    /// The PTX line of the next instructions.
    line: Option<u32>,
}

pub(super) fn module(text: &str) -> Result<Module, ParseError> {
    let mut parser = Parser::default();
    for (index, line) in text.lines().enumerate() {
        parser.line(line.trim()).map_err(|message| ParseError { line: index + 1, message })?;
    }
    let architecture = parser.architecture.ok_or_else(|| ParseError {
        line: text.lines().count(),
        message: "the text ends without `.target` or a flag of the architecture".to_owned(),
    })?;
    Ok(Module { architecture, kernels: parser.kernels })
}

impl Parser {
    fn line(&mut self, line: &str) -> Result<(), String> {
        if let Some(rest) = line.strip_prefix(".section") {
            // Other directives begin with the same letters.
            if rest.starts_with([' ', '\t']) {
                self.section(rest.trim());
                return Ok(());
            }
        }
        if let Some(rest) = line.strip_prefix(".target") {
            self.architecture = Some(target(rest.trim())?);
            return Ok(());
        }
        if let Some(rest) = line.strip_prefix(".headerflags") {
            // Older cubins give the architecture here.
            self.architecture = self.architecture.or(flagged(rest));
            return Ok(());
        }
        if !self.in_code || line.is_empty() {
            return Ok(());
        }
        if let Some(note) = line.strip_prefix("//##") {
            self.line = Some(note_line(note)?);
        } else if line.starts_with("/*") {
            self.instruction(line)?;
        } else if line.starts_with("//") {
        } else if let Some(label) = line.strip_suffix(':') {
            self.label(label)?;
        } else if line.starts_with('.') {
            self.directive(line)?;
        } else {
            return Err(format!("`{line}` is no instruction, label, directive or comment"));
        }
        Ok(())
    }

    fn section(&mut self, rest: &str) {
        let name = rest.split(',').next().unwrap_or("").trim();
        self.in_code = name.starts_with(".text.");
        if let Some(name) = name.strip_prefix(".text.") {
            self.kernels.push(Kernel { name: name.to_owned(), ..Kernel::default() });
            self.functions.clear();
            self.line = None;
        }
    }

    fn directive(&mut self, line: &str) -> Result<(), String> {
        let word = line.split([' ', '\t']).next().unwrap_or("");
        if !DIRECTIVES.contains(&word) {
            return Err(format!("unknown directive `{word}` between instructions"));
        }
        if word == ".type"
            && let Some(name) = line[word.len()..].trim().strip_suffix(",@function")
        {
            self.functions.push(name.trim().to_owned());
        }
        Ok(())
    }

    fn label(&mut self, label: &str) -> Result<(), String> {
        let kernel = self.kernels.last_mut().expect("a section with code has begun");
        let index = kernel.code.len();
        // The section's own label and the kernel's are the same place.
        if kernel.labels.insert(label.to_owned(), index).is_some() {
            return Err(format!("label `{label}` is defined twice"));
        }
        if self.functions.iter().any(|f| f == label) {
            kernel.functions.push((label.to_owned(), index));
            self.line = None;
        }
        Ok(())
    }

    fn instruction(&mut self, line: &str) -> Result<(), String> {
        let (address, rest) = line[2..].split_once("*/").ok_or("the address has no end")?;
        let address = u64::from_str_radix(address.trim(), 16)
            .map_err(|_| format!("`{address}` is no address"))?;
        let kernel = self.kernels.last_mut().expect("a section with code has begun");
        if kernel.functions.is_empty() {
            return Err("an instruction stands before the first function".to_owned());
        }
        let text = rest.split_once(';').ok_or("the instruction has no `;`")?.0.trim();
        let mut instruction = parse_instruction(text)?;
        instruction.address = address;
        instruction.line = self.line;
        kernel.code.push(instruction);
        Ok(())
    }
}

/// The number in `sm_90` or `sm_90a`.
fn target(text: &str) -> Result<u32, String> {
    let number = text.strip_prefix("sm_").unwrap_or("");
    let digits = number.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    digits.parse().map_err(|_| format!("`{text}` is no target"))
}

/// The number in `@"EF_CUDA_64BIT_ADDRESS EF_CUDA_SM80 …"`.
fn flagged(flags: &str) -> Option<u32> {
    let digits = flags.split_once("EF_CUDA_SM")?.1;
    digits.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The number in ` File ".nv_debug_ptx_txt", line 452`; of an inlined place, the first one, which
/// is the instruction's own.
fn note_line(note: &str) -> Result<u32, String> {
    let number = note.split_once(", line ").map(|(_, rest)| rest);
    let digits = number.and_then(|n| n.split(|c: char| !c.is_ascii_digit()).next());
    digits.and_then(|d| d.parse().ok()).ok_or_else(|| format!("`{note}` names no line"))
}

fn parse_instruction(text: &str) -> Result<Instruction, String> {
    // Targets of indirect branches and other remarks: (*"BRANCH_TARGETS .L_x_1,.L_x_2"*).
    let (text, remark) = match text.split_once("(*") {
        Some((start, remark)) => (start.trim(), remark),
        None => (text, ""),
    };
    let (guard, text) = match text.strip_prefix('@') {
        Some(rest) => {
            let (word, rest) =
                rest.split_once([' ', '\t']).ok_or("a guard without an instruction")?;
            let predicate = word.trim_start_matches('!').to_owned();
            let is_predicate = predicate.starts_with('P') || predicate.starts_with("UP");
            if !is_predicate {
                return Err(format!("`@{word}` is no guard"));
            }
            (Some(Guard { predicate, negated: word.starts_with('!') }), rest.trim())
        }
        None => (None, text),
    };
    let (name, operands) = text.split_once([' ', '\t']).unwrap_or((text, ""));
    let mut parts = name.split('.').map(str::to_owned);
    let opcode = parts.next().unwrap_or_default();
    let is_opcode = opcode.starts_with(|c: char| c.is_ascii_uppercase())
        && opcode.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    if !is_opcode {
        return Err(format!("`{name}` is no opcode"));
    }
    let operands: Vec<String> =
        operands.split(',').map(|o| o.trim().to_owned()).filter(|o| !o.is_empty()).collect();
    let mut targets: Vec<String> = operands.iter().filter_map(|o| named_label(o)).collect();
    if let Some(list) = remark.split_once("BRANCH_TARGETS").map(|(_, list)| list) {
        let list = list.split('"').next().unwrap_or("");
        targets.extend(list.split([',', ' ']).filter(|t| !t.is_empty()).map(str::to_owned));
    }
    Ok(Instruction {
        guard,
        opcode,
        modifiers: parts.collect(),
        operands,
        targets,
        ..Instruction::default()
    })
}

/// The label in an operand such as `` `(.L_x_0) ``.
fn named_label(operand: &str) -> Option<String> {
    let (_, rest) = operand.split_once("`(")?;
    let label = rest.split_once(')')?.0;
    Some(label.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Instruction {
        parse_instruction(text).unwrap()
    }

    #[test]
    fn instructions_are_taken_apart() {
        let load = one("LDG.E.128.CONSTANT R4, desc[UR4][R20.64+0x200]");
        assert_eq!(load.name(), "LDG.E.128.CONSTANT");
        assert_eq!((load.width(), load.guard.clone()), (16, None));
        assert_eq!(load.operands, ["R4", "desc[UR4][R20.64+0x200]"]);
        let branch = one("@!P0 BRA `(.L_x_1)");
        assert!(branch.guard.as_ref().unwrap().negated);
        assert_eq!(branch.targets, [".L_x_1"]);
        let indirect = one("BRX R2 -0x1a0 (*\"BRANCH_TARGETS .L_x_1,.L_x_2\"*)");
        assert_eq!(indirect.targets, [".L_x_1", ".L_x_2"]);
        let call = one("CALL.REL.NOINC `($k$__cuda_sm20_div_rn_f32)");
        assert_eq!(call.targets, ["$k$__cuda_sm20_div_rn_f32"]);
        assert_eq!(one("NOP").opcode, "NOP");
    }

    #[test]
    fn every_malformed_line_is_named() {
        let start = "\t.target\tsm_80\n\t.section\t.text.k,\"ax\",@progbits\n\
                     .type k,@function\n";
        let cases = [
            ("k:\n/*0000 NOP ;", "address"),
            ("k:\n/*00x0*/ NOP ;", "no address"),
            ("/*0000*/ NOP ;", "before the first function"),
            ("k:\n/*0000*/ NOP", "no `;`"),
            ("k:\n/*0000*/ nop ;", "no opcode"),
            ("k:\n/*0000*/ @R0 NOP ;", "no guard"),
            ("k:\n/*0000*/ @P0 ;", "guard without"),
            ("k:\nk:", "twice"),
            ("k:\nwhatever", "no instruction"),
            ("k:\n.word 3", "unknown directive"),
            ("k:\n//## File \"x\"", "names no line"),
        ];
        for (lines, message) in cases {
            let found = module(&format!("{start}{lines}\n")).unwrap_err();
            assert!(found.message.contains(message), "{lines}: {found}");
            let expected = 3 + lines.lines().count();
            assert_eq!(found.line, expected, "{lines}: {found}");
        }
        assert!(module(".target sm_x").unwrap_err().message.contains("no target"));
        assert!(module("\n\n").unwrap_err().message.contains(".target"));
    }

    #[test]
    fn sections_without_code_are_skipped() {
        let text = ".target sm_90a\n.section .nv.info,\"\",@x\n.byte 0x04, 0x2f\nanything\n\
                    .section .text.k,\"ax\",@progbits\n.type k,@function\nk:\n.text.k:\n\
                    /*0000*/ EXIT ;\n.section .nv.shared.k,\"aw\"\n.zero 4\n";
        let found = module(text).unwrap();
        assert_eq!((found.architecture, found.kernels.len()), (90, 1));
        assert_eq!(found.kernels[0].functions, [("k".to_owned(), 0)]);
        let old = text.replace(".target sm_90a", ".headerflags @\"EF_CUDA_X EF_CUDA_SM80 Y\"");
        assert_eq!(module(&old).unwrap().architecture, 80);
    }
}
