//! This library on two ranks of one thread each, as a contender.
//!
//! The contender consists of three processes: a launcher, and two ranks that share memory, as
//! those of `graphrun train --ranks 2`. Rank 0 answers the requests ([`serve`](process::serve)).
//! It passes each to rank 1 first, so both do the same: they compile the step, check its losses,
//! and run it. Each step is one of two microbatches, whose gradients the ranks add.

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
use wengert::ranks::DataParallel;
use wengert::transport::{Communicator, Options, is_rank, join};
use wengert::{Device, DeviceOptions, Diagnostic, Literal, Result, Session, diagnostic};

/// Its name in records.
pub(crate) const TWO_RANKS: &str = "wengert (2 ranks)";

/// PyTorch's data parallelism on as many ranks: `peers/contenders/ddp.py`.
pub(crate) const DDP: &str = "torch.ddp";

/// Number of ranks.
const RANKS: usize = 2;

/// Names of the inputs that hold the examples.
const EXAMPLES: [&str; 2] = ["x", "y"];

/// What rank 0 tells the other.
#[derive(Debug, Serialize, Deserialize)]
enum Order {
    Prepare(String),
    Time(String, u64),
    Release(String),
    End,
}

/// A rank, with its cases.
struct Rank {
    world: Communicator,
    device: Device,
    residents: BTreeMap<String, Resident>,
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
        let mut rank = Rank { world, device, residents: BTreeMap::new() };
        if rank.world.rank() > 0 {
            return rank.obey(cases);
        }
        process::serve(&mut rank, cases, requests, answers)?;
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
                Order::Prepare(id) => drop(self.prepare_part(known(&id)?)?),
                Order::Time(id, runs) => drop(self.time_part(&id, runs)?),
                Order::Release(id) => drop(self.residents.remove(&id)),
                Order::End => return Ok(()),
            }
        }
    }

    fn prepare_part(&mut self, case: &Case) -> Result<Parity> {
        let made = case.make()?;
        let options = DeviceOptions { threads: Some(1), ..DeviceOptions::default() };
        let mut session = Session::open_with(self.device, &options)?;
        session.join(self.world.clone())?;
        let values = part(&made.variables, self.world.rank())?;
        let mut resident = Resident::of(session, &of_rank(&made)?, made.init, &values)?;
        // The check has the examples of both ranks, whose losses it expects.
        let parity = (made.check)(&mut resident, case, &made.variables)?;
        self.residents.insert(case.id.clone(), resident);
        Ok(parity)
    }

    fn time_part(&mut self, id: &str, runs: u64) -> Result<f64> {
        let resident = self.residents.get_mut(id);
        resident.ok_or_else(|| diagnostic!("`{id}` was not prepared"))?.time(runs)
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
        self.order(&Order::Prepare(case.id.clone()))?;
        self.prepare_part(case)
    }

    fn time(&mut self, case: &Case, runs: u64) -> Result<f64> {
        self.order(&Order::Time(case.id.clone(), runs))?;
        self.time_part(&case.id, runs)
    }

    fn release(&mut self, case: &Case) {
        // A world that has failed has no other rank to tell.
        let _ = self.order(&Order::Release(case.id.clone()));
        self.residents.remove(&case.id);
    }
}

/// The case's program, with the step that each rank computes.
fn of_rank(made: &Made) -> Result<graph::Program> {
    let mut program = (*made.program).clone();
    let mut step = program.get(FUNCTION)?.clone();
    for input in step.inputs.iter_mut().filter(|input| EXAMPLES.contains(&input.name.as_str())) {
        input.role = InputRole::Input;
    }
    let parallel = DataParallel::new(EXAMPLES).ranks(RANKS).microbatches(RANKS);
    program.replace(parallel.apply(&step)?);
    Ok(program)
}

/// The values of a rank, which has a part of the examples.
fn part(values: &[(String, Literal)], rank: usize) -> Result<Vec<(String, Literal)>> {
    let part = |(name, value): &(String, Literal)| {
        if !EXAMPLES.contains(&name.as_str()) {
            return Ok((name.clone(), value.clone()));
        }
        let (mut shape, all) = (value.shape().to_vec(), value.to_bytes());
        shape[0] /= RANKS;
        let size = all.len() / RANKS;
        let rows = Literal::from_bytes(value.dtype(), &shape, &all[rank * size..][..size])?;
        Ok((name.clone(), rows))
    };
    values.iter().map(part).collect()
}
