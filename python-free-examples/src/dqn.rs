//! Q-learning by a deep network (Mnih and others, *Human-level control through deep reinforcement
//! learning*, 2015), on a small world.
//!
//! The network gives the value Q(s, a) of each action in a state: the discounted sum of the rewards
//! that follow if the best actions are taken from then on. Values satisfy Bellman's equation:
//!
//! ```text
//! Q(s, a) = r + γ·maxₐ′ Q(s′, a′)        r alone, if the episode ends in s′
//! ```
//!
//! The right side is computed by a *target network*, an older copy of the network. Steps that were
//! taken are kept in a *replay memory*, from which batches are drawn. The network and the copy are
//! variables of one program: `learn` updates the one, and `copy` the other, so neither leaves the
//! device.

use wengert::nn::loss::Huber;
use wengert::prelude::*;
use wengert::random::SplitMix64;

/// Fields along each side of the world.
pub const SIDE: usize = 4;

/// Numbers of an observation: for each field whether the agent, the goal and the pit are there.
pub const OBSERVATION: usize = 3 * SIDE * SIDE;

/// Actions: up, down, left, right.
pub const ACTIONS: usize = 4;

/// γ.
pub const DISCOUNT: f64 = 0.9;

/// Values of all actions, by two hidden layers.
#[derive(Differentiable, Clone)]
pub struct QNetwork {
    hidden: [Linear; 2],
    output: Linear,
}

/// Steps from the replay memory.
pub struct Steps {
    /// `[B, observation]`.
    pub observations: Tensor,
    /// Integers `[B]`.
    pub actions: Tensor,
    /// `[B]`.
    pub rewards: Tensor,
    /// Whether the step ended its episode, bools `[B]`.
    pub ended: Tensor,
    /// The observations after the steps, `[B, observation]`.
    pub next: Tensor,
}

impl QNetwork {
    /// With hidden layers of this width.
    pub fn new(observation: usize, width: usize, actions: usize) -> Self {
        QNetwork {
            hidden: [Linear::kaiming(observation, width), Linear::kaiming(width, width)],
            output: Linear::new(width, actions),
        }
    }

    /// Values `[B, actions]` of observations `[B, observation]`.
    pub fn call(&self, observations: &Tensor) -> Tensor {
        let hidden = self.hidden.iter().fold(observations.clone(), |x, l| l.call(&x).relu());
        self.output.call(&hidden)
    }

    /// The mean loss of both sides of Bellman's equation. Differences above 1 count linearly, which
    /// clips their gradient.
    pub fn loss(&self, target: &QNetwork, steps: &Steps) -> Tensor {
        let actions = steps.actions.unsqueeze(-1);
        let values = self.call(&steps.observations).take_along_axis(&actions, -1).squeeze(-1);
        let future = target.call(&steps.next).max_axes(-1) * DISCOUNT;
        let returns = &steps.rewards + steps.ended.select(0.0, future);
        Huber::default().call(&values, &returns)
    }
}

/// `values` gives the values of all actions. `learn` takes a batch of steps. `copy` replaces the
/// target network by the network.
pub fn program(width: usize) -> Result<Program> {
    let network = || QNetwork::new(OBSERVATION, width, ACTIONS);
    let observation = [Dim::variable("B"), OBSERVATION.into()];
    let mut program = Program::new();
    program.function("values", |f| {
        let observations = f.input("observations", f32(observation.clone()));
        let network = f.param("network", network());
        f.output("values", network.call(&observations));
    })?;
    program.function("learn", |f| {
        let steps = Steps {
            observations: f.input("observations", f32(observation.clone())),
            actions: f.input("actions", i32("B")),
            rewards: f.input("rewards", f32("B")),
            ended: f.input("ended", bool("B")),
            next: f.input("next", f32(observation.clone())),
        };
        let target = f.param("target", network());
        let network = f.state("network", network());
        let (loss, gradient) = value_and_grad(&network, |network| network.loss(&target, &steps));
        Adam::new(1e-3).step(f, &network, &gradient);
        f.output("loss", loss);
    })?;
    program.function("copy", |f| {
        f.state("target", network());
        for (path, tensor) in f.param("network", network()).tensors() {
            f.update(&format!("target.{path}"), &tensor);
        }
    })?;
    Ok(program)
}

/// A square of fields with an agent, a goal and a pit, each on a field of its own. The agent cannot
/// leave the square. The episode ends at the goal, with a reward of 1, and in the pit, with −1.
/// Every other step has −0.05.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct World {
    /// The agent's field, row by row.
    pub agent: usize,
    /// The goal's.
    pub goal: usize,
    /// The pit's.
    pub pit: usize,
}

impl World {
    /// A world with all three at random.
    pub fn new(random: &mut SplitMix64) -> World {
        let fields = random.permutation(SIDE * SIDE);
        World { agent: fields[0], goal: fields[1], pit: fields[2] }
    }

    /// 1 in the fields of agent, goal and pit, one plane after the other.
    pub fn observe(&self) -> [f32; OBSERVATION] {
        let mut planes = [0.0; OBSERVATION];
        for (plane, field) in [self.agent, self.goal, self.pit].into_iter().enumerate() {
            planes[plane * SIDE * SIDE + field] = 1.0;
        }
        planes
    }

