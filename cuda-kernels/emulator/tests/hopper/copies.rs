//! Bulk copies by values: boxes of tensors against loops over their elements.

use crate::bench::{MODES, Numbers, World, assemble, options};
use wengert_emulator::{Access, ElementType, Swizzle, TensorMap};

/// A tensor whose bytes are random, and a box of it.
struct Tensor {
    ty: ElementType,
    dims: Vec<u64>,
    strides: Vec<u64>,
    extents: Vec<u32>,
    steps: Vec<u32>,
    swizzle: Swizzle,
}

impl Tensor {
    fn dense(ty: ElementType, dims: &[u64], extents: &[u32], swizzle: Swizzle) -> Tensor {
        let mut strides = Vec::new();
        let mut bytes = u64::from(ty.bytes());
        for dim in &dims[..dims.len() - 1] {
            // Rows are padded to multiples of 16 bytes.
            bytes = (bytes * dim).next_multiple_of(16);
            strides.push(bytes);
        }
        let (dims, extents) = (dims.to_vec(), extents.to_vec());
        let steps = vec![1; dims.len()];
        Tensor { ty, dims, strides, extents, steps, swizzle }
    }

    fn bytes(&self) -> usize {
        let last = self.dims.len() - 1;
        let row = if last == 0 {
            u64::from(self.ty.bytes()) * self.dims[0]
        } else {
            self.strides[last - 1] * self.dims[last]
        };
        row as usize
    }

    fn map(&self, address: u64) -> TensorMap {
        let (dims, strides) = (&self.dims, &self.strides);
        TensorMap::tiled(self.ty, address, dims, strides, &self.extents, &self.steps, self.swizzle)
            .unwrap()
    }

    fn counts(&self) -> Vec<u32> {
        self.extents.iter().zip(&self.steps).map(|(e, s)| e.div_ceil(*s)).collect()
    }

    /// Bytes of the box in shared memory.
    fn room(&self) -> usize {
        let pitch = self.pitch();
        self.counts()[1..].iter().product::<u32>() as usize * pitch
    }

    fn pitch(&self) -> usize {
        match self.swizzle {
            Swizzle::None => (self.extents[0] * self.ty.bytes()) as usize,
            Swizzle::Bytes32 => 32,
            Swizzle::Bytes64 => 64,
            Swizzle::Bytes128 => 128,
        }
    }

    /// For each element of the box: its place in shared memory, and its offset in the tensor if it
    /// lies there.
    fn elements(&self, at: &[i32]) -> Vec<(usize, Option<usize>)> {
        let (counts, size) = (self.counts(), self.ty.bytes() as usize);
        let total: u32 = counts.iter().product();
        let mut elements = Vec::new();
        for index in 0..total {
            let (mut rest, mut inside, mut offset, mut row) = (index, true, 0i64, 0);
            let mut scale = 1;
            for (axis, &count) in counts.iter().enumerate() {
                let i = rest % count;
                rest /= count;
                let step = if axis == 0 { 1 } else { self.steps[axis] };
                let place = i64::from(at[axis]) + i64::from(i * step);
                inside &= (0..self.dims[axis] as i64).contains(&place);
                let stride = if axis == 0 { size as u64 } else { self.strides[axis - 1] };
                offset += place * stride as i64;
                if axis > 0 {
                    row += (i * scale) as usize;
                    scale *= count;
                }
            }
            let linear = row * self.pitch() + (index % counts[0]) as usize * size;
            let bits = match self.swizzle {
                Swizzle::None => 0,
                Swizzle::Bytes32 => 1,
                Swizzle::Bytes64 => 2,
                Swizzle::Bytes128 => 3,
            };
            let mask = ((1 << bits) - 1) << 7;
            let place = linear ^ (linear & mask) >> 3;
            elements.push((place, inside.then_some(offset as usize)));
        }
        elements
    }
}

