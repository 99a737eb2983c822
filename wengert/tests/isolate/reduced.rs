//! Cases that are shrunk, and the figures of the planted faults.

use wengert::core::graph::parse_program;
use wengert::isolate::cut::Case;
use wengert::isolate::reduce::{Fails, Limits, reduce};

/// The most equations of a reduced case.
const MOST: u64 = 12;

/// The equations of a case after its reduction, if it still fails, also when its text is read.
pub fn shrunk(what: &str, case: &Case, fails: &mut Fails<'_>) -> Option<u64> {
    let reduced = reduce(case, Limits::default(), fails, &mut |_| ()).unwrap();
    let read = parse_program(&reduced.case.function.to_string(), "small.ir").unwrap();
    let again = fails(&read.functions()[0], &reduced.case.inputs);
    let equations = reduced.case.function.body.extent().equations;
    println!(
        "{what}: {} equations, {equations} after {} attempts",
        case.function.body.extent().equations,
        reduced.attempts
    );
    (again.as_ref() == Some(&reduced.failure) && reduced.is_minimal).then_some(equations)
}

/// The figures of planted faults.
#[derive(Default)]
pub struct Figures {
    planted: usize,
    named: usize,
    small: usize,
    greatest: u64,
}

impl Figures {
    /// Counts a fault: whether it was named, and the equations of its reduced case.
    pub fn count(&mut self, what: &str, named: bool, equations: Option<u64>) {
        self.planted += 1;
        self.named += usize::from(named);
        self.small += usize::from(equations.is_some_and(|n| n <= MOST));
        self.greatest = self.greatest.max(equations.unwrap_or(u64::MAX));
        if !named || equations.is_none_or(|n| n > MOST) {
            println!("MISSED {what}: named {named}, reduced to {equations:?}");
        }
    }

    /// States the figures and asserts them. Of all three suites together 28 of 30 must be named;
    /// each suite names all of its ten, so that the sum is 30.
    pub fn state(&self, faults: &str) {
        let Figures { planted, named, small, greatest } = self;
        println!(
            "{faults}: {named} of {planted} named; {small} of {planted} reduced to at most {MOST} \
             equations, at most {greatest}"
        );
        assert_eq!((*planted, *named, *small), (10, 10, 10));
    }
}
