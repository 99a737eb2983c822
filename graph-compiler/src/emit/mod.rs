//! Emission of a value's element: the pull model. Fusion emits elements to learn what a kernel
//! would read. Lowering emits them into its nest.
//!
//! An element rule requests elements of its operands. It receives a register that the nest
//! already holds, a load from memory, or the result of the operand's own rule, applied in turn.
//! Requests carry the guards of the requesting rules. A value computed where a guard fails is
//! never used, but its loads must not access memory out of bounds, so they carry the guards.

mod affine;
mod concatenation;

pub(crate) use affine::simplify;
pub(crate) use concatenation::{LEAST, Parts};

use crate::view::{View, Work, flatten};
use rustc_hash::FxHashMap;
use wengert_core::graph::ValueId;
use wengert_core::id::IdVec;
use wengert_core::nest::bounds::Ranges;
use wengert_core::nest::{Affine, AxisId, BufferId, Guard, NestBuilder, Reg, ScalarOp};
use wengert_core::op::{Compute, ElementContext};
use wengert_core::{DType, Scalar};

/// A value that the nest itself computed.
#[derive(Clone)]
pub(crate) enum Held {
    /// In a register that is visible now; its dtype may be that of a reduction's tuple.
    Register(Reg),
    /// In row storage, at the current point of the phase.
    Row(BufferId),
    /// No longer available: recompute it.
    Again,
}

/// For each value in memory, the value that has its elements there: itself, or the operand of
/// which it is a reshape.
pub(crate) type Memory = IdVec<ValueId, Option<ValueId>>;

/// A load from memory.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Read {
    /// The value, which gives the shape of the index.
    pub value: ValueId,
    /// The index; without registers unless clamped.
    pub index: Vec<Affine>,
    /// Whether the index comes from data.
    pub clamped: bool,
    /// Whether the load has guards.
    pub guarded: bool,
}

/// A parameter of the nest for a value.
#[derive(Clone)]
pub(crate) struct Parameter {
    pub buffer: BufferId,
    /// One index in row-major order instead of one for each axis of the value.
    pub flat: bool,
}

/// Emits elements into a nest.
pub(crate) struct Emitter<'v, 'a> {
    pub view: &'v View<'a>,
    pub memory: &'v Memory,
    pub builder: NestBuilder,
    /// Parameters for reads, separately for clamped ones. A value without an entry gets a
    /// parameter of its own shape.
    pub parameters: FxHashMap<(ValueId, bool), Parameter>,
    pub held: FxHashMap<ValueId, Held>,
    /// Every read of memory so far.
    pub reads: Vec<Read>,
    /// Equations whose rules were applied, once per application.
    pub asked: Vec<usize>,
    /// Counters of the inner axes of the phase.
    point: Vec<Affine>,
    memo: FxHashMap<(ValueId, Vec<Affine>, Vec<Guard>), Reg>,
    guards: Vec<Guard>,
}

impl<'v, 'a> Emitter<'v, 'a> {
    pub fn new(view: &'v View<'a>, memory: &'v Memory, name: &str) -> Self {
        Emitter {
            view,
            memory,
            builder: NestBuilder::new(name),
            parameters: FxHashMap::default(),
            held: FxHashMap::default(),
            reads: Vec::new(),
            asked: Vec::new(),
            point: Vec::new(),
            memo: FxHashMap::default(),
            guards: Vec::new(),
        }
    }

    /// Begins a phase.
    pub fn phase(&mut self, axes: &[(&str, usize)]) -> Vec<AxisId> {
        self.memo.clear();
        let inner = self.builder.phase_over(axes);
        self.point = inner.iter().map(|a| Affine::axis(*a)).collect();
        inner
    }

    /// The simplest form of an index expression under the current guards.
    pub fn simplify(&self, expression: &Affine) -> Affine {
        simplify(self.builder.draft(), &self.guards, expression)
    }

