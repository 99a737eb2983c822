//! What a device states about itself: the numbers that decide what a program computes and how it is laid out, and the calls
//! that its back end claims. A value, so that plans can be made for devices that are not there.

use crate::call::Call;
use crate::diagnostic::{Diagnostic, Result};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::nest::Tree;
use crate::nest::verify::MAX_LANES;
use crate::op::attribute::{Attribute, Attributes, take};
use crate::text::is_sigil_name;
use std::collections::BTreeMap;

/// Greatest alignment of buffers.
const MAX_ALIGNMENT: u64 = 1 << 20;

/// A kind of device.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Target {
    /// `cpu`, later `sm_90` and the like.
    pub name: String,
    /// Lanes of a reduction whose last axis is contiguous in memory, for each element; a power of two. The same for every instruction
    /// set of the device, so that its bits are.
    pub reduction_lanes: u32,
    /// Elements of a block of a reduction ([`Tree::block`]); a multiple of the lanes.
    pub reduction_block: u32,
    /// Bytes to which buffers are aligned; a power of two.
    pub alignment: u64,
    /// Bytes of row storage that a nest may use for one row.
    pub row_storage: u64,
    /// Bytes that a fused row may span before it is not worth keeping it together.
    pub row_bytes: u64,
    /// Calls that the back end executes; others are decomposed.
    pub calls: Vec<CallKind>,
    /// Whether a GEMM's epilogue is done by the call.
    pub gemm_epilogue: bool,
}

/// The kind of a call, without its extents.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum CallKind {
    /// [`Call::Gemm`]
    Gemm,
    /// [`Call::Convolution`]
    Convolution,
    /// [`Call::ScatterAdd`]
    ScatterAdd,
}

impl CallKind {
    /// Every kind.
    pub const ALL: [CallKind; 3] = [CallKind::Gemm, CallKind::Convolution, CallKind::ScatterAdd];

    /// The kind of a call.
    pub const fn of(call: &Call) -> Self {
        match call {
            Call::Gemm(_) => CallKind::Gemm,
            Call::Convolution(_) => CallKind::Convolution,
            Call::ScatterAdd(_) => CallKind::ScatterAdd,
        }
    }

    /// Name in text.
    pub const fn name(self) -> &'static str {
        match self {
            CallKind::Gemm => "gemm",
            CallKind::Convolution => "convolution",
            CallKind::ScatterAdd => "scatter_add",
        }
    }
}

impl Target {
    /// CPU threads with SIMD. 16 lanes fill an AVX-512 register of f32 and two AVX2 registers alike.
    pub fn cpu() -> Self {
        Target {
            name: "cpu".into(),
            reduction_lanes: 16,
            reduction_block: 4096,
            alignment: 64,
            row_storage: 256 << 10,
            row_bytes: 1 << 20,
            calls: CallKind::ALL.to_vec(),
            gemm_epilogue: true,
        }
    }

    /// Checks the numbers: what a file says is not believed.
    pub fn verify(&self) -> Result<()> {
        let wrong = |what: String| Err(Diagnostic::new(format!("target {}: {what}", self.name)));
        let (lanes, block) = (self.reduction_lanes, self.reduction_block);
        if !is_sigil_name(&self.name) {
            return wrong("its name is no name".into());
        }
        if !lanes.is_power_of_two() || lanes > MAX_LANES || !block.is_multiple_of(lanes) {
            return wrong(format!("{lanes} lanes and blocks of {block} make no reduction tree"));
        }
        if !self.alignment.is_power_of_two() || self.alignment > MAX_ALIGNMENT {
            return wrong(format!("alignment {} is no power of two up to {MAX_ALIGNMENT}", self.alignment));
        }
        if self.row_storage.max(self.row_bytes) > i64::MAX as u64 {
            return wrong("rows are larger than any memory".into());
        }
        if (1..self.calls.len()).any(|n| self.calls[..n].contains(&self.calls[n])) {
            return wrong("it claims a call twice".into());
        }
        Ok(())
    }

