//! Divergence and reconvergence, calls, barriers, launches.

use crate::table::{HEADER, STORE, parse, run, try_run};
use wengert_emulator::{Emulator, FaultKind, Launch, Memory, Options};

fn lanes(f: impl Fn(u32) -> u32) -> Vec<u32> {
    (0..32).map(f).collect()
}

fn each_lane(body: &str) -> Vec<u32> {
    run(&format!("{body}{STORE}"), 1, 32, 32)
}

#[test]
fn branches_nest_and_meet() {
    let body = "
    mov.u32 %w0, 0;
    and.b32 %w1, %t, 1;
    setp.eq.u32 %p1, %w1, 0;
    @%p1 bra EVEN;
    setp.gt.u32 %p2, %t, 15;
    @%p2 bra HIGH;
    add.u32 %w0, %w0, 1;
    bra MEET;
HIGH:
    add.u32 %w0, %w0, 2;
MEET:
    add.u32 %w0, %w0, 10;
    bra END;
EVEN:
    add.u32 %w0, %w0, 100;
END:
    // All lanes are together again.
    activemask.b32 %w2;
    setp.ne.u32 %p3, %w2, -1;
    @%p3 trap;";
    assert_eq!(each_lane(body), lanes(|i| if i % 2 == 0 { 100 } else { 11 + u32::from(i > 15) }));
}

#[test]
fn loops_of_different_length() {
    let body = "
    mov.u32 %w0, 0;
    mov.u32 %w1, 0;
LOOP:
    setp.ge.u32 %p1, %w1, %t;
    @%p1 bra OUT;
    add.u32 %w1, %w1, 1;
    // continue where odd, break at 20
    and.b32 %w2, %w1, 1;
    setp.eq.u32 %p2, %w2, 1;
    @%p2 bra LOOP;
    setp.gt.u32 %p3, %w1, 20;
    @%p3 bra OUT;
    add.u32 %w0, %w0, %w1;
    bra LOOP;
OUT:
    bar.warp.sync -1;
    shfl.sync.idx.b32 %w3, %w0, 31, 31, -1;
    add.u32 %w0, %w0, %w3;";
    let own = |i: u32| (1..=i.min(20)).filter(|n| n % 2 == 0).sum::<u32>();
    assert_eq!(each_lane(body), lanes(|i| own(i) + own(31)));
}

#[test]
fn early_returns_and_a_barrier() {
    let body = "
    setp.gt.u32 %p1, %t, 40;
    @%p1 exit;
    and.b32 %w1, %t, 7;
    setp.eq.u32 %p2, %w1, 3;
    @%p2 ret;
    setp.eq.u32 %p3, %w1, 5;
    @%p3 bra GO;
    setp.eq.u32 %p4, %w1, 6;
    @%p4 ret;
GO:
    bar.sync 0;
    mov.u32 %w0, 1;";
    let out = run(&format!("{body}{STORE}"), 1, 64, 64);
    for (i, &word) in (0u32..).zip(&out) {
        let gone = i > 40 || i % 8 == 3 || i % 8 == 6;
        assert_eq!(word, if gone { 100 + i } else { 1 }, "{i}");
    }
}

#[test]
fn tables_of_targets() {
    let body = "
    and.b32 %w1, %t, 3;
    targets: .branchtargets A, B, C, A;
    brx.idx %w1, targets;
A:  mov.u32 %w0, 10; bra.uni END;
B:  mov.u32 %w0, 20; bra.uni END;
C:  mov.u32 %w0, 30;
END:";
    assert_eq!(each_lane(body), lanes(|i| [10, 20, 30, 10][i as usize % 4]));
}

