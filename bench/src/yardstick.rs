//! How fast the machine is while something else is measured.
//!
//! The floor of a network is made of rates that a product and a copy reached in groups of their own, minutes before. A machine that others share is not as
//! fast now as it was then, by a quarter or more, so that one figure divided by the other says little. A group of networks
//! has therefore two entrants more, a product and a copy by this library in a process of its own: what they take in a round tells how fast the machine is in
//! it, and the [floor](crate::floor) is that of the round.

use crate::case::{Case, Chain, Kind};
use crate::record::Measurement;

/// The name of who measures the machine.
pub(crate) const YARDSTICK: &str = "yardstick";

/// Extent of the square product that is measured: large enough to reach the best rate, small enough to take ten milliseconds.
const EXTENT: usize = 1024;

/// The cases that tell how fast the machine is for those of a group: of the catalogue, under the name of the group. None for groups that are no networks.
pub(crate) fn yardsticks(group: &[&Case], catalogue: &[Case]) -> Vec<Case> {
    let Some(network) = group.iter().find(|case| is_network(case)) else { return Vec::new() };
    let product = |case: &&Case| match case.kind {
        Kind::Gemm { extent, .. } if case.dtype == network.dtype => extent <= EXTENT,
        _ => false,
    };
    let copy = |case: &&Case| matches!(case.kind, Kind::Chain { chain: Chain::Copy, .. });
    let largest = |wanted: &dyn Fn(&&Case) -> bool| {
        catalogue.iter().filter(wanted).max_by_key(|case| case.work.elements)
    };
    let group = &network.group;
    let of_group = |case: &Case| Case { group: group.clone(), ..case.clone() };
    [largest(&product), largest(&copy)].into_iter().flatten().map(of_group).collect()
}

/// Whether a case is neither a product nor a chain alone.
fn is_network(case: &Case) -> bool {
    matches!(
        case.kind,
        Kind::Training { .. }
            | Kind::Recurrent { .. }
            | Kind::Transformer { .. }
            | Kind::Convolutional { .. }
            | Kind::Inference { .. }
    )
}

/// Whether a figure says how fast the machine was, and nothing about a contender.
pub(crate) fn is_yardstick(m: &Measurement) -> bool {
    m.contender == YARDSTICK
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::catalogue_of_cpu;

    #[test]
    fn networks_have_a_product_and_a_copy_beside_them() {
        let all = catalogue_of_cpu(false);
        let of = |group: &str| {
            let of_group: Vec<&Case> = all.iter().filter(|case| case.group.starts_with(group)).collect();
            assert!(!of_group.is_empty(), "{group}");
            yardsticks(&of_group, &all).into_iter().map(|case| (case.id, case.group)).collect::<Vec<_>>()
        };
        let beside = |group: &str| {
            ["gemm f32 1024", "copy f32 16M"].map(|case| (case.to_owned(), group.to_owned())).to_vec()
        };
        assert_eq!(of("C3"), beside("C3 GPT"));
        assert_eq!(of("C5 LSTM"), beside("C5 LSTM"));
        assert_eq!((of("C1"), of("C2"), of("C10")), (vec![], vec![], vec![]));
        assert!(!of("C6").is_empty());
    }
}
