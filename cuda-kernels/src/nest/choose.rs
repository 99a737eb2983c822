//! Choice of a nest's schedule.
//!
//! Three things matter: neighbouring threads access neighbouring elements, there are enough
//! threads, and a thread has several accesses in flight. If most bytes are contiguous along the
//! parallel axes, a thread does a row (a vector of rows where they are aligned); where there are
//! few rows and a tree allows it, a column team does. If they are contiguous along inner axes, a
//! team does a row. The team is as large as the row and its tree have work for.

use super::band;
use super::element::VECTOR_BYTES;
use super::phases::{Mode, exchange_bytes, mode, storage_bytes};
use super::row::takes_vector;
use super::scan;
use super::shape::{self, affinity};
use super::team::Layout;
use super::tile::Tile;
use super::unroll;
use crate::architecture::{Architecture, MAX_BLOCK, STATIC_SHARED, WARP};
use std::fmt;
use wengert_core::nest::merge::MergedAxis;
use wengert_core::nest::{BufferRole, Instr, Nest, Phase};

/// Rows that fill a GPU with one thread each.
const BUSY: u64 = 1 << 16;
/// Maximum number of iterations of a row that one thread does whatever their order in memory.
const SHORT: usize = 8;

/// Maximum number of instructions that a thread of a team has for its part of a short row, before
/// the team becomes larger.
const HEAVY: usize = 2048;

/// A warp for a row.
const WARP_TEAM: Layout = Layout::team(WARP, 1);

/// Threads that a column team should leave on the GPU, when it takes vectors of rows.
const BUSY_THREADS: u64 = 1 << 16;

/// The assignment of a nest's work to threads.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Schedule {
    /// A thread for each row, or for a vector of rows along the contiguous axis.
    Row {
        /// Threads of a block.
        threads: u32,
        /// Rows of a thread.
        vector: usize,
    },
    /// Several threads for each row.
    Team {
        /// Threads of a row, a power of two.
        threads: u32,
        /// Rows of a block, a power of two.
        rows: u32,
    },
    /// Several threads for each vector of rows; neighbouring threads belong to neighbouring rows.
    Columns {
        /// Threads of a row, a power of two.
        threads: u32,
        /// Rows of a block, a power of two.
        rows: u32,
        /// Rows of a thread, a power of two.
        vector: u32,
    },
    /// Squares of two axes, transposed in shared memory.
    Tile,
}

impl Schedule {
    /// The layout of a schedule of teams.
    pub(super) fn layout(&self) -> Option<Layout> {
        match *self {
            Schedule::Team { threads, rows } => Some(Layout::team(threads, rows)),
            Schedule::Columns { threads, rows, vector } => {
                Some(Layout::columns(threads, rows, vector))
            }
            Schedule::Row { .. } | Schedule::Tile => None,
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Schedule::Row { threads, vector: 1 } => {
                write!(f, "row: a thread a row, {threads} a block")
            }
            Schedule::Row { threads, vector } => {
                write!(f, "row: a thread for {vector} rows, {threads} a block")
            }
            Schedule::Tile => f.write_str("tile: squares of 32 by 32, transposed in shared memory"),
            Schedule::Team { threads, rows } => {
                write!(f, "team: {threads} threads a row, {rows} rows a block")
            }
            Schedule::Columns { threads, rows, vector } => {
                write!(f, "column team: {threads} threads a row, {rows} rows a block")?;
                if *vector > 1 { write!(f, ", {vector} a thread") } else { Ok(()) }
            }
        }
    }
}

/// Whether the nest can have this schedule.
pub fn takes(nest: &Nest, architecture: Architecture, schedule: &Schedule) -> bool {
    if nest.band().is_some() {
        return band::takes(nest, architecture, schedule);
    }
    match *schedule {
        Schedule::Row { threads, vector } => {
            let storage = nest.buffers.iter().any(|(_, b)| b.role == BufferRole::Row);
            (1..=MAX_BLOCK).contains(&threads)
                && (1..=16).contains(&vector)
                && (vector == 1 || (!storage && takes_vector(&shape::rows(nest), vector)))
        }
        Schedule::Tile => {
            let tile = Tile::new(nest, &shape::rows(nest));
            tile.is_some_and(|t| t.shared_bytes(nest) <= STATIC_SHARED as usize)
        }
        Schedule::Team { .. } | Schedule::Columns { .. } => {
            let layout = schedule.layout().expect("a schedule of teams");
            let Layout { threads, rows, vector, .. } = layout;
            let powers = [threads, rows, vector].iter().all(|n| n.is_power_of_two());
            if threads < 2
                || !powers
                || rows < vector
                || threads.saturating_mul(layout.teams()) > MAX_BLOCK
                || (vector > 1 && !takes_vectors(nest, layout))
            {
                return false;
            }
            takes_teams(nest, architecture, layout)
        }
    }
}

