//! Matrix descriptors of `wgmma`, and swizzled addresses of shared memory.
//!
//! PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout". With T elements in 16
//! bytes and w = 2, 4, 8 groups of 16 bytes in a row of the swizzle (32, 64, 128 bytes), element
//! (r, k) of an operand, r being its row in A or its column in B, begins at
//!
//! | major | swizzle | byte offset |
//! |---|---|---|
//! | K | none | 16·(r mod 8) + stride·(r / 8) + leading·(k / T) + bytes·(k mod T) |
//! | K | w | 16·w·(r mod 8) + stride·(r / 8) + bytes·k |
//! | M, N | none | bytes·(r mod T) + stride·(r / T) + 16·(k mod 8) + leading·(k / 8) |
//! | M, N | w | bytes·(r mod wT) + leading·(r / wT) + 16·w·(k mod 8) + stride·(k / 8) |
//!
//! A swizzle exchanges groups of 16 bytes: bits 4… of the address are xor-ed with its bits 7…, as
//! many bits as w has (1, 2, 3). The pattern repeats every 8 rows, and begins where these bits are
//! zero, unless the descriptor's base offset says another beginning.

/// A permutation of groups of 16 bytes in shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Swizzle {
    /// Addresses are used as they are.
    #[default]
    None,
    /// Within rows of 32 bytes.
    Bytes32,
    /// Within rows of 64 bytes.
    Bytes64,
    /// Within rows of 128 bytes.
    Bytes128,
}

impl Swizzle {
    /// Bits of an address that it changes.
    pub(crate) const fn bits(self) -> u32 {
        match self {
            Swizzle::None => 0,
            Swizzle::Bytes32 => 1,
            Swizzle::Bytes64 => 2,
            Swizzle::Bytes128 => 3,
        }
    }

    /// Bytes of a row; 16 without a swizzle.
    pub(crate) const fn row(self) -> u32 {
        16 << self.bits()
    }

    /// The place of the byte at `address`, for a pattern that begins `base` times 128 bytes after
    /// a multiple of 1024.
    pub(crate) const fn place(self, address: u32, base: u32) -> u32 {
        let mask = (1 << self.bits()) - 1;
        let row = (address >> 7).wrapping_sub(base) & mask;
        address ^ row << 4
    }
}

impl std::fmt::Display for Swizzle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Swizzle::None => f.write_str("no swizzle"),
            other => write!(f, "the swizzle of {} bytes", other.row()),
        }
    }
}

/// A decoded descriptor. Addresses and offsets are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Descriptor {
    pub(crate) start: u32,
    pub(crate) leading: u32,
    pub(crate) stride: u32,
    pub(crate) base: u32,
    pub(crate) swizzle: Swizzle,
}

impl Descriptor {
    /// Decodes 64 bits.
    ///
    /// Errors: unused bits are set; the pattern of the swizzle does not begin where the
    /// descriptor says.
    pub(crate) fn decode(bits: u64) -> Result<Descriptor, String> {
        const UNUSED: u64 = 0x3ff1_c000_c000_c000;
        if bits & UNUSED != 0 {
            return Err(format!(
                "the descriptor {bits:#018x} sets bits that are unused: {:#018x}",
                bits & UNUSED
            ));
        }
        let field = |at: u32| ((bits >> at) as u32 & 0x3fff) << 4;
        let swizzle = match bits >> 62 {
            0 => Swizzle::None,
            1 => Swizzle::Bytes128,
            2 => Swizzle::Bytes64,
            _ => Swizzle::Bytes32,
        };
        let descriptor = Descriptor {
            start: field(0),
            leading: field(16),
            stride: field(32),
            base: (bits >> 49) as u32 & 7,
            swizzle,
        };
        let row = descriptor.start >> 7 & ((1 << swizzle.bits()) - 1);
        if swizzle != Swizzle::None && row != descriptor.base & ((1 << swizzle.bits()) - 1) {
            return Err(format!(
                "the matrix starts at {:#x}, which is row {row} of the pattern of {swizzle}; \
                 the descriptor's base offset is {}",
                descriptor.start, descriptor.base
            ));
        }
        Ok(descriptor)
    }

