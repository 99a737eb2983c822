//! The fake's watch over exchanges: the order of everything that uses their memory.
//!
//! A stream that is not ordered behind an exchange may still do its work later, by chance, and give
//! the right result. So the watch does not look at results. Each piece of work has a *vector
//! clock*: for each stream the number of the last work that it comes after (C. Fidge 1988,
//! F. Mattern 1989). Records and waits of events carry clocks between streams, and waits of the
//! host carry them to all work that is enqueued later. Work is a violation if it is not ordered and
//!
//! - it uses memory that an exchange receives into, or
//! - it changes memory that an exchange sends from.
//!
//! The same holds for copies, among which are those of a rank's own block.
//!
//! A kernel's accesses are known by its arguments only: an address in the memory is a use of it,
//! and so is one before it in the same 256 bytes, since a rank may send a buffer without its first
//! elements. Accesses from farther before are not seen. Whether a kernel changes memory that is
//! sent is found by comparing the bytes when it runs, if it comes after the exchange was started.
//! Accesses of cuBLASLt's products are not known.

use super::stream::{Node, Work};
use super::{State, with};
use std::collections::BTreeMap;

/// For each stream the number of its last work that comes before.
type Clock = BTreeMap<usize, u64>;

#[derive(Default)]
pub(in crate::driver) struct Watch {
    /// The last work of each stream, and what it comes after.
    streams: BTreeMap<usize, Clock>,
    /// The latest record of each event.
    events: BTreeMap<usize, Clock>,
    /// What the host has waited for.
    host: Clock,
    exchanges: Vec<Exchange>,
    /// Nodes that the host has not waited for.
    nodes: Vec<(usize, u64, Node)>,
}

/// An exchange or a copy.
struct Exchange {
    is_copy: bool,
    stream: usize,
    number: u64,
    sources: Vec<(usize, usize)>,
    targets: Vec<(usize, usize)>,
}

/// Alignment of buffers.
const ALIGNMENT: usize = 256;

/// How work accesses a range.
#[derive(Clone, Copy, PartialEq)]
enum Access {
    Read,
    Write,
    Unknown,
}

fn join(clock: &mut Clock, other: &Clock) {
    for (stream, number) in other {
        let known = clock.entry(*stream).or_default();
        *known = (*known).max(*number);
    }
}

fn has(clock: &Clock, stream: usize, number: u64) -> bool {
    clock.get(&stream).is_some_and(|known| *known >= number)
}

fn access(node: &Node, (start, bytes): (usize, usize)) -> Option<Access> {
    let overlaps = |at: usize, length: usize| at < start + bytes && start < at + length;
    match node {
        Node::Copy { to, bytes, .. } | Node::Set { to, bytes, .. } if overlaps(*to, *bytes) => {
            Some(Access::Write)
        }
        Node::Copy { from, bytes, .. } if overlaps(*from, *bytes) => Some(Access::Read),
        Node::Launch { .. } => {
            let from = start - start % ALIGNMENT;
            node.uses(from, start + bytes - from).then_some(Access::Unknown)
        }
        _ => None,
    }
}

fn name(node: &Node) -> String {
    match node {
        Node::Copy { .. } => "a copy".into(),
        Node::Set { .. } => "a fill".into(),
        Node::Launch { launched, .. } => format!("kernel `{}`", launched.name),
        Node::Other(_) => "a product".into(),
    }
}

impl Watch {
    /// Notes that the host has waited for all work of a stream.
    pub(super) fn synchronised(&mut self, stream: usize) {
        let clock = self.streams.get(&stream).cloned().unwrap_or_default();
        self.waited(&clock);
    }

    /// Notes that the host has waited for an event.
    pub(super) fn passed(&mut self, event: usize) {
        let clock = self.events.get(&event).cloned().unwrap_or_default();
        self.waited(&clock);
    }

    fn waited(&mut self, clock: &Clock) {
        join(&mut self.host, clock);
        let host = &self.host;
        self.exchanges.retain(|exchange| !has(host, exchange.stream, exchange.number));
        self.nodes.retain(|(stream, number, _)| !has(host, *stream, *number));
    }
}

