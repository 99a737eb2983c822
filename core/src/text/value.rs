//! Text of dtypes, dimensions, types, scalars and literals.
//!
//! Scalars and literals are written without their dtype and shape, which stand next to them in
//! every language here. A literal is nested brackets, `[[1.0, 2.0], [3.0, 4.0]]`. If all elements
//! have the same bits, it is that one element (a *splat*), whatever the rank. Without elements it
//! is `[]`. Every bit survives, including NaN payloads.

use super::cursor::Cursor;
use super::lexer::{Kind, Token};
use crate::diagnostic::{Result, bail, ensure};
use crate::dim::{Dim, MAX_FACTORS, Product};
use crate::dtype::DType;
use crate::literal::Literal;
use crate::mesh::Varying;
use crate::scalar::Scalar;
use crate::ty::TensorType;
use std::fmt::{self, Write};
use std::sync::Arc;

/// Larger splats are printed in full, so that a few characters do not expand to that much memory
/// when read.
const MAX_PRINTED_SPLAT_BYTES: usize = 1 << 20;

impl Cursor<'_> {
    /// Parses `f32`.
    pub fn dtype(&mut self) -> Result<DType> {
        let token = self.peek();
        let name = self.expect_name("a dtype")?;
        name.parse().map_err(|e| self.relay(token, e))
    }

    /// Parses `2*B*T+T+-1`, `B-1`, `7`: a sum of integers and of products of variables, which may
    /// begin with an integer.
    pub fn dim(&mut self) -> Result<Dim> {
        let start = self.peek();
        let mut constant: i64 = 0;
        let mut terms: Vec<(Product, i64)> = Vec::new();
        let mut minus = false;
        loop {
            let token = self.peek();
            let overflow = "dimension is beyond 64 bits";
            if let Kind::Name(_) = token.kind {
                terms.push((self.product()?, if minus { -1 } else { 1 }));
            } else {
                let value = self.expect_wide_integer("a dimension")?;
                let value = i64::try_from(if minus { -value } else { value })
                    .map_err(|_| self.error(token, overflow))?;
                if self.eat("*") {
                    terms.push((self.product()?, value));
                } else {
                    constant =
                        constant.checked_add(value).ok_or_else(|| self.error(token, overflow))?;
                }
            }
            minus = self.is("-");
            if !minus && !self.is("+") {
                return Dim::polynomial(constant, terms).ok_or_else(|| self.error(start, overflow));
            }
            self.advance();
        }
    }

    /// Parses `B*T`.
    fn product(&mut self) -> Result<Product> {
        let mut factors: Vec<Arc<str>> = Vec::new();
        loop {
            let token = self.peek();
            factors.push(self.expect_name("the name of a dimension")?.into());
            if factors.len() > MAX_FACTORS {
                return Err(self.error(token, format!("more than {MAX_FACTORS} factors")));
            }
            if !self.eat("*") {
                return Ok(Product::of(factors));
            }
        }
    }

    /// Parses `[B,784]`.
    pub fn shape(&mut self) -> Result<Vec<Dim>> {
        self.list("[", "]", Cursor::dim)
    }

    /// Parses `f32[B,784]`, or `f32[B,784]{data}`.
    pub fn tensor_type(&mut self) -> Result<TensorType> {
        let dtype = self.dtype()?;
        Ok(TensorType::of(dtype, self.shape()?).with_varying(self.varying()?))
    }

    /// Parses the axes over which a value varies, `{data,tensor}` after its shape, if there are
    /// any.
    pub fn varying(&mut self) -> Result<Varying> {
        if !self.is("{") {
            return Ok(Varying::default());
        }
        let token = self.peek();
        let axes = self.list("{", "}", |c| Ok(c.expect_name("an axis of the mesh")?.into()))?;
        let count = axes.len();
        let varying = Varying::from_iter(axes);
        let distinct = varying.axes().count();
        match distinct == count && count > 0 {
            true => Ok(varying),
            false => Err(self
                .error(token, "the axes over which a value varies are some, each named once")
                .help("an invariant value has none: leave `{}` out")),
        }
    }

    /// Parses `[64,10]`. Each extent is a number of at least 0.
    pub fn extents(&mut self) -> Result<Vec<usize>> {
        self.list("[", "]", |c| c.expect_integer("an extent"))
    }

    /// Parses the [pitch](crate::pitch) of a value, ` pitch 50264` after its extents, if it has
    /// one.
    pub fn pitch(&mut self) -> Result<Option<usize>> {
        let padded = self.eat_keyword("pitch");
        padded.then(|| self.expect_integer("a pitch")).transpose()
    }

    /// Parses an element of `dtype`, as [`Scalar`] displays it. Floats may also be written as
    /// integers, integers as hexadecimal.
    pub fn scalar(&mut self, dtype: DType) -> Result<Scalar> {
        let token = self.peek();
        match dtype {
            DType::Bool => {
                let value = self.eat_keyword("true");
                if !value && !self.eat_keyword("false") {
                    return Err(self.unexpected("`true` or `false`"));
                }
                Ok(Scalar::of(value))
            }
            d if d.is_real() => self.float(d, token),
            d => {
                let value = self.expect_wide_integer(&format!("an integer ({d})"))?;
                let scalar = Scalar::from_bits(d, value as u64);
                // Integers of at most 64 bits are exact in i128, so a value in range is unchanged
                // by the round trip.
                let back = if d == DType::U64 {
                    Some(i128::from(scalar.bits()))
                } else {
                    scalar.to_i64().map(i128::from)
                };
                if back == Some(value) {
                    Ok(scalar)
                } else {
                    Err(self.error(token, format!("{value} is out of range for {d}")))
                }
            }
        }
    }

    fn float(&mut self, dtype: DType, token: Token<'_>) -> Result<Scalar> {
        let negative = self.eat("-");
        let what = format!("a number ({dtype})");
        let number = match self.peek().kind {
            Kind::Float(text) | Kind::Integer(text) if !text.starts_with("0x") => {
                self.advance();
                // Decimals round once to f32 or f64. A half is rounded from f64, which reads
                // printed text back exactly.
                let value = match dtype {
                    DType::F32 => text.parse::<f32>().ok().map(Scalar::of),
                    _ => text.parse::<f64>().ok().map(|v| Scalar::from_f64(dtype, v)),
                };
                let value = value.ok_or_else(|| self.error(token, "malformed number"))?;
                ensure!(
                    !value.to_f64().is_nan(), self at token,
                    "{text} is out of range for {dtype}, which has no infinity";
                    help "its greatest number is {}", Scalar::highest(dtype)
                );
                value
            }
            Kind::Name("inf") => {
                self.advance();
                let value = Scalar::from_f64(dtype, f64::INFINITY);
                ensure!(
                    !value.to_f64().is_nan(), self at token,
                    "{dtype} has no infinity";
                    help "its greatest number is {}", Scalar::highest(dtype)
                );
                value
            }
            Kind::Name("nan") if !negative => {
                self.advance();
                return if self.is("(") {
                    self.nan_bits(dtype, token)
                } else {
                    Ok(Scalar::from_f64(dtype, f64::NAN))
                };
            }
            _ => return Err(self.unexpected(&what)),
        };
        let sign = u64::from(negative) << (dtype.bits() - 1);
        Ok(Scalar::from_bits(dtype, number.bits() ^ sign))
    }

    /// Parses `(0x7fc1)` after `nan`.
    fn nan_bits(&mut self, dtype: DType, token: Token<'_>) -> Result<Scalar> {
        self.expect("(")?;
        let bits: u64 = self.expect_integer("the bits of a NaN")?;
        self.expect(")")?;
        let scalar = Scalar::from_bits(dtype, bits);
        ensure!(
            scalar.bits() == bits && scalar.to_f64().is_nan(), self at token,
            "{bits:#x} are not the bits of a NaN of {dtype}"
        );
        Ok(scalar)
    }

    /// Parses a literal of that dtype and shape. The module documentation has the syntax.
    pub fn literal(&mut self, dtype: DType, shape: &[usize]) -> Result<Literal> {
        let token = self.peek();
        // The nonzero extents of an empty array must have a valid size too, since ndarray relies
        // on it.
        let size =
            shape.iter().filter(|e| **e > 0).try_fold(dtype.size(), |n, e| n.checked_mul(*e));
        let Some(bytes) = size.filter(|n| isize::try_from(*n).is_ok()) else {
            bail!(self at token, "a literal of shape {shape:?} is beyond any memory");
        };
        if shape.contains(&0) {
            self.expect("[")?;
            self.expect("]")?;
            return Ok(Literal::zeros(dtype, shape));
        }
        if !self.is("[") {
            self.spend_splat(token, bytes)?;
            return Ok(Literal::full(shape, self.scalar(dtype)?));
        }
        crate::with_native!(dtype, T => {
            // Not reserved in advance: memory must be bounded by the text read so far.
            let mut values: Vec<T> = Vec::new();
            self.rows(dtype, shape, &mut |s| values.push(s.get::<T>()))?;
            Literal::from_vec(shape, values).map_err(|e| self.error(token, e.message))
        })
    }

    fn rows(&mut self, dtype: DType, shape: &[usize], push: &mut dyn FnMut(Scalar)) -> Result<()> {
        let Some((&extent, inner)) = shape.split_first() else {
            push(self.scalar(dtype)?);
            return Ok(());
        };
        self.nested(|c| {
            c.expect("[")?;
            for i in 0..extent {
                if i > 0 && !c.eat(",") {
                    return Err(c.unexpected(&format!(
                        "`,`: {extent} elements are wanted here, these are {i}"
                    )));
                }
                c.rows(dtype, inner, push)?;
            }
            if c.is(",") {
                return Err(c.unexpected(&format!("`]` after {extent} elements")));
            }
            c.expect("]")?;
            Ok(())
        })
    }
}

