//! Differential operators and custom rules.

use crate::{building, says};
use wengert::operators::{call, opaque};
use wengert::prelude::*;

#[test]
fn the_gradient_of_what_is_no_scalar() {
    says(
        building(|f| {
            let x = f.input("x", f32("3"));
            let dx = grad(&x, |x| {
                //~ grad
                x * x //~ output
            });
            f.output("dx", dx);
        }),
        "
        @f: grad needs a scalar output; the closure's has shape f32[3]. Reduce it with \
            `.sum()` or use `jacrev`
          --> {output}: the output is made here
          --> {grad}: differentiated here
        ",
    );
}

#[test]
fn the_gradient_of_a_loss_of_integers() {
    says(
        building(|f| {
            let x = f.input("x", f32("3"));
            let dx = grad(&x, |x| x.convert(DType::I32).sum()); //~ here
            f.output("dx", dx);
        }),
        "
        @f: grad needs an output of floats; the closure's is i32[]: i32 has no derivative
          --> {here}: the output is made here
          --> {here}: differentiated here
        ",
    );
}

#[test]
fn the_gradient_by_integers() {
    says(
        building(|f| {
            let x = f.input("x", i32("3")); //~ x
            let dx = grad(&x, |x| x.convert(DType::F32).sum()); //~ here
            f.output("dx", dx);
        }),
        "
        @f: there are no floats to differentiate with respect to
          --> {x}: i32[3] is made here
          --> {here}: differentiated here
          help: integers and bools have no derivative
        ",
    );
}

#[test]
fn the_gradient_by_a_model_that_belongs_to_no_function() {
    says(
        building(|f| {
            let x = f.input("x", f32("B,2"));
            let layer = Linear::new(2, 1); //~ layer
            let gradient = grad(&layer, |l| l.call(&x).mean()); //~ here
            f.output("gradient", &gradient.weight);
        }),
        "
        @f: a variable of type f32[2,1] is used before it belongs to a function
          --> {layer}: the variable is made here
          --> {here}: differentiated here
          help: pass the model to `param` or `state` of the function first, and use what they return
        ",
    );
}

#[test]
fn the_gradient_by_a_path_that_is_not_there() {
    says(
        building(|f| {
            let x = f.input("x", f32("B,2"));
            let layer = f.param("layer", Linear::new(2, 1));
            let gradient = grad_wrt(&layer, &["wieght"], |l| l.call(&x).mean()); //~ here
            f.output("gradient", &gradient.weight);
        }),
        "
        @f: there is no tensor `wieght`
          --> {here}: differentiated here
          help: did you mean `weight`?
        ",
    );
}

#[test]
fn an_error_within_the_closure_that_is_differentiated() {
    says(
        building(|f| {
            let x = f.input("x", f32("3"));
            let w = f.input("w", f32("4")); //~ w
            let dx = grad(&x, |x| {
                //~ grad
                (x * &w).sum() //~ here
            });
            f.output("dx", dx);
        }),
        "
        @f: mul: operands have types f32[3] and f32[4]
          --> {here}: mul
          --> {grad}: an operand, f32[3], is made here
          --> {w}: an operand, f32[4], is made here
          help: shapes must be equal, or broadcast: aligned at the last axis, extents equal or 1
        ",
    );
}

#[test]
fn a_tangent_of_another_type() {
    says(
        building(|f| {
            let x = f.input("x", f32("3")); //~ x
            let along = f.input("along", f32("4")); //~ along
            let (y, dy) = jvp(&x, &along, |x| x.sin()); //~ here
            f.output("y", y);
            f.output("dy", dy);
        }),
        "
        @f: the tangent has type f32[4], the value has f32[3]
          --> {along}: the tangent is made here
          --> {x}: the value is made here
          --> {here}: differentiated here
          help: a tangent has the dtype and shape of its value
        ",
    );
}

#[test]
fn a_cotangent_of_another_type() {
    says(
        building(|f| {
            let x = f.input("x", f32("3"));
            let (y, pull_back) = vjp(&x, |x| x.sin()); //~ vjp
            f.output("dx", pull_back(&y.sum())); //~ ct
        }),
        "
        @f: the cotangent has type f32[], the value has f32[3]
          --> {ct}: the cotangent is made here
          --> {vjp}: the value is made here
          --> {vjp}: differentiated here
          help: a cotangent has the dtype and shape of its value
        ",
    );
}

#[test]
fn the_transpose_of_what_is_not_linear() {
    says(
        building(|f| {
            let x = f.input("x", f32("3"));
            let back = transpose(&x, |x| {
                //~ transpose
                x.sin() //~ sine
            });
            f.output("y", back(&x));
        }),
        "
        @f: `sin` is not linear here, so it cannot be transposed
          --> {sine}: sin
          --> {transpose}: differentiated here
          help: transpose linear functions only; `vjp` linearizes first
        ",
    );
}

