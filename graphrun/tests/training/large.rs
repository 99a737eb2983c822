//! Training on data that are larger than the memory of the trainer, from .npy files, from Parquet
//! and from images. The trainer's resident memory has a limit, its steps do not wait for data, and
//! it may be killed within an epoch.
//!
//! `WENGERT_STREAM_BYTES` is the size of the data (`ci/deep/streaming`), a few megabytes on every
//! change. `WENGERT_STREAM_KILLS` is the number of kills. Whether steps wait is looked at only
//! where both are set: a small run is over before its threads have begun.

use crate::place::{Place, Ran};
use ::parquet::basic::Compression;
use ::parquet::data_type::FloatType;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::parser::parse_message_type;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wengert::models::Mlp;
use wengert::prelude::*;
use wengert::random::SplitMix64;
use wengert::recipe::{
    Batches, Blocks, Cadence, InputRecipe, LastBatch, Length, Recipe, StepRecipe,
};
use wengert::{GraphFile, Weights};

/// Resident memory of a trainer, at most.
const MOST_RESIDENT: u64 = 1 << 30;
/// Share of the time in which steps may wait for data.
const MOST_WAITED: f64 = 0.02;
/// Numbers of an example.
const WIDTH: usize = 768;
/// Height and width of an image.
const SIDE: u32 = 64;

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is `{text}`, which is no number")))
}

/// A program with two layers, and its recipe: one epoch and a quarter of the next.
fn write_program(
    place: &Place,
    (array, shape): (&str, &str),
    (transforms, hidden): (&[&str], usize),
    (examples, blocks): (usize, Option<Blocks>),
) {
    const BATCH: u64 = 64;
    let width = if shape.contains(',') { (SIDE * SIDE * 3) as usize } else { WIDTH };
    let ty = format!("B,{shape}");
    let mut program = Program::new();
    program
        .function("step", |f| {
            let (x, y) = (f.input("x", f32(&ty)), f.input("y", f32("B")));
            let model = f.state("model", Mlp::new(&[width, hidden, 1], Activation::Relu));
            let x = x.reshape([-1, width as i64]);
            let (loss, gradient) = value_and_grad(&model, |model: &Mlp| {
                (model.call(&x).flatten(0) - &y).square().mean()
            });
            Sgd::new(1e-5).step(f, &model, &gradient);
            f.output("loss", loss);
        })
        .unwrap();
    let x = InputRecipe::new("x", array);
    let x = transforms.iter().fold(x, |x, text| x.then(text.parse().unwrap()));
    let y = InputRecipe::new("y", "label").then("convert f32".parse().unwrap());
    let epoch = examples as u64 / BATCH;
    let recipe = Recipe {
        init: Some("init".into()),
        step: StepRecipe { function: "step".into(), inputs: vec![x, y], loss: "loss".into() },
        evaluate: None,
        batches: Batches { size: BATCH, shuffle: Some(1), blocks, last: LastBatch::Drop },
        length: Length::Steps(epoch + epoch / 4),
        checkpoint: Cadence::Steps((epoch / 60).max(3)),
        key_seed: 4,
        monitoring: wengert::recipe::Monitoring::default(),
        microbatches: 1,
        precision: None,
    };
    let program = program.into_inner();
    let file = GraphFile { program, recipe: Some(recipe), weights: Weights::None };
    file.write(place.path("large.graph")).unwrap();
}

/// An example: bytes that no code compresses.
fn fill(stream: &mut SplitMix64, bytes: &mut [u8]) {
    for part in bytes.chunks_mut(8) {
        let word = stream.next_u64().to_le_bytes();
        part.copy_from_slice(&word[..part.len()]);
    }
}

fn npy_header(descr: &str, shape: &str) -> Vec<u8> {
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    let length = (10 + text.len() + 1).next_multiple_of(64) - 10;
    text.extend(std::iter::repeat_n(' ', length - text.len() - 1));
    text.push('\n');
    [b"\x93NUMPY\x01\x00", &(length as u16).to_le_bytes()[..], text.as_bytes()].concat()
}

