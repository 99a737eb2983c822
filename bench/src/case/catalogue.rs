//! The lists of cases: for a GPU, for the CPU's table, and for memory.

use super::{
    Case, Epilogue, Float, Inference, Kind, chain, convolutional, decoding, gemm, imported,
    inference, recurrent, resnet, rows, sums, training, transformer, transpose, unet, window,
};
use crate::suite::label;

/// Every case, at the extents of the benchmark or at small ones, which take seconds on a slow
/// device.
pub fn catalogue(small: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    cases.extend(chain::cases(small));
    cases.extend(rows::cases(small));
    cases.extend(sums::cases(small));
    cases.extend(transpose::cases(small));
    cases.extend(gemm::cases(small));
    cases.extend(training::cases(small));
    cases.extend(recurrent::cases(small));
    cases.extend(transformer::cases(small));
    cases.extend(window::cases(small));
    // Their references are bandwidths of a CPU's memory.
    let without_reference = |case: Case| Case { reference: None, ..case };
    let few = gemm::products_of_few_rows(small).into_iter().chain(decoding::cases(small));
    cases.extend(few.map(without_reference));
    cases
}

/// The cases of `wengert-bench cpu`, in f32 except for those from C10 on, in the groups of its
/// table: C1 products, C2 chains in the caches and in memory, C3 to C5 training steps, C6
/// inference, C10 products of bf16, C11 updates of windows in place, C12 decoding of tokens with
/// the products of few rows that it consists of, C13 imported models, C15 and C16 the networks of
/// C3 to C6 in mixed precision. (C7 to C9 are [starts](crate::starts).) The group that shows a
/// step's fixed costs has no number.
pub fn catalogue_of_cpu(small: bool) -> Vec<Case> {
    let sizes: [usize; 2] = if small { [1 << 12, 1 << 16] } else { [1 << 19, 1 << 24] };
    let is_product = |kind: &Kind| {
        matches!(
            kind,
            Kind::Gemm { epilogue: Epilogue::None, extent } if *extent <= LARGEST
        )
    };
    let mut cases = gemm::cases(small);
    cases.retain(|case| is_product(&case.kind));
    cases.extend(gemm::products(small));
    cases.extend(chain::of_sizes(Float::F32, &sizes));
    cases.extend(transformer::cases(small));
    cases.extend(training::cases(small));
    cases.extend(convolutional::cases(small));
    // The unrolled form is compared with the loop only; it is no row of the table.
    cases
        .extend(recurrent::cases(small).into_iter().filter(|case| !case.id.ends_with(" unrolled")));
    cases.extend(inference::cases(small));
    if !small {
        cases.extend(imported::cases());
    }
    cases.extend(window::cases(small));
    cases.push(sums::reading(small));
    cases.extend(gemm::products_of_few_rows(small));
    cases.extend(decoding::cases(small));
    cases.extend(chain::cases(small).into_iter().filter(|case| matches!(case.kind, Kind::Empty)));
    for case in &mut cases {
        let group = match &case.kind {
            Kind::Sum { .. } => "C12 reading",
            Kind::Product { product } if product.rows <= gemm::FEW_ROWS => match case.dtype {
                Float::F32 => "C12 products of f32",
                Float::Bf16 | Float::Mixed => "C12 products of bf16",
            },
            // The larger network has a group of its own, as in C3 and C4.
            Kind::Decoding { network } if network.width > DECODER => "C12 decoding, large",
            Kind::Decoding { .. } => match case.dtype {
                Float::F32 => "C12 decoding f32",
                Float::Bf16 | Float::Mixed => "C12 decoding bf16",
            },
            Kind::Gemm { .. } | Kind::Product { .. } if case.dtype == Float::Bf16 => OF_BF16,
            Kind::Gemm { .. } | Kind::Product { .. } => "C1 products",
            Kind::Chain { .. } => "C2 chains",
            // The larger network is the one with GPT-2's vocabulary. Each has its own group: two
            // sets of states at a time exceed the memory of many machines.
            Kind::Transformer { network } if network.vocabulary == GPT_2 => "C4 GPT-2",
            Kind::Transformer { .. } => "C3 GPT",
            Kind::Training { .. } => "C5 MLPs",
            Kind::Convolutional { .. } => "C5 convnet",
            Kind::Recurrent { .. } => "C5 LSTM",
            Kind::Window { .. } => UPDATES,
            Kind::Inference { network: Inference::Gpt { .. } } => "C6 GPT-2",
            Kind::Inference { network: Inference::Bert { .. } } => "C6 BERT",
            Kind::Inference { network: Inference::Mlp { .. } } => "C6 MLP",
            Kind::Imported { model } => OF_MODELS
                .iter()
                .find(|(_, models)| models.contains(&model.as_str()))
                .map_or("C13 classifiers", |(group, _)| group),
            _ => continue,
        };
        case.group = group.into();
    }
    let mixed: Vec<Case> = cases.iter().filter_map(in_mixed_precision).collect();
    cases.extend(mixed);
    // Sorts by label.
    let late = ["C10", "C11", "C12", "C13", "C15", "C16"];
    cases.sort_by_key(|case| late.iter().position(|late| label(&case.group) == Some(*late)));
    cases
}

/// The training steps whose [memory](crate::memory) is compared: GPT-2, larger than in the timed
/// case, the networks of C5 with most memory to plan, a U-Net and ResNet-50.
pub fn catalogue_of_memory(small: bool) -> Vec<Case> {
    let mut cases = vec![transformer::case_of_memory(small)];
    cases.extend(convolutional::cases(small));
    cases
        .extend(recurrent::cases(small).into_iter().filter(|case| !case.id.ends_with(" unrolled")));
    cases.extend(unet::cases(small));
    cases.extend(resnet::cases(small));
    for case in &mut cases {
        case.group = GROUP_OF_MEMORY.into();
    }
    cases
}

/// The group of cases that are compiled for their memory.
pub(super) const GROUP_OF_MEMORY: &str = "memory of steps";

/// The group of products of bf16.
const OF_BF16: &str = "C10 products of bf16";

/// The group of rows that are written into caches.
const UPDATES: &str = "C11 updates in place";

/// Groups of imported models that take much memory together.
const OF_MODELS: [(&str, &[&str]); 3] = [
    ("C13 large classifiers", &["alexnet", "vgg19", "zfnet512"]),
    ("C13 transformers", &["minilm", "gpt2", "vit"]),
    ("C13 detector", &["silero_vad"]),
];

/// The greatest extent of a square product on a CPU.
const LARGEST: usize = 2048;

/// Width of the smaller decoder.
const DECODER: usize = 256;

/// Size of GPT-2's vocabulary.
const GPT_2: usize = 50257;

/// The same network in mixed precision, in the row of the table that has it.
fn in_mixed_precision(case: &Case) -> Option<Case> {
    let (label, name) = case.group.split_once(' ')?;
    let label = match label {
        "C3" | "C4" => "C15",
        "C5" | "C6" => "C16",
        _ => return None,
    };
    let inference = if matches!(case.kind, Kind::Inference { .. }) { "inference of " } else { "" };
    Some(Case {
        id: format!("{} {}", case.id, Float::Mixed.name()),
        group: format!("{label} {inference}{name}"),
        dtype: Float::Mixed,
        ..case.clone()
    })
}
