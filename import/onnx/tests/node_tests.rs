//! ONNX's own node tests: each model is imported, evaluated by the interpreter, and compared with
//! the results that come with it. None may be wrong, and `docs/onnx-tests.md` has the counts.
//!
//! `WENGERT_BLESS=1` writes the page. `--no-capture` prints each test that does not pass.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use wengert_core::{Binding, DType, Diagnostic, Literal, interpret};
use wengert_onnx::{Class, Options, read, read_tensor};

/// The outcome of a test.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Outcome {
    Passed,
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
    for (name, outcome) in outcomes(&tests) {
        match outcome {
            Outcome::Passed => passed[usize::from(name.ends_with("_expanded"))] += 1,
            Outcome::Refused(class, _) => refused.entry(class).or_default().push(name),
            Outcome::Wrong(text) | Outcome::Failed(text) => bad.push(format!("{name}: {text}")),
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    let found = page(tests.len(), passed, &refused);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/onnx-tests.md");
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
        .filter(|(_, outcome)| *outcome != Outcome::Passed)
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

/// The folders of the tests, in the order of their names.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

/// The outcome of each test. One that does not pass is printed.
fn outcomes(tests: &[PathBuf]) -> impl Iterator<Item = (String, Outcome)> {
    tests.iter().map(|test| {
        let name = test.file_name().unwrap().to_string_lossy().into_owned();
        let outcome = check(test);
        if outcome != Outcome::Passed {
            println!("{name}: {outcome:?}");
        }
        (name, outcome)
    })
}

/// `docs/onnx-tests.md`.
fn page(
    all: usize,
    [plain, expanded]: [usize; 2],
    refused: &BTreeMap<String, Vec<String>>,
) -> String {
    let mut page = format!(
        "# ONNX's node tests\n\n\
         <!-- Generated: the test `no_node_test_is_wrong` with WENGERT_BLESS=1 -->\n\n\
         Of the {all} tests of {}, {} pass: {plain} of single ops, and {expanded} of ops that are\n\
         written as functions (`_expanded`). None is wrong. The others are refused:\n\n\
         | class | tests | |\n|---|---:|---|\n",
        wengert_ci::onnx_suite::PACKAGES[0].replace("==", " "),
        plain + expanded,
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

fn bytes(path: &Path) -> Result<Bytes, String> {
    std::fs::read(path).map(Bytes::from).map_err(|e| e.to_string())
}

/// The tensors of a data set: inputs, then outputs.
fn data(folder: &Path, kind: &str) -> Result<Vec<Literal>, String> {
    let mut all = vec![];
    for n in 0.. {
        let path = folder.join(format!("{kind}_{n}.pb"));
        if !path.is_file() {
            break;
        }
        all.push(bytes(&path).and_then(|b| read_tensor(b).map_err(|e| e.to_string()))?);
    }
    Ok(all)
}

fn check(test: &Path) -> Outcome {
    let set = test.join("test_data_set_0");
    let (inputs, expected) = match (data(&set, "input"), data(&set, "output")) {
        (Ok(inputs), Ok(outputs)) => (inputs, outputs),
        (Err(e), _) | (_, Err(e)) => {
            // Files of sequences are messages of another kind.
            return match refused(&e) {
                Outcome::Failed(e) => Outcome::Refused(Class::Container.to_string(), e),
                refused => refused,
            };
        }
    };
    let model = match bytes(&test.join("model.onnx")) {
        Ok(model) => model,
        Err(e) => return Outcome::Failed(e),
    };
    let alone = |path: &Path| Err(Diagnostic::new(format!("there is no {}", path.display())));
    let read = |options: &Options| read("model.onnx", model.clone(), &alone, options);
    let names = match wengert_onnx::inputs("model.onnx", model.clone(), &alone) {
        Ok(names) => names,
        Err(e) => return refused(&e.to_string()),
    };
    // Shapes and axes are inputs of the tests. They are bound if the model needs it.
    let mut options = Options::default();
    let mut result = read(&options);
    if result.is_err() {
        let small = |l: &&Literal| l.len() <= 64 && l.shape().len() <= 1;
        let integer = |l: &&Literal| l.dtype().is_integer();
        for only_integers in [true, false] {
            for (name, value) in names.iter().zip(&inputs) {
                if small(&value) && (integer(&value) || !only_integers) {
                    options.bound.insert(name.clone(), value.clone());
                }
            }
            result = read(&options);
            if result.is_ok() {
                break;
            }
        }
    }
    let imported = match result {
        Ok(imported) => imported,
        Err(e) => return refused(&e.to_string()),
    };
    let function = &imported.program.functions()[0];
    let mut binding = Binding::new();
    let mut given = vec![];
    for (n, input) in function.inputs.iter().enumerate() {
        let value = imported.parameters.get(&input.name).or_else(|| {
            let name = imported.names.get(&input.name)?;
            inputs.get(names.iter().position(|known| known == name)?)
        });
        let Some(value) = value else {
            return Outcome::Failed(format!("no input `{}`", input.name));
        };
        for (dim, extent) in function.input_type(n).shape.iter().zip(value.shape()) {
            if let [(product, 1)] = dim.terms() {
                let _ = binding.insert(&product.to_string(), *extent as i64);
            }
        }
        given.push(value.clone());
    }
    let function = match function.bind(&binding) {
        Ok(function) => function,
        Err(e) => return Outcome::Failed(e.to_string()),
    };
    let found = match interpret::run(&function, &given) {
        Ok(found) => found,
        Err(e) => return Outcome::Failed(e.to_string()),
    };
    for (n, (found, wanted)) in found.iter().zip(&expected).enumerate() {
        if let Err(e) = compare(found, wanted) {
            return Outcome::Wrong(format!("result {n}: {e}"));
        }
    }
    match found.len() >= expected.len() {
        true => Outcome::Passed,
        false => Outcome::Wrong(format!("{} results of {}", found.len(), expected.len())),
    }
}

fn refused(message: &str) -> Outcome {
    let class = Class::ALL.into_iter().find(|class| message.contains(&format!("({class})")));
    match class {
        Some(class) => Outcome::Refused(class.to_string(), message.into()),
        None => Outcome::Failed(message.into()),
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
