//! A step as a CUDA graph: captured once, replayed as one launch.
//!
//! Launching a kernel costs the host some microseconds, which bounds a step of hundreds of small
//! kernels. Between [`Device::begin_capture`] and [`Capture::finish`] the stream records its work
//! instead of doing it. The resulting graph is launched at the cost of one launch. It does the
//! same work in the same order at the same addresses, so it gives the same bits.
//!
//! The rules of capture forbid waiting, reading, allocating, loading, and work from other
//! threads. These are refused here, before they make the driver invalidate the capture. Kernels
//! must be loaded and GEMMs prepared before. It is best to run a step once without capture first:
//! the driver and cuBLASLt load their code lazily.
//!
//! Loops and branches of a graph are in [`super::conditional`].
//!
//! A [`Graph`] keeps the modules of its kernels alive. It does not keep memory: addresses are the
//! session's, which outlives its plans.

use super::context::{Device, Freed};
use super::error::{DeviceError, Result};
use super::module::Module;
use cudarc::driver::sys::{
    CUgraph, CUgraphExec, CUgraphExecUpdateResultInfo, CUstreamCaptureMode_enum,
};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};
use std::thread::ThreadId;

/// The stream during a capture.
pub(super) struct Capturing {
    pub(super) thread: ThreadId,
    /// Modules of the kernels that were launched.
    modules: Vec<Module>,
    /// Released during the capture, and freed when it has ended.
    freed: Vec<Freed>,
    /// Which kernels are launched early.
    early: Early,
}

/// Which kernels of a capture may be launched before the preceding ones have ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Early {
    /// All.
    All,
    /// All but the next one.
    AllButNext,
    /// None.
    None,
}

impl Capturing {
    /// A capture by this thread.
    pub(super) fn new() -> Capturing {
        let (thread, modules, freed) = (std::thread::current().id(), Vec::new(), Vec::new());
        Capturing { thread, modules, freed, early: Early::All }
    }

    /// Lets no kernel of the following part be launched early, or not the first.
    pub(super) fn restrict_early(&mut self, all: bool, first: bool) {
        self.early = match (all, first) {
            (true, _) => Early::None,
            (false, true) => Early::AllButNext,
            (false, false) => Early::All,
        };
    }

    /// Whether the kernel that is launched next may be launched early.
    pub(super) fn is_next_early(&mut self) -> bool {
        let early = self.early;
        if early == Early::AllButNext {
            self.early = Early::All;
        }
        early == Early::All
    }

    /// Frees something when the capture has ended.
    pub(super) fn free_later(&mut self, what: Freed) {
        self.freed.push(what);
    }

    /// Keeps a module that the graph needs.
    pub(super) fn keep(&mut self, module: &Module) {
        if !self.modules.iter().any(|m| m.is(module)) {
            self.modules.push(module.clone());
        }
    }
}

/// A capture in progress. Dropped without [`Capture::finish`], it discards the recorded work. It
/// stays on its thread, as the driver demands.
pub struct Capture<'a> {
    device: &'a Device,
    ended: bool,
    not_send: PhantomData<*const ()>,
}

/// A captured step, ready to be launched any number of times.
pub struct Graph {
    device: Device,
    handle: CUgraphExec,
    nodes: usize,
    modules: Vec<Module>,
    /// Held while the graph is launched: the driver does not guard graphs against threads.
    launching: Mutex<()>,
}

// SAFETY: an executable graph is a handle of the driver; it is changed through `&mut` only.
unsafe impl Send for Graph {}
// SAFETY: a shared reference allows only a launch, which holds the lock.
unsafe impl Sync for Graph {}

/// A graph that is not executable yet, destroyed when dropped.
pub(super) struct Description<'a> {
    pub(super) device: &'a Device,
    pub(super) handle: CUgraph,
}

impl Drop for Description<'_> {
    fn drop(&mut self) {
        let context = &*self.device.context;
        if !self.handle.is_null() && context.enter().is_ok() {
            // SAFETY: made by the end of a capture, destroyed once.
            context.log(unsafe { context.driver.api.cuGraphDestroy(self.handle) });
        }
    }
}

