//! Faults of one rank, on purpose: what the others report is what tests compare.

use std::time::Duration;
use wengert_transport::{Communicator, Error, NamedHash, Operation};

/// Lets `rank` have a fault, and the others wait for it.
pub fn run(world: &Communicator, kind: &str, rank: usize) -> Result<(), String> {
    // The fault comes after something that works.
    let text = |error: Error| error.to_string();
    world.barrier().map_err(text)?;
    let is_faulty = world.rank() == rank;
    let barrier = || world.barrier().map_err(text);
    match kind {
        "kill" if is_faulty => signal("KILL"),
        "stop" if is_faulty => signal("STOP"),
        "term" if is_faulty => signal("TERM"),
        "kill" | "stop" | "term" => barrier(),
        // While much is under way, in both directions.
        "kill-in-transfer" => {
            let requests: Result<Vec<_>, Error> = (0..8)
                .map(|_| world.start(Operation::AllToAll { bytes: vec![1; world.size() << 20] }))
                .collect();
            let mut requests = requests.map_err(text)?;
            if is_faulty {
                requests[0].test().map_err(text)?;
                return signal("KILL");
            }
            wengert_transport::Request::wait_all(requests).map(|_| ()).map_err(text)
        }
        "exit" if is_faulty => std::process::exit(5),
        "panic" if is_faulty => panic!("a panic on purpose"),
        "abort" if is_faulty => world.abort(6),
        // The communicator is dropped, and the process goes on.
        "leave" if is_faulty => Ok(()),
        "late" if is_faulty => {
            let time = world.options().timeout * 3;
            std::thread::sleep(time);
            barrier()
        }
        "exit" | "panic" | "abort" | "leave" | "late" => barrier(),
        "silent" if is_faulty => {
            // Waits for a message that no rank sends.
            world.receive((rank + 1) % world.size(), 9, 3).map(|_| ()).map_err(text)
        }
        "silent" => {
            std::thread::sleep(world.options().timeout * 3);
            Ok(())
        }
        "operation" if is_faulty => world.all_gather(vec![0; 5]).map(|_| ()).map_err(text),
        "operation" => barrier(),
        "bytes" => {
            let len = if is_faulty { 12 } else { 8 };
            world.all_gather(vec![0; len]).map(|_| ()).map_err(text)
        }
        "length" => {
            let peer = (rank + 1) % world.size();
            if is_faulty {
                world.send(peer, 1, vec![0; 12]).map_err(text)?;
            } else if world.rank() == peer {
                world.receive(rank, 1, 8).map_err(text)?;
            }
            barrier()
        }
        "hashes" => {
            let plan = [if is_faulty { 3 } else { 4 }; 32];
            let hashes: [NamedHash<'_>; 3] =
                [("program", [1; 32]), ("plan", plan), ("data", [9; 32])];
            world.agree(&hashes).map_err(text)
        }
        "again" => {
            // After a failure, each operation fails with the first error.
            world.receive(rank, 1, 8).map(|_| ()).map_err(text).err().map_or_else(
                || Err("a message came that no rank has sent".to_string()),
                |first| Err(format!("{first}\nerror: {}", barrier().err().unwrap_or_default())),
            )
        }
        // All ranks wait; a test ends the launcher, or a rank, from outside.
        "wait" if is_faulty => world.receive(rank, 9, 3).map(|_| ()).map_err(text),
        "wait" => barrier(),
        _ => Err(format!("no fault is called `{kind}`")),
    }
}

/// Sends this process a signal.
#[cfg(target_os = "linux")]
fn signal(name: &str) -> Result<(), String> {
    use rustix::process::{Signal, getpid, kill_process};
    let signal = match name {
        "KILL" => Signal::KILL,
        "STOP" => Signal::STOP,
        _ => Signal::TERM,
    };
    kill_process(getpid(), signal).map_err(|error| error.to_string())?;
    // A stopped process gets here when it is continued.
    std::thread::sleep(Duration::from_secs(100));
    Err(format!("the process goes on after SIG{name}"))
}

#[cfg(not(target_os = "linux"))]
fn signal(_: &str) -> Result<(), String> {
    Err("signals are sent on Linux only".into())
}
