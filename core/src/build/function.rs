//! The builder of one function: declared inputs and variables, named outputs, updated state.

use super::Scope;
use crate::build::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result};
use crate::differentiable::{Differentiable, KeyPath};
use crate::dtype::DType;
use crate::graph::verify::types::well_formed;
use crate::graph::{Function, Input, InputRole, Output, OutputRole, Program, ValueId, verify};
use crate::location::{Location, LocationTable};
use crate::mesh::{AxisName, Mesh};
use crate::nearest::nearest;
use crate::text::{NAME_HELP, is_name};
use crate::ty::TensorType;
use std::collections::HashMap;

/// Builds one function: the `f` of `program.function("name", |f| …)`.
pub struct FunctionBuilder {
    name: String,
    scope: Scope,
    inputs: Vec<Input>,
    outputs: Vec<(Output, Tensor)>,
    states: Vec<(String, Tensor)>,
    variables: Vec<(String, Tensor)>,
    index: Index,
    /// Source location of the function.
    location: Location,
}

/// Maps by name or value, since a function may have thousands of variables. Only lookups, no
/// iteration.
#[derive(Default)]
struct Index {
    /// Positions of inputs by name.
    inputs: HashMap<String, usize>,
    /// Position and source location of each output.
    outputs: HashMap<(OutputRole, String), (usize, Location)>,
    /// Positions of states by key path, and by value.
    states: HashMap<String, usize>,
    state_values: HashMap<ValueId, usize>,
}

impl FunctionBuilder {
    /// An empty function.
    #[track_caller]
    pub fn new(name: &str) -> Self {
        FunctionBuilder {
            name: name.into(),
            scope: Scope::new(LocationTable::default()),
            inputs: vec![],
            outputs: vec![],
            states: vec![],
            variables: vec![],
            index: Index::default(),
            location: Location::caller(),
        }
    }

    /// Runs `f` on a new builder and finishes it. `f` may return a [`Result`], for its `?`.
    #[track_caller]
    pub fn build<R: BodyResult>(
        name: &str,
        f: impl FnOnce(&mut FunctionBuilder) -> R,
    ) -> Result<Function> {
        let mut builder = FunctionBuilder::new(name);
        builder.run(f);
        builder.finish()
    }

    /// Runs `f` in the function's scope. If `f` panics after an error, [`finish`](Self::finish)
    /// reports the error, since the panic is its consequence. Any other panic is resumed. An error
    /// that `f` returns is one of the function.
    pub fn run<R: BodyResult>(&mut self, f: impl FnOnce(&mut FunctionBuilder) -> R) {
        let scope = self.scope.clone();
        // The scope records the error of a panic, so `finish` returns it.
        let Ok(result) = scope.guarded(|| f(self)) else { return };
        if let Err(error) = result.into_result() {
            let is_placed = error.places.iter().any(|(at, _)| *at != Location::Unknown);
            let place = self.location.clone();
            scope.fail(&if is_placed {
                error
            } else {
                error.at(place, "the function is built here")
            });
        }
    }

    /// The scope of the function's body.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Gives the function a mesh: names and extents of its axes, outermost first. Types of inputs
    /// then say over which axes they vary ([`TensorType::varying_over`]).
    ///
    /// Errors: those of [`Mesh::new`]; the function has a mesh.
    #[track_caller]
    pub fn mesh<N: Into<AxisName>>(&mut self, axes: impl IntoIterator<Item = (N, usize)>) {
        let declared = Mesh::new(axes).and_then(|mesh| match self.scope.mesh().is_empty() {
            true => Ok(mesh),
            false => Err(Diagnostic::new("the function has a mesh already")),
        });
        match declared {
            Ok(mesh) => self.scope.set_mesh(mesh),
            Err(error) => self.scope.fail(&error.at(Location::caller(), "declared here")),
        }
    }

