//! Tests the bytes of instructions against those of the GNU assembler.

use crate::native::encode::{Address, Assembler, Code, Condition, Gpr, Place, Vector, Width};
use crate::native::instruction::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ")
}

fn check(write: impl FnOnce(&mut Assembler), text: &str, bytes: &str) {
    let mut assembler = Assembler::default();
    write(&mut assembler);
    let code = assembler.finish();
    let length = bytes.split(' ').count();
    assert_eq!(hex(&code[..length]), bytes, "{text}");
    assert!(code[length..].iter().all(|b| *b == 0xcc), "{text}");
}

/// `base + index · 2^scale + displacement`
fn at(base: Gpr, index: Option<(Gpr, u8)>, displacement: i32) -> Address {
    Address::Based { base, index, displacement }
}

/// Code, width, first register, second, last operand, mask, zeroing, immediate; text and bytes.
type Row = (Code, Width, u8, u8, Place, u8, bool, Option<u8>, &'static str, &'static str);

#[test]
fn vector_instructions() {
    use Width::{Xmm, Ymm, Zmm};
    let r = Place::Register;
    let rax = |scale| Some((Gpr::Rax, scale));
    let memory =
        |base, index, displacement, unit| Place::Memory(at(base, index, displacement), unit);
    let stack = |displacement, unit| Place::Memory(at(Gpr::Rsp, None, displacement), unit);
    let fma = |byte, wide| Code { byte, ..second(0, wide) };
    let (z, none) = (Zmm, None);
    let all: [Row; 48] = [
        (
            float(0x58, false),
            z,
            1,
            2,
            r(3),
            0,
            false,
            none,
            "vaddps zmm1, zmm2, zmm3",
            "62 f1 6c 48 58 cb",
        ),
        (
            float(0x58, false),
            z,
            17,
            18,
            r(31),
            0,
            false,
            none,
            "vaddps zmm17, zmm18, zmm31",
            "62 81 6c 40 58 cf",
        ),
        (
            float(0x58, true),
            z,
            9,
            8,
            r(7),
            0,
            false,
            none,
            "vaddpd zmm9, zmm8, zmm7",
            "62 71 bd 48 58 cf",
        ),
        (
            float(0x59, false),
            z,
            5,
            6,
            r(20),
            3,
            true,
            none,
            "vmulps zmm5{k3}{z}, zmm6, zmm20",
            "62 b1 4c cb 59 ec",
        ),
        (
            MOVE,
            z,
            4,
            0,
            memory(Gpr::R8, rax(2), 64, 64),
            1,
            true,
            none,
            "vmovups zmm4{k1}{z}, [r8+rax*4+64]",
            "62 d1 7c c9 10 64 80 01",
        ),
        (
            MOVE_OUT,
            z,
            30,
            0,
            memory(Gpr::R13, rax(2), 0, 64),
            0,
            false,
            none,
            "vmovups [r13+rax*4], zmm30",
            "62 41 7c 48 11 74 85 00",
        ),
        (
            MOVE_OUT,
            z,
            12,
            0,
            memory(Gpr::Rbx, rax(2), 3, 64),
            0,
            false,
            none,
            "vmovups [rbx+rax*4+3], zmm12",
            "62 71 7c 48 11 a4 83 03 00 00 00",
        ),
        (
            MOVE_WIDE,
            z,
            25,
            0,
            stack(128, 64),
            0,
            false,
            none,
            "vmovupd zmm25, [rsp+128]",
            "62 61 fd 48 10 4c 24 02",
        ),
        (
            MOVE_OUT_WIDE,
            z,
            25,
            0,
            stack(8192, 64),
            0,
            false,
            none,
            "vmovupd [rsp+8192], zmm25",
            "62 61 fd 48 11 8c 24 00 20 00 00",
        ),
        (
            float(0x58, false),
            z,
            1,
            2,
            Place::Broadcast(at(Gpr::Rsp, None, 8), 4),
            0,
            false,
            none,
            "vaddps zmm1, zmm2, dword ptr [rsp+8]{1to16}",
            "62 f1 6c 58 58 4c 24 02",
        ),
        (
            float(0x58, true),
            z,
            1,
            2,
            Place::Broadcast(at(Gpr::Rsp, None, 8), 8),
            0,
            false,
            none,
            "vaddpd zmm1, zmm2, qword ptr [rsp+8]{1to8}",
            "62 f1 ed 58 58 4c 24 01",
        ),
        (
            fma(0xa8, false),
            z,
            3,
            4,
            r(19),
            0,
            false,
            none,
            "vfmadd213ps zmm3, zmm4, zmm19",
            "62 b2 5d 48 a8 db",
        ),
        (
            fma(0xb8, true),
            z,
            3,
            4,
            r(19),
            0,
            false,
            none,
            "vfmadd231pd zmm3, zmm4, zmm19",
            "62 b2 dd 48 b8 db",
        ),
        (
            float(0xc2, false),
            z,
            5,
            16,
            r(2),
            0,
            false,
            Some(4),
            "vcmpps k5, zmm16, zmm2, 4",
            "62 f1 7c 40 c2 ea 04",
        ),
        (
            second(0x64, false),
            z,
            7,
            8,
            r(9),
            2,
            false,
            none,
            "vpblendmd zmm7{k2}, zmm8, zmm9",
            "62 d2 3d 4a 64 f9",
        ),
        (
            second(0x66, true),
            Ymm,
            7,
            8,
            r(9),
            2,
            false,
            none,
            "vpblendmw ymm7{k2}, ymm8, ymm9",
            "62 d2 bd 2a 66 f9",
        ),
        (
            third(0x08, false),
            z,
            1,
            0,
            r(2),
            0,
            false,
            Some(8),
            "vrndscaleps zmm1, zmm2, 8",
            "62 f3 7d 48 08 ca 08",
        ),
        (
            third(0x50, true),
            z,
            1,
            2,
            r(3),
            0,
            false,
            Some(5),
            "vrangepd zmm1, zmm2, zmm3, 5",
            "62 f3 ed 48 50 cb 05",
        ),
        (
            second(0x46, true),
            z,
            1,
            2,
            r(3),
            0,
            false,
            none,
            "vpsravq zmm1, zmm2, zmm3",
            "62 f2 ed 48 46 cb",
        ),
        (
            integer(0xf4, true),
            z,
            1,
            2,
            r(3),
            0,
            false,
            none,
            "vpmuludq zmm1, zmm2, zmm3",
            "62 f1 ed 48 f4 cb",
        ),
        (I32_TO_F32, z, 1, 0, r(22), 0, false, none, "vcvtdq2ps zmm1, zmm22", "62 b1 7c 48 5b ce"),
        (U32_TO_F32, z, 1, 0, r(22), 0, false, none, "vcvtudq2ps zmm1, zmm22", "62 b1 7f 48 7a ce"),
        (
            F32_TO_I32,
            z,
            1,
            0,
            r(22),
            2,
            true,
            none,
            "vcvttps2dq zmm1{k2}{z}, zmm22",
            "62 b1 7e ca 5b ce",
        ),
        (F32_TO_U32, z, 1, 0, r(2), 0, false, none, "vcvttps2udq zmm1, zmm2", "62 f1 7c 48 78 ca"),
        (F32_TO_F64, z, 1, 0, r(2), 0, false, none, "vcvtps2pd zmm1, ymm2", "62 f1 7c 48 5a ca"),
        (F64_TO_F32, z, 1, 0, r(2), 0, false, none, "vcvtpd2ps ymm1, zmm2", "62 f1 fd 48 5a ca"),
        (I32_TO_F64, z, 1, 0, r(2), 0, false, none, "vcvtdq2pd zmm1, ymm2", "62 f1 7e 48 e6 ca"),
        (U32_TO_F64, z, 1, 0, r(2), 0, false, none, "vcvtudq2pd zmm1, ymm2", "62 f1 7e 48 7a ca"),
        (I64_TO_F64, z, 1, 0, r(2), 0, false, none, "vcvtqq2pd zmm1, zmm2", "62 f1 fe 48 e6 ca"),
        (U64_TO_F64, z, 1, 0, r(2), 0, false, none, "vcvtuqq2pd zmm1, zmm2", "62 f1 fe 48 7a ca"),
        (I64_TO_F32, z, 1, 0, r(2), 0, false, none, "vcvtqq2ps ymm1, zmm2", "62 f1 fc 48 5b ca"),
        (U64_TO_F32, z, 1, 0, r(2), 0, false, none, "vcvtuqq2ps ymm1, zmm2", "62 f1 ff 48 7a ca"),
        (F64_TO_I64, z, 1, 0, r(2), 0, false, none, "vcvttpd2qq zmm1, zmm2", "62 f1 fd 48 7a ca"),
        (F64_TO_U64, z, 1, 0, r(2), 0, false, none, "vcvttpd2uqq zmm1, zmm2", "62 f1 fd 48 78 ca"),
        (
            F32_TO_F16,
            z,
            2,
            0,
            r(17),
            0,
            false,
            Some(0),
            "vcvtps2ph ymm17, zmm2, 0",
            "62 b3 7d 48 1d d1 00",
        ),
        (
            UPPER_HALF,
            z,
            2,
            0,
            r(17),
            0,
            false,
            Some(1),
            "vextracti64x4 ymm17, zmm2, 1",
            "62 b3 fd 48 3b d1 01",
        ),
        (
            WITH_UPPER_HALF,
            z,
            1,
            2,
            r(3),
            0,
            false,
            Some(1),
            "vinserti64x4 zmm1, zmm2, ymm3, 1",
            "62 f3 ed 48 3a cb 01",
        ),
        (TRUNCATE, z, 2, 0, r(1), 0, false, none, "vpmovqd ymm1, zmm2", "62 f2 7e 48 35 d1"),
        (
            ZERO_EXTEND_HALVES,
            z,
            1,
            0,
            memory(Gpr::R9, rax(1), 32, 32),
            1,
            true,
            none,
            "vpmovzxwd zmm1{k1}{z}, [r9+rax*2+32]",
            "62 d2 7d c9 33 4c 41 01",
        ),
        (
            TRUNCATE_HALVES,
            z,
            1,
            0,
            memory(Gpr::R9, rax(1), 32, 32),
            1,
            false,
            none,
            "vpmovdw [r9+rax*2+32]{k1}, zmm1",
            "62 d2 7e 49 33 4c 41 01",
        ),
        (
            SIGN_EXTEND_BYTES,
            z,
            1,
            0,
            memory(Gpr::R9, rax(0), 16, 16),
            0,
            false,
            none,
            "vpmovsxbd zmm1, [r9+rax+16]",
            "62 d2 7d 48 21 4c 01 01",
        ),
        (
            TRUNCATE_BYTES,
            z,
            1,
            0,
            memory(Gpr::R9, rax(0), 16, 16),
            0,
            false,
            none,
            "vpmovdb [r9+rax+16], zmm1",
            "62 d2 7e 48 31 4c 01 01",
        ),
        (
            MOVE_HALVES,
            Ymm,
            1,
            0,
            memory(Gpr::R9, rax(1), 32, 32),
            0,
            false,
            none,
            "vmovdqu16 ymm1, [r9+rax*2+32]",
            "62 d1 ff 28 6f 4c 41 01",
        ),
        (
            MOVE_BYTES_OUT,
            Xmm,
            1,
            0,
            memory(Gpr::R9, rax(0), 16, 16),
            0,
            false,
            none,
            "vmovdqu8 [r9+rax+16], xmm1",
            "62 d1 7f 08 7f 4c 01 01",
        ),
        (
            TEST_BYTES,
            Xmm,
            2,
            1,
            r(1),
            0,
            false,
            none,
            "vptestmb k2, xmm1, xmm1",
            "62 f2 75 08 26 d1",
        ),
        (BYTES_OF_MASK, Xmm, 1, 0, r(3), 0, false, none, "vpmovm2b xmm1, k3", "62 f2 7e 08 28 cb"),
        (
            SPREAD,
            z,
            1,
            0,
            stack(4, 4),
            0,
            false,
            none,
            "vpbroadcastd zmm1, [rsp+4]",
            "62 f2 7d 48 58 4c 24 01",
        ),
        (
            STREAM_OUT,
            z,
            3,
            0,
            memory(Gpr::R12, rax(2), 0, 64),
            0,
            false,
            none,
            "vmovntps [r12+rax*4], zmm3",
            "62 d1 7c 48 2b 1c 84",
        ),
    ];
    for (code, width, reg, second, place, mask, zeroing, immediate, text, bytes) in all {
        let vector = Vector { code, width, reg, second, place, mask, zeroing, immediate };
        check(|a| a.vector(vector), text, bytes);
    }
}

