//! Runs the cases of a file.

use super::case::{Case, join, split};
use super::words::words;
use crate::cli::{Cli, Command};
use crate::console::{Console, Status};
use clap::Parser;
use wengert::core::graph::{PrintOptions, parse_program, print};
use wengert::{Diagnostic, Location};

/// The results of a file's cases.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// Number of cases.
    pub cases: usize,
    /// For each failed case its first line and the failure as text.
    pub failures: Vec<(usize, String)>,
    /// The file with the expectations of failed cases rewritten, if that makes any of them pass.
    pub blessed: Option<String>,
}

/// Runs the cases in the text of a file with the name `name`.
pub fn check_file(name: &str, text: &str) -> Report {
    let mut cases = split(text);
    let mut report = Report { cases: cases.len(), ..Report::default() };
    for case in &mut cases {
        if case.directives.is_empty() {
            if let Err(message) = verify(case, name) {
                report.failures.push((case.line, message));
            }
            continue;
        }
        match output(case, name) {
            Err(error) => report.failures.push((case.line, error.to_string())),
            Ok(found) if case.expected.as_deref() == Some(&found) => {}
            Ok(found) => {
                let message = difference(case.expected.as_deref().unwrap_or_default(), &found);
                report.failures.push((case.line, message));
                *case = case.bless(&found);
            }
        }
    }
    let rewritten = join(&cases);
    report.blessed = (rewritten != text).then_some(rewritten);
    report
}

/// The output of all directives.
fn output(case: &Case, name: &str) -> Result<String, Diagnostic> {
    let mut found = String::new();
    for directive in &case.directives {
        let arguments = words(directive).map_err(|e| e.context(directive))?;
        let replaced = arguments.iter().map(|w| w.replace("%s", name));
        let cli = Cli::try_parse_from(std::iter::once("graphrun".into()).chain(replaced));
        let cli = cli.map_err(|e| Diagnostic::new(e.to_string().trim_end()).context(directive))?;
        if let Command::Test(_) = cli.command {
            return Err(Diagnostic::new("a filetest cannot run filetests").context(directive));
        }
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console::new(&mut out, &mut err);
        console.text = Some((name.to_string(), case.input()));
        let status = crate::run(&cli, &mut console);
        if case.directives.len() > 1 {
            found += &format!("$ {directive}\n");
        }
        found += &String::from_utf8_lossy(&out);
        found += &String::from_utf8_lossy(&err);
        if status != Status::Good {
            found += &format!("exit status {}\n", status as u8);
        }
    }
    // Comments do not keep trailing blanks.
    Ok(found.lines().map(|l| l.trim_end().to_string() + "\n").collect())
}

/// Checks a case without directives.
fn verify(case: &Case, name: &str) -> Result<(), String> {
    match (parse_program(&case.input(), name), &case.error) {
        (Err(error), None) => Err(error.to_string()),
        (Ok(_), Some((line, message))) => {
            Err(format!("accepted, but line {line} expects: {message}"))
        }
        (Err(error), Some((line, message))) => {
            let at = match error.places.first() {
                Some((Location::Source { line, .. }, _)) => *line as usize,
                _ => 0,
            };
            match at == *line && error.message.contains(message) {
                true => Ok(()),
                false => Err(format!("line {line} expects: {message}\nfound: {error}")),
            }
        }
        (Ok(program), None) => {
            let printed = print(&program, &PrintOptions::default());
            let located = print(&program, &PrintOptions { locations: true });
            match code(&case.text) == code(&printed) || code(&case.text) == code(&located) {
                true => Ok(()),
                false => Err(difference(&case.text, &printed)),
            }
        }
    }
}

/// The lines that are neither empty nor comments.
fn code(text: &str) -> Vec<&str> {
    text.lines().filter(|l| !l.trim_start().starts_with("//") && !l.is_empty()).collect()
}

/// The lines between the common first lines and the common last lines of both texts, limited in
/// number.
fn difference(expected: &str, found: &str) -> String {
    const SHOWN: usize = 12;
    let (a, b): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), found.lines().collect());
    let begin = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[begin..], &b[begin..]);
    let end = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    let show = |sign: char, lines: &[&str]| {
        let lines = &lines[..lines.len() - end];
        let mut shown: String =
            lines.iter().take(SHOWN).map(|l| format!("  {sign} {l}\n")).collect();
        if lines.len() > SHOWN {
            shown += &format!("  {sign} … ({} more lines)\n", lines.len() - SHOWN);
        }
        shown
    };
    let head = format!("line {} of the output is not as expected", begin + 1);
    format!("{head}\n{}{}", show('-', a), show('+', b)).trim_end().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
// test: run %s --input 'x=2xf32=1 2' --device interpreter
func @double(%x: f32[B]) -> (y: f32[B]) {
  %0: f32[B] = add %x, %x
  return %0
}

// expect:
// y=2xf32=2.0 4.0
// ---
func @f(%x: f32[]) -> () {
  return %y // error: `%y` is not defined
}
// ---
// test: run %s@g
func @f(%x: f32[]) -> () {
  return
}

// expect:
// error: there is no function `@g`
//   help: the program has @f
// exit status 2
";

    #[test]
    fn good_cases_pass() {
        let report = check_file("a.ir", GOOD);
        assert_eq!(report, Report { cases: 3, ..Report::default() });
    }

    #[test]
    fn every_way_to_fail_is_found() {
        for (from, to, says) in [
            (
                "2.0 4.0",
                "2.0 5.0",
                "line 1 of the output is not as expected\n  - y=2xf32=2.0 5.0\n  + y=2xf32=2.0 4.0",
            ),
            ("// y=", "// z=", "- z="),
            ("// y=2xf32=2.0 4.0\n", "", "+ y="),
            ("is not defined", "is defined", "line 11 expects"),
            ("return %y", "return", "accepted, but line 11 expects"),
            ("// error: `%y` is not defined", "", "`%y` is not defined"),
            ("exit status 2", "exit status 0", "- exit status 0"),
            ("run %s@g", "run %s@g --frobnicate", "--frobnicate"),
            ("run %s@g", "test %s", "a filetest cannot run filetests"),
            ("run %s@g", "run '%s@g", "a quote is not closed"),
        ] {
            let report = check_file("a.ir", &GOOD.replacen(from, to, 1));
            assert_eq!(report.failures.len(), 1, "{to}: {report:?}");
            assert!(report.failures[0].1.contains(says), "{to}: {report:?}");
        }
    }

    #[test]
    fn blessing_mends_outputs_and_nothing_else() {
        let wrong = GOOD.replace("2.0 4.0", "0.0").replace("return %y", "return");
        let report = check_file("a.ir", &wrong);
        assert_eq!(report.failures.len(), 2);
        let blessed = report.blessed.unwrap();
        assert_eq!(blessed, GOOD.replace("return %y", "return"));
    }
}
