//! The device layer on a GPU: memory, kernels, staging, capture, faults. On a machine without a GPU
//! the error of opening a device says so.

use std::process::Command;
use wengert_cuda::architecture::Architecture;
use wengert_cuda::driver::{Cause, Device, Download, Part, Upload};

/// `saxpy`: y = a·x + y for n numbers. `poke`: writes to an invalid address.
const PTX: &str = "\
.version 8.0
.target sm_80
.address_size 64

.visible .entry saxpy(
    .param .u64 x,
    .param .u64 y,
    .param .u64 n,
    .param .u64 a
)
{
    .reg .pred %p;
    .reg .b32 %r<5>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<7>;
    ld.param.u64 %rd0, [x];
    ld.param.u64 %rd1, [y];
    ld.param.u64 %rd2, [n];
    ld.param.f32 %f0, [a];
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %ntid.x;
    mov.u32 %r2, %tid.x;
    mad.lo.u32 %r3, %r0, %r1, %r2;
    cvt.u64.u32 %rd3, %r3;
    setp.ge.u64 %p, %rd3, %rd2;
    @%p bra END;
    shl.b64 %rd4, %rd3, 2;
    add.u64 %rd5, %rd0, %rd4;
    add.u64 %rd6, %rd1, %rd4;
    ld.global.f32 %f1, [%rd5];
    ld.global.f32 %f2, [%rd6];
    fma.rn.f32 %f3, %f0, %f1, %f2;
    st.global.f32 [%rd6], %f3;
END:
    ret;
}

.visible .entry poke()
{
    .reg .b64 %rd;
    mov.u64 %rd, 4096;
    st.global.u64 [%rd], %rd;
    ret;
}
";

/// Set in a process that must fault.
const FAULT: &str = "WENGERT_TEST_FAULT";

/// The GPU. Without one, checks that the error says so.
fn gpu() -> Option<Device> {
    match Device::open(0) {
        Ok(device) => Some(device),
        Err(error) => {
            assert!(
                !std::path::Path::new("/dev/nvidia0").exists(),
                "there is a GPU, and it does not open: {error}"
            );
            let text = error.to_string();
            assert!(text.contains("help: "), "{text}");
            assert!(
                text.contains("NVIDIA driver") || text.contains("cuda:0") || text.contains("GPU"),
                "{text}"
            );
            wengert_testing::skipped("no GPU");
            None
        }
    }
}

fn sm80() -> Architecture {
    Architecture::from_name("sm_80").expect("there is such a row")
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().expect("four bytes"))).collect()
}

fn bytes(floats: &[f32]) -> Vec<u8> {
    floats.iter().flat_map(|f| f.to_le_bytes()).collect()
}

#[test]
fn kernels_run_captured_or_not_with_the_same_bits() {
    let Some(device) = gpu() else { return };
    let module = device.load_module(PTX, sm80()).unwrap();
    let saxpy = module.function("saxpy").unwrap();
    assert_eq!((saxpy.arguments(), saxpy.resources().local), (4, 0));
    let n = 1000;
    let memory = device.allocate(2 << 12, "two vectors").unwrap();
    let (x, y) = (memory.address(), memory.address().offset(1 << 12));
    let start: Vec<f32> = (0..n).map(|i| i as f32 / 3.0).collect();
    let a = u64::from(1.7f32.to_bits());
    let run = |times: usize, step: &dyn Fn()| {
        device.write(x, &bytes(&start)).unwrap();
        device.copy(x, y, 4 * n as u64).unwrap();
        (0..times).for_each(|_| step());
        let mut back = vec![0; 4 * n];
        device.read(y, &mut back).unwrap();
        floats(&back)
    };
    let arguments = [x.0, y.0, n as u64, a];
    let launch = || {
        // SAFETY: both addresses refer to n numbers, which live to the end of the test.
        let launched = unsafe { device.launch(&saxpy, [8, 1, 1], [128, 1, 1], 0, &arguments) };
        launched.unwrap();
    };
    let found = run(3, &launch);
    let expected: Vec<f32> =
        start.iter().map(|x| (0..3).fold(*x, |y, _| 1.7f32.mul_add(*x, y))).collect();
    assert_eq!(found, expected);
    let capture = device.begin_capture().unwrap();
    assert!(device.synchronise().is_err(), "a capture cannot wait");
    launch();
    let graph = capture.finish().unwrap();
    assert_eq!(graph.nodes(), 1);
    assert_eq!(
        run(3, &|| {
            // SAFETY: the numbers still exist.
            unsafe { graph.replay() }.unwrap();
        }),
        expected
    );
    // More shared memory than a block gets by default.
    // SAFETY: with n = 0 it accesses no numbers.
    unsafe { device.launch(&saxpy, [8, 1, 1], [128, 1, 1], 90 << 10, &[x.0, y.0, 0, a]) }.unwrap();
    device.synchronise().unwrap();
}

#[test]
fn the_compiler_says_what_is_wrong_with_a_text() {
    let Some(device) = gpu() else { return };
    let wrong = PTX.replace("fma.rn.f32 %f3, %f0, %f1, %f2;", "fma.rn.f32 %f3, %f0, %f1, %rd2;");
    let error = device.load_module(&wrong, sm80()).err().unwrap();
    let line = wrong.lines().position(|l| l.contains("%f1, %rd2")).unwrap() + 1;
    let text = error.to_string();
    assert!(text.contains(&format!("line {line}")), "{text}");
    assert!(!error.is_sticky());
    device.synchronise().unwrap();
}

#[test]
fn staging_goes_through_two_buffers() {
    let Some(device) = gpu() else { return };
    let memory = device.allocate(1 << 20, "inputs").unwrap();
    let (mut upload, mut download) =
        (Upload::new(&device, 1 << 20).unwrap(), Download::new(&device, 1 << 20).unwrap());
    let all = [Part { offset: 0, address: memory.address(), bytes: 1 << 20 }];
    let mut before = None;
    for round in 0..20u8 {
        let mut filling = upload.begin().unwrap();
        filling.bytes().fill(round);
        filling.send(&all).unwrap();
        let received = download.request(&all).unwrap();
        if let Some(before) = before.replace(received) {
            assert!(before.wait().unwrap().iter().all(|b| *b == round - 1));
        }
    }
    assert!(before.expect("the last round's").wait().unwrap().iter().all(|b| *b == 19));
}

#[test]
fn more_memory_than_there_is_is_told_before_it_is_asked_for() {
    let Some(device) = gpu() else { return };
    let (_, total) = device.memory_info().unwrap();
    let error = device.allocate(total + 1, "the arena").err().unwrap();
    assert!(matches!(error.cause, Cause::Memory { .. }), "{error}");
    assert!(error.to_string().contains("--memory-budget"), "{error}");
}

#[test]
fn a_fault_is_named_and_remembered() {
    // A fault destroys the context of the whole process, so a child process triggers it.
    if std::env::var_os(FAULT).is_some() {
        let device = Device::open(0).unwrap();
        let module = device.load_module(PTX, sm80()).unwrap();
        // SAFETY: none. The process must fault, at an invalid address.
        unsafe { device.launch(&module.function("poke").unwrap(), [1; 3], [1; 3], 0, &[]) }
            .unwrap();
        let error = device.synchronise().unwrap_err();
        assert!(error.is_sticky() && error.to_string().contains("show late"), "{error}");
        let later = device.synchronise().unwrap_err();
        assert!(later.to_string().contains("the first fault: waiting for the device"), "{later}");
        return;
    }
    if gpu().is_none() {
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_fault_is_named_and_remembered"])
        .env(FAULT, "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
