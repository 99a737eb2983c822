//! Filetests of nests: every `core/tests/nest/*.nest`.
//!
//! A file holds nests. Comments before a nest say what it does: `// input: LITERAL` for each `in` and `inout` parameter,
//! `// output: LITERAL` for each `out` and `inout` one, compared bit for bit. `// error: TEXT` stands on the line that the
//! parser or the verifier must blame, with that text. `// fault: TEXT` before a nest says that the interpreter must find
//! something wrong as it runs; such a nest need not pass the verifier. Every nest that parses must print to a text that
//! reads back to the same nest.

use std::path::Path;
use wengert_core::nest::{BufferRole, Nest, ScalarOp, interpret, parse_nests, verify_at};
use wengert_core::text::{Cursor, print_literal};
use wengert_core::{Diagnostic, Literal, Location};

/// A nest of a file: its text at its own lines, and the comments before it.
struct Case<'a> {
    text: String,
    comments: Vec<&'a str>,
}

fn cases(text: &str) -> Vec<Case<'_>> {
    let mut cases: Vec<Case<'_>> = Vec::new();
    let mut comments = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.starts_with("nest ") {
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

fn directives<'a>(case: &'a Case<'_>, name: &str) -> Vec<&'a str> {
    case.comments.iter().filter_map(|c| c.strip_prefix(name)?.strip_prefix(": ")).collect()
}

fn literals(nest: &Nest, texts: &[&str], out: BufferRole) -> Result<Vec<Literal>, String> {
    let buffers: Vec<_> =
        nest.parameters().map(|(_, b)| b).filter(|b| b.role == out || b.role == BufferRole::InOut).collect();
    if buffers.len() != texts.len() {
        return Err(format!("{} literals given for {} buffers", texts.len(), buffers.len()));
    }
    buffers
        .iter()
        .zip(texts)
        .map(|(buffer, text)| {
            let mut cursor = Cursor::new("directive", text);
            let literal = cursor.literal(buffer.dtype, &buffer.shape).map_err(|e| e.to_string())?;
            cursor.expect_end().map_err(|e| e.to_string())?;
            Ok(literal)
        })
        .collect()
}

fn line_of(error: &Diagnostic) -> Option<u32> {
    match error.places.first()?.0 {
        Location::Source { line, .. } => Some(line),
        _ => None,
    }
}

fn check(case: &Case<'_>) -> Result<(), String> {
    let expected: Vec<(u32, &str)> = case
        .text
        .lines()
        .zip(1..)
        .filter_map(|(line, number)| Some((number, line.split_once("// error: ")?.1.trim())))
        .collect();
    let parsed = parse_nests("file", &case.text);
    let faults = directives(case, "fault");
    let result = parsed.and_then(|nests| {
        let (nest, places) = nests.into_iter().next().expect("a case begins with `nest`");
        let printed = nest.to_string();
        let again = parse_nests("printed", &printed)?;
        assert_eq!(again[0].0, nest, "{printed}");
        assert_eq!(nest.renumber(), nest, "a text numbers in order");
        if faults.is_empty() {
            verify_at(&nest, &places)?;
        }
        Ok(nest)
    });
    let nest = match (expected.as_slice(), result) {
        ([], Ok(nest)) => nest,
        ([], Err(error)) => return Err(format!("unexpected error: {error}")),
        ([(line, text)], Err(error)) => {
            let shown = error.to_string();
            let found = line_of(&error);
            return if found == Some(*line) && shown.contains(text) {
                Ok(())
            } else {
                Err(format!("expected `{text}` on line {line}, found on {found:?}: {shown}"))
            };
        }
        ([(line, text)], Ok(_)) => return Err(format!("line {line}: no error where `{text}` is expected")),
        _ => return Err("one error a nest".into()),
    };
    let inputs = directives(case, "input");
    if inputs.is_empty() && faults.is_empty() && directives(case, "output").is_empty() {
        return Err("a nest that is right says what it computes".into());
    }
    let result = interpret(&nest, &literals(&nest, &inputs, BufferRole::In)?);
    match (faults.as_slice(), result) {
        ([], Ok(outputs)) => {
            let wanted = literals(&nest, &directives(case, "output"), BufferRole::Out)?;
            for (found, wanted) in outputs.iter().zip(&wanted) {
                if found != wanted {
                    let mut text = String::new();
                    print_literal(&mut text, found);
                    return Err(format!("the output is\n// output: {text}"));
                }
            }
            Ok(())
        }
        ([fault], Err(error)) if error.to_string().contains(fault) => Ok(()),
        ([], Err(error)) => Err(format!("the interpreter found: {error}")),
        (faults, result) => Err(format!("expected fault {faults:?}, found {result:?}")),
    }
}

#[test]
fn files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nest");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    let mut failures = Vec::new();
    let mut count = 0;
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let cases = cases(&text);
        assert!(!cases.is_empty(), "{} holds no nest", path.display());
        for case in cases {
            count += 1;
            if let Err(error) = check(&case) {
                let head = case.text.trim().lines().next().unwrap_or_default().to_string();
                failures.push(format!("{}: {head}\n  {error}", path.display()));
            }
        }
    }
    assert!(failures.is_empty(), "{} of {count} nests fail\n{}", failures.len(), failures.join("\n"));
    assert!(count > 40, "the files are there");
}

/// The manual lists every instruction, and its example is a nest that prints as it stands there.
#[test]
fn manual() {
    let manual = include_str!("../../docs/ir.md");
    for op in ScalarOp::ALL {
        assert!(manual.contains(&format!("`{}`", op.name())), "docs/ir.md lacks `{}`", op.name());
    }
    let example: String = manual
        .lines()
        .skip_while(|line| !line.starts_with("    nest @softmax"))
        .take_while(|line| line.starts_with("    "))
        .map(|line| format!("{}\n", &line[4..]))
        .collect();
    let nests = parse_nests("docs/ir.md", &example).unwrap();
    assert_eq!(nests[0].0.to_string(), example);
    verify_at(&nests[0].0, &nests[0].1).unwrap();
}
