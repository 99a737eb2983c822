//! `mbarrier`, proxy fences, `mapa`, `barrier.cluster`, `setmaxnreg`, `griddepcontrol`.

use super::{Arrival, Hopper, Needs, Place};
use crate::decode::modifiers::Modifiers;
use crate::decode::program::{Op, Operand};
use crate::decode::{Builder, Class, Frame, Result};
use crate::parse::syntax::{self, Type};

const B32: Type = Type::Bits(32);
const B64: Type = Type::Bits(64);

impl<'a> Builder<'a> {
    fn hopper(
        &mut self,
        frame: &Frame<'a>,
        i: &syntax::Instruction,
        hopper: Hopper,
        outputs: Vec<Operand>,
        inputs: Vec<Operand>,
    ) {
        self.emit(frame, i, Op::Hopper(Box::new(hopper)), outputs, inputs);
    }

    /// An address of shared memory, which `space` and the operand describe.
    pub(super) fn shared_place(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        operand: &'a syntax::Operand,
        space: Option<&str>,
    ) -> Result<(Place, Operand)> {
        let (variable, base, offset) = self.address(frame, i, operand)?;
        let generic = space.is_none() && variable.is_none();
        let cluster = generic || space == Some("shared::cluster");
        Ok((Place { offset, generic, cluster }, base))
    }

