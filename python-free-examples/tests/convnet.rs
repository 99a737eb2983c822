//! The convolutional network of the example, at a size that trains within seconds.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use python_free_examples::convnet::{Settings, TEST, mnist, moved, program, recipe};
use wengert::models::ConvnetSettings;
use wengert::prelude::*;
use wengert::train::{Options, train};

#[test]
fn it_learns_to_read() {
    let network =
        ConvnetSettings { features: [4, 8], width: 32, dropout: 0.1, ..ConvnetSettings::MNIST };
    let settings = Settings {
        network,
        batch: 20,
        shift: 1,
        rate: 1e-2,
        steps: 120,
        evaluate: 1000,
        ..Settings::default()
    };
    let (program, recipe) = (program(&settings).unwrap(), recipe(&settings));
    let mut session = Session::open(Device::Cpu).unwrap();
    let data = mnist().unwrap();
    let report =
        train(&mut session, &program, &recipe, &data, Options::default(), &mut |_| {}).unwrap();
    let accuracy = report.metrics.iter().find(|(name, _)| name == "accuracy").unwrap().1;
    assert!(accuracy > 0.8, "{:?}", report.metrics);
}

#[test]
fn there_are_as_many_of_each_digit_and_none_is_learnt_and_tested() {
    let data = mnist().unwrap();
    assert_eq!(data["train_images"].shape(), [4000, 784]);
    assert_eq!(data["test_images"].shape(), [TEST, 784]);
    let mut counts = [0; 10];
    for name in ["train_labels", "test_labels"] {
        data[name]
            .as_slice::<u8>()
            .unwrap()
            .iter()
            .for_each(|label| counts[usize::from(*label)] += 1);
    }
    assert_eq!(counts, [500; 10]);
    let images = |name: &str| data[name].as_slice::<u8>().unwrap().chunks(784);
    let tested: std::collections::BTreeSet<&[u8]> = images("test_images").collect();
    assert!(images("train_images").all(|image| !tested.contains(image)));
}

#[test]
fn images_are_moved_each_by_its_own_pixels() {
    let mut program = Program::new();
    program
        .function("move", |f| {
            let (x, key) = (f.input("x", f32("B,5,5,1")), f.key("key"));
            f.output("y", moved(&x, 2, &key));
        })
        .unwrap();
    let mut session = Session::open(Device::Cpu).unwrap();
    let mut moves = session.compile(&program, "move", bind!(B = 200)).unwrap();
    // One pixel in the middle.
    let image: Vec<f32> = (0..25).map(|n| if n == 12 { 1.0 } else { 0.0 }).collect();
    let x = Literal::from_vec(&[200, 5, 5, 1], image.repeat(200)).unwrap();
    let key = Literal::from_vec(&[2], vec![3u32, 4]).unwrap();
    let run = moves.run(&[("x", x), ("key", key)]).unwrap();
    let mut seen = [0; 25];
    for image in run.get("y").unwrap().as_slice::<f32>().unwrap().chunks(25) {
        assert_eq!(image.iter().sum::<f32>(), 1.0);
        seen[image.iter().position(|pixel| *pixel == 1.0).unwrap()] += 1;
    }
    // 200 images over 25 positions. Every position occurs.
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}
