//! Order and failures of copies, on the fake driver.

#![allow(clippy::unwrap_used)] // It is a test.

use super::super::allocation::Memory;
use super::super::fake::{Fake, bytes_at};
use super::*;

#[test]
fn a_buffer_is_not_filled_again_before_it_was_copied() {
    let fake = Fake::new();
    let device = fake.device();
    let memory = device.allocate(1024, "the state").unwrap();
    let mut upload = Upload::new(&device, 64).unwrap();
    assert_eq!(upload.bytes(), 64);
    // The fake's stream does nothing until the host waits: without the events, the third
    // filling would overwrite the first.
    for step in 0..6u8 {
        let mut filling = upload.begin().unwrap();
        filling.bytes().fill(step + 1);
        let part = |n: u64| Part {
            offset: n * 32,
            address: memory.address().offset(step as u64 * 64 + n * 32),
            bytes: 32,
        };
        filling.send(&[part(0), part(1)]).unwrap();
    }
    let mut back = vec![0; 6 * 64];
    device.read(memory.address(), &mut back).unwrap();
    for (n, byte) in back.iter().enumerate() {
        assert_eq!(*byte as usize, n / 64 + 1, "byte {n}");
    }
    // The first two fillings do not wait; each later one waits once.
    assert_eq!(fake.count("cuEventSynchronize"), 4);
    drop((upload, memory, device));
    fake.nothing_left();
}

/// A device with 16 bytes that each round sets, and a download that copies 4 of them.
fn downloading() -> (Fake, Device, Memory, Download) {
    let fake = Fake::new();
    let device = fake.device();
    let memory = device.allocate(16, "the state").unwrap();
    let download = Download::new(&device, 8).unwrap();
    (fake, device, memory, download)
}

#[test]
fn outputs_are_those_of_their_request_whenever_they_are_asked_for() {
    let (fake, device, memory, mut download) = downloading();
    let part = [Part { offset: 4, address: memory.address(), bytes: 4 }];
    let mut kept = Vec::new();
    for byte in 1..8 {
        device.fill(memory.address(), byte, 16).unwrap();
        kept.push((byte, download.request(&part).unwrap()));
        if byte % 3 == 0 {
            kept.swap_remove(0);
        }
    }
    // The first and the last outlive the [`Download`].
    drop(download);
    kept.rotate_left(1);
    for (byte, outputs) in &kept {
        assert_eq!(outputs.wait().unwrap()[4..], [*byte; 4]);
        assert_eq!(outputs.wait().unwrap()[..5], [0, 0, 0, 0, *byte], "asked again");
    }
    assert!(kept.len() >= 4);
    drop((kept, memory, device));
    fake.nothing_left();
}

#[test]
fn outputs_that_are_dropped_are_never_waited_for() {
    let (fake, device, memory, mut download) = downloading();
    let part = [Part { offset: 0, address: memory.address(), bytes: 8 }];
    for byte in 0..20 {
        device.fill(memory.address(), byte, 16).unwrap();
        drop(download.request(&part).unwrap());
    }
    assert_eq!((fake.count("cuEventSynchronize"), fake.count("cuStreamSynchronize")), (0, 0));
    // Kept outputs are waited for at the second later request, and not before.
    let kept = download.request(&part).unwrap();
    drop(download.request(&part).unwrap());
    assert_eq!(fake.count("cuEventSynchronize"), 0);
    device.fill(memory.address(), 99, 16).unwrap();
    drop(download.request(&part).unwrap());
    assert_eq!(fake.count("cuEventSynchronize"), 1);
    assert_eq!(kept.wait().unwrap(), [19; 8]);
    assert_eq!(fake.count("cuEventSynchronize"), 1);
    drop((kept, download, memory, device));
    fake.nothing_left();
}

#[test]
fn outputs_that_do_not_come_say_so_each_time() {
    let (fake, device, memory, mut download) = downloading();
    let part = [Part { offset: 0, address: memory.address(), bytes: 8 }];
    let outputs = download.request(&part).unwrap();
    fake.fail("cuEventSynchronize", 700);
    for _ in 0..2 {
        assert_eq!(outputs.wait().unwrap_err().code(), Some(700));
    }
    // A copy that is refused leaves no outputs behind.
    let bad = [Part { offset: 4, address: memory.address(), bytes: 8 }];
    assert!(download.request(&bad).err().unwrap().to_string().contains("are not in a buffer"));
    download.request(&part).unwrap().wait().unwrap();
    drop((outputs, download, memory, device));
    fake.nothing_left();
}

