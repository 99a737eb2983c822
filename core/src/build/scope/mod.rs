//! A [`Scope`] is a body under construction. Scopes nest: a traced closure, a region of an op,
//! and the linear program of a linearization are child scopes. An equation is emitted into the
//! innermost scope among those of its operands. A value of an outer scope that an inner scope
//! uses becomes a **capture**: an extra input of the inner body, recorded with the outer value.
//! Two things follow from this rule:
//!
//! - Equations of a closure that depend on captured values alone are hoisted: they run once,
//!   outside.
//! - *Partial evaluation is free*: if tangents live in a child scope, equations among primal
//!   values land in the outer scope and equations on a tangent land in the child. The child's
//!   captures are exactly the residuals.
//!
//! A failing operation yields a poisoned tensor that carries the first error.
//! [`FunctionBuilder::finish`](super::FunctionBuilder::finish) returns this error, even if the
//! user's code panics in between ([`Scope::guarded`]).
//!
//! In an *eager* scope ([`super::eager`]) an equation whose operands have values is evaluated as
//! it is emitted.

mod closure;
mod constants;

pub use closure::Closure;

use crate::build::eager::Values;
use crate::build::tensor::Tensor;
use crate::build::vary;
use crate::diagnostic::{Diagnostic, Result};
use crate::graph::{Body, Equation, Names, Region, Relocation, ValueId};
use crate::id::IdVec;
use crate::interpret::Array;
use crate::location::{Location, LocationId, LocationTable};
use crate::mesh::Mesh;
use crate::op::{Constant, Op};
use crate::ty::TensorType;
use std::any::{Any, TypeId};
use std::cell::{Cell, Ref, RefCell};
use std::collections::HashMap;
use std::panic::{self, AssertUnwindSafe};
use std::rc::Rc;
use std::sync::Arc;

/// A body under construction. A handle: cloning copies a pointer.
#[derive(Clone)]
pub struct Scope(Rc<ScopeState>);

struct ScopeState {
    parent: Option<Scope>,
    depth: usize,
    /// Equations emitted while this scope is current stay in it, even if all their operands are
    /// captured.
    contains: bool,
    /// Constants of outer scopes are copied into this scope instead of being captured.
    repeats: bool,
    context: Rc<Context>,
    building: RefCell<Building>,
}

/// State shared by all scopes of one function.
struct Context {
    locations: RefCell<LocationTable>,
    derivation: RefCell<Vec<(LocationId, Arc<str>)>>,
    error: RefCell<Option<Diagnostic>>,
    /// See [`super::eager`].
    eager: bool,
    /// Whether an existing equation is reused instead of being emitted again.
    reuses: Cell<bool>,
    names: Names,
    memory: RefCell<HashMap<TypeId, Rc<dyn Any>>>,
    mesh: RefCell<Mesh>,
}

#[derive(Default)]
pub(super) struct Building {
    pub(super) body: Body,
    /// Known values of an eager scope.
    pub(super) values: Values,
    defined_at: IdVec<ValueId, LocationId>,
    /// For a constant value, the index of the equation that defines it: see [`constants`].
    constants: IdVec<ValueId, Option<usize>>,
    captures: Vec<Tensor>,
    /// The values that stand for `captures`, in the same order, so ascending. (`captured` has
    /// several keys for a value captured through the parent.)
    captured_values: Vec<ValueId>,
    // Keyed by (depth, value) of the outer scope, which is unique along the chain of parents.
    captured: HashMap<(usize, ValueId), ValueId>,
}

thread_local! {
    static CURRENT: RefCell<Vec<Scope>> = const { RefCell::new(Vec::new()) };
}

/// A guard for an entered scope. Dropping it leaves the scope.
pub struct Entered(std::marker::PhantomData<*const ()>);

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.with_borrow_mut(|stack| stack.pop());
    }
}

impl Scope {
    /// The outermost scope of a function.
    pub fn new(locations: LocationTable) -> Self {
        Scope::outermost(locations, false)
    }

    pub(super) fn outermost(locations: LocationTable, eager: bool) -> Self {
        let context = Context {
            locations: RefCell::new(locations),
            derivation: RefCell::default(),
            error: RefCell::default(),
            eager,
            reuses: Cell::new(false),
            names: Names::default(),
            memory: RefCell::default(),
            mesh: RefCell::default(),
        };
        Scope::with(None, 0, false, false, Rc::new(context))
    }