#[test]
fn instructions_on_masks() {
    let r = Place::Register;
    let stack = Place::Memory(at(Gpr::Rsp, None, 64), 1);
    let all = [
        (MASK_AND, true, 2, 3, r(4), None, "kandw k2, k3, k4", "c5 e4 41 d4"),
        (MASK_AND_NOT, true, 2, 3, r(4), None, "kandnw k2, k3, k4", "c5 e4 42 d4"),
        (MASK_NOT, false, 2, 0, r(3), None, "knotw k2, k3", "c5 f8 44 d3"),
        (MASK_JOIN, true, 2, 3, r(4), None, "kunpckbw k2, k3, k4", "c5 e5 4b d4"),
        (MASK_SHIFT_RIGHT, false, 7, 0, r(1), Some(8), "kshiftrw k7, k1, 8", "c4 e3 f9 30 f9 08"),
        (MASK_MOVE, false, 2, 0, stack, None, "kmovw k2, [rsp+64]", "c5 f8 90 54 24 40"),
        (MASK_MOVE_OUT, false, 2, 0, stack, None, "kmovw [rsp+64], k2", "c5 f8 91 54 24 40"),
        (MASK_OF_GENERAL, false, 1, 0, r(2), None, "kmovw k1, edx", "c5 f8 92 ca"),
    ];
    for (code, long, reg, second, place, immediate, text, bytes) in all {
        check(|a| a.mask(code, long, reg, second, place, immediate), text, bytes);
    }
}

