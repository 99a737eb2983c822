//! A first kernel, from text to bytes.
use wengert_emulator::*;

#[test]
fn adds() {
    let text = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 .ptr a, .param .u64 .ptr b, .param .u32 n)
{
  .reg .b32 %r<6>;
  .reg .b64 %d<6>;
  .reg .pred %p<2>;
  // index
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %ntid.x;
  mov.u32 %r2, %tid.x;
  mad.lo.u32 %r0, %r0, %r1, %r2;
  ld.param.u32 %r3, [n];
  setp.ge.u32 %p0, %r0, %r3;
  @%p0 bra DONE;
  // the sum
  ld.param.u64 %d0, [a];
  ld.param.u64 %d1, [b];
  mul.wide.u32 %d2, %r0, 4;
  add.s64 %d0, %d0, %d2;
  add.s64 %d1, %d1, %d2;
  ld.global.f32 %r4, [%d0];
  add.rn.f32 %r4, %r4, 0f3F800000;
  st.global.f32 [%d1], %r4;
DONE:
  ret;
}";
    let module = match Module::parse(text) {
        Ok(m) => m,
        Err(e) => panic!("{e}"),
    };
    let mut memory = Memory::new();
    let a = memory.allocate("a", 400).unwrap();
    let b = memory.allocate("b", 400).unwrap();
    let data: Vec<u8> = (0..100).flat_map(|i| (i as f32).to_le_bytes()).collect();
    memory.write(a, &data).unwrap();
    let buffer = |address, access| Argument::Buffer {
        address,
        bytes: 400,
        name: "x".into(),
        access,
        expects: None,
        makes: None,
    };
    let mut launch = Launch {
        kernel: "add".into(),
        grid: [4, 1, 1],
        block: [32, 1, 1],
        dynamic_shared: 0,
        arguments: vec![
            buffer(a, Access::Read),
            buffer(b, Access::Write),
            Argument::Bytes(100u32.to_le_bytes().to_vec()),
        ],
    };
    let emulator = Emulator::new(Options::default());
    match emulator.run(&module, &launch, &mut memory) {
        Ok(s) => println!("{s:?}"),
        Err(e) => panic!("{e}"),
    }
    let out = memory.read(b, 400).unwrap();
    for i in 0..100 {
        assert_eq!(f32::from_le_bytes(out[4 * i..4 * i + 4].try_into().unwrap()), i as f32 + 1.0);
    }
    launch.arguments[2] = Argument::Bytes(101u32.to_le_bytes().to_vec());
    let fault = emulator.run(&module, &launch, &mut memory).unwrap_err();
    println!("{fault}");
    assert_eq!(fault.kind, FaultKind::OutOfBounds(Space::Global));
}
