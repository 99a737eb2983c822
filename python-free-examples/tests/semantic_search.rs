//! Tokens, passages and the search of the example, with an untrained network.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use python_free_examples::characters::ALICE;
use python_free_examples::semantic_search::{Encoder, nearest, passages};
use python_free_examples::word_piece::{WordPiece, words};
use wengert::data::Arrays;
use wengert::models::{Bert, BertSettings};
use wengert::prelude::*;
use wengert::random::SplitMix64;

#[test]
fn words_are_cut_as_bert_cuts_them() {
    let cut = |text: &str| words(text).join("|");
    assert_eq!(cut("Héllo, WORLD!"), "hello|,|world|!");
    assert_eq!(cut("don't  $5+4\u{a0}x"), "don|'|t|$|5|+|4|x");
    // Marks over letters are removed, in composed and decomposed form. Other marks stay.
    assert_eq!(cut("Ångström a\u{30a}  \u{93f}"), "angstrom|a|\u{93f}");
    assert_eq!(cut("\u{0}a\u{200d}b\u{fffd}c\td\r\ne\u{7}"), "abc|d|e");
    assert_eq!(cut("«x»—y…"), "«|x|»|—|y|…");
    assert_eq!(cut("中文a日"), "中|文|a|日");
    assert_eq!(cut("ИЙ ΑΣ ẞ"), "ии|ασ|ß");
    assert_eq!(cut(" \n"), "");
}

#[test]
fn rare_words_become_pieces() {
    let vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\nun\n##aff\n##able\nun##\naffable\n##a\n.\n";
    let words = WordPiece::of(vocabulary).unwrap();
    let encode = |text: &str| words.encode(text, 10);
    assert_eq!(encode("unaffable."), [2, 4, 5, 6, 10, 3]);
    assert_eq!(encode("Affable"), [2, 8, 3]);
    // A remainder that is not in the vocabulary makes the whole word unknown.
    assert_eq!(encode("unaffabl un"), [2, 1, 4, 3]);
    assert_eq!(encode(""), [2, 3]);
    assert_eq!(encode(". . . . . . . . . . . ."), [2, 10, 10, 10, 10, 10, 10, 10, 10, 3]);
    let most = format!("un{}", "a".repeat(98));
    assert_eq!(words.encode(&most, 200).len(), 1 + 99 + 1);
    assert_eq!(words.encode(&format!("{most}a"), 200), [2, 1, 3]);
    assert!(WordPiece::of("[CLS]\n[SEP]\n").unwrap_err().message.contains("no `[UNK]`"));
}

#[test]
fn passages_are_the_book_and_neither_long_nor_short() {
    let book = ALICE.read().unwrap();
    let passages = passages(&book);
    let all: Vec<&str> = passages.iter().flat_map(|p| p.text.split(' ')).collect();
    assert!(all.iter().copied().eq(book.split_whitespace()));
    let (last, before) = passages.split_last().unwrap();
    assert!(before.iter().all(|p| (30..200).contains(&p.text.split(' ').count())), "{before:?}");
    let lines: Vec<&str> = book.lines().collect();
    for passage in before.iter().chain([last]) {
        let word = passage.text.split(' ').next().unwrap();
        assert!(lines[passage.line - 1].contains(word), "{passage:?}");
    }
}

/// A small network with random weights in PyTorch's layout.
fn encoder() -> Encoder {
    let settings = BertSettings {
        vocabulary: 12,
        positions: 40,
        types: 2,
        width: 8,
        intermediate: 16,
        heads: 2,
        layers: 2,
    };
    let mut stream = SplitMix64::new(7);
    let weights: Arrays = Bert::new(&settings)
        .tensors()
        .into_iter()
        .map(|(path, tensor)| {
            let mut shape = tensor.ty().extents().unwrap();
            if !path.as_str().starts_with("embeddings.") {
                shape.reverse();
            }
            let count = shape.iter().product::<usize>();
            let values: Vec<f32> =
                (0..count).map(|_| stream.unit_f64() as f32 * 2.0 - 1.0).collect();
            (path.to_string(), Literal::from_vec(&shape, values).unwrap())
        })
        .collect();
    let words = WordPiece::of("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\nc\nd\ne\nf\ng\n.\n").unwrap();
    Encoder::new(settings, words, &weights, Device::Cpu).unwrap()
}

#[test]
fn a_text_has_its_vector_whatever_is_embedded_beside_it() {
    let mut encoder = encoder();
    let letters = ["a", "b", "c", "d", "e", "f", "g"];
    // More than a batch, with texts of different lengths.
    let texts: Vec<String> = (0..20)
        .map(|n| {
            (0..1 + n * 7 % 36).map(|k| letters[(n + k * k) % 7]).collect::<Vec<_>>().join(" ")
        })
        .collect();
    let together = encoder.embed(&texts).unwrap();
    assert_eq!(together.shape(), [20, 8]);
    let together = together.as_slice::<f32>().unwrap().to_vec();
    for (text, row) in texts.iter().zip(together.chunks(8)) {
        let alone = encoder.embed(&[text]).unwrap();
        let alone = alone.as_slice::<f32>().unwrap();
        assert!((alone.iter().map(|v| v * v).sum::<f32>() - 1.0).abs() < 1e-5);
        assert!(
            alone.iter().zip(row).all(|(a, b)| (a - b).abs() < 1e-5),
            "{text}: {alone:?}, {row:?}"
        );
    }
    // The nearest to a text is the text itself.
    let all = Literal::from_vec(&[20, 8], together).unwrap();
    let found = nearest(&all, &encoder.embed(&[&texts[13]]).unwrap(), 3);
    assert_eq!((found[0].0, found.len()), (13, 3));
    assert!(
        (found[0].1 - 1.0).abs() < 1e-5 && found[0].1 >= found[1].1 && found[1].1 >= found[2].1
    );
}

#[test]
fn what_is_not_there_is_named() {
    let folder = std::env::temp_dir().join("no-such-model");
    let error = Encoder::open(&folder, Device::Cpu).unwrap_err();
    assert!(error.message.contains("vocab.txt"), "{error}");
}
