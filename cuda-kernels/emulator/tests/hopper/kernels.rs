//! Clean kernels, with their inputs and results.

use crate::bench::{Numbers, World};
use half::bf16;
use wengert_emulator::{Access, ElementType, Swizzle, TensorMap};

/// A kernel that runs without a fault.
pub struct Kernel {
    pub name: &'static str,
    pub text: String,
    pub grid: u32,
    pub block: u32,
    /// Makes the arguments; returns the address of the results and their expected words.
    pub inputs: fn(&mut World) -> (u64, Vec<u32>),
}

const HEADER: &str = ".version 8.0\n.target sm_90a\n.address_size 64\n";

/// Small integers, whose sums of products are exact in any order.
fn integers(numbers: &mut Numbers, count: usize) -> Vec<f32> {
    (0..count).map(|_| numbers.below(17) as f32 - 8.0).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|&v| bf16::from_f32(v).to_le_bytes()).collect()
}

/// The words of a·bᵀ, with rows of `k` numbers.
fn product(a: &[f32], b: &[f32], k: usize) -> Vec<u32> {
    let (m, n) = (a.len() / k, b.len() / k);
    let sum = |at: usize| -> f32 { (0..k).map(|i| a[at / n * k + i] * b[at % n * k + i]).sum() };
    (0..m * n).map(|at| sum(at).to_bits()).collect()
}

fn registers(prefix: &str, count: u32) -> String {
    let names: Vec<String> = (0..count).map(|i| format!("%{prefix}{i}")).collect();
    format!("{{{}}}", names.join(", "))
}

/// A 64×64 product of bf16 by four `wgmma` on tiles that tensor copies load with a swizzle.
pub fn tile() -> Kernel {
    let d = registers("d", 32);
    let wgmma = |scale: &str| {
        format!(
            "    wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {d}, %l2, %l3, \
             {scale}, 1, 1, \
             0, 0;\n"
        )
    };
    let step = "    add.u64 %l2, %l2, 2;\n    add.u64 %l3, %l3, 2;\n";
    let mut products = wgmma("%p2");
    for _ in 0..3 {
        products += step;
        products += &wgmma("%p1");
    }
    let mut stores = String::new();
    for j in 0..8 {
        stores += &format!(
            "    st.global.v2.f32 [%l4+{}], {{%d{}, %d{}}};
    st.global.v2.f32 [%l4+{}], {{%d{}, %d{}}};\n",
            32 * j,
            4 * j,
            4 * j + 1,
            2048 + 32 * j,
            4 * j + 2,
            4 * j + 3
        );
    }
    let text = format!(
        "{HEADER}.visible .entry tile(.param .align 64 .b8 a_map[128], \
         .param .align 64 .b8 b_map[128], .param .u64 out)
{{
    .shared .align 1024 .b8 a[8192];
    .shared .align 1024 .b8 b[8192];
    .shared .align 8 .b8 full[8];
    .reg .f32 %d<32>;
    .reg .b32 %r<20>;
    .reg .b64 %l<10>;
    .reg .pred %p<5>;
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, a;
    mov.u32 %r2, b;
    mov.u32 %r3, full;
    mov.u32 %r4, 0;
    ld.param.u64 %l4, [out];
    setp.ne.u32 %p0, %r0, 0;
    setp.eq.u32 %p1, %r0, %r0;
    not.pred %p2, %p1;
    @%p0 bra READY;
    mbarrier.init.shared.b64 [full], 1;
    fence.mbarrier_init.release.cluster;
READY:
    bar.sync 0;
    @%p0 bra WAIT;
    mov.u64 %l0, a_map;
    cvta.param.u64 %l0, %l0;
    mov.u64 %l1, b_map;
    cvta.param.u64 %l1, %l1;
    mbarrier.arrive.expect_tx.shared.b64 %l5, [full], 16384;
    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%l0, \
     {{%r4, %r4}}], [%r3];
    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%l1, \
     {{%r4, %r4}}], [%r3];
WAIT:
    mbarrier.try_wait.parity.shared.b64 %p3, [full], 0;
    @!%p3 bra WAIT;
    add.u32 %r5, %r1, 0;
    shr.u32 %r5, %r5, 4;
    cvt.u64.u32 %l2, %r5;
    or.b64 %l2, %l2, 0x4000004000010000;
    shr.u32 %r6, %r2, 4;
    cvt.u64.u32 %l3, %r6;
    or.b64 %l3, %l3, 0x4000004000010000;
    wgmma.fence.sync.aligned;
{products}    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    shr.u32 %r7, %r0, 5;
    shl.b32 %r7, %r7, 4;
    and.b32 %r8, %r0, 31;
    shr.u32 %r9, %r8, 2;
    add.u32 %r7, %r7, %r9;
    and.b32 %r8, %r8, 3;
    mul.lo.u32 %r7, %r7, 256;
    mad.lo.u32 %r7, %r8, 8, %r7;
    cvt.u64.u32 %l6, %r7;
    add.u64 %l4, %l4, %l6;
{stores}END:
    ret;
}}
"
    );
    let inputs = |world: &mut World| {
        let mut numbers = Numbers(7);
        let (a, b) = (integers(&mut numbers, 4096), integers(&mut numbers, 4096));
        for (name, data) in [("a", &a), ("b", &b)] {
            let address = world.place(name, 8192, Some(&bytes(data)));
            let map = TensorMap::tiled(
                ElementType::BF16,
                address,
                &[64, 64],
                &[128],
                &[64, 64],
                &[1, 1],
                Swizzle::Bytes128,
            );
            world.bytes(&map.unwrap().bytes());
        }
        let out = world.buffer("out", 16384, None, Access::Write);
        (out, product(&a, &b, 64))
    };
    Kernel { name: "tile", text, grid: 1, block: 128, inputs }
}

