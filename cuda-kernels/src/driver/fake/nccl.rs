//! A fake NCCL among the fake drivers of several threads, which are ranks.
//!
//! A group of sends and receives is one piece of work of a stream. When the stream reaches it, its
//! bytes are sent, and it stays in front until all that it receives has been sent by the others.
//! Meanwhile the host may ask for events. A wait of the host for a stream whose rank is never
//! answered does not end on a real device; here it panics after [`LIMIT`].
//!
//! The fake finds messages of another length than the receiver expects, which NCCL does not define,
//! and communicators that are destroyed while a stream uses them. A rank whose communicator is
//! gone is a remote error for those that wait for it.

use super::stream::Work;
use super::{put, status, with};
use crate::driver::nccl::{Nccl, NcclApi};
use cudarc::nccl::sys::*;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{c_char, c_int, c_void};
use std::rc::Rc;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest time that a rank waits for others where a real one would wait for ever.
const LIMIT: Duration = Duration::from_secs(60);

const SYSTEM_ERROR: u32 = 2;
const INTERNAL_ERROR: u32 = 3;
const INVALID_ARGUMENT: u32 = 4;
const INVALID_USAGE: u32 = 5;
const REMOTE_ERROR: u32 = 6;

/// The part of a rank.
#[derive(Default)]
pub(in crate::driver) struct NcclState {
    /// The communicators that this rank has: their worlds, and the rank in each.
    members: BTreeMap<usize, (u64, usize)>,
    /// Calls of groups that have not ended.
    depth: usize,
    queued: Vec<(usize, usize, Message)>,
}

/// A send or receive.
#[derive(Clone, Copy)]
struct Message {
    is_sent: bool,
    peer: usize,
    address: usize,
    bytes: usize,
    /// The communicator.
    member: usize,
}

/// A group of sends and receives in a stream.
pub(in crate::driver) struct Group {
    member: usize,
    world: u64,
    rank: usize,
    messages: Vec<Message>,
    is_sent: Cell<bool>,
    /// Number of messages that have been received.
    received: Cell<usize>,
}

/// Ranks with a common identity.
#[derive(Default)]
struct World {
    size: usize,
    joined: BTreeSet<usize>,
    gone: BTreeSet<usize>,
    mail: BTreeMap<(usize, usize), VecDeque<Vec<u8>>>,
    /// The status of each rank that has failed.
    failed: BTreeMap<usize, u32>,
}

static WORLDS: Mutex<BTreeMap<u64, World>> = Mutex::new(BTreeMap::new());
static CHANGED: Condvar = Condvar::new();

fn worlds() -> MutexGuard<'static, BTreeMap<u64, World>> {
    WORLDS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl NcclState {
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.queued.is_empty()
    }

    /// Whether this rank has a communicator.
    pub(super) fn is_used(&self) -> bool {
        !self.members.is_empty()
    }
}

impl Group {
    fn received_messages(&self) -> impl Iterator<Item = &Message> {
        self.messages.iter().filter(|message| !message.is_sent)
    }

    /// The memory that it sends from.
    pub(super) fn sources(&self) -> Vec<(usize, usize)> {
        let sent = self.messages.iter().filter(|message| message.is_sent);
        sent.map(|message| (message.address, message.bytes)).collect()
    }

    /// The memory that it receives into.
    pub(super) fn targets(&self) -> Vec<(usize, usize)> {
        self.received_messages().map(|message| (message.address, message.bytes)).collect()
    }

    /// Goes on as far as the other ranks allow; true if it has ended.
    pub(super) fn advance(&self) -> bool {
        if !with(|s| s.nccl.members.contains_key(&self.member)) {
            return true; // It was aborted.
        }
        let mut worlds = worlds();
        let world = worlds.get_mut(&self.world).expect("a world lives as long as its ranks");
        if !self.is_sent.replace(true) {
            for message in self.messages.iter().filter(|message| message.is_sent) {
                let bytes = super::bytes_at(message.address as u64, message.bytes).to_vec();
                world.mail.entry((self.rank, message.peer)).or_default().push_back(bytes);
            }
            CHANGED.notify_all();
        }
        for message in self.received_messages().skip(self.received.get()) {
            let box_of = world.mail.entry((message.peer, self.rank)).or_default();
            let Some(bytes) = box_of.pop_front() else {
                if world.gone.contains(&message.peer) {
                    world.failed.insert(self.rank, REMOTE_ERROR);
                }
                return false;
            };
            self.received.set(self.received.get() + 1);
            if bytes.len() != message.bytes {
                let (rank, peer) = (self.rank, message.peer);
                let (wanted, found) = (message.bytes, bytes.len());
                with(|s| {
                    s.violations.push(format!(
                        "rank {rank} receives {wanted} bytes from rank {peer}, which sends {found}"
                    ));
                });
                world.failed.insert(self.rank, INTERNAL_ERROR);
                return false;
            }
            super::bytes_at(message.address as u64, message.bytes).copy_from_slice(&bytes);
        }
        true
    }

