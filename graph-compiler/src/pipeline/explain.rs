//! A compilation that tells what became of every equation.
//!
//! Each equation gets a **tag**: a location of its own, derived from its location. Passes hand
//! locations on to what they make of an equation, so the tags of a step are the equations that it
//! computes. Locations compute nothing: the plan is that of a compilation without tags.

use super::compile::{Bound, Options, verified};
use super::graph::Runner;
use super::list::PIPELINE;
use super::trial::Optimized;
use crate::memory::Planned;
use rustc_hash::FxHashMap;
use wengert_core::graph::{Body, Function, Region};
use wengert_core::{Id, Location, LocationId, LocationTable, Result, Target};

/// The rule in the location of a tag.
const TAG: &str = "equation #";

/// The outcome of an equation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fate {
    /// These steps of the plan compute it, each perhaps with other equations.
    Steps(Vec<usize>),
    /// The pass of this name removed it: nothing that was made of it is left.
    Removed(&'static str),
    /// It is in the function after the graph passes, and no step computes it: its result is a
    /// constant, or another description of bytes that exist.
    NoStep,
}

/// A plan, and what became of every equation.
#[derive(Clone, PartialEq, Debug)]
pub struct Explained {
    /// The plan, with its predicted cost.
    pub planned: Planned,
    /// The outcome of each equation, by its [number](Function::numbered).
    pub fates: Vec<Fate>,
    /// The numbers of the equations that each step computes, ascending.
    pub steps: Vec<Vec<usize>>,
}

impl Bound {
    /// The plan of [`compile`](Self::compile), and what became of every equation of
    /// [`function`](Self::function).
    ///
    /// Errors: those of [`compile`](Self::compile).
    pub fn explain(&self, target: &Target, options: &Options) -> Result<Explained> {
        let (mut function, count) = tagged(&self.function);
        let mut removed: Vec<Option<&'static str>> = vec![None; count];
        let mut alive = vec![true; count];
        let mut runner = Runner::new(target, &options.fuel, true);
        for step in PIPELINE.graph {
            function = runner.step(step, function)?;
            // The stages of one step only are kept, since each is a copy of the function.
            for (pass, stage) in runner.stages.drain(..) {
                let left = tags_of(&stage, count);
                for number in 0..count {
                    if alive[number] && !left[number] {
                        removed[number] = Some(pass);
                    }
                }
                alive = left;
            }
        }
        let optimized = Optimized { function, plain: runner.plain, stages: Vec::new() };
        let plan = |function: &Function| Ok([self.planned(function, target, options)?]);
        let (function, [planned]) = optimized.chosen(options, plan)?;
        let planned = verified(planned);
        let tags = tags(&function.locations, count);
        let mut steps = Vec::with_capacity(planned.sources.len());
        let mut computed_by = vec![Vec::new(); count];
        for (step, sources) in planned.sources.iter().enumerate() {
            let mut equations: Vec<usize> =
                sources.iter().filter_map(|id| tags[id.index()]).collect();
            equations.sort_unstable();
            equations.dedup();
            equations.iter().for_each(|number| computed_by[*number].push(step));
            steps.push(equations);
        }
        let fate = |(number, steps): (usize, Vec<usize>)| match (steps.is_empty(), removed[number])
        {
            (false, _) => Fate::Steps(steps),
            (true, Some(pass)) if !alive[number] => Fate::Removed(pass),
            _ => Fate::NoStep,
        };
        let fates = computed_by.into_iter().enumerate().map(fate).collect();
        Ok(Explained { planned, fates, steps })
    }
}

/// The function with a tag for each equation, and the number of tags.
fn tagged(function: &Function) -> (Function, usize) {
    let mut function = function.clone();
    let mut tagger =
        Tagger { locations: &mut function.locations, callees: FxHashMap::default(), next: 0 };
    for callee in function.body.callees() {
        let body = Region::from(tagger.body(callee.body));
        tagger.callees.insert((callee.name.to_owned(), callee.body.clone()), body);
    }
    let body = tagger.body(&function.body);
    let count = tagger.next;
    function.body = body;
    (function, count)
}

struct Tagger<'a> {
    locations: &'a mut LocationTable,
    /// The tagged callees by their names and bodies. Looked up, never iterated.
    callees: FxHashMap<(String, Region), Region>,
    next: usize,
}

