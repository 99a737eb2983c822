//! Loads, stores, vectors, generic addresses, asynchronous copies.

use crate::table::{STORE, run};

fn with_store(body: &str) -> String {
    format!("{body}{STORE}")
}

#[test]
fn sizes_and_signs() {
    let body = "
    st.shared.b32 [tile], 0x8180ff7f;
    ld.shared.s8 %w1, [tile+1];
    ld.shared.u8 %w2, [tile+1];
    ld.shared.s16 %w3, [tile+2];
    ld.shared.u16 %h0, [tile];
    cvt.u32.u16 %w4, %h0;
    ld.shared.s32 %d0, [tile];
    shr.u64 %d0, %d0, 32;
    cvt.u32.u64 %w5, %d0;
    st.shared.u8 [tile+3], %w2;
    ld.shared.u32 %w6, [tile];
    st.global.v2.u32 [%x], {%w1, %w2};
    st.global.v4.u32 [%x+16], {%w3, %w4, %w5, %w6};
    ret;";
    let out = run(body, 1, 1, 8);
    assert_eq!(out[..2], [0xffff_ffff, 0xff]);
    assert_eq!(out[4..], [0xffff_8180, 0xff7f, 0xffff_ffff, 0xff80_ff7f]);
}

#[test]
fn vectors_of_every_width() {
    let body = "
    ld.global.v4.u32 {%w1, %w2, %w3, _}, [%x];
    ld.global.nc.L1::no_allocate.L2::128B.v2.u64 {%d1, %d2}, [%x+16];
    add.u32 %w0, %w1, %w2;
    add.u32 %w0, %w0, %w3;
    cvt.u32.u64 %w4, %d1;
    shr.u64 %d2, %d2, 32;
    cvt.u32.u64 %w5, %d2;
    ld.volatile.global.v2.u16 {%h1, %h2}, [%x];
    cvt.u32.u16 %w6, %h1;
    bar.sync 0;
    st.global.cs.v4.b32 [%x], {%w0, %w4, %w5, %w6};
    ret;";
    assert_eq!(run(body, 1, 1, 8)[..4], [303, 104, 107, 100]);
}

#[test]
fn generic_addresses() {
    let body = "
    mov.u32 %w1, tile;
    cvt.u64.u32 %d1, %w1;
    cvta.shared.u64 %d2, %d1;
    mov.u64 %d3, own;
    cvta.local.u64 %d4, %d3;
    st.u32 [%d2], 7;
    st.u32 [%d4+8], 8;
    ld.shared.u32 %w2, [tile];
    ld.local.u32 %w3, [own+8];
    ld.u32 %w4, [%x];
    // half of the lanes look into shared memory, half into their own
    setp.lt.u32 %p1, %t, 16;
    add.u64 %d5, %d4, 8;
    selp.b64 %d5, %d2, %d5, %p1;
    bar.sync 0;
    ld.u32 %w5, [%d5];
    add.u32 %w0, %w2, %w3;
    add.u32 %w0, %w0, %w5;";
    // One thread, so that the shared word has one writer.
    assert_eq!(run(&with_store(body), 1, 1, 1), [22]);
}

#[test]
fn each_thread_has_its_own_local_memory() {
    let body = "
    mov.u64 %d3, own;
    and.b32 %w1, %t, 3;
    mul.wide.u32 %d4, %w1, 4;
    add.u64 %d3, %d3, %d4;
    st.local.u32 [%d3], %t;
    ld.local.u32 %w0, [%d3];";
    assert_eq!(run(&with_store(body), 1, 40, 40), (0..40).collect::<Vec<_>>());
}

#[test]
fn dynamic_shared_memory_lies_behind_the_static() {
    let body = "
    mov.u32 %w1, dynamic;
    shl.b32 %w2, %t, 2;
    add.u32 %w2, %w2, %w1;
    st.shared.u32 [%w2], %t;
    st.shared.u32 [tile], 5;
    mov.u32 %w3, tile;
    sub.u32 %w4, %w1, %w3;
    ld.shared.u32 %w0, [%w2];
    add.u32 %w0, %w0, %w4;";
    assert_eq!(run(&with_store(body), 1, 1, 1), [4096]);
}

