//! `reduce`: several operands reduced together by a user-defined combiner.
//!
//! The combiner is a region over scalars: n left inputs and n right inputs, n results. It becomes
//! the combine program of a nest's reduction: each of its ops is elementwise, so its `compute`
//! facet for a scalar emits a piece of that program.
//!
//! **Derivative.** A tree combines neighbours until one is left, by the region's ops on whole
//! tensors, and these ops are differentiated like any others. So every order and both modes are
//! right for any combiner, without a division. The cost is log₂ n steps, whose values together
//! are as large as the operands.

use crate::id::Id;
use crate::interpret::Regions;
use crate::nest::CombineBuilder;
use crate::op::prelude::*;

attributes! {
    /// `reduce %x, %y {axes=[1], init=[f32(0.0), f32(1.0)]} region (%a: f32[], %b: f32[], %c:
    /// f32[], %d: f32[]) { … }`
    ///
    /// Combines the tuples (x, y) along `axes`, which vanish; results are the combined tuple. The
    /// region gets one tuple, then another that is not before it, and returns the two combined.
    /// It must be associative and commutative, since the target chooses the order of combination
    /// (a tree). `init` must be its identity. Only that `init` combined with itself gives itself
    /// is checked.
    ///
    /// The region's ops are elementwise ones and constants. On halves each of them rounds, as it
    /// does elsewhere.
    ReduceWith {
        /// Axes that are reduced, ascending.
        axes: Vec<usize>,
        /// The identity of the combiner, an element for each operand.
        init: Vec<Scalar>,
    }
}

impl ReduceWith {
    fn kept(&self, rank: usize) -> Vec<usize> {
        (0..rank).filter(|axis| !self.axes.contains(axis)).collect()
    }

    /// Checks the region against operands of these dtypes.
    fn check_region(&self, region: &Body, dtypes: &[DType]) -> Result<()> {
        let wanted: Vec<TensorType> = dtypes.iter().map(|d| TensorType::scalar(*d)).collect();
        let twice: Vec<TensorType> = wanted.iter().chain(&wanted).cloned().collect();
        let (inputs, outputs) = (region.types(&region.inputs), region.types(&region.outputs));
        if inputs != twice || outputs != wanted {
            return Err(Diagnostic::new(format!(
                "the combiner takes ({}) and gives ({})",
                listed(&inputs),
                listed(&outputs)
            ))
            .help(format!(
                "it takes ({}), a tuple and another, and gives ({})",
                listed(&twice),
                listed(&wanted)
            )));
        }
        for equation in &region.equations {
            let (op, results) = (&equation.op, region.types(&equation.results));
            let operands = region.types(&equation.operands);
            let is_scalar = results.iter().chain(&operands).all(|ty| ty.rank() == 0);
            let fits = match op {
                Op::Constant(_) => true,
                // It would run in no fixed order, on parts of the data.
                Op::Probe(_) => false,
                _ => {
                    op.traits().elementwise
                        && equation.regions.is_empty()
                        && is_scalar
                        && matches!(op.compute(&operands, &results, &[]), Compute::Element { .. })
                }
            };
            ensure!(fits && is_scalar, "the combiner has `{}`", op.name();
                help "a combiner is made of elementwise ops on scalars, and of constants");
        }
        Ok(())
    }

    /// Checks that the identity combined with itself is the identity.
    fn check_identity(&self, region: &Region) -> Result<()> {
        let cell = |s: &Scalar| {
            Ok(Array::new(s.dtype(), vec![], Cells::filled(Cell::from_scalar(*s), 1)?))
        };
        let identity = self.init.iter().map(cell).collect::<Result<Vec<Array<f64>>>>()?;
        let twice: Vec<Array<f64>> = identity.iter().chain(&identity).cloned().collect();
        let regions = std::slice::from_ref(region);
        let combined = Regions::of(regions).run(0, &twice)?;
        let combined: Vec<Scalar> =
            combined.iter().map(|a| a.cells[0].to_scalar(a.dtype)).collect();
        if combined == self.init {
            return Ok(());
        }
        Err(Diagnostic::new(format!("{:?} combined with itself is {combined:?}", self.init)).help(
            "`init` is the identity of the combiner: what changes nothing, such as 0 for sums",
        ))
    }

