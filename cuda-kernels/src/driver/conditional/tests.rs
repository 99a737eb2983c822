//! Captures in parts, on the fake driver, with Rust functions in place of the kernels.

#![allow(clippy::unwrap_used)] // It is a test.

use super::super::allocation::Memory;
use super::super::fake::{Fake, bytes_at};
use super::super::module::tests::PTX;
use super::*;

struct Bench {
    scale: Function,
    conditionals: Arc<Conditionals>,
    /// The byte that is scaled, a byte that chooses at 8, and a word at 16.
    memory: Memory,
    device: Device,
    fake: Fake,
}

fn sm80() -> Architecture {
    Architecture::from_name("sm_80").unwrap()
}

/// A kernel that multiplies a byte by its third argument, and kernels of conditions.
fn bench(version: u32, ptx: &str) -> Bench {
    let fake = Fake::of_version(version);
    let device = fake.device();
    let scale = device.load_module(ptx, sm80()).unwrap().function("scale").unwrap();
    let conditionals = device.conditionals(sm80()).unwrap();
    let memory = device.allocate(256, "the state").unwrap();
    device.write(memory.address(), &[0; 32]).unwrap();
    let word = |at: u64| u64::from_le_bytes(bytes_at(at, 8).try_into().unwrap());
    let put = |at: u64, value: u64| bytes_at(at, 8).copy_from_slice(&value.to_le_bytes());
    fake.kernel("scale", |_, _, _, a| {
        let byte = &mut bytes_at(a[0], 1)[0];
        *byte = byte.wrapping_mul(a[2] as u8);
    });
    fake.kernel("begin_times", move |_, _, _, a| {
        put(a[1], a[2]);
        Fake::set_condition(a[0], u32::from(a[2] > 0));
    });
    fake.kernel("next_count", move |_, _, _, a| {
        put(a[1], word(a[1]) - 1);
        Fake::set_condition(a[0], u32::from(word(a[1]) > 0));
    });
    fake.kernel("choose_1", |_, _, _, a| {
        Fake::set_condition(a[0], bytes_at(a[1], 1)[0].min(a[2] as u8).into());
    });
    Bench { scale, conditionals, memory, device, fake }
}

impl Bench {
    fn at(&self, offset: u64) -> u64 {
        self.memory.address().offset(offset).0
    }

    fn scale_by(&self, factor: u64) -> Result<()> {
        let at = self.at(0);
        self.device.launch_verified(&self.scale, [1; 3], [32, 1, 1], 0, &[at, at, factor])
    }

    /// Times 3, then five times 2 in a loop, then by a switch 5, nothing or 7, then times 11.
    fn capture(&self) -> Result<Graph> {
        let mut capture = self.device.begin_control_capture(&self.conditionals)?;
        self.scale_by(3)?;
        let condition = capture.condition()?;
        capture.set("begin_times", condition, &[self.at(16), 5])?;
        let node = capture.open(Conditional::While, condition)?;
        capture.enter(&node, 0)?;
        self.scale_by(2)?;
        capture.set("next_count", condition, &[self.at(16)])?;
        capture.leave()?;
        capture.close(node)?;
        let condition = capture.condition()?;
        capture.set("choose_1", condition, &[self.at(8), 2])?;
        let node = capture.open(Conditional::Switch(3), condition)?;
        for (body, factor) in [Some(5), None, Some(7)].into_iter().enumerate() {
            capture.enter(&node, body)?;
            factor.map_or(Ok(()), |factor| self.scale_by(factor))?;
            capture.leave()?;
        }
        capture.close(node)?;
        self.scale_by(11)?;
        capture.finish()
    }

    /// The byte after a replay that begins with 1.
    fn replayed(&self, graph: &Graph, chosen: u8) -> u8 {
        self.device.write(self.memory.address(), &[1]).unwrap();
        self.device.write(self.memory.address().offset(8), &[chosen]).unwrap();
        graph.replay_verified().unwrap();
        let mut byte = [0];
        self.device.read(self.memory.address(), &mut byte).unwrap();
        byte[0]
    }

    fn close(self) {
        let Bench { scale, conditionals, memory, device, fake } = self;
        drop((scale, conditionals, memory, device));
        fake.nothing_left();
    }
}

#[test]
fn parts_are_executed_in_order() {
    let b = bench(13_000, PTX);
    let graph = b.capture().unwrap();
    // Three kernels, two that set conditions, and two nodes.
    assert_eq!(graph.nodes(), 6);
    for (chosen, factor) in [(0, 5u32), (1, 1), (2, 7), (9, 7), (0, 5)] {
        assert_eq!(b.replayed(&graph, chosen), (3 * 32 * factor * 11) as u8, "{chosen}");
    }
    drop(graph);
    b.close();
}

