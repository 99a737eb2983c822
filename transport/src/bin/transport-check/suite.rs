//! Random operations whose every byte is known beforehand.
//!
//! All ranks draw the same program from one seed, and each rank draws for itself the order in
//! which it starts and waits. The byte at a place of a message is a function of the message's
//! number, sender and receiver, so a byte that is lost, repeated or exchanged is found.

use crate::say;
use wengert_transport::{Communicator, Kind, NamedHash, Operation, Request};

/// Numbers that depend on a seed only (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// A size: nothing, a few bytes, about the limit of short messages, several times a ring.
    fn size(&mut self, limit: usize) -> usize {
        let size = match self.below(10) {
            0 => 0,
            1..5 => self.below(300),
            5 => 8190 + self.below(5),
            6..9 => self.below(100_000),
            _ => self.below(5 << 20),
        };
        size.min(limit)
    }
}

/// Byte `at` of what one rank sends to another in operation `number`.
fn byte(number: u64, from: usize, to: usize, at: usize) -> u8 {
    let mixed = (number << 16) ^ (from as u64) << 8 ^ to as u64;
    let mixed = (mixed ^ (at as u64) << 24).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

fn message(number: u64, from: usize, to: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| byte(number, from, to, at)).collect()
}

/// The suite of one communicator.
struct Suite<'a> {
    world: &'a Communicator,
    random: Random,
    /// Differs from rank to rank.
    own: Random,
    number: u64,
    operations: usize,
    bytes: usize,
}

/// Runs so many rounds of operations.
pub fn run(world: &Communicator, rounds: usize, seed: u64) -> Result<(), String> {
    let hashes: [NamedHash<'_>; 2] = [("suite", [7; 32]), ("seed", [seed as u8; 32])];
    world.agree(&hashes).map_err(|error| error.to_string())?;
    let (operations, bytes) = within(world, rounds, seed)?;
    if world.rank() == 0 {
        let (ranks, name) = (world.size(), world.transport().name());
        say(format_args!(
            "{ranks} ranks by {name}, seed {seed}: {operations} operations of rank 0 on {bytes} \
             bytes are right"
        ))?;
    }
    Ok(())
}

fn within(world: &Communicator, rounds: usize, seed: u64) -> Result<(usize, usize), String> {
    let own = Random(seed ^ (world.world_rank(world.rank()) as u64 + 1) << 32);
    let random = Random(seed);
    let mut suite = Suite { world, random, own, number: 0, operations: 0, bytes: 0 };
    for _ in 0..rounds {
        match suite.random.below(4) {
            0 => suite.messages()?,
            1 => suite.several_collectives()?,
            2 => suite.blocking()?,
            _ => suite.split(seed)?,
        }
    }
    Ok((suite.operations, suite.bytes))
}

/// The bytes of a result in its buffer, which may be longer.
fn start<'a>(buffer: &'a [u8], wanted: &[u8]) -> &'a [u8] {
    buffer.get(..wanted.len()).unwrap_or(buffer)
}

