//! Addresses of the elements of a product's operand that need not be a matrix in memory.
//!
//! An element has an *outer* index (its row in lhs, its column in rhs) and a *depth* (the index
//! of the sum). Each is written in digits: the depth of a convolution is (tap along each axis,
//! channel), its rows are (image, position along each axis). A digit either moves the element by
//! a stride, or takes part in a *meeting*: a digit of the rows and one of the depth together give
//! the position where a tap meets the source along an axis. The position may be between the
//! source's elements or outside it; then the element is 0 and nothing is read. A matrix has one
//! digit for each index and no meeting. Most meetings reduce to strides ([`Gather::simplify`]),
//! such as those of 1×1 filters and of convolutions without padding.

use super::super::index::{advance, both, digits, divide};
use super::super::number::{Number, Place};
use crate::ptx::{Binary, Code, Compare, Operand, Reg, Ternary, Type};
use wengert_core::call::Matrix;

/// The elements of lhs or rhs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in super::super) struct Gather {
    /// Dtype of an element.
    pub number: Number,
    /// Stride of the operands of a batch.
    pub batch: i64,
    /// Offset of the first element.
    pub base: i64,
    /// The rows of lhs or the columns of rhs; most significant digit first.
    pub outer: Vec<Digit>,
    /// The index of the sum.
    pub depth: Vec<Digit>,
    /// One for each axis that both indices move along.
    pub meetings: Vec<Meeting>,
    /// Alignment of the operand's address, in bytes.
    pub alignment: usize,
}

/// A digit of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) struct Digit {
    /// The digit is below it.
    pub extent: usize,
    /// Its effect.
    pub moves: Moves,
}

/// The effect of a digit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Moves {
    /// Moves the element by this number of elements.
    By(i64),
    /// Moves the position of this meeting by this amount.
    Meeting(usize, i64),
}

/// Along an axis of the source, the position `(Σ digit · factor + offset) / divisor`, valid if it
/// is an integer and below the extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) struct Meeting {
    /// Added to the digits.
    pub offset: i64,
    /// Divides the sum.
    pub divisor: usize,
    /// Positions of the source.
    pub extent: usize,
    /// Stride of the positions.
    pub stride: i64,
}

/// One of the two indices of an element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Direction {
    /// Along the rows of lhs or the columns of rhs.
    Outer,
    /// Along the sum.
    Depth,
}

/// Alignment of a plan's values, except slices of stacked values in loops.
pub(in super::super) const ALIGNMENT: usize = 256;

impl Gather {
    /// A matrix whose rows, or columns, have stride `outer`.
    pub fn matrix(
        number: Number,
        matrix: &Matrix,
        [outers, outer]: [usize; 2],
        [depths, depth]: [usize; 2],
    ) -> Gather {
        let digit = |extent, stride: usize| vec![Digit { extent, moves: Moves::By(stride as i64) }];
        let (outer, depth) = (digit(outers, outer), digit(depths, depth));
        Gather {
            number,
            batch: matrix.batch as i64,
            base: 0,
            outer,
            depth,
            meetings: vec![],
            alignment: ALIGNMENT,
        }
        .simplify()
    }

    /// The same elements with fewer meetings and digits.
    pub fn simplify(mut self) -> Gather {
        for number in 0..self.meetings.len() {
            self.straighten(number);
        }
        let used = |number: usize, digits: &[Digit]| {
            digits.iter().any(|d| matches!(d.moves, Moves::Meeting(n, _) if n == number))
        };
        let kept: Vec<usize> = (0..self.meetings.len())
            .filter(|n| used(*n, &self.outer) || used(*n, &self.depth))
            .collect();
        for digit in self.outer.iter_mut().chain(&mut self.depth) {
            if let Moves::Meeting(number, _) = &mut digit.moves {
                *number =
                    kept.iter().position(|n| n == number).expect("meetings of digits are kept");
            }
        }
        self.meetings = kept.into_iter().map(|n| self.meetings[n]).collect();
        for digits in [&mut self.outer, &mut self.depth] {
            if digits.iter().any(|d| d.extent == 0) {
                *digits = vec![Digit { extent: 0, moves: Moves::By(0) }];
                continue;
            }
            // A digit that is always 0 moves nothing.
            let mut fewer: Vec<Digit> = vec![];
            for digit in digits.iter().filter(|d| d.extent > 1) {
                match (fewer.last_mut(), digit.moves) {
                    (Some(Digit { extent, moves: Moves::By(stride) }), Moves::By(step))
                        if *stride == step * digit.extent as i64 =>
                    {
                        *extent *= digit.extent;
                        *stride = step;
                    }
                    _ => fewer.push(*digit),
                }
            }
            if fewer.is_empty() {
                fewer.push(Digit { extent: 1, moves: Moves::By(0) });
            }
            *digits = fewer;
        }
        self
    }

