//! The closed set of ops. One op, or one family of similar ops, is one file, in this order:
//!
//! 1. **documentation and attributes**: the formula, the results of ties and edge cases, the
//!    attribute struct ([`attribute`]; `define.rs` has the macros);
//! 2. **infer**: the shape and dtype rule, shared by builder, parser and verifier;
//! 3. **evaluate**: the meaning, over elements of any [`Real`] type (the graph interpreter);
//! 4. **compute**: the lowering to loops over scalar instructions, or to a [`crate::call::Call`]
//!    ([`compute`]);
//! 5. **derivative**: its one rule ([`derivative`]);
//! 6. **batch**: the op mapped over one more axis ([`batch`]); elementwise ops share one rule.
//!
//! [`Operation`] is the interface of an op ([`facet`] has the defaults), [`Op`] the enum of all.
//! Back ends and most passes never match on `Op`: they ask for facets and [`Traits`]. Operands to
//! test every facet with are in `wengert_testing::samples`.

pub mod attribute;
pub mod batch;
pub mod collective;
pub mod compute;
pub mod derivative;
pub mod facet;
mod float8;

mod argsort;
mod argument;
mod attention;
mod binary;
mod bitcast_convert_type;
mod broadcast_in_dim;
mod catalogue;
mod compare;
mod composites;
mod concatenate;
mod constant;
pub mod control;
mod conv_general_dilated;
mod convert_element_type;
mod cumulative;
mod custom;
pub(crate) mod define;
mod dim_as_value;
mod dot_general;
mod dynamic_slice;
mod dynamic_update_slice;
mod elementwise;
mod gather;
mod integer_pow;
mod iota;
mod is_finite;
mod lookup;
mod nextafter;
mod normalize;
mod pad;
mod permute;
mod polygamma;
mod prelude;
mod probe;
mod random_bits;
mod reduce;
mod reduce_precision;
mod reduce_with;
mod reshape;
mod reverse;
mod scatter;
mod segment_sum;
mod select;
mod select_n;
mod slice;
mod softmax;
mod softmax_cross_entropy;
mod sort;
mod starts;
mod take_along_axis;
mod top_k;
mod triangular_solve;
mod unary;
mod varying;
mod window;

pub use argsort::Argsort;
pub use argument::{Argument, Extremum};
pub use attention::{Attention, AttentionKind};
pub use attribute::{Attribute, AttributeStruct, Attributes};
pub use batch::Batch;
pub use binary::Binary;
pub use bitcast_convert_type::BitcastConvertType;
pub use broadcast_in_dim::BroadcastInDim;
pub use catalogue::Entry;
pub use collective::{
    AllGather, AllToAll, AxisIndex, Collective, PPermute, PReduce, PReduceKind, PVary, PsumScatter,
};
pub use compare::Compare;
pub use composites::{COMPOSITES, Composite};
pub use compute::{Compute, ElementContext};
pub use concatenate::Concatenate;
pub use constant::Constant;
pub use control::{Cond, Control, RegionInput, Scan, Switch, While};
pub use conv_general_dilated::ConvGeneralDilated;
pub use convert_element_type::ConvertElementType;
pub use cumulative::{Cumulative, CumulativeKind};
pub use custom::{
    Checkpoint, CheckpointName, CustomJvp, CustomLinearSolve, CustomVjp, FunctionCall,
    FunctionName, Keep, OptimizationBarrier, Transposed,
};
pub use derivative::Derivative;
pub use dim_as_value::DimAsValue;
pub use dot_general::DotGeneral;
pub use dynamic_slice::DynamicSlice;
pub use dynamic_update_slice::DynamicUpdateSlice;
pub use facet::{Evaluation, Lowering, Operation, Traits, Typing, Varies};
pub use gather::Gather;
pub use integer_pow::IntegerPow;
pub use iota::Iota;
pub use is_finite::IsFinite;
pub use lookup::Lookup;
pub use nextafter::NextAfter;
pub use normalize::{Normalize, NormalizeKind};
pub use pad::Pad;
pub use permute::Permute;
pub use polygamma::Polygamma;
pub use probe::{Probe, ProbeKind};
pub use random_bits::{RandomBits, philox};
pub use reduce::{Reduce, ReduceKind};
pub use reduce_precision::ReducePrecision;
pub use reduce_with::ReduceWith;
pub use reshape::Reshape;
pub use reverse::Reverse;
pub use scatter::Scatter;
pub use segment_sum::SegmentSum;
pub use select::{Clamp, Select};
pub use select_n::SelectN;
pub use slice::Slice;
pub use softmax::{Softmax, SoftmaxKind};
pub use softmax_cross_entropy::SoftmaxCrossEntropy;
pub use sort::Sort;
pub use take_along_axis::TakeAlongAxis;
pub use top_k::{TopK, TopKIndices};
pub use triangular_solve::TriangularSolve;
pub use unary::Unary;
pub use window::{
    ReduceWindow, WindowArgument, WindowGather, WindowKind, WindowScatterAdd, Windows,
};