    /// The element of a value at an index.
    pub fn element(&mut self, value: ValueId, index: &[Affine]) -> Reg {
        let dtype = self.view.stored(value);
        match self.held.get(&value).cloned() {
            Some(Held::Register(reg)) => return self.builder.convert(reg, dtype),
            Some(Held::Row(buffer)) => {
                let point = self.point.clone();
                return self.builder.load(buffer, &point);
            }
            Some(Held::Again) => {}
            None if self.in_memory(value) => return self.load(value, index, None),
            None => {}
        }
        let index: Vec<Affine> = index.iter().map(|i| self.simplify(i)).collect();
        let key = (value, index, self.guards.clone());
        if let Some(reg) = self.memo.get(&key) {
            return *reg;
        }
        let equation = self.view.definitions[value].expect("inputs of the body are in memory");
        let reg = self.rule(equation, &key.1);
        self.memo.insert(key, reg);
        reg
    }

    /// Whether a value is read from memory. Values that the nest itself computes, and their
    /// reshapes, are not.
    fn in_memory(&self, value: ValueId) -> bool {
        self.memory[value].is_some_and(|base| !self.held.contains_key(&base))
    }

    /// Applies the rule of an elementwise equation.
    pub fn rule(&mut self, equation: usize, index: &[Affine]) -> Reg {
        let view = self.view;
        self.asked.push(equation);
        let Work::Compute(Compute::Element { rule, .. }) = &view.work[equation] else {
            panic!(
                "fusion: `{}` has no element rule and is not in memory",
                view.body.equations[equation].op.name()
            )
        };
        let mut context =
            Context { emitter: self, operands: &view.body.equations[equation].operands };
        rule(&mut context, index)
    }

    /// Applies the rule of a reduction, which gives its tuple.
    pub fn tuple(&mut self, equation: usize, index: &[Affine]) -> Vec<Reg> {
        let view = self.view;
        let Work::Compute(Compute::Reduce { values, .. }) = &view.work[equation] else {
            panic!("fusion: `{}` is no reduction", view.body.equations[equation].op.name())
        };
        let mut context =
            Context { emitter: self, operands: &view.body.equations[equation].operands };
        values(&mut context, index)
    }

    fn parameter(&mut self, value: ValueId, clamped: bool) -> Parameter {
        if let Some(known) = self.parameters.get(&(value, clamped)) {
            return known.clone();
        }
        let buffer = self.builder.input("x", self.view.stored(value), &self.view.extents[value]);
        let parameter = Parameter { buffer, flat: false };
        self.parameters.insert((value, clamped), parameter.clone());
        parameter
    }

    /// Loads under the current guards. Where they fail, the result is `fill`, or unspecified
    /// without it.
    fn load(&mut self, value: ValueId, index: &[Affine], fill: Option<Reg>) -> Reg {
        let parameter = self.parameter(value, false);
        let index: Vec<Affine> = index.iter().map(|i| self.simplify(i)).collect();
        let at = if parameter.flat {
            vec![self.simplify(&flatten(&self.view.extents[value], &index))]
        } else {
            index.clone()
        };
        self.reads.push(Read { value, index, clamped: false, guarded: !self.guards.is_empty() });
        if self.guards.is_empty() {
            return self.builder.load(parameter.buffer, &at);
        }
        let fill =
            fill.unwrap_or_else(|| self.builder.constant(Scalar::zero(self.view.stored(value))));
        let guards = self.evident(parameter.buffer, &at);
        self.builder.load_guarded(parameter.buffer, &at, &guards, fill)
    }

