//! Memory limits, by control groups and by limits of the process.
//!
//! A function that does not fit is refused before it runs, with status 3. The error states the
//! needed memory, the available memory, the limit, and a sufficient memory budget if there is one.
//! With that budget the function runs.

use super::{Ran, Workplace, count, tally};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use wengert::{Literal, data};

/// Layers of a deep network. The backward part reads all activations, 8 MiB each. Each activation
/// is one product, so it can be recomputed instead of being kept.
const LAYERS: usize = 24;

fn network() -> String {
    let ty = "f32[131072,16]";
    let mut text = format!("func @f(%x: {ty}, %w: f32[16,16]) -> (y: f32[16]) {{\n");
    for layer in 0..LAYERS {
        let from = if layer == 0 { "x".to_owned() } else { format!("h{}", layer - 1) };
        text += &format!("  %p{layer}: {ty} = dot_general %{from}, %w {{contract=[[1],[0]]}}\n");
        text += &format!("  %h{layer}: {ty} = tanh %p{layer}\n");
    }
    let mut last = format!("h{}", LAYERS - 1);
    for layer in (0..LAYERS - 1).rev() {
        text += &format!("  %q{layer}: {ty} = dot_general %{last}, %w {{contract=[[1],[0]]}}\n");
        text += &format!("  %r{layer}: {ty} = mul %q{layer}, %h{layer}\n");
        last = format!("r{layer}");
    }
    text + &format!("  %y: f32[16] = reduce_sum %{last} {{axes=[0]}}\n  return %y\n}}\n")
}

/// At least 2 GB, none of which can be recomputed.
const LARGE: [&str; 6] = ["run", "f.ir@double", "--input", "x=zeros", "--bind", "N=250000000"];

impl Workplace {
    /// A workplace with the network and its inputs.
    fn with_network() -> Workplace {
        let place = Workplace::new();
        fs::write(place.path("net.ir"), network()).unwrap();
        let w: Vec<f32> = (0..16 * 16).map(|i| ((i * 37 % 101) as f32 - 50.0) / 400.0).collect();
        data::write_one(place.path("w.npy"), "w", &Literal::from_vec(&[16, 16], w).unwrap())
            .unwrap();
        place
    }
}

const NETWORK: [&str; 6] = ["run", "net.ir", "--input", "x=random:1", "--input", "w=@w.npy"];

/// A control group with a limit of so many MiB. Dropping it removes the group.
struct Group {
    folder: PathBuf,
    procs: &'static str,
}

impl Group {
    /// A group of version 1 or 2, if this machine has one and this user may create it.
    fn new(mebibytes: u64) -> Option<Group> {
        let bytes = (mebibytes << 20).to_string();
        let name = format!("wengert-test-{}-{mebibytes}", std::process::id());
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = |wanted: &str| {
            groups.lines().find_map(|line| {
                let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
                controllers
                    .split(',')
                    .any(|c| c == wanted)
                    .then(|| path.trim_start_matches('/').to_owned())
            })
        };
        let made = |folder: PathBuf, limit: &str| {
            fs::create_dir(&folder).ok()?;
            let group = Group { folder, procs: "cgroup.procs" };
            fs::write(group.folder.join(limit), &bytes).ok()?;
            // With swap the limit would have no effect.
            let _ = fs::write(group.folder.join("memory.memsw.limit_in_bytes"), &bytes);
            let _ = fs::write(group.folder.join("memory.swap.max"), "0");
            Some(group)
        };
        let first =
            own("memory").map(|path| Path::new("/sys/fs/cgroup/memory").join(path).join(&name));
        let second =
            ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(|mount| Path::new(mount).join(&name));
        let first = first.and_then(|folder| made(folder, "memory.limit_in_bytes"));
        first.or_else(|| second.into_iter().find_map(|folder| made(folder, "memory.max")))
    }

    fn run(&self, place: &Workplace, arguments: &[&str]) -> Ran {
        let procs = self.folder.join(self.procs);
        place.prepared(&format!("echo $$ > {}", procs.display()), arguments)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel may still be releasing the process that has just ended.
        for _ in 0..100 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// Settings that fix the use of address space apart from tensors. The C library reserves 64 MiB for
/// another heap whenever threads contend, so the free space would vary between runs.
const FIXED: &str = "export WENGERT_THREADS=2 MALLOC_ARENA_MAX=1";

/// The budget that an error names.
fn budget(ran: &Ran) -> String {
    let at =
        ran.err.find("--memory-budget ").unwrap_or_else(|| panic!("no budget is named: {ran:?}"));
    let rest = &ran.err[at + "--memory-budget ".len()..];
    rest.chars().take_while(char::is_ascii_alphanumeric).collect()
}

/// The address space in MiB of the program and of its threads' stacks and heaps before it runs a
/// function. It follows from the error under a limit that is far too low.
fn address_space() -> u64 {
    static FOUND: OnceLock<u64> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let place = Workplace::new();
        let text = "func @big() -> (y: f32[250000000]) {\n  \
                    %0: f32[] = constant {value=f32[] 1.0}\n  \
                    %1: f32[250000000] = broadcast_in_dim %0 {dims=[], shape=[250000000]}\n  \
                    return %1\n}\n";
        fs::write(place.path("big.ir"), text).unwrap();
        let ran = place.prepared(&format!("ulimit -v 1048576; {FIXED}"), &["run", "big.ir"]);
        ran.failed(
            3,
            &["MiB of the 1.00 GiB of address space that the process may have (RLIMIT_AS) are \
               free"],
        );
        let free =
            ran.err.split(" MiB of the 1.00 GiB").next().unwrap().rsplit(' ').next().unwrap();
        1024 - free.parse::<f64>().unwrap() as u64
    })
}

