//! Tensor maps: the descriptions of tensors that bulk tensor copies read.
//!
//! The driver's `cuTensorMapEncodeTiled` makes an opaque object of 128 bytes. The emulator has its
//! own encoding, and [`TensorMap::tiled`] makes the driver's checks (CUDA Driver API, "Tensor Map
//! Object Management"), so a map that this crate accepts is one that the driver accepts. A kernel
//! gets the map's [bytes](TensorMap::bytes) as a parameter or in memory.

use crate::semantics::descriptor::Swizzle;

/// The type of a tensor's elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ElementType {
    /// Unsigned, 8 bits.
    U8,
    /// Unsigned, 16 bits.
    U16,
    /// Unsigned, 32 bits.
    U32,
    /// Signed, 32 bits.
    S32,
    /// Unsigned, 64 bits.
    U64,
    /// Signed, 64 bits.
    S64,
    /// IEEE half.
    F16,
    /// IEEE single.
    F32,
    /// IEEE double.
    F64,
    /// bfloat16.
    BF16,
}

const TYPES: [ElementType; 10] = [
    ElementType::U8,
    ElementType::U16,
    ElementType::U32,
    ElementType::S32,
    ElementType::U64,
    ElementType::S64,
    ElementType::F16,
    ElementType::F32,
    ElementType::F64,
    ElementType::BF16,
];

impl ElementType {
    /// Bytes of an element.
    pub const fn bytes(self) -> u32 {
        match self {
            ElementType::U8 => 1,
            ElementType::U16 | ElementType::F16 | ElementType::BF16 => 2,
            ElementType::U32 | ElementType::S32 | ElementType::F32 => 4,
            ElementType::U64 | ElementType::S64 | ElementType::F64 => 8,
        }
    }
}

/// A tensor in global memory, and the box of it that one copy moves. Dimension 0 is the innermost.
///
/// Elements outside the tensor are zero when a box is loaded, and are not written when one is
/// stored. There is no interleaving, and no fill by NaN.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorMap {
    pub(crate) ty: ElementType,
    pub(crate) address: u64,
    /// Elements along each dimension.
    pub(crate) dims: Vec<u64>,
    /// Bytes from an element to the next along dimensions 1….
    pub(crate) strides: Vec<u64>,
    /// Elements along each dimension that a box spans.
    pub(crate) extents: Vec<u32>,
    /// A box has every n-th element along each dimension.
    pub(crate) steps: Vec<u32>,
    pub(crate) swizzle: Swizzle,
}

/// A tensor that cannot be copied.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TensorMapError {
    /// The number of dimensions, or of strides, extents or steps for them.
    #[error("a tensor has 1 to 5 dimensions, one stride less, and as many extents and steps")]
    Rank,
    /// The address of the first element.
    #[error("the tensor's address {0:#x} is no multiple of 16")]
    Address(u64),
    /// Elements along a dimension.
    #[error("dimension {0} has {1} elements, not 1 to 2^32")]
    Dimension(usize, u64),
    /// Bytes between elements along a dimension.
    #[error("the stride of dimension {0} is {1} bytes, no multiple of 16 below 2^40")]
    Stride(usize, u64),
    /// Elements of a box along a dimension.
    #[error("a box has {1} elements along dimension {0}, not 1 to 256")]
    Extent(usize, u32),
    /// Step along a dimension.
    #[error("the element stride of dimension {0} is {1}, not 1 to 8")]
    Step(usize, u32),
    /// Bytes of a box along dimension 0.
    #[error("a row of the box has {0} bytes, no multiple of 16")]
    Row(u32),
    /// Bytes of a box along dimension 0, and the row of the swizzle.
    #[error("a row of the box has {0} bytes, and {1} has no more than {2}")]
    Swizzle(u32, Swizzle, u32),
}

/// The first bytes of a map.
const MAGIC: u64 = u64::from_le_bytes(*b"tiledmap");