    fn declare(
        &mut self,
        name: &str,
        role: InputRole,
        ty: Result<TensorType>,
        caller: Location,
    ) -> Tensor {
        let fail = |d: Diagnostic, first: Option<Location>| {
            let mut d = d.context(format!("input `{name}`")).at(caller.clone(), "declared here");
            if let Some(first) = first {
                d = d.at(first, "declared first here");
            }
            self.scope.fail(&d);
            Tensor::poisoned(d)
        };
        let ty = match ty {
            Ok(ty) => ty,
            Err(d) => return fail(d, None),
        };
        if let Some(first) = ty.error() {
            self.scope.fail(first);
            return Tensor::poisoned(first.clone());
        }
        if let Err(mut d) = well_formed(&ty) {
            // The invariant's number helps readers of text only.
            d.message = d.message.trim_start_matches("G6: ").into();
            return fail(d, None);
        }
        if !is_name(name) {
            return fail(Diagnostic::new("not a name").help(NAME_HELP), None);
        }
        if let Some(first) = self.index.inputs.get(name) {
            let first = self.scope.location(self.inputs[*first].location);
            let error = Diagnostic::new("declared twice").help("give it another name");
            return fail(error, Some(first));
        }
        self.index.inputs.insert(name.into(), self.inputs.len());
        let location = self.scope.locate(caller.clone());
        self.inputs.push(Input { name: name.into(), role, location });
        self.scope.input_at(ty, caller)
    }

    /// An input passed to each run.
    #[track_caller]
    pub fn input(&mut self, name: &str, ty: impl IntoType) -> Tensor {
        self.declare(name, InputRole::Input, ty.into_type(), Location::caller())
    }

    /// A key for random numbers, `u32[2]`.
    #[track_caller]
    pub fn key(&mut self, name: &str) -> Tensor {
        let ty = TensorType::new(DType::U32, [2usize]);
        self.declare(name, InputRole::Key, Ok(ty), Location::caller())
    }

    /// Variables that are only read. Every tensor in `model` becomes a parameter named by its key
    /// path.
    #[track_caller]
    pub fn param<M: Differentiable>(&mut self, name: &str, model: M) -> M {
        self.variables_of(name, InputRole::Param, model)
    }

    /// Variables that the function replaces. Every tensor in `model` becomes state named by its
    /// key path. State that is not [updated](Self::update) does not change.
    #[track_caller]
    pub fn state<M: Differentiable>(&mut self, name: &str, model: M) -> M {
        self.variables_of(name, InputRole::State, model)
    }

    #[track_caller]
    fn variables_of<M: Differentiable>(&mut self, name: &str, role: InputRole, model: M) -> M {
        let caller = Location::caller();
        model.map_tensors(&KeyPath::root(name), &mut |path, tensor| {
            let path = path.to_string();
            let traced = self.declare(&path, role, Ok(tensor.ty().clone()), caller.clone());
            if role == InputRole::State {
                self.index.states.entry(path.clone()).or_insert(self.states.len());
                if let Ok((_, value)) = traced.traced_value() {
                    self.index.state_values.insert(value, self.states.len());
                }
                self.states.push((path.clone(), traced.clone()));
            }
            self.variables.push((path, tensor.clone()));
            traced
        })
    }

    /// The key path of a state tensor of this function.
    pub fn state_path(&self, tensor: &Tensor) -> Option<&str> {
        let (_, value) = tensor.traced_value().ok()?;
        let (path, state) = &self.states[*self.index.state_values.get(&value)?];
        state.is_same(tensor).then_some(path.as_str())
    }

    /// The value that the state at a key path has when the run ends, by the updates given so far:
    /// without one, the value that it has now. `None`: the function has no state of that path.
    pub fn next_state(&self, path: &str) -> Option<&Tensor> {
        let state = *self.index.states.get(path)?;
        let updated = self.index.outputs.get(&(OutputRole::State, path.to_owned()));
        Some(updated.map_or(&self.states[state].1, |(output, _)| &self.outputs[*output].1))
    }

