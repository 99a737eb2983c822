//! Every op × sample × float dtype through the whole compiler, on every device. Without calls the
//! results have the bits of the plan interpreter (which runs nests by the nest interpreter); with a
//! call they are within the call's bound. All are close to those of the graph interpreter.
//!
//! Many samples share one function, and so one module of kernels: a driver takes tens of
//! milliseconds to compile a module of any size. Failures are collected for each sample.
//!
//! Devices are the CPU, the emulated GPU with all its sanitizers, and the device that
//! `WENGERT_TEST_DEVICE` names, such as `cuda:0`. `WENGERT_TEST_PART=2/6` takes every sixth batch,
//! starting from the second.

use wengert::check;
use wengert::core::Verified;
use wengert::core::graph::{Function, Program};
use wengert::core::op::COMPOSITES;
use wengert::core::plan::{Plan, Step};
use wengert::core::{DType, Literal, Scalar, Target, interpret, plan};
use wengert::pipeline::{Options, compile};
use wengert::{Binding, Device, Session};
use wengert_testing::samples::{Batch, batches};

const FLOATS: [DType; 6] =
    [DType::F16, DType::BF16, DType::F32, DType::F64, DType::F8E4M3FN, DType::F8E5M2];

/// Maximum number of samples in a batch.
const MOST: usize = 96;

/// Equal bits. Any two NaNs are equal, because arithmetic does not specify their bits.
fn same(a: &Literal, b: &Literal) -> bool {
    let nan = |s: Scalar| s.dtype().is_float() && s.to_f64().is_nan();
    a.ty() == b.ty() && a.scalars().zip(b.scalars()).all(|(x, y)| x == y || (nan(x) && nan(y)))
}

fn has_calls(plan: &Plan) -> bool {
    plan.steps.iter().any(|step| matches!(step, Step::Call { .. }))
}

/// The target for which the device's plans are compiled.
fn target(device: Device) -> Target {
    Session::open(device).unwrap().target().clone()
}

fn compiled(function: &Function, target: &Target) -> Verified<Plan> {
    let mut program = Program::new();
    program.add(function.clone()).unwrap();
    compile(&program, "f", &Binding::new(), target, &Options::default()).unwrap()
}

/// The functions of a run, and the failures found.
struct Run {
    device: Device,
    target: Target,
    /// (n, m): every m-th function, starting from the n-th.
    part: (usize, usize),
    functions: usize,
    /// The number of outputs compared bit for bit, and of those compared within a tolerance.
    compared: [usize; 2],
    wrong: Vec<String>,
}

impl Run {
    fn on(device: Device) -> Run {
        let part = std::env::var("WENGERT_TEST_PART").map_or((0, 1), |text| {
            let numbers =
                text.split_once('/').map(|(n, of)| (n.parse::<usize>(), of.parse::<usize>()));
            let Some((Ok(n), Ok(of))) = numbers else {
                panic!("WENGERT_TEST_PART is `{text}`, not N/PARTS")
            };
            assert!((1..=of).contains(&n), "there is no part {text}");
            (n - 1, of)
        });
        Run {
            device,
            target: target(device),
            part,
            functions: 0,
            compared: [0; 2],
            wrong: Vec::new(),
        }
    }

    /// Compares a function's outputs with both interpreters. `name` describes an output.
    fn compare(
        &mut self,
        function: &Function,
        operands: &[Literal],
        name: &dyn Fn(&str) -> String,
    ) {
        self.functions += 1;
        if (self.functions - 1) % self.part.1 != self.part.0 {
            return;
        }
        let plan = compiled(function, &self.target);
        // A plan orders its inputs and outputs independently of the function.
        let input = |name: &String| function.inputs.iter().position(|i| i.name == *name);
        let values = plan.inputs.iter().map(|i| operands[input(&i.name).unwrap()].clone());
        let values: Vec<Literal> = values.collect();
        let given: Vec<(&str, &Literal)> =
            plan.inputs.iter().map(|i| i.name.as_str()).zip(&values).collect();
        let run = || {
            let mut session = Session::open(self.device)?;
            session.load_plan(plan.clone())?.run(&given)?.into_values()
        };
        let found = match run() {
            Ok(found) => found,
            Err(error) => {
                let names: Vec<String> = plan.outputs.iter().map(|o| name(&o.name)).collect();
                return self
                    .wrong
                    .push(format!("{error}, where {} are computed", names.join(", ")));
            }
        };
        let exact =
            (!has_calls(&plan)).then(|| plan::interpret(&plan, &values, &[]).unwrap().outputs);
        let near = interpret::run(function, operands).unwrap();
        let position =
            |name: &String| function.outputs.iter().position(|o| o.name == *name).unwrap();
        for (n, (output, found)) in plan.outputs.iter().zip(&found).enumerate() {
            let what = || format!("{} ({}) on {}", name(&output.name), output.name, self.device);
            if let Some(expected) = exact.as_ref().map(|exact| &exact[n])
                && !same(found, expected)
            {
                self.wrong.push(format!("{}: {found}\nexpected {expected}", what()));
            }
            if let Some((i, a, b)) = check::deviation(found, &near[position(&output.name)]).unwrap()
            {
                self.wrong.push(format!("{}, element {i}: {a}, the interpreter has {b}", what()));
            }
            self.compared[usize::from(exact.is_none())] += 1;
        }
    }

    /// Fails if there was a failure, or if too few outputs were compared.
    fn finish(self, least: [usize; 2]) {
        let Run { part, compared: [exact, near], wrong, .. } = self;
        assert!(
            wrong.is_empty(),
            "{} of {} are wrong:\n{}",
            wrong.len(),
            exact + near,
            wrong.join("\n")
        );
        assert!(
            part.1 > 1 || (exact >= least[0] && near >= least[1]),
            "{exact} and {near} are few"
        );
    }
}

fn every_op_and_sample_in_every_float_dtype(device: Device) {
    let mut run = Run::on(device);
    for dtype in FLOATS {
        let target = run.target.clone();
        for (_, batch) in batches(dtype, MOST, |function| has_calls(&compiled(function, &target))) {
            let Batch { names, function, operands } = &batch;
            let number =
                |output: &str| output.strip_prefix('s')?.split('.').next()?.parse::<usize>().ok();
            run.compare(function, operands, &|output| {
                names[number(output).expect("`sn.yi`")].clone()
            });
        }
    }
    assert!(run.functions < 100, "{} modules: batches are too small", run.functions);
    run.finish([500, 40]);
}

/// The example of each composite, without calls.
fn every_composite_in_every_float_dtype(device: Device) {
    let mut run = Run::on(device);
    let key = [Literal::from_vec(&[2], vec![31u32, 7]).unwrap()];
    for composite in COMPOSITES {
        for dtype in FLOATS.into_iter().filter(|dtype| dtype.is_float()) {
            let function = composite.function(dtype);
            run.compare(&function, &key, &|_| format!("{} in {dtype}", composite.name));
        }
    }
    run.finish([40, 0]);
}

#[test]
fn on_the_cpu() {
    every_op_and_sample_in_every_float_dtype(Device::Cpu);
    every_composite_in_every_float_dtype(Device::Cpu);
}

#[test]
fn on_the_emulator() {
    every_op_and_sample_in_every_float_dtype(Device::Emulator);
    every_composite_in_every_float_dtype(Device::Emulator);
}

#[test]
fn on_the_device_that_is_asked_for() {
    if let Ok(name) = std::env::var("WENGERT_TEST_DEVICE") {
        every_op_and_sample_in_every_float_dtype(name.parse().unwrap());
        every_composite_in_every_float_dtype(name.parse().unwrap());
    }
}
