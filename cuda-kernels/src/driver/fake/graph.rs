//! The fake's graphs: captures, conditional nodes, executables.
//!
//! A node runs when the nodes that it depends on have run, and of those that could the one that
//! was added last runs first: a missing dependency changes the result. The value of a condition is
//! a word in this process's memory, and the handle is its address, so a kernel that stores there
//! sets the condition ([`Fake::allocations`](super::Fake::allocations) lists it).
//!
//! What a real driver refuses or does not survive is a violation: a condition without a node or
//! with two, a body without nodes, an early launch in a body or after a conditional node.

use super::stream::{Node, Work, run};
use super::{
    CAPTURE_INVALIDATED, CAPTURE_UNSUPPORTED, INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED, State,
    put, status, with,
};
use cudarc::driver::sys::*;
use std::collections::BTreeMap;
use std::ffi::{c_uint, c_ulonglong};

/// A capture in progress.
pub(super) struct Capture {
    pub(super) stream: usize,
    pub(super) invalid: bool,
    /// The graph that is captured to.
    graph: usize,
    /// The nodes after which work comes.
    after: Vec<usize>,
    /// The list that the driver has given for them.
    given: Vec<usize>,
}

/// A graph under construction.
#[derive(Clone, Default)]
pub(super) struct Graph {
    nodes: Vec<(usize, Vec<usize>, Step)>,
    /// Conditions, and whether they have a node.
    conditions: BTreeMap<u64, bool>,
    /// Whether it is the body of a node of this graph.
    pub(super) parent: Option<usize>,
}

/// A node of a graph under construction.
#[derive(Clone)]
enum Step {
    Work(Node),
    Conditional { handle: u64, kind: CUgraphConditionalNodeType, bodies: Vec<usize> },
}

/// A node of an executable graph.
#[derive(Clone)]
pub(super) enum Exec {
    Work(Node),
    Conditional { handle: u64, kind: CUgraphConditionalNodeType, bodies: Vec<Nodes<Exec>> },
}

/// Nodes, each with the numbers of those that it depends on.
#[derive(Clone)]
pub(super) struct Nodes<T>(Vec<(Vec<usize>, T)>);

/// Iterations after which a loop is endless.
const ENDLESS: usize = 10_000;

impl Nodes<Exec> {
    fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether they have conditional nodes.
    fn has_conditional(&self) -> bool {
        self.0.iter().any(|(_, node)| matches!(node, Exec::Conditional { .. }))
    }

    pub(super) fn uses(&self, start: usize, bytes: usize) -> bool {
        self.0.iter().any(|(_, node)| match node {
            Exec::Work(node) => node.uses(start, bytes),
            Exec::Conditional { bodies, .. } => bodies.iter().any(|b| b.uses(start, bytes)),
        })
    }

    /// Runs every node once.
    pub(super) fn run(&self) {
        let mut done = vec![false; self.0.len()];
        loop {
            let ready = |n: &usize| !done[*n] && self.0[*n].0.iter().all(|before| done[*before]);
            let Some(next) = (0..self.0.len()).rev().find(ready) else { break };
            match &self.0[next].1 {
                Exec::Work(node) => run(node.clone()),
                Exec::Conditional { handle, kind, bodies } => conditional(*handle, *kind, bodies),
            }
            done[next] = true;
        }
        assert!(done.iter().all(|done| *done), "a graph has a cycle");
    }
}

fn conditional(handle: u64, kind: CUgraphConditionalNodeType, bodies: &[Nodes<Exec>]) {
    use CUgraphConditionalNodeType_enum as Kind;
    let value = || with(|s| *s.conditions[&handle]) as usize;
    match kind {
        Kind::CU_GRAPH_COND_TYPE_IF if value() != 0 => bodies[0].run(),
        Kind::CU_GRAPH_COND_TYPE_IF => bodies.get(1).into_iter().for_each(Nodes::run),
        Kind::CU_GRAPH_COND_TYPE_SWITCH => bodies.get(value()).into_iter().for_each(Nodes::run),
        Kind::CU_GRAPH_COND_TYPE_WHILE => {
            let mut iterations = 0;
            while value() != 0 {
                bodies[0].run();
                iterations += 1;
                assert!(iterations < ENDLESS, "a WHILE node does not end");
            }
        }
    }
}

