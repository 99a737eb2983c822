//! Memory from the host's side: allocations, initialised bytes and labels, and the checks of a
//! launch on them.

use wengert_emulator::{
    Access, Argument, Emulator, Fault, FaultKind, Launch, Memory, MemoryError, Module, Options,
    Sanitize, Space,
};

/// Adds 1 to the halfwords of `x` and writes them to `y`, one a thread.
const TEXT: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry next(.param .u64 .ptr x, .param .u64 .ptr y)
{
    .reg .b16 %h;
    .reg .b32 %t;
    .reg .b64 %x, %y, %o;
    ld.param.u64 %x, [x];
    ld.param.u64 %y, [y];
    mov.u32 %t, %tid.x;
    mul.wide.u32 %o, %t, 2;
    add.u64 %x, %x, %o;
    add.u64 %y, %y, %o;
    ld.global.u16 %h, [%x];
    add.u16 %h, %h, 1;
    st.global.u16 [%y], %h;
    ret;
}";

fn buffer(
    address: u64,
    bytes: u64,
    access: Access,
    expects: Option<u32>,
    makes: Option<u32>,
) -> Argument {
    Argument::Buffer { address, bytes, name: format!("{access:?}"), access, expects, makes }
}

fn run(
    memory: &mut Memory,
    threads: u32,
    arguments: Vec<Argument>,
    sanitize: Sanitize,
) -> Result<(), Box<Fault>> {
    let module = Module::parse(TEXT).expect("it is PTX");
    let launch = Launch {
        kernel: "next".to_owned(),
        grid: [1; 3],
        block: [threads, 1, 1],
        dynamic_shared: 0,
        arguments,
    };
    Emulator::new(Options { sanitize, ..Options::default() })
        .run(&module, &launch, memory)
        .map(|_| ())
}

#[test]
fn allocations_are_apart_and_know_what_is_written() {
    let mut memory = Memory::new();
    let a = memory.allocate("a", 10).unwrap();
    let b = memory.allocate("b", 1000).unwrap();
    assert_eq!((a % 256, b % 256), (0, 0));
    assert!(b > a + 10 + 1000);
    assert_eq!(memory.first_uninitialised(a, 10), Ok(Some(0)));
    memory.write(a + 1, &[1, 2, 3, 4, 5, 6, 7]).unwrap();
    assert_eq!(memory.first_uninitialised(a + 1, 9), Ok(Some(7)));
    assert_eq!(memory.read(a + 2, 4).unwrap(), [2, 3, 4, 5]);
    memory.forget(a + 3, 1).unwrap();
    assert_eq!(memory.first_uninitialised(a + 1, 7), Ok(Some(2)));
    let out = MemoryError::OutOfBounds { address: a + 8, bytes: 3 };
    assert_eq!(memory.read(a + 8, 3), Err(out.clone()));
    assert_eq!(memory.write(a + 8, &[0; 3]), Err(out));
    for bytes in [u64::MAX, 1 << 46, 1 << 45] {
        assert!(
            matches!(memory.allocate("huge", bytes), Err(MemoryError::OutOfMemory { .. })),
            "{bytes}"
        );
    }
    memory.free(a).unwrap();
    assert!(memory.read(a, 1).is_err());
    assert!(memory.free(a).is_err());
}

#[test]
fn buffers_share_an_arena_without_seeing_each_other() {
    let mut memory = Memory::new();
    let arena = memory.allocate("arena", 64).unwrap();
    memory.write(arena, &[7; 64]).unwrap();
    let two = |x, y| {
        vec![buffer(x, 8, Access::Read, None, None), buffer(y, 8, Access::Write, None, None)]
    };
    run(&mut memory, 4, two(arena, arena + 8), Sanitize::ALL).unwrap();
    assert_eq!(memory.read(arena + 8, 2).unwrap(), 0x0708u16.to_le_bytes());
    // A fifth thread would read bytes of the other buffer.
    let fault = run(&mut memory, 5, two(arena, arena + 8), Sanitize::NONE).unwrap_err();
    assert_eq!(fault.kind, FaultKind::OutOfBounds(Space::Global));
    assert_eq!(fault.buffer, Some(("Read".to_owned(), 8)));
    // In place: two arguments for the same bytes, each with its own access rights.
    run(&mut memory, 4, two(arena, arena), Sanitize::ALL).unwrap();
    // Shifted by one element, threads read what other threads write.
    let fault = run(&mut memory, 3, two(arena + 2, arena), Sanitize::ALL).unwrap_err();
    assert_eq!(fault.kind, FaultKind::GlobalRace);
}