    /// The text of a wait for others that never ends.
    fn waits(&self) -> String {
        let wanted = self.received_messages().skip(self.received.get()).map(|m| m.peer);
        format!("rank {} waits for {:?}, which never call", self.rank, wanted.collect::<Vec<_>>())
    }
}

/// Waits for other ranks; `since` is the beginning of the wait.
pub(super) fn wait_for_others(group: &Group, since: Instant) {
    assert!(since.elapsed() < LIMIT, "{}", group.waits());
    let (guard, _) = CHANGED
        .wait_timeout(worlds(), Duration::from_millis(2))
        .unwrap_or_else(PoisonError::into_inner);
    drop(guard);
}

pub(super) fn library() -> Nccl {
    let api = NcclApi {
        ncclGetVersion,
        ncclGetUniqueId,
        ncclCommInitRank,
        ncclCommDestroy,
        ncclCommAbort,
        ncclCommGetAsyncError,
        ncclGroupStart,
        ncclGroupEnd,
        ncclSend,
        ncclRecv,
    };
    Nccl { api, path: "fake".into(), version: 22_703, text: Some(error_text) }
}

unsafe extern "C" fn error_text(code: u32) -> *const c_char {
    match code {
        SYSTEM_ERROR => c"unhandled system error",
        INTERNAL_ERROR => c"internal error",
        INVALID_ARGUMENT => c"invalid argument",
        INVALID_USAGE => c"invalid usage",
        REMOTE_ERROR => c"remote process exited or there was a network error",
        _ => c"unknown result code",
    }
    .as_ptr()
}

unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> u32 {
    // SAFETY: an out-pointer of the API.
    unsafe { put(version, 22_703) };
    0
}

unsafe extern "C" fn ncclGetUniqueId(id: *mut ncclUniqueId) -> u32 {
    status(with(|s| {
        s.enter("ncclGetUniqueId")?;
        let mut worlds = worlds();
        let number = worlds.keys().next_back().map_or(1, |last| last + 1);
        worlds.insert(number, World::default());
        let mut text = ncclUniqueId { internal: [0; 128] };
        for (to, from) in text.internal.iter_mut().zip(number.to_le_bytes()) {
            *to = from as c_char;
        }
        // SAFETY: an out-pointer of the API.
        unsafe { put(id, text) };
        Ok(())
    }))
}

