//! Tensors as text for a terminal.
//!
//! A scalar or vector of at most [`LINE`] elements is one line, in the form that `--input` reads:
//! `y=2xf32=1.0 2.0`. Any other tensor is a summary (type, range and mean of the finite elements,
//! count of the others) and its rows, one for each index of the axes before the last:
//!
//! ```text
//! y: f32[2,3], min 0.0, max 5.0, mean 2.5, all finite
//!   [0]  0.0  1.0  2.0
//!   [1]  3.0  4.0  5.0
//! ```
//!
//! A tensor of more than [`WHOLE`] elements is shortened: of more than [`WIDTH`] rows or columns
//! the first and last [`END`] are printed, and floats are rounded to [`DIGITS`] significant digits.
//! The alternate form (`{:#}`) prints all elements exactly. A row of more than [`WIDTH`] columns
//! then takes several lines, and each label is the index of the first element of its line.

use std::cmp::Ordering;
use std::fmt;
use wengert::core::with_native;
use wengert::{DType, Literal, Scalar};

/// The most elements of a vector on one line.
const LINE: usize = 16;
/// The most elements of a tensor that is never shortened.
const WHOLE: usize = 100;
/// The most rows, and the most columns, that are printed without a gap.
const WIDTH: usize = 10;
/// Rows, and columns, on each side of a gap.
const END: usize = 4;
/// Significant digits of an element of a shortened tensor.
const DIGITS: usize = 4;
/// Significant digits of a mean.
const MEAN_DIGITS: usize = 6;

/// A named tensor as text.
pub struct TensorText<'a> {
    /// The name of the output.
    pub name: &'a str,
    /// Its value.
    pub literal: &'a Literal,
}

impl fmt::Display for TensorText<'_> {
    /// The text without its final line break.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TensorText { name, literal } = *self;
        if literal.shape().len() <= 1 && literal.len() <= LINE {
            return write!(f, "{name}={literal:#}");
        }
        write!(f, "{name}: {}, {}", literal.ty(), Summary::of(literal))?;
        let rows = Rows { literal, shortened: !f.alternate() && literal.len() > WHOLE };
        if literal.is_empty() { Ok(()) } else { rows.fmt(f) }
    }
}

/// The elements of a tensor in a few numbers.
#[derive(PartialEq, Debug)]
struct Summary {
    dtype: DType,
    finite: usize,
    non_finite: usize,
    /// The least and the greatest finite element, and the mean of the finite ones in f64.
    range: Option<(Scalar, Scalar, f64)>,
}

impl Summary {
    fn of(literal: &Literal) -> Summary {
        with_native!(literal.dtype(), T => {
            let values = literal.as_slice::<T>().expect("the dtype is its own");
            let number = |value: T| Scalar::of(value).to_f64();
            let (mut finite, mut sum, mut range) = (0usize, 0.0, None::<(T, T)>);
            for value in values.iter().copied().filter(|value| number(*value).is_finite()) {
                finite += 1;
                sum += number(value);
                range = Some(match range {
                    None => (value, value),
                    Some((low, high)) => match () {
                        () if value.partial_cmp(&low) == Some(Ordering::Less) => (value, high),
                        () if value.partial_cmp(&high) == Some(Ordering::Greater) => (low, value),
                        () => (low, high),
                    },
                });
            }
            let range = range.map(|(low, high)| {
                (Scalar::of(low), Scalar::of(high), sum / finite as f64)
            });
            Summary { dtype: literal.dtype(), finite, non_finite: values.len() - finite, range }
        })
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { dtype, finite, non_finite, range } = self;
        match range {
            Some((low, high, mean)) => {
                write!(f, "min {low}, max {high}, mean {}", rounded(*mean, MEAN_DIGITS))?
            }
            None if *non_finite == 0 => return f.write_str("no elements"),
            None => f.write_str("no finite elements")?,
        }
        match non_finite {
            _ if !dtype.is_real() => Ok(()),
            0 => f.write_str(", all finite"),
            _ => write!(f, ", {non_finite} of {} not finite", finite + non_finite),
        }
    }
}

/// The lines of the elements, each after a line break.
struct Rows<'a> {
    literal: &'a Literal,
    shortened: bool,
}

