//! The memory that ranks share.
//!
//! A segment is a `memfd`: memory with a file descriptor and without a name. It is freed with the
//! last process that has it open or mapped, however that process ends. So nothing is ever left in
//! `/dev/shm`, and a new run cannot find the segment of an old one. The size is sealed: no process
//! can cut it off and make accesses of others fail.
//!
//! ```text
//! Header │ RankCell × N │ RingCell × N² │ bytes of ring × N²
//! ```
//!
//! The ring of messages from rank i to rank j is number i·N + j. Everything that several ranks
//! access is an atomic, or bytes of a ring, which [`super::ring`] hands from one rank to another.
//! All cells are valid when all their bytes are 0, as they are in a new segment.

use crate::error::{Error, Kind, Result};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Most ranks of one segment.
pub const MAX_RANKS: usize = 256;

/// `wengert1`: this layout.
const MAGIC: u64 = u64::from_le_bytes(*b"wengert1");
/// Bytes of all rings together, if the limits of one ring allow it.
const RINGS: usize = 64 << 20;
/// Fewest and most bytes of a ring. Both are powers of two, and multiples of a page. The most hold
/// the gradients of many models whole: a rank that computes empties its ring only between kernels,
/// and the sender can go on only then.
const RING: (usize, usize) = (16 << 10, 8 << 20);

/// Identifies a run: 128 random bits.
pub(super) type RunId = [u64; 2];

/// Random bits for a new run.
pub(super) fn new_run() -> Result<RunId> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| Error::system("read /dev/urandom", error))?;
    let word = |i: usize| u64::from_ne_bytes(bytes[i..i + 8].try_into().expect("eight bytes"));
    Ok([word(0), word(8)])
}

/// The start of a segment.
#[repr(C, align(128))]
struct Header {
    magic: AtomicU64,
    run: [AtomicU64; 2],
    ranks: AtomicU64,
    /// Bytes of a ring, a power of two.
    capacity: AtomicU64,
    /// 1 + the rank that failed first, as far as other ranks have seen; 0 for none.
    culprit: AtomicU32,
}

/// A rank has not joined yet.
pub(super) const NEW: u32 = 0;
/// A rank has joined.
pub(super) const JOINED: u32 = 1;
/// A rank has left: its communicator was dropped.
pub(super) const LEFT: u32 = 2;
/// An operation of the rank has failed; it starts no others.
pub(super) const FAILED: u32 = 3;
/// A thread that was the rank has panicked.
pub(super) const PANICKED: u32 = 4;

/// The state of one rank.
#[repr(C, align(128))]
pub(super) struct RankCell {
    /// [`NEW`], [`JOINED`], [`LEFT`], [`FAILED`] or [`PANICKED`].
    pub state: AtomicU32,
    /// Its process, written before it joins.
    pub process: AtomicU32,
    /// Advanced by the rank's monitor as long as the process runs.
    pub heartbeat: AtomicU64,
    /// Changed by other ranks after each change in a ring from or to this rank; a futex.
    pub doorbell: AtomicU32,
    /// Threads of the rank that sleep on the doorbell.
    pub sleepers: AtomicU32,
}

/// A number on a cache line of its own. (Processors fetch lines in pairs.)
#[repr(C, align(128))]
pub(super) struct Line(pub AtomicU64);

/// The positions of a ring: bytes that were ever written and read.
#[repr(C)]
pub(super) struct RingCell {
    /// Written by the sender only.
    pub written: Line,
    /// Written by the receiver only.
    pub read: Line,
}

/// A mapped segment.
pub(super) struct Segment {
    base: NonNull<u8>,
    len: usize,
    ranks: usize,
    capacity: usize,
    file: OwnedFd,
}

