//! Capture of a step with loops and branches: a CUDA graph with conditional nodes.
//!
//! A straight step is captured in one piece ([`super::graph`]). A step with loops and branches is
//! captured in parts, all from the one stream:
//!
//! ```text
//! capture to the graph:   kernels …, the kernel that sets the condition
//! end the capture, add a conditional node after its last node
//! capture to the body:    kernels …, for a loop the kernel that sets the condition again
//! end the capture
//! capture to the graph, after the conditional node: kernels …
//! ```
//!
//! A body may have conditional nodes of its own, and is then captured in parts too. Every part
//! depends on the part before it, so the order is that of the stream.
//!
//! **Nodes.** CUDA 12.4 has IF nodes of one body and WHILE nodes. CUDA 12.8 has SWITCH nodes, and
//! drivers before it hang on a body without nodes (openxla/xla pull request 25769). So a branch is
//! one SWITCH node since CUDA 12.8, and one IF node for each arm before; an empty body gets a
//! kernel that does nothing in both cases.
//!
//! **Kernels in bodies are not launched early** ([`super::launch`]), nor is the first kernel after
//! a conditional node: an early launch is an edge between two kernels of one graph.
//!
//! **Moved addresses.** The condition's handle is an argument of kernels, and belongs to one graph.
//! Whether `cuGraphExecUpdate` maps the handles of the new graph to those of the old one is not
//! documented. So such a graph is not updated but made anew.
//!
//! **Safety.** A kernel that sets a condition writes through an address and a handle that cannot be
//! checked, so all of this is for the crate's executor only, as `launch_verified` is.
//!
//! **Trial.** [`Device::conditionals`] makes a small graph with each kind of node before a plan
//! relies on them, and never launches it. What a driver refuses is known when a plan is loaded.

use super::api::ConditionalApi;
use super::context::Device;
use super::error::{DeviceError, Result};
use super::graph::{Capturing, Description, Graph};
use super::module::Function;
use crate::architecture::Architecture;
use crate::condition;
use cudarc::driver::sys::{
    CUDA_CONDITIONAL_NODE_PARAMS, CUgraph, CUgraphConditionalNodeType_enum as NodeType,
    CUgraphNode, CUgraphNodeParams, CUgraphNodeType_enum, CUstreamCaptureMode_enum,
    CUstreamCaptureStatus,
};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::{Arc, PoisonError};

/// The version of the driver since which it has IF and WHILE nodes: CUDA 12.4.
const NODES: u32 = 12_040;

/// The version of the driver since which it has SWITCH nodes: CUDA 12.8.
const SWITCH: u32 = 12_080;

/// The kernels that set conditions, loaded on a device that has conditional nodes.
pub(crate) struct Conditionals {
    kernels: BTreeMap<String, Function>,
    /// Whether there are SWITCH nodes.
    pub(crate) has_switch: bool,
}

/// A condition, of the graph in which it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Condition(u64);

/// The kind of a conditional node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Conditional {
    /// Executes its body if the value is not 0.
    If,
    /// Executes its body as long as the value is not 0.
    While,
    /// Executes the body whose number is the value, of as many bodies.
    Switch(u32),
}

/// A conditional node whose bodies are being captured.
#[must_use]
pub(crate) struct Node {
    /// The graph that the node is in, and the node.
    graph: CUgraph,
    node: CUgraphNode,
    bodies: Vec<CUgraph>,
}

/// A capture in parts. Dropped without [`ControlCapture::finish`], it discards the recorded work.
/// It stays on its thread, as the driver demands.
pub(crate) struct ControlCapture<'a> {
    device: &'a Device,
    conditionals: &'a Conditionals,
    root: Description<'a>,
    /// The graph that is captured to.
    graph: CUgraph,
    /// Whether the stream is being captured.
    capturing: bool,
    /// The number of bodies around the part that is captured.
    depth: usize,
    /// Whether the device's record of the capture is ended.
    ended: bool,
    not_send: PhantomData<*const ()>,
}

