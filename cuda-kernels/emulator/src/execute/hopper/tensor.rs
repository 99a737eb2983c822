//! The bytes that a bulk copy moves: consecutive ones, or the box of a tensor.

use super::super::Machine;
use super::super::address::{from_generic, untag};
use super::super::block::Common;
use super::super::warp::Warp;
use super::Result;
use crate::parse::syntax::Space;
use crate::sanitize::FaultKind;
use crate::semantics::descriptor::Swizzle;
use crate::tensor_map::TensorMap;

/// Up to 16 bytes that lie together in shared memory, and where some of them lie in global memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// Offset in shared memory.
    pub(super) at: u32,
    /// Bytes; those before `inside.0` and from `inside.1` on are outside the tensor.
    pub(super) bytes: u32,
    pub(super) inside: (u32, u32),
    /// Global address of the first byte inside.
    pub(super) address: u64,
}

impl Piece {
    /// The parts in global memory as aligned accesses: address, offset in the piece, bytes.
    pub(super) fn accesses(self) -> impl Iterator<Item = (u64, u32, u32)> {
        let (mut at, end) = self.inside;
        let start = at;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let address = self.address + u64::from(at - start);
            let bytes = [16, 8, 4, 2, 1]
                .into_iter()
                .find(|&n| n <= end - at && untag(address).0.is_multiple_of(n.into()))
                .expect("every address is a multiple of 1");
            let found = (address, at, bytes);
            at += bytes;
            Some(found)
        })
    }
}

/// The pieces of consecutive bytes.
pub(super) fn consecutive(at: u32, address: u64, bytes: u32) -> Vec<Piece> {
    (0..bytes / 16)
        .map(|piece| Piece {
            at: at + 16 * piece,
            bytes: 16,
            inside: (0, 16),
            address: address + u64::from(16 * piece),
        })
        .collect()
}

/// The pieces of a tensor's box at the given coordinates, in a box in shared memory at `at`.
pub(super) fn boxed(map: &TensorMap, at: u32, coordinates: &[i32]) -> Vec<Piece> {
    let rank = map.dims.len();
    let size = map.ty.bytes();
    let (row, pitch) = (map.count(0) * size, map.pitch());
    let mut pieces = Vec::new();
    let rows: u32 = (1..rank).map(|dimension| map.count(dimension)).product();
    for index in 0..rows {
        // The element's coordinates along dimensions 1…, and the address of the row.
        let (mut rest, mut inside, mut address) = (index, true, map.address);
        for dimension in 1..rank {
            let step = rest % map.count(dimension) * map.steps[dimension];
            rest /= map.count(dimension);
            let place = i64::from(coordinates[dimension]) + i64::from(step);
            inside &= place >= 0 && (place as u64) < map.dims[dimension];
            address = address.wrapping_add(map.strides[dimension - 1].wrapping_mul(place as u64));
        }
        for piece in 0..row / 16 {
            let first = i64::from(coordinates[0]) + i64::from(piece * 16 / size);
            let end = first + i64::from(16 / size);
            let (low, high) = (first.max(0), end.min(map.dims[0] as i64));
            let part = if inside && low < high {
                ((low - first) as u32 * size, (high - first) as u32 * size)
            } else {
                (0, 0)
            };
            let place = map.swizzle.place(at + index * pitch + 16 * piece, 0);
            let address = address.wrapping_add((low.max(0) as u64).wrapping_mul(size.into()));
            pieces.push(Piece { at: place, bytes: 16, inside: part, address });
        }
    }
    pieces
}

impl Warp {
    /// The tensor map at a generic address.
    pub(super) fn tensor_map(
        &self,
        machine: &Machine<'_>,
        common: &Common,
        address: u64,
        pc: u32,
        lane: usize,
    ) -> Result<TensorMap> {
        let invalid = |message: &str| {
            let kind = FaultKind::InvalidDescriptor;
            Err(self.fault_at(machine, common, kind, message.to_owned(), pc, lane, address))
        };
        let (space, place) = from_generic(address);
        let bytes: Vec<u8> = match space {
            Space::Param => {
                let start = usize::try_from(place).unwrap_or(usize::MAX);
                match machine.parameters.get(start..start.saturating_add(128)) {
                    Some(bytes) => bytes.to_vec(),
                    None => return invalid("a tensor map has 128 bytes, which are not all there"),
                }
            }
            Space::Global => match machine.memory.read(untag(place).0, 128) {
                Ok(bytes) => bytes,
                Err(_) => return invalid("a tensor map has 128 bytes, which are not all there"),
            },
            _ => return invalid("a tensor map is a parameter or lies in global memory"),
        };
        if !untag(place).0.is_multiple_of(64) {
            return invalid("the address of a tensor map is no multiple of 64");
        }
        let bytes: [u8; 128] = bytes.try_into().expect("128 bytes were read");
        match TensorMap::decode(&bytes) {
            Some(map) => Ok(map),
            None => invalid("the bytes are no tensor map"),
        }
    }
}

/// The layout of copied bytes: 1 plus the bits of the swizzle.
pub(super) fn layout(swizzle: Swizzle) -> u8 {
    swizzle.bits() as u8 + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor_map::ElementType;

    #[test]
    fn boxes_at_the_edge_are_cut() {
        let map = TensorMap::tiled(
            ElementType::BF16,
            0x1000,
            &[10, 3],
            &[32],
            &[16, 2],
            &[1, 1],
            Swizzle::None,
        )
        .expect("the values are legal");
        let pieces = boxed(&map, 256, &[-3, 2]);
        assert_eq!(pieces.len(), 4);
        // Elements −3…4: the first three are outside.
        assert_eq!((pieces[0].at, pieces[0].inside, pieces[0].address), (256, (6, 16), 0x1040));
        // Elements 5…12: five are inside.
        assert_eq!((pieces[1].inside, pieces[1].address), ((0, 10), 0x104a));
        // Row 3 is outside.
        assert!(pieces[2..].iter().all(|p| p.inside == (0, 0)));
        let parts: Vec<_> = pieces[1].accesses().collect();
        assert_eq!(parts, [(0x104a, 0, 2), (0x104c, 2, 4), (0x1050, 6, 4)]);
    }
}
