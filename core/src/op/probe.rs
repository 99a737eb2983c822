//! `probe`: an identity that reports its operand.

use crate::op::define::texts;
use crate::op::prelude::*;
use crate::text::{NAME_HELP, is_name};

texts! {
    /// The report of a probe.
    ProbeKind {
        /// The value.
        Print "print",
        /// Whether the value holds a NaN or an infinity.
        Finite "finite",
    }
}

attributes! {
    /// `probe %x {kind="print", name="h"}` is the identity. It also reports x to the run's
    /// observer.
    ///
    /// A probe has no side effect: compilation adds its report as a further output,
    /// `probe.print.h`, which a run separates from the function's own outputs. Its tangent is
    /// that of x, without a probe.
    Probe {
        /// The report.
        kind: ProbeKind,
        /// The name of the report; letters, digits, `_` and `.`.
        name: String,
    }
}

impl Operation for Probe {
    named!(
        "probe",
        "The identity; it also reports x, or whether x is finite, to the run's observer."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x] = t.exactly()?;
        ensure!(is_name(&self.name), "`{}` is no name of a probe", self.name;
            help "{NAME_HELP}");
        if self.kind == ProbeKind::Finite {
            Domain::Float.check(x.dtype)?;
        }
        Ok(vec![x.clone()])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        Ok(e.operands.to_vec())
    }

    fn compute<'a>(&'a self, _: &Lowering<'_, 'a>) -> Compute<'a> {
        Compute::element(|c, index| c.operand(0, index))
    }

    const DERIVATIVE: Derivative = Derivative::Nonlinear(|j| vec![j.tangents[0].clone()]);

    const TRAITS: Traits = Traits::elementwise(Cost::Free);
}

impl Tensor {
    /// The same value, reported to the run's observer under this name.
    #[track_caller]
    pub fn probe(&self, name: &str) -> Tensor {
        Tensor::apply(Probe { kind: ProbeKind::Print, name: name.into() }, &[self])
    }

    /// The same value. It also reports to the run's observer whether the value is finite.
    #[track_caller]
    pub fn probe_finite(&self, name: &str) -> Tensor {
        Tensor::apply(Probe { kind: ProbeKind::Finite, name: name.into() }, &[self])
    }
}
