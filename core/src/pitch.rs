//! Pitches: the layout of a value in memory.
//!
//! A value lies in memory in row-major order. Its **rows** run along its last axis. Without a
//! pitch it is dense: each row begins where the previous one ends. A **pitch** is the distance of
//! consecutive rows, in elements, and greater than a row. The elements from the end of a row to
//! the next row are **padding**. A padded value `[.., n]` of pitch p thus occupies the memory of a
//! dense value `[.., p]`, of which it is the first n columns.
//!
//! A pitch aligns rows: a row of 50257 halves is aligned to 2 bytes, and with a pitch of 50264 to
//! 16. It is a property of the layout alone. Types, indices and bounds are those of the dense
//! value, and no kernel's results depend on the contents of the padding.

/// The rows of a padded value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PaddedRows {
    /// Elements of a row.
    pub extent: usize,
    /// Distance of consecutive rows, in elements; greater than `extent`.
    pub pitch: usize,
}

impl PaddedRows {
    /// The rows of a value of this shape; `None` if it is dense.
    pub fn of(shape: &[usize], pitch: Option<usize>) -> Option<PaddedRows> {
        Some(PaddedRows { extent: *shape.last()?, pitch: pitch? })
    }
}

/// Extents of the memory of a value: its shape, with the pitch in place of the last extent.
pub fn memory_extents(
    shape: &[usize],
    pitch: Option<usize>,
) -> impl DoubleEndedIterator<Item = usize> + '_ {
    let pitch = pitch.filter(|_| !shape.is_empty());
    shape[..shape.len() - usize::from(pitch.is_some())].iter().copied().chain(pitch)
}

/// Distances, in elements, of the elements that are neighbours along each axis.
pub fn strides(shape: &[usize], pitch: Option<usize>) -> Vec<i64> {
    let mut strides = vec![1i64; shape.len()];
    let mut stride = 1i64;
    for (axis, extent) in memory_extents(shape, pitch).enumerate().collect::<Vec<_>>().iter().rev()
    {
        strides[*axis] = stride;
        stride = stride.wrapping_mul(*extent as i64);
    }
    strides
}

/// The memory of a padded value, from the bytes of the dense value of the same elements. All
/// bytes of the padding are `fill`.
pub fn pad(dense: &[u8], rows: PaddedRows, size: usize, fill: u8) -> Vec<u8> {
    let (row, pitch) = (rows.extent * size, rows.pitch * size);
    let mut padded = Vec::with_capacity(dense.len() / row.max(1) * pitch);
    for row in dense.chunks(row.max(1)) {
        padded.extend_from_slice(row);
        padded.resize(padded.len() + pitch - row.len(), fill);
    }
    padded
}

/// The rows of a padded value in its memory, without the padding.
pub fn rows(memory: &[u8], rows: PaddedRows, size: usize) -> impl Iterator<Item = &[u8]> {
    memory.chunks(rows.pitch * size).map(move |row| &row[..rows.extent * size])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pitch_moves_rows_apart_and_leaves_columns_adjacent() {
        assert_eq!(strides(&[2, 3, 5], None), [15, 5, 1]);
        assert_eq!(strides(&[2, 3, 5], Some(8)), [24, 8, 1]);
        assert_eq!(strides(&[], Some(8)), []);
        assert_eq!(memory_extents(&[2, 3, 5], Some(8)).collect::<Vec<_>>(), [2, 3, 8]);
        assert_eq!(memory_extents(&[2, 5], None).collect::<Vec<_>>(), [2, 5]);
        assert_eq!(memory_extents(&[], Some(8)).count(), 0);
    }

    #[test]
    fn rows_come_back_from_padded_memory() {
        let of = PaddedRows::of(&[2, 3], Some(4)).unwrap();
        let dense: Vec<u8> = (0..12).collect();
        let memory = pad(&dense, of, 2, 0xff);
        assert_eq!(memory, [0, 1, 2, 3, 4, 5, 255, 255, 6, 7, 8, 9, 10, 11, 255, 255]);
        assert_eq!(rows(&memory, of, 2).collect::<Vec<_>>().concat(), dense);
    }
}