/// A 64×8 product of tiles that ordinary stores put into shared memory; the result goes there, and
/// from there to global memory by a bulk copy.
pub fn staged() -> Kernel {
    let text = format!(
        "{HEADER}.visible .entry staged(.param .u64 x, .param .u64 y)
{{
    .shared .align 128 .b8 a[2048];
    .shared .align 128 .b8 b[256];
    .shared .align 128 .b8 d[2048];
    .reg .f32 %d<4>;
    .reg .b32 %r<20>;
    .reg .b64 %l<10>;
    .reg .pred %p<4>;
    mov.u32 %r0, %tid.x;
    ld.param.u64 %l0, [x];
    ld.param.u64 %l1, [y];
    setp.ne.u32 %p0, %r0, 0;
    setp.ge.u32 %p1, %r0, 16;
    setp.ne.u32 %p2, %r0, %r0;
    mul.lo.u32 %r1, %r0, 16;
    cvt.u64.u32 %l2, %r1;
    add.u64 %l2, %l0, %l2;
    ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%l2];
    mov.u32 %r2, a;
    add.u32 %r2, %r2, %r1;
    st.shared.v4.b32 [%r2], {{%r4, %r5, %r6, %r7}};
    @%p1 bra STORED;
    ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%l2+2048];
    mov.u32 %r2, b;
    add.u32 %r2, %r2, %r1;
    st.shared.v4.b32 [%r2], {{%r4, %r5, %r6, %r7}};
STORED:
    fence.proxy.async.shared::cta;
    bar.sync 1;
    mov.u32 %r2, a;
    shr.u32 %r2, %r2, 4;
    cvt.u64.u32 %l3, %r2;
    or.b64 %l3, %l3, 0x0000000800400000;
    mov.u32 %r2, b;
    shr.u32 %r2, %r2, 4;
    cvt.u64.u32 %l4, %r2;
    or.b64 %l4, %l4, 0x0000000800080000;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%d0, %d1, %d2, %d3}}, %l3, %l4, %p2, \
     1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    shr.u32 %r7, %r0, 5;
    shl.b32 %r7, %r7, 4;
    and.b32 %r8, %r0, 31;
    shr.u32 %r9, %r8, 2;
    add.u32 %r7, %r7, %r9;
    and.b32 %r8, %r8, 3;
    mul.lo.u32 %r7, %r7, 32;
    mad.lo.u32 %r7, %r8, 8, %r7;
    mov.u32 %r3, d;
    add.u32 %r7, %r7, %r3;
    st.shared.v2.f32 [%r7], {{%d0, %d1}};
    st.shared.v2.f32 [%r7+256], {{%d2, %d3}};
    fence.proxy.async;
    bar.sync 2;
    @%p0 bra DONE;
    mov.u32 %r10, 2048;
    cp.async.bulk.global.shared::cta.bulk_group [%l1], [%r3], %r10;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 0;
    st.shared.u32 [d], 0;
    cp.async.bulk.wait_group 0;
    ld.global.u32 %r9, [%l1];
    st.global.u32 [%l1+2048], %r9;