    /// Everything but the name, for text and files.
    pub fn attributes(&self) -> Attributes {
        // Numbers beyond 2^63 are refused by `verify`; here they only must not panic.
        let number = |n: u64| Attribute::Dim(Dim::constant(i64::try_from(n).unwrap_or(i64::MAX)));
        let calls = self.calls.iter().map(|c| Attribute::Text(c.name().into())).collect();
        Attributes::from([
            ("alignment", number(self.alignment)),
            ("calls", Attribute::List(calls)),
            ("gemm_epilogue", Attribute::Bool(self.gemm_epilogue)),
            ("reduction_block", number(self.reduction_block.into())),
            ("reduction_lanes", number(self.reduction_lanes.into())),
            ("row_bytes", number(self.row_bytes)),
            ("row_storage", number(self.row_storage)),
        ])
    }

    /// The target of that name and attributes.
    pub fn from_attributes(name: &str, mut attributes: BTreeMap<String, Attribute>) -> Result<Target> {
        let map = &mut attributes;
        let mut number = |key: &str| {
            let n: usize = take(map, key, None)?;
            Ok(n as u64)
        };
        let narrow = |n: u64| u32::try_from(n).map_err(|_| Diagnostic::new(format!("{n} is too large")));
        let alignment = number("alignment")?;
        let reduction_block = narrow(number("reduction_block")?)?;
        let reduction_lanes = narrow(number("reduction_lanes")?)?;
        let (row_bytes, row_storage) = (number("row_bytes")?, number("row_storage")?);
        let gemm_epilogue = take(map, "gemm_epilogue", None)?;
        let Some(Attribute::List(calls)) = map.remove("calls") else {
            return Err(Diagnostic::new("attribute `calls` is a list of names of calls"));
        };
        let calls = calls.into_iter().map(|call| {
            let found = CallKind::ALL.into_iter().find(|k| call == Attribute::Text(k.name().into()));
            found.ok_or_else(|| Diagnostic::new("attribute `calls` names a call that is unknown"))
        });
        let calls = calls.collect::<Result<_>>()?;
        if let Some(extra) = attributes.into_keys().next() {
            return Err(Diagnostic::new(format!("a target has no attribute `{extra}`")));
        }
        Ok(Target {
            name: name.into(),
            reduction_lanes,
            reduction_block,
            alignment,
            row_storage,
            row_bytes,
            calls,
            gemm_epilogue,
        })
    }

    /// True if the back end executes this call.
    pub fn claims(&self, call: &Call) -> bool {
        self.calls.contains(&CallKind::of(call))
    }

    /// The tree of a reduction of an operand: depends on its extents and the reduced axes alone, never on how it is fused.
    ///
    /// If the operand's last axis (of extent above 1) is reduced, neighbours go to different lanes. If not, neighbours belong
    /// to different results, and each result adds up one element after the other in blocks.
    pub fn reduction_tree(&self, _dtype: DType, extents: &[usize], axes: &[usize]) -> Tree {
        let last = extents.iter().rposition(|e| *e > 1);
        let contiguous = last.is_some_and(|axis| axes.contains(&axis));
        let count = axes.iter().fold(1usize, |n, axis| n.saturating_mul(extents[*axis]));
        let block = if count > self.reduction_block as usize { self.reduction_block } else { 0 };
        Tree { lanes: if contiguous { self.reduction_lanes } else { 1 }, block }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_bad_numbers_are_refused() {
        let cpu = Target::cpu();
        cpu.verify().unwrap();
        let owned = |t: &Target| t.attributes().into_iter().map(|(k, v)| (k.to_string(), v)).collect();
        assert_eq!(Target::from_attributes("cpu", owned(&cpu)).unwrap(), cpu);
        for bad in [
            Target { alignment: 0, ..cpu.clone() },
            Target { alignment: 48, ..cpu.clone() },
            Target { alignment: 1 << 40, ..cpu.clone() },
            Target { reduction_lanes: 0, ..cpu.clone() },
            Target { reduction_lanes: 12, ..cpu.clone() },
            Target { reduction_block: 17, ..cpu.clone() },
            Target { name: "a b".into(), ..cpu.clone() },
            Target { calls: vec![CallKind::Gemm, CallKind::Gemm], ..cpu.clone() },
        ] {
            assert!(bad.verify().is_err(), "{bad:?}");
        }
        let mut map: BTreeMap<String, Attribute> = owned(&cpu);
        map.insert("calls".into(), Attribute::List(vec![Attribute::Text("fft".into())]));
        assert!(Target::from_attributes("cpu", map).is_err());
    }
}