impl State {
    /// Notes work that is enqueued, with the violations that it is. Work whose changes are to be
    /// found when it runs is returned as such.
    pub(super) fn watched(&mut self, stream: usize, work: Work) -> Work {
        if !self.nccl.is_used() {
            return work;
        }
        let watch = &mut self.watch;
        let mut clock = watch.streams.remove(&stream).unwrap_or_default();
        join(&mut clock, &watch.host);
        let number = clock.entry(stream).or_default();
        *number += 1;
        let number = *number;
        let mut found = Vec::new();
        let mut compared = Vec::new();
        let unordered = |other: usize, of: u64| other != stream && !has(&clock, other, of);
        match &work {
            Work::Record(event, _) => {
                watch.events.insert(*event, clock.clone());
            }
            Work::Wait(event, ..) => {
                if let Some(before) = watch.events.get(event) {
                    join(&mut clock, before);
                }
            }
            Work::Node(node) => {
                for exchange in &watch.exchanges {
                    if !unordered(exchange.stream, exchange.number) {
                        continue;
                    }
                    let of = if exchange.is_copy { "a copy" } else { "an exchange" };
                    if exchange.targets.iter().any(|range| access(node, *range).is_some()) {
                        let name = name(node);
                        found.push(format!(
                            "{name} uses memory that {of} writes, and does not wait for it"
                        ));
                    }
                    for range in &exchange.sources {
                        match access(node, *range) {
                            Some(Access::Write) => found.push(overwritten(&name(node), of)),
                            Some(Access::Unknown) => compared.push(*range),
                            Some(Access::Read) | None => {}
                        }
                    }
                }
                if let Node::Copy { to, from, bytes } = node {
                    let (sources, targets) = (vec![(*from, *bytes)], vec![(*to, *bytes)]);
                    let copy = Exchange { is_copy: true, stream, number, sources, targets };
                    found.extend(copy.too_early(&watch.nodes, unordered));
                    watch.exchanges.push(copy);
                }
                watch.nodes.push((stream, number, node.clone()));
            }
            Work::Graph(nodes) => {
                let mut late = watch.exchanges.iter();
                let uses = |range: &(usize, usize)| nodes.uses(range.0, range.1);
                let used = late.any(|exchange| {
                    unordered(exchange.stream, exchange.number)
                        && exchange.targets.iter().chain(&exchange.sources).any(uses)
                });
                if used {
                    found.push("a graph uses memory of an exchange, and does not wait".into());
                }
            }
            Work::Exchange(group) => {
                let (sources, targets) = (group.sources(), group.targets());
                let exchange = Exchange { is_copy: false, stream, number, sources, targets };
                found.extend(exchange.too_early(&watch.nodes, unordered));
                watch.exchanges.push(exchange);
            }
            Work::Compared(..) => {}
        }
        watch.streams.insert(stream, clock);
        self.violations.extend(found);
        match work {
            Work::Node(node) if !compared.is_empty() => Work::Compared(node, compared),
            work => work,
        }
    }
}

impl Exchange {
    /// The nodes before it, whose memory it uses, for which it does not wait.
    fn too_early(
        &self,
        nodes: &[(usize, u64, Node)],
        unordered: impl Fn(usize, u64) -> bool,
    ) -> Vec<String> {
        let conflicts = |node: &Node| {
            let uses = |range: &(usize, usize)| access(node, *range).is_some();
            let changes = |range: &(usize, usize)| {
                access(node, *range).is_some_and(|access| access != Access::Read)
            };
            self.targets.iter().any(uses) || self.sources.iter().any(changes)
        };
        let late = nodes
            .iter()
            .filter(|(stream, number, node)| unordered(*stream, *number) && conflicts(node));
        let of = if self.is_copy { "a copy" } else { "an exchange" };
        late.map(|(.., node)| format!("{of} does not wait for {} before it", name(node))).collect()
    }
}

fn overwritten(name: &str, by: &str) -> String {
    format!("{name} changes memory that {by} reads, and does not wait for it")
}

/// Runs a node, which is a violation if it changes one of these ranges.
pub(super) fn run(node: Node, ranges: &[(usize, usize)]) {
    let bytes = |(start, bytes): &(usize, usize)| super::bytes_at(*start as u64, *bytes).to_vec();
    let before: Vec<Vec<u8>> = ranges.iter().map(bytes).collect();
    let name = name(&node);
    super::stream::run(node);
    if ranges.iter().map(bytes).ne(before) {
        with(|s| s.violations.push(overwritten(&name, "an exchange")));
    }
}