/// A lane that holds a lock must not wait for the lanes that spin on the lock.
#[test]
fn a_lock_within_a_warp() {
    let body = "
    setp.eq.u32 %p1, %t, 0;
    @%p1 st.shared.v2.u32 [tile], {0, 0};
    bar.sync 0;
SPIN:
    atom.shared.cas.b32 %w1, [tile], 0, 1;
    setp.ne.u32 %p2, %w1, 0;
    @%p2 bra SPIN;
    ld.volatile.shared.u32 %w2, [tile+4];
    add.u32 %w2, %w2, 1;
    st.volatile.shared.u32 [tile+4], %w2;
    membar.cta;
    atom.shared.exch.b32 %w3, [tile], 0;
    bar.sync 0;
    ld.shared.u32 %w0, [tile+4];";
    assert_eq!(each_lane(body)[0], 32);
}

#[test]
fn barriers_with_counts_and_reductions() {
    // Warp 1 produces and warp 0 consumes. The third warp takes no part.
    let body = "
    shr.u32 %w1, %t, 5;
    setp.eq.u32 %p1, %w1, 1;
    setp.eq.u32 %p2, %w1, 2;
    @%p1 bra MAKE;
    @%p2 bra REST;
    bar.sync 3, 64;
    shl.b32 %w3, %t, 2;
    mov.u32 %w4, tile;
    add.u32 %w3, %w3, %w4;
    ld.shared.u32 %w5, [%w3+128];
    bra REST;
MAKE:
    shl.b32 %w3, %t, 2;
    mov.u32 %w4, tile;
    add.u32 %w3, %w3, %w4;
    st.shared.u32 [%w3], %t;
    bar.arrive 3, 64;
    mov.u32 %w5, 7;
REST:
    @%p2 mov.u32 %w5, 9;
    setp.lt.u32 %p3, %t, 50;
    bar.red.popc.u32 %w6, 0, %p3;
    bar.red.or.pred %p4, 0, %p3;
    bar.red.and.pred %p5, 0, !%p3;
    selp.u32 %w7, 1000, 0, %p4;
    selp.u32 %w8, 5000, 0, %p5;
    add.u32 %w0, %w5, %w7;
    add.u32 %w0, %w0, %w8;
    mad.lo.u32 %w0, %w6, 10000, %w0;";
    let out = run(&format!("{body}{STORE}"), 1, 96, 96);
    assert_eq!((out[4], out[40], out[80]), (501_036, 501_007, 501_009));
}

#[test]
fn calls() {
    let text = format!(
        "{HEADER}
.global .align 4 .u32 table[3] = {{5, 6, 7}};
.const .align 8 .u64 where = generic(table);
.func (.reg .b32 %result) square (.reg .b32 %value)
{{
    .reg .pred %p;
    setp.gt.s32 %p, %value, 100;
    @%p bra BIG;
    mul.lo.s32 %result, %value, %value;
    ret;
BIG:
    mov.b32 %result, 0;
    ret;
}}
.func (.param .b32 back) twice (.param .b32 given, .param .align 8 .b8 pair[8])
{{
    .reg .b32 %r<6>;
    ld.param.b32 %r0, [given];
    ld.param.b32 %r1, [pair+4];
    call (%r2), square, (%r0);
    call.uni (%r3), square, (%r1);
    add.s32 %r4, %r2, %r3;
    st.param.b32 [back], %r4;
    ret;
}}
.visible .entry k(.param .u64 out)
{{
    .reg .b32 %r<6>;
    .reg .b64 %d<4>;
    .reg .pred %p;
    mov.u32 %r0, %tid.x;
    {{
        .param .b32 one;
        .param .align 8 .b8 two[8];
        .param .b32 three;
        st.param.b32 [one], %r0;
        st.param.v2.b32 [two], {{%r0, 3}};
        call.uni (three), twice, (one, two);
        ld.param.b32 %r1, [three];
    }}
    setp.eq.u32 %p, %r0, 4;
    @%p call (%r1), square, (9);
    ld.const.u64 %d2, [where];
    ld.u32 %r2, [%d2+8];
    add.u32 %r1, %r1, %r2;
    ld.param.u64 %d0, [out];
    mul.wide.u32 %d1, %r0, 4;
    add.u64 %d0, %d0, %d1;
    st.global.u32 [%d0], %r1;
    ret;
}}"
    );
    let module = parse(&text);
    let mut memory = Memory::new();
    let out = memory.allocate("out", 128).unwrap();
    let launch = Launch {
        kernel: "k".to_owned(),
        grid: [1; 3],
        block: [32, 1, 1],
        dynamic_shared: 0,
        arguments: vec![wengert_emulator::Argument::Bytes(out.to_le_bytes().to_vec())],
    };
    let emulator = Emulator::new(Options::default());
    emulator.run(&module, &launch, &mut memory).unwrap_or_else(|e| panic!("{e}"));
    let bytes = memory.read(out, 128).unwrap();
    for (i, word) in (0u32..).zip(bytes.chunks_exact(4)) {
        let expected = if i == 4 { 81 } else { i * i + 9 } + 7;
        assert_eq!(u32::from_le_bytes(word.try_into().unwrap()), expected, "{i}");
    }
    // Variables keep the values that the host writes.
    let table = memory.variable(&module, "table").unwrap();
    memory.write(table + 8, &100u32.to_le_bytes()).unwrap();
    emulator.run(&module, &launch, &mut memory).unwrap();
    assert_eq!(memory.read(out, 4).unwrap(), 109u32.to_le_bytes());
    assert_eq!(memory.first_uninitialised(out, 128), Ok(None));
}

