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
//! **Variables** (parameters and state) are addressed by key path. They belong to the session,
//! and all its functions share them: a training step replaces `model.w`, and an evaluation
//! compiled for another batch size reads it. A run replaces all of its state outputs, or, on an
//! error, none. The exception is a device that fails during the run: the state is then lost, and
//! the error says so.
//!
//! **Plans are cached** per function and binding of its dimension variables, so compiling again
//! for a known batch size costs a lookup.

use crate::data::{Arrays, listed, safetensors};
use crate::device::{Backend, Device, DeviceOptions};
use crate::executable::{CompileOptions, KernelTime, LoadedExecutable, Need, StepTime};
use crate::outputs::{Outputs, Probed, Returned};
use crate::program::INIT;
use crate::random;
use crate::signature::{InputPort, Signature, is_variable};
use crate::store::Store;
use crate::weight_names::{NameDifferences, check_types};
use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use wengert_compiler::probes::{self, Report};
use wengert_core::graph::{Function, InputRole, OutputRole, Program};
use wengert_core::plan::{Bytes, Plan};
use wengert_core::{
    Binding, Diagnostic, Literal, Location, Result, Target, TensorType, Verified, diagnostic,
};
use wengert_cpu::World;
use wengert_transport::Communicator;

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
    backend: Arc<dyn Backend>,
    target: Target,
    variables: Variables,
    /// How functions are compiled.
    compile: CompileOptions,
    /// Most operations of one run of a loaded plan.
    work_limit: u64,
    /// Compiled functions and their bindings. Lookup compares the functions, so a changed
    /// function is a new entry.
    cache: Vec<(Function, Binding, Arc<LoadedExecutable>)>,
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
    /// Errors: the device is absent or unusable; no other device is substituted.
    pub fn open(device: Device) -> Result<Session> {
        Session::open_with(device, &DeviceOptions::default())
    }

    /// [`open`](Self::open) with options.
    pub fn open_with(device: Device, options: &DeviceOptions) -> Result<Session> {
        let backend = device.open(options)?;
        let DeviceOptions {
            memory_budget,
            check_indices,
            batch_invariant,
            approximate_functions,
            keep_invariants,
            work_limit,
            ..
        } = *options;
        let compile = CompileOptions {
            memory_budget,
            check_indices,
            batch_invariant,
            approximate_functions,
            keep_invariants,
        };
        let target = compile.target(&*backend)?;
        let variables = Variables(Arc::new(Mutex::new(backend.store())));
        Ok(Session { device, backend, target, variables, compile, work_limit, cache: Vec::new() })
    }

    /// Joins the ranks of a world, so that functions with a mesh run. Functions without a mesh run
    /// on each rank alone.
    ///
    /// Ranks have their own sessions, whose variables are their own. All ranks compile the same
    /// functions with a mesh in the same order, and run them in the same order: the plan's hash is
    /// compared when it is prepared, and a run blocks in each collective until the others have come
    /// to it. After an error of the transport the world is lost.
    ///
    /// ```
    /// use wengert::prelude::*;
    /// use wengert::transport::{Options, shared};
    /// use wengert::{DType, TensorType};
    ///
    /// fn rank(world: wengert::transport::Communicator) -> Result<()> {
    ///     let mut program = Program::new();
    ///     program.function("sum", |f| {
    ///         f.mesh([("data", 2)]);
    ///         let ty = TensorType::new(DType::F32, [3usize]).varying_over(&["data"]);
    ///         let x = f.input("x", ty);
    ///         f.output("y", x.psum(["data"]));
    ///     })?;
    ///     let own = Literal::from_vec(&[3], vec![world.rank() as f32 + 1.0; 3])?;
    ///     let mut session = Session::open(Device::Cpu)?;
    ///     session.join(world)?;
    ///     let y = session.compile(&program, "sum", bind!())?.run(&[("x", own)])?;
    ///     assert_eq!(y.get("y")?.as_slice::<f32>(), Some(&[3.0; 3][..]));
    ///     Ok(())
    /// }
    ///
    /// // Two threads are ranks here. `transport::join` makes one of a process.
    /// std::thread::scope(|scope| {
    ///     for world in shared::threads(2, &Options::default()).expect("memory for two") {
    ///         scope.spawn(|| rank(world).expect("both ranks run"));
    ///     }
    /// });
    /// ```
    ///
    /// On GPUs the data go by NCCL, which is loaded at run time. None of that has run on a GPU yet.
    ///
    /// Errors: the device joins no ranks, or lacks NCCL; the session has joined ranks, or compiled
    /// a function.
    pub fn join(&mut self, world: Communicator) -> Result<()> {
        if self.backend.world().is_some() || !self.cache.is_empty() {
            return Err(Diagnostic::new("the session has ranks or functions already")
                .help("join the ranks once, before the first function is compiled"));
        }
        self.backend = self.backend.join(World::new(world))?;
        Ok(())
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The target that functions are compiled for.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Compiles function `@name` for a binding of its dimension variables.
    ///
    /// Errors: no such function; a variable that is not bound, or a bound name that the function
    /// does not have; errors of the compiler.
    #[track_caller]
    pub fn compile(
        &mut self,
        program: &Program,
        name: &str,
        binding: impl Borrow<Binding>,
    ) -> Result<Compiled> {
        let caller = Location::caller();
        self.compiled(program, name, binding.borrow())
            .map_err(|error| error.within(&caller, "compiled here"))
    }

    fn compiled(&mut self, program: &Program, name: &str, binding: &Binding) -> Result<Compiled> {
        let function = program.get(name)?;
        let cached = self.cache.iter().find(|(f, b, _)| b == binding && f == function);
        if let Some((_, _, executable)) = cached {
            return Ok(Compiled {
                executable: executable.clone(),
                variables: self.variables.clone(),
            });
        }
        let compiled = self.compile_anew(program, name, binding)?;
        self.cache.push((function.clone(), binding.clone(), compiled.executable.clone()));
        Ok(compiled)
    }

    /// [`compile`](Self::compile) without the cache.
    fn compile_anew(&self, program: &Program, name: &str, binding: &Binding) -> Result<Compiled> {
        let _span = tracing::debug_span!("compile", name = %format_args!("@{name}")).entered();
        let function = program.get(name)?;
        let variables = function.variables();
        if let Some((extra, _)) = binding.iter().find(|(bound, _)| !variables.contains(*bound)) {
            let names: Vec<_> = variables.iter().collect();
            return Err(diagnostic!("`@{name}` has no dimension variable `{extra}`")
                .help(format!("it has {}", listed(&names))));
        }
        if let Some(name) = variables.iter().find(|name| binding.get(name).is_none()) {
            let unbound = function.bind(binding).err();
            let error = unbound.unwrap_or_else(|| diagnostic!("dimension `{name}` is not bound"));
            return Err(error.help(format!("bind it, e.g. by `bind!({name} = 32)`")));
        }
        let executable = {
            let mut variables = self.variables.lock();
            let (backend, mut options) = (&self.backend, self.compile);
            // Initial values do not depend on the device.
            options.approximate_functions &= name != INIT;
            LoadedExecutable::compile(backend, function, binding, options, &mut variables)?
        };
        Ok(Compiled { executable: Arc::new(executable), variables: self.variables.clone() })
    }

    /// Creates the variables of a program by its function `init`. If `init` is random, its key is
    /// key 0 of the seed ([`random::key`]).
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
    /// Errors: the program has no variables, or an `init` of its own with inputs other than keys;
    /// errors of [`compile`](Self::compile) and [`Compiled::run`].
    #[track_caller]
    pub fn initialize(&mut self, program: &Program, seed: u64) -> Result<()> {
        let caller = Location::caller();
        self.initialized(program, seed).map_err(|error| error.within(&caller, "initialized here"))
    }

    fn initialized(&mut self, program: &Program, seed: u64) -> Result<()> {
        let key = random::key(seed, 0);
        let is_key = |role: InputRole| role == InputRole::Key;
        let init = program.get(INIT).map_err(|_| {
            Diagnostic::new("the program has no variables, so there is nothing to initialize").help(
                "variables are declared by `param` and `state` of a `wengert::Program`, \
                 or made by an `@init`",
            )
        })?;
        let inputs = init.inputs.iter().filter(|input| is_key(input.role));
        let keys: Vec<(&str, &Literal)> = inputs.map(|input| (input.name.as_str(), &key)).collect();
        // Not cached: it runs once, and has memory of its own.
        self.compile_anew(program, INIT, &Binding::new())?.outputs(&keys)?;
        Ok(())
    }

    /// Prepares a plan to run, e.g. one read from a `.plan` file. A run that takes more than
    /// [`DeviceOptions::work_limit`] operations is an error.
    ///
    /// Errors: the plan was compiled for another target than this device; there is not enough
    /// memory; the session checks indices, which plans do not; it is batch-invariant, and the plan
    /// is not; it approximates functions, and the plan does not.
    pub fn load_plan(&mut self, plan: Verified<Plan>) -> Result<Compiled> {
        if self.compile.check_indices {
            return Err(Diagnostic::new("a plan has no checks of its indices")
                .help("give the program that it was compiled from: a .graph or .ir file"));
        }
        if self.compile.batch_invariant && !plan.target.batch_invariant {
            return Err(Diagnostic::new("the plan was compiled without batch invariance")
                .help("compile it with --batch-invariant, or run it without"));
        }
        if self.target.approximations.are_used() && !plan.target.approximations.are_used() {
            return Err(Diagnostic::new("the plan was compiled without approximate functions")
                .help("compile it with --approximate-functions, or run it without"));
        }
        let variables = self.variables.lock();
        let executable =
            Arc::new(LoadedExecutable::load(&*self.backend, plan, self.work_limit, &variables)?);
        drop(variables);
        Ok(Compiled { executable, variables: self.variables.clone() })
    }

    /// Prepares the first plan that fits into the session's budget, if any, and into free memory.
    /// The plans of a `.plan` file are ordered from the fastest to the smallest
    /// ([`crate::format::plan::read_all`]). Variables that the session already has need no
    /// further memory.
    ///
    /// Errors: none fits; those of [`load_plan`](Self::load_plan).
    ///
    /// # Panics
    ///
    /// If there is no plan.
    pub fn load_plans(&mut self, plans: Vec<Verified<Plan>>) -> Result<Compiled> {
        let free = self.backend.free_memory()?;
        let needs: Vec<Need> = {
            let variables = self.variables.lock();
            plans.iter().map(|plan| Need::of(&*self.backend, plan, &variables)).collect()
        };
        let budget = self.compile.memory_budget.unwrap_or(u64::MAX);
        let has_room = |need: &Need| free.as_ref().is_none_or(|free| need.bytes() <= free.bytes);
        let Some(chosen) = needs.iter().position(|need| need.total <= budget && has_room(need))
        else {
            let (function, smallest) = (&plans[0].function, needs.last().expect("there is a plan"));
            let (text, enough) = match &free {
                Some(free) if !has_room(smallest) => {
                    let needed = Bytes(smallest.bytes());
                    let text =
                        format!("no plan of @{function} fits: the smallest needs {needed}, {free}");
                    (text, smallest.budget(free).min(budget))
                }
                _ => {
                    let (total, budget_text) = (Bytes(smallest.total), Bytes(budget));
                    let text = format!(
                        "no plan of @{function} fits into the memory budget of {budget_text}: \
                         the smallest takes {total}"
                    );
                    (text, budget)
                }
            };
            return Err(Diagnostic::of_device(text).help(format!(
                "compile the function for less memory: \
                 `graphrun compile --memory-budget {enough}`; \
                 `graphrun memory --frontier` says how little it can be"
            )));
        };
        tracing::info!(
            "plan {} of {} takes {}",
            chosen + 1,
            needs.len(),
            Bytes(needs[chosen].total)
        );
        let plan = plans.into_iter().nth(chosen).expect("it is one of them");
        self.load_plan(plan)
    }

    /// The variable of this key path.
    #[track_caller]
    pub fn variable(&self, path: &str) -> Result<Literal> {
        let variables = self.variables.lock();
        let caller = Location::caller();
        let stored = variables
            .get(path)
            .ok_or_else(|| missing(path, &variables).at(caller, "asked for here"))?;
        stored.to_literal()
    }

    /// Creates or replaces a variable.
    ///
    /// Errors: there is not enough memory; the name is reserved.
    pub fn set_variable(&mut self, path: &str, value: &Literal) -> Result<()> {
        Store::check_name(path)?;
        self.variables.lock().set(path, value)
    }

    /// Copies of all variables by key path.
    ///
    /// Error: the device that holds them has failed.
    pub fn variables(&self) -> Result<Arrays> {
        self.variables.lock().to_arrays()
    }

    /// Replaces all variables: variables absent from the argument are removed.
    ///
    /// Errors: there is not enough memory; a name is reserved.
    pub fn set_variables<'a>(
        &mut self,
        variables: impl IntoIterator<Item = (&'a String, &'a Literal)>,
    ) -> Result<()> {
        let variables: Vec<(&String, &Literal)> = variables.into_iter().collect();
        variables.iter().try_for_each(|(path, _)| Store::check_name(path))?;
        let mut store = self.variables.lock();
        store.clear();
        store.set_all(variables.into_iter())
    }

    /// Reads the variables from a safetensors file. A session without variables takes all of the
    /// file's.
    ///
    /// Errors: the session has variables, and the file names others, lacks one, or has another
    /// type for one; a name is reserved. On an error nothing is loaded.
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let read = safetensors::SafetensorsFile::open(path)?.read_all()?;
        read.keys().try_for_each(|name| Store::check_name(name))?;
        let (types, source) = (self.variable_types(), format!("`{}`", path.display()));
        if !types.is_empty() {
            let needed = types.keys().map(String::as_str);
            if let Some(error) = NameDifferences::between(&read, &types, needed).error(&source) {
                return Err(error.help("`Session::load_partial` loads what has a variable's name"));
            }
            check_types(&read, &types, &source)?;
        }
        self.variables.lock().set_all(read.iter())
    }

    /// Reads those variables from a safetensors file that the session has, and returns the names
    /// that differ. Other variables keep their values. Names that the session does not have are
    /// ignored.
    ///
    /// Error: a variable of the file has another type than the session's.
    pub fn load_partial(&mut self, path: impl AsRef<Path>) -> Result<NameDifferences> {
        let path = path.as_ref();
        let mut read = safetensors::SafetensorsFile::open(path)?.read_all()?;
        let types = self.variable_types();
        check_types(&read, &types, &format!("`{}`", path.display()))?;
        let differences = NameDifferences::between(&read, &types, types.keys().map(String::as_str));
        read.retain(|name, _| types.contains_key(name));
        self.variables.lock().set_all(read.iter())?;
        Ok(differences)
    }

    /// The types of all variables by key path.
    pub fn variable_types(&self) -> BTreeMap<String, TensorType> {
        let store = self.variables.lock();
        let types =
            store.paths().filter_map(|path| Some((path.to_owned(), store.get(path)?.ty().clone())));
        types.collect()
    }

    /// Waits for all runs to end.
    ///
    /// Error: a run failed, whether its outputs were read or not.
    pub fn finish(&self) -> Result<()> {
        self.backend.finish()
    }

    /// Writes all variables to a safetensors file.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let variables = self.variables()?;
        safetensors::write(path, variables.iter().map(|(name, value)| (name.as_str(), value)))
    }

    /// Writes the variables that `@function` of `program` takes to a safetensors file, enough to
    /// run that function.
    pub fn save_for(
        &self,
        path: impl AsRef<Path>,
        program: &Program,
        function: &str,
    ) -> Result<()> {
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
    let there = match names.is_empty() {
        true => "no variable has a value yet".into(),
        false => format!("variables with a value are {}", listed(&names)),
    };
    diagnostic!("variable `{path}` has no value")
        .help(format!("run the program's `init` function, or load a weights file; {there}"))
}

