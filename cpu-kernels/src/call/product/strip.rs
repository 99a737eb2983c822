//! The parts of a product that kernels compute, and the table of the kernels.

use super::epilogue::Epilogue;

/// Rows of a tile with all their columns, across every panel of rhs.
pub(in crate::call) struct Strip<T> {
    /// Steps of k.
    pub depth: usize,
    /// The numbers of the strip's rows, contiguous for each step.
    pub lhs: *const T,
    pub lhs_step: usize,
    /// Two vectors for each step; the vectors of the next two columns begin at the distance
    /// `panel`.
    pub rhs: *const T,
    pub rhs_step: usize,
    pub panel: usize,
    /// Columns of out. A partial panel is a whole panel in rhs, with arbitrary numbers in the
    /// missing columns.
    pub columns: usize,
    pub out: *mut T,
    pub out_row: usize,
    /// Whether the sums continue from the elements of out, instead of from 0.
    pub add: bool,
    /// Applied to the sums before they are stored. The residual may be out itself.
    pub epilogue: Epilogue<T>,
    /// Strips that [pack](Kernels::packing) write rhs here, panel by panel.
    pub packed: *mut T,
}

/// The addresses of a [`Strip`]'s lhs, in place of `depth`. The element of row i and step s of a
/// run is at `lhs + rows[i] + run + s · lhs_step`.
///
/// For kernels of [pairs](super::pairs), these are halves: the first elements of the pairs that
/// begin at even steps, each before its partner. rhs has a row for each pair, and the last row of
/// an odd run is padded. Memory for a partner of the last element is read too, but not used.
pub(in crate::call) struct Gather<'a> {
    /// Offsets of the rows, at least as many as the strip has.
    pub rows: &'a [usize],
    /// Offsets of the runs, in order.
    pub runs: &'a [usize],
    /// Steps of a run.
    pub length: usize,
    /// Whether of each two steps of a run the second comes first; only for kernels of numbers.
    pub exchanged: bool,
    /// The distance in numbers from each row of rhs to memory that is prefetched at its step; 0 for
    /// none.
    pub ahead: usize,
}

/// Memory to prefetch during a tile, one cache line per step of k: `side` lines at the distance
/// `across`, then as many at the distance `along` from these, and so on; all in bytes.
pub(super) struct Ahead {
    pub at: *const u8,
    pub across: usize,
    pub side: usize,
    pub along: usize,
}

/// [`dots`](super::lanes::dots), compiled.
type Dots<T> = unsafe fn([*const T; 2], usize, usize, *mut T, usize);

/// The compiled kernels for a dtype and a set of vector instructions.
pub(in crate::call) struct Kernels<T: 'static> {
    /// Columns of a panel.
    pub columns: usize,
    /// The whole panels of strips of 1, 2, … rows.
    pub(super) strips: &'static [unsafe fn(&Strip<T>)],
    /// Those that read rhs unpacked and prefetch the next panel, which lies beside the current
    /// one.
    pub(super) lying: &'static [unsafe fn(&Strip<T>)],
    /// Those that also pack rhs.
    pub(super) packing: &'static [unsafe fn(&Strip<T>)],
    /// The columns after the whole panels.
    pub(super) edges: &'static [unsafe fn(&Strip<T>)],
    /// Those of one panel that also prefetch the source of the next packing.
    pub(super) fetching: &'static [unsafe fn(&Strip<T>, &Ahead)],
    /// Those that read lhs unpacked, through a [`Gather`].
    pub(super) gathering: &'static [unsafe fn(&Strip<T>, &Gather<'_>)],
    /// The dot product of two runs; see [`dots`](super::lanes::dots).
    pub(super) dot: Dots<T>,
    /// The dot products of a run with several others at once, as many as the registers hold.
    pub(super) dots: (usize, Dots<T>),
}

impl<T> Kernels<T> {
    /// Rows of a tile.
    pub fn rows(&self) -> usize {
        self.strips.len()
    }

    /// Computes a strip of `rows` rows.
    ///
    /// # Safety
    ///
    /// There are at most [`rows`](Self::rows) rows. All memory that the strip names is valid to
    /// read, and out to write, without overlap, unless the residual is out; no other code uses
    /// that part of out during the call. The machine has the vector instructions.
    pub(super) unsafe fn strip(&self, rows: usize, strip: &Strip<T>) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.panels(self.strips[rows - 1], rows, strip) }
    }

    /// Computes a strip: its whole panels with `whole`, then the columns after them.
    ///
    /// # Safety
    ///
    /// As for [`strip`](Self::strip).
    unsafe fn panels(&self, whole: unsafe fn(&Strip<T>), rows: usize, strip: &Strip<T>) {
        let panels = strip.columns / self.columns;
        let done = panels * self.columns;
        // SAFETY: the edge is the strip without the columns of its whole panels; the caller
        // guarantees the rest.
        unsafe {
            if panels > 0 {
                whole(strip);
            }
            if done < strip.columns {
                self.edges[rows - 1](&Strip {
                    rhs: strip.rhs.add(panels * strip.panel),
                    out: strip.out.add(done),
                    columns: strip.columns - done,
                    epilogue: strip.epilogue.from([0, done], 0),
                    ..*strip
                });
            }
        }
    }

    /// Computes a strip of `rows` rows from an unpacked rhs. Its lines are short runs of memory,
    /// which the hardware prefetcher does not follow; so each panel's lines are prefetched while
    /// the previous panel is used.
    ///
    /// # Safety
    ///
    /// As for [`strip`](Self::strip).
    pub(super) unsafe fn lying(&self, rows: usize, strip: &Strip<T>) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.panels(self.lying[rows - 1], rows, strip) }
    }

    /// Computes a strip of `rows` rows and packs rhs: it stores the loaded vectors into panels
    /// for the next strips, so the loads overlap with arithmetic.
    ///
    /// # Safety
    ///
    /// As for [`strip`](Self::strip); all columns are in whole panels, and `packed` is valid to
    /// write for them and overlaps no other memory of the strip.
    pub(super) unsafe fn packing(&self, rows: usize, strip: &Strip<T>) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.packing[rows - 1](strip) }
    }

    /// Computes a tile of `rows` rows, that is, a strip of one whole panel, and prefetches
    /// `ahead` meanwhile.
    ///
    /// # Safety
    ///
    /// As for [`strip`](Self::strip).
    pub(super) unsafe fn fetching(&self, rows: usize, strip: &Strip<T>, ahead: &Ahead) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.fetching[rows - 1](strip, ahead) }
    }

    /// Computes a strip of `rows` rows whose lhs is addressed by `gather`; the strip's `depth` is
    /// ignored.
    ///
    /// # Safety
    ///
    /// As for [`strip`](Self::strip), for the memory that `gather` names. No memory of rhs behind
    /// the columns is read.
    pub unsafe fn gathering(&self, rows: usize, strip: &Strip<T>, gather: &Gather<'_>) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.gathering[rows - 1](strip, gather) }
    }
}
