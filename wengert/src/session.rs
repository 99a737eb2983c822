//! Sessions: a device, the variables that live on it, and the functions compiled for it.
//!
//! ```
//! use wengert::{bind, core::graph::Program, Device, Literal, Session, TensorType, DType};
//! # fn main() -> wengert::Result<()> {
//! let mut program = Program::new();
//! program.function("double", |f| {
//!     let x = f.input("x", TensorType::new(DType::F32, ["B"]));
//!     f.output("y", &x + &x);
//! })?;
//! let mut session = Session::open(Device::Interpreter)?;
//! let mut double = session.compile(&program, "double", bind!(B = 2))?;
//! let y = double.run(&[("x", Literal::from_vec(&[2], vec![1.0f32, 2.5])?)])?;
//! assert_eq!(y.get("y")?.as_slice::<f32>(), Some(&[2.0f32, 5.0][..]));
//! # Ok(())
//! # }
//! ```
//!
//! **Variables** (parameters and state) are addressed by key path, belong to the session and are shared by all its functions: a
//! training step replaces `model.w`, and an evaluation compiled for another batch size reads it. A run either
//! replaces all state it gives out, or, on an error, none (unless the device itself fails half way: then state is lost, and the error says so).
//!
//! **Plans are cached** per function and binding of its dimension variables, so compiling again for a batch size that
//! was seen is cheap.

use crate::data::{Arrays, listed, safetensors};
use crate::device::{Device, DeviceOptions};
use crate::executable::{Executable, KernelTime, Machine, Need};
use crate::program::INIT;
use crate::random;
use crate::signature::{InputPort, Signature, is_variable};
use crate::store::Store;
use std::borrow::Borrow;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use wengert_compiler::probes;
use wengert_core::graph::{Function, InputRole, OutputRole, Program};
use wengert_core::op::ProbeKind;
use wengert_core::plan::{Bytes, Plan};
use wengert_core::{Binding, Diagnostic, Literal, Location, Result, Target, TensorType};

/// Binds dimension variables: `bind!(B = 64, T = 128)`; `bind!()` binds none.
#[macro_export]
macro_rules! bind {
    ($($name:ident = $value:expr),* $(,)?) => {
        $crate::Binding::new()$(.with(stringify!($name), $value))*
    };
}

/// A device with variables and compiled functions.
#[derive(Debug)]
pub struct Session {
    device: Device,
    machine: Machine,
    target: Target,
    variables: Variables,
    /// Most bytes that a function may take.
    memory_budget: Option<u64>,
    /// Functions as they were compiled, with their bindings; found by comparing, so a changed function is a new one.
    cache: Vec<(Function, Binding, Arc<Executable>)>,
}

/// Variables, shared by a session and its functions.
#[derive(Clone, Debug)]
struct Variables(Arc<Mutex<Store>>);

impl Variables {
    fn lock(&self) -> MutexGuard<'_, Store> {
        self.0.lock().expect("nothing panics while it holds the variables")
    }
}

impl Session {
    /// Opens a device, without variables.
    ///
    /// Errors: the device is not there or cannot be used; another one is never taken instead.
    pub fn open(device: Device) -> Result<Session> {
        Session::open_with(device, &DeviceOptions::default())
    }

