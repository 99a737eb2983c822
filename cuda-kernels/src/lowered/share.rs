//! Kernels that do not depend on each other share a launch.
//!
//! A launch takes a GPU some microseconds, whatever it does, and a kernel of a few blocks leaves
//! most of the multiprocessors idle: the three projections of a token, the caches that it is
//! written to, the updates of small parameters. Such kernels become the parts of a [`Bundle`].
//!
//! Kernels of one [`Template`] become the parts of a bundle whatever their numbers of blocks, such
//! as the updates of parameters. They need the same registers, so as many of their blocks are
//! resident in the bundle as before.
//!
//! The kernels of a sequence are visited in order. A kernel joins the first of the last few
//! launches that it may share, if it conflicts with no kernel from there on. Two kernels conflict
//! if one writes memory that the other accesses. So each kernel still reads what it read before.

use super::{Command, KernelFacts, Launch};
use crate::architecture::MAX_BLOCK;
use crate::ptx::{Bundle, Class, Family, Kernel, Module, Template};
use std::collections::{BTreeMap, HashMap};
use wengert_core::plan::{Place, ResolvedPlan, Scheduled};

/// Most blocks of a launch of small kernels, four for each multiprocessor of a large GPU: with
/// more, the launches are short beside the work.
const BLOCKS: u32 = 528;
/// Most blocks of a launch along x.
const MAX_BLOCKS: u64 = i32::MAX as u64;
/// Most threads of a block of a launch of different kernels. With more, registers would be few for
/// all of them.
const THREADS: u32 = 256;
/// Most families of a bundle, which bounds its code.
const FAMILIES: usize = 8;
/// Most bytes of shared memory of a bundle. Kernels with more, such as those of products of large
/// tiles, need most registers of a thread by themselves.
const SHARED: u32 = 16 << 10;
/// Most addresses of a bundle: 8 bytes each, of 4 KiB.
const ADDRESSES: usize = 512;
/// Launches that a kernel is compared with.
const WINDOW: usize = 8;

/// Lets kernels share launches, and removes kernels that nothing launches.
pub(super) fn share(
    resolved: &mut ResolvedPlan<Command>,
    module: &mut Module,
    facts: &mut Vec<KernelFacts>,
) {
    let mut sharing = Sharing::new(&module.kernels, facts);
    resolved.arrange(&mut |sequence| sharing.sequence(sequence));
    module.bundles = sharing.bundles;
    remove_unused(resolved, module, facts);
}

/// A kernel as a part of a bundle.
struct Part {
    /// The number of its template.
    template: usize,
    bounds: Vec<i64>,
}

/// What a bundle is made of.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Recipe {
    /// Kernels in the order of their blocks, with the blocks of a part, and the number of parts.
    classes: Vec<(usize, u32, u32)>,
    /// For each family whether its parts share each argument.
    shared: Vec<Vec<bool>>,
}

struct Sharing<'a> {
    kernels: &'a [Kernel],
    /// One for each kernel.
    parts: Vec<Part>,
    templates: Vec<Template>,
    /// Facts about kernels, then about bundles.
    facts: &'a mut Vec<KernelFacts>,
    bundles: Vec<Bundle>,
    /// The number of each bundle. Looked up, never iterated.
    known: HashMap<Recipe, usize>,
}

/// Launches of one template.
struct Alike<'c> {
    launches: Vec<&'c Launch>,
}

impl Alike<'_> {
    /// For each argument whether all launches have the same.
    fn shared(&self) -> Vec<bool> {
        let first = &self.launches[0].arguments;
        let same = |n: usize| self.launches.iter().all(|l| l.arguments[n] == first[n]);
        (0..first.len()).map(same).collect()
    }

    /// The number of addresses.
    fn addresses(&self) -> usize {
        let shared = self.shared();
        let same = shared.iter().filter(|same| **same).count();
        same + (shared.len() - same) * self.launches.len()
    }
}

