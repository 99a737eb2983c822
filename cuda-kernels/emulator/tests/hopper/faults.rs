//! Planted faults: an edit of a clean kernel, and the kinds of fault that it must give.
//!
//! Every faulty text is valid PTX. Each clean kernel runs in every mode without a report and gives
//! the right values.

use crate::bench::{MODES, World, assemble, options};
use crate::kernels::{Kernel, all};
use wengert_emulator::FaultKind::{self, *};
use wengert_emulator::{Asynchrony, Space};

/// What is wrong, the text that is replaced, its replacement, and the kinds that may be reported.
type Fault = (&'static str, &'static str, &'static str, &'static [FaultKind]);

const TILE: &[Fault] = &[
    ("the barrier's result is ignored", "    @!%p3 bra WAIT;\n", "", &[AsyncCopyNotAwaited]),
    (
        "no wait",
        "    mbarrier.try_wait.parity.shared.b64 %p3, [full], 0;\n    @!%p3 bra WAIT;\n",
        "",
        &[AsyncCopyNotAwaited],
    ),
    ("the wrong parity", "%p3, [full], 0;", "%p3, [full], 1;", &[AsyncCopyNotAwaited]),
    ("too few bytes expected", "[full], 16384", "[full], 16368", &[TransactionBytes]),
    ("too many bytes expected", "[full], 16384", "[full], 16400", &[DeadLock]),
    (
        "no fence before the first product",
        "    wgmma.fence.sync.aligned;\n",
        "",
        &[ProductFenceMissing],
    ),
    (
        "D is written after the fence",
        "wgmma.fence.sync.aligned;\n",
        "wgmma.fence.sync.aligned;\n    mov.f32 %d0, 0f00000000;\n",
        &[ProductFenceMissing],
    ),
    ("no wait for the products", "    wgmma.wait_group.sync.aligned 0;\n", "", &[RegisterInFlight]),
    (
        "all groups may be pending",
        "wgmma.wait_group.sync.aligned 0",
        "wgmma.wait_group.sync.aligned 1",
        &[RegisterInFlight],
    ),
    (
        "the group is not committed",
        "    wgmma.commit_group.sync.aligned;\n",
        "",
        &[RegisterInFlight],
    ),
    (
        "D is read before the wait",
        "wgmma.commit_group.sync.aligned;\n",
        "wgmma.commit_group.sync.aligned;\n    add.f32 %d5, %d5, %d5;\n",
        &[RegisterInFlight],
    ),
    (
        "D is added to before it is set",
        "%l2, %l3, %p2,",
        "%l2, %l3, %p1,",
        &[UninitialisedRegister],
    ),
    (
        "A's swizzle is that of 64 bytes",
        "or.b64 %l2, %l2, 0x4000004000010000",
        "or.b64 %l2, %l2, 0x8000002000010000",
        &[WrongSwizzle],
    ),
    (
        "B has no swizzle",
        "or.b64 %l3, %l3, 0x4000004000010000",
        "or.b64 %l3, %l3, 0x0000000800400000",
        &[WrongSwizzle],
    ),
    (
        "A begins in the second row of the pattern",
        "add.u32 %r5, %r1, 0;",
        "add.u32 %r5, %r1, 128;",
        &[InvalidDescriptor],
    ),
    (
        "bits of a descriptor that are unused",
        "0x4000004000010000",
        "0x4010004000010000",
        &[InvalidDescriptor],
    ),
    (
        "the stride leads out of shared memory",
        "or.b64 %l3, %l3, 0x4000004000010000",
        "or.b64 %l3, %l3, 0x40003fc000010000",
        &[OutOfBounds(Space::Shared)],
    ),
    ("no barrier", "    mbarrier.init.shared.b64 [full], 1;\n", "", &[InvalidBarrier]),
    ("two arrivals are expected", "[full], 1;\n    fence", "[full], 2;\n    fence", &[DeadLock]),
    (
        "the barrier counts no arrivals",
        "[full], 1;\n    fence",
        "[full], 0;\n    fence",
        &[InvalidBarrier],
    ),
    (
        "the barrier is initialised twice",
        "    fence.mbarrier_init",
        "    mbarrier.init.shared.b64 [full], 1;\n    fence.mbarrier_init",
        &[InvalidBarrier],
    ),
    ("the initialisation is not waited for", "    bar.sync 0;\n", "", &[SharedRace]),
    (
        "the barrier's bytes are read",
        "    wgmma.fence",
        "    ld.shared.u32 %r7, [full];\n    wgmma.fence",
        &[InvalidBarrier],
    ),
    (
        "one arrival too many",
        "    cp.async.bulk.tensor",
        "    mbarrier.arrive.shared.b64 %l5, [full];\n    cp.async.bulk.tensor",
        &[InvalidBarrier],
    ),
    ("the destination is not aligned to 128", "[%r1], [%l0", "[%r1+16], [%l0", &[Misaligned]),
    (
        "the copy has another rank than the map",
        "tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%l0, {%r4, %r4}]",
        concat!(
            "tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1],",
            " [%l0, {%r4, %r4, %r4}]",
        ),
        &[InvalidDescriptor],
    ),
    (
        "the parameter's bytes are no map",
        "mov.u64 %l0, a_map;\n    cvta.param.u64 %l0, %l0;",
        "mov.u64 %l0, a_map;\n    cvta.param.u64 %l0, %l0;\n    add.u64 %l0, %l0, 64;",
        &[InvalidDescriptor],
    ),
    (
        "a warp is missing",
        "    add.u32 %r5",
        "    setp.ge.u32 %p4, %r0, 96;\n    @%p4 bra END;\n    add.u32 %r5",
        &[WarpgroupDivergence],
    ),
    (
        "a lane is missing",
        "    add.u32 %r5",
        "    setp.eq.u32 %p4, %r0, 40;\n    @%p4 bra END;\n    add.u32 %r5",
        &[WarpgroupDivergence],
    ),
    (
        "the warps have different descriptors",
        "    shr.u32 %r6, %r2, 4;",
        "    setp.lt.u32 %p4, %r0, 32;\n    selp.b32 %r2, %r1, %r2, %p4;\n    shr.u32 %r6, %r2, 4;",
        &[WarpgroupDivergence],
    ),
    (
        "the lanes have different descriptors",
        "    shr.u32 %r6, %r2, 4;",
        "    setp.eq.u32 %p4, %r0, 9;\n    selp.b32 %r2, %r1, %r2, %p4;\n    shr.u32 %r6, %r2, 4;",
        &[InvalidDescriptor],
    ),
    ("exit before the copy", "WAIT:\n", "WAIT:\n    bra.uni END;\n", &[ExitWhilePending]),
    (
        "exit before the products",
        "    wgmma.wait_group.sync.aligned 0;\n",
        "    bra.uni END;\n",
        &[ExitWhilePending],
    ),
    (
        "B is written while it is read",
        "    wgmma.wait_group",
        "    @!%p0 st.shared.u32 [%r2+64], %r4;\n    wgmma.wait_group",
        &[SourceInUse],
    ),
    (
        "A is copied to while it is read",
        "    wgmma.wait_group",
        concat!(
            "    @%p0 bra NEXT;\n",
            "    mbarrier.arrive.expect_tx.shared.b64 %l5, [full], 8192;\n",
            "    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes",
            " [%r1], [%l0, {%r4, %r4}], [%r3];\n",
            "NEXT:\n",
            "    wgmma.wait_group",
        ),
        &[SourceInUse],
    ),
    (
        "tile A is written between the copy and its arrival",
        "    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r2]",
        concat!(
            "    st.shared.u32 [%r1], %r4;\n",
            "    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes",
            " [%r2]",
        ),
        &[AsyncCopyNotAwaited],
    ),
    (
        "only one thread waits",
        "WAIT:\n",
        "    bra.uni WAIT;\nWAIT:\n    @%p0 bra LATE;\n",
        &[AsyncCopyNotAwaited],
    ),
];