    /// The world after an action, the reward, and whether the episode has ended.
    pub fn step(&self, action: usize) -> (World, f32, bool) {
        let (row, column) = (self.agent / SIDE, self.agent % SIDE);
        let (row, column) = match action {
            0 => (row.saturating_sub(1), column),
            1 => ((row + 1).min(SIDE - 1), column),
            2 => (row, column.saturating_sub(1)),
            _ => (row, (column + 1).min(SIDE - 1)),
        };
        let next = World { agent: row * SIDE + column, ..*self };
        let reward = match next {
            World { agent, goal, .. } if agent == goal => 1.0,
            _ if next.has_ended() => -1.0,
            _ => -0.05,
        };
        (next, reward, next.has_ended())
    }

    /// Whether the agent is at the goal or in the pit.
    pub fn has_ended(&self) -> bool {
        self.agent == self.goal || self.agent == self.pit
    }
}

/// The best action in each world, by the function `values`.
pub fn choose(values: &mut wengert::Compiled, worlds: &[World]) -> Result<Vec<usize>> {
    let observations = worlds.iter().flat_map(World::observe).collect();
    let observations = Literal::from_vec(&[worlds.len(), OBSERVATION], observations)?;
    let outputs = values.run(&[("observations", observations)])?;
    let values: Vec<f64> = outputs.get("values")?.scalars().map(|v| v.to_f64()).collect();
    let best = |row: &[f64]| (0..ACTIONS).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap_or(0);
    Ok(values.chunks(ACTIONS).map(best).collect())
}

/// How the agent is trained.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// Width of the hidden layers.
    pub width: usize,
    /// Worlds that are played at once.
    pub worlds: usize,
    /// Steps of a batch.
    pub batch: usize,
    /// Steps that the replay memory holds.
    pub memory: usize,
    /// Rounds: in each, a step in every world and a step of training.
    pub rounds: u32,
    /// Rounds from a copy of the network to the next.
    pub copy: u32,
}

impl Default for Settings {
    /// Those of the example.
    fn default() -> Self {
        Settings { width: 64, worlds: 32, batch: 128, memory: 20_000, rounds: 3000, copy: 50 }
    }
}

/// A step of an agent: the world before and after, the action, the reward, and whether the episode
/// ended.
type Step = (World, World, usize, f32, bool);

/// Trains the program's network. The share of random actions falls from 1 to 0.1 during the first
/// half of the rounds. `report` is given the round and the loss.
pub fn train(
    session: &mut Session,
    program: &Program,
    settings: &Settings,
    report: &mut dyn FnMut(u32, f64),
) -> Result<()> {
    let mut values = session.compile(program, "values", bind!(B = settings.worlds as i64))?;
    let mut learn = session.compile(program, "learn", bind!(B = settings.batch as i64))?;
    let mut copy = session.compile(program, "copy", bind!())?;
    copy.run::<Literal>(&[])?;
    let mut random = SplitMix64::new(1);
    let mut worlds: Vec<World> = (0..settings.worlds).map(|_| World::new(&mut random)).collect();
    let mut memory: Vec<Step> = Vec::new();
    let mut oldest = 0;
    for round in 1..=settings.rounds {
        let explored = f64::from(round) / (0.5 * f64::from(settings.rounds));
        let best = choose(&mut values, &worlds)?;
        for (world, best) in worlds.iter_mut().zip(best) {
            let is_random = random.unit_f64() < (1.0 - 0.9 * explored).max(0.1);
            let action = if is_random { random.below(ACTIONS as u64) as usize } else { best };
            let (next, reward, ended) = world.step(action);
            let step = (*world, next, action, reward, ended);
            if memory.len() < settings.memory {
                memory.push(step);
            } else {
                memory[oldest] = step;
                oldest = (oldest + 1) % memory.len();
            }
            *world = if ended { World::new(&mut random) } else { next };
        }
        let drawn: Vec<Step> = (0..settings.batch)
            .map(|_| memory[random.below(memory.len() as u64) as usize])
            .collect();
        let loss = learn.run(&batch(&drawn)?)?.scalar("loss")?;
        if round % settings.copy == 0 {
            copy.run::<Literal>(&[])?;
        }
        report(round, loss);
    }
    Ok(())
}

/// The inputs of `learn`.
fn batch(steps: &[Step]) -> Result<[(&'static str, Literal); 5]> {
    let count = steps.len();
    let planes = |world: fn(&Step) -> &World| {
        let planes = steps.iter().flat_map(|step| world(step).observe()).collect();
        Literal::from_vec(&[count, OBSERVATION], planes)
    };
    Ok([
        ("observations", planes(|step| &step.0)?),
        ("next", planes(|step| &step.1)?),
        ("actions", Literal::from_vec(&[count], steps.iter().map(|s| s.2 as i32).collect())?),
        ("rewards", Literal::from_vec(&[count], steps.iter().map(|s| s.3).collect())?),
        ("ended", Literal::from_vec(&[count], steps.iter().map(|s| s.4).collect())?),
    ])
}

/// The steps in which the trained agent reaches the goal of each world, or none if it falls into
/// the pit or does not arrive within `limit` steps.
pub fn play(
    session: &mut Session,
    program: &Program,
    worlds: &[World],
    limit: usize,
) -> Result<Vec<Option<usize>>> {
    let mut values = session.compile(program, "values", bind!(B = worlds.len() as i64))?;
    let mut now = worlds.to_vec();
    let mut arrived = vec![None; worlds.len()];
    for step in 1..=limit {
        for (n, action) in choose(&mut values, &now)?.into_iter().enumerate() {
            if now[n].has_ended() {
                continue;
            }
            now[n] = now[n].step(action).0;
            if now[n].agent == now[n].goal {
                arrived[n] = Some(step);
            }
        }
    }
    Ok(arrived)
}
