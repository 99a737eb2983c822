//! The kernels of conditions: the emulator runs them with a body for `cudaGraphSetConditional`
//! that stores the value at the handle, and `ptxas` assembles the text as it is.

#![allow(clippy::unwrap_used)] // It is a test.

use super::*;
use wengert_emulator as emulator;

/// The declaration of the device function in the module's text.
const DECLARED: &str =
    ".extern .func cudaGraphSetConditional(.param .b64 given0, .param .b32 given1);";

/// A definition of the function in its place: the handle is the address of the value.
pub(crate) const DEFINED: &str = ".func cudaGraphSetConditional(.param .b64 given0, \
    .param .b32 given1)\n{\n    .reg .b64 %at;\n    .reg .b32 %value;\n    \
    ld.param.b64 %at, [given0];\n    ld.param.b32 %value, [given1];\n    \
    st.global.b32 [%at], %value;\n    ret;\n}";

/// The module's text with a definition of the device function.
pub(crate) fn defined(text: &str) -> String {
    assert!(text.contains(DECLARED), "{text}");
    text.replace(DECLARED, DEFINED)
}

/// The value that a kernel sets, and the word `left` after it. `scalar` and `left` are in memory,
/// where the kernel has such parameters; `numbers` are the parameters after them.
fn run(kernel: &str, scalar: Option<&[u8]>, left: Option<u64>, numbers: &[u64]) -> (u32, u64) {
    let module = emulator::Module::parse(&defined(&module())).unwrap();
    let mut memory = emulator::Memory::new();
    let buffer = |memory: &mut emulator::Memory, bytes: &[u8]| {
        let address = memory.allocate("memory", bytes.len() as u64).unwrap();
        memory.write(address, bytes).unwrap();
        let argument = emulator::Argument::Buffer {
            address,
            bytes: bytes.len() as u64,
            name: "memory".into(),
            access: emulator::Access::ReadWrite,
            expects: None,
            makes: None,
        };
        (address, argument)
    };
    let (handle, first) = buffer(&mut memory, &77u32.to_le_bytes());
    let mut arguments = vec![first];
    arguments.extend(scalar.map(|bytes| buffer(&mut memory, bytes).1));
    let word = left.map(|left| buffer(&mut memory, &left.to_le_bytes()));
    let at = word.as_ref().map(|(at, _)| *at);
    arguments.extend(word.map(|(_, argument)| argument));
    arguments.extend(numbers.iter().map(|n| emulator::Argument::Bytes(n.to_le_bytes().to_vec())));
    let launch = emulator::Launch {
        kernel: kernel.into(),
        grid: [1; 3],
        block: [1; 3],
        dynamic_shared: 0,
        arguments,
    };
    emulator::Emulator::new(emulator::Options::default())
        .run(&module, &launch, &mut memory)
        .unwrap_or_else(|fault| panic!("{fault}"));
    let value = u32::from_le_bytes(memory.read(handle, 4).unwrap()[..].try_into().unwrap());
    let left = at.map(|at| u64::from_le_bytes(memory.read(at, 8).unwrap()[..].try_into().unwrap()));
    (value, left.unwrap_or(0))
}

#[test]
fn a_branch_is_chosen_as_on_the_host() {
    let scalars: [(&str, Vec<u8>, u32); 9] = [
        ("1", vec![0], 0),
        ("1", vec![1], 1),
        ("4", (-7i32).to_le_bytes().to_vec(), 0),
        ("4", 2i32.to_le_bytes().to_vec(), 2),
        ("4", i32::MAX.to_le_bytes().to_vec(), 3),
        ("8", i64::MIN.to_le_bytes().to_vec(), 0),
        ("8", 1i64.to_le_bytes().to_vec(), 1),
        ("8", (1i64 << 32).to_le_bytes().to_vec(), 3),
        ("8", i64::MAX.to_le_bytes().to_vec(), 3),
    ];
    for (bytes, scalar, chosen) in scalars {
        let found = run(&format!("choose_{bytes}"), Some(&scalar), None, &[3]);
        assert_eq!(found.0, chosen, "{scalar:?}");
        for arm in 0..4 {
            let found = run(&format!("equals_{bytes}"), Some(&scalar), None, &[3, arm]);
            assert_eq!(found.0, u32::from(arm == u64::from(chosen)), "{scalar:?}, arm {arm}");
        }
    }
}

