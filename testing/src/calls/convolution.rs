//! Convolutions.

use super::{DTYPES, Device, check, check_random, operands};
use proptest::prelude::*;
use wengert_core::DType;
use wengert_core::call::{Call, Convolution, Direction, Window};

/// A window that keeps the extent, divided by the stride.
pub fn same(extent: usize, filter: usize, stride: usize) -> Window {
    let output = extent.div_ceil(stride);
    let low = (filter / 2) as i64;
    Window { input: extent, filter, output, stride, low, lhs_dilation: 1, rhs_dilation: 1 }
}

/// The calls of all directions.
pub fn directions(
    batch: usize,
    groups: usize,
    [input_channels, output_channels]: [usize; 2],
    window: Vec<Window>,
    dtype: DType,
) -> [Call; 3] {
    Direction::ALL.map(|direction| {
        let window = window.clone();
        Call::Convolution(Convolution {
            direction,
            batch,
            groups,
            input_channels,
            output_channels,
            window,
            dtype,
            wide: false,
        })
    })
}

/// The call of a convolution of halves, with a result in the dtype of the sums.
pub fn wide(call: &Call) -> Call {
    match call {
        Call::Convolution(of) => Call::Convolution(Convolution { wide: true, ..of.clone() }),
        _ => unreachable!("a convolution"),
    }
}

/// Checks [`directions`].
fn check_all<D: Device>(
    batch: usize,
    groups: usize,
    channels: [usize; 2],
    window: Vec<Window>,
    dtype: DType,
) {
    for call in directions(batch, groups, channels, window, dtype) {
        check::<D>(&call, || operands(&call, 77));
        if dtype.is_half() {
            check::<D>(&wide(&call), || operands(&call, 77));
        }
    }
}

/// A dtype, and whether the result of halves is wide.
fn dtypes() -> impl Strategy<Value = (DType, bool)> {
    (prop::sample::select(&DTYPES[..]), any::<bool>())
        .prop_map(|(dtype, is_wide)| (dtype, is_wide && dtype.is_half()))
}

fn windows(most: usize) -> impl Strategy<Value = Window> {
    (0usize..=most, 1usize..4, 0usize..=most, 1usize..4, -3i64..4, 1usize..4, 1usize..3).prop_map(
        |(input, filter, output, stride, low, lhs_dilation, rhs_dilation)| Window {
            input,
            filter,
            output,
            stride,
            low,
            lhs_dilation,
            rhs_dilation,
        },
    )
}

/// Random windows in one to three dimensions.
pub fn small_convolutions<D: Device>() {
    let window = prop_oneof![
        prop::collection::vec(windows(9), 1..2),
        prop::collection::vec(windows(6), 2..3),
        prop::collection::vec(windows(4), 3..4),
    ];
    let channels = [0usize..5, 0usize..5];
    let calls = (0usize..3, 0usize..3, 1usize..4, channels, window, dtypes()).prop_map(
        |(direction, batch, groups, channels, window, (dtype, is_wide))| {
            let call = directions(batch, groups, channels, window, dtype)[direction].clone();
            if is_wide { wide(&call) } else { call }
        },
    );
    check_random::<D>(300, calls, operands);
}

/// Images that a kernel for CPUs reads without packing them: they have enough positions, and a
/// vector of channels at each.
pub fn images_in_place<D: Device>() {
    let axis = (1usize..24, 1usize..4, 8usize..20, 1usize..3, -3i64..4, 1usize..3);
    let axis = axis.prop_map(|(input, filter, output, stride, low, rhs_dilation)| Window {
        input,
        filter,
        output,
        stride,
        low,
        lhs_dilation: 1,
        rhs_dilation,
    });
    // The kernel reads the input's cotangent without packing only if the stride is 1.
    let channels = prop_oneof![Just(8usize), Just(16), Just(24), Just(32), Just(48), 1usize..5];
    let few = prop_oneof![Just(16usize), Just(48), 1usize..5];
    let window = prop::collection::vec(axis, 1..3);
    let sizes = (0usize..4, 1usize..3, few, channels);
    let calls = (0usize..3, sizes, window, any::<bool>(), dtypes()).prop_map(
        |(direction, (batch, groups, input, output), mut window, unit, (dtype, is_wide))| {
            let backward = Direction::ALL[direction] == Direction::InputGradient;
            for w in &mut window {
                w.stride = if unit || backward { 1 } else { w.stride };
                w.input = if backward { w.output } else { w.input };
            }
            if window.len() == 1 {
                window[0].output *= 3;
                window[0].input = 40;
            }
            let channels = [input, output];
            let call = directions(batch, groups, channels, window, dtype)[direction].clone();
            if is_wide { wide(&call) } else { call }
        },
    );
    check_random::<D>(300, calls, operands);
}

