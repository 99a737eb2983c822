//! Compressed files that inflate to far more than their own size.

use super::Workplace;
use std::fs;
use std::io::Write;
use wengert::{Literal, data};

/// A gzipped table of `mebibytes` MiB of zeros. The file has a thousandth of that size.
fn bomb(mebibytes: usize) -> Vec<u8> {
    let mut member = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    member.write_all(&b"0,0,0,0\n".repeat(1 << 17)).unwrap();
    member.finish().unwrap().repeat(mebibytes)
}

#[test]
fn bombs_end_early_and_name_the_option() {
    let place = Workplace::new();
    // 2 MB that inflate to 2 GB. No honest table of that size inflates to as much.
    let bytes = bomb(2000);
    assert!(bytes.len() < 4 << 20, "{}", bytes.len());
    fs::write(place.path("bomb.csv.gz"), bytes).unwrap();
    let says = ["bomb.csv.gz", "would inflate to more than", "--max-decompressed"];
    // The address space is limited to 1.5 GB, including the program.
    let run = ["run", "f.ir@double", "--device", "interpreter", "--input", "x=@bomb.csv.gz"];
    place.prepared("ulimit -v 1500000", &run).failed(2, &says);
    // The option lowers the limit in every command.
    for command in [
        &run[..],
        &["run", "f.ir@double", "--input", "x=zeros", "--bind", "N=1", "--expect", "y=bomb.csv.gz"],
        &["check", "f.ir@double", "--input", "x=@bomb.csv.gz"],
        &["memory", "bomb.csv.gz", "--minimize"],
        &["memory", "f.ir@double", "--frontier", "--measure", "1", "--input", "x=@bomb.csv.gz"],
    ] {
        place.graphrun(&[command, &["--max-decompressed", "1MiB"]].concat()).failed(2, &says);
    }
    // All commands that read data take the option. The entries of an archive count together.
    let x = Literal::from_vec(&[3], vec![0.0f32, 1.0, 2.0]).unwrap();
    data::write_all(place.path("d.npz"), [("x", &x), ("y", &x)]).unwrap();
    place
        .graphrun(&["run", "f.ir@double", "--input", "x=@d.npz[x]", "--max-decompressed", "200"])
        .good();
    for command in [
        &["run", "f.ir@double", "--input", "x=zeros", "--params", "d.npz", "--bind", "N=1"][..],
        &["train", "t.graph", "--data", "d.npz", "--out", "run"],
    ] {
        super::paths::train_file(&place.path("t.graph"));
        place
            .graphrun(&[command, &["--max-decompressed", "200"]].concat())
            .failed(2, &["--max-decompressed", "d.npz"]);
    }
    // The option also raises the limit.
    fs::write(place.path("some.csv.gz"), bomb(2)).unwrap();
    let memory = |most: &str| {
        place.graphrun(&["memory", "some.csv.gz", "--minimize", "--max-decompressed", most])
    };
    memory("1MiB").failed(2, &["1048576 bytes"]);
    memory("2MiB").failed(2, &["`0` is no column"]);
}
