//! Operations of the lanes of a warp on each other.

use crate::table::{STORE, run};

fn each_lane(body: &str) -> Vec<u32> {
    run(&format!("{body}{STORE}"), 1, 32, 32)
}

#[test]
fn shuffles() {
    let lanes = |f: &dyn Fn(u32) -> u32| (0..32).map(f).collect::<Vec<_>>();
    assert_eq!(
        each_lane("shfl.sync.up.b32 %w0, %t, 3, 0, -1;"),
        lanes(&|i| if i < 3 { i } else { i - 3 })
    );
    assert_eq!(
        each_lane("shfl.sync.down.b32 %w0, %t, 3, 31, -1;"),
        lanes(&|i| if i > 28 { i } else { i + 3 })
    );
    assert_eq!(each_lane("shfl.sync.bfly.b32 %w0, %t, 5, 31, -1;"), lanes(&|i| i ^ 5));
    assert_eq!(each_lane("shfl.sync.idx.b32 %w0, %t, 9, 31, -1;"), lanes(&|_| 9));
    // Segments of eight: the mask is in bits 8 to 12.
    assert_eq!(each_lane("shfl.sync.idx.b32 %w0, %t, 9, 0x181f, -1;"), lanes(&|i| i / 8 * 8 + 1));
    assert_eq!(
        each_lane("shfl.sync.down.b32 %w0|%p1, %t, 2, 0x181f, -1; @!%p1 mov.b32 %w0, 99;"),
        lanes(&|i| if i % 8 > 5 { 99 } else { i + 2 })
    );
    assert_eq!(
        each_lane("shfl.sync.up.b32 %w0|%p1, %t, 2, 0x1800, -1; @!%p1 mov.b32 %w0, 99;"),
        lanes(&|i| if i % 8 < 2 { 99 } else { i - 2 })
    );
}

#[test]
fn votes_matches_reductions() {
    let odd = "and.b32 %w1, %t, 1; setp.eq.u32 %p1, %w1, 1; ";
    assert_eq!(each_lane(&format!("{odd} vote.sync.ballot.b32 %w0, %p1, -1;"))[3], 0xaaaa_aaaa);
    assert_eq!(each_lane(&format!("{odd} vote.sync.ballot.b32 %w0, !%p1, -1;"))[3], 0x5555_5555);
    let flags = "vote.sync.any.pred %p2, %p1, -1; vote.sync.all.pred %p3, %p1, -1; \
        vote.sync.uni.pred %p4, %p1, -1;
        selp.b32 %w2, 1, 0, %p2; selp.b32 %w3, 2, 0, %p3; selp.b32 %w4, 4, 0, %p4; \
        add.u32 %w0, %w2, %w3; add.u32 %w0, %w0, %w4;";
    assert_eq!(each_lane(&format!("{odd} {flags}"))[0], 1);
    assert_eq!(each_lane(&format!("setp.eq.u32 %p1, 1, 1; {flags}"))[0], 7);
    let third = "rem.u32 %w1, %t, 3; ";
    assert_eq!(each_lane(&format!("{third} match.any.sync.b32 %w0, %w1, -1;"))[4], 0x9249_2492);
    assert_eq!(each_lane(&format!("{third} match.all.sync.b32 %w0|%p1, %w1, -1;"))[4], 0);
    assert_eq!(each_lane("match.all.sync.b64 %w0|%p1, %x, -1;")[4], u32::MAX);
    assert_eq!(each_lane("redux.sync.add.s32 %w0, %t, -1;")[9], 496);
    assert_eq!(each_lane("sub.u32 %w1, %t, 5; redux.sync.min.s32 %w0, %w1, -1;")[9], -5i32 as u32);
    assert_eq!(each_lane("sub.u32 %w1, %t, 5; redux.sync.max.u32 %w0, %w1, -1;")[9], u32::MAX);
    assert_eq!(each_lane("redux.sync.xor.b32 %w0, %t, -1;")[9], 0);
    assert_eq!(each_lane("redux.sync.or.b32 %w0, %t, -1;")[9], 31);
    assert_eq!(each_lane("elect.sync %w0|%p1, -1; @%p1 add.u32 %w0, %w0, 7;")[..2], [7, 0]);
    assert_eq!(each_lane("activemask.b32 %w0;")[0], u32::MAX);
}

#[test]
fn groups_side_by_side() {
    let body = "
    setp.lt.u32 %p1, %t, 16;
    selp.b32 %w1, 0x0000ffff, 0xffff0000, %p1;
    redux.sync.add.u32 %w0, %t, %w1;";
    let out = each_lane(body);
    assert_eq!((out[0], out[31]), (120, 376));
}

/// Lanes reach a shuffle that names all of them on different paths.
#[test]
fn lanes_wait_for_each_other() {
    let body = "
    mov.u32 %w2, 0;
    setp.lt.u32 %p1, %t, 16;
    @%p1 bra LOW;
    mov.u32 %w2, 1000;
    bar.warp.sync -1;
    bra JOIN;
LOW:
    bar.warp.sync -1;
    mov.u32 %w2, 500;
JOIN:
    add.u32 %w1, %t, %w2;
    shfl.sync.bfly.b32 %w0, %w1, 16, 31, -1;";
    // Two barriers at different places are not the same barrier. Each lane names lanes that wait
    // elsewhere.
    let fault = crate::table::try_run(&format!("{body}{STORE}"), 1, 32, 32).unwrap_err();
    assert_eq!(fault.kind, wengert_emulator::FaultKind::InactiveLane);
    let out = each_lane(&body.replace("    bar.warp.sync -1;\n", ""));
    assert_eq!((out[0], out[16]), (1016, 500));
}

#[test]
fn special_registers() {
    assert_eq!(each_lane("mov.u32 %w0, %laneid;")[9], 9);
    assert_eq!(each_lane("mov.u32 %w0, %lanemask_lt;")[9], 0x1ff);
    assert_eq!(each_lane("mov.u32 %w0, %lanemask_le;")[31], u32::MAX);
    assert_eq!(each_lane("mov.u32 %w0, %lanemask_gt;")[31], 0);
    assert_eq!(each_lane("mov.u32 %w0, %lanemask_ge;")[30], 0xc000_0000);
    assert_eq!(each_lane("mov.u32 %w0, %lanemask_eq;")[5], 32);
    assert_eq!(run(&format!("mov.u32 %w0, %warpid;{STORE}"), 1, 96, 96)[70], 2);
    assert_eq!(run(&format!("mov.u32 %w0, %nctaid.x;{STORE}"), 3, 32, 96)[70], 3);
    let later = "mov.u32 %w1, %clock; mov.u64 %d1, %clock64; cvt.u32.u64 %w2, %d1; \
                 setp.lt.u32 %p1, %w1, %w2; selp.b32 %w0, 1, 0, %p1;";
    assert_eq!(each_lane(later)[0], 1);
}
