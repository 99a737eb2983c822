//! Verifier of the plans of several ranks as one program: proof that every collective meets its
//! counterparts.
//!
//! Ranks usually run one plan, and the executor compares its hash on all of them. This check does
//! not rely on that. It takes one plan for each rank, lists the collectives of each in the order
//! of execution, and advances all ranks together. A collective is executed when every rank of its
//! group has arrived at a collective of the same kind, axes and bytes. If no rank can advance, the
//! plans deadlock or mismatch, and the error names the ranks and their steps.
//!
//! **Transfers.** Collectives over the same axes are matched by the order of their calls and
//! starts. Starts do not block, but the check lets ranks meet at a start as if it did, and passes
//! over waits. If ranks meet in that way, then every rank of a group comes to its start before it
//! waits for that or for any later collective, so no wait lasts forever. The converse does not
//! hold: ranks may start collectives of different groups in different orders. Such plans are
//! refused, which no compilation makes. That each start has its wait is an invariant of one plan
//! (P18).
//!
//! Loops and branches with collectives are met by the ranks of all groups inside them. These ranks
//! must have the same trip, or as many arms; the bodies, and arms of one number, are compared in
//! the same way. That trips and conditions have the same values on these ranks is not visible in
//! a plan. The verifier of graphs proves it from the types (G12).
//!
//! Cost: O(n · r) for n steps and r ranks, times the depth of nesting.
//!
//! The check shares no code with the compiler.

use super::{Plan, Step, Trip};
use crate::call::Collective;
use crate::diagnostic::{Diagnostic, Result, ensure};
use crate::mesh::Mesh;
use std::collections::BTreeSet;
use std::fmt;

/// An event of a rank's program that other ranks take part in.
enum Event<'p> {
    Collective(&'p Collective),
    Loop { trip: &'p Trip, body: Vec<Place<'p>> },
    Branch { arms: Vec<Vec<Place<'p>>> },
}

/// An event, with the number of its step and the axes of all collectives in it.
struct Place<'p> {
    step: usize,
    axes: BTreeSet<&'p str>,
    event: Event<'p>,
}

/// Checks that the collectives of these plans meet. There is a plan for each rank of the mesh, in
/// the order of ranks. Each plan is [verified](super::verify()) by itself.
///
/// Errors: the plans have different meshes, or there are more or fewer than ranks; ranks of a
/// group call different collectives, or wait for each other.
pub fn verify_ranks(plans: &[&Plan]) -> Result<()> {
    let mesh = plans.first().map_or_else(Mesh::default, |plan| plan.mesh.clone());
    for (rank, plan) in plans.iter().enumerate() {
        ensure!(
            plan.mesh == mesh,
            "rank 0 has the plan of {mesh}, rank {rank} that of {}", plan.mesh;
            help "give the plans of one compilation"
        );
    }
    ensure!(
        plans.len() == mesh.ranks(),
        "there are {} plans for the {} ranks of {mesh}", plans.len(), mesh.ranks();
        help "give one plan for each rank, in the order of ranks"
    );
    let programs: Vec<Vec<Place<'_>>> =
        plans.iter().map(|plan| events(&plan.steps, &mut 0)).collect();
    let ranks = (0..plans.len()).collect();
    meet(&mesh, ranks, programs.iter().map(Vec::as_slice).collect())
}

/// The events of a block, without those in which no other rank takes part.
fn events<'p>(steps: &'p [Step], next: &mut usize) -> Vec<Place<'p>> {
    let mut places = Vec::new();
    for step in steps {
        let number = *next;
        *next += 1;
        let mut blocks: Vec<Vec<Place<'p>>> =
            step.blocks().into_iter().map(|block| events(block, next)).collect();
        let inner = blocks.iter().flatten().flat_map(|place| place.axes.iter().copied());
        let mut axes: BTreeSet<&str> = inner.collect();
        let event = match step {
            Step::Call { .. } | Step::Start { .. } => match step.exchange() {
                Some(collective) => {
                    axes.extend(collective.over.iter().map(String::as_str));
                    Event::Collective(collective)
                }
                None => continue,
            },
            _ if blocks.iter().all(Vec::is_empty) => continue,
            Step::Loop(l) => Event::Loop { trip: &l.trip, body: blocks.remove(0) },
            Step::If { .. } | Step::Switch { .. } => Event::Branch { arms: blocks },
            Step::Nest { .. } | Step::Wait(_) | Step::Copy { .. } => continue,
        };
        places.push(Place { step: number, axes, event });
    }
    places
}

