//! Scopes of equations and captures.

use super::*;
use crate::dtype::DType;

fn scalar() -> TensorType {
    TensorType::scalar(DType::F32)
}

#[test]
fn equations_go_to_the_innermost_scope_of_their_operands() {
    let outer = Scope::new(LocationTable::default());
    let x = outer.input(scalar());
    let inner = outer.child();
    let (y, z) = inner.enter(|| {
        let t = inner.input(scalar());
        // Does not depend on `t`, so it is emitted outside.
        let outside = &x * &x;
        (&t * &outside, &t + &x)
    });
    let closure = inner.close(&[y, z]).unwrap();
    assert_eq!(closure.body.inputs.len(), 3);
    assert_eq!(closure.captures.len(), 2);
    assert_eq!(closure.body.equations.len(), 2);
    assert_eq!(outer.close(&[]).unwrap().body.equations.len(), 1);
}

#[test]
fn a_tensor_that_escapes_is_an_error_and_is_not_taken_for_a_capture() {
    let outer = Scope::new(LocationTable::default());
    let (a, b) = (outer.child(), outer.child());
    let escaped = a.input(scalar());
    let inner = b.child();
    // The same depth and value id as `escaped`, in another scope.
    let captured = b.input(scalar());
    inner.value_of(&captured).unwrap();
    let error = inner.close(std::slice::from_ref(&escaped)).unwrap_err();
    assert!(error.message.contains("outside of the closure"), "{error}");
    assert!((&escaped + &captured).error().is_some());
}

#[test]
fn a_nested_scope_captures_through_its_parents() {
    let outer = Scope::new(LocationTable::default());
    let x = outer.input(scalar());
    let middle = outer.child();
    let inner = middle.child();
    let t = inner.input(scalar());
    let y = &t * &x;
    let closure = inner.close(&[y]).unwrap();
    let (scope, _) = closure.captures[0].traced_value().unwrap();
    assert!(scope.is_within(&middle));
    assert_eq!(middle.close(&[]).unwrap().captures.len(), 1);
}

#[test]
fn only_declared_state_is_updated() {
    use crate::build::FunctionBuilder;
    use crate::{Initializer, Tensor};
    let w = || Tensor::variable(scalar(), Initializer::Zeros);
    let build = |f: &dyn Fn(&mut FunctionBuilder)| FunctionBuilder::build("step", |b| f(b));
    let error = build(&|f| {
        let w = f.state("m.weight", w());
        f.update("m.wieght", &(w + 1.0));
    });
    let text = error.unwrap_err().to_string();
    assert!(text.contains("@step: the function has no state `m.wieght`"), "{text}");
    assert!(text.contains("did you mean `m.weight`?") && text.contains("tests.rs:"), "{text}");
    let error = build(&|f| {
        let w = f.param("w", w());
        f.update("w", &(w + 1.0));
    });
    assert!(error.unwrap_err().to_string().contains("the param of that name is only read"));
    let error = build(&|f| {
        let w = f.state("w", w());
        f.create("w", &(w + 1.0));
    });
    assert!(error.unwrap_err().to_string().contains("`w` is state of this function"));
    let made = build(&|f| f.create("w", &Tensor::constant(1.0f32))).unwrap();
    assert_eq!(made.outputs[0].name, "w");
}
