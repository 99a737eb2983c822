//! The exchanges of a device with the devices of other ranks.

use super::super::allocation::Address;
use super::super::context::{Device, Event};
use super::super::copies::CopyStream;
use super::super::error::{DeviceError, Result};
use super::api::Nccl;
use cudarc::nccl::sys::{ncclComm_t, ncclDataType_t, ncclResult_t, ncclUniqueId};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// An all-gather among the ranks of a group by other means than NCCL, in the order of their
/// positions. All ranks give as many bytes.
pub type Gather<'a> = &'a dyn Fn(Vec<u8>) -> std::result::Result<Vec<u8>, wengert_core::Diagnostic>;

/// Bytes of the identity of a communicator.
const ID_BYTES: usize = size_of::<ncclUniqueId>();

/// Longest interval between two questions whether an exchange has ended.
const PAUSE: Duration = Duration::from_millis(1);

/// Bytes that go to a rank, or come from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Transfer {
    /// Position of the other rank in the group.
    pub peer: usize,
    /// First byte.
    pub address: Address,
    /// Length.
    pub bytes: u64,
}

/// This rank in a group of ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    /// Its position.
    pub position: usize,
    /// Number of ranks.
    pub size: usize,
    /// The communicator ([`Exchanges::join`]); none if nothing is exchanged among the ranks.
    pub communicator: Option<usize>,
}

/// Transfers of one exchange.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Transfers {
    /// What this rank sends.
    pub sent: Vec<Transfer>,
    /// What it receives.
    pub received: Vec<Transfer>,
}

/// The exchanges of a device with other ranks: NCCL, the stream, and a communicator for each
/// group of ranks.
pub struct Exchanges {
    device: Device,
    nccl: Arc<Nccl>,
    stream: CopyStream,
    /// Recorded in the device's stream before an exchange.
    before: Event,
    /// Longest time that the host waits for the other ranks.
    timeout: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    communicators: Vec<Communicator>,
    /// Recorded after the latest exchange; none if the host has seen its end.
    latest: Option<Arc<Event>>,
    /// The error that has ended all exchanges.
    failed: Option<DeviceError>,
}

/// A communicator of NCCL. It is destroyed or aborted with the exchanges.
struct Communicator {
    name: String,
    handle: ncclComm_t,
}

// SAFETY: a communicator is a handle of NCCL. It may be used from any thread, by one at a time,
// which the mutex around the state ensures.
unsafe impl Send for Communicator {}

impl Device {
    /// The exchanges of this device with other ranks, which take at most `timeout`.
    ///
    /// Errors: NCCL is missing, too old, or lacks a function; a stream cannot be made.
    pub fn exchanges(&self, timeout: Duration) -> Result<Arc<Exchanges>, wengert_core::Diagnostic> {
        let nccl = self.context.driver.nccl()?;
        let exchanges = Arc::new(Exchanges {
            device: self.clone(),
            nccl,
            stream: CopyStream::new(self, "exchanges between ranks")?,
            before: self.event(false)?,
            timeout,
            state: Mutex::default(),
        });
        self.context.exchange_with(&exchanges);
        Ok(exchanges)
    }
}

impl Exchanges {
    /// The version and path of NCCL.
    pub fn library(&self) -> String {
        format!("NCCL {} ({})", self.nccl.version_text(), self.nccl.path)
    }

