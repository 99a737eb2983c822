//! ONNX's own node tests: each model is imported, evaluated by the interpreter, and compared with
//! the results that come with it. None may be wrong, and `docs/onnx-tests.md` has the counts.
//!
//! `WENGERT_BLESS=1` writes the page. `--no-capture` prints each test that does not pass.

use super::case::{Case, Failure, folders};
use super::derivatives;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use wengert::check::Finding;
use wengert::core::{DType, Literal, interpret};

/// What is known of the derivatives of a test that passes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Derivatives {
    /// They agree with differences.
    Right,
    /// No float goes in and comes out.
    None,
    /// The function, or its derivative, is not finite at the inputs of the test.
    Infinite,
}

/// The outcome of a test.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Outcome {
    /// The results are right, and so are the derivatives, if there are any.
    Passed(Derivatives),
    Wrong(String),
    /// A class, and the message.
    Refused(String, String),
    /// An error of no class, or of the interpreter.
    Failed(String),
}

#[test]
fn no_node_test_is_wrong() {
    let tests = folders(&wengert_ci::onnx_suite::node_tests().unwrap());
    let mut refused: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let (mut passed, mut bad) = ([0, 0], Vec::new());
    let mut derivatives: BTreeMap<Derivatives, Vec<String>> = BTreeMap::new();
    for (name, outcome) in outcomes(&tests) {
        match outcome {
            Outcome::Passed(known) => {
                passed[usize::from(name.ends_with("_expanded"))] += 1;
                derivatives.entry(known).or_default().push(name);
            }
            Outcome::Refused(class, _) => refused.entry(class).or_default().push(name),
            Outcome::Wrong(text) | Outcome::Failed(text) => bad.push(format!("{name}: {text}")),
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    let found = page(tests.len(), passed, &derivatives, &refused);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/onnx-tests.md");
    if std::env::var_os("WENGERT_BLESS").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).is_ok_and(|page| page == found),
        "docs/onnx-tests.md is out of date: run this test with WENGERT_BLESS=1"
    );
}

/// The ops of the domain `com.microsoft` have ONNX Runtime's results, and each has a test.
#[test]
fn ops_of_microsoft_equal_onnx_runtime() {
    let tests = folders(&wengert_ci::onnx_suite::microsoft_tests().unwrap());
    let bad: Vec<String> = outcomes(&tests)
        .filter(|(_, outcome)| !matches!(outcome, Outcome::Passed(_)))
        .map(|(name, outcome)| format!("{name}: {outcome:?}"))
        .collect();
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    let models: Vec<Vec<u8>> =
        tests.iter().map(|test| std::fs::read(test.join("model.onnx")).unwrap()).collect();
    for row in wengert_onnx::rows().filter(|row| row.domain == "com.microsoft") {
        let name = row.name.as_bytes();
        let has = |model: &Vec<u8>| model.windows(name.len()).any(|part| part == name);
        assert!(models.iter().any(has), "no test has {}", row.name);
    }
}

/// The outcome of each test. One that does not pass, or has no finite derivative, is printed.
fn outcomes(tests: &[PathBuf]) -> impl Iterator<Item = (String, Outcome)> {
    tests.iter().map(|test| {
        let name = test.file_name().unwrap().to_string_lossy().into_owned();
        let outcome = check(test);
        if !matches!(outcome, Outcome::Passed(Derivatives::Right | Derivatives::None)) {
            println!("{name}: {outcome:?}");
        }
        (name, outcome)
    })
}

