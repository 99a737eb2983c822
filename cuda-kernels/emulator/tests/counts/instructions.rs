//! Issues, lanes and divergence, by hand.

use crate::kernel::{Case, case};

#[test]
fn loops_and_warps() {
    // 72 threads: two full warps and one of 8 lanes, in 3 blocks.
    let body = "
    mov.u32 %w1, 0;
LOOP:
    add.u32 %w1, %w1, 1;
    setp.lt.u32 %p1, %w1, 5;
    @%p1 bra LOOP;
    mov.u32 %w2, 9;";
    let run = Case { grid: 3, block: 72, ..case(body) }.run();
    assert_eq!((run.counts.grid, run.counts.blocks, run.counts.warps), (3, 3, 9));
    assert_eq!(run.issued("mov.u32 %w1, 0"), (9, 216));
    assert_eq!(run.issued("add.u32 %w1"), (45, 1080));
    let branch = run.line("bra LOOP");
    // The last time no lane branches.
    assert_eq!((branch.reached, branch.issued, branch.lanes, branch.diverged), (45, 36, 864, 0));
    assert_eq!(run.issued("mov.u32 %w2, 9"), (9, 216));
    let total = run.counts.total();
    assert_eq!(total.reached, run.counts.lines.values().map(|l| l.reached).sum::<u64>());
    assert_eq!(total.reached, 9 * (5 + 1 + 3 * 5 + 1 + 1));
}

#[test]
fn guards() {
    let body = "
    setp.lt.u32 %p1, %t, 8;
    setp.gt.u32 %p2, %t, 99;
    @%p1 add.u32 %w1, %t, 1;
    @!%p1 add.u32 %w2, %t, 2;
    @%p2 add.u32 %w3, %t, 3;
    @!%p2 add.u32 %w4, %t, 4;";
    let run = case(body).run();
    let counts = |part: &str| {
        let line = run.line(part);
        (line.reached, line.issued, line.lanes)
    };
    assert_eq!(counts("add.u32 %w1"), (1, 1, 8));
    assert_eq!(counts("add.u32 %w2"), (1, 1, 24));
    assert_eq!(counts("add.u32 %w3"), (1, 0, 0));
    assert_eq!(counts("add.u32 %w4"), (1, 1, 32));
}

#[test]
fn divergence() {
    let body = "
    and.b32 %w1, %t, 1;
    setp.eq.u32 %p1, %w1, 0;
    @%p1 bra EVEN;
    add.u32 %w2, %t, 1;
    bra JOIN;
EVEN:
    add.u32 %w3, %t, 1;
JOIN:
    add.u32 %w4, %t, 1;
    setp.lt.u32 %p2, %t, 32;
    @%p2 bra FIRST;
    add.u32 %w5, %t, 1;
FIRST:
    add.u32 %w6, %t, 1;";
    let run = Case { block: 64, ..case(body) }.run();
    assert_eq!(run.line("bra EVEN").diverged, 2);
    assert_eq!(run.issued("bra EVEN"), (2, 32));
    assert_eq!(run.issued("add.u32 %w2"), (2, 32));
    assert_eq!(run.issued("add.u32 %w3"), (2, 32));
    assert_eq!(run.issued("add.u32 %w4"), (2, 64));
    // The warps go different ways, but each of them as a whole.
    assert_eq!(run.line("bra FIRST").diverged, 0);
    assert_eq!(run.issued("add.u32 %w5"), (1, 32));
    assert_eq!(run.issued("add.u32 %w6"), (2, 64));
}

#[test]
fn lanes_leave_a_loop_one_after_another() {
    // Lane n runs n mod 4 + 1 times.
    let body = "
    and.b32 %w1, %t, 3;
    mov.u32 %w2, 0;
LOOP:
    add.u32 %w3, %w2, 7;
    setp.lt.u32 %p1, %w2, %w1;
    add.u32 %w2, %w2, 1;
    @%p1 bra LOOP;
    mov.u32 %w4, 1;";
    let run = case(body).run();
    assert_eq!(run.issued("add.u32 %w3"), (4, 8 * (4 + 3 + 2 + 1)));
    let branch = run.line("bra LOOP");
    assert_eq!((branch.reached, branch.issued, branch.diverged), (4, 3, 3));
    assert_eq!(run.issued("mov.u32 %w4"), (1, 32));
}

