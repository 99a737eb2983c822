//! The benchmark cases: computation, counted work, and the check of the result.
//!
//! A [`Case`] is plain data, and `bench/peers/cases.json` holds all of them for the scripts that
//! measure other systems, so that all use one list and one count of bytes and operations. Each
//! computation is one file below this module, with its graph, data, count and plain loop. Names
//! are complete: `softmax bf16 8192x1024`.
//!
//! Counts are of the compulsory work, independent of the contender: each input read once, each
//! result written once; 2·m·n·k operations for a product. A contender with more traffic gets a
//! lower rate.

mod bert;
mod catalogue;
mod chain;
mod convolutional;
mod decoding;
mod gemm;
mod gpt;
mod imported;
mod inference;
mod llama;
mod plain;
mod random_chain;
mod recurrent;
mod resnet;
mod rows;
mod sums;
mod training;
mod transformer;
mod transpose;
mod unet;
mod window;

pub use catalogue::{catalogue, catalogue_of_cpu, catalogue_of_memory};
pub use chain::{Chain, compare_chain};
pub use convolutional::Convolutional;
pub use decoding::Decoder;
pub use gemm::{Epilogue, Product};
pub use imported::{FOLDER, has_models};
pub use inference::{Encoder, Inference};
pub use random_chain::{compare_random_chain, random_chains};
pub use recurrent::{Form, Recurrent};
pub use resnet::ResNet;
pub use rows::RowKernel;
pub use training::{Algorithm, Network};
pub use transformer::Transformer;
pub use unet::UNet;
pub use window::Window;

use crate::data::uniform;
use crate::parity::Parity;
use crate::record::Work;
use crate::resident::{FUNCTION, Resident};
use serde::{Deserialize, Serialize};
use wengert::core::build::FunctionBuilder;
use wengert::prelude::Precision;
use wengert::{DType, Diagnostic, Initializer, Literal, Program, Result, Tensor, TensorType};

/// A case.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Its name: computation, dtype, extents.
    pub id: String,
    /// Its group. The cases of a group are measured in turns.
    pub group: String,
    /// Its computation.
    pub kind: Kind,
    /// Dtype of its floats.
    pub dtype: Float,
    /// Its work.
    pub work: Work,
    /// The case whose bandwidth is the reference for this one, which is bandwidth-bound: a copy of
    /// similar size, or a sum if memory is only read.
    pub reference: Option<String>,
}

/// Dtype of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Float {
    /// 32 bits.
    F32,
    /// 16 bits, 8 of them mantissa.
    Bf16,
    /// f32, but products and what stands between them are bf16, by the library's
    /// [policy](Precision::bf16). Other systems use theirs.
    Mixed,
}

impl Float {
    const ALL: [Float; 2] = [Float::F32, Float::Bf16];

    /// The library's dtype of variables.
    pub fn dtype(self) -> DType {
        match self {
            Float::F32 | Float::Mixed => DType::F32,
            Float::Bf16 => DType::BF16,
        }
    }

    /// Bytes of an element.
    fn bytes(self) -> u64 {
        self.dtype().size() as u64
    }

    fn name(self) -> &'static str {
        match self {
            Float::F32 => "f32",
            Float::Bf16 => "bf16",
            Float::Mixed => "mixed",
        }
    }

    /// The dtype of products.
    pub(crate) fn of_products(self) -> DType {
        if self == Float::F32 { DType::F32 } else { DType::BF16 }
    }

    /// Greatest deviation of a network's results, within the roundings of all layers.
    fn bound(self) -> f64 {
        match self.of_products() {
            DType::BF16 => 16.0 * DType::BF16.unit_roundoff(),
            _ => 2e-5,
        }
    }

    /// Greatest relative deviation of a loss from another contender's. In mixed precision each
    /// rounds at other places: by 1.5 % in the convolutional network.
    pub(crate) fn bound_of_losses(self) -> f64 {
        if self == Float::Mixed { 3e-2 } else { 1e-4 }
    }
}

