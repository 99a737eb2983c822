//! Transforms as text.

use super::{Packed, Place, Transform};
use std::fmt;
use wengert_core::text::Cursor;
use wengert_core::{DType, Diagnostic, Result, Scalar, diagnostic};

const PLACES: [(Place, &str); 2] = [(Place::Centre, "centre"), (Place::Random, "random")];
const PARTS: [(Packed, &str); 3] = [
    (Packed::Elements, "elements"),
    (Packed::Segments, "segments"),
    (Packed::Positions, "positions"),
];

/// Writes a transform; [`parse`] reads it back.
pub(super) fn print(transform: &Transform, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match transform {
        Transform::Convert(dtype) => write!(f, "convert {dtype}"),
        Transform::Scale(by) => write!(f, "scale {} {by}", by.dtype()),
        Transform::Offset(by) => write!(f, "offset {} {by}", by.dtype()),
        Transform::Normalize { axis, mean, deviation } => {
            let list =
                |of: &[Scalar]| of.iter().map(Scalar::to_string).collect::<Vec<_>>().join(",");
            let dtype = mean.first().map_or(DType::F32, |m| m.dtype());
            write!(f, "normalize {axis} {dtype} {} {}", list(mean), list(deviation))
        }
        Transform::Crop { axis, size, place } => {
            let (_, place) = PLACES.iter().find(|(p, _)| p == place).expect("it has every place");
            write!(f, "crop {axis} {size} {place}")
        }
        Transform::Flip { axis } => write!(f, "flip {axis}"),
        Transform::Pad { axis, before, after, value } => {
            write!(f, "pad {axis} {before} {after} {} {value}", value.dtype())
        }
        Transform::OneHot { classes, dtype } => write!(f, "one_hot {classes} {dtype}"),
        Transform::Mixup(alpha) => write!(f, "mixup {alpha}"),
        Transform::Pack { count, length, padding, part } => {
            let (_, part) = PARTS.iter().find(|(p, _)| p == part).expect("it has every part");
            write!(f, "pack {count} {length} {} {padding} {part}", padding.dtype())
        }
    }
}

/// Reads a transform.
///
/// Errors: the name is unknown; an argument is missing, left over or no number of its kind.
pub(super) fn parse(text: &str) -> Result<Transform> {
    let mut words = Words { text, words: text.split_whitespace() };
    let transform = match words.word("a name")? {
        "convert" => Transform::Convert(words.dtype()?),
        "scale" => Transform::Scale(words.scalar()?),
        "offset" => Transform::Offset(words.scalar()?),
        "normalize" => {
            let (axis, dtype) = (words.number("an axis")?, words.dtype()?);
            let (mean, deviation) = (words.list(dtype)?, words.list(dtype)?);
            Transform::Normalize { axis, mean, deviation }
        }
        "crop" => Transform::Crop {
            axis: words.number("an axis")?,
            size: words.number("a size")?,
            place: words.choice(&PLACES)?,
        },
        "flip" => Transform::Flip { axis: words.number("an axis")? },
        "pad" => Transform::Pad {
            axis: words.number("an axis")?,
            before: words.number("a number of elements")?,
            after: words.number("a number of elements")?,
            value: words.scalar()?,
        },
        "one_hot" => Transform::OneHot {
            classes: words.number("a number of classes")?,
            dtype: words.dtype()?,
        },
        "mixup" => {
            let word = words.word("α")?;
            Transform::Mixup(words.of(DType::F64, word)?)
        }
        "pack" => Transform::Pack {
            count: words.number("a number of sequences")?,
            length: words.number("a length")?,
            padding: words.scalar()?,
            part: words.choice(&PARTS)?,
        },
        name => {
            return Err(diagnostic!("there is no transform `{}`", name.escape_debug()).help(
                "there are convert, scale, offset, normalize, crop, flip, pad, one_hot, mixup, \
                 pack",
            ));
        }
    };
    match words.words.next() {
        Some(more) => Err(words.wrong(&format!("`{}` is left over", more.escape_debug()))),
        None => Ok(transform),
    }
}

