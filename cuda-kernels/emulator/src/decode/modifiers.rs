//! The modifiers of an instruction, consumed one by one.

use crate::parse::syntax::{Space, Type};
use crate::semantics::exact::Rounding;

/// Modifiers that have not been consumed yet.
pub(super) struct Modifiers<'a> {
    words: Vec<&'a str>,
}

impl<'a> Modifiers<'a> {
    pub(super) fn new(words: &'a [String]) -> Modifiers<'a> {
        Modifiers { words: words.iter().map(String::as_str).collect() }
    }

    /// Consumes `word`, if it is there.
    pub(super) fn take(&mut self, word: &str) -> bool {
        match self.words.iter().position(|&w| w == word) {
            Some(at) => {
                self.words.remove(at);
                true
            }
            None => false,
        }
    }

    /// Consumes the first of `choices` that is there.
    pub(super) fn one_of(&mut self, choices: &[&'static str]) -> Option<&'static str> {
        choices.iter().copied().find(|choice| self.take(choice))
    }

    /// Consumes every word that `matches`.
    pub(super) fn take_all(&mut self, matches: impl Fn(&str) -> bool) {
        self.words.retain(|word| !matches(word));
    }

    pub(super) fn has(&self, word: &str) -> bool {
        self.words.contains(&word)
    }

    /// Consumes the first word.
    pub(super) fn first(&mut self) -> Option<&'a str> {
        if self.words.is_empty() { None } else { Some(self.words.remove(0)) }
    }

    /// Consumes the types, in order.
    pub(super) fn types(&mut self) -> Vec<Type> {
        let types = self.words.iter().filter_map(|word| Type::named(word)).collect();
        self.words.retain(|word| Type::named(word).is_none());
        types
    }

    /// Consumes the only type.
    pub(super) fn ty(&mut self) -> Option<Type> {
        match self.types()[..] {
            [ty] => Some(ty),
            _ => None,
        }
    }

    /// Consumes `.rn`, `.rz`, `.rm`, `.rp`, `.rna`.
    pub(super) fn rounding(&mut self) -> Option<Rounding> {
        Some(match self.one_of(&["rn", "rz", "rm", "rp", "rna"])? {
            "rn" => Rounding::NearestEven,
            "rz" => Rounding::Zero,
            "rm" => Rounding::Down,
            "rp" => Rounding::Up,
            _ => Rounding::NearestAway,
        })
    }

    /// Consumes a state space.
    pub(super) fn space(&mut self) -> Option<Space> {
        let spaces = [
            ("global", Space::Global),
            ("shared", Space::Shared),
            ("shared::cta", Space::Shared),
            // Each block is a cluster here, so a cluster's shared memory is the block's own.
            ("shared::cluster", Space::Shared),
            ("local", Space::Local),
            ("param", Space::Param),
            ("param::entry", Space::Param),
            ("param::func", Space::Param),
            ("const", Space::Const),
        ];
        spaces.iter().find(|(word, _)| self.take(word)).map(|&(_, space)| space)
    }

    /// A modifier that has not been consumed.
    pub(super) fn left(&self) -> Option<&str> {
        self.words.first().copied()
    }
}
