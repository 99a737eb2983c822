//! Lists called by name.

use super::WengertList;
use std::cell::RefCell;
use std::collections::HashMap;
use wengert_core::build::Scope;
use wengert_core::graph::Region;
use wengert_core::op::{FunctionCall, FunctionName};
use wengert_core::{Diagnostic, Differentiable, Location, Result, Tensor};

/// Copies of lists' bodies as functions of the function under construction, with its locations.
#[derive(Default)]
struct Adopted(RefCell<HashMap<usize, (Region, Region)>>);

impl<I: Differentiable, O: Differentiable> WengertList<I, O> {
    /// The same list, called by name. [`call`](Self::call) then emits one equation,
    /// `call {function=@name}`, whatever the length of the list. A derivative of the caller calls
    /// derivatives of the list (`@name.jvp`; `@name.forward` and `@name.pullback`), which are
    /// made once for all calls. If another list has the name, a number is appended.
    ///
    /// ```
    /// use wengert_compiler::autodiff::{list::trace, operators::grad};
    /// # use wengert_core::{build::FunctionBuilder, DType, Tensor, TensorType};
    /// # fn main() -> wengert_core::Result<()> {
    /// let layer = trace(&Tensor::constant(0.0f64), |x| x.tanh() * x)?.named("layer")?;
    /// let f = FunctionBuilder::build("f", |f| {
    ///     let x = f.input("x", TensorType::scalar(DType::F64));
    ///     f.output("slope", grad(&x, |x| layer.call(&layer.call(x))));
    /// })?;
    /// // Two calls forward, one body; two backward, one body.
    /// assert_eq!(f.to_string().matches("call").count(), 4);
    /// assert_eq!(f.body.callees().len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Error: `name` is not a name of the text language.
    #[track_caller]
    pub fn named(mut self, name: &str) -> Result<Self> {
        if !wengert_core::text::is_name(name) {
            return Err(Diagnostic::new(format!("`{name}` is not a valid function name"))
                .at(Location::caller(), "named here")
                .help("use letters, digits, `_` and `.`, not starting with a digit"));
        }
        self.name = Some(FunctionName(name.into()));
        Ok(self)
    }

    /// The name by which it is called, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.name.as_ref().map(|name| name.0.as_str())
    }

    pub(super) fn call_by_name(
        &self,
        scope: &Scope,
        name: &FunctionName,
        operands: &[Tensor],
        caller: Location,
    ) -> Result<Vec<Tensor>> {
        let adopted = scope.remembered::<Adopted>();
        let known = adopted.0.borrow().get(&self.body.address()).map(|(_, body)| body.clone());
        let body = known.unwrap_or_else(|| {
            let body = Region::from(scope.adopt(&self.body, &self.locations));
            // The list's own body is kept alive, so that no other body can have its address.
            adopted.0.borrow_mut().insert(self.body.address(), (self.body.clone(), body.clone()));
            body
        });
        let op = FunctionCall { function: name.clone(), opaque: false };
        scope.enter(|| Scope::emit(op.into(), operands, vec![body], caller))
    }
}