    /// The region as the combine program of a reduction. Halves are carried in f32, which holds
    /// every half.
    fn combine(&self, region: &Body) -> Combine {
        let wide = |s: &Scalar| match s.dtype() {
            d if d.is_half() => Scalar::from_f64(DType::F32, s.to_f64()),
            _ => *s,
        };
        let identity: Vec<Scalar> = self.init.iter().map(wide).collect();
        let (mut builder, n) = (CombineBuilder::new(&identity), identity.len());
        let mut registers: Vec<Option<Reg>> = vec![None; region.values.len()];
        for (k, input) in region.inputs.iter().enumerate() {
            let reg = if k < n { builder.left(k) } else { builder.right(k - n) };
            registers[input.index()] = Some(builder.convert(reg, region.ty(*input).dtype));
        }
        for equation in &region.equations {
            let result = match &equation.op {
                Op::Constant(constant) => builder.constant(constant.value.get(0)),
                op => {
                    let (operands, results) =
                        (region.types(&equation.operands), region.types(&equation.results));
                    let Compute::Element { rule, .. } = op.compute(&operands, &results, &[]) else {
                        unreachable!("infer admits ops with an element rule only")
                    };
                    let register = |v: &crate::graph::ValueId| {
                        registers[v.index()].expect("a body defines values before their use")
                    };
                    let operands = equation.operands.iter().map(register).collect();
                    rule(&mut Context { builder: &mut builder, operands }, &[])
                }
            };
            registers[equation.results[0].index()] = Some(result);
        }
        let results: Vec<Reg> = region
            .outputs
            .iter()
            .zip(&identity)
            .map(|(v, i)| {
                let reg = registers[v.index()].expect("a body defines its outputs");
                builder.convert(reg, i.dtype())
            })
            .collect();
        builder.finish(&results)
    }
}

/// The context of the element rules of a combiner's ops.
struct Context<'b> {
    builder: &'b mut CombineBuilder,
    operands: Vec<Reg>,
}

impl ElementContext for Context<'_> {
    fn operand(&mut self, operand: usize, _index: &[Affine]) -> Reg {
        self.operands[operand]
    }
    fn guarded(
        &mut self,
        _operand: usize,
        _index: &[Affine],
        _guards: Vec<Guard>,
        _fill: Reg,
    ) -> Reg {
        unreachable!("elementwise ops access their operands without guards")
    }
    fn clamped(&mut self, _operand: usize, _index: &[Affine]) -> Reg {
        unreachable!("elementwise ops access no operand at an index from data")
    }
    fn scalar(&mut self, op: ScalarOp, operands: &[Reg]) -> Reg {
        self.builder.emit_widened(op, operands)
    }
    fn convert(&mut self, value: Reg, dtype: DType) -> Reg {
        self.builder.convert(value, dtype)
    }
    fn bitcast(&mut self, value: Reg, dtype: DType) -> Reg {
        self.builder.bitcast(value, dtype.stored())
    }
    fn constant(&mut self, value: Scalar) -> Reg {
        self.builder.constant(value.stored())
    }
    fn index(&mut self, _value: &Affine, _dtype: DType) -> Reg {
        unreachable!("the elements of a combiner have no index")
    }
    fn test(&mut self, _guards: Vec<Guard>) -> Reg {
        unreachable!("the elements of a combiner have no index")
    }
    fn dtype(&self, reg: Reg) -> DType {
        self.builder.dtype(reg)
    }
}

/// The region, applied to whole tensors of one shape.
fn elementwise(region: &Body, operands: &[Tensor], shape: &[Dim]) -> Vec<Tensor> {
    let mut tensors: Vec<Option<Tensor>> = vec![None; region.values.len()];
    region.inputs.iter().zip(operands).for_each(|(v, t)| tensors[v.index()] = Some(t.clone()));
    for equation in &region.equations {
        let result = match &equation.op {
            Op::Constant(constant) => {
                let value = constant.value.get(0);
                Tensor::full(&TensorType::of(value.dtype(), shape.to_vec()), value)
            }
            op => {
                let operand = |v: &crate::graph::ValueId| {
                    tensors[v.index()].clone().expect("a body defines values before their use")
                };
                let operands: Vec<Tensor> = equation.operands.iter().map(operand).collect();
                Tensor::apply(op.clone(), &operands.iter().collect::<Vec<_>>())
            }
        };
        tensors[equation.results[0].index()] = Some(result);
    }
    let output =
        |v: &crate::graph::ValueId| tensors[v.index()].clone().expect("a body defines its outputs");
    region.outputs.iter().map(output).collect()
}

