//! The choice of followers, the nests that run on the tiles of a product
//! ([`crate::kernels::followed`]).
//!
//! A product adds a bias and a residual by itself. Other elementwise consumers are nests: an
//! activation, the derivative of one, an update of the weights by their gradient. Here such a nest
//! becomes the follower of its product. The pair stands at the position of the product's first
//! reader. So no kernel in between may depend on it, and the nest's other operands must be
//! available by then.
//!
//! A nest that moves much more data than the product itself stays alone
//! ([`Target::follower_traffic`]).

use crate::kernels::{BufferId, Followed, Kernel, Kernels, Work};
use wengert_core::id::{Id, IdVec};
use wengert_core::{Target, nest};

/// Gives the products of a function their followers.
pub(crate) fn follow(kernels: &mut Kernels, target: &Target) {
    let mut following = Following::new(kernels, target.follower_traffic as usize);
    let mut pairs: Vec<Vec<(usize, usize)>> = vec![Vec::new(); kernels.kernels.len()];
    for product in 0..kernels.kernels.len() {
        if let Some((at, nest)) = following.follower(kernels, product) {
            following.take(kernels, product, nest, at);
            pairs[at].push((product, nest));
        }
    }
    let mut old: Vec<Option<Kernel>> =
        std::mem::take(&mut kernels.kernels).into_iter().map(Some).collect();
    for (at, pairs) in pairs.into_iter().enumerate() {
        for (product, nest) in pairs {
            let mut take = |n: usize| old[n].take().expect("a kernel is in one pair");
            kernels.kernels.push(pair(take(product), take(nest)));
        }
        if following.role[at] == Role::Alone {
            kernels.kernels.extend(old[at].take());
        }
    }
}

/// The role of a kernel in a pair.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Alone,
    Product,
    Follower,
}

/// Writers and readers of buffers, and the pairs so far.
struct Following {
    /// Maximum traffic of a follower besides the product, in sizes of the product.
    traffic: usize,
    /// For each buffer the least position at which a kernel may read it. A pair stands right
    /// before the kernel of its position.
    there: IdVec<BufferId, usize>,
    readers: IdVec<BufferId, Vec<usize>>,
    role: Vec<Role>,
}

impl Following {
    fn new(kernels: &Kernels, traffic: usize) -> Following {
        let mut following = Following {
            traffic,
            there: kernels.buffers.ids().map(|_| 0).collect(),
            readers: kernels.buffers.ids().map(|_| Vec::new()).collect(),
            role: vec![Role::Alone; kernels.kernels.len()],
        };
        for (n, kernel) in kernels.kernels.iter().enumerate() {
            kernel.writes.iter().for_each(|b| following.there[*b] = n + 1);
            kernel.distinct_reads().for_each(|b| following.readers[b].push(n));
        }
        following
    }

    /// The position of a product's pair, and its follower.
    fn follower(&self, kernels: &Kernels, product: usize) -> Option<(usize, usize)> {
        let Kernel { work: Work::Call(call), reads: operands, writes, .. } =
            &kernels.kernels[product]
        else {
            return None;
        };
        if !call.has_tiles() {
            return None;
        }
        let [made] = writes[..] else { return None };
        let readers = &self.readers[made];
        // A reader that follows another product already has another position.
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
            // The nest could not overwrite a buffer that both read, as it does with state.
            let apart = others().all(|b| !operands.contains(&b));
            let there = others().all(|b| self.there[b] <= at);
            let bytes = |b: BufferId| kernels.buffers[b].ty.bytes().unwrap_or(usize::MAX);
            let moved = others().chain(kernel.writes.iter().copied()).map(bytes);
            let little =
                moved.fold(0, usize::saturating_add) <= bytes(made).saturating_mul(self.traffic);
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
    let tile = follower.reads.iter().position(|b| *b == made).expect("the nest reads the product");
    let rest = follower.reads.into_iter().filter(|b| *b != made);
    let mut locations = product.locations;
    locations.extend(
        follower.locations.into_iter().filter(|l| !locations.contains(l)).collect::<Vec<_>>(),
    );
    Kernel {
        work: Work::Followed(Box::new(Followed { call, follower: *nest, tile })),
        reads: product.reads.into_iter().chain(rest).collect(),
        writes: product.writes.into_iter().chain(follower.writes).collect(),
        locations,
    }
}