const STAGED: &[Fault] = &[
    (
        "no proxy fence before the products",
        "    fence.proxy.async.shared::cta;\n",
        "",
        &[ProxyFenceMissing],
    ),
    (
        "a proxy fence of global memory only",
        "fence.proxy.async.shared::cta",
        "fence.proxy.async.global",
        &[ProxyFenceMissing],
    ),
    (
        "the proxy fence comes before the stores",
        "    mul.lo.u32 %r1, %r0, 16;",
        "    fence.proxy.async.shared::cta;\n    mul.lo.u32 %r1, %r0, 16;",
        &[ProxyFenceMissing],
    ),
    ("no proxy fence before the bulk copy", "    fence.proxy.async;\n", "", &[ProxyFenceMissing]),
    (
        "one thread fences for all, before the barrier",
        "    fence.proxy.async;\n",
        "    @!%p0 fence.proxy.async;\n",
        &[ProxyFenceMissing],
    ),
    (
        "no barrier before the products",
        "    bar.sync 1;\n",
        "",
        &[SharedRace, UninitialisedRead(Space::Shared)],
    ),
    (
        "no barrier before the bulk copy",
        "    bar.sync 2;\n",
        "",
        &[SharedRace, UninitialisedRead(Space::Shared)],
    ),
    (
        "the source is reused without a wait",
        "    cp.async.bulk.wait_group.read 0;\n",
        "",
        &[SourceInUse],
    ),
    ("the group may be pending", "wait_group.read 0", "wait_group.read 1", &[SourceInUse]),
    ("the bulk copy is not committed", "    cp.async.bulk.commit_group;\n", "", &[SourceInUse]),
    (
        "`.read` is taken for complete",
        "cp.async.bulk.wait_group 0",
        "cp.async.bulk.wait_group.read 0",
        &[AsyncCopyNotAwaited],
    ),
    (
        "exit without a wait",
        "    cp.async.bulk.wait_group.read 0;\n",
        "    bra.uni DONE;\n",
        &[ExitWhilePending],
    ),
    ("a size that is no multiple of 16", "mov.u32 %r10, 2048", "mov.u32 %r10, 2040", &[Misaligned]),
    (
        "a source that is no multiple of 16",
        "[%l1], [%r3], %r10",
        "[%l1], [%r3+8], %r10",
        &[Misaligned],
    ),
    (
        "a destination that is no multiple of 16",
        "[%l1], [%r3], %r10",
        "[%l1+4], [%r3], %r10",
        &[Misaligned],
    ),
    (
        "bytes beyond shared memory",
        "mov.u32 %r10, 2048",
        "mov.u32 %r10, 4096",
        &[OutOfBounds(Space::Shared)],
    ),
    (
        "bytes beyond the buffer",
        "[%l1], [%r3], %r10",
        "[%l1+16], [%r3], %r10",
        &[OutOfBounds(Space::Global)],
    ),
    (
        "B's strides lead to bytes that are not written",
        "0x0000000800080000",
        "0x0000000800900000",
        &[UninitialisedRead(Space::Shared), OutOfBounds(Space::Shared)],
    ),
];

