//! Callees in text: `func` within the calling function, or an earlier function of the program.

use super::super::callees::check_extent;
use super::super::{Body, Function, OutputRole, Region};
use super::{Mode, Places, Reader};
use crate::diagnostic::{Result, bail, ensure};
use crate::graph::Relocation;
use crate::location::{LocationId, LocationTable};
use crate::text::{Cursor, Token};
use std::collections::HashMap;

/// A function that may be called.
pub(super) struct Callee<'a> {
    body: Region,
    /// Its definition; for another function of the program, the first call.
    token: Token<'a>,
    /// The tokens of its own equations.
    equations: Vec<Token<'a>>,
}

/// The number of equations of a body and its regions, without those of callees.
fn count(body: &Body) -> usize {
    let regions =
        body.equations.iter().filter(|e| e.op.callee().is_none()).flat_map(|e| &e.regions);
    body.equations.len() + regions.map(|region| count(region)).sum::<usize>()
}

impl<'a> Reader<'a, '_> {
    /// Reads `func @name(inputs) { equations return … }` within a function, which may call it
    /// from there on.
    pub(super) fn callee(&mut self, c: &mut Cursor<'a>) -> Result<()> {
        c.advance();
        let token = c.peek();
        let name = c.expect_function("the name of the function, such as `@f`")?;
        ensure!(
            !self.callees.contains_key(name), c at token,
            "G10: function `@{name}` is defined twice";
            help "give it another name"
        );
        let outside = std::mem::take(&mut self.places.equations);
        self.open.push(name.into());
        let body = Region::from(self.region(c)?);
        self.open.pop();
        let equations = std::mem::replace(&mut self.places.equations, outside);
        check_extent(&body).map_err(|d| c.relay(token, d.context(format_args!("@{name}"))))?;
        self.callees.insert(name.into(), Callee { body, token, equations });
        Ok(())
    }

    /// The body of the function that an equation calls.
    pub(super) fn called(
        &mut self,
        c: &Cursor<'a>,
        token: Token<'a>,
        name: &str,
    ) -> Result<Region> {
        if c.is_keyword("region") {
            return Err(c.unexpected("no region").help(format!(
                "a `call` runs the function of its name: write `func @{name}(…) {{ … }}` in front"
            )));
        }
        if let Some(callee) = self.callees.get(name) {
            return Ok(callee.body.clone());
        }
        ensure!(
            self.open.iter().all(|open| open != name), c at token,
            "G10: `@{name}` calls itself, and a static graph has no recursion";
            help "repeat a step by `scan`, `fori` or `while`"
        );
        let Some(function) = self.earlier.iter().find(|f| f.name == name) else {
            bail!(
                c at token,
                "G10: there is no function `@{name}` before this one";
                help "a function is called after its definition, which may also stand within the \
                 caller"
            );
        };
        ensure!(
            function.mesh.is_empty() || function.mesh == self.mesh, c at token,
            "G11: `@{name}` has another mesh, {}", function.mesh;
            help "a function calls functions of its own mesh, or of none"
        );
        let updates = function.outputs.iter().any(|output| output.role == OutputRole::State);
        if updates || self.mode == Mode::Own {
            let why = match updates {
                true => "it updates state, which only the caller of a program can do",
                false => {
                    "a function with locations (`loc`) has the functions that it calls within it"
                }
            };
            bail!(c at token, "G10: `@{name}` cannot be called here: {why}");
        }
        Ok(self.take_in(token, function))
    }

    /// Copies an earlier function of the program, with its callees, into this function.
    fn take_in(&mut self, token: Token<'a>, function: &Function) -> Region {
        let known: HashMap<LocationId, LocationId> =
            LocationTable::merge(&mut self.locations, &function.locations);
        let body = Region::from(Relocation::new(&known).body(&function.body));
        let own = |body: &Region| Callee {
            body: body.clone(),
            token,
            equations: vec![token; count(body)],
        };
        for callee in body.callees() {
            self.callees.entry(callee.name.into()).or_insert_with(|| own(callee.body));
        }
        self.callees.insert(function.name.clone(), own(&body));
        body
    }

    /// The places of the function's parts, with callees in the order in which they are printed.
    pub(super) fn places(
        mut self,
        c: &Cursor<'a>,
        body: &Body,
    ) -> Result<(Places<'a>, LocationTable)> {
        let mut equations = Vec::new();
        for callee in body.callees() {
            let Some(known) = self.callees.remove(callee.name) else { continue };
            self.places.callees.push(known.token);
            equations.extend(known.equations);
        }
        equations.append(&mut self.places.equations);
        self.places.equations = equations;
        match self.callees.iter().min_by_key(|(name, callee)| (callee.token.line, name.as_str())) {
            Some((name, unused)) => Err(c
                .error(
                    unused.token,
                    format!("G10: `@{name}` is not called by the function it stands in"),
                )
                .help("take it out, or call it")),
            None => Ok((self.places, self.locations)),
        }
    }
}
