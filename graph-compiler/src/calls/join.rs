//! Which products run together with a nest that follows them ([`crate::kernels::joined`]).
//!
//! An epilogue has room for a bias, a function and a residual, and for one result. What else is made of a product element by element stays a nest: an
//! activation whose operand the backward pass wants too, the derivative of one, an update of the weights by their gradient. Here such a nest is put
//! behind its product. The pair stands where the first reader of the product stood, so everything that comes between must not wait for it, and
//! what the nest reads besides must be there by then.
//!
//! A product keeps parts of its operands in the caches. A nest that moves much more than the product itself (an Adam's update reads three tensors and writes
//! three) would push them out, which costs more than reading the product once saves; it stays alone.

use crate::kernels::{BufferId, Joined, Kernel, Kernels, Work};
use wengert_core::call::Call;
use wengert_core::id::{Id, IdVec};
use wengert_core::nest;

/// Joins the products of a function with nests that follow them.
pub(crate) fn join(kernels: &mut Kernels) {
    let mut joining = Joining::new(kernels);
    let mut pairs: Vec<Vec<(usize, usize)>> = vec![Vec::new(); kernels.kernels.len()];
    for product in 0..kernels.kernels.len() {
        if let Some((at, nest)) = joining.follower(kernels, product) {
            joining.take(kernels, product, nest, at);
            pairs[at].push((product, nest));
        }
    }
    let mut old: Vec<Option<Kernel>> = std::mem::take(&mut kernels.kernels).into_iter().map(Some).collect();
    for (at, pairs) in pairs.into_iter().enumerate() {
        for (product, nest) in pairs {
            let mut take = |n: usize| old[n].take().expect("a kernel is in one pair");
            kernels.kernels.push(pair(take(product), take(nest)));
        }
        if joining.role[at] == Role::Alone {
            kernels.kernels.extend(old[at].take());
        }
    }
}

/// Tensors as large as the product that a nest may read and write beside it.
const BESIDE: usize = 2;

/// What a kernel has become.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Alone,
    Product,
    Follower,
}

/// Who writes and reads what, and the pairs so far.
struct Joining {
    /// For each buffer the least position at which a kernel may read it: a pair stands right before the kernel of its position.
    there: IdVec<BufferId, usize>,
    readers: IdVec<BufferId, Vec<usize>>,
    role: Vec<Role>,
}

impl Joining {
    fn new(kernels: &Kernels) -> Joining {
        let mut joining = Joining {
            there: kernels.buffers.ids().map(|_| 0).collect(),
            readers: kernels.buffers.ids().map(|_| Vec::new()).collect(),
            role: vec![Role::Alone; kernels.kernels.len()],
        };
        for (n, kernel) in kernels.kernels.iter().enumerate() {
            kernel.writes.iter().for_each(|b| joining.there[*b] = n + 1);
            kernel.distinct_reads().for_each(|b| joining.readers[b].push(n));
        }
        joining
    }

    /// The nest that a product is joined with, and the position of the pair.
    fn follower(&self, kernels: &Kernels, product: usize) -> Option<(usize, usize)> {
        let Kernel { work: Work::Call(Call::Gemm(_)), reads: operands, writes, .. } =
            &kernels.kernels[product]
        else {
            return None;
        };
        let [made] = writes[..] else { return None };
        let readers = &self.readers[made];
        // One that follows another product already stands elsewhere.
        if readers.iter().any(|n| self.role[*n] == Role::Follower) {
            return None;
        }
        let at = *readers.first()?;
        let follows = |n: &usize| {
            let kernel = &kernels.kernels[*n];
            let Work::Nest(nest) = &kernel.work else { return false };
            let mut places = (0..kernel.reads.len()).filter(|r| kernel.reads[*r] == made);
            let (Some(place), None) = (places.next(), places.next()) else { return false };
            let others = || kernel.distinct_reads().filter(|b| *b != made);
            // What both read, the nest could not write over, as it does with state.
            let apart = others().all(|b| !operands.contains(&b));
            let there = others().all(|b| self.there[b] <= at);
            let bytes = |b: BufferId| kernels.buffers[b].ty.bytes().unwrap_or(usize::MAX);
            let moved = others().chain(kernel.writes.iter().copied()).map(bytes);
            let little = moved.fold(0, usize::saturating_add) <= bytes(made).saturating_mul(BESIDE);
            apart && there && little && nest::follows(nest, nest::BufferId::new(place))
        };
        Some((at, readers.iter().copied().find(follows)?))
    }

    fn take(&mut self, kernels: &Kernels, product: usize, nest: usize, at: usize) {
        for (n, role) in [(product, Role::Product), (nest, Role::Follower)] {
            self.role[n] = role;
            kernels.kernels[n].writes.iter().for_each(|b| self.there[*b] = at);
        }
    }
}

fn pair(product: Kernel, follower: Kernel) -> Kernel {
    let (Work::Call(call), Work::Nest(nest)) = (product.work, follower.work) else {
        unreachable!("a pair is a call and a nest")
    };
    let made = product.writes[0];
    let operand = follower.reads.iter().position(|b| *b == made).expect("the nest reads the product");
    let rest = follower.reads.into_iter().filter(|b| *b != made);
    let mut locations = product.locations;
    locations.extend(follower.locations.into_iter().filter(|l| !locations.contains(l)).collect::<Vec<_>>());
    Kernel {
        work: Work::Joined(Box::new(Joined { call, nest: *nest, operand })),
        reads: product.reads.into_iter().chain(rest).collect(),
        writes: product.writes.into_iter().chain(follower.writes).collect(),
        locations,
    }
}