    /// Replaces a meeting by strides, if every position is in the source.
    fn straighten(&mut self, number: usize) {
        let Meeting { offset, divisor, extent, stride } = self.meetings[number];
        let factors = self.outer.iter().chain(&self.depth).filter_map(|d| match d.moves {
            Moves::Meeting(n, factor) if n == number && d.extent > 0 => {
                Some((factor, d.extent as i64 - 1))
            }
            _ => None,
        });
        let (mut least, mut most, mut exact) = (offset, offset, offset % divisor as i64 == 0);
        for (factor, last) in factors {
            least += (factor * last).min(0);
            most += (factor * last).max(0);
            exact &= last == 0 || factor % divisor as i64 == 0;
        }
        let divisor = divisor as i64;
        if !exact || least < 0 || most / divisor >= extent as i64 {
            return;
        }
        self.base += offset / divisor * stride;
        for digit in self.outer.iter_mut().chain(&mut self.depth) {
            if let Moves::Meeting(n, factor) = digit.moves
                && n == number
            {
                digit.moves = Moves::By(factor / divisor * stride);
            }
        }
    }

    /// Whether it is a matrix in memory: each index moves an element by one stride.
    pub fn is_matrix(&self) -> bool {
        self.meetings.is_empty() && self.outer.len() == 1 && self.depth.len() == 1
    }

    /// The number of elements along a direction.
    pub fn extent(&self, direction: Direction) -> usize {
        self.digits(direction).iter().map(|d| d.extent).product()
    }

    fn digits(&self, direction: Direction) -> &[Digit] {
        match direction {
            Direction::Outer => &self.outer,
            Direction::Depth => &self.depth,
        }
    }

    /// The vector width: a power of two, at most `most`. Every group of this many elements that
    /// begins at a multiple of it is contiguous in memory and aligned to it.
    pub fn vector(&self, direction: Direction, most: usize) -> usize {
        let Some((last, rest)) = self.digits(direction).split_last() else { return 1 };
        if last.moves != Moves::By(1) {
            return 1;
        }
        let other = match direction {
            Direction::Outer => &self.depth,
            Direction::Depth => &self.outer,
        };
        let strides = rest.iter().chain(other).filter_map(|d| match d.moves {
            Moves::By(stride) => Some(stride),
            Moves::Meeting(..) => None,
        });
        let strides = strides.chain(self.meetings.iter().map(|m| m.stride));
        let all: Vec<i64> = strides.chain([self.batch, self.base, last.extent as i64]).collect();
        let mut vector = most.min(self.alignment / self.number.size() as usize).max(1);
        while !all.iter().all(|n| n % vector as i64 == 0) {
            vector /= 2;
        }
        vector
    }

    /// The direction along which vectors are read, and their width; outer if there are none.
    pub fn run(&self, most: usize) -> (Direction, usize) {
        let outer = self.vector(Direction::Outer, most);
        let depth = self.vector(Direction::Depth, most);
        let along_depth = depth > outer
            || (depth == outer
                && self.depth[self.depth.len() - 1].moves == Moves::By(1)
                && self.meetings.is_empty()
                && self.outer[self.outer.len() - 1].moves != Moves::By(1));
        if along_depth { (Direction::Depth, depth) } else { (Direction::Outer, outer) }
    }

