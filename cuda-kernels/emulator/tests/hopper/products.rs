//! One `wgmma` on operands that ordinary stores put into shared memory.

use crate::bench::{World, assemble, options};
use wengert_emulator::{Access, Asynchrony};

/// How an operand lies in shared memory.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Layout {
    /// The mode in the descriptor: 0 none, 1, 2, 3 for 128, 64, 32 bytes.
    pub mode: u64,
    /// Elements of one k lie side by side.
    pub transposed: bool,
    /// Bytes of the row before the first element, for K-major swizzles.
    pub skip: u32,
}

/// A product to test.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    pub n: u32,
    pub k: u32,
    pub types: [&'static str; 3],
    /// Bytes of an element of A or B.
    pub bytes: u32,
    /// `None`: in registers.
    pub a: Option<Layout>,
    pub b: Layout,
    pub negate: [bool; 2],
    pub adds: bool,
    pub saturate: bool,
}

impl Layout {
    fn row(self) -> u32 {
        [16, 128, 64, 32][self.mode as usize]
    }

    /// Leading and stride byte offsets of a dense tile.
    fn strides(self, rows: u32, k: u32, bytes: u32) -> (u32, u32) {
        match (self.transposed, self.mode) {
            (false, 0) => (rows / 8 * 128, 128),
            (false, _) => (16, 8 * self.row()),
            (true, 0) => (rows / (16 / bytes) * 128, 128),
            (true, _) => (8 * self.row() * (k / 8), 8 * self.row()),
        }
    }

    /// Bytes of the tile.
    pub fn size(self, rows: u32, k: u32, bytes: u32) -> u32 {
        match (self.transposed, self.mode) {
            (_, 0) => rows * k * bytes,
            (false, _) => rows.next_multiple_of(8) * self.row(),
            (true, _) => (rows * bytes).next_multiple_of(self.row()) * k,
        }
    }

    /// Offset of an element in the tile, which begins at a multiple of 1024: the canonical layouts
    /// of the PTX ISA as nested shapes and strides, in elements of T to 16 bytes.
    pub fn place(self, r: u32, k: u32, rows: u32, depth: u32, bytes: u32) -> u32 {
        let (leading, stride) = self.strides(rows, depth, bytes);
        let t = 16 / bytes;
        let (lbo, sbo, w) = (leading / bytes, stride / bytes, self.row() / 16);
        // ((shape of r), (shape of k)) : ((strides of r), (strides of k))
        let nested = |index: u32, shape: &[u32], strides: &[u32]| {
            let (mut rest, mut sum) = (index, 0);
            for (extent, stride) in shape.iter().zip(strides) {
                sum += rest % extent * stride;
                rest /= extent;
            }
            sum
        };
        let far = u32::MAX;
        let elements = match (self.transposed, self.mode) {
            (false, 0) => nested(r, &[8, far], &[t, sbo]) + nested(k, &[t, far], &[1, lbo]),
            (false, _) => nested(r, &[8, far], &[w * t, sbo]) + nested(k, &[t, far], &[1, t]),
            (true, 0) => nested(r, &[t, 1, far], &[1, t, sbo]) + nested(k, &[8, far], &[t, lbo]),
            (true, _) => {
                nested(r, &[t, w, far], &[1, t, lbo]) + nested(k, &[8, far], &[w * t, sbo])
            }
        };
        let address = elements * bytes + self.skip;
        // Swizzle<B,4,3>: B bits from bit 7 on are xor-ed into those from bit 4 on.
        let bits = [0, 3, 2, 1][self.mode as usize];
        let mask = ((1 << bits) - 1) << 7;
        address ^ (address & mask) >> 3
    }

    /// The descriptor, without the address.
    fn descriptor(self, rows: u32, k: u32, bytes: u32) -> u64 {
        let (leading, stride) = self.strides(rows, k, bytes);
        u64::from(leading >> 4) << 16 | u64::from(stride >> 4) << 32 | self.mode << 62
    }
}

