//! Random operations between 1 to 4 ranks, threads and processes, whose every byte is compared.

use crate::command::run;

fn right(how: &str, options: &str) {
    for ranks in 1..=4 {
        for seed in 0..2 {
            let seed = 10 * ranks + seed;
            let output = run(&format!("{options} {how} {ranks} suite 8 {seed}"));
            assert!(output.status.success(), "{}", output.stderr);
            let begin = format!("{ranks} ranks by shared memory, seed {seed}: ");
            assert!(output.stdout.starts_with(&begin), "{}", output.stdout);
            assert!(output.stdout.ends_with(" bytes are right\n"), "{}", output.stdout);
            assert_eq!(output.stderr, "");
        }
    }
}

#[test]
fn threads_exchange_the_right_bytes() {
    right("threads", "--check");
}

#[test]
fn processes_exchange_the_right_bytes() {
    right("launch", "--check");
}

#[test]
fn processes_exchange_the_right_bytes_without_comparison() {
    right("launch", "--no-check");
}

#[test]
fn ranks_with_other_seeds_are_found_by_the_handshake() {
    // The suite compares a hash of its seed; `fault hashes` lets one rank differ.
    let output = run("threads 4 fault hashes 2");
    assert_eq!(output.status.code(), Some(1));
    for rank in 0..4 {
        let wanted = format!(
            "error: rank {rank}, comparison of hashes in `world`: the ranks differ in `plan`: \
             0404040404040404… on ranks 0, 1 and 3, 0303030303030303… on rank 2\nhelp: "
        );
        assert!(output.stderr.contains(&wanted), "{}", output.stderr);
    }
}

#[test]
fn figures_are_printed_for_two_ranks_only() {
    let output = run("threads 1 measure");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stderr, "error: measurements take 2 ranks, not 1\n");
}

#[test]
fn wrong_arguments_print_the_usage() {
    for wrong in ["", "launch", "launch x suite 1 1", "suite 1", "suite 1 1 1", "fly 1"] {
        let output = run(wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong}");
        assert!(output.stderr.starts_with("usage: transport-check "), "{}", output.stderr);
    }
}
