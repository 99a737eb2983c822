//! This library as a contender: cases in sessions of a device, with all their data on the device.

use crate::case::{Case, Kind, Made};
use crate::harness::Contender;
use crate::parity::Parity;
use std::collections::BTreeMap;
use std::time::Instant;
use wengert::core::TensorType;
use wengert::core::graph::{self, InputRole};
use wengert::{
    Compiled, DType, Device, DeviceOptions, Diagnostic, Initializer, KernelTime, Literal, Outputs,
    Program, Result, Session, Tensor, bind,
};

/// Name of the function of a case's program.
pub const FUNCTION: &str = "case";

/// A case in a session of its own, ready to run.
#[derive(Debug)]
pub struct Resident {
    session: Session,
    compiled: Compiled,
    /// Inputs of the function, which each run takes.
    inputs: Vec<(String, Literal)>,
    fence: Compiled,
}

impl Resident {
    /// Compiles a case's program and puts its data in place.
    pub fn open(device: Device, options: &DeviceOptions, made: &Made) -> Result<Resident> {
        let mut session = Session::open_with(device, options)?;
        if let Some(seed) = made.init {
            session.initialize(&made.program, seed)?;
        }
        Resident::of(session, &made.program, &made.variables)
    }

    /// Compiles a program, and sets variables and inputs.
    pub fn of(
        mut session: Session,
        program: &graph::Program,
        values: &[(String, Literal)],
    ) -> Result<Resident> {
        let function = program.get(FUNCTION)?;
        let is_input = |path: &str| {
            function.inputs.iter().any(|i| i.role == InputRole::Input && i.name == path)
        };
        let mut inputs = Vec::new();
        for (path, value) in values {
            match is_input(path) {
                true => inputs.push((path.clone(), value.clone())),
                false => session.set_variable(path, value)?,
            }
        }
        let compiled = session.compile(program, FUNCTION, bind!())?;
        compiled.expect_repeats();
        let mut fence = Program::new();
        fence.function("fence", |f| {
            let ty = TensorType::new(DType::F32, [1usize]);
            let element = f.param("fence.element", Tensor::variable(ty, Initializer::Ones));
            f.output("element", &element);
        })?;
        session.set_variable("fence.element", &Literal::from_vec(&[1], vec![1.0f32])?)?;
        let fence = session.compile(&fence, "fence", bind!())?;
        Ok(Resident { session, compiled, inputs, fence })
    }

    /// The results of one run.
    pub fn results(&mut self) -> Result<Outputs> {
        let inputs: Vec<(&str, &Literal)> =
            self.inputs.iter().map(|(name, value)| (name.as_str(), value)).collect();
        self.compiled.run(&inputs)
    }

    /// Starts one run.
    pub fn run(&mut self) -> Result<()> {
        self.results().map(drop)
    }

    /// Waits for all runs: an output is available only after all earlier work.
    pub fn finish(&mut self) -> Result<()> {
        self.fence.run::<Literal>(&[])?.get("element").map(drop)
    }

    /// Seconds of `runs` runs and the fence after them.
    pub fn time(&mut self, runs: u64) -> Result<f64> {
        let start = Instant::now();
        for _ in 0..runs {
            self.run()?;
        }
        self.finish()?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Starts measuring the time of each kernel.
    ///
    /// Error: the device does not time kernels.
    pub fn measure(&self) -> Result<()> {
        self.compiled.measure()
    }

    /// Time of each kernel since [`measure`](Self::measure), the longest first.
    pub fn profile(&self) -> Vec<KernelTime> {
        self.compiled.profile()
    }

    /// The value of a variable, after all runs.
    pub fn variable(&self, path: &str) -> Result<Literal> {
        self.session.variable(path)
    }
}

/// This library on a device.
#[derive(Debug)]
pub struct Local {
    name: String,
    device: Device,
    options: DeviceOptions,
    /// Cases in mixed precision run in f32.
    in_f32: bool,
    residents: BTreeMap<String, Resident>,
}

impl Local {
    /// A contender without cases.
    pub fn new(name: &str, device: Device, options: DeviceOptions) -> Local {
        Local { name: name.into(), device, options, in_f32: false, residents: BTreeMap::new() }
    }

    /// The same contender, but it runs cases in mixed precision in f32.
    pub fn in_f32(self) -> Local {
        Local { in_f32: true, ..self }
    }
}

impl Contender for Local {
    fn name(&self) -> &str {
        &self.name
    }

    fn device(&self) -> String {
        self.device.to_string()
    }

    fn prepare(&mut self, case: &Case) -> Result<Parity> {
        let entered = if self.in_f32 { &case.in_f32() } else { case };
        let made = entered.make()?;
        // Other runtimes compute what depends on weights alone when they load a model.
        let keep_invariants = matches!(case.kind, Kind::Imported { .. });
        let options = DeviceOptions { keep_invariants, ..self.options.clone() };
        let mut resident = Resident::open(self.device, &options, &made)?;
        let parity = (made.check)(&mut resident, entered, &made.variables)?;
        self.residents.insert(case.id.clone(), resident);
        Ok(parity)
    }

    fn time(&mut self, case: &Case, runs: u64) -> Result<f64> {
        let resident = self.residents.get_mut(&case.id);
        resident
            .ok_or_else(|| Diagnostic::new(format!("`{}` was not prepared", case.id)))?
            .time(runs)
    }

    fn release(&mut self, case: &Case) {
        self.residents.remove(&case.id);
    }
}
