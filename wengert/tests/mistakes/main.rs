//! Error messages of the Rust API: each test makes one mistake and compares the whole message.
//!
//! A line that a message refers to is marked `//~ name`, at its end or in the line below; `{name}`
//! stands for its file and line in the expected message. Columns are left out. Since messages are
//! compared as a whole, none names a place in the library. [`poison`] calls every method on
//! poisoned tensors, and [`locations`] checks that equations of all layers, optimisers, models and
//! functions are located in the user's file.

#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

mod attention;
mod control;
mod declarations;
mod derivatives;
mod dtypes;
mod indexing;
mod layers;
mod locations;
mod losses;
mod maps;
mod methods;
mod optimisers;
mod poison;
mod programs;
mod recipes;
mod sessions;
mod shapes;

use std::panic::Location;
use std::path::Path;
use wengert::prelude::*;

/// The error of building a function by `f`.
#[track_caller]
fn building(f: impl FnOnce(&mut FunctionBuilder)) -> String {
    Program::new().function("f", f).expect_err("the function has a mistake").to_string()
}

/// Checks a whole message. `expected` names the marked lines of the calling test; the indentation
/// of `expected` does not count.
#[track_caller]
fn says(message: String, expected: &str) {
    let caller = Location::caller();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(caller.file());
    let source = std::fs::read_to_string(&path).expect("the test's own source can be read");
    let mut expected = unindented(expected);
    for (number, line) in test_around(&source, caller.line() as usize) {
        if let Some((code, name)) = line.split_once("//~ ") {
            let line = if code.trim().is_empty() { number - 1 } else { number };
            let place = format!("{}:{line}", caller.file());
            expected = expected.replace(&format!("{{{}}}", name.trim()), &place);
        }
    }
    assert_eq!(without_columns(&message), expected, "\n--- it says\n{message}\n---");
}

/// A text without the indentation of its first line.
fn unindented(text: &str) -> String {
    let text = text.trim_start_matches('\n').trim_end();
    let indentation = text.len() - text.trim_start().len();
    let lines: Vec<&str> =
        text.lines().map(|line| line.get(indentation..).unwrap_or_default()).collect();
    lines.join("\n")
}

/// The numbered lines of the test that contains line `inside`: from its `#[test]` attribute to a
/// closing brace at the margin.
fn test_around(source: &str, inside: usize) -> impl Iterator<Item = (usize, &str)> {
    let lines: Vec<&str> = source.lines().collect();
    let begin =
        lines[..inside].iter().rposition(|l| *l == "#[test]").expect("the message is of a test");
    let end = lines.iter().skip(inside).position(|l| *l == "}").map_or(lines.len(), |i| i + inside);
    (begin..end).map(move |i| (i + 1, lines[i]))
}

/// A message with each place as `file:line`.
fn without_columns(message: &str) -> String {
    let mut text = String::new();
    let mut parts = message.split(".rs:");
    text.push_str(parts.next().expect("a text has a first part"));
    for part in parts {
        let line = part.bytes().take_while(u8::is_ascii_digit).count();
        let rest = &part[line..];
        let column =
            rest.strip_prefix(':').map_or(0, |r| r.bytes().take_while(u8::is_ascii_digit).count());
        text.push_str(".rs:");
        text.push_str(&part[..line]);
        text.push_str(if column > 0 { &rest[column + 1..] } else { rest });
    }
    text
}

#[test]
fn columns_are_left_out() {
    assert_eq!(without_columns("a.rs:3:14: x\n b.rs:7:1"), "a.rs:3: x\n b.rs:7");
}
