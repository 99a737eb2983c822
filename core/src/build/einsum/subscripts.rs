//! The notation of `einsum`: parsing, and binding of letters to axes.
//!
//! Grammar: `term {"," term} ["->" term]`, where a term consists of letters `a`–`z` and `A`–`Z`
//! and of at most one `...`. Every mistake has a message of its own, which quotes the subscripts.

use super::one_dtype;
use crate::build::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result, bail, ensure};
use crate::dim::Dim;
use std::fmt;

/// The name of an axis.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Label {
    /// An axis of an ellipsis, counted from its last axis.
    Ellipsis(usize),
    /// A letter.
    Letter(char),
}

/// One term: letters before and after an ellipsis, if there is one.
#[derive(Clone, PartialEq, Debug)]
struct Term {
    before: Vec<char>,
    /// The letters after an ellipsis.
    after: Option<Vec<char>>,
}

impl Term {
    fn letters(&self) -> impl Iterator<Item = char> + '_ {
        self.before.iter().chain(self.after.iter().flatten()).copied()
    }

    fn count(&self) -> usize {
        self.letters().count()
    }

    /// The labels, if the ellipsis stands for `count` axes.
    fn labels(&self, count: usize) -> Vec<Label> {
        let letters = |list: &[char]| list.iter().map(|l| Label::Letter(*l)).collect::<Vec<_>>();
        let mut labels = letters(&self.before);
        if let Some(after) = &self.after {
            labels.extend((0..count).rev().map(Label::Ellipsis));
            labels.extend(letters(after));
        }
        labels
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.before.iter().try_for_each(|l| write!(f, "{l}"))?;
        let Some(after) = &self.after else { return Ok(()) };
        f.write_str("...")?;
        after.iter().try_for_each(|l| write!(f, "{l}"))
    }
}

/// Parsed subscripts.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Subscripts {
    /// The text, for messages.
    text: String,
    inputs: Vec<Term>,
    output: Term,
}

impl Subscripts {
    /// Parses subscripts.
    ///
    /// Errors: a character that belongs to no subscripts; two arrows; dots that are no ellipsis;
    /// two ellipses in one term; a letter of the output that occurs twice or in no input; an
    /// ellipsis in the output but in no input, or the other way round.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let plain: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let mut sides = plain.split("->");
        let left = sides.next().expect("a split has a first part");
        let right = sides.next();
        ensure!(sides.next().is_none(), "`{text}` has two arrows";
            help "write the terms of the operands, one arrow, and the term of the result");
        let inputs: Vec<Term> =
            left.split(',').map(|part| term(part, text)).collect::<Result<_>>()?;
        let has_ellipsis = inputs.iter().any(|term| term.after.is_some());
        let output = match right {
            Some(part) => term(part, text)?,
            None => implicit(&inputs, has_ellipsis),
        };
        let letters: Vec<char> = output.letters().collect();
        for (i, letter) in letters.iter().enumerate() {
            ensure!(!letters[..i].contains(letter),
                "`{letter}` occurs twice in the output of `{text}`";
                help "each axis of the result has a letter of its own");
            ensure!(inputs.iter().any(|term| term.letters().any(|l| l == *letter)),
                "`{letter}` in the output of `{text}` is in no operand";
                help "the letters of the result name axes of the operands; `unsqueeze` makes a \
                      new axis");
        }
        match (has_ellipsis, output.after.is_some()) {
            (false, true) => bail!("`...` in the output of `{text}` is in no operand";
                help "write `...` for the operand whose leading axes the result keeps"),
            (true, false) => bail!("`...` of the operands of `{text}` is not in the output";
                help "write `...` in the output too, or sum over these axes first"),
            _ => {}
        }
        Ok(Subscripts { text: text.into(), inputs, output })
    }

    /// The labels of the axes of each operand.
    ///
    /// Errors: operands whose number is not that of the terms, whose axes are not as many as the
    /// letters, whose dtypes differ, or whose extents contradict each other.
    pub(super) fn bind(&self, operands: &[&Tensor]) -> Result<Vec<Vec<Label>>> {
        ensure!(self.inputs.len() == operands.len(),
            "`{}` has {} before the arrow, {} given", self.text,
            counted(self.inputs.len(), "term"), are(operands.len(), "operand");
            help "write one term for each operand, separated by commas");
        one_dtype(operands)?;
        let mut known: Vec<(Label, usize, Dim)> = Vec::new();
        let mut bound = Vec::with_capacity(operands.len());
        for (i, (term, operand)) in self.inputs.iter().zip(operands).enumerate() {
            let (named, rank) = (term.count(), operand.rank());
            match &term.after {
                None => ensure!(named == rank,
                    "`{term}` in `{}` names {}, operand {i} has {rank}: {}",
                    self.text, counted(named, "axis"), operand.ty();
                    help "write one letter for each axis, or `...` for those without a letter"),
                Some(_) => ensure!(named <= rank,
                    "`{term}` in `{}` names {} or more, operand {i} has {rank}: {}",
                    self.text, counted(named, "axis"), operand.ty();
                    help "write no more letters than the operand has axes"),
            }
            let labels = term.labels(rank.saturating_sub(named));
            for (axis, label) in labels.iter().enumerate() {
                self.check(&mut known, *label, i, operands, &operand.shape()[axis])?;
            }
            bound.push(labels);
        }
        Ok(bound)
    }

    /// Checks the extent of an axis of operand `i` against those of axes with the same label.
    fn check(
        &self,
        known: &mut Vec<(Label, usize, Dim)>,
        label: Label,
        i: usize,
        operands: &[&Tensor],
        extent: &Dim,
    ) -> Result<()> {
        let Some((_, first, other)) = known.iter_mut().find(|(l, ..)| *l == label) else {
            known.push((label, i, extent.clone()));
            return Ok(());
        };
        let one = Dim::constant(1);
        match label {
            _ if other == extent => Ok(()),
            Label::Ellipsis(_) if *extent == one => Ok(()),
            Label::Ellipsis(_) if *other == one => {
                (*first, *other) = (i, extent.clone());
                Ok(())
            }
            Label::Ellipsis(_) => bail!(
                "`...` in `{}` stands for axes of extents {other} and {extent} in operands \
                 {first} and {i}: {} and {}", self.text, operands[*first].ty(), operands[i].ty();
                help "these axes broadcast: aligned at the last one, extents are equal or 1"),
            Label::Letter(letter) if *first == i => bail!(
                "`{letter}` in `{}` stands for axes of extents {other} and {extent} of operand \
                 {i}: {}", self.text, operands[i].ty();
                help "a letter that occurs twice takes a diagonal, whose axes have one extent"),
            Label::Letter(letter) => bail!(
                "`{letter}` in `{}` has extent {other} in operand {first} and {extent} in operand \
                 {i}: {} and {}", self.text, operands[*first].ty(), operands[i].ty();
                help "axes with one letter have one extent"),
        }
    }

    /// The labels of the result's axes.
    pub(super) fn output(&self, operands: &[&Tensor]) -> Vec<Label> {
        let ellipses = self.inputs.iter().zip(operands).filter(|(term, _)| term.after.is_some());
        let count = ellipses.map(|(term, t)| t.rank() - term.count()).max().unwrap_or(0);
        self.output.labels(count)
    }
}

