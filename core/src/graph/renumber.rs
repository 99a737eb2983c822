//! Canonical numbering.

use super::{Body, Function, Region, ValueId};
use crate::id::{Id, IdVec};

impl Function {
    /// The same function with its values numbered as the verifier demands; see [`Body::renumber`].
    #[must_use]
    pub fn renumber(mut self) -> Function {
        self.body = self.body.renumber();
        self
    }
}

impl Body {
    /// Numbers the values of the body and of all its regions in the order of definition, and
    /// drops values without a definition. A use of an undefined value gets a number out of range,
    /// so that the verifier reports it. A region that is already numbered stays shared.
    #[must_use]
    pub fn renumber(mut self) -> Body {
        let mut new: Vec<Option<ValueId>> = vec![None; self.values.len()];
        let mut kept = IdVec::new();
        let order = self.inputs.iter().chain(self.equations.iter().flat_map(|e| &e.results));
        for old in order {
            if let Some(slot @ None) = new.get_mut(old.index()) {
                *slot = Some(kept.push(self.values[*old].clone()));
            }
        }
        let renumber = |value: &mut ValueId| {
            *value = new.get(value.index()).copied().flatten().unwrap_or(ValueId(u32::MAX));
        };
        self.inputs.iter_mut().for_each(renumber);
        self.outputs.iter_mut().for_each(renumber);
        for equation in &mut self.equations {
            equation.operands.iter_mut().for_each(renumber);
            equation.results.iter_mut().for_each(renumber);
            // Callees were numbered when they were finished.
            let regions = equation.regions.iter_mut().filter(|_| equation.op.callee().is_none());
            for region in regions.filter(|region| !region.is_numbered()) {
                *region = std::mem::take(region).into_body().renumber().into();
            }
        }
        kept.shrink_to_fit();
        self.values = kept;
        self
    }

    /// True if [`Body::renumber`] changes nothing.
    pub(super) fn is_numbered(&self) -> bool {
        let definitions = self.inputs.iter().chain(self.equations.iter().flat_map(|e| &e.results));
        let values = self.values.len();
        let in_order = |(value, next): (&ValueId, usize)| value.index() == next;
        let regions =
            self.equations.iter().filter(|e| e.op.callee().is_none()).flat_map(|e| &e.regions);
        definitions.clone().count() == values
            && definitions.zip(0..).all(in_order)
            && regions.into_iter().all(Region::is_numbered)
    }
}
