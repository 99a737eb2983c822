//! This library on two ranks of one thread each, as a contender.
//!
//! The contender consists of three processes: a launcher, and two ranks that share memory, as
//! those of `graphrun train --ranks 2`. Rank 0 answers the requests ([`serve`](process::serve)).
//! It passes each to rank 1 first, so both do the same: they compile the step, check its losses,
//! and run it. Each step is one of two microbatches, whose gradients the ranks add. Of the stages
//! of ZeRO, which all have the same bits, the fastest enters.

use crate::case::{Case, Kind, Made};
use crate::harness::Contender;
use crate::parity::Parity;
use crate::process;
use crate::resident::{FUNCTION, Resident};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::time::Duration;
use wengert::core::graph::{self, InputRole};
use wengert::ranks::{DataParallel, Sharding, Shards};
use wengert::transport::{Communicator, Options, is_rank, join};
use wengert::{Device, DeviceOptions, Diagnostic, Literal, Result, Session, diagnostic};

/// Its name in records.
pub(crate) const TWO_RANKS: &str = "wengert (2 ranks)";

/// PyTorch's data parallelism on as many ranks: `peers/contenders/ddp.py`.
pub(crate) const DDP: &str = "torch.ddp";

/// Number of ranks.
const RANKS: usize = 2;

/// Runs by which the stages of ZeRO are compared.
const TRIALS: usize = 3;

/// Names of the inputs that hold the examples.
const EXAMPLES: [&str; 2] = ["x", "y"];

/// What rank 0 tells the other.
#[derive(Debug, Serialize, Deserialize)]
enum Order {
    Prepare(Key),
    Time(Key, u64),
    Release(Key),
    End,
}

/// A case, and its stage of ZeRO.
type Key = (String, usize);

/// A rank, with its cases.
struct Rank {
    world: Communicator,
    device: Device,
    residents: BTreeMap<Key, Resident>,
    /// The fastest stage of each case, on rank 0.
    fastest: BTreeMap<String, usize>,
}

/// Answers requests until the input ends: in the process that is started as a contender by its
/// ranks, which it starts.
///
/// Errors: the ranks do not start; one of them fails.
#[cfg(target_os = "linux")]
pub(crate) fn serve(
    device: Device,
    cases: &[Case],
    requests: &mut dyn BufRead,
    answers: &mut dyn Write,
) -> Result<()> {
    use std::process::{Command, Stdio};
    use wengert::transport::shared::Launcher;

    if is_rank() {
        // Rank 1 waits for requests, of which the next may be minutes away.
        let timeout = Duration::from_secs(24 * 3600);
        let world = join(&Options { timeout, ..Options::default() }).map_err(failed)?;
        let mut rank = Rank { world, device, residents: BTreeMap::new(), fastest: BTreeMap::new() };
        if rank.world.rank() > 0 {
            return rank.obey(cases);
        }
        process::serve(&mut rank, cases, requests, answers)
            .map_err(|e| diagnostic!("requests or answers fail: {e}"))?;
        return rank.order(&Order::End);
    }
    let program = std::env::current_exe()
        .map_err(|e| diagnostic!("the program that runs cannot be found again: {e}"))?;
    let launcher = Launcher::spawn(RANKS, |rank| {
        let mut command = Command::new(&program);
        command.args(std::env::args_os().skip(1));
        if rank > 0 {
            command.stdin(Stdio::null()).stdout(Stdio::null());
        }
        command
    });
    match launcher.and_then(Launcher::wait).map_err(failed)? {
        Ok(()) => Ok(()),
        Err(failure) => Err(failed(failure.into_error())),
    }
}

/// Error: there are no ranks on this system.
#[cfg(not(target_os = "linux"))]
pub(crate) fn serve(_: Device, _: &[Case], _: &mut dyn BufRead, _: &mut dyn Write) -> Result<()> {
    Err(Diagnostic::new("ranks are supported on Linux only"))
}

fn failed(error: wengert::transport::Error) -> Diagnostic {
    Diagnostic::of_device(error.to_string())
}

impl Rank {
    /// Tells the other ranks what to do.
    fn order(&self, order: &Order) -> Result<()> {
        let text = serde_json::to_vec(order).expect("orders are strings and numbers");
        let length = (text.len() as u64).to_le_bytes().to_vec();
        self.world.broadcast(0, length, 8).map_err(failed)?;
        let count = text.len();
        self.world.broadcast(0, text, count).map_err(failed)?;
        Ok(())
    }

    /// Does what rank 0 says, until it ends.
    fn obey(&mut self, cases: &[Case]) -> Result<()> {
        loop {
            let length = self.world.broadcast(0, vec![], 8).map_err(failed)?;
            let length = u64::from_le_bytes(length.try_into().expect("eight bytes were asked for"));
            let text = self.world.broadcast(0, vec![], length as usize).map_err(failed)?;
            let order = serde_json::from_slice(&text)
                .map_err(|e| diagnostic!("rank 0 gives no order: {e}"))?;
            let known = |id: &str| {
                let case = cases.iter().find(|case| case.id == id);
                case.ok_or_else(|| diagnostic!("there is no case `{id}`"))
            };
            match order {
                Order::Prepare(key) => drop(self.prepare_part(known(&key.0)?, &key)?),
                Order::Time(key, runs) => drop(self.time_part(&key, runs)?),
                Order::Release(key) => drop(self.residents.remove(&key)),
                Order::End => return Ok(()),
            }
        }
    }