impl State {
    /// Adds a node to the graph that is captured to.
    pub(super) fn captured(&mut self, node: Node) -> Result<(), u32> {
        let number = self.handle();
        let capture = self.capture.as_mut().ok_or(INVALID_VALUE)?;
        if capture.invalid {
            return Err(CAPTURE_INVALIDATED);
        }
        let after = std::mem::replace(&mut capture.after, vec![number]);
        let graph = self.graphs.get_mut(&capture.graph).ok_or(INVALID_HANDLE)?;
        if let Node::Launch { launched, early: true, .. } = &node {
            let is_conditional = |(id, _, step): &(usize, Vec<usize>, Step)| {
                after.contains(id) && matches!(step, Step::Conditional { .. })
            };
            if graph.parent.is_some() || graph.nodes.iter().any(is_conditional) {
                let name = &launched.name;
                self.violations.push(format!("`{name}` is launched early, and no kernel precedes"));
            }
        }
        graph.nodes.push((number, after, Step::Work(node)));
        Ok(())
    }

    fn begin(&mut self, stream: CUstream, graph: usize, after: Vec<usize>) -> Result<(), u32> {
        let stream = stream as usize;
        if self.capture.is_some() || !self.streams.contains_key(&stream) {
            return Err(INVALID_VALUE);
        }
        self.capture = Some(Capture { stream, invalid: false, graph, after, given: Vec::new() });
        Ok(())
    }

    /// The nodes of a graph as they are executed.
    fn executable(&self, graph: usize) -> Result<Nodes<Exec>, u32> {
        let graph = self.graphs.get(&graph).ok_or(INVALID_HANDLE)?;
        if graph.conditions.values().any(|has_node| !has_node) {
            return Err(INVALID_VALUE);
        }
        let number = |id: &usize| graph.nodes.iter().position(|(known, ..)| known == id);
        let node = |(_, after, step): &(usize, Vec<usize>, Step)| {
            let after: Option<Vec<usize>> = after.iter().map(number).collect();
            let exec = match step {
                Step::Work(node) => Exec::Work(node.clone()),
                Step::Conditional { handle, kind, bodies } => {
                    let bodies: Result<_, u32> =
                        bodies.iter().map(|body| self.body(*body)).collect();
                    Exec::Conditional { handle: *handle, kind: *kind, bodies: bodies? }
                }
            };
            Ok((after.ok_or(INVALID_HANDLE)?, exec))
        };
        Ok(Nodes(graph.nodes.iter().map(node).collect::<Result<_, u32>>()?))
    }

    fn body(&self, body: usize) -> Result<Nodes<Exec>, u32> {
        let nodes = self.executable(body)?;
        assert!(nodes.len() > 0, "a body has no nodes: drivers before CUDA 12.8 hang");
        Ok(nodes)
    }

    /// Number of graphs that are not destroyed with another one.
    pub(super) fn root_graphs(&self) -> usize {
        self.graphs.values().filter(|graph| graph.parent.is_none()).count()
    }
}

