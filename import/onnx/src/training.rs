//! Training forms: normalisation by the statistics of the batch, and dropout.
//!
//! A running statistic is then a state of the function. A normalisation that is applied twice
//! updates it twice, in the order of the nodes.

use crate::import::Importer;
use crate::refusal::{Class, refuse};
use crate::value::Value;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use wengert_core::{Initializer, Result, Tensor};

/// What training forms have in common.
#[derive(Default)]
pub(crate) struct Training {
    /// Whether nodes are imported in their training forms.
    pub is_on: bool,
    /// The parameters that are running statistics.
    pub statistics: RefCell<BTreeSet<String>>,
    /// The newest values of running statistics, in training.
    running: RefCell<BTreeMap<String, Tensor>>,
    /// The key of all dropouts.
    key: OnceCell<Tensor>,
    dropouts: Cell<i32>,
}

impl Training {
    pub fn new(is_on: bool) -> Self {
        Training { is_on, ..Training::default() }
    }
}

impl Importer<'_, '_> {
    /// A running statistic. In training it is the newest value of a state.
    ///
    /// # Errors
    /// It cannot be a state: it is not an initializer of several numbers, or is read elsewhere.
    pub fn statistic(&self, value: &Value) -> Result<Tensor> {
        let Training { is_on, statistics, running, .. } = &self.training;
        let Value::Initial(initial) = value else {
            return match is_on {
                true => Err(refuse(
                    Class::Operand,
                    "a running statistic is no initializer of several numbers, so training cannot \
                     update it",
                )),
                false => self.tensor(value),
            };
        };
        statistics.borrow_mut().insert(initial.name.clone());
        if !is_on {
            return self.tensor(value);
        }
        if let Some(newest) = running.borrow().get(&initial.name) {
            return Ok(newest.clone());
        }
        if initial.parameter.get().is_some() {
            return Err(refuse(
                Class::Operand,
                format!("the running statistic `{}` is read by another op, too", initial.name),
            ));
        }
        let zeros = Tensor::variable(initial.literal.ty(), Initializer::Zeros);
        let state = self.builder.borrow_mut().state(&initial.name, zeros);
        let state = initial.parameter.get_or_init(|| state);
        self.parameters.borrow_mut().insert(initial.name.clone(), initial.literal.clone());
        running.borrow_mut().insert(initial.name.clone(), state.clone());
        Ok(state.clone())
    }

    /// Replaces the value of a running statistic, in training.
    pub fn update_statistic(&self, value: &Value, new: Tensor) {
        if let (true, Value::Initial(initial)) = (self.training.is_on, value) {
            self.training.running.borrow_mut().insert(initial.name.clone(), new);
        }
    }

    /// A key for one dropout.
    pub fn key(&self) -> Tensor {
        let Training { key, dropouts, .. } = &self.training;
        let number = dropouts.get();
        dropouts.set(number + 1);
        let of_all = || {
            let name = self.declare("key");
            self.builder.borrow_mut().key(&name)
        };
        key.get_or_init(of_all).fold_in(number)
    }

    /// Makes the newest values of running statistics those after the run.
    pub fn finish_statistics(&self) {
        for (name, value) in &*self.training.running.borrow() {
            self.builder.borrow_mut().update(name, value);
        }
    }
}
