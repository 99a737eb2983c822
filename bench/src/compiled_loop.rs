//! The floor of random chains on a CPU: a loop for each, generated in Rust and compiled by rustc
//! for this machine when the measurement starts.
//!
//! The loops are a separate program, which answers requests by the protocol of
//! [`crate::process`]. It reads the arrays from a folder, and writes a chain's result there for
//! comparison by this process.

use crate::case::{Case, Kind, compare_random_chain, rust_of_random_chain};
use crate::floor::LOOP;
use crate::harness::{Contender, measure};
use crate::parity::Parity;
use crate::process::Process;
use crate::record::{Absent, Record};
use crate::resident::Local;
use crate::suite::Run;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;
use wengert::{DeviceOptions, Diagnostic, Literal, Result};

/// Measures random chains by this library and by compiled loops.
///
/// Errors: the machine is busy, the loops cannot be compiled, or the record cannot be written.
/// Without a rustc they are recorded as absent.
pub fn measure_random_chains(
    run: &Run<'_>,
    cases: &[&Case],
    threads: usize,
    progress: &mut dyn FnMut(&str),
) -> Result<Record> {
    let mut record = run.begin()?;
    let local = Local::new("wengert", run.device, DeviceOptions::default());
    let mut contenders: Vec<Box<dyn Contender>> = vec![Box::new(local)];
    match CompiledLoops::start(cases, threads)? {
        Ok(loops) => contenders.push(Box::new(loops)),
        Err(why) => record.absent.push(Absent { contender: LOOP.into(), why }),
    }
    let (measurements, failed) =
        measure(&mut contenders, cases, &record.settings, &|_, _| true, progress);
    record.measurements = measurements;
    record.failed = failed;
    run.keep(&record)?;
    Ok(record)
}

/// The geometric mean of this library's times relative to the loops', and their number; None if
/// there are no loops.
pub fn multiple_of_loops(record: &Record) -> Option<(f64, usize)> {
    let time = |case: &str, who: &str| {
        let found = record.measurements.iter().find(|m| m.case == case && m.contender == who);
        found.map(|m| m.time.median)
    };
    let loops = record.measurements.iter().filter(|m| m.contender == LOOP);
    let logarithms: Vec<f64> =
        loops.filter_map(|m| Some((time(&m.case, "wengert")? / m.time.median).ln())).collect();
    let count = logarithms.len();
    (count > 0).then(|| ((logarithms.iter().sum::<f64>() / count as f64).exp(), count))
}

/// Compiled loops in a process.
#[derive(Debug)]
pub struct CompiledLoops {
    // Dropped first, so that the process has ended before the folder is removed.
    process: Process,
    folder: TempDir,
}

impl CompiledLoops {
    /// Compiles loops for the random chains among `cases`; `Err(why)` within if there is no
    /// rustc.
    ///
    /// Errors: files cannot be written, or rustc refuses the program.
    pub fn start(
        cases: &[&Case],
        threads: usize,
    ) -> Result<std::result::Result<CompiledLoops, String>> {
        let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        if let Err(e) = Command::new(&compiler).arg("--version").output() {
            return Ok(Err(format!("no rustc: {e}")));
        }
        let folder = tempfile::tempdir()
            .map_err(|e| Diagnostic::new(format!("cannot make a folder for loops: {e}")))?;
        let wrote = |path: &Path, e: std::io::Error| {
            Diagnostic::new(format!("cannot write {}: {e}", path.display()))
        };
        let mut elements = 0;
        for case in cases {
            for (name, literal) in case.make()?.variables {
                let path = folder.path().join(name);
                fs::write(&path, literal.to_bytes()).map_err(|e| wrote(&path, e))?;
                elements = literal.len();
            }
        }
        let source = folder.path().join("loops.rs");
        fs::write(&source, program(cases, elements, threads)).map_err(|e| wrote(&source, e))?;
        let binary = folder.path().join("loops");
        let output = Command::new(compiler)
            .args(["-O", "-C", "target-cpu=native", "--edition", "2021", "-o"])
            .args([&binary, &source])
            .output()
            .map_err(|e| Diagnostic::new(format!("cannot start rustc: {e}")))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Diagnostic::new(format!(
                "rustc refuses the loops of random chains: {said}"
            )));
        }
        let mut command = Command::new(binary);
        command.arg(folder.path());
        Ok(Process::start(command)?.map(|process| CompiledLoops { process, folder }))
    }
}

