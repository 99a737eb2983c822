//! The simplest lowering: one op, one nest. Other tests cover the compiler's fusion. This module
//! tests the `compute` facet alone.

use wengert_core::build::{FunctionBuilder, Scope};
use wengert_core::call::Call;
use wengert_core::graph::{Body, Region};
use wengert_core::interpret::{Array, Regions};
use wengert_core::nest::{
    Affine, AxisId, BufferId, Guard, Instr, Nest, NestBuilder, Reg, ScalarOp, Tree, interpret,
};
use wengert_core::op::{Compute, ElementContext};
use wengert_core::{DType, Literal, Op, Scalar, Tensor, TensorType, math};

/// The executable form of an op.
pub enum Lowered {
    Nest(Box<Nest>),
    Call(Call),
    /// The body of a composite.
    Body(Box<Body>),
}

struct Context<'a> {
    builder: &'a mut NestBuilder,
    operands: &'a [BufferId],
}

impl ElementContext for Context<'_> {
    fn operand(&mut self, operand: usize, index: &[Affine]) -> Reg {
        self.builder.load(self.operands[operand], index)
    }
    fn guarded(&mut self, operand: usize, index: &[Affine], guards: Vec<Guard>, fill: Reg) -> Reg {
        self.builder.load_guarded(self.operands[operand], index, &guards, fill)
    }
    fn clamped(&mut self, operand: usize, index: &[Affine]) -> Reg {
        self.builder.load_clamped(self.operands[operand], index)
    }
    fn scalar(&mut self, op: ScalarOp, operands: &[Reg]) -> Reg {
        self.builder.scalar_widened(op, operands)
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
    fn index(&mut self, value: &Affine, dtype: DType) -> Reg {
        self.builder.index(value, dtype)
    }
    fn test(&mut self, guards: Vec<Guard>) -> Reg {
        self.builder.test(&guards)
    }
    fn dtype(&self, reg: Reg) -> DType {
        self.builder.dtype(reg)
    }
}

fn extents(ty: &TensorType) -> Vec<usize> {
    ty.extents().expect("tests have no variables")
}

fn affine(axes: &[AxisId]) -> Vec<Affine> {
    axes.iter().map(|a| Affine::axis(*a)).collect()
}

/// One buffer for each operand and result of an op, in its full shape.
fn buffers(
    b: &mut NestBuilder,
    operands: &[TensorType],
    results: &[TensorType],
) -> [Vec<BufferId>; 2] {
    let inputs = operands.iter().enumerate();
    let inputs =
        inputs.map(|(i, ty)| b.input(&format!("x{i}"), ty.dtype.stored(), &extents(ty))).collect();
    let outputs = results.iter().enumerate();
    let outputs = outputs
        .map(|(i, ty)| b.output(&format!("y{i}"), ty.dtype.stored(), &extents(ty)))
        .collect();
    [inputs, outputs]
}