fn coordinates(rank: usize) -> String {
    let names: Vec<String> = (0..rank).map(|i| format!("%c{i}")).collect();
    format!("{{{}}}", names.join(", "))
}

fn parameters(at: &[i32]) -> Vec<u8> {
    let mut bytes: Vec<u8> = at.iter().flat_map(|c| c.to_le_bytes()).collect();
    bytes.resize(20, 0);
    bytes
}

/// Loads a box, and copies shared memory to global memory byte by byte.
fn load_text(rank: usize, room: usize) -> String {
    let mut loads = String::new();
    for axis in 0..rank {
        loads += &format!("    ld.param.u32 %c{axis}, [at+{}];\n", 4 * axis);
    }
    format!(
        ".version 8.0
.target sm_90a
.address_size 64
.visible .entry load(.param .align 64 .b8 map[128], .param .align 4 .b8 at[20], .param .u64 out,
    .param .u32 bytes)
{{
    .shared .align 1024 .b8 box[{room}];
    .shared .align 8 .b8 full[8];
    .reg .b32 %r<20>, %c<5>;
    .reg .b64 %l<10>;
    .reg .pred %p<4>;
    mov.u32 %r0, %tid.x;
    setp.ne.u32 %p0, %r0, 0;
    ld.param.u64 %l1, [out];
    ld.param.u32 %r1, [bytes];
    mov.u32 %r2, box;
    mov.u32 %r3, full;
{loads}    // The bytes that the copy leaves as they are.
    mov.u32 %r4, %r0;
CLEAR:
    setp.ge.u32 %p1, %r4, {room};
    @%p1 bra CLEARED;
    add.u32 %r5, %r2, %r4;
    st.shared.u8 [%r5], 0xee;
    add.u32 %r4, %r4, 64;
    bra.uni CLEAR;
CLEARED:
    fence.proxy.async.shared::cta;
    bar.sync 0;
    @%p0 bra READY;
    mbarrier.init.shared.b64 [full], 1;
    fence.mbarrier_init.release.cluster;
    mov.u64 %l0, map;
    cvta.param.u64 %l0, %l0;
    mbarrier.arrive.expect_tx.shared.b64 %l5, [full], %r1;
    cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes \
     [%r2], [%l0, {}], [%r3];
READY:
    bar.sync 0;
WAIT:
    mbarrier.test_wait.parity.shared.b64 %p2, [full], 0;
    @!%p2 bra WAIT;
    mov.u32 %r4, %r0;
DUMP:
    setp.ge.u32 %p1, %r4, {room};
    @%p1 bra END;
    add.u32 %r5, %r2, %r4;
    ld.shared.u8 %r6, [%r5];
    cvt.u64.u32 %l2, %r4;
    add.u64 %l2, %l1, %l2;
    st.global.u8 [%l2], %r6;
    add.u32 %r4, %r4, 64;
    bra.uni DUMP;
END:
    ret;
}}
",
        coordinates(rank)
    )
}

fn load(tensor: &Tensor, at: &[i32]) {
    let module = assemble(&load_text(tensor.dims.len(), tensor.room()));
    let mut numbers = Numbers(tensor.bytes() as u64);
    let data: Vec<u8> = (0..tensor.bytes()).map(|_| numbers.bits() as u8).collect();
    for mode in MODES {
        let mut world = World::default();
        let address = world.place("tensor", data.len(), Some(&data));
        let map = tensor.map(address);
        world.bytes(&map.bytes());
        world.bytes(&parameters(at));
        let out = world.buffer("out", tensor.room(), None, Access::Write);
        world.bytes(&map.box_bytes().to_le_bytes());
        world.launch(&module, 1, 64, options(mode)).unwrap_or_else(|e| panic!("{at:?}: {e}"));
        let found = world.memory.read(out, tensor.room()).unwrap();
        let mut expected = vec![0xee; tensor.room()];
        let size = tensor.ty.bytes() as usize;
        for (place, offset) in tensor.elements(at) {
            let value = match offset {
                Some(offset) => &data[offset..offset + size],
                None => &[0; 8][..size],
            };
            expected[place..place + size].copy_from_slice(value);
        }
        assert!(found == expected, "{:?} {:?} at {at:?}", tensor.dims, tensor.swizzle);
    }
}

