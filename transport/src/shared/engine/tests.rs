//! Engines of several ranks in one thread, advanced in random order.

use super::*;
use proptest::prelude::*;

/// Engines without sleeps: nobody has to be told.
struct World {
    segment: Segment,
    engines: Vec<Engine>,
    members: Vec<Members>,
}

impl World {
    /// `total` ranks decide the size of the rings, of which `used` take part.
    fn new(used: usize, total: usize) -> World {
        let members = |rank| Members { context: 0, rank, world: (0..used).collect() };
        World {
            segment: Segment::create(total, [0, 0]).expect("memory"),
            engines: (0..used).map(|rank| Engine::new(rank, used)).collect(),
            members: (0..used).map(members).collect(),
        }
    }

    fn start(&mut self, rank: usize, operation: Operation) -> Ticket {
        let started = self.engines[rank].start(operation, Vec::new(), &self.members[rank], 0);
        started.expect("memory for a result")
    }

    /// The result of an operation, if it has ended.
    fn taken(&mut self, rank: usize, ticket: Ticket) -> Option<Vec<u8>> {
        self.engines[rank].take(ticket).expect("no fault").map(|buffers| buffers.result)
    }

    fn progress(&mut self, rank: usize) -> Result<()> {
        self.engines[rank].progress(&self.segment, &|_| ())
    }

    fn progress_all(&mut self) {
        for _ in 0..500 {
            (0..self.engines.len()).for_each(|rank| self.progress(rank).expect("sound"));
        }
    }
}

fn bytes(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 131 + at * 7 + at / 256) as u8).collect()
}

#[derive(Clone, Debug)]
struct Message {
    from: usize,
    to: usize,
    tag: u32,
    len: usize,
}

fn message() -> impl Strategy<Value = Message> {
    let len = prop_oneof![
        Just(0),
        1..200usize,
        SHORT - 2..SHORT + 3,
        // Many times the smallest ring.
        20_000..100_000usize,
    ];
    let part = (0..3usize, 0..3usize, 0..2u32, len);
    part.prop_map(|(from, to, tag, len)| Message { from, to, tag, len })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn messages_arrive_in_order_whatever_the_order_of_calls(
        list in prop::collection::vec(message(), 1..30),
        order in prop::collection::vec(0..9usize, 60),
    ) {
        let mut world = World::new(3, 256);
        let (mut sends, mut receives) = (list.iter().enumerate(), list.iter().enumerate());
        let mut tickets: Vec<(usize, Ticket, usize, bool)> = Vec::new();
        let mut steps = order.into_iter();
        while tickets.len() < 2 * list.len() {
            // Starts a send, starts a receive, or advances a rank.
            match steps.next().unwrap_or(tickets.len() % 2) {
                rank @ 4.. => world.progress(rank % 3).expect("sound"),
                step if step % 2 == 0 => {
                    let Some((at, Message { from, to, tag, len })) = sends.next() else {
                        steps = vec![1; receives.len()].into_iter();
                        continue;
                    };
                    let (bytes, to, tag) = (bytes(at, *len), *to, *tag);
                    let ticket = world.start(*from, Operation::Send { to, tag, bytes });
                    tickets.push((*from, ticket, at, true));
                }
                _ => {
                    let Some((at, Message { from, to, tag, len })) = receives.next() else {
                        steps = vec![0; sends.len()].into_iter();
                        continue;
                    };
                    let (from, tag, len) = (*from, *tag, *len);
                    // The list's order is that of the receives only among equal envelopes, and
                    // sends of equal envelopes have the order of the list.
                    let ticket = world.start(*to, Operation::Receive { from, tag, len });
                    tickets.push((*to, ticket, at, false));
                }
            }
        }
        world.progress_all();
        for (rank, ticket, at, is_send) in tickets {
            let found = world.taken(rank, ticket);
            let found = found.expect("the message has moved");
            prop_assert!(found == bytes(at, list[at].len), "message {}, send {}", at, is_send);
        }
        for engine in &world.engines {
            prop_assert!(engine.works.is_empty() && engine.posted.is_empty());
            prop_assert!(engine.arrived.is_empty() && engine.announced.is_empty());
            prop_assert!(engine.cleared.is_empty() && engine.unwritten().is_empty());
        }
    }
}

