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

fn operands(call: &Call, seed: u64) -> Vec<Literal> {
    let types = call.operands().into_iter().enumerate();
    types
        .map(|(k, ty)| numbers(ty.dtype, &ty.extents().unwrap(), seed ^ (k as u64) << 50))
        .collect()
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

/// Images that the kernel reads without packing them: they have enough positions, and a vector of
/// channels at each.
fn lying() -> impl Strategy<Value = Call> {
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
    let channels = prop_oneof![Just(8usize), Just(16), Just(32), Just(48), 1usize..5];
    let few = prop_oneof![Just(16usize), Just(48), 1usize..5];
    let window = prop::collection::vec(axis, 1..3);
    (0usize..3, 0usize..4, 1usize..3, channels, few, window, any::<bool>(), 0usize..DTYPES.len())
        .prop_map(
            |(
                direction,
                batch,
                groups,
                output_channels,
                input_channels,
                mut window,
                unit,
                dtype,
            )| {
                let direction = Direction::ALL[direction];
                window.iter_mut().for_each(|w| {
                    w.stride =
                        if unit || direction == Direction::InputGradient { 1 } else { w.stride };
                    w.input =
                        if direction == Direction::InputGradient { w.output } else { w.input };
                });
                if window.len() == 1 {
                    window[0].output *= 3;
                    window[0].input = 40;
                }
                Call::Convolution(Convolution {
                    direction,
                    batch,
                    groups,
                    input_channels,
                    output_channels,
                    window,
                    dtype: DTYPES[dtype],
                })
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn lying_images(call in lying(), seed: u64) {
        check(&call, &operands(&call, seed))?;
    }

    #[test]
    fn small_convolutions(call in small(), seed: u64) {
        check(&call, &operands(&call, seed))?;
    }
}

fn same(extent: usize, filter: usize, stride: usize) -> Window {
    let output = extent.div_ceil(stride);
    Window {
        input: extent,
        filter,
        output,
        stride,
        low: (filter / 2) as i64,
        lhs_dilation: 1,
        rhs_dilation: 1,
    }
}

fn all_directions(
    batch: usize,
    groups: usize,
    channels: [usize; 2],
    window: Vec<Window>,
    dtype: DType,
) {
    for direction in Direction::ALL {
        let call = Call::Convolution(Convolution {
            direction,
            batch,
            groups,
            input_channels: channels[0],
            output_channels: channels[1],
            window: window.clone(),
            dtype,
        });
        check(&call, &operands(&call, 77)).unwrap();
    }
}

/// Several tiles, and several ranges of positions.
#[test]
fn images() {
    let image = |stride| vec![same(28, 3, stride), same(28, 3, stride)];
    all_directions(8, 1, [1, 16], image(1), DType::F32);
    all_directions(4, 1, [16, 24], image(2), DType::F32);
    all_directions(2, 1, [32, 48], image(1), DType::F32);
    all_directions(2, 2, [16, 16], image(1), DType::BF16);
    all_directions(1, 1, [64, 16], vec![same(30, 5, 1), same(21, 3, 1)], DType::F32);
    all_directions(4, 1, [3, 10], image(1), DType::BF16);
    all_directions(4, 1, [5, 7], image(2), DType::I32);
}

/// Taps at the greatest possible distances. Only the first tap meets an element.
#[test]
fn taps_beyond_everything() {
    let far = Window { rhs_dilation: 1 << 40, low: 0, ..same(30, 3, 1) };
    all_directions(1, 1, [16, 16], vec![far, same(6, 3, 1)], DType::F32);
    all_directions(1, 1, [16, 16], vec![same(6, 3, 1), far], DType::F32);
}

/// Patches that equal the source.
#[test]
fn pointwise() {
    let window = vec![same(12, 1, 1), same(12, 1, 1)];
    all_directions(9, 1, [40, 24], window.clone(), DType::F32);
    all_directions(3, 2, [10, 24], window.clone(), DType::F64);
    all_directions(3, 1, [17, 5], window, DType::F16);
}

/// Groups with one channel each.
#[test]
fn depthwise() {
    all_directions(2, 24, [1, 1], vec![same(16, 3, 1), same(16, 3, 1)], DType::F32);
    all_directions(2, 8, [1, 2], vec![same(64, 5, 2)], DType::F32);
}

/// More columns than the kernel builds at a time.
#[test]
fn many_channels() {
    all_directions(1, 1, [150, 20], vec![same(9, 3, 1), same(9, 3, 1)], DType::F32);
    all_directions(1, 1, [20, 150], vec![same(40, 7, 1)], DType::BF16);
}

/// The sum over positions is split into several ranges. The bits do not depend on the number of
/// threads.
#[test]
fn threads_do_not_matter() {
    for direction in Direction::ALL {
        let call = Call::Convolution(Convolution {
            direction,
            batch: 32,
            groups: 1,
            input_channels: 8,
            output_channels: 32,
            window: vec![same(28, 3, 1), same(28, 3, 1)],
            dtype: DType::F32,
        });
        let operands = operands(&call, 3);
        let simd = Simd::choose().unwrap();
        let one = run(&call, &operands, &POOLS[0], simd, None);
        for pool in &POOLS[1..] {
            assert!(
                run(&call, &operands, pool, simd, None).to_bytes() == one.to_bytes(),
                "{direction:?}"
            );
        }
    }
}
