//! The conditional random field against sums over all paths, one by one, and against the grammar
//! that generated its sentences.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use python_free_examples::crf::{GRAMMAR, TAGS, WORDS, inspection, program, sentences};
use wengert::prelude::*;
use wengert::random::SplitMix64;

const LENGTH: usize = 5;
const KINDS: usize = 3;

fn near(found: &Literal, expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (i, (a, b)) in found.scalars().zip(expected).enumerate() {
        assert!((a.to_f64() - b).abs() <= 1e-12, "element {i}: {} instead of {b}", a.to_f64());
    }
}

/// Compares with all 243 paths, their scores, and their expectations.
#[test]
fn sums_over_paths_and_their_derivatives_are_those_of_enumeration() {
    let mut random = SplitMix64::new(7);
    let mut scores =
        |count: usize| -> Vec<f64> { (0..count).map(|_| random.unit_f64() * 4.0 - 2.0).collect() };
    let (start, places, transitions) =
        (scores(KINDS), scores(LENGTH * KINDS), scores(KINDS * KINDS));

    let ways: Vec<Vec<usize>> = (0..KINDS.pow(LENGTH as u32))
        .map(|number| (0..LENGTH).map(|t| number / KINDS.pow(t as u32) % KINDS).collect())
        .collect();
    let score = |way: &[usize]| {
        start[way[0]]
            + way.iter().enumerate().map(|(t, k)| places[t * KINDS + k]).sum::<f64>()
            + way.windows(2).map(|w| transitions[w[0] * KINDS + w[1]]).sum::<f64>()
    };
    let z: f64 = ways.iter().map(|way| score(way).exp()).sum();
    let expectation = |f: &dyn Fn(&[usize]) -> f64| -> f64 {
        ways.iter().map(|way| score(way).exp() / z * f(way)).sum()
    };
    let at = |i: usize| move |way: &[usize]| f64::from(u8::from(way[i / KINDS] == i % KINDS));
    let marginals: Vec<f64> = (0..LENGTH * KINDS).map(|i| expectation(&at(i))).collect();
    let pairs: Vec<f64> = (0..KINDS * KINDS)
        .map(|i| {
            expectation(&|way| way.windows(2).filter(|w| w[0] * KINDS + w[1] == i).count() as f64)
        })
        .collect();
    let covariances: Vec<f64> = (0..marginals.len() * marginals.len())
        .map(|n| {
            let (i, j) = (n / marginals.len(), n % marginals.len());
            expectation(&|way| at(i)(way) * at(j)(way)) - marginals[i] * marginals[j]
        })
        .collect();
    let best = ways.iter().max_by(|a, b| score(a).total_cmp(&score(b))).unwrap();

    let program = inspection(LENGTH, KINDS).unwrap();
    let mut session = Session::open(Device::Cpu).unwrap();
    let found = session.compile(&program, "inspect", bind!()).unwrap().run(&[
        ("start", Literal::from_vec(&[KINDS], start.clone()).unwrap()),
        ("places", Literal::from_vec(&[LENGTH, KINDS], places.clone()).unwrap()),
        ("transitions", Literal::from_vec(&[KINDS, KINDS], transitions.clone()).unwrap()),
    ]);
    let found = found.unwrap();
    near(found.get("log_partition").unwrap(), &[z.ln()]);
    near(found.get("marginals").unwrap(), &marginals);
    near(found.get("transitions").unwrap(), &pairs);
    near(found.get("covariances").unwrap(), &covariances);
    near(found.get("best_score").unwrap(), &[score(best)]);
    near(found.get("best").unwrap(), &best.iter().map(|k| *k as f64).collect::<Vec<_>>());
}

/// The most probable tags under the grammar itself, which give the best possible accuracy. This is
/// the textbook form of Viterbi's algorithm.
fn most_probable(words: &[usize]) -> Vec<usize> {
    let emission = |word: usize, tag: usize| {
        let count = WORDS.iter().filter(|w| w.1.contains(TAGS[tag])).count();
        if WORDS[word].1.contains(TAGS[tag]) { 1.0 / count as f64 } else { 0.0 }
    };
    let mut best: Vec<(f64, Vec<usize>)> =
        (0..TAGS.len()).map(|k| (GRAMMAR.0[k] * emission(words[0], k), vec![k])).collect();
    for word in &words[1..] {
        best = (0..TAGS.len())
            .map(|k| {
                let from = |j: usize| best[j].0 * GRAMMAR.1[j][k];
                let before = (0..TAGS.len()).max_by(|a, b| from(*a).total_cmp(&from(*b))).unwrap();
                (from(before) * emission(*word, k), [&best[before].1[..], &[k]].concat())
            })
            .collect();
    }
    best.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).unwrap().1
}

#[test]
fn it_learns_to_tag_as_well_as_the_grammar_itself() {
    let program = program().unwrap();
    let mut session = Session::open(Device::Cpu).unwrap();
    session.initialize(&program, 0).unwrap();
    let (words, tags) = sentences(512, 12, 1).unwrap();
    let mut step = session.compile(&program, "train_step", bind!(B = 512, T = 12)).unwrap();
    let losses: Vec<f64> = (0..100)
        .map(|_| step.run(&[("words", &words), ("tags", &tags)]).unwrap().scalar("loss").unwrap())
        .collect();
    // Before training each of 4 tags has the same probability.
    assert!((losses[0] - 12.0 * 4f64.ln()).abs() < 1e-4, "{}", losses[0]);

    let (words, tags) = sentences(500, 12, 2).unwrap();
    let found = session.compile(&program, "tag", bind!(B = 500, T = 12)).unwrap();
    let found = { found }.run(&[("words", &words)]).unwrap();
    let accuracy = |found: &[usize]| {
        let right =
            found.iter().zip(tags.scalars()).filter(|(a, b)| **a == b.to_f64() as usize).count();
        right as f64 / tags.len() as f64
    };
    let numbers =
        |l: &Literal| -> Vec<usize> { l.scalars().map(|s| s.to_f64() as usize).collect() };
    let learnt = accuracy(&numbers(found.get("tags").unwrap()));
    let best = accuracy(&numbers(&words).chunks(12).flat_map(most_probable).collect::<Vec<_>>());
    println!("loss {} to {}, learnt {learnt}, grammar {best}", losses[0], losses[99]);
    assert!(best < 0.99, "there is something to be wrong about: {best}");
    assert!(learnt > best - 0.01, "{learnt}, of {best}");
    // Tagging each word by itself is far less accurate.
    let mut counts = vec![[0; TAGS.len()]; WORDS.len()];
    let (words, tags) = (numbers(&words), numbers(&tags));
    words.iter().zip(&tags).for_each(|(w, k)| counts[*w][*k] += 1);
    let likeliest = |w: &usize| (0..TAGS.len()).max_by_key(|k| counts[*w][*k]).unwrap();
    let alone = accuracy(&words.iter().map(likeliest).collect::<Vec<_>>());
    assert!(alone < best - 0.1, "{alone}, of {best}");

    let marginals = found.get("marginals").unwrap();
    let sums: Vec<f64> = marginals.scalars().map(|s| s.to_f64()).collect();
    assert!(sums.chunks(TAGS.len()).all(|p| (p.iter().sum::<f64>() - 1.0).abs() < 1e-4));
}