impl Device {
    /// The kernels for conditional nodes, after a trial. They are loaded once, as long as a plan
    /// uses them.
    ///
    /// Errors: the driver is older than CUDA 12.4, lacks a function, or refuses the kernels or a
    /// node.
    pub(crate) fn conditionals(&self, architecture: Architecture) -> Result<Arc<Conditionals>> {
        let version = self.context.driver.version;
        self.conditional_api()?;
        let mut known = self.context.conditionals.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(conditionals) = known.upgrade() {
            return Ok(conditionals);
        }
        let module = self.load_module(&condition::module(), architecture)?;
        let names: Vec<String> = module.kernels().map(String::from).collect();
        let kernels: Result<BTreeMap<String, Function>> =
            names.into_iter().map(|name| Ok((name.clone(), module.function(&name)?))).collect();
        let conditionals = Conditionals { kernels: kernels?, has_switch: version >= SWITCH };
        conditionals.trial(self).map_err(|error| error.context("trying conditional nodes"))?;
        let conditionals = Arc::new(conditionals);
        *known = Arc::downgrade(&conditionals);
        Ok(conditionals)
    }

    /// The functions for conditional nodes.
    fn conditional_api(&self) -> Result<&ConditionalApi> {
        let driver = &self.context.driver;
        let refused = |why: String| {
            let help = "install an NVIDIA driver of version 550 or later (CUDA 12.4)";
            DeviceError::refused("looking for conditional nodes of CUDA graphs", why, help)
        };
        if driver.version < NODES {
            let (major, minor) = (driver.version / 1000, driver.version % 1000 / 10);
            let why = format!("the driver implements CUDA {major}.{minor}, and 12.4 is needed");
            return Err(refused(why));
        }
        driver.conditional.as_ref().map_err(|why| refused(format!("the driver: {why}")))
    }

    /// Begins a capture in parts.
    ///
    /// Errors: the stream is being captured; the driver has no conditional nodes.
    pub(crate) fn begin_control_capture<'a>(
        &'a self,
        conditionals: &'a Conditionals,
    ) -> Result<ControlCapture<'a>> {
        let context = &*self.context;
        let doing = "beginning a capture in parts";
        context.not_capturing(doing)?;
        let api = self.conditional_api()?;
        context.enter()?;
        let mut root = Description { device: self, handle: std::ptr::null_mut() };
        // SAFETY: the pointer is valid for a write; the flags must be 0; destroyed in `drop`.
        context.check(unsafe { api.cuGraphCreate(&mut root.handle, 0) }, || doing.into())?;
        let mut capture = ControlCapture {
            device: self,
            conditionals,
            graph: root.handle,
            root,
            capturing: false,
            depth: 0,
            ended: true,
            not_send: PhantomData,
        };
        // The lock is held through the call, so that two threads cannot both begin.
        let mut capturing = context.capturing();
        if capturing.is_some() {
            drop(capturing);
            return Err(DeviceError::refused(doing, "another thread captures", "wait for it"));
        }
        *capturing = Some(Capturing::new());
        drop(capturing);
        capture.ended = false;
        capture.resume(&[])?;
        Ok(capture)
    }
}

impl Conditionals {
    /// Makes a graph with a node of each kind, and launches nothing. Its kernels have no memory.
    fn trial(&self, device: &Device) -> Result<()> {
        let mut capture = device.begin_control_capture(self)?;
        let mut kinds = vec![Conditional::While, Conditional::If];
        if self.has_switch {
            kinds.push(Conditional::Switch(2));
        }
        for kind in kinds {
            let condition = capture.condition()?;
            capture.set("next_count", condition, &[0])?;
            let node = capture.open(kind, condition)?;
            for body in 0..node.bodies() {
                capture.enter(&node, body)?;
                capture.set("next_count", condition, &[0])?;
                capture.leave()?;
            }
            capture.close(node)?;
        }
        capture.finish().map(drop)
    }

