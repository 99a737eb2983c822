//! Texts as windows of tokens.
//!
//! Text files are tokenized by a `tokenizer.json` (the format of Hugging Face's `tokenizers`), and
//! their tokens are divided into windows of one length. The arrays are `tokens`, i32
//! `[N, window]`, and `targets`, the same windows one token later: the prediction of each token
//! from those before it.
//!
//! **Memory.** All files are tokenized once, when they are opened, piece by piece; the tokens go to
//! a temporary file (4 bytes each, in the system's folder for them), from which windows are read.
//! A piece ends at the end of a line, and has about 64 KiB. A file without line ends is one piece.
//!
//! **Documents.** Each file is a document. Where the tokenizer has a token `<|endoftext|>`, `</s>`
//! or `[SEP]`, the first of these stands after each document, so documents are packed into windows
//! without padding.

use super::raw::RawArray;
use super::{ArrayType, Source, checked, missing};
use crate::atomic::{self, cannot};
use crate::data::map::Map;
use crate::data::text::not_utf8;
use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;
use tokenizers::Tokenizer;
use wengert_core::{DType, Literal, Result, diagnostic};

/// Tokens that end a document.
const ENDS: [&str; 3] = ["<|endoftext|>", "</s>", "[SEP]"];

/// Bytes of a piece of text that is tokenized at one time.
const PIECE: usize = 64 << 10;

/// The tokens of text files, in windows.
#[derive(Debug)]
pub struct TokenWindows {
    /// All tokens; deleted with this value.
    _file: NamedTempFile,
    tokens: RawArray,
    window: usize,
    count: usize,
}

impl TokenWindows {
    /// Tokenizes a text file, or the `.txt` files of a folder in the order of their names.
    ///
    /// Errors: a file is not UTF-8; the tokenizer cannot be read, or fails; the tokens do not make
    /// one window and its targets.
    pub fn open(
        path: impl AsRef<Path>,
        tokenizer: impl AsRef<Path>,
        window: usize,
    ) -> Result<TokenWindows> {
        let (path, of) = (path.as_ref(), tokenizer.as_ref());
        if window == 0 {
            return Err(
                diagnostic!("a window of 0 tokens holds nothing").help("choose at least one token")
            );
        }
        let tokenizer = Map::open(of)
            .and_then(|bytes| Tokenizer::from_bytes(&bytes[..]).map_err(|e| cannot("read", of, &e)))
            .map_err(|error| error.help("a tokenizer is a file `tokenizer.json`"))?;
        let end = ENDS.iter().find_map(|name| tokenizer.token_to_id(name));
        let temporary = std::env::temp_dir();
        let failed = |error| cannot("write tokens to", &temporary, &error);
        let file = NamedTempFile::new().map_err(failed)?;
        let mut out = BufWriter::new(file.as_file());
        let mut count = 0usize;
        for text in files(path)? {
            let bytes = Map::open(&text)?;
            let mut rest = std::str::from_utf8(&bytes).map_err(|e| not_utf8(&text, &bytes, e))?;
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(piece_end(rest));
                let encoded = tokenizer.encode_fast(piece, false).map_err(|error| {
                    cannot("read", &text, &error).context("the tokenizer failed")
                })?;
                for token in encoded.get_ids() {
                    out.write_all(&token.to_le_bytes()).map_err(failed)?;
                }
                count += encoded.get_ids().len();
                rest = after;
            }
            if let Some(end) = end {
                out.write_all(&end.to_le_bytes()).map_err(failed)?;
                count += 1;
            }
        }
        out.flush().map_err(failed)?;
        drop(out);
        let windows = count.saturating_sub(1) / window;
        if windows == 0 {
            return Err(diagnostic!(
                "`{}` has {count} tokens, which do not make a window of {window} and its targets",
                path.display()
            )
            .help("choose a smaller window"));
        }
        let ty = ArrayType { dtype: DType::I32, shape: vec![count] };
        let tokens = RawArray::open(file.path(), 0, ty, false)?;
        Ok(TokenWindows { _file: file, tokens, window, count: windows })
    }

    fn ty(&self) -> ArrayType {
        ArrayType { dtype: DType::I32, shape: vec![self.count, self.window] }
    }
}