    fn with(
        parent: Option<Scope>,
        depth: usize,
        contains: bool,
        repeats: bool,
        context: Rc<Context>,
    ) -> Self {
        Scope(Rc::new(ScopeState {
            parent,
            depth,
            contains,
            repeats,
            context,
            building: RefCell::default(),
        }))
    }

    /// A scope within this one, whose equations are emitted outside it where possible.
    pub fn child(&self) -> Self {
        Scope::with(Some(self.clone()), self.0.depth + 1, false, false, self.0.context.clone())
    }

    /// A scope within this one that keeps every equation emitted while it is current: the region
    /// of an op.
    pub fn region(&self) -> Self {
        Scope::with(Some(self.clone()), self.0.depth + 1, true, false, self.0.context.clone())
    }

    /// The current scope, if any.
    pub fn current() -> Option<Scope> {
        CURRENT.with_borrow(|stack| stack.last().cloned())
    }

    /// Makes this the current scope while `f` runs. Operations on constants alone are emitted
    /// here or, within a region, in the innermost region. A child scope of a region captures
    /// them.
    pub fn enter<T>(&self, f: impl FnOnce() -> T) -> T {
        let _entered = self.entered();
        f()
    }

    /// [`enter`](Self::enter) for user code, which may continue after an error with a poisoned
    /// tensor and then panic.
    ///
    /// Error: the function's first error, if `f` panics after it, since the panic is a
    /// consequence. Any other panic is resumed.
    pub fn guarded<T>(&self, f: impl FnOnce() -> T) -> Result<T> {
        // After a panic the function is abandoned, so a half-changed scope is never observed.
        panic::catch_unwind(AssertUnwindSafe(|| self.enter(f))).map_err(|payload| {
            match self.error() {
                Some(error) => error,
                None => panic::resume_unwind(payload),
            }
        })
    }

    /// Enters this scope. Dropping the returned guard leaves it. Guards must be dropped in the
    /// reverse order of entering.
    #[must_use = "the scope is left at once"]
    pub fn entered(&self) -> Entered {
        CURRENT.with_borrow_mut(|stack| stack.push(self.clone()));
        Entered(std::marker::PhantomData)
    }

    /// While `f` runs, emitted equations record that `rule` derived them from the equation at
    /// `of`.
    pub fn derived<T>(
        &self,
        of: LocationId,
        rule: impl Into<Arc<str>>,
        f: impl FnOnce() -> T,
    ) -> T {
        self.0.context.derivation.borrow_mut().push((of, rule.into()));
        let result = f();
        self.0.context.derivation.borrow_mut().pop();
        result
    }

    /// [`derived`](Self::derived) from a source location. A composite uses it to tell the user's
    /// line from its own.
    pub fn derived_at<T>(
        &self,
        of: Location,
        rule: impl Into<Arc<str>>,
        f: impl FnOnce() -> T,
    ) -> T {
        let of = self.locate(of);
        self.derived(of, rule, f)
    }

    /// Adds an input.
    #[track_caller]
    pub fn input(&self, ty: TensorType) -> Tensor {
        self.input_at(ty, Location::caller())
    }

    /// Adds an input with a given source location.
    pub fn input_at(&self, ty: TensorType, location: Location) -> Tensor {
        let location = self.locate(location);
        let mut building = self.0.building.borrow_mut();
        let value = building.define(ty.clone(), location);
        building.body.inputs.push(value);
        Tensor::traced(self.clone(), value, ty)
    }

    /// Emits an equation into the innermost scope among those of its operands and the innermost
    /// containing scope around the current one.
    pub fn emit(
        op: Op,
        operands: &[Tensor],
        regions: Vec<Region>,
        caller: Location,
    ) -> Result<Vec<Tensor>> {
        if let Some(error) = first_error(&op, operands) {
            return Err(error);
        }
        if vary::concerns(operands, &regions) {
            let (operands, regions) = vary::promoted(&op, operands, regions, &caller)?;
            return Scope::emit_promoted(op, &operands, regions, caller);
        }
        Scope::emit_promoted(op, operands, regions, caller)
    }

