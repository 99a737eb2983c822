//! A disk that becomes full, at many points of a write.

use super::{Workplace, count, tally};
use std::fs;
use std::process::Command;

/// Runs a command that replaces a file on a file system of `kib` KiB. Afterwards the file must hold
/// all of the old contents or all of the new ones, and the run must report which.
fn case(kib: usize, output: &str, arguments: &[&str]) -> Result<(), String> {
    let place = Workplace::new();
    // A file system in memory, visible to this process only.
    let script = format!(
        "mkdir disk && mount -t tmpfs -o size={kib}k tmpfs disk && \
         printf old > disk/{output} || exit 99\n\
         \"$@\"; status=$?\n\
         ls -a disk | grep partial >&2; cat disk/{output} > found; exit $status"
    );
    let ran = Command::new("unshare")
        .args(["-m", "sh", "-c", &script, "sh", env!("CARGO_BIN_EXE_graphrun")])
        .args(arguments)
        .current_dir(place.folder.path())
        .output()
        .map_err(|error| error.to_string())?;
    let ran = super::Ran::of(ran);
    let found = fs::read(place.path("found")).map_err(|error| error.to_string())?;
    match ran.status {
        Some(0) if ran.err.is_empty() && found != b"old" => Ok(()),
        Some(0) => Err(format!("{kib} KiB: nothing was written, and all is well: {ran:?}")),
        _ if found == b"old" => ran
            .has_failed(2, &["cannot write", "No space left", output])
            .map_err(|error| format!("{kib} KiB: {error}")),
        _ => Err(format!("{kib} KiB: the old file is lost: {ran:?}")),
    }
}

/// Whether this user may mount a file system of its own.
fn may_mount() -> bool {
    let probe =
        Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]).output();
    probe.is_ok_and(|probe| probe.status.success())
}

#[test]
fn a_full_disk_costs_nothing() {
    let run = ["run", "f.ir@double", "--input", "x=zeros", "--bind", "N=100000"];
    let kinds = ["y.npy", "y.npz", "y.safetensors", "y.csv"];
    let cases = count(6);
    if !may_mount() {
        // Without permission to mount, a limit on the size of files takes the place of the disk.
        // The signal of that limit is ignored.
        tally("full disk", (0..cases).map(|n| limited(n, kinds[n % 4], &run)));
        return;
    }
    // 400 KB of numbers, on disks from one page to more than enough.
    let kib = |n: usize| 4 + n * 600 / cases;
    let output = |n: usize| format!("y=disk/{}", kinds[n % 4]);
    tally(
        "full disk",
        (0..cases)
            .map(|n| case(kib(n), kinds[n % 4], &[&run[..], &["--output", &output(n)]].concat())),
    );
}

fn limited(n: usize, output: &str, run: &[&str]) -> Result<(), String> {
    let place = Workplace::new();
    fs::write(place.path(output), b"old").unwrap();
    let argument = format!("y={output}");
    let blocks = 1 + n * 40;
    let prepare = format!("trap '' XFSZ; ulimit -f {blocks}");
    let ran = place.prepared(&prepare, &[run, &["--output", &argument]].concat());
    let found = fs::read(place.path(output)).unwrap();
    match ran.status {
        Some(0) if found != b"old" => Ok(()),
        Some(2) if found == b"old" && place.is_tidy() => {
            ran.has_failed(2, &["cannot write", "File too large"])
        }
        _ => Err(format!("{blocks} blocks: {ran:?}")),
    }
}