    /// Replaces the state at a key path when the run ends.
    ///
    /// Errors: the function has no state of that path ([`create`](Self::create) makes a new
    /// variable); the type of the value is not that of the state.
    #[track_caller]
    pub fn update(&mut self, path: &str, value: &Tensor) {
        let is_known = self.index.states.contains_key(path) || self.read_only(path).is_some();
        if !is_known && value.error().is_none() {
            return self.scope.fail(&self.no_state(path).at(Location::caller(), "updated here"));
        }
        self.give(path, OutputRole::State, value.clone());
    }

    /// Makes the updates given so far depend on a condition, a scalar of bool: where it is false,
    /// states keep their values. Later updates do not depend on it, nor do variables that the
    /// function [creates](Self::create).
    ///
    /// Error: the condition is no scalar of bool.
    #[track_caller]
    pub fn update_only_if(&mut self, condition: &Tensor) {
        let _user = Location::caller().attributed();
        let ty = condition.ty();
        if condition.error().is_none() && *ty != TensorType::scalar(DType::Bool) {
            let error = Diagnostic::new(format!("updates depend on a scalar of bool, not on {ty}"))
                .at(Location::caller(), "given here")
                .help("reduce it with `all`");
            return self.scope.fail(&error);
        }
        for (output, value) in &mut self.outputs {
            if let (OutputRole::State, Some(state)) =
                (output.role, self.index.states.get(&output.name))
            {
                *value = condition.select(&*value, &self.states[*state].1);
            }
        }
    }

    /// Creates or replaces the session's variable of this key path when the run ends, as an
    /// `init` function does. The function does not read it.
    ///
    /// Error: the function has a state of that path. Use [`update`](Self::update) for it.
    #[track_caller]
    pub fn create(&mut self, path: &str, value: &Tensor) {
        if self.index.states.contains_key(path) {
            let error = Diagnostic::new(format!("`{path}` is state of this function"))
                .at(Location::caller(), "created here")
                .help("replace its value with `update`");
            return self.scope.fail(&error);
        }
        self.give(path, OutputRole::State, value.clone());
    }

    fn no_state(&self, path: &str) -> Diagnostic {
        let error = Diagnostic::new(format!("the function has no state `{path}`"));
        let states = self.states.iter().map(|(path, _)| path.as_str());
        let make = format!("`create` makes a new variable, as in `f.create(\"{path}\", …)`");
        error.help(match nearest(path, states) {
            Some(nearest) => format!("did you mean `{nearest}`? {make}"),
            None => format!("declare it with `state`; {make}"),
        })
    }

    /// An output returned to the caller.
    #[track_caller]
    pub fn output(&mut self, name: &str, value: impl AsRef<Tensor>) {
        self.give(name, OutputRole::Output, value.as_ref().clone());
    }

    #[track_caller]
    fn give(&mut self, name: &str, role: OutputRole, value: Tensor) {
        let caller = Location::caller();
        let replaced = self.index.states.get(name).filter(|_| role == OutputRole::State);
        let replaced = replaced.map(|n| &self.states[*n].1);
        let what = match role {
            OutputRole::Output => "output",
            OutputRole::State => "state",
        };
        // A constant becomes a value of the function only when the function is closed.
        let foreign = match value.literal() {
            Some(_) => None,
            None => self.scope.value_of(&value).err(),
        };
        let error = if let Some(error) = value.error() {
            error.clone()
        } else if let Some(error) = foreign {
            error.context(format!("{what} `{name}`")).at(caller, "given here")
        } else if !is_name(name) {
            Diagnostic::new(format!("{what} `{name}`: not a name"))
                .at(caller, "given here")
                .help(NAME_HELP)
        } else if let Some(first) = self.index.outputs.get(&(role, name.to_owned())) {
            Diagnostic::new(format!("{what} `{name}` is given twice"))
                .at(caller, "given again here")
                .at(first.1.clone(), "given first here")
                .help("give it another name")
        } else if let Some(input) = self.read_only(name).filter(|_| role == OutputRole::State) {
            Diagnostic::new(format!(
                "state `{name}`: the {} of that name is only read",
                input.role.name()
            ))
            .at(caller, "updated here")
            .at(self.scope.location(input.location), "declared here")
            .help("declare it by `state` of the function")
        } else if let Some(state) = replaced.filter(|state| state.ty() != value.ty()) {
            Diagnostic::new(format!(
                "state `{name}` has type {}, its update has type {}",
                state.ty(),
                value.ty()
            ))
            .at(caller, "updated here")
            .at(state.defined_at().unwrap_or_default(), "declared here")
            .help("an update keeps dtype and shape")
        } else {
            self.index.outputs.insert((role, name.into()), (self.outputs.len(), caller));
            self.outputs.push((Output { name: name.into(), role }, value));
            return;
        };
        self.scope.fail(&error);
    }