/// Whether teams can have their phases, and have shared memory enough.
pub(super) fn takes_teams(nest: &Nest, architecture: Architecture, layout: Layout) -> bool {
    // A thread that works alone makes the other teams of its warp wait.
    let alone = |p: &Phase| {
        matches!(mode(nest, layout, p, &[]), Mode::Single | Mode::Lines) && !p.axes.is_empty()
    };
    if layout.in_warp() && layout.threads < WARP && nest.phases.iter().any(alone) {
        return false;
    }
    let exchange = exchange_bytes(nest, layout);
    let storage = storage_bytes(nest).saturating_mul(layout.rows as usize);
    exchange <= STATIC_SHARED as usize
        && storage.saturating_add(exchange) <= architecture.shared_per_block as usize
}

/// Whether a column team can have vectors of rows: it has no row storage, and no prefixes.
fn takes_vectors(nest: &Nest, layout: Layout) -> bool {
    let vector = layout.vector as usize;
    let groups = shape::rows(nest);
    let scans = |p: &Phase| matches!(mode(nest, layout, p, &[]), Mode::Scan | Mode::Lines);
    groups.last().is_some_and(|g| g.extent.is_multiple_of(vector))
        && takes_vector(&groups, vector)
        && storage_bytes(nest) == 0
        && !nest.phases.iter().any(scans)
}

/// The number of rows that a thread takes side by side, for vector accesses.
fn row_vector(nest: &Nest, groups: &[MergedAxis]) -> usize {
    let Some(along) = groups.last() else { return 1 };
    if nest.buffers.iter().any(|(_, b)| b.role == BufferRole::Row) {
        return 1;
    }
    let body = nest.phases.iter().flat_map(|phase| &phase.body);
    let fits = |width| takes_vector(groups, width);
    let mut vector = shape::widest(nest, body, along, |_, _| true, fits);
    // The code of a body is emitted once for each row.
    let body: usize = nest.phases.iter().map(|p| shape::cost(nest, p)).sum();
    while vector > 1 && (vector * body > 512 || !takes_vector(groups, vector)) {
        vector /= 2;
    }
    vector
}

/// Iterations of the longest phase that reduces in several lanes.
fn in_lanes(nest: &Nest) -> usize {
    let phases = nest.phases.iter().filter(|p| p.reductions.iter().any(|r| r.tree.lanes > 1));
    phases.map(|p| p.iterations(nest)).max().unwrap_or(0)
}

/// Elements of a row that a thread of a team accesses at once: four of f32, eight of halves.
fn team_vector(nest: &Nest) -> usize {
    let body = nest.phases.iter().filter(|p| !p.axes.is_empty()).flat_map(|p| &p.body);
    let sizes = body.filter_map(|instr| match instr {
        Instr::Load { access, .. } | Instr::Store { access, .. } => {
            Some(nest.buffers[access.buffer].dtype.size())
        }
        _ => None,
    });
    VECTOR_BYTES / sizes.max().unwrap_or(4).clamp(2, 4)
}

/// The number of iterations of the longest phase.
fn longest(nest: &Nest) -> usize {
    nest.phases.iter().map(|p| p.iterations(nest)).max().unwrap_or(0)
}

/// Instructions of an iteration of all phases with inner axes.
fn work(nest: &Nest) -> usize {
    nest.phases.iter().filter(|p| !p.axes.is_empty()).map(|p| shape::cost(nest, p)).sum()
}

/// Lanes for which every phase has work: those of the smallest tree.
fn lanes(nest: &Nest) -> usize {
    let trees =
        nest.phases.iter().flat_map(|p: &Phase| &p.reductions).map(|r| r.tree.lanes as usize);
    trees.min().unwrap_or(MAX_BLOCK as usize)
}

