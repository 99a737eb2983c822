//! Filetests of plans: every `core/tests/plan/*.plan`.
//!
//! A file contains plans. The comments before a plan describe its runs:
//! - `// input: LITERAL` for each input,
//! - `// variable: LITERAL` for each variable before the run (`none` for a variable that the plan
//!   creates),
//! - `// output: LITERAL` for each output, compared bit for bit,
//! - `// after: LITERAL` for each variable after the run, compared bit for bit.
//!
//! Several runs may follow one another. `// error: TEXT` is on the line that the error of the
//! parser or the verifier must name, with that text. Every plan that parses must print to a text
//! that parses back to the same plan.

#![allow(clippy::unwrap_used)] // Tests and their helpers.

mod filetest;

use filetest::{Case, cases, check_all, texts, unless_blamed};
use wengert_core::plan::account::AccountText;
use wengert_core::plan::{Plan, account, interpret, parse_plan, verify_at};
use wengert_core::text::{Cursor, print_literal};
use wengert_core::{DType, Literal};
use wengert_testing::Random;

/// The dtypes and shapes of the values of a directive, in order.
fn types(plan: &Plan, directive: &str) -> Vec<(DType, Vec<usize>)> {
    let value = |v| (plan.values[v].dtype, plan.values[v].shape.clone());
    match directive {
        "input" => plan.inputs.iter().map(|i| value(i.value)).collect(),
        "output" => plan.outputs.iter().map(|o| (value(o.value).0, o.shape.clone())).collect(),
        _ => plan.variables.iter().map(|v| (v.dtype, v.shape.clone())).collect(),
    }
}

fn read(dtype: DType, shape: &[usize], text: &str) -> Result<Option<Literal>, String> {
    if text == "none" {
        return Ok(None);
    }
    let mut cursor = Cursor::new("directive", text);
    let literal = cursor.literal(dtype, shape).map_err(|e| e.to_string())?;
    cursor.expect_end().map_err(|e| e.to_string())?;
    Ok(Some(literal))
}

/// The literals of a directive, run by run.
fn literals(
    case: &Case<'_>,
    plan: &Plan,
    directive: &str,
) -> Result<Vec<Vec<Option<Literal>>>, String> {
    let texts = case.comments.iter().filter_map(|c| c.strip_prefix(directive)?.strip_prefix(": "));
    let texts: Vec<&str> = texts.collect();
    let types = types(plan, directive);
    if !types.is_empty() && !texts.len().is_multiple_of(types.len()) {
        return Err(format!("{} `{directive}` for {}", texts.len(), types.len()));
    }
    texts
        .chunks(types.len().max(1))
        .map(|run| {
            run.iter().zip(&types).map(|(text, (dtype, shape))| read(*dtype, shape, text)).collect()
        })
        .collect()
}

fn check(case: &Case<'_>) -> Result<(), String> {
    let result = parse_plan("file", &case.text).and_then(|(plan, places)| {
        let printed = plan.to_string();
        let again = parse_plan("printed", &printed)?.0;
        assert!(again == plan, "{printed}");
        assert_eq!(again.to_string(), printed);
        verify_at(&plan, &places)?;
        Ok(plan)
    });
    let Some(plan) = unless_blamed(case, result)? else { return Ok(()) };
    let inputs = literals(case, &plan, "input")?;
    let variables = literals(case, &plan, "variable")?;
    let outputs = literals(case, &plan, "output")?;
    let after = literals(case, &plan, "after")?;
    let runs = [&inputs, &variables, &outputs, &after].into_iter().map(Vec::len).max().unwrap_or(0);
    if runs == 0 {
        return Err("a plan that is right says what it computes".into());
    }
    for n in 0..runs {
        let of = |all: &[Vec<Option<Literal>>]| all.get(n).cloned().unwrap_or_default();
        let given: Vec<Literal> = of(&inputs).into_iter().flatten().collect();
        let run = interpret(&plan, &given, &of(&variables))
            .map_err(|e| format!("the interpreter found: {e}"))?;
        for (what, found, wanted) in
            [("output", run.outputs, of(&outputs)), ("after", run.variables, of(&after))]
        {
            let wanted: Vec<Literal> = wanted.into_iter().flatten().collect();
            if found != wanted {
                let mut text = String::new();
                for literal in &found {
                    text += &format!("\n// {what}: ");
                    print_literal(&mut text, literal);
                }
                return Err(format!("run {n} gives{text}"));
            }
        }
    }
    Ok(())
}

#[test]
fn files() {
    check_all("plan", 90, check);
}

#[test]
fn accounts() {
    let text = include_str!("plan/account.plan");
    let plan = parse_plan("account.plan", text).unwrap().0;
    let shown = AccountText(&plan, &account(&plan)).to_string();
    let wanted: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("//| ")).collect();
    assert_eq!(shown.lines().map(str::trim_end).collect::<Vec<_>>(), wanted);
}

/// Texts with a wrong number, character or line give an error or a valid plan, and never panic.
#[test]
fn damaged_texts() {
    let numbers = [
        "0",
        "1",
        "3",
        "8",
        "255",
        "4294967295",
        "4294967296",
        "9223372036854775807",
        "18446744073709551615",
    ];
    let mut random = Random(1);
    let texts = texts("plan");
    let cases: Vec<Case<'_>> = texts.iter().flat_map(|(_, text)| cases(text, "plan")).collect();
    let (mut parsed, mut good) = (0, 0);
    for _ in 0..15_000 {
        let text = cases[random.below(cases.len())].text.trim_start();
        let digits: Vec<usize> =
            text.match_indices(|c: char| c.is_ascii_digit()).map(|(at, _)| at).collect();
        let mut lines: Vec<&str> = text.lines().collect();
        let damaged = match random.below(5) {
            0 | 1 => {
                let start = digits[random.below(digits.len())];
                let end = text[start..]
                    .find(|c: char| !c.is_ascii_digit())
                    .map_or(text.len(), |n| start + n);
                format!(
                    "{}{}{}",
                    &text[..start],
                    numbers[random.below(numbers.len())],
                    &text[end..]
                )
            }
            2 => {
                let at = random.below(text.len());
                text.char_indices().filter(|(n, _)| *n != at).map(|(_, c)| c).collect()
            }
            3 => {
                let (from, to) = (random.below(lines.len()), random.below(lines.len()));
                let line = lines.remove(from);
                lines.insert(to, line);
                lines.join("\n")
            }
            _ => {
                let (from, to) = (random.below(lines.len()), random.below(lines.len()));
                lines[to] = lines[from];
                lines.join("\n")
            }
        };
        let Ok((plan, places)) = parse_plan("damaged", &damaged) else { continue };
        parsed += 1;
        let printed = plan.to_string();
        if verify_at(&plan, &places).is_ok() {
            good += 1;
            assert!(parse_plan("printed", &printed).unwrap().0 == plan, "{damaged}");
        }
    }
    assert!(parsed > 3000 && good > 100, "{parsed} parse, {good} are right");
}