#[test]
fn tables_of_branches() {
    let body = "
    and.b32 %w1, %t, 1;
    TARGETS: .branchtargets A, B;
    brx.idx %w1, TARGETS;
A:
    add.u32 %w2, %t, 1;
    bra END;
B:
    add.u32 %w3, %t, 1;
END:
    mov.u32 %w4, 0;
    SAME: .branchtargets C, C;
    brx.idx %w1, SAME;
C:
    mov.u32 %w5, 0;";
    let run = case(body).run();
    assert_eq!(run.line("brx.idx %w1, TARGETS").diverged, 1);
    assert_eq!(run.line("brx.idx %w1, SAME").diverged, 0);
    assert_eq!((run.issued("add.u32 %w2"), run.issued("add.u32 %w3")), ((1, 16), (1, 16)));
    assert_eq!(run.issued("mov.u32 %w5"), (1, 32));
}

/// The decoder turns some instructions into several, and calls into the function's body.
#[test]
fn one_instruction_of_the_text_counts_once() {
    let head = "
.func (.reg .b32 %r) twice(.reg .b32 %a)
{
    add.u32 %r, %a, %a;
    ret;
}
.func (.param .b32 r) thrice(.param .b32 a)
{
    .reg .b32 %v;
    ld.param.b32 %v, [a];
    mul.lo.u32 %v, %v, 3;
    st.param.b32 [r], %v;
    ret;
}";
    let body = "
    mov.u32 %w1, %clock;
    setp.lt.u32 %p1, %t, 8;
    selp.b32 %w9, 1, 2, %p1;
    call (%w2), twice, (%t);
    @%p1 call (%w3), twice, (%w1);
    {
    .param .b32 in;
    .param .b32 out;
    st.param.b32 [in], %t;
    call (out), thrice, (in);
    ld.param.b32 %w4, [out];
    }
    and.pred %p2, !%p1, %p1;";
    let run = Case { head, ..case(body) }.run();
    assert_eq!(run.issued("mov.u32 %w1"), (1, 32));
    assert_eq!(run.issued("call (%w2)"), (1, 32));
    assert_eq!(run.issued("call (%w3)"), (1, 8));
    assert_eq!(run.issued("add.u32 %r"), (2, 40));
    assert_eq!(run.issued("call (out)"), (1, 32));
    assert_eq!(run.issued("mul.lo.u32"), (1, 32));
    assert_eq!(run.issued("and.pred"), (1, 32));
    // Parameters of calls are registers.
    assert_eq!(run.issued("st.param.b32 [in]"), (1, 32));
    assert_eq!(run.counts.total().local.requests, 0);
}

/// Lanes 0 to 7 come to the vote first. Those of an incomplete group wait for lanes 8 to 31.
#[test]
fn a_collective_instruction_counts_once_for_each_group_that_comes() {
    let body = |masks: &str| {
        format!(
            "
    setp.lt.u32 %p0, %t, 8;
    setp.lt.u32 %p1, %t, 99;
{masks}
    @!%p0 bra OTHER;
VOTE:
    vote.sync.ballot.b32 %w1, %p1, %w2;
    bra END;
OTHER:
    mov.u32 %w3, 1;
    @%p1 bra VOTE;
    mov.u32 %w4, 1;
END:
    mov.u32 %w5, 1;"
        )
    };
    // Lanes 0 to 3 with 8 to 11; all others: two groups on each side.
    let masks = "
    shr.u32 %w6, %t, 2;
    and.b32 %w6, %w6, 5;
    setp.eq.u32 %p3, %w6, 0;
    selp.b32 %w2, 0x00000f0f, 0xfffff0f0, %p3;";
    let run = case(body(masks)).run();
    assert_eq!(run.issued("vote.sync"), (4, 32), "lanes 0..3, 4..7, 8..11, 12..31");
    // Lanes 0 to 3 alone; all others.
    let masks = "
    setp.lt.u32 %p3, %t, 4;
    selp.b32 %w2, 0x0000000f, 0xfffffff0, %p3;";
    let run = case(body(masks)).run();
    assert_eq!(run.issued("vote.sync"), (3, 32), "lanes 0..3, 4..7, 8..31");
    assert_eq!(run.line("vote.sync").reached, 3);
    assert_eq!(run.issued("mov.u32 %w5"), (1, 32));
}

#[test]
fn a_barrier_of_a_part_of_a_warp_counts_once() {
    let body = "
    setp.lt.u32 %p1, %t, 16;
    @%p1 barrier.sync 0;
    @!%p1 barrier.sync 0;
    mov.u32 %w5, 1;";
    let run = case(body).run();
    assert_eq!(run.issued("@%p1 barrier.sync"), (1, 16));
    assert_eq!(run.issued("@!%p1 barrier.sync"), (1, 16));
}
