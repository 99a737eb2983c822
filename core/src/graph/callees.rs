//! Functions that are called by name.
//!
//! A `call` equation holds the body that it runs, as any op with regions does; the bodies of equations that call one function are the same
//! object ([`Region`]). In text and files a function is written once, by its name, in front of the function that uses it, after those
//! that it calls itself. So a name has to mean one body within a function; the builder sees to that ([`Names`]), the verifier checks it. A body is
//! finished before anyone can call it, so there is no recursion.

use super::{Body, Region};
use crate::diagnostic::{Diagnostic, Result};
use crate::op::{FunctionName, Op};
use crate::text::cursor::MAX_DEPTH;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

/// Equations that a function may have with those of the functions it calls in place of the calls.
pub const MAX_EQUATIONS: u64 = 1 << 24;

/// A function that is called.
#[derive(Clone, Copy, Debug)]
pub struct Callee<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it computes.
    pub body: &'a Region,
}

impl Body {
    /// The functions that are called in the body and by what it calls: each once, called ones before those that call them.
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

/// Checks that a body is not too large to be called.
pub(super) fn check_extent(body: &Region) -> Result<()> {
    let extent = body.extent();
    if extent.depth >= MAX_DEPTH {
        return Err(Diagnostic::new(format!("G7: functions call functions more than {MAX_DEPTH} deep"))
            .help("repeat a step by `scan` or `fori`, which need no depth"));
    }
    if extent.equations > MAX_EQUATIONS {
        return Err(Diagnostic::new(format!(
            "G10: with all calls in their place it has {} equations; a function may have {MAX_EQUATIONS}",
            extent.equations
        ))
        .help("a function that calls another twice doubles it; repeat by `scan` or `fori` instead"));
    }
    Ok(())
}

/// The names of the functions that are called in a function under construction.
#[derive(Default)]
pub(super) struct Names {
    bodies: RefCell<HashMap<String, Region>>,
    /// What became of a name and the body at an address, which is kept there. Without it, a function would be walked through once for
    /// every path to it.
    settled: RefCell<HashMap<(String, usize), Settled>>,
}

struct Settled {
    /// Nothing else can have its address.
    _given: Region,
    name: String,
    body: Region,
}

impl Names {
    /// The op and its regions with names that mean the same everywhere: a body whose name is taken gets another one, and a body that
    /// is known already becomes that object.
    pub(super) fn settle(&self, op: &mut Op, regions: &mut [Region]) -> Result<()> {
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

    /// The name, or another, of a body that is known or becomes so.
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

    /// The body with settled calls; nothing if they were.
    fn within(&self, body: &Body) -> Result<Option<Body>> {
        let mut changed: Option<Body> = None;
        for (i, equation) in body.equations.iter().enumerate().filter(|(_, e)| !e.regions.is_empty()) {
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