impl Device {
    /// Makes the stream record its work instead of doing it.
    ///
    /// Errors: it already does.
    pub fn begin_capture(&self) -> Result<Capture<'_>> {
        let context = &*self.context;
        let doing = "beginning a capture";
        context.not_capturing(doing)?;
        context.enter()?;
        let mode = CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // The lock is held through the call, so that two threads cannot both begin.
        let mut capturing = context.capturing();
        // SAFETY: the stream lives and is not the legacy default stream.
        let code = unsafe { context.driver.api.cuStreamBeginCapture_v2(context.stream, mode) };
        context.check(code, || doing.into())?;
        *capturing = Some(Capturing::new());
        drop(capturing);
        Ok(Capture { device: self, ended: false, not_send: PhantomData })
    }
}

impl<'a> Capture<'a> {
    /// Ends the capture.
    fn end(&mut self) -> Result<(Description<'a>, Vec<Module>)> {
        self.ended = true;
        let context = &*self.device.context;
        let mut graph = Description { device: self.device, handle: std::ptr::null_mut() };
        let ended = context.enter().and_then(|()| {
            // SAFETY: the pointer is valid for a write; this is the thread that began, since a
            // capture is not `Send`.
            let code =
                unsafe { context.driver.api.cuStreamEndCapture(context.stream, &mut graph.handle) };
            context.check(code, || "ending a capture".into())
        });
        let modules = context.end_capturing();
        ended.map(|()| (graph, modules))
    }

    /// Ends the capture and instantiates its graph.
    pub fn finish(mut self) -> Result<Graph> {
        let (graph, modules) = self.end()?;
        Graph::of(self.device, &graph, modules)
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if !self.ended
            && let Err(error) = self.end()
        {
            tracing::debug!(%error, "while throwing a capture away");
        }
    }
}

impl Graph {
    fn none(device: &Device, modules: Vec<Module>) -> Graph {
        let (device, launching) = (device.clone(), Mutex::new(()));
        Graph { device, handle: std::ptr::null_mut(), nodes: 0, modules, launching }
    }

    /// A graph that needs these modules, instantiated.
    pub(super) fn of(
        device: &Device,
        description: &Description,
        modules: Vec<Module>,
    ) -> Result<Graph> {
        let mut ready = Graph::none(device, modules);
        ready.instantiate(description)?;
        Ok(ready)
    }

    /// Number of nodes: kernels, copies and others. A conditional node counts once, without its
    /// bodies.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Enqueues the whole graph. Does not wait.
    ///
    /// # Safety
    ///
    /// All memory that the captured kernels and copies access is still allocated, and stays so
    /// until the stream has completed the graph.
    pub unsafe fn replay(&self) -> Result<()> {
        self.replay_verified()
    }

    /// [`replay`](Self::replay) for this crate's executor, which keeps the safety condition: the
    /// memory is the executable's own, or that of variables whose addresses are checked to be in
    /// an allocation at each run.
    pub(crate) fn replay_verified(&self) -> Result<()> {
        let context = &*self.device.context;
        context.not_capturing("replaying a graph")?;
        let _alone = self.launching.lock().unwrap_or_else(PoisonError::into_inner);
        let doing = || format!("replaying a graph of {} nodes", self.nodes);
        // SAFETY: the graph lives, and so do the modules that it needs; no other thread uses it.
        context.call(doing, |api| unsafe { api.cuGraphLaunch(self.handle, context.stream) })
    }

    /// Replaces the graph's work by a new capture, such as the same step at other addresses. If
    /// the topology is the same, the driver updates the graph in place, which costs less than a
    /// new graph; otherwise a new one is made.
    pub fn update(&mut self, mut capture: Capture) -> Result<()> {
        let (graph, modules) = capture.end()?;
        let context = &*self.device.context;
        let mut result = MaybeUninit::<CUgraphExecUpdateResultInfo>::zeroed();
        // SAFETY: both handles live. The result is written through a pointer of its type, and not
        // read: a newer driver may write a value that its `enum` lacks.
        let code = unsafe {
            context.driver.api.cuGraphExecUpdate_v2(self.handle, graph.handle, result.as_mut_ptr())
        };
        const UPDATE_FAILURE: u32 = 910;
        if code.code == UPDATE_FAILURE {
            let mut other = Graph::none(&self.device, modules);
            other.instantiate(&graph)?;
            *self = other;
            return Ok(());
        }
        context.check(code, || "updating a graph".into())?;
        // The old modules are kept until here, since a replay in flight may still need them:
        // dropping one waits.
        self.modules = modules;
        Ok(())
    }

