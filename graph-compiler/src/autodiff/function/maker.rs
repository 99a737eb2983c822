//! Functions under construction.

use super::Derived;
use crate::autodiff::activity::Activity;
use wengert_core::build::{Closure, Scope};
use wengert_core::graph::{Body, Function, Input, InputRole, Output, OutputRole, verify};
use wengert_core::{Diagnostic, LocationId, Result, Tensor, TensorType};

/// A function under construction that begins with the inputs of another one.
pub(crate) struct Maker {
    pub(crate) scope: Scope,
    pub(crate) inputs: Vec<Input>,
    pub(crate) primals: Vec<Tensor>,
}

impl Maker {
    /// Locations are copied, so that the ids of the function's equations stay valid in the new
    /// one.
    pub(super) fn new(function: &Function) -> Self {
        Maker::with_types(function, &function.body.types(&function.body.inputs))
    }

    /// As [`new`](Self::new), with other types of the inputs.
    pub(crate) fn with_types(function: &Function, types: &[TensorType]) -> Self {
        let scope = Scope::new(function.locations.clone());
        scope.set_mesh(function.mesh.clone());
        let input = |(ty, input): (&TensorType, &Input)| {
            scope.input_at(ty.clone(), scope.location(input.location))
        };
        let primals = types.iter().zip(&function.inputs).map(input).collect();
        Maker { scope, inputs: function.inputs.clone(), primals }
    }

    /// Adds an input, with the location of the input `like`.
    pub(super) fn input(&mut self, name: String, ty: TensorType, like: Option<usize>) -> Tensor {
        let prefix = format!("{}_", name.split('_').next().unwrap_or_default());
        let name = fresh(name, &prefix, |name| self.inputs.iter().any(|i| i.name == name));
        let location = like.map_or(LocationId(0), |i| self.inputs[i].location);
        self.inputs.push(Input { name, role: InputRole::Input, location });
        self.scope.input_at(ty, self.scope.location(location))
    }

    /// The function with these tensors as outputs.
    pub(crate) fn finish(
        self,
        name: String,
        outputs: Vec<Output>,
        tensors: &[Tensor],
    ) -> Result<Function> {
        let body = self.close(tensors)?;
        self.function(name, outputs, body)
    }

    /// All emitted equations, with these tensors as outputs.
    pub(super) fn close(&self, tensors: &[Tensor]) -> Result<Body> {
        let closure = self.scope.close(tensors)?;
        assert!(closure.captures.is_empty(), "the outermost scope has nothing to capture from");
        Ok(closure.body)
    }

    /// The function with this body.
    pub(super) fn function(
        self,
        name: String,
        outputs: Vec<Output>,
        body: Body,
    ) -> Result<Function> {
        let (mesh, locations) = (self.scope.mesh(), self.scope.locations());
        let (inputs, body) = (self.inputs, live(body));
        let function = Function { name, mesh, inputs, outputs, body, locations };
        verify(&function)?;
        Ok(function)
    }

    /// A function that does not replace its variables takes them as `param` instead of `state`.
    pub(super) fn only_read(&mut self) {
        self.inputs
            .iter_mut()
            .filter(|i| i.role == InputRole::State)
            .for_each(|i| i.role = InputRole::Param);
    }
}

/// A function of derivatives of one output, under construction.
pub(super) struct Making<'a> {
    function: &'a Function,
    of: usize,
    pub maker: Maker,
    /// The function with only that output.
    pub closure: Closure,
    names: Vec<Output>,
}

impl<'a> Making<'a> {
    pub fn new(function: &'a Function, of: usize) -> Self {
        let mut maker = Maker::new(function);
        maker.only_read();
        let mut closure = Closure { body: function.body.clone(), captures: vec![] };
        closure.body.outputs = vec![function.body.outputs[of]];
        Making { function, of, maker, closure, names: vec![] }
    }

    /// Names the next output: the value. A state output is the variable's next value; here it
    /// becomes an ordinary output.
    pub fn value(&mut self) {
        let name = self.function.outputs[self.of].name.clone();
        self.names.push(Output { name, role: OutputRole::Output });
    }

    /// Names the next output, with `prefix` in front as often as necessary to make the name
    /// unique.
    pub fn name(&mut self, name: String, prefix: &str) {
        let taken =
            |name: &str| self.function.outputs.iter().chain(&self.names).any(|o| o.name == name);
        let name = fresh(name, prefix, taken);
        self.names.push(Output { name, role: OutputRole::Output });
    }

    pub fn finish(
        self,
        name: String,
        tensors: &[Tensor],
        warnings: Vec<Diagnostic>,
    ) -> Result<Derived> {
        Ok(Derived { function: self.maker.finish(name, self.names, tensors)?, warnings })
    }
}

/// `name`, with `prefix` in front as often as necessary to make it unique.
pub(super) fn fresh(mut name: String, prefix: &str, taken: impl Fn(&str) -> bool) -> String {
    while taken(&name) {
        name.insert_str(0, prefix);
    }
    name
}

/// The body without dead equations. For example, a gradient may not depend on the value.
fn live(mut body: Body) -> Body {
    Activity::prune(&mut body);
    body.renumber()
}