/// Advances ranks through a block of each until all have come to its end.
fn meet(mesh: &Mesh, ranks: Vec<usize>, mut blocks: Vec<&[Place<'_>]>) -> Result<()> {
    while let Some(first) = blocks.iter().position(|block| !block.is_empty()) {
        let mut stuck: Option<Stuck> = None;
        let mut advanced = false;
        for at in first..ranks.len() {
            let Some(place) = blocks[at].first() else { continue };
            match counterparts(mesh, &ranks, &blocks, at, place) {
                Ok(members) => {
                    let heads: Vec<&Place<'_>> =
                        members.iter().map(|member| &blocks[*member][0]).collect();
                    let of = members.iter().map(|member| ranks[*member]).collect();
                    nested(mesh, of, &heads)?;
                    members.iter().for_each(|member| blocks[*member] = &blocks[*member][1..]);
                    advanced = true;
                    break;
                }
                Err(found) if stuck.as_ref().is_none_or(|known| found.mutual && !known.mutual) => {
                    stuck = Some(found);
                }
                Err(_) => {}
            }
        }
        if !advanced {
            return Err(stuck.expect("a rank that has not ended is stuck").error);
        }
    }
    Ok(())
}

/// Why a rank cannot advance.
struct Stuck {
    error: Diagnostic,
    /// Whether the rank that it waits for has ended, or waits for it elsewhere. Other ranks may
    /// only wait for these.
    mutual: bool,
}

/// The ranks that meet in a place, by position, if all have arrived. The error names one that has
/// not.
fn counterparts(
    mesh: &Mesh,
    ranks: &[usize],
    blocks: &[&[Place<'_>]],
    at: usize,
    place: &Place<'_>,
) -> Result<Vec<usize>, Stuck> {
    let stuck = |other: usize, what: String, mutual: bool| {
        let what = format!("rank {} is in {place}, and rank {other} {what}", ranks[at]);
        let help = "the ranks of a group call the same collectives in the same order";
        Stuck { error: Diagnostic::new(what).help(help), mutual }
    };
    let mut members = Vec::new();
    for rank in mesh.group(ranks[at], &place.over()) {
        let Ok(member) = ranks.binary_search(&rank) else {
            return Err(stuck(rank, "does not take this way".into(), true));
        };
        match blocks[member].first() {
            None => return Err(stuck(rank, "has no further collective".into(), true)),
            Some(head) if place.matches(head) => members.push(member),
            Some(head) => {
                let mutual = mesh.group(rank, &head.over()).contains(&ranks[at]);
                return Err(stuck(rank, format!("is in {head}"), mutual));
            }
        }
    }
    // A group is ordered by its axes, and the ranks of a block by their numbers.
    members.sort_unstable();
    Ok(members)
}

/// Checks the blocks inside of places that have met.
fn nested(mesh: &Mesh, ranks: Vec<usize>, heads: &[&Place<'_>]) -> Result<()> {
    let within = |error: Diagnostic| error.context(heads[0]);
    match &heads[0].event {
        Event::Collective(_) => Ok(()),
        Event::Loop { .. } => {
            let bodies = heads.iter().map(|head| match &head.event {
                Event::Loop { body, .. } => body.as_slice(),
                _ => unreachable!("places that match are of one kind"),
            });
            meet(mesh, ranks, bodies.collect()).map_err(within)
        }
        Event::Branch { arms } => (0..arms.len()).try_for_each(|arm| {
            let taken = heads.iter().map(|head| match &head.event {
                Event::Branch { arms } => arms[arm].as_slice(),
                _ => unreachable!("places that match are of one kind"),
            });
            meet(mesh, ranks.clone(), taken.collect()).map_err(within)
        }),
    }
}

impl Place<'_> {
    /// The axes along which ranks meet here.
    fn over(&self) -> Vec<&str> {
        match &self.event {
            Event::Collective(collective) => collective.over.iter().map(String::as_str).collect(),
            _ => self.axes.iter().copied().collect(),
        }
    }

    /// Whether two ranks in these places run the same event.
    fn matches(&self, other: &Place<'_>) -> bool {
        match (&self.event, &other.event) {
            (Event::Collective(a), Event::Collective(b)) => a == b,
            (Event::Loop { trip: a, .. }, Event::Loop { trip: b, .. }) => {
                let dynamic = |trip: &Trip| !matches!(trip, Trip::Constant(_));
                self.axes == other.axes && dynamic(a) == dynamic(b) && a.limit() == b.limit()
            }
            (Event::Branch { arms: a }, Event::Branch { arms: b }) => {
                self.axes == other.axes && a.len() == b.len()
            }
            _ => false,
        }
    }
}

/// `step 4, psum over data of 24 bytes`.
impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}, ", self.step)?;
        match &self.event {
            Event::Collective(c) => {
                let elements = c.part().saturating_mul(c.parts);
                let bytes = elements.saturating_mul(c.dtype.size());
                write!(f, "{} over {} of {bytes} bytes", c.kind.name(), c.over.join(", "))
            }
            Event::Loop { trip, .. } => write!(f, "a loop of {trip}"),
            Event::Branch { arms } => write!(f, "a branch of {} ways", arms.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{parse_plan, verify};

    /// Two collectives, then one in a loop.
    const PLAN: &str = "plan @f {
      target @cpu {
        alignment=64, gemm_epilogue=true, reduction_block=4096, reduction_lanes=16,
        row_bytes=1048576, row_storage=262144
      }
      mesh(data=2, tensor=2)
      arena 128 bound 128
      value %0: f32[4] \"x\"
      value %1: f32[4] \"sum\"
      value %2: f32[2,4] \"all\"
      value %3: f32[4]
      value %4: f32[4]
      value %5: f32[4]
      input x = %0
      output sum: [4] = %1
      output all: [2,4] = %2
      output last: [4] = %5
      steps {
        call collective(%0 at input.0, %1 at output.0)
          {dtype=f32, inner=4, kind=\"psum\", over=[\"data\"]}
        call collective(%1 at output.0, %2 at output.1)
          {dtype=f32, inner=4, kind=\"all_gather\", over=[\"tensor\"], parts=2}
        copy %1 from output.0 to arena
        loop l0 trip 3 {
          carry %1 -> %3, %4 -> %5 at arena
          call collective(%3 at arena, %4 at arena+64)
            {dtype=f32, inner=4, kind=\"pmax\", over=[\"data\", \"tensor\"]}
          copy %4 from arena+64 to arena
        }
        copy %5 from arena to output.2
      }
    }";

    fn plan() -> Plan {
        let (plan, places) = parse_plan("f.plan", PLAN).unwrap();
        crate::plan::verify_at(&plan, &places).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(parse_plan("f.plan", &plan.to_string()).unwrap().0, plan);
        plan
    }

    /// The check of four ranks, of which rank 3 has another plan.
    fn mutated(change: impl FnOnce(&mut Plan)) -> String {
        let (plan, mut other) = (plan(), plan());
        change(&mut other);
        verify_ranks(&[&plan, &plan, &plan, &other]).unwrap_err().to_string()
    }

    fn collective(step: &mut Step) -> &mut Collective {
        match step {
            Step::Call { call: crate::Call::Collective(collective), .. } => collective,
            Step::Loop(l) => collective(&mut l.body[0]),
            _ => panic!("it is no collective"),
        }
    }

    #[test]
    fn ranks_with_one_plan_meet() {
        let plan = plan();
        verify_ranks(&[&plan; 4]).unwrap();
        let error = verify_ranks(&[&plan; 3]).unwrap_err().to_string();
        assert!(error.contains("3 plans for the 4 ranks of mesh(data=2, tensor=2)"), "{error}");
    }

    #[test]
    fn a_dropped_collective_is_found() {
        let error = mutated(|plan| drop(plan.steps.remove(0)));
        // Ranks 2 and 3 still gather together.
        let wanted = "rank 1 is in step 0, psum over data of 16 bytes, and rank 3 is in step 2, a \
                      loop of trip 3";
        assert!(error.contains(wanted), "{error}");
        let error = mutated(|plan| plan.steps.truncate(2));
        assert!(
            error.contains("a loop of trip 3, and rank 3 has no further collective"),
            "{error}"
        );
    }

    #[test]
    fn swapped_collectives_are_found() {
        // One swapped rank of a square waits, and is met: the groups do not form a cycle.
        let (plan, mut other) = (plan(), plan());
        other.steps.swap(0, 1);
        verify_ranks(&[&plan, &plan, &plan, &other]).unwrap();
        // Here they do.
        let error = verify_ranks(&[&plan, &other, &other, &plan]).unwrap_err().to_string();
        assert!(error.contains("rank 0 is in step 0, psum over data"), "{error}");
        // Swapped with the loop, no order helps.
        let error = mutated(|plan| plan.steps.swap(1, 3));
        assert!(error.contains("a loop of trip 3"), "{error}");
    }

    #[test]
    fn resized_and_changed_collectives_are_found() {
        let error = mutated(|plan| collective(&mut plan.steps[0]).inner = 3);
        assert!(error.contains("and rank 3 is in step 0, psum over data of 12 bytes"), "{error}");
        let error = mutated(|plan| collective(&mut plan.steps[0]).dtype = crate::DType::F64);
        assert!(error.contains("psum over data of 32 bytes"), "{error}");
        let error = mutated(|plan| {
            collective(&mut plan.steps[3]).kind = crate::call::CollectiveKind::Min;
        });
        assert!(error.contains("pmin over data, tensor of 16 bytes"), "{error}");
        let error = mutated(|plan| collective(&mut plan.steps[0]).over = vec!["tensor".into()]);
        let wanted = "rank 2 is in step 1, all_gather over tensor of 32 bytes, and rank 3 is in \
                      step 0, psum over tensor of 16 bytes";
        assert!(error.contains(wanted), "{error}");
        let error = mutated(|plan| {
            let Step::Loop(l) = &mut plan.steps[3] else { panic!("it is a loop") };
            l.trip = Trip::Constant(4);
        });
        assert!(error.contains("and rank 3 is in step 3, a loop of trip 4"), "{error}");
    }

    #[test]
    fn collectives_fit_the_mesh() {
        let refused = |change: fn(&mut Plan)| {
            let mut plan = plan();
            change(&mut plan);
            verify(&plan).unwrap_err().to_string()
        };
        let error = refused(|plan| plan.mesh = Mesh::new([("data", 2)]).unwrap());
        assert!(error.contains("no axis `tensor` (P17)"), "{error}");
        let error = refused(|plan| plan.mesh = Mesh::new([("data", 2), ("tensor", 3)]).unwrap());
        assert!(error.contains("2 parts, the group has 3 ranks (P17)"), "{error}");
        let error = refused(|plan| plan.mesh = Mesh::unverified(vec![("data".into(), 0)]));
        assert!(error.contains("extent 0 (P17)"), "{error}");
        let error = refused(|plan| plan.target.calls.retain(|call| *call != "collective"));
        assert!(error.contains("joins no ranks (P17)"), "{error}");
        let error = crate::plan::interpret(&plan(), &[], &[]).unwrap_err().to_string();
        assert!(error.contains("on the ranks of mesh(data=2, tensor=2)"), "{error}");
    }
}
