//! Traffic between the levels of memory, by hand.

use crate::kernel::{Case, SMALL, case};
use wengert_emulator::count::{Caches, Traffic};

const KIB: u64 = 1 << 10;

/// One warp accesses `bytes` bytes of `x` from the first to the last, `times` times.
fn sweep(code: &str, bytes: u64, times: u32, caches: Caches) -> Traffic {
    let lines = bytes / 128;
    let body = format!(
        "
    mov.u32 %w1, 0;
TIMES:
    mul.wide.u32 %d1, %t, 4;
    add.u64 %d1, %x, %d1;
    mov.u32 %w2, 0;
LINES:
    {code}
    add.u64 %d1, %d1, 128;
    add.u32 %w2, %w2, 1;
    setp.lt.u32 %p1, %w2, {lines};
    @%p1 bra LINES;
    add.u32 %w1, %w1, 1;
    setp.lt.u32 %p1, %w1, {times};
    @%p1 bra TIMES;"
    );
    Case { x: vec![0; bytes as usize / 4], caches, ..case(body) }.run().counts.traffic
}

const LOAD: &str = "ld.global.f32 %w3, [%d1];";
const STORE: &str = "st.global.f32 [%d1], %w3;";

#[test]
fn a_matrix_that_fits_l2_is_fetched_once() {
    let expected = Traffic {
        l1_sectors: 2 * KIB,
        l2_read: 64 * KIB,
        dram_read: 32 * KIB,
        compulsory: 32 * KIB,
        ..Traffic::default()
    };
    assert_eq!(sweep(LOAD, 32 * KIB, 2, SMALL), expected);
    // With an L1 that holds it too, the second sweep does not reach L2.
    let caches = Caches { l1: 32 * KIB, ..SMALL };
    let expected = Traffic { l1_hits: KIB, l2_read: 32 * KIB, ..expected };
    assert_eq!(sweep(LOAD, 32 * KIB, 2, caches), expected);
    // Without L1, and with a load that bypasses it.
    let caches = Caches { l1: 0, ..SMALL };
    let expected = Traffic { l1_hits: 0, l2_read: 64 * KIB, ..expected };
    assert_eq!(sweep(LOAD, 32 * KIB, 2, caches), expected);
    let caches = Caches { l1: 32 * KIB, ..SMALL };
    for code in ["ld.global.cg.f32 %w3, [%d1];", "ld.relaxed.gpu.global.f32 %w3, [%d1];"] {
        let expected = Traffic { l1_sectors: 0, ..expected };
        assert_eq!(sweep(code, 32 * KIB, 2, caches), expected, "{code}");
    }
}

#[test]
fn a_matrix_that_exceeds_l2_is_fetched_again() {
    // The least recently used line is always the one that is needed next.
    let expected = Traffic {
        l1_sectors: 12 * KIB,
        l2_read: 384 * KIB,
        dram_read: 384 * KIB,
        compulsory: 128 * KIB,
        ..Traffic::default()
    };
    assert_eq!(sweep(LOAD, 128 * KIB, 3, SMALL), expected);
}

#[test]
fn stores_are_written_back() {
    let fits =
        Traffic { l2_write: 64 * KIB, dram_write: 32 * KIB, dirty: 32 * KIB, ..Traffic::default() };
    assert_eq!(sweep(STORE, 32 * KIB, 2, SMALL), fits);
    // Lines leave L2 while it runs; it is full of dirty ones at the end.
    let exceeds = Traffic {
        l2_write: 256 * KIB,
        dram_write: 256 * KIB,
        dirty: 64 * KIB,
        ..Traffic::default()
    };
    assert_eq!(sweep(STORE, 128 * KIB, 2, SMALL), exceeds);
    // What has been stored is in L2, and L1 does not have it.
    let both = format!("{STORE}\n    {LOAD}");
    let expected = Traffic {
        l1_sectors: KIB,
        l2_read: 32 * KIB,
        l2_write: 32 * KIB,
        dram_write: 32 * KIB,
        dirty: 32 * KIB,
        ..Traffic::default()
    };
    assert_eq!(sweep(&both, 32 * KIB, 1, SMALL), expected);
    // Half of each sector is written: it has to be fetched when it is read.
    let half = "
    and.b32 %w4, %t, 4;
    setp.eq.u32 %p3, %w4, 0;
    @%p3 st.global.f32 [%d1], %w3;
    ld.global.f32 %w3, [%d1];";
    let expected = Traffic { dram_read: 32 * KIB, ..expected };
    assert_eq!(sweep(half, 32 * KIB, 1, SMALL), expected);
}

#[test]
fn atomics_happen_in_l2() {
    let expected = Traffic {
        l2_atomic: 64 * KIB,
        dram_read: 32 * KIB,
        compulsory: 32 * KIB,
        dram_write: 32 * KIB,
        dirty: 32 * KIB,
        ..Traffic::default()
    };
    let caches = Caches { l1: 64 * KIB, ..SMALL };
    assert_eq!(sweep("red.global.add.u32 [%d1], 1;", 32 * KIB, 2, caches), expected);
}

