//! BERT's tokens: words, and pieces of those that are rare.
//!
//! A text becomes tokens in two steps, as Devlin, Chang, Lee and Toutanova (2019) published them:
//!
//! - **Words.** Control characters and accents are removed, and capitals become lower case. The
//!   text is cut at spaces, around every punctuation mark and around every Chinese character.
//! - **Pieces.** A word is cut into the longest piece at its beginning that the vocabulary has, the
//!   longest piece that follows, and so on (Wu and others 2016). Pieces after the first have the
//!   prefix `##` in the vocabulary. A word that cannot be cut so, or that has more than a hundred
//!   characters, is one token that stands for the unknown.

use std::collections::HashMap;
use std::path::Path;
use unicode_normalization::UnicodeNormalization;
use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory};
use wengert::data::text;
use wengert::prelude::*;

/// A word of more characters is unknown.
const LONGEST: usize = 100;

/// A vocabulary.
#[derive(Clone, Debug)]
pub struct WordPiece {
    numbers: HashMap<String, i32>,
    begin: i32,
    end: i32,
    unknown: i32,
}

impl WordPiece {
    /// A vocabulary from a file with a token in each line, the first of which has number 0.
    ///
    /// Errors: the file cannot be read; `[CLS]`, `[SEP]` or `[UNK]` is not among the tokens.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        WordPiece::of(&text::read(path)?).map_err(|error| error.context(path.display()))
    }

    /// A vocabulary with a token in each line.
    pub fn of(lines: &str) -> Result<Self> {
        let tokens = lines.lines().map(str::trim_end).zip(0..);
        let numbers: HashMap<String, i32> =
            tokens.map(|(token, number)| (token.to_owned(), number)).collect();
        let special = |token: &str| {
            numbers.get(token).copied().ok_or_else(|| {
                Diagnostic::new(format!("the vocabulary has no `{token}`")).help(
                    "a vocabulary of BERT's has a token in each line, `[CLS]`, `[SEP]` and `[UNK]` \
                     among them",
                )
            })
        };
        let (begin, end, unknown) = (special("[CLS]")?, special("[SEP]")?, special("[UNK]")?);
        Ok(WordPiece { numbers, begin, end, unknown })
    }

    /// The numbers of a text's tokens between those of `[CLS]` and `[SEP]`. With these two there
    /// are at most `most` numbers, but at least two; the text's other tokens are dropped.
    pub fn encode(&self, text: &str, most: usize) -> Vec<i32> {
        let mut tokens = vec![self.begin];
        words(text).iter().for_each(|word| self.pieces(word, &mut tokens));
        tokens.truncate(most.saturating_sub(1).max(1));
        tokens.push(self.end);
        tokens
    }

    fn pieces(&self, word: &str, tokens: &mut Vec<i32>) {
        let before = tokens.len();
        let ends: Vec<usize> = word.char_indices().map(|(at, c)| at + c.len_utf8()).collect();
        let mut begin = 0;
        while begin < word.len() {
            let longest = ends.iter().rev().take_while(|end| **end > begin).find_map(|end| {
                let piece = &word[begin..*end];
                let piece = if begin == 0 { piece.to_owned() } else { format!("##{piece}") };
                Some((*end, *self.numbers.get(&piece)?))
            });
            let Some((end, number)) = longest.filter(|_| ends.len() <= LONGEST) else {
                tokens.truncate(before);
                return tokens.push(self.unknown);
            };
            tokens.push(number);
            begin = end;
        }
    }
}

/// The words of a text, in lower case and without accents. Each punctuation mark and each Chinese
/// character is a word.
pub fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let is_kept = |c: &char| {
        !matches!(*c, '\0' | char::REPLACEMENT_CHARACTER) && (is_space(*c) || !is_control(*c))
    };
    let spread = text.chars().filter(is_kept).nfd();
    let bare = spread.filter(|c| c.general_category() != GeneralCategory::NonspacingMark);
    for c in bare.flat_map(char::to_lowercase) {
        if is_space(c) {
            words.push(String::new());
        } else if is_punctuation(c) || is_chinese(c) {
            words.extend([c.to_string(), String::new()]);
        } else {
            words.last_mut().expect("there is a first word").push(c);
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn is_space(c: char) -> bool {
    c.is_whitespace()
}

fn is_control(c: char) -> bool {
    c.general_category_group() == GeneralCategoryGroup::Other
}

fn is_punctuation(c: char) -> bool {
    // `$`, `+` and their like are symbols to Unicode, and punctuation here.
    c.is_ascii_punctuation() || c.general_category_group() == GeneralCategoryGroup::Punctuation
}

/// Whether a character belongs to a block of CJK ideographs. Japanese and Korean use these
/// characters too.
fn is_chinese(c: char) -> bool {
    matches!(u32::from(c),
        0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xf900..=0xfaff | 0x20000..=0x2a6df | 0x2a700..=0x2b73f
        | 0x2b740..=0x2b81f | 0x2b920..=0x2ceaf | 0x2f800..=0x2fa1f)
}
