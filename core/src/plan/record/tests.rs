//! Recordings of the plans in the filetests, as text.

#![allow(clippy::unwrap_used)] // It is a test.

use super::*;
use crate::diagnostic::Diagnostic;
use crate::plan::{Plan, Prepare, Resolver, Step, parse_plan, resolve};
use crate::verified::Verified;
use std::fmt::Write;

/// The places of a nest or call.
#[derive(Debug)]
struct Kernel(Vec<Place>);

struct Places;

impl<'p> Prepare<'p> for Places {
    type Kernel = Kernel;

    fn prepare(
        &mut self,
        resolver: &Resolver<'p>,
        steps: &'p [Step],
        kernels: &mut Vec<Kernel>,
    ) -> Result<usize> {
        kernels.push(Kernel(resolver.arguments(&steps[0])));
        Ok(1)
    }
}

/// Writes one word for each command, and brackets for loops and branches.
#[derive(Default)]
struct Text(String);

impl StepRunner for Text {
    type Kernel = Kernel;
    type Error = Diagnostic;

    fn launch(&mut self, kernel: &Kernel, counters: &Counters) -> Result<()> {
        let last = counters.region(kernel.0.last().unwrap());
        write!(self.0, "{:?}+{} ", last.space, last.offset).unwrap();
        Ok(())
    }

    fn copy(&mut self, _: Region, to: Region) -> Result<()> {
        write!(self.0, "copy {:?}+{} ", to.space, to.offset).unwrap();
        Ok(())
    }

    fn read(&mut self, _: Region) -> Result<[u8; 8]> {
        unreachable!("a recording reads nothing")
    }

    fn located(&self, _: Option<usize>, error: Diagnostic) -> Diagnostic {
        error
    }
}

impl StepRecorder for Text {
    fn repeat(
        &mut self,
        place: LoopPlace,
        repetition: Repetition,
        body: &mut Body<'_, Self>,
    ) -> Result<(), Diagnostic> {
        let text = match repetition {
            Repetition::Times(times) => format!("times {times}"),
            Repetition::Count { count, limit } => format!("count {:?} {limit}", count.space),
            Repetition::While { condition, limit } => {
                format!("while {:?} {limit}", condition.space)
            }
        };
        write!(self.0, "l{} {text} {{ ", place.counter).unwrap();
        body(self)?;
        self.0.push_str("} ");
        Ok(())
    }

    fn branch(
        &mut self,
        _: usize,
        selector: Region,
        arms: usize,
        arm: &mut Arm<'_, Self>,
    ) -> Result<(), Diagnostic> {
        write!(self.0, "branch {:?} ", selector.space).unwrap();
        for n in 0..arms {
            self.0.push_str("{ ");
            arm(self, n)?;
            self.0.push_str("} ");
        }
        Ok(())
    }
}

/// A plan of the filetests.
fn plan(name: &str) -> Verified<Plan> {
    let files = [
        include_str!("../../../tests/plan/control.plan"),
        include_str!("../../../tests/plan/loops.plan"),
    ];
    let start = format!("plan @{name} {{");
    let text = files.iter().find_map(|file| Some(&file[file.find(&start)?..])).unwrap();
    let end = text.find("\n}\n").map_or(text.len(), |end| end + 3);
    Verified::new(parse_plan("file", &text[..end]).unwrap().0).unwrap()
}

fn visit(kernel: &Kernel, visit: &mut dyn FnMut(&Place)) {
    kernel.0.iter().for_each(visit);
}

/// The recording of a plan in at most `most` commands.
fn recorded(plan: &Verified<Plan>, most: u64) -> Result<(Recording, String), Unrecordable> {
    let resolved = resolve(plan, &mut Places).unwrap();
    let recording = resolved.recording(most, &visit)?;
    let mut text = Text::default();
    resolved.record(&recording, &mut text).unwrap();
    Ok((recording, text.0.trim_end().to_string()))
}

