//! P18: starts, their waits, and the bytes that are in use between them.
//!
//! The bytes of two operands under way are the same or apart, since each holds a value when its
//! transfer starts and nothing writes it until the wait. The bytes of a result are apart from all
//! others. So a map from the first byte to the last finds overlaps in O(log n).

use super::{Failure, Part, failure};
use crate::plan::intervals::Span;
use crate::plan::{Transfer, TransferId};
use std::collections::BTreeMap;

/// The bytes of all transfers under way.
#[derive(Default)]
pub(super) struct Busy {
    /// By memory and first byte: the end, and the transfers that use these bytes.
    spans: BTreeMap<(usize, u64), (u64, Vec<TransferId>)>,
}

impl Busy {
    /// Error: a transfer uses some of these bytes.
    pub fn check(&self, part: Part, span: Span) -> Result<(), Failure> {
        let before = self.spans.range(..(span.memory, span.end)).next_back();
        match before {
            Some(((memory, _), (end, users))) if *memory == span.memory && *end > span.start => {
                let what = format!("writes bytes of {}, which is under way", users[0]);
                Err(failure(part, 18, what).help("write them after the wait, or other bytes"))
            }
            _ => Ok(()),
        }
    }

    fn take(&mut self, span: Span, id: TransferId) {
        let users = self.spans.entry((span.memory, span.start)).or_default();
        users.0 = span.end;
        users.1.push(id);
    }

    fn free(&mut self, span: Span, id: TransferId) {
        let at = (span.memory, span.start);
        if let Some((_, users)) = self.spans.get_mut(&at) {
            users.retain(|user| *user != id);
            if users.is_empty() {
                self.spans.remove(&at);
            }
        }
    }
}

/// The transfers of a block that are under way.
#[derive(Default)]
pub(super) struct UnderWay<'a> {
    /// Each with the number of its start, and the bytes of its operand and of its result.
    transfers: BTreeMap<TransferId, (usize, &'a Transfer, [Option<Span>; 2])>,
}

impl<'a> UnderWay<'a> {
    pub fn start(
        &mut self,
        step: usize,
        transfer: &'a Transfer,
        bytes: [Option<Span>; 2],
        busy: &mut Busy,
    ) {
        bytes.into_iter().flatten().for_each(|span| busy.take(span, transfer.id));
        self.transfers.insert(transfer.id, (step, transfer, bytes));
    }

    pub fn wait(
        &mut self,
        part: Part,
        transfer: &Transfer,
        busy: &mut Busy,
    ) -> Result<(), Failure> {
        let id = transfer.id;
        let Some((step, started, bytes)) = self.transfers.remove(&id) else {
            return Err(failure(part, 18, format!("{id} is not under way in this block"))
                .help("each start has one wait, which is a later step of its block"));
        };
        if started != transfer {
            let what = format!("{id} was started in step {step} with other values or addresses");
            return Err(failure(part, 18, what));
        }
        bytes.into_iter().flatten().for_each(|span| busy.free(span, id));
        Ok(())
    }