/// Lowers an op. Reductions use `tree`.
pub fn lower(
    op: &Op,
    regions: &[Region],
    operands: &[TensorType],
    results: &[TensorType],
    tree: Tree,
) -> Lowered {
    let mut b = NestBuilder::new(op.name());
    match op.compute(operands, results, regions) {
        Compute::Call(call) => return Lowered::Call(call),
        Compute::Decompose(rule) | Compute::CallOrDecompose(_, rule) => {
            return Lowered::Body(Box::new(body(operands, rule)));
        }
        Compute::Control => panic!("{}: loops and branches run by plans only", op.name()),
        Compute::Element { rule, .. } => {
            let [inputs, outputs] = buffers(&mut b, operands, results);
            let axes: Vec<AxisId> =
                extents(&results[0]).iter().map(|e| b.parallel("i", *e)).collect();
            b.phase([]);
            let value = rule(&mut Context { builder: &mut b, operands: &inputs }, &affine(&axes));
            b.store(outputs[0], &affine(&axes), value);
        }
        Compute::Reduce { extents: shape, axes: reduced, values, combine, project } => {
            let [inputs, outputs] = buffers(&mut b, operands, results);
            let mut index = vec![Affine::constant(0); shape.len()];
            let kept: Vec<usize> = (0..shape.len()).filter(|a| !reduced.contains(a)).collect();
            let rows: Vec<AxisId> = kept.iter().map(|a| b.parallel("i", shape[*a])).collect();
            kept.iter().zip(&rows).for_each(|(a, axis)| index[*a] = Affine::axis(*axis));
            let inner: Vec<(&str, usize)> = reduced.iter().map(|a| ("k", shape[*a])).collect();
            let inner = b.phase_over(&inner);
            reduced.iter().zip(&inner).for_each(|(a, axis)| index[*a] = Affine::axis(*axis));
            let values = values(&mut Context { builder: &mut b, operands: &inputs }, &index);
            let totals = b.reduce(&values, combine, tree);
            b.phase([]);
            for ((result, which), ty) in outputs.iter().zip(&project).zip(results) {
                let value = b.convert(totals[*which], ty.dtype);
                b.store(*result, &affine(&rows), value);
            }
        }
        Compute::Prefix { axis, reverse, combine } => {
            let [inputs, outputs] = buffers(&mut b, operands, results);
            let shape = extents(&operands[0]);
            let mut index = vec![Affine::constant(0); shape.len()];
            for a in (0..shape.len()).filter(|a| *a != axis) {
                index[a] = Affine::axis(b.parallel("i", shape[a]));
            }
            let [inner] = b.phase([("k", shape[axis])]);
            index[axis] = Affine::axis(inner);
            let value = b.load(inputs[0], &index);
            let value = b.convert(value, combine.identity[0].dtype());
            let running = b.prefix(&[value], combine, reverse)[0];
            let running = b.convert(running, results[0].dtype);
            b.store(outputs[0], &index, running);
        }
    }
    Lowered::Nest(Box::new(b.finish().unwrap_or_else(|e| panic!("{}: {e}", op.name()))))
}

/// A body over inputs of these types, built by a function of tensors.
fn body(operands: &[TensorType], rule: impl Fn(&[Tensor]) -> Vec<Tensor>) -> Body {
    let function = FunctionBuilder::build("composite", |f| {
        let inputs: Vec<Tensor> = operands
            .iter()
            .enumerate()
            .map(|(i, ty)| f.input(&format!("x{i}"), ty.clone()))
            .collect();
        for (i, result) in rule(&inputs).into_iter().enumerate() {
            f.output(&format!("y{i}"), result);
        }
        assert!(Scope::current().is_some());
    });
    function.unwrap_or_else(|e| panic!("{e}")).body
}

/// Runs an op as a nest or a call; composites run op by op.
pub fn execute(op: &Op, regions: &[Region], operands: &[Literal], tree: Tree) -> Vec<Literal> {
    if let Op::Constant(constant) = op {
        return vec![constant.value.clone()];
    }
    let types: Vec<TensorType> = operands.iter().map(Literal::ty).collect();
    let results = op.infer(&types, regions).unwrap_or_else(|e| panic!("{e}"));
    if op.control().is_some() {
        // Loops and branches within a composite are evaluated. Other tests compare the execution of
        // regions with the interpreter.
        let operands: Vec<Array<f64>> =
            operands.iter().map(|l| Array::from_literal(l).unwrap()).collect();
        let given = op.evaluate(&operands, &results, &Regions::of(regions));
        return given
            .unwrap_or_else(|e| panic!("{}: {e}", op.name()))
            .iter()
            .map(|a| a.to_literal().unwrap())
            .collect();
    }
    // As kernels have them.
    let stored = || -> Vec<Literal> {
        operands.iter().map(|l| l.bitcast(l.dtype().stored()).unwrap()).collect()
    };
    match lower(op, regions, &types, &results, tree) {
        Lowered::Nest(nest) => {
            let found = interpret(&nest, &stored()).unwrap_or_else(|e| panic!("{e}\n{nest}"));
            found.iter().zip(&results).map(|(l, ty)| l.bitcast(ty.dtype).unwrap()).collect()
        }
        Lowered::Call(call) => {
            let result = call.reference(&stored()).unwrap_or_else(|e| panic!("{}: {e}", op.name()));
            let result = result.literal().bitcast(results[0].dtype).unwrap();
            vec![result.reshape(&extents(&results[0])).unwrap()]
        }
        Lowered::Body(body) => run(&body, operands, tree),
    }
}

