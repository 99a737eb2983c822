//! `graphrun devices`: the devices of this machine.

use crate::cli::DevicesArgs;
use crate::console::{Console, Outcome, Status};
use serde_json::{Value, json};
use wengert::{Device, Survey};

/// Lists the devices and marks the default. For absent ones it prints the reason.
pub fn run(args: &DevicesArgs, console: &mut Console<'_>) -> Outcome {
    let best = Device::best();
    let is_best = |found: &Survey| found.device == Ok(best);
    let survey = Device::survey();
    if args.json {
        let list = survey.iter().map(|found| {
            let missing = found.device.as_ref().err().map(ToString::to_string);
            json!({
                "name": found.name,
                "description": found.description,
                "available": missing.is_none(),
                "missing": missing,
                "default": is_best(found),
            })
        });
        console.line(Value::Array(list.collect()))?;
        return Ok(Status::Good);
    }
    for found in &survey {
        let default = if is_best(found) { " (default)" } else { "" };
        console.line(format_args!("{:<12} {}{default}", found.name, found.description))?;
        if let Err(missing) = &found.device {
            console.line(format_args!("{:<12} not available: {}", "", missing.message))?;
            if let Some(help) = &missing.help {
                console.line(format_args!("{:<12} help: {help}", ""))?;
            }
        }
    }
    Ok(Status::Good)
}