#[test]
fn constant_loops_are_unrolled_at_the_addresses_of_each_iteration() {
    let (recording, text) = recorded(&plan("nested"), 100).unwrap();
    // Planes from the last to the first, rows from the first to the last.
    let rows = [24, 32, 40, 0, 8, 16];
    let rows: Vec<String> =
        rows.iter().map(|at| format!("Output(0)+{at} copy Output(1)+0")).collect();
    assert_eq!(text, format!("Output(1)+0 {}", rows.join(" ")));
    assert_eq!((recording.length, recording.loops, recording.branches), (13, 0, 0));
    // Its addresses move with both counters, so it is not repeated.
    assert_eq!(
        recorded(&plan("nested"), 12).unwrap_err(),
        Unrecordable::Long { length: 13, most: 12 }
    );
}

#[test]
fn loops_and_branches_of_data_are_recorded_once() {
    let (recording, text) = recorded(&plan("doubling"), 100).unwrap();
    let expected = "Arena+0 copy Output(0)+0 l0 while Arena 10 { Output(0)+0 Arena+0 }";
    assert_eq!(text, expected);
    // A kernel and a copy, two kernels of the body, and two that set the condition.
    assert_eq!((recording.length, recording.loops, recording.branches), (6, 1, 0));
    let (recording, text) = recorded(&plan("switch"), 100).unwrap();
    let expected = "branch Input(1) { Output(0)+0 } { Output(0)+0 } \
                    { Arena+0 Arena+0 copy Output(0)+0 }";
    assert_eq!(text, expected);
    assert_eq!((recording.length, recording.loops, recording.branches), (8, 0, 1));
}

#[test]
fn addresses_that_data_moves_are_not_recorded() {
    let error = recorded(&plan("backwards"), 100).unwrap_err();
    assert!(matches!(error, Unrecordable::Moves { .. }), "{error}");
    assert!(error.to_string().contains("its counter chooses"), "{error}");
}

#[test]
fn long_loops_of_fixed_addresses_are_repeated() {
    let text = plan("doubling").to_string();
    let text = text.replace("while %1, %4 at arena limit 10", "trip 1000");
    let long = Verified::new(parse_plan("file", &text).unwrap().0).unwrap();
    let (recording, text) = recorded(&long, 100).unwrap();
    assert!(text.ends_with("l0 times 1000 { Output(0)+0 Arena+0 }"), "{text}");
    assert_eq!((recording.length, recording.loops), (6, 1));
    let (recording, text) = recorded(&long, 10_000).unwrap();
    assert_eq!(text.matches("Arena+0").count(), 1001);
    assert_eq!((recording.length, recording.loops), (2002, 0));
}

/// The bound of operations is what a run may take, and one less is too few.
#[test]
fn the_bound_of_operations_is_that_of_the_longest_run() {
    struct Endless(u64);
    impl StepRunner for Endless {
        type Kernel = Kernel;
        type Error = Diagnostic;
        fn launch(&mut self, _: &Kernel, _: &Counters) -> Result<()> {
            Ok(())
        }
        fn copy(&mut self, _: Region, _: Region) -> Result<()> {
            Ok(())
        }
        fn read(&mut self, _: Region) -> Result<[u8; 8]> {
            Ok(self.0.to_le_bytes())
        }
        fn located(&self, _: Option<usize>, error: Diagnostic) -> Diagnostic {
            error
        }
    }
    for (name, longest) in [("doubling", 1), ("switch", 2), ("nested", 0)] {
        let plan = plan(name);
        let resolved = resolve(&plan, &mut Places).unwrap();
        let most = resolved.recording(100, &visit).unwrap().most;
        let run = |limit| resolved.run(&mut resolved.counters(), &mut Endless(longest), limit);
        assert!(run(most).is_ok(), "{name}");
        assert!(run(most - 1).is_err(), "{name}");
    }
}