/// `rows/bytes.npy`, `rows/label.npy`: so many examples of [`WIDTH`] bytes.
fn write_npy(place: &Place, examples: usize) {
    std::fs::create_dir(place.path("rows")).unwrap();
    let create = |name: &str| BufWriter::new(File::create(place.path(name)).unwrap());
    let (mut x, mut y) = (create("rows/bytes.npy"), create("rows/label.npy"));
    x.write_all(&npy_header("|u1", &format!("{examples}, {WIDTH}"))).unwrap();
    y.write_all(&npy_header("|u1", &format!("{examples},"))).unwrap();
    let (mut stream, mut bytes) = (SplitMix64::new(1), vec![0; WIDTH]);
    for _ in 0..examples {
        fill(&mut stream, &mut bytes);
        x.write_all(&bytes).unwrap();
        y.write_all(&[bytes[0] & 1]).unwrap();
    }
    x.flush().unwrap();
    y.flush().unwrap();
}

/// `rows.parquet`: so many examples of [`WIDTH`] numbers, in row groups of `group` rows.
fn write_parquet(place: &Place, examples: usize, group: usize) {
    const SCHEMA: &str = "message schema {
        REQUIRED FLOAT label;
        REQUIRED GROUP numbers (LIST) { REPEATED GROUP list { REQUIRED FLOAT element; } }
    }";
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_compression(Compression::SNAPPY)
        .set_statistics_enabled(::parquet::file::properties::EnabledStatistics::None);
    let mut writer = SerializedFileWriter::new(
        File::create(place.path("rows.parquet")).unwrap(),
        Arc::new(parse_message_type(SCHEMA).unwrap()),
        Arc::new(properties.build()),
    )
    .unwrap();
    let mut stream = SplitMix64::new(2);
    let defined = vec![1i16; WIDTH];
    let repeated: Vec<i16> = (0..WIDTH).map(|at| i16::from(at > 0)).collect();
    for from in (0..examples).step_by(group) {
        let rows = group.min(examples - from);
        let mut one = |_: usize| (stream.next_u64() >> 40) as f32 / (1 << 24) as f32;
        let numbers: Vec<Vec<f32>> =
            (0..rows).map(|_| (0..WIDTH).map(&mut one).collect()).collect();
        let labels: Vec<f32> = numbers.iter().map(|row| f32::from(row[0] > 0.5)).collect();
        let mut out = writer.next_row_group().unwrap();
        let mut column = out.next_column().unwrap().unwrap();
        column.typed::<FloatType>().write_batch(&labels, None, None).unwrap();
        column.close().unwrap();
        let mut column = out.next_column().unwrap().unwrap();
        for row in &numbers {
            let typed = column.typed::<FloatType>();
            typed.write_batch(row, Some(&defined), Some(&repeated)).unwrap();
        }
        column.close().unwrap();
        out.close().unwrap();
    }
    writer.close().unwrap();
}

/// `photos/CLASS/NUMBER.png`: so many images of random pixels in two classes.
fn write_images(place: &Place, examples: usize) {
    let (mut stream, mut pixels) = (SplitMix64::new(3), vec![0; (SIDE * SIDE * 3) as usize]);
    for class in ["a", "b"] {
        std::fs::create_dir_all(place.path("photos").join(class)).unwrap();
    }
    for number in 0..examples {
        fill(&mut stream, &mut pixels);
        let path = place.path(&format!("photos/{}/{number:07}.png", ["a", "b"][number % 2]));
        let mut encoder =
            png::Encoder::new(BufWriter::new(File::create(path).unwrap()), SIDE, SIDE);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_compression(png::Compression::Fastest);
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(&pixels).unwrap();
        writer.finish().unwrap();
    }
}

/// The highest resident memory of a process that runs.
fn resident(child: &Child) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? << 10)
}

