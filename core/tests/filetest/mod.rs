//! Files of test cases. Each case is a text in one of the project's languages. The comments before
//! it state its inputs and expectations.
// Each test includes this module and uses a part of it.
#![allow(dead_code, clippy::unwrap_used)]

use std::path::Path;
use wengert_core::{Diagnostic, Location};

/// A case of a file: its text and the comments before it.
pub struct Case<'a> {
    /// The text of the case. Blank lines replace the preceding lines of the file, so that line
    /// numbers are those of the file.
    pub text: String,
    /// The comments without their slashes.
    pub comments: Vec<&'a str>,
}

/// The cases of a text. Each begins with a line that starts with `keyword` and a blank.
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

/// Every file of a folder of `core/tests` with its path, sorted by name.
pub fn texts(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|p| (p.display().to_string(), std::fs::read_to_string(p).unwrap())).collect()
}

/// Checks every case of every file of a folder. The folder has the name of the keyword that begins
/// a case. Fails unless there are more than `least` cases.
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
    assert!(
        failures.is_empty(),
        "{} of {count} cases fail\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(count > least, "the files are there");
}

/// Compares a result with the error that `// error: TEXT` in the case expects on its line. Returns
/// the value if the case expects no error and there is none. Returns `None` if the error is the
/// expected one.
pub fn unless_blamed<T>(
    case: &Case<'_>,
    result: Result<T, Diagnostic>,
) -> Result<Option<T>, String> {
    let lines = case.text.lines().zip(1..);
    let expected: Vec<(u32, &str)> = lines
        .filter_map(|(line, number)| Some((number, line.split_once("// error: ")?.1.trim())))
        .collect();
    match (expected.as_slice(), result) {
        ([], Ok(value)) => Ok(Some(value)),
        ([], Err(error)) => Err(format!("unexpected error: {error}")),
        ([(line, text)], Err(error)) => {
            let shown = error.to_string();
            let found = line_of(&error);
            match found == Some(*line) && shown.contains(text) {
                true => Ok(None),
                false => {
                    Err(format!("expected `{text}` on line {line}, found on {found:?}: {shown}"))
                }
            }
        }
        ([(line, text)], Ok(_)) => Err(format!("line {line}: no error where `{text}` is expected")),
        _ => Err("there is one error in a case".into()),
    }
}

/// The line that an error names first.
fn line_of(error: &Diagnostic) -> Option<u32> {
    match error.places.first()?.0 {
        Location::Source { line, .. } => Some(line),
        _ => None,
    }
}