#[test]
fn asynchronous_copies_with_cg_bypass_l1() {
    let copy = |operator: &str| {
        // All lanes copy 16 bytes, twice.
        let copy = format!("cp.async.{operator}.shared.global [%w4], [%d2], 16;");
        let body = format!(
            "
    mov.u32 %w4, tile;
    mad.lo.u32 %w4, %t, 16, %w4;
    mul.wide.u32 %d2, %t, 16;
    add.u64 %d2, %x, %d2;
    {copy}
    {copy}
    cp.async.wait_all;"
        );
        Case { caches: Caches { l1: 8 * KIB, ..SMALL }, ..case(body) }.run().counts.traffic
    };
    let expected = Traffic { l2_read: 1024, dram_read: 512, compulsory: 512, ..Traffic::default() };
    assert_eq!(copy("cg"), expected);
    let expected = Traffic { l1_sectors: 32, l1_hits: 16, l2_read: 512, ..expected };
    assert_eq!(copy("ca"), expected);
}

/// Both kernels transpose a matrix of 64×64 floats, a tile of 32×32 in each of four blocks of 32
/// warps.
#[test]
fn a_transposition() {
    // Column of the block in %w1, row in %w2; the thread's column in %w3, row in %w4.
    let indices = "
    and.b32 %w1, %b, 1;
    shr.u32 %w2, %b, 1;
    and.b32 %w3, %t, 31;
    shr.u32 %w4, %t, 5;
    shl.b32 %w1, %w1, 5;
    shl.b32 %w2, %w2, 5;
    add.u32 %w5, %w2, %w4;
    add.u32 %w6, %w1, %w3;
    mad.lo.u32 %w7, %w5, 64, %w6;
    mul.wide.u32 %d1, %w7, 4;
    add.u64 %d1, %x, %d1;
    ld.global.f32 %w8, [%d1];";
    let naive = format!(
        "{indices}
    mad.lo.u32 %w7, %w6, 64, %w5;
    mul.wide.u32 %d2, %w7, 4;
    add.u64 %d2, %y, %d2;
    st.global.f32 [%d2], %w8;"
    );
    let tiled = |pitch: u32| {
        format!(
            "{indices}
    mov.u32 %w10, tile;
    mad.lo.u32 %w9, %w4, {pitch}, %w3;
    mad.lo.u32 %w9, %w9, 4, %w10;
    st.shared.f32 [%w9], %w8;
    bar.sync 0;
    mad.lo.u32 %w9, %w3, {pitch}, %w4;
    mad.lo.u32 %w9, %w9, 4, %w10;
    ld.shared.f32 %w8, [%w9];
    add.u32 %w5, %w1, %w4;
    add.u32 %w6, %w2, %w3;
    mad.lo.u32 %w7, %w5, 64, %w6;
    mul.wide.u32 %d2, %w7, 4;
    add.u64 %d2, %y, %d2;
    st.global.f32 [%d2], %w8;"
        )
    };
    let caches = Caches { multiprocessors: 2, resident: 1, ..SMALL };
    let run = |body: String| Case { grid: 4, block: 1024, caches, ..case(body) }.run();
    let traffic = Traffic {
        l1_sectors: 512,
        l2_read: 16 * KIB,
        l2_write: 16 * KIB,
        dram_read: 16 * KIB,
        compulsory: 16 * KIB,
        dram_write: 16 * KIB,
        dirty: 16 * KIB,
        ..Traffic::default()
    };
    // 128 requests of a column each: L2 takes 32 sectors of each, and merges them.
    let found = run(naive);
    assert_eq!(found.line("st.global").global.sectors, 128 * 32);
    assert_eq!(found.counts.traffic, Traffic { l2_write: 128 * KIB, ..traffic });
    for (pitch, passes) in [(32, 32), (33, 1)] {
        let found = run(tiled(pitch));
        assert_eq!(found.line("ld.global").global.sectors, 128 * 4);
        assert_eq!(found.line("st.global").global.sectors, 128 * 4);
        assert_eq!(found.line("st.shared").shared.wavefronts, 128);
        assert_eq!(found.line("ld.shared").shared.wavefronts, 128 * passes);
        assert_eq!(found.counts.traffic, traffic);
    }
}

#[test]
fn figures_that_are_no_machine_are_refused() {
    let wrong = [
        Caches { ways: 0, ..SMALL },
        Caches { multiprocessors: 0, ..SMALL },
        Caches { resident: 0, ..SMALL },
        // Less than a set of 16 lines.
        Caches { l1: KIB, ..SMALL },
        Caches { l2: KIB, ..SMALL },
        Caches { l2: 1 << 40, ..SMALL },
        Caches { multiprocessors: 1 << 30, ..SMALL },
    ];
    for caches in wrong {
        let fault = Case { caches, ..case("    mov.u32 %w1, 1;") }.try_run().err();
        let fault = fault.unwrap_or_else(|| panic!("{caches:?}"));
        assert_eq!(fault.kind, wengert_emulator::FaultKind::InvalidLaunch, "{fault}");
    }
}