/// A function compiled for a device and a binding, with access to the session's variables.
#[derive(Clone, Debug)]
pub struct Compiled {
    executable: Arc<LoadedExecutable>,
    variables: Variables,
}

impl Compiled {
    /// Names, roles and types of inputs and outputs, variables included.
    pub fn signature(&self) -> &Signature {
        self.executable.signature()
    }

    /// Starts measuring the time of each kernel.
    ///
    /// Error: kernels are not timed on the session's device.
    pub fn measure(&self) -> Result<()> {
        self.executable.prepared().measure()
    }

    /// Time of each kernel since [`measure`](Self::measure), the longest first.
    pub fn profile(&self) -> Vec<KernelTime> {
        self.executable.prepared().profile()
    }

    /// Time of each step of the plan since [`measure`](Self::measure), in their order.
    pub fn step_times(&self) -> Vec<StepTime> {
        self.executable.prepared().step_times()
    }

    /// Runs the function.
    ///
    /// `inputs` are all inputs and keys by name, in any order. State outputs replace (or create)
    /// the session's variables; the other outputs are returned. On an error no variable has
    /// changed. A GPU may still be running when this returns: reading the outputs ([`Outputs`])
    /// or the variables waits for it.
    #[track_caller]
    pub fn run<L: Borrow<Literal>>(&mut self, inputs: &[(&str, L)]) -> Result<Outputs> {
        let caller = Location::caller();
        let _span = tracing::debug_span!("run", name = self.signature().name).entered();
        self.outputs(inputs).map_err(|error| error.within(&caller, "run here"))
    }

