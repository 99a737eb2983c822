//! `cond` and `switch`: run one of several regions.

use crate::build::inline::inline;
use crate::op::SelectN;
use crate::op::batch::RegionOutput;
use crate::op::control::emit;
use crate::op::control::lockstep::alone;
use crate::op::prelude::*;
use crate::op::varying::vary_as;

attributes! {
    /// `cond %p, %k… region (%k) { … } region (%k) { … }`: the results of the first region for
    /// `%k…` if `%p` is true, else those of the second.
    ///
    /// Only the chosen region runs.
    Cond {}
}

attributes! {
    /// `switch %i, %k… region (%k) { … } …`: the results of region i for `%k…`, where i, an i32,
    /// is clamped to the existing regions.
    ///
    /// Only the chosen region runs.
    Switch {}
}

/// Checks the regions and returns the types of the results.
fn infer(selector: DType, operands: &[TensorType], regions: &[Region]) -> Result<Vec<TensorType>> {
    let Some((chooses, taken)) = operands.split_first() else {
        bail!("takes what chooses the region as its first operand");
    };
    let varying = &chooses.varying;
    ensure!(
        chooses.invariant() == TensorType::scalar(selector),
        "its first operand has type {chooses}";
        help "it is a {selector}[], which chooses the region"
    );
    let Some(first) = regions.first() else { return Err(Diagnostic::new("has no region")) };
    let results = first.types(&first.outputs);
    for (n, region) in regions.iter().enumerate() {
        let (inputs, outputs) = (region.types(&region.inputs), region.types(&region.outputs));
        ensure!(inputs == taken, "region {n} takes ({}), not ({})", listed(&inputs), listed(taken));
        ensure!(
            outputs == results,
            "region {n} gives ({}), region 0 gives ({})", listed(&outputs), listed(&results);
            help "all regions give values of the same dtypes and shapes"
        );
    }
    vary_as(varying, "its operands", taken)?;
    vary_as(varying, "its results", &results)?;
    Ok(results)
}

/// The results on a set of ranks; `choose` gives the region for the value of the first operand.
fn lockstep<R: Real>(
    l: Lockstep<'_, R>,
    choose: impl Fn(&Cell<R>) -> usize,
) -> Result<Vec<Vec<Array<R>>>> {
    let chosen: Vec<usize> = l.operands.iter().map(|on| choose(&on[0].cells[0])).collect();
    let mut results = vec![vec![]; chosen.len()];
    for region in 0..l.regions {
        let ranks: Vec<usize> = l.all().into_iter().filter(|i| chosen[*i] == region).collect();
        if ranks.is_empty() {
            continue;
        }
        let operands = ranks.iter().map(|i| l.operands[*i][1..].to_vec()).collect();
        for (rank, given) in ranks.iter().zip((l.run)(region, &ranks, operands)?) {
            results[*rank] = given;
        }
    }
    Ok(results)
}

/// If the selector is shared, one region runs. If it is batched, all regions run and the results
/// are selected.
fn batch(op: impl Into<Op>, b: &Batch<'_>) -> Result<Vec<Tensor>> {
    let wanted = vec![RegionOutput::Batched; b.results.len()];
    let map = |region: &Region| Ok((b.map_region)(region, &b.batched[1..], &wanted)?.0);
    let regions = b.regions.iter().map(map).collect::<Result<Vec<Region>>>()?;
    if !b.batched[0] {
        return emit(op, b.operands, regions);
    }
    let chooses = &b.operands[0];
    let given = regions.iter().map(|r| inline(r, &b.operands[1..])).collect::<Result<Vec<_>>>()?;
    let select = |i: usize| {
        let all: Vec<&Tensor> = given.iter().map(|results| &results[i]).collect();
        let along = |t: &Tensor| t.broadcast_in_dim(all[0].shape().to_vec(), &[0]);
        match chooses.dtype() {
            DType::Bool => along(chooses).select(all[0], all[1]),
            _ => {
                let last = i32::try_from(all.len() - 1).unwrap_or(i32::MAX);
                let bound = |n: i32| Tensor::full(chooses.ty(), Scalar::from(n));
                let index = chooses.max(bound(0)).min(bound(last));
                let operands: Vec<Tensor> = std::iter::once(along(&index))
                    .chain(all.iter().map(|t| (*t).clone()))
                    .collect();
                Tensor::apply(SelectN {}, &operands.iter().collect::<Vec<_>>())
            }
        }
    };
    Ok((0..b.results.len()).map(select).collect())
}

impl Cond {
    fn batched(&self, b: &Batch<'_>) -> Result<Vec<Tensor>> {
        batch(self.clone(), b)
    }
}

impl Switch {
    fn batched(&self, b: &Batch<'_>) -> Result<Vec<Tensor>> {
        batch(self.clone(), b)
    }
}

impl Operation for Cond {
    named!(
        "cond",
        "The results of the first region if a bool is true, else the results of the second."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [_, _] = t.exactly_regions()?;
        infer(DType::Bool, t.operands, t.regions)
    }

    fn lockstep<R: Real>(&self, l: Lockstep<'_, R>) -> Result<Vec<Vec<Array<R>>>> {
        lockstep(l, |chooses| usize::from(!chooses.is_true()))
    }

    by_regions!(2..=2);
}

impl Operation for Switch {
    named!("switch", "The results of the region with the given number, which is clamped.");

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        infer(DType::I32, t.operands, t.regions)
    }

    fn lockstep<R: Real>(&self, l: Lockstep<'_, R>) -> Result<Vec<Vec<Array<R>>>> {
        let last = l.regions - 1;
        lockstep(l, |chooses| usize::try_from(chooses.bits().max(0)).unwrap_or(last).min(last))
    }

    by_regions!(1..=usize::MAX);
}