impl Tagger<'_> {
    fn body(&mut self, body: &Body) -> Body {
        let mut body = body.clone();
        for equation in &mut body.equations {
            let rule = format!("{TAG}{}", self.next).into();
            self.next += 1;
            equation.location =
                self.locations.intern(Location::Derived { of: equation.location, rule });
            let callee = equation.op.callee().map(str::to_owned);
            for region in &mut equation.regions {
                *region = match &callee {
                    Some(name) => self.callees[&(name.clone(), region.clone())].clone(),
                    None => self.body(region).into(),
                };
            }
        }
        body
    }
}

/// The tag from which each location of a table is derived.
fn tags(table: &LocationTable, count: usize) -> Vec<Option<usize>> {
    let mut tags: Vec<Option<usize>> = Vec::with_capacity(table.len());
    for (_, location) in table.iter() {
        // The source of a derivation has a smaller id.
        tags.push(match location {
            Location::Derived { of, rule } => {
                let own = rule.strip_prefix(TAG).and_then(|number| number.parse().ok());
                own.filter(|number| *number < count)
                    .or_else(|| tags.get(of.index()).copied().flatten())
            }
            _ => None,
        });
    }
    tags
}

/// Whether each tag is left in a function.
fn tags_of(function: &Function, count: usize) -> Vec<bool> {
    let tags = tags(&function.locations, count);
    let mut left = vec![false; count];
    for numbered in function.numbered() {
        let LocationId(id) = numbered.equation.location;
        if let Some(number) = tags[id as usize] {
            left[number] = true;
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert_core::Binding;
    use wengert_core::graph::parse_program;

    fn explained(text: &str) -> (Bound, Explained) {
        let program = parse_program(text, "f.ir").expect("the text is right");
        let bound = Bound::new(&program.functions()[0], &Binding::new()).expect("it is bound");
        let explained = bound.explain(&Target::cpu(), &Options::default()).expect("it compiles");
        (bound, explained)
    }

    #[test]
    fn every_equation_has_its_steps_or_the_pass_that_removed_it() {
        let (bound, explained) = explained(
            "func @f(%x: f32[6,10], %y: f32[10,5]) -> (f32[6], f32[30], f32[6,10]) {
              func @square(%0: f32[6,5]) {
                %1: f32[6,5] = mul %0, %0
                return %1
              }
              %2: f32[6,5] = dot_general %x, %y {contract=[[1],[0]]}
              %3: f32[6,5] = dot_general %x, %y {contract=[[1],[0]]}
              %4: f32[6,5] = exp %3
              %5: f32[6,5] = call %2 {function=@square}
              %6: f32[6] = reduce_sum %5 {axes=[1]}
              %7: f32[30] = reshape %2 {shape=[30]}
              %8: f32[6,10] = tanh %x
              return %6, %7, %8
            }",
        );
        let plan = bound.compile(&Target::cpu(), &Options::default()).expect("it compiles").0;
        assert_eq!(*explained.planned.plan, *plan, "tags change nothing");
        let Fate::Steps(product) = &explained.fates[1] else {
            panic!("the product has a step: {:?}", explained.fates);
        };
        let Fate::Steps(sum) = &explained.fates[0] else {
            panic!("the square in the callee has a step: {:?}", explained.fates);
        };
        assert_eq!(explained.fates[5], Fate::Steps(sum.clone()), "{:?}", explained.fates);
        assert!(product != sum);
        assert_eq!(explained.fates[2], Fate::Removed("cse"));
        assert_eq!(explained.fates[3], Fate::Removed("dce"), "no output needs the exponential");
        assert!(matches!(explained.fates[7], Fate::Steps(_)));
        for (step, equations) in explained.steps.iter().enumerate() {
            for number in equations {
                let Fate::Steps(steps) = &explained.fates[*number] else { panic!("{number}") };
                assert!(steps.contains(&step));
            }
        }
    }

    #[test]
    fn equations_in_loops_have_the_steps_of_the_loop() {
        let (_, explained) = explained(
            "func @f(%x: f32[4,2], %a: f32[2]) -> (f32[2]) {
              %0: f32[2] = scan %a, %x {captures=0, carries=1, length=4}
                region (%1: f32[2], %2: f32[2]) {
                  %3: f32[2] = mul %1, %2
                  %4: f32[2] = tanh %3
                  return %4
                }
              return %0
            }",
        );
        let fates = &explained.fates;
        let Fate::Steps(inside) = &fates[2] else { panic!("{fates:?}") };
        assert_eq!(fates[1], fates[2], "one nest has both");
        assert!(matches!(&fates[0], Fate::Steps(steps) if steps[0] < inside[0]), "{fates:?}");
    }
}