/// The reduction as a tree of ops, for differentiation.
fn decompose(op: &Op, regions: &[Region], operands: &[Tensor]) -> Vec<Tensor> {
    let Op::ReduceWith(op) = op else { unreachable!("the rule of reduce") };
    let x = &operands[0];
    let kept = op.kept(x.rank());
    let count = op.axes.iter().try_fold(Dim::constant(1), |n, a| n.checked_mul(&x.shape()[*a]));
    let Some(mut length) = count.as_ref().and_then(Dim::as_extent) else {
        let error = Diagnostic::new(format!(
            "the derivative of reduce over {} needs the extents of {:?}",
            x.ty(),
            op.axes
        ))
        .help("give the reduced axes numbers instead of dimension variables");
        return operands.iter().map(|x| x.fail(error.clone())).collect();
    };
    let rest: Vec<Dim> = kept.iter().map(|a| x.shape()[*a].clone()).collect();
    let with = |front: &[usize]| -> Vec<Dim> {
        front.iter().map(|e| Dim::from(*e)).chain(rest.iter().cloned()).collect()
    };
    if length == 0 {
        return op
            .init
            .iter()
            .map(|i| Tensor::full(&TensorType::of(i.dtype(), rest.clone()), *i))
            .collect();
    }
    let order: Vec<usize> = op.axes.iter().chain(&kept).copied().collect();
    let mut tuple: Vec<Tensor> =
        operands.iter().map(|x| x.permute(&order).reshape(with(&[length]))).collect();
    while length > 1 {
        let half = length / 2;
        let neighbour = |t: &Tensor, which: i64| {
            let pairs = t.slice_axis(0, 0, 2 * half as i64).reshape(with(&[half, 2]));
            pairs.slice_axis(1, which, which + 1).reshape(with(&[half]))
        };
        let pairs: Vec<Tensor> = [0, 1]
            .into_iter()
            .flat_map(|which| tuple.iter().map(move |t| neighbour(t, which)))
            .collect();
        let mut combined = elementwise(&regions[0], &pairs, &with(&[half]));
        if length % 2 == 1 {
            for (part, t) in combined.iter_mut().zip(&tuple) {
                *part = Tensor::concatenate(
                    &[part, &t.slice_axis(0, length as i64 - 1, length as i64)],
                    0,
                );
            }
        }
        (tuple, length) = (combined, half + length % 2);
    }
    tuple.iter().map(|t| t.reshape(rest.clone())).collect()
}

impl Operation for ReduceWith {
    named!(
        "reduce",
        "Reduces tuples of elements along `axes` by a region over scalars. The region must be \
         associative and commutative with the identity `init`. The derivative is the derivative of \
         a tree of the region's ops."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let Some(first) = t.operands.first() else {
            bail!("takes at least one operand");
        };
        if let Some(other) = t.operands.iter().find(|o| o.shape != first.shape) {
            bail!("operands have types {first} and {other}"; help "all operands have one shape");
        }
        distinct_axes("axes", &self.axes, first.rank())?;
        ensure!(self.axes.is_sorted(), "axes must ascend");
        let dtypes: Vec<DType> = t.operands.iter().map(|o| o.dtype).collect();
        let given: Vec<DType> = self.init.iter().map(|s| s.dtype()).collect();
        ensure!(given == dtypes, "init {:?} for operands of dtypes {dtypes:?}", self.init;
            help "give the identity of the combiner, an element of its dtype for each operand");
        let [region] = t.regions else {
            bail!("takes one region, the combiner, found {}", t.regions.len());
        };
        self.check_region(region, &dtypes)?;
        self.check_identity(region)?;
        let shape: Vec<Dim> =
            self.kept(first.rank()).iter().map(|a| first.shape[*a].clone()).collect();
        Ok(t.operands.iter().map(|o| o.with_shape(shape.clone())).collect())
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let x = &e.operands[0];
        let kept = self.kept(x.shape.len());
        let shape = e.extents();
        let scalar =
            |dtype, cell: &Cell<R>| Ok(Array::new(dtype, vec![], Cells::filled(cell.clone(), 1)?));
        let identity = self.init.iter().map(|s| scalar(s.dtype(), &Cell::try_from_scalar(*s)?));
        let identity: Vec<Array<R>> = identity.collect::<Result<_>>()?;
        let count = shape.iter().product();
        let mut totals: Vec<Vec<Array<R>>> = reserved(count)?;
        totals.resize(count, identity);
        let mut index = vec![0; x.shape.len()];
        for n in 0..x.cells.len() {
            let flat = kept.iter().fold(0, |flat, a| flat * x.shape[*a] + index[*a]);
            let mut both = totals[flat].clone();
            for operand in e.operands {
                both.push(scalar(operand.dtype, &operand.cells[n])?);
            }
            totals[flat] = e.regions.run(0, &both)?;
            advance(&mut index, &x.shape);
        }
        let result = |(k, o): (usize, &Array<R>)| {
            let cells = Cells::collect(totals.iter().map(|t| t[k].cells[0].clone()))?;
            Ok(Array::new(o.dtype, shape.clone(), cells))
        };
        e.operands.iter().enumerate().map(result).collect()
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let combine = self.combine(&l.regions[0]);
        let carried = combine.dtypes();
        Compute::Reduce {
            extents: l.extents(0),
            axes: self.axes.clone(),
            project: (0..carried.len()).collect(),
            values: Box::new(move |c, index| {
                let element = |(k, dtype): (usize, &DType)| {
                    let x = c.operand(k, index);
                    if c.dtype(x) == *dtype { x } else { c.convert(x, *dtype) }
                };
                carried.iter().enumerate().map(element).collect()
            }),
            combine,
        }
    }

    const DERIVATIVE: Derivative = Derivative::Decomposed(decompose);

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        let operands: Vec<Tensor> = (0..b.operands.len()).map(|i| b.operand(i)).collect();
        let op = ReduceWith { axes: shifted(&self.axes), init: self.init.clone() };
        // The combiner takes scalars, in a batch as in an example.
        Tensor::apply_with(op, &operands.iter().collect::<Vec<_>>(), b.regions.to_vec())
    }

    const REGIONS: RangeInclusive<usize> = 1..=1;
}
