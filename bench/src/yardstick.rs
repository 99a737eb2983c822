//! Measures the speed of the machine during other measurements.
//!
//! The floor of a network combines the rates of a product and a copy, measured in their own groups
//! minutes earlier. The speed of a shared machine varies by a quarter or more in between, so the
//! ratio of a network's time to that floor is unreliable. A group of networks therefore has two
//! more entrants, a product and a copy by this library in a separate process. Their times measure
//! the machine's speed in each round, and the [floor](crate::floor) is computed per round.
//!
//! Bandwidth-bound cases name their reference. If it is in another group, it is their yardstick.

use crate::case::{Case, Chain, Kind};
use crate::record::Measurement;

/// The name of the contender that measures the machine.
pub(crate) const YARDSTICK: &str = "yardstick";

/// Extent of the measured square product: large enough for the best rate, small enough to take
/// ten milliseconds.
const EXTENT: usize = 1024;

/// The cases that measure the machine's speed for a group, from the catalogue, with the group's
/// name. Empty for groups without networks whose references are among them.
pub(crate) fn yardsticks(group: &[&Case], catalogue: &[Case]) -> Vec<Case> {
    if let Some((case, reference)) =
        group.iter().find_map(|case| Some((case, case.reference.as_ref()?)))
    {
        let is_beside = |other: &&Case| {
            other.id == *reference && !group.iter().any(|of_group| of_group.id == other.id)
        };
        let beside = catalogue.iter().find(is_beside);
        return beside
            .map(|other| Case { group: case.group.clone(), ..other.clone() })
            .into_iter()
            .collect();
    }
    let Some(network) = group.iter().find(|case| is_network(case)) else { return Vec::new() };
    let product = |case: &&Case| match case.kind {
        Kind::Gemm { extent, .. } => {
            case.dtype.dtype() == network.dtype.of_products() && extent <= EXTENT
        }
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

/// Whether a figure measures the machine and not a contender.
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
            let of_group: Vec<&Case> =
                all.iter().filter(|case| case.group.starts_with(group)).collect();
            assert!(!of_group.is_empty(), "{group}");
            yardsticks(&of_group, &all)
                .into_iter()
                .map(|case| (case.id, case.group))
                .collect::<Vec<_>>()
        };
        let beside = |group: &str| {
            ["gemm f32 1024", "copy f32 16M"]
                .map(|case| (case.to_owned(), group.to_owned()))
                .to_vec()
        };
        assert_eq!(of("C3"), beside("C3 GPT"));
        assert_eq!(of("C5 LSTM"), beside("C5 LSTM"));
        let of_halves = of("C15 GPT-2");
        assert_eq!(of_halves[0], ("gemm bf16 1024".to_owned(), "C15 GPT-2".to_owned()));
        assert_eq!((of("C1"), of("C2"), of("C10")), (vec![], vec![], vec![]));
        assert!(!of("C6").is_empty());
        let reading = |group: &str| vec![("sum f32 64M".to_owned(), group.to_owned())];
        for group in ["C12 decoding f32", "C12 decoding, large", "C12 products of bf16"] {
            assert_eq!(of(group), reading(group));
        }
        assert_eq!(of("C12 reading"), vec![]);
    }
}