/// Threads of a team for a row.
pub(super) fn threads_of_row(nest: &Nest) -> u32 {
    let long = longest(nest);
    if long > 1024 {
        return 256;
    }
    let vector = team_vector(nest);
    let mut threads = (long.div_ceil(vector).next_power_of_two() as u32).clamp(4, WARP);
    // Code that is emitted without a loop should stay short.
    let heavy = |threads: u32| long.div_ceil(threads as usize) * work(nest) > HEAVY;
    while threads < 256 && threads as usize * 4 < long && heavy(threads) {
        threads *= 2;
    }
    threads
}

/// The schedule for a nest.
pub fn choose(nest: &Nest, architecture: Architecture) -> Schedule {
    if let Some(schedule) = band::schedule(nest, architecture) {
        return schedule;
    }
    let groups = shape::rows(nest);
    let rows: u64 = groups.iter().map(|g| g.extent as u64).product();
    let long = longest(nest);
    let inner = nest.phases.iter().filter_map(|p| p.axes.last()).map(|a| affinity(nest, *a)).max();
    let outer = groups.last().and_then(|g| g.axes.last()).map(|a| affinity(nest, *a));
    let by_rows = outer.unwrap_or(0) > inner.unwrap_or(0);
    let prefix = nest.phases.iter().flat_map(shape::prefixes).next().is_some();
    let row = || {
        let mut vector = row_vector(nest, &groups);
        // A wider vector must not leave too few threads.
        while vector > 1 && rows / (vector as u64) < BUSY / 4 {
            vector /= 2;
        }
        // A short reduction should fit into registers.
        while vector > 1 && vector * in_lanes(nest) > unroll::ELEMENTS {
            vector /= 2;
        }
        // Few rows are spread over many multiprocessors.
        let threads = if rows < BUSY { WARP } else { 4 * WARP };
        Schedule::Row { threads, vector }
    };
    let storage = storage_bytes(nest) > 256;
    let transposed = Tile::new(nest, &groups)
        .map_or(0, |t| groups[t.across].extent.min(groups[groups.len() - 1].extent));
    if transposed >= 16 && takes(nest, architecture, &Schedule::Tile) {
        return Schedule::Tile;
    }
    let scanned = |p: &Phase| {
        scan::takes(WARP_TEAM, p) && p.axes.last().is_some_and(|a| nest.axes[*a].extent >= 64)
    };
    if prefix && !by_rows && nest.phases.iter().any(scanned) {
        let rows = if rows < 1024 { 1 } else { 4 };
        return first_that_fits(
            nest,
            architecture,
            [Schedule::Team { threads: WARP, rows }, row()],
        );
    }
    if (long <= SHORT || prefix) && !storage {
        return row();
    }
    let lanes = lanes(nest);
    let threads = if by_rows && !storage {
        if lanes < 4 || (rows >= BUSY && long <= unroll::ELEMENTS) {
            return row();
        }
        // Where there are columns enough, a thread has several lanes.
        let most = if rows >= BUSY { 4 } else { 32 };
        let threads = (lanes.min(most) as u32).min((long as u32).next_power_of_two());
        // More blocks fill every multiprocessor, as long as a warp still reads at least 32
        // contiguous bytes at once.
        let mut columns = WARP;
        while columns > 8 && rows.div_ceil(columns.into()) < 96 {
            columns /= 2;
        }
        let team = |vector| Schedule::Columns { threads, rows: columns, vector };
        // A vector must not leave too few threads.
        let mut vector = (row_vector(nest, &groups) as u32).min(columns);
        while vector > 1
            && (rows * u64::from(threads / vector) < BUSY_THREADS
                || !takes(nest, architecture, &team(vector)))
        {
            vector /= 2;
        }
        return first_that_fits(nest, architecture, [team(vector), row()]);
    } else {
        threads_of_row(nest)
    };
    if lanes < 4 && !storage && rows >= 1024 {
        return row();
    }
    let per_block = if threads >= 128 { 1 } else { 128 / threads };
    let per_block = per_block.min((rows.div_ceil(512).next_power_of_two() as u32).max(1));
    first_that_fits(
        nest,
        architecture,
        [
            Schedule::Team { threads, rows: per_block },
            Schedule::Team { threads, rows: 1 },
            Schedule::Team { threads: WARP, rows: 1 },
            row(),
        ],
    )
}

