//! Diagnostics of derivatives: the function has none, or does not depend on the variable. The tests
//! check the message, the lines and the help, for Rust closures and for functions in files.
//!
//! The tests find lines of this file by marks: `// [mark]` at the end of each line that an error
//! must name.

use std::fmt::Write;
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use wengert_compiler::autodiff::function::{self, Grad, Jvp};
use wengert_compiler::autodiff::operators::{
    grad, grad_wrt, jvp, linearize, transpose, value_aux_and_grad, vjp,
};
use wengert_compiler::autodiff::rules::{custom_vjp, opaque};
use wengert_core::build::FunctionBuilder;
use wengert_core::graph::parse_program;
use wengert_core::{DType, Diagnostic, Location, Tensor, TensorType};

const NO_SCALAR: &str = "\
func @f(%x: f32[3]) -> (loss: f32[3]) {
  %0: f32[3] = exp %x
  return %0
}
";
const INTEGER: &str = "\
func @f(%x: f32[],
        %n: i32[]) -> (loss: f32[]) {
  return %x
}
";
const OPAQUE: &str = "\
func @f(%x: f32[3]) -> (loss: f32[]) {
  func @table(%a: f32[3]) {
    %b: f32[] = reduce_sum %a {axes=[0]}
    return %b
  }
  %0: f32[] = call %x {function=@table, opaque=true}
  return %0
}
";
const CLIPPED: &str = "\
func @f(%x: f32[3]) -> (y: f32[3]) {
  %y: f32[3] = custom_vjp %x {function=@clip}
    region (%a: f32[3]) {
      return %a
    }
    region (%ct: f32[3]) {
      %low: f32[] = constant {value=f32[] -1.0}
      %high: f32[] = constant {value=f32[] 1.0}
      %d: f32[3] = clamp %low, %ct, %high
      return %d
    }
  return %y
}
";
const CAPTURING: &str = "\
func @f(%x: f32[3]) -> (loss: f32[]) {
  %c: f32[3] = exp %x
  %y: f32[3] = custom_vjp %x, %c {captures=1, function=@scale, residuals=1}
    region (%a: f32[3], %b: f32[3]) {
      %0: f32[3] = mul %a, %b
      return %0, %b
    }
    region (%b: f32[3], %ct: f32[3]) {
      %0: f32[3] = mul %ct, %b
      return %0
    }
  %loss: f32[] = reduce_sum %y {axes=[0]}
  return %loss
}
";
const INDEPENDENT: &str = "\
func @f(%x: f32[],
        %w: f32[]) -> (loss: f32[]) {
  return %x
}
";

fn vector(dtype: DType) -> TensorType {
    TensorType::new(dtype, [3usize])
}

/// The error of a function of a float vector and an integer vector.
fn refused(f: impl FnOnce(&Tensor, &Tensor) -> Tensor) -> Diagnostic {
    let built = FunctionBuilder::build("f", |b| {
        let x = b.input("x", vector(DType::F32)); // [x]
        let n = b.input("n", vector(DType::I32)); // [n]
        let y = f(&x, &n);
        b.output("y", y);
    });
    built.expect_err("a mistake")
}

/// The number of the line of this file that ends with the mark.
fn line(mark: &str) -> u32 {
    let mark = format!("// [{mark}]");
    let mut lines =
        include_str!("diagnostics.rs").lines().zip(1..).filter(|(l, _)| l.ends_with(&mark));
    let (_, line) = lines.next().unwrap_or_else(|| panic!("no line is marked {mark}"));
    assert!(lines.next().is_none(), "{mark} marks several lines");
    line
}

/// The line of a place. The place must be in `file`.
fn line_in(file: &str, location: &Location) -> u32 {
    let Location::Source { file: found, line, .. } = location else {
        panic!("no source line: {location}")
    };
    assert!(found.ends_with(file), "{found} is not {file}");
    *line
}

/// Compares message, help and places. Each place is given by the mark of its line and its text.
fn assert_tells(error: &Diagnostic, message: &str, places: &[(&str, &str)], help: Option<&str>) {
    assert_eq!(error.message, message);
    assert_eq!(error.help.as_deref(), help);
    let found: Vec<(u32, &str)> = error
        .places
        .iter()
        .map(|(at, what)| (line_in("diagnostics.rs", at), what.as_str()))
        .collect();
    let expected: Vec<(u32, &str)> =
        places.iter().map(|(mark, what)| (line(mark), *what)).collect();
    assert_eq!(found, expected, "{error}");
}

