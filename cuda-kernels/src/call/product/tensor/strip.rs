//! Tiles of operands in shared memory.

use super::Multiply;
use crate::call::number::Place;
use crate::call::product::gather::Direction;
use crate::call::product::loader::{Loader, Prepared, Vector};
use crate::ptx::{Binary, Code, Reg, Space, Ternary, Type};

/// A tile of an operand in shared memory.
#[derive(Clone)]
pub(super) struct Strip<'a> {
    pub loader: Loader<'a>,
    /// Bytes from one row to the next; a row lies along the direction of the loader.
    pub pitch: usize,
}

impl<'a> Strip<'a> {
    pub fn new(loader: Loader<'a>, multiply: &Multiply) -> Strip<'a> {
        let size = loader.gather.number.size() as usize;
        let pitch = match loader.direction {
            Direction::Depth => loader.depths * size + multiply.pads[0],
            Direction::Outer => loader.outers * size + multiply.pads[1],
        };
        Strip { loader, pitch }
    }

    pub fn bytes(&self) -> usize {
        self.pitch
            * match self.loader.direction {
                Direction::Depth => self.loader.outers,
                Direction::Outer => self.loader.depths,
            }
    }

    /// Bytes from the beginning to an element.
    pub fn at(&self, outer: usize, depth: usize) -> i64 {
        let size = self.loader.gather.number.size();
        match self.loader.direction {
            Direction::Depth => (outer * self.pitch) as i64 + depth as i64 * size,
            Direction::Outer => (depth * self.pitch) as i64 + outer as i64 * size,
        }
    }

    /// [`at`](Self::at) of indices in registers, from an address.
    pub fn address(&self, code: &mut Code, base: Reg, outer: Reg, depth: Reg) -> Reg {
        let size = self.loader.gather.number.size();
        let (row, column) = match self.loader.direction {
            Direction::Depth => (outer, depth),
            Direction::Outer => (depth, outer),
        };
        let row = code.ternary(Ternary::Mad, Type::S32, row, self.pitch as i64, base);
        code.ternary(Ternary::Mad, Type::S32, column, size, row)
    }

    /// Address that a thread's first vector is written to.
    pub fn write(&self, code: &mut Code, prepared: &Prepared, base: Reg) -> Reg {
        self.address(code, base, prepared.outer, prepared.depth)
    }
}

/// Lhs or rhs, as one thread loads it.
pub(super) struct Side<'a> {
    pub strip: Strip<'a>,
    pub prepared: Prepared,
    pub write: Reg,
    /// Address of the strip in the first buffer.
    pub base: Reg,
}

impl Side<'_> {
    /// Loads the strip that begins at a depth into a buffer.
    pub fn load(&self, code: &mut Code, from: Reg, buffer: Reg) {
        let loader = &self.strip.loader;
        let number = loader.gather.number;
        let vectors = loader.vectors(code, &self.prepared, from);
        let base = code.binary(Binary::Add, Type::U32, self.write, buffer);
        let to = |v: &Vector| self.strip.at(v.outer, v.depth);
        if loader.vector as i64 * number.size() == 16 {
            vectors.iter().for_each(|v| v.copy(code, base, to(v)));
            return;
        }
        let loaded: Vec<Vec<Reg>> = vectors
            .iter()
            .map(|v| number.load(code, Space::Global, v.place, loader.vector))
            .collect();
        for (v, raw) in vectors.iter().zip(loaded) {
            number.store(code, Space::Shared, Place::at(base, to(v)), &raw);
        }
    }
}
