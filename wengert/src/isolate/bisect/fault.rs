//! The part of a computation at fault, and its text.

use crate::isolate::Origin;
use crate::isolate::diff::Change;
use crate::isolate::walk::Frame;
use std::fmt;
use wengert_core::{Scalar, TensorType};

/// An element that differs.
#[derive(Clone, PartialEq, Debug)]
pub struct Deviation {
    /// The output or value that holds it.
    pub value: String,
    /// Its type.
    pub ty: TensorType,
    /// Its index.
    pub index: Vec<usize>,
    /// The wrong element.
    pub found: Scalar,
    /// The interpreter's.
    pub expected: Scalar,
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Deviation { value, ty, index, found, expected } = self;
        match index.is_empty() {
            true => write!(f, "{value} ({ty}) is {found}, not {expected}"),
            false => write!(f, "element {index:?} of {value} ({ty}) is {found}, not {expected}"),
        }
    }
}

/// The part of a computation at fault.
#[derive(Clone, PartialEq, Debug)]
pub enum Fault {
    /// A pass.
    Pass(PassFault),
    /// A kernel, named by the equation that it computes.
    Kernel(KernelFault),
    /// A derivative rule, named by the equation to which it is applied.
    Rule(RuleFault),
    /// The rounding of an equation under a precision policy.
    Precision(PrecisionFault),
}

/// A pass that changes the result.
#[derive(Clone, PartialEq, Debug)]
pub struct PassFault {
    /// The pass.
    pub pass: String,
    /// The number of its change that makes the result wrong, counted from 1 over all runs of the
    /// pass. `None` if the result is right with every limited fuel that was tried.
    pub change: Option<u64>,
    /// The result.
    pub deviation: Deviation,
    /// What that change does to the function.
    pub changes: Vec<Change>,
}

/// The first equation whose value differs on a device.
#[derive(Clone, PartialEq, Debug)]
pub struct KernelFault {
    /// The equation.
    pub origin: Origin,
    /// The constructs around it, outermost first.
    pub frames: Vec<Frame>,
    /// Its value.
    pub deviation: Deviation,
    /// Whether the equation is wrong when it is compiled alone.
    pub alone: bool,
    /// If not, the equations in front of it with which it must be compiled.
    pub together: Vec<Origin>,
}

/// An equation whose derivative is wrong.
#[derive(Clone, PartialEq, Debug)]
pub struct RuleFault {
    /// The equation.
    pub origin: Origin,
    /// The constructs around it, outermost first.
    pub frames: Vec<Frame>,
    /// How the derivative is wrong.
    pub message: String,
    /// Whether the derivative of the equation alone is wrong. If not, it is the last of the
    /// equations that are needed.
    pub alone: bool,
}

/// The first equation whose value a policy changes.
#[derive(Clone, PartialEq, Debug)]
pub struct PrecisionFault {
    /// The equation.
    pub origin: Origin,
    /// Its value under the policy and without.
    pub deviation: Deviation,
}

impl Fault {
    /// The equation at fault. For a pass, the first that it removes, adds or changes.
    pub fn origin(&self) -> Option<&Origin> {
        match self {
            Fault::Pass(fault) => {
                let first = |of: fn(&Change) -> Option<&Origin>| fault.changes.iter().find_map(of);
                let removed = first(|change| match change {
                    Change::Removed(item) => item.origin.as_ref(),
                    _ => None,
                });
                let added = first(|change| match change {
                    Change::Added(item) => item.origin.as_ref(),
                    _ => None,
                });
                let changed = first(|change| match change {
                    Change::Changed { from, .. } => from.origin.as_ref(),
                    _ => None,
                });
                removed.or(added).or(changed)
            }
            Fault::Kernel(fault) => Some(&fault.origin),
            Fault::Rule(fault) => Some(&fault.origin),
            Fault::Precision(fault) => Some(&fault.origin),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let frames = |f: &mut fmt::Formatter<'_>, frames: &[Frame]| {
            frames.iter().try_for_each(|frame| write!(f, "\n  in {frame}"))
        };
        match self {
            Fault::Pass(fault) => {
                let pass = &fault.pass;
                match fault.change {
                    Some(change) => write!(f, "change {change} of pass `{pass}` is at fault")?,
                    None => write!(f, "pass `{pass}` is at fault")?,
                }
                write!(f, ": {}", fault.deviation)?;
                fault.changes.iter().try_for_each(|change| write!(f, "\n  {change}"))?;
                match fault.change {
                    Some(change) => write!(
                        f,
                        "\n  right with `--fuel {pass}={}`, wrong with `--fuel {pass}={change}`",
                        change - 1
                    ),
                    None => Ok(()),
                }
            }
            Fault::Kernel(fault) => {
                write!(
                    f,
                    "no pass is at fault; the first wrong value is that of {}",
                    fault.origin
                )?;
                write!(f, ": {}", fault.deviation)?;
                frames(f, &fault.frames)?;
                match &fault.together[..] {
                    _ if fault.alone => f.write_str("\n  it is wrong when it is compiled alone"),
                    [] => f.write_str("\n  it is right when it is compiled alone"),
                    together => {
                        f.write_str("\n  it is right alone, and wrong when it is compiled with")?;
                        together.iter().try_for_each(|origin| write!(f, "\n    {origin}"))
                    }
                }
            }
            Fault::Rule(fault) => {
                write!(f, "the derivative of {} is wrong: {}", fault.origin, fault.message)?;
                frames(f, &fault.frames)?;
                match fault.alone {
                    true => Ok(()),
                    false => f.write_str("\n  it is right when the equation is alone"),
                }
            }
            Fault::Precision(fault) => {
                let (origin, deviation) = (&fault.origin, &fault.deviation);
                write!(f, "the policy first changes the value of {origin}: {deviation}")
            }
        }
    }
}
