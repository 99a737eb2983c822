//! The functions that training runs, compiled for each batch size that occurs.

use super::ranks::Ranks;
use super::shards::Stored;
use crate::data::spec;
use crate::outputs::Outputs;
use crate::session::{Compiled, Session};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use wengert_core::graph::{self, InputRole, Program};
use wengert_core::{Binding, Literal, Location, Result};

/// A function that is compiled once for every number of examples that occurs.
pub(super) struct Function<'a> {
    program: &'a Program,
    name: &'a str,
    ranks: Ranks<'a>,
    stored: Stored<'a>,
    compiled: BTreeMap<Option<usize>, Compiled>,
    compiling: Duration,
}

impl<'a> Function<'a> {
    pub(super) fn new(program: &'a Program, name: &'a str) -> Self {
        Function::among(program, name, Ranks::default())
    }

    /// A function of which each of the ranks computes a part.
    pub(super) fn among(program: &'a Program, name: &'a str, ranks: Ranks<'a>) -> Self {
        let (stored, compiled) = (Stored::default(), BTreeMap::new());
        Function { program, name, ranks, stored, compiled, compiling: Duration::ZERO }
    }

    /// From now on, variables are stored so.
    pub(super) fn store(&mut self, stored: &Stored<'a>) {
        self.stored = stored.clone();
        self.compiled.clear();
    }

    /// The function for the inputs of a batch, of one device.
    pub(super) fn bound(&self, inputs: &[(&str, Literal)]) -> Result<graph::Function> {
        self.program.get(self.name)?.bind(&self.binding(inputs)?)
    }

    /// A function for the inputs of a batch, as each rank computes it with its part of the batch.
    pub(super) fn of_rank(
        &self,
        bound: graph::Function,
        inputs: &[(&str, Literal)],
    ) -> Result<graph::Function> {
        match self.ranks.divides() {
            false => Ok(bound),
            true => self.ranks.of_rank(&bound, inputs.iter().map(|(name, _)| *name)),
        }
    }

    /// The time of the last run that was spent on compilation.
    pub(super) fn compiling(&self) -> Duration {
        self.compiling
    }

    /// The extents of a batch, of which the inputs are this rank's part.
    ///
    /// Errors: a tensor does not have the type of its input.
    pub(super) fn binding(&self, inputs: &[(&str, Literal)]) -> Result<Binding> {
        let function = self.program.get(self.name)?;
        let mut binding = Binding::new();
        for (name, literal) in inputs {
            if let Some(index) = function.input_index(name) {
                let mut extents = literal.shape().to_vec();
                extents.iter_mut().take(1).for_each(|count| *count *= self.ranks.count());
                let given = (literal.dtype(), &extents[..]);
                spec::bind_extents(name, function.input_type(index), given, &mut binding)
                    .map_err(|error| error.context(format_args!("@{}", self.name)))?;
            }
        }
        Ok(binding)
    }

    /// Runs the function on a batch; every key input is `key`.
    pub(super) fn run<'b>(
        &mut self,
        session: &mut Session,
        mut inputs: Vec<(&'b str, Literal)>,
        key: &Literal,
    ) -> Result<Outputs>
    where
        'a: 'b,
    {
        // Locations are unknown here: the line that compiles and runs is the trainer's, not the
        // user's.
        let _trainer = Location::Unknown.attributed();
        let function = self.program.get(self.name)?;
        let examples = inputs.first().and_then(|(_, literal)| literal.shape().first()).copied();
        self.compiling = Duration::ZERO;
        if !self.compiled.contains_key(&examples) {
            let began = Instant::now();
            let compiled = match self.ranks.divides() || self.stored.is_divided() {
                false => session.compile(self.program, self.name, &self.binding(&inputs)?)?,
                true => {
                    let shared = self.stored.shared(self.bound(&inputs)?)?;
                    let of_rank = self.stored.apply(&self.of_rank(shared, &inputs)?)?;
                    let program = Program::from_functions(vec![of_rank])?;
                    session.compile(&program, self.name, Binding::new())?
                }
            };
            compiled.expect_repeats();
            self.compiled.insert(examples, compiled);
            self.compiling = began.elapsed();
        }
        let compiled = self.compiled.get_mut(&examples).expect("it was just put there");
        for input in function.inputs.iter().filter(|input| input.role == InputRole::Key) {
            inputs.push((input.name.as_str(), key.clone()));
        }
        compiled.run(&inputs)
    }
}
