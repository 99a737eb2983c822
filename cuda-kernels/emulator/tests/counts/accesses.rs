//! Sectors, wavefronts and bytes of requests, by hand.

use crate::kernel::{Run, case};
use wengert_emulator::count::{AtomicAccess, GlobalAccess, LocalAccess, SharedAccess};

/// The lane's address is `base + stride · lane + offset`.
fn strided(base: &str, stride: u32, code: &str) -> Run {
    let body = format!(
        "    mul.wide.u32 %d1, %t, {stride};\n    mov.u64 %d0, {base};\n    \
         add.u64 %d1, %d0, %d1;\n    cvt.u32.u64 %w1, %d1;\n    \
         setp.lt.u32 %p1, %t, 8;\n    // here\n    {code}"
    );
    case(body).run()
}

/// The counts of the only instruction of `code`.
fn global(stride: u32, code: &str) -> GlobalAccess {
    strided("%x", stride, code).line(code).global
}

#[test]
fn sectors_of_global_requests() {
    let sectors: [(u32, &str, u64, u64); 17] = [
        // One element a lane, side by side.
        (4, "ld.global.f32 %w2, [%d1];", 4, 128),
        (2, "ld.global.u16 %h2, [%d1];", 2, 64),
        (1, "ld.global.u8 %w2, [%d1];", 1, 32),
        (8, "ld.global.f64 %d2, [%d1];", 8, 256),
        (16, "ld.global.v4.f32 {%w2, %w3, %w4, %w5}, [%d1];", 16, 512),
        (16, "ld.global.v2.f64 {%d2, %d3}, [%d1];", 16, 512),
        // Misaligned by one element.
        (4, "ld.global.f32 %w2, [%d1+4];", 5, 128),
        // Both half-warps touch the sector between them.
        (8, "ld.global.f64 %d2, [%d1+8];", 10, 256),
        // Strides of 2, 8 and 32 elements.
        (8, "ld.global.f32 %w2, [%d1];", 8, 128),
        (32, "ld.global.f32 %w2, [%d1];", 32, 128),
        (128, "ld.global.f32 %w2, [%d1];", 32, 128),
        // All lanes the same: once for each half-warp or quarter-warp.
        (0, "ld.global.f32 %w2, [%d1];", 1, 128),
        (0, "ld.global.f64 %d2, [%d1];", 2, 256),
        (0, "ld.global.v4.f32 {%w2, %w3, %w4, %w5}, [%d1];", 4, 512),
        // Eight lanes.
        (4, "@%p1 ld.global.f32 %w2, [%d1];", 1, 32),
        // Stores.
        (4, "st.global.f32 [%d1], %w9;", 4, 128),
        (128, "st.global.v2.f32 [%d1], {%w9, %w9};", 32, 256),
    ];
    for (stride, code, sectors, bytes) in sectors {
        let expected = GlobalAccess { requests: 1, sectors, bytes };
        assert_eq!(global(stride, code), expected, "{stride}: {code}");
    }
    // No lane: no request.
    let none = case("    setp.gt.u32 %p1, %t, 99;\n    @%p1 ld.global.f32 %w2, [%x];").run();
    assert_eq!(none.line("ld.global.f32").global, GlobalAccess::default());
}