    fn kernel(&self, name: &str) -> &Function {
        self.kernels.get(name).unwrap_or_else(|| panic!("no kernel `{name}` sets conditions"))
    }
}

impl Node {
    /// Number of its bodies.
    pub(crate) fn bodies(&self) -> usize {
        self.bodies.len()
    }
}

impl<'a> ControlCapture<'a> {
    /// A new condition of the graph that is captured to. It must be set before the node that it
    /// is given to.
    pub(crate) fn condition(&mut self) -> Result<Condition> {
        let (context, api) = (&*self.device.context, self.device.conditional_api()?);
        context.enter()?;
        let mut handle = 0;
        // SAFETY: the pointer is valid for a write; graph and context live. Without flags the
        // value is what kernels set.
        let code = unsafe {
            let context = context.handle;
            api.cuGraphConditionalHandleCreate(&mut handle, self.graph, context, 0, 0)
        };
        context.check(code, || "making a condition".into())?;
        Ok(Condition(handle))
    }

    /// Captures a kernel of [`condition`](crate::condition) that sets a condition.
    pub(crate) fn set(
        &mut self,
        kernel: &str,
        condition: Condition,
        arguments: &[u64],
    ) -> Result<()> {
        let mut all = vec![condition.0];
        all.extend(arguments);
        let function = self.conditionals.kernel(kernel);
        self.device.launch_verified(function, [1; 3], [1; 3], 0, &all)
    }

    /// Adds a conditional node after the work so far. The capture pauses: next come
    /// [`enter`](Self::enter) and [`leave`](Self::leave) for each body, then
    /// [`close`](Self::close).
    pub(crate) fn open(&mut self, kind: Conditional, condition: Condition) -> Result<Node> {
        let after = self.pause()?;
        let (context, api) = (&*self.device.context, self.device.conditional_api()?);
        let (type_, size) = match kind {
            Conditional::If => (NodeType::CU_GRAPH_COND_TYPE_IF, 1),
            Conditional::While => (NodeType::CU_GRAPH_COND_TYPE_WHILE, 1),
            Conditional::Switch(size) => (NodeType::CU_GRAPH_COND_TYPE_SWITCH, size),
        };
        // SAFETY: all fields are numbers, pointers, or enums that have a variant 0.
        let mut parameters: CUgraphNodeParams = unsafe { std::mem::zeroed() };
        parameters.type_ = CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_CONDITIONAL;
        parameters.__bindgen_anon_1.conditional = CUDA_CONDITIONAL_NODE_PARAMS {
            handle: condition.0,
            type_,
            size,
            phGraph_out: std::ptr::null_mut(),
            ctx: context.handle,
        };
        let mut node = std::ptr::null_mut();
        context.enter()?;
        // SAFETY: the graph and its nodes `after` live; null edges are full dependencies; the
        // pointers are valid for writes.
        let code = unsafe {
            api.cuGraphAddNode_v2(
                &mut node,
                self.graph,
                after.as_ptr(),
                std::ptr::null(),
                after.len(),
                &mut parameters,
            )
        };
        context.check(code, || format!("adding a conditional node ({kind:?})"))?;
        // SAFETY: the driver has written the parameters of a conditional node. Its array of bodies
        // has `size` graphs, and lives as long as the node.
        let bodies = unsafe {
            let bodies = parameters.__bindgen_anon_1.conditional.phGraph_out;
            if bodies.is_null() {
                let why = "the driver gives a conditional node no bodies";
                return Err(DeviceError::refused("capturing", why, "install a newer driver"));
            }
            std::slice::from_raw_parts(bodies, size as usize).to_vec()
        };
        Ok(Node { graph: self.graph, node, bodies })
    }

    /// Captures to a body of a node.
    pub(crate) fn enter(&mut self, node: &Node, body: usize) -> Result<()> {
        self.graph = node.bodies[body];
        self.depth += 1;
        self.resume(&[])
    }