#[test]
fn kernels_in_bodies_are_not_launched_early() {
    let waiting = PTX.replacen("{", "{\n\tgriddepcontrol.wait;", 1);
    let b = bench(13_000, &waiting);
    let graph = b.capture().unwrap();
    // The first of all kernels only; the last one follows a node.
    assert_eq!(b.fake.early(), 1);
    assert_eq!(b.replayed(&graph, 1), (3u32 * 32 * 11) as u8);
    drop(graph);
    b.close();
}

#[test]
fn an_old_driver_is_told_from_one_that_lacks_functions() {
    for (version, why) in [(12_000, "CUDA 12.0"), (12_030, "CUDA 12.3")] {
        let fake = Fake::of_version(version);
        let device = fake.device();
        let error = device.conditionals(sm80()).err().unwrap().to_string();
        assert!(error.contains(why) && error.contains("550"), "{error}");
        drop(device);
        fake.nothing_left();
    }
    let b = bench(12_040, PTX);
    assert!(!b.conditionals.has_switch);
    // A SWITCH node is refused, and the capture discarded.
    assert_eq!(b.capture().err().unwrap().code(), Some(801));
    b.close();
}

#[test]
fn a_capture_that_fails_leaves_nothing_and_the_stream_works() {
    let b = bench(13_000, PTX);
    let calls = [
        ("cuGraphCreate", 1),
        ("cuStreamBeginCaptureToGraph", 6),
        ("cuStreamGetCaptureInfo_v3", 6),
        ("cuStreamEndCapture", 6),
        ("cuGraphConditionalHandleCreate", 2),
        ("cuGraphAddNode_v2", 2),
        ("cuGraphGetNodes", 4),
        ("cuLaunchKernelEx", 8),
        ("cuGraphInstantiateWithFlags", 1),
        ("cuGraphUpload", 1),
    ];
    for (call, count) in calls {
        for successes in 0..count {
            b.fake.fail_after(call, successes, 999);
            let error = b.capture().err().unwrap_or_else(|| panic!("{call} {successes}"));
            assert_eq!(error.code(), Some(999), "{call} {successes}");
        }
    }
    // Outside a capture, kernels run at once.
    b.device.write(b.memory.address(), &[1]).unwrap();
    b.scale_by(5).unwrap();
    let mut byte = [0];
    b.device.read(b.memory.address(), &mut byte).unwrap();
    assert_eq!(byte, [5]);
    let graph = b.capture().unwrap();
    assert_eq!(b.replayed(&graph, 1), (3u32 * 32 * 11) as u8);
    drop(graph);
    b.close();
}

#[test]
fn plans_of_a_device_share_the_kernels() {
    let b = bench(13_000, PTX);
    assert_eq!(b.fake.count("cuModuleLoadDataEx"), 2);
    let other = b.device.conditionals(sm80()).unwrap();
    assert!(Arc::ptr_eq(&other, &b.conditionals));
    let Bench { scale, conditionals, memory, device, fake } = b;
    drop((other, conditionals));
    // They are unloaded with the last of these plans, and loaded again for the next.
    assert_eq!(fake.count("cuModuleUnload"), 1);
    drop(device.conditionals(sm80()).unwrap());
    assert_eq!(fake.count("cuModuleLoadDataEx"), 3);
    drop((scale, memory, device));
    fake.nothing_left();
}

#[test]
fn a_capture_in_parts_keeps_others_out() {
    let b = bench(13_000, PTX);
    let mut capture = b.device.begin_control_capture(&b.conditionals).unwrap();
    let condition = capture.condition().unwrap();
    capture.set("begin_times", condition, &[b.at(16), 1]).unwrap();
    // Between the parts the stream is not captured, and still not free.
    let node = capture.open(Conditional::While, condition).unwrap();
    let error = b.device.begin_capture().err().unwrap().to_string();
    assert!(error.contains("being captured"), "{error}");
    let error = b.device.synchronise().unwrap_err().to_string();
    assert!(error.contains("being captured"), "{error}");
    let other = std::thread::scope(|s| s.spawn(|| b.scale_by(2)).join().unwrap());
    assert!(other.unwrap_err().to_string().contains("another thread captures"));
    drop((node, capture));
    b.device.synchronise().unwrap();
    b.close();
}