DONE:
    ret;
}}
"
    );
    let inputs = |world: &mut World| {
        let mut numbers = Numbers(8);
        let (a, b) = (integers(&mut numbers, 1024), integers(&mut numbers, 128));
        // Core matrices of 8 rows and 16 bytes; along the rows first.
        let image = |values: &[f32]| {
            let rows = values.len() / 16;
            let mut image = vec![0u8; 2 * values.len()];
            for (at, pair) in bytes(values).chunks(2).enumerate() {
                let (r, k) = (at / 16, at % 16);
                let place = r % 8 * 16 + r / 8 * 128 + k / 8 * rows * 16 + k % 8 * 2;
                image[place..place + 2].copy_from_slice(pair);
            }
            image
        };
        let x = [image(&a), image(&b)].concat();
        world.buffer("x", x.len(), Some(&x), Access::Read);
        let y = world.buffer("y", 2052, None, Access::ReadWrite);
        let mut expected = product(&a, &b, 16);
        expected.push(expected[0]);
        (y, expected)
    };
    Kernel { name: "staged", text, grid: 1, block: 128, inputs }
}

/// A producer warp feeds a ring of two stages; a warpgroup multiplies.
pub fn ring() -> Kernel {
    let (mut produce, mut consume) = (String::new(), String::new());
    for i in 0..4 {
        let (stage, round) = (i % 2, i / 2);
        produce += &format!(
            "EMPTY{i}:
    mbarrier.try_wait.parity.shared.b64 %p3, [empty+{0}], {1};
    @!%p3 bra EMPTY{i};
    mbarrier.arrive.expect_tx.shared.b64 %l5, [full+{0}], 2304; // stage {i}
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+{2}], \
     [%l0+{3}], 2304, [%r2+{0}];
",
            8 * stage,
            1 - round,
            2304 * stage,
            2304 * i,
        );
        consume += &format!(
            "FULL{i}:
    mbarrier.try_wait.parity.shared.b64 %p3, [full+{0}], {round};
    @!%p3 bra FULL{i};
    add.u64 %l4, %l2, {1};
    add.u64 %l6, %l3, {1};
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%d0, %d1, %d2, %d3}}, %l4, %l6, \
     {2}, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    mbarrier.arrive.shared.b64 %l5, [empty+{0}]; // read {i}
