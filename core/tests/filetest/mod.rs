//! Files of cases: each case is a text in a language of the project, with comments before it that say what it does.
// Each test that takes this room uses a part of it.
#![allow(dead_code, clippy::unwrap_used)]

use std::path::Path;
use wengert_core::{Diagnostic, Location};

/// A case of a file: its text at its own lines, and the comments before it.
pub struct Case<'a> {
    /// Blank lines stand for what is before it in the file.
    pub text: String,
    /// Without their slashes.
    pub comments: Vec<&'a str>,
}

/// The cases of a text; each begins with a line that begins with `keyword` and a blank.
pub fn cases<'a>(text: &'a str, keyword: &str) -> Vec<Case<'a>> {
    let mut cases: Vec<Case<'_>> = Vec::new();
    let mut comments = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.strip_prefix(keyword).is_some_and(|rest| rest.starts_with(' ')) {
            cases.push(Case { text: "\n".repeat(number), comments: std::mem::take(&mut comments) });
        }
        let comment = line.strip_prefix("// ");
        comments.extend(comment.map(str::trim));
        if let Some(case) = cases.last_mut() {
            case.text += if comment.is_some() { "" } else { line };
            case.text.push('\n');
        }
    }
    cases
}

/// Every file of a folder of `core/tests`, with its path, in the order of their names.
pub fn texts(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|p| (p.display().to_string(), std::fs::read_to_string(p).unwrap())).collect()
}

/// Checks every case of every file of a folder, which are named after what they hold; there are more than `least`.
pub fn check_all(folder: &str, least: usize, check: impl Fn(&Case<'_>) -> Result<(), String>) {
    let (mut failures, mut count) = (Vec::new(), 0);
    for (path, text) in texts(folder) {
        let cases = cases(&text, folder);
        assert!(!cases.is_empty(), "{path} holds no {folder}");
        for case in cases {
            count += 1;
            if let Err(error) = check(&case) {
                let head = case.text.trim().lines().next().unwrap_or_default();
                failures.push(format!("{path}: {head}\n  {error}"));
            }
        }
    }
    assert!(failures.is_empty(), "{} of {count} cases fail\n{}", failures.len(), failures.join("\n"));
    assert!(count > least, "the files are there");
}

/// Compares an error with the one that `// error: TEXT` in the case expects on its line: the value, if there is none and none is expected;
/// nothing, if it is the expected one.
pub fn unless_blamed<T>(case: &Case<'_>, result: Result<T, Diagnostic>) -> Result<Option<T>, String> {
    let lines = case.text.lines().zip(1..);
    let expected: Vec<(u32, &str)> =
        lines.filter_map(|(line, number)| Some((number, line.split_once("// error: ")?.1.trim()))).collect();
    match (expected.as_slice(), result) {
        ([], Ok(value)) => Ok(Some(value)),
        ([], Err(error)) => Err(format!("unexpected error: {error}")),
        ([(line, text)], Err(error)) => {
            let shown = error.to_string();
            let found = line_of(&error);
            match found == Some(*line) && shown.contains(text) {
                true => Ok(None),
                false => Err(format!("expected `{text}` on line {line}, found on {found:?}: {shown}")),
            }
        }
        ([(line, text)], Ok(_)) => Err(format!("line {line}: no error where `{text}` is expected")),
        _ => Err("there is one error in a case".into()),
    }
}

/// The line that an error blames.
fn line_of(error: &Diagnostic) -> Option<u32> {
    match error.places.first()?.0 {
        Location::Source { line, .. } => Some(line),
        _ => None,
    }
}
