//! The Graph stage: programs of named functions, each a static single-assignment list of
//! equations over typed tensors.
//!
//! A [`Program`] holds [`Function`]s. A function has a signature (inputs and outputs with names
//! and roles) and a [`Body`]. A body is closed: an equation uses only inputs of its body and
//! results of earlier equations of the same body. An op may hold regions, which are bodies too. A
//! value from outside is passed to a region as an operand.
//!
//! Shapes may contain dimension variables ([`crate::Dim`]). [`Function::bind`] replaces them by
//! numbers, as the first step of compiling.
//!
//! Functions are built by [`FunctionBuilder`](crate::build::FunctionBuilder) with
//! [`Tensor`](crate::Tensor)s, parsed from text, or derived from other functions (differentiation,
//! passes). [`verify()`] checks every function before it is used, whatever its origin.

mod callees;
mod numbered;

pub mod parse;
pub mod print;
mod region;
mod relocation;
mod renumber;
pub mod verify;

pub(crate) use callees::Names;
pub use callees::{Callee, MAX_EQUATIONS};
pub use numbered::{Numbered, Owner};
pub use parse::parse_program;
pub use print::{PrintOptions, print, print_equations};
pub use region::{Extent, Region};
pub(crate) use relocation::Relocation;
pub use verify::{verify, verify_program};

use crate::diagnostic::{Diagnostic, Result, bail};
use crate::dim::{Binding, Dim};
use crate::id::{IdVec, typed_id};
use crate::location::{LocationId, LocationTable};
use crate::mesh::Mesh;
use crate::op::Op;
use crate::ty::TensorType;
use std::collections::{BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

typed_id! {
    /// A value of a body.
    ValueId, "%"
}

/// Named functions, in the order of their definition.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Program {
    functions: Vec<Function>,
}

/// A function: signature and body.
#[derive(Clone, PartialEq, Debug)]
pub struct Function {
    /// Unique in the program.
    pub name: String,
    /// The ranks that run it together; one if the mesh has no axes.
    pub mesh: Mesh,
    /// Inputs, parallel to `body.inputs`.
    pub inputs: Vec<Input>,
    /// Outputs, parallel to `body.outputs`.
    pub outputs: Vec<Output>,
    /// The computation.
    pub body: Body,
    /// Source locations of the inputs and equations.
    pub locations: LocationTable,
}

/// An input of a function.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Input {
    /// Unique among the inputs. Parameters and state have a key path, such as `layers.0.weight`.
    pub name: String,
    /// Source of the value.
    pub role: InputRole,
    /// Source location of the declaration.
    pub location: LocationId,
}

/// Source of an input, and whether a run replaces it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum InputRole {
    /// Passed to each run.
    Input,
    /// A variable of the session, read only.
    Param,
    /// A variable of the session. At the end of the run the state output of the same name
    /// replaces it.
    State,
    /// A key for random numbers, `u32[2]`, passed to each run.
    Key,
}

/// An output of a function.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Output {
    /// Unique among the outputs.
    pub name: String,
    /// Destination of the value.
    pub role: OutputRole,
}

/// Destination of an output.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum OutputRole {
    /// Returned to the caller.
    Output,
    /// Stored in the session variable of the same name. A state input of that name must have the
    /// same type. Without such an input, the output creates the variable (`init` functions work
    /// this way).
    State,
}

/// A straight line of equations over its own values.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Body {
    /// The type of every value.
    pub values: IdVec<ValueId, TensorType>,
    /// Parameters of the body.
    pub inputs: Vec<ValueId>,
    /// Equations, each after the definitions of its operands.
    pub equations: Vec<Equation>,
    /// Returned values. A value may occur more than once, and may be an input.
    pub outputs: Vec<ValueId>,
}

/// `results = op(operands)`.
///
/// Two equations are equal, and have the same hash, if they compute the same. Locations do not
/// count: they serve messages only and never affect the computation. So bodies and regions are
/// compared without locations too. The text of [`print()`] with [`PrintOptions::locations`] shows
/// a difference in locations.
#[derive(Clone, Debug)]
pub struct Equation {
    /// The op with its attributes.
    pub op: Op,
    /// Values defined earlier in the body.
    pub operands: Vec<ValueId>,
    /// Values defined by this equation.
    pub results: Vec<ValueId>,
    /// Bodies that the op runs; empty for most ops.
    pub regions: Vec<Region>,
    /// Source location.
    pub location: LocationId,
}