#[test]
fn passes_over_the_banks_of_shared_memory() {
    let v4 = "ld.shared.v4.f32 {%w2, %w3, %w4, %w5}, [%d1];";
    let passes: [(u32, &str, u64, u64, u64); 19] = [
        (4, "ld.shared.f32 %w2, [%d1];", 1, 1, 128),
        (8, "ld.shared.f32 %w2, [%d1];", 2, 1, 128),
        (16, "ld.shared.f32 %w2, [%d1];", 4, 1, 128),
        (128, "ld.shared.f32 %w2, [%d1];", 32, 1, 128),
        // A row padded by a word.
        (132, "ld.shared.f32 %w2, [%d1];", 1, 1, 128),
        // One word for all lanes, and one for four lanes each.
        (0, "ld.shared.f32 %w2, [%d1];", 1, 1, 128),
        (1, "ld.shared.u8 %w2, [%d1];", 1, 1, 32),
        (2, "ld.shared.u16 %h2, [%d1];", 1, 1, 64),
        // 64 bits: half-warps.
        (8, "ld.shared.f64 %d2, [%d1];", 2, 2, 256),
        (16, "ld.shared.f64 %d2, [%d1];", 4, 2, 256),
        (0, "ld.shared.f64 %d2, [%d1];", 2, 2, 256),
        (8, "@%p1 ld.shared.f64 %d2, [%d1];", 1, 1, 64),
        // 128 bits: quarter-warps.
        (16, v4, 4, 4, 512),
        (32, v4, 8, 4, 512),
        (128, v4, 32, 4, 512),
        (144, v4, 4, 4, 512),
        (4, "st.shared.f32 [%d1], %w9;", 1, 1, 128),
        (128, "st.shared.f32 [%d1], %w9;", 32, 1, 128),
        (0, "st.shared.f32 [%d1], %w9;", 1, 1, 128),
    ];
    for (stride, code, wavefronts, least, bytes) in passes {
        let expected = SharedAccess { requests: 1, wavefronts, bytes, least };
        assert_eq!(strided("tile", stride, code).line(code).shared, expected, "{stride}: {code}");
    }
}

#[test]
fn atomics() {
    for (stride, sectors, wavefronts) in [(4, 4, 1), (8, 8, 2), (0, 1, 32), (128, 32, 32)] {
        for code in ["red.global.add.u32 [%d1], 1;", "atom.global.add.u32 %w2, [%d1], 1;"] {
            let line = strided("%x", stride, code).line(code);
            assert_eq!(line.atomics, AtomicAccess { requests: 1, sectors }, "{stride}: {code}");
            assert_eq!(line.global, GlobalAccess::default());
        }
        let code = "atom.shared.add.u32 %w2, [%d1], 1;";
        let line = strided("tile", stride, code).line(code);
        let expected = SharedAccess { requests: 1, wavefronts, bytes: 128, least: 1 };
        assert_eq!((line.shared, line.atomics.requests), (expected, 0), "{stride}: {code}");
    }
}

#[test]
fn asynchronous_copies_read_global_and_write_shared_memory() {
    let copy = |tail: &str| {
        let body = format!(
            "    mul.wide.u32 %d1, %t, 16;\n    add.u64 %d2, %x, %d1;\n    \
             mov.u32 %w1, tile;\n    mad.lo.u32 %w1, %t, 16, %w1;\n    \
             setp.lt.u32 %p1, %t, 4;\n    selp.b32 %w2, 0, 4, %p1;\n    \
             setp.lt.u32 %p2, %t, 99;\n    {tail}\n    \
             cp.async.wait_all;"
        );
        case(body).run().line("cp.async.c")
    };
    let full = SharedAccess { requests: 1, wavefronts: 4, bytes: 512, least: 4 };
    let whole = copy("cp.async.cg.shared.global [%w1], [%d2], 16;");
    assert_eq!(whole.global, GlobalAccess { requests: 1, sectors: 16, bytes: 512 });
    assert_eq!(whole.shared, full);
    // 4 bytes in the lanes from 4 on: 28 lanes in 14 sectors. Zeros fill the rest.
    let part = copy("cp.async.cg.shared.global [%w1], [%d2], 16, %w2;");
    assert_eq!(part.global, GlobalAccess { requests: 1, sectors: 14, bytes: 112 });
    assert_eq!(part.shared, full);
    // All lanes ignore the source.
    let none = copy("cp.async.cg.shared.global [%w1], [%d2], 16, %p2;");
    assert_eq!((none.global, none.shared), (GlobalAccess::default(), full));
    let narrow = copy("cp.async.ca.shared.global [%w1], [%d2], 4;");
    assert_eq!(narrow.global, GlobalAccess { requests: 1, sectors: 16, bytes: 128 });
    assert_eq!(narrow.shared, SharedAccess { requests: 1, wavefronts: 4, bytes: 128, least: 1 });
}