use crate::build::tensor::Tensor;
use crate::call::ScatterKind;
use crate::diagnostic::{Diagnostic, Result, ensure};
use crate::dim::{Binding, Dim};
use crate::graph::Region;
use crate::interpret::{Array, Real, Regions};
use crate::ty::TensorType;
use std::collections::BTreeMap;

/// Cost of an element.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Cost {
    /// At most index arithmetic: broadcast, reshape, slice, iota. Recomputing it never costs more
    /// than storing it.
    Free,
    /// One or a few instructions: recomputing it costs less than a store and a load.
    Cheap,
    /// Transcendental functions, random bits, divisions.
    Expensive,
    /// Loops over its operands: reductions, products, calls.
    Loop,
}

macro_rules! ops {
    ($($variant:ident($t:ty),)*) => {
        /// An op with its attributes.
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub enum Op {
            $(#[doc = concat!("See [`", stringify!($t), "`].")] $variant($t),)*
        }

        $(impl From<$t> for Op {
            fn from(op: $t) -> Op { Op::$variant(op) }
        })*

        impl Op {
            /// The whole catalogue, family by family.
            pub fn catalogue() -> Vec<Entry> {
                let mut entries = Vec::new();
                $(entries.extend(<$t>::entries());)*
                entries
            }

            /// Name in text and files.
            pub fn name(&self) -> &'static str {
                match self { $(Op::$variant(op) => op.name(),)* }
            }

            /// See [`Operation::infer`].
            pub fn infer(
                &self,
                operands: &[TensorType],
                regions: &[Region],
            ) -> Result<Vec<TensorType>> {
                // Types too large for any memory are errors, whatever the op and its attributes.
                let well_formed = |types: &[TensorType]| {
                    types.iter().try_for_each(crate::graph::verify::types::well_formed)
                };
                well_formed(operands)
                    .and_then(|()| float8::check(self, operands))
                    .and_then(|()| varying::infer(self, operands, |operands| match self {
                        $(Op::$variant(op) => op.infer(&Typing { operands, regions }),)*
                    }))
                    .and_then(|results| {
                        well_formed(&results)?;
                        float8::check(self, &results)?;
                        Ok(results)
                    })
                    .map_err(|d| d.context(self.name()))
            }

            /// See [`Operation::evaluate`].
            pub fn evaluate<R: Real>(
                &self,
                operands: &[Array<R>],
                results: &[TensorType],
                regions: &Regions<'_>,
            ) -> Result<Vec<Array<R>>> {
                let e = Evaluation { operands, results, regions: *regions };
                match self { $(Op::$variant(op) => op.evaluate(&e),)* }
            }

            /// See [`Operation::exchange`].
            pub(crate) fn exchange<R: Real>(
                &self,
                group: &collective::Group<'_, R>,
            ) -> Result<Vec<Array<R>>> {
                match self { $(Op::$variant(op) => op.exchange(group),)* }
            }

            /// See [`Operation::lockstep`].
            pub(crate) fn lockstep<R: Real>(
                &self,
                l: control::lockstep::Lockstep<'_, R>,
            ) -> Result<Vec<Vec<Array<R>>>> {
                match self { $(Op::$variant(op) => op.lockstep(l),)* }
            }

            /// The op as a collective, if it is one.
            pub fn collective(&self) -> Option<Collective<'_>> {
                match self { $(Op::$variant(op) => op.collective(),)* }
            }

            /// See [`Operation::VARIES`].
            pub fn varies(&self) -> Varies {
                match self { $(Op::$variant(_) => <$t>::VARIES,)* }
            }

            /// See [`Operation::compute`].
            pub fn compute<'a>(
                &'a self,
                operands: &[TensorType],
                results: &[TensorType],
                regions: &'a [Region],
            ) -> Compute<'a> {
                let l = Lowering { operands, results, regions };
                match self { $(Op::$variant(op) => op.compute(&l),)* }
            }

            /// See [`Operation::derivative`].
            pub fn derivative(&self) -> Derivative {
                match self { $(Op::$variant(op) => op.derivative(),)* }
            }

            /// See [`Operation::batch`].
            pub fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
                match self { $(Op::$variant(op) => op.batch(b),)* }
            }

            /// See [`Operation::traits`].
            pub fn traits(&self) -> Traits {
                match self { $(Op::$variant(op) => op.traits(),)* }
            }

            /// See [`Operation::lookup`].
            pub fn lookup(&self, operands: &[TensorType]) -> Option<Lookup> {
                match self { $(Op::$variant(op) => op.lookup(operands),)* }
            }

            /// See [`Operation::attributes`].
            pub fn attributes(&self) -> Attributes {
                match self { $(Op::$variant(op) => op.attributes(),)* }
            }

            /// Number of regions.
            pub fn region_count(&self) -> std::ops::RangeInclusive<usize> {
                match self { $(Op::$variant(_) => <$t>::REGIONS,)* }
            }

            /// Visits every dimension in the attributes.
            pub fn visit_dims(&self, visit: &mut dyn FnMut(&Dim)) {
                match self { $(Op::$variant(op) => Operation::visit_dims(op, visit),)* }
            }

            /// Replaces every dimension in the attributes by its image.
            pub fn map_dims(&mut self, map: &mut dyn FnMut(&Dim) -> Result<Dim>) -> Result<()> {
                match self { $(Op::$variant(op) => Operation::map_dims(op, map),)* }
            }

            /// The op of that name with these attributes.
            pub fn from_attributes(
                name: &str,
                mut attributes: BTreeMap<String, Attribute>,
            ) -> Result<Op> {
                let mut found: Option<Result<Op>> = None;
                $(if found.is_none() {
                    found = <$t>::parse(name, &mut attributes).map(|op| op.map(Op::$variant));
                })*
                let op = found.unwrap_or_else(|| Err(unknown(name)))?;
                match attributes.into_keys().next() {
                    Some(extra) => {
                        Err(Diagnostic::new(format!("`{name}` has no attribute `{extra}`")))
                    }
                    None => Ok(op),
                }
            }
        }
    };
}