impl PartialEq for Equation {
    fn eq(&self, other: &Self) -> bool {
        let Equation { op, operands, results, regions, location: _ } = self;
        *op == other.op
            && *operands == other.operands
            && *results == other.results
            && *regions == other.regions
    }
}

impl Eq for Equation {}

impl Hash for Equation {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Equation { op, operands, results, regions, location: _ } = self;
        (op, operands, results, regions).hash(state);
    }
}

impl InputRole {
    /// The keyword in text; `input` is omitted there.
    pub const fn name(self) -> &'static str {
        match self {
            InputRole::Input => "input",
            InputRole::Param => "param",
            InputRole::State => "state",
            InputRole::Key => "key",
        }
    }

    /// Every role.
    pub const ALL: [InputRole; 4] =
        [InputRole::Input, InputRole::Param, InputRole::State, InputRole::Key];
}

impl Program {
    /// A program without functions.
    pub fn new() -> Self {
        Self::default()
    }

    /// A program of these functions. Their names must differ.
    pub fn from_functions(functions: Vec<Function>) -> Result<Self> {
        let mut names = BTreeSet::new();
        match functions.iter().find(|f| !names.insert(&f.name)) {
            Some(f) => Err(Diagnostic::new(format!("function `@{}` is defined twice", f.name))
                .help("give it another name")),
            None => Ok(Program { functions }),
        }
    }

    /// The functions in the order of their definition.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// The function `@name`.
    pub fn get(&self, name: &str) -> Result<&Function> {
        self.functions.iter().find(|f| f.name == name).ok_or_else(|| {
            let names: Vec<_> = self.functions.iter().map(|f| format!("@{}", f.name)).collect();
            Diagnostic::new(format!("there is no function `@{name}`")).help(format!(
                "the program has {}",
                if names.is_empty() { "none".into() } else { names.join(", ") }
            ))
        })
    }

    /// Adds a function. Its name must be new.
    pub fn add(&mut self, function: Function) -> Result<()> {
        if self.functions.iter().any(|f| f.name == function.name) {
            bail!("function `@{}` is defined twice", function.name; help "give it another name");
        }
        self.functions.push(function);
        Ok(())
    }

    /// Adds a function, or replaces the one of that name.
    pub fn replace(&mut self, function: Function) {
        match self.functions.iter_mut().find(|f| f.name == function.name) {
            Some(old) => *old = function,
            None => self.functions.push(function),
        }
    }
}

impl Function {
    /// Type of input number `index`.
    pub fn input_type(&self, index: usize) -> &TensorType {
        &self.body.values[self.body.inputs[index]]
    }

    /// Type of output number `index`.
    pub fn output_type(&self, index: usize) -> &TensorType {
        &self.body.values[self.body.outputs[index]]
    }

    /// Position of the input of that name.
    pub fn input_index(&self, name: &str) -> Option<usize> {
        self.inputs.iter().position(|i| i.name == name)
    }

    /// Position of the output of that name and role.
    pub fn output_index(&self, name: &str, role: OutputRole) -> Option<usize> {
        self.outputs.iter().position(|o| o.name == name && o.role == role)
    }

    /// Names of all dimension variables in the function, sorted.
    pub fn variables(&self) -> BTreeSet<Arc<str>> {
        let mut names = BTreeSet::new();
        self.body.collect_variables(&mut names);
        self.body.callees().iter().for_each(|callee| callee.body.collect_variables(&mut names));
        names
    }

    /// The same function with values for its dimension variables. All must be bound.
    ///
    /// Types are inferred again. If a shape rule fails with this binding, the error is reported
    /// here, at the equation's location.
    pub fn bind(&self, binding: &Binding) -> Result<Function> {
        let body = Binder { binding, locations: &self.locations, bound: HashMap::new() }
            .body(&self.body)
            .map_err(|d| d.context(format!("@{}", self.name)))?;
        Ok(Function { body, ..self.clone() })
    }
}

impl Body {
    /// Type of a value.
    pub fn ty(&self, value: ValueId) -> &TensorType {
        &self.values[value]
    }

