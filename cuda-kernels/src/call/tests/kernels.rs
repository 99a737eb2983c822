//! The kernels that calls select, and the calls that are refused.

use super::*;
use wengert_core::call::Window;
use wengert_testing::calls::attention::grouped;
use wengert_testing::calls::convolution::{directions, same};
use wengert_testing::calls::scatter::{overlapping, rows};
use wengert_testing::calls::sort::{sort, top_k};

#[test]
fn of_long_sums() {
    let names: Vec<String> =
        calls::gemm::long().map(|gemm| kernels(&Call::Gemm(gemm)).join(" ")).collect();
    let wanted = [
        "gemm_f32_32 gemm_sum",
        "gemm_bf16_mma_64 gemm_sum",
        "gemm_f64_mma_64 gemm_sum",
        "gemm_i64_32 gemm_sum",
        "gemm_f32_few",
        "gemm_f64_few",
        "gemm_f32_dot",
        "gemm_f32_dot gemm_sum",
        "gemm_f64_dot",
        "gemm_f16_dot",
        "gemm_i64_dot",
        "gemm_u8_dot",
        "gemm_bf16_dot",
    ];
    assert_eq!(names, wanted);
}

#[test]
fn of_convolutions() {
    let names = |batch, groups, channels, extent, dtype| {
        let window = vec![same(extent, 3, 1), same(extent, 3, 1)];
        let all = directions(batch, groups, channels, window, dtype);
        all.iter().flat_map(kernels).collect::<Vec<_>>()
    };
    let split = names(4, 1, [4, 8], 14, DType::F32);
    let gradient = ["convolution_filter_gradient_f32_32", "convolution_filter_gradient_sum"];
    assert_eq!(split[2..], gradient);
    let halves = names(1, 1, [8, 16], 11, DType::F16);
    assert!(halves.iter().all(|name| name.contains("mma_64")), "{halves:?}");
    // Unrolled taps, and a filter's gradient that warps share.
    let depthwise = names(2, 24, [1, 1], 16, DType::F32);
    assert!(depthwise[..3].iter().all(|name| name.ends_with("_direct")), "{depthwise:?}");
}

/// Few queries to more than one range of keys are divided by keys; the batch does not matter.
#[test]
fn of_attentions() {
    let names = |extents, group, dtype, causal| {
        let kind = Kind { packed: false, causal, backward: false };
        kernels(&Call::Attention(grouped(attention(extents, kind, dtype), group))).join(" ")
    };
    let divided = "attention_decode_f32 attention_combine_f32";
    assert_eq!(names([1, 1, 8192, 2, 32], 4, DType::F32, false), divided);
    assert_eq!(names([900, 4, 129, 2, 32], 4, DType::F32, true), divided);
    assert_eq!(names([1, 1, 128, 2, 32], 4, DType::F32, false), "attention_f32");
    assert_eq!(names([1, 17, 8192, 2, 32], 1, DType::F32, false), "attention_f32");
    assert_eq!(names([1, 5, 8192, 2, 32], 4, DType::F32, false), "attention_f32");
    assert_eq!(
        names([1, 1, 33, 1, 128], 1, DType::F64, false),
        "attention_decode_f64 attention_combine_f64"
    );
    assert_eq!(names([1, 1, 64, 1, 128], 1, DType::BF16, false), "attention_bf16");
}

/// Windows that overlap in part are scanned.
#[test]
fn of_scatters() {
    let row = Call::Scatter(rows([70000, 4], 1, DType::F16));
    assert_eq!(kernels(&row), ["scatter_copy_f16", "scatter_add_direct_f16"]);
    let names = kernels(&Call::Scatter(rows([70000, 4], 2100, DType::F16)));
    let pass = ["sort_count", "sort_offsets", "sort_place"];
    assert_eq!(names[0..2], ["scatter_copy_f16", "scatter_keys_i32"]);
    assert_eq!(
        names[2..].join(" "),
        [pass, pass, pass].concat().join(" ") + " scatter_add_segments_f16"
    );
    assert_eq!(kernels(&Call::Scatter(overlapping(400, 300))), ["scatter_add_scan_f32"]);
}

#[test]
fn of_sorts() {
    let of =
        |call: &Call, prefix: &str| kernels(call).iter().filter(|n| n.starts_with(prefix)).count();
    let short = sort([7, 4096, 3], &[DType::F64, DType::I8], false);
    assert_eq!(kernels(&short), ["sort_rows_f64_i8"]);
    // Two words of 32 bits, one of 8 bits, and 3 · 2 rows: nine passes for the words, and one for
    // the rows.
    let long = sort([3, 4097, 2], &[DType::F64, DType::I8], true);
    assert_eq!(
        [of(&long, "sort_words"), of(&long, "sort_row_numbers"), of(&long, "sort_place")],
        [3, 1, 10]
    );
    // 25 pieces give 2500 candidates, which fit into one block.
    assert_eq!(kernels(&top_k(2, 100_000, 100, DType::F32)), ["sort_rows_f32_descending"; 2]);
    assert_eq!(kernels(&top_k(2, 1_000_000, 1000, DType::F32)).len(), 5);
    assert_eq!(of(&top_k(1, 5000, 1025, DType::F32), "sort_ranks"), 1);
    for nothing in [sort([0, 5, 1], &[DType::F32], false), top_k(4, 5, 0, DType::F32)] {
        assert!(kernels(&nothing).is_empty());
    }
}

#[test]
fn positions_beyond_counting_are_refused() {
    let window = Window { stride: 1 << 29, ..same(8, 3, 1) };
    let [forward, ..] = directions(1, 1, [1, 4], vec![window], DType::F32);
    assert!(refused(&forward, None).contains("the reach of a window"));
    let large = refused(&sort([1 << 20, 1 << 12, 1], &[DType::F32], false), None);
    assert!(large.contains("call `sort`") && large.contains("2^31"), "{large}");
}

#[test]
fn wide_heads_are_refused() {
    let kind = Kind { packed: false, causal: false, backward: false };
    for (width, dtype) in [(257, DType::F32), (257, DType::BF16), (129, DType::F64)] {
        let call = Call::Attention(attention([1, 4, 4, 1, width], kind, dtype));
        assert!(!crate::target::target(SM_90).claims(&call));
        assert!(refused(&call, None).contains("too wide"));
    }
}