ops! {
    Unary(Unary),
    Binary(Binary),
    Compare(Compare),
    IntegerPow(IntegerPow),
    NextAfter(NextAfter),
    Polygamma(Polygamma),
    Select(Select),
    SelectN(SelectN),
    Clamp(Clamp),
    IsFinite(IsFinite),
    ReducePrecision(ReducePrecision),
    Constant(Constant),
    ConvertElementType(ConvertElementType),
    BitcastConvertType(BitcastConvertType),
    Iota(Iota),
    DimAsValue(DimAsValue),
    RandomBits(RandomBits),
    BroadcastInDim(BroadcastInDim),
    Reshape(Reshape),
    Permute(Permute),
    Slice(Slice),
    Pad(Pad),
    Concatenate(Concatenate),
    Reverse(Reverse),
    Reduce(Reduce),
    ReduceWith(ReduceWith),
    Argument(Argument),
    ReduceWindow(ReduceWindow),
    WindowArgument(WindowArgument),
    WindowGather(WindowGather),
    WindowScatterAdd(WindowScatterAdd),
    Cumulative(Cumulative),
    DynamicSlice(DynamicSlice),
    DynamicUpdateSlice(DynamicUpdateSlice),
    Gather(Gather),
    Scatter(Scatter),
    SegmentSum(SegmentSum),
    TakeAlongAxis(TakeAlongAxis),
    Argsort(Argsort),
    Sort(Sort),
    TopKIndices(TopKIndices),
    TopK(TopK),
    DotGeneral(DotGeneral),
    ConvGeneralDilated(ConvGeneralDilated),
    TriangularSolve(TriangularSolve),
    Softmax(Softmax),
    Normalize(Normalize),
    SoftmaxCrossEntropy(SoftmaxCrossEntropy),
    Attention(Attention),
    Cond(Cond),
    Switch(Switch),
    Scan(Scan),
    While(While),
    PReduce(PReduce),
    PVary(PVary),
    AllGather(AllGather),
    PsumScatter(PsumScatter),
    AllToAll(AllToAll),
    PPermute(PPermute),
    AxisIndex(AxisIndex),
    Probe(Probe),
    Checkpoint(Checkpoint),
    CheckpointName(CheckpointName),
    OptimizationBarrier(OptimizationBarrier),
    FunctionCall(FunctionCall),
    CustomJvp(CustomJvp),
    CustomVjp(CustomVjp),
    CustomLinearSolve(CustomLinearSolve),
    Transposed(Transposed),
}

