//! The part of a tensor that a rank stores, and the elements that two such parts have in common.
//!
//! A tensor is divided twice. Ranks that share products divide it along an axis, in blocks
//! ([`Split`]). The ranks with equal parts divide these along an axis of their own. So along each
//! axis a part consists of *runs*, ranges of the whole tensor's coordinates at equal distances,
//! which lie side by side in the part. [`copy`] walks the runs of two parts at once. It needs no
//! memory, whatever the number of blocks.

use std::iter;
use wengert_compiler::ranks::Split;

/// Most axes of a divided tensor.
const MOST_AXES: usize = 64;

/// The ranks among which tensors are divided. Rank `data × T + tensor` is number `tensor` of T
/// ranks that share products.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grid {
    /// Ranks that share products, T.
    pub tensor: usize,
    /// Groups of such ranks.
    pub data: usize,
}

impl Grid {
    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.tensor * self.data
    }
}

/// How a tensor is divided among the ranks of a [`Grid`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Division {
    /// The division among ranks that share products.
    pub tensor: Option<Split>,
    /// The axis along which the ranks with equal parts of it divide them.
    pub data: Option<usize>,
}

impl Division {
    /// Whether each rank has all of the tensor.
    pub fn is_whole(&self) -> bool {
        *self == Division::default()
    }

    /// Whether a rank is the first of those that have its part.
    pub fn is_first(&self, grid: Grid, rank: usize) -> bool {
        let [data, tensor] = [rank / grid.tensor, rank % grid.tensor];
        (self.tensor.is_some() || tensor == 0) && (self.data.is_some() || data == 0)
    }

    /// The shape of each part; none if the tensor cannot be divided so.
    pub fn part(&self, shape: &[usize], grid: Grid) -> Option<Vec<usize>> {
        let mut part = shape.to_vec();
        if self.is_whole() {
            return Some(part);
        }
        if shape.len() > MOST_AXES || shape.contains(&0) {
            return None;
        }
        let mut divide = |axis: usize, parts: usize, blocks: usize| {
            let extent = part.get_mut(axis)?;
            let pieces = parts.checked_mul(blocks).filter(|pieces| *pieces > 0)?;
            let divides = extent.is_multiple_of(pieces);
            *extent /= parts;
            divides.then_some(())
        };
        if let Some(split) = self.tensor {
            divide(split.axis, grid.tensor, split.blocks)?;
        }
        if let Some(axis) = self.data {
            divide(axis, grid.data, 1)?;
        }
        Some(part)
    }

    /// The shape of the tensor with such parts.
    pub fn whole(&self, part: &[usize], grid: Grid) -> Vec<usize> {
        let mut whole = part.to_vec();
        if let Some(split) = self.tensor {
            whole[split.axis] *= grid.tensor;
        }
        if let Some(axis) = self.data {
            whole[axis] *= grid.data;
        }
        whole
    }

    /// The part of a rank; none if a tensor of this shape cannot be divided so.
    pub fn region(&self, shape: &[usize], grid: Grid, rank: usize) -> Option<Region> {
        self.part(shape, grid)?;
        let mut region = Region::whole(shape);
        if let Some(Split { axis, blocks }) = self.tensor {
            let along = &mut region.0[axis];
            (along.blocks, along.parts, along.part) = (blocks, grid.tensor, rank % grid.tensor);
            along.len /= grid.tensor;
        }
        if let Some(axis) = self.data {
            let along = &mut region.0[axis];
            along.len /= grid.data;
            along.from = rank / grid.tensor * along.len;
        }
        Some(region)
    }
}

/// A part of a tensor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Region(Vec<Along>);

/// A part along an axis: of each of `blocks` equal blocks, part `part` of `parts`, and of these the
/// coordinates from `from` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Along {
    extent: usize,
    blocks: usize,
    parts: usize,
    part: usize,
    from: usize,
    len: usize,
}

/// Coordinates that two parts have in common along an axis: where they begin in each.
struct Common {
    to: usize,
    from: usize,
    len: usize,
}

impl Along {
    /// The coordinate of the whole tensor for a coordinate of this part, and how many coordinates
    /// of both follow each other from there.
    fn run(&self, own: usize) -> (usize, usize) {
        let piece = self.extent / (self.blocks * self.parts);
        let at = self.from + own;
        let whole = (at / piece * self.parts + self.part) * piece + at % piece;
        (whole, (piece - at % piece).min(self.len - own))
    }

    fn is_whole(&self) -> bool {
        self.len == self.extent
    }

