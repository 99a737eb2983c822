//! The bytes that a collective moves over each link, and its time.
//!
//! Ranks are joined by links in levels: link 1 joins the ranks of a node, link 2 joins nodes. Of
//! the N ranks of a collective, d_l are joined by link l or a lower one. A level l has *groups* of
//! g_l = d_l / d_{l−1} members, where d₀ = 1 and the last d is N. If only some axes of the mesh
//! take part, a node has fewer of these ranks: with groups of 4 neighbours that share products, 2
//! of 8 exchange gradients, so d₁ = 2. S are the bytes of the whole tensor: the operand of a
//! reduction, the result of `all_gather`.
//!
//! **Hierarchical.** A reduce-scatter of S bytes in a ring of g ranks has g − 1 exchanges of S/g
//! bytes, and so has an all-gather; an all-reduce is both (Thakur, Rabenseifner and Gropp,
//! *Optimization of Collective Communication Operations in MPICH*, 2005). Within a node it leaves
//! S/g₁ bytes to each rank, which are then reduced between nodes. So a rank sends over link l
//!
//! ```text
//! S / d_{l−1} · (g_l − 1) / g_l bytes in g_l − 1 exchanges,
//! ```
//!
//! twice as many for `psum`, `pmax` and `pmin`. Over all links this is S·(N − 1)/N, the least
//! possible (NVIDIA's `nccl-tests`, `PERFORMANCE.md`, has the same bounds). The time is the sum
//! over the links of bytes / bandwidth + exchanges · latency, and the time to start. The balanced
//! tree of a sum ([`wengert_core::op::collective`]) allows it: consecutive ranks are a subtree.
//!
//! **Direct.** Every rank exchanges a part of S/N bytes with every other, as the CPU's collectives
//! do. Over link l it sends S·(d_l − d_{l−1})/N bytes, all links at the same time. More bytes leave
//! a node than by the other way.
//!
//! Both protocols of a link are tried, and the faster one counts, as NCCL chooses by size.

use super::machine::{Link, Machine, Protocol};
use wengert_core::call::CollectiveKind;
use wengert_core::{Mesh, Result, diagnostic};

/// The way in which ranks exchange data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Exchange {
    /// In rings within each node, then between nodes.
    #[default]
    Hierarchical,
    /// Between all pairs of ranks.
    Direct,
}

/// The exchanges of a rank over one link.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Hop {
    /// Bytes that it sends, and as many that it receives.
    pub bytes: f64,
    /// Exchanges, one after another.
    pub exchanges: f64,
}

/// The members of a group at each level, for the links that the ranks of the mesh use. The ranks
/// of a collective differ along the axes `over`; those of a mesh without axes are one rank.
///
/// Errors: the ranks do not fill the last node; neighbours along an axis are not all of a node, and
/// do not fill nodes either.
pub fn groups(machine: &Machine, mesh: &Mesh, over: &[String]) -> Result<Vec<usize>> {
    let ranks = mesh.ranks();
    let members = mesh.group(0, over);
    let (mut groups, mut below) = (vec![], 1);
    for Link { name, ranks: joined, .. } in &machine.links {
        let reach = joined.unwrap_or(ranks).min(ranks);
        if !ranks.is_multiple_of(reach) {
            return Err(diagnostic!(
                "{ranks} ranks do not fill groups of {reach}, which {name} joins on {}",
                machine.name
            )
            .help(format!(
                "use {} or {} ranks",
                ranks / reach * reach,
                ranks.div_ceil(reach) * reach
            )));
        }
        let mut neighbours = 1;
        for (axis, extent) in mesh.axes().iter().rev() {
            neighbours *= extent;
            if !reach.is_multiple_of(neighbours) && !neighbours.is_multiple_of(reach) {
                return Err(diagnostic!(
                    "{neighbours} neighbouring ranks, up to the axis `{axis}`, do not fit groups \
                     of {reach}, which {name} joins on {}",
                    machine.name
                )
                .help(format!("use a divisor or a multiple of {reach}")));
            }
        }
        let reached = members.iter().filter(|rank| **rank < reach).count();
        groups.push(reached / below);
        below = reached;
        if reach == ranks {
            break;
        }
    }
    Ok(groups)
}

