//! Programs as users build them.
//!
//! A [`Program`] is a [`core::graph::Program`](wengert_core::graph::Program) that records the
//! initializers of its functions' variables. Every function built with [`Program::function`]
//! declares parameters and state, each with its initializer. From these the function `@init` is
//! generated, which creates all variables from one key. It is updated after each function, unless
//! the program has an `@init` of its own.
//!
//! ```
//! use wengert::prelude::*;
//! # fn main() -> Result<()> {
//! let mut program = Program::new();
//! program.function("predict", |f| {
//!     let x = f.input("x", f32("B,2"));
//!     let layer = f.param("layer", nn::Linear::new(2, 3));
//!     f.output("y", layer.call(&x));
//! })?;
//! let init = program.get("init")?;
//! let names: Vec<&str> = init.outputs.iter().map(|o| o.name.as_str()).collect();
//! assert_eq!(names, ["layer.weight", "layer.bias"]);
//! # Ok(())
//! # }
//! ```

use crate::format::ProgramFile;
use crate::random::hash_name;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::Path;
use wengert_compiler::precision::Precision;
use wengert_compiler::rewrite::tidy;
use wengert_core::build::{BodyResult, FunctionBuilder};
use wengert_core::{
    DType, Diagnostic, Dim, Initializer, Literal, Location, Result, Scalar, Tensor, TensorType,
    graph,
};

/// The name of the function that creates all variables.
pub const INIT: &str = "init";

/// A program with the initializers of its variables.
#[derive(Clone, Debug, Default)]
pub struct Program {
    program: graph::Program,
    variables: Vec<Variable>,
    /// Positions among the variables, by path.
    positions: BTreeMap<String, usize>,
    has_own_init: bool,
}

/// A variable of the program's functions.
#[derive(Clone, Debug)]
struct Variable {
    path: String,
    ty: TensorType,
    initializer: Initializer,
    /// Where a function first declared it.
    location: Location,
}

impl Program {
    /// A program without functions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Builds a function with `f`, [tidies](tidy) and adds it. `f` returns nothing, or a `Result`
    /// for its `?`:
    ///
    /// ```
    /// use wengert::prelude::*;
    /// # fn main() -> Result<()> {
    /// let mut program = Program::new();
    /// program.function("scaled", |f| {
    ///     let scale = Literal::from_vec(&[2], vec![1.0f32, 10.0])?;
    ///     let x = f.input("x", f32("B,2"));
    ///     f.output("y", x * Tensor::constant(scale));
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The first error while building, or the one that `f` returns; a name that is taken; a
    /// variable that an earlier function declares with another type or initializer.
    #[track_caller]
    pub fn function<R: BodyResult>(
        &mut self,
        name: &str,
        f: impl FnOnce(&mut FunctionBuilder) -> R,
    ) -> Result<()> {
        let caller = Location::caller();
        let mut builder = FunctionBuilder::new(name);
        builder.run(f);
        let variables = builder.variables().to_vec();
        let function = tidy(builder.finish()?);
        let known = self.variables.len();
        let added = variables.iter().try_for_each(|(path, tensor)| {
            let input = function.input_index(path).map(|i| function.inputs[i].location);
            let location =
                input.map(|id| function.locations.origin(id).clone()).unwrap_or_default();
            self.declare(path, tensor, location)
        });
        let added = added.map_err(|d| d.context(format!("@{name}"))).and_then(|()| {
            if name == INIT && !self.has_own_init {
                self.program.replace(function);
                self.has_own_init = true;
                return Ok(());
            }
            self.program.add(function).map_err(|d| d.at(caller, "the function is built here"))
        });
        if added.is_err() {
            self.variables.truncate(known);
            self.positions.retain(|_, position| *position < known);
            return added;
        }
        if !self.has_own_init && !self.variables.is_empty() {
            self.program.replace(self.init()?);
        }
        Ok(())
    }

    fn declare(&mut self, path: &str, tensor: &Tensor, location: Location) -> Result<()> {
        let declared = |d: Diagnostic| d.at(location.clone(), "declared here");
        let initializer = match (tensor.initializer(), tensor.literal()) {
            (Some(variable), _) => variable.initializer.clone(),
            (_, Some(literal)) => Initializer::Constant(literal.clone()),
            _ => {
                let message = format!("variable `{path}` is declared from a computed tensor");
                return Err(declared(Diagnostic::new(message)).help(
                    "declare it from `Tensor::variable` or a constant, and update it \
                     with what was computed",
                ));
            }
        };
        let Some(known) = self.positions.get(path).map(|position| &self.variables[*position])
        else {
            self.positions.insert(path.into(), self.variables.len());
            self.variables.push(Variable {
                path: path.into(),
                ty: tensor.ty().clone(),
                initializer,
                location,
            });
            return Ok(());
        };
        let differs = |message: String, help: &str| {
            let first = known.location.clone();
            Err(declared(Diagnostic::new(message)).at(first, "declared first here").help(help))
        };
        if known.ty != *tensor.ty() {
            return differs(
                format!(
                    "variable `{path}` has type {}, in an earlier function {}",
                    tensor.ty(),
                    known.ty
                ),
                "variables of one key path are one variable: give one of them another name",
            );
        }
        if known.initializer != initializer {
            return differs(
                format!(
                    "variable `{path}` begins as {initializer:?}, in an earlier function as {:?}",
                    known.initializer
                ),
                "variables of one key path are one variable, with one beginning",
            );
        }
        Ok(())
    }