impl Spec {
    /// Registers of D in a thread.
    pub fn registers(&self) -> u32 {
        self.n / if self.types[0] == "f16" { 4 } else { 2 }
    }

    /// The text of the kernel: copies the images of A and B into shared memory and multiplies.
    pub fn text(&self) -> String {
        let registers = self.registers();
        let a_size = self.a.map_or(16, |a| a.size(64, self.k, self.bytes));
        let b_size = self.b.size(self.n, self.k, self.bytes);
        let list = |prefix: &str, count: u32| {
            let names: Vec<String> = (0..count).map(|i| format!("%{prefix}{i}")).collect();
            names.join(", ")
        };
        let copy = |name: &str, size: u32, label: &str| {
            format!(
                "    mul.lo.u32 %r1, %r0, 16;
{label}:
    setp.ge.u32 %p0, %r1, {size};
    @%p0 bra {label}_end;
    cvt.u64.u32 %l1, %r1;
    add.u64 %l1, %l_{name}, %l1;
    ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%l1];
    mov.u32 %r2, {name};
    add.u32 %r2, %r2, %r1;
    st.shared.v4.b32 [%r2], {{%r4, %r5, %r6, %r7}};
    add.u32 %r1, %r1, 2048;
    bra {label};
{label}_end:
"
            )
        };
        let descriptor = |name: &str, layout: Layout, rows: u32| {
            format!(
                "    mov.u32 %r1, {name};
    add.u32 %r1, %r1, {};
    shr.u32 %r1, %r1, 4;
    cvt.u64.u32 %l1, %r1;
    or.b64 %d_{name}, %l1, {:#x};
",
                layout.skip,
                layout.descriptor(rows, self.k, self.bytes)
            )
        };
        let (a_load, a_operand) = match self.a {
            Some(layout) => (
                copy("tile_a", a_size, "A") + &descriptor("tile_a", layout, 64),
                "%d_tile_a".to_owned(),
            ),
            None => {
                let load = "    mul.wide.u32 %l1, %r0, 16;
    add.u64 %l1, %l_tile_a, %l1;
    ld.global.v4.b32 {%a0, %a1, %a2, %a3}, [%l1];\n";
                (load.to_owned(), "{%a0, %a1, %a2, %a3}".to_owned())
            }
        };
        let mut c_load = String::new();
        let mut d_store = String::new();
        for at in 0..registers {
            c_load += &format!("    ld.global.b32 %c{at}, [%l_d+{}];\n", 4 * at);
            d_store += &format!("    st.global.b32 [%l_d+{}], %c{at};\n", 4 * at);
        }
        let [d, a, b] = self.types;
        let scales = if d == "s32" {
            String::new()
        } else {
            let scale = |negate: bool| if negate { -1 } else { 1 };
            format!(", {}, {}", scale(self.negate[0]), scale(self.negate[1]))
        };
        let layouts = match (self.bytes, self.a) {
            (2, Some(a)) => format!(", {}, {}", a.transposed as u8, self.b.transposed as u8),
            (2, None) => format!(", {}", self.b.transposed as u8),
            _ => String::new(),
        };
        let clamp = if self.saturate { ".satfinite" } else { "" };
        format!(
            ".version 8.4
.target sm_90a
.address_size 64
.visible .entry product(.param .u64 a, .param .u64 b, .param .u64 d)
{{
    .shared .align 1024 .b8 tile_a[{a_size}];
    .shared .align 1024 .b8 tile_b[{b_size}];
    .reg .b32 %r<10>, %a<4>, %c<{registers}>;
    .reg .b64 %l<4>, %l_tile_a, %l_tile_b, %l_d, %d_tile_a, %d_tile_b;
    .reg .pred %p<3>;
    mov.u32 %r0, %tid.x;
    ld.param.u64 %l_tile_a, [a];
    ld.param.u64 %l_tile_b, [b];
    ld.param.u64 %l_d, [d];
    mul.lo.u32 %r1, %r0, {};
    cvt.u64.u32 %l1, %r1;
    add.u64 %l_d, %l_d, %l1;
{c_load}{a_load}{}{}
    setp.{}.u32 %p1, 0, 0;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n{}k{}.{d}.{a}.{b}{clamp} {{{}}}, {a_operand}, %d_tile_b, \
             %p1{scales}{layouts};
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
{d_store}    ret;
}}
",
            4 * registers,
            copy("tile_b", b_size, "B"),
            descriptor("tile_b", self.b, self.n),
            if self.adds { "eq" } else { "ne" },
            self.n,
            self.k,
            list("c", registers),
        )
    }

