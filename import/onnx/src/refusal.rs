//! Why a model, or a node of it, is not imported.

use std::fmt;
use wengert_core::Diagnostic;

/// The classes of refusals.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// The op is not in the table.
    Op,
    /// The op has an attribute, or a value of one, that is not imported.
    Attribute,
    /// Strings, complex numbers, and operands of a dtype that the op is not imported with.
    DType,
    /// A shape depends on data.
    Shape,
    /// An operand has to be known at import, such as axes.
    Operand,
    /// A sequence, map or optional value whose length or presence depends on data.
    Container,
    /// Random numbers without a seed that both runtimes could share.
    Random,
    /// The version of the file or of an op set is not known.
    Version,
}

impl Class {
    /// All of them.
    pub const ALL: [Class; 8] = [
        Class::Op,
        Class::Attribute,
        Class::DType,
        Class::Shape,
        Class::Operand,
        Class::Container,
        Class::Random,
        Class::Version,
    ];

    /// The mend, for all errors of the class.
    pub(crate) fn help(self) -> &'static str {
        match self {
            Class::Op => "export the model with ops of the table in docs/onnx.md",
            Class::Attribute => "export the model without it",
            Class::DType => {
                "export the model in f32, f16, bf16, f64 or integers of 8, 32 or 64 bits, or cast \
                 to one of them before this node"
            }
            Class::Shape => {
                "give the model's inputs extents that are known, by `--bind NAME=N`, or cut the \
                 model before this node"
            }
            Class::Operand => "fix the input that it comes from by `--bind-input NAME=@FILE.npy`",
            Class::Container => "replace it by tensors of known number",
            Class::Random => "make the random numbers an input of the model",
            Class::Version => "convert the model by `onnx.version_converter`",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Op => "unknown op",
            Class::Attribute => "attribute",
            Class::DType => "dtype",
            Class::Shape => "shape from data",
            Class::Operand => "operand from data",
            Class::Container => "container",
            Class::Random => "random numbers",
            Class::Version => "version",
        })
    }
}

/// An error of a class.
pub(crate) fn refuse(class: Class, reason: impl fmt::Display) -> Diagnostic {
    Diagnostic::new(format!("{reason} ({class})")).help(class.help())
}
