//! The text of a kernel with one of each construct that prints in a special way.

#![allow(clippy::unwrap_used)] // It is a test.

use super::*;

#[test]
fn a_kernel_prints() {
    let mut code = Code::new();
    let base = code.load(Space::Param, Type::U64, Operand::Symbol("x".into()), 0);
    let thread = code.mov(Type::U32, Special::TidX);
    let address = code.ternary(Ternary::MadWide, Type::U32, thread, 4, base);
    code.comment("%0: f32 = load %x[i]\n%1: …");
    code.count(0, 8, 1, |code, _| {
        let value = code.load(Space::Global, Type::F32, address, 16);
        let sum = code.binary(Binary::Add, Type::F32, value, 1.0f32);
        let small = code.compare(Compare::Lt, Type::F32, sum, 2.0f32);
        code.when(small, |code| code.store(Space::Global, Type::F32, address, -4, sum));
    });
    let pair = code.reg(Width::B32);
    code.push(Inst::Call {
        function: "f".into(),
        ty: Type::F32,
        result: pair,
        arguments: vec![Operand::from(0.5f32)],
    });
    let mut body = Code::new();
    let (given, result) = (body.reg(Width::B32), body.reg(Width::B32));
    body.assign(Type::F32, result, given);
    let module = Module::new(
        vec![Function {
            name: "f".into(),
            remark: "The same.".into(),
            parameters: vec![(Type::F32, given)],
            results: vec![(Type::F32, result)],
            code: body,
        }],
        vec![Kernel {
            name: "k".into(),
            remark: "One of everything.".into(),
            parameters: vec![Parameter { name: "x".into(), ty: Type::U64, align: 16 }],
            threads: 128,
            resident: 0,
            shared: vec![SharedArray { name: "tile".into(), align: 16, bytes: 64 }],
            dynamic_shared: true,
            early: true,
            local: vec![],
            code,
        }],
    );
    let expected = "\
.version 8.0
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 dynamic_shared[];

// The same.
.func (.param .b32 result0) f(.param .b32 given0)
{
    .reg .b32 %r<2>;
    ld.param.b32 %r0, [given0];
    mov.b32 %r1, %r0;
    st.param.b32 [result0], %r1;
    ret;
}

// One of everything.
.visible .entry k(
    .param .u64 .ptr .global .align 16 x
)
.reqntid 128, 1, 1
{
    .shared .align 16 .b8 tile[64];
    .reg .pred %p<3>;
    .reg .b32 %r<5>;
    .reg .b64 %d<2>;
    ld.param.u64 %d0, [x];
    mov.b32 %r0, %tid.x;
    mad.wide.u32 %d1, %r0, 4, %d0;
    // %0: f32 = load %x[i] %1: ...
    mov.b32 %r1, 0;
    setp.ge.s32 %p0, %r1, 8;
    @%p0 bra $L1;
$L0:
    ld.global.f32 %r2, [%d1+16];
    add.rn.f32 %r3, %r2, 0f3F800000;
    setp.lt.f32 %p1, %r3, 0f40000000;
    @!%p1 bra $L2;
    st.global.f32 [%d1+-4], %r3;
$L2:
    add.s32 %r1, %r1, 1;
    setp.lt.s32 %p2, %r1, 8;
    @%p2 bra $L0;
$L1:
    { .param .b32 a0; st.param.b32 [a0], 0f3F000000; .param .b32 c0; call.uni (c0), f, (a0); \
        ld.param.b32 %r4, [c0]; }
    ret;
}
";
    assert_eq!(module.to_string(), expected);
}
