//! `select_n`: one of several cases, element by element.

use crate::op::prelude::*;

attributes! {
    /// `select_n %which, %case_0, %case_1, …`: takes each element from the case with number
    /// `which`. `which` is a scalar or has the shape of the cases. Its dtype is bool (one or two
    /// cases; false is the first) or i32. A number below 0 selects the first case, a number beyond
    /// the last case selects the last. The gradient goes to the selected case.
    SelectN {}
}

/// The mask of the elements for which case number `case` of `count` is selected.
fn taken(which: &Tensor, case: usize, count: usize) -> Tensor {
    let number = case as i64;
    match (which.dtype(), case) {
        (DType::Bool, 0) => which.not(),
        (DType::Bool, _) => which.clone(),
        (_, 0) => which.le(number),
        (_, case) if case + 1 == count => which.ge(number),
        _ => which.eq(number),
    }
}

impl Operation for SelectN {
    named!(
        "select_n",
        "The element of the case with number `which`, a bool or i32. A number out of range is \
         clamped."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [which, cases @ ..] = t.operands else { return Err(no_case()) };
        let Some(first) = cases.first() else { return Err(no_case()) };
        if let Some(other) = cases.iter().find(|c| *c != first) {
            bail!("cases have types {first} and {other}"; help "give all cases one type");
        }
        ensure!(
            matches!(which.dtype, DType::Bool | DType::I32)
                && (which.rank() == 0 || which.shape == first.shape),
            "`which` has type {which}, the cases {first}";
            help "`which` is bool or i32, a scalar or of the cases' shape"
        );
        ensure!(
            which.dtype != DType::Bool || cases.len() <= 2,
            "a bool selects from two cases, not {}", cases.len();
            help "convert `which` to i32"
        );
        Ok(vec![first.clone()])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let (which, cases) = (&e.operands[0], &e.operands[1..]);
        let cell = |i: usize| -> Cell<R> {
            let number = which.cells[if which.shape.is_empty() { 0 } else { i }].bits();
            cases[number.clamp(0, cases.len() as i64 - 1) as usize].cells[i].clone()
        };
        let first = &cases[0];
        let cells = Cells::collect((0..first.cells.len()).map(cell))?;
        e.result(cells)
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let (scalar, dtype, count) =
            (l.operands[0].rank() == 0, l.operands[0].dtype, l.operands.len() - 1);
        Compute::element(move |c, index| {
            let mut result = c.operand(1, index);
            if count == 1 {
                return result;
            }
            let which = c.operand(0, if scalar { &[] } else { index });
            for case in 1..count {
                let reached = if dtype == DType::Bool {
                    which
                } else {
                    let number = c.constant(Scalar::from_i64(dtype, case as i64));
                    c.scalar(ScalarOp::Le, &[number, which])
                };
                let value = c.operand(1 + case, index);
                result = c.scalar(ScalarOp::Select, &[reached, value, result]);
            }
            result
        })
    }

    const DERIVATIVE: Derivative = Derivative::Linear(|t| {
        let Some(ct) = &t.cotangents[0] else { return vec![None; t.operands.len()] };
        let (which, count) = (t.operands[0].known(), t.operands.len() - 1);
        let case = |case: usize| match count {
            1 => ct.clone(),
            _ => taken(which, case, count).select(ct, &ct.zeros_like()),
        };
        let cases = t.operands[1..].iter().enumerate();
        let cotangents = cases.map(|(i, operand)| operand.is_linear().then(|| case(i)));
        std::iter::once(None).chain(cotangents).collect()
    });

    const TRAITS: Traits = Traits::elementwise(Cost::Cheap);
}

fn no_case() -> Diagnostic {
    Diagnostic::new("takes a number and at least one case").help("give `which`, then the cases")
}