#[test]
fn a_copy_that_fails_does_not_free_the_buffer_early() {
    let fake = Fake::new();
    let device = fake.device();
    let memory = device.allocate(64, "the state").unwrap();
    let mut upload = Upload::new(&device, 64).unwrap();
    let part = |offset| Part { offset, address: memory.address().offset(offset), bytes: 8 };
    let mut filling = upload.begin().unwrap();
    filling.bytes().fill(1);
    // The second part is not taken.
    fake.fail_after("cuMemcpyDtoDAsync_v2", 1, 999);
    assert_eq!(filling.send(&[part(0), part(8)]).unwrap_err().code(), Some(999));
    let mut filling = upload.begin().unwrap();
    filling.bytes().fill(2);
    // Without the event, nothing is taken, and the next use of the buffer waits for the stream.
    fake.fail("cuEventRecord", 999);
    assert!(filling.send(&[part(16)]).is_err());
    assert_eq!(fake.count("cuStreamSynchronize"), 0);
    for n in [3, 4] {
        let mut filling = upload.begin().unwrap();
        filling.bytes().fill(n);
        filling.send(&[part(16 + u64::from(n))]).unwrap();
    }
    assert_eq!(fake.count("cuStreamSynchronize"), 1);
    // The copy itself is refused, and so is an event that would order the streams.
    for call in ["cuMemcpyHtoDAsync_v2", "cuStreamWaitEvent"] {
        fake.fail(call, 999);
        assert!(upload.begin().unwrap().send(&[part(0)]).is_err(), "{call}");
    }
    let mut back = [0; 29];
    device.read(memory.address(), &mut back).unwrap();
    assert_eq!((back[0], back[19], back[20], back[27], back[28]), (1, 3, 4, 4, 0xCD));
    for bad in [Part { offset: 60, ..part(0) }, Part { bytes: u64::MAX, ..part(8) }] {
        let error = upload.begin().unwrap().send(&[bad]).unwrap_err();
        assert!(error.to_string().contains("are not in a buffer"), "{error}");
    }
    drop((upload, memory, device));
    fake.nothing_left();
}

/// Steps that copy 8 bytes from an input to an output, and the sums of what their outputs are
/// beside what they should be. Outputs are read a step later.
fn steps(fake: &Fake) -> u32 {
    let device = fake.device();
    let memory = device.allocate(512, "inputs and outputs").unwrap();
    let (input, output) = (memory.address(), memory.address().offset(256));
    let (mut upload, mut download) =
        (Upload::new(&device, 8).unwrap(), Download::new(&device, 8).unwrap());
    let part = |address| [Part { offset: 0, address, bytes: 8 }];
    let (mut wrong, mut before) = (0, None);
    for step in 1..12u8 {
        let mut filling = upload.begin().unwrap();
        filling.bytes().fill(step);
        filling.send(&part(input)).unwrap();
        device.copy(input, output, 8).unwrap();
        let now = (step, download.request(&part(output)).unwrap());
        if let Some((step, outputs)) = before.replace(now) {
            let outputs: Received = outputs;
            wrong += u32::from(outputs.wait().unwrap() != [step; 8]);
        }
    }
    drop((before, upload, download, memory, device));
    fake.nothing_left();
    wrong
}

/// Each of the four orders between streams matters: without it, some interleaving gives the
/// outputs of another step.
#[test]
fn a_missing_event_is_found() {
    for seed in 0..40 {
        let fake = Fake::new();
        fake.interleave(seed);
        assert_eq!(steps(&fake), 0, "seed {seed}");
    }
    // From the second step on, a step orders streams four times.
    for order in 0..4 {
        let wrong = (0..40).map(|seed| {
            let fake = Fake::new();
            fake.interleave(seed);
            fake.skip_waits(move |number| number >= 2 && (number - 2) % 4 == order);
            steps(&fake)
        });
        assert!(wrong.sum::<u32>() > 0, "order {order}");
    }
}

/// Uploads of a step do not wait for the kernels of the step before: the copy is done although the
/// device's stream has done nothing since.
#[test]
fn copies_do_not_wait_for_kernels() {
    let fake = Fake::new();
    let device = fake.device();
    let memory = device.allocate(512, "inputs").unwrap();
    let mut upload = Upload::new(&device, 8).unwrap();
    let part = [Part { offset: 0, address: memory.address(), bytes: 8 }];
    for step in 1..5u8 {
        let mut filling = upload.begin().unwrap();
        filling.bytes().fill(step);
        filling.send(&part).unwrap();
        // A long kernel.
        device.fill(memory.address().offset(256), step, 8).unwrap();
    }
    // Before the fourth filling, the host waited for the second upload, which waited for the
    // device to take the first input, and not for the kernel after that.
    assert_eq!(bytes_at(memory.address().0, 1), [1]);
    assert_eq!(bytes_at(memory.address().0 + 256, 1), [0xCD]);
    drop((upload, memory, device));
    fake.nothing_left();
}

#[test]
fn buffers_of_no_bytes_are_fine() {
    let fake = Fake::new();
    let device = fake.device();
    let (mut upload, mut download) =
        (Upload::new(&device, 0).unwrap(), Download::new(&device, 0).unwrap());
    let part = Part { offset: 0, address: Address(0), bytes: 0 };
    let mut filling = upload.begin().unwrap();
    assert!(filling.bytes().is_empty());
    filling.send(&[part]).unwrap();
    assert!(download.request(&[part]).unwrap().wait().unwrap().is_empty());
    assert_eq!(fake.count("cuMemHostAlloc"), 0);
    drop((upload, download, device));
    fake.nothing_left();
}