/// The program with the loops.
fn program(cases: &[&Case], elements: usize, threads: usize) -> String {
    let mut loops = String::new();
    let mut names = String::new();
    for (k, case) in cases.iter().enumerate() {
        let Kind::RandomChain { seed, number, .. } = case.kind else { continue };
        let body = rust_of_random_chain(seed, number);
        let _ = writeln!(
            loops,
            "#[inline(never)]\n#[allow(unused_variables)]\n\
             fn loop_{k}(p: &mut Part) {{\n    \
             let Part {{ x, w, b, r, y }} = p;\n    \
             let four = y.iter_mut().zip(&*x).zip(&*w).zip(&*b).zip(&*r);\n    \
             four.for_each(|((((y, &x), &w), &b), &r)| *y = {{ {body} }});\n}}"
        );
        let _ = writeln!(names, "    ({:?}, loop_{k}),", case.id);
    }
    let mut text =
        FRAME.replace("ELEMENTS", &elements.to_string()).replace("THREADS", &threads.to_string());
    let _ = write!(text, "{loops}\nconst LOOPS: &[(&str, fn(&mut Part))] = &[\n{names}];\n");
    text
}

/// The frame of the loops: threads that own their parts of the arrays, and the requests.
const FRAME: &str = r##"
use std::io::{BufRead, Write};
use std::sync::mpsc::{channel, Receiver, Sender};

struct Part { x: Vec<f32>, w: Vec<f32>, b: Vec<f32>, r: Vec<f32>, y: Vec<f32> }

fn read(folder: &str, name: &str) -> Vec<f32> {
    let bytes = std::fs::read(format!("{folder}/{name}")).unwrap_or_else(|_| vec![0; 4 * ELEMENTS]);
    let value = |c: &[u8]| f32::from_le_bytes(c.try_into().expect("chunks have four bytes"));
    bytes.chunks_exact(4).map(value).collect()
}

fn main() {
    let folder = std::env::args().nth(1).expect("the folder is the first argument");
    let arrays = ["x", "w", "b", "r"].map(|name| read(&folder, name));
    let workers: Vec<(Sender<Option<usize>>, Receiver<Vec<f32>>)> = (0..THREADS).map(|t| {
        let (from, to) = (ELEMENTS * t / THREADS, ELEMENTS * (t + 1) / THREADS);
        let [x, w, b, r] = [0, 1, 2, 3].map(|k: usize| arrays[k][from..to].to_vec());
        let mut part = Part { x, w, b, r, y: vec![0.0; to - from] };
        let ((order, orders), (answer, answers)) = (channel::<Option<usize>>(), channel());
        std::thread::spawn(move || for order in orders {
            match order {
                Some(k) => {
                    LOOPS[k].1(std::hint::black_box(&mut part));
                    answer.send(vec![]).expect("the main thread listens")
                }
                None => answer.send(part.y.clone()).expect("the main thread listens"),
            }
        });
        (order, answers)
    }).collect();
    let all = |order: Option<usize>| -> Vec<f32> {
        workers.iter().for_each(|w| w.0.send(order).expect("a worker ends with the process"));
        workers.iter().flat_map(|w| w.1.recv().expect("a worker ends with the process")).collect()
    };
    println!("{{\"contender\": \"rust loop\", \"device\": \"cpu\", \"libraries\": {{}}}}");
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("requests are text");
        let k = LOOPS.iter().position(|(name, _)| line.contains(&format!("\"{name}\"")));
        let answer = match k {
            None => "{\"error\": \"there is no such loop\"}".to_string(),
            Some(k) if line.contains("\"prepare\"") => {
                all(Some(k));
                let bytes: Vec<u8> = all(None).iter().flat_map(|v| v.to_le_bytes()).collect();
                let result = format!("{folder}/result");
                std::fs::write(result, bytes).expect("the folder can be written");
                "{\"parity\": {\"compared\": 0, \"worst\": 0.0, \"bound\": 0.0}}".to_string()
            }
            Some(k) if line.contains("\"time\"") => {
                let runs = line.split("\"runs\":").nth(1);
                let runs = runs.expect("a request for times has a number of runs");
                let runs: u64 = runs.trim_matches(['}', ' ']).parse().expect("runs are a number");
                let start = std::time::Instant::now();
                (0..runs).for_each(|_| drop(all(Some(k))));
                format!("{{\"seconds\": {:?}}}", start.elapsed().as_secs_f64())
            }
            _ => "{\"released\": true}".to_string(),
        };
        println!("{answer}");
        std::io::stdout().flush().expect("the harness reads the output");
    }
}
"##;

impl Contender for CompiledLoops {
    fn name(&self) -> &str {
        LOOP
    }

    fn device(&self) -> String {
        self.process.device()
    }

    fn prepare(&mut self, case: &Case) -> Result<Parity> {
        let made = case.make()?;
        self.process.prepare(case)?;
        let path = self.folder.path().join("result");
        let bytes = fs::read(&path)
            .map_err(|e| Diagnostic::new(format!("cannot read {}: {e}", path.display())))?;
        let values: Vec<f32> =
            bytes.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect();
        compare_random_chain(case, &Literal::from_vec(&[values.len()], values)?, &made.variables)
    }

    fn time(&mut self, case: &Case, runs: u64) -> Result<f64> {
        self.process.time(case, runs)
    }

    fn release(&mut self, case: &Case) {
        self.process.release(case);
    }
}