/// Appends the text of a literal. [`Cursor::literal`] reads it back bit for bit.
pub fn print_literal(out: &mut String, literal: &Literal) {
    let bytes = literal.len().saturating_mul(literal.dtype().size());
    match literal.splat() {
        Some(value) if bytes <= MAX_PRINTED_SPLAT_BYTES || literal.shape().is_empty() => {
            write_scalar(out, value)
        }
        _ if literal.is_empty() => out.push_str("[]"),
        _ => print_rows(out, literal, literal.shape(), &mut 0),
    }
}

fn write_scalar(out: &mut String, value: Scalar) {
    write!(out, "{value}").expect("writing to a string cannot fail");
}

fn print_rows(out: &mut String, literal: &Literal, shape: &[usize], next: &mut usize) {
    let Some((&extent, inner)) = shape.split_first() else {
        write_scalar(out, literal.get(*next));
        *next += 1;
        return;
    };
    out.push('[');
    for i in 0..extent {
        if i > 0 {
            out.push_str(", ");
        }
        print_rows(out, literal, inner, next);
    }
    out.push(']');
}

/// The texts of the items, with a separator between them.
pub fn joined<T: fmt::Display>(items: impl IntoIterator<Item = T>, separator: &str) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(separator)
}

/// Extents as in a type: `[2,3]`.
pub fn print_extents(extents: &[usize]) -> String {
    format!("[{}]", joined(extents, ","))
}

