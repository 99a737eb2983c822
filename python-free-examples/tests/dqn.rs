//! The agent's paths against the shortest ones, which breadth-first search finds.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use python_free_examples::dqn::{ACTIONS, SIDE, Settings, World, play, program, train};
use std::collections::BTreeSet;
use wengert::prelude::*;
use wengert::random::SplitMix64;

/// Steps to the goal around the pit. Every field has two neighbours or more, so one pit blocks no
/// way.
fn shortest(world: &World) -> usize {
    let mut reached = BTreeSet::from([world.agent]);
    (1..=SIDE * SIDE)
        .find(|_| {
            let before: Vec<usize> = reached.iter().copied().collect();
            for agent in before {
                let from = World { agent, ..*world };
                let next = (0..ACTIONS).map(|action| from.step(action).0.agent);
                reached.extend(next.filter(|field| *field != world.pit));
            }
            reached.contains(&world.goal)
        })
        .unwrap()
}

#[test]
fn the_agent_learns_short_paths_to_the_goal() {
    let settings = Settings { rounds: 1500, ..Settings::default() };
    let program = program(settings.width).unwrap();
    let mut session = Session::open(Device::Cpu).unwrap();
    session.initialize(&program, 1).unwrap();
    let mut random = SplitMix64::new(5);
    let worlds: Vec<World> = (0..400).map(|_| World::new(&mut random)).collect();
    let arrived = |session: &mut Session| {
        let arrived = play(session, &program, &worlds, 4 * SIDE).unwrap();
        let detours: Vec<usize> = arrived
            .iter()
            .zip(&worlds)
            .filter_map(|(steps, world)| Some((*steps)? - shortest(world)))
            .collect();
        (detours.len(), detours.iter().sum::<usize>() as f64 / detours.len().max(1) as f64)
    };
    let before = arrived(&mut session);
    train(&mut session, &program, &settings, &mut |_, loss| assert!(loss.is_finite())).unwrap();
    let after = arrived(&mut session);
    println!("goals and mean detours: {before:?}, then {after:?}");
    assert!(before.0 < 200, "{before:?}");
    assert!(after.0 >= 320 && after.1 < 0.5, "{after:?}");
}

#[test]
fn the_target_network_changes_by_copies_only() {
    let program = program(8).unwrap();
    let mut session = Session::open(Device::Cpu).unwrap();
    session.initialize(&program, 1).unwrap();
    let weights =
        |session: &Session, name: &str| session.variable(&format!("{name}.output.weight")).unwrap();
    let begin = weights(&session, "network");
    let settings = Settings { width: 8, worlds: 4, batch: 8, memory: 20, rounds: 10, copy: 100 };
    train(&mut session, &program, &settings, &mut |_, _| {}).unwrap();
    // The copy before the first round, and none since.
    assert_eq!(weights(&session, "target"), begin);
    assert_ne!(weights(&session, "network"), begin);
    train(&mut session, &program, &Settings { copy: 10, ..settings }, &mut |_, _| {}).unwrap();
    assert_eq!(weights(&session, "target"), weights(&session, "network"));
}

#[test]
fn steps_stay_in_the_square_and_end_at_goal_and_pit() {
    let world = World { agent: 0, goal: 1, pit: SIDE };
    assert_eq!(world.step(0), (world, -0.05, false));
    assert_eq!(world.step(2), (world, -0.05, false));
    assert_eq!(world.step(3), (World { agent: 1, ..world }, 1.0, true));
    assert_eq!(world.step(1), (World { agent: SIDE, ..world }, -1.0, true));
    let observed = world.observe();
    let ones: Vec<usize> = (0..observed.len()).filter(|i| observed[*i] == 1.0).collect();
    assert_eq!(ones, [0, SIDE * SIDE + 1, 2 * SIDE * SIDE + SIDE]);
}
