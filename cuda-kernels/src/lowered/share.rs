//! Small kernels that do not depend on each other share a launch.
//!
//! A launch takes a GPU some microseconds, whatever it does, and a kernel of a few blocks leaves
//! most of the multiprocessors idle: the three projections of a token, the caches that it is
//! written to, the updates of small parameters. Such kernels become the parts of a [`Bundle`].
//!
//! The kernels of a sequence are visited in order. A small kernel joins the first of the last few
//! launches that has room, if it conflicts with no kernel from there on. Two kernels conflict if
//! one writes memory that the other accesses. So each kernel still reads what it read before.

use super::{Command, KernelFacts, Launch};
use crate::architecture::MAX_BLOCK;
use crate::ptx::{Bundle, Kernel, Module};
use std::collections::HashMap;
use wengert_core::plan::{Place, ResolvedPlan, Scheduled};

/// Most blocks of a shared launch, four for each multiprocessor of a large GPU: with more, the
/// launches are short beside the work.
const BLOCKS: u32 = 528;
/// Most threads of a block of a small kernel. With more, registers would be few for all parts.
const THREADS: u32 = 256;
/// Most parts of a bundle, which bounds its code.
const PARTS: usize = 8;
/// Most bytes of shared memory of a bundle. Kernels with more, such as those of products of large
/// tiles, need most registers of a thread by themselves.
const SHARED: u32 = 16 << 10;
/// Most parameters of a bundle: 8 bytes each, of 4 KiB.
const PARAMETERS: usize = 512;
/// Launches that a kernel is compared with.
const WINDOW: usize = 8;

/// Lets small kernels share launches, and removes kernels that nothing launches.
pub(super) fn share(
    resolved: &mut ResolvedPlan<Command>,
    module: &mut Module,
    facts: &mut Vec<KernelFacts>,
) {
    let mut sharing =
        Sharing { kernels: &module.kernels, facts, bundles: vec![], known: HashMap::new() };
    resolved.arrange(&mut |sequence| sharing.sequence(sequence));
    module.bundles = sharing.bundles;
    remove_unused(resolved, module, facts);
}

struct Sharing<'a> {
    kernels: &'a [Kernel],
    /// Facts about kernels, then about bundles.
    facts: &'a mut Vec<KernelFacts>,
    bundles: Vec<Bundle>,
    /// The number of each bundle, by its kernels and their blocks. Looked up, never iterated.
    known: HashMap<Vec<(usize, u32)>, usize>,
}

impl Sharing<'_> {
    fn sequence(&mut self, sequence: Vec<Scheduled<Command>>) -> Vec<Scheduled<Command>> {
        let mut groups: Vec<Vec<Scheduled<Command>>> = Vec::with_capacity(sequence.len());
        for next in sequence {
            match self.home(&groups, &next.kernel) {
                Some(group) => groups[group].push(next),
                None => groups.push(vec![next]),
            }
        }
        groups.into_iter().map(|group| self.unite(group)).collect()
    }

    /// The group that a kernel joins.
    fn home(&self, groups: &[Vec<Scheduled<Command>>], kernel: &Command) -> Option<usize> {
        if !self.is_small(kernel) {
            return None;
        }
        let mut home = None;
        for (number, group) in groups.iter().enumerate().rev().take(WINDOW) {
            if group.iter().any(|other| conflict(&other.kernel, kernel)) {
                break;
            }
            let all = || group.iter().map(|s| &s.kernel).chain([kernel]);
            if group.iter().all(|s| self.is_small(&s.kernel)) && self.fits(&all) {
                home = Some(number);
            }
        }
        home
    }

    fn is_small(&self, command: &Command) -> bool {
        let Command::Launch(launch) = command else { return false };
        launch.grid[0] <= BLOCKS
            && launch.grid[1..] == [1, 1]
            && launch.dynamic_shared == 0
            && self.kernels[launch.kernel].threads <= THREADS
    }

    /// Whether these launches, which are small, may be one.
    fn fits<'c, I: Iterator<Item = &'c Command>>(&self, all: &impl Fn() -> I) -> bool {
        let launches = || {
            all().filter_map(|command| match command {
                Command::Launch(launch) => Some((launch, &self.kernels[launch.kernel])),
                Command::Library { .. } => None,
            })
        };
        let threads = launches().map(|(_, kernel)| kernel.threads).max().unwrap_or(MAX_BLOCK);
        launches().count() <= PARTS
            && launches().map(|(launch, _)| launch.grid[0]).sum::<u32>() <= BLOCKS
            && launches().map(|(launch, _)| launch.arguments.len()).sum::<usize>() <= PARAMETERS
            && launches().map(|(_, kernel)| kernel.static_shared()).sum::<u32>() <= SHARED
            && launches().all(|(_, kernel)| Bundle::takes(kernel, threads))
    }

    /// The launch of a group.
    fn unite(&mut self, mut group: Vec<Scheduled<Command>>) -> Scheduled<Command> {
        if group.len() == 1 {
            return group.remove(0);
        }
        let (step, mut work) = (group[0].step, 0u64);
        // The same kernels are one bundle, whatever their order.
        group.sort_by_key(|scheduled| match &scheduled.kernel {
            Command::Launch(launch) => launch.kernel,
            Command::Library { call, .. } => *call,
        });
        let (mut parts, mut arguments): (Vec<(usize, u32)>, Vec<Place>) = Default::default();
        for Scheduled { work: more, kernel, .. } in group {
            let Command::Launch(launch) = kernel else {
                unreachable!("only launches of kernels are small")
            };
            work = work.saturating_add(more);
            parts.push((launch.kernel, launch.grid[0]));
            arguments.extend(launch.arguments);
        }
        let grid = [parts.iter().map(|(_, blocks)| blocks).sum(), 1, 1];
        let kernel = self.bundle(parts);
        let launch = Launch { kernel, grid, dynamic_shared: 0, arguments };
        Scheduled { step, work, kernel: Command::Launch(launch) }
    }

    /// The number of a bundle among the facts.
    fn bundle(&mut self, parts: Vec<(usize, u32)>) -> usize {
        if let Some(known) = self.known.get(&parts) {
            return *known;
        }
        let of = |(kernel, blocks): &(usize, u32)| (self.kernels[*kernel].clone(), *blocks);
        let name = format!("bundle_{}", self.bundles.len());
        let bundle = Bundle { name, parts: parts.iter().map(of).collect() };
        let origins: Vec<&str> =
            parts.iter().map(|(kernel, _)| self.facts[*kernel].origin.as_str()).collect();
        let number = self.facts.len();
        let facts = KernelFacts {
            name: bundle.name.clone(),
            threads: bundle.threads(),
            shared: bundle.static_shared(),
            dynamic_shared: 0,
            origin: origins.join("; "),
        };
        self.facts.push(facts);
        self.bundles.push(bundle);
        self.known.insert(parts, number);
        number
    }
}

