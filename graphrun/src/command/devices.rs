//! `graphrun devices`: what this machine can run programs on.

use crate::cli::DevicesArgs;
use crate::console::{Console, Outcome, Status};
use serde_json::{Value, json};
use wengert::Device;

/// Lists the devices; the default is marked.
pub fn run(args: &DevicesArgs, console: &mut Console<'_>) -> Outcome {
    let best = Device::best()?;
    if args.json {
        let list: Vec<Value> = Device::all()
            .into_iter()
            .map(|d| json!({ "name": d.to_string(), "description": d.describe(), "default": d == best }))
            .collect();
        console.line(Value::Array(list))?;
        return Ok(Status::Good);
    }
    for device in Device::all() {
        let default = if device == best { " (default)" } else { "" };
        console.line(format_args!("{:<12} {}{default}", device.to_string(), device.describe()))?;
    }
    Ok(Status::Good)
}
