//! The target of NVIDIA GPUs: the shapes of reductions and rows, and the workspace that calls get.

use crate::architecture::Architecture;
use crate::call;
use wengert_core::target::{Approximations, Target, Workspace};

/// The target of an architecture, `sm_90` and the like. The numbers are the same for all
/// architectures, and so are the bits, except those of calls. Tensor cores multiply 8-bit floats
/// since sm_89.
///
/// 1024 lanes are a block of 256 threads with 16 bytes of f32 each. The 32 lanes of a column
/// are the warps of a block, and the lanes of a warp are 32 adjacent columns. Row storage
/// fits into the shared memory of every architecture, with room for a second block.
pub fn target(architecture: &str) -> Target {
    Target {
        name: architecture.into(),
        reduction_lanes: 1024,
        least_lanes: 1,
        column_lanes: 32,
        reduction_block: 1 << 16,
        busy_rows: 256,
        busy_columns: 16384,
        least_part: 1024,
        // 65,536 threads with eight each.
        wide_columns: 1 << 19,
        band_rows: 64,
        alignment: 256,
        // The widest access of a thread, and the alignment of a leading dimension for which
        // cuBLASLt has its fastest kernels.
        row_alignment: 16,
        row_storage: 44 << 10,
        row_bytes: 1 << 20,
        calls: call::claims(),
        half_attention: true,
        attention_out: true,
        // A block's four tiles of 16 such rows fit into the shared memory of every
        // architecture.
        attention_row: 1 << 10,
        addends: true,
        float8_products: Architecture::from_name(architecture)
            .is_ok_and(|architecture| architecture.multiplies_float8()),
        residual_first: true,
        followers: true,
        library_lead: library_lead(architecture),
        follower_traffic: 4,
        lays_out: false,
        rematerializes: true,
        shares_launches: true,
        overlaps_collectives: false,
        batch_invariant: false,
        approximations: Approximations::Available,
        workspace: Workspace::Promised(call::workspace),
    }
}