    /// The current guards, and a further guard for an index that only several of them bound
    /// together. The further guard follows from the others, so it changes no result; but interval
    /// analysis looks at guards one by one, and cannot derive it. Example: quotient and remainder
    /// of a position that reshapes recombine.
    fn evident(&self, buffer: BufferId, at: &[Affine]) -> Vec<Guard> {
        let draft = self.builder.draft();
        let mut guards = self.guards.clone();
        for (index, extent) in at.iter().zip(&draft.buffers[buffer].shape) {
            let high = i64::try_from(*extent).expect("extents are below 2⁶³");
            if !Ranges::new(draft, &guards).of(index).within(0, high.into()) {
                guards.push(Guard { index: index.clone(), low: 0, high });
            }
        }
        guards
    }

    fn guarded(&mut self, value: ValueId, index: &[Affine], guards: Vec<Guard>, fill: Reg) -> Reg {
        let mut open = Vec::new();
        for guard in guards {
            let guard = Guard { index: self.simplify(&guard.index), ..guard };
            let range = Ranges::new(self.builder.draft(), &self.guards).of(&guard.index);
            if range.within(guard.low.into(), guard.high.into()) {
                continue;
            }
            if range.low >= guard.high.into() || range.high < guard.low.into() {
                return fill;
            }
            open.push(guard);
        }
        if open.is_empty() {
            return self.element(value, index);
        }
        let outer = self.guards.len();
        self.guards.extend(open.iter().cloned());
        let in_memory = self.in_memory(value);
        let element = if in_memory {
            self.load(value, index, Some(fill))
        } else {
            self.element(value, index)
        };
        self.guards.truncate(outer);
        if in_memory {
            return element;
        }
        let holds = self.builder.test(&open);
        self.builder.scalar(ScalarOp::Select, &[holds, element, fill])
    }

    fn clamped(&mut self, value: ValueId, index: &[Affine]) -> Reg {
        assert!(
            self.in_memory(value),
            "fusion: an operand that is accessed at indices from data is not in memory"
        );
        let parameter = self.parameter(value, true);
        let index: Vec<Affine> = index.iter().map(|i| self.simplify(i)).collect();
        let guarded = !self.guards.is_empty();
        self.reads.push(Read { value, index: index.clone(), clamped: true, guarded });
        // Clamping keeps the access in bounds under any guards: an index that is wrong where a
        // guard fails is clamped too.
        self.builder.load_clamped(parameter.buffer, &index)
    }
}

/// The emitter as the rule of one equation sees it.
struct Context<'e, 'v, 'a> {
    emitter: &'e mut Emitter<'v, 'a>,
    operands: &'v [ValueId],
}

impl ElementContext for Context<'_, '_, '_> {
    fn operand(&mut self, operand: usize, index: &[Affine]) -> Reg {
        self.emitter.element(self.operands[operand], index)
    }

    fn guarded(&mut self, operand: usize, index: &[Affine], guards: Vec<Guard>, fill: Reg) -> Reg {
        self.emitter.guarded(self.operands[operand], index, guards, fill)
    }

    fn clamped(&mut self, operand: usize, index: &[Affine]) -> Reg {
        self.emitter.clamped(self.operands[operand], index)
    }

    fn scalar(&mut self, op: ScalarOp, operands: &[Reg]) -> Reg {
        self.emitter.builder.scalar_widened(op, operands)
    }

    fn convert(&mut self, value: Reg, dtype: DType) -> Reg {
        self.emitter.builder.convert(value, dtype)
    }

    fn bitcast(&mut self, value: Reg, dtype: DType) -> Reg {
        self.emitter.builder.bitcast(value, dtype.stored())
    }

    fn constant(&mut self, value: Scalar) -> Reg {
        self.emitter.builder.constant(value.stored())
    }

    fn index(&mut self, value: &Affine, dtype: DType) -> Reg {
        let value = self.emitter.simplify(value);
        self.emitter.builder.index(&value, dtype)
    }

    fn test(&mut self, guards: Vec<Guard>) -> Reg {
        self.emitter.builder.test(&guards)
    }

    fn dtype(&self, reg: Reg) -> DType {
        self.emitter.builder.dtype(reg)
    }
}
