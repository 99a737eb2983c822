//! Allowed spills with their reasons.

use wengert_core::{Diagnostic, Result};

use super::Measure;

/// The list of allowed spills.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Allowed {
    lines: Vec<Line>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Line {
    kernel: String,
    architecture: String,
    bytes: u32,
    reason: String,
}

impl Allowed {
    /// A list that allows no spill.
    pub fn nothing() -> Allowed {
        Allowed::default()
    }

    /// The repository's list, `ci/allowed-spills.txt`.
    ///
    /// Errors: a line of it is malformed.
    pub fn of_the_repository() -> Result<Allowed> {
        Allowed::parse(include_str!("../../allowed-spills.txt"))
    }

    /// Parses lines `KERNEL ARCHITECTURE BYTES REASON…`; `#` begins a comment. A kernel's name
    /// may end in `*`, the architecture may be `all`. BYTES bounds the stores and the loads
    /// separately.
    ///
    /// Errors: a line is malformed, or has no reason.
    pub fn parse(text: &str) -> Result<Allowed> {
        let code = text.lines().map(|l| l.split('#').next().unwrap_or("").trim());
        let lines = code.enumerate().filter(|(_, l)| !l.is_empty()).map(|(number, line)| {
            let mut words = line.split_whitespace();
            let mut word = || words.next().map(str::to_string);
            let (kernel, architecture) = (word(), word());
            let bytes = word().and_then(|b| b.parse().ok());
            let reason = words.collect::<Vec<_>>().join(" ");
            match (kernel, architecture, bytes) {
                (Some(kernel), Some(architecture), Some(bytes)) if !reason.is_empty() => {
                    Ok(Line { kernel, architecture, bytes, reason })
                }
                _ => Err(Diagnostic::new(format!("allowed spills, line {}: `{line}`", number + 1))
                    .help("write `KERNEL ARCHITECTURE BYTES REASON`")),
            }
        });
        Ok(Allowed { lines: lines.collect::<Result<_>>()? })
    }

    /// The reason for allowing this spill, if it is allowed.
    pub fn reason(&self, measure: &Measure) -> Option<&str> {
        let name = |line: &Line| match line.kernel.strip_suffix('*') {
            Some(start) => measure.kernel.starts_with(start),
            None => measure.kernel == line.kernel,
        };
        let fits = |line: &&Line| {
            name(line)
                && (line.architecture == "all" || line.architecture == measure.architecture.name())
                && measure.spills.0.max(measure.spills.1) <= line.bytes
        };
        self.lines.iter().find(fits).map(|l| l.reason.as_str())
    }
}