impl Suite<'_> {
    fn rank(&self) -> usize {
        self.world.rank()
    }

    fn size(&self) -> usize {
        self.world.size()
    }

    fn right(&self, what: &str, found: &[u8], wanted: &[u8]) -> Result<(), String> {
        if found == wanted {
            return Ok(());
        }
        let at = found.iter().zip(wanted).position(|(a, b)| a != b);
        Err(format!(
            "rank {}: {what} {} is wrong from byte {at:?} on; {} bytes of {}",
            self.rank(),
            self.number,
            found.len(),
            wanted.len()
        ))
    }

    /// Starts an operation whose result goes to a new buffer, or to a used one of any length.
    fn start(&mut self, operation: Operation) -> Result<Request, String> {
        let started = match self.own.below(2) {
            0 => self.world.start(operation),
            _ => self.world.start_into(operation, vec![0xa5; self.own.size(2 << 20)]),
        };
        started.map_err(|error| error.to_string())
    }

    /// Many messages between random pairs, all under way at the same time.
    fn messages(&mut self) -> Result<(), String> {
        let (rank, size) = (self.rank(), self.size());
        let count = 1 + self.random.below(40);
        let mut list = Vec::new();
        for _ in 0..count {
            self.number += 1;
            let (from, to) = (self.random.below(size), self.random.below(size));
            // Few tags, so that order matters.
            let tag = [0, 1, 16383][self.random.below(3)];
            let len = self.random.size(1 << 20);
            list.push((self.number, from, to, tag, len));
        }
        // Receives and sends are started in their order, but mixed in an order of the rank's own.
        let mut sends: Vec<_> = list.iter().filter(|m| m.1 == rank).rev().collect();
        let mut receives: Vec<_> = list.iter().filter(|m| m.2 == rank).rev().collect();
        let likely = self.own.below(100);
        let mut requests = Vec::new();
        let mut wanted = Vec::new();
        while !sends.is_empty() || !receives.is_empty() {
            let is_send = receives.is_empty() || self.own.below(100) < likely;
            let next = if is_send { sends.pop() } else { receives.pop() };
            let Some(&(number, from, to, tag, len)) = next else { continue };
            let bytes = message(number, from, to, len);
            let operation = if is_send {
                Operation::Send { to, tag, bytes: bytes.clone() }
            } else {
                Operation::Receive { from, tag, len }
            };
            requests.push(self.start(operation)?);
            wanted.push(bytes);
        }
        self.finish("message", requests, wanted)
    }

    /// Waits in one of several ways, and compares the results.
    fn finish(
        &mut self,
        what: &str,
        mut requests: Vec<Request>,
        mut wanted: Vec<Vec<u8>>,
    ) -> Result<(), String> {
        self.operations += requests.len();
        self.bytes += wanted.iter().map(Vec::len).sum::<usize>();
        match self.own.below(4) {
            0 => {
                let results = Request::wait_all(requests).map_err(|error| error.to_string())?;
                for (found, wanted) in results.iter().zip(&wanted) {
                    self.right(what, start(found, wanted), wanted)?;
                }
            }
            1 => {
                while !requests.is_empty() {
                    let (at, found) =
                        Request::wait_any(&mut requests).map_err(|error| error.to_string())?;
                    let wanted = wanted.remove(at);
                    self.right(what, start(&found.result, &wanted), &wanted)?;
                }
            }
            order => {
                while !requests.is_empty() {
                    let at = if order == 2 { requests.len() - 1 } else { 0 };
                    let found = requests.remove(at).wait().map_err(|error| error.to_string())?;
                    let wanted = wanted.remove(at);
                    self.right(what, start(&found, &wanted), &wanted)?;
                }
            }
        }
        Ok(())
    }

    /// One collective of a random kind, and its result.
    fn collective(&mut self) -> (Operation, Vec<u8>) {
        self.number += 1;
        let (rank, size, number) = (self.rank(), self.size(), self.number);
        match self.random.below(6) {
            0 => {
                let len = self.random.size(1 << 20);
                let bytes = (0..size).flat_map(|to| message(number, rank, to, len)).collect();
                let wanted = (0..size).flat_map(|from| message(number, from, rank, len)).collect();
                (Operation::AllToAll { bytes }, wanted)
            }
            1 => {
                let lens: Vec<usize> =
                    (0..size * size).map(|_| self.random.size(1 << 20)).collect();
                let len = |from: usize, to: usize| lens[from * size + to];
                let send = (0..size).map(|to| len(rank, to)).collect();
                let receive = (0..size).map(|from| len(from, rank)).collect();
                let bytes =
                    (0..size).flat_map(|to| message(number, rank, to, len(rank, to))).collect();
                let wanted = (0..size)
                    .flat_map(|from| message(number, from, rank, len(from, rank)))
                    .collect();
                (Operation::AllToAllCounts { bytes, send, receive }, wanted)
            }
            2 => {
                let counts: Vec<usize> = (0..size).map(|_| self.random.size(4 << 20)).collect();
                let bytes = message(number, rank, 0, counts[rank]);
                let wanted =
                    (0..size).flat_map(|from| message(number, from, 0, counts[from])).collect();
                (Operation::AllGather { bytes, counts }, wanted)
            }
            3 => {
                let (root, len) = (self.random.below(size), self.random.size(4 << 20));
                let wanted = message(number, root, 0, len);
                let bytes = if rank == root { wanted.clone() } else { Vec::new() };
                (Operation::Broadcast { root, bytes, len }, wanted)
            }
            4 => {
                let lens: Vec<usize> = (0..size * size).map(|_| self.random.size(50_000)).collect();
                let len = |from: usize, to: usize| lens[from * size + to];
                let parts = |of: &dyn Fn(usize) -> Vec<u8>| (0..size).flat_map(of).collect();
                let bytes: Vec<u8> = parts(&|to| message(number, rank, to, len(rank, to)));
                let send = (0..size).map(|to| {
                    let start = (0..to).map(|to| len(rank, to)).sum();
                    start..start + len(rank, to)
                });
                let send = send.collect();
                let from_other = |from: usize| if from == rank { 0 } else { len(from, rank) };
                let receive = (0..size).map(from_other).collect();
                let wanted = parts(&|from| message(number, from, rank, from_other(from)));
                // Lent for ever: a rank may fail at any time.
                let bytes: &'static [u8] = bytes.leak();
                (Operation::Exchange { bytes: bytes.into(), send, receive }, wanted)
            }
            _ => (Operation::Barrier, Vec::new()),
        }
    }

    /// Several collectives under way at the same time.
    fn several_collectives(&mut self) -> Result<(), String> {
        let count = 1 + self.random.below(6);
        let (mut requests, mut wanted) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let (operation, result) = self.collective();
            requests.push(self.start(operation)?);
            wanted.push(result);
        }
        self.finish("collective", requests, wanted)
    }

    fn blocking(&mut self) -> Result<(), String> {
        let (operation, wanted) = self.collective();
        let world = self.world;
        let found = match operation {
            Operation::AllToAll { bytes } => world.all_to_all(bytes),
            Operation::AllToAllCounts { bytes, send, receive } => {
                world.all_to_all_counts(bytes, send, receive)
            }
            Operation::AllGather { bytes, counts } => world.all_gather_counts(bytes, counts),
            Operation::Broadcast { root, bytes, len } => world.broadcast(root, bytes, len),
            exchange @ Operation::Exchange { .. } => {
                world.start(exchange).and_then(|request| request.wait())
            }
            _ => world.barrier().map(|()| Vec::new()),
        };
        self.operations += 1;
        self.bytes += wanted.len();
        let found = found.map_err(|error| error.to_string())?;
        self.right("collective", &found, &wanted)
    }

    /// Divides the ranks at random, and runs a suite in each group, at the same time as the other
    /// groups and with a message of the whole world under way.
    fn split(&mut self, seed: u64) -> Result<(), String> {
        self.number += 1;
        let (number, size, rank) = (self.number, self.size(), self.rank());
        if size == 1 {
            return Ok(());
        }
        let groups = 1 + self.random.below(size);
        let colors: Vec<usize> = (0..size).map(|_| self.random.below(groups + 1)).collect();
        let keys: Vec<i64> = (0..size).map(|_| self.random.below(3) as i64 - 1).collect();
        let len = self.random.size(1 << 20);
        let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
        let text = |error: wengert_transport::Error| error.to_string();
        let bytes = message(number, rank, next, len);
        let send = self.world.start(Operation::Send { to: next, tag: 5, bytes }).map_err(text)?;
        // Ranks with the last color join no group.
        let color = (colors[rank] < groups).then_some(colors[rank] as u32);
        let group = self.world.split("group", color, keys[rank]).map_err(text)?;
        let mut members: Vec<usize> =
            (0..size).filter(|other| colors[*other] == colors[rank]).collect();
        members.sort_by_key(|other| keys[*other]);
        match (&group, color) {
            (None, None) => {}
            (Some(group), Some(color)) => {
                let found: Vec<usize> = (0..group.size()).map(|r| group.world_rank(r)).collect();
                let world: Vec<usize> = members.iter().map(|r| self.world.world_rank(*r)).collect();
                if found != world || members[group.rank()] != rank {
                    return Err(format!("rank {rank}: the group is {found:?}, not {world:?}"));
                }
                let (operations, bytes) = within(group, 3, seed ^ number ^ u64::from(color) << 40)?;
                self.operations += operations;
                self.bytes += bytes;
            }
            _ => return Err(format!("rank {rank}: a group without a color, or a color without")),
        }
        let found = self.world.receive(before, 5, len).map_err(text)?;
        self.right("message", &found, &message(number, before, rank, len))?;
        send.wait().map_err(text)?;
        // A wrong argument starts nothing, and the world goes on.
        let wrong = self.world.send(size, 0, Vec::new());
        match wrong {
            Err(error) if error.kind() == Kind::Argument => Ok(()),
            other => Err(format!("rank {rank}: a message to rank {size} gives {other:?}")),
        }
    }
}
