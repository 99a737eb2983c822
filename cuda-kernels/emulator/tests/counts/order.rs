//! The order in which requests of warps and blocks reach the caches.

use crate::kernel::{Case, SMALL, case};
use wengert_emulator::count::Caches;

/// Caches of a single line, so that only a repetition hits.
const LINE: Caches = Caches { l1: 128, l2: 128, ways: 1, multiprocessors: 1, resident: 1 };

/// Four loads of the line with the number in `%w1`.
const FOUR: &str = "
    mul.wide.u32 %d1, %w1, 128;
    add.u64 %d1, %x, %d1;
    ld.global.f32 %w2, [%d1];
    ld.global.f32 %w2, [%d1];
    ld.global.f32 %w2, [%d1];
    ld.global.f32 %w2, [%d1];";

fn hits(body: String, grid: u32, block: u32, caches: Caches) -> u64 {
    Case { grid, block, caches, ..case(body) }.run().counts.traffic.l1_hits
}

#[test]
fn resident_blocks_take_turns() {
    let body = || format!("    mov.u32 %w1, %b;{FOUR}");
    // One after the other: three hits in each block. All lanes read one float, so one sector.
    assert_eq!(hits(body(), 2, 32, LINE), 6);
    assert_eq!(hits(body(), 2, 32, Caches { resident: 2, ..LINE }), 0);
    // Each has a multiprocessor of its own.
    assert_eq!(hits(body(), 2, 32, Caches { multiprocessors: 2, ..LINE }), 6);
    // Blocks 0 and 2 share one, blocks 1 and 3 another.
    let two = Caches { multiprocessors: 2, resident: 2, ..LINE };
    let odd = || format!("    and.b32 %w1, %b, 1;{FOUR}");
    assert_eq!(hits(odd(), 4, 32, two), 2 * 7);
    let far = || format!("    shr.u32 %w1, %b, 1;{FOUR}");
    assert_eq!(hits(far(), 4, 32, two), 0);
}

#[test]
fn l2_sees_blocks_of_all_multiprocessors_in_turns() {
    let body = || format!("    mov.u32 %w1, %b;{}", FOUR.replace(".global", ".global.cg"));
    let dram = |caches| Case { grid: 2, caches, ..case(body()) }.run().counts.traffic.dram_read;
    assert_eq!(dram(LINE), 2 * 32);
    assert_eq!(dram(Caches { multiprocessors: 2, ..LINE }), 8 * 32);
}

#[test]
fn warps_take_turns_between_barriers() {
    let free = format!("    shr.u32 %w1, %t, 5;{FOUR}");
    assert_eq!(hits(free, 1, 64, LINE), 0);
    // The second warp reads after the barrier, the first before it.
    let ordered = format!(
        "    shr.u32 %w1, %t, 5;
    setp.eq.u32 %p1, %w1, 0;
    @%p1 bra FIRST;
    bar.sync 0;
{FOUR}
    ret;
FIRST:
{FOUR}
    bar.sync 0;"
    );
    assert_eq!(hits(ordered, 1, 64, LINE), 6);
}

#[test]
fn the_number_of_cpu_threads_changes_no_count() {
    // Blocks of unlike length, that share data and store with a stride.
    let body = "
    and.b32 %w1, %b, 7;
    mad.lo.u32 %w2, %b, 37, %t;
LOOP:
    and.b32 %w2, %w2, 4095;
    mul.wide.u32 %d1, %w2, 4;
    add.u64 %d2, %x, %d1;
    add.u64 %d1, %y, %d1;
    ld.global.f32 %w3, [%d2];
    st.global.f32 [%d1], %w3;
    mad.lo.u32 %w2, %w2, 5, 129;
    add.u32 %w1, %w1, 1;
    setp.lt.u32 %p1, %w1, 12;
    @%p1 bra LOOP;";
    // Each block reads a place that depends on how many came before it.
    let observes = "
    setp.eq.u32 %p1, %t, 0;
    mov.u32 %w1, 0;
    @%p1 atom.global.add.u32 %w1, [%y], 1;
    shfl.sync.idx.b32 %w1, %w1, 0, 31, -1;
    mul.lo.u32 %w2, %w1, %b;
    and.b32 %w2, %w2, 15;
    mul.wide.u32 %d1, %w2, 128;
    add.u64 %d1, %x, %d1;
    ld.global.f32 %w3, [%d1];";
    let caches = Caches { multiprocessors: 3, resident: 2, l1: 2 << 10, l2: 8 << 10, ..SMALL };
    for body in [body, observes] {
        let run = |threads| {
            let one = Case { grid: 50, block: 96, caches, threads, ..case(body) };
            if body == observes { Case { block: 32, ..one } } else { one }.run().counts
        };
        let first = run(1);
        assert!(first.traffic.l1_hits > 0 && first.traffic.dram_read > 0);
        for threads in [2, 3, 2, 5] {
            assert_eq!(run(threads), first, "{threads} threads");
        }
    }
}