struct Words<'a> {
    text: &'a str,
    words: std::str::SplitWhitespace<'a>,
}

impl<'a> Words<'a> {
    fn wrong(&self, what: &str) -> Diagnostic {
        diagnostic!("the transform `{}` is not one: {what}", self.text.escape_debug())
    }

    fn word(&mut self, what: &str) -> Result<&'a str> {
        self.words.next().ok_or_else(|| self.wrong(&format!("it lacks {what}")))
    }

    fn number(&mut self, what: &str) -> Result<usize> {
        let word = self.word(what)?;
        word.parse().map_err(|_| self.wrong(&format!("`{}` is not {what}", word.escape_debug())))
    }

    fn dtype(&mut self) -> Result<DType> {
        let word = self.word("a dtype")?;
        word.parse().map_err(|_| self.wrong(&format!("`{}` is no dtype", word.escape_debug())))
    }

    /// A dtype and a number of it.
    fn scalar(&mut self) -> Result<Scalar> {
        let dtype = self.dtype()?;
        let word = self.word("a number")?;
        self.of(dtype, word)
    }

    fn of(&self, dtype: DType, word: &str) -> Result<Scalar> {
        let mut cursor = Cursor::new("transform", word);
        let wrong = || self.wrong(&format!("`{}` is no {dtype}", word.escape_debug()));
        let scalar = cursor.scalar(dtype).map_err(|_| wrong())?;
        if cursor.is_end() { Ok(scalar) } else { Err(wrong()) }
    }

    /// Numbers with commas between them.
    fn list(&mut self, dtype: DType) -> Result<Vec<Scalar>> {
        let word = self.word("a list of numbers")?;
        word.split(',').map(|word| self.of(dtype, word)).collect()
    }

    fn choice<T: Copy>(&mut self, choices: &[(T, &str)]) -> Result<T> {
        let names: Vec<&str> = choices.iter().map(|(_, name)| *name).collect();
        let word = self.word(&names.join(" or "))?;
        let found = choices.iter().find(|(_, name)| *name == word).map(|(choice, _)| *choice);
        found.ok_or_else(|| {
            self.wrong(&format!("`{}` is not {}", word.escape_debug(), names.join(" or ")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_read_back() {
        for text in [
            "convert bf16",
            "scale f32 0.1",
            "scale f64 0.1",
            "scale f32 nan",
            "offset f16 -0.5",
            "normalize 3 f32 0.485,0.456,0.406 0.229,0.224,0.225",
            "crop 1 24 random",
            "crop 2 24 centre",
            "flip 2",
            "pad 1 4 4 u8 255",
            "pad 1 4 0 f32 -inf",
            "one_hot 10 f32",
            "mixup 0.2",
            "pack 4 128 i32 0 elements",
            "pack 4 128 i64 -1 segments",
            "pack 4 128 i32 0 positions",
        ] {
            let transform: Transform = text.parse().unwrap();
            assert_eq!(transform.to_string(), text);
            assert_eq!(transform.to_string().parse::<Transform>().unwrap(), transform);
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, says) in [
            ("", "lacks a name"),
            ("rotate 3", "there is no transform `rotate`"),
            ("convert f33", "`f33` is no dtype"),
            ("crop 1", "lacks a size"),
            ("crop 1 2 left", "`left` is not centre or random"),
            ("crop -1 2 centre", "`-1` is not an axis"),
            ("flip 2 3", "`3` is left over"),
            ("pad 1 2 3 u8 300", "`300` is no u8"),
            ("scale f32 1.0x", "`1.0x` is no f32"),
            ("normalize 1 f32 1.0,,2.0 1.0", "`` is no f32"),
        ] {
            let error = text.parse::<Transform>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
