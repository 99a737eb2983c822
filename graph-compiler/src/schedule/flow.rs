//! The minimum cut of a network, by maximum flow.
//!
//! Dinic, *Algorithm for solution of a problem of maximum flow in networks with power
//! estimation*, Soviet Mathematics Doklady 11, 1970.

/// Capacity of an edge that no minimum cut has. The total flow of networks here is less.
pub(super) const UNBOUNDED: u64 = 1 << 62;
/// The source node.
pub(super) const SOURCE: usize = 0;
/// The sink node.
pub(super) const SINK: usize = 1;

const NONE: u32 = u32::MAX;

struct Edge {
    to: u32,
    /// The next edge of the same node.
    next: u32,
    /// The residual capacity.
    capacity: u64,
}

/// A network of nodes and edges. Edge 2n + 1 is the reverse of edge 2n.
pub(super) struct Network {
    /// The first edge of each node.
    first: Vec<u32>,
    edges: Vec<Edge>,
    /// Distance of each node from the source in edges with residual capacity.
    level: Vec<u32>,
}

impl Network {
    /// A network of a source and a sink.
    pub fn new() -> Network {
        Network { first: vec![NONE; 2], edges: Vec::new(), level: Vec::new() }
    }

    pub fn node(&mut self) -> usize {
        self.first.push(NONE);
        self.first.len() - 1
    }

    pub fn edge(&mut self, from: usize, to: usize, capacity: u64) {
        for (from, to, capacity) in [(from, to, capacity), (to, from, 0)] {
            self.edges.push(Edge { to: to as u32, next: self.first[from], capacity });
            self.first[from] = self.edges.len() as u32 - 1;
        }
    }

    /// Number of nodes and edges.
    pub fn size(&self) -> usize {
        self.first.len() + self.edges.len()
    }

    /// The maximum flow. None if the effort does not suffice.
    pub fn flow(&mut self, left: &mut u64) -> Option<u64> {
        let mut flow = 0;
        let mut path: Vec<u32> = Vec::new();
        while self.reaches_sink(left) {
            let mut next = self.first.clone();
            let mut node = SOURCE;
            loop {
                if *left == 0 {
                    return None;
                }
                *left -= 1;
                if node == SINK {
                    let full =
                        path.iter().map(|e| self.edges[*e as usize].capacity).min().unwrap_or(0);
                    flow += full;
                    *left = left.saturating_sub(path.len() as u64);
                    let mut cut = 0;
                    for (n, e) in path.iter().enumerate().rev() {
                        self.edges[*e as usize].capacity -= full;
                        self.edges[*e as usize ^ 1].capacity += full;
                        cut = if self.edges[*e as usize].capacity == 0 { n } else { cut };
                    }
                    node = self.edges[path[cut] as usize ^ 1].to as usize;
                    path.truncate(cut);
                } else if next[node] == NONE {
                    // A dead end: backtrack.
                    let Some(e) = path.pop() else { break };
                    node = self.edges[e as usize ^ 1].to as usize;
                    next[node] = self.edges[next[node] as usize].next;
                } else {
                    let Edge { to, next: other, capacity } = self.edges[next[node] as usize];
                    if capacity > 0 && self.level[to as usize] == self.level[node] + 1 {
                        path.push(next[node]);
                        node = to as usize;
                    } else {
                        next[node] = other;
                    }
                }
            }
        }
        Some(flow)
    }

    /// Computes the levels. True if the sink has one.
    fn reaches_sink(&mut self, left: &mut u64) -> bool {
        *left = left.saturating_sub(self.size() as u64);
        self.level = self.flood(SOURCE, |edge| self.edges[edge].capacity > 0);
        self.level[SINK] != NONE
    }

    /// Breadth-first distance of each node from `from` over edges that are `open`; `NONE` if it
    /// cannot be reached.
    fn flood(&self, from: usize, open: impl Fn(usize) -> bool) -> Vec<u32> {
        let mut level = vec![NONE; self.first.len()];
        level[from] = 0;
        let mut queue = vec![from];
        let mut at = 0;
        while let Some(node) = queue.get(at).copied() {
            at += 1;
            let mut edge = self.first[node];
            while edge != NONE {
                let Edge { to, next, .. } = self.edges[edge as usize];
                if level[to as usize] == NONE && open(edge as usize) {
                    level[to as usize] = level[node] + 1;
                    queue.push(to as usize);
                }
                edge = next;
            }
        }
        level
    }

    /// The source sides of two minimum cuts, given a maximum flow: of the cut closest to the
    /// source, and of the one closest to the sink.
    pub fn cuts(&self) -> [Vec<bool>; 2] {
        let near = self.flood(SOURCE, |edge| self.edges[edge].capacity > 0);
        let far = self.flood(SINK, |edge| self.edges[edge ^ 1].capacity > 0);
        [near.iter().map(|l| *l != NONE).collect(), far.iter().map(|l| *l == NONE).collect()]
    }
}