/// As [`assert_tells`], for a function in a file. The place is given by line and column.
fn assert_tells_of_file(
    error: &Diagnostic,
    message: &str,
    place: (u32, u32, &str),
    help: Option<&str>,
) {
    assert_eq!(error.message, message);
    assert_eq!(error.help.as_deref(), help);
    let expected = (Location::source("f.ir", place.0, place.1), place.2.to_string());
    assert_eq!(error.places, [expected], "{error}");
}

#[test]
fn an_output_that_is_no_scalar() {
    let error = refused(|x, _| {
        let square = |x: &Tensor| x * x; // [square]
        grad(x, square) // [grad of a vector]
    });
    assert_tells(
        &error,
        "@f: grad needs a scalar output; the closure's has shape f32[3]. Reduce it with `.sum()` \
         or use `jacrev`",
        &[("square", "the output is made here"), ("grad of a vector", "differentiated here")],
        None,
    );
    // The tensor may come from outside of the closure.
    let error = refused(|x, _| {
        let outside = x.exp(); // [outside]
        grad(x, |_| outside) // [grad of a capture]
    });
    assert_tells(
        &error,
        "@f: grad needs a scalar output; the closure's has shape f32[3]. Reduce it with `.sum()` \
         or use `jacrev`",
        &[("outside", "the output is made here"), ("grad of a capture", "differentiated here")],
        None,
    );

    let program = parse_program(NO_SCALAR, "f.ir").unwrap();
    let error =
        function::grad(&program, "f", &Grad { wrt: &["x"], ..Grad::default() }).unwrap_err();
    assert_tells_of_file(
        &error,
        "@f: grad needs a scalar output; `loss` has shape f32[3]. Reduce it with `.sum()` or use \
         `jacrev`",
        (2, 16, "`loss` is made here"),
        None,
    );
}

#[test]
fn an_integer_that_is_differentiated_by() {
    let error = refused(|_, n| {
        grad(n, |n| n.convert(DType::F32).sum()) // [grad by integers]
    });
    assert_tells(
        &error,
        "@f: there are no floats to differentiate with respect to",
        &[("n", "i32[3] is made here"), ("grad by integers", "differentiated here")],
        Some("integers and bools have no derivative"),
    );
    let error = refused(|x, n| {
        let pair = (x.clone(), n.clone());
        grad_wrt(&pair, &["1"], |(x, _)| x.sum()).0 // [grad by name]
    });
    assert_tells(
        &error,
        "@f: `1` has type i32[3]: i32 has no derivative",
        &[("n", "declared here"), ("grad by name", "differentiated here")],
        Some("differentiate with respect to floats only"),
    );
    // An output of integers.
    let error = refused(|x, _| {
        let count = |x: &Tensor| x.convert(DType::I32).sum(); // [count]
        grad(x, count) // [grad of a count]
    });
    assert_tells(
        &error,
        "@f: grad needs an output of floats; the closure's is i32[]: i32 has no derivative",
        &[("count", "the output is made here"), ("grad of a count", "differentiated here")],
        None,
    );

    let program = parse_program(INTEGER, "f.ir").unwrap();
    let error =
        function::grad(&program, "f", &Grad { wrt: &["n"], ..Grad::default() }).unwrap_err();
    assert_tells_of_file(
        &error,
        "@f: `n` has type i32[]: i32 has no derivative",
        (2, 9, "declared here"),
        Some("differentiate with respect to floats only"),
    );
}

