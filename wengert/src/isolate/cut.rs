//! Parts of a function as functions of their own.
//!
//! A [`Case`] is a function and a value for each of its inputs. [`Record`] holds every value of a
//! run in the interpreter. With it, any set of equations becomes a case: each value that the set
//! uses and does not compute becomes an input, and the record has its value.

use super::walk::{Flow, Frame, Visit, Visitor, walk};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use wengert_core::graph::{Body, Function, Input, InputRole, Output, OutputRole, ValueId};
use wengert_core::interpret::Array;
use wengert_core::{Binding, Id, Literal, LocationId, LocationTable, Mesh, Result};

/// A function without dimension variables, and a value for each of its inputs.
#[derive(Clone, PartialEq, Debug)]
pub struct Case {
    /// The function.
    pub function: Function,
    /// The values, in the order of the inputs.
    pub inputs: Vec<Literal>,
}

impl Case {
    /// The case of a bound function whose variables, keys and states are plain inputs and outputs,
    /// and which has no probes. Its names are unique.
    ///
    /// Errors: a dimension is not bound; a probe cannot be removed.
    pub fn plain(function: &Function, inputs: &[Literal]) -> Result<Case> {
        let outputs = function.outputs.len();
        let bound = crate::pipeline::Bound::new(function, &Binding::new())?;
        let mut function = bound.function;
        function.outputs.truncate(outputs);
        function.body.outputs.truncate(outputs);
        function.inputs.iter_mut().for_each(|input| input.role = InputRole::Input);
        let mut names = BTreeSet::new();
        for output in &mut function.outputs {
            output.role = OutputRole::Output;
            while !names.insert(output.name.clone()) {
                output.name.push_str("_new");
            }
        }
        let case = Case { function, inputs: inputs.to_vec() };
        let outputs = case.outputs();
        Ok(case.of_outputs(&outputs))
    }

    /// The outputs with their values.
    pub fn outputs(&self) -> Vec<(String, ValueId)> {
        let names = self.function.outputs.iter().map(|output| output.name.clone());
        names.zip(self.function.body.outputs.iter().copied()).collect()
    }

    /// The case that computes these values alone, by the equations and inputs that they need.
    pub fn of_outputs(&self, outputs: &[(String, ValueId)]) -> Case {
        let all = vec![true; self.function.body.equations.len()];
        part(self, &Record::default(), &all, outputs)
    }

    /// Runs the case in the interpreter, and records every value of its body.
    ///
    /// Errors: those of [`walk()`].
    pub fn record(&self) -> Result<Record> {
        let mut recorder = Recorder { values: BTreeMap::new(), error: None };
        walk(&self.function, &self.inputs, &mut recorder)?;
        if let Some(error) = recorder.error {
            return Err(error);
        }
        let inputs = self.function.body.inputs.iter().copied().zip(self.inputs.iter().cloned());
        recorder.values.extend(inputs);
        Ok(Record { values: recorder.values })
    }

    /// The values on which the regions of equation `number` run, at most `limit` of them in the
    /// order of the run, each as a case with the frame that it ran in.
    ///
    /// Errors: those of [`walk()`].
    pub fn entries(&self, number: usize, limit: usize) -> Result<Vec<(Frame, Case)>> {
        let mut entries =
            Entries { number, limit, locations: &self.function.locations, found: vec![] };
        walk(&self.function, &self.inputs, &mut entries)?;
        entries.found.into_iter().map(|(frame, case)| Ok((frame, case?))).collect()
    }
}

/// The values of a run by their ids.
#[derive(Clone, Debug, Default)]
pub struct Record {
    values: BTreeMap<ValueId, Literal>,
}

impl Record {
    /// The value of an id.
    pub fn get(&self, value: ValueId) -> Option<&Literal> {
        self.values.get(&value)
    }
}

struct Recorder {
    values: BTreeMap<ValueId, Literal>,
    error: Option<wengert_core::Diagnostic>,
}

