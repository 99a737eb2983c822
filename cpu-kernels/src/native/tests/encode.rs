//! Instructions as a disassembler reads them: every instruction that native code has, with random
//! registers, masks, addresses and immediates.

use crate::native::encode::{Address, Assembler, Code, Condition, Gpr, Place, Vector, Width};
use crate::native::instruction::*;
use iced_x86::{Decoder, DecoderOptions, Formatter, IntelFormatter, MemorySizeOptions, NumberBase};
use wengert_testing::Random;

const GENERAL: [(Gpr, &str, &str); 16] = [
    (Gpr::Rax, "rax", "eax"),
    (Gpr::Rcx, "rcx", "ecx"),
    (Gpr::Rdx, "rdx", "edx"),
    (Gpr::Rbx, "rbx", "ebx"),
    (Gpr::Rsp, "rsp", "esp"),
    (Gpr::Rbp, "rbp", "ebp"),
    (Gpr::Rsi, "rsi", "esi"),
    (Gpr::Rdi, "rdi", "edi"),
    (Gpr::R8, "r8", "r8d"),
    (Gpr::R9, "r9", "r9d"),
    (Gpr::R10, "r10", "r10d"),
    (Gpr::R11, "r11", "r11d"),
    (Gpr::R12, "r12", "r12d"),
    (Gpr::R13, "r13", "r13d"),
    (Gpr::R14, "r14", "r14d"),
    (Gpr::R15, "r15", "r15d"),
];

/// The instructions of some code, one to a line, with decimal numbers.
fn disassembled(code: &[u8]) -> Vec<String> {
    let mut formatter = IntelFormatter::new();
    let options = formatter.options_mut();
    options.set_number_base(NumberBase::Decimal);
    options.set_memory_size_options(MemorySizeOptions::Always);
    options.set_signed_immediate_operands(true);
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let mut lines = vec![];
    while decoder.can_decode() {
        let instruction = decoder.decode();
        assert!(!instruction.is_invalid(), "{code:02x?}");
        let mut line = String::new();
        formatter.format(&instruction, &mut line);
        lines.push(line);
    }
    lines
}

/// Checks the instructions that `write` appends. The breakpoints after them fill 64 bytes.
fn check(write: impl FnOnce(&mut Assembler), wanted: &str) {
    let mut assembler = Assembler::default();
    write(&mut assembler);
    let mut lines = disassembled(&assembler.finish());
    lines.truncate(lines.iter().rposition(|line| line != "int3").map_or(0, |last| last + 1));
    assert_eq!(lines.join("; "), wanted);
}

/// A random address, and its text.
fn address(random: &mut Random, unit: i32) -> (Address, String) {
    let (base, name, _) = *random.pick(&GENERAL);
    let displacement = match random.below(4) {
        0 => 0,
        1 => unit * (random.below(256) as i32 - 128),
        2 => random.below(300) as i32 - 150,
        _ => random.bits() as i32 / 2,
    };
    let mut text = name.to_owned();
    let index = random.chance(60).then(|| (*random.pick(&GENERAL), random.below(4) as u8));
    let index = index.filter(|((index, ..), _)| *index != Gpr::Rsp);
    if let Some(((_, name, _), scale)) = index {
        text += &format!("+{name}*{}", 1 << scale);
    }
    let index = index.map(|((index, ..), scale)| (index, scale));
    // The formatter leaves out a factor of 1, unless the base is missing.
    text = text.replace("*1", "");
    if displacement != 0 {
        text += &format!("{displacement:+}");
    }
    (Address::Based { base, index, displacement }, format!("[{text}]"))
}

/// The words of a memory operand by its bytes.
fn size(bytes: i32) -> &'static str {
    match bytes {
        1 => "byte",
        2 => "word",
        4 => "dword",
        8 => "qword",
        16 => "xmmword",
        32 => "ymmword",
        _ => "zmmword",
    }
}