#[test]
fn a_loop_stops_at_its_condition_and_at_its_limit() {
    let begin = |condition: u8, limit| run("begin_while", Some(&[condition]), Some(9), &[limit]);
    assert_eq!(begin(1, 5), (1, 5));
    assert_eq!(begin(0, 5), (0, 5));
    assert_eq!(begin(1, 0), (0, 0));
    assert_eq!(begin(1, u64::MAX), (1, u64::MAX));
    let next = |condition: u8, left| run("next_while", Some(&[condition]), Some(left), &[]);
    assert_eq!(next(1, 2), (1, 1));
    assert_eq!(next(1, 1), (0, 0));
    assert_eq!(next(0, 2), (0, 1));
}

#[test]
fn iterations_are_counted_down() {
    let begin = |count: i64, limit| {
        let wide = run("begin_count_8", Some(&count.to_le_bytes()), Some(9), &[limit]);
        if let Ok(narrow) = i32::try_from(count) {
            let narrow = run("begin_count_4", Some(&narrow.to_le_bytes()), Some(9), &[limit]);
            assert_eq!(wide, narrow, "{count}");
        }
        wide
    };
    assert_eq!(begin(3, 10), (1, 3));
    assert_eq!(begin(30, 10), (1, 10));
    assert_eq!(begin(0, 10), (0, 0));
    assert_eq!(begin(-3, 10), (0, 0));
    assert_eq!(begin(i64::MAX, u64::MAX), (1, i64::MAX as u64));
    assert_eq!(run("begin_times", None, Some(9), &[1 << 40]), (1, 1 << 40));
    assert_eq!(run("begin_times", None, Some(9), &[0]), (0, 0));
    assert_eq!(run("next_count", None, Some(2), &[]), (1, 1));
    assert_eq!(run("next_count", None, Some(1), &[]), (0, 0));
    // The kernel for a branch without steps has no handle.
    assert!(module().contains(".visible .entry nothing(\n    \n)"));
}

/// `ptxas` knows the device function as a system call: it assembles a whole program that calls it,
/// and lists the calls that the driver resolves. Another function is unresolved.
#[test]
fn ptxas_assembles_a_whole_program() {
    let toolkit = wengert_ci::toolkit::Toolkit::find().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (source, code) = (folder.path().join("conditions.ptx"), folder.path().join("code"));
    let run = |mut command: std::process::Command| {
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout) + &text(&output.stderr))
    };
    let assemble = |text: &str, arguments: &[String]| {
        std::fs::write(&source, text).unwrap();
        let mut command = toolkit.ptxas();
        command.args(arguments).arg("-o").arg(&code).arg(&source);
        run(command)
    };
    // Whether the code has system calls.
    let calls_system = || {
        let mut command = std::process::Command::new(toolkit.tool("nvdisasm"));
        command.arg(&code);
        let (listed, listing) = run(command);
        assert!(listed, "{listing}");
        listing.contains("EIATTR_SYSCALL_OFFSETS")
    };
    let text = module();
    for architecture in crate::architecture::Architecture::ALL {
        let mut arguments = crate::assembly::ptxas_arguments(&text, architecture);
        let (accepted, log) = assemble(&text, &arguments);
        assert!(accepted && calls_system(), "{arguments:?}: {log}");
        // Relocatable code leaves all calls to the linker.
        arguments.push("-c".into());
        let (accepted, log) = assemble(&text, &arguments);
        assert!(accepted, "{arguments:?}: {log}");
    }
    let other = text.replace(SET, "cudaGraphOther");
    let (accepted, log) = assemble(&other, &["-arch=sm_90".to_string()]);
    assert!(!accepted && log.contains("cudaGraphOther"), "{log}");
}
