//! Filetests of nests: every `core/tests/nest/*.nest`.
//!
//! A file contains nests. The comments before a nest describe it:
//! - `// input: LITERAL` for each `in` and `inout` parameter,
//! - `// output: LITERAL` for each `out` and `inout` parameter, compared bit for bit,
//! - `// error: TEXT` on the line that the error of the parser or the verifier must name, with that
//!   text,
//! - `// fault: TEXT` if the interpreter must report that fault during the run; such a nest need
//!   not pass the verifier.
//!
//! Every nest that parses must print to a text that parses back to the same nest.

mod filetest;

use filetest::{Case, check_all, unless_blamed};
use wengert_core::Literal;
use wengert_core::nest::{BufferRole, Nest, ScalarOp, interpret, parse_nests, verify_at};
use wengert_core::text::{Cursor, print_literal};

fn directives<'a>(case: &'a Case<'_>, name: &str) -> Vec<&'a str> {
    case.comments.iter().filter_map(|c| c.strip_prefix(name)?.strip_prefix(": ")).collect()
}

fn literals(nest: &Nest, texts: &[&str], out: BufferRole) -> Result<Vec<Literal>, String> {
    let buffers: Vec<_> = nest
        .parameters()
        .map(|(_, b)| b)
        .filter(|b| b.role == out || b.role == BufferRole::InOut)
        .collect();
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

fn check(case: &Case<'_>) -> Result<(), String> {
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
    let Some(nest) = unless_blamed(case, result)? else { return Ok(()) };
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
    check_all("nest", 40, check);
}

/// The manual lists every instruction. The nest in its example prints exactly as it is written
/// there.
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
