//! The order in which a phase of a team takes the steps of its loop.
//!
//! Phases of a long row read the same memory, and many rows are in work at once, so little of a row
//! is in the L2 cache when a phase has read it to its end. The next phase therefore begins there.

use super::phases::Mode;

/// The order of the steps of a loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    Forward,
    Backward,
}

impl Direction {
    pub fn opposite(self) -> Self {
        match self {
            Direction::Forward => Direction::Backward,
            Direction::Backward => Direction::Forward,
        }
    }
}

/// The order in which each phase takes the steps of its loop. A phase that may take them in any
/// order goes back where the phase before it ended: what that one read last is still in the cache.
pub(super) fn directions(modes: &[Mode]) -> Vec<Direction> {
    let mut directions = vec![Direction::Forward; modes.len()];
    let spreads = modes.iter().enumerate().filter_map(|(n, mode)| match mode {
        Mode::Spread(spread) => Some((n, spread.any_order)),
        _ => None,
    });
    let spreads: Vec<(usize, bool)> = spreads.collect();
    let anchor = spreads.iter().position(|(_, any_order)| !any_order).unwrap_or(0);
    for pair in spreads.get(anchor..).unwrap_or_default().windows(2) {
        if pair[1].1 {
            directions[pair[1].0] = directions[pair[0].0].opposite();
        }
    }
    for pair in spreads[..spreads.len().min(anchor + 1)].windows(2).rev() {
        directions[pair[0].0] = directions[pair[1].0].opposite();
    }
    directions
}

#[cfg(test)]
mod tests {
    use super::super::phases::mode;
    use super::super::team::Layout;
    use super::*;
    use wengert_core::nest::{parse_nests, verify};

    fn directions_of(phases: &str) -> Vec<Direction> {
        let text = format!(
            "nest @f(in %x: f32[9,50000], out %y: f32[9,50000]) {{ parallel i: 9 {phases} }}"
        );
        let nest = parse_nests("test", &text).unwrap().remove(0).0;
        verify(&nest).unwrap();
        let modes: Vec<Mode> =
            nest.phases.iter().map(|p| mode(&nest, Layout::team(512, 1), p, &[])).collect();
        directions(&modes)
    }

    #[test]
    fn phases_turn_back_where_their_order_is_free() {
        use Direction::{Backward, Forward};
        let max = "phase j: 50000 { %0: f32 = load %x[i, j] %1: f32 = reduce(%0) max tree(1024) } ";
        let sum = "phase j: 50000 { %2: f32 = load %x[i, j] %3: f32 = reduce(%2) sum tree(1024) } ";
        let again =
            "phase j: 50000 { %4: f32 = load %x[i, j] %5: f32 = reduce(%4) sum tree(1024) } ";
        let single = "phase { %6: f32 = const 1.0 } ";
        let copy = "phase j: 50000 { %7: f32 = load %x[i, j] store %y[i, j], %7 } ";
        let of = |phases: &[&str]| directions_of(&phases.concat());
        // A softmax: only the sum has an order. The phase between has no loop.
        assert_eq!(of(&[max, sum, single, copy]), [Backward, Forward, Forward, Backward]);
        assert_eq!(of(&[sum, copy]), [Forward, Backward]);
        assert_eq!(of(&[max, copy]), [Forward, Backward]);
        assert_eq!(of(&[sum, again, copy]), [Forward, Forward, Backward]);
    }
}
