//! Perfetto's format: packets of `perfetto_trace.proto`, with the fields that are written here.

use super::{Timeline, What};
use prost::Message;

/// The file.
#[derive(Clone, PartialEq, Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<Packet>,
}

#[derive(Clone, PartialEq, Message)]
struct Packet {
    /// Nanoseconds.
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, tag = "10")]
    trusted_packet_sequence_id: u32,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    #[prost(int32, tag = "9")]
    r#type: i32,
    #[prost(uint64, tag = "11")]
    track_uuid: u64,
    #[prost(string, repeated, tag = "22")]
    categories: Vec<String>,
    #[prost(string, optional, tag = "23")]
    name: Option<String>,
    #[prost(int64, optional, tag = "30")]
    counter_value: Option<i64>,
}

/// Types of events.
const BEGIN: i32 = 1;
const END: i32 = 2;
const COUNTER: i32 = 4;

#[derive(Clone, PartialEq, Message)]
struct TrackDescriptor {
    #[prost(uint64, tag = "1")]
    uuid: u64,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(message, optional, tag = "3")]
    process: Option<Process>,
    #[prost(message, optional, tag = "4")]
    thread: Option<Thread>,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    counter: Option<Counter>,
}

#[derive(Clone, PartialEq, Message)]
struct Process {
    #[prost(int32, tag = "1")]
    pid: i32,
    #[prost(string, tag = "6")]
    process_name: String,
}

#[derive(Clone, PartialEq, Message)]
struct Thread {
    #[prost(int32, tag = "1")]
    pid: i32,
    #[prost(int32, tag = "2")]
    tid: i32,
    #[prost(string, tag = "5")]
    thread_name: String,
}

#[derive(Clone, PartialEq, Message)]
struct Counter {
    /// Bytes.
    #[prost(int32, tag = "3")]
    unit: i32,
}

const BYTES: i32 = 3;
/// The process of all tracks. Its track, and that of the counter; those of threads come after them.
const PROCESS: i32 = 1;
const OF_PROCESS: u64 = 1;
const OF_MEMORY: u64 = 2;

fn of_thread(thread: u64) -> u64 {
    OF_MEMORY + thread
}

/// The file of a timeline.
pub(super) fn encoded(timeline: &Timeline) -> Vec<u8> {
    let track = |descriptor: TrackDescriptor| Packet {
        trusted_packet_sequence_id: 1,
        track_descriptor: Some(descriptor),
        ..Packet::default()
    };
    let process = Process { pid: PROCESS, process_name: "graphrun".into() };
    let mut packet = vec![
        track(TrackDescriptor {
            uuid: OF_PROCESS,
            process: Some(process),
            ..TrackDescriptor::default()
        }),
        track(TrackDescriptor {
            uuid: OF_MEMORY,
            name: Some("resident memory".into()),
            parent_uuid: Some(OF_PROCESS),
            counter: Some(Counter { unit: BYTES }),
            ..TrackDescriptor::default()
        }),
    ];
    packet.extend(timeline.threads.iter().map(|(number, name)| {
        // There are fewer threads than 2^31.
        let thread = Thread { pid: PROCESS, tid: *number as i32, thread_name: name.clone() };
        track(TrackDescriptor {
            uuid: of_thread(*number),
            parent_uuid: Some(OF_PROCESS),
            thread: Some(thread),
            ..TrackDescriptor::default()
        })
    }));
    packet.extend(timeline.events.iter().map(|event| {
        let track = of_thread(event.thread);
        let track_event = match &event.what {
            What::Begin(kind, name) => TrackEvent {
                r#type: BEGIN,
                track_uuid: track,
                categories: vec![(*kind).into()],
                name: Some(name.to_string()),
                counter_value: None,
            },
            What::End => TrackEvent { r#type: END, track_uuid: track, ..TrackEvent::default() },
            What::Memory(bytes) => TrackEvent {
                r#type: COUNTER,
                track_uuid: OF_MEMORY,
                counter_value: i64::try_from(*bytes).ok(),
                ..TrackEvent::default()
            },
        };
        Packet {
            timestamp: Some(event.time),
            trusted_packet_sequence_id: 1,
            track_event: Some(track_event),
            track_descriptor: None,
        }
    }));
    Trace { packet }.encode_to_vec()
}

/// The spans of a file, as texts.
#[cfg(test)]
pub(super) fn spans(bytes: &[u8]) -> Vec<String> {
    let trace = Trace::decode(bytes).expect("it was encoded above");
    let events = trace.packet.into_iter().filter_map(|packet| packet.track_event);
    let text = |event: TrackEvent| match event.r#type {
        BEGIN => Some(format!("begin {}", event.name.expect("a span has a name"))),
        END => Some("end".to_owned()),
        _ => None,
    };
    events.filter_map(text).collect()
}
