//! `.plan` files: reading gives back the written plan, which runs to the same results. Invalid
//! files are refused.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use std::path::Path;
use wengert::core::Target;
use wengert::core::Verified;
use wengert::core::plan::{Plan, parse_plan};
use wengert::format::container::{self, Kind, Section};
use wengert::format::{codec, plan, v1};
use wengert::pipeline::{Options, compile};
use wengert::prelude::*;
use wengert_testing::programs::random_program;

fn program() -> Program {
    let mut program = Program::new();
    program
        .function("step", |f| {
            let x = f.input("x", f32("B,3"));
            let table = Tensor::constant(Literal::from_vec(&[3], vec![1.0f32, 2.0, 4.0]).unwrap());
            let w = f.state("w", Tensor::variable(f32("3").unwrap(), Initializer::Ones));
            f.update("w", &(&w + &table));
            f.output("y", x.sum_axes(&[0]) * &w);
        })
        .unwrap();
    program
}

fn compiled(size: i64) -> Verified<Plan> {
    compile(&program(), "step", &bind!(B = size), &Target::cpu(), &Options::default()).unwrap()
}

/// Every plan of core's filetests that is valid.
fn plans() -> Vec<Verified<Plan>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/tests/plan");
    let mut found = vec![compiled(2), compiled(5)];
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for case in text.split("\nplan @").skip(1) {
            let body = case.split("\n}\n").next().unwrap();
            if let Ok((plan, _)) = parse_plan("case", &format!("plan @{body}\n}}\n"))
                && let Ok(plan) = Verified::new(plan)
            {
                found.push(plan);
            }
        }
    }
    assert!(found.len() > 3, "core has plans to test with");
    for seed in 0..40 {
        let program = random_program(seed, 8);
        for function in program.functions() {
            let binding =
                function.variables().iter().fold(Binding::new(), |b, name| b.with(name, 3));
            // A binding may contradict a shape rule. All other functions compile.
            if function.bind(&binding).is_ok() {
                let options = Options::default();
                found.push(
                    compile(&program, &function.name, &binding, &Target::cpu(), &options).unwrap(),
                );
            }
        }
    }
    found
}

#[test]
fn round_trip_through_bytes_and_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.plan");
    for original in plans() {
        plan::write(&path, &original).unwrap();
        let read = plan::read(&path).unwrap();
        assert!(read == original, "@{}", original.function);
        assert_eq!(
            plan::to_bytes(std::slice::from_ref(&read)).unwrap(),
            std::fs::read(&path).unwrap()
        );
    }
}

#[test]
fn a_loaded_plan_runs_as_the_program_does() {
    let bytes = plan::to_bytes(&[compiled(2)]).unwrap();
    let x = Literal::from_vec(&[2, 3], vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let mut session = Session::open(Device::Interpreter).unwrap();
    let mut loaded = session.load_plans(plan::from_bytes(&bytes).unwrap()).unwrap();
    assert!(
        loaded.run(&[("x", &x)]).unwrap_err().to_string().contains("variable `w` has no value")
    );
    session.set_variable("w", &Literal::from_vec(&[3], vec![1.0f32, 1.0, 2.0]).unwrap()).unwrap();
    let y = loaded.run(&[("x", &x)]).unwrap();
    assert_eq!(y.get("y").unwrap().as_slice::<f32>().unwrap(), [5.0, 7.0, 18.0]);
    assert_eq!(session.variable("w").unwrap().as_slice::<f32>().unwrap(), [2.0, 3.0, 6.0]);
    let mut names: Vec<&str> = loaded.signature().inputs.iter().map(|i| i.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["w", "x"]);

    let mut other = Session::open(Device::Interpreter).unwrap();
    other.set_variable("w", &Literal::from_vec(&[3], vec![1.0f32, 1.0, 2.0]).unwrap()).unwrap();
    let mut built = other.compile(&program(), "step", bind!(B = 2)).unwrap();
    let again = built.run(&[("x", &x)]).unwrap();
    assert!(again.iter().unwrap().eq(y.iter().unwrap()));
    assert_eq!(other.variables().unwrap(), session.variables().unwrap());
}

/// A file with these parts and correct checksums.
fn sealed(text: &str, constants: &v1::Constants, literals: &[u8]) -> Vec<u8> {
    let constants = codec::encode("constants", constants).unwrap();
    let sections = [
        Section { name: "plan", bytes: text.as_bytes() },
        Section { name: "constants", bytes: &constants },
        Section { name: "literals", bytes: literals },
    ];
    container::write(Kind::Plan, v1::VERSION, &sections)
}

#[test]
fn plans_that_cannot_be_right_are_refused() {
    let original = compiled(2);
    let (text, constants, literals) = v1::plan::to_parts(&original);
    assert_eq!(constants.constants.len(), 1, "the table of the program");
    let says = |message: &str, bytes: Vec<u8>| {
        let error = plan::from_bytes(&bytes).unwrap_err().to_string();
        assert!(error.contains(message), "expected `{message}` in: {error}");
    };
    assert!(
        plan::from_bytes(&sealed(&text, &constants, &literals)).unwrap()
            == std::slice::from_ref(&original)
    );
    says(
        "section `literals` has 1 bytes too many",
        sealed(&text, &constants, &[&literals[..], &[0]].concat()),
    );
    says("larger than what is left", sealed(&text, &constants, &literals[1..]));
    let with = |change: fn(&mut v1::Constant)| {
        let mut changed = constants.clone();
        change(&mut changed.constants[0]);
        sealed(&text, &changed, &literals)
    };
    says("P", with(|c| c.value = 1 << 30));
    says("P5", with(|c| c.dtype = "i32".into()));
    says("unknown dtype", with(|c| c.dtype = "f31".into()));
    says("P", sealed(&text, &v1::Constants { constants: vec![] }, &[]));
    says("belong into their own section", sealed(&original.to_string(), &constants, &literals));
    // The place is a position in the section's text.
    says("plan:1:1", sealed(&text.replacen("plan", "plant", 1), &constants, &literals));
    let arena = text.lines().find(|l| l.trim_start().starts_with("arena")).unwrap();
    says("P15", sealed(&text.replacen(arena, "  arena 1048576 bound 0", 1), &constants, &literals));
    let program = wengert::GraphFile::new(program()).to_bytes().unwrap();
    says("this is a .graph file, not a .plan file", program);
}
