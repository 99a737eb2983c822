//! Parsers for the output of `ptxas -v` and for the kernels in a module.

use std::collections::BTreeMap;

use wengert_core::{Diagnostic, Result};

/// Resources of a kernel.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Used {
    pub kernel: String,
    pub registers: u32,
    pub shared: u32,
    pub stack: u32,
    pub spills: (u32, u32),
}

/// Parses the kernels of an output, in its order.
///
/// ```text
/// ptxas info    : Compiling entry function 'k' for 'sm_80'
/// ptxas info    : Function properties for k
///     800 bytes stack frame, 832 bytes spill stores, 1080 bytes spill loads
/// ptxas info    : Used 32 registers, used 1 barriers, 800 bytes cumulative stack size, …
/// ptxas info    : Function properties for f
///     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
/// ```
///
/// The line `Used` ends with `1200 bytes smem, 360 bytes cmem[0]`. The functions after a kernel are
/// its callees; their spills count as the kernel's.
///
/// Errors: a line lacks its numbers.
pub fn parse(words: &str) -> Result<Vec<Used>> {
    let mut found: Vec<Used> = Vec::new();
    for line in words.lines() {
        if let Some(name) = between(line, "Compiling entry function '", "'") {
            found.push(Used { kernel: name.to_string(), ..Used::default() });
            continue;
        }
        let Some(last) = found.last_mut() else { continue };
        if line.contains("bytes stack frame") {
            last.stack = last.stack.max(before(line, " bytes stack frame")?);
            last.spills.0 += before(line, " bytes spill stores")?;
            last.spills.1 += before(line, " bytes spill loads")?;
        } else if line.contains(": Used ") {
            last.registers = before(line, " registers")?;
            if line.contains(" bytes smem") {
                last.shared = before(line, " bytes smem")?;
            }
            if line.contains(" bytes cumulative stack size") {
                last.stack = last.stack.max(before(line, " bytes cumulative stack size")?);
            }
        }
    }
    match found.iter().find(|u| u.registers == 0) {
        Some(u) => Err(Diagnostic::new(format!(
            "ptxas does not say how many registers `{}` uses",
            u.kernel
        ))),
        None => Ok(found),
    }
}

fn between<'a>(line: &'a str, start: &str, end: &str) -> Option<&'a str> {
    line.split_once(start)?.1.split_once(end).map(|(name, _)| name)
}

/// The number before `words` in a line.
fn before(line: &str, words: &str) -> Result<u32> {
    let number = line.split_once(words).and_then(|(start, _)| start.rsplit([' ', '\t']).next());
    number.and_then(|n| n.parse().ok()).ok_or_else(|| {
        Diagnostic::new(format!("no number before `{}` in `{}`", words.trim(), line.trim()))
    })
}

/// The names of a module's kernels.
pub fn entries(text: &str) -> Vec<&str> {
    // Comments are removed, since they may contain any text.
    let code = text.lines().map(|l| l.split("//").next().unwrap_or(""));
    let name = |rest: &'_ str| rest.trim_start().split(['(', ' ', '\t', '{']).next().map(str::len);
    code.filter_map(|l| l.split_once(".entry").map(|(_, rest)| rest.trim_start()))
        .filter_map(|rest| name(rest).map(|n| &rest[..n]))
        .collect()
}

/// Threads of a block by the kernel's name: the product of the extents in `.reqntid` or
/// `.maxntid`.
pub fn threads(text: &str) -> BTreeMap<String, u32> {
    let mut found = BTreeMap::new();
    let mut kernel = "";
    for line in text.lines().map(|l| l.split("//").next().unwrap_or("").trim()) {
        if let Some(name) = entries(line).first() {
            kernel = name;
        }
        let directive = line.split_once(".reqntid").or_else(|| line.split_once(".maxntid"));
        if let Some((_, numbers)) = directive {
            let numbers = numbers.trim_end_matches('{').split(',').map(|n| n.trim().parse::<u32>());
            if let Ok(product) = numbers.product() {
                found.insert(kernel.to_string(), product);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k2' for 'sm_80'
ptxas info    : Function properties for k2
    160 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 0 barriers, 168 bytes cumulative stack size, \
    360 bytes cmem[0]
ptxas info    : Compile time = 9.879 ms
ptxas info    : Function properties for f
    0 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Compiling entry function 'k' for 'sm_80'
ptxas info    : Function properties for k
    800 bytes stack frame, 832 bytes spill stores, 1080 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 1200 bytes smem, 360 bytes cmem[0]
";

    #[test]
    fn numbers_are_read_and_calls_are_counted() {
        let found = parse(WORDS).unwrap();
        let k2 = Used { kernel: "k2".into(), registers: 40, shared: 0, stack: 168, spills: (4, 8) };
        let k = Used {
            kernel: "k".into(),
            registers: 32,
            shared: 1200,
            stack: 800,
            spills: (832, 1080),
        };
        assert_eq!(found, [k2, k]);
    }

    #[test]
    fn an_output_that_says_too_little_is_an_error() {
        let cut: String = WORDS.lines().take(4).collect::<Vec<_>>().join("\n");
        assert!(parse(&cut).unwrap_err().to_string().contains("k2"));
        assert!(parse(&WORDS.replace("40 registers", "many registers")).is_err());
    }

    #[test]
    fn kernels_and_their_blocks_are_found_in_the_text() {
        let text = "// .entry no(\n.visible .entry a(\n.param .u64 p\n)\n.reqntid 128, 1, 1\n{\n}\n\
                    .entry b()\n.maxntid 16, 4 {\n}\n.entry c {";
        assert_eq!(entries(text), ["a", "b", "c"]);
        assert_eq!(threads(text), BTreeMap::from([("a".into(), 128), ("b".into(), 64)]));
    }
}