/// The end of the first piece: after the first line end beyond its length, or the end of the text.
fn piece_end(text: &str) -> usize {
    match text.as_bytes().get(PIECE..) {
        Some(rest) => {
            rest.iter().position(|byte| *byte == b'\n').map_or(text.len(), |at| PIECE + at + 1)
        }
        None => text.len(),
    }
}

/// A file, or the `.txt` files of a folder.
fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = atomic::entries("read", path)?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    if files.is_empty() {
        return Err(diagnostic!("the folder `{}` has no .txt file", path.display()));
    }
    Ok(files)
}

impl Source for TokenWindows {
    fn arrays(&self) -> BTreeMap<String, ArrayType> {
        BTreeMap::from([("tokens".into(), self.ty()), ("targets".into(), self.ty())])
    }

    fn read_range(&self, array: &str, rows: Range<usize>) -> Result<Literal> {
        let after = match array {
            "tokens" => 0,
            "targets" => 1,
            _ => return Err(missing(self, array)),
        };
        checked(array, &self.ty(), &rows)?;
        let from = rows.start * self.window + after;
        let all = self.tokens.read_range(array, from..from + rows.len() * self.window)?;
        all.reshape(&[rows.len(), self.window])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tokenizer of whole words; a word's id is its place in this list.
    const TOKENIZER: &str = r#"{
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null,
        "decoder": null,
        "model": {"type": "WordLevel", "unk_token": "?",
                  "vocab": {"?": 0, "a": 1, "b": 2, "c": 3, "</s>": 9}}
    }"#;

    #[test]
    fn windows_and_their_targets() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("tokenizer.json"), TOKENIZER).unwrap();
        std::fs::write(at("1.txt"), "a b c\nb").unwrap();
        std::fs::write(at("2.txt"), "c x a").unwrap();
        // 1 2 3 2 9 3 0 1 9
        let data = TokenWindows::open(folder.path(), at("tokenizer.json"), 3).unwrap();
        assert_eq!(data.arrays()["tokens"].shape, [2, 3]);
        let read = |name| data.read(name, &[1, 0]).unwrap().as_slice::<i32>().unwrap().to_vec();
        assert_eq!(read("tokens"), [2, 9, 3, 1, 2, 3]);
        assert_eq!(read("targets"), [9, 3, 0, 2, 3, 2]);
        let fails = |path: &Path, tokenizer: &str, window, says: &str| {
            let error = TokenWindows::open(path, at(tokenizer), window).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        };
        fails(folder.path(), "tokenizer.json", 9, "has 9 tokens, which do not make a window of 9");
        fails(folder.path(), "1.txt", 3, "a tokenizer is a file `tokenizer.json`");
        std::fs::write(at("2.txt"), b"a\nb \xff").unwrap();
        fails(folder.path(), "tokenizer.json", 3, "2.txt`: line 2 is not UTF-8");
    }

    #[test]
    fn long_texts_are_tokenized_in_pieces() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("tokenizer.json"), TOKENIZER).unwrap();
        let words: Vec<&str> = (0..150_000).map(|n| ["a", "b\n", "c "][n * n % 3]).collect();
        std::fs::write(at("long.txt"), words.join(" ")).unwrap();
        let data = TokenWindows::open(at("long.txt"), at("tokenizer.json"), 1000).unwrap();
        let all = crate::data::source::read_whole(&data).unwrap();
        let wanted: Vec<i32> = (0..150_000).map(|n| [1, 2, 3][n * n % 3]).collect();
        assert_eq!(all["tokens"].as_slice::<i32>().unwrap(), wanted);
    }
}