#[test]
fn boxes_of_every_rank() {
    use ElementType::{BF16, F32, F64, U8};
    let none = Swizzle::None;
    load(&Tensor::dense(U8, &[100], &[32], none), &[80]);
    load(&Tensor::dense(BF16, &[40, 9], &[16, 4], none), &[30, -2]);
    load(&Tensor::dense(F32, &[7, 5, 4], &[4, 3, 2], none), &[4, 3, 2]);
    load(&Tensor::dense(F64, &[4, 3, 3, 2], &[2, 2, 2, 2], none), &[-1, 1, -1, 1]);
    load(&Tensor::dense(BF16, &[10, 2, 3, 2, 3], &[8, 2, 2, 1, 3], none), &[5, 0, 2, 1, -1]);
}

#[test]
fn boxes_with_a_swizzle() {
    for (swizzle, row) in [(Swizzle::Bytes32, 16), (Swizzle::Bytes64, 32), (Swizzle::Bytes128, 64)]
    {
        for extent in [row, row / 2] {
            let tensor = Tensor::dense(ElementType::BF16, &[100, 40], &[extent, 24], swizzle);
            load(&tensor, &[11, 7]);
        }
    }
}

#[test]
fn boxes_with_steps_and_wide_strides() {
    let tensor = Tensor {
        ty: ElementType::F32,
        dims: vec![20, 6, 5],
        strides: vec![112, 1024],
        extents: vec![8, 5, 3],
        steps: vec![1, 2, 3],
        swizzle: Swizzle::None,
    };
    load(&tensor, &[3, 1, 1]);
    load(&tensor, &[15, -1, 4]);
}

/// Stores or adds a box of words.
fn store_text(instruction: &str, room: usize) -> String {
    format!(
        ".version 8.0
.target sm_90a
.address_size 64
.visible .entry store(.param .align 64 .b8 map[128], .param .align 4 .b8 at[20], .param .u64 in)
{{
    .shared .align 1024 .b8 box[{room}];
    .reg .b32 %r<20>, %c<5>;
    .reg .b64 %l<10>;
    .reg .pred %p<4>;
    mov.u32 %r0, %tid.x;
    setp.ne.u32 %p0, %r0, 0;
    ld.param.u64 %l1, [in];
    mov.u32 %r2, box;
    ld.param.u32 %c0, [at];
    ld.param.u32 %c1, [at+4];
    mov.u32 %r4, %r0;
FILL:
    setp.ge.u32 %p1, %r4, {room};
    @%p1 bra FILLED;
    cvt.u64.u32 %l2, %r4;
    add.u64 %l2, %l1, %l2;
    ld.global.u8 %r6, [%l2];
    add.u32 %r5, %r2, %r4;
    st.shared.u8 [%r5], %r6;
    add.u32 %r4, %r4, 64;
    bra.uni FILL;
FILLED:
    fence.proxy.async.shared::cta;
    bar.sync 0;
    @%p0 bra END;
    mov.u64 %l0, map;
    cvta.param.u64 %l0, %l0;
    {instruction} [%l0, {{%c0, %c1}}], [%r2];
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
END:
    ret;
}}
"
    )
}