    fn outputs<L: Borrow<Literal>>(&mut self, inputs: &[(&str, L)]) -> Result<Outputs> {
        let signature = self.executable.signature();
        let context = |error: Diagnostic| error.context(format_args!("@{}", signature.name));
        self.check_names(inputs).map_err(context)?;
        let found: BTreeMap<&str, &Literal> =
            inputs.iter().map(|(name, l)| (*name, l.borrow())).collect();
        let mut variables = self.variables.lock();
        let mut given = Vec::with_capacity(inputs.len());
        for port in &signature.inputs {
            let InputPort { name, role, ty } = port;
            let wrong = |what: &str, found: &TensorType| {
                let message = format!("{what} `{name}` is {ty} here, the tensor given is {found}");
                context(Diagnostic::new(message).help(match (what, ty.dtype == found.dtype) {
                    ("variable", _) => "give the variable a value of that type",
                    (_, true) => "give one of that shape, or compile the function for another one",
                    (_, false) => "give one of that dtype and shape",
                }))
            };
            if port.is_variable() {
                let stored =
                    variables.get(name).ok_or_else(|| context(missing(name, &variables)))?;
                if stored.ty() != ty {
                    return Err(wrong("variable", stored.ty()));
                }
                continue;
            }
            let literal = found.get(name.as_str()).copied().ok_or_else(|| {
                context(
                    diagnostic!("{} `{name}` ({ty}) is not given", role.name())
                        .help("each input and key of the function is given"),
                )
            })?;
            if literal.ty() != *ty {
                return Err(wrong("input", &literal.ty()));
            }
            given.push(literal.clone());
        }
        let returned = self.executable.run(&given, &mut variables).map_err(context)?;
        self.split(Arc::new(returned)).map_err(context)
    }