    fn prepare_part(&mut self, case: &Case, key: &Key) -> Result<Parity> {
        let made = case.make()?;
        let options = DeviceOptions { threads: Some(1), ..DeviceOptions::default() };
        let mut session = Session::open_with(self.device, &options)?;
        session.join(self.world.clone())?;
        if let Some(seed) = made.init {
            session.initialize(&made.program, seed)?;
        }
        let (examples, variables): (Vec<_>, Vec<_>) =
            made.variables.iter().partition(|(name, _)| EXAMPLES.contains(&name.as_str()));
        for (name, value) in variables {
            session.set_variable(name, value)?;
        }
        let (program, shards) = of_rank(&made, Sharding::ALL[key.1])?;
        for (name, value) in session.variables()? {
            if let Some(axis) = shards.axis(&name) {
                session.set_variable(&name, &self.part(&value, axis)?)?;
            }
        }
        let own =
            examples.into_iter().map(|(name, value)| Ok((name.clone(), self.part(value, 0)?)));
        let mut resident = Resident::of(session, &program, &own.collect::<Result<Vec<_>>>()?)?;
        // The check has the examples of both ranks, whose loss it expects.
        let parity = (made.check)(&mut resident, case, &made.variables)?;
        self.residents.insert(key.clone(), resident);
        Ok(parity)
    }

    fn time_part(&mut self, key: &Key, runs: u64) -> Result<f64> {
        let resident = self.residents.get_mut(key);
        resident.ok_or_else(|| diagnostic!("`{}` was not prepared", key.0))?.time(runs)
    }

    /// Both ranks run a step so often.
    fn time_together(&mut self, key: &Key, runs: u64) -> Result<f64> {
        self.order(&Order::Time(key.clone(), runs))?;
        self.time_part(key, runs)
    }

    fn release_together(&mut self, key: &Key) {
        // A world that has failed has no other rank to tell.
        let _ = self.order(&Order::Release(key.clone()));
        self.residents.remove(key);
    }

    /// This rank's part of a tensor along an axis.
    fn part(&self, value: &Literal, axis: usize) -> Result<Literal> {
        let (mut shape, all) = (value.shape().to_vec(), value.to_bytes());
        let rows: usize = shape[..axis].iter().product();
        shape[axis] /= RANKS;
        let size = all.len() / rows / RANKS;
        let of_row = |row: usize| &all[(row * RANKS + self.world.rank()) * size..][..size];
        let bytes: Vec<u8> = (0..rows).flat_map(of_row).copied().collect();
        Literal::from_bytes(value.dtype(), &shape, &bytes)
    }
}

impl Contender for Rank {
    fn name(&self) -> &str {
        TWO_RANKS
    }

    fn device(&self) -> String {
        self.device.to_string()
    }

    /// Training steps whose batch is axis 0.
    fn takes_part(&self, case: &Case) -> bool {
        matches!(
            case.kind,
            Kind::Transformer { .. } | Kind::Training { .. } | Kind::Convolutional { .. }
        )
    }

    fn prepare(&mut self, case: &Case) -> Result<Parity> {
        let mut best: Option<(f64, Key, Parity)> = None;
        for stage in 0..Sharding::ALL.len() {
            let key = (case.id.clone(), stage);
            self.order(&Order::Prepare(key.clone()))?;
            let parity = self.prepare_part(case, &key)?;
            let mut seconds = f64::INFINITY;
            for _ in 0..TRIALS {
                seconds = seconds.min(self.time_together(&key, 1)?);
            }
            eprintln!("{TWO_RANKS}: ZeRO stage {stage} takes {:.1} ms", 1e3 * seconds);
            let is_slower = best.as_ref().is_some_and(|(least, ..)| *least <= seconds);
            let slower = match is_slower {
                true => Some(key),
                false => best.replace((seconds, key, parity)).map(|(_, key, _)| key),
            };
            if let Some(key) = slower {
                self.release_together(&key);
            }
        }
        let (_, (id, stage), parity) = best.expect("there are several stages");
        self.fastest.insert(id, stage);
        Ok(parity)
    }

    fn time(&mut self, case: &Case, runs: u64) -> Result<f64> {
        let stage = self.fastest.get(&case.id);
        let stage = *stage.ok_or_else(|| diagnostic!("`{}` was not prepared", case.id))?;
        self.time_together(&(case.id.clone(), stage), runs)
    }

    fn release(&mut self, case: &Case) {
        if let Some(stage) = self.fastest.remove(&case.id) {
            self.release_together(&(case.id.clone(), stage));
        }
    }
}

/// The case's program with the step that each rank computes, and the variables that it divides.
fn of_rank(made: &Made, sharding: Sharding) -> Result<(graph::Program, Shards)> {
    let mut program = (*made.program).clone();
    let mut step = program.get(FUNCTION)?.clone();
    for input in step.inputs.iter_mut().filter(|input| EXAMPLES.contains(&input.name.as_str())) {
        input.role = InputRole::Input;
    }
    let step = DataParallel::new(EXAMPLES).ranks(RANKS).microbatches(RANKS).apply(&step)?;
    let shards = Shards::choose(&step, sharding, []);
    program.replace(shards.apply(&step)?);
    Ok((program, shards))
}