    /// The place of an element: `r` is its row in A or its column in B. `bytes` is its size, and
    /// `transposed` says that elements of one k lie side by side.
    pub(crate) fn place(self, r: u32, k: u32, bytes: u32, transposed: bool) -> u32 {
        let t = 16 / bytes;
        let wide = self.swizzle.row();
        let offset = match (transposed, self.swizzle) {
            (false, Swizzle::None) => {
                16 * (r % 8) + self.stride * (r / 8) + self.leading * (k / t) + bytes * (k % t)
            }
            (false, _) => wide * (r % 8) + self.stride * (r / 8) + bytes * k,
            (true, Swizzle::None) => {
                bytes * (r % t) + self.stride * (r / t) + 16 * (k % 8) + self.leading * (k / 8)
            }
            (true, _) => {
                let across = wide / bytes;
                bytes * (r % across)
                    + self.leading * (r / across)
                    + wide * (k % 8)
                    + self.stride * (k / 8)
            }
        };
        self.swizzle.place(self.start.wrapping_add(offset), self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(start: u64, leading: u64, stride: u64, base: u64, mode: u64) -> u64 {
        start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | base << 49 | mode << 62
    }

    #[test]
    fn fields_are_decoded() {
        let descriptor =
            Descriptor::decode(encode(0x3fc00, 0x80, 0x400, 0, 1)).expect("the values are legal");
        let expected = Descriptor {
            start: 0x3fc00,
            leading: 0x80,
            stride: 0x400,
            base: 0,
            swizzle: Swizzle::Bytes128,
        };
        assert_eq!(descriptor, expected);
        assert!(Descriptor::decode(1 << 14).is_err());
        assert!(Descriptor::decode(1 << 52).is_err());
        // The second row of a pattern needs a base offset.
        assert!(Descriptor::decode(encode(0x80, 0, 0x400, 0, 1)).is_err());
        assert!(Descriptor::decode(encode(0x80, 0, 0x400, 1, 1)).is_ok());
        assert!(Descriptor::decode(encode(0x100, 0, 0x400, 0, 3)).is_ok());
    }

    /// The exact layouts of the examples in the PTX ISA (figures "K-Major, no-swizzling and tf32
    /// type" to "MN-Major, 64B swizzling and bf16 type"), before the swizzle, in elements.
    #[test]
    fn the_manuals_examples() {
        let linear = |leading, stride, mode, r: u32, k: u32, bytes, transposed| {
            let descriptor =
                Descriptor::decode(encode(0, leading, stride, 0, mode)).expect("it starts at 0");
            let place = descriptor.place(r, k, bytes, transposed);
            // The swizzle is its own inverse.
            descriptor.swizzle.place(place, 0) / bytes
        };
        for r in 0..16 {
            for k in 0..16 {
                // ((8,2),(4,4)):((4,32),(1,64)) and ((8,2),(4,4)):((8,64),(1,4)), tf32
                let (r8, k4) = ((r % 8, r / 8), (k % 4, k / 4));
                assert_eq!(
                    linear(256, 128, 0, r, k, 4, false),
                    4 * r8.0 + 32 * r8.1 + k4.0 + 64 * k4.1
                );
                if k < 8 {
                    assert_eq!(
                        linear(16, 256, 3, r, k, 4, false),
                        8 * r8.0 + 64 * r8.1 + k4.0 + 4 * k4.1
                    );
                }
                // ((8,1,2),(8,2)):((1,8,64),(8,128)), bf16
                let k8 = (k % 8, k / 8);
                assert_eq!(
                    linear(256, 128, 0, r, k, 2, true),
                    r8.0 + 64 * r8.1 + 8 * k8.0 + 128 * k8.1
                );
            }
        }
        for r in 0..64 {
            for k in 0..16 {
                let k8 = (k % 8, k / 8);
                // ((8,2,2),(8,2)):((1,8,128),(16,256)) for 32 rows
                if r < 32 {
                    assert_eq!(
                        linear(256, 512, 3, r, k, 2, true),
                        r % 8 + 8 * (r / 8 % 2) + 128 * (r / 16) + 16 * k8.0 + 256 * k8.1
                    );
                }
                // ((8,4,2),(8,2)):((1,8,256),(32,512))
                assert_eq!(
                    linear(512, 1024, 2, r, k, 2, true),
                    r % 8 + 8 * (r / 8 % 4) + 256 * (r / 32) + 32 * k8.0 + 512 * k8.1
                );
            }
        }
    }

    /// Each layout of a dense tile uses each byte once.
    #[test]
    fn layouts_are_permutations() {
        for (mode, swizzle) in [(1, 128), (2, 64), (3, 32)] {
            let row = swizzle as u32;
            let descriptor = Descriptor::decode(encode(1024, 0, 8 * swizzle, 0, mode))
                .expect("the values are legal");
            let mut seen = vec![0; 64 * row as usize];
            for r in 0..64 {
                for k in 0..row / 2 {
                    seen[descriptor.place(r, k, 2, false) as usize - 1024] += 1;
                }
            }
            assert!(seen.chunks(2).all(|pair| pair[0] == 1), "{swizzle}");
        }
    }
}
