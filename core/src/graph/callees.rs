//! Callees: functions that are called by name.
//!
//! A `call` equation holds the body that it runs as a region. All calls of one function share one
//! body object ([`Region`]). In text and files a function is written once, with its name, before
//! the function that uses it and after those that it calls itself. So within a function a name
//! must mean one body: the builder ensures this ([`Names`]) and the verifier checks it. A body is
//! finished before it can be called, so there is no recursion.

use super::{Body, Region};
use crate::diagnostic::{Result, ensure};
use crate::op::{FunctionName, Op};
use crate::text::cursor::MAX_DEPTH;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

/// Most equations of a function with all calls inlined.
pub const MAX_EQUATIONS: u64 = 1 << 24;

/// A called function.
#[derive(Clone, Copy, Debug)]
pub struct Callee<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its body.
    pub body: &'a Region,
}

impl Body {
    /// All functions that the body calls, directly or indirectly: each once, callees before
    /// callers.
    pub fn callees(&self) -> Vec<Callee<'_>> {
        let mut found = Found::default();
        found.visit(self);
        found.callees
    }
}

#[derive(Default)]
struct Found<'a> {
    callees: Vec<Callee<'a>>,
    seen: HashSet<(&'a str, &'a Region)>,
}

impl<'a> Found<'a> {
    fn visit(&mut self, body: &'a Body) {
        for equation in &body.equations {
            let Some(name) = equation.op.callee() else {
                equation.regions.iter().for_each(|region| self.visit(region));
                continue;
            };
            for body in &equation.regions {
                if self.seen.insert((name, body)) {
                    self.visit(body);
                    self.callees.push(Callee { name, body });
                }
            }
        }
    }
}

/// Checks that a body is small enough to be called.
pub(super) fn check_extent(body: &Region) -> Result<()> {
    let extent = body.extent();
    ensure!(extent.depth < MAX_DEPTH, "G7: functions call functions more than {MAX_DEPTH} deep";
        help "repeat a step by `scan` or `fori`, which need no depth");
    ensure!(
        extent.equations <= MAX_EQUATIONS,
        "G10: with all calls inlined, the function has {} equations; it may have at \
         most {MAX_EQUATIONS}",
        extent.equations;
        help "a function that calls another twice doubles it; repeat by `scan` or `fori` instead"
    );
    Ok(())
}

/// The names of callees in a function under construction.
#[derive(Default)]
pub(crate) struct Names {
    bodies: RefCell<HashMap<String, Region>>,
    /// Settled name and body for each name and address of a given body. Without this cache a
    /// function would be traversed once for every path to it.
    settled: RefCell<HashMap<(String, usize), Settled>>,
}

struct Settled {
    /// Keeps the given body alive, so that its address is not reused.
    _given: Region,
    name: String,
    body: Region,
}

impl Names {
    /// Makes callee names unique in the function under construction. A body whose name is taken
    /// is renamed, and a body that is known already is replaced by the known object.
    pub(crate) fn settle(&self, op: &mut Op, regions: &mut [Region]) -> Result<()> {
        if let (Some(name), [body]) = (op.callee(), &mut *regions) {
            let (name, known) = self.named(name, body)?;
            *body = known;
            op.set_callee(FunctionName(name));
            return Ok(());
        }
        for region in regions {
            if let Some(changed) = self.within(region)? {
                *region = changed.into();
            }
        }
        Ok(())
    }

    fn named(&self, name: &str, body: &Region) -> Result<(String, Region)> {
        let key = (name.to_string(), body.address());
        if let Some(known) = self.settled.borrow().get(&key) {
            return Ok((known.name.clone(), known.body.clone()));
        }
        let given = body.clone();
        let body = self.within(body)?.map_or_else(|| body.clone(), Region::from);
        check_extent(&body)?;
        let (name, body) = self.new_name(name, body);
        let settled = Settled { _given: given, name: name.clone(), body: body.clone() };
        self.settled.borrow_mut().insert(key, settled);
        Ok((name, body))
    }

    /// The body with its name. If the name belongs to another body, the name gets a numeric
    /// suffix.
    fn new_name(&self, name: &str, body: Region) -> (String, Region) {
        let others = (2..).map(|n| format!("{name}.{n}"));
        let mut names = self.bodies.borrow_mut();
        for candidate in std::iter::once(name.to_string()).chain(others) {
            match names.get(&candidate) {
                Some(known) if *known == body => return (candidate, known.clone()),
                Some(_) => {}
                None => {
                    names.insert(candidate.clone(), body.clone());
                    return (candidate, body);
                }
            }
        }
        unreachable!("there is always another name")
    }

    /// The body with settled calls; `None` if nothing changes.
    fn within(&self, body: &Body) -> Result<Option<Body>> {
        let mut changed: Option<Body> = None;
        for (i, equation) in
            body.equations.iter().enumerate().filter(|(_, e)| !e.regions.is_empty())
        {
            let (mut op, mut regions) = (equation.op.clone(), equation.regions.clone());
            self.settle(&mut op, &mut regions)?;
            let same = |(a, b): (&Region, &Region)| a.is_same(b);
            if op != equation.op || !regions.iter().zip(&equation.regions).all(same) {
                let equation = &mut changed.get_or_insert_with(|| body.clone()).equations[i];
                (equation.op, equation.regions) = (op, regions);
            }
        }
        Ok(changed)
    }
}
