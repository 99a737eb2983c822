//! Convolutions.

use super::*;
use wengert_core::call::{Convolution, Direction, Window};

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

fn small() -> impl Strategy<Value = Call> {
    let window = prop_oneof![
        prop::collection::vec(windows(9), 1..2),
        prop::collection::vec(windows(6), 2..3),
        prop::collection::vec(windows(4), 3..4),
    ];
    (0usize..3, 0usize..3, 1usize..4, [0usize..5, 0usize..5], window, 0usize..DTYPES.len())
        .prop_map(|(direction, batch, groups, [input_channels, output_channels], window, dtype)| {
            Call::Convolution(Convolution {
                direction: Direction::ALL[direction],
                batch,
                groups,
                input_channels,
                output_channels,
                window,
                dtype: DTYPES[dtype],
            })
        })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn small_convolutions(call in small(), seed: u64) {
        check(&call, &operands(&call, seed))?;
    }
}

fn same(extent: usize, filter: usize, stride: usize) -> Window {
    let output = extent.div_ceil(stride);
    let low = (filter / 2) as i64;
    Window { input: extent, filter, output, stride, low, lhs_dilation: 1, rhs_dilation: 1 }
}

/// In all directions, with the names of the kernels.
fn check_all(
    batch: usize,
    groups: usize,
    channels: [usize; 2],
    window: Vec<Window>,
    dtype: DType,
) -> Vec<String> {
    let call = |direction| {
        Call::Convolution(Convolution {
            direction,
            batch,
            groups,
            input_channels: channels[0],
            output_channels: channels[1],
            window: window.clone(),
            dtype,
        })
    };
    let calls = Direction::ALL.map(call);
    calls.iter().for_each(|call| check(call, &operands(call, 77)).unwrap());
    calls.iter().flat_map(kernels).collect()
}

/// Channels as vectors and as single elements, strides, and sums over so many positions that they
/// are split.
#[test]
fn images() {
    let image = |extent, stride| vec![same(extent, 3, stride), same(extent, 3, stride)];
    check_all(2, 1, [1, 16], image(13, 1), DType::F32);
    check_all(1, 1, [16, 24], image(12, 2), DType::F32);
    check_all(2, 1, [3, 10], image(9, 1), DType::BF16);
    check_all(2, 1, [5, 7], image(9, 2), DType::I32);
    check_all(1, 2, [4, 8], image(9, 1), DType::F64);
    let split = check_all(4, 1, [4, 8], image(14, 1), DType::F32);
    assert_eq!(
        split[2..],
        ["convolution_filter_gradient_f32_32", "convolution_filter_gradient_sum"]
    );
    let halves = check_all(1, 1, [8, 16], image(11, 1), DType::F16);
    assert!(halves.iter().all(|name| name.contains("mma_64")), "{halves:?}");
}

/// Patches that equal the source: a plain product.
#[test]
fn pointwise() {
    let window = vec![same(7, 1, 1), same(7, 1, 1)];
    check_all(2, 1, [40, 24], window.clone(), DType::F32);
    check_all(2, 2, [10, 24], window.clone(), DType::F64);
    check_all(1, 1, [17, 5], window, DType::F16);
}

/// One or two channels a group: unrolled taps, and a filter's gradient that warps share.
#[test]
fn depthwise() {
    let names = check_all(2, 24, [1, 1], vec![same(16, 3, 1), same(16, 3, 1)], DType::F32);
    assert!(names[..3].iter().all(|name| name.ends_with("_direct")), "{names:?}");
    check_all(2, 8, [1, 2], vec![same(33, 5, 2)], DType::F32);
    check_all(1, 9, [1, 1], vec![same(20, 9, 1), same(7, 9, 2)], DType::BF16);
}

/// More taps and channels than a step or a tile has.
#[test]
fn many_channels() {
    check_all(1, 1, [70, 20], vec![same(5, 3, 1), same(5, 3, 1)], DType::F32);
    check_all(1, 1, [20, 72], vec![same(20, 7, 1)], DType::BF16);
}

#[test]
fn positions_beyond_counting_are_refused() {
    let window = Window { stride: 1 << 29, ..same(8, 3, 1) };
    let call = Call::Convolution(Convolution {
        direction: Direction::Forward,
        batch: 1,
        groups: 1,
        input_channels: 1,
        output_channels: 4,
        window: vec![window],
        dtype: DType::F32,
    });
    let error = compile(&call, architecture(SM_90), None).unwrap_err().to_string();
    assert!(error.contains("the reach of a window"), "{error}");
}