",
            8 * stage,
            stage * 2304 / 16,
            if i == 0 { "%p2" } else { "%p1" },
        );
    }
    let text = format!(
        "{HEADER}.visible .entry ring(.param .u64 x, .param .u64 out)
.maxnreg 128
{{
    .shared .align 128 .b8 stages[4608];
    .shared .align 8 .b8 full[16];
    .shared .align 8 .b8 empty[16];
    .reg .f32 %d<4>;
    .reg .b32 %r<20>;
    .reg .b64 %l<10>;
    .reg .pred %p<5>;
    mov.u32 %r0, %tid.x;
    ld.param.u64 %l0, [x];
    ld.param.u64 %l7, [out];
    mov.u32 %r1, stages;
    mov.u32 %r2, full;
    setp.ne.u32 %p0, %r0, 0;
    setp.eq.u32 %p1, %r0, %r0;
    not.pred %p2, %p1;
    @%p0 bra READY;
    mbarrier.init.shared.b64 [full], 1;
    mbarrier.init.shared.b64 [full+8], 1;
    mbarrier.init.shared.b64 [empty], 128;
    mbarrier.init.shared.b64 [empty+8], 128;
    fence.mbarrier_init.release.cluster;
READY:
    bar.sync 0;
    setp.lt.u32 %p4, %r0, 128;
    @%p4 bra CONSUME;
    setmaxnreg.dec.sync.aligned.u32 24;
    setp.ne.u32 %p4, %r0, 128;
    @%p4 bra END;
{produce}    bra.uni END;
CONSUME:
    setmaxnreg.inc.sync.aligned.u32 232;
    shr.u32 %r3, %r1, 4;
    cvt.u64.u32 %l2, %r3;
    or.b64 %l2, %l2, 0x0000000800400000;
    add.u32 %r3, %r1, 2048;
    shr.u32 %r3, %r3, 4;
    cvt.u64.u32 %l3, %r3;
    or.b64 %l3, %l3, 0x0000000800080000;
{consume}    shr.u32 %r7, %r0, 5;
    shl.b32 %r7, %r7, 4;
    and.b32 %r8, %r0, 31;
    shr.u32 %r9, %r8, 2;
    add.u32 %r7, %r7, %r9;
    and.b32 %r8, %r8, 3;
    mul.lo.u32 %r7, %r7, 32;
    mad.lo.u32 %r7, %r8, 8, %r7;
    cvt.u64.u32 %l8, %r7;
    add.u64 %l8, %l7, %l8;
    st.global.v2.f32 [%l8], {{%d0, %d1}};
    st.global.v2.f32 [%l8+256], {{%d2, %d3}};
END:
    ret;
}}
"
    );
    let inputs = |world: &mut World| {
        let mut numbers = Numbers(9);
        let (a, b) = (integers(&mut numbers, 64 * 64), integers(&mut numbers, 8 * 64));
        let mut x = vec![0u8; 4 * 2304];
        let mut put = |values: &[f32], rows: usize, offset: usize| {
            for (at, pair) in bytes(values).chunks(2).enumerate() {
                let (r, k) = (at / 64, at % 64);
                let place = k / 16 * 2304
                    + offset
                    + r % 8 * 16
                    + r / 8 * 128
                    + k % 16 / 8 * rows * 16
                    + k % 8 * 2;
                x[place..place + 2].copy_from_slice(pair);
            }
        };
        put(&a, 64, 0);
        put(&b, 8, 2048);
        world.buffer("x", x.len(), Some(&x), Access::Read);
        let out = world.buffer("out", 2048, None, Access::Write);
        (out, product(&a, &b, 64))
    };
    Kernel { name: "ring", text, grid: 1, block: 256, inputs }
}

/// Two blocks share a multicast copy, write to each other, and signal each other.
pub fn pair() -> Kernel {
    let text = format!(
        "{HEADER}.visible .entry pair(.param .u64 x, .param .u64 out)
.explicitcluster
.reqnctapercluster 2, 1, 1
{{
    .shared .align 128 .b8 data[256];
    .shared .align 16 .b8 inbox[256];
    .shared .align 8 .b8 full[8];
    .shared .align 8 .b8 flag[8];
    .reg .b32 %r<20>;
    .reg .b64 %l<10>;
    .reg .b16 %h<2>;
    .reg .pred %p<5>;
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %cluster_ctarank;
    xor.b32 %r2, %r1, 1;
    ld.param.u64 %l0, [x];
    ld.param.u64 %l1, [out];
    mov.u32 %r3, data;
    mov.u32 %r4, full;
    setp.ne.u32 %p0, %r0, 0;
    setp.ne.u32 %p1, %r1, 0;
    or.pred %p2, %p0, %p1;
    @%p0 bra READY;
    mbarrier.init.shared.b64 [full], 1;
    mbarrier.init.shared.b64 [flag], 1;
    fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared.b64 %l5, [full], 256;
READY:
    bar.warp.sync 0xffffffff;
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
    @%p2 bra WAIT;
    mov.b16 %h0, 3;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster \
     [%r3], [%l0], 256, [%r4], %h0;
WAIT:
    mbarrier.try_wait.parity.shared.b64 %p3, [full], 0;
    @!%p3 bra WAIT;
    shl.b32 %r5, %r0, 2;
    add.u32 %r6, %r3, %r5;
    ld.shared.u32 %r7, [%r6];
    add.u32 %r7, %r7, %r1;
    mov.u32 %r8, inbox;
    add.u32 %r8, %r8, %r5;
    mapa.shared::cluster.u32 %r9, %r8, %r2;
    st.shared::cluster.u32 [%r9], %r7;
    barrier.cluster.arrive.aligned; // second
    barrier.cluster.wait.aligned; // second
    ld.shared.u32 %r10, [%r8];
    shl.b32 %r11, %r1, 5;
    add.u32 %r11, %r11, %r0;
    mul.wide.u32 %l2, %r11, 4;
    add.u64 %l2, %l1, %l2;
    st.global.u32 [%l2], %r10;
    bar.warp.sync 0xffffffff;
    mov.u32 %r12, flag;
    mapa.shared::cluster.u32 %r13, %r12, %r2;
    @!%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r13];
FLAG:
    mbarrier.try_wait.parity.acquire.cluster.shared.b64 %p3, [flag], 0;
    @!%p3 bra FLAG;
    ret;
}}
"
    );
    let inputs = |world: &mut World| {
        let words: Vec<u32> = (0..64).map(|i| 1000 + i * i).collect();
        let x: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        world.buffer("x", 256, Some(&x), Access::Read);
        let out = world.buffer("out", 256, None, Access::Write);
        let expected = (0..64).map(|i: usize| words[i % 32] + 1 - (i as u32) / 32).collect();
        (out, expected)
    };
    Kernel { name: "pair", text, grid: 2, block: 32, inputs }
}

