//! The ranks with which this one runs plans.
//!
//! A [`World`] is a communicator of the transport, with the groups into which plans have divided
//! it. [`World::enter`] joins the ranks for a plan: it compares the plan's hash on all ranks, and
//! makes communicators for each list of axes that a collective of the plan names: one for first
//! exchanges, and one for second exchanges ([`crate::transfers`]) where the plan has some. Both are
//! collectives, so all ranks prepare the same plans in the same order.
//!
//! The hash is of the plan's text and the bytes of its constants. It finds differences between
//! ranks; it is no protection against a rank that forges one.

use crate::call::{CompiledCollective, has_two_exchanges};
use crate::transfers::{Id, Transfers};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wengert_core::plan::{Plan, Step};
use wengert_core::{Diagnostic, Mesh};
use wengert_transport::{Communicator, Error, HASH_BYTES};

/// All ranks of a run, as seen by one of them. A copy is the same world.
#[derive(Clone)]
pub struct World(Arc<Inner>);

struct Inner {
    communicator: Communicator,
    /// The communicators of groups. All ranks have the same keys.
    groups: Mutex<BTreeMap<Key, Communicator>>,
}

/// Mesh and axes of a group, and whether its communicator is for second exchanges.
type Key = (String, Vec<String>, bool);

/// This rank in the groups of a plan.
#[derive(Debug, Default)]
pub struct Ranks {
    groups: BTreeMap<Vec<String>, Group>,
    /// The transfers of the current run.
    transfers: Mutex<Transfers>,
}

/// The ranks along some axes of a mesh, as seen by one of them.
#[derive(Clone)]
pub struct Group {
    /// The position of this rank.
    pub position: usize,
    /// Number of ranks.
    pub size: usize,
    /// For first exchanges. None if this rank is alone, or nothing is exchanged along these axes.
    pub(crate) first: Option<Communicator>,
    /// For second exchanges. None if this rank is alone, or there are none.
    pub(crate) second: Option<Communicator>,
}

impl World {
    /// The world of a communicator.
    pub fn new(communicator: Communicator) -> World {
        World(Arc::new(Inner { communicator, groups: Mutex::default() }))
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.0.communicator.size()
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.0.communicator.rank()
    }

    /// Longest time that a rank waits for another one.
    pub fn timeout(&self) -> Duration {
        self.0.communicator.options().timeout
    }

    /// Joins the other ranks for a plan.
    ///
    /// Errors: the mesh has another number of ranks than the world; the ranks have different
    /// plans; those of the transport.
    pub fn enter(&self, plan: &Plan) -> Result<Ranks, Diagnostic> {
        check_size(&plan.function, &plan.mesh, self.size())?;
        self.0.communicator.agree(&[("plan", hash(plan))]).map_err(failed)?;
        // The order is that of the keys, and so the same on all ranks.
        let mut exchanges: BTreeMap<Vec<String>, [bool; 2]> = BTreeMap::new();
        plan.visit(&mut |step| {
            let collective = match step {
                Step::Call { call, .. } => call.collective(),
                Step::Start { call, .. } => Some(call),
                _ => None,
            };
            if let Some(collective) = collective {
                let [first, second] = exchanges.entry(collective.over.clone()).or_default();
                *first |= collective.kind.exchanges();
                let ranks = plan.mesh.group(self.rank(), &collective.over).len();
                *second |= has_two_exchanges(collective, ranks);
            }
        });
        let mut groups = BTreeMap::new();
        for (over, exchanges) in exchanges {
            let members = plan.mesh.group(self.rank(), &over);
            let position = members.iter().position(|rank| *rank == self.rank());
            let position = position.expect("a rank is in its group");
            let communicator = |second: bool| match exchanges[usize::from(second)] {
                true if members.len() > 1 => {
                    self.communicator(&plan.mesh, &over, second, &members, position).map(Some)
                }
                _ => Ok(None),
            };
            let (first, second) = (communicator(false)?, communicator(true)?);
            groups.insert(over, Group { position, size: members.len(), first, second });
        }
        Ok(Ranks { groups, transfers: Mutex::default() })
    }

    /// A communicator of a group; made once for each mesh and list of axes.
    fn communicator(
        &self,
        mesh: &Mesh,
        over: &[String],
        second: bool,
        members: &[usize],
        position: usize,
    ) -> Result<Communicator, Diagnostic> {
        let mut known = self.0.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (mesh.to_string(), over.to_vec(), second);
        if let Some(communicator) = known.get(&key) {
            return Ok(communicator.clone());
        }
        let color = members.iter().min().and_then(|rank| u32::try_from(*rank).ok());
        let name = over.join(",") + if second { ", second exchanges" } else { "" };
        let split = self.0.communicator.split(&name, color, position as i64);
        let communicator = split.map_err(failed)?.expect("every rank has a color");
        known.insert(key, communicator.clone());
        Ok(communicator)
    }
}