    /// [`open`](Self::open), with choices.
    pub fn open_with(device: Device, options: &DeviceOptions) -> Result<Session> {
        let machine = Machine::open(device, options)?;
        let (target, variables) = (machine.target()?, Variables(Arc::new(Mutex::new(machine.store()))));
        let memory_budget = options.memory_budget;
        Ok(Session { device, machine, target, variables, memory_budget, cache: Vec::new() })
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// What functions are compiled for.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Compiles function `@name` for a binding of its dimension variables.
    ///
    /// Errors: no such function; a variable that is not bound, or a bound name that the function does not have; what the
    /// compiler finds.
    pub fn compile(
        &mut self,
        program: &Program,
        name: &str,
        binding: impl Borrow<Binding>,
    ) -> Result<Compiled> {
        let (function, binding) = (program.get(name)?, binding.borrow());
        let cached = self.cache.iter().find(|(f, b, _)| b == binding && f == function);
        if let Some((_, _, executable)) = cached {
            return Ok(Compiled { executable: executable.clone(), variables: self.variables.clone() });
        }
        let compiled = self.compile_anew(program, name, binding)?;
        self.cache.push((function.clone(), binding.clone(), compiled.executable.clone()));
        Ok(compiled)
    }

    /// [`compile`](Self::compile), without keeping what was compiled.
    fn compile_anew(&self, program: &Program, name: &str, binding: &Binding) -> Result<Compiled> {
        let function = program.get(name)?;
        let variables = function.variables();
        if let Some((extra, _)) = binding.iter().find(|(bound, _)| !variables.contains(*bound)) {
            let names: Vec<_> = variables.iter().collect();
            return Err(Diagnostic::new(format!("`@{name}` has no dimension variable `{extra}`"))
                .help(format!("it has {}", listed(&names))));
        }
        let executable = {
            let variables = self.variables.lock();
            Executable::compile(&self.machine, program, function, binding, self.memory_budget, &variables)?
        };
        Ok(Compiled { executable: Arc::new(executable), variables: self.variables.clone() })
    }

    /// Creates the variables of a program by its function `init`, with key 0 of a seed if it draws any ([`random::key`]).
    ///
    /// ```
    /// use wengert::prelude::*;
    /// # fn main() -> Result<()> {
    /// let mut program = Program::new();
    /// program.function("predict", |f| {
    ///     let x = f.input("x", f32("B,2"));
    ///     let layer = f.param("layer", Linear::new(2, 3));
    ///     f.output("y", layer.call(&x));
    /// })?;
    /// let mut session = Session::open(Device::Interpreter)?;
    /// session.initialize(&program, 1)?;
    /// assert_eq!(session.variable("layer.weight")?.shape(), [2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: the program has no variables, or an `init` of its own that wants more than keys; what [`compile`](Self::compile) and [`Compiled::run`] report.
    pub fn initialize(&mut self, program: &Program, seed: u64) -> Result<()> {
        let key = random::key(seed, 0);
        let is_key = |role: InputRole| role == InputRole::Key;
        let inputs = program.get(INIT)?.inputs.iter().filter(|input| is_key(input.role));
        let keys: Vec<(&str, &Literal)> = inputs.map(|input| (input.name.as_str(), &key)).collect();
        // Not kept: it runs once, and has memory of its own.
        self.compile_anew(program, INIT, &Binding::new())?.run(&keys)?;
        Ok(())
    }

    /// Makes a plan ready to run, e.g. one that was read from a `.plan` file. It must be verified, as those from files are.
    ///
    /// Errors: the plan was compiled for another target than this device; there is not enough memory.
    pub fn load_plan(&mut self, plan: Plan) -> Result<Compiled> {
        let executable = Arc::new(Executable::load(&self.machine, plan, &self.variables.lock())?);
        Ok(Compiled { executable, variables: self.variables.clone() })
    }

    /// Makes the first of several plans ready that fits into the budget of the session, if it has one, and into the memory that is free: those of a `.plan` file are ordered from the fastest to the smallest
    /// ([`crate::format::plan::read_all`]). Variables that the session has already are no longer to be found room for.
    ///
    /// Errors: none fits; those of [`load_plan`](Self::load_plan).
    ///
    /// # Panics
    ///
    /// If there is no plan.
    pub fn load_plans(&mut self, plans: Vec<Plan>) -> Result<Compiled> {
        let free = self.machine.free_memory()?;
        let needs: Vec<Need> = {
            let variables = self.variables.lock();
            plans.iter().map(|plan| Need::of(&self.machine, plan, &variables)).collect()
        };
        let budget = self.memory_budget.unwrap_or(u64::MAX);
        let has_room = |need: &Need| free.as_ref().is_none_or(|free| need.bytes() <= free.bytes);
        let Some(chosen) = needs.iter().position(|need| need.total <= budget && has_room(need)) else {
            let (function, smallest) = (&plans[0].function, needs.last().expect("there is a plan"));
            let (text, enough) = match &free {
                Some(free) if !has_room(smallest) => {
                    let needed = Bytes(smallest.bytes());
                    let text = format!("no plan of @{function} fits: the smallest needs {needed}, {free}");
                    (text, smallest.budget(free).min(budget))
                }
                _ => {
                    let (total, budget_text) = (Bytes(smallest.total), Bytes(budget));
                    let text = format!(
                        "no plan of @{function} fits into the memory budget of {budget_text}: the smallest takes {total}"
                    );
                    (text, budget)
                }
            };
            return Err(Diagnostic::of_device(text).help(format!(
                "compile the function for less memory: `graphrun compile --memory-budget {enough}`; \
                 `graphrun memory --frontier` says how little it can be"
            )));
        };
        tracing::info!("plan {} of {} takes {}", chosen + 1, needs.len(), Bytes(needs[chosen].total));
        let plan = plans.into_iter().nth(chosen).expect("it is one of them");
        self.load_plan(plan)
    }

    /// The variable of this key path.
    pub fn variable(&self, path: &str) -> Result<Literal> {
        let variables = self.variables.lock();
        let stored = variables.get(path).ok_or_else(|| missing(path, &variables))?;
        stored.to_literal()
    }

    /// Creates or replaces a variable.
    ///
    /// Error: there is not enough memory.
    pub fn set_variable(&mut self, path: &str, value: &Literal) -> Result<()> {
        self.variables.lock().set(path, value)
    }

    /// Copies of all variables by key path.
    ///
    /// Error: the device that holds them has failed.
    pub fn variables(&self) -> Result<Arrays> {
        self.variables.lock().to_arrays()
    }

    /// Replaces all variables: those that are not given are gone.
    ///
    /// Error: there is not enough memory.
    pub fn set_variables<'a>(
        &mut self,
        variables: impl IntoIterator<Item = (&'a String, &'a Literal)>,
    ) -> Result<()> {
        let mut store = self.variables.lock();
        store.clear();
        store.set_all(variables.into_iter())
    }

