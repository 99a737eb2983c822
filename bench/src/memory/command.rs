//! `wengert-bench memory`.

use super::{ask, footprint};
use crate::case::{Case, catalogue_of_memory};
use crate::record::{Absent, Failed, Record};
use crate::suite::{Own, Run};
use crate::table::markdown;
use clap::Args;
use std::io::Write;
use std::path::{Path, PathBuf};
use wengert::command::{Outcome, Status};
use wengert::{Device, Diagnostic, Result, atomic};

/// Options of `memory`: the steps to compile and the peers to ask.
#[derive(Debug, Args)]
pub struct Asked {
    /// Small extents
    #[arg(long)]
    small: bool,
    /// Only cases whose name contains one of these texts
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Command that answers requests for another contender, e.g.
    /// "python3 bench/peers/measure.py --serve jax"
    #[arg(long, value_name = "COMMAND")]
    peer: Vec<String>,
    /// Date of the record
    #[arg(long)]
    date: Option<String>,
    /// Writes a record to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Writes all figures to this file, one per line
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Writes a .graph file of each program into this folder, for `graphrun dump FILE --stage plan
    /// --memory`
    #[arg(long, value_name = "FOLDER")]
    save: Option<PathBuf>,
}

impl Asked {
    /// Compiles the steps, requests the peers' figures and prints the table.
    pub(crate) fn run(&self, out: &mut dyn Write, err: &mut dyn Write) -> Outcome {
        let cases = catalogue_of_memory(self.small);
        let named = |case: &&Case| {
            self.only.is_empty() || self.only.iter().any(|text| case.id.contains(text.as_str()))
        };
        let chosen: Vec<&Case> = cases.iter().filter(named).collect();
        if chosen.is_empty() {
            return Err(Diagnostic::new(format!("no case has a name with {:?}", self.only)).into());
        }
        if let Some(folder) = &self.save {
            save(&chosen, folder)?;
        }
        for path in [&self.json, &self.csv].into_iter().flatten() {
            atomic::can_write(path)?;
        }
        // If the progress cannot be printed, the record is still made.
        let record = self.measure(&chosen, &mut |line| drop(writeln!(err, "{line}")))?;
        let records = [record];
        if let Some(path) = &self.csv {
            atomic::write_bytes(path, crate::csv::text(&records)?.as_bytes())?;
        }
        write!(out, "{}", markdown(&records))?;
        Ok(if records[0].failed.is_empty() { Status::Good } else { Status::Failed })
    }

    fn measure(&self, cases: &[&Case], progress: &mut dyn FnMut(&str)) -> Result<Record> {
        let run = Run {
            device: Device::Cpu,
            own: Own::Here,
            small: self.small,
            // Memory does not depend on other processes; the record still notes their CPU use.
            busy: true,
            one_thread: false,
            two_ranks: false,
            spinning: 0,
            rounds: Some(1),
            date: self.date.clone(),
            peers: &self.peer,
            json: self.json.as_deref(),
        };
        let mut record = run.begin()?;
        for case in cases {
            progress(&format!("{}: wengert", case.id));
            match footprint(case) {
                Ok(own) => record.footprints.push(own),
                Err(error) => fail(&mut record, case, "wengert".into(), &error),
            }
            for peer in &self.peer {
                let starter = run.starter(peer)?;
                let absent = |a: &Absent| a.contender == starter.shown();
                if record.absent.iter().any(absent) {
                    continue;
                }
                progress(&format!("{}: {}", case.id, starter.shown()));
                match ask(&starter, case) {
                    Ok(Ok((footprints, libraries))) => {
                        record.footprints.extend(footprints);
                        record.machine.libraries.extend(libraries);
                    }
                    Ok(Err(why)) => record.absent.push(Absent { contender: starter.shown(), why }),
                    Err(error) => fail(&mut record, case, starter.shown(), &error),
                }
            }
            run.keep(&record)?;
        }
        Ok(record)
    }
}

fn fail(record: &mut Record, case: &Case, contender: String, error: &Diagnostic) {
    record.failed.push(Failed { case: case.id.clone(), contender, why: error.to_string() });
}

/// Writes the programs of cases.
fn save(cases: &[&Case], folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)
        .map_err(|e| Diagnostic::new(format!("cannot make {}: {e}", folder.display())))?;
    for case in cases {
        case.program()?.save(folder.join(format!("{}.graph", case.file_name())))?;
    }
    Ok(())
}