/// The computation of a case.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case", deny_unknown_fields)]
pub enum Kind {
    /// One element is read and written: the fixed cost of a run.
    Empty,
    /// An elementwise function of whole arrays.
    Chain {
        /// The function.
        chain: Chain,
        /// Elements of each array.
        elements: usize,
    },
    /// A chain drawn at random.
    RandomChain {
        /// The seed of the draw.
        seed: u64,
        /// Its number among the chains of the seed.
        number: u64,
        /// Elements of each array.
        elements: usize,
    },
    /// A function of the rows of a matrix.
    Rows {
        /// The function.
        kernel: RowKernel,
        /// Rows.
        rows: usize,
        /// Elements of a row.
        columns: usize,
    },
    /// The sums of a matrix's columns, in f32: the gradient of a bias.
    ColumnSum {
        /// Rows.
        rows: usize,
        /// Columns.
        columns: usize,
    },
    /// The sum of all elements, in f32.
    Sum {
        /// Elements.
        elements: usize,
    },
    /// A square matrix, transposed.
    Transpose {
        /// Rows and columns.
        extent: usize,
    },
    /// A product of square matrices, followed by an epilogue.
    Gemm {
        /// Rows and columns.
        extent: usize,
        /// The epilogue.
        epilogue: Epilogue,
    },
    /// A product of matrices that are not square.
    Product {
        /// Its extents.
        product: Product,
    },
    /// A training step.
    Training {
        /// The network.
        network: Network,
    },
    /// A training step of a recurrent network.
    Recurrent {
        /// The network.
        network: Recurrent,
    },
    /// A training step of a transformer.
    Transformer {
        /// The network.
        network: Transformer,
    },
    /// A training step of a convolutional network.
    Convolutional {
        /// The network.
        network: Convolutional,
    },
    /// A training step of a U-Net.
    #[serde(rename = "unet")]
    UNet {
        /// The network.
        network: UNet,
    },
    /// A training step of a residual network.
    #[serde(rename = "resnet")]
    ResNet {
        /// The network.
        network: ResNet,
    },
    /// Rows that are written into a cache.
    Window {
        /// Its extents.
        window: Window,
    },
    /// Inference of a network.
    Inference {
        /// The network.
        network: Inference,
    },
    /// Inference of an imported model.
    Imported {
        /// The name of its file.
        model: String,
    },
    /// Decoding of one token.
    Decoding {
        /// The network.
        network: Decoder,
    },
}

/// A parameter: its name, its shape, and the bounds of its random initial values.
pub type Drawn = (String, Vec<usize>, [f64; 2]);

/// A case with its data: everything that a device needs to run it.
pub struct Made {
    /// A program with the function [`FUNCTION`]. It reads and writes variables. Only imported
    /// models have inputs and results.
    pub program: Program,
    /// Initial values of variables, and the values of inputs.
    pub variables: Vec<(String, Literal)>,
    /// The seed for the program's `@init`, if it must run before `variables` are set.
    pub init: Option<u64>,
    /// Runs the case and compares its results with a plain loop over the variables' initial
    /// values.
    pub check: Check,
}

/// Compares the results of a case with a plain loop.
pub type Check = fn(&mut Resident, &Case, &[(String, Literal)]) -> Result<Parity>;

impl Case {
    /// The case's name as a file name: letters, digits and dashes.
    pub fn file_name(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let name: String = self.id.chars().map(plain).collect();
        name.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
    }

    /// The case without a policy.
    pub(crate) fn in_f32(&self) -> Case {
        Case { dtype: Float::F32, ..self.clone() }
    }

    /// Makes program and data.
    pub fn make(&self) -> Result<Made> {
        self.with_policy(self.make_plain()?)
    }

    /// The case in mixed precision, if it is.
    fn with_policy(&self, mut made: Made) -> Result<Made> {
        if self.dtype == Float::Mixed {
            made.program.precision(&Precision::bf16())?;
        }
        Ok(made)
    }