impl TensorMap {
    /// A map for copies of boxes, as `cuTensorMapEncodeTiled` makes one.
    ///
    /// `address` is that of the first element. `dims` are its extents in elements, innermost
    /// first, and `strides` the bytes from one element to the next along dimensions 1…. `extents`
    /// are those of the box in the tensor, and `steps` the element strides: the box has
    /// `⌈extent / step⌉` elements along a dimension. The step of dimension 0 is ignored, as it is
    /// without interleaving on hardware.
    ///
    /// # Errors
    /// Those of the driver: see [`TensorMapError`].
    pub fn tiled(
        ty: ElementType,
        address: u64,
        dims: &[u64],
        strides: &[u64],
        extents: &[u32],
        steps: &[u32],
        swizzle: Swizzle,
    ) -> Result<TensorMap, TensorMapError> {
        let rank = dims.len();
        if !(1..=5).contains(&rank)
            || strides.len() + 1 != rank
            || extents.len() != rank
            || steps.len() != rank
        {
            return Err(TensorMapError::Rank);
        }
        if !address.is_multiple_of(16) {
            return Err(TensorMapError::Address(address));
        }
        for (at, &elements) in dims.iter().enumerate() {
            if !(1..=1 << 32).contains(&elements) {
                return Err(TensorMapError::Dimension(at, elements));
            }
        }
        for (at, &stride) in strides.iter().enumerate() {
            if !stride.is_multiple_of(16) || stride >= 1 << 40 {
                return Err(TensorMapError::Stride(at + 1, stride));
            }
        }
        for (at, &extent) in extents.iter().enumerate() {
            if !(1..=256).contains(&extent) {
                return Err(TensorMapError::Extent(at, extent));
            }
        }
        for (at, &step) in steps.iter().enumerate() {
            if !(1..=8).contains(&step) {
                return Err(TensorMapError::Step(at, step));
            }
        }
        let row = extents[0] * ty.bytes();
        if !row.is_multiple_of(16) {
            return Err(TensorMapError::Row(row));
        }
        if swizzle != Swizzle::None && row > swizzle.row() {
            return Err(TensorMapError::Swizzle(row, swizzle, swizzle.row()));
        }
        let mut steps = steps.to_vec();
        steps[0] = 1;
        Ok(TensorMap {
            ty,
            address,
            dims: dims.to_vec(),
            strides: strides.to_vec(),
            extents: extents.to_vec(),
            steps,
            swizzle,
        })
    }