impl Visitor for Recorder {
    fn equation(&mut self, visit: Visit<'_>) -> Flow {
        if !visit.frames.is_empty() {
            return ControlFlow::Continue(());
        }
        for (value, array) in visit.equation.results.iter().zip(visit.results.iter()) {
            match array.to_literal() {
                Ok(literal) => drop(self.values.insert(*value, literal)),
                Err(error) => {
                    self.error = Some(error);
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    }
}

struct Entries<'a> {
    number: usize,
    limit: usize,
    locations: &'a LocationTable,
    found: Vec<(Frame, Result<Case>)>,
}

impl Visitor for Entries<'_> {
    fn enter(&mut self, frames: &[Frame], region: &Body, inputs: &[Array<f64>]) -> Flow {
        if let [frame] = frames
            && frame.number == self.number
        {
            if self.found.len() == self.limit {
                return ControlFlow::Break(());
            }
            self.found.push((frame.clone(), region_case(region, self.locations, inputs)));
        }
        ControlFlow::Continue(())
    }

    fn equation(&mut self, visit: Visit<'_>) -> Flow {
        match visit.frames.is_empty() && visit.number >= self.number {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// A region and values for its inputs as a case.
fn region_case(region: &Body, locations: &LocationTable, inputs: &[Array<f64>]) -> Result<Case> {
    let input = |n: usize| Input {
        name: format!("a{n}"),
        role: InputRole::Input,
        location: LocationId::new(0),
    };
    let output = |n: usize| Output { name: n.to_string(), role: OutputRole::Output };
    let function = Function {
        name: "region".into(),
        mesh: Mesh::default(),
        inputs: (0..region.inputs.len()).map(input).collect(),
        outputs: (0..region.outputs.len()).map(output).collect(),
        body: region.clone(),
        locations: locations.clone(),
    };
    let inputs = inputs.iter().map(Array::to_literal).collect::<Result<_>>()?;
    Ok(Case { function: function.renumber(), inputs })
}

/// The case that computes `outputs` by the equations that `kept` holds. Values of other equations
/// become inputs, with the values of the record. Equations and inputs without a use are dropped.
///
/// # Panics
///
/// If the record lacks a value that becomes an input.
pub fn part(case: &Case, record: &Record, kept: &[bool], outputs: &[(String, ValueId)]) -> Case {
    let Case { function, inputs } = case;
    let body = &function.body;
    let mut used: BTreeSet<ValueId> = outputs.iter().map(|(_, value)| *value).collect();
    let mut live = vec![false; body.equations.len()];
    for (number, equation) in body.equations.iter().enumerate().rev() {
        live[number] = kept[number] && equation.results.iter().any(|v| used.contains(v));
        if live[number] {
            used.retain(|v| !equation.results.contains(v));
            used.extend(&equation.operands);
        }
    }
    let mut new = Function { inputs: vec![], outputs: vec![], ..function.clone() };
    new.body.equations.clear();
    (new.body.inputs, new.body.outputs) = (vec![], vec![]);
    let mut given = Vec::new();
    for (n, value) in body.inputs.iter().enumerate() {
        if used.remove(value) {
            new.inputs.push(function.inputs[n].clone());
            new.body.inputs.push(*value);
            given.push(inputs[n].clone());
        }
    }
    let definitions = body.definitions();
    for value in used {
        let mut name = format!("v{}", value.index());
        while new.inputs.iter().any(|input| input.name == name) {
            name.push('_');
        }
        let location =
            definitions[value].map_or(LocationId::new(0), |n| body.equations[n].location);
        new.inputs.push(Input { name, role: InputRole::Input, location });
        new.body.inputs.push(value);
        given.push(record.get(value).expect("the run has recorded every value").clone());
    }
    let equations = body.equations.iter().zip(&live).filter(|(_, live)| **live);
    new.body.equations = equations.map(|(equation, _)| equation.clone()).collect();
    for (name, value) in outputs {
        new.outputs.push(Output { name: name.clone(), role: OutputRole::Output });
        new.body.outputs.push(*value);
    }
    Case { function: new.renumber(), inputs: given }
}
