//! Chrome's format: an object with a list of events (Google, *Trace Event Format*). Times are in
//! microseconds.

use super::{Event, Timeline, What};
use serde_json::{Value, json};

/// The process of all events. Viewers want a number.
const PROCESS: u64 = 1;

/// The file of a timeline.
pub(super) fn encoded(timeline: &Timeline) -> Vec<u8> {
    let process = json!({
        "ph": "M", "pid": PROCESS, "name": "process_name", "args": { "name": "graphrun" },
    });
    let threads = timeline.threads.iter().map(|(number, name)| {
        json!({
            "ph": "M", "pid": PROCESS, "tid": number, "name": "thread_name",
            "args": { "name": name },
        })
    });
    let events: Vec<Value> =
        [process].into_iter().chain(threads).chain(timeline.events.iter().map(event)).collect();
    json!({ "traceEvents": events, "displayTimeUnit": "ms" }).to_string().into_bytes()
}

fn event(event: &Event) -> Value {
    let (time, thread) = (event.time as f64 / 1e3, event.thread);
    match &event.what {
        What::Begin(kind, name) => json!({
            "ph": "B", "pid": PROCESS, "tid": thread, "ts": time, "cat": kind, "name": &**name,
        }),
        What::End => json!({ "ph": "E", "pid": PROCESS, "tid": thread, "ts": time }),
        What::Memory(bytes) => json!({
            "ph": "C", "pid": PROCESS, "ts": time, "name": "resident memory",
            "args": { "bytes": bytes },
        }),
    }
}