    /// Joins the ranks of a group. Its communicator has a name, and is made at the first call with
    /// it. All ranks of the group call it together. A rank alone needs no communicator.
    ///
    /// Errors: those of `gather`; a rank cannot make an identity, or no communicator.
    pub fn join(
        &self,
        name: &str,
        position: usize,
        size: usize,
        gather: Gather<'_>,
    ) -> Result<Group, wengert_core::Diagnostic> {
        let group = |communicator| Group { position, size, communicator };
        if size == 1 {
            return Ok(group(None));
        }
        let mut state = self.lock();
        if let Some(known) = state.communicators.iter().position(|c| c.name == name) {
            return Ok(group(Some(known)));
        }
        let doing = || format!("joining the {size} ranks of `{name}`");
        let mut id = ncclUniqueId { internal: [0; ID_BYTES] };
        let mut failure = None;
        if position == 0 {
            // SAFETY: the pointer is valid for a write.
            let code = unsafe { self.nccl.api.ncclGetUniqueId(&mut id) };
            failure = self.nccl.check(code, doing).err();
        }
        // The first byte says whether the rank goes on, so that none waits for one that does not.
        let goes_on = failure.is_none() && self.device.context.enter().is_ok();
        let mut own = vec![u8::from(goes_on)];
        own.extend(id.internal.map(|byte| byte as u8));
        let all = gather(own)?;
        if let Some(failure) = failure {
            return Err(failure.into());
        }
        let ranks: Vec<&[u8]> = all.chunks_exact(1 + ID_BYTES).collect();
        if let Some(rank) = ranks.iter().position(|rank| rank[0] == 0) {
            let why = format!("NCCL fails on the rank at position {rank}");
            return Err(DeviceError::refused(doing(), why, "see the error of that rank").into());
        }
        for (to, from) in id.internal.iter_mut().zip(&ranks[0][1..]) {
            *to = *from as _;
        }
        let number = |n: usize| i32::try_from(n).expect("a mesh has at most 2²⁰ ranks");
        let mut handle = std::ptr::null_mut();
        self.device.context.enter()?;
        // SAFETY: the pointer is valid for a write; the device's context is current; the identity
        // is that of the rank at position 0.
        let code = unsafe {
            self.nccl.api.ncclCommInitRank(&mut handle, number(size), id, number(position))
        };
        self.nccl.check(code, doing)?;
        state.communicators.push(Communicator { name: name.into(), handle });
        Ok(group(Some(state.communicators.len() - 1)))
    }

    /// Starts an exchange behind the work that the device's stream has now, and records `ended`
    /// after it. Does not wait. Transfers to this rank itself need no communicator.
    ///
    /// Errors: an address is not in an allocation; the driver or NCCL fails, now or before.
    pub(crate) fn start(
        &self,
        group: &Group,
        transfers: &Transfers,
        ended: &Arc<Event>,
    ) -> Result<()> {
        let Transfers { sent, received } = transfers;
        let context = &*self.device.context;
        context.not_capturing("exchanging data with other ranks")?;
        for Transfer { address, bytes, .. } in sent.iter().chain(received) {
            self.device.within("exchanging data with other ranks", *address, *bytes)?;
        }
        let mut state = self.lock();
        if let Some(failed) = &state.failed {
            return Err(failed.clone());
        }
        let handle = group.communicator.map(|number| state.communicators[number].handle);
        let started = self.submit(handle, group.position, transfers, ended);
        match &started {
            Ok(()) => state.latest = Some(ended.clone()),
            // A part of the transfers may have been started, so that other ranks get them.
            Err(error) => self.abort(&mut state, error),
        }
        started
    }

    fn submit(
        &self,
        communicator: Option<ncclComm_t>,
        position: usize,
        Transfers { sent, received }: &Transfers,
        ended: &Event,
    ) -> Result<()> {
        self.before.record()?;
        self.stream.wait_for(&self.before)?;
        let own = |t: &&Transfer| t.peer == position;
        for (from, to) in sent.iter().filter(own).zip(received.iter().filter(own)) {
            assert_eq!(from.bytes, to.bytes, "a rank receives from itself what it sends");
            self.stream.copy(from.address, to.address, from.bytes)?;
        }
        let others = |t: &&Transfer| t.peer != position;
        if sent.iter().chain(received).any(|transfer| transfer.peer != position) {
            let api = &self.nccl.api;
            let communicator = communicator.expect("a group of several ranks has one");
            let doing = || "exchanging data with other ranks".to_string();
            let number = |n: usize| i32::try_from(n).expect("a mesh has at most 2²⁰ ranks");
            let (dtype, stream) = (ncclDataType_t::ncclUint8, self.stream.handle().cast());
            self.device.context.enter()?;
            // SAFETY: the calls up to the end of the group are a group.
            self.nccl.check(unsafe { api.ncclGroupStart() }, doing)?;
            let mut all = Ok(());
            for Transfer { peer, address, bytes } in sent.iter().filter(others) {
                let (from, peer) = (address.0 as *const std::ffi::c_void, number(*peer));
                // SAFETY: communicator and stream live. The bytes lie in an allocation of this
                // device; their owner keeps them until the stream has passed the exchange.
                let code = unsafe {
                    api.ncclSend(from, *bytes as usize, dtype, peer, communicator, stream)
                };
                all = all.and(self.nccl.check(code, doing));
            }
            for Transfer { peer, address, bytes } in received.iter().filter(others) {
                let (to, peer) = (address.0 as *mut std::ffi::c_void, number(*peer));
                // SAFETY: as above; nothing else uses the bytes before the exchange has ended.
                let code =
                    unsafe { api.ncclRecv(to, *bytes as usize, dtype, peer, communicator, stream) };
                all = all.and(self.nccl.check(code, doing));
            }
            // SAFETY: it ends the group, also after an error.
            all.and(self.nccl.check(unsafe { api.ncclGroupEnd() }, doing))?;
        }
        self.stream.record(ended)
    }