const RING: &[Fault] = &[
    (
        "the producer does not wait for an empty stage",
        "    @!%p3 bra EMPTY2;\n",
        "",
        &[InvalidBarrier, SourceInUse, SharedRace, AsyncCopyNotAwaited],
    ),
    (
        "a stage is released before it is read",
        concat!(
            "    wgmma.wait_group.sync.aligned 0;\n",
            "    mbarrier.arrive.shared.b64 %l5, [empty+0]; // read 0\n",
        ),
        "    mbarrier.arrive.shared.b64 %l5, [empty+0];\n    wgmma.wait_group.sync.aligned 0;\n",
        &[SourceInUse, SharedRace],
    ),
    (
        "the producer waits for the wrong parity",
        "%p3, [empty+0], 1;",
        "%p3, [empty+0], 0;",
        &[DeadLock],
    ),
    (
        "the consumer waits for the wrong parity",
        "FULL2:\n    mbarrier.try_wait.parity.shared.b64 %p3, [full+0], 1",
        "FULL2:\n    mbarrier.try_wait.parity.shared.b64 %p3, [full+0], 0",
        &[AsyncCopyNotAwaited, DeadLock, InvalidBarrier, SharedRace],
    ),
    (
        "B's bytes are not expected",
        "[full+0], 2304; // stage 0",
        "[full+0], 2048; // stage 0",
        &[TransactionBytes],
    ),
    ("the copy is too short", "[%l0+0], 2304", "[%l0+0], 2048", &[DeadLock]),
    (
        "bytes are expected without an arrival",
        "mbarrier.arrive.expect_tx.shared.b64 %l5, [full+8], 2304; // stage 1",
        "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [full+8], 2304;",
        &[DeadLock],
    ),
    (
        "a stage is not released",
        "    mbarrier.arrive.shared.b64 %l5, [empty+0]; // read 0\n",
        "",
        &[DeadLock],
    ),
    (
        "the consumers are one too many",
        "mbarrier.init.shared.b64 [empty], 128",
        "mbarrier.init.shared.b64 [empty], 129",
        &[DeadLock],
    ),
    (
        "a stage signals the other's barrier",
        "[%l0+2304], 2304, [%r2+8]",
        "[%l0+2304], 2304, [%r2+0]",
        &[TransactionBytes, AsyncCopyNotAwaited, DeadLock, SharedRace],
    ),
    (
        "more registers than the block has",
        "inc.sync.aligned.u32 232",
        "inc.sync.aligned.u32 240",
        &[RegisterBudget],
    ),
    (
        "registers are released that are not there",
        "dec.sync.aligned.u32 24",
        "dec.sync.aligned.u32 136",
        &[RegisterBudget],
    ),
    (
        "one warp releases registers",
        "    setmaxnreg.dec",
        "    setp.ge.u32 %p4, %r0, 160;\n    @%p4 bra END;\n    setmaxnreg.dec",
        &[WarpgroupDivergence],
    ),
    (
        "nothing is copied into a stage",
        concat!(
            "    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+0],",
            " [%l0+0], 2304, [%r2+0];\n",
        ),
        "    mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [full], 2304;\n",
        &[UninitialisedRead(Space::Shared)],
    ),
];