    pub(in crate::decode) fn mbarrier(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        let what = m.first().unwrap_or("");
        let space = m.one_of(&["shared", "shared::cta", "shared::cluster"]);
        let (expects, no_complete) = (m.take("expect_tx"), m.take("noComplete"));
        let parity = m.take("parity");
        m.one_of(&["release", "acquire", "relaxed"]);
        m.one_of(&["cta", "cluster"]);
        if !m.take("b64") {
            return self.error(i, "an `mbarrier` is .b64");
        }
        let hopper_only = expects
            || matches!(what, "try_wait" | "expect_tx" | "complete_tx")
            || space == Some("shared::cluster");
        let least = if hopper_only { 90 } else { 80 };
        self.needs(i, &format!("mbarrier.{what}"), Needs::AtLeast(least))?;
        match what {
            "init" | "expect_tx" | "complete_tx" => {
                self.exactly(i, 2)?;
                let (place, base) = self.shared_place(frame, i, &i.operands[0], space)?;
                let count = self.source(frame, i, &i.operands[1], B32)?;
                self.expect(i, count, Class::Word)?;
                let hopper = match what {
                    "init" => Hopper::Init(place),
                    _ => Hopper::Transactions(place, what == "expect_tx"),
                };
                self.hopper(frame, i, hopper, vec![], vec![base, count]);
            }
            "inval" => {
                self.exactly(i, 1)?;
                let (place, base) = self.shared_place(frame, i, &i.operands[0], space)?;
                self.hopper(frame, i, Hopper::Invalidate(place), vec![], vec![base]);
            }
            "arrive" | "arrive_drop" => {
                let mut operands = &i.operands[..];
                let mut outputs = Vec::new();
                if let [first, rest @ ..] = operands
                    && !matches!(first, syntax::Operand::Address(..))
                {
                    let state = self.target(frame, i, first)?;
                    self.expect(i, state, Class::Double)?;
                    outputs.push(state);
                    operands = rest;
                }
                let [address, counts @ ..] = operands else {
                    return self.error(i, "an arrival names its barrier");
                };
                let (place, base) = self.shared_place(frame, i, address, space)?;
                let mut inputs = vec![base];
                match counts {
                    [] if expects => return self.error(i, "`.expect_tx` has a number of bytes"),
                    [] => {}
                    [count] => {
                        let count = self.source(frame, i, count, B32)?;
                        self.expect(i, count, Class::Word)?;
                        inputs.push(count);
                    }
                    _ => return self.error(i, "an arrival has one count"),
                }
                let counted = inputs.len() > 1;
                let arrival =
                    Arrival { drop: what == "arrive_drop", no_complete, expects, counted };
                self.hopper(frame, i, Hopper::Arrive(place, arrival), outputs, inputs);
            }
            "test_wait" | "try_wait" => {
                if i.operands.len() == 4 && what == "test_wait" {
                    return self.error(i, "`test_wait` has no time limit");
                }
                if !matches!(i.operands.len(), 3 | 4) {
                    return self.error(i, format!("`mbarrier.{what}` has three operands"));
                }
                let done = self.target(frame, i, &i.operands[0])?;
                self.expect(i, done, Class::Predicate)?;
                let (place, base) = self.shared_place(frame, i, &i.operands[1], space)?;
                let ty = if parity { B32 } else { B64 };
                let phase = self.source(frame, i, &i.operands[2], ty)?;
                self.expect(i, phase, if parity { Class::Word } else { Class::Double })?;
                self.hopper(
                    frame,
                    i,
                    Hopper::Wait { place, parity },
                    vec![done],
                    vec![base, phase],
                );
            }
            "pending_count" => {
                self.exactly(i, 2)?;
                let count = self.target(frame, i, &i.operands[0])?;
                self.expect(i, count, Class::Word)?;
                let state = self.source(frame, i, &i.operands[1], B64)?;
                self.expect(i, state, Class::Double)?;
                self.hopper(frame, i, Hopper::PendingCount, vec![count], vec![state]);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// `cp.async.mbarrier.arrive`
    pub(in crate::decode) fn copy_arrive(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        if !(m.take("mbarrier") && m.take("arrive")) {
            return Ok(false);
        }
        self.needs(i, "cp.async.mbarrier.arrive", Needs::AtLeast(80))?;
        let no_increment = m.take("noinc");
        let space = m.one_of(&["shared", "shared::cta"]);
        m.take("b64");
        self.exactly(i, 1)?;
        let (place, base) = self.shared_place(frame, i, &i.operands[0], space)?;
        self.hopper(frame, i, Hopper::CopyArrive(place, no_increment), vec![], vec![base]);
        Ok(true)
    }

    /// `fence.proxy.async`, `fence.mbarrier_init`; other proxy fences order accesses that do not
    /// exist here.
    pub(in crate::decode) fn proxy_fence(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        if m.take("mbarrier_init") {
            self.needs(i, "fence.mbarrier_init", Needs::AtLeast(90))?;
            if !(m.take("release") && m.take("cluster")) {
                return self.error(i, "`fence.mbarrier_init` says .release.cluster");
            }
            self.hopper(frame, i, Hopper::InitFence, vec![], vec![]);
            return Ok(true);
        }
        if !m.take("proxy") {
            return Ok(false);
        }
        if m.take("async") {
            self.needs(i, "fence.proxy.async", Needs::AtLeast(90))?;
            let fence = match m.one_of(&["global", "shared::cta", "shared::cluster"]) {
                None => Hopper::ProxyFence { shared: true, global: true },
                Some(space) => {
                    let global = space == "global";
                    Hopper::ProxyFence { shared: !global, global }
                }
            };
            self.hopper(frame, i, fence, vec![], vec![]);
            return Ok(true);
        }
        m.take_all(|_| true);
        self.emit(frame, i, Op::Nothing, vec![], vec![]);
        Ok(true)
    }

    /// `mapa`, `getctarank`
    pub(in crate::decode) fn cluster_address(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        self.needs(i, &i.opcode, Needs::AtLeast(90))?;
        let generic = !m.take("shared::cluster");
        let ty = self.one_type(i, m)?;
        let maps = i.opcode == "mapa";
        self.exactly(i, if maps { 3 } else { 2 })?;
        let output = self.target(frame, i, &i.operands[0])?;
        let base = match &i.operands[1] {
            syntax::Operand::Variable(id, offset) => {
                let base = self.address_of(frame, i, *id, *offset)?.1;
                if generic {
                    return self.error(i, "a variable has no generic address here");
                }
                base
            }
            other => self.source(frame, i, other, ty)?,
        };
        let mut inputs = vec![base];
        let hopper = if maps {
            let rank = self.source(frame, i, &i.operands[2], B32)?;
            self.expect(i, rank, Class::Word)?;
            inputs.push(rank);
            Hopper::Map { generic }
        } else {
            self.expect(i, output, Class::Word)?;
            Hopper::RankOf { generic }
        };
        self.hopper(frame, i, hopper, vec![output], inputs);
        Ok(true)
    }

    /// `barrier.cluster.arrive`, `barrier.cluster.wait`
    pub(in crate::decode) fn cluster_barrier(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        m.take("cluster");
        self.needs(i, "barrier.cluster", Needs::AtLeast(90))?;
        self.exactly(i, 0)?;
        let aligned = m.take("aligned");
        let hopper = match m.one_of(&["arrive", "wait"]) {
            Some("arrive") => {
                let order = m.one_of(&["release", "relaxed"]);
                Hopper::ClusterArrive { release: order != Some("relaxed"), aligned }
            }
            Some(_) => {
                m.take("acquire");
                Hopper::ClusterWait { aligned }
            }
            None => return Ok(false),
        };
        self.hopper(frame, i, hopper, vec![], vec![]);
        Ok(true)
    }

    /// `setmaxnreg`, `griddepcontrol`
    pub(in crate::decode) fn launch_control(
        &mut self,
        frame: &Frame<'a>,
        i: &'a syntax::Instruction,
        m: &mut Modifiers<'a>,
    ) -> Result<bool> {
        if i.opcode == "griddepcontrol" {
            self.needs(i, "griddepcontrol", Needs::AtLeast(90))?;
            self.exactly(i, 0)?;
            if m.one_of(&["wait", "launch_dependents"]).is_none() {
                return self.error(i, "`griddepcontrol` is .wait or .launch_dependents");
            }
            // Launches run one after another, so every prerequisite grid has ended.
            self.emit(frame, i, Op::Nothing, vec![], vec![]);
            return Ok(true);
        }
        self.needs(i, "setmaxnreg", Needs::Hopper)?;
        let increases = match m.one_of(&["inc", "dec"]) {
            Some(way) => way == "inc",
            None => return self.error(i, "`setmaxnreg` is .inc or .dec"),
        };
        if !(m.take("sync") && m.take("aligned") && m.take("u32")) {
            return self.error(i, "`setmaxnreg` says .sync.aligned.u32");
        }
        self.exactly(i, 1)?;
        let count = match i.operands[0] {
            syntax::Operand::Integer(count @ 24..=256) if count % 8 == 0 => count as u32,
            _ => {
                return self.error(i, "the registers of a thread are a multiple of 8 in 24 to 256");
            }
        };
        self.hopper(frame, i, Hopper::SetRegisters(increases, count), vec![], vec![]);
        Ok(true)
    }
}
