//! The autoencoder's bound against the likelihood of independent pixels, and its images.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use python_free_examples::vae::{PIXELS, evidence, images, picture, program, rows, train};
use wengert::prelude::*;
use wengert::random::key;

fn pixels(images: &Literal) -> Vec<Vec<f64>> {
    let all: Vec<f64> = images.scalars().map(|pixel| pixel.to_f64()).collect();
    all.chunks(PIXELS).map(<[f64]>::to_vec).collect()
}

/// −ln p of test images in nats, if each pixel is on with the frequency of training, whatever the
/// others are.
fn independent(train: &Literal, test: &Literal) -> f64 {
    let train = pixels(train);
    let frequency = |pixel: usize| {
        let sum: f64 = train.iter().map(|image| image[pixel]).sum();
        (sum / train.len() as f64).clamp(1e-3, 1.0 - 1e-3)
    };
    let frequencies: Vec<f64> = (0..PIXELS).map(frequency).collect();
    let test = pixels(test);
    let nats = |image: &Vec<f64>| -> f64 {
        let each = image.iter().zip(&frequencies);
        each.map(|(x, p)| -x * p.ln() - (1.0 - x) * (1.0 - p).ln()).sum()
    };
    test.iter().map(nats).sum::<f64>() / test.len() as f64
}

#[test]
fn codes_tell_more_than_frequencies_of_pixels() {
    let program = program(64, 8).unwrap();
    let mut session = Session::open(Device::Cpu).unwrap();
    session.initialize(&program, 1).unwrap();
    let [images, test] = images().unwrap();
    let bound = |session: &mut Session| {
        let (reconstruction, divergence) = evidence(session, &program, &test).unwrap();
        assert!(divergence >= 0.0);
        reconstruction + divergence
    };
    let before = bound(&mut session);
    train(&mut session, &program, &images, 1000, &mut |_, loss| assert!(loss.is_finite())).unwrap();
    let after = bound(&mut session);
    let independent = independent(&images, &test);
    println!("{before:.3} nats, then {after:.3}; {independent:.3} for independent pixels");
    assert!(before > independent);
    assert!(after < 0.93 * independent);

    // The images of different keys differ, and the images of one key do not.
    let mut generate = session.compile(&program, "generate", bind!(B = 4)).unwrap();
    let mut drawn = |number: u64| {
        let outputs = generate.run(&[("key", key(1, number))]).unwrap();
        outputs.get("images").unwrap().clone()
    };
    let (first, second) = (drawn(0), drawn(1));
    assert_eq!(first, drawn(0));
    assert_ne!(first, second);
    assert!(first.scalars().all(|pixel| (0.0..=1.0).contains(&pixel.to_f64())));

    // An image is nearer to its own reconstruction than the mean of all reconstructions is.
    let chosen = rows(&test, &(0..100).collect::<Vec<_>>()).unwrap();
    let mut reconstruct = session.compile(&program, "reconstruct", bind!(B = 100)).unwrap();
    let found = reconstruct.run(&[("x", &chosen)]).unwrap().get("images").unwrap().clone();
    let (chosen, found) = (pixels(&chosen), pixels(&found));
    let distance =
        |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum() };
    let nearest = |image: &Vec<f64>| {
        (0..found.len())
            .min_by(|a, b| distance(image, &found[*a]).total_cmp(&distance(image, &found[*b])))
    };
    let own = chosen.iter().enumerate().filter(|(n, image)| nearest(image) == Some(*n)).count();
    assert!(own >= 50, "{own} of 100 images are nearest to their own reconstruction");
}

#[test]
fn pictures_show_rows_of_pixels() {
    let mut pixels = vec![0.0f32; 2 * PIXELS];
    (pixels[0], pixels[8 + 7], pixels[PIXELS]) = (1.0, 0.5, 0.25);
    let text = picture(&Literal::from_vec(&[2, PIXELS], pixels).unwrap());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 8);
    assert_eq!(lines[0], "#         .         ");
    assert_eq!(lines[1], "       :            ");
}
