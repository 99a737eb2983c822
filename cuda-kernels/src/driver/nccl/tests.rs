//! Exchanges among fake devices, each on a thread of its own.

use super::super::allocation::{Address, Memory};
use super::super::context::{Device, Event};
use super::super::fake::{Fake, bytes_at};
use super::super::module::tests::PTX;
use super::{Exchanges, Group, Transfer, Transfers};
use crate::architecture::Architecture;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Where the ranks of a test meet before they have NCCL.
#[derive(Default)]
pub(crate) struct Meeting {
    given: Mutex<BTreeMap<String, BTreeMap<usize, Vec<u8>>>>,
    changed: Condvar,
}

impl Meeting {
    /// An all-gather of the ranks of a group, which has a name of its own.
    pub(crate) fn gather(
        &self,
        group: &str,
        position: usize,
        size: usize,
        own: Vec<u8>,
    ) -> Vec<u8> {
        let mut given = self.given.lock().unwrap();
        given.entry(group.into()).or_default().insert(position, own);
        self.changed.notify_all();
        while given[group].len() < size {
            given = self.changed.wait(given).unwrap();
        }
        given[group].values().flatten().copied().collect()
    }
}

/// Runs a closure on each of some ranks, which are threads.
pub(crate) fn on_ranks<T: Send>(ranks: usize, run: impl Fn(usize, &Meeting) -> T + Sync) -> Vec<T> {
    let meeting = Meeting::default();
    std::thread::scope(|scope| {
        let (run, meeting) = (&run, &meeting);
        let threads: Vec<_> =
            (0..ranks).map(|rank| scope.spawn(move || run(rank, meeting))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Bytes of the memory that a rank sends from, and of that into which it receives.
const BYTES: u64 = 16;

/// One of two ranks that exchange [`BYTES`] bytes.
struct Rank {
    fake: Fake,
    device: Device,
    exchanges: Arc<Exchanges>,
    group: Group,
    source: Memory,
    target: Memory,
    ended: Arc<Event>,
    other: usize,
}

impl Rank {
    fn new(rank: usize, meeting: &Meeting, timeout: Duration) -> Rank {
        let fake = Fake::new();
        let device = fake.device();
        let exchanges = device.exchanges(timeout).unwrap();
        let gather = |own| Ok(meeting.gather("all", rank, 2, own));
        let group = exchanges.join("all", rank, 2, &gather).unwrap();
        assert_eq!(exchanges.join("all", rank, 2, &gather).unwrap(), group, "it is made once");
        let memory = |what| device.allocate(BYTES, what).unwrap();
        let (source, target) = (memory("what is sent"), memory("what is received"));
        device.write(source.address(), &[rank as u8 + 1; BYTES as usize]).unwrap();
        let ended = Arc::new(device.event(false).unwrap());
        Rank { fake, device, exchanges, group, source, target, ended, other: 1 - rank }
    }

    fn start(&self, bytes: u64) -> super::super::Result<()> {
        let transfer =
            |memory: &Memory| Transfer { peer: self.other, address: memory.address(), bytes };
        let transfers = Transfers {
            sent: vec![transfer(&self.source)],
            received: vec![transfer(&self.target)],
        };
        self.exchanges.start(&self.group, &transfers, &self.ended)
    }

    fn wait(&self) {
        self.exchanges.wait(&self.ended).unwrap();
    }

    fn received(&self) -> super::super::Result<Vec<u8>> {
        let mut bytes = vec![0; BYTES as usize];
        self.device.read(self.target.address(), &mut bytes)?;
        Ok(bytes)
    }

    /// Launches a kernel with an address as an argument. `kernel` gets that address.
    fn launch(&self, address: Address, kernel: impl Fn(u64) + 'static) {
        self.fake.kernel("scale", move |_, _, _, arguments| kernel(arguments[0]));
        let sm_80 = Architecture::from_name("sm_80").unwrap();
        let scale = self.device.load_module(PTX, sm_80).unwrap().function("scale").unwrap();
        let arguments = [address.0, 0, 0];
        self.device.launch_verified(&scale, [1; 3], [32, 1, 1], 0, &arguments).unwrap();
        self.device.synchronise().unwrap();
    }

    /// Closes the rank, and returns the violations of its order.
    fn close(self) -> Vec<String> {
        let Rank { fake, device, exchanges, source, target, ended, .. } = self;
        drop((exchanges, source, target, ended, device));
        let violations = fake.violations();
        fake.nothing_left();
        violations
    }
}

const LONG: Duration = Duration::from_secs(50);
const SHORT: Duration = Duration::from_millis(300);

#[test]
fn bytes_go_to_the_other_rank() {
    for seed in 0..8 {
        on_ranks(2, |number, meeting| {
            let rank = Rank::new(number, meeting, LONG);
            rank.fake.interleave(seed);
            for round in 0..3u8 {
                let sent = |rank: usize| vec![rank as u8 * 10 + round; BYTES as usize];
                rank.device.write(rank.source.address(), &sent(number)).unwrap();
                rank.start(BYTES).unwrap();
                rank.wait();
                assert_eq!(rank.received().unwrap(), sent(1 - number), "seed {seed}");
            }
            assert_eq!(rank.close(), [""; 0]);
        });
    }
}

/// A planted fault and its twin without the fault.
fn planted(fault: impl Fn(&Rank, bool) + Sync) {
    for is_planted in [false, true] {
        let found = on_ranks(2, |number, meeting| {
            let rank = Rank::new(number, meeting, LONG);
            rank.start(BYTES).unwrap();
            fault(&rank, is_planted);
            rank.device.synchronise().unwrap();
            rank.close()
        });
        for found in found {
            assert_eq!(!found.is_empty(), is_planted, "{found:?}");
            assert!(found.iter().all(|text| text.contains("does not wait")), "{found:?}");
        }
    }
}

#[test]
fn a_reader_that_does_not_wait_for_what_it_reads_is_found() {
    planted(|rank, is_planted| {
        if !is_planted {
            rank.wait();
        }
        rank.launch(rank.target.address(), |_| {});
        rank.wait();
    });
    // A copy, too, of a part.
    planted(|rank, is_planted| {
        if !is_planted {
            rank.wait();
        }
        let from = rank.target.address().offset(8);
        let to = rank.device.allocate(8, "a copy").unwrap();
        rank.device.copy(from, to.address(), 8).unwrap();
        rank.wait();
    });
}

#[test]
fn memory_that_changes_while_it_is_sent_is_found() {
    planted(|rank, is_planted| {
        if !is_planted {
            rank.wait();
        }
        rank.device.fill(rank.source.address(), 7, 4).unwrap();
        rank.wait();
    });
    // A kernel that changes it is found, one that reads it is not.
    planted(|rank, is_planted| {
        rank.launch(rank.source.address(), move |address| {
            if is_planted {
                bytes_at(address, BYTES as usize)[3] += 100;
            }
        });
        rank.wait();
    });
}

#[test]
fn an_exchange_that_does_not_wait_for_its_operand_is_found() {
    for is_planted in [false, true] {
        let found = on_ranks(2, |number, meeting| {
            let rank = Rank::new(number, meeting, LONG);
            rank.fake.skip_waits(move |n| is_planted && n == 0);
            rank.device.fill(rank.source.address(), 9, BYTES).unwrap();
            rank.start(BYTES).unwrap();
            rank.wait();
            rank.device.synchronise().unwrap();
            rank.close()
        });
        for found in found {
            let wanted = "an exchange does not wait for a fill before it";
            assert_eq!(found, vec![wanted; usize::from(is_planted)]);
        }
    }
}

#[test]
fn messages_of_different_lengths_are_found() {
    let found = on_ranks(2, |number, meeting| {
        let rank = Rank::new(number, meeting, LONG);
        rank.start(if number == 0 { BYTES } else { BYTES / 2 }).unwrap();
        rank.wait();
        let error = rank.received().unwrap_err().to_string();
        assert!(error.contains("internal error") || error.contains("remote"), "{error}");
        rank.close()
    });
    let found = found.concat().join(", ");
    assert!(found.contains("rank 0 receives 16 bytes from rank 1, which sends 8"), "{found}");
}

#[test]
fn a_rank_that_never_calls_ends_the_others() {
    on_ranks(2, |number, meeting| {
        let rank = Rank::new(number, meeting, SHORT);
        if number == 1 {
            meeting.gather("end", number, 2, vec![]);
            assert_eq!(rank.close(), [""; 0]);
            return;
        }
        rank.start(BYTES).unwrap();
        rank.wait();
        let error = rank.received().unwrap_err();
        let text = error.to_string();
        assert!(text.contains("another rank has not come to it within 0.3 s"), "{text}");
        // Nothing goes on after it.
        assert_eq!(rank.start(BYTES).unwrap_err(), error);
        assert_eq!(rank.device.synchronise().unwrap_err(), error);
        meeting.gather("end", number, 2, vec![]);
        assert_eq!(rank.close(), [""; 0]);
    });
}

#[test]
fn a_rank_that_ends_is_an_error_of_the_others() {
    on_ranks(2, |number, meeting| {
        let rank = Rank::new(number, meeting, LONG);
        if number == 0 {
            rank.start(BYTES).unwrap();
            rank.wait();
            let error = rank.received().unwrap_err().to_string();
            let wanted = "remote process exited or there was a network error";
            assert!(error.contains(wanted) && error.contains("exchange"), "{error}");
        }
        assert_eq!(rank.close(), [""; 0]);
    });
}

/// Whatever call fails on one rank, both ranks get an error, and nothing is left.
#[test]
fn a_call_that_fails_ends_both_ranks() {
    for call in ["ncclGroupStart", "ncclSend", "ncclRecv", "ncclGroupEnd", "cuEventRecord"] {
        on_ranks(2, |number, meeting| {
            let rank = Rank::new(number, meeting, LONG);
            if number == 1 {
                rank.fake.fail(call, 2);
                assert_eq!(rank.start(BYTES).unwrap_err().code(), Some(2), "{call}");
                assert_eq!(rank.start(BYTES).unwrap_err().code(), Some(2), "{call}");
            } else {
                rank.start(BYTES).unwrap();
                rank.wait();
                assert!(rank.received().unwrap_err().to_string().contains("remote"), "{call}");
            }
            assert_eq!(rank.close(), [""; 0], "{call}");
        });
    }
}

#[test]
fn ranks_that_cannot_join_say_so() {
    on_ranks(2, |number, meeting| {
        let fake = Fake::new();
        let device = fake.device();
        let exchanges = device.exchanges(LONG).unwrap();
        if number == 0 {
            fake.fail("ncclGetUniqueId", 2);
        }
        let gather = |own| Ok(meeting.gather("all", number, 2, own));
        let error = exchanges.join("all", number, 2, &gather).unwrap_err().to_string();
        let wanted = ["unhandled system error", "NCCL fails on the rank at position 0"][number];
        assert!(error.contains(wanted) && error.contains("the 2 ranks of `all`"), "{error}");
        drop((exchanges, device));
        fake.nothing_left();
    });
}

/// A rank alone sends to itself, without a communicator.
#[test]
fn a_rank_alone_copies() {
    let fake = Fake::new();
    let device = fake.device();
    let exchanges = device.exchanges(LONG).unwrap();
    let group = exchanges.join("one", 0, 1, &|_| panic!("a rank alone gathers nothing")).unwrap();
    assert_eq!(group.communicator, None);
    let memory = device.allocate(8, "both").unwrap();
    device.write(memory.address(), &[1, 2, 3, 4, 0, 0, 0, 0]).unwrap();
    let at = |offset| Transfer { peer: 0, address: memory.address().offset(offset), bytes: 4 };
    let transfers = Transfers { sent: vec![at(0)], received: vec![at(4)] };
    let ended = Arc::new(device.event(false).unwrap());
    exchanges.start(&group, &transfers, &ended).unwrap();
    exchanges.wait(&ended).unwrap();
    let mut bytes = [0; 8];
    device.read(memory.address(), &mut bytes).unwrap();
    assert_eq!(bytes, [1, 2, 3, 4, 1, 2, 3, 4]);
    let outside = Transfers { sent: vec![at(8)], received: vec![] };
    let error = exchanges.start(&group, &outside, &ended).unwrap_err().to_string();
    assert!(error.contains("not in one allocation"), "{error}");
    drop((exchanges, memory, ended, device));
    fake.nothing_left();
}
