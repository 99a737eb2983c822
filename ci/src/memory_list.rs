//! The rule that `docs/memory-safety.md` lists every public function that takes memory, of the
//! kernel crates and of the transport.
//!
//! Sources are read line by line, not parsed. A public function is a `pub fn` in an `impl` of a
//! public type, or a free function in a reachable file. Files are reachable through public
//! modules, and through private ones with a re-export.

use crate::sources::Source;
use std::collections::BTreeSet;

const LIST: &str = "docs/memory-safety.md";
/// The crates, whose paths are also their section names.
const CRATES: [&str; 3] = ["cpu-kernels/src/", "cuda-kernels/src/", "transport/src/"];
/// Types that represent memory, and the spellings of pointers and slices of plain data.
const TYPES: [&str; 10] = [
    "Buffer",
    "Memory",
    "RunMemory",
    "Workspace",
    "AlignedBytes",
    "Address",
    "Operands",
    "Part",
    "NonNull",
    "Span",
];
const SPELT: [&str; 4] = ["*const ", "*mut ", "[u8]", "[T]"];

/// Functions missing from the list, and listed functions that do not exist.
pub fn differences(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    let mut there: BTreeSet<String> = BTreeSet::new();
    let list = sources.iter().find(|s| s.path == LIST).map_or("", |s| s.text.as_str());
    let listed: BTreeSet<&str> = list
        .lines()
        .filter_map(|l| l.strip_prefix("| `")?.split_once("` |").map(|(name, _)| name))
        .collect();
    for of_crate in CRATES {
        let of_crate: Vec<&Source> = sources
            .iter()
            .filter(|s| s.path.starts_with(of_crate) && s.is_rust() && !s.is_test())
            .collect();
        let reachable = |source: &&&Source| is_reachable(source, &of_crate);
        let public: BTreeSet<&str> =
            of_crate.iter().filter(reachable).flat_map(|s| public_types(s)).collect();
        for source in &of_crate {
            for (line, name) in functions(source, &public, is_reachable(source, &of_crate)) {
                if !listed.contains(name.as_str()) {
                    found.push(format!(
                        "{}:{line}: `{name}` takes or gives memory and is not on \
                         the list of {LIST}",
                        source.path
                    ));
                }
                there.insert(name);
            }
        }
    }
    // Skipped for a part of the sources, which would lack listed functions.
    if sources.iter().any(|s| s.path == LIST) {
        let gone = listed.iter().filter(|name| !there.contains(**name));
        found.extend(gone.map(|name| {
            format!("{LIST}: `{name}` is no public function that takes or gives memory")
        }));
    }
    found
}

fn public_types(source: &Source) -> impl Iterator<Item = &str> {
    source.product_lines().filter_map(|(_, line)| {
        let rest =
            ["pub struct ", "pub enum ", "pub trait "].iter().find_map(|k| line.strip_prefix(k))?;
        rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
    })
}

/// Whether the modules around a file are public, or export some item of it again.
fn is_reachable(source: &Source, of_crate: &[&Source]) -> bool {
    let (_, inside) = source.path.split_once("/src/").expect("the crates have sources");
    let mut modules: Vec<&str> = inside.trim_end_matches(".rs").split('/').collect();
    if matches!(modules.last(), Some(&"mod" | &"lib")) {
        modules.pop();
    }
    (1..=modules.len()).all(|depth| {
        let (name, folder) = (modules[depth - 1], modules[..depth - 1].join("/"));
        let parents =
            [format!("/src/{folder}/mod.rs"), format!("/src/{folder}.rs"), "/src/lib.rs".into()];
        let parent = of_crate.iter().find(|s| {
            parents
                .iter()
                .take(if depth == 1 { 3 } else { 2 })
                .any(|end| s.path.ends_with(end.as_str()))
        });
        let says =
            |text: String| parent.is_some_and(|p| p.text.lines().any(|l| l.starts_with(&text)));
        says(format!("pub mod {name};")) || says(format!("pub use {name}::"))
    })
}

/// Public functions of a file that take or return memory, or are `unsafe`: their line and their
/// name after that of the type. Methods of a public type are public in every file.
fn functions(source: &Source, public: &BTreeSet<&str>, is_reachable: bool) -> Vec<(usize, String)> {
    let lines: Vec<(usize, &str)> = source.product_lines().collect();
    let mut found = Vec::new();
    // The type of the `impl` around a line, and whether it is public.
    let mut within: Option<(&str, bool)> = None;
    for (n, (number, line)) in lines.iter().enumerate() {
        if line.starts_with("impl") {
            let head = line.split_once(" for ").map_or(*line, |(_, of)| of);
            let head = head.trim_start_matches("impl").trim_start();
            let head = if head.starts_with('<') {
                head.split_once("> ").map_or("", |(_, rest)| rest)
            } else {
                head
            };
            let name = head.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
            within = Some((name, public.contains(name) && !line.contains(" for ")));
        } else if line.starts_with('}') {
            within = None;
        }
        let code = line.trim_start();
        let Some(rest) = code.strip_prefix("pub ") else { continue };
        let rest = rest.trim_start_matches("const ");
        let (is_unsafe, rest) =
            rest.strip_prefix("unsafe ").map_or((false, rest), |rest| (true, rest));
        let Some(rest) = rest.strip_prefix("fn ") else { continue };
        if !within.map_or(is_reachable, |(_, is_public)| is_public) || rest.starts_with('$') {
            continue;
        }
        let mut signature = String::new();
        for (_, line) in &lines[n..] {
            signature += line.split("//").next().unwrap_or("");
            if line.trim_end().ends_with(['{', ';', '}']) {
                break;
            }
        }
        let mut words = signature.split(|c: char| !c.is_alphanumeric() && c != '_');
        if is_unsafe
            || words.any(|w| TYPES.contains(&w))
            || SPELT.iter().any(|s| signature.contains(s))
        {
            let name = rest.split(['(', '<']).next().unwrap_or("");
            found.push((
                *number,
                within.map_or(name.to_string(), |(of, _)| format!("{of}::{name}")),
            ));
        }
    }
    found
}