const PAIR: &[Fault] = &[
    (
        "the other block may not have begun",
        "    barrier.cluster.arrive.release.aligned;\n    barrier.cluster.wait.acquire.aligned;\n",
        "",
        &[RemoteBlock, InvalidBarrier],
    ),
    (
        "the other block's stores are not waited for",
        concat!(
            "    barrier.cluster.arrive.aligned; // second\n",
            "    barrier.cluster.wait.aligned; // second\n",
        ),
        "",
        &[SharedRace, UninitialisedRead(Space::Shared)],
    ),
    (
        "the barrier of the cluster orders nothing",
        "barrier.cluster.arrive.aligned; // second",
        "barrier.cluster.arrive.relaxed.aligned; // second",
        &[SharedRace],
    ),
    (
        "a wait without an arrival",
        "    barrier.cluster.arrive.aligned; // second\n",
        "",
        &[DivergentBarrier],
    ),
    (
        "two arrivals",
        "    barrier.cluster.wait.aligned; // second\n",
        "    barrier.cluster.arrive.aligned;\n",
        &[DivergentBarrier],
    ),
    (
        "a block that is not there gets the copy",
        "mov.b16 %h0, 3",
        "mov.b16 %h0, 7",
        &[InvalidDescriptor],
    ),
    ("a block does not get the copy", "mov.b16 %h0, 3", "mov.b16 %h0, 1", &[DeadLock]),
    (
        "a block does not expect the copy",
        "    mbarrier.arrive.expect_tx.shared.b64 %l5, [full], 256;\n",
        "    @!%p1 mbarrier.arrive.expect_tx.shared.b64 %l5, [full], 256;\n",
        &[DeadLock],
    ),
    (
        "the address of a block that is not there",
        "mapa.shared::cluster.u32 %r9, %r8, %r2",
        "mapa.shared::cluster.u32 %r9, %r8, 2",
        &[OutOfBounds(Space::Shared)],
    ),
    (
        "a store to another block by an instruction for its own",
        "st.shared::cluster.u32 [%r9]",
        "st.shared.u32 [%r9]",
        &[OutOfBounds(Space::Shared)],
    ),
    ("a signal to a block that may have exited", "    @!%p3 bra FLAG;\n", "", &[RemoteBlock]),
    (
        "a thread does not come to the cluster's barrier",
        concat!(
            "    barrier.cluster.arrive.aligned; // second\n",
            "    barrier.cluster.wait.aligned; // second\n",
        ),
        concat!(
            "    setp.eq.u32 %p4, %r0, 7;\n",
            "    @%p4 bra FLAG;\n",
            "    barrier.cluster.arrive;\n",
            "    barrier.cluster.wait;\n",
        ),
        &[DeadLock],
    ),
];

const REGISTERS: &[Fault] = &[
    (
        "A is overwritten before the wait",
        "    wgmma.wait_group",
        "    mov.b32 %a0, 0;\n    wgmma.wait_group",
        &[RegisterInFlight],
    ),
    (
        "A is overwritten between two products",
        "    wgmma.commit_group.sync.aligned; // one\n",
        "    wgmma.commit_group.sync.aligned;\n    mov.b32 %a2, 0;\n",
        &[RegisterInFlight],
    ),
    (
        "A is loaded after the fence",
        "    ld.global.v4.b32 {%a0, %a1, %a2, %a3}, [%l3];\n",
        "    wgmma.fence.sync.aligned;\n    ld.global.v4.b32 {%a0, %a1, %a2, %a3}, [%l3];\n",
        &[ProductFenceMissing],
    ),
    (
        "the second product is not waited for",
        "wgmma.wait_group.sync.aligned 0",
        "wgmma.wait_group.sync.aligned 1",
        &[RegisterInFlight],
    ),
    (
        "A is not set",
        "    ld.global.v4.b32 {%a0, %a1, %a2, %a3}, [%l3];\n",
        "",
        &[UninitialisedRegister],
    ),
];

