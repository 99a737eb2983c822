//! Faults of one rank: all processes end, and errors name the rank and the operation.

use crate::command::{Output, eventually, joined, ranks_of, run, start};
use rustix::process::{Pid, Signal, kill_process};

/// Runs a fault in processes, which must end in failure.
fn fault(arguments: &str) -> Output {
    let output = run(arguments);
    assert!(!output.status.success(), "{}", output.stderr);
    output
}

/// The launcher's line.
fn line(output: &Output) -> &str {
    let lines = output.stderr.lines().rev();
    lines.into_iter().find(|l| l.contains("the other ranks were killed")).unwrap_or("")
}

#[test]
fn a_killed_rank_is_named_at_once() {
    // The timeout is far beyond the watchdog, so nothing but the death itself ends the run.
    for kind in ["kill", "kill-in-transfer"] {
        for (ranks, rank) in [(2, 0), (4, 2)] {
            let output = fault(&format!("--timeout 10000 launch {ranks} fault {kind} {rank}"));
            assert_eq!(output.status.code(), Some(137), "{}", output.stderr);
            let text = line(&output);
            assert!(text.starts_with(&format!("error: rank {rank} (process ")), "{text}");
            assert!(text.contains("was killed by signal 9 (SIGKILL)"), "{text}");
        }
    }
}

#[test]
fn the_other_ranks_name_a_killed_rank_by_themselves() {
    // Without the launcher's help: it is stopped before the rank is killed.
    let run = start("--timeout 10000 launch 3 fault wait 1", &[]);
    let launcher = run.process();
    let ranks = joined(launcher, 3);
    let send = |process: u32, signal| {
        let process = Pid::from_raw(process as i32).expect("a process");
        kill_process(process, signal).expect("a signal is sent");
    };
    send(launcher, Signal::STOP);
    send(ranks[2].1, Signal::KILL);
    // A process that has ended is a zombie until the launcher has waited for it. It has no
    // environment, so it is no longer found.
    eventually("the end of rank 0", || ranks_of(launcher).iter().all(|r| r.0 != 0).then_some(()));
    send(launcher, Signal::CONT);
    let output = run.end();
    let wanted = format!(
        "rank 2 (process {}) has ended without leaving the world\nhelp: see its output",
        ranks[2].1
    );
    assert!(output.stderr.contains(&wanted), "{}", output.stderr);
    assert!(output.stderr.contains("error: rank 0, collective 1 of `world`, barrier: "));
    assert!(line(&output).starts_with("error: rank 2 (process "), "{}", output.stderr);
}

#[test]
fn ranks_end_with_their_launcher_and_leave_nothing() {
    let run = start("--timeout 10000 launch 3 fault wait 1", &[]);
    let launcher = run.process();
    joined(launcher, 3);
    // Dropping it kills the launcher, which cannot kill its ranks then.
    drop(run);
    eventually("the end of the ranks", || ranks_of(launcher).is_empty().then_some(()));
    let left: Vec<String> = std::fs::read_dir("/dev/shm")
        .expect("shared memory")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.contains("wengert"))
        .collect();
    assert_eq!(left, [""; 0]);
}

#[test]
fn a_stopped_rank_is_found_by_the_timeout() {
    let output = fault("--timeout 3 launch 3 fault stop 1");
    let place = "collective 1 of `world`, barrier: this rank has waited for 3 s; the heartbeat \
                 has stopped of rank 1 (process ";
    assert!(output.stderr.contains(place), "{}", output.stderr);
    let text = line(&output);
    assert!(text.starts_with("error: rank 1 (process "), "{text}");
    assert!(text.contains("did not take part; rank "), "{text}");
}

#[test]
fn a_rank_that_is_late_is_named_with_the_operation() {
    let output = fault("--timeout 3 launch 2 fault late 1");
    let wanted = "error: rank 0, collective 1 of `world`, barrier: this rank has waited for 3 s \
                  for rank 1 (process ";
    assert!(output.stderr.contains(wanted), "{}", output.stderr);
    let output = fault("--timeout 1 threads 2 fault silent 1");
    let wanted = "error: rank 1, receive of 3 bytes from rank 0 with tag 9 in `world`: this rank \
                  has waited for 1 s for rank 0 (process ";
    assert!(output.stderr.contains(wanted), "{}", output.stderr);
}

#[test]
fn ends_of_all_kinds_are_told_apart() {
    let text = |arguments: &str| {
        let output = fault(&format!("--timeout 10000 launch 3 fault {arguments}"));
        (output.status.code(), line(&output).to_string(), output.stderr)
    };
    let (code, line, _) = text("term 1");
    assert_eq!(code, Some(143));
    assert!(line.contains("rank 1 (process ") && line.contains("ended by signal 15"), "{line}");
    let (code, line, _) = text("exit 2");
    assert_eq!(code, Some(5));
    assert!(line.contains("rank 2 (process ") && line.contains("exit status 5"), "{line}");
    let (code, line, stderr) = text("panic 0");
    assert_eq!(code, Some(101), "{stderr}");
    assert!(line.contains("rank 0 (process ") && line.contains("exit status 101"), "{line}");
    let (code, line, _) = text("abort 2");
    assert_eq!(code, Some(6));
    assert!(line.contains("rank 2 (process ") && line.contains("exit status 6"), "{line}");
}

