//! Thread-instructions per second of an elementwise kernel and of a kernel that works in shared
//! memory.
//!
//! `cargo run --release -p wengert-emulator --example speed`
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "it is a command")]

use std::time::Instant;
use wengert_emulator::count::{Caches, Counting, Sample};
use wengert_emulator::{Access, Argument, Emulator, Launch, Memory, Module, Options, Sanitize};

const TEXT: &str = "
.version 8.0
.target sm_80
.address_size 64

.visible .entry elementwise(.param .u64 .ptr x, .param .u64 .ptr y, .param .u32 n)
{
    .reg .b32 %r<16>;
    .reg .b64 %d<8>;
    .reg .pred %p<2>;
    // the element
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %ntid.x;
    mov.u32 %r2, %tid.x;
    mad.lo.u32 %r0, %r0, %r1, %r2;
    ld.param.u32 %r3, [n];
    setp.ge.u32 %p0, %r0, %r3;
    @%p0 bra DONE;
    ld.param.u64 %d0, [x];
    ld.param.u64 %d1, [y];
    mul.wide.u32 %d2, %r0, 4;
    add.s64 %d0, %d0, %d2;
    add.s64 %d1, %d1, %d2;
    ld.global.f32 %r4, [%d0];
    // a polynomial, and a root
    fma.rn.f32 %r5, %r4, 0f3E000000, 0f3F000000;
    fma.rn.f32 %r5, %r5, %r4, 0f3F800000;
    mul.rn.f32 %r6, %r4, %r4;
    add.rn.f32 %r6, %r6, 0f3F800000;
    sqrt.rn.f32 %r6, %r6;
    div.rn.f32 %r7, %r5, %r6;
    max.f32 %r7, %r7, 0f00000000;
    st.global.f32 [%d1], %r7;
DONE:
    ret;
}

.visible .entry reduce(.param .u64 .ptr x, .param .u64 .ptr y)
{
    .reg .b32 %r<16>;
    .reg .b64 %d<8>;
    .reg .pred %p<4>;
    .shared .align 4 .b8 part[1024];
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %tid.x;
    shl.b32 %r2, %r0, 8;
    add.u32 %r2, %r2, %r1;
    ld.param.u64 %d0, [x];
    mul.wide.u32 %d1, %r2, 4;
    add.s64 %d0, %d0, %d1;
    ld.global.f32 %r3, [%d0];
    mov.u32 %r4, part;
    shl.b32 %r5, %r1, 2;
    add.u32 %r5, %r5, %r4;
    st.shared.f32 [%r5], %r3;
    bar.sync 0;
    mov.u32 %r6, 128;
LOOP:
    // halves
    setp.ge.u32 %p0, %r1, %r6;
    shl.b32 %r7, %r6, 2;
    add.u32 %r7, %r7, %r5;
    @!%p0 ld.shared.f32 %r8, [%r7];
    @!%p0 ld.shared.f32 %r9, [%r5];
    @!%p0 add.rn.f32 %r9, %r9, %r8;
    @!%p0 st.shared.f32 [%r5], %r9;
    bar.sync 0;
    shr.u32 %r6, %r6, 1;
    setp.ne.u32 %p1, %r6, 0;
    @%p1 bra LOOP;
    setp.ne.u32 %p2, %r1, 0;
    @%p2 bra DONE;
    ld.shared.f32 %r10, [part];
    ld.param.u64 %d2, [y];
    mul.wide.u32 %d3, %r0, 4;
    add.s64 %d2, %d2, %d3;
    st.global.f32 [%d2], %r10;
DONE:
    ret;
}
";

/// Caches of about the size of an H200's.
const CACHES: Caches =
    Caches { l1: 128 << 10, l2: 50 << 20, ways: 16, multiprocessors: 132, resident: 8 };

/// Processor time of this thread in seconds; elapsed time where the system does not report it.
fn seconds(since: Instant) -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = stat.and_then(|s| s.split(' ').next()?.parse::<f64>().ok());
    nanoseconds.map_or_else(|| since.elapsed().as_secs_f64(), |ns| ns / 1e9)
}

fn main() {
    let begin = Instant::now();
    let module = Module::parse(TEXT).unwrap_or_else(|e| panic!("{e}"));
    let n: u32 = 1 << 20;
    let mut memory = Memory::new();
    let (x, y) = (
        memory.allocate("x", 4 * u64::from(n)).expect("4 MiB are there"),
        memory.allocate("y", 4 * u64::from(n)).expect("4 MiB are there"),
    );
    let data: Vec<u8> = (0..n).flat_map(|i| (i as f32 / n as f32).to_le_bytes()).collect();
    memory.write(x, &data).expect("it was just allocated");
    let buffer = |address, name: &str, access| Argument::Buffer {
        address,
        bytes: 4 * u64::from(n),
        name: name.to_owned(),
        access,
        expects: None,
        makes: None,
    };
    for kernel in ["elementwise", "reduce"] {
        let mut arguments = vec![buffer(x, "x", Access::Read), buffer(y, "y", Access::Write)];
        if kernel == "elementwise" {
            arguments.push(Argument::Bytes(n.to_le_bytes().to_vec()));
        }
        let launch = Launch {
            kernel: kernel.to_owned(),
            grid: [n / 256, 1, 1],
            block: [256, 1, 1],
            dynamic_shared: 0,
            arguments,
        };
        let counting = Counting { caches: CACHES, sample: Sample::All };
        for (name, sanitize, count) in [
            ("without checks", Sanitize::NONE, None),
            ("all checks", Sanitize::ALL, None),
            ("without checks, counted", Sanitize::NONE, Some(counting)),
        ] {
            let emulator = Emulator::new(Options { sanitize, count, ..Options::default() });
            let mut best = f64::INFINITY;
            let mut instructions = 0;
            for _ in 0..5 {
                let start = seconds(begin);
                let statistics =
                    emulator.run(&module, &launch, &mut memory).unwrap_or_else(|e| panic!("{e}"));
                best = best.min(seconds(begin) - start);
                instructions = statistics.thread_instructions;
            }
            let rate = instructions as f64 / best / 1e6;
            println!("{kernel}, {name}: {rate:.0} M thread-instructions/s a core");
        }
    }
}
