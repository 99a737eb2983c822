//! The texts of faults, with one fault of each kind. The planted faults of `tests/faults` go
//! further.

use crate::table::{STORE, try_run};
use wengert_emulator::{FaultKind, Space};

fn kind(body: &str, threads: u32) -> FaultKind {
    let fault = try_run(&format!("{body}{STORE}"), 1, threads, 64).unwrap_err();
    assert!(fault.line > 0 && fault.to_string().contains("PTX line"), "{fault}");
    fault.kind
}

#[test]
fn each_kind_is_found() {
    use FaultKind::*;
    let cases: &[(FaultKind, u32, &str)] = &[
        (OutOfBounds(Space::Global), 1, "ld.global.u32 %w0, [%x+256];"),
        (OutOfBounds(Space::Global), 1, "ld.global.u32 %w0, [%x+-4];"),
        (OutOfBounds(Space::Shared), 1, "st.shared.u32 [tile+4352], 1; mov.u32 %w0, dynamic;"),
        (OutOfBounds(Space::Local), 1, "st.local.u32 [own+64], 1; mov.u32 %w0, 0;"),
        (Misaligned, 1, "ld.global.v4.u32 {%w0, %w1, %w2, %w3}, [%x+8];"),
        (Misaligned, 1, "st.shared.u16 [tile+1], 1; mov.u32 %w0, 0;"),
        (UninitialisedRead(Space::Shared), 1, "ld.shared.u32 %w0, [tile];"),
        (
            UninitialisedRead(Space::Shared),
            1,
            "st.shared.u16 [tile], 1; ld.shared.u32 %w0, [tile];",
        ),
        (UninitialisedRead(Space::Local), 1, "ld.local.u32 %w0, [own];"),
        (
            UninitialisedRegister,
            2,
            "setp.eq.u32 %p1, %t, 0; @%p1 mov.u32 %w1, 5; add.u32 %w0, %w1, 1;",
        ),
        (UninitialisedRegister, 1, "@%p9 mov.u32 %w0, 5; mov.u32 %w0, 1;"),
        (
            DivergentBarrier,
            32,
            "setp.lt.u32 %p1, %t, 8; @%p1 bra L; bar.sync 0; L: mov.u32 %w0, 0; bra M; M:",
        ),
        (DivergentBarrier, 32, "setp.lt.u32 %p1, %t, 8; @%p1 bar.sync 0; mov.u32 %w0, 0;"),
        (
            DivergentBarrier,
            64,
            "setp.lt.u32 %p1, %t, 32; @%p1 bra L; bar.sync 1; bra M; L: bar.sync 2; \
             M: mov.u32 %w0, 0;",
        ),
        (DivergentBarrier, 32, "bar.sync 0, 64; mov.u32 %w0, 0;"),
        (SharedRace, 2, "st.shared.u32 [tile], 1; mov.u32 %w0, 0;"),
        (
            SharedRace,
            2,
            "setp.eq.u32 %p1, %t, 0; @%p1 st.shared.u32 [tile], 1; ld.shared.u32 %w0, [tile];",
        ),
        (
            SharedRace,
            64,
            "shl.b32 %w1, %t, 2; st.shared.u32 [%w1], 1; xor.b32 %w1, %w1, 128; bar.warp.sync -1; \
             st.shared.u32 [%w1], 2; mov.u32 %w0, 0;",
        ),
        (GlobalRace, 2, "st.global.u32 [%x], 1; mov.u32 %w0, 0;"),
        (
            InactiveLane,
            32,
            "setp.lt.u32 %p1, %t, 8; @%p1 exit; shfl.sync.down.b32 %w0, %t, 1, 31, -1;",
        ),
        (InactiveLane, 32, "shfl.sync.down.b32 %w0, %t, 1, 31, 0xffff;"),
        (
            InactiveLane,
            32,
            "setp.lt.u32 %p1, %t, 8; mov.u32 %w0, 1; @%p1 shfl.sync.down.b32 %w0, %t, 8, 31, 0xff; \
             @%p1 shfl.sync.idx.b32 %w0, %t, 9, 31, 0xff;",
        ),
        (
            AsyncCopyNotAwaited,
            1,
            "cp.async.ca.shared.global [tile], [%x], 4; cp.async.commit_group; \
             ld.shared.u32 %w0, [tile];",
        ),
        (Trap, 1, "trap; mov.u32 %w0, 1;"),
    ];
    for &(expected, threads, body) in cases {
        assert_eq!(kind(body, threads), expected, "{body}");
    }
}