impl Exchange {
    /// The name in options.
    pub fn name(self) -> &'static str {
        match self {
            Exchange::Hierarchical => "hierarchical",
            Exchange::Direct => "direct",
        }
    }

    /// The exchanges over each link of a collective of `bytes`, those of the whole tensor.
    pub fn hops(self, kind: CollectiveKind, bytes: f64, groups: &[usize]) -> Vec<Hop> {
        use CollectiveKind::{AllGather, AllToAll, AxisIndex, Max, Min, Permute, Sum, SumScatter};
        let ranks = groups.iter().product::<usize>() as f64;
        let both = match kind {
            Sum | Max | Min => 2.0,
            SumScatter | AllGather | AllToAll | Permute => 1.0,
            AxisIndex => 0.0,
        };
        let is_direct = self == Exchange::Direct || kind == AllToAll;
        let last = groups.iter().rposition(|members| *members > 1);
        let mut below = 1.0;
        let hops = groups.iter().enumerate().map(|(level, members)| {
            let members = *members as f64;
            let hop = if kind == Permute {
                // The other rank may be in another node.
                let share = if last == Some(level) { 1.0 } else { 0.0 };
                Hop { bytes: share * bytes, exchanges: share }
            } else if is_direct {
                let others = below * (members - 1.0);
                let exchanges = if others > 0.0 { both } else { 0.0 };
                Hop { bytes: both * bytes * others / ranks, exchanges }
            } else {
                let others = members - 1.0;
                let bytes = both * bytes / below * others / members;
                Hop { bytes, exchanges: both * others }
            };
            below *= members;
            hop
        });
        hops.collect()
    }

    /// Seconds of a collective with these exchanges.
    pub fn seconds(self, hops: &[Hop], machine: &Machine) -> f64 {
        if hops.iter().all(|hop| hop.exchanges == 0.0) {
            return 0.0;
        }
        let by = |start: f64, protocol: fn(&Link) -> &Protocol| {
            let times = hops.iter().zip(&machine.links).map(|(hop, link)| {
                let Protocol { bandwidth, latency } = protocol(link);
                hop.bytes / bandwidth.value + hop.exchanges * latency.value
            });
            start
                + match self {
                    Exchange::Hierarchical => times.sum::<f64>(),
                    Exchange::Direct => times.fold(0.0, f64::max),
                }
        };
        let start = &machine.start;
        by(start.long.value, |link| &link.long).min(by(start.short.value, |link| &link.short))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn machine() -> Machine {
        let mut machine = Machine::read(Path::new("h100-sxm8")).unwrap();
        machine.start.long.value = 1.0;
        machine.start.short.value = 0.5;
        for (link, bandwidth, latency) in [(0, 100.0, 0.25), (1, 10.0, 2.0)] {
            let link = &mut machine.links[link];
            (link.long.bandwidth.value, link.long.latency.value) = (bandwidth, latency);
            link.short.bandwidth.value = bandwidth / 4.0;
            link.short.latency.value = latency / 2.0;
        }
        machine
    }

    fn bytes(hops: &[Hop]) -> Vec<f64> {
        hops.iter().map(|hop| hop.bytes).collect()
    }

    #[test]
    fn ranks_form_groups_by_links() {
        let machine = machine();
        let of = |axes: &[(&str, usize)], over: &str| {
            groups(&machine, &Mesh::new(axes.iter().copied()).unwrap(), &[over.to_owned()])
        };
        for (ranks, expected) in
            [(1, vec![1]), (4, vec![4]), (8, vec![8]), (16, vec![8, 2]), (64, vec![8, 8])]
        {
            assert_eq!(of(&[("data", ranks)], "data").unwrap(), expected);
        }
        let error = of(&[("data", 12)], "data").unwrap_err().to_string();
        assert!(error.contains("12 ranks do not fill groups of 8, which NVLink joins"), "{error}");
        assert!(error.contains("use 8 or 16 ranks"), "{error}");
        // Neighbours share products; the ranks that share examples are apart.
        for (data, tensor, along) in [(8, 4, [[2, 4], [4, 1]]), (2, 16, [[1, 2], [8, 2]])] {
            let mesh = [("data", data), ("tensor", tensor)];
            let found = ["data", "tensor"].map(|over| of(&mesh, over).unwrap());
            assert_eq!(found, along);
        }
        let error = of(&[("data", 8), ("tensor", 6)], "data").unwrap_err().to_string();
        assert!(error.contains("6 neighbouring ranks, up to the axis `tensor`, do not"), "{error}");
    }

    #[test]
    fn hierarchical_exchanges_send_the_least_bytes() {
        use CollectiveKind::{AllGather, Sum, SumScatter};
        let way = Exchange::Hierarchical;
        // 8 ranks: 7/8 of 800 bytes in 7 exchanges, twice for a sum.
        let hops = way.hops(Sum, 800.0, &[8]);
        assert_eq!(hops, [Hop { bytes: 1400.0, exchanges: 14.0 }]);
        // 2 nodes of 4: 3/4 of 800, then half of the 200 that are left.
        let hops = way.hops(SumScatter, 800.0, &[4, 2]);
        assert_eq!(bytes(&hops), [600.0, 100.0]);
        assert_eq!(way.hops(AllGather, 800.0, &[4, 2]), hops);
        assert_eq!(bytes(&hops).iter().sum::<f64>(), 800.0 * 7.0 / 8.0);
        assert_eq!(way.hops(Sum, 800.0, &[1]), [Hop::default()]);
        assert_eq!(way.hops(CollectiveKind::AxisIndex, 4.0, &[8]), [Hop::default()]);
    }

    #[test]
    fn direct_exchanges_send_more_between_nodes() {
        use CollectiveKind::{AllToAll, Permute, Sum, SumScatter};
        // 2 nodes of 4: 3 parts of 100 bytes to neighbours, 4 to the other node.
        let hops = Exchange::Direct.hops(SumScatter, 800.0, &[4, 2]);
        assert_eq!(bytes(&hops), [300.0, 400.0]);
        assert_eq!(bytes(&Exchange::Direct.hops(Sum, 800.0, &[4, 2])), [600.0, 800.0]);
        for way in [Exchange::Direct, Exchange::Hierarchical] {
            assert_eq!(bytes(&way.hops(AllToAll, 800.0, &[4, 2])), [300.0, 400.0]);
            assert_eq!(bytes(&way.hops(Permute, 800.0, &[4, 2])), [0.0, 800.0]);
        }
    }

    #[test]
    fn the_time_is_that_of_the_faster_protocol() {
        let (machine, way) = (machine(), Exchange::Hierarchical);
        // Long: 1 + 600/100 + 3/4 + 100/10 + 2. Short: 1/2 + 600/25 + …, which is more.
        let hops = way.hops(CollectiveKind::SumScatter, 800.0, &[4, 2]);
        assert_eq!(way.seconds(&hops, &machine), 1.0 + 6.0 + 0.75 + 10.0 + 2.0);
        // Without bytes the short one: 1/2 + 3/8 + 1.
        let hops = way.hops(CollectiveKind::SumScatter, 0.0, &[4, 2]);
        assert_eq!(way.seconds(&hops, &machine), 0.5 + 0.375 + 1.0);
        // Direct exchanges use both links at once: 1 + max(300/100 + 1/4, 400/10 + 2).
        let way = Exchange::Direct;
        let hops = way.hops(CollectiveKind::SumScatter, 800.0, &[4, 2]);
        assert_eq!(way.seconds(&hops, &machine), 1.0 + 42.0);
        let none = way.hops(CollectiveKind::AxisIndex, 4.0, &[8]);
        assert_eq!(way.seconds(&none, &machine), 0.0);
    }
}