    /// What this part and another have in common, in order.
    fn common(self, other: Along) -> impl Iterator<Item = Common> {
        let (mut own, mut theirs) = (0, 0);
        iter::from_fn(move || {
            while own < self.len && theirs < other.len {
                let ((a, of_a), (b, of_b)) = (self.run(own), other.run(theirs));
                let (start, end) = (a.max(b), (a + of_a).min(b + of_b));
                if start < end {
                    let (to, from) = (own + (start - a), theirs + (start - b));
                    (own, theirs) = (own + (end - a), theirs + (end - b));
                    return Some(Common { to, from, len: end - start });
                }
                match a < b {
                    true => own += of_a,
                    false => theirs += of_b,
                }
            }
            None
        })
    }
}

impl Region {
    /// All of a tensor.
    pub fn whole(shape: &[usize]) -> Region {
        let along = |extent: &usize| Along {
            extent: *extent,
            blocks: 1,
            parts: 1,
            part: 0,
            from: 0,
            len: *extent,
        };
        Region(shape.iter().map(along).collect())
    }

    /// The shape of the part.
    pub fn shape(&self) -> Vec<usize> {
        self.0.iter().map(|along| along.len).collect()
    }

    /// Whether two parts of a tensor have elements in common.
    pub fn meets(&self, other: &Region) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| a.common(*b).next().is_some())
    }

    /// The distance in bytes of neighbours along each axis, for elements of `size` bytes.
    fn strides(&self, size: usize) -> Vec<usize> {
        let mut strides = vec![size; self.0.len()];
        for axis in (1..self.0.len()).rev() {
            strides[axis - 1] = strides[axis] * self.0[axis].len;
        }
        strides
    }
}

/// Copies the elements that two parts of a tensor have in common, from one part to the other. An
/// element has `size` bytes. Returns the number of elements.
///
/// # Panics
///
/// If the bytes are not those of the parts.
pub fn copy(
    to: &mut [u8],
    to_part: &Region,
    from: &[u8],
    from_part: &Region,
    size: usize,
) -> usize {
    let bytes = |part: &Region| part.shape().iter().product::<usize>() * size;
    assert_eq!([to.len(), from.len()], [bytes(to_part), bytes(from_part)], "bytes of the parts");
    if to.is_empty() || from.is_empty() {
        return 0;
    }
    let axes: Vec<[Along; 2]> =
        to_part.0.iter().zip(&from_part.0).map(|(to, from)| [*to, *from]).collect();
    let divided = axes.iter().rposition(|of| of.iter().any(|along| !along.is_whole()));
    let strides = [to_part.strides(size), from_part.strides(size)];
    let copying = Copying { axes: &axes, strides: &strides, last: divided.unwrap_or(0) };
    copying.axis(0, to, from) / size
}

/// A copy between two parts.
struct Copying<'a> {
    axes: &'a [[Along; 2]],
    strides: &'a [Vec<usize>; 2],
    /// Behind this axis, both parts have all of the tensor.
    last: usize,
}

