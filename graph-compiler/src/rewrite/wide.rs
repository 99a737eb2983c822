//! Ops of many operands, as trees of ops of few.
//!
//! Each operand is a parameter of the kernel, and the parameters of a GPU's kernel have at most
//! 4,352 bytes: 544 addresses. A concatenation of 4,000 rows becomes a concatenation of 32
//! concatenations. Fusion bounds the operands of the kernels that it makes from these
//! (`fuse/values.rs`).

use super::{push, repeated, term, with_fuel};
use wengert_core::graph::{Body, Equation, Function, ValueId};
use wengert_core::op::{Binary, SelectN};
use wengert_core::{Literal, Op};

/// Maximum number of concatenated operands, and of cases.
const MOST: usize = 128;

/// Divides ops of many operands; at most `fuel` of them.
pub(crate) fn narrow(function: Function, fuel: u64) -> (Function, u64) {
    with_fuel(function, fuel, of_body)
}

fn of_body(body: &mut Body, left: &mut u64) {
    let equations = std::mem::take(&mut body.equations);
    for mut equation in equations {
        if equation.op.control().is_some() {
            equation.regions.iter_mut().for_each(|region| of_body(region, left));
        }
        if *left > 0 && divide(body, &mut equation) {
            *left -= 1;
        }
        body.equations.push(equation);
    }
}

/// Replaces groups of operands by values of their own, until few are left. Whether there were
/// many.
fn divide(body: &mut Body, equation: &mut Equation) -> bool {
    let location = equation.location;
    match term(equation) {
        (Op::Concatenate(op), parts) if parts.len() > MOST => {
            let (op, mut parts) = (op.clone(), parts.to_vec());
            while parts.len() > MOST {
                let groups = parts.chunks(MOST);
                parts = groups.map(|group| push(body, op.clone(), group, location)).collect();
            }
            equation.operands = parts;
            true
        }
        (Op::SelectN(_), [which, cases @ ..]) if cases.len() > MOST => {
            let (mut which, mut cases) = (*which, cases.to_vec());
            // A number below 0 selects the first case, also after the subtractions.
            let zero = repeated(body, Literal::from(0i32), which, location);
            which = push(body, Binary::Max, &[which, zero], location);
            while cases.len() > MOST {
                let mut selected = vec![];
                for (n, group) in cases.chunks(MOST).enumerate() {
                    let first = repeated(body, Literal::from((n * MOST) as i32), which, location);
                    let within = push(body, Binary::Sub, &[which, first], location);
                    let operands: Vec<ValueId> =
                        [within].into_iter().chain(group.iter().copied()).collect();
                    selected.push(push(body, SelectN {}, &operands, location));
                }
                let length = repeated(body, Literal::from(MOST as i32), which, location);
                which = push(body, Binary::Div, &[which, length], location);
                cases = selected;
            }
            equation.operands = [which].into_iter().chain(cases).collect();
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;
    use wengert_core::graph::{parse_program, verify};
    use wengert_core::interpret;

    /// The function before and after, which compute the same; the most operands after.
    fn divided(text: &str, given: &[Literal]) -> usize {
        let program = parse_program(text, "test.ir").unwrap_or_else(|e| panic!("{e}"));
        let before = program.functions()[0].clone();
        let (after, changes) = narrow(before.clone(), u64::MAX);
        assert_eq!(changes, 1);
        verify(&after).expect("it is valid");
        assert_eq!(
            interpret::run(&after, given).expect("it runs"),
            interpret::run(&before, given).expect("it runs")
        );
        assert_eq!(narrow(before.clone(), 0), (before, 0));
        after.body.equations.iter().map(|e| e.operands.len()).max().unwrap_or(0)
    }

    /// `%0`, `%1` …: the rows of x.
    fn rows(text: &mut String, count: usize) -> String {
        for n in 0..count {
            let _ =
                writeln!(text, "%{n}: f32[1,3] = slice %x {{limit=[{},3], start=[{n},0]}}", n + 1);
        }
        (0..count).rev().map(|n| format!("%{n}")).collect::<Vec<_>>().join(", ")
    }

    fn numbers(count: usize) -> Literal {
        let values = (0..3 * count).map(|n| n as f32).collect();
        Literal::from_vec(&[count, 3], values).expect("it fits")
    }

    #[test]
    fn many_parts_are_concatenated_in_groups() {
        let count = MOST * MOST + 1;
        let mut text = format!("func @f(%x: f32[{count},3]) -> (y: f32[{count},3]) {{\n");
        let all = rows(&mut text, count);
        let _ = write!(text, "%y: f32[{count},3] = concatenate {all} {{axis=0}}\nreturn %y\n}}");
        assert_eq!(divided(&text, &[numbers(count)]), MOST);
    }

    #[test]
    fn one_of_many_cases_is_selected_from_groups() {
        let count = 300;
        for (shape, which) in [
            ("", Literal::from(-7i32)),
            ("", Literal::from(i32::MIN)),
            ("", Literal::from(127i32)),
            ("", Literal::from(128i32)),
            ("", Literal::from(299i32)),
            ("", Literal::from(i32::MAX)),
            ("1,3", Literal::from_vec(&[1, 3], vec![5i32, 256, 400]).expect("it fits")),
        ] {
            let mut text =
                format!("func @f(%x: f32[{count},3], %i: i32[{shape}]) -> (y: f32[1,3]) {{\n");
            let all = rows(&mut text, count);
            let _ = write!(text, "%y: f32[1,3] = select_n %i, {all}\nreturn %y\n}}");
            assert_eq!(divided(&text, &[numbers(count), which]), MOST + 1);
        }
    }
}
