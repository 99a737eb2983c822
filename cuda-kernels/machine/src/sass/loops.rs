//! Natural loops.
//!
//! Block d **dominates** block b if every path from an entry to b passes d. An edge b → h whose
//! target dominates its source is a back edge; the blocks that reach b without passing h are the
//! **natural loop** of h. Loops with the same header are one loop.
//!
//! Dominators: Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm", 2001.
//! Irreducible loops, which structured code does not have, are not found.

use super::flow::Block;
use std::collections::{BTreeMap, BTreeSet};

/// A natural loop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loop {
    /// The block through which it is entered.
    pub header: usize,
    /// Its blocks in ascending order, the header included.
    pub blocks: Vec<usize>,
    /// Whether no other loop is in it.
    pub is_innermost: bool,
}

/// All loops, smaller ones first.
pub(super) fn find(blocks: &[Block], entries: &[usize]) -> Vec<Loop> {
    let dominators = dominators(blocks, entries);
    let dominates = |d: usize, mut b: usize| loop {
        if b == d {
            return true;
        }
        match dominators[b] {
            Some(up) if up != b => b = up,
            _ => return false,
        }
    };
    let mut bodies: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for (from, block) in blocks.iter().enumerate() {
        for &header in block.successors.iter().filter(|&&h| dominates(h, from)) {
            let body = bodies.entry(header).or_default();
            body.insert(header);
            let mut work = vec![from];
            while let Some(b) = work.pop() {
                if body.insert(b) {
                    work.extend(&blocks[b].predecessors);
                }
            }
        }
    }
    let headers: Vec<usize> = bodies.keys().copied().collect();
    let mut loops: Vec<Loop> = bodies
        .iter()
        .map(|(&header, body)| Loop {
            header,
            blocks: body.iter().copied().collect(),
            is_innermost: !headers.iter().any(|h| *h != header && body.contains(h)),
        })
        .collect();
    loops.sort_by_key(|l| (l.blocks.len(), l.header));
    loops
}

/// Immediate dominator of each block; an entry is its own.
fn dominators(blocks: &[Block], entries: &[usize]) -> Vec<Option<usize>> {
    let order = postorder(blocks, entries);
    let mut rank = vec![0; blocks.len()];
    for (position, &b) in order.iter().enumerate() {
        rank[b] = position;
    }
    let mut dominator: Vec<Option<usize>> = vec![None; blocks.len()];
    for &e in entries {
        dominator[e] = Some(e);
    }
    let meet = |dominator: &[Option<usize>], mut a: usize, mut b: usize| {
        while a != b {
            let low = if rank[a] < rank[b] { &mut a } else { &mut b };
            match dominator[*low] {
                Some(up) if up != *low => *low = up,
                // Two entries: no block dominates both.
                _ => return None,
            }
        }
        Some(a)
    };
    loop {
        let mut changed = false;
        for &b in order.iter().rev().filter(|b| !entries.contains(b)) {
            let mut found: Option<usize> = None;
            for &p in blocks[b].predecessors.iter().filter(|&&p| dominator[p].is_some()) {
                found = match found {
                    None => Some(p),
                    Some(f) => Some(meet(&dominator, f, p).unwrap_or(b)),
                };
            }
            if found.is_some() && found != dominator[b] {
                dominator[b] = found;
                changed = true;
            }
        }
        if !changed {
            return dominator;
        }
    }
}

/// Blocks in postorder of a depth-first search from the entries.
fn postorder(blocks: &[Block], entries: &[usize]) -> Vec<usize> {
    let mut seen = vec![false; blocks.len()];
    let mut order = Vec::with_capacity(blocks.len());
    for &entry in entries.iter().rev() {
        let mut stack = vec![(entry, 0)];
        if std::mem::replace(&mut seen[entry], true) {
            continue;
        }
        while let Some((block, next)) = stack.pop() {
            match blocks[block].successors.get(next) {
                Some(&s) => {
                    stack.push((block, next + 1));
                    if !std::mem::replace(&mut seen[s], true) {
                        stack.push((s, 0));
                    }
                }
                None => order.push(block),
            }
        }
    }
    order
}
