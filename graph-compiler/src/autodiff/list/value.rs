//! Lists as closures: code with an environment.
//!
//! A list is a [`Differentiable`] value whose tensors are its captures, the environment. So a
//! function can be differentiated with respect to a list that it takes and calls. The tangent and
//! the cotangent of a closure are those of its environment: vectors with one component for each
//! captured tensor. The list's code is not a tensor and has no derivative. This is how closures
//! are differentiated in Alvarez-Picallo, Eyers-Taylor,
//! Peyton Jones and Ong, *Functorial String Diagrams for Reverse-Mode Automatic Differentiation*
//! (2021), and by Pearlmutter and Siskind, *Reverse-Mode AD in a Functional Framework: Lambda the
//! Ultimate Backpropagator* (2008).

use super::{WengertList, copy, without_values};
use crate::autodiff::unpoisoned;
use crate::autodiff::values::leaves;
use wengert_core::build::Scope;
use wengert_core::build::inline;
use wengert_core::graph::Region;
use wengert_core::op::Switch;
use wengert_core::{
    Diagnostic, Differentiable, KeyPath, Location, LocationTable, Result, Tensor, TensorType,
};

/// The tensors of a list are its captures, by number.
impl<I: Differentiable, O: Differentiable> Differentiable for WengertList<I, O> {
    type TangentVector = Vec<Tensor>;

    fn visit_tensors(&self, path: &KeyPath, visit: &mut dyn FnMut(&KeyPath, &Tensor)) {
        self.captures.visit_tensors(path, visit);
    }

    fn map_tensors(
        &self,
        path: &KeyPath,
        map: &mut dyn FnMut(&KeyPath, &Tensor) -> Tensor,
    ) -> Self {
        let captures = self.captures.map_tensors(path, map);
        WengertList { captures, ..self.clone() }
    }

    fn tangent(
        &self,
        path: &KeyPath,
        make: &mut dyn FnMut(&KeyPath, &Tensor) -> Tensor,
    ) -> Vec<Tensor> {
        self.captures.tangent(path, make)
    }
}

impl<I: Differentiable, O: Differentiable> WengertList<I, O> {
    /// The captured tensors.
    pub fn captures(&self) -> &[Tensor] {
        &self.captures
    }

    /// A list that calls list number `index` at run time. `index` is an integer scalar; one out of
    /// range selects the first or the last list.
    ///
    /// The captures of the result are `index` and the captures of all `lists`. The cotangent of a
    /// list that is not chosen is zero.
    ///
    /// Errors: `lists` is empty; the lists differ in the types of arguments or results; `index` is
    /// not an integer scalar.
    ///
    /// ```
    /// use wengert_compiler::autodiff::{list::{WengertList, trace}, operators::grad};
    /// # use wengert_core::build::FunctionBuilder;
    /// # use wengert_core::{interpret, DType, Literal, Tensor, TensorType};
    /// # fn main() -> wengert_core::Result<()> {
    /// let f = FunctionBuilder::build("f", |f| {
    ///     let n = f.input("n", TensorType::scalar(DType::I32));
    ///     let a = f.input("a", TensorType::scalar(DType::F64));
    ///     let like = Tensor::constant(0.0f64);
    ///     let made = trace(&like, |x| x * &a).and_then(|scale| {
    ///         let ways = [scale, trace(&like, |x| x.square())?];
    ///         WengertList::choose(&n, &ways)
    ///     });
    ///     let slope = made.map_or_else(Tensor::poisoned, |g| grad(&a, |x| g.call(x)));
    ///     f.output("slope", slope);
    /// })?;
    /// let slope = |n: i32| {
    ///     let results = interpret::run(&f, &[n.into(), 3.0f64.into()])?;
    ///     Ok::<_, wengert_core::Diagnostic>(results[0].clone())
    /// };
    /// assert_eq!((slope(0)?, slope(1)?), (Literal::from(3.0f64), Literal::from(6.0f64)));
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn choose(index: &Tensor, lists: &[Self]) -> Result<Self> {
        let caller = Location::caller();
        let Some(first) = lists.first() else {
            return Err(
                Diagnostic::new("there is no list to choose from").at(caller, "chosen here")
            );
        };
        unpoisoned([index])?;
        let signature = |list: &Self| (list.types(), list.body.types(&list.body.outputs));
        if let Some(other) = lists.iter().position(|list| signature(list) != signature(first)) {
            return Err(Diagnostic::new(format!("list {other} has another signature than list 0"))
                .at(caller, "chosen here")
                .help("trace all lists on arguments of the same types"));
        }
        let captures: Vec<Tensor> = std::iter::once(index)
            .chain(lists.iter().flat_map(|list| &list.captures))
            .cloned()
            .collect();
        let scope = Scope::new(LocationTable::default());
        let open = |scope: &Scope, types: &[TensorType]| -> Vec<Tensor> {
            types.iter().map(|ty| scope.input_at(ty.clone(), caller.clone())).collect()
        };
        let mut taken = first.types();
        let count = taken.len();
        taken.extend(captures.iter().map(|t| t.ty().clone()));
        let inputs = open(&scope, &taken);
        let outputs = scope.enter(|| -> Result<Vec<Tensor>> {
            let mut given: Vec<TensorType> = taken[..count].to_vec();
            given.extend_from_slice(&taken[count + 1..]);
            let mut from = count;
            let mut regions: Vec<Region> = Vec::new();
            for list in lists {
                let way = scope.region();
                let inputs = open(&way, &given);
                let operands =
                    [&inputs[..count], &inputs[from..from + list.captures.len()]].concat();
                from += list.captures.len();
                let results = way.enter(|| match &list.name {
                    Some(name) => list.call_by_name(&way, name, &operands, caller.clone()),
                    None => inline(&way.adopt(&list.body, &list.locations), &operands),
                })?;
                regions.push(way.close(&results)?.body.into());
            }
            let operands: Vec<Tensor> = std::iter::once(&inputs[count])
                .chain(&inputs[..count])
                .chain(&inputs[count + 1..])
                .cloned()
                .collect();
            Scope::emit(Switch {}.into(), &operands, regions, caller.clone())
        })?;
        let body = scope.close(&outputs)?.body;
        Ok(WengertList {
            input: without_values(&first.input),
            output: without_values(&first.output),
            body: body.into(),
            captures,
            locations: scope.locations(),
            name: None,
        })
    }