    fn make_plain(&self) -> Result<Made> {
        let dtype = self.dtype.dtype();
        match &self.kind {
            Kind::Empty => chain::make(Chain::Copy, dtype, 1),
            Kind::Chain { chain, elements } => chain::make(*chain, dtype, *elements),
            Kind::RandomChain { seed, number, elements } => {
                random_chain::make(*seed, *number, *elements)
            }
            Kind::Rows { kernel, rows, columns } => rows::make(*kernel, dtype, *rows, *columns),
            Kind::ColumnSum { rows, columns } => sums::make(dtype, &[*rows, *columns]),
            Kind::Sum { elements } => sums::make(dtype, &[*elements]),
            Kind::Transpose { extent } => transpose::make(dtype, *extent),
            Kind::Gemm { extent, epilogue } => gemm::make(*epilogue, dtype, *extent),
            Kind::Product { product } => gemm::make_product(dtype, product),
            Kind::Training { network } => training::make(network),
            Kind::Recurrent { network } => recurrent::make(network),
            Kind::Transformer { network } => transformer::make(network),
            Kind::Convolutional { network } => convolutional::make(network),
            Kind::UNet { .. } | Kind::ResNet { .. } => Err(Diagnostic::new(format!(
                "`{}` is not run: there is no plain loop to compare it with",
                self.id
            ))
            .help("`wengert-bench memory` compiles it")),
            Kind::Window { window } => window::make(dtype, *window),
            Kind::Inference { network } => inference::make(network),
            Kind::Imported { model } => imported::make(model),
            Kind::Decoding { network } => decoding::make(dtype, network),
        }
    }

    /// Makes the program without data.
    pub fn program(&self) -> Result<Program> {
        match &self.kind {
            Kind::UNet { network } => network.program(),
            Kind::ResNet { network } => network.program(),
            _ => Ok(self.make_fresh()?.program),
        }
    }

    /// As [`make`](Case::make), but the program's own initializers set the variables that they
    /// can.
    pub fn make_fresh(&self) -> Result<Made> {
        match &self.kind {
            Kind::Transformer { network } => self.with_policy(transformer::make_fresh(network)?),
            _ => self.make(),
        }
    }
}

/// The body of a random chain's loop in Rust, on elements `x`, `w`, `b` and `r`.
pub(crate) fn rust_of_random_chain(seed: u64, number: u64) -> String {
    random_chain::RandomChain::draw(seed, number).rust()
}

/// A program whose only function is the case.
fn program(build: impl FnOnce(&mut FunctionBuilder)) -> Result<Program> {
    let mut program = Program::new();
    program.function(FUNCTION, build)?;
    Ok(program)
}

/// A variable that the case reads.
fn read(f: &mut FunctionBuilder, name: &str, dtype: DType, shape: &[usize]) -> Tensor {
    let ty = TensorType::new(dtype, shape.iter().copied());
    f.param(name, Tensor::variable(ty, Initializer::Zeros))
}

/// A model's initial values, as variables of the name `model`.
fn drawn(parameters: Vec<Drawn>) -> Result<Vec<(String, Literal)>> {
    let draw = |(name, shape, [low, high]): Drawn| {
        let path = format!("model.{name}");
        let value = uniform(&path, DType::F32, &shape, low, high)?;
        Ok((path, value))
    };
    parameters.into_iter().map(draw).collect()
}

/// The initial value of a variable.
fn first<'a>(variables: &'a [(String, Literal)], name: &str) -> &'a Literal {
    let found = variables.iter().find(|(path, _)| path == name);
    &found.expect("checks ask for variables that their own case made").1
}

/// The reference for bandwidth-bound cases: a copy larger than any cache.
fn copy_of_memory(dtype: Float, small: bool) -> Option<String> {
    Some(format!("copy {} {}", dtype.name(), if small { "64K" } else { "64M" }))
}

/// The reference for cases that read parameters once: a sum over an array larger than any cache.
fn read_of_memory(small: bool) -> String {
    format!("sum f32 {}", if small { "64K" } else { "64M" })
}

/// `64M` for 2²⁶, or the digits.
fn short(count: usize) -> String {
    match count {
        _ if count >= 1 << 20 && count.is_multiple_of(1 << 20) => format!("{}M", count >> 20),
        _ if count >= 1 << 10 && count.is_multiple_of(1 << 10) => format!("{}K", count >> 10),
        _ => count.to_string(),
    }
}