    fn instantiate(&mut self, graph: &Description) -> Result<()> {
        let context = &*self.device.context;
        let doing = || "making a graph ready".to_string();
        // SAFETY: with a null list only the number is written.
        let code = unsafe {
            context.driver.api.cuGraphGetNodes(graph.handle, std::ptr::null_mut(), &mut self.nodes)
        };
        context.check(code, doing)?;
        // SAFETY: the pointer is valid for a write; the result is destroyed in `drop`, and does
        // not need the description any more.
        let code = unsafe {
            context.driver.api.cuGraphInstantiateWithFlags(&mut self.handle, graph.handle, 0)
        };
        context.check(code, doing)?;
        // SAFETY: the graph was just made. Uploading it now saves the first replay that time.
        let code = unsafe { context.driver.api.cuGraphUpload(self.handle, context.stream) };
        context.check(code, doing)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let context = &*self.device.context;
        if !self.handle.is_null() && context.enter().is_ok() {
            // SAFETY: destroyed once; a running graph is freed when it is done.
            context.log(unsafe { context.driver.api.cuGraphExecDestroy(self.handle) });
        }
    }
}

impl super::context::Context {
    /// An error if another thread captures the stream: work from this thread would become part of
    /// its graph.
    pub(super) fn submitting(&self, what: &str) -> Result<()> {
        match &*self.capturing() {
            Some(c) if c.thread != std::thread::current().id() => {
                let why = "another thread captures the stream into a CUDA graph";
                Err(DeviceError::refused(what, why, "wait until the capture has ended"))
            }
            _ => Ok(()),
        }
    }

    /// Ends the record of a capture, frees what was released meanwhile, and returns the modules
    /// of its kernels.
    pub(super) fn end_capturing(&self) -> Vec<Module> {
        // A statement of its own, so that the lock is released.
        let capturing = self.capturing().take();
        let (modules, freed) = capturing.map(|c| (c.modules, c.freed)).unwrap_or_default();
        freed.into_iter().for_each(|what| self.free(what));
        modules
    }
}

#[cfg(test)]
mod tests {
    use super::super::allocation::Memory;
    use super::super::fake::{Fake, bytes_at};
    use super::super::module::Function;
    use super::super::module::tests::PTX;
    use super::*;
    use crate::architecture::Architecture;

    struct Bench {
        scale: Function,
        memory: Memory,
        device: Device,
        fake: Fake,
    }

    /// A kernel that multiplies byte 0 by its third argument.
    fn bench() -> Bench {
        let fake = Fake::new();
        let device = fake.device();
        let sm80 = Architecture::from_name("sm_80").unwrap();
        let scale = device.load_module(PTX, sm80).unwrap().function("scale").unwrap();
        let memory = device.allocate(16, "the state").unwrap();
        fake.kernel("scale", |_, _, _, a| bytes_at(a[0], 1)[0] *= a[2] as u8);
        Bench { scale, memory, device, fake }
    }

    impl Bench {
        fn scale_by(&self, factor: u64) -> Result<()> {
            let at = self.memory.address().0;
            self.device.launch_verified(&self.scale, [1; 3], [32, 1, 1], 0, &[at, at, factor])
        }

        fn byte(&self) -> u8 {
            let mut byte = [0];
            self.device.read(self.memory.address(), &mut byte).unwrap();
            byte[0]
        }
    }

    #[test]
    fn a_captured_step_happens_when_it_is_replayed() {
        let b = bench();
        b.device.write(b.memory.address(), &[1, 7]).unwrap();
        let capture = b.device.begin_capture().unwrap();
        b.scale_by(3).unwrap();
        b.device.fill(b.memory.address().offset(1), 9, 1).unwrap();
        b.device.copy(b.memory.address(), b.memory.address().offset(8), 2).unwrap();
        let graph = capture.finish().unwrap();
        assert_eq!((graph.nodes(), b.byte()), (3, 1));
        graph.replay_verified().unwrap();
        graph.replay_verified().unwrap();
        let mut bytes = [0; 10];
        b.device.read(b.memory.address(), &mut bytes).unwrap();
        assert_eq!(bytes[..2], [9, 9]);
        assert_eq!(bytes[8..], [9, 9]);
        // The graph keeps the module alive.
        let Bench { scale, memory, device, fake } = b;
        drop((scale, device));
        graph.replay_verified().unwrap();
        assert_eq!(fake.count("cuModuleUnload"), 0);
        drop(graph);
        assert_eq!(fake.count("cuModuleUnload"), 1);
        drop(memory);
        fake.nothing_left();
    }