/// Whether one writes memory that the other accesses.
fn conflict(one: &Command, other: &Command) -> bool {
    one.places()
        .any(|x| other.places().any(|y| (x.is_written() || y.is_written()) && x.may_overlap(y)))
}

/// Removes kernels that are launched as parts of bundles only.
fn remove_unused(
    resolved: &mut ResolvedPlan<Command>,
    module: &mut Module,
    facts: &mut Vec<KernelFacts>,
) {
    let mut used = vec![false; facts.len()];
    for command in resolved.kernels() {
        if let Command::Launch(launch) = command {
            used[launch.kernel] = true;
        }
    }
    let numbers: Vec<usize> = used
        .iter()
        .scan(0, |next, used| {
            *next += usize::from(*used);
            Some(*next - usize::from(*used))
        })
        .collect();
    let mut is_used = used.iter();
    facts.retain(|_| *is_used.next().expect("there is one for each"));
    let mut is_used = used.iter();
    module.kernels.retain(|_| *is_used.next().expect("kernels are numbered before bundles"));
    resolved.arrange(&mut |mut sequence| {
        for scheduled in &mut sequence {
            if let Command::Launch(launch) = &mut scheduled.kernel {
                launch.kernel = numbers[launch.kernel];
            }
        }
        sequence
    });
}

#[cfg(test)]
mod tests {
    use crate::lowered::{Command, lowered};

    /// The kernels of a function that are launched, by name, and the text of its module.
    fn launches(text: &str) -> (Vec<String>, String) {
        let lowered = lowered(text);
        let names = lowered.resolved.kernels().into_iter().filter_map(|command| match command {
            Command::Launch(launch) => Some(lowered.kernels[launch.kernel].name.clone()),
            Command::Library { .. } => None,
        });
        (names.collect(), lowered.ptx.clone())
    }

    /// Products of one operand are one launch, and the product of their results is another one. A
    /// kernel that only bundles launch is not in the module.
    #[test]
    fn kernels_that_do_not_depend_on_each_other_share_a_launch() {
        let (names, ptx) = launches(
            "func @f(%x: f32[1,64], %a: f32[64,32], %b: f32[64,48], %c: f32[48,32]) -> (
                y: f32[1,32], z: f32[1,48], w: f32[1,32]) {
                %0: f32[1,32] = dot_general %x, %a {contract=[[1],[0]]}
                %1: f32[1,48] = dot_general %x, %b {contract=[[1],[0]]}
                %2: f32[1,32] = dot_general %1, %c {contract=[[1],[0]]}
                return %0, %1, %2
            }",
        );
        assert_eq!(names.len(), 2, "{names:?}");
        assert_eq!(names[0], "bundle_0");
        assert!(names[1].starts_with("gemm_f32"), "{names:?}");
        assert_eq!(ptx.matches(".entry").count(), 2, "{ptx}");
        assert_eq!(ptx.matches("griddepcontrol.wait").count(), 2, "{ptx}");
    }

    /// An update waits for the kernel that reads the old value.
    #[test]
    fn a_kernel_does_not_overtake_a_reader_of_what_it_writes() {
        let (names, _) = launches(
            "func @f(state %s: f32[64,32], %x: f32[1,64]) -> (y: f32[1,32], state s: f32[64,32]) {
                %0: f32[1,32] = dot_general %x, %s {contract=[[1],[0]]}
                %1: f32[64,32] = neg %s
                return %0, %1
            }",
        );
        assert_eq!(names.len(), 2, "{names:?}");
    }

    /// A product of tiles has long blocks. The softmax after it waits before it lets the next
    /// kernel be launched.
    #[test]
    fn kernels_with_long_blocks_are_not_launched_early() {
        let (names, ptx) = launches(
            "func @f(%x: f64[256,64], %a: f64[64,256]) -> (y: f64[256,256]) {
                %0: f64[256,256] = dot_general %x, %a {contract=[[1],[0]]}
                %1: f64[256,256] = softmax %0 {axis=1}
                return %1
            }",
        );
        let entries: Vec<&str> = ptx.split(".entry").skip(1).collect();
        let [product, softmax] = entries[..] else { panic!("two kernels: {names:?}") };
        assert!(!product.contains("griddepcontrol"), "{product}");
        let at = |what| softmax.find(what).unwrap_or_else(|| panic!("no {what}: {softmax}"));
        assert!(at("griddepcontrol.wait") < at("griddepcontrol.launch_dependents"), "{softmax}");
    }
}
