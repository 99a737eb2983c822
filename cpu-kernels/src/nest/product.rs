//! Products that are 0 where a number is 0: `select(z = 0, 0, x · y)` becomes one instruction.
//!
//! Derivatives contain many of them, one for each product of a cotangent, since 0 · ∞ is no
//! derivative. As three instructions they write and read two more blocks than necessary.

use super::lower::{FlatNest, Op};
use wengert_core::nest::{Reg, ScalarOp};
use wengert_core::{DType, Id, Scalar};

/// The nest with such products fused.
pub(super) fn products<'n>(nest: &FlatNest<'n>) -> FlatNest<'n> {
    let mut fused = nest.clone();
    let registers = nest.nest.registers.len();
    let mut constants: Vec<Option<Scalar>> = vec![None; registers];
    let mut uses = vec![0usize; registers];
    for phase in &nest.phases {
        for op in &phase.body {
            if let Op::Const { result, value } = op {
                constants[result.index()] = Some(*value);
            }
            op.visit_registers(&mut |reg| uses[reg.index()] += 1);
        }
        phase.reductions.iter().flat_map(|r| &r.values).for_each(|reg| uses[reg.index()] += 1);
    }
    let constant = |reg: Reg| constants[reg.index()];
    for phase in &mut fused.phases {
        let mut body: Vec<Op<'n>> = Vec::with_capacity(phase.body.len());
        for op in phase.body.drain(..) {
            let Some([test, x, y]) = parts(nest, &op, &body, &uses, &constant) else {
                body.push(op);
                continue;
            };
            let Op::Scalar { result, operands: [condition, _, product], .. } = op else {
                unreachable!("found as a selection")
            };
            body.retain(|op| op.results() != [*product]);
            uses[condition.index()] -= 1;
            if uses[condition.index()] == 0 {
                body.retain(|op| op.results() != [*condition]);
            }
            body.push(Op::Product { result, operands: [test, x, y] });
        }
        phase.body = body;
    }
    fused
}

/// The number compared with 0, and the two factors, if a selection is such a product; `body` is
/// the code before it.
fn parts(
    nest: &FlatNest<'_>,
    selection: &Op<'_>,
    body: &[Op<'_>],
    uses: &[usize],
    constant: &dyn Fn(Reg) -> Option<Scalar>,
) -> Option<[Reg; 3]> {
    let Op::Scalar { result, op: ScalarOp::Select, operands: [condition, zero, product] } =
        selection
    else {
        return None;
    };
    let found = |reg: &Reg, wanted: ScalarOp| {
        body.iter().rev().find_map(|op| match op {
            Op::Scalar { result, op, operands } if result == reg && *op == wanted => {
                Some(*operands)
            }
            _ => None,
        })
    };
    if nest.nest.registers[*result] != DType::F32 || uses[product.index()] != 1 {
        return None;
    }
    // The result is +0, not −0; the compared constant may be either zero.
    let is_zero = |reg: &Reg| constant(*reg).is_some_and(|value| value.to_f64() == 0.0);
    constant(*zero).filter(|value| value.bits() == 0)?;
    let [test, other] = found(condition, ScalarOp::Eq)? else { return None };
    let (test, other) = if is_zero(other) { (test, other) } else { (other, test) };
    if !is_zero(other) || nest.nest.registers[*test] != DType::F32 {
        return None;
    }
    let [x, y] = found(product, ScalarOp::Mul)? else { return None };
    Some([*test, *x, *y])
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert_core::nest::parse_nests;

    /// Number of instructions, and of products among them.
    fn counts(body: &str) -> (usize, usize) {
        let text = format!(
            "nest @f(in %x: f32[40], in %x_2: f32[40], out %y: f32[40]) {{ parallel i: 40 phase {{ \
             %0: f32 = load %x[i] %1: f32 = load %x_2[i] {body} }} }}"
        );
        let nest = parse_nests("test", &text).expect("parses").remove(0).0;
        let fused = products(&FlatNest::new(&nest));
        let body = &fused.phases[0].body;
        (body.len(), body.iter().filter(|op| matches!(op, Op::Product { .. })).count())
    }

    #[test]
    fn three_instructions_are_one() {
        let found = "%2: f32 = const 0.0 %3: bool = eq %0, %2 %4: f32 = mul %1, %0 %5: f32 = \
                     select %3, %2, %4";
        assert_eq!(counts(&format!("{found} store %y[i], %5")), (5, 1));
        // The comparison stays if another instruction reads it.
        let both = format!("{found} %6: f32 = select %3, %1, %5 store %y[i], %6");
        assert_eq!(counts(&both), (7, 1));
        let swapped = found.replace("eq %0, %2", "eq %2, %0");
        assert_eq!(counts(&format!("{swapped} store %y[i], %5")), (5, 1));
    }

    #[test]
    fn what_has_other_bits_stays() {
        for other in [
            // Another zero.
            "%2: f32 = const -0.0 %3: bool = eq %0, %2 %4: f32 = mul %1, %0 %5: f32 = select %3, \
             %2, %4 store %y[i], %5",
            // Another number.
            "%2: f32 = const 1.0 %3: bool = eq %0, %2 %4: f32 = mul %1, %0 %5: f32 = select %3, \
             %2, %4 store %y[i], %5",
            // The arms exchanged.
            "%2: f32 = const 0.0 %3: bool = eq %0, %2 %4: f32 = mul %1, %0 %5: f32 = select %3, \
             %4, %2 store %y[i], %5",
            // The product itself has another use.
            "%2: f32 = const 0.0 %3: bool = eq %0, %2 %4: f32 = mul %1, %0 %5: f32 = select %3, \
             %2, %4 %6: f32 = add %4, %5 store %y[i], %6",
        ] {
            assert_eq!(counts(other).1, 0, "{other}");
        }
    }
}