#[test]
fn the_gradient_through_a_loop_without_a_bound() {
    says(
        building(|f| {
            let x = f.input("x", f32(""));
            let dx = grad(&x, |x| {
                //~ grad
                control::while_loop(x, |x| x.lt(10.0), |x| x * x) //~ loop
            });
            f.output("dx", dx);
        }),
        "
        @f: reverse mode through a `while` loop without a bound would have to remember \
            any number of steps
          --> {loop}: the loop is here
          --> {grad}: differentiated here
          help: give it a bound by `while_at_most`, or checkpoints by `while_checkpointed`; \
              or write it as a `scan` or `fori`, whose number of steps is known; or use forward \
              mode (`jvp`, `jacfwd`)
        ",
    );
}

#[test]
fn the_gradient_through_a_function_that_has_none() {
    says(
        building(|f| {
            let x = f.input("x", f32(""));
            let dx = grad(&x, |x| {
                //~ grad
                opaque("table", x, |x| x.exp()) //~ opaque
            });
            f.output("dx", dx);
        }),
        "
        @f: cannot differentiate through `@table`: it is opaque
          --> {opaque}: called here
          --> {grad}: differentiated here
          help: Give it a `custom_vjp` or mark it `stop_gradient`
        ",
    );
}

#[test]
fn a_backward_rule_that_gives_another_type() {
    says(
        building(|f| {
            let x = f.input("x", f32("3")); //~ x
            let y = custom_vjp(&x, |x| (x.exp(), ()), |(), ct: &Tensor| ct.sum()); //~ here
            f.output("y", y);
        }),
        "
        @f: custom_vjp: the backward half's outputs have types (f32[]), not (f32[3])
          --> {here}: custom_vjp
          --> {x}: an operand, f32[3], is made here
        ",
    );
}

#[test]
fn a_rule_for_tangents_that_gives_another_type() {
    says(
        building(|f| {
            let x = f.input("x", f32("3")); //~ x
            let y = custom_jvp(&x, |x: &Tensor| x.exp(), |_, _, t: &Tensor| t.sum()); //~ here
            f.output("y", y);
        }),
        "
        @f: custom_jvp: the rule's outputs have types (f32[]), not (f32[3])
          --> {here}: custom_jvp
          --> {x}: an operand, f32[3], is made here
        ",
    );
}

#[test]
fn a_call_by_a_name_that_is_none() {
    says(
        building(|f| {
            let x = f.input("x", f32("3"));
            f.output("y", call("my function", &x, |x| x.exp())); //~ here
        }),
        "
        @f: `my function` is not a valid function name
          --> {here}: the function with a rule is here
          help: use letters, digits, `_` and `.`, not starting with a digit
        ",
    );
}

#[test]
fn the_nth_derivative_by_a_vector() {
    says(
        building(|f| {
            let x = f.input("x", f32("3")); //~ x
            f.output("d2", nth_derivative(2, &x, |x| x.sin())); //~ here
        }),
        "
        @f: nth_derivative needs a closure of a float scalar; this one is of f32[3]
          --> {here}: differentiated here
          --> {x}: an operand, f32[3], is made here
          help: use `jet` with a direction
        ",
    );
}

#[test]
fn the_hessian_of_what_is_no_scalar() {
    says(
        building(|f| {
            let x = f.input("x", f32("3"));
            let h = hessian(&x, |x| {
                //~ hessian
                x * x //~ output
            });
            f.output("h", h);
        }),
        "
        @f: hessian needs a scalar output; the closure's has shape f32[3]. Reduce it with `.sum()`
          --> {output}: the output is made here
          --> {hessian}: differentiated here
        ",
    );
}

#[test]
fn a_gradient_of_numbers_that_is_no_scalar() {
    let x = Tracked::new(&Tensor::constant(Literal::from_vec(&[2], vec![1.0f32, 2.0]).unwrap()));
    let y = x.exp();
    let dx = x.gradient(&y); //~ here
    says(
        dx.error().unwrap().to_string(),
        "
        a gradient needs a scalar of floats; this is f32[2]
          --> {here}: differentiated here
          help: reduce it with `.sum()`, or use `pull_back` and give it a cotangent
        ",
    );
}

#[test]
fn a_list_called_on_another_type() {
    let list = trace(&Tensor::constant(0.0f32), |x| x * x).unwrap();
    let error = list.evaluate(&Tensor::constant(0.0f64)).unwrap_err(); //~ here
    says(
        error.to_string(),
        "
        the argument has type f64[], the list was traced on f32[]
          --> {here}: evaluated here
          help: trace the closure again for other types
        ",
    );
}

#[test]
fn an_error_while_a_list_is_traced() {
    let x = Tensor::constant(Literal::from_vec(&[2], vec![1.0f32, 2.0]).unwrap());
    let error = trace(&x, |x| {
        //~ trace
        x.sum_axes(&[1]) //~ here
    });
    says(
        error.err().unwrap().to_string(),
        "
        reduce_sum: axes: axis 1 of an operand of rank 1
          --> {here}: reduce_sum
          --> {trace}: an operand, f32[2], is made here
          help: its only axis is 0
        ",
    );
}