    /// The function that creates all variables. It takes a key if one of them is random. Each
    /// random variable draws from the key mixed with the hash of its path, so that its initial
    /// value does not depend on the others.
    fn init(&self) -> Result<graph::Function> {
        let is_random =
            |i: &Initializer| matches!(i, Initializer::Uniform { .. } | Initializer::Normal { .. });
        let init = FunctionBuilder::build(INIT, |f| {
            let random = self.variables.iter().find(|v| is_random(&v.initializer));
            let key = random.map(|first| first.location.attribute(|| f.key("key")));
            for Variable { path, ty, initializer, location } in &self.variables {
                let _user = location.attributed();
                let own =
                    key.as_ref().filter(|_| is_random(initializer)).map(|key| key_of(key, path));
                f.create(path, &drawn(ty, initializer, own.as_ref()));
            }
        });
        init.map(tidy)
    }

    /// Gives the functions built so far mixed precision: products, convolutions and attention take
    /// halves, and add in f32. Variables, inputs and outputs keep their types, except for
    /// parameters and results to which the policy gives a dtype.
    ///
    /// Call it after the last function. Rules of `custom_vjp` and checkpoints are inlined, so a
    /// function that is differentiated later has lost them.
    ///
    /// ```
    /// use wengert::prelude::*;
    /// # fn main() -> Result<()> {
    /// let mut program = Program::new();
    /// program.function("train_step", |f| {
    ///     let (x, y) = (f.input("x", f32("B,4")), f.input("y", f32("B,2")));
    ///     let layer = f.state("layer", nn::Linear::new(4, 2));
    ///     let (loss, gradient) =
    ///         value_and_grad(&layer, |layer| (layer.call(&x) - &y).square().mean());
    ///     Sgd::new(0.1).step(f, &layer, &gradient);
    ///     f.output("loss", loss);
    /// })?;
    /// program.precision(&Precision::bf16())?;
    /// assert!(program.get("train_step")?.to_string().contains("bf16"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Precision::apply_to_program`].
    pub fn precision(&mut self, policy: &Precision) -> Result<()> {
        self.program = policy.apply_to_program(&self.program)?;
        // A later function that declares a parameter in its old dtype is an error.
        for variable in &mut self.variables {
            let taken = self.program.functions().iter().find_map(|function| {
                Some(function.input_type(function.input_index(&variable.path)?).clone())
            });
            variable.ty = taken.unwrap_or(variable.ty.clone());
        }
        Ok(())
    }

    /// Writes a `.graph` file of the program without recipe and weights.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.program.save(path)
    }

    /// The plain program.
    pub fn into_inner(self) -> graph::Program {
        self.program
    }
}

impl Deref for Program {
    type Target = graph::Program;
    fn deref(&self) -> &graph::Program {
        &self.program
    }
}

impl From<Program> for graph::Program {
    fn from(program: Program) -> Self {
        program.program
    }
}

/// The key of a key path: `key` XOR the path's hash. Philox gives unrelated numbers for keys that
/// differ in any bit.
pub(crate) fn key_of(key: &Tensor, path: &str) -> Tensor {
    let hash = hash_name(path);
    let words = Literal::from_vec(&[2], vec![hash as u32, (hash >> 32) as u32]);
    key.xor(Tensor::constant(words.expect("two words fill [2]")))
}

/// The initial value of a variable.
pub(crate) fn drawn(ty: &TensorType, initializer: &Initializer, key: Option<&Tensor>) -> Tensor {
    let full = |value: f64| {
        let scalar = Tensor::constant(Literal::full(&[], Scalar::from_f64(ty.dtype, value)));
        if ty.rank() == 0 { scalar } else { scalar.broadcast_in_dim(ty.shape.clone(), &[]) }
    };
    // f16 and bf16 are drawn in f32 and rounded once.
    let wide = if ty.dtype.is_half() { DType::F32 } else { ty.dtype };
    let draw = |f: &dyn Fn(&Tensor, DType, Vec<Dim>) -> Tensor| {
        f(key.expect("random variables have a key"), wide, ty.shape.clone())
    };
    // A start of 0 adds no tensor of zeros.
    let from = |numbers: Tensor, start: f64| if start == 0.0 { numbers } else { numbers + start };
    match initializer {
        Initializer::Zeros => full(0.0),
        Initializer::Ones => full(1.0),
        Initializer::Constant(literal) => Tensor::constant(literal.clone()),
        Initializer::Uniform { low, high } => {
            from(draw(&|k, d, s| k.uniform(d, s)) * (high - low), *low).convert(ty.dtype)
        }
        Initializer::Normal { mean, std } => {
            from(draw(&|k, d, s| k.normal(d, s)) * *std, *mean).convert(ty.dtype)
        }
    }
}