// SAFETY: the mapping belongs to the value and stays where it is until the value is dropped. What
// is reached through it is atomics, and bytes of rings whose accesses are ordered by atomics.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// A new segment.
    pub fn create(ranks: usize, run: RunId) -> Result<Segment> {
        if !(1..=MAX_RANKS).contains(&ranks) {
            let message = format!("shared memory joins 1 to {MAX_RANKS} ranks, not {ranks}");
            let help = "a larger world needs several machines, and so MPI";
            return Err(Error::new(Kind::Argument, message).help(help));
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("wengert-ranks", flags)
            .map_err(|error| Error::system("make shared memory (memfd_create)", error))?;
        let capacity = capacity(ranks);
        let len = Layout::of(ranks, capacity).len;
        ftruncate(&file, len as u64)
            .and_then(|()| {
                let size = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
                fcntl_add_seals(&file, size)
            })
            .map_err(|error| Error::system(format!("make {len} bytes of shared memory"), error))?;
        let segment = Segment::map(file, len, ranks, capacity)?;
        let header = segment.header();
        header.run.iter().zip(run).for_each(|(cell, word)| cell.store(word, Ordering::Relaxed));
        header.ranks.store(ranks as u64, Ordering::Relaxed);
        header.capacity.store(capacity as u64, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok(segment)
    }

    /// The segment of another process, by the path of its file descriptor.
    ///
    /// Error: it is not the segment of this run, or of another layout.
    pub fn open(path: &Path, ranks: usize, run: RunId) -> Result<Segment> {
        let foreign = |what: &str| {
            let message = format!("{} is not the segment of this run: {what}", path.display());
            Error::new(Kind::Environment, message).help(
                "the environment is that of another run, or of another version; start the ranks \
                 with the launcher again",
            )
        };
        let file = File::options()
            .read(true)
            .write(true)
            .open(path)
            .map_err(|error| foreign(&format!("it cannot be opened ({error})")))?;
        let found = file.metadata().map_err(|error| foreign(&error.to_string()))?.len();
        let capacity = capacity(ranks);
        let len = Layout::of(ranks, capacity).len;
        if found != len as u64 {
            return Err(foreign(&format!("it has {found} bytes instead of {len}")));
        }
        let segment = Segment::map(file.into(), len, ranks, capacity)?;
        let header = segment.header();
        let is = |cell: &AtomicU64, word: u64| cell.load(Ordering::Acquire) == word;
        if !is(&header.magic, MAGIC) {
            return Err(foreign("it has another layout"));
        }
        if !is(&header.run[0], run[0]) || !is(&header.run[1], run[1]) {
            return Err(foreign("it belongs to another run"));
        }
        if !is(&header.ranks, ranks as u64) || !is(&header.capacity, capacity as u64) {
            return Err(foreign("it has another number of ranks"));
        }
        Ok(segment)
    }

    fn map(file: OwnedFd, len: usize, ranks: usize, capacity: usize) -> Result<Segment> {
        // SAFETY: a new mapping at an address that the kernel chooses replaces no other.
        let base = unsafe {
            let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
            mmap(std::ptr::null_mut(), len, access, flags, &file, 0)
        };
        let base = base
            .map_err(|error| Error::system(format!("map {len} bytes of shared memory"), error))?;
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at address 0");
        Ok(Segment { base, len, ranks, capacity, file })
    }

    /// Its file descriptor.
    pub fn file(&self) -> impl AsFd {
        self.file.as_fd()
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Bytes of a ring.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping begins with a header, all of whose fields are atomics.
        unsafe { self.base.cast::<Header>().as_ref() }
    }

    /// The state of a rank.
    pub fn rank(&self, rank: usize) -> &RankCell {
        assert!(rank < self.ranks, "rank {rank} of {}", self.ranks);
        // SAFETY: the layout has a cell for each rank here, aligned as the mapping is to a page;
        // its fields are atomics.
        unsafe {
            let cells = self.base.add(Layout::of(self.ranks, self.capacity).cells);
            cells.cast::<RankCell>().add(rank).as_ref()
        }
    }

    /// The positions of the ring from one rank to another, and its first byte.
    pub fn ring(&self, from: usize, to: usize) -> (&RingCell, NonNull<u8>) {
        assert!(from < self.ranks && to < self.ranks, "ring {from} to {to} of {}", self.ranks);
        let layout = Layout::of(self.ranks, self.capacity);
        let number = from * self.ranks + to;
        // SAFETY: the layout has N² cells and N² rings of bytes at these places.
        unsafe {
            let cell = self.base.add(layout.rings).cast::<RingCell>().add(number);
            (cell.as_ref(), self.base.add(layout.bytes + number * self.capacity))
        }
    }

    /// Notes that a rank has failed, unless another has before.
    pub fn accuse(&self, rank: usize) {
        let cell = &self.header().culprit;
        // That another was first is no failure.
        let _ = cell.compare_exchange(0, rank as u32 + 1, Ordering::AcqRel, Ordering::Acquire);
    }

    /// The rank that other ranks have seen to fail first.
    pub fn culprit(&self) -> Option<usize> {
        (self.header().culprit.load(Ordering::Acquire) as usize).checked_sub(1)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length; references into it borrow the
        // value. A failure would leave it mapped, which is harmless.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Bytes of each ring in a world of so many ranks.
fn capacity(ranks: usize) -> usize {
    let even = RINGS / (ranks * ranks);
    let power = if even.is_power_of_two() { even } else { even.next_power_of_two() / 2 };
    power.clamp(RING.0, RING.1)
}

/// Where the parts of a segment begin.
struct Layout {
    cells: usize,
    rings: usize,
    bytes: usize,
    len: usize,
}

impl Layout {
    /// Sizes fit: there are at most [`MAX_RANKS`] ranks, with 2³⁰ bytes of rings.
    fn of(ranks: usize, capacity: usize) -> Layout {
        let cells = size_of::<Header>();
        let rings = cells + ranks * size_of::<RankCell>();
        let bytes = rings + ranks * ranks * size_of::<RingCell>();
        let bytes = bytes.next_multiple_of(4096);
        Layout { cells, rings, bytes, len: bytes + ranks * ranks * capacity }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::path::PathBuf;

    fn path(segment: &Segment) -> PathBuf {
        let file = segment.file();
        format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()).into()
    }

    #[test]
    fn parts_of_a_segment_do_not_overlap_and_are_aligned() {
        for ranks in 1..=MAX_RANKS {
            let capacity = capacity(ranks);
            assert!(capacity.is_power_of_two() && RING.0 <= capacity && capacity <= RING.1);
            let layout = Layout::of(ranks, capacity);
            assert!(size_of::<Header>() <= layout.cells);
            assert!(layout.cells + ranks * size_of::<RankCell>() <= layout.rings);
            assert!(layout.rings + ranks * ranks * size_of::<RingCell>() <= layout.bytes);
            assert!(layout.bytes + ranks * ranks * capacity <= layout.len);
            assert_eq!((layout.cells % 128, layout.rings % 128, layout.bytes % 4096), (0, 0, 0));
        }
        assert_eq!((capacity(2), capacity(4), capacity(256)), (8 << 20, 4 << 20, 16 << 10));
    }

    #[test]
    fn two_mappings_show_the_same_memory() {
        let first = Segment::create(3, [1, 2]).expect("memory");
        let second = Segment::open(&path(&first), 3, [1, 2]).expect("the same run");
        second.rank(2).heartbeat.store(5, Ordering::Release);
        assert_eq!(first.rank(2).heartbeat.load(Ordering::Acquire), 5);
        assert_eq!(first.culprit(), None);
        second.accuse(2);
        first.accuse(1);
        assert_eq!(second.culprit(), Some(2), "the first one stays");
    }

    #[test]
    fn another_run_is_refused_with_the_difference() {
        let segment = Segment::create(2, [1, 2]).expect("memory");
        let refused = |path: &Path, ranks, run| {
            let error = Segment::open(path, ranks, run).map(|_| ()).expect_err("another run");
            assert_eq!(error.kind(), Kind::Environment);
            error.to_string()
        };
        let at = path(&segment);
        assert!(refused(&at, 2, [1, 3]).contains("it belongs to another run"));
        assert!(refused(&at, 3, [1, 2]).contains("bytes instead of"));
        assert!(refused(Path::new("/proc/self/fd/999999"), 2, [1, 2]).contains("cannot be opened"));
        segment.header().magic.store(7, Ordering::Release);
        assert!(refused(&at, 2, [1, 2]).contains("another layout"));
        assert_ne!(new_run().expect("random bits"), new_run().expect("random bits"));
    }

    #[test]
    fn its_size_is_sealed() {
        let segment = Segment::create(2, [1, 2]).expect("memory");
        assert!(ftruncate(segment.file(), 4096).is_err());
        for ranks in [0, MAX_RANKS + 1] {
            let error = Segment::create(ranks, [1, 2]).map(|_| ()).expect_err("too many or few");
            assert_eq!(error.kind(), Kind::Argument);
        }
    }
}
