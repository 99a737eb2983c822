//! Ranks that share batches: they have the bits of one rank.

use super::{contents, data, program, recipe};
use std::path::Path;
use std::time::Duration;
use wengert::data::Arrays;
use wengert::recipe::{LastBatch, Length, Recipe};
use wengert::train::{Options, Report, TrainError, train};
use wengert::transport::{Communicator, shared};
use wengert::{Device, DeviceOptions, Literal, Session};

/// A recipe whose batches are divided into parts.
fn divided(microbatches: u64, steps: u64) -> Recipe {
    let mut recipe = recipe();
    recipe.microbatches = microbatches;
    recipe.batches.last = LastBatch::Drop;
    recipe.length = Length::Steps(steps);
    recipe
}

/// What a rank has at the end.
type Ended = Result<(Report, Arrays), TrainError>;

/// Trains on one rank.
fn on_rank(
    recipe: &Recipe,
    data: &Arrays,
    world: Option<&Communicator>,
    folder: Option<&Path>,
    resume: bool,
) -> Ended {
    let one = DeviceOptions { threads: Some(1), ..DeviceOptions::default() };
    let mut session = Session::open_with(Device::Cpu, &one)?;
    let options = Options { world, folder, resume, ..Options::default() };
    let report = train(&mut session, &program(0.05), recipe, data, options, &mut |_| {})?;
    Ok((report, session.variables()?))
}

/// Trains on ranks that are threads. `data_of` gives the data of a rank.
fn on_ranks(
    ranks: usize,
    recipe: &Recipe,
    data_of: impl Fn(usize) -> Arrays + Sync,
    folder: Option<&Path>,
    resume: bool,
) -> Vec<Ended> {
    let options =
        wengert::transport::Options { timeout: Duration::from_secs(60), ..Default::default() };
    let world = shared::threads(ranks, &options).unwrap();
    std::thread::scope(|scope| {
        let data_of = &data_of;
        let run = move |world: Communicator| {
            on_rank(recipe, &data_of(world.rank()), Some(&world), folder, resume)
        };
        let threads: Vec<_> = world.into_iter().map(|w| scope.spawn(move || run(w))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Weights, report, log and checkpoints are the same for any number of ranks, and in a run that
/// goes on with other numbers of ranks. They are not those of whole batches.
#[test]
fn bits_do_not_depend_on_the_number_of_ranks() {
    let recipe = divided(4, 30);
    let folder = tempfile::tempdir().unwrap();
    let alone = on_rank(&recipe, &data(), None, Some(folder.path()), false).unwrap();
    let files = contents(folder.path());
    for ranks in [1, 2, 4] {
        let folder = tempfile::tempdir().unwrap();
        let found = on_ranks(ranks, &recipe, |_| data(), Some(folder.path()), false);
        for found in found {
            assert_eq!(found.as_ref(), Ok(&alone), "{ranks} ranks");
        }
        assert_eq!(contents(folder.path()), files, "{ranks} ranks");
    }
    let folder = tempfile::tempdir().unwrap();
    for (steps, ranks) in [(7, 2), (15, 4), (30, 1)] {
        let recipe = divided(4, steps);
        let found = on_ranks(ranks, &recipe, |_| data(), Some(folder.path()), steps > 7);
        let variables = &found[0].as_ref().unwrap().1;
        assert!(found.iter().all(|found| &found.as_ref().unwrap().1 == variables));
        if steps == 30 {
            assert_eq!(*variables, alone.1);
        }
    }
    let whole = on_rank(&divided(1, 30), &data(), None, None, false).unwrap();
    assert_ne!(whole.1, alone.1);
    let distance = |name: &str| {
        let [a, b] = [&whole.1[name], &alone.1[name]];
        a.scalars()
            .zip(b.scalars())
            .map(|(a, b)| (a.to_f64() - b.to_f64()).abs())
            .fold(0.0, f64::max)
    };
    assert!(distance("w") < 1e-5, "{}", distance("w"));
}

#[test]
fn what_cannot_be_shared_is_an_error() {
    let fails = |ranks: usize, recipe: &Recipe, says: &str| {
        for found in on_ranks(ranks, recipe, |_| data(), None, false) {
            let error = found.unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    };
    fails(2, &divided(1, 3), "2 ranks cannot share 1 microbatch");
    fails(4, &divided(6, 3), "4 ranks cannot share 6 microbatches");
    fails(2, &divided(16, 3), "a batch of 8 examples has no 16 equal parts");
    let mut smaller = divided(4, 3);
    smaller.batches.last = LastBatch::Smaller;
    fails(2, &smaller, "a batch of 2 examples has no 4 equal parts");
    fails(1, &smaller, "it is the last batch of an epoch: leave it out");
}

/// A rank that differs ends the run on all ranks.
#[test]
fn ranks_with_other_data_are_found() {
    let other = |rank: usize| {
        let mut data = data();
        if rank == 1 {
            data.insert("y_train".into(), Literal::zeros(wengert::DType::F32, &[50]));
        }
        data
    };
    let found = on_ranks(2, &divided(2, 3), other, None, false);
    let errors: Vec<String> = found.into_iter().map(|f| f.unwrap_err().to_string()).collect();
    let says = "this rank has another program, recipe or data";
    assert!(errors.iter().all(|error| error.contains(says)), "{errors:?}");
    assert!(errors[0].starts_with("rank 1 failed: "), "{errors:?}");
}