#[test]
fn asynchronous_copies() {
    let body = "
    shl.b32 %w1, %t, 4;
    mov.u32 %w2, tile;
    add.u32 %w1, %w1, %w2;
    mul.wide.u32 %d1, %t, 16;
    add.u64 %d1, %x, %d1;
    cp.async.cg.shared.global [%w1], [%d1], 16;
    cp.async.commit_group;
    cp.async.ca.shared.global [%w1+2048], [%d1], 8, 4;
    cp.async.commit_group;
    cp.async.wait_group 1;
    bar.sync 0;
    xor.b32 %w3, %t, 1;
    shl.b32 %w3, %w3, 4;
    add.u32 %w3, %w3, %w2;
    ld.shared.u32 %w0, [%w3+12];
    cp.async.wait_all;
    ld.shared.v2.u32 {%w4, %w5}, [%w1+2048];
    bar.sync 0;
    add.u32 %w0, %w0, %w4;
    add.u32 %w0, %w0, %w5;";
    let out = run(&with_store(body), 1, 4, 16);
    // The neighbour's fourth word, plus the thread's own first word. The other half of the short
    // copy is zeros.
    assert_eq!(out[..4], [107 + 100, 103 + 104, 115 + 108, 111 + 112]);
}

#[test]
fn matrices_from_shared_memory() {
    // Row r, column c of the matrix at `tile` is 8·r + c.
    let body = "
    shl.b32 %w1, %t, 1;
    cvt.u16.u32 %h1, %w1;
    add.u16 %h2, %h1, 1;
    shl.b32 %w2, %t, 2;
    mov.u32 %w3, tile;
    add.u32 %w2, %w2, %w3;
    mov.b32 %w4, {%h1, %h2};
    st.shared.b32 [%w2], %w4;
    bar.warp.sync -1;
    and.b32 %w5, %t, 7;
    shl.b32 %w5, %w5, 4;
    add.u32 %w5, %w5, %w3;
    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%w6}, [%w5];
    ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%w7}, [%w5];
    movmatrix.sync.aligned.m8n8.trans.b16 %w8, %w6;
    shl.b32 %w0, %w7, 8;
    add.u32 %w0, %w0, %w6;
    setp.ne.u32 %p1, %w7, %w8;
    @%p1 trap;";
    let out = run(&with_store(body), 1, 32, 32);
    for (lane, &word) in out.iter().enumerate() {
        let (row, column) = (lane as u32 / 4, lane as u32 % 4 * 2);
        let plain = (8 * row + column) | (8 * row + column + 1) << 16;
        let transposed = (8 * column + row) | (8 * (column + 1) + row) << 16;
        assert_eq!(word, plain.wrapping_add(transposed << 8), "lane {lane}");
    }
}

#[test]
fn products_of_matrices() {
    // A is all ones in f16, B is all twos, C is the lane. The result is 16·2 + lane.
    let body = "
    mov.b32 %w1, 0x3c003c00;
    mov.b32 %w2, 0x40004000;
    cvt.rn.f32.u32 %w3, %t;
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%w4, %w5, %w6, %w7}, \
        {%w1, %w1, %w1, %w1}, {%w2, %w2}, {%w3, %w3, %w3, %w3};
    cvt.rzi.u32.f32 %w0, %w7;
    // The same in bytes: 32 products of 1 and 2, and in f64: 4 of 1.5 and 2.
    mov.b32 %w10, 0x01010101;
    mov.b32 %w11, 0x02020202;
    mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%w12, %w13, %w14, %w15}, \
        {%w10, %w10, %w10, %w10}, {%w11, %w11}, {%t, %t, %t, %t};
    mov.f64 %d1, 0d3FF8000000000000;
    mov.f64 %d2, 0d4000000000000000;
    cvt.rn.f64.u32 %d3, %t;
    mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d4, %d5}, {%d1}, {%d2}, {%d3, %d3};
    cvt.rzi.u32.f64 %w16, %d5;
    shl.b32 %w14, %w14, 8;
    shl.b32 %w16, %w16, 16;
    add.u32 %w0, %w0, %w14;
    add.u32 %w0, %w0, %w16;";
    let out = run(&with_store(body), 1, 32, 32);
    for (lane, &word) in (0u32..).zip(&out) {
        assert_eq!(word, (32 + lane) + ((64 + lane) << 8) + ((12 + lane) << 16));
    }
}

