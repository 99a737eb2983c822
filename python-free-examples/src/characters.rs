//! Texts as numbers, one for each character, and the books that the examples learn from. The books
//! are in the public domain. The files are those of the Canterbury corpus (Arnold and Bell 1997).

use std::collections::BTreeSet;
use std::path::PathBuf;
use wengert::Recipe;
use wengert::data::text;
use wengert::prelude::*;
use wengert::recipe::{
    Aggregate, Batches, Cadence, EvaluateRecipe, InputRecipe, Length, Metric, Monitoring,
    StepRecipe, Transform,
};

/// A book in `data/`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Book(&'static str);

/// Shakespeare's *As You Like It*, `asyoulik.txt`: 125,179 characters.
pub const AS_YOU_LIKE_IT: Book = Book("asyoulik");

/// Carroll's *Alice's Adventures in Wonderland*, `alice29.txt`: 152,089 characters. Lines end in
/// `\r\n`.
pub const ALICE: Book = Book("alice29");

impl Book {
    /// Its text.
    pub fn read(self) -> Result<String> {
        text::read(
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("data/{}.txt.gz", self.0)),
        )
    }
}

/// A text as numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Characters {
    /// The characters that occur, in order; their positions are their numbers.
    pub alphabet: Vec<char>,
    /// The text.
    pub numbers: Vec<u8>,
}

impl Characters {
    /// A text of at most 256 different characters.
    pub fn of(text: &str) -> Result<Self> {
        let alphabet: Vec<char> = text.chars().collect::<BTreeSet<char>>().into_iter().collect();
        if alphabet.len() > 256 {
            return Err(Diagnostic::new(format!(
                "the text has {} different characters",
                alphabet.len()
            ))
            .help("numbers of characters are bytes: at most 256"));
        }
        let number =
            |c: char| alphabet.binary_search(&c).expect("the alphabet is that of the text") as u8;
        let numbers = text.chars().map(number).collect();
        Ok(Characters { alphabet, numbers })
    }

    /// Numbers as text.
    pub fn text(&self, numbers: &Literal) -> String {
        let number = |n: wengert::Scalar| n.to_i64().and_then(|n| usize::try_from(n).ok());
        let character = |n| number(n).and_then(|n| self.alphabet.get(n)).copied();
        numbers.scalars().map(|n| character(n).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    }

    /// A text as numbers of the model.
    pub fn numbers_of(&self, text: &str) -> Result<Literal> {
        let number = |c: char| match self.alphabet.binary_search(&c) {
            Ok(n) => Ok(n as i32),
            Err(_) => Err(Diagnostic::new(format!("the text that was learnt has no {c:?}"))),
        };
        let numbers = text.chars().map(number).collect::<Result<Vec<i32>>>()?;
        Literal::from_vec(&[numbers.len()], numbers)
    }
}

/// The recipe that trains a model of characters: its function `train_step` on the arrays `train_x`
/// and `train_y` for `steps` steps, and its function `loss`, the bits of a character, on `test_x`
/// and `test_y` after every `every` steps, in batches of `tested` examples.
pub fn recipe(batches: Batches, tested: u64, every: u64, steps: u32) -> Recipe {
    let numbers = |input: &str, array: &str| {
        InputRecipe::new(input, array).then(Transform::Convert(DType::I32))
    };
    let (name, output, aggregate) = ("bits".into(), "bits".into(), Aggregate::Mean);
    Recipe {
        init: Some("init".into()),
        step: StepRecipe {
            function: "train_step".into(),
            inputs: vec![numbers("x", "train_x"), numbers("y", "train_y")],
            loss: "loss".into(),
        },
        evaluate: Some(EvaluateRecipe {
            function: "loss".into(),
            inputs: vec![numbers("x", "test_x"), numbers("y", "test_y")],
            batch_size: tested,
            metrics: vec![Metric { name, output, aggregate }],
            every: Cadence::Steps(every),
        }),
        batches,
        length: Length::Steps(steps.into()),
        checkpoint: Cadence::Never,
        key_seed: 1,
        microbatches: 1,
        precision: None,
        monitoring: Monitoring::default(),
    }
}
