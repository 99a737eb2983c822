//! `eq`, `ne`, `lt`, `le`, `gt`, `ge`: elementwise comparisons, with a bool result.

use crate::build::operators::Operand;
use crate::op::prelude::*;

/// Makes the enum and the tensor methods from the table.
macro_rules! compare {
    ($($(#[doc = $doc:literal])+ $variant:ident $name:ident;)*) => {
        /// An elementwise comparison. NaN is unordered: it makes all but `ne` false.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum Compare { $($(#[doc = $doc])+ $variant,)* }

        impl Compare {
            /// Every comparison.
            pub const ALL: &[Compare] = &[$(Compare::$variant,)*];

            const fn named(self) -> &'static str {
                match self { $(Compare::$variant => stringify!($name),)* }
            }

            const fn rule(self) -> Derivative {
                Derivative::Zero
            }

            const fn doc(self) -> &'static str {
                match self { $(Compare::$variant => concat!($($doc, "\n"),+),)* }
            }
        }

        impl Tensor {
            $($(#[doc = $doc])+
            ///
            /// Shapes broadcast as NumPy's do; a number takes the tensor's dtype.
            #[track_caller]
            pub fn $name(&self, other: impl Operand) -> Tensor {
                self.compare(Compare::$variant, &other.beside(self))
            })*
        }
    };
}

compare! {
    /// x = y, element by element; false for NaN.
    Eq eq;
    /// x ≠ y, element by element; true for NaN.
    Ne ne;
    /// x < y, element by element; false for NaN.
    Lt lt;
    /// x ≤ y, element by element; false for NaN.
    Le le;
    /// x > y, element by element; false for NaN.
    Gt gt;
    /// x ≥ y, element by element; false for NaN.
    Ge ge;
}

impl Compare {
    fn holds(self, order: Option<Ordering>) -> bool {
        match self {
            Compare::Eq => order == Some(Ordering::Equal),
            Compare::Ne => order != Some(Ordering::Equal),
            Compare::Lt => order == Some(Ordering::Less),
            Compare::Le => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Compare::Gt => order == Some(Ordering::Greater),
            Compare::Ge => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        }
    }
}

impl Operation for Compare {
    named!(enum "%x, %y");

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [a, b] = t.exactly()?;
        ensure!(a == b, "operands have types {a} and {b}";
            help "compare tensors of one dtype and shape");
        Ok(vec![a.with_dtype(DType::Bool)])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let dtype = e.operands[0].dtype;
        let order = |a: &Cell<R>, b: &Cell<R>| match (a, b) {
            (Cell::Real(a), Cell::Real(b)) => a.compare(b),
            (a, b) => Some(compare_bits(a.bits(), b.bits(), dtype)),
        };
        e.zip(|a, b| Ok(Cell::Bits(self.holds(order(a, b)) as i64)))
    }

    fn compute<'a>(&'a self, _: &Lowering<'_, 'a>) -> Compute<'a> {
        let (op, swapped) = match self {
            Compare::Eq => (ScalarOp::Eq, false),
            Compare::Ne => (ScalarOp::Ne, false),
            Compare::Lt => (ScalarOp::Lt, false),
            Compare::Le => (ScalarOp::Le, false),
            Compare::Gt => (ScalarOp::Lt, true),
            Compare::Ge => (ScalarOp::Le, true),
        };
        Compute::element(move |c, index| {
            let (x, y) = (c.operand(0, index), c.operand(1, index));
            widened(c, &[x, y], |c, o| {
                c.scalar(op, &if swapped { [o[1], o[0]] } else { [o[0], o[1]] })
            })
        })
    }

    fn traits(&self) -> Traits {
        let commutative = matches!(self, Compare::Eq | Compare::Ne);
        Traits { commutative, ..Traits::elementwise(Cost::Cheap) }
    }
}