/// Error: a mesh needs another number of ranks than there are.
pub fn check_size(function: &str, mesh: &Mesh, ranks: usize) -> Result<(), Diagnostic> {
    if mesh.ranks() == ranks {
        return Ok(());
    }
    let (needed, s) = (mesh.ranks(), if ranks == 1 { "" } else { "s" });
    Err(Diagnostic::new(format!(
        "@{function} runs on the {needed} ranks of {mesh}, the world has {ranks} rank{s}"
    ))
    .help(format!("start {needed} ranks, or give the mesh extents whose product is {ranks}")))
}

impl Ranks {
    /// The groups, by the axes along which their ranks differ.
    pub fn groups(&self) -> impl Iterator<Item = (&Vec<String>, &Group)> {
        self.groups.iter()
    }

    /// The group of this rank along axes.
    ///
    /// Error: the plan was prepared without other ranks.
    pub fn group(&self, over: &[String]) -> Result<&Group, Diagnostic> {
        self.groups.get(over).ok_or_else(|| {
            Diagnostic::new("it needs the other ranks of the mesh, and this rank has joined none")
                .help("prepare the plan with a world: `CpuExecutable::among`")
        })
    }

    /// Starts a collective.
    ///
    /// Errors: those of [`group`](Self::group), and of the transport, as for all that follow.
    ///
    /// # Safety
    ///
    /// As for [`Transfers::start`].
    pub(crate) unsafe fn start(
        &self,
        id: Id,
        call: &CompiledCollective,
        operand: &[u8],
    ) -> Result<(), Diagnostic> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.transfers().start(id, call, self.group(call.over())?, operand) }
    }

    /// Waits for a collective that was started, and writes its result.
    pub(crate) fn wait(&self, id: Id, result: &mut [u8]) -> Result<(), Diagnostic> {
        self.transfers().wait(id, result)
    }

    /// Advances the collectives under way, and waits for none. True if there are some.
    pub(crate) fn progress(&self) -> Result<bool, Diagnostic> {
        let mut transfers = self.transfers();
        transfers.progress()?;
        Ok(!transfers.is_empty())
    }

    /// Gives up the collectives that a failed run has left under way.
    pub(crate) fn abandon(&self) {
        self.transfers().abandon();
    }

    fn transfers(&self) -> MutexGuard<'_, Transfers> {
        self.transfers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Group {
    /// Whether the ranks of the group exchange data in the plan.
    pub fn exchanges(&self) -> bool {
        self.first.is_some()
    }

    /// The same number of bytes from every rank, in the order of positions.
    pub fn all_gather(&self, bytes: Vec<u8>) -> Result<Vec<u8>, Diagnostic> {
        match &self.first {
            Some(communicator) => communicator.all_gather(bytes).map_err(failed),
            None => Ok(bytes),
        }
    }

    /// Sends block i of `bytes`, of `send[i]` bytes, to the rank at position i. Returns the blocks
    /// of `receive[i]` bytes that the ranks sent to this one.
    pub fn all_to_all(
        &self,
        bytes: Vec<u8>,
        send: Vec<usize>,
        receive: Vec<usize>,
    ) -> Result<Vec<u8>, Diagnostic> {
        match &self.first {
            Some(communicator) => {
                communicator.all_to_all_counts(bytes, send, receive).map_err(failed)
            }
            None => Ok(bytes),
        }
    }
}

/// The transport's error, with its text.
pub(crate) fn failed(error: Error) -> Diagnostic {
    Diagnostic::of_device(error.to_string())
}

/// A hash of all that a run of the plan depends on, but for its inputs and variables.
fn hash(plan: &Plan) -> [u8; HASH_BYTES] {
    let text = Plan { constants: Vec::new(), ..plan.clone() }.to_string();
    let constants: Vec<Vec<u8>> = plan.constants.iter().map(|c| c.literal.to_bytes()).collect();
    let mut hash = [0; HASH_BYTES];
    for (lane, word) in hash.chunks_exact_mut(8).enumerate() {
        let mut hasher = DefaultHasher::new();
        hasher.write_usize(lane);
        hasher.write(text.as_bytes());
        for (constant, bytes) in plan.constants.iter().zip(&constants) {
            hasher.write_u32(constant.value.0);
            hasher.write_usize(bytes.len());
            hasher.write(bytes);
        }
        word.copy_from_slice(&hasher.finish().to_le_bytes());
    }
    hash
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "World(rank {} of {})", self.rank(), self.size())
    }
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Group(position {} of {})", self.position, self.size)
    }
}
