//! Runs of the suite's programs on a device, for a profiler that looks on.

use wengert::core::graph::InputRole;
use wengert::{Device, DeviceOptions, Literal, Program, Result, Session, bind};

/// Runs the program's `step` twice, each kernel launched by itself. Inputs are zeros, as in the
/// samples of a prediction, so that work that depends on data is the same.
///
/// Errors: those of the device.
pub(super) fn run(program: &Program, device: Device) -> Result<()> {
    let options = DeviceOptions { capture: false, ..DeviceOptions::default() };
    let mut session = Session::open_with(device, &options)?;
    session.initialize(program, 1)?;
    let mut step = session.compile(program, "step", bind!())?;
    step.expect_repeats();
    let function = program.get("step")?;
    let mut given = Vec::new();
    for (index, input) in function.inputs.iter().enumerate() {
        if input.role == InputRole::Input {
            let ty = function.input_type(index);
            let extents = ty.extents().expect("programs of the suite have no dimension variables");
            given.push((input.name.as_str(), Literal::zeros(ty.dtype, &extents)));
        }
    }
    for _ in 0..2 {
        step.run(&given)?;
    }
    session.finish()
}