pub(super) extern "C" fn cuStreamBeginCapture_v2(
    stream: CUstream,
    mode: CUstreamCaptureMode,
) -> u32 {
    status(with(|s| {
        s.in_context("cuStreamBeginCapture_v2")?;
        assert_eq!(mode, CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        let graph = s.handle();
        s.begin(stream, graph, Vec::new())?;
        s.graphs.insert(graph, Graph::default());
        Ok(())
    }))
}

pub(super) unsafe extern "C" fn cuStreamBeginCaptureToGraph(
    stream: CUstream,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
    mode: CUstreamCaptureMode,
) -> u32 {
    status(with(|s| {
        s.in_context("cuStreamBeginCaptureToGraph")?;
        assert_eq!(mode, CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        assert!(data.is_null(), "edges are full dependencies");
        // SAFETY: a list of the API.
        let after = unsafe { list(dependencies, count) };
        let known = s.graphs.get(&(graph as usize)).ok_or(INVALID_HANDLE)?;
        if !after.iter().all(|node| known.nodes.iter().any(|(id, ..)| id == node)) {
            return Err(INVALID_VALUE);
        }
        s.begin(stream, graph as usize, after)
    }))
}

/// # Safety
/// There are `count` nodes.
unsafe fn list(nodes: *const CUgraphNode, count: usize) -> Vec<usize> {
    // SAFETY: the caller guarantees it.
    (0..count).map(|n| unsafe { *nodes.add(n) } as usize).collect()
}

pub(super) unsafe extern "C" fn cuStreamGetCaptureInfo_v3(
    stream: CUstream,
    state: *mut CUstreamCaptureStatus,
    _id: *mut cuuint64_t,
    graph: *mut CUgraph,
    dependencies: *mut *const CUgraphNode,
    data: *mut *const CUgraphEdgeData,
    count: *mut usize,
) -> u32 {
    use CUstreamCaptureStatus_enum as Status;
    status(with(|s| {
        s.in_context("cuStreamGetCaptureInfo_v3")?;
        let Some(capture) = s.capture.as_mut().filter(|c| c.stream == stream as usize) else {
            return Err(INVALID_VALUE);
        };
        let now = match capture.invalid {
            true => Status::CU_STREAM_CAPTURE_STATUS_INVALIDATED,
            false => Status::CU_STREAM_CAPTURE_STATUS_ACTIVE,
        };
        capture.given = capture.after.clone();
        // SAFETY: out-pointers of the API; the list lives until the next call.
        unsafe {
            put(state, now);
            put(graph, capture.graph as CUgraph);
            put(dependencies, capture.given.as_ptr().cast());
            put(data, std::ptr::null());
            put(count, capture.given.len());
        }
        Ok(())
    }))
}

pub(super) unsafe extern "C" fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) -> u32 {
    // SAFETY: an out-pointer of the API; a failed capture gives no graph.
    unsafe { put(graph, std::ptr::null_mut()) };
    status(with(|s| {
        let entered = s.in_context("cuStreamEndCapture");
        if s.capture.as_ref().is_none_or(|c| c.stream != stream as usize) {
            return Err(INVALID_VALUE);
        }
        // Also a failure ends the capture.
        let capture = s.capture.take().ok_or(INVALID_VALUE)?;
        if entered.is_err() || capture.invalid {
            // A graph of the driver's own is destroyed with the capture.
            s.graphs.retain(|handle, _| *handle != capture.graph || s.created.contains(handle));
            return entered.and(Err(CAPTURE_INVALIDATED));
        }
        // SAFETY: an out-pointer of the API.
        unsafe { put(graph, capture.graph as CUgraph) };
        Ok(())
    }))
}

pub(super) unsafe extern "C" fn cuGraphCreate(graph: *mut CUgraph, flags: c_uint) -> u32 {
    status(with(|s| {
        s.in_context("cuGraphCreate")?;
        assert_eq!(flags, 0);
        let handle = s.handle();
        s.graphs.insert(handle, Graph::default());
        s.created.insert(handle);
        // SAFETY: an out-pointer of the API.
        unsafe { put(graph, handle as CUgraph) };
        Ok(())
    }))
}

pub(super) unsafe extern "C" fn cuGraphConditionalHandleCreate(
    handle: *mut CUgraphConditionalHandle,
    graph: CUgraph,
    context: CUcontext,
    _value: c_uint,
    flags: c_uint,
) -> u32 {
    status(with(|s| {
        s.in_context("cuGraphConditionalHandleCreate")?;
        assert!(flags == 0 && !context.is_null());
        let word = Box::new(0u32);
        let address = std::ptr::from_ref(&*word) as u64;
        let graph = s.graphs.get_mut(&(graph as usize)).ok_or(INVALID_HANDLE)?;
        graph.conditions.insert(address, false);
        // SAFETY: an out-pointer of the API.
        unsafe { put(handle, address) };
        s.conditions.insert(address, word);
        Ok(())
    }))
}

pub(super) unsafe extern "C" fn cuGraphAddNode_v2(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
    parameters: *mut CUgraphNodeParams,
) -> u32 {
    use CUgraphConditionalNodeType_enum as Kind;
    status(with(|s| {
        s.in_context("cuGraphAddNode_v2")?;
        assert!(data.is_null(), "edges are full dependencies");
        // SAFETY: a list and a description of the API; only conditional nodes are added so.
        let (after, parameters) = unsafe { (list(dependencies, count), &mut *parameters) };
        assert_eq!(parameters.type_, CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_CONDITIONAL);
        // SAFETY: as above.
        let wanted = unsafe { &mut parameters.__bindgen_anon_1.conditional };
        let (kind, size) = (wanted.type_, wanted.size as usize);
        let most = match kind {
            Kind::CU_GRAPH_COND_TYPE_WHILE => 1,
            Kind::CU_GRAPH_COND_TYPE_IF if s.version < 12_080 => 1,
            Kind::CU_GRAPH_COND_TYPE_IF => 2,
            Kind::CU_GRAPH_COND_TYPE_SWITCH if s.version < 12_080 => return Err(NOT_SUPPORTED),
            Kind::CU_GRAPH_COND_TYPE_SWITCH => usize::MAX,
        };
        if s.capture.is_some() || size == 0 || size > most {
            return Err(INVALID_VALUE);
        }
        let bodies: Vec<usize> = (0..size).map(|_| s.handle()).collect();
        let number = s.handle();
        let known = s.graphs.get_mut(&(graph as usize)).ok_or(INVALID_HANDLE)?;
        if !after.iter().all(|node| known.nodes.iter().any(|(id, ..)| id == node)) {
            return Err(INVALID_VALUE);
        }
        match known.conditions.get_mut(&wanted.handle) {
            Some(has_node @ false) => *has_node = true,
            _ => return Err(INVALID_VALUE),
        }
        let step = Step::Conditional { handle: wanted.handle, kind, bodies: bodies.clone() };
        known.nodes.push((number, after, step));
        for body in &bodies {
            let body_graph = Graph { parent: Some(graph as usize), ..Graph::default() };
            s.graphs.insert(*body, body_graph);
            s.created.insert(*body);
        }
        let list = s.body_lists.entry(number).or_insert(bodies);
        wanted.phGraph_out = list.as_mut_ptr().cast();
        // SAFETY: an out-pointer of the API.
        unsafe { put(node, number as CUgraphNode) };
        Ok(())
    }))
}

pub(super) unsafe extern "C" fn cuGraphInstantiateWithFlags(
    executable: *mut CUgraphExec,
    graph: CUgraph,
    _flags: c_ulonglong,
) -> u32 {
    status(with(|s| {
        s.in_context("cuGraphInstantiateWithFlags")?;
        let nodes = s.executable(graph as usize)?;
        let handle = s.handle();
        s.executables.insert(handle, nodes);
        // SAFETY: an out-pointer of the API.
        unsafe { put(executable, handle as CUgraphExec) };
        Ok(())
    }))
}

pub(super) extern "C" fn cuGraphUpload(executable: CUgraphExec, _stream: CUstream) -> u32 {
    status(with(|s| {
        s.in_context("cuGraphUpload")?;
        s.executables.get(&(executable as usize)).map(|_| ()).ok_or(INVALID_HANDLE)
    }))
}

pub(super) extern "C" fn cuGraphLaunch(executable: CUgraphExec, stream: CUstream) -> u32 {
    status(with(|s| {
        s.in_context("cuGraphLaunch")?;
        if s.capture.is_some() {
            return Err(CAPTURE_UNSUPPORTED);
        }
        let nodes = s.executables.get(&(executable as usize)).cloned().ok_or(INVALID_HANDLE)?;
        s.enqueue(stream as usize, Work::Graph(nodes))
    }))
}

pub(super) unsafe extern "C" fn cuGraphExecUpdate_v2(
    executable: CUgraphExec,
    graph: CUgraph,
    _result: *mut CUgraphExecUpdateResultInfo,
) -> u32 {
    const UPDATE_FAILURE: u32 = 910;
    status(with(|s| {
        s.in_context("cuGraphExecUpdate_v2")?;
        let nodes = s.executable(graph as usize)?;
        let old = s.executables.get_mut(&(executable as usize)).ok_or(INVALID_HANDLE)?;
        if old.len() != nodes.len() || nodes.has_conditional() {
            return Err(UPDATE_FAILURE);
        }
        *old = nodes;
        Ok(())
    }))
}

pub(super) extern "C" fn cuGraphExecDestroy(executable: CUgraphExec) -> u32 {
    status(with(|s| {
        s.in_context("cuGraphExecDestroy")?;
        s.executables.remove(&(executable as usize)).map(|_| ()).ok_or(INVALID_HANDLE)
    }))
}

pub(super) extern "C" fn cuGraphDestroy(graph: CUgraph) -> u32 {
    status(with(|s| {
        s.in_context("cuGraphDestroy")?;
        let graph = graph as usize;
        if s.graphs.get(&graph).is_none_or(|g| g.parent.is_some()) {
            return Err(INVALID_HANDLE);
        }
        // With its bodies, and theirs.
        let mut gone = vec![graph];
        while let Some(next) = gone.pop() {
            s.graphs.remove(&next);
            s.created.remove(&next);
            gone.extend(s.graphs.iter().filter(|(_, g)| g.parent == Some(next)).map(|(h, _)| *h));
        }
        Ok(())
    }))
}

pub(super) unsafe extern "C" fn cuGraphGetNodes(
    graph: CUgraph,
    nodes: *mut CUgraphNode,
    count: *mut usize,
) -> u32 {
    status(with(|s| {
        s.in_context("cuGraphGetNodes")?;
        assert!(nodes.is_null(), "only the count is asked for");
        let number = s.graphs.get(&(graph as usize)).ok_or(INVALID_HANDLE)?.nodes.len();
        // SAFETY: an out-pointer of the API.
        unsafe { put(count, number) };
        Ok(())
    }))
}