/// Runs the command in a place under a memory limit.
type Limited = Box<dyn Fn(&Workplace, &[&str]) -> Ran>;

/// The limits for a run: a real control group, if one can be created, and a limit of the process.
fn limits(mebibytes: u64) -> Vec<Limited> {
    let mut limits: Vec<Limited> = Vec::new();
    if let Some(group) = Group::new(mebibytes) {
        limits.push(Box::new(move |place, arguments| group.run(place, arguments)));
    }
    let prepare = format!("ulimit -v {}; {FIXED}", (mebibytes + address_space()) << 10);
    limits.push(Box::new(move |place, arguments| place.prepared(&prepare, arguments)));
    limits
}

#[test]
fn what_has_no_room_is_refused_before_it_runs() {
    let place = Workplace::new();
    place.graphrun(&["compile", "f.ir@double", "--bind", "N=250000000", "-o", "large.plan"]).good();
    let file = fs::read_to_string(place.path("f.ir")).unwrap();
    fs::write(place.path("g.ir"), file).unwrap();
    place.graphrun(&["jvp", "f.ir@double", "--wrt", "x", "-o", "large.graph"]).good();
    let plan = ["run", "large.plan", "--input", "x=zeros"];
    let graph = [
        "run",
        "large.graph",
        "--input",
        "x=zeros",
        "--input",
        "t_x=zeros",
        "--bind",
        "N=250000000",
    ];
    for run in limits(400) {
        let says = [
            "there is no memory to run @double",
            "it needs",
            "are free",
            "no memory budget would do",
        ];
        run(&place, &LARGE).failed(3, &says);
        run(&place, &[&LARGE[..], &["--device", "emulator"]].concat()).failed(3, &says);
        run(&place, &[&LARGE[..], &["--device", "interpreter"]].concat())
            .failed(3, &["there is no memory to run @double", "it needs", "are free"]);
        run(&place, &graph)
            .failed(3, &["there is no memory to run @double_jvp", "no memory budget would do"]);
        let said = ["no plan of @double fits", "are free", "--memory-budget", "--frontier"];
        run(&place, &plan).failed(3, &said);
        run(&place, &[&plan[..], &["--device", "interpreter"]].concat()).failed(3, &said);
        // Inputs that are too large to create, and inputs that are read from files.
        run(&place, &["check", "f.ir@double", "--bind", "N=250000000"])
            .failed(3, &["there is no memory for a tensor f32[250000000]"]);
    }
}

#[test]
fn the_budget_that_is_named_does() {
    let place = Workplace::with_network();
    let wanted = place.graphrun(&NETWORK).good();
    for run in limits(160) {
        let refused = run(&place, &NETWORK);
        refused.failed(3, &["there is no memory to run @f", "a memory budget of", "would do"]);
        let budget = budget(&refused);
        let found = run(&place, &[&NETWORK[..], &["--memory-budget", &budget]].concat());
        assert_eq!(found.good(), wanted, "{budget}");
        // A plan in a file runs if it fits. If it does not, the error names a budget.
        place.graphrun(&["compile", "net.ir", "-o", "one.plan"]).good();
        let of_plan = ["run", "one.plan", "--input", "x=random:1", "--input", "w=@w.npy"];
        let refused = run(&place, &of_plan);
        refused.failed(3, &["no plan of @f fits", "--memory-budget"]);
        let budget = self::budget(&refused);
        let compiled = ["compile", "net.ir", "-o", "one.plan", "--memory-budget", &budget];
        place.graphrun(&compiled).good();
        assert_eq!(run(&place, &of_plan).good(), wanted, "{budget}");
    }
}

/// Under any limit a run ends with its result, or with status 3 and a sentence. The process is not
/// killed and does not abort.
#[test]
fn no_limit_kills_or_aborts() {
    let place = Workplace::with_network();
    let rows = ["N=1000", "N=300000", "N=3000000", "N=20000000"];
    let cases = count(6);
    let drawn = |n: usize| {
        let device = ["interpreter", "cpu", "emulator"][n % 3];
        let bind = rows[n / 3 % rows.len()];
        // The emulator is slow, so its cases are small.
        let bind = if device == "emulator" && n.is_multiple_of(2) { rows[0] } else { bind };
        (device, bind, 40 + (n * 211 % cases.max(1)) as u64 * 600 / cases.max(1) as u64)
    };
    let case = |(device, bind, mebibytes): (&str, &str, u64)| {
        let arguments =
            ["run", "f.ir@double", "--input", "x=random:1", "--bind", bind, "--device", device];
        let output = ["--output", "y=y.npy"];
        for run in limits(mebibytes) {
            let ran = run(&place, &[&arguments[..], &output].concat());
            let what = |error: String| format!("{mebibytes} MiB, {device}, {bind}: {error}");
            match ran.status {
                Some(0) if ran.err.is_empty() => {}
                _ => ran.has_failed(3, &["memory"]).map_err(what)?,
            }
        }
        Ok(())
    };
    // The emulator's shadow memory takes more than the words that it describes.
    let noted = [("emulator", rows[3], 600)];
    tally("memory", (0..cases).map(drawn).chain(noted).map(case));
}