#[test]
fn a_call_that_is_opaque() {
    let message = "@f: cannot differentiate through `@table`: it is opaque";
    let help = Some("Give it a `custom_vjp` or mark it `stop_gradient`");
    let error = refused(|x, _| {
        let table = |x: &Tensor| opaque("table", x, |x| x.floor()); // [table]
        grad(x, |x| (table(x) * 2.0).sum()) // [grad of table]
    });
    assert_tells(
        &error,
        message,
        &[("table", "called here"), ("grad of table", "differentiated here")],
        help,
    );
    // In the code of a derivative, too, the error names the user's line.
    let error = refused(|x, _| {
        let scaled =
            |x: &Tensor| custom_vjp(x, |x| (x.sum(), x.clone()), |x: &Tensor, ct| ct * rounded(x));
        grad(x, |x| grad(x, scaled).sum()) // [grad of grad of rounded]
    });
    assert_eq!(error.message, "@f: cannot differentiate through `@rounded`: it is opaque");
    assert_eq!(line_in("diagnostics.rs", &error.places[0].0), line("rounded"), "{error}");

    let program = parse_program(OPAQUE, "f.ir").unwrap();
    let reverse =
        function::grad(&program, "f", &Grad { wrt: &["x"], ..Grad::default() }).unwrap_err();
    let forward = function::jvp(&program, "f", &Jvp { wrt: &["x"] }).unwrap_err();
    for error in [reverse, forward] {
        assert_tells_of_file(&error, message, (6, 15, "called here"), help);
    }
}

fn rounded(x: &Tensor) -> Tensor {
    opaque("rounded", x, |x| x.round()) // [rounded]
}

/// Every op has a rule, so only a function of the user's may lack one: a rule for one direction
/// that cannot be transposed, or a rule that ignores a captured value.
#[test]
fn a_rule_that_is_missing() {
    let message = "@f: forward mode of a `custom_vjp` is the transpose of its backward half: \
                   `clamp` is not linear here, so it cannot be transposed";
    let help = Some("give the function a `custom_jvp`, or use reverse mode only");
    let error = refused(|x, _| {
        let clip = |ct: &Tensor| ct.clamp(-1.0, 1.0); // [clamp]
        let clipped = |x: &Tensor| custom_vjp(x, |x| (x.clone(), ()), |(), ct: &Tensor| clip(ct));
        jvp(x, x, clipped).1 // [jvp of clipped]
    });
    assert_tells(
        &error,
        message,
        &[("clamp", "clamp"), ("jvp of clipped", "differentiated here")],
        help,
    );

    let error = refused(|x, _| {
        let scaled =
            |x: &Tensor, c: &Tensor| custom_vjp(x, |x| (x * c, ()), |(), ct: &Tensor| ct * c); // [rule]
        grad(x, |x| {
            let c = x.exp(); // [captured]
            scaled(x, &c).sum()
        }) // end
    });
    assert_eq!(
        error.message,
        "@f: the rule of the function of a `custom_vjp` captures a value that is differentiated, \
         of which it knows no derivative"
    );
    let lines: Vec<u32> =
        error.places[..2].iter().map(|(at, _)| line_in("diagnostics.rs", at)).collect();
    assert_eq!(lines, [line("rule"), line("captured")], "{error}");

    let program = parse_program(CLIPPED, "f.ir").unwrap();
    let error = function::jvp(&program, "f", &Jvp { wrt: &["x"] }).unwrap_err();
    assert_tells_of_file(&error, message, (9, 20, "clamp"), help);

    let program = parse_program(CAPTURING, "f.ir").unwrap();
    let error =
        function::grad(&program, "f", &Grad { wrt: &["x"], ..Grad::default() }).unwrap_err();
    assert_eq!(
        error.message,
        "@f: the rule of `@scale` captures a value that is differentiated, of which it knows no \
         derivative"
    );
    let lines: Vec<u32> = error.places.iter().map(|(at, _)| line_in("f.ir", at)).collect();
    assert_eq!(lines, [3, 2], "{error}");
}

/// An error within a derivative names the user's line from which the derivative comes.
#[test]
fn what_is_derived_names_the_line_it_comes_from() {
    let error = refused(|x, _| {
        let cube = |x: &Tensor| (x * x * x).sum(); // [cube]
        transpose(x, |x| grad(x, cube))(x) // [transpose of grad]
    });
    assert_eq!(line_in("diagnostics.rs", &error.places[0].0), line("cube"), "{error}");
    assert!(error.message.contains("is not linear here, so it cannot be transposed"), "{error}");
}

/// Collects the warnings.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// The warnings that are emitted while `f` runs.
    fn of(f: impl FnOnce()) -> Vec<String> {
        let warnings = Warnings::default();
        tracing::subscriber::with_default(warnings.clone(), f);
        std::mem::take(&mut *warnings.0.lock().unwrap())
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut message = Message::default();
        event.record(&mut message);
        self.0.lock().unwrap().push(message.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The message of an event.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            write!(self.0, "{value:?}").unwrap();
        }
    }
}