    /// The input of that name, unless it is state.
    fn read_only(&self, name: &str) -> Option<&Input> {
        let input = &self.inputs[*self.index.inputs.get(name)?];
        (input.role != InputRole::State).then_some(input)
    }

    /// The variables declared so far (parameters and state), with the tensors they were declared
    /// from. A tensor's [`Tensor::initializer`] says how to initialise the variable.
    pub fn variables(&self) -> &[(String, Tensor)] {
        &self.variables
    }

    /// The function, or the first error.
    pub fn finish(mut self) -> Result<Function> {
        let location = self.location.clone();
        let context = |d: Diagnostic| d.context(format!("@{}", self.name));
        if let Some(error) = self.scope.error() {
            return Err(context(error));
        }
        for (path, tensor) in &self.states {
            if !self.index.outputs.contains_key(&(OutputRole::State, path.clone())) {
                self.outputs
                    .push((Output { name: path.clone(), role: OutputRole::State }, tensor.clone()));
            }
        }
        let (outputs, tensors): (Vec<_>, Vec<_>) = self.outputs.into_iter().unzip();
        let closure = self.scope.close(&tensors).map_err(context)?;
        assert!(closure.captures.is_empty(), "the outermost scope has nothing to capture from");
        let function = Function {
            name: self.name,
            mesh: self.scope.mesh(),
            inputs: self.inputs,
            outputs,
            body: closure.body,
            locations: self.scope.locations(),
        };
        verify(&function).map_err(|d| {
            match d.places.iter().any(|(at, _)| *at != Location::Unknown) {
                true => d,
                false => d.at(location, "the function is built here"),
            }
        })?;
        Ok(function)
    }
}

impl Program {
    /// Builds a function with `f` and adds it: `program.function("double", |f| …)`. `f` may return
    /// a [`Result`], for its `?`.
    ///
    /// Errors: the first error while building; the name is taken.
    #[track_caller]
    pub fn function<R: BodyResult>(
        &mut self,
        name: &str,
        f: impl FnOnce(&mut FunctionBuilder) -> R,
    ) -> Result<()> {
        let caller = Location::caller();
        let function = FunctionBuilder::build(name, f)?;
        self.add(function).map_err(|d| d.at(caller, "the function is built here"))
    }
}

/// The result of the closure that builds a function: nothing, or `Ok(())` if it uses `?`.
pub trait BodyResult {
    /// Whether the closure came to its end.
    fn into_result(self) -> Result<()>;
}

impl BodyResult for () {
    fn into_result(self) -> Result<()> {
        Ok(())
    }
}

impl BodyResult for Result<()> {
    fn into_result(self) -> Result<()> {
        self
    }
}

/// Conversion to a tensor type, from a [`TensorType`] or a fallible description of one.
pub trait IntoType {
    /// The type.
    fn into_type(self) -> Result<TensorType>;
}

impl IntoType for TensorType {
    fn into_type(self) -> Result<TensorType> {
        Ok(self)
    }
}

impl IntoType for Result<TensorType> {
    fn into_type(self) -> Result<TensorType> {
        self
    }
}