    /// Lets later work of the device's stream wait for an exchange, whose end is `ended`.
    pub(crate) fn wait(&self, ended: &Event) -> Result<()> {
        ended.hold_back_device()
    }

    /// Waits until the latest exchange has ended. On a failure all communicators are aborted.
    ///
    /// Errors: NCCL fails, or has failed; the time is over.
    pub(in crate::driver) fn settle(&self) -> Result<()> {
        let mut state = self.lock();
        if let Some(failed) = &state.failed {
            return Err(failed.clone());
        }
        let Some(latest) = state.latest.clone() else { return Ok(()) };
        let settled = self.poll(&state, &latest);
        match &settled {
            Ok(()) => state.latest = None,
            Err(error) => self.abort(&mut state, error),
        }
        settled
    }

    fn poll(&self, state: &State, latest: &Event) -> Result<()> {
        let doing = "waiting for an exchange with other ranks";
        let (start, mut pause) = (Instant::now(), Duration::from_micros(10));
        while !latest.is_done()? {
            for communicator in &state.communicators {
                // NCCL may have a status that the enum lacks, so it writes a number.
                let mut found = 0u32;
                // SAFETY: the communicator lives; the pointer is valid for a write of a status,
                // which is an `int`-sized enum.
                let code = unsafe {
                    let place = (&raw mut found).cast::<ncclResult_t>();
                    self.nccl.api.ncclCommGetAsyncError(communicator.handle, place)
                };
                self.nccl.check(code, || doing.into())?;
                if found != 0 && found != ncclResult_t::ncclInProgress as u32 {
                    let code = super::super::api::Code { call: code.call, code: found };
                    return self.nccl.check(code, || doing.into());
                }
            }
            if start.elapsed() > self.timeout {
                let seconds = self.timeout.as_secs_f64();
                let why = format!("another rank has not come to it within {seconds} s");
                let help = "see the errors of the other ranks; a rank that is only slow needs a \
                            longer timeout";
                return Err(DeviceError::refused(doing, why, help));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE);
        }
        Ok(())
    }

    /// Ends all exchanges, on this rank and by that on the others.
    fn abort(&self, state: &mut State, error: &DeviceError) {
        state.failed = Some(error.clone());
        state.latest = None;
        for communicator in state.communicators.drain(..) {
            // SAFETY: aborted once, and not used after it.
            let code = unsafe { self.nccl.api.ncclCommAbort(communicator.handle) };
            if let Err(error) = self.nccl.check(code, || "aborting exchanges".into()) {
                tracing::debug!(%error, "after a failure");
            }
        }
        // Copies within this rank may be left. Nothing may use the memory once it is freed.
        if let Err(error) = self.stream.drain() {
            tracing::debug!(%error, "after a failure");
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Exchanges {
    fn drop(&mut self) {
        if let Err(error) = self.settle() {
            tracing::debug!(%error, "while leaving the ranks");
        }
        let mut state = self.lock();
        for communicator in state.communicators.drain(..) {
            if self.device.context.enter().is_ok() {
                // SAFETY: destroyed once, and not used after it; its exchanges have ended.
                let code = unsafe { self.nccl.api.ncclCommDestroy(communicator.handle) };
                if let Err(error) = self.nccl.check(code, || "leaving the ranks".into()) {
                    tracing::debug!(%error, "while leaving the ranks");
                }
            }
        }
    }
}

impl std::fmt::Debug for Exchanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Exchanges({}, {})", self.device.name(), self.library())
    }
}