    /// Error: a transfer is still under way at the end of its block.
    pub fn end(self) -> Result<(), Failure> {
        match self.transfers.into_values().next() {
            None => Ok(()),
            Some((step, transfer, _)) => {
                let what = format!("no step of its block waits for {}", transfer.id);
                Err(failure(Part::Step(step), 18, what))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::{
        Address, Plan, Space, Step, TransferId, lifetimes, parse_plan, verify, verify_at,
        verify_ranks,
    };

    /// Two sums under way at once, over bytes of the arena.
    const PLAN: &str = "plan @f {
      target @cpu {
        alignment=64, gemm_epilogue=true, reduction_block=4096, reduction_lanes=16,
        row_bytes=1048576, row_storage=262144
      }
      mesh(data=2)
      arena 256 bound 256
      value %0: f32[4] \"x\"
      value %1: f32[4] \"a\"
      value %2: f32[4] \"sum of a\"
      value %3: f32[4] \"sum of x\"
      value %4: f32[4] \"b\"
      value %5: f32[4] \"y\"
      value %6: f32[4] \"c\"
      input x = %0
      output y: [4] = %5
      nest @double(in %x: f32[4], out %y: f32[4]) {
        parallel i: 4
        phase {
          %0: f32 = load %x[i]
          %1: f32 = add %0, %0
          store %y[i], %1
        }
      }
      nest @add(in %x: f32[4], in %y: f32[4], out %z: f32[4]) {
        parallel i: 4
        phase {
          %0: f32 = load %x[i]
          %1: f32 = load %y[i]
          %2: f32 = add %0, %1
          store %z[i], %2
        }
      }
      steps {
        run @double(%0 at input.0, %1 at arena)
        start t0 collective(%1 at arena, %2 at arena+64)
          {dtype=f32, inner=4, kind=\"psum\", over=[\"data\"]}
        start t1 collective(%0 at input.0, %3 at arena+128)
          {dtype=f32, inner=4, kind=\"psum\", over=[\"data\"]}
        run @double(%1 at arena, %4 at arena+192)
        wait t1(%0 at input.0, %3 at arena+128)
        run @add(%3 at arena+128, %4 at arena+192, %6 at arena+192)
        wait t0(%1 at arena, %2 at arena+64)
        run @add(%2 at arena+64, %6 at arena+192, %5 at output.0)
      }
    }";

    fn plan() -> Plan {
        let (plan, places) = parse_plan("f.plan", PLAN).unwrap();
        verify_at(&plan, &places).unwrap_or_else(|e| panic!("{e}"));
        plan
    }

    fn refused(change: impl FnOnce(&mut Plan)) -> String {
        let mut plan = plan();
        change(&mut plan);
        verify(&plan).unwrap_err().to_string()
    }

    fn written(step: &mut Step) -> &mut Address {
        match step {
            Step::Nest { arguments, .. } => &mut arguments.last_mut().unwrap().at,
            step => panic!("{step:?} is no nest"),
        }
    }

    #[test]
    fn transfers_round_trip_and_meet() {
        let plan = plan();
        assert_eq!(parse_plan("f.plan", &plan.to_string()).unwrap().0, plan);
        verify_ranks(&[&plan; 2]).unwrap();
        // Both lie in the arena until the wait, although no later step reads the operand.
        let found = lifetimes(&plan);
        let of = |offset: u64| found.iter().find(|l| l.offset == offset).unwrap();
        assert_eq!((of(0).first, of(0).last), (0, 6));
        assert_eq!((of(64).first, of(64).last), (1, 7));
    }

    #[test]
    fn a_start_has_one_wait_in_its_block() {
        let error = refused(|plan| drop(plan.steps.remove(6)));
        assert!(error.contains("arena+64` holds nothing"), "{error}");
        let error = refused(|plan| {
            let wait = plan.steps[4].clone();
            plan.steps.insert(5, wait);
        });
        assert!(error.contains("t1 is not under way in this block (P18)"), "{error}");
        let error = refused(|plan| plan.steps.swap(2, 4));
        assert!(error.contains("nothing has started t1 (P18)"), "{error}");
        let error = refused(|plan| plan.steps.swap(6, 7));
        assert!(error.contains("arena+64` holds nothing"), "{error}");
        let error = refused(|plan| {
            let Step::Wait(transfer) = &mut plan.steps[6] else { panic!("it is a wait") };
            transfer.id = TransferId(1);
        });
        assert!(error.contains("t1 is not under way"), "{error}");
        let error = refused(|plan| plan.steps.swap(1, 2));
        assert!(error.contains("transfers are numbered in order: this is t0 (P18)"), "{error}");
    }

    /// A wait that is missing is found even if nothing reads the result.
    #[test]
    fn a_transfer_ends_with_its_block() {
        let error = refused(|plan| {
            let Step::Nest { arguments, .. } = &mut plan.steps[5] else { panic!("it is a nest") };
            arguments[0] = arguments[1].clone();
            plan.steps.remove(4);
        });
        assert!(error.contains("no step of its block waits for t1 (P18)"), "{error}");
    }

    #[test]
    fn the_bytes_of_a_transfer_are_in_use_until_its_wait() {
        // Over the operand, after its last other reader, and over the result.
        for offset in [0, 64, 128] {
            let error = refused(|plan| written(&mut plan.steps[3]).offset = offset);
            assert!(error.contains("which is under way (P18)"), "{error}");
        }
        // A reader in front of the wait.
        let error = refused(|plan| plan.steps.swap(4, 5));
        assert!(error.contains("arena+128` holds nothing"), "{error}");
        // Other bytes than those of the start.
        let error = refused(|plan| {
            let Step::Wait(transfer) = &mut plan.steps[4] else { panic!("it is a wait") };
            transfer.result.at = Address::new(Space::Arena, 64);
        });
        assert!(error.contains("was started in step 2 with other values"), "{error}");
        let error = refused(|plan| {
            let Step::Start { transfer, .. } = &mut plan.steps[1] else { panic!("a start") };
            transfer.result.at = Address::new(Space::Arena, 0);
        });
        assert!(error.contains("a transfer is not in place (P11)"), "{error}");
    }

    #[test]
    fn a_target_that_does_not_overlap_starts_nothing() {
        let error = refused(|plan| plan.target.overlaps_collectives = false);
        assert!(error.contains("starts no collectives"), "{error}");
    }

    #[test]
    fn starts_are_matched_among_ranks() {
        let (plan, mut other) = (plan(), plan());
        other.steps.swap(1, 2);
        // Both sum four elements, so the order of the starts does not show.
        verify_ranks(&[&plan, &other]).unwrap();
        let Step::Start { call, .. } = &mut other.steps[1] else { panic!("a start") };
        call.inner = 5;
        let error = verify_ranks(&[&plan, &other]).unwrap_err().to_string();
        assert!(error.contains("psum over data of 20 bytes"), "{error}");
        other.steps.remove(1);
        let error = verify_ranks(&[&plan, &other]).unwrap_err().to_string();
        assert!(error.contains("has no further collective"), "{error}");
    }
}