    /// The address of the operand of one product of the batch.
    pub fn operand(&self, code: &mut Code, buffer: Reg, batch: Reg) -> Reg {
        let operand = advance(code, buffer, batch, self.batch * self.number.size());
        match self.base {
            0 => operand,
            base => code.binary(Binary::Add, Type::S64, operand, base * self.number.size()),
        }
    }

    /// The contributions of the first `count` outer indices, with the address of the operand.
    pub fn few(&self, code: &mut Code, buffer: Reg, batch: Reg, count: usize) -> Vec<Half> {
        let (operand, zero) = (self.operand(code, buffer, batch), code.mov(Type::S32, 0));
        self.halves(code, Direction::Outer, zero, [count, 1], Some(operand), 1)
    }

    /// The contribution of an index along a direction to an element's place. `start` is the
    /// address that it moves.
    pub fn half(
        &self,
        code: &mut Code,
        direction: Direction,
        index: Reg,
        start: Option<Reg>,
        unit: usize,
    ) -> Half {
        let all = self.digits(direction);
        let extent = self.extent(direction);
        let extents: Vec<usize> = all.iter().map(|d| d.extent).collect();
        // If the extent is a multiple of the tile's, every load is in range.
        let valid = (!extent.is_multiple_of(unit))
            .then(|| code.compare(Compare::Lt, Type::S32, index, extent as i64));
        let values = digits(code, index, &extents);
        let meetings = vec![(None, 0); self.meetings.len()];
        let mut half = Half { address: start, offset: 0, meetings, valid };
        for (digit, value) in all.iter().zip(values) {
            match digit.moves {
                Moves::By(0) => {}
                Moves::By(stride) => {
                    let start = half.address.unwrap_or_else(|| code.mov(Type::U64, 0));
                    half.address = Some(advance(code, start, value, stride * self.number.size()));
                }
                Moves::Meeting(at, factor) => {
                    let so_far: Operand = half.meetings[at].0.map_or(0.into(), Operand::Reg);
                    half.meetings[at].0 =
                        Some(code.ternary(Ternary::Mad, Type::S32, value, factor, so_far));
                }
            }
        }
        half
    }

    /// [`half`](Self::half) of a depth that is known at emission: constants only.
    pub fn depth_half(&self, index: usize) -> Half {
        let mut half = Half {
            address: None,
            offset: 0,
            meetings: vec![(None, 0); self.meetings.len()],
            valid: None,
        };
        let mut rest = index;
        for digit in self.depth.iter().rev() {
            let value = (rest % digit.extent) as i64;
            rest /= digit.extent;
            match digit.moves {
                Moves::By(stride) => half.offset += value * stride * self.number.size(),
                Moves::Meeting(at, factor) => half.meetings[at].1 += value * factor,
            }
        }
        half
    }

    /// [`half`](Self::half) of `count` indices at distance `step`, from `first` on.
    pub fn halves(
        &self,
        code: &mut Code,
        direction: Direction,
        first: Reg,
        [count, step]: [usize; 2],
        start: Option<Reg>,
        unit: usize,
    ) -> Vec<Half> {
        let extent = self.extent(direction);
        // With one stride, the distance of two indices is constant, and part of the instruction.
        let distance = match self.digits(direction) {
            [Digit { moves: Moves::By(stride), .. }] => {
                let bytes = stride.checked_mul(self.number.size() * (step * count) as i64);
                bytes.filter(|b| i32::try_from(*b).is_ok()).map(|b| b / count as i64)
            }
            _ => None,
        };
        let one = self.half(code, direction, first, start, unit);
        let mut all = vec![one.clone()];
        for n in 1..count {
            let far = (n * step) as i64;
            all.push(match distance {
                Some(distance) => {
                    let valid = one
                        .valid
                        .map(|_| code.compare(Compare::Lt, Type::S32, first, extent as i64 - far));
                    Half { offset: distance * n as i64, valid, ..one.clone() }
                }
                None => {
                    let index = code.binary(Binary::Add, Type::S32, first, far);
                    self.half(code, direction, index, start, unit)
                }
            });
        }
        all
    }