#[test]
fn a_rank_that_leaves_or_panics_ends_the_waits_of_threads() {
    let output = fault("--timeout 10000 threads 3 fault leave 1");
    for rank in [0, 2] {
        let wanted = format!("rank {rank}, collective 1 of `world`, barrier: rank 1 (process ");
        assert!(output.stderr.contains(&wanted), "{}", output.stderr);
    }
    assert!(output.stderr.contains(") has left the world\nhelp: "), "{}", output.stderr);
    let output = fault("--timeout 10000 threads 3 fault panic 1");
    assert!(output.stderr.contains(") has panicked\nhelp: "), "{}", output.stderr);
}

#[test]
fn mismatched_collectives_name_both_calls() {
    for how in ["threads 3", "launch 3"] {
        let output = fault(&format!("--timeout 10000 --check {how} fault operation 1"));
        // The launcher kills the others after the first error; which rank is first is open.
        let calls = [
            "rank 0 calls barrier as collective 1 (0 bytes to rank 1, 0 bytes from it); rank 1 \
             calls all_gather as collective 1 (5 bytes to rank 0, 5 bytes from it)",
            "rank 2 calls barrier as collective 1 (0 bytes to rank 1, 0 bytes from it); rank 1 \
             calls all_gather as collective 1 (5 bytes to rank 2, 5 bytes from it)",
            "rank 1 calls all_gather as collective 1 (5 bytes to rank ",
        ];
        let found = calls.iter().filter(|call| output.stderr.contains(**call)).count();
        let wanted = if how == "threads 3" { 3 } else { 1 };
        assert!(found >= wanted, "{how}: {}", output.stderr);
    }
    let output = fault("--timeout 10000 --check threads 2 fault bytes 1");
    let wanted = "rank 0 calls all_gather as collective 1 (8 bytes to rank 1, 8 bytes from it); \
                  rank 1 calls all_gather as collective 1 (12 bytes to rank 0, 12 bytes from it)";
    assert!(output.stderr.contains(wanted), "{}", output.stderr);
    // Without the comparison, the lengths of the messages differ.
    let output = fault("--timeout 10000 --no-check threads 2 fault bytes 1");
    let wanted = "collective 1 of `world`, all_gather of 8 of 16 bytes: rank 0 expects 8 bytes \
                  from rank 1, its part has 12";
    assert!(output.stderr.contains(wanted), "{}", output.stderr);
}

#[test]
fn a_message_of_another_length_is_named() {
    let output = fault("--timeout 10000 launch 2 fault length 0");
    let wanted = "error: rank 1, receive of 8 bytes from rank 0 with tag 1 in `world`: rank 1 \
                  expects 8 bytes from rank 0, the message with tag 1 has 12\nhelp: ";
    assert!(output.stderr.contains(wanted), "{}", output.stderr);
}

#[test]
fn the_first_failure_is_the_last() {
    let output = fault("--timeout 0.5 threads 2 fault again 0");
    let wanted = "error: rank 1, collective 1 of `world`, barrier: an earlier operation failed \
                  (rank 1, receive of 8 bytes from rank 0 with tag 1 in `world`: ";
    assert!(output.stderr.contains(wanted), "{}", output.stderr);
}

#[test]
fn an_environment_without_a_world_is_explained() {
    let text = |variables: &[(&str, &str)]| {
        let output = start("suite 1 1", variables).end();
        assert_eq!(output.status.code(), Some(1));
        output.stderr
    };
    let cases: [(&[(&str, &str)], &str); 4] = [
        (&[], "error: no launcher has started this process as a rank\nhelp: start the ranks with"),
        (
            &[("WENGERT_SHARED_MEMORY", "yes")],
            "error: WENGERT_SHARED_MEMORY is `yes`\nhelp: only a launcher sets it",
        ),
        (&[("PMI_RANK", "3"), ("PMI_SIZE", "2")], "says rank 3 of 2 ranks\nhelp: "),
        (
            &[
                ("OMPI_COMM_WORLD_RANK", "1"),
                ("OMPI_COMM_WORLD_SIZE", "2"),
                ("WENGERT_MPI_LIBRARY", "/nonexistent/libmpi.so.40"),
            ],
            "error: rank 1, joining a world of 2 ranks by MPI: cannot load \
             /nonexistent/libmpi.so.40: ",
        ),
    ];
    for (variables, wanted) in cases {
        let found = text(variables);
        assert!(found.contains(wanted), "{found}");
    }
}

#[test]
fn a_rank_that_never_joins_is_named() {
    // The program of a rank that is no rank ends in success without joining.
    let launcher = wengert_transport::shared::Launcher::spawn(2, |rank| {
        let program = env!("CARGO_BIN_EXE_transport-check");
        let mut command = std::process::Command::new(if rank == 0 { program } else { "true" });
        command.args(["--timeout", "1", "suite", "1", "1"]);
        command.stderr(std::process::Stdio::null());
        command
    });
    let failure = launcher.expect("it starts").wait().expect("it waits").expect_err("one is alone");
    assert_eq!((failure.rank, failure.exit_code()), (0, 1));
}