    #[test]
    fn what_a_capture_cannot_hold_is_refused_and_does_not_spoil_it() {
        let b = bench();
        let capture = b.device.begin_capture().unwrap();
        let event = b.device.event(false).unwrap();
        let sm80 = Architecture::from_name("sm_80").unwrap();
        for (what, error) in [
            ("waiting", b.device.synchronise().err()),
            ("reading", b.device.read(b.memory.address(), &mut [0]).err()),
            ("writing", b.device.write(b.memory.address(), &[0]).err()),
            ("allocating the arena", b.device.allocate(1, "the arena").err()),
            ("recording", event.record().err()),
            ("loading kernels", b.device.load_module(PTX, sm80).err()),
            ("beginning a capture", b.device.begin_capture().err()),
            ("pinning", super::super::staging::Upload::new(&b.device, 8).err()),
        ] {
            let text = error.expect(what).to_string();
            assert!(text.contains(what) && text.contains("being captured"), "{text}");
        }
        b.scale_by(2).unwrap();
        let other = std::thread::scope(|s| s.spawn(|| b.scale_by(2)).join().unwrap());
        assert!(other.unwrap_err().to_string().contains("another thread captures"));
        let graph = capture.finish().unwrap();
        assert_eq!(graph.nodes(), 1);
        drop((graph, event));
        let Bench { scale, memory, device, fake } = b;
        drop((scale, memory, device));
        fake.nothing_left();
    }

    #[test]
    fn what_is_given_up_during_a_capture_is_freed_when_it_has_ended() {
        let b = bench();
        let other = b.device.allocate(16, "another's arena").unwrap();
        // Submitted before the capture begins.
        // SAFETY: the fake's launches are only recorded.
        unsafe { b.device.launch(&b.scale, [1; 3], [32, 1, 1], 0, &[other.address().0, 0, 1]) }
            .unwrap();
        let sm80 = Architecture::from_name("sm_80").unwrap();
        let module = b.device.load_module(PTX, sm80).unwrap();
        let capture = b.device.begin_capture().unwrap();
        b.scale_by(2).unwrap();
        drop((other, module));
        assert_eq!((b.fake.count("cuMemFree_v2"), b.fake.count("cuModuleUnload")), (0, 0));
        let graph = capture.finish().unwrap();
        assert_eq!((b.fake.count("cuMemFree_v2"), b.fake.count("cuModuleUnload")), (1, 1));
        assert_eq!(graph.nodes(), 1);
        drop(graph);
        let Bench { scale, memory, device, fake } = b;
        drop((scale, memory, device));
        fake.nothing_left();
    }

    #[test]
    fn a_capture_that_fails_leaves_nothing_and_the_stream_works() {
        let b = bench();
        b.device.write(b.memory.address(), &[1]).unwrap();
        let capture = b.device.begin_capture().unwrap();
        b.scale_by(2).unwrap();
        drop(capture);
        for call in [
            "cuGraphInstantiateWithFlags",
            "cuGraphUpload",
            "cuGraphGetNodes",
            "cuStreamEndCapture",
        ] {
            let capture = b.device.begin_capture().unwrap();
            b.scale_by(2).unwrap();
            b.fake.fail(call, 999);
            assert_eq!(capture.finish().err().unwrap().code(), Some(999), "{call}");
        }
        b.scale_by(5).unwrap();
        assert_eq!(b.byte(), 5);
        let Bench { scale, memory, device, fake } = b;
        drop((scale, memory, device));
        fake.nothing_left();
    }

    #[test]
    fn a_graph_is_updated_in_place_or_made_anew() {
        let b = bench();
        b.device.write(b.memory.address(), &[1]).unwrap();
        let captured = |factors: &[u64]| {
            let capture = b.device.begin_capture().unwrap();
            factors.iter().for_each(|f| b.scale_by(*f).unwrap());
            capture
        };
        let mut graph = captured(&[2]).finish().unwrap();
        graph.update(captured(&[3])).unwrap();
        assert_eq!(b.fake.count("cuGraphInstantiateWithFlags"), 1);
        graph.replay_verified().unwrap();
        assert_eq!(b.byte(), 3);
        graph.update(captured(&[5, 7])).unwrap();
        assert_eq!((b.fake.count("cuGraphInstantiateWithFlags"), graph.nodes()), (2, 2));
        graph.replay_verified().unwrap();
        assert_eq!(b.byte(), 105);
        drop(graph);
        let Bench { scale, memory, device, fake } = b;
        drop((scale, memory, device));
        fake.nothing_left();
    }
}
