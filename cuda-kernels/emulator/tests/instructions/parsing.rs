//! Texts that are not PTX, or use PTX that the emulator does not support. The parser reports an
//! error with its place and never panics.

use crate::table::{HEADER, program};
use proptest::prelude::*;
use wengert_emulator::Module;

/// Line, column and message of the error in a body.
fn error(body: &str) -> (u32, u32, String) {
    let error = Module::parse(&program(body)).unwrap_err();
    assert!(error.to_string().contains(&error.shown.replace('\t', " ")));
    (error.line, error.column, error.message)
}

#[test]
fn errors_name_the_place() {
    let first = program("").lines().position(|line| line.contains("%tid.x")).unwrap() as u32 + 2;
    let cases = [
        ("    frob.b32 %w0, %w1;", 5, "the instruction `frob.b32` is not supported"),
        ("    add.zz.s32 %w0, %w1, %w2;", 5, "`.zz` is not supported on `add` here"),
        ("    add.s32 %w0, %w1;", 5, "`add` takes 3 operands here and is given 2"),
        (
            "    add.s32 %w0, %w1, %q1;",
            26,
            "`%q1` is neither declared nor a supported special register",
        ),
        ("    add.s32 %w0, %w1, %d1;", 5, "an operand of `add` has a width that the type does not"),
        ("    add.s32 %w0, %w1 %w2;", 22, "wanted `;`, found `%w2`"),
        ("    bra NOWHERE;", 1, "there is no label `NOWHERE`"),
        (
            "    mov.b32 %w0, 0x123456789abcdef01;",
            18,
            "`0x123456789abcdef01` is no number of at most 64 bits",
        ),
        ("    shfl.up.b32 %w0, %w1, 1, 0;", 5, "`shfl` without .sync is not supported since sm_70"),
        ("    call nothing;", 5, "there is no function `nothing`"),
        ("    fma.f32 %w0, %w1, %w2, %w3;", 5, "`fma` says how it rounds"),
        (
            "    tcgen05.alloc.sync.aligned %w0;",
            5,
            "the instruction `tcgen05.alloc.sync.aligned` is not supported",
        ),
    ];
    for (body, column, message) in cases {
        assert_eq!(error(body), (first, column, message.to_owned()), "{body}");
    }
}

#[test]
fn recursion_is_refused() {
    let text = format!(
        "{HEADER}.func f () ;\n.func g () {{ call f; ret; }}\n.func f () {{ call g; ret; }}\n\
         .visible .entry k() {{ call f; ret; }}"
    );
    let error = Module::parse(&text).unwrap_err();
    assert!(error.message.contains("calls itself"), "{error}");
}

/// Thirty functions. Each calls the previous one twice, and the first does nothing. Inlining them
/// gives 2³⁰ calls.
#[test]
fn inlining_is_bounded() {
    let mut text = format!("{HEADER}.func f0 () {{ ret; }}\n");
    for i in 1..30 {
        text += &format!(".func f{i} () {{ call f{0}; call f{0}; }}\n", i - 1);
    }
    text += ".visible .entry k() { call f29; ret; }";
    let error = Module::parse(&text).unwrap_err();
    assert!(error.message.contains("after inlining"), "{error}");
}

#[test]
fn sizes_are_bounded() {
    for text in [
        ".visible .entry k() { .reg .b32 %r<18446744073709551615>; ret; }",
        ".visible .entry k() { .local .b8 x[18446744073709551615]; ret; }",
        ".visible .entry k() { .local .b8 x[600000]; ret; }",
        ".visible .entry k(.param .b8 x[4000000000], .param .b8 y[4000000000]) { ret; }",
        ".global .b8 x[4][18446744073709551615];",
    ] {
        Module::parse(&format!("{HEADER}{text}")).unwrap_err();
    }
    let deep = "{".repeat(100_000);
    Module::parse(&format!("{HEADER}.visible .entry k() {deep}")).unwrap_err();
    let deep = "[".repeat(100_000);
    Module::parse(&format!("{HEADER}.visible .entry k() {{ .reg .b32 %r; mov.b32 %r, {deep}"))
        .unwrap_err();
}

const SAMPLE: &str = "
    setp.lt.u32 %p1, %t, 16;
    @%p1 bra LOW;
    { .reg .b32 %q<3>; mov.b64 {%q1, %q2}, %d1; fma.rn.f32 %w1, %w2, 0f3F800000, %w3; }
    shfl.sync.bfly.b32 %w0|%p2, %t, 1, 31, -1;
LOW:
    ld.global.v4.u32 {%w1, %w2, _, %w4}, [%x+16];
    /* a comment */ atom.shared.cas.b32 %w5, [tile+4], 1, %w2; // another
    list: .branchtargets LOW, END;
    brx.idx %w0, list;
END:
    ret;";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]
    /// Removes, inserts, doubles and swaps characters.
    #[test]
    fn damaged_texts_do_not_panic(
        edits in prop::collection::vec(
            (any::<prop::sample::Index>(), 0u8..4, any::<char>()),
            1..6,
        ),
    ) {
        let mut text: Vec<char> = program(SAMPLE).chars().collect();
        for (place, kind, character) in edits {
            let at = place.index(text.len());
            match kind {
                0 => { text.remove(at); }
                1 => text.insert(at, character),
                2 => text.insert(at, text[at]),
                _ => { let other = (at * 7 + 3) % text.len(); text.swap(at, other); }
            }
        }
        let text: String = text.into_iter().collect();
        let _ = Module::parse(&text);
    }

    /// Replaces words by other words of the language.
    #[test]
    fn shuffled_words_do_not_panic(
        edits in prop::collection::vec(
            (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
            1..8,
        ),
    ) {
        let source = program(SAMPLE);
        let mut words: Vec<&str> = source.split_inclusive([' ', ',', '.', ';', '[', '{']).collect();
        for (from, to) in edits {
            let from = words[from.index(words.len())];
            let to = to.index(words.len());
            words[to] = from;
        }
        let _ = Module::parse(&words.concat());
    }
}