/// Vector instructions: code, name, operands in order, bytes of a broadcast element.
///
/// An operand is `r` (the first register), `s` (the second) or `p` (the place); then `/2` or `/4`
/// for a part of the width, `k` for a mask, a number for an element of so many bytes. `m` is a
/// place in memory only, `i` an immediate.
fn rows() -> Vec<(Code, &'static str, &'static str, i32)> {
    let mut rows = vec![
        (MOVE, "vmovups", "r p", 0),
        (MOVE_OUT, "vmovups", "p r", 0),
        (STREAM_OUT, "vmovntps", "m r", 0),
        (MOVE_WIDE, "vmovupd", "r p", 0),
        (MOVE_OUT_WIDE, "vmovupd", "p r", 0),
        (STREAM_OUT_WIDE, "vmovntpd", "m r", 0),
        (MOVE_HALVES, "vmovdqu16", "r p", 0),
        (MOVE_HALVES_OUT, "vmovdqu16", "p r", 0),
        (MOVE_BYTES, "vmovdqu8", "r p", 0),
        (MOVE_BYTES_OUT, "vmovdqu8", "p r", 0),
        (ZERO_EXTEND_BYTES, "vpmovzxbd", "r p/4", 0),
        (SIGN_EXTEND_BYTES, "vpmovsxbd", "r p/4", 0),
        (ZERO_EXTEND_HALVES, "vpmovzxwd", "r p/2", 0),
        (ZERO_EXTEND, "vpmovzxdq", "r p/2", 0),
        (SIGN_EXTEND, "vpmovsxdq", "r p/2", 0),
        (TRUNCATE_BYTES, "vpmovdb", "p/4 r", 0),
        (TRUNCATE_HALVES, "vpmovdw", "p/2 r", 0),
        (TRUNCATE, "vpmovqd", "p/2 r", 0),
        (SPREAD, "vpbroadcastd", "r p4", 0),
        (SPREAD_WIDE, "vpbroadcastq", "r p8", 0),
        (SPREAD_HALVES, "vpbroadcastw", "r p2", 0),
        (UPPER_HALF, "vextracti64x4", "p/2 r i", 0),
        (WITH_UPPER_HALF, "vinserti64x4", "r s p/2 i", 0),
        (BYTES_OF_MASK, "vpmovm2b", "r pk", 0),
        (ABS_BYTES, "vpabsb", "r p", 0),
        (TEST_BYTES, "vptestmb", "rk s p", 0),
        (I32_TO_F32, "vcvtdq2ps", "r p", 4),
        (U32_TO_F32, "vcvtudq2ps", "r p", 4),
        (F32_TO_I32, "vcvttps2dq", "r p", 4),
        (F32_TO_U32, "vcvttps2udq", "r p", 4),
        (F32_TO_F64, "vcvtps2pd", "r p/2", 4),
        (F64_TO_F32, "vcvtpd2ps", "r/2 p", 8),
        (I32_TO_F64, "vcvtdq2pd", "r p/2", 4),
        (U32_TO_F64, "vcvtudq2pd", "r p/2", 4),
        (I64_TO_F64, "vcvtqq2pd", "r p", 8),
        (U64_TO_F64, "vcvtuqq2pd", "r p", 8),
        (I64_TO_F32, "vcvtqq2ps", "r/2 p", 8),
        (U64_TO_F32, "vcvtuqq2ps", "r/2 p", 8),
        (F64_TO_I64, "vcvttpd2qq", "r p", 8),
        (F64_TO_U64, "vcvttpd2uqq", "r p", 8),
        (F16_TO_F32, "vcvtph2ps", "r p/2", 0),
        (F32_TO_F16, "vcvtps2ph", "p/2 r i", 0),
        (second(0x66, true), "vpblendmw", "r s p", 0),
        (integer(0xfe, false), "vpaddd", "r s p", 4),
        (integer(0xd4, true), "vpaddq", "r s p", 8),
        (integer(0xfa, false), "vpsubd", "r s p", 4),
        (integer(0xfb, true), "vpsubq", "r s p", 8),
        (integer(0xf4, true), "vpmuludq", "r s p", 8),
        (second(0x1e, false), "vpabsd", "r p", 4),
        (second(0x1f, true), "vpabsq", "r p", 8),
        (third(0x08, false), "vrndscaleps", "r p i", 4),
        (third(0x09, true), "vrndscalepd", "r p i", 8),
    ];
    type Pair = (fn(u8, bool) -> Code, u8, [&'static str; 2], &'static str);
    let pairs: [Pair; 26] = [
        (float, 0x51, ["vsqrtps", "vsqrtpd"], "r p"),
        (float, 0x58, ["vaddps", "vaddpd"], "r s p"),
        (float, 0x59, ["vmulps", "vmulpd"], "r s p"),
        (float, 0x5c, ["vsubps", "vsubpd"], "r s p"),
        (float, 0x5e, ["vdivps", "vdivpd"], "r s p"),
        (float, 0x5f, ["vmaxps", "vmaxpd"], "r s p"),
        (float, 0xc2, ["vcmpps", "vcmppd"], "rk s p i"),
        (integer, 0xdb, ["vpandd", "vpandq"], "r s p"),
        (integer, 0xeb, ["vpord", "vporq"], "r s p"),
        (integer, 0xef, ["vpxord", "vpxorq"], "r s p"),
        (second, 0x27, ["vptestmd", "vptestmq"], "rk s p"),
        (second, 0x39, ["vpminsd", "vpminsq"], "r s p"),
        (second, 0x3b, ["vpminud", "vpminuq"], "r s p"),
        (second, 0x3d, ["vpmaxsd", "vpmaxsq"], "r s p"),
        (second, 0x3f, ["vpmaxud", "vpmaxuq"], "r s p"),
        (second, 0x40, ["vpmulld", "vpmullq"], "r s p"),
        (second, 0x45, ["vpsrlvd", "vpsrlvq"], "r s p"),
        (second, 0x46, ["vpsravd", "vpsravq"], "r s p"),
        (second, 0x47, ["vpsllvd", "vpsllvq"], "r s p"),
        (second, 0x64, ["vpblendmd", "vpblendmq"], "r s p"),
        (second, 0x98, ["vfmadd132ps", "vfmadd132pd"], "r s p"),
        (second, 0xa8, ["vfmadd213ps", "vfmadd213pd"], "r s p"),
        (second, 0xb8, ["vfmadd231ps", "vfmadd231pd"], "r s p"),
        (third, 0x1e, ["vpcmpud", "vpcmpuq"], "rk s p i"),
        (third, 0x1f, ["vpcmpd", "vpcmpq"], "rk s p i"),
        (third, 0x50, ["vrangeps", "vrangepd"], "r s p i"),
    ];
    for (code, byte, names, operands) in pairs {
        rows.push((code(byte, false), names[0], operands, 4));
        rows.push((code(byte, true), names[1], operands, 8));
    }
    rows
}

fn vector_register(number: u8, bytes: i32) -> String {
    format!("{}mm{number}", ["x", "y", "z"][(bytes.max(16).ilog2() - 4) as usize])
}

#[test]
fn vector_instructions() {
    let mut random = Random(1);
    for (code, name, operands, element) in rows() {
        let widths: &[(Width, i32)] = &[(Width::Xmm, 16), (Width::Ymm, 32), (Width::Zmm, 64)];
        let widths = if name.contains("i64x4") { &widths[2..] } else { widths };
        for _ in 0..100 {
            let (width, full) = *random.pick(widths);
            let of_masks = |letter| operands.contains(&format!("{letter}k"));
            let number =
                |random: &mut Random, masks| random.below(if masks { 8 } else { 32 }) as u8;
            let reg = number(&mut random, of_masks('r'));
            let second = if operands.contains('s') { number(&mut random, false) } else { 0 };
            let immediate = operands.contains('i').then(|| random.bits() as u8 & 0x3f | 0x40);
            let bytes = |operand: &str| match &operand[1..] {
                "/2" => full / 2,
                "/4" => full / 4,
                "" | "k" => full,
                element => element.parse().expect("a number of bytes"),
            };
            let place = operands.split(' ').find(|o| o.starts_with(['p', 'm'])).expect("a place");
            let in_memory = place == "m" || !of_masks('p') && random.chance(60);
            let is_stored = operands.starts_with(['p', 'm']);
            let (place, shown) = if in_memory {
                let broadcasts = element > 0 && random.chance(40);
                let unit = if broadcasts { element } else { bytes(place) };
                let (address, text) = address(&mut random, unit);
                let text = format!("{} ptr {text}", size(unit));
                match broadcasts {
                    true => {
                        let count = bytes(place) / element;
                        (Place::Broadcast(address, unit), format!("{text}{{1to{count}}}"))
                    }
                    false => (Place::Memory(address, unit), text),
                }
            } else {
                let register = number(&mut random, of_masks('p'));
                let text = match of_masks('p') {
                    true => format!("k{register}"),
                    false => vector_register(register, bytes(place)),
                };
                (Place::Register(register), text)
            };
            let maskable = !of_masks('p') && !operands.contains('m');
            let mask = if maskable { random.below(8) as u8 } else { 0 };
            let keeps = of_masks('r') || is_stored && in_memory;
            let zeroing = mask > 0 && !keeps && random.chance(50);
            let texts: Vec<String> = operands
                .split(' ')
                .enumerate()
                .map(|(n, operand)| {
                    let mut text = match &operand[..1] {
                        "r" if of_masks('r') => format!("k{reg}"),
                        "r" => vector_register(reg, bytes(operand)),
                        "s" => vector_register(second, full),
                        "i" => immediate.map_or_else(String::new, |i| i.to_string()),
                        _ => shown.clone(),
                    };
                    if n == 0 && mask > 0 {
                        text += &format!("{{k{mask}}}{}", if zeroing { "{z}" } else { "" });
                    }
                    text
                })
                .collect();
            let vector = Vector { code, width, reg, second, place, mask, zeroing, immediate };
            check(|a| a.vector(vector), &format!("{name} {}", texts.join(",")));
        }
    }
}

#[test]
fn instructions_on_masks() {
    let stack = |a: i32| {
        let place = Address::Based { base: Gpr::Rsp, index: None, displacement: a };
        Place::Memory(place, 1)
    };
    for n in 0..512u32 {
        let [reg, second, last] = [n & 7, n >> 3 & 7, n >> 6].map(|k| k as u8);
        let mask = |code, long, second, place, immediate, wanted: String| {
            check(|a| a.mask(code, long, reg, second, place, immediate), &wanted);
        };
        let place = Place::Register(last);
        for (code, name) in [
            (MASK_AND, "kandw"),
            (MASK_AND_NOT, "kandnw"),
            (MASK_OR, "korw"),
            (MASK_XNOR, "kxnorw"),
            (MASK_XOR, "kxorw"),
            (MASK_JOIN, "kunpckbw"),
        ] {
            mask(code, true, second, place, None, format!("{name} k{reg},k{second},k{last}"));
        }
        mask(MASK_NOT, false, 0, place, None, format!("knotw k{reg},k{last}"));
        let (by, at) = (second + 1, i32::from(second) * 30 + 1);
        mask(MASK_SHIFT_RIGHT, false, 0, place, Some(by), format!("kshiftrw k{reg},k{last},{by}"));
        mask(MASK_MOVE, false, 0, stack(at), None, format!("kmovw k{reg},word ptr [rsp+{at}]"));
        mask(MASK_MOVE_OUT, false, 0, stack(at), None, format!("kmovw word ptr [rsp+{at}],k{reg}"));
        let from = GENERAL[usize::from(last)].2;
        mask(MASK_OF_GENERAL, false, 0, place, None, format!("kmovw k{reg},{from}"));
    }
}

#[test]
fn general_instructions() {
    let mut random = Random(2);
    for _ in 0..500 {
        let ((a, x, low), (b, y, _)) = (*random.pick(&GENERAL), *random.pick(&GENERAL));
        let (m, at) = address(&mut random, 1);
        let value = random.bits() as i32 / 2;
        check(|c| c.copy(a, b), &format!("mov {x},{y}"));
        check(|c| c.load(a, m), &format!("mov {x},qword ptr {at}"));
        for (bytes, signed, wanted) in [
            (1, false, format!("movzx {low},byte ptr {at}")),
            (1, true, format!("movsx {low},byte ptr {at}")),
            (2, false, format!("movzx {low},word ptr {at}")),
            (4, false, format!("mov {low},dword ptr {at}")),
            (8, false, format!("mov {x},qword ptr {at}")),
        ] {
            check(|c| c.load_element(a, m, bytes, signed), &wanted);
        }
        check(|c| c.store(m, a), &format!("mov qword ptr {at},{x}"));
        check(|c| c.address(a, m), &format!("lea {x},{at}"));
        check(|c| c.set(a, value as u32), &format!("mov {low},{value}"));
        check(|c| c.add(a, value), &format!("add {x},{value}"));
        check(
            |c| {
                let at = c.reserve(a);
                c.fill(at, value);
            },
            &format!("add {x},{value}"),
        );
        check(|c| c.and(a, value), &format!("and {x},{value}"));
        check(|c| c.subtract(a, b), &format!("sub {x},{y}"));
        check(|c| c.negate(a), &format!("neg {x}"));
        check(|c| c.shift_left(a), &format!("shl {x},cl"));
        check(|c| c.compare(a, b), &format!("cmp {x},{y}"));
        check(|c| c.push(a), &format!("push {x}"));
        check(|c| c.pop(a), &format!("pop {x}"));
    }
    check(Assembler::fence, "sfence");
    check(Assembler::return_clean, "vzeroupper; ret");
}

#[test]
fn padding_is_executed() {
    for length in 0..40 {
        let mut a = Assembler::default();
        (0..length).for_each(|_| a.push(Gpr::Rax));
        a.align();
        let code = a.finish();
        let end = usize::next_multiple_of(length, 32);
        let padding = disassembled(&code[length..end]);
        let idle = |line: &String| line.contains("nop") || line == "xchg ax,ax";
        assert!(padding.iter().all(idle), "{length}: {padding:?}");
        assert!(code[end..].iter().all(|byte| *byte == 0xcc), "{length}");
    }
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
    // The constant is 8 bytes after the 64 bytes of code.
    let text = ["jb 12", "jae 0", "vrndscaleps zmm1,dword ptr [72]{1to16},8"];
    assert_eq!(disassembled(&code[..64])[..3], text);
    assert_eq!(code[64..], [1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
}
