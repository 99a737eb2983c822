//! All filetests pass without changes. Nothing is written.

use graphrun::cli::Cli;
use graphrun::{Console, Status};
use std::path::Path;

#[test]
fn filetests() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [here.join("tests/filetests"), here.join("../core/tests/graph")];
    let folders = folders.iter().map(|f| f.to_str().unwrap());
    let cli = <Cli as clap::Parser>::parse_from(["graphrun", "test"].into_iter().chain(folders));
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let status = graphrun::run(&cli, &mut Console::new(&mut out, &mut err));
    let (out, err) = (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap());
    assert_eq!(status, Status::Good, "{out}{err}");
    let cases: usize =
        out.rsplit(" files, ").next().unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(cases > 100, "{out}");
}