/// Waits for a trainer, and kills it after a while. Gives the result of one that ended, and its
/// highest resident memory.
fn watch(mut child: Child, kill_after: Option<Duration>) -> (Option<Ran>, u64) {
    let (began, mut most) = (Instant::now(), 0);
    loop {
        most = most.max(resident(&child).unwrap_or(0));
        if child.try_wait().unwrap().is_some() {
            return (Some(Ran::of(child.wait_with_output().unwrap())), most);
        }
        if kill_after.is_some_and(|after| began.elapsed() >= after) {
            // It may have ended by now, which its status tells.
            let _ = child.kill();
            let ran = Ran::of(child.wait_with_output().unwrap());
            return (ran.status.map(|_| ran), most);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sums of the log's times: the time that steps waited, and all of their time.
fn times(folder: &Path) -> (f64, f64) {
    let log = std::fs::read_to_string(folder.join("log.jsonl")).unwrap();
    let lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines.filter(|line| line.get("loss").is_some()).fold((0.0, 0.0), |(waited, all), line| {
        let of = |name: &str| line[name].as_f64().unwrap();
        (waited + of("waited_seconds"), all + of("seconds"))
    })
}

/// Trains on `data` at once, and again with kills, and compares.
fn train(place: &Place, data: &str) {
    let kills = setting("WENGERT_STREAM_KILLS").unwrap_or(3);
    let start = |folder: &str, rest: &[&str]| {
        let fixed = ["train", "large.graph", "--data", data, "--stream", "--out", folder];
        place.command(&[&fixed[..], rest].concat()).spawn().unwrap()
    };
    let began = Instant::now();
    let (ran, mut most) = watch(start("whole", &[]), None);
    ran.unwrap().good();
    let length = began.elapsed();
    let (waited, all) = times(&place.path("whole"));
    let share = waited / all;
    println!(
        "{data}: {all:.1} s in steps, {:.2} % of it waiting; {:.0} s in all",
        100.0 * share,
        length.as_secs_f64()
    );

    let mut stream = SplitMix64::new(u64::from(std::process::id()));
    let mut killed = 0;
    let mut passed = 0;
    let mut failures = Vec::new();
    loop {
        let begun = !place.checkpoints("parts").is_empty();
        let after = (killed < kills).then(|| {
            // A run is over after about as many kills, and many hit it within its first epoch.
            let most = 2 * length.as_micros() as u64 / (kills + 1);
            Duration::from_micros(stream.below(most))
        });
        let rest: &[&str] = if begun { &["--resume"] } else { &[] };
        let (ran, resident) = watch(start("parts", rest), after);
        most = most.max(resident);
        match ran {
            // Killed.
            None => {
                killed += 1;
                passed += 1;
            }
            Some(ran) if ran.status == Some(0) => {
                let same = place.contents("parts") == place.contents("whole");
                if !same {
                    failures.push(format!("{data}: other bits after {killed} kills"));
                }
                passed += u64::from(same);
                std::fs::remove_dir_all(place.path("parts")).unwrap();
                if killed >= kills {
                    break;
                }
            }
            Some(ran) => {
                failures.push(format!("{data}: {ran:?}"));
                break;
            }
        }
    }
    println!("{data}: {killed} kills; {} MiB resident at most", most >> 20);
    if most > MOST_RESIDENT {
        failures.push(format!("{data}: {} MiB were resident", most >> 20));
    }
    let is_large = setting("WENGERT_STREAM_BYTES").is_some();
    if is_large && share > MOST_WAITED {
        failures.push(format!("{data}: steps waited {:.2} % of their time", 100.0 * share));
    }
    println!("{data}: {passed} passed, {} failed", failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Number of examples of so many bytes each.
fn examples(bytes: usize) -> usize {
    setting("WENGERT_STREAM_BYTES").unwrap_or(3 << 20) as usize / bytes
}

/// Blocks of about 3 MiB, or smaller ones of small data.
fn blocks(examples: usize, bytes: usize) -> Option<Blocks> {
    Some(Blocks { rows: ((3 << 20) / bytes).min(examples / 20) as u64, window: 8 })
}

#[test]
fn npy_files_larger_than_memory() {
    let (place, examples) = (Place::new(), examples(WIDTH));
    write_npy(&place, examples);
    let transforms = ["convert f32", "scale f32 0.0078125", "offset f32 -1.0"];
    let blocks = blocks(examples, WIDTH);
    write_program(&place, ("bytes", "768"), (&transforms, 512), (examples, blocks));
    train(&place, "rows");
}

#[test]
fn parquet_files_larger_than_memory() {
    let (place, examples) = (Place::new(), examples(WIDTH * 4));
    let blocks = blocks(examples, WIDTH * 4);
    write_parquet(&place, examples, blocks.map_or(1, |blocks| blocks.rows as usize));
    write_program(&place, ("numbers", "768"), (&["offset f32 -0.5"], 512), (examples, blocks));
    train(&place, "rows.parquet");
}

#[test]
fn images_larger_than_memory() {
    // Many small files take long to write: a twelfth of the other data.
    let bytes = (SIDE * SIDE * 3) as usize;
    let place = Place::new();
    let examples = (examples(bytes) / 12).max(200);
    write_images(&place, examples);
    let transforms = ["flip 2", "convert f32", "normalize 3 f32 128.0,128.0,128.0 64.0,64.0,64.0"];
    write_program(&place, ("image", "64,64,3"), (&transforms, 512), (examples, None));
    train(&place, "photos");
}