    /// [`emit`](Self::emit) for operands that vary over the axes that the op requires.
    fn emit_promoted(
        op: Op,
        operands: &[Tensor],
        regions: Vec<Region>,
        caller: Location,
    ) -> Result<Vec<Tensor>> {
        let mut scope: Option<Scope> = None;
        let current = Scope::current();
        let containing = current.as_ref().and_then(Scope::containing);
        for candidate in operands.iter().filter_map(Tensor::scope).chain(containing.as_ref()) {
            match &scope {
                Some(s) if s.is_within(candidate) => {}
                Some(s) if !candidate.is_within(s) => {
                    let error = outside(s, candidate).context(op.name()).at(caller, op.name());
                    return Err(operands
                        .iter()
                        .fold(error, |d, t| d.operand(t.defined_at(), t.ty())));
                }
                _ => scope = Some(candidate.clone()),
            }
        }
        let Some(scope) = scope.or(current) else {
            return Err(Diagnostic::new(format!(
                "{}: there is no function to put it in",
                op.name()
            ))
            .at(caller, op.name())
            .help("operate on tensors inside `Program::function`"));
        };
        scope.push(op, operands, regions, caller)
    }

    fn push(
        &self,
        mut op: Op,
        operands: &[Tensor],
        mut regions: Vec<Region>,
        caller: Location,
    ) -> Result<Vec<Tensor>> {
        self.0
            .context
            .names
            .settle(&mut op, &mut regions)
            .map_err(|d| d.at(caller.clone(), "called here"))?;
        let types: Vec<TensorType> = operands.iter().map(|t| t.ty().clone()).collect();
        let results = op.infer(&types, &regions).map_err(|d| {
            let mut d = method_names(d).at(self.derivation_of(&caller), op.name());
            for operand in operands {
                d = d.operand(operand.defined_at(), operand.ty());
            }
            d
        })?;
        let values = operands.iter().map(|t| self.value_of(t)).collect::<Result<Vec<_>>>();
        let operands = values.map_err(|d| d.within(&self.derivation_of(&caller), op.name()))?;
        let values = self.append(op, operands, regions, &results, caller)?;
        Ok(values
            .into_iter()
            .zip(results)
            .map(|(v, ty)| Tensor::traced(self.clone(), v, ty))
            .collect())
    }

    /// Appends an equation on values of this scope. An eager scope also evaluates it.
    fn append(
        &self,
        op: Op,
        operands: Vec<ValueId>,
        regions: Vec<Region>,
        types: &[TensorType],
        caller: Location,
    ) -> Result<Vec<ValueId>> {
        let context = &self.0.context;
        let mut equation =
            Equation { op, operands, results: vec![], regions, location: self.locate(caller) };
        let mut arrays = None;
        if context.eager {
            let building = self.0.building.borrow();
            if context.reuses.get()
                && context.derivation.borrow().is_empty()
                && let Some(known) = building.values.emitted(&equation)
            {
                return Ok(known);
            }
            arrays = building.values.evaluate(
                &equation,
                &building.body,
                types,
                &context.locations.borrow(),
            )?;
        }
        let mut building = self.0.building.borrow_mut();
        equation.results =
            types.iter().map(|ty| building.define(ty.clone(), equation.location)).collect();
        if context.eager {
            building.values.insert(&equation, arrays);
        }
        let values = equation.results.clone();
        let constant = building.is_constant(&equation);
        building.push(equation, constant);
        Ok(values)
    }

    /// The value that stands for `tensor` in this scope: itself, a constant, or a capture.
    pub fn value_of(&self, tensor: &Tensor) -> Result<ValueId> {
        if let Some(literal) = tensor.literal() {
            let constant = Constant { value: literal.clone() };
            let values =
                self.append(constant.into(), vec![], vec![], &[literal.ty()], Location::Unknown)?;
            return Ok(values[0]);
        }
        let (scope, value) = tensor.traced_value()?;
        if Rc::ptr_eq(&scope.0, &self.0) {
            return Ok(value);
        }
        let Some(parent) = self.0.parent.as_ref().filter(|p| p.is_within(scope)) else {
            return Err(
                outside(self, scope).at(tensor.defined_at().unwrap_or_default(), "it is made here")
            );
        };
        let key = (scope.0.depth, value);
        if let Some(captured) = self.0.building.borrow().captured.get(&key) {
            return Ok(*captured);
        }
        if self.0.repeats
            && let Some(copy) = self.repeated(scope, value)
        {
            return Ok(copy);
        }
        // The parent captures the tensor too if it comes from further out.
        let outer = Tensor::traced(parent.clone(), parent.value_of(tensor)?, tensor.ty().clone());
        // The parent's value may have been captured already.
        let outer_key = (parent.0.depth, outer.traced_value()?.1);
        let known = self.0.building.borrow().captured.get(&outer_key).copied();
        if let Some(captured) = known {
            self.0.building.borrow_mut().captured.insert(key, captured);
            return Ok(captured);
        }
        let location = tensor.defined_at().map_or(LocationId(0), |l| self.locate(l));
        let mut building = self.0.building.borrow_mut();
        let captured = building.define(tensor.ty().clone(), location);
        if let Some(array) = outer.scope().and_then(|s| s.known(outer.traced_value().ok()?.1)) {
            building.values.set(captured, array);
        }
        building.captures.push(outer);
        building.captured_values.push(captured);
        building.captured.insert(key, captured);
        building.captured.insert(outer_key, captured);
        // Closing the scope appends captures to the explicit inputs.
        Ok(captured)
    }