fn table() -> [(&'static str, &'static [Fault]); 5] {
    [
        ("tile", TILE),
        ("staged", STAGED),
        ("ring", RING),
        ("pair", PAIR),
        ("registers_of_a", REGISTERS),
    ]
}

fn kernel(name: &str) -> Kernel {
    all().into_iter().find(|kernel| kernel.name == name).expect("the table names kernels")
}

/// A text without the second fence of the same kind, for edits that move a fence.
fn edit(kernel: &Kernel, (what, from, to, _): &Fault) -> String {
    assert!(kernel.text.contains(from), "{}, {what}: the text has no {from:?}", kernel.name);
    let mut text = kernel.text.replacen(from, to, 1);
    match *what {
        "the proxy fence comes before the stores" => {
            text = text.replacen("STORED:\n    fence.proxy.async.shared::cta;\n", "STORED:\n", 1);
        }
        "A is loaded after the fence" => {
            let load = "    mov.u32 %r1, b;\n    shr";
            let at = text.find(load).expect("the address of B follows");
            let rest = text[at..].replacen("    wgmma.fence.sync.aligned;\n", "", 1);
            text.replace_range(at.., &rest);
        }
        "only one thread waits" => {
            text = text.replacen("    add.u32 %r5", "LATE:\n    add.u32 %r5", 1);
        }
        _ => {}
    }
    text
}

fn check(name: &str) {
    let kernel = kernel(name);
    let (_, faults) = table().into_iter().find(|(n, _)| *n == name).expect("it is in the table");
    let mut wrong = String::new();
    for fault in faults {
        let (what, _, _, kinds) = fault;
        let module = assemble(&edit(&kernel, fault));
        let mut world = World::default();
        (kernel.inputs)(&mut world);
        let options = options(Asynchrony::Late);
        match world.launch(&module, kernel.grid, kernel.block, options) {
            Ok(()) => wrong += &format!("{name}, {what}: nothing was found\n"),
            Err(found) if !kinds.contains(&found.kind) => {
                wrong += &format!("{name}, {what}: not {kinds:?} but {found}\n");
            }
            Err(found) => assert!(found.line > 0, "{name}, {what}: no line: {found}"),
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn clean_kernels_are_silent_and_right() {
    for kernel in all() {
        let module = assemble(&kernel.text);
        for mode in MODES {
            let mut world = World::default();
            let (out, expected) = (kernel.inputs)(&mut world);
            world
                .launch(&module, kernel.grid, kernel.block, options(mode))
                .unwrap_or_else(|fault| panic!("{}, {mode:?}: {fault}", kernel.name));
            assert_eq!(world.words(out, expected.len()), expected, "{}, {mode:?}", kernel.name);
        }
    }
}

#[test]
fn faults_of_tensor_copies_and_products() {
    check("tile");
}

#[test]
fn faults_of_proxies_and_stores() {
    check("staged");
}

#[test]
fn faults_of_pipelines() {
    check("ring");
}

#[test]
fn faults_of_clusters() {
    check("pair");
}

#[test]
fn faults_of_registers() {
    check("registers_of_a");
}

#[test]
fn forty_faults_are_planted() {
    let count: usize = table().iter().map(|(_, faults)| faults.len()).sum();
    assert!(count >= 40, "{count} faults");
}

/// A deadlock's report names the barrier, its phase and what it lacks.
#[test]
fn deadlocks_are_explained() {
    let kernel = kernel("tile");
    let text = kernel.text.replacen("[full], 16384", "[full], 16400", 1);
    let module = assemble(&text);
    let mut world = World::default();
    (kernel.inputs)(&mut world);
    let fault = world.launch(&module, 1, 128, options(Asynchrony::Late)).unwrap_err();
    let report = fault.to_string();
    for part in ["phase of parity 0", "phase 0 (parity 0)", "0 of 1 arrivals", "16 bytes"] {
        assert!(report.contains(part), "{part:?} is not in {report}");
    }
}