    /// Announces that many runs follow. A device that captures runs for replay then captures the
    /// first run, not the second.
    pub fn expect_repeats(&self) {
        self.executable.prepared().expect_repeats();
    }

    /// Separates the probes from the function's own outputs. Waits for the values of probes.
    fn split(&self, returned: Arc<Returned>) -> Result<Outputs> {
        let (mut names, mut seen) = (Vec::new(), Vec::<Probed>::new());
        let outputs = self.signature().outputs.iter().filter(|o| o.role == OutputRole::Output);
        for (number, output) in outputs.enumerate() {
            let Some((report, name)) = probes::of_output(&output.name) else {
                names.push((output.name.clone(), number));
                continue;
            };
            let kind = match report {
                Report::Value(kind) => kind,
                Report::Seen => {
                    // The flags follow the value. A plan from a file may have flags without a
                    // value.
                    match seen.iter_mut().rfind(|probe| probe.name == name) {
                        Some(probe) => probe.seen = Some(returned.value(number)?.clone()),
                        None => names.push((output.name.clone(), number)),
                    }
                    continue;
                }
            };
            let (value, location) =
                (returned.value(number)?.clone(), self.executable.probe_location(&output.name));
            let probed = Probed { name: name.into(), kind, value, seen: None, location };
            if probed.has_report() {
                tracing::info!("{probed}");
            }
            seen.push(probed);
        }
        Ok(Outputs::new(names, returned, seen))
    }

    /// Checks that every name in the argument is an input that is not a variable, and occurs
    /// once.
    fn check_names<L>(&self, inputs: &[(&str, L)]) -> Result<()> {
        let wanted =
            self.signature().inputs.iter().filter(|i| !i.is_variable()).map(|i| i.name.as_str());
        let wanted: Vec<&str> = wanted.collect();
        let known: BTreeSet<&str> = wanted.iter().copied().collect();
        let mut seen = BTreeSet::new();
        for (name, _) in inputs {
            if !known.contains(name) {
                return Err(diagnostic!("there is no input `{name}`")
                    .help(format!("inputs are {}", listed(&wanted))));
            }
            if !seen.insert(*name) {
                return Err(
                    diagnostic!("input `{name}` is given twice").help("give each input once")
                );
            }
        }
        Ok(())
    }
}

/// Asserts that sessions and functions are `Send`.
const _: fn() = || {
    fn is_send<T: Send>() {}
    is_send::<Session>();
    is_send::<Compiled>();
};