#[test]
fn general_instructions() {
    use Gpr::*;
    check(|a| a.copy(Rbp, Rsp), "mov rbp, rsp", "48 8b ec");
    check(|a| a.load(R12, at(Rdi, None, 16)), "mov r12, [rdi+16]", "4c 8b 67 10");
    check(
        |a| a.load_element(Rdx, at(Rdx, None, 0), 1, false),
        "movzx edx, byte ptr [rdx]",
        "0f b6 12",
    );
    check(
        |a| a.load_element(Rdx, at(Rdx, None, 0), 1, true),
        "movsx edx, byte ptr [rdx]",
        "0f be 12",
    );
    check(
        |a| a.load_element(Rdx, at(Rdx, None, 0), 2, false),
        "movzx edx, word ptr [rdx]",
        "0f b7 12",
    );
    check(|a| a.load_element(Rdx, at(Rdx, None, 0), 4, false), "mov edx, [rdx]", "8b 12");
    check(|a| a.store(at(Rsp, None, 8), Rdx), "mov [rsp+8], rdx", "48 89 54 24 08");
    check(|a| a.address(Rsp, at(Rbp, None, -24)), "lea rsp, [rbp-24]", "48 8d 65 e8");
    check(|a| a.set(Rax, 7), "mov eax, 7", "b8 07 00 00 00");
    check(|a| a.add(Rax, 64), "add rax, 64", "48 81 c0 40 00 00 00");
    check(|a| a.and(Rsp, -64), "and rsp, -64", "48 81 e4 c0 ff ff ff");
    check(|a| a.subtract(Rcx, Rax), "sub rcx, rax", "48 2b c8");
    check(|a| a.negate(Rdx), "neg rdx", "48 f7 da");
    check(|a| a.shift_left(Rdx), "shl rdx, cl", "48 d3 e2");
    check(|a| a.compare(Rax, Rcx), "cmp rax, rcx", "48 3b c1");
    check(|a| a.push(R12), "push r12", "41 54");
    check(|a| a.pop(Rbx), "pop rbx", "5b");
    check(|a| a.fence(), "sfence", "0f ae f8");
    check(|a| a.return_clean(), "vzeroupper; ret", "c5 f8 77 c3");
}

#[test]
fn jumps_and_constants_find_their_places() {
    let mut a = Assembler::default();
    let (back, on) = (a.label(), a.label());
    a.place(back);
    a.jump(Condition::Below, on);
    a.jump(Condition::NotBelow, back);
    a.place(on);
    let first = a.constant(1, 4);
    let (second, again) = (a.constant(7, 8), a.constant(7, 8));
    assert_ne!(first, second);
    assert_eq!(second, again);
    a.vector(Vector {
        code: third(0x08, false),
        width: Width::Zmm,
        reg: 1,
        second: 0,
        place: Place::Broadcast(second, 4),
        mask: 0,
        zeroing: false,
        immediate: Some(8),
    });
    let code = a.finish();
    // jb +6; jae −12; then rip + 8 after the 64 bytes of code.
    let end = 12 + 11;
    let distance = 64 + 8 - end as u8;
    assert_eq!(hex(&code[..12]), "0f 82 06 00 00 00 0f 83 f4 ff ff ff");
    assert_eq!(hex(&code[12..end]), format!("62 f3 7d 58 08 0d {distance:02x} 00 00 00 08"));
    assert_eq!(code[64..], [1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
}
