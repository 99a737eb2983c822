//! Atomics on global and shared memory.

use crate::table::{STORE, run};

/// Each of 32 threads does `operation` with `%w1` (its lane + 1) on a word of shared memory that
/// starts as `start`.
fn shared(operation: &str, start: u32) -> u32 {
    let body = format!(
        "
    setp.eq.u32 %p1, %t, 0;
    @%p1 st.shared.u32 [tile], {start};
    bar.sync 0;
    add.u32 %w1, %t, 1;
    cvt.rn.f32.u32 %w2, %w1;
    {operation};
    bar.sync 0;
    ld.shared.u32 %w0, [tile];{STORE}"
    );
    run(&body, 1, 32, 32)[7]
}

#[test]
fn every_operation_on_shared_memory() {
    assert_eq!(shared("atom.shared.add.u32 %w9, [tile], %w1", 10), 10 + 32 * 33 / 2);
    assert_eq!(shared("red.shared.add.s32 [tile], -1", 10), (10 - 32) as u32);
    assert_eq!(shared("red.shared.min.s32 [tile], %w1", 0xffff_fff0), 0xffff_fff0);
    assert_eq!(shared("red.shared.min.u32 [tile], %w1", 0xffff_fff0), 1);
    assert_eq!(shared("red.shared.max.s32 [tile], %w1", 0xffff_fff0), 32);
    assert_eq!(shared("red.shared.max.u32 [tile], %w1", 7), 32);
    assert_eq!(shared("red.shared.and.b32 [tile], %w1", 0xff), 0);
    assert_eq!(shared("red.shared.or.b32 [tile], %w1", 0x100), 0x13f);
    assert_eq!(shared("red.shared.xor.b32 [tile], %w1", 0x100), 0x120);
    assert_eq!(shared("red.shared.inc.u32 [tile], 9", 0), 2);
    assert_eq!(shared("red.shared.dec.u32 [tile], 9", 1), 9);
    assert_eq!(shared("red.shared.add.f32 [tile], %w2", 0), 528f32.to_bits());
    assert_eq!(shared("atom.shared.exch.b32 %w9, [tile], 77", 0), 77);
    assert_eq!(shared("atom.shared.cas.b32 %w9, [tile], 5, %w1", 5), 1);
    assert_eq!(
        shared("mov.b32 %w3, 0x3c000000; red.shared.add.noftz.f16x2 [tile], %w3", 0x3c00),
        0x5000_3c00
    );
    assert_eq!(shared("mov.b32 %w3, 0x3f80; red.shared.add.noftz.bf16x2 [tile], %w3", 0), 0x4200);
    assert_eq!(shared("atom.shared.cas.b16 %h1, [tile+2], 0, 9", 5), 0x0009_0005);
}

#[test]
fn old_values_are_given_back_once_each() {
    let body = format!(
        "atom.relaxed.gpu.global.add.u32 %w0, [%x], 1;\n bar.sync 0;{}",
        STORE.replace("%x", "%d20")
    );
    // The counter is word 0. The results follow it.
    let body = format!("add.u64 %d20, %x, 4;\n{body}");
    let mut out = run(&body, 4, 64, 257);
    assert_eq!(out[0], 100 + 256);
    out[1..].sort_unstable();
    assert_eq!(out[1..], (100..356).collect::<Vec<_>>());
}

#[test]
fn sixty_four_bits() {
    let body = format!(
        "
    setp.eq.u32 %p1, %t, 0;
    @%p1 st.shared.u64 [tile], 0xffffffff;
    @%p1 st.shared.u64 [tile+8], 0;
    bar.sync 0;
    atom.shared.add.u64 %d1, [tile], 1;
    red.shared.max.s64 [tile+8], %d1;
    bar.sync 0;
    ld.shared.u64 %d2, [tile];
    shr.u64 %d2, %d2, 32;
    ld.shared.u64 %d3, [tile+8];
    shr.u64 %d3, %d3, 1;
    add.u64 %d2, %d2, %d3;
    cvt.u32.u64 %w0, %d2;{STORE}"
    );
    // The greatest old value is 0xffffffff + 31. The sum is one more, and has a carry.
    assert_eq!(run(&body, 1, 32, 32)[3], 0x8000_000f + 1);
    let body = "
    add.u64 %d5, %x, 8;
    red.global.add.f64 [%d5], 0d3FF0000000000000;
    atom.global.cas.b64 %d6, [%x], 0, 1;
    ret;";
    let out = run(body, 2, 32, 4);
    let sum = f64::from_bits(u64::from(out[2]) | u64::from(out[3]) << 32);
    assert_eq!(sum, f64::from_bits(102 | 103 << 32) + 64.0);
    assert_eq!(out[..2], [100, 101]);
}

/// The last block to arrive adds up the results of the others: fence, atomic, fence.
#[test]
fn blocks_may_hand_results_to_the_last() {
    let body = "
    mov.u32 %w1, %ctaid.x;
    add.u32 %w2, %w1, 1;
    mul.wide.u32 %d1, %w2, 4;
    add.u64 %d1, %x, %d1;
    setp.ne.u32 %p1, %t, 0;
    @%p1 bra WAIT;
    st.global.u32 [%d1], %w2;
    membar.gl;
    atom.global.add.u32 %w3, [%x], 1;
    membar.gl;
    st.shared.u32 [tile], %w3;
WAIT:
    bar.sync 0;
    ld.shared.u32 %w4, [tile];
    setp.ne.u32 %p2, %w4, 107;
    @%p2 bra DONE;
    // the last block: thread t reads what block t wrote
    setp.ge.u32 %p3, %t, 8;
    @%p3 bra DONE;
    mul.wide.u32 %d2, %t, 4;
    add.u64 %d2, %x, %d2;
    ld.global.u32 %w5, [%d2+4];
    red.global.add.u32 [%x], %w5;
DONE:
    ret;";
    assert_eq!(run(body, 8, 32, 9)[0], 108 + 36);
}