/// Several tiles, and several ranges of positions; channels as vectors and as single elements.
pub fn images<D: Device>() {
    let image = |extent, stride| vec![same(extent, 3, stride), same(extent, 3, stride)];
    check_all::<D>(8, 1, [1, 16], image(28, 1), DType::F32);
    check_all::<D>(4, 1, [16, 24], image(28, 2), DType::F32);
    check_all::<D>(2, 1, [32, 48], image(28, 1), DType::F32);
    check_all::<D>(2, 2, [16, 16], image(28, 1), DType::BF16);
    check_all::<D>(1, 1, [64, 16], vec![same(30, 5, 1), same(21, 3, 1)], DType::F32);
    check_all::<D>(4, 1, [3, 10], image(28, 1), DType::BF16);
    check_all::<D>(4, 1, [5, 7], image(28, 2), DType::I32);
    check_all::<D>(2, 1, [1, 16], image(13, 1), DType::F32);
    check_all::<D>(1, 1, [16, 24], image(12, 2), DType::F32);
    check_all::<D>(2, 1, [3, 10], image(9, 1), DType::BF16);
    check_all::<D>(2, 1, [5, 7], image(9, 2), DType::I32);
    check_all::<D>(1, 2, [4, 8], image(9, 1), DType::F64);
    check_all::<D>(4, 1, [4, 8], image(14, 1), DType::F32);
    check_all::<D>(1, 1, [8, 16], image(11, 1), DType::F16);
}

/// Patches that equal the source: a plain product.
pub fn pointwise<D: Device>() {
    let window = |extent| vec![same(extent, 1, 1), same(extent, 1, 1)];
    check_all::<D>(9, 1, [40, 24], window(12), DType::F32);
    check_all::<D>(3, 2, [10, 24], window(12), DType::F64);
    check_all::<D>(3, 1, [17, 5], window(12), DType::F16);
    check_all::<D>(2, 1, [40, 24], window(7), DType::F32);
    // Groups whose columns are a few vectors and a part of one.
    check_all::<D>(1, 4, [34, 34], window(9), DType::F32);
    check_all::<D>(1, 2, [21, 67], window(8), DType::F64);
}

/// Groups with one or two channels each.
pub fn depthwise<D: Device>() {
    check_all::<D>(2, 24, [1, 1], vec![same(16, 3, 1), same(16, 3, 1)], DType::F32);
    check_all::<D>(2, 8, [1, 2], vec![same(64, 5, 2)], DType::F32);
    check_all::<D>(4, 5, [1, 1], vec![same(90, 7, 1), same(80, 7, 1)], DType::F32);
    check_all::<D>(2, 40, [1, 1], vec![same(30, 5, 2), same(21, 3, 1)], DType::F64);
    check_all::<D>(2, 8, [1, 2], vec![same(33, 5, 2)], DType::F32);
    check_all::<D>(1, 9, [1, 1], vec![same(20, 9, 1), same(7, 9, 2)], DType::BF16);
}

/// One channel in each group, in dtypes and numbers of groups for which a kernel for CPUs computes
/// all channels of a position together. Random windows in one to three dimensions.
pub fn depthwise_windows<D: Device>() {
    let window = prop_oneof![
        prop::collection::vec(windows(40), 1..2),
        prop::collection::vec(windows(9), 2..3),
        prop::collection::vec(windows(4), 3..4),
    ];
    let dtype = prop::sample::select(vec![DType::F32, DType::F64]);
    let calls = (0usize..3, 0usize..3, 1usize..90, window, dtype).prop_map(
        |(direction, batch, groups, window, dtype)| {
            directions(batch, groups, [1, 1], window, dtype)[direction].clone()
        },
    );
    check_random::<D>(300, calls, operands);
}

/// More taps and channels than a kernel handles at a time.
pub fn many_channels<D: Device>() {
    check_all::<D>(1, 1, [150, 20], vec![same(9, 3, 1), same(9, 3, 1)], DType::F32);
    check_all::<D>(1, 1, [20, 150], vec![same(40, 7, 1)], DType::BF16);
    check_all::<D>(1, 1, [70, 20], vec![same(5, 3, 1), same(5, 3, 1)], DType::F32);
    check_all::<D>(1, 1, [20, 72], vec![same(20, 7, 1)], DType::BF16);
}