/// The first of these that the nest takes; every nest takes the last one.
fn first_that_fits<const N: usize>(
    nest: &Nest,
    architecture: Architecture,
    schedules: [Schedule; N],
) -> Schedule {
    let mut schedules = schedules.into_iter();
    let fitting = schedules.find(|s| takes(nest, architecture, s));
    fitting.unwrap_or(Schedule::Row { threads: WARP, vector: 1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert_core::nest::{parse_nests, verify};

    fn chosen(text: &str) -> String {
        let nest = parse_nests("test", text).unwrap().remove(0).0;
        verify(&nest).unwrap();
        let schedule = choose(&nest, Architecture::ALL[3]);
        assert!(takes(&nest, Architecture::ALL[3], &schedule), "{schedule}");
        schedule.to_string()
    }

    fn elementwise(shape: &str, load: &str, source: &str) -> String {
        let axes: Vec<_> = shape.split(',').collect();
        let (rows, columns) = (axes[0], axes[1]);
        format!(
            "nest @f(in %x: f32[{source}], out %y: f32[{shape}]) {{ parallel i: {rows}, j: {columns}
             phase {{ %0: f32 = load %x[{load}] store %y[i, j], %0 }} }}"
        )
    }

    #[test]
    fn elements_go_to_threads_four_at_a_time_where_they_are_aligned() {
        assert_eq!(
            chosen(&elementwise("4096,768", "i, j", "4096,768")),
            "row: a thread for 4 rows, 128 a block"
        );
        // Consecutive lines whose length is no multiple: still one line to the nest.
        assert_eq!(
            chosen(&elementwise("4096,101", "i, j", "4096,101")),
            "row: a thread for 4 rows, 128 a block"
        );
        // A broadcast keeps the lines apart, so they are not aligned.
        assert_eq!(
            chosen(&elementwise("4096,101", "j", "101")),
            "row: a thread a row, 128 a block"
        );
        // Too few rows for a vector.
        assert_eq!(
            chosen(&elementwise("64,64", "i, j", "64,64")),
            "row: a thread a row, 32 a block"
        );
    }

    #[test]
    fn stores_along_another_axis_are_transposed() {
        let text = chosen(&elementwise("1024,512", "j, i", "512,1024"));
        assert_eq!(text, "tile: squares of 32 by 32, transposed in shared memory");
        assert!(chosen(&elementwise("1024,4", "j, i", "4,1024")).starts_with("row"));
    }

    fn sum(shape: &str, load: &str, rows: usize, count: usize, lanes: usize) -> String {
        chosen(&format!(
            "nest @f(in %x: f32[{shape}], out %y: f32[{rows}]) {{ parallel i: {rows}
             phase j: {count} {{ %0: f32 = load %x[{load}] %1: f32 = reduce(%0) sum tree({lanes}) }}
             phase {{ store %y[i], %1 }} }}"
        ))
    }

    #[test]
    fn reductions_go_to_teams_as_long_as_the_row() {
        assert_eq!(
            sum("9000,768", "i, j", 9000, 768, 1024),
            "team: 32 threads a row, 4 rows a block"
        );
        assert_eq!(sum("9000,40", "i, j", 9000, 40, 64), "team: 16 threads a row, 8 rows a block");
        for (rows, count) in [(9, 50257), (9000, 50257), (9000, 10000)] {
            assert_eq!(
                sum(&format!("{rows},{count}"), "i, j", rows, count, 1024),
                "team: 256 threads a row, 1 rows a block"
            );
        }
        assert!(sum("9000,5", "i, j", 9000, 5, 8).starts_with("row"));
    }

    #[test]
    fn reductions_along_other_axes_go_to_columns() {
        assert_eq!(
            sum("1024,8192", "j, i", 8192, 1024, 32),
            "column team: 32 threads a row, 32 rows a block, 4 a thread"
        );
        assert_eq!(
            sum("1024,768", "j, i", 768, 1024, 32),
            "column team: 32 threads a row, 8 rows a block"
        );
        // There are columns enough: a thread has eight lanes, or all.
        assert_eq!(
            sum("64,100000", "j, i", 100_000, 64, 32),
            "column team: 4 threads a row, 32 rows a block, 4 a thread"
        );
        assert_eq!(sum("32,100000", "j, i", 100_000, 32, 32), "row: a thread a row, 128 a block");
        assert!(sum("1024,768", "j, i", 768, 1024, 1).starts_with("row"), "the tree has one lane");
    }
}