impl Op {
    /// Replaces dimension variables in the attributes by their values.
    pub fn bind(&mut self, binding: &Binding) -> Result<()> {
        self.map_dims(&mut |d| d.bind(binding))
    }
}

fn unknown(name: &str) -> Diagnostic {
    let mut names: Vec<_> = Op::catalogue().iter().map(|e| e.name).collect();
    // The closest names first: those with the longest common prefix.
    names.sort_by_key(|n| {
        std::cmp::Reverse(n.chars().zip(name.chars()).take_while(|(a, b)| a == b).count())
    });
    names.truncate(3);
    Diagnostic::new(format!("unknown op `{name}`"))
        .help(format!("did you mean {}? `graphrun ops` lists all", names.join(", ")))
}

/// Checks that a type has an axis.
pub(crate) fn has_axis(x: &TensorType, axis: usize) -> Result<()> {
    match axis < x.rank() {
        true => Ok(()),
        false => Err(Diagnostic::new(format!("{x} has no axis {axis}")).help(axes_of(x.rank()))),
    }
}

/// The axes of a tensor of this rank, as a help text.
pub(crate) fn axes_of(rank: usize) -> String {
    match rank {
        0 => "a scalar has no axes".into(),
        1 => "its only axis is 0".into(),
        rank => format!("its axes are 0 to {}", rank - 1),
    }
}

/// Checks that every axis of `axes` is below `rank` and none occurs twice.
pub(crate) fn distinct_axes(what: &str, axes: &[usize], rank: usize) -> Result<()> {
    for (i, axis) in axes.iter().enumerate() {
        if *axis >= rank {
            return Err(Diagnostic::new(format!(
                "{what}: axis {axis} of an operand of rank {rank}"
            ))
            .help(axes_of(rank)));
        }
        ensure!(!axes[..i].contains(axis), "{what}: axis {axis} occurs twice";
            help "name each axis once");
    }
    Ok(())
}

/// Advances to the next index in row-major order; the last wraps to the first.
pub(crate) fn advance(index: &mut [usize], shape: &[usize]) {
    for axis in (0..index.len()).rev() {
        index[axis] += 1;
        if index[axis] < shape[axis] {
            return;
        }
        index[axis] = 0;
    }
}
