//! Matching of messages with receives, and their movement through the rings.
//!
//! Each rank has one engine, under a lock, for all its communicators. An operation is a *work*: an
//! input, a result, and a count of unfinished messages ([`Operation::messages`]). The engine
//! never waits. [`Engine::progress`] does what can be done now: it reads all that is in the rings
//! to this rank, and fills the rings from it. So a ring that is full empties whenever its receiver
//! makes any progress, whatever the receiver waits for, and no cycle of full rings is possible.
//!
//! # Matching
//!
//! A message and a receive match if sender, communicator and tag are the same. Both are queues, in
//! order of arrival and of posting, so messages with one tag keep their order. Ring order is
//! order of sending: a long message is announced in its place among the short ones.
//!
//! # Memory
//!
//! A short message without a receive is kept in memory until it is received. Of a long one, only
//! the announcement is kept.

use super::frame::{Envelope, Frame, HEADER, SHORT};
use super::ring::{Reader, Writer};
use super::segment::Segment;
use crate::error::{Error, Kind, Result};
use crate::lent::Input;
use crate::messages::{Buffers, at_least};
use crate::operation::Operation;
use crate::transport::Ticket;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Bytes that are copied before the other side is told, so that both sides work at the same time.
/// A ring holds several such pieces.
const PIECE: usize = 128 << 10;

/// A communicator, as its engine needs it.
pub(super) struct Members {
    pub context: u32,
    /// This rank in it.
    pub rank: usize,
    /// Its ranks, as ranks of the world.
    pub world: Vec<usize>,
}

/// An operation under way.
#[derive(Default)]
struct Work {
    input: Input,
    result: Vec<u8>,
    returns_input: bool,
    /// Nobody will ask for the result.
    forgotten: bool,
    /// Unfinished messages with each rank of the world.
    open: BTreeMap<usize, usize>,
    /// A message had another length.
    fault: Option<Error>,
}

/// Sender and envelope.
type Key = (usize, Envelope);

/// A receive: its work, and its place in the result.
struct Place {
    ticket: Ticket,
    range: Range<usize>,
}

/// A message without a receive.
enum Arrived {
    Whole(Vec<u8>),
    Announced { len: u64, send: u64 },
}

/// A frame that goes out, with its bytes in the input of a work.
struct Outgoing {
    frame: Frame,
    /// The header has been written.
    begun: bool,
    body: Option<Place>,
}

/// Bytes that come in.
struct Incoming {
    into: Sink,
    left: usize,
}

enum Sink {
    /// The place of a receive. The range shrinks from its start.
    Place(Place),
    /// Memory, for a message without a receive.
    Kept(Key, Vec<u8>),
    /// Nowhere: the receive has another length.
    Nowhere,
}

/// The state of one rank's messages.
pub(super) struct Engine {
    rank: usize,
    works: BTreeMap<Ticket, Work>,
    /// Receives without a message.
    posted: BTreeMap<Key, VecDeque<Place>>,
    /// Messages without a receive.
    arrived: BTreeMap<Key, VecDeque<Arrived>>,
    /// Long messages that were announced, by their number.
    announced: BTreeMap<u64, (usize, Place)>,
    /// Receives that are cleared for a long message, by their number.
    cleared: BTreeMap<u64, (usize, Place)>,
    outgoing: Vec<VecDeque<Outgoing>>,
    incoming: Vec<Option<Incoming>>,
    /// The next ticket, and the next number of a long message.
    next: u64,
}