/// `docs/onnx-tests.md`.
fn page(
    all: usize,
    [plain, expanded]: [usize; 2],
    derivatives: &BTreeMap<Derivatives, Vec<String>>,
    refused: &BTreeMap<String, Vec<String>>,
) -> String {
    let count = |known: Derivatives| derivatives.get(&known).map_or(0, Vec::len);
    let mut page = format!(
        "# ONNX's node tests\n\n\
         <!-- Generated: the test `no_node_test_is_wrong` with WENGERT_BLESS=1 -->\n\n\
         Of the {all} tests of {}, {} pass: {plain} of single ops, and {expanded} of ops that are\n\
         written as functions (`_expanded`). None is wrong.\n\n\
         The derivatives of {} of them agree in forward and reverse mode, and with differences\n\
         in f64: at the inputs of the test, or near them if they are at a kink. {} have no float\n\
         that goes in and comes out. The function or its derivative is not finite in {}.\n\n\
         The others are refused:\n\n\
         | class | tests | |\n|---|---:|---|\n",
        wengert_ci::onnx_suite::PACKAGES[0].replace("==", " "),
        plain + expanded,
        count(Derivatives::Right),
        count(Derivatives::None),
        count(Derivatives::Infinite),
    );
    for (class, names) in refused {
        // Tests of one op begin alike.
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for name in names {
            let name = name.trim_start_matches("test_");
            *kinds.entry(name.split('_').next().unwrap_or(name)).or_default() += 1;
        }
        let kinds: Vec<String> = kinds.iter().map(|(kind, n)| format!("{kind} {n}")).collect();
        let _ = writeln!(page, "| {class} | {} | {} |", names.len(), kinds.join(", "));
    }
    page
}

fn check(test: &Path) -> Outcome {
    let case = match Case::read(test) {
        Ok(case) => case,
        Err(Failure::Refused(class, text)) => return Outcome::Refused(class, text),
        Err(Failure::Other(text)) => return Outcome::Failed(text),
    };
    let found = match interpret::run(&case.function, &case.given) {
        Ok(found) => found,
        Err(e) => return Outcome::Failed(e.to_string()),
    };
    let expected = &case.expected;
    for (n, [own, wanted]) in case.dtypes.iter().enumerate() {
        if own != wanted {
            return Outcome::Wrong(format!("result {n} is {own:?} instead of {wanted:?}"));
        }
    }
    for (n, (found, wanted)) in found.iter().zip(expected).enumerate() {
        if let Err(e) = compare(found, wanted) {
            return Outcome::Wrong(format!("result {n}: {e}"));
        }
    }
    if found.len() != expected.len() + usize::from(case.count.is_some()) {
        return Outcome::Wrong(format!("{} results of {}", found.len(), expected.len()));
    }
    if let Some(count) = case.count {
        let own = found.get(expected.len()).map(|own| own.get(0).to_f64());
        if own != Some(count as f64) {
            return Outcome::Wrong(format!("{own:?} results instead of {count}"));
        }
    }
    match derivatives::check(&case) {
        Ok(Finding::Good(_)) => Outcome::Passed(Derivatives::Right),
        Ok(Finding::Skipped(why)) if why.starts_with("no float") => {
            Outcome::Passed(Derivatives::None)
        }
        Ok(Finding::Skipped(_)) => Outcome::Passed(Derivatives::Infinite),
        Ok(Finding::Bad(e)) => Outcome::Wrong(e),
        Err(e) => Outcome::Failed(e),
    }
}

fn compare(found: &Literal, wanted: &Literal) -> Result<(), String> {
    if found.dtype() != wanted.dtype() || found.shape() != wanted.shape() {
        return Err(format!("{} instead of {}", found.ty(), wanted.ty()));
    }
    let tolerance = match wanted.dtype() {
        // Two units in the last place, as in ONNX's own runner.
        DType::BF16 => 1.0 / 64.0,
        DType::F16 => 1e-2,
        d if d.is_float() => 1e-3,
        _ => 0.0,
    };
    for (n, (x, y)) in found.scalars().zip(wanted.scalars()).enumerate() {
        if x.bits() == y.bits() {
            continue;
        }
        let (x, y) = (x.to_f64(), y.to_f64());
        let near = (x - y).abs() <= tolerance * (y.abs() + 1e-3);
        if !(near || x == y || (x.is_nan() && y.is_nan())) {
            return Err(format!("element {n} is {x} instead of {y}"));
        }
    }
    Ok(())
}