/// A printed row, column or element; `None` is a gap.
type Place = Option<usize>;

impl Rows<'_> {
    /// The printed positions among `count`.
    fn places(&self, count: usize) -> Vec<Place> {
        if self.shortened && count > WIDTH {
            return (0..END)
                .map(Some)
                .chain([None])
                .chain((count - END..count).map(Some))
                .collect();
        }
        (0..count).map(Some).collect()
    }

    /// Visits the lines: the label, and the positions of the elements in row-major order. A line
    /// without elements is a gap.
    fn visit(&self, mut line: impl FnMut(&str, &[Place]) -> fmt::Result) -> fmt::Result {
        let shape = self.literal.shape();
        let columns = *shape.last().expect("a scalar is one line");
        let printed = self.places(columns);
        let label = |flat: usize, axes: usize| {
            let mut flat = flat;
            let mut index = vec![0; axes];
            for (at, extent) in index.iter_mut().zip(&shape[..axes]).rev() {
                *at = flat % extent;
                flat /= extent;
            }
            let index: Vec<String> = index.iter().map(usize::to_string).collect();
            format!("[{}]", index.join(","))
        };
        // A row on several lines, or the only row of a vector, has labels of elements.
        let by_row = printed.len() <= WIDTH && shape.len() > 1;
        for row in self.places(self.literal.len() / columns) {
            let Some(row) = row else {
                line("…", &[])?;
                continue;
            };
            for part in printed.chunks(WIDTH) {
                let elements: Vec<Place> =
                    part.iter().map(|place| Some(row * columns + (*place)?)).collect();
                let first = elements.iter().flatten().next().copied().unwrap_or_default();
                match by_row {
                    true => line(&label(row, shape.len() - 1), &elements)?,
                    false => line(&label(first, shape.len()), &elements)?,
                }
            }
        }
        Ok(())
    }

    fn cell(&self, place: Place) -> String {
        match place.map(|flat| self.literal.get(flat)) {
            None => "…".into(),
            Some(value) if self.shortened && value.dtype().is_real() => {
                let number = value.to_f64();
                if number.is_finite() { rounded(number, DIGITS) } else { value.to_string() }
            }
            Some(value) => value.to_string(),
        }
    }
}

impl fmt::Display for Rows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The widths are measured first, so that a long text is not held in memory.
        let (mut labels, mut widths) = (0, Vec::new());
        self.visit(|label, elements| {
            labels = labels.max(label.chars().count());
            widths.resize(widths.len().max(elements.len()), 0);
            for (width, element) in widths.iter_mut().zip(elements) {
                *width = (*width).max(self.cell(*element).chars().count());
            }
            Ok(())
        })?;
        self.visit(|label, elements| {
            let end = if elements.is_empty() { 0 } else { labels };
            write!(f, "\n  {label:<end$}")?;
            elements
                .iter()
                .zip(&widths)
                .try_for_each(|(element, width)| write!(f, "  {:>width$}", self.cell(*element)))
        })
    }
}