#[test]
fn a_late_receiver_keeps_short_messages_and_no_long_ones() {
    let mut world = World::new(2, 2);
    let short = world.start(0, Operation::Send { to: 1, tag: 1, bytes: bytes(1, SHORT) });
    let long = world.start(0, Operation::Send { to: 1, tag: 1, bytes: bytes(2, 5 << 20) });
    world.progress_all();
    assert!(world.taken(0, short).is_some(), "it is on its way");
    assert_eq!(world.taken(0, long), None, "it waits for a place");
    let kept: usize = world.engines[1]
        .arrived
        .values()
        .flatten()
        .map(|message| if let Arrived::Whole(bytes) = message { bytes.len() } else { 0 })
        .sum();
    assert_eq!(kept, SHORT);
    let receive = |len| Operation::Receive { from: 0, tag: 1, len };
    let first = world.start(1, receive(SHORT));
    let second = world.start(1, receive(5 << 20));
    world.progress_all();
    assert_eq!(world.taken(1, first), Some(bytes(1, SHORT)));
    assert_eq!(world.taken(1, second), Some(bytes(2, 5 << 20)));
}

#[test]
fn another_length_is_an_error_of_the_receive() {
    // Short and long, the message first and the receive first.
    for len in [12, 5 << 20] {
        for receive_first in [false, true] {
            let mut world = World::new(2, 2);
            let receive = Operation::Receive { from: 0, tag: 3, len: 8 };
            let send = Operation::Send { to: 1, tag: 3, bytes: bytes(0, len) };
            let ticket = if receive_first {
                let ticket = world.start(1, receive);
                world.start(0, send);
                ticket
            } else {
                world.start(0, send);
                world.progress_all();
                world.start(1, receive)
            };
            world.progress_all();
            let error = world.engines[1].take(ticket).expect_err("lengths differ");
            assert_eq!((error.kind(), error.ranks()), (Kind::Mismatch, &[0][..]));
            let wanted =
                format!("rank 1 expects 8 bytes from rank 0, the message with tag 3 has {len}");
            assert!(error.to_string().starts_with(&wanted), "{error}");
        }
    }
}

#[test]
fn works_that_are_given_up_end_and_are_freed() {
    let mut world = World::new(2, 2);
    let send = world.start(0, Operation::Send { to: 1, tag: 0, bytes: bytes(0, 1 << 20) });
    let receive = world.start(1, Operation::Receive { from: 0, tag: 0, len: 1 << 20 });
    world.engines[0].forget(send);
    world.engines[1].forget(receive);
    assert_eq!(world.engines[1].awaited(receive), [0]);
    world.progress_all();
    assert!(world.engines.iter().all(|engine| engine.works.is_empty()));
    world.engines[0].forget(send);
}

#[test]
fn headers_that_no_rank_writes_are_errors() {
    let envelope = Envelope { context: 0, tag: 0 };
    let frames = [
        Frame::Clear { send: 7, receive: 1 },
        Frame::Data { receive: 7, len: 1 },
        Frame::Short { envelope, len: SHORT as u64 + 1 },
    ];
    for frame in frames {
        let mut world = World::new(2, 2);
        // SAFETY: there is one thread, and it does not use the engine of rank 0.
        let mut end = unsafe { Writer::new(&world.segment, 0, 1) };
        end.write(&frame.to_bytes()).expect("room");
        let error = world.progress(1).expect_err("no message");
        assert!(error.to_string().starts_with("rank 0 sent what is no message"), "{error}");
    }
}

#[test]
fn communicators_do_not_share_messages() {
    let mut world = World::new(2, 2);
    let other = Members { context: 1, rank: 0, world: vec![1, 0] };
    // Rank 1 of the world is rank 0 of the other communicator.
    let receive = Operation::Receive { from: 1, tag: 0, len: 3 };
    let ticket = world.engines[1].start(receive, Vec::new(), &other, 0).expect("memory");
    world.start(0, Operation::Send { to: 1, tag: 0, bytes: vec![1; 3] });
    world.progress_all();
    assert_eq!(world.taken(1, ticket), None);
    let other = Members { context: 1, rank: 1, world: vec![1, 0] };
    let send = Operation::Send { to: 0, tag: 0, bytes: vec![2; 3] };
    world.engines[0].start(send, Vec::new(), &other, 0).expect("memory");
    world.progress_all();
    assert_eq!(world.taken(1, ticket), Some(vec![2; 3]));
}