#[test]
fn boxes_are_stored_and_added() {
    for (adds, swizzle) in
        [(false, Swizzle::Bytes128), (true, Swizzle::None), (true, Swizzle::Bytes64)]
    {
        let tensor = Tensor::dense(ElementType::U32, &[30, 12], &[16, 8], swizzle);
        let instruction = if adds {
            "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group"
        } else {
            "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
        };
        let module = assemble(&store_text(instruction, tensor.room()));
        for (mode, at) in MODES.into_iter().zip([[3, 2], [20, 7], [-5, -3], [25, 10]]) {
            let mut numbers = Numbers(40);
            let old: Vec<u8> = (0..tensor.bytes()).map(|_| numbers.bits() as u8).collect();
            let new: Vec<u8> = (0..tensor.room()).map(|_| numbers.bits() as u8).collect();
            let mut world = World::default();
            let address = world.place("tensor", old.len(), Some(&old));
            world.bytes(&tensor.map(address).bytes());
            world.bytes(&parameters(&at));
            world.buffer("in", new.len(), Some(&new), Access::Read);
            world.launch(&module, 1, 64, options(mode)).unwrap_or_else(|e| panic!("{at:?}: {e}"));
            let mut expected = old.clone();
            let word =
                |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            for (place, offset) in tensor.elements(&at) {
                let Some(offset) = offset else { continue };
                let value =
                    word(&new, place).wrapping_add(if adds { word(&old, offset) } else { 0 });
                expected[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
            }
            let found = world.memory.read(address, old.len()).unwrap();
            assert!(found == expected, "{adds} {swizzle:?} at {at:?}");
        }
    }
}

/// States, counts, drops and tokens of one barrier, in one thread.
#[test]
fn barriers_count() {
    let text = ".version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{
    .shared .align 8 .b8 bar[8];
    .reg .b32 %r<20>;
    .reg .b64 %l<10>;
    .reg .pred %p<10>;
    ld.param.u64 %l0, [out];
    mbarrier.init.shared.b64 [bar], 3;
    mbarrier.arrive.shared.b64 %l1, [bar];
    mbarrier.pending_count.b64 %r0, %l1;
    mbarrier.arrive.noComplete.shared.b64 %l2, [bar], 1;
    mbarrier.pending_count.b64 %r1, %l2;
    mbarrier.test_wait.shared.b64 %p0, [bar], %l1;
    mbarrier.test_wait.parity.shared.b64 %p1, [bar], 1;
    mbarrier.arrive_drop.shared.b64 %l3, [bar];
    mbarrier.test_wait.shared.b64 %p2, [bar], %l1;
    mbarrier.test_wait.parity.shared.b64 %p3, [bar], 0;
    // The next phase expects two arrivals, and here bytes as well.
    mbarrier.arrive.expect_tx.shared.b64 %l4, [bar], 64;
    mbarrier.pending_count.b64 %r2, %l4;
    mbarrier.arrive.shared.b64 %l5, [bar];
    mbarrier.test_wait.parity.shared.b64 %p4, [bar], 1;
    mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 60;
    mbarrier.test_wait.parity.shared.b64 %p5, [bar], 1;
    mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 4;
    mbarrier.test_wait.parity.shared.b64 %p6, [bar], 1;
    mbarrier.inval.shared.b64 [bar];
    mbarrier.init.shared.b64 [bar], 1;
    mbarrier.test_wait.parity.shared.b64 %p7, [bar], 0;
    selp.u32 %r3, 1, 0, %p0;
    selp.u32 %r4, 2, 0, %p1;
    selp.u32 %r5, 4, 0, %p2;
    selp.u32 %r6, 8, 0, %p3;
    selp.u32 %r7, 16, 0, %p4;
    selp.u32 %r8, 32, 0, %p5;
    selp.u32 %r9, 64, 0, %p6;
    selp.u32 %r10, 128, 0, %p7;
    add.u32 %r3, %r3, %r4;
    add.u32 %r3, %r3, %r5;
    add.u32 %r3, %r3, %r6;
    add.u32 %r3, %r3, %r7;
    add.u32 %r3, %r3, %r8;
    add.u32 %r3, %r3, %r9;
    add.u32 %r3, %r3, %r10;
    st.global.v4.u32 [%l0], {%r0, %r1, %r2, %r3};
    ret;
}
";
    let module = assemble(text);
    for mode in MODES {
        let mut world = World::default();
        let out = world.buffer("out", 16, None, Access::Write);
        world.launch(&module, 1, 1, options(mode)).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(world.words(out, 4), [3, 2, 2, 2 + 4 + 8 + 64]);
    }
}