    /// The types of an argument's tensors.
    fn types(&self) -> Vec<TensorType> {
        let count = self.body.inputs.len() - self.captures.len();
        self.body.types(&self.body.inputs[..count])
    }
}

impl<A: Differentiable, B: Differentiable, O: Differentiable> WengertList<(A, B), O> {
    /// Partial application: the function of the second argument, with the first argument fixed.
    /// The first argument becomes part of the environment.
    ///
    /// Error: the types of `first` differ from those that the list was traced on, or `first` is
    /// poisoned.
    ///
    /// ```
    /// use wengert_compiler::autodiff::{list::trace, operators::vjp};
    /// # use wengert_core::build::FunctionBuilder;
    /// # use wengert_core::{interpret, DType, Literal, Tensor, TensorType};
    /// # fn main() -> wengert_core::Result<()> {
    /// let like = Tensor::constant(0.0f64);
    /// let product = trace(&(like.clone(), like), |(a, x)| a * x)?;
    /// let f = FunctionBuilder::build("f", |f| {
    ///     let a = f.input("a", TensorType::scalar(DType::F64));
    ///     // The cotangent of x ↦ a·x is that of a.
    ///     let slopes = product
    ///         .partial(&a)
    ///         .map(|times_a| vjp(&times_a, |g| g.call(&a)).1(&Tensor::constant(1.0f64)));
    ///     f.output("slope", slopes.map_or_else(Tensor::poisoned, |s| s[0].clone()));
    /// })?;
    /// assert_eq!(interpret::run(&f, &[Literal::from(5.0f64)])?[0], Literal::from(5.0f64));
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn partial(&self, first: &A) -> Result<WengertList<B, O>> {
        let caller = Location::caller();
        let (a, b) = &self.input;
        let wanted = a.tensors();
        let given: Vec<Tensor> = leaves(first);
        unpoisoned(&given)?;
        let types = |tensors: &mut dyn Iterator<Item = &Tensor>| -> Vec<String> {
            tensors.map(|t| t.ty().to_string()).collect()
        };
        let (wanted, found) = (types(&mut wanted.iter().map(|(_, t)| t)), types(&mut given.iter()));
        if wanted != found {
            return Err(Diagnostic::new(format!(
                "the first argument has tensors of types ({}), the list was traced on ({})",
                found.join(", "),
                wanted.join(", ")
            ))
            .at(caller, "applied here"));
        }
        let mut body = self.body.to_body();
        let own = body.inputs.len() - self.captures.len();
        body.inputs[..own].rotate_left(given.len());
        Ok(WengertList {
            input: copy(b),
            output: copy(&self.output),
            body: body.renumber().into(),
            captures: given.into_iter().chain(self.captures.iter().cloned()).collect(),
            locations: self.locations.clone(),
            name: self.name.clone(),
        })
    }
}