unsafe extern "C" fn ncclCommInitRank(
    comm: *mut ncclComm_t,
    ranks: c_int,
    id: ncclUniqueId,
    rank: c_int,
) -> u32 {
    let entered = with(|s| {
        s.in_context("ncclCommInitRank")?;
        Ok(s.handle())
    });
    let joined = entered.and_then(|handle| {
        let number: [u8; 8] = std::array::from_fn(|n| id.internal[n] as u8);
        let (number, rank) = (u64::from_le_bytes(number), rank as usize);
        let mut all = worlds();
        let world = all.get_mut(&number).ok_or(INVALID_ARGUMENT)?;
        if rank >= ranks as usize || !world.joined.insert(rank) {
            return Err(INVALID_ARGUMENT);
        }
        world.size = ranks as usize;
        CHANGED.notify_all();
        let since = Instant::now();
        while all.get(&number).is_some_and(|world| world.joined.len() < world.size) {
            if since.elapsed() > LIMIT {
                return Err(SYSTEM_ERROR);
            }
            all = CHANGED
                .wait_timeout(all, Duration::from_millis(2))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        drop(all);
        with(|s| s.nccl.members.insert(handle, (number, rank)));
        // SAFETY: an out-pointer of the API.
        unsafe { put(comm, handle as ncclComm_t) };
        Ok(())
    });
    status(joined)
}

/// Ends a communicator of this rank.
fn leave(comm: ncclComm_t) -> Result<(), u32> {
    let member = with(|s| s.nccl.members.remove(&(comm as usize)));
    let (number, rank) = member.ok_or(INVALID_ARGUMENT)?;
    let mut worlds = worlds();
    let world = worlds.get_mut(&number).ok_or(INVALID_ARGUMENT)?;
    world.gone.insert(rank);
    if world.gone.len() == world.size {
        worlds.remove(&number);
    }
    CHANGED.notify_all();
    Ok(())
}

extern "C" fn ncclCommDestroy(comm: ncclComm_t) -> u32 {
    let entered = with(|s| {
        s.in_context("ncclCommDestroy")?;
        let uses =
            |work: &Work| matches!(work, Work::Exchange(group) if group.member == comm as usize);
        if s.streams.values().flatten().any(uses) {
            s.violations.push("a communicator is destroyed while a stream uses it".into());
        }
        Ok(())
    });
    status(entered.and_then(|()| leave(comm)))
}

extern "C" fn ncclCommAbort(comm: ncclComm_t) -> u32 {
    status(with(|s| s.enter("ncclCommAbort")).and_then(|()| leave(comm)))
}

unsafe extern "C" fn ncclCommGetAsyncError(comm: ncclComm_t, error: *mut ncclResult_t) -> u32 {
    status(with(|s| {
        s.enter("ncclCommGetAsyncError")?;
        let (number, rank) = *s.nccl.members.get(&(comm as usize)).ok_or(INVALID_ARGUMENT)?;
        let found = worlds().get(&number).and_then(|world| world.failed.get(&rank).copied());
        // SAFETY: an out-pointer of the API.
        unsafe { put(error.cast::<u32>(), found.unwrap_or(0)) };
        Ok(())
    }))
}

extern "C" fn ncclGroupStart() -> u32 {
    status(with(|s| {
        s.enter("ncclGroupStart")?;
        s.nccl.depth += 1;
        Ok(())
    }))
}

extern "C" fn ncclGroupEnd() -> u32 {
    status(with(|s| {
        let entered = s.enter("ncclGroupEnd");
        s.nccl.depth = s.nccl.depth.checked_sub(1).ok_or(INVALID_USAGE)?;
        let queued = std::mem::take(&mut s.nccl.queued);
        entered?;
        let Some(&(stream, member, _)) = queued.first() else { return Ok(()) };
        if queued.iter().any(|(other, comm, _)| (*other, *comm) != (stream, member)) {
            return Err(INVALID_USAGE);
        }
        let (world, rank) = *s.nccl.members.get(&member).ok_or(INVALID_ARGUMENT)?;
        let messages = queued.into_iter().map(|(_, _, message)| message).collect();
        let (is_sent, received) = (Cell::new(false), Cell::new(0));
        let group = Group { member, world, rank, messages, is_sent, received };
        s.enqueue(stream, Work::Exchange(Rc::new(group)))
    }))
}

fn queue(call: &'static str, message: Message, dtype: ncclDataType_t, stream: cudaStream_t) -> u32 {
    status(with(|s| {
        s.in_context(call)?;
        s.not_captured(stream.cast()).map_err(|_| INVALID_USAGE)?;
        assert_eq!(dtype, ncclDataType_t::ncclUint8, "bytes are moved");
        assert!(s.nccl.depth > 0, "sends and receives are grouped");
        let (number, rank) = *s.nccl.members.get(&message.member).ok_or(INVALID_ARGUMENT)?;
        let size = worlds().get(&number).map_or(0, |world| world.size);
        let valid = message.peer < size && message.peer != rank;
        if !valid || s.on_device(message.address, message.bytes).is_err() {
            return Err(INVALID_ARGUMENT);
        }
        s.nccl.queued.push((stream as usize, message.member, message));
        Ok(())
    }))
}

unsafe extern "C" fn ncclSend(
    from: *const c_void,
    bytes: usize,
    dtype: ncclDataType_t,
    peer: c_int,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> u32 {
    let (peer, address, member) = (peer as usize, from as usize, comm as usize);
    let message = Message { is_sent: true, peer, address, bytes, member };
    queue("ncclSend", message, dtype, stream)
}

unsafe extern "C" fn ncclRecv(
    to: *mut c_void,
    bytes: usize,
    dtype: ncclDataType_t,
    peer: c_int,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> u32 {
    let (peer, address, member) = (peer as usize, to as usize, comm as usize);
    let message = Message { is_sent: false, peer, address, bytes, member };
    queue("ncclRecv", message, dtype, stream)
}