    /// The bits of D (64×n by rows), from those of A (64×k by rows), B (n×k by columns) and C.
    pub fn run(&self, a: &[u32], b: &[u32], c: &[u32], asynchrony: Asynchrony) -> Vec<u32> {
        let module = assemble(&self.text());
        let (n, k) = (self.n as usize, self.k as usize);
        let put = |image: &mut [u8], at: usize, value: u32| {
            let bytes = self.bytes as usize;
            image[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
        };
        let image = |layout: Layout, rows: u32, values: &[u32]| {
            let mut image = vec![0; layout.size(rows, self.k, self.bytes) as usize];
            for (at, &value) in values.iter().enumerate() {
                let (r, k) = ((at as u32) / self.k, (at as u32) % self.k);
                let place = layout.place(r, k, rows, self.k, self.bytes);
                put(&mut image, place as usize, value);
            }
            image
        };
        let a_image = match self.a {
            Some(layout) => image(layout, 64, a),
            None => {
                // Registers of A: thread, register, part.
                let parts = 4 / self.bytes as usize;
                let mut image = vec![0; 128 * 16];
                for thread in 0..128 {
                    for register in 0..4 {
                        for part in 0..parts {
                            let row = thread / 32 * 16 + thread % 32 / 4 + 8 * (register % 2);
                            let column = (thread % 4) * parts + part + 4 * parts * (register / 2);
                            let at = thread * 16 + register * 4 + part * self.bytes as usize;
                            put(&mut image, at, a[row * k + column]);
                        }
                    }
                }
                image
            }
        };
        let b_image = image(self.b, self.n, b);
        let registers = self.registers() as usize;
        let halves = self.types[0] == "f16";
        // Register and part of an element of D, PTX ISA: "WGMMA .m64nNk16 register fragment layout
        // for accumulator matrix D".
        let place = |row: usize, column: usize| {
            let thread = row / 16 * 32 + row % 8 * 4 + column % 8 / 2;
            let value = column / 8 * 4 + row % 16 / 8 * 2 + column % 2;
            if halves {
                (thread * registers + value / 2, 16 * (value % 2))
            } else {
                (thread * registers + value, 0)
            }
        };
        let mut words = vec![0u32; 128 * registers];
        for row in 0..64 {
            for column in 0..n {
                let (word, shift) = place(row, column);
                words[word] |= c[row * n + column] << shift;
            }
        }
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let mut world = World::default();
        world.buffer("a", a_image.len(), Some(&a_image), Access::Read);
        world.buffer("b", b_image.len(), Some(&b_image), Access::Read);
        let d = world.buffer("d", bytes.len(), Some(&bytes), Access::ReadWrite);
        world
            .launch(&module, 1, 128, options(asynchrony))
            .unwrap_or_else(|fault| panic!("{self:?}: {fault}"));
        let words = world.words(d, words.len());
        let mut result = vec![0; 64 * n];
        for row in 0..64 {
            for column in 0..n {
                let (word, shift) = place(row, column);
                let value = words[word] >> shift;
                result[row * n + column] = if halves { value & 0xffff } else { value };
            }
        }
        result
    }
}
