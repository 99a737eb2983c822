//! Products and the nests that follow them: one kernel or two, and the record of the choice.

use super::prepare::{Answer, Called, Preparing, alignment};
use super::{Command, Following, ProductChoice};
use crate::call;
use crate::nest::Follower;
use wengert_core::Result;
use wengert_core::call::Addends;
use wengert_core::plan::resolve::in_place;
use wengert_core::plan::{Place, Step};

impl Preparing<'_> {
    /// A nest whose parameter `tile` is the result of a product, as a part of the product's
    /// kernels, and its arguments. None if it needs a kernel of its own: it needs more than
    /// registers.
    pub(super) fn followed(
        &self,
        called: &Called,
        [product, follower]: [&Step; 2],
        tile: usize,
        of_nest: Vec<Place>,
    ) -> Option<(Following, Vec<Place>)> {
        let (Step::Call { call, arguments: of_call, .. }, Step::Nest { nest, .. }) =
            (product, follower)
        else {
            unreachable!("a nest follows a call")
        };
        let nest = &self.plan.nests[*nest];
        if called.is_empty() || !Follower::takes(nest) {
            return None;
        }
        let result = of_call.len() - 1;
        let mut in_place = in_place(&of_nest);
        // A product that the nest's result overwrites, or that nothing else uses, is not stored.
        let overwritten = in_place.iter().any(|(operand, _)| *operand == tile);
        let stores = !overwritten && self.uses[of_call[result].value] > 1;
        in_place.retain(|(operand, _)| *operand != tile);
        let argument = |n: usize| if n == tile { result } else { of_call.len() + n };
        let follower = Follower {
            nest: nest.clone(),
            tile,
            arguments: (0..of_nest.len()).map(argument).collect(),
            in_place,
            stores,
        };
        let saved = of_nest[tile].bytes * if stores { 1 } else { 2 };
        let pays = self.plan.target.runs_follower(call, saved);
        let alignment = alignment(&[&called.places[..], &of_nest].concat());
        Some((Following { follower, alignment, saved, pays }, of_nest))
    }

    /// Does a product and its follower in the same kernels.
    pub(super) fn pair(
        &mut self,
        called: Called,
        following: Following,
        of_nest: Vec<Place>,
        commands: &mut Vec<Command>,
    ) -> Result<()> {
        let Called { mut question, mut places, workspace } = called;
        places.extend(of_nest);
        question.alignment = following.alignment;
        let placed = self.kernels(&question, Some(following.follower))?;
        self.launch(&placed, &places, workspace, commands)
    }

    /// The implementation of a call that may have a follower.
    pub(super) fn product_or_call(
        &mut self,
        called: &Called,
        following: Option<&Following>,
    ) -> Result<Answer> {
        let question = &called.question;
        let is_product = call::library_product(&question.call).is_some();
        let following = following.filter(|_| is_product && !self.invariant());
        if let Some(following) = following {
            let key = (question.clone(), following.clone());
            let known = match self.pairs.get(&key) {
                Some(known) => known.clone(),
                None => {
                    let reason = self.choose.product(question, following)?;
                    self.own.extend(reason.clone().map(|reason| (question.clone(), reason)));
                    self.pairs.insert(key, reason.clone());
                    reason
                }
            };
            if let Some(reason) = known {
                return Ok(Answer::Kernels(reason));
            }
        }
        match called.is_empty() {
            true => Ok(Answer::Kernels("there is nothing to compute".into())),
            false => self.answer(question, following.is_some()),
        }
    }

    /// Records the choice for a product; false for other calls.
    pub(super) fn record(&mut self, called: &Called, answer: &Answer) -> bool {
        let Called { question, places, .. } = called;
        if called.is_empty() || call::library_product(&question.call).is_none() {
            return false;
        }
        let (library, left, beside) = match answer {
            Answer::Library(_, None) => (Ok(()), Addends::default(), 0),
            Answer::Library(_, Some(left)) => {
                // The result is read and written.
                let read: u64 = left.arguments.iter().map(|n| places[*n].bytes).sum();
                (Ok(()), left.addends, read + places.last().map_or(0, |result| result.bytes))
            }
            Answer::Kernels(reason) => (Err(reason.clone()), Addends::default(), 0),
        };
        let (call, in_place) = (question.call.clone(), question.in_place);
        self.nest_bytes += beside;
        self.products.push(ProductChoice { call, in_place, library, left, follower: None, beside });
        true
    }

    /// Records the nest that follows the product that was recorded last. `within`: the product's
    /// kernels run it.
    pub(super) fn record_follower(&mut self, step: &Step, within: bool, places: &[Place]) {
        let Step::Nest { nest, .. } = step else { return };
        let name = self.plan.nests[*nest].name.clone();
        let product = self.products.last_mut().expect("the product was recorded");
        product.beside += if within { 0 } else { places.iter().map(|p| p.bytes).sum::<u64>() };
        product.follower = Some((name, within));
    }
}