    /// Types of several values.
    pub fn types(&self, values: &[ValueId]) -> Vec<TensorType> {
        values.iter().map(|v| self.values[*v].clone()).collect()
    }

    /// For each value the index of the equation that defines it; `None` for inputs.
    pub fn definitions(&self) -> IdVec<ValueId, Option<usize>> {
        let mut definitions: IdVec<ValueId, Option<usize>> =
            self.values.ids().map(|_| None).collect();
        for (i, equation) in self.equations.iter().enumerate() {
            for result in &equation.results {
                definitions[*result] = Some(i);
            }
        }
        definitions
    }

    fn collect_variables(&self, names: &mut BTreeSet<Arc<str>>) {
        for (_, ty) in self.values.iter() {
            ty.shape.iter().for_each(|d| d.collect_variables(names));
        }
        for equation in &self.equations {
            equation.op.visit_dims(&mut |d: &Dim| d.collect_variables(names));
            if equation.op.callee().is_none() {
                equation.regions.iter().for_each(|r| r.collect_variables(names));
            }
        }
    }
}

/// Replaces dimension variables by numbers.
struct Binder<'a> {
    binding: &'a Binding,
    locations: &'a LocationTable,
    /// Bound callees, by the address of the unbound body.
    bound: HashMap<usize, Region>,
}

impl Binder<'_> {
    fn region(&mut self, region: &Region) -> Result<Region> {
        if let Some(bound) = self.bound.get(&region.address()) {
            return Ok(bound.clone());
        }
        let bound = Region::from(self.body(region)?);
        self.bound.insert(region.address(), bound.clone());
        Ok(bound)
    }

    fn body(&mut self, body: &Body) -> Result<Body> {
        let mut body = body.clone();
        for (_, ty) in body.values.iter_mut() {
            *ty = ty.bind(self.binding)?;
            verify::types::well_formed(ty)?;
        }
        for equation in &mut body.equations {
            let (name, location) = (equation.op.name(), equation.location);
            let at = |d: Diagnostic| d.at(self.locations.origin(location).clone(), name);
            equation.op.bind(self.binding).map_err(at)?;
            for region in &mut equation.regions {
                *region = self.region(region)?;
            }
            let operands: Vec<_> =
                equation.operands.iter().map(|v| body.values[*v].clone()).collect();
            let inferred = equation.op.infer(&operands, &equation.regions).map_err(at)?;
            for (result, ty) in equation.results.iter().zip(inferred) {
                body.values[*result] = ty;
            }
        }
        Ok(body)
    }
}

#[cfg(test)]
mod tests {
    use crate::build::FunctionBuilder;
    use crate::{DType, Literal, Tensor, TensorType, interpret};

    #[test]
    fn a_linear_layer_is_built_and_interpreted() {
        let f = FunctionBuilder::build("linear", |f| {
            let x =
                f.input("x", TensorType::new(DType::F32, [crate::Dim::variable("B"), 2i64.into()]));
            let w = f.param(
                "w",
                Tensor::variable(
                    TensorType::new(DType::F32, [2usize, 3]),
                    crate::Initializer::Zeros,
                ),
            );
            f.output("y", x.dot(&w) * 2.0 + 1.0);
        })
        .unwrap();
        let f = f.bind(&crate::Binding::new().with("B", 1)).unwrap();
        let x = Literal::from_vec(&[1, 2], vec![1.0f32, 2.0]).unwrap();
        let w = Literal::from_vec(&[2, 3], vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        let y = interpret::run(&f, &[x, w]).unwrap();
        assert_eq!(y[0].as_slice::<f32>().unwrap(), [19.0, 25.0, 31.0]);
    }

    #[test]
    fn an_error_names_both_operands_and_comes_once() {
        let error = FunctionBuilder::build("f", |f| {
            let x = f.input("x", TensorType::new(DType::F32, [2usize]));
            let y = f.input("y", TensorType::new(DType::F32, [3usize]));
            let bad = &x + &y;
            f.output("z", bad.dot(&x) / 0.0);
        })
        .unwrap_err();
        let text = error.to_string();
        assert!(text.contains("@f: add: operands have types f32[2] and f32[3]"), "{text}");
        assert_eq!(text.matches("mod.rs:").count(), 3, "{text}");
    }
}