#[test]
fn bulk_copies_count_their_lines_and_bypass_l1() {
    let body = "    mov.u32 %w1, tile;\n    add.u32 %w2, %w1, 4096;\n    \
        setp.ne.u32 %p1, %t, 0;\n    @%p1 bra DONE;\n    \
        mbarrier.init.shared.b64 [%w2], 1;\n    \
        fence.mbarrier_init.release.cluster;\n    \
        mbarrier.arrive.expect_tx.shared.b64 %d3, [%w2], 1040;\n    \
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes \
        [%w1], [%x], 1040, [%w2];\nWAIT:\n    \
        mbarrier.try_wait.parity.shared.b64 %p2, [%w2], 0;\n    @!%p2 bra WAIT;\n    \
        cp.async.bulk.global.shared::cta.bulk_group [%y], [%w1], 1040;\n    \
        cp.async.bulk.commit_group;\n    cp.async.bulk.wait_group 0;\nDONE:";
    let run = case(body).run();
    // 65 parts of 16 bytes: the last is half a sector.
    let copied = GlobalAccess { requests: 3, sectors: 33, bytes: 1040 };
    assert_eq!(run.line("cp.async.bulk.shared").global, copied);
    assert_eq!(run.line("cp.async.bulk.global").global, copied);
    let traffic = &run.counts.traffic;
    assert_eq!((traffic.l1_sectors, traffic.l2_read, traffic.l2_write), (0, 1056, 1056));
    assert_eq!((traffic.dram_read, traffic.dram_write), (1056, 1056));
}

#[test]
fn matrices_in_shared_memory() {
    for (pitch, wavefronts) in [(16, 4), (128, 32), (144, 4), (32, 8)] {
        for code in [
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%w2, %w3, %w4, %w5}, [%w1];",
            "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%w1], {%w2, %w3, %w4, %w5};",
        ] {
            let expected = SharedAccess { requests: 1, wavefronts, bytes: 512, least: 4 };
            assert_eq!(strided("tile", pitch, code).line(code).shared, expected, "{pitch}");
        }
    }
    let code = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%w2}, [%w1];";
    let expected = SharedAccess { requests: 1, wavefronts: 8, bytes: 128, least: 1 };
    assert_eq!(strided("tile", 128, code).line(code).shared, expected);
}

#[test]
fn local_memory_is_interleaved() {
    let own = |stride: u32, code: &str| {
        let run = strided("own", stride, code);
        let line = run.line(code);
        assert_eq!((line.global.requests, run.counts.traffic.l1_sectors), (0, 0));
        line.local
    };
    // The same word in all lanes fills one line; different words lie in different lines.
    let access = |sectors, bytes| LocalAccess { requests: 1, sectors, bytes };
    assert_eq!(own(0, "st.local.u32 [%d1], %w9;"), access(4, 128));
    assert_eq!(own(4, "st.local.u32 [%d1], %w9;"), access(32, 128));
    assert_eq!(own(0, "ld.local.v4.u32 {%w2, %w3, %w4, %w5}, [%d1];"), access(16, 512));
    assert_eq!(own(0, "ld.local.u8 %w2, [%d1+1];"), access(4, 32));
    // A generic address.
    let code = "cvta.local.u64 %d2, %d1;\n    ld.u32 %w2, [%d2];";
    assert_eq!(strided("own", 0, code).line("ld.u32").local, access(4, 128));
}

#[test]
fn constants_are_served_by_address() {
    let head = ".const .align 4 .b32 table[32];";
    for (stride, addresses) in [(0, 1), (4, 32)] {
        let body = format!(
            "    mul.wide.u32 %d1, %t, {stride};\n    mov.u64 %d0, table;\n    \
             add.u64 %d1, %d0, %d1;\n    ld.const.u32 %w2, [%d1];"
        );
        let run = crate::kernel::Case { head, ..case(body) }.run();
        let line = run.line("ld.const");
        assert_eq!((line.constants.requests, line.constants.addresses), (1, addresses));
        assert_eq!(line.global.requests, 0);
    }
}
