//! The mapping of a tile's elements to the threads that load them.
//!
//! A tile is `outers × depths` elements of an operand. A thread loads a few vectors of adjacent
//! elements. Neighbouring threads load neighbouring vectors in memory, so that a warp reads whole
//! sectors. The outer indices of a thread are the same in all tiles, so their part of the addresses
//! is computed once, before the loop over depths.

use super::super::index::divide;
use super::super::number::Place;
use super::gather::{Direction, Gather, Half};
use crate::ptx::{Binary, Code, Inst, Operand, Reg, Type};

/// The loads of an operand's tiles by a block.
#[derive(Clone, Debug)]
pub(super) struct Loader<'a> {
    pub gather: &'a Gather,
    /// Rows of lhs or columns of rhs in a tile.
    pub outers: usize,
    /// Depth of a tile.
    pub depths: usize,
    /// Threads of the block.
    pub threads: usize,
    /// Direction of the vectors.
    pub direction: Direction,
    /// Elements of a vector.
    pub vector: usize,
}

/// The loop-invariant values of a thread.
pub(super) struct Prepared {
    /// The first outer index of the thread in the tile.
    pub outer: Reg,
    /// The first depth of the thread in the tile.
    pub depth: Reg,
    /// The parts of addresses that depend on the outer index: one for each vector of the thread if
    /// the vectors differ in it, else one for all.
    outers: Vec<Half>,
}

/// A vector of a tile.
pub(super) struct Vector {
    /// Its place in memory.
    pub place: Place,
    /// Distance of its outer index from that of the thread's first vector.
    pub outer: usize,
    /// Distance of its depth from that of the thread's first vector.
    pub depth: usize,
}

impl Vector {
    /// Copies its 16 bytes to shared memory, asynchronously. Out of range, nothing is read and
    /// zeros are written.
    pub fn copy(&self, code: &mut Code, to: Reg, to_offset: i64) {
        let size = match self.place.valid {
            None => Operand::from(16),
            Some(valid) => code.select(Type::U32, 16, 0, valid).into(),
        };
        code.push(Inst::CopyAsync {
            to: to.into(),
            to_offset,
            from: self.place.address.into(),
            from_offset: self.place.offset,
            size,
        });
    }
}

impl<'a> Loader<'a> {
    /// A loader of vectors of at most `most` elements.
    pub fn new(
        gather: &'a Gather,
        [outers, depths]: [usize; 2],
        threads: usize,
        most: usize,
    ) -> Loader<'a> {
        let most = most.min(outers * depths / threads);
        let (direction, vector) = gather.run(most);
        Loader { gather, outers, depths, threads, direction, vector }
    }

    /// A loader of a strip for tensor cores, in vectors of 16 bytes if possible. 8-bit floats are
    /// read along the sum, and in vectors of four if not of 16.
    pub fn of_strip(gather: &'a Gather, extents: [usize; 2], threads: usize) -> Loader<'a> {
        let size = gather.number.size() as usize;
        let loader = Loader::new(gather, extents, threads, 16 / size);
        if size > 1 || (loader.direction == Direction::Depth && loader.vector == 16) {
            return loader;
        }
        let vector = gather.vector(Direction::Depth, 4);
        Loader { direction: Direction::Depth, vector, ..loader }
    }

    /// Vectors of a thread.
    pub fn count(&self) -> usize {
        let elements = self.vector * self.threads;
        assert!(
            (self.outers * self.depths).is_multiple_of(elements),
            "the elements of a tile are a multiple of those that a block loads at a time"
        );
        self.outers * self.depths / elements
    }

    /// A run is a line of the tile in the direction of the vectors. Returns the number of vectors
    /// in a run, and the distance between the runs of two successive vectors of a thread.
    fn run(&self) -> (usize, usize) {
        let along = match self.direction {
            Direction::Outer => self.outers,
            Direction::Depth => self.depths,
        };
        let vectors = along / self.vector;
        assert!(
            self.threads.is_multiple_of(vectors),
            "the threads of a block are a multiple of the vectors of a run"
        );
        (vectors, self.threads / vectors)
    }

    /// Computes the loop-invariant values. `first` is the first outer index of the tiles,
    /// `operand` the address of the operand.
    pub fn prepare(&self, code: &mut Code, thread: Reg, first: Reg, operand: Reg) -> Prepared {
        let (vectors, step) = self.run();
        let (across, along) = divide(code, thread, vectors);
        let along = code.binary(Binary::Mul, Type::S32, along, self.vector as i64);
        let (outer, depth) = match self.direction {
            Direction::Outer => (along, across),
            Direction::Depth => (across, along),
        };
        let count = match self.direction {
            Direction::Outer => 1,
            Direction::Depth => self.count(),
        };
        let index = code.binary(Binary::Add, Type::S32, first, outer);
        let (series, start) = ([count, step], Some(operand));
        let outers = self.gather.halves(code, Direction::Outer, index, series, start, self.outers);
        Prepared { outer, depth, outers }
    }

    /// The vectors of this thread in the tile that begins at a depth.
    pub fn vectors(&self, code: &mut Code, prepared: &Prepared, from: Reg) -> Vec<Vector> {
        let (_, step) = self.run();
        let count = match self.direction {
            Direction::Outer => self.count(),
            Direction::Depth => 1,
        };
        let index = code.binary(Binary::Add, Type::S32, from, prepared.depth);
        let series = [count, step];
        let depths = self.gather.halves(code, Direction::Depth, index, series, None, self.depths);
        let mut found = vec![];
        for (o, outer) in prepared.outers.iter().enumerate() {
            for (d, depth) in depths.iter().enumerate() {
                let place = self.gather.place(code, outer, depth);
                found.push(Vector { place, outer: o * step, depth: d * step });
            }
        }
        found
    }
}