/// Copies by `cp.async` arrive at a barrier; a bulk copy of consecutive bytes goes from one block's
/// shared memory to the other's, and its sum with what is there to global memory.
#[test]
fn copies_between_blocks() {
    let text = ".version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y)
.reqnctapercluster 2, 1, 1
{
    .shared .align 128 .b8 mine[512];
    .shared .align 128 .b8 theirs[512];
    .shared .align 8 .b8 bars[16];
    .reg .b32 %r<20>;
    .reg .b64 %l<10>;
    .reg .pred %p<10>;
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %cluster_ctaid.x;
    mov.u32 %r2, %clusterid.x;
    mov.u32 %r15, %cluster_nctaid.x;
    mad.lo.u32 %r2, %r2, %r15, %r1;
    ld.param.u64 %l0, [x];
    ld.param.u64 %l1, [y];
    setp.ne.u32 %p0, %r0, 0;
    mul.lo.u32 %r3, %r2, 512;
    cvt.u64.u32 %l2, %r3;
    add.u64 %l0, %l0, %l2;
    mul.wide.u32 %l3, %r0, 16;
    add.u64 %l3, %l0, %l3;
    @%p0 bra READY;
    mbarrier.init.shared.b64 [bars], 32;
    mbarrier.init.shared.b64 [bars+8], 1;
    mbarrier.arrive.expect_tx.shared.b64 %l5, [bars+8], 512;
    fence.mbarrier_init.release.cluster;
READY:
    bar.warp.sync 0xffffffff;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    mov.u32 %r4, mine;
    mul.lo.u32 %r5, %r0, 16;
    add.u32 %r4, %r4, %r5;
    cp.async.cg.shared.global [%r4], [%l3], 16;
    cp.async.mbarrier.arrive.noinc.shared.b64 [bars];
COPIED:
    mbarrier.try_wait.parity.shared.b64 %p1, [bars], 0;
    @!%p1 bra COPIED;
    fence.proxy.async;
    bar.warp.sync 0xffffffff;
    @%p0 bra WAIT;
    xor.b32 %r6, %r1, 1;
    mov.u32 %r7, theirs;
    mapa.shared::cluster.u32 %r8, %r7, %r6;
    mov.u32 %r9, bars;
    mapa.shared::cluster.u32 %r10, %r9, %r6;
    getctarank.shared::cluster.u32 %r11, %r8;
    sub.u32 %r11, %r11, %r6;
    add.u32 %r8, %r8, %r11;
    mov.u32 %r12, mine;
    cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r8], [%r12], 512, \
     [%r10+8];
WAIT:
    mbarrier.try_wait.parity.shared.b64 %p1, [bars+8], 0;
    @!%p1 bra WAIT;
    @%p0 bra END;
    add.u64 %l6, %l1, %l2;
    mov.u32 %r7, theirs;
    cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%l6], [%r7], 512;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 0;
END:
    barrier.cluster.arrive;
    barrier.cluster.wait;
    ret;
}
";
    let module = assemble(text);
    let words: Vec<u32> = (0..512).map(|i| i * 7 + 1).collect();
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    for mode in MODES {
        let mut world = World::default();
        world.buffer("x", 2048, Some(&bytes), Access::Read);
        let y = world.buffer("y", 2048, Some(&bytes), Access::ReadWrite);
        world.launch(&module, 4, 32, options(mode)).unwrap_or_else(|e| panic!("{mode:?}: {e}"));
        let expected: Vec<u32> = (0..512).map(|i| words[i] + words[i ^ 128]).collect();
        assert_eq!(world.words(y, 512), expected, "{mode:?}");
    }
}
