//! N14 to N19: bounds, and the order of writes and reads of each element.

use super::depend::Dependence;
use super::{Failure, MAX_STORES, Site, failure, runs, sites};
use crate::diagnostic::{bail, ensure};
use crate::nest::bounds::{Agreement, Interval, Known, Ranges, disjoint};
use crate::nest::parse::Part;
use crate::nest::print::AffineText;
use crate::nest::{Access, Affine, AxisId, Buffer, BufferId, BufferRole, Nest, Term};
use std::collections::{BTreeMap, BTreeSet};

type Result<T = ()> = std::result::Result<T, Failure>;

pub(super) fn check(nest: &Nest) -> Result {
    let dependence = &Dependence::new(nest);
    let sites: Vec<Site<'_>> =
        sites(nest).into_iter().filter(|s| ranges(nest, s).reachable()).collect();
    for site in &sites {
        bounds(nest, site)?;
    }
    let mut of_buffer: BTreeMap<BufferId, Vec<Site<'_>>> = BTreeMap::new();
    for site in sites {
        of_buffer.entry(site.access.buffer).or_default().push(site);
    }
    for (id, buffer) in nest.buffers.iter() {
        let (stores, loads): (Vec<_>, Vec<_>) =
            of_buffer.remove(&id).unwrap_or_default().into_iter().partition(|s| s.store);
        check_stores(nest, dependence, buffer, &stores)?;
        match buffer.role {
            BufferRole::In => {}
            BufferRole::Out => complete(nest, id, &stores)?,
            BufferRole::InOut => {
                loads.iter().try_for_each(|l| in_place(nest, dependence, l, &stores))?
            }
            BufferRole::Row => loads
                .iter()
                .try_for_each(|l| written_before(nest, dependence, buffer, l, &stores))?,
        }
    }
    Ok(())
}

fn ranges<'a>(nest: &'a Nest, site: &Site<'a>) -> Ranges<'a> {
    Ranges::new(nest, &site.access.guards)
}

/// N14.
fn bounds(nest: &Nest, site: &Site<'_>) -> Result {
    if site.access.clamp {
        return Ok(());
    }
    let ranges = ranges(nest, site);
    for (index, extent) in site.access.indices.iter().zip(&nest.buffers[site.access.buffer].shape) {
        let Interval { low, high } = ranges.of(index);
        if !(Interval { low, high }).within(0, *extent as i128) {
            let text = AffineText(nest, index);
            let wrong =
                format!("index `{text}` is in {low}..{} where the extent is {extent}", high + 1);
            return Err(failure(site.part(), 14, wrong).help("guard it, or clamp the load"));
        }
    }
    Ok(())
}

