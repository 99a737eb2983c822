//! Calls that only the CPU refuses, or only the CPU accepts.

use super::*;
use wengert_core::call::Window;
use wengert_testing::calls::attention::{Kind, attention};
use wengert_testing::calls::convolution::{directions, same};

/// The target does not claim attentions of halves. A plan that contains one gets an error.
#[test]
fn attentions_of_halves_are_refused() {
    for dtype in [DType::F16, DType::BF16] {
        let kind = Kind { packed: true, causal: true, backward: false };
        let call = Call::Attention(attention([1, 2, 2, 1, 4], kind, dtype));
        let error = CompiledCall::new(&call).unwrap_err().to_string();
        assert!(error.contains("call `attention`: there is no attention of halves"), "{error}");
    }
}

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