/// Parses one term of `text`.
fn term(part: &str, text: &str) -> Result<Term> {
    let ellipsis = || {
        Diagnostic::new(format!("`{part}` in `{text}` has dots that are no ellipsis"))
            .help("an ellipsis is three dots, and stands for the axes without a letter")
    };
    let mut before = Vec::new();
    let mut after: Option<Vec<char>> = None;
    let mut rest = part;
    while let Some(letter) = rest.chars().next() {
        if letter.is_ascii_alphabetic() {
            after.as_mut().unwrap_or(&mut before).push(letter);
            rest = &rest[1..];
        } else if letter == '.' {
            rest = rest.strip_prefix("...").ok_or_else(ellipsis)?;
            ensure!(after.is_none(), "`{part}` in `{text}` has two ellipses";
                help "one ellipsis stands for all axes without a letter");
            after = Some(Vec::new());
        } else {
            bail!("`{}` in `{text}` is no letter", letter.escape_debug();
                help "write a letter from a to z or A to Z for each axis, `,` between operands and \
                      `->` before the result");
        }
    }
    Ok(Term { before, after })
}

/// The output without an arrow: the ellipsis, then the letters that occur once, in ASCII order.
fn implicit(inputs: &[Term], has_ellipsis: bool) -> Term {
    let all: Vec<char> = inputs.iter().flat_map(Term::letters).collect();
    let mut once: Vec<char> =
        all.iter().copied().filter(|l| all.iter().filter(|m| *m == l).count() == 1).collect();
    once.sort();
    match has_ellipsis {
        true => Term { before: vec![], after: Some(once) },
        false => Term { before: once, after: None },
    }
}

/// `1 term`, `2 terms`, `3 axes`.
fn counted(count: usize, noun: &str) -> String {
    match (count, noun) {
        (1, _) => format!("1 {noun}"),
        (_, "axis") => format!("{count} axes"),
        _ => format!("{count} {noun}s"),
    }
}

/// `1 operand is`, `2 operands are`.
fn are(count: usize, noun: &str) -> String {
    format!("{} {}", counted(count, noun), if count == 1 { "is" } else { "are" })
}