    /// The innermost scope, from this one outwards, that keeps its equations (`contains`).
    fn containing(&self) -> Option<Scope> {
        let mut scope = Some(self);
        while let Some(s) = scope {
            if s.0.contains {
                return Some(s.clone());
            }
            scope = s.0.parent.as_ref();
        }
        None
    }

    /// If the tensor is a capture of this scope, the outer tensor that it stands for.
    pub fn captured(&self, tensor: &Tensor) -> Option<Tensor> {
        let (scope, value) = tensor.traced_value().ok()?;
        if !self.is_same(scope) {
            return None;
        }
        let building = self.0.building.borrow();
        let index = building.captured_values.binary_search(&value).ok()?;
        Some(building.captures[index].clone())
    }

    /// True if both are the same scope.
    pub fn is_same(&self, other: &Scope) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    /// True if this is `other` or nested in it.
    pub fn is_within(&self, other: &Scope) -> bool {
        let mut scope = Some(self);
        while let Some(s) = scope {
            if Rc::ptr_eq(&s.0, &other.0) {
                return true;
            }
            scope = s.0.parent.as_ref();
        }
        false
    }

    /// Ends a child scope. Outputs may be tensors of this or any outer scope, or constants.
    pub fn close(&self, outputs: &[Tensor]) -> Result<Closure> {
        let values = outputs.iter().map(|t| self.value_of(t)).collect::<Result<Vec<_>>>()?;
        let mut building = self.0.building.borrow_mut();
        let mut body = std::mem::take(&mut building.body);
        let captures = std::mem::take(&mut building.captures);
        let captured = std::mem::take(&mut building.captured_values);
        building.captured.clear();
        body.inputs.extend(captured);
        body.outputs = values;
        Ok(Closure { body: body.renumber(), captures })
    }

    /// Source location of a value.
    pub(super) fn location_of(&self, value: ValueId) -> Location {
        let id = self.0.building.borrow().defined_at.get(value).copied().unwrap_or(LocationId(0));
        self.0.context.locations.borrow().origin(id).clone()
    }

    /// The id of a location. Within [`Scope::derived`] it is the id of the derivation.
    pub(super) fn locate(&self, caller: Location) -> LocationId {
        let mut locations = self.0.context.locations.borrow_mut();
        match self.0.context.derivation.borrow().last() {
            Some((of, rule)) => locations.intern(Location::Derived { of: *of, rule: rule.clone() }),
            None => locations.intern(caller),
        }
    }

    fn derivation_of(&self, caller: &Location) -> Location {
        match self.0.context.derivation.borrow().last() {
            Some((of, _)) => self.0.context.locations.borrow().origin(*of).clone(),
            None => match caller {
                Location::Derived { of, .. } => self.origin(*of),
                written => written.clone(),
            },
        }
    }

