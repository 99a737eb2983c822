//! Text form and verifier of the Graph stage.
//!
//! - Random programs verify. The texts that they print to parse back to the same programs.
//! - `graph/*.ir` are filetests. A file is a list of cases between lines `// ---`. A case with `//
//!   error: MESSAGE` on a line must be refused, with an error at that line whose message contains
//!   MESSAGE. Every other case must be accepted, and must print as it is written, comments aside.
//! - Mutated texts never make the parser panic.

use proptest::prelude::*;
use std::path::Path;
use wengert_core::graph::{self, PrintOptions, parse_program, verify, verify_program};
use wengert_core::{Binding, Id, Location, LocationId};
use wengert_testing::Random;
use wengert_testing::programs::{self, random_program, without_locations};

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn random_programs_round_trip(seed: u64, size in 0usize..30) {
        let program = random_program(seed, size);
        let text = program.to_string();
        let parsed = parse_program(&text, "f.ir")
            .map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        prop_assert_eq!(without_locations(&parsed), without_locations(&program));
        prop_assert_eq!(parsed.to_string(), text);

        let text = graph::print(&program, &PrintOptions { locations: true });
        let parsed = parse_program(&text, "f.ir")
            .map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        prop_assert_eq!(parsed, program);
    }

    #[test]
    fn renumbering_undoes_any_numbering(seed: u64, size in 1usize..20) {
        for function in random_program(seed, size).functions() {
            let mut random = Random(seed);
            let mut new: Vec<usize> = (0..function.body.values.len()).collect();
            (1..new.len()).rev().for_each(|i| new.swap(i, random.below(i + 1)));
            let mut shuffled = function.clone();
            let body = &mut shuffled.body;
            for (old, ty) in function.body.values.iter() {
                body.values[programs::value(new[old.index()])] = ty.clone();
            }
            let shuffle = |v: &mut graph::ValueId| *v = programs::value(new[v.index()]);
            body.inputs.iter_mut().for_each(shuffle);
            body.outputs.iter_mut().for_each(shuffle);
            for equation in &mut body.equations {
                equation.operands.iter_mut().chain(&mut equation.results).for_each(shuffle);
            }
            prop_assert_eq!(&shuffled.renumber(), function);
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn mutated_texts_are_refused_or_read(seed: u64, size in 0usize..8, cuts in 1usize..6) {
        let mut random = Random(seed);
        let options = PrintOptions { locations: random.below(2) == 0 };
        let mut text = graph::print(&random_program(seed, size), &options).into_bytes();
        for _ in 0..cuts {
            if text.is_empty() {
                break;
            }
            let at = random.below(text.len());
            let end = (at + random.below(12)).min(text.len());
            let from = random.below(text.len());
            let piece = text[from..(from + random.below(12)).min(text.len())].to_vec();
            match random.below(4) {
                0 => drop(text.drain(at..end)),
                1 => drop(text.splice(at..end, piece)),
                2 => drop(text.splice(at..at, piece)),
                _ => text[at] = *random.pick(b"0123456789-%@(){}[]<>=:,.\"\\ \nfxB"),
            }
        }
        if let Ok(text) = String::from_utf8(text)
            && let Ok(program) = parse_program(&text, "f.ir") {
            verify_program(&program).expect("what parses is verified");
            let again = parse_program(&program.to_string(), "f.ir").unwrap();
            prop_assert_eq!(without_locations(&again), without_locations(&program));
        }
    }
}

#[test]
fn filetests() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/graph");
    let mut files: Vec<_> =
        std::fs::read_dir(&directory).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let mut failures = Vec::new();
    let mut cases = 0;
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap().to_string();
        let text = std::fs::read_to_string(&file).unwrap();
        for case in text.split("// ---\n") {
            cases += 1;
            if let Err(reason) = check_case(case, &name) {
                failures.push(format!("{name}: {reason}\n{case}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(cases > 90, "{cases} cases were found");
}

fn check_case(case: &str, name: &str) -> Result<(), String> {
    let expected =
        case.lines().zip(1u32..).find_map(|(line, n)| Some((n, line.split_once("// error: ")?.1)));
    match (parse_program(case, name), expected) {
        (Ok(_), Some((line, message))) => {
            Err(format!("accepted; line {line} should say: {message}"))
        }
        (Err(e), None) => Err(e.to_string()),
        (Err(e), Some((line, message))) => {
            let at = match e.places.first() {
                Some((Location::Source { line, .. }, _)) => *line,
                _ => 0,
            };
            match at == line && e.message.contains(message) && e.excerpt.is_some() {
                true => Ok(()),
                false => Err(format!("expected at line {line}: {message}\nfound: {e}")),
            }
        }
        (Ok(program), None) => {
            let code = |text: &str| {
                let lines =
                    text.lines().filter(|l| !l.trim_start().starts_with("//") && !l.is_empty());
                lines.map(str::to_string).collect::<Vec<_>>()
            };
            let printed = program.to_string();
            let located = graph::print(&program, &PrintOptions { locations: true });
            let accepted = [&printed, &located].iter().any(|p| code(p) == code(case));
            let again = parse_program(&located, name).map_err(|e| e.to_string())?;
            match accepted && again == program {
                true => Ok(()),
                false => Err(format!("prints as\n{printed}")),
            }
        }
    }
}

#[test]
fn a_text_that_breaks_off_is_refused() {
    let text = "func @f(%x: f32[2]) -> (f32[2]) {\n  %0: f32[2] = exp %x {}\n  return %0\n}";
    let whole = parse_program(text, "f.ir").unwrap();
    for end in 1..text.len() {
        assert!(parse_program(&text[..end], "f.ir").is_err(), "{}", &text[..end]);
    }
    assert_eq!(whole.functions().len(), 1);
}

/// The verifier's errors that no text can cause. The test edits a function in memory instead.
#[test]
fn invariants_that_texts_cannot_violate() {
    let text = "func @f(%x: f32[2], state %s: f32[2]) -> (f32[2], state s: f32[2]) {
        %0: f32[2] = exp %x
        %1: f32[2] = add %0, %s
        return %0, %1
    }";
    let good = parse_program(text, "f.ir").unwrap().functions()[0].clone();
    verify(&good).unwrap();
    type Break = fn(&mut graph::Function);
    let cases: &[(&str, Break)] = &[
        ("G1: `2` is no name for a function", |f| f.name = "2".into()),
        ("G1: `a b` is no name for an input", |f| f.inputs[0].name = "a b".into()),
        ("G1: `a-` is no name for an output", |f| f.outputs[0].name = "a-".into()),
        ("G1: `` is no name for an output", |f| f.outputs[0].name = String::new()),
        ("G2: 1 inputs are declared, the body has 2", |f| drop(f.inputs.pop())),
        ("G2: 2 outputs are declared, the body has 1", |f| f.body.outputs.truncate(1)),
        ("G3: value 3 is defined where value 2 of 4", |f| {
            f.body.equations[0].results[0] = programs::value(3);
        }),
        ("G4: `add` uses value 2, which is not", |f| f.body.equations.swap(0, 1)),
        ("G3: value 0 is defined where value 2", |f| {
            f.body.equations[0].results[0] = programs::value(0)
        }),
        ("G3: value 9 is defined where value 0", |f| f.body.inputs[0] = programs::value(9)),
        ("G3: 4 values have types, 3 are defined", |f| {
            f.body.equations.pop();
            f.body.outputs[1] = programs::value(1);
        }),
        ("G4: `exp` uses value 3, which is not", |f| {
            f.body.equations[0].operands[0] = programs::value(3)
        }),
        ("G4: output value 7", |f| f.body.outputs[0] = programs::value(7)),
        ("G5: `exp` has 1 result, 2 are defined", |f| {
            f.body.equations[0].results.push(programs::value(3));
            f.body.equations[1].results[0] = programs::value(4);
            let ty = f.body.values[programs::value(3)].clone();
            f.body.values.push(ty);
        }),
        ("G7: `exp` takes 0 regions, found 1", |f| {
            f.body.equations[0].regions = vec![f.body.clone().into()]
        }),
        ("G9: location @9", |f| f.body.equations[0].location = LocationId(9)),
        ("G9: location @9", |f| f.inputs[0].location = LocationId(9)),
        ("G9: location @5 is derived from @7", |f| {
            f.locations.intern(Location::Derived { of: LocationId(7), rule: "r".into() });
        }),
    ];
    for (message, make_wrong) in cases {
        let mut wrong = good.clone();
        make_wrong(&mut wrong);
        let error = verify(&wrong).expect_err(message).to_string();
        assert!(
            error.starts_with("@") && error.contains(message),
            "wanted {message}, found {error}"
        );
        // A graph that does not verify prints all the same, since dumps need it.
        assert!(!wrong.to_string().is_empty());
    }
}

#[test]
fn errors_name_function_equation_and_source_line() {
    let text = "func @f(%x: f32[2]) -> (f32[2]) {\n  %0: f32[2] = exp %x\n  return %0\n}\n";
    let mut function = parse_program(text, "f.ir").unwrap().functions()[0].clone();
    let forward = function.body.equations[0].location;
    let rule = Location::Derived { of: forward, rule: "jvp(tanh)".into() };
    function.body.equations[0].location = function.locations.intern(rule);
    function.body.values[programs::value(1)] =
        function.input_type(0).with_dtype(wengert_core::DType::F64);
    let error = verify(&function).unwrap_err().to_string();
    assert_eq!(
        error,
        "@f: %0: G5: `exp` gives f32[2], the definition says f64[2]\n  \
         --> f.ir:2:16: jvp(tanh) of f.ir:2:16\n  help: results have the types that the op infers \
         from its operands and attributes"
    );
}

#[test]
fn errors_of_types_say_where_the_operands_come_from() {
    let text = "func @f(%x: f32[2], %y: f32[3]) -> () {\n  %0: f32[2] = exp %x\n  \
                %1: f32[2] = add %0, %y\n  return\n}\n";
    let error = parse_program(text, "f.ir").unwrap_err().to_string();
    let expected = "@f: %1: G5: add: operands have types f32[2] and f32[3]
  --> f.ir:3:16
  --> f.ir:2:16: an operand, f32[2], is made here
  --> f.ir:1:21: an operand, f32[3], is made here
    3 |   %1: f32[2] = add %0, %y
      |                ^
  help: ";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn a_long_chain_of_derivations_is_described() {
    let mut table = wengert_core::LocationTable::default();
    let mut of = table.intern(Location::source("a.rs", 1, 2));
    for i in 0..100_000 {
        of = table.intern(Location::Derived { of, rule: format!("r{i}").into() });
    }
    assert!(table.describe(of).ends_with(" of r0 of a.rs:1:2"));
}

#[test]
fn bounds_of_types_hold_after_binding() {
    let text = "func @f(%x: f32[B,B]) -> (f32[B,B]) {\n  return %x\n}\n";
    let function = parse_program(text, "f.ir").unwrap().functions()[0].clone();
    assert!(function.bind(&Binding::new().with("B", 8)).is_ok());
    let error = function.bind(&Binding::new().with("B", 1 << 30)).unwrap_err().to_string();
    assert!(error.contains("larger than any memory"), "{error}");
}

/// Parsing takes linear time. With a quadratic step each of these texts would take minutes.
#[test]
fn long_texts_are_read_in_time() {
    let functions: String =
        (0..20_000).map(|i| format!("func @f{i}() -> () {{\n  return\n}}\n")).collect();
    assert_eq!(parse_program(&functions, "f.ir").unwrap().functions().len(), 20_000);

    let list =
        |make: &dyn Fn(usize) -> String| (0..50_000).map(make).collect::<Vec<_>>().join(", ");
    let text = format!(
        "func @f({}) -> ({}) {{\n  return {}\n}}\n",
        list(&|i| format!("state %x{i}: f32[]")),
        list(&|i| format!("state x{i}: f32[]")),
        list(&|i| format!("%x{i}"))
    );
    assert_eq!(parse_program(&text, "f.ir").unwrap().functions()[0].inputs.len(), 50_000);

    let equations: String =
        (1..50_000).map(|i| format!("%{i}: f32[] = neg %{}\n", i - 1)).collect();
    let text = format!("func @f(%0: f32[]) -> () {{\n{equations}  return\n}}\n");
    assert!(parse_program(&text, "f.ir").is_err(), "%0 is no name for an input");
    let text = text.replace("%0", "%x");
    let program = parse_program(&text, "f.ir").unwrap();
    assert_eq!(program.functions()[0].body.equations.len(), 49_999);
}