    /// The place of an element, from the contributions of its two indices; one of them has the
    /// address of the operand.
    pub fn place(&self, code: &mut Code, outer: &Half, depth: &Half) -> Place {
        let mut valid = both(code, outer.valid, depth.valid);
        let address = match (outer.address, depth.address) {
            (Some(x), Some(y)) => Some(code.binary(Binary::Add, Type::S64, x, y)),
            (one, None) | (None, one) => one,
        };
        let mut address = address.expect("the address of the operand is among them");
        for (n, meeting) in self.meetings.iter().enumerate() {
            let ((x, more), (y, far)) = (outer.meetings[n], depth.meetings[n]);
            let offset = meeting.offset + more + far;
            let sum = match (x, y) {
                (Some(x), Some(y)) => code.binary(Binary::Add, Type::S32, x, y),
                (Some(one), None) | (None, Some(one)) => one,
                (None, None) => code.mov(Type::S32, 0),
            };
            let sum =
                if offset == 0 { sum } else { code.binary(Binary::Add, Type::S32, sum, offset) };
            // As unsigned numbers, negative ones are beyond every extent.
            let last = (meeting.extent as i64 - 1) * meeting.divisor as i64;
            let inside = code.compare(Compare::Le, Type::U32, sum, last);
            valid = both(code, valid, Some(inside));
            let (position, rest) = divide(code, sum, meeting.divisor);
            if meeting.divisor > 1 {
                let exact = code.compare(Compare::Eq, Type::S32, rest, 0);
                valid = both(code, valid, Some(exact));
            }
            address = advance(code, address, position, meeting.stride * self.number.size());
        }
        Place { address, offset: outer.offset + depth.offset, valid }
    }
}

/// The contribution of one of the two indices of an element to its place.
#[derive(Clone, Debug)]
pub(in super::super) struct Half {
    /// An address, or an offset in bytes.
    pub address: Option<Reg>,
    /// Constant bytes added to it.
    pub offset: i64,
    /// The sum of its digits for each meeting: a register and a constant.
    pub meetings: Vec<(Option<Reg>, i64)>,
    /// Whether the index is in range; none if it always is.
    pub valid: Option<Reg>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meeting(offset: i64, divisor: usize, extent: usize) -> Gather {
        Gather {
            number: Number(wengert_core::DType::F32),
            batch: 0,
            base: 0,
            outer: vec![Digit { extent: 10, moves: Moves::Meeting(0, 1) }],
            depth: vec![
                Digit { extent: 3, moves: Moves::Meeting(0, 1) },
                Digit { extent: 8, moves: Moves::By(1) },
            ],
            meetings: vec![Meeting { offset, divisor, extent, stride: 8 }],
            alignment: ALIGNMENT,
        }
    }

    #[test]
    fn meetings_that_are_always_inside_become_strides() {
        let inside = meeting(0, 1, 12).simplify();
        assert!(inside.meetings.is_empty());
        assert_eq!(inside.outer, [Digit { extent: 10, moves: Moves::By(8) }]);
        // Taps and channels are contiguous in memory, so they are one digit.
        assert_eq!(inside.depth, [Digit { extent: 24, moves: Moves::By(1) }]);
        let cropped = meeting(2, 1, 14).simplify();
        assert_eq!((cropped.base, cropped.meetings.len()), (16, 0));
        for outside in [meeting(-1, 1, 12), meeting(0, 1, 11), meeting(0, 2, 12)] {
            assert_eq!(outside.clone().simplify(), outside);
        }
    }

    #[test]
    fn vectors_lie_at_their_multiples() {
        let padded = meeting(-1, 1, 10);
        assert_eq!(padded.run(4), (Direction::Depth, 4));
        assert_eq!(padded.vector(Direction::Outer, 4), 1);
        let odd = Gather { base: 2, ..padded };
        assert_eq!(odd.run(4), (Direction::Depth, 2));
        let f32 = Number(wengert_core::DType::F32);
        let rows = Matrix { batch: 100, row: 10, column: 1 };
        assert_eq!(
            Gather::matrix(f32, &rows, [10, rows.row], [10, rows.column]).run(8),
            (Direction::Depth, 2)
        );
        assert_eq!(
            Gather::matrix(f32, &rows, [12, rows.column], [10, rows.row]).run(8),
            (Direction::Outer, 2)
        );
    }
}