#[test]
fn halves_of_a_word_are_no_race_but_a_word_over_them_is() {
    let apart = "shl.b32 %w1, %t, 1; st.shared.u16 [%w1], 1; mov.u32 %w0, 0;";
    try_run(&format!("{apart}{STORE}"), 1, 64, 64).unwrap_or_else(|fault| panic!("{fault}"));
    let over = "shl.b32 %w1, %t, 1; st.shared.u16 [%w1], 1; bar.warp.sync -1;
        setp.eq.u32 %p1, %t, 40; @%p1 ld.shared.u32 %w2, [tile]; mov.u32 %w0, 0;";
    assert_eq!(kind(over, 64), FaultKind::SharedRace);
}

/// Vector clocks are transitive: lane 2 learns from lane 0 what lane 0 has learned from lane 1.
#[test]
fn partial_synchronisation_is_transitive() {
    let body = "
    setp.eq.u32 %p1, %t, 1;
    setp.eq.u32 %p2, %t, 2;
    setp.gt.u32 %p3, %t, 2;
    @%p3 exit;
    @%p1 st.shared.u32 [tile], 5;
    setp.lt.u32 %p4, %t, 2;
    @!%p4 bra NEXT;
    bar.warp.sync 3;
NEXT:
    setp.eq.u32 %p5, %t, 1;
    @%p5 bra LAST;
    bar.warp.sync 5;
LAST:
    mov.u32 %w0, 0;
    @%p2 ld.shared.u32 %w0, [tile];";
    let out =
        try_run(&format!("{body}{STORE}"), 1, 32, 64).unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(out[2], 5);
    let without = body
        .replace("bar.warp.sync 3", "bar.warp.sync 1")
        .replace("setp.lt.u32 %p4, %t, 2", "setp.lt.u32 %p4, %t, 1");
    assert_eq!(kind(&without, 32), FaultKind::SharedRace);
}

#[test]
fn a_report_names_everything() {
    let body = "
    // first stage: sums
    mov.u32 %w1, 0;
    setp.ne.u32 %p1, %t, 33;
    @%p1 bra OTHER;
    st.shared.u32 [tile], 1;
OTHER:
    // second stage: reads
    setp.ne.u32 %p2, %t, 3;
    @!%p2 ld.shared.u32 %w1, [tile];
    mov.u32 %w0, 0;";
    // Warp 0 reads before warp 1 writes.
    let fault = try_run(&format!("{body}{STORE}"), 1, 64, 64).unwrap_err();
    assert_eq!(fault.kind, FaultKind::UninitialisedRead(Space::Shared));
    assert_eq!((fault.thread, fault.lane, fault.block), ([3, 0, 0], 3, [0, 0, 0]));
    assert_eq!(fault.comment.as_deref(), Some("second stage: reads"));
    assert_eq!(fault.text, "@!%p2 ld.shared.u32 %w1, [tile];");
    let body = body.replace("%t, 33", "%t, 1").replace("%t, 3;", "%t, 40;");
    let fault = try_run(&format!("{body}{STORE}"), 1, 64, 64).unwrap_err();
    assert_eq!(fault.kind, FaultKind::SharedRace);
    let other = fault.other.as_ref().unwrap();
    assert_eq!((fault.thread[0], other.thread[0], other.writes), (40, 1, true));
    assert_eq!(other.text, "st.shared.u32 [tile], 1;");
    let said = fault.to_string();
    assert!(
        said.contains("SharedRace in kernel `k`") && said.contains("the other access is a write"),
        "{said}"
    );
}
