//! Cases that are shrunk, and the figures of the planted faults.

use wengert::core::graph::parse_program;
use wengert::isolate::cut::Case;
use wengert::isolate::reduce::{Fails, Limits, reduce};

/// The most equations of a reduced case.
const MOST: u64 = 12;

/// The equations of a case after its reduction, if it still fails, also when its text is read.
pub fn shrunk(what: &str, case: &Case, fails: &mut Fails<'_>) -> Option<u64> {
    let reduced = match reduce(case, Limits::default(), fails, &mut |_| ()) {
        Ok(reduced) => reduced,
        Err(error) => {
            println!("{what}: {error}");
            return None;
        }
    };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::{network, networks};
    use wengert::Literal;
    use wengert::core::graph::Function;

    fn has(function: &Function, op: &str) -> bool {
        fn inside(body: &wengert::core::graph::Body, op: &str) -> bool {
            let is = |e: &wengert::core::graph::Equation| {
                e.op.name() == op || e.regions.iter().any(|region| inside(region, op))
            };
            body.equations.iter().any(is)
        }
        inside(&function.body, op)
    }

    #[test]
    fn a_case_that_does_not_fail_is_refused() {
        let case = &network(&networks(), "mlp").forward.clone();
        let error = reduce(case, Limits::default(), &mut |_, _| None, &mut |_| ()).unwrap_err();
        assert!(error.message.contains("does not fail"), "{error}");
    }

    /// A panic in a smaller case is another failure, and ends nothing.
    #[test]
    fn a_panic_is_a_failure_of_its_own() {
        let case = &network(&networks(), "lstm").forward.clone();
        let mut panics = 0;
        let mut fails = |function: &Function, _: &[Literal]| {
            if !has(function, "tanh") {
                panics += 1;
                panic!("there is no tanh among {} equations", function.body.equations.len());
            }
            Some("it has a tanh".to_owned())
        };
        let reduced = reduce(case, Limits::default(), &mut fails, &mut |_| ()).unwrap();
        assert_eq!(reduced.failure, "it has a tanh");
        assert_eq!(reduced.case.function.body.extent().equations, 1);
        assert!(panics > 3);
        // The other way round, the panic is the failure, whatever its numbers.
        let mut fails = |function: &Function, _: &[Literal]| {
            assert!(!has(function, "exp"), "an exp among {}", function.body.equations.len());
            None
        };
        let reduced = reduce(case, Limits::default(), &mut fails, &mut |_| ()).unwrap();
        assert_eq!(reduced.failure, "panic: an exp among #");
        assert_eq!(reduced.case.function.body.extent().equations, 1);
    }

    #[test]
    fn reductions_are_deterministic_and_bounded() {
        let case = &network(&networks(), "attention").gradient.clone();
        let run = |attempts: usize| {
            let mut asked = 0;
            let mut fails = |function: &Function, _: &[Literal]| {
                asked += 1;
                (has(function, "exp") && has(function, "sqrt")).then(|| "both".to_owned())
            };
            let limits = Limits { attempts };
            let reduced = reduce(case, limits, &mut fails, &mut |_| ()).unwrap();
            assert_eq!(asked, reduced.attempts);
            assert!(asked <= attempts);
            reduced
        };
        let (first, second, short) = (run(5000), run(5000), run(20));
        assert_eq!(first, second);
        assert!(first.is_minimal && !short.is_minimal);
        assert_eq!(first.case.function.body.extent().equations, 2);
    }
}