#[test]
fn several_threads_give_the_same_bytes() {
    let module = parse(&crate::table::program(&format!(
        "mov.u32 %w0, %ctaid.x; mad.lo.u32 %w0, %w0, 7, %t;{STORE}"
    )));
    let mut results = Vec::new();
    for threads in [1, 3] {
        let mut memory = Memory::new();
        let out = memory.allocate("out", 64 * 64 * 4).unwrap();
        let launch = Launch {
            kernel: "k".to_owned(),
            grid: [64, 1, 1],
            block: [64, 1, 1],
            dynamic_shared: 0,
            arguments: vec![wengert_emulator::Argument::Bytes(out.to_le_bytes().to_vec())],
        };
        let options = Options { threads, ..Options::default() };
        let statistics = Emulator::new(options).run(&module, &launch, &mut memory).unwrap();
        assert_eq!(statistics.blocks, 64);
        assert_eq!(statistics.thread_instructions, statistics.warp_instructions * 32);
        results.push(memory.read(out, 64 * 64 * 4).unwrap());
    }
    assert_eq!(results[0], results[1]);
}

/// Blocks that wait for each other take turns, even on one CPU thread.
#[test]
fn blocks_wait_for_each_other() {
    let body = "
    membar.gl;
    red.global.add.u32 [%x], 1;
SPIN:
    ld.relaxed.gpu.global.u32 %w1, [%x];
    setp.lt.u32 %p1, %w1, 104;
    @%p1 bra SPIN;
    ret;";
    let module = parse(&crate::table::program(body));
    let mut memory = Memory::new();
    let out = memory.allocate("out", 4).unwrap();
    memory.write(out, &100u32.to_le_bytes()).unwrap();
    let launch = Launch {
        kernel: "k".to_owned(),
        grid: [4, 1, 1],
        block: [1, 1, 1],
        dynamic_shared: 0,
        arguments: vec![wengert_emulator::Argument::Bytes(out.to_le_bytes().to_vec())],
    };
    Emulator::new(Options::default())
        .run(&module, &launch, &mut memory)
        .unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(memory.read(out, 4).unwrap(), 104u32.to_le_bytes());
}

#[test]
fn endless_loops_end() {
    let fault = try_run("L: bra L;", 1, 32, 1).unwrap_err();
    assert_eq!(fault.kind, FaultKind::InstructionLimit);
}