impl Copying<'_> {
    /// Copies from this axis on. The bytes begin at the coordinates of the axes before. Returns the
    /// number of bytes.
    fn axis(&self, axis: usize, to: &mut [u8], from: &[u8]) -> usize {
        let Some([to_along, from_along]) = self.axes.get(axis) else {
            let size = to.len().min(from.len());
            to[..size].copy_from_slice(&from[..size]);
            return size;
        };
        let [to_stride, from_stride] = [self.strides[0][axis], self.strides[1][axis]];
        let mut copied = 0;
        for common in to_along.common(*from_along) {
            if axis == self.last {
                let bytes = common.len * to_stride;
                to[common.to * to_stride..][..bytes]
                    .copy_from_slice(&from[common.from * from_stride..][..bytes]);
                copied += bytes;
                continue;
            }
            for n in 0..common.len {
                let to = &mut to[(common.to + n) * to_stride..][..to_stride];
                copied += self.axis(axis + 1, to, &from[(common.from + n) * from_stride..]);
            }
        }
        copied
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The elements of a part, found by the definition: each coordinate is compared.
    fn by_definition(division: Division, shape: [usize; 3], grid: Grid, rank: usize) -> Vec<u16> {
        let (tensor, data) = (rank % grid.tensor, rank / grid.tensor);
        let mut kept: [Vec<usize>; 3] = shape.map(|extent| (0..extent).collect());
        if let Some(Split { axis, blocks }) = division.tensor {
            let piece = shape[axis] / blocks / grid.tensor;
            kept[axis].retain(|n| n / piece % grid.tensor == tensor);
        }
        if let Some(axis) = division.data {
            let len = kept[axis].len() / grid.data;
            kept[axis] = kept[axis][data * len..][..len].to_vec();
        }
        let [a, b, c] = &kept;
        let place = |i: usize, j: usize, k: usize| ((i * shape[1] + j) * shape[2] + k) as u16;
        let rows = a.iter().flat_map(|i| b.iter().map(move |j| (*i, *j)));
        rows.flat_map(|(i, j)| c.iter().map(move |k| place(i, j, *k))).collect()
    }

    fn bytes(elements: &[u16]) -> Vec<u8> {
        elements.iter().flat_map(|n| n.to_le_bytes()).collect()
    }

    /// All divisions of a tensor among 1 to 8 ranks.
    fn divisions() -> Vec<(Grid, Division)> {
        let mut all = vec![];
        for (tensor, data) in [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4), (2, 4), (3, 2)] {
            let grid = Grid { tensor, data };
            for split in [None, Some((0, 1)), Some((1, 1)), Some((1, 3)), Some((2, 2))] {
                for shard in [None, Some(0), Some(1), Some(2)] {
                    let split = split.map(|(axis, blocks)| Split { axis, blocks });
                    let division = Division { tensor: split, data: shard };
                    if division.part(&SHAPE, grid).is_some() {
                        all.push((grid, division));
                    }
                }
            }
        }
        all
    }

    const SHAPE: [usize; 3] = [8, 24, 12];

    #[test]
    fn parts_are_those_of_the_definition_and_make_each_other() {
        let all = divisions();
        assert!(all.len() > 100, "{}", all.len());
        let whole: Vec<u16> = (0..SHAPE.iter().product::<usize>() as u16).collect();
        let parts = |(grid, division): (Grid, Division)| -> Vec<(Region, Vec<u8>)> {
            let ranks = (0..grid.ranks()).filter(|rank| division.is_first(grid, *rank));
            let part = |rank| {
                let region = division.region(&SHAPE, grid, rank).unwrap();
                (region, bytes(&by_definition(division, SHAPE, grid, rank)))
            };
            ranks.map(part).collect()
        };
        for of in &all {
            let (grid, division) = *of;
            let total: usize = parts(*of).iter().map(|(_, bytes)| bytes.len()).sum();
            assert_eq!(total, whole.len() * 2, "{of:?}");
            for (region, wanted) in parts(*of) {
                assert_eq!(region.shape(), division.part(&SHAPE, grid).unwrap());
                assert_eq!(division.whole(&region.shape(), grid), SHAPE);
                let mut found = vec![0xff; wanted.len()];
                let all = Region::whole(&SHAPE);
                let count = copy(&mut found, &region, &bytes(&whole), &all, 2);
                assert!(count * 2 == wanted.len() && found == wanted, "{of:?}");
            }
        }
        // From each division to some others.
        for (n, from) in all.iter().enumerate() {
            for to in all.iter().skip(n % 5).step_by(5) {
                for (region, wanted) in parts(*to) {
                    let mut found = vec![0xff; wanted.len()];
                    let mut copied = 0;
                    for (part, bytes) in parts(*from) {
                        copied += copy(&mut found, &region, &bytes, &part, 2);
                    }
                    assert_eq!(copied * 2, wanted.len());
                    assert!(found == wanted, "{from:?} to {to:?}");
                }
            }
        }
    }

    #[test]
    fn scalars_and_empty_tensors_are_copied() {
        let mut to = [0; 4];
        assert_eq!(copy(&mut to, &Region::whole(&[]), &[1, 2, 3, 4], &Region::whole(&[]), 4), 1);
        assert_eq!(to, [1, 2, 3, 4]);
        let none = Region::whole(&[3, 0]);
        assert_eq!(copy(&mut [], &none, &[], &none, 4), 0);
    }

    #[test]
    fn what_does_not_divide_has_no_parts() {
        let grid = Grid { tensor: 2, data: 3 };
        let none = |tensor: Option<(usize, usize)>, data, shape: &[usize]| {
            let tensor = tensor.map(|(axis, blocks)| Split { axis, blocks });
            assert_eq!(Division { tensor, data }.part(shape, grid), None);
            assert_eq!(Division { tensor, data }.region(shape, grid, 0), None);
        };
        none(Some((2, 1)), None, &[4, 4]);
        none(Some((0, 3)), None, &[4, 4]);
        none(Some((0, usize::MAX)), None, &[4, 4]);
        none(Some((0, 0)), None, &[4, 4]);
        none(None, Some(9), &[4, 4]);
        none(None, Some(0), &[4, 4]);
        // 4 fall into two parts, and these do not fall into three.
        none(Some((0, 1)), Some(0), &[4, 3]);
        none(None, Some(0), &[3, 0]);
        none(None, Some(0), &[3; 65]);
    }
}
