//! The requests of a block to global memory, in the order in which they reach the caches.

use super::coalesce::Sectors;

/// The kind of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A load that L1 may serve.
    Load,
    /// A load that bypasses L1.
    LoadFromL2,
    Store,
    /// An atomic operation, which L2 executes.
    Atomic,
}

/// A request.
#[derive(Clone, Copy)]
struct Request {
    /// Barriers that the block completed before it.
    phase: u32,
    /// Requests of the same warp before it, in this phase.
    ordinal: u32,
    warp: u8,
    kind: Kind,
    /// How many lines it has, from `first` on.
    lines: u8,
    first: usize,
}

/// The requests of a block.
#[derive(Default)]
pub(crate) struct Trace {
    requests: Vec<Request>,
    /// Lines of all requests: the line, four bits of whole sectors, four of touched ones.
    lines: Vec<u64>,
}

impl Trace {
    /// Adds a request. `ordinal` counts the requests of the warp in this phase.
    pub(super) fn push(
        &mut self,
        (phase, ordinal, warp): (u32, u32, u32),
        kind: Kind,
        sectors: &[Sectors],
    ) {
        self.requests.push(Request {
            phase,
            ordinal,
            warp: u8::try_from(warp).expect("a block has at most 32 warps"),
            kind,
            lines: u8::try_from(sectors.len()).expect("each lane has at most one line"),
            first: self.lines.len(),
        });
        let pack = |s: &Sectors| s.line << 8 | u64::from(s.whole) << 4 | u64::from(s.touched);
        self.lines.extend(sectors.iter().map(pack));
    }

    /// Sorts the requests: phase by phase, and one of each warp in turn.
    pub(super) fn order(&mut self) {
        self.requests.sort_by_key(|request| (request.phase, request.ordinal, request.warp));
    }

    /// The `n`-th request and its sectors.
    pub(super) fn request(&self, n: usize) -> Option<(Kind, impl Iterator<Item = Sectors>)> {
        let request = self.requests.get(n)?;
        let lines = &self.lines[request.first..][..usize::from(request.lines)];
        let unpack = |&packed: &u64| Sectors {
            line: packed >> 8,
            touched: packed as u8 & 15,
            whole: packed as u8 >> 4,
        };
        Some((request.kind, lines.iter().map(unpack)))
    }
}