fn run(body: &Body, inputs: &[Literal], tree: Tree) -> Vec<Literal> {
    let mut values: Vec<Option<Literal>> = vec![None; body.values.len()];
    let at = |v: &wengert_core::graph::ValueId| wengert_core::Id::index(*v);
    body.inputs.iter().zip(inputs).for_each(|(v, x)| values[at(v)] = Some(x.clone()));
    for equation in &body.equations {
        let operands: Vec<Literal> =
            equation.operands.iter().map(|v| values[at(v)].clone().unwrap()).collect();
        let results = execute(&equation.op, &equation.regions, &operands, tree);
        for (v, result) in equation.results.iter().zip(results) {
            assert_eq!(
                result.ty(),
                body.values[*v],
                "{} computes what it infers",
                equation.op.name()
            );
            values[at(v)] = Some(result);
        }
    }
    body.outputs.iter().map(|v| values[at(v)].clone().unwrap()).collect()
}

/// A bound for the error of one iteration of a nest, in ULPs of `dtype`. It is the sum of its
/// instructions' bounds, since ops are written so that no step magnifies the relative error of the
/// step before. All bounds but the last count twice: after a step the same relative error may be
/// twice as many ULPs as before it.
pub fn error_bound(nest: &Nest, dtype: DType) -> f64 {
    let mut bounds = Vec::new();
    let combines = nest.phases.iter().flat_map(|p| &p.reductions).map(|r| &r.combine);
    let prefixes = nest.phases.iter().flat_map(|p| &p.body).filter_map(|i| match i {
        Instr::Prefix(p) => Some(&p.combine),
        _ => None,
    });
    let combines = combines.chain(prefixes).flat_map(|c| c.body.iter().map(|i| (i, &c.registers)));
    let instrs = nest.phases.iter().flat_map(|p| p.body.iter().map(|i| (i, &nest.registers)));
    for (instr, registers) in instrs.chain(combines) {
        let Instr::Scalar { result, op, operands } = instr else { continue };
        let (from, to) = (registers[*operands.last().unwrap()], registers[*result]);
        if !from.is_float() && !to.is_float() {
            continue;
        }
        let bound = match op {
            ScalarOp::Convert if to.is_float() && !from.is_half() => 0.5,
            ScalarOp::Convert => 0.0,
            op => math::ulp_bound(*op, from).unwrap_or_else(|| panic!("{} of {from}", op.name())),
        };
        // Converts ULPs of the instruction's result to ULPs of the nest's result.
        bounds.push(bound * 2f64.powi(digits(dtype) - digits(to)));
    }
    let last = bounds.iter().copied().rfind(|b| *b > 0.0).unwrap_or(0.0);
    2.0 * bounds.iter().sum::<f64>() - last
}

/// Binary digits of a significand.
pub fn digits(dtype: DType) -> i32 {
    match dtype {
        DType::F16 => 11,
        DType::BF16 => 8,
        DType::F32 => 24,
        _ => 53,
    }
}

/// The distance between neighbouring numbers at `value`, including subnormal numbers.
pub fn ulp(value: f64, dtype: DType) -> f64 {
    let least = match dtype {
        DType::F16 => -14,
        DType::BF16 | DType::F32 => -126,
        _ => -1022,
    };
    let exponent =
        if value == 0.0 { least } else { (value.abs().log2().floor() as i32).max(least) };
    2f64.powi(exponent - digits(dtype) + 1)
}