/// D = A·B + C for 16×16 matrices through `wmma`. A is all ones. An element of B is its index (by
/// columns) mod 8. C is all 1000.
#[test]
fn fragments() {
    let body = "
    // A, then B, in shared memory
    mov.u32 %w3, tile;
    mov.u32 %w1, 0;
FILL:
    mad.lo.u32 %w4, %w1, 32, %t;
    and.b32 %w5, %w4, 7;
    cvt.rn.f16.u32 %h1, %w5;
    mov.b16 %h2, 0x3C00;
    shl.b32 %w6, %w4, 1;
    add.u32 %w6, %w6, %w3;
    st.shared.b16 [%w6], %h2;
    st.shared.b16 [%w6+512], %h1;
    add.u32 %w1, %w1, 1;
    setp.lt.u32 %p1, %w1, 8;
    @%p1 bra FILL;
    bar.sync 0;
    mov.u32 %w7, 16;
    wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 \
        {%w10, %w11, %w12, %w13, %w14, %w15, %w16, %w17}, [%w3], %w7;
    wmma.load.b.sync.aligned.col.m16n16k16.shared.f16 \
        {%w20, %w21, %w22, %w23, %w24, %w25, %w26, %w27}, [%w3+512];
    mov.f32 %w8, 0f447A0000;
    wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 \
        {%w30, %w31, %w32, %w33, %w34, %w35, %w36, %w37},
        {%w10, %w11, %w12, %w13, %w14, %w15, %w16, %w17}, \
        {%w20, %w21, %w22, %w23, %w24, %w25, %w26, %w27},
        {%w8, %w8, %w8, %w8, %w8, %w8, %w8, %w8};
    // Twice the result in one register of each lane; by columns, with four words between them
    mul.rn.f32 %w30, %w30, 0f40000000;
    mov.u32 %w9, 20;
    wmma.store.d.sync.aligned.col.m16n16k16.global.f32 [%x], \
        {%w30, %w31, %w32, %w33, %w34, %w35, %w36, %w37}, %w9;
    ret;";
    let out = run(body, 1, 32, 16 * 20);
    // Each column of B contains 0 to 7 twice, so its sum is 56.
    let mut doubled = 0;
    for column in 0..16 {
        for row in 0..16 {
            let value = f32::from_bits(out[column * 20 + row]);
            assert!(value == 1056.0 || value == 2112.0, "{row}, {column}: {value}");
            doubled += u32::from(value == 2112.0);
        }
        if column < 15 {
            assert_eq!(out[column * 20 + 16], 100 + column as u32 * 20 + 16);
        }
    }
    assert_eq!(doubled, 32);
}

/// Products of bytes. All rows of A and all columns of B differ.
#[test]
fn fragments_of_bytes() {
    let fill = "
    // element e of A is e mod 13, of B (by rows) e mod 7
    mov.u32 %w3, tile;
    mov.u32 %w1, 0;
FILL:
    mad.lo.u32 %w4, %w1, 32, %t;
    rem.u32 %w5, %w4, 13;
    cvt.u16.u32 %h1, %w5;
    rem.u32 %w5, %w4, 7;
    cvt.u16.u32 %h2, %w5;
    add.u32 %w6, %w4, %w3;
    st.shared.u8 [%w6], %h1;
    st.shared.u8 [%w6+256], %h2;
    add.u32 %w1, %w1, 1;
    setp.lt.u32 %p1, %w1, 8;
    @%p1 bra FILL;
    bar.sync 0;
    mov.u32 %w7, 16;
    wmma.load.a.sync.aligned.row.m16n16k16.shared.u8 {%w10, %w11}, [%w3], %w7;
    wmma.load.b.sync.aligned.row.m16n16k16.shared.u8 {%w12, %w13}, [%w3+256], %w7;
    wmma.mma.sync.aligned.row.row.m16n16k16.s32.u8.u8.s32 \
        {%w20, %w21, %w22, %w23, %w24, %w25, %w26, %w27},
        {%w10, %w11}, {%w12, %w13}, {%t, %t, %t, %t, %t, %t, %t, %t};
    wmma.store.d.sync.aligned.row.m16n16k16.global.s32 [%x], \
        {%w20, %w21, %w22, %w23, %w24, %w25, %w26, %w27}, %w7;
    ret;";
    let out = run(fill, 1, 32, 256);
    for row in 0..16u32 {
        for column in 0..16u32 {
            let sum: u32 = (0..16).map(|k| (row * 16 + k) % 13 * ((k * 16 + column) % 7)).sum();
            // An element of C is the number of the lane that holds it: eight elements a lane, in
            // rows.
            let c = (row * 16 + column) / 8;
            assert_eq!(out[(row * 16 + column) as usize], sum + c, "{row}, {column}");
        }
    }
}
