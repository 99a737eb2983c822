//! Calls that only the CPU accepts.

use super::*;
use wengert_core::call::Window;
use wengert_testing::calls::convolution::{directions, same};

/// Taps at the greatest possible distances. Only the first tap meets an element.
#[test]
fn taps_beyond_everything() {
    let far = Window { rhs_dilation: 1 << 40, low: 0, ..same(30, 3, 1) };
    for window in [vec![far, same(6, 3, 1)], vec![same(6, 3, 1), far]] {
        for call in directions(1, 1, [16, 16], window, DType::F32) {
            Cpu::check(&call, &calls::operands(&call, 77)).unwrap();
        }
    }
}