    /// Reads variables from a safetensors file; those that the file does not name stay.
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let read = safetensors::SafetensorsFile::open(path)?.read_all()?;
        let mut store = self.variables.lock();
        store.set_all(read.iter())
    }

    /// Writes all variables to a safetensors file.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        safetensors::write(path, self.variables()?.iter().map(|(name, value)| (name.as_str(), value)))
    }

    /// Writes the variables that `@function` of `program` takes to a safetensors file: what a user of that function needs.
    pub fn save_for(&self, path: impl AsRef<Path>, program: &Program, function: &str) -> Result<()> {
        let path = path.as_ref();
        let function = program.get(function)?;
        let mut chosen = Vec::new();
        for input in function.inputs.iter().filter(|i| is_variable(i.role)) {
            chosen.push((input.name.as_str(), self.variable(&input.name)?));
        }
        safetensors::write(path, chosen.iter().map(|(name, value)| (*name, value)))
    }
}

fn missing(path: &str, variables: &Store) -> Diagnostic {
    let names: Vec<_> = variables.paths().collect();
    Diagnostic::new(format!("variable `{path}` has no value")).help(format!(
        "run the program's `init` function, or load a weights file; variables with a value are {}",
        listed(&names)
    ))
}

/// A function compiled for a device and a binding, with access to the session's variables.
#[derive(Clone, Debug)]
pub struct Compiled {
    executable: Arc<Executable>,
    variables: Variables,
}

impl Compiled {
    /// Names, roles and types of what goes in and comes out, variables included.
    pub fn signature(&self) -> &Signature {
        self.executable.signature()
    }

    /// Measures from now on what each kernel takes.
    ///
    /// Error: kernels are not timed on the session's device.
    pub fn measure(&self) -> Result<()> {
        self.executable.measure()
    }

    /// What each kernel has taken since [`measure`](Self::measure), the longest first.
    pub fn profile(&self) -> Vec<KernelTime> {
        self.executable.profile()
    }