/// N15 and N16.
fn check_stores(
    nest: &Nest,
    dependence: &Dependence,
    buffer: &Buffer,
    stores: &[Site<'_>],
) -> Result {
    if let Some(site) = stores.get(MAX_STORES) {
        bail!(site.part(), 16, "more than {MAX_STORES} stores to `%{}`", buffer.name);
    }
    for (n, site) in stores.iter().enumerate() {
        injective(nest, dependence, buffer, site)?;
        for other in &stores[..n] {
            if buffer.role == BufferRole::Row && other.phase != site.phase {
                continue;
            }
            if !are_disjoint(nest, site, other) {
                let wrong = format!(
                    "may write an element of `%{}` that an earlier store writes",
                    buffer.name
                );
                return Err(failure(site.part(), 16, wrong)
                    .help("give some index of the two stores disjoint ranges or residues"));
            }
        }
    }
    Ok(())
}

fn are_disjoint(nest: &Nest, a: &Site<'_>, b: &Site<'_>) -> bool {
    disjoint((&a.access.indices, &ranges(nest, a)), (&b.access.indices, &ranges(nest, b)))
}

/// N15.
fn injective(nest: &Nest, dependence: &Dependence, buffer: &Buffer, site: &Site<'_>) -> Result {
    let phase = &nest.phases[site.phase];
    let outer = nest.parallel.len();
    // Row storage belongs to one row, a total to the rows of a band.
    let apart = match (buffer.role, site.total) {
        (BufferRole::Row, _) => 0,
        (_, true) => outer - 1,
        (_, false) => outer,
    };
    let known = Known::axes(&nest.parallel[apart..]);
    let agreement = Agreement {
        ranges: &ranges(nest, site),
        depends: &|reg| Some(dependence.axes(nest, phase, reg)),
    };
    let found = agreement.extend(&site.access.indices.iter().collect::<Vec<_>>(), known);
    let wanted = nest.parallel[..apart].iter().chain(&phase.axes);
    match wanted.into_iter().find(|a| nest.axes[**a].extent > 1 && !found.contains(**a)) {
        None => Ok(()),
        Some(axis) => {
            let name = &nest.axes[*axis].name;
            let wrong = format!(
                "iterations that differ in `{name}` may write one element: the indices do not \
                 determine it"
            );
            Err(failure(site.part(), 15, wrong))
        }
    }
}

/// Elements that a store writes over all rows. The structure check bounds the product.
fn iterations(nest: &Nest, site: &Site<'_>) -> usize {
    let rows = match nest.band().filter(|_| site.total) {
        Some(band) => nest.rows() / nest.axes[band].extent,
        None => nest.rows(),
    };
    rows * nest.phases[site.phase].iterations(nest)
}

/// N17.
fn complete(nest: &Nest, id: BufferId, stores: &[Site<'_>]) -> Result {
    let elements: usize = nest.buffers[id].shape.iter().product();
    let guarded = stores.iter().any(|s| !s.access.guards.is_empty());
    // The stores write different elements, so their iterations together fit in the buffer.
    let written: usize = stores.iter().map(|s| iterations(nest, s)).fold(0, usize::saturating_add);
    if guarded || written == elements {
        return Ok(());
    }
    let part = stores.first().map_or(Part::Buffer(id), Site::part);
    Err(failure(
        part,
        17,
        format!("{written} of {elements} elements of `%{}` are written", nest.buffers[id].name),
    )
    .help("every element of an `out` buffer is written once; use `inout` to keep the others"))
}

/// N18.
fn in_place(nest: &Nest, dependence: &Dependence, load: &Site<'_>, stores: &[Site<'_>]) -> Result {
    for store in stores {
        let same = load.phase == store.phase;
        // A clamped index may differ from the index that is written.
        let clamps = load.access.clamp;
        let ordered = if same {
            !clamps
                && same_iteration(nest, dependence, load, store)
                && load.position < store.position
        } else {
            load.phase < store.phase && rows_agree(nest, load, store)
        };
        if !ordered && (clamps || !are_disjoint(nest, load, store)) {
            let help = if same && clamps {
                "load in an earlier phase"
            } else if same {
                "load at the indices of the store, before it"
            } else if load.phase < store.phase {
                "load and store at indices that are the same in the parallel axes"
            } else {
                "load in the phase of the store, before it"
            };
            return Err(failure(
                load.part(),
                18,
                "may read an element that another iteration writes",
            )
            .help(help));
        }
    }
    Ok(())
}

/// True if a load and a store of one phase that access one element do so in one iteration (for
/// row storage, of one row).
///
/// N15 ensures it for two iterations that pass the guards of the store. It remains to check that
/// the load passes them too.
fn same_iteration(nest: &Nest, dependence: &Dependence, load: &Site<'_>, store: &Site<'_>) -> bool {
    if load.access.indices != store.access.indices {
        return false;
    }
    if store.access.guards.iter().all(|g| load.access.guards.contains(g)) {
        return true;
    }
    let anywhere =
        Site { access: &Access { guards: Vec::new(), ..store.access.clone() }, ..*store };
    injective(nest, dependence, &nest.buffers[store.access.buffer], &anywhere).is_ok()
}

/// True if accesses of one element are in one row: the indices that both share determine the
/// parallel axes. An index that a load may clamp is not shared.
fn rows_agree(nest: &Nest, load: &Site<'_>, store: &Site<'_>) -> bool {
    let shape = &nest.buffers[load.access.buffer].shape;
    let ranges = ranges(nest, load);
    let stays = |index: &Affine, extent: usize| {
        !load.access.clamp || ranges.of(index).within(0, extent as i128)
    };
    let of_row = |e: &Affine| {
        let mut rows_only = true;
        e.visit_terms(&mut |t| match t {
            Term::Axis(axis) => rows_only &= nest.parallel.contains(axis),
            Term::Reg(_) => rows_only = false,
            Term::FloorDiv(..) | Term::Mod(..) => {}
        });
        rows_only
    };
    let pairs = load.access.indices.iter().zip(&store.access.indices).zip(shape);
    let common: Vec<&Affine> = pairs
        .filter(|((x, y), extent)| x == y && of_row(x) && stays(x, **extent))
        .map(|((x, _), _)| x)
        .collect();
    let agreement = Agreement { ranges: &Ranges::new(nest, &[]), depends: &|_| None };
    let found = agreement.extend(&common, Known::default());
    nest.parallel.iter().all(|axis| nest.axes[*axis].extent <= 1 || found.contains(*axis))
}

/// N19.
fn written_before(
    nest: &Nest,
    dependence: &Dependence,
    buffer: &Buffer,
    load: &Site<'_>,
    stores: &[Site<'_>],
) -> Result {
    let conflict = stores.iter().filter(|s| s.phase == load.phase).any(|store| {
        let ordered =
            same_iteration(nest, dependence, load, store) && load.position < store.position;
        // A clamped index may differ from the index that is written.
        load.access.clamp || (!ordered && !are_disjoint(nest, load, store))
    });
    ensure!(
        !conflict, load.part(), 19,
        "reads row storage that another iteration of the phase may write";
        help "read in a later phase, or before the store at the same indices"
    );
    let ranges = ranges(nest, load);
    let read: Vec<Interval> = load
        .access
        .indices
        .iter()
        .zip(&buffer.shape)
        .map(|(index, extent)| {
            let range = ranges.of(index);
            let last = *extent as i128 - 1;
            if load.access.clamp {
                Interval { low: range.low.clamp(0, last), high: range.high.clamp(0, last) }
            } else {
                range
            }
        })
        .collect();
    let covered =
        stores.iter().filter(|s| s.phase < load.phase && s.access.guards.is_empty()).any(|store| {
            let phase = &nest.phases[store.phase];
            let all: usize = buffer.shape.iter().product();
            // The store is injective (N15) and in bounds (N14), so as many iterations as elements
            // reach all of them.
            if runs(nest, phase) && phase.iterations(nest) == all {
                return true;
            }
            let Some(written) = store_box(nest, &phase.axes, &store.access.indices) else {
                return false;
            };
            read.iter().zip(written).all(|(r, w)| r.within(w.low, w.high + 1))
        });
    if covered {
        Ok(())
    } else {
        Err(failure(
            load.part(),
            19,
            format!("may read elements of `%{}` that no earlier phase has written", buffer.name),
        )
        .help("one unguarded store of an earlier phase has to cover what is read"))
    }
}

/// The elements that an unguarded store writes, if its indices are constants and distinct inner
/// axes, with offsets.
fn store_box(nest: &Nest, axes: &[AxisId], indices: &[Affine]) -> Option<Vec<Interval>> {
    let mut seen = BTreeSet::new();
    indices
        .iter()
        .map(|index| {
            let low = i128::from(index.constant);
            match index.terms.as_slice() {
                [] => Some(Interval { low, high: low }),
                [(Term::Axis(axis), 1)] if axes.contains(axis) && seen.insert(*axis) => {
                    Some(Interval { low, high: low + nest.axes[*axis].extent as i128 - 1 })
                }
                _ => None,
            }
        })
        .collect()
}
