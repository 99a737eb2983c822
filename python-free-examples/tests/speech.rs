//! Recognition of vowels that training has not heard, and the measures of errors by hand.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use python_free_examples::speech::{
    BANDS, FRAMES, LABELS, Utterance, batch, edits, error_rate, program, spelled, utterance,
};
use wengert::prelude::*;
use wengert::random::SplitMix64;

fn utterances(count: usize, random: &mut SplitMix64) -> Vec<Utterance> {
    (0..count).map(|_| utterance(random)).collect()
}

#[test]
fn it_learns_vowels_without_alignments() {
    let program = program(24).unwrap();
    let mut session = Session::open(Device::Cpu).unwrap();
    session.initialize(&program, 1).unwrap();
    let mut random = SplitMix64::new(1);
    let mut train_step = session.compile(&program, "train_step", bind!(B = 24)).unwrap();
    let test = utterances(100, &mut SplitMix64::new(2));
    let [frames, ..] = batch(&test).unwrap();
    let mut recognize = session.compile(&program, "recognize", bind!(B = 100)).unwrap();
    let mut error = || {
        let found = recognize.run(std::slice::from_ref(&frames)).unwrap();
        error_rate(found.get("classes").unwrap(), &test)
    };
    let before = error();
    for _ in 0..150 {
        let utterances = utterances(24, &mut random);
        let outputs = train_step.run(&batch(&utterances).unwrap()).unwrap();
        assert!(outputs.scalar("loss").unwrap().is_finite());
    }
    let after = error();
    println!("label error rate {before:.3}, then {after:.3}");
    assert!(before > 0.8 && after < 0.1, "{before}, {after}");
}

#[test]
fn utterances_fit_their_batch() {
    let utterances = utterances(500, &mut SplitMix64::new(3));
    let longest = utterances.iter().map(|u| u.frames.len()).max();
    assert!(longest > Some(FRAMES / 2) && longest <= Some(FRAMES), "{longest:?}");
    assert_eq!(utterances.iter().map(|u| u.labels.len()).max(), Some(LABELS));
    let [(_, frames), (_, counts), (_, labels), _] = batch(&utterances).unwrap();
    let (n, t) = (17, utterances[17].frames.len() - 1);
    assert_eq!(counts.get(n).to_f64() as usize, t + 1);
    assert_eq!(frames.get((t * 500 + n) * BANDS + 3).to_f64() as f32, utterances[n].frames[t][3]);
    assert_eq!(labels.get(n * LABELS + 1).to_f64() as i32, utterances[n].labels[1]);
}

#[test]
fn paths_spell_labels_and_edits_count_errors() {
    let said = |labels: &[i32]| Utterance { frames: vec![[0.0; BANDS]; 6], labels: labels.into() };
    let utterances = [said(&[1, 1, 2]), said(&[3])];
    // The path of each utterance is a column.
    let path = vec![1, 3, 1, 3, 0, 3, 1, 0, 2, 3, 0, 0, 5, 5];
    let classes = Literal::from_vec(&[7, 2], path).unwrap();
    // Frame 7 is after the end of both.
    assert_eq!(spelled(&classes, &utterances), [vec![1, 1, 2], vec![3, 3]]);
    assert_eq!(error_rate(&classes, &utterances), 1.0 / 4.0);
    for (found, expected, count) in
        [(&[1, 2, 3][..], &[1, 3][..], 1), (&[], &[4, 5], 2), (&[1, 2], &[2, 1], 2)]
    {
        assert_eq!(edits(found, expected), count);
    }
}
