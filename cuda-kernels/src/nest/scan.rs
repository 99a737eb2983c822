//! Prefixes by a warp.
//!
//! A prefix is computed element by element, and a float sum must be. But where the combiner is
//! exact in any order (integer sums and products, minima, maxima, logic), 32 elements are scanned
//! at a time: in five steps every lane combines its value with that of the lane 1, 2, 4, 8, 16
//! before it, and then with the carry of the iterations before. The last lane's value is the next
//! carry.

use super::emit::{Copy, Emit, Scan};
use super::exchange::shuffle;
use super::shape::{self, is_exact};
use super::team::{Layout, Team, place};
use crate::architecture::WARP;
use crate::ptx::{Lanes, Operand, Reg, Shuffle};
use crate::scalar;
use wengert_core::nest::{Affine, Phase, Prefix};
use wengert_core::{Id, Result};

/// Whether a team scans the prefixes of a phase.
pub(super) fn takes(layout: Layout, phase: &Phase) -> bool {
    let exact = shape::prefixes(phase).all(|prefix| is_exact(&prefix.combine));
    exact && phase.reductions.is_empty() && layout.in_warp() && layout.threads == WARP
}

impl Team<'_> {
    /// A phase with prefixes, line by line.
    pub fn scan(&mut self, emit: &mut Emit<'_>, phase: &Phase, copy: &Copy) -> Result<()> {
        let groups = shape::inner(self.nest, phase);
        let (last, others) = groups.split_last().expect("a prefix has an axis");
        let lines: usize = others.iter().map(|g| g.extent).product();
        if lines * last.extent == 0 {
            return Ok(());
        }
        let reverse = shape::prefixes(phase).any(|p| p.reverse);
        emit.begin_body(1);
        emit.mark_outer();
        let line = emit.axis("line", lines);
        let extent = last.extent as i64;
        let lanes = i64::from(WARP);
        emit.repeat(line, false, |emit| {
            emit.prefixes =
                shape::prefixes(phase).map(|p| vec![emit.identity(&p.combine)]).collect();
            let step = emit.axis("step", last.extent.div_ceil(WARP as usize));
            emit.repeat(step, false, |emit| {
                let number = Affine::axis(step).scale(lanes).add(&Affine::axis(self.axis));
                let mut copy = copy.clone();
                let there = emit.guard(&number, 0, extent);
                copy.active = emit.all(copy.active.into_iter().chain(there).collect());
                place(&mut copy, others, &Affine::axis(line));
                let innermost = last.axes.last().expect("no group is empty").index();
                copy.axes[innermost] =
                    if reverse { number.scale(-1).offset(extent - 1) } else { number };
                emit.scan = Some(Scan { lane: self.axis, members: self.members.clone() });
                emit.begin_body(1);
                emit.instructions(phase, &[copy])
            })
        })?;
        emit.scan = None;
        emit.body.clear();
        Ok(())
    }
}

impl Emit<'_> {
    /// The results of a prefix in the lanes of the warp; lanes that are not active have the
    /// identity.
    pub fn scan_prefix(
        &mut self,
        prefix: &Prefix,
        number: usize,
        active: Option<Reg>,
    ) -> Result<()> {
        let scan = self.scan.clone().expect("called for phases that are scanned");
        let dtypes = prefix.combine.dtypes();
        let mut values: Vec<Reg> = prefix.values.iter().map(|r| self.value(0, *r)).collect();
        if let Some(active) = active {
            for ((value, identity), dtype) in
                values.iter_mut().zip(&prefix.combine.identity).zip(&dtypes)
            {
                let identity = self.constant(*identity);
                *value = scalar::select(&mut self.code, *dtype, active, *value, identity);
            }
        }
        let mut distance = 1;
        while distance < WARP {
            let below = Lanes {
                mode: Shuffle::Up,
                lane: Operand::Int(distance.into()),
                clamp: 0,
                members: scan.members.clone(),
            };
            let before: Vec<Reg> = dtypes
                .iter()
                .zip(&values)
                .map(|(d, v)| shuffle(&mut self.code, *d, *v, &below))
                .collect();
            let both = self.combine(&prefix.combine, &before, &values)?;
            let takes = self.guard(&Affine::axis(scan.lane), distance.into(), WARP.into());
            let takes = takes.expect("the first lanes have nothing before them");
            for ((value, both), dtype) in values.iter_mut().zip(both).zip(&dtypes) {
                *value = scalar::select(&mut self.code, *dtype, takes, both, *value);
            }
            distance *= 2;
        }
        let carry = self.prefixes[number][0].clone();
        let results = self.combine(&prefix.combine, &carry, &values)?;
        let end = Lanes {
            mode: Shuffle::Index,
            lane: Operand::Int(i64::from(WARP) - 1),
            clamp: 0x1f,
            members: scan.members,
        };
        for (((result, value), carry), dtype) in
            prefix.results.iter().zip(&results).zip(&carry).zip(&dtypes)
        {
            let last = shuffle(&mut self.code, *dtype, *value, &end);
            self.assign(&[*dtype], &[*carry], &[last]);
            self.define(0, *result, *value);
        }
        Ok(())
    }
}
