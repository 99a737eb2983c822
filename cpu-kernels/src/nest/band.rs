//! Totals of bands, spelt out.
//!
//! A total has accumulators in row storage, `lanes` for each element. Phases in front of those of
//! the nest clear them, before the first row of a band. A row adds its values to the accumulators
//! of its lane. Phases behind the others combine the lanes in halves and store the total, after the
//! last row. The thread runs the rows of a band one after the other, and nothing else uses the
//! storage meanwhile.

use std::ops::Range;
use wengert_core::Id;
use wengert_core::nest::{
    Access, Affine, Axis, AxisId, Buffer, BufferId, BufferRole, Combine, Instr, Nest, Phase, Reg,
    Total,
};

/// The bands of a compiled nest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bands {
    /// Rows of a band.
    pub rows: usize,
    /// Phases that run before its first row only, and as many that run after its last.
    totals: usize,
}

impl Bands {
    /// Of `phases` phases those that a row runs.
    pub fn phases(self, row: usize, phases: usize) -> Range<usize> {
        let (first, last) = (row.is_multiple_of(self.rows), (row + 1).is_multiple_of(self.rows));
        let start = if first { 0 } else { self.totals };
        start..if last { phases } else { phases - self.totals }
    }
}

/// The nest with plain stores in place of its totals, if it has any.
pub(super) fn spelled_out(nest: &Nest) -> Option<(Nest, Bands)> {
    let band = nest.band()?;
    let mut writer = Writer { nest: nest.clone(), clear: vec![], finish: vec![] };
    for (p, phase) in nest.phases.iter().enumerate() {
        let mut body = Vec::new();
        for instr in &phase.body {
            match instr {
                Instr::Store { access, value, total: Some(total) } => {
                    writer.total(&mut body, (phase, band), access, *value, total);
                }
                other => body.push(other.clone()),
            }
        }
        writer.nest.phases[p].body = body;
    }
    let Writer { mut nest, clear, finish } = writer;
    let bands = Bands { rows: nest.axes[band].extent, totals: clear.len() };
    nest.phases = clear.into_iter().chain(nest.phases).chain(finish).collect();
    Some((nest.renumber(), bands))
}

struct Writer {
    nest: Nest,
    clear: Vec<Phase>,
    finish: Vec<Phase>,
}

impl Writer {
    /// A total, in a phase whose rows differ in the axis `band`.
    fn total(
        &mut self,
        body: &mut Vec<Instr>,
        (phase, band): (&Phase, AxisId),
        access: &Access,
        value: Reg,
        total: &Total,
    ) {
        let lanes = total.tree.lanes as usize;
        let extents = phase.axes.iter().map(|axis| self.nest.axes[*axis].extent);
        let buffer = self.nest.buffers.push(Buffer {
            name: format!("total{}", self.clear.len()),
            dtype: self.nest.buffers[access.buffer].dtype,
            shape: [lanes].into_iter().chain(extents).collect(),
            pitch: None,
            role: BufferRole::Row,
        });
        let at = |lane: Affine, inner: &[AxisId]| {
            let inner = inner.iter().map(|axis| Affine::axis(*axis));
            let indices = [lane].into_iter().chain(inner).collect();
            Access { buffer, indices, guards: vec![], clamp: false }
        };
        let own = at(Affine::axis(band).modulo(lanes as i64), &phase.axes);
        let before = self.load(body, own.clone());
        let after = self.combined(body, &total.combine, [before, value]);
        body.push(Instr::Store { access: own, value: after, total: None });

        let lane = self.nest.axes.push(Axis { name: "lane".into(), extent: lanes });
        let inner = self.copies(&phase.axes);
        let mut body = Vec::new();
        let identity = total.combine.identity[0];
        let result = self.nest.registers.push(identity.dtype());
        body.push(Instr::Const { result, value: identity });
        let access_of_lane = at(Affine::axis(lane), &inner);
        body.push(Instr::Store { access: access_of_lane, value: result, total: None });
        let axes = [lane].into_iter().chain(inner).collect();
        self.clear.push(Phase { axes, body, reductions: vec![] });

        let inner = self.copies(&phase.axes);
        let mut body = Vec::new();
        let mut values: Vec<Reg> = (0..lanes)
            .map(|lane| self.load(&mut body, at(Affine::constant(lane as i64), &inner)))
            .collect();
        while values.len() > 1 {
            let half = values.len() / 2;
            for lane in 0..half {
                let pair = [values[lane], values[lane + half]];
                values[lane] = self.combined(&mut body, &total.combine, pair);
            }
            values.truncate(half);
        }
        let axis = |axis: AxisId| {
            let place = phase.axes.iter().position(|of_phase| *of_phase == axis);
            Affine::axis(place.map_or(axis, |place| inner[place]))
        };
        let indices = access.indices.iter().map(|index| index.substitute(&axis, &Affine::reg));
        let access = Access { indices: indices.collect(), ..access.clone() };
        body.push(Instr::Store { access, value: values[0], total: None });
        self.finish.push(Phase { axes: inner, body, reductions: vec![] });
    }

    fn copies(&mut self, axes: &[AxisId]) -> Vec<AxisId> {
        axes.iter().map(|axis| self.nest.axes.push(self.nest.axes[*axis].clone())).collect()
    }

    fn load(&mut self, body: &mut Vec<Instr>, access: Access) -> Reg {
        let result = self.nest.registers.push(self.dtype(access.buffer));
        body.push(Instr::Load { result, access, fill: None });
        result
    }

    fn dtype(&self, buffer: BufferId) -> wengert_core::DType {
        self.nest.buffers[buffer].dtype
    }

    /// `combine(a, b)`, instruction by instruction.
    fn combined(&mut self, body: &mut Vec<Instr>, combine: &Combine, pair: [Reg; 2]) -> Reg {
        let mut names: Vec<Option<Reg>> = pair.map(Some).to_vec();
        names.resize(combine.registers.len(), None);
        for instr in &combine.body {
            let mut instr = instr.clone();
            if let Instr::Scalar { operands, .. } = &mut instr {
                for operand in operands {
                    *operand = names[operand.index()].expect("a combine program is straight-line");
                }
            }
            for result in instr.results_mut() {
                let fresh = self.nest.registers.push(combine.registers[*result]);
                names[result.index()] = Some(fresh);
                *result = fresh;
            }
            body.push(instr);
        }
        names[combine.results[0].index()].expect("a combine program defines its results")
    }
}
