//! Instructions of a PTX text by line.
//!
//! The join of machine code and counts asks of a line which PTX instruction it has, and which
//! machine instruction this normally becomes. This needs no full parser: a statement is the text
//! up to a semicolon, and its first word is the opcode.

use std::collections::BTreeMap;

/// The instruction of a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statement {
    /// Opcode with modifiers: `fma.rn.f32`.
    pub opcode: String,
    /// Whether a predicate guards it.
    pub is_guarded: bool,
}

/// The instructions by the line where they begin, from 1. Lines with several are left out.
pub fn statements(text: &str) -> BTreeMap<u32, Statement> {
    let text = without_comments(text);
    let mut found: BTreeMap<u32, Option<Statement>> = BTreeMap::new();
    let mut line = 1;
    // The statement so far, and the line where it began.
    let mut open: Option<(u32, String)> = None;
    for c in text.chars() {
        match c {
            ';' => {
                if let Some((at, statement)) = open.take()
                    && let Some(statement) = parse(&statement)
                {
                    let several = found.contains_key(&at);
                    found.insert(at, (!several).then_some(statement));
                }
            }
            // A brace ends nothing inside of a list of registers, whose words are not opcodes.
            '{' | '}' if open.is_none() => {}
            ':' if open.as_ref().is_some_and(|(_, s)| is_label(s)) => open = None,
            ')' if open
                .as_ref()
                .is_some_and(|(_, s)| s.starts_with('.') && s.contains(".entry")) =>
            {
                open = None;
            }
            '\n' => {
                line += 1;
                // A directive without a semicolon ends with its line.
                if open.as_ref().is_some_and(|(_, s)| is_line_directive(s)) {
                    open = None;
                }
                if let Some((_, s)) = &mut open {
                    s.push(' ');
                }
            }
            c if c.is_whitespace() && open.is_none() => {}
            c => match &mut open {
                Some((_, s)) => s.push(c),
                None => open = Some((line, c.to_string())),
            },
        }
    }
    found.into_iter().filter_map(|(at, s)| Some((at, s?))).collect()
}

fn is_label(text: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_$%".contains(c);
    !text.is_empty() && text.trim_end().chars().all(is_name)
}

fn is_line_directive(text: &str) -> bool {
    let words = [
        ".version",
        ".target",
        ".address_size",
        ".file",
        ".loc",
        ".reqntid",
        ".maxntid",
        ".minnctapersm",
        ".maxnreg",
        ".section",
        ".noreturn",
        ".pragma",
        ".maxclusterrank",
        ".explicitcluster",
        ".reqnctapercluster",
    ];
    words.iter().any(|w| text.starts_with(w))
}

fn without_comments(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("//").into_iter().chain(rest.find("/*")).min() {
        kept.push_str(&rest[..at]);
        let is_line = rest[at..].starts_with("//");
        let end = match is_line {
            true => rest[at..].find('\n').map_or(rest.len(), |e| at + e),
            false => rest[at + 2..].find("*/").map_or(rest.len(), |e| at + 2 + e + 2),
        };
        // Lines keep their numbers.
        kept.extend(rest[at..end].chars().filter(|c| *c == '\n'));
        rest = &rest[end..];
    }
    kept.push_str(rest);
    kept
}

fn parse(text: &str) -> Option<Statement> {
    let text = text.trim().trim_start_matches(['{', ' ']);
    let (is_guarded, text) = match text.strip_prefix('@') {
        Some(rest) => (true, rest.split_once([' ', '\t'])?.1.trim()),
        None => (false, text),
    };
    let opcode = text.split([' ', '\t']).next()?;
    let is_opcode = opcode.starts_with(|c: char| c.is_ascii_lowercase());
    is_opcode.then(|| Statement { opcode: opcode.to_owned(), is_guarded })
}

/// Machine opcodes, one of which a PTX instruction becomes once, whatever else it becomes. `None`
/// if it may be folded into others, becomes several, or has no such opcode.
pub fn expected(opcode: &str) -> Option<&'static [&'static str]> {
    let mut parts = opcode.split('.');
    let base = parts.next()?;
    let parts: Vec<&str> = parts.collect();
    let has = |m: &str| parts.contains(&m);
    let kind = parts.last().copied().unwrap_or("");
    let found: &[&str] = match base {
        "fma" if kind == "f32" => &["FFMA"],
        "add" | "sub" if kind == "f32" && has("rn") => &["FADD", "FFMA"],
        "mul" if kind == "f32" && has("rn") => &["FMUL", "FFMA"],
        "fma" if matches!(kind, "f16x2" | "bf16x2") => &["HFMA2"],
        "fma" if kind == "f64" => &["DFMA"],
        "add" | "sub" if kind == "f64" => &["DADD", "DFMA"],
        "mul" if kind == "f64" => &["DMUL", "DFMA"],
        "ex2" | "lg2" | "rsqrt" | "sin" | "cos" | "tanh" if has("approx") => &["MUFU"],
        "rcp" | "sqrt" if has("approx") => &["MUFU"],
        "shfl" => &["SHFL"],
        "ld" if has("global") => &["LDG"],
        "st" if has("global") => &["STG"],
        "ld" if has("shared") => &["LDS"],
        "st" if has("shared") => &["STS"],
        "atom" if has("global") => &["ATOMG", "ATOM"],
        "red" if has("global") => &["RED", "REDG", "ATOMG"],
        "ldmatrix" => &["LDSM"],
        "cp" if has("async") && (has("ca") || has("cg")) => &["LDGSTS"],
        "bar" | "barrier" => &["BAR"],
        "mma" if has("m16n8k16") && (has("f16") || has("bf16")) => &["HMMA"],
        "mma" if has("m16n8k8") && has("tf32") => &["HMMA"],
        _ => return None,
    };
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_have_the_line_of_their_first_word() {
        let text = "\
.version 8.0
.target sm_80 // add.f32 %r0;
.visible .entry k(
    .param .u64 p0
)
.reqntid 64, 1, 1
{
    .reg .b32 %r<9>;
    ld.global.v2.b32 {%r1, %r2},
        [%d2];
$L0: @!%p0 fma.rn.f32 %r0, %r1, %r2, %r0; /* two
lines */ bra $L0;
    mov.b32 %r1, 0; mov.b32 %r2, 0;
$L1:
    ret;
}
";
        let found = statements(text);
        let seen: Vec<_> =
            found.iter().map(|(l, s)| (*l, s.opcode.as_str(), s.is_guarded)).collect();
        assert_eq!(
            seen,
            [
                (9, "ld.global.v2.b32", false),
                (11, "fma.rn.f32", true),
                (12, "bra", false),
                (15, "ret", false)
            ]
        );
    }

    #[test]
    fn instructions_have_their_machine_opcode() {
        assert_eq!(expected("fma.rn.f32"), Some(&["FFMA"][..]));
        assert_eq!(expected("ld.global.nc.v4.b32"), Some(&["LDG"][..]));
        assert_eq!(expected("mul.rn.f32"), Some(&["FMUL", "FFMA"][..]));
        // May be contracted with an addition.
        assert_eq!(expected("mul.f32"), None);
        assert_eq!(expected("ld.param.u64"), None);
        assert_eq!(expected("div.rn.f32"), None);
    }
}