/// A product whose A comes from registers, twice on the same accumulator.
pub fn registers_of_a() -> Kernel {
    let text = format!(
        "{HEADER}.visible .entry registers_of_a(.param .u64 x, .param .u64 out)
{{
    .shared .align 128 .b8 b[256];
    .reg .f32 %d<4>;
    .reg .b32 %r<20>, %a<4>;
    .reg .b64 %l<10>;
    .reg .pred %p<4>;
    mov.u32 %r0, %tid.x;
    ld.param.u64 %l0, [x];
    ld.param.u64 %l1, [out];
    setp.ge.u32 %p0, %r0, 64;
    setp.eq.u32 %p1, %r0, %r0;
    not.pred %p2, %p1;
    @%p0 bra STORED;
    mov.u32 %r1, b;
    shl.b32 %r2, %r0, 2;
    add.u32 %r1, %r1, %r2;
    st.shared.u32 [%r1], 0x3f803f80;
STORED:
    fence.proxy.async.shared::cta;
    bar.sync 0;
    mul.wide.u32 %l2, %r0, 16;
    add.u64 %l3, %l0, %l2;
    ld.global.v4.b32 {{%a0, %a1, %a2, %a3}}, [%l3];
    mov.u32 %r1, b;
    shr.u32 %r1, %r1, 4;
    cvt.u64.u32 %l4, %r1;
    or.b64 %l4, %l4, 0x0000000800080000;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%d0, %d1, %d2, %d3}}, \
     {{%a0, %a1, %a2, %a3}}, %l4, %p2, 1, 1, 0;
    wgmma.commit_group.sync.aligned; // one
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%d0, %d1, %d2, %d3}}, \
     {{%a0, %a1, %a2, %a3}}, %l4, %p1, 1, 1, 0;
    wgmma.commit_group.sync.aligned; // two
    wgmma.wait_group.sync.aligned 0;
    add.u64 %l5, %l1, %l2;
    st.global.v4.f32 [%l5], {{%d0, %d1, %d2, %d3}};
    ret;
}}
"
    );
    let inputs = |world: &mut World| {
        let mut numbers = Numbers(10);
        let a = integers(&mut numbers, 1024);
        world.buffer("x", 2048, Some(&bytes(&a)), Access::Read);
        let out = world.buffer("out", 2048, None, Access::Write);
        // B is all ones, so each value is twice the sum of a row. Thread t holds eight numbers: its
        // row's four, and those of the row 8 below, alternately.
        let row = |thread: usize, low: usize| -> f32 {
            let first = thread / 4 * 4;
            (first..first + 4).flat_map(|t| [0, 1, 4, 5].map(|i| a[t * 8 + i + 2 * low])).sum()
        };
        let expected = (0..512).map(|at| (2.0 * row(at / 4, at % 4 / 2)).to_bits()).collect();
        (out, expected)
    };
    Kernel { name: "registers_of_a", text, grid: 1, block: 128, inputs }
}

pub fn all() -> Vec<Kernel> {
    vec![tile(), staged(), ring(), pair(), registers_of_a()]
}