/// A finite number with at most so many significant digits.
fn rounded(number: f64, digits: usize) -> String {
    let text = format!("{number:.*e}", digits - 1);
    let near: f64 = text.parse().expect("a formatted float is a float");
    match near.abs() {
        size if size == 0.0 || (1e-3..1e7).contains(&size) => format!("{near:?}"),
        _ => format!("{near:e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(literal: Literal) -> String {
        TensorText { name: "y", literal: &literal }.to_string()
    }

    fn floats(shape: &[usize], value: impl Fn(usize) -> f32) -> Literal {
        let count = shape.iter().product();
        Literal::from_vec(shape, (0..count).map(value).collect()).unwrap()
    }

    #[test]
    fn short_vectors_are_one_line_and_matrices_are_rows() {
        assert_eq!(text(floats(&[2], |i| i as f32)), "y=2xf32=0.0 1.0");
        assert_eq!(text(floats(&[], |_| 0.5)), "y=f32=0.5");
        assert_eq!(
            text(floats(&[2, 3], |i| [10.25, -1.0, 2.0, 3.0, 4.5, 0.125][i])),
            "y: f32[2,3], min -1.0, max 10.25, mean 3.14583, all finite\n  \
             [0]  10.25  -1.0    2.0\n  [1]    3.0   4.5  0.125"
        );
        assert_eq!(
            text(Literal::from_vec(&[2, 1, 1], vec![true, false]).unwrap()),
            "y: bool[2,1,1], min false, max true, mean 0.5\n  [0,0]   true\n  [1,0]  false"
        );
        assert_eq!(text(Literal::zeros(DType::I32, &[0, 3])), "y: i32[0,3], no elements");
    }

    #[test]
    fn elements_that_are_not_finite_are_counted_apart() {
        let found = floats(&[2, 2], |i| [f32::NAN, 1.0, 3.0, f32::INFINITY][i]);
        assert_eq!(
            text(found),
            "y: f32[2,2], min 1.0, max 3.0, mean 2.0, 2 of 4 not finite\n  \
             [0]  nan  1.0\n  [1]  3.0  inf"
        );
        let nan = text(floats(&[1, 2], |_| f32::NAN));
        assert!(nan.starts_with("y: f32[1,2], no finite elements, 2 of 2 not finite\n"), "{nan}");
        // Beyond 2⁵³ an f64 does not tell integers apart.
        let large = Literal::from_vec(&[2, 1], vec![(1i64 << 60) + 1, 1 << 60]).unwrap();
        let large = text(large);
        assert!(large.contains("min 1152921504606846976, max 1152921504606846977,"), "{large}");
    }

    #[test]
    fn large_tensors_are_shortened_in_the_middle() {
        let found = text(floats(&[30, 2, 12], |i| i as f32 / 7.0));
        let lines: Vec<&str> = found.lines().collect();
        assert_eq!(lines.len(), 1 + 4 + 1 + 4, "{found}");
        assert!(lines[0].starts_with("y: f32[30,2,12], min 0.0, max 102.71429, mean 51.3571,"));
        assert_eq!(
            lines[2],
            "  [0,1]   1.714   1.857     2.0   2.143  …  2.857    3.0  3.143  3.286"
        );
        assert_eq!(lines[5], "  …");
        assert!(lines[6].starts_with("  [28,0]"));
        assert!(lines[9].ends_with("102.7"));
        let width = lines[1].chars().count();
        assert!(lines.iter().skip(1).all(|l| *l == "  …" || l.chars().count() == width), "{found}");
        // Exactly 100 elements are whole and exact.
        let whole = text(floats(&[50, 2], |i| i as f32 / 7.0));
        assert_eq!(whole.lines().count(), 51);
        assert!(whole.contains("0.14285715"), "{whole}");
    }

    #[test]
    fn the_full_text_has_every_element() {
        let literal = floats(&[11, 13], |i| i as f32 / 7.0);
        let full = format!("{:#}", TensorText { name: "y", literal: &literal });
        let words: Vec<&str> = full.lines().skip(1).flat_map(str::split_whitespace).collect();
        let (labels, numbers): (Vec<&str>, Vec<&str>) =
            words.into_iter().partition(|word| word.starts_with('['));
        assert_eq!((labels.len(), labels[1], labels[3]), (22, "[0,10]", "[1,10]"));
        let numbers: Vec<f32> = numbers.iter().map(|n| n.parse().unwrap()).collect();
        assert_eq!(literal.as_slice::<f32>().unwrap(), numbers);
    }

    #[test]
    fn vectors_are_labelled_by_elements() {
        let long = text(Literal::from_vec(&[24], (0..24i32).collect()).unwrap());
        let lines: Vec<&str> = long.lines().collect();
        assert_eq!(lines[0], "y: i32[24], min 0, max 23, mean 11.5");
        assert_eq!(lines[2], "  [10]  10  11  12  13  14  15  16  17  18  19");
        assert_eq!(lines.len(), 4);
        let longer = text(Literal::from_vec(&[200], (0..200i32).collect()).unwrap());
        assert_eq!(longer.lines().nth(1), Some("  [0]  0  1  2  3  …  196  197  198  199"));
    }

    #[test]
    fn numbers_are_rounded_to_digits() {
        for (number, text) in
            [(0.0, "0.0"), (1.0 / 3.0, "0.3333"), (-1.5e-9, "-1.5e-9"), (123456.7, "123500.0")]
        {
            assert_eq!(rounded(number, 4), text);
        }
    }
}