#[test]
fn labels_follow_halves_of_words() {
    let mut memory = Memory::new();
    let a = memory.allocate("a", 16).unwrap();
    memory.write(a, &[1; 16]).unwrap();
    let step = |memory: &mut Memory, from, to, threads, expects, makes| {
        let x = buffer(a + from, 8, Access::Read, expects, None);
        let y = buffer(a + to, 8, Access::Write, None, makes);
        run(memory, threads, vec![x, y], Sanitize::ALL)
    };
    // The first three halfwords of the upper half have label 5, the fourth has label 6.
    step(&mut memory, 0, 8, 4, None, Some(6)).unwrap();
    step(&mut memory, 0, 8, 3, None, Some(5)).unwrap();
    step(&mut memory, 8, 0, 3, Some(5), Some(7)).unwrap();
    let fault = step(&mut memory, 8, 0, 4, Some(5), None).unwrap_err();
    assert_eq!((fault.kind, fault.lane), (FaultKind::ExpectedValue, 3));
    assert!(fault.message.contains("value 5") && fault.message.contains("value 6"), "{fault}");
    // Bytes that the host writes have no label until the host sets one.
    memory.write(a + 14, &[1, 1]).unwrap();
    let fault = step(&mut memory, 8, 0, 4, Some(5), None).unwrap_err();
    assert!(fault.message.contains("no label"), "{fault}");
    memory.label(a + 14, 2, Some(5)).unwrap();
    step(&mut memory, 8, 0, 4, Some(5), None).unwrap();
    let blind = Sanitize { labels: false, ..Sanitize::ALL };
    let x = buffer(a + 8, 8, Access::Read, Some(99), None);
    run(&mut memory, 4, vec![x, buffer(a, 8, Access::Write, None, None)], blind).unwrap();
}

/// A parameter that is an array of pointers has a buffer for each, with its own rights.
#[test]
fn an_array_of_pointers_has_several_buffers() {
    let text = TEXT
        .replace(
            ".param .u64 .ptr x, .param .u64 .ptr y",
            ".param .u32 n, .param .align 8 .b8 p[16]",
        )
        .replace("ld.param.u64 %x, [x];", "mov.u64 %o, p; ld.param.u64 %x, [%o];")
        .replace("[y];", "[%o+8];");
    let module = Module::parse(&text).expect("it is PTX");
    let mut memory = Memory::new();
    let [a, b] = ["a", "b"].map(|name| memory.allocate(name, 8).unwrap());
    memory.write(a, &[1, 0, 2, 0, 3, 0, 4, 0]).unwrap();
    let from = buffer(a, 8, Access::Read, None, None);
    let mut run = |arguments: &[Argument]| {
        let n = Argument::Bytes(vec![0; 4]);
        let launch = Launch {
            kernel: "next".to_owned(),
            grid: [1; 3],
            block: [4, 1, 1],
            dynamic_shared: 0,
            arguments: std::iter::once(n).chain(arguments.iter().cloned()).collect(),
        };
        Emulator::new(Options::default()).run(&module, &launch, &mut memory)
    };
    run(&[from.clone(), buffer(b, 8, Access::Write, None, None)]).unwrap();
    let fault = run(&[from.clone(), buffer(b, 8, Access::Read, None, None)]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::WriteToReadOnly, "{fault}");
    let fault = run(&[from.clone(), buffer(b, 6, Access::Write, None, None)]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::OutOfBounds(Space::Global), "{fault}");
    let fault = run(std::slice::from_ref(&from)).unwrap_err();
    assert!(fault.to_string().contains("which are 2 pointers, and is given 1"), "{fault}");
    let fault = run(&[from.clone(), from.clone(), from]).unwrap_err();
    assert!(fault.to_string().contains("3 parameters and is given 4"), "{fault}");
    assert_eq!(memory.read(b, 8).unwrap(), [2, 0, 3, 0, 4, 0, 5, 0]);
}

#[test]
fn launches_are_checked() {
    let mut memory = Memory::new();
    let a = memory.allocate("a", 64).unwrap();
    memory.write(a, &[0; 64]).unwrap();
    let good = buffer(a, 64, Access::ReadWrite, None, None);
    let wrong: [(u32, Vec<Argument>, &str); 5] = [
        (0, vec![good.clone(), good.clone()], "1 to 1024 threads"),
        (2000, vec![good.clone(), good.clone()], "1 to 1024 threads"),
        (1, vec![good.clone()], "2 parameters and is given 1"),
        (1, vec![good.clone(), Argument::Bytes(vec![0; 4])], "has 8 bytes and is given 4"),
        (1, vec![good, buffer(a, 65, Access::Read, None, None)], "not all of one allocation"),
    ];
    for (threads, arguments, message) in wrong {
        let fault = run(&mut memory, threads, arguments, Sanitize::ALL).unwrap_err();
        assert_eq!(fault.kind, FaultKind::InvalidLaunch);
        assert!(fault.to_string().contains(message), "{fault}");
    }
    let module = Module::parse(TEXT).unwrap();
    assert_eq!(module.kernels(), ["next"]);
    let kernel = module.kernel("next").unwrap();
    assert_eq!((kernel.parameters().len(), kernel.parameters()[1].bytes), (2, 8));
    assert!(kernel.parameters()[0].pointer);
    assert_eq!(module.kernel("other").unwrap_err().known, ["next"]);
}