    /// The 128 bytes that a kernel gets, to be aligned to 64. The address stands in them at a
    /// multiple of 8, as that of any pointer in an argument's bytes.
    pub fn bytes(&self) -> [u8; 128] {
        let mut bytes = [0; 128];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.address.to_le_bytes());
        bytes[16] = TYPES.iter().position(|&ty| ty == self.ty).expect("all types are listed") as u8;
        bytes[17] = self.dims.len() as u8;
        bytes[18] = self.swizzle.bits() as u8;
        for (at, ((dim, extent), step)) in
            self.dims.iter().zip(&self.extents).zip(&self.steps).enumerate()
        {
            bytes[24 + 4 * at..][..4].copy_from_slice(&((dim - 1) as u32).to_le_bytes());
            bytes[44 + at] = (extent - 1) as u8;
            bytes[49 + at] = *step as u8;
        }
        for (at, stride) in self.strides.iter().enumerate() {
            bytes[56 + 8 * at..][..8].copy_from_slice(&stride.to_le_bytes());
        }
        bytes
    }

    /// Reads a map that [`TensorMap::bytes`] has made; `None` if the bytes are none.
    pub(crate) fn decode(bytes: &[u8; 128]) -> Option<TensorMap> {
        let long = |at: usize| {
            u64::from_le_bytes(bytes[at..at + 8].try_into().expect("the slice has 8 bytes"))
        };
        let word = |at: usize| {
            u32::from_le_bytes(bytes[at..at + 4].try_into().expect("the slice has 4 bytes"))
        };
        if long(0) != MAGIC {
            return None;
        }
        let ty = *TYPES.get(usize::from(bytes[16]))?;
        let rank = usize::from(bytes[17]);
        let swizzle = match bytes[18] {
            0 => Swizzle::None,
            1 => Swizzle::Bytes32,
            2 => Swizzle::Bytes64,
            3 => Swizzle::Bytes128,
            _ => return None,
        };
        let ranks = 0..rank.min(5);
        let dims: Vec<u64> = ranks.clone().map(|at| u64::from(word(24 + 4 * at)) + 1).collect();
        let strides: Vec<u64> = (1..rank.min(5)).map(|at| long(48 + 8 * at)).collect();
        let extents: Vec<u32> = ranks.clone().map(|at| u32::from(bytes[44 + at]) + 1).collect();
        let steps: Vec<u32> = ranks.map(|at| bytes[49 + at].into()).collect();
        TensorMap::tiled(ty, long(8), &dims, &strides, &extents, &steps, swizzle).ok()
    }

    /// Elements of a box along a dimension.
    pub(crate) fn count(&self, dimension: usize) -> u32 {
        self.extents[dimension].div_ceil(self.steps[dimension])
    }

    /// Bytes of a box, which a load reports to its barrier whether they lie in the tensor or not.
    pub fn box_bytes(&self) -> u32 {
        (0..self.dims.len()).map(|at| self.count(at)).product::<u32>() * self.ty.bytes()
    }

    /// Bytes from a row of the box to the next in shared memory: with a swizzle, that of the
    /// pattern (CUDA C++ Programming Guide, "Tensor Memory Access", requires room for it).
    pub(crate) fn pitch(&self) -> u32 {
        let row = self.extents[0] * self.ty.bytes();
        if self.swizzle == Swizzle::None { row } else { self.swizzle.row() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(
        dims: &[u64],
        strides: &[u64],
        extents: &[u32],
        swizzle: Swizzle,
    ) -> Result<TensorMap, TensorMapError> {
        let steps = vec![1; dims.len()];
        TensorMap::tiled(ElementType::BF16, 0x1000, dims, strides, extents, &steps, swizzle)
    }

    #[test]
    fn maps_survive_their_encoding() {
        let good = map(&[100, 1 << 32, 3], &[208, 1 << 39], &[64, 256, 2], Swizzle::Bytes128);
        let good = good.expect("the map is right");
        assert_eq!(TensorMap::decode(&good.bytes()), Some(good.clone()));
        assert_eq!(good.box_bytes(), 64 * 256 * 2 * 2);
        let mut broken = good.bytes();
        broken[0] ^= 1;
        assert_eq!(TensorMap::decode(&broken), None);
    }

    #[test]
    fn the_drivers_checks_are_made() {
        use TensorMapError as E;
        let none = Swizzle::None;
        assert_eq!(map(&[], &[], &[], none), Err(E::Rank));
        assert_eq!(map(&[8; 6], &[16; 5], &[8; 6], none), Err(E::Rank));
        assert_eq!(map(&[8, 8], &[], &[8, 8], none), Err(E::Rank));
        assert_eq!(map(&[0], &[], &[8], none), Err(E::Dimension(0, 0)));
        assert_eq!(map(&[8, 8], &[24], &[8, 8], none), Err(E::Stride(1, 24)));
        assert_eq!(map(&[8, 8], &[1 << 40], &[8, 8], none), Err(E::Stride(1, 1 << 40)));
        assert_eq!(map(&[8], &[], &[257], none), Err(E::Extent(0, 257)));
        assert_eq!(map(&[8], &[], &[4], none), Err(E::Row(8)));
        let wide = map(&[128], &[], &[128], Swizzle::Bytes128);
        assert_eq!(wide, Err(E::Swizzle(256, Swizzle::Bytes128, 128)));
        let steps = TensorMap::tiled(ElementType::F32, 16, &[8], &[], &[8], &[9], none);
        assert_eq!(steps, Err(E::Step(0, 9)));
        let address = TensorMap::tiled(ElementType::F32, 8, &[8], &[], &[8], &[1], none);
        assert_eq!(address, Err(E::Address(8)));
    }
}