    /// Runs the function.
    ///
    /// `inputs` are all inputs and keys by name, in any order. State outputs replace (or create) the session's variables;
    /// the other outputs are returned. On an error no variable has changed.
    pub fn run<L: Borrow<Literal>>(&mut self, inputs: &[(&str, L)]) -> Result<Outputs> {
        let signature = self.executable.signature();
        let context = |error: Diagnostic| error.context(format_args!("@{}", signature.name));
        self.check_names(inputs).map_err(context)?;
        let mut variables = self.variables.lock();
        let mut given = Vec::with_capacity(inputs.len());
        for port in &signature.inputs {
            let InputPort { name, role, ty } = port;
            let wrong = |what: &str, found: &TensorType| {
                let message = format!("{what} `{name}` is {ty} here, the tensor given is {found}");
                context(Diagnostic::new(message))
            };
            if port.is_variable() {
                let stored = variables.get(name).ok_or_else(|| context(missing(name, &variables)))?;
                if stored.ty() != ty {
                    return Err(wrong("variable", stored.ty()));
                }
                continue;
            }
            let found = inputs.iter().find(|(input, _)| input == name).map(|(_, literal)| literal.borrow());
            let literal = found.ok_or_else(|| {
                context(Diagnostic::new(format!("{} `{name}` ({ty}) is not given", role.name())))
            })?;
            if literal.ty() != *ty {
                return Err(wrong("input", &literal.ty()));
            }
            given.push(literal.clone());
        }
        let results = self.executable.run(&given, &mut variables).map_err(context)?;
        let names = signature.outputs.iter().filter(|o| o.role == OutputRole::Output).map(|o| o.name.clone());
        Ok(self.split(names.zip(results)))
    }

    /// Tells probes apart from what the function returns.
    fn split(&self, results: impl Iterator<Item = (String, Literal)>) -> Outputs {
        let mut outputs = Outputs::default();
        for (output, value) in results {
            let Some((kind, name)) = probes::of_output(&output) else {
                outputs.values.push((output, value));
                continue;
            };
            let location = self.executable.probe_location(&output);
            match kind {
                ProbeKind::Print => tracing::info!("probe `{name}` ({location}): {value}"),
                ProbeKind::Finite if value.get(0).to_f64() == 0.0 => {
                    tracing::info!("probe `{name}` ({location}): the value has a NaN or an infinity");
                }
                ProbeKind::Finite => {}
            }
            outputs.probes.push(Probed { name: name.into(), kind, value, location });
        }
        outputs
    }

    /// Every name given is an input of the caller's, and given once.
    fn check_names<L>(&self, inputs: &[(&str, L)]) -> Result<()> {
        let wanted = || self.signature().inputs.iter().filter(|i| !i.is_variable()).map(|i| i.name.as_str());
        for (i, (name, _)) in inputs.iter().enumerate() {
            if !wanted().any(|known| known == *name) {
                return Err(Diagnostic::new(format!("there is no input `{name}`"))
                    .help(format!("inputs are {}", listed(&wanted().collect::<Vec<_>>()))));
            }
            if inputs[..i].iter().any(|(earlier, _)| earlier == name) {
                return Err(Diagnostic::new(format!("input `{name}` is given twice")));
            }
        }
        Ok(())
    }
}

/// Sessions and functions may go to other threads.
const _: fn() = || {
    fn is_send<T: Send>() {}
    is_send::<Session>();
    is_send::<Compiled>();
};

/// What a run gave, by name, in the order of the function's outputs.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outputs {
    values: Vec<(String, Literal)>,
    probes: Vec<Probed>,
}

/// What a probe saw in a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Probed {
    /// The probe's name; the second of that name has `.2` behind it.
    pub name: String,
    /// What it tells.
    pub kind: ProbeKind,
    /// The value that was watched, or whether all of it is finite.
    pub value: Literal,
    /// Where the probe was made, if that is known.
    pub location: Location,
}

impl Outputs {
    /// The output `name`.
    pub fn get(&self, name: &str) -> Result<&Literal> {
        self.values.iter().find(|(n, _)| n == name).map(|(_, literal)| literal).ok_or_else(|| {
            let names: Vec<_> = self.values.iter().map(|(name, _)| name).collect();
            Diagnostic::new(format!("there is no output `{name}`"))
                .help(format!("outputs are {}", listed(&names)))
        })
    }

    /// The only element of output `name`, as `f64`.
    pub fn scalar(&self, name: &str) -> Result<f64> {
        let literal = self.get(name)?;
        match literal.len() {
            1 => Ok(literal.get(0).to_f64()),
            _ => Err(Diagnostic::new(format!("output `{name}` is {}, not a single number", literal.ty()))),
        }
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Literal)> {
        self.values.iter().map(|(name, literal)| (name.as_str(), literal))
    }

    /// What the function's probes saw.
    pub fn probes(&self) -> &[Probed] {
        &self.probes
    }
}

impl IntoIterator for Outputs {
    type Item = (String, Literal);
    type IntoIter = std::vec::IntoIter<(String, Literal)>;

    fn into_iter(self) -> Self::IntoIter {
        self.values.into_iter()
    }
}