impl<'a> Sharing<'a> {
    fn new(kernels: &'a [Kernel], facts: &'a mut Vec<KernelFacts>) -> Sharing<'a> {
        let mut numbers: HashMap<Template, usize> = HashMap::new();
        let (mut templates, mut parts) = (Vec::new(), Vec::new());
        for kernel in kernels {
            let (template, bounds) = Template::of(kernel);
            let number = *numbers.entry(template.text()).or_insert_with(|| {
                templates.push(template);
                templates.len() - 1
            });
            parts.push(Part { template: number, bounds });
        }
        Sharing { kernels, parts, templates, facts, bundles: vec![], known: HashMap::new() }
    }

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
        let launch = self.sharable(kernel)?;
        let mut home = None;
        for (number, group) in groups.iter().enumerate().rev().take(WINDOW) {
            if group.iter().any(|other| conflict(&other.kernel, kernel)) {
                break;
            }
            let others = group.iter().map(|s| self.sharable(&s.kernel));
            let all: Option<Vec<&Launch>> = others.chain([Some(launch)]).collect();
            if all.is_some_and(|all| self.fits(&all)) {
                home = Some(number);
            }
        }
        home
    }

    /// The launch of a kernel that may share it.
    fn sharable<'c>(&self, command: &'c Command) -> Option<&'c Launch> {
        let Command::Launch(launch) = command else { return None };
        let kernel = &self.kernels[launch.kernel];
        let may = launch.grid[1..] == [1, 1]
            && launch.dynamic_shared == 0
            && kernel.static_shared() <= SHARED
            && Bundle::takes(kernel, kernel.threads);
        may.then_some(launch)
    }

    /// Whether these launches, which are sharable, may be one.
    fn fits(&self, all: &[&Launch]) -> bool {
        let families = self.families(all);
        let blocks: u64 = all.iter().map(|launch| u64::from(launch.grid[0])).sum();
        let code = || families.keys().map(|template| &self.templates[*template].kernel);
        let threads = code().map(|kernel| kernel.threads).max().unwrap_or(MAX_BLOCK);
        // Kernels that are not launched early have few long blocks, which fill the GPU.
        let alike = families.len() == 1;
        let may_be_many = alike && code().all(|kernel| kernel.early);
        blocks <= if may_be_many { MAX_BLOCKS } else { BLOCKS.into() }
            && (alike || threads <= THREADS)
            && families.len() <= FAMILIES
            && families.values().map(Alike::addresses).sum::<usize>() <= ADDRESSES
            && code().map(Kernel::static_shared).sum::<u32>() <= SHARED
            && code().all(|kernel| Bundle::takes(kernel, threads))
    }

    /// Launches by their templates, each family's by kernels.
    fn families<'c>(&self, all: &[&'c Launch]) -> BTreeMap<usize, Alike<'c>> {
        let mut families: BTreeMap<usize, Alike<'c>> = BTreeMap::new();
        for launch in all {
            let template = self.parts[launch.kernel].template;
            families.entry(template).or_insert(Alike { launches: vec![] }).launches.push(launch);
        }
        // The sort is stable.
        let class = |launch: &&Launch| (launch.kernel, launch.grid[0]);
        families.values_mut().for_each(|family| family.launches.sort_by_key(class));
        families
    }

    /// The launch of a group.
    fn unite(&mut self, mut group: Vec<Scheduled<Command>>) -> Scheduled<Command> {
        if group.len() == 1 {
            return group.remove(0);
        }
        let step = group[0].step;
        let work = group.iter().fold(0u64, |sum, scheduled| sum.saturating_add(scheduled.work));
        let all = group.iter().map(|scheduled| self.sharable(&scheduled.kernel));
        let all: Vec<&Launch> = all.collect::<Option<_>>().expect("others join no group");
        let (mut arguments, mut classes): (Vec<Place>, Vec<(usize, u32, u32)>) = Default::default();
        let mut shared = Vec::new();
        for family in self.families(&all).into_values() {
            let same = family.shared();
            let of = |launch: &Launch, wanted: bool| -> Vec<Place> {
                let places = launch.arguments.iter().zip(&same);
                places
                    .filter(|(_, same)| **same == wanted)
                    .map(|(place, _)| place.clone())
                    .collect()
            };
            arguments.extend(of(family.launches[0], true));
            arguments.extend(family.launches.iter().flat_map(|launch| of(launch, false)));
            let class = |launch: &&Launch| (launch.kernel, launch.grid[0]);
            for alike in family.launches.chunk_by(|a, b| class(a) == class(b)) {
                let (kernel, blocks) = class(&alike[0]);
                let parts = u32::try_from(alike.len()).expect("it is bounded by their addresses");
                classes.push((kernel, blocks, parts));
            }
            shared.push(same);
        }
        let grid = [classes.iter().map(|(_, blocks, parts)| blocks * parts).sum(), 1, 1];
        let kernel = self.bundle(Recipe { classes, shared });
        let launch = Launch { kernel, grid, dynamic_shared: 0, arguments };
        Scheduled { step, work, kernel: Command::Launch(launch) }
    }

    /// The number of a bundle among the facts.
    fn bundle(&mut self, recipe: Recipe) -> usize {
        if let Some(known) = self.known.get(&recipe) {
            return *known;
        }
        let name = format!("bundle_{}", self.bundles.len());
        let mut families: Vec<Family> = Vec::new();
        let mut last = None;
        let mut origins: Vec<(&str, u32)> = Vec::new();
        for (kernel, blocks, parts) in &recipe.classes {
            let Part { template, bounds } = &self.parts[*kernel];
            if last.replace(*template) != Some(*template) {
                let shared = recipe.shared[families.len()].clone();
                let template = self.templates[*template].clone();
                families.push(Family { template, classes: vec![], shared });
            }
            let name = self.kernels[*kernel].name.clone();
            let class = Class { name, parts: *parts, blocks: *blocks, bounds: bounds.clone() };
            families.last_mut().expect("one was added").classes.push(class);
            origins.push((&self.facts[*kernel].origin, *parts));
        }
        let bundle = Bundle { name, families };
        let origins = origins.iter().map(|(origin, parts)| match parts {
            1 => (*origin).to_string(),
            parts => format!("{origin}, {parts} times"),
        });
        let number = self.facts.len();
        let facts = KernelFacts {
            name: bundle.name.clone(),
            threads: bundle.threads(),
            shared: bundle.static_shared(),
            dynamic_shared: 0,
            origin: origins.collect::<Vec<_>>().join("; "),
        };
        self.facts.push(facts);
        self.bundles.push(bundle);
        self.known.insert(recipe, number);
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
            _ => None,
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

    /// Updates of variables with these numbers of elements, each by an input.
    fn updates(elements: &[usize]) -> String {
        let numbered = || elements.iter().enumerate();
        let list = |one: &dyn Fn((usize, &usize)) -> String, between: &str| {
            numbered().map(one).collect::<Vec<_>>().join(between)
        };
        let inputs = list(&|(n, of)| format!("%x{n}: f32[{of}], state %s{n}: f32[{of}]"), ", ");
        let results = list(&|(n, of)| format!("state s{n}: f32[{of}]"), ", ");
        let body = list(&|(n, of)| format!("%{n}: f32[{of}] = sub %s{n}, %x{n}"), "\n");
        let returned = list(&|(n, _)| format!("%{n}"), ", ");
        format!("func @f({inputs}) -> ({results}) {{ {body} return {returned} }}")
    }

    /// Kernels of many blocks that differ in a bound are one body. A block finds its part.
    #[test]
    fn kernels_of_one_template_share_a_launch_and_a_body() {
        let lowered = lowered(&updates(&[1 << 20, 1 << 21, 1 << 20, 3 << 20]));
        let commands = lowered.resolved.kernels();
        let [Command::Launch(launch)] = commands[..] else { panic!("{commands:?}") };
        assert!(launch.grid[0] > super::BLOCKS, "{launch:?}");
        assert_eq!(launch.arguments.len(), 12);
        let (ptx, facts) = (&lowered.ptx, &lowered.kernels[launch.kernel]);
        assert_eq!(ptx.matches(".entry").count(), 1, "{ptx}");
        assert!(ptx.contains(".param .align 8 .b8 addresses[96]"), "{ptx}");
        assert_eq!(ptx.matches("ld.param.u64").count(), 3, "{ptx}");
        // Three classes, one of which has two parts.
        assert_eq!(ptx.matches("bra $F0;").count(), 3, "{ptx}");
        assert_eq!(ptx.matches("div.u32").count(), 1, "{ptx}");
        assert!(facts.origin.contains(", 2 times"), "{facts:?}");
    }

    #[test]
    fn a_launch_of_one_kernel_is_that_kernel() {
        let (names, ptx) = launches(&updates(&[1 << 20]));
        assert_eq!(names.len(), 1);
        assert!(names[0].starts_with("nest_"), "{names:?}");
        assert!(!ptx.contains("addresses"), "{ptx}");
    }

    /// More kernels than the parameters of a launch hold are several launches.
    #[test]
    fn addresses_of_a_launch_are_bounded() {
        let lowered = lowered(&updates(&[1 << 16; 200]));
        let arguments: Vec<usize> = lowered
            .resolved
            .kernels()
            .into_iter()
            .map(|command| command.places().count())
            .collect();
        assert_eq!(arguments, [170 * 3, 30 * 3]);
    }

    /// The second variable is updated by what a product of the first one's new value gives.
    #[test]
    fn a_kernel_does_not_join_one_that_it_depends_on() {
        let (names, _) = launches(
            "func @f(state %a: f32[512,512], state %b: f32[512,512], %x: f32[512,512]) -> (
                state a: f32[512,512], state b: f32[512,512]) {
                %0: f32[512,512] = sub %a, %x
                %1: f32[512,512] = dot_general %0, %x {contract=[[1],[0]]}
                %2: f32[512,512] = sub %b, %1
                return %0, %2
            }",
        );
        assert!(names.len() >= 2, "{names:?}");
        assert!(names.iter().all(|name| !name.starts_with("bundle")), "{names:?}");
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