impl Engine {
    /// The engine of a rank of the world.
    pub fn new(rank: usize, ranks: usize) -> Engine {
        Engine {
            rank,
            works: BTreeMap::new(),
            posted: BTreeMap::new(),
            arrived: BTreeMap::new(),
            announced: BTreeMap::new(),
            cleared: BTreeMap::new(),
            outgoing: (0..ranks).map(|_| VecDeque::new()).collect(),
            incoming: (0..ranks).map(|_| None).collect(),
            next: 0,
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Starts an operation, whose result goes to the start of `buffer`; nothing moves yet. `tag` is
    /// that of a collective's messages.
    pub fn start(
        &mut self,
        operation: Operation,
        buffer: Vec<u8>,
        members: &Members,
        tag: u32,
    ) -> Result<Ticket> {
        let tag = match &operation {
            Operation::Send { tag, .. } | Operation::Receive { tag, .. } => *tag,
            _ => tag,
        };
        let envelope = Envelope { context: members.context, tag };
        let messages = operation.messages(members.rank, members.world.len());
        let mut result = at_least(messages.len, buffer)?;
        if let Some((from, into)) = messages.copy {
            result[into].copy_from_slice(&messages.input[from]);
        }
        let ticket = self.number();
        let (input, returns_input) = (messages.input, messages.returns_input);
        let mut work = Work { input, result, returns_input, ..Work::default() };
        let peers = messages.sends.iter().chain(&messages.receives);
        for (peer, _) in peers {
            *work.open.entry(members.world[*peer]).or_default() += 1;
        }
        self.works.insert(ticket, work);
        for (from, range) in messages.receives {
            self.post((members.world[from], envelope), Place { ticket, range });
        }
        for (to, range) in messages.sends {
            self.send(members.world[to], envelope, Place { ticket, range });
        }
        Ok(ticket)
    }

    /// Gives a receive to the first message that waits for it, or to the queue.
    fn post(&mut self, key: Key, place: Place) {
        let Some(arrived) = self.arrived.get_mut(&key).and_then(VecDeque::pop_front) else {
            self.posted.entry(key).or_default().push_back(place);
            return;
        };
        if self.arrived.get(&key).is_some_and(VecDeque::is_empty) {
            self.arrived.remove(&key);
        }
        match arrived {
            Arrived::Whole(bytes) => {
                if self.has_length(&place, key, bytes.len() as u64) {
                    self.work(place.ticket).result[place.range.clone()].copy_from_slice(&bytes);
                }
                self.finish(place.ticket, key.0);
            }
            Arrived::Announced { len, send } => self.clear(key, place, len, send),
        }
    }

    fn send(&mut self, to: usize, envelope: Envelope, place: Place) {
        let len = place.range.len() as u64;
        let (frame, body) = if place.range.len() <= SHORT {
            (Frame::Short { envelope, len }, Some(place))
        } else {
            let send = self.number();
            self.announced.insert(send, (to, place));
            (Frame::Announce { envelope, len, send }, None)
        };
        self.outgoing[to].push_back(Outgoing { frame, begun: false, body });
    }

    /// Tells the sender of a long message that it may send.
    fn clear(&mut self, key: Key, place: Place, len: u64, send: u64) {
        if !self.has_length(&place, key, len) {
            self.finish(place.ticket, key.0);
            return;
        }
        let receive = self.number();
        self.cleared.insert(receive, (key.0, place));
        let frame = Frame::Clear { send, receive };
        self.outgoing[key.0].push_back(Outgoing { frame, begun: false, body: None });
    }

    /// Whether a message has the length of its receive. If not, the work has a fault.
    fn has_length(&mut self, place: &Place, (from, envelope): Key, len: u64) -> bool {
        let wanted = place.range.len();
        if wanted as u64 == len {
            return true;
        }
        let tag = match envelope.tag <= crate::operation::MAX_TAG {
            true => format!("the message with tag {}", envelope.tag),
            false => "its part".into(),
        };
        let message =
            format!("rank {} expects {wanted} bytes from rank {from}, {tag} has {len}", self.rank);
        let error = Error::new(Kind::Mismatch, message)
            .help("sender and receiver give the same number of bytes")
            .about([from]);
        self.work(place.ticket).fault.get_or_insert(error);
        false
    }

    fn work(&mut self, ticket: Ticket) -> &mut Work {
        self.works.get_mut(&ticket).expect("a work is kept until its last message has ended")
    }

    /// One message of a work, with a rank, has ended.
    fn finish(&mut self, ticket: Ticket, peer: usize) {
        let work = self.work(ticket);
        let count = work.open.get_mut(&peer).expect("an unfinished message was counted");
        *count -= 1;
        if *count == 0 {
            work.open.remove(&peer);
        }
        if work.open.is_empty() && work.forgotten {
            self.works.remove(&ticket);
        }
    }

    /// The buffers of a work, if all its messages have ended. The ticket is then used up.
    pub fn take(&mut self, ticket: Ticket) -> Result<Option<Buffers>> {
        let work = self.works.get_mut(&ticket).expect("the ticket is of a started operation");
        if let Some(fault) = work.fault.take() {
            return Err(fault);
        }
        if !work.open.is_empty() {
            return Ok(None);
        }
        let work = self.works.remove(&ticket).expect("it was there");
        Ok(Some(Buffers::of(work.input, work.result, work.returns_input)))
    }

    /// The ranks of the world with which a work has unfinished messages.
    pub fn awaited(&self, ticket: Ticket) -> Vec<usize> {
        self.works.get(&ticket).map_or(Vec::new(), |work| work.open.keys().copied().collect())
    }

    /// The ranks of the world to which frames wait for room in the ring.
    pub fn unwritten(&self) -> Vec<usize> {
        (0..self.outgoing.len()).filter(|rank| !self.outgoing[*rank].is_empty()).collect()
    }

    /// Gives up the result of a work, if it is there. Its messages still move, from a copy if their
    /// bytes are lent.
    pub fn forget(&mut self, ticket: Ticket) {
        let Some(work) = self.works.get_mut(&ticket) else { return };
        work.forgotten = true;
        match work.open.is_empty() {
            true => drop(self.works.remove(&ticket)),
            false => work.input.own(),
        }
    }

    /// Moves what can be moved now. `ring` tells a rank that its rings have changed.
    pub fn progress(&mut self, segment: &Segment, ring: &dyn Fn(usize)) -> Result<()> {
        loop {
            let mut moved = false;
            for peer in 0..self.outgoing.len() {
                moved |= self.read(segment, peer, ring)?;
                moved |= self.write(segment, peer, ring)?;
            }
            if !moved {
                return Ok(());
            }
        }
    }

    /// Writes outgoing frames to one rank, while there is room. True if it has written.
    fn write(&mut self, segment: &Segment, to: usize, ring: &dyn Fn(usize)) -> Result<bool> {
        let mut moved = false;
        // SAFETY: there is one engine of this rank (`super::Endpoint::claim`), and it is borrowed
        // exclusively.
        let mut end = unsafe { Writer::new(segment, self.rank, to) };
        // The receiver is told after each piece, and at the end.
        let mut silent = 0;
        while let Some(front) = self.outgoing[to].front_mut() {
            if !front.begun {
                if end.free()? < HEADER {
                    break;
                }
                silent += end.write(&front.frame.to_bytes())?;
                front.begun = true;
            }
            if let Some(Place { ticket, range }) = &mut front.body {
                let input = &self.works.get(ticket).expect("it has an unfinished message").input;
                while range.start < range.end {
                    let piece = range.start..range.end.min(range.start + PIECE);
                    let count = end.write(&input[piece])?;
                    range.start += count;
                    silent += count;
                    if count == 0 {
                        break;
                    }
                    if silent >= PIECE {
                        (moved, silent) = (true, 0);
                        ring(to);
                    }
                }
                if range.start < range.end {
                    break;
                }
            }
            let done = self.outgoing[to].pop_front().expect("it is the front");
            if let Some(place) = done.body {
                self.finish(place.ticket, to);
            }
        }
        if silent > 0 {
            moved = true;
            ring(to);
        }
        Ok(moved)
    }

    /// Reads the frames of one rank, as far as they are there. True if it has read.
    fn read(&mut self, segment: &Segment, from: usize, ring: &dyn Fn(usize)) -> Result<bool> {
        let mut moved = false;
        let mut silent = 0;
        loop {
            // SAFETY: as in `write`.
            let mut end = unsafe { Reader::new(segment, from, self.rank) };
            let mut incoming = match self.incoming[from].take() {
                Some(incoming) => incoming,
                None => {
                    if end.available()? < HEADER {
                        break;
                    }
                    let mut header = [0; HEADER];
                    silent += end.read(&mut header)?;
                    let Some(incoming) = self.accept(from, header)? else { continue };
                    incoming
                }
            };
            while incoming.left > 0 {
                let piece = incoming.left.min(PIECE);
                let count = match &mut incoming.into {
                    Sink::Place(place) => {
                        let start = place.range.start;
                        let result = &mut self.work(place.ticket).result;
                        let count = end.read(&mut result[start..start + piece])?;
                        place.range.start += count;
                        count
                    }
                    Sink::Kept(_, bytes) => {
                        let start = bytes.len();
                        bytes.resize(start + piece, 0);
                        let count = end.read(&mut bytes[start..])?;
                        bytes.truncate(start + count);
                        count
                    }
                    Sink::Nowhere => end.read(&mut [0; 4096][..piece.min(4096)])?,
                };
                incoming.left -= count;
                silent += count;
                if count == 0 {
                    break;
                }
                if silent >= PIECE {
                    (moved, silent) = (true, 0);
                    ring(from);
                }
            }
            if incoming.left > 0 {
                self.incoming[from] = Some(incoming);
                break;
            }
            self.complete(from, incoming.into);
        }
        if silent > 0 {
            moved = true;
            ring(from);
        }
        Ok(moved)
    }

    /// Takes a header, and says where the bytes after it go, if any follow.
    fn accept(&mut self, from: usize, header: [u8; HEADER]) -> Result<Option<Incoming>> {
        let unknown = || {
            Error::new(Kind::System, format!("rank {from} sent what is no message"))
                .help("all ranks run the same version, and no other program writes to the memory")
                .about([from])
        };
        let frame = Frame::from_bytes(header).ok_or_else(unknown)?;
        Ok(match frame {
            Frame::Short { envelope, len } => {
                let key = (from, envelope);
                let left = len as usize;
                let into = match self.next_posted(key) {
                    None => Sink::Kept(key, Vec::with_capacity(left)),
                    Some(place) if self.has_length(&place, key, len) => Sink::Place(place),
                    Some(place) => {
                        self.finish(place.ticket, from);
                        Sink::Nowhere
                    }
                };
                Some(Incoming { into, left })
            }
            Frame::Announce { envelope, len, send } => {
                let key = (from, envelope);
                match self.next_posted(key) {
                    Some(place) => self.clear(key, place, len, send),
                    None => {
                        let queue = self.arrived.entry(key).or_default();
                        queue.push_back(Arrived::Announced { len, send });
                    }
                }
                None
            }
            Frame::Clear { send, receive } => {
                let is_theirs = self.announced.get(&send).is_some_and(|(to, _)| *to == from);
                if !is_theirs {
                    return Err(unknown());
                }
                let (_, place) = self.announced.remove(&send).expect("it was there");
                let frame = Frame::Data { receive, len: place.range.len() as u64 };
                let body = Some(place);
                self.outgoing[from].push_back(Outgoing { frame, begun: false, body });
                None
            }
            Frame::Data { receive, len } => {
                let fits = |(sender, place): &(usize, Place)| {
                    *sender == from && place.range.len() as u64 == len
                };
                if !self.cleared.get(&receive).is_some_and(fits) {
                    return Err(unknown());
                }
                let (_, place) = self.cleared.remove(&receive).expect("it was there");
                Some(Incoming { into: Sink::Place(place), left: len as usize })
            }
        })
    }

    fn next_posted(&mut self, key: Key) -> Option<Place> {
        let queue = self.posted.get_mut(&key)?;
        let place = queue.pop_front();
        if queue.is_empty() {
            self.posted.remove(&key);
        }
        place
    }

    /// All bytes of a message are there.
    fn complete(&mut self, from: usize, into: Sink) {
        match into {
            Sink::Place(place) => self.finish(place.ticket, from),
            Sink::Nowhere => {}
            Sink::Kept(key, bytes) => {
                // A receive may have been posted while the bytes came in.
                let message = Arrived::Whole(bytes);
                self.arrived.entry(key).or_default().push_back(message);
                if let Some(place) = self.next_posted(key) {
                    self.post(key, place);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