/// Extents and [pitch](crate::pitch) of a value in memory: `[64,50257] pitch 50264`.
pub fn print_layout(extents: &[usize], pitch: Option<usize>) -> String {
    let pitch = pitch.map_or(String::new(), |pitch| format!(" pitch {pitch}"));
    print_extents(extents) + &pitch
}

/// Appends a string in quotes, with escapes. [`Cursor::expect_string`] reads it back.
pub fn print_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {
                write!(out, "\\u{{{:x}}}", c as u32).expect("writing to a string cannot fail")
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::lexer::Lexer;
    use proptest::prelude::*;

    fn whole<'a, T>(text: &'a str, parse: impl FnOnce(&mut Cursor<'a>) -> Result<T>) -> Result<T> {
        let mut cursor = Cursor::new("test", text);
        let value = parse(&mut cursor)?;
        cursor.expect_end()?;
        Ok(value)
    }

    fn dtypes() -> impl Strategy<Value = DType> {
        (0..DType::ALL.len()).prop_map(|i| DType::ALL[i])
    }

    #[test]
    fn dimensions_and_types() {
        for (text, normal) in [
            ("2*B+T+-1", "2*B+T+-1"),
            ("B-1", "B+-1"),
            ("-2*B+3", "-2*B+3"),
            ("1+B-B", "1"),
            ("B - 2*T", "B+-2*T"),
        ] {
            assert_eq!(whole(text, Cursor::dim).unwrap().to_string(), normal);
        }
        assert_eq!(whole("f32[B,784]", Cursor::tensor_type).unwrap().to_string(), "f32[B,784]");
        assert_eq!(whole("bool[]", Cursor::tensor_type).unwrap(), TensorType::scalar(DType::Bool));
        for bad in
            ["f33[]", "f32", "f32[B", "f32[,]", "f32[9223372036854775808]", "f32[2*2]", "f32[B,]"]
        {
            assert!(whole(bad, Cursor::tensor_type).is_err(), "{bad}");
        }
    }

    #[test]
    fn errors_point_at_the_token() {
        let error = whole("f32[B,\n  oops()]", Cursor::tensor_type).unwrap_err().to_string();
        assert_eq!(
            error,
            "expected `,` or `]`, found `(`\n  --> test:2:7\n    2 |   oops()]\n      |       ^"
        );
    }

    #[test]
    fn scalars_out_of_range_are_refused() {
        for (dtype, text) in [
            (DType::U8, "256"),
            (DType::U8, "-1"),
            (DType::I8, "-129"),
            (DType::I64, "9223372036854775808"),
            (DType::U64, "18446744073709551616"),
            (DType::Bool, "1"),
            (DType::F32, "nan(0x0)"),
            (DType::F16, "nan(0x7fc00000)"),
            (DType::F32, "-nan"),
            (DType::F32, "x"),
        ] {
            assert!(whole(text, |c| c.scalar(dtype)).is_err(), "{dtype} {text}");
        }
        assert_eq!(
            whole("-9223372036854775808", |c| c.scalar(DType::I64)).unwrap(),
            Scalar::of(i64::MIN)
        );
        assert_eq!(whole("3", |c| c.scalar(DType::F32)).unwrap(), Scalar::of(3.0f32));
    }

    #[test]
    fn literals_must_fill_their_shape() {
        for bad in [
            "[[1, 2], [3]]",
            "[1, 2, 3, 4]",
            "[[1, 2], [3, 4, 5]]",
            "[[1, 2]]",
            "[[1, 2], [3, 4]",
            "[]",
        ] {
            assert!(whole(bad, |c| c.literal(DType::I32, &[2, 2])).is_err(), "{bad}");
        }
        assert_eq!(
            whole("[]", |c| c.literal(DType::I32, &[1 << 40, 0])).unwrap().shape(),
            [1 << 40, 0]
        );
        assert_eq!(
            whole("7", |c| c.literal(DType::I32, &[2, 2])).unwrap().as_slice::<i32>().unwrap(),
            [7; 4]
        );
    }

    #[test]
    fn a_short_text_cannot_ask_for_much_memory() {
        assert!(whole("0", |c| c.literal(DType::F64, &[1 << 40])).is_err());
        assert!(whole("0", |c| c.literal(DType::F64, &[usize::MAX, 3])).is_err());
        assert!(whole("[]", |c| c.literal(DType::F64, &[1 << 62, 1 << 62, 0])).is_err());
        let many = whole(&"0 ".repeat(1000), |c| {
            (0..1000).map(|_| c.literal(DType::U8, &[1 << 20])).collect::<Result<Vec<_>>>()
        });
        assert!(many.unwrap_err().message.contains("splat"));
    }

    #[test]
    fn large_literals_round_trip() {
        let wide: Vec<f32> = (0..100_000).map(|i| i as f32 * 0.37).collect();
        for literal in [
            Literal::from_vec(&[100, 1000], wide).unwrap(),
            Literal::full(&[300_000], Scalar::of(1.5f32)),
        ] {
            let mut text = String::new();
            print_literal(&mut text, &literal);
            assert!(
                whole(&text, |c| c.literal(literal.dtype(), literal.shape())).unwrap() == literal
            );
        }
    }

    #[test]
    fn depth_is_bounded() {
        let shape = vec![1; 2000];
        let text = format!("{}1{}", "[".repeat(2000), "]".repeat(2000));
        assert!(whole(&text, |c| c.literal(DType::I32, &shape)).is_err());
    }

    proptest! {
        #[test]
        fn scalars_round_trip(dtype in dtypes(), bits: u64) {
            let scalar = Scalar::from_bits(dtype, bits);
            prop_assert_eq!(whole(&scalar.to_string(), |c| c.scalar(dtype)).unwrap(), scalar);
        }

        #[test]
        fn half_scalars_round_trip(bits: u16) {
            for dtype in [DType::F16, DType::BF16] {
                let scalar = Scalar::from_bits(dtype, bits.into());
                prop_assert_eq!(whole(&scalar.to_string(), |c| c.scalar(dtype)).unwrap(), scalar);
            }
        }

        #[test]
        fn literals_round_trip(
            dtype in dtypes(),
            shape in prop::collection::vec(0usize..4, 0..4),
            bits in prop::collection::vec(any::<u64>(), 81),
        ) {
            let count = shape.iter().product();
            let values: Vec<_> =
                bits.iter().take(count).map(|b| Scalar::from_bits(dtype, *b)).collect();
            let literal = Literal::from_scalars(dtype, &shape, &values).unwrap();
            let mut text = String::new();
            print_literal(&mut text, &literal);
            prop_assert_eq!(whole(&text, |c| c.literal(dtype, &shape)).unwrap(), literal);
        }

        #[test]
        fn strings_round_trip(text: String) {
            let mut printed = String::new();
            print_string(&mut printed, &text);
            prop_assert_eq!(whole(&printed, |c| c.expect_string("a string")).unwrap(), text);
        }

        #[test]
        fn any_text_gives_tokens_and_an_end(text in "(\\PC|[\\x00-\\x7f]){0,200}") {
            let mut lexer = Lexer::new(&text);
            let ended = (0..=text.len() + 1).any(|_| lexer.token().kind == Kind::End);
            prop_assert!(ended, "a token takes at least a byte");
        }

        #[test]
        fn any_text_parses_or_errs(text in "[\\[\\]\\(\\)0-9a-fB\\-+*.,% \"\\\\\\n]{0,60}") {
            let _ = whole(&text, Cursor::tensor_type);
            let _ = whole(&text, Cursor::dim);
            for dtype in DType::ALL {
                let _ = whole(&text, |c| c.literal(dtype, &[2, 2]));
            }
        }
    }
}