/// [`Target::library_lead`] of cuBLASLt.
///
/// Kernels like those of this crate (`mma.sync` or `wgmma`, tiles of one block) reach about 0.85 of
/// the library's speed. Published for halves, extents of 4096, on an A100: 191 TFLOP/s
/// (learn-cuda, 02b_matmul_sm80, version 4) of 220 (cuBLAS, in Triton's documentation of matrix
/// multiplication). A GPU makes about 150 operations in the time of a byte: an H200 has 990 TFLOP/s
/// and 4.8 TB/s, of which products reach 0.7 and streams 0.9. So the lead is
/// 2²¹ / 150 · (1 / 0.85 − 1) bytes, rounded. No kernel of this crate was measured for it;
/// `--autotune` measures each product.
///
/// On sm_100 the library's products use instructions (`tcgen05`) that this crate's do not have, so
/// they are always the library's.
fn library_lead(architecture: &str) -> u32 {
    match architecture {
        "sm_100" => 1 << 20,
        _ => 2500,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert_core::DType;
    use wengert_core::call::Call;

    #[test]
    fn attention_is_claimed_of_what_there_are_kernels_for() {
        let attention = |width, dtype| {
            Call::Attention(wengert_core::call::Attention {
                batch: 1,
                queries: 3,
                keys: 4,
                heads: 2,
                group: 1,
                width,
                packed: false,
                bias: vec![],
                prefix: false,
                causal: true,
                backward: false,
                out_given: false,
                scale: wengert_core::Scalar::of(1.0),
                dtype,
            })
        };
        let (cpu, cuda) = (Target::cpu(), target("sm_80"));
        for (width, dtype, claimed) in [
            (256, DType::F32, [true, true]),
            (257, DType::F32, [true, false]),
            (128, DType::F64, [true, true]),
            (129, DType::F64, [true, false]),
            (256, DType::F16, [true, true]),
            (257, DType::BF16, [true, false]),
        ] {
            let call = attention(width, dtype);
            assert_eq!([cpu.claims(&call), cuda.claims(&call)], claimed, "{width} {dtype}");
        }
        let of_floats = Target { half_attention: false, ..cpu.clone() };
        assert!(of_floats.claims(&attention(1, DType::F32)));
        assert!(!of_floats.claims(&attention(1, DType::BF16)));
        let none = Target { calls: vec![], ..cpu };
        assert!(!none.claims(&attention(1, DType::F32)));
    }

    #[test]
    fn trees_and_parts_depend_on_shape_and_target() {
        let (cpu, cuda) = (Target::cpu(), target("sm_80"));
        let tree = |target: &Target, extents: &[usize], axes: &[usize]| {
            let tree = target.reduction_tree(DType::F32, extents, axes);
            (tree.lanes, tree.block)
        };
        // A row, a short row, a column, everything.
        assert_eq!(tree(&cpu, &[64, 768], &[1]), (16, 0));
        assert_eq!(tree(&cuda, &[64, 768], &[1]), (1024, 0));
        assert_eq!(tree(&cpu, &[64, 10], &[1]), (16, 0));
        assert_eq!(tree(&cuda, &[64, 10], &[1]), (16, 0));
        assert_eq!(tree(&cuda, &[64, 1], &[1]), (1, 0));
        assert_eq!(tree(&cpu, &[64, 768], &[0]), (1, 0));
        assert_eq!(tree(&cuda, &[64, 768], &[0]), (32, 0));
        assert_eq!(tree(&cpu, &[64, 768], &[0, 1]), (16, 4096));
        assert_eq!(tree(&cuda, &[640, 768], &[0, 1]), (1024, 65536));
        assert_eq!(tree(&cuda, &[0, 768], &[0]), (1, 0));
        let parts = |target: &Target, extents: &[usize], axes: &[usize], results, count| {
            target.reduction_parts(extents, axes, results, count)
        };
        assert_eq!(parts(&cpu, &[1 << 24], &[0], 1, 1 << 24), 4096);
        assert_eq!(parts(&cuda, &[1 << 24], &[0], 1, 1 << 24), 256);
        assert_eq!(parts(&cuda, &[1 << 26], &[0], 1, 1 << 26), 1024);
        assert_eq!(parts(&cpu, &[8192, 768], &[0], 768, 8192), 1);
        assert_eq!(parts(&cuda, &[8192, 768], &[0], 768, 8192), 8);
        assert_eq!(parts(&cuda, &[8192, 768], &[1], 8192, 768), 1);
        // Wide, and long enough to become wide in parts; not if rows must keep their bits.
        assert_eq!(tree(&cuda, &[256, 128, 3072], &[1]), (1, 0));
        assert_eq!(parts(&cuda, &[256, 128, 3072], &[1], 786_432, 128), 1);
        assert_eq!(parts(&cuda, &[32768, 3072], &[0], 3072, 32768), 171);
        // Bands of 64 rows of 128 to 1024 columns, if there are enough of them.
        assert_eq!(parts(&cuda, &[32768, 768], &[0], 768, 32768), 512);
        assert_eq!(tree(&cuda, &[512, 64, 768], &[1]), (4, 0));
        assert_eq!(tree(&cuda, &[255, 64, 768], &[1]), (32, 0));
        assert_eq!(parts(&cuda, &[32768, 120], &[0], 120, 32768), 32);
        assert_eq!(parts(&cuda, &[32770, 768], &[0], 768, 32770), 22);
        let invariant = cuda.with_batch_invariance();
        assert_eq!(tree(&invariant, &[256, 128, 3072], &[1]), (32, 0));
        assert_eq!(parts(&invariant, &[32768, 3072], &[0], 3072, 32768), 1);
    }

    #[test]
    fn workspace_is_bounded() {
        let gemm = |m| {
            let matrix = |row| wengert_core::call::Matrix { batch: 0, row, column: 1 };
            Call::Gemm(wengert_core::call::Gemm {
                batch: 1,
                m,
                n: 16,
                k: 8,
                lhs: matrix(8),
                rhs: matrix(16),
                operand: DType::F32,
                rhs_operand: None,
                scales: None,
                accumulate: DType::F32,
                result: DType::F32,
                addends: Default::default(),
                pitch: None,
            })
        };
        assert_eq!(Target::cpu().workspace(&gemm(8)), 0);
        assert_eq!(target("sm_90").workspace(&gemm(8)), 8 * 16 * 32);
        assert_eq!(target("sm_90").workspace(&gemm(1 << 20)), 32 << 20);
        // 8 ranges of 128 keys, 4 of 64; rows of 36 and of 128 numbers, and pairs.
        let attention = |queries, keys, width, dtype| {
            let call = wengert_core::call::Attention {
                batch: 3,
                queries,
                keys,
                heads: 4,
                group: 2,
                width,
                packed: false,
                bias: vec![],
                prefix: true,
                causal: true,
                backward: false,
                out_given: false,
                scale: wengert_core::Scalar::of(1.0),
                dtype,
            };
            target("sm_90").workspace(&Call::Attention(call))
        };
        let rows = 3 * 4 * 2;
        assert_eq!(attention(2, 1000, 33, DType::BF16), rows * 8 * (36 + 2) * 4);
        assert_eq!(attention(2, 250, 128, DType::F16), rows * 4 * (128 + 2) * 4);
        assert_eq!([attention(9, 1000, 33, DType::F32), attention(2, 64, 33, DType::F32)], [0, 0]);
        let sort = |length, keys: &[DType]| {
            let call = wengert_core::call::Sort {
                outer: 3,
                length,
                inner: 2,
                keys: keys.to_vec(),
                descending: false,
            };
            target("sm_90").workspace(&Call::Sort(call))
        };
        assert_eq!(sort(4096, &[DType::F64; 3]), 0);
        assert_eq!(sort(5000, &[DType::F32, DType::Bool]), 6 * 5000 * 17 + 4096);
        let top = |length, k| {
            let call = wengert_core::call::TopK { outer: 3, length, k, dtype: DType::F32 };
            target("sm_90").workspace(&Call::TopK(call))
        };
        assert_eq!([top(4096, 10), top(4096, 4096)], [0, 0]);
        assert_eq!(top(5000, 10), 3 * 2 * 10 * 8 + 1024);
        assert_eq!(top(5000, 1025), 3 * 5000 * 17 + 4096);
        assert_eq!(top(i32::MAX as usize, i32::MAX as usize), 3 * ((1 << 31) - 1) * 17 + 4096);
    }
}