    /// Ends the capture to a body.
    pub(crate) fn leave(&mut self) -> Result<()> {
        self.pause()?;
        if self.nodes()? == 0 {
            self.resume(&[])?;
            let nothing = self.conditionals.kernel("nothing");
            self.device.launch_verified(nothing, [1; 3], [1; 3], 0, &[])?;
            self.pause()?;
        }
        self.depth -= 1;
        Ok(())
    }

    /// Continues after a node, all of whose bodies were captured.
    pub(crate) fn close(&mut self, node: Node) -> Result<()> {
        self.graph = node.graph;
        self.resume(&[node.node])
    }

    /// Ends the capture and instantiates its graph.
    pub(crate) fn finish(mut self) -> Result<Graph> {
        let paused = self.pause();
        let modules = self.device.context.end_capturing();
        self.ended = true;
        paused?;
        Graph::of(self.device, &self.root, modules)
    }

    /// Number of nodes of the graph that was captured to.
    fn nodes(&self) -> Result<usize> {
        let context = &*self.device.context;
        let mut count = 0;
        let doing = || "counting the nodes of a graph".into();
        // SAFETY: with a null list only the number is written.
        context.call(doing, |api| unsafe {
            api.cuGraphGetNodes(self.graph, std::ptr::null_mut(), &mut count)
        })?;
        Ok(count)
    }

    /// Captures the stream to the current graph, after these nodes of it.
    fn resume(&mut self, after: &[CUgraphNode]) -> Result<()> {
        let (context, api) = (&*self.device.context, self.device.conditional_api()?);
        context.enter()?;
        let mode = CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives and is not the legacy default stream; the graph and its nodes
        // live; null edges are full dependencies.
        let code = unsafe {
            api.cuStreamBeginCaptureToGraph(
                context.stream,
                self.graph,
                after.as_ptr(),
                std::ptr::null(),
                after.len(),
                mode,
            )
        };
        context.check(code, || "capturing to a graph".into())?;
        self.capturing = true;
        if let Some(capturing) = &mut *context.capturing() {
            capturing.restrict_early(self.depth > 0, !after.is_empty());
        }
        Ok(())
    }

    /// Ends the capture of the stream, and returns the nodes after which work would follow.
    fn pause(&mut self) -> Result<Vec<CUgraphNode>> {
        let (context, api) = (&*self.device.context, self.device.conditional_api()?);
        context.enter()?;
        let (mut id, mut graph, mut count) = (0, std::ptr::null_mut(), 0);
        let (mut nodes, mut data) = (std::ptr::null(), std::ptr::null());
        let mut status = MaybeUninit::<CUstreamCaptureStatus>::zeroed();
        // SAFETY: all pointers are valid for writes. The status is written through a pointer of its
        // type, and not read: a newer driver may write a value that its `enum` lacks.
        let code = unsafe {
            api.cuStreamGetCaptureInfo_v3(
                context.stream,
                status.as_mut_ptr(),
                &mut id,
                &mut graph,
                &mut nodes,
                &mut data,
                &mut count,
            )
        };
        let asked = context.check(code, || "asking for the end of a capture".into());
        let after = match asked.is_ok() && count > 0 && !nodes.is_null() {
            // SAFETY: the driver's array has `count` nodes and lives until the next call for the
            // stream.
            true => unsafe { std::slice::from_raw_parts(nodes, count).to_vec() },
            false => Vec::new(),
        };
        self.capturing = false;
        // SAFETY: the pointer is valid for a write; this is the thread that began, since a capture
        // is not `Send`. The graph is the one that was captured to, which is not destroyed here.
        let code = unsafe { context.driver.api.cuStreamEndCapture(context.stream, &mut graph) };
        context.check(code, || "ending a part of a capture".into())?;
        asked?;
        Ok(after)
    }
}

impl Drop for ControlCapture<'_> {
    fn drop(&mut self) {
        if self.capturing
            && let Err(error) = self.pause()
        {
            tracing::debug!(%error, "while throwing a capture away");
        }
        if !self.ended {
            drop(self.device.context.end_capturing());
        }
    }
}

#[cfg(test)]
mod tests;