/// Builds a function of two vectors with a vector result.
fn built(f: impl FnOnce(&Tensor, &Tensor) -> Tensor) {
    let function = FunctionBuilder::build("f", |b| {
        let v = b.input("v", vector(DType::F32)); // [v]
        let w = b.input("w", vector(DType::F32)); // [w]
        let y = f(&v, &w);
        b.output("y", y);
    });
    function.unwrap_or_else(|e| panic!("{e}"));
}

/// The lines of this file that a warning names.
fn lines_of(warning: &str) -> Vec<u32> {
    let places = warning.lines().filter_map(|l| l.strip_prefix("  --> "));
    let number = |place: &str| {
        let rest = place
            .split_once("derivatives/diagnostics.rs:")
            .unwrap_or_else(|| panic!("{warning}"))
            .1;
        rest.split(':').next().unwrap().parse().unwrap()
    };
    places.map(number).collect()
}

#[test]
fn a_result_that_does_not_depend_on_the_variable() {
    let warnings = Warnings::of(|| {
        built(|v, w| {
            let pair = (v.clone(), w.clone());
            grad(&pair, |(v, _)| v.square().sum()).1 // [grad of one]
        });
    });
    let [warning] = warnings.as_slice() else { panic!("{warnings:?}") };
    assert_eq!(
        warning.lines().next(),
        Some("result does not depend on `%1`: its gradient is zero")
    );
    assert_eq!(lines_of(warning), [line("w"), line("grad of one")], "{warning}");

    // A tensor that is the whole argument has no name.
    let warnings = Warnings::of(|| {
        built(|v, w| {
            grad(v, |_| w.sum()) // [grad of none]
        });
    });
    let [warning] = warnings.as_slice() else { panic!("{warnings:?}") };
    assert_eq!(
        warning.lines().next(),
        Some("result does not depend on the variable: its gradient is zero")
    );
    assert_eq!(lines_of(warning), [line("v"), line("grad of none")], "{warning}");

    // Tensors named by key path, in a function with further results.
    let warnings = Warnings::of(|| {
        built(|v, w| {
            let pair = (v.clone(), w.clone());
            grad_wrt(&pair, &["0"], |(_, w)| w.sum()).0 // [grad of a path]
        });
        built(|v, w| {
            let pair = (v.clone(), w.clone());
            value_aux_and_grad(&pair, |(v, w)| (v.sum(), w.clone())).2.1 // [grad with more]
        });
    });
    let lines: Vec<Vec<u32>> = warnings.iter().map(|w| lines_of(w)).collect();
    let expected =
        [[line("v"), line("grad of a path")], [line("w"), line("grad with more")]].map(Vec::from);
    assert_eq!(lines, expected, "{warnings:?}");

    // There is no warning if all arguments are used, if the unused ones are not requested or have
    // no derivative, or if a zero is intended.
    let warnings = Warnings::of(|| {
        built(|v, w| grad(&(v.clone(), w.clone()), |(v, w)| (v * w).sum()).1);
        built(|v, w| grad_wrt(&(v.clone(), w.clone()), &["0"], |(v, _)| v.sum()).0);
        built(|v, _| grad(&(v.clone(), v.convert(DType::I32)), |(v, _)| v.sum()).0);
        built(|v, w| vjp(v, |v: &Tensor| (v * w).stop_gradient()).1(w));
        built(|v, w| linearize(v, |_: &Tensor| w.clone()).1.push_forward(v));
    });
    assert!(warnings.is_empty(), "{warnings:?}");

    let program = parse_program(INDEPENDENT, "f.ir").unwrap();
    let request = Grad { wrt: &["x", "w"], ..Grad::default() };
    let derived = function::grad(&program, "f", &request).unwrap();
    let halves = function::split(&program, "f", &request).unwrap();
    for warnings in [derived.warnings, halves.warnings] {
        let [warning] = warnings.as_slice() else { panic!("{warnings:?}") };
        let message = "result `loss` does not depend on `%w`: its gradient is zero";
        assert_tells_of_file(warning, message, (2, 9, "`w` is declared here"), None);
    }
}
