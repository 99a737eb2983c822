//! Kernels in a module and their blocks.

use std::collections::BTreeMap;

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

    #[test]
    fn kernels_and_their_blocks_are_found_in_the_text() {
        let text = "// .entry no(\n.visible .entry a(\n.param .u64 p\n)\n.reqntid 128, 1, 1\n{\n}\n\
                    .entry b()\n.maxntid 16, 4 {\n}\n.entry c {";
        assert_eq!(entries(text), ["a", "b", "c"]);
        assert_eq!(threads(text), BTreeMap::from([("a".into(), 128), ("b".into(), 64)]));
    }
}