    /// Read access for other eager scopes.
    pub(super) fn building(&self) -> Ref<'_, Building> {
        self.0.building.borrow()
    }

    /// Records the value of an input.
    pub(super) fn set_value(&self, value: ValueId, array: Array<f64>) {
        self.0.building.borrow_mut().values.set(value, array);
    }

    /// The mesh of the function.
    pub fn mesh(&self) -> Mesh {
        self.0.context.mesh.borrow().clone()
    }

    /// Gives the function a mesh.
    pub fn set_mesh(&self, mesh: Mesh) {
        *self.0.context.mesh.borrow_mut() = mesh;
    }

    /// True if this scope evaluates its equations where it can: see [`super::eager`].
    pub fn is_eager(&self) -> bool {
        self.0.context.eager
    }

    /// A value that is kept while the function is being built, one for each type `T`: for example
    /// the derivatives of the functions that it calls.
    pub fn remembered<T: Default + 'static>(&self) -> Rc<T> {
        let mut memory = self.0.context.memory.borrow_mut();
        let known = memory.entry(TypeId::of::<T>()).or_insert_with(|| Rc::new(T::default()));
        known.clone().downcast().expect("it is kept under its type")
    }

    /// While `f` runs, an eager scope reuses an existing equation instead of emitting it again,
    /// except within [`derived`](Self::derived).
    pub fn reuse<T>(&self, f: impl FnOnce() -> T) -> T {
        let before = self.0.context.reuses.replace(true);
        let result = f();
        self.0.context.reuses.set(before);
        result
    }

    /// The same body with its locations moved from `locations`, the table of another function, to
    /// the table of this one.
    pub fn adopt(&self, body: &Body, locations: &LocationTable) -> Body {
        let known = LocationTable::merge(&mut self.0.context.locations.borrow_mut(), locations);
        Relocation::new(&known).body(body)
    }

    /// The location of an id, e.g. of an equation of a closed child scope.
    pub fn location(&self, id: LocationId) -> Location {
        self.0.context.locations.borrow().get(id).clone()
    }

    /// A copy of the location table so far.
    pub fn locations(&self) -> LocationTable {
        self.0.context.locations.borrow().clone()
    }

    /// The source location that a person wrote, from which the location of an id derives.
    pub fn origin(&self, id: LocationId) -> Location {
        self.0.context.locations.borrow().origin(id).clone()
    }

    /// Records an error if it is the function's first. Derived places are replaced by the source
    /// locations that a person wrote.
    pub fn fail(&self, error: &Diagnostic) {
        self.0.context.error.borrow_mut().get_or_insert_with(|| {
            let mut error = error.clone();
            for (location, _) in &mut error.places {
                if let Location::Derived { of, .. } = location {
                    *location = self.origin(*of);
                }
            }
            error
        });
    }

    /// The function's first error so far.
    pub fn error(&self) -> Option<Diagnostic> {
        self.0.context.error.borrow().clone()
    }
}

/// Rewrites the help of an op's rule with the names of the builder. Rules name ops and attributes
/// as text does.
fn method_names(mut error: Diagnostic) -> Diagnostic {
    const METHODS: [(&str, &str); 3] = [
        ("`convert_element_type`", "`.convert(…)`"),
        ("`max_steps`", "a bound by `while_at_most`"),
        ("`index=i64`", "`Tensor::apply` with an `op::Argument` whose index is i64"),
    ];
    if let Some(help) = &mut error.help {
        for (op, method) in METHODS {
            *help = help.replace(op, method);
        }
    }
    error
}

/// The first error among the operands of an operation and the dimensions in its attributes.
fn first_error(op: &Op, operands: &[Tensor]) -> Option<Diagnostic> {
    let mut first = operands.iter().find_map(Tensor::error).cloned();
    op.visit_dims(&mut |dim| first = first.take().or_else(|| dim.error().cloned()));
    first
}

/// The error for a tensor of scope `other` used in `scope`, which is not within `other`.
fn outside(scope: &Scope, other: &Scope) -> Diagnostic {
    match Rc::ptr_eq(&scope.0.context, &other.0.context) {
        true => Diagnostic::new("a tensor is used outside of the closure that made it")
            .help("return it from the closure, and use what the operator around the closure gives"),
        false => Diagnostic::new("a tensor belongs to another function")
            .help("declare it as an input of this function, or compute it here"),
    }
}

impl Building {
    fn define(&mut self, ty: TensorType, location: LocationId) -> ValueId {
        self.defined_at.push(location);
        self.constants.push(None);
        self.body.values.push(ty)
    }

    /// Adds an equation whose results are already defined.
    fn push(&mut self, equation: Equation, constant: bool) {
        let at = self.body.equations.len();
        equation.results.iter().for_each(|v| self.constants[*v] = constant.then_some(at));
        self.body.equations.push(equation);
    }
}

#[cfg(test)]
mod tests;
