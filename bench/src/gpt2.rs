//! `wengert-bench gpt2`: some training steps of GPT-2 with 124 million parameters on one batch.
//!
//! The benchmark's cases are small enough for every contender and a plain loop. This is a typical
//! size for a GPU: 1024 positions, layers in halves with f32 parameters, AdamW. It needs no other
//! system and no data. The loss of a single batch must fall from the first step to the last; the
//! time of a step has no limit. Steps are queued without waiting, and only the last loss is read,
//! as in training that reads its loss occasionally.

use clap::{Args, ValueEnum};
use std::io::Write;
use std::time::Instant;
use wengert::command::{Outcome, Status};
use wengert::core::KeyPath;
use wengert::models::{Gpt, GptSettings};
use wengert::prelude::*;
use wengert::random::SplitMix64;
use wengert::{DeviceOptions, Outputs};

/// Options of `gpt2`.
#[derive(Debug, Args)]
pub struct Asked {
    /// The device: cuda:0, emulator, cpu
    #[arg(long, default_value = "cuda:0")]
    device: String,
    /// Dtype of the layers, to which all parameters are converted; parameters are f32
    #[arg(long, value_enum, default_value = "bf16")]
    dtype: Layers,
    /// Mixed precision by the compiler's policy, instead of `--dtype`. f16 scales the loss
    #[arg(long, value_enum, conflicts_with = "dtype")]
    precision: Option<Halves>,
    /// Sequences per step, of 1024 tokens each
    #[arg(long, value_name = "N", default_value_t = 4)]
    batch: usize,
    /// Timed steps, after three warm-up steps
    #[arg(long, value_name = "N", default_value_t = 20)]
    steps: u32,
    /// Number of tokens. GPT-2's own is 50257; the default is a multiple of 128
    #[arg(long, value_name = "N", default_value_t = 50304)]
    vocabulary: usize,
    /// Launches each kernel separately, for profilers
    #[arg(long)]
    no_capture: bool,
    /// A small network and short sequences: checks that it runs
    #[arg(long)]
    small: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Layers {
    F32,
    Bf16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Halves {
    Bf16,
    F16,
}

/// Steps before the timed ones: the first compiles and captures.
const WARM: u32 = 3;

impl Asked {
    /// Trains, and prints a line.
    pub(crate) fn run(&self, out: &mut dyn Write) -> Outcome {
        let settings = match self.small {
            true => GptSettings { vocabulary: 11, positions: 5, width: 12, heads: 3, layers: 2 },
            false => GptSettings { vocabulary: self.vocabulary, ..GptSettings::SMALL },
        };
        let shape = [self.batch, settings.positions];
        let program = self.program(&settings)?;
        let mut stream = SplitMix64::new(5);
        let mut tokens = || {
            let all = (0..shape[0] * shape[1])
                .map(|_| stream.below(settings.vocabulary as u64) as i32)
                .collect();
            Literal::from_vec(&shape, all)
        };
        let given = [("x", tokens()?), ("y", tokens()?)];
        let options = DeviceOptions { capture: !self.no_capture, ..DeviceOptions::default() };
        let mut session = Session::open_with(self.device.parse()?, &options)?;
        session.initialize(&program, 1)?;
        let begin = Instant::now();
        let mut step = session.compile(&program, "step", bind!())?;
        let compiled = begin.elapsed();
        step.expect_repeats();
        let mut run =
            |count: u32| -> Result<Vec<Outputs>> { (0..count).map(|_| step.run(&given)).collect() };
        let first = run(WARM)?[0].scalar("loss")?;
        session.finish()?;
        let begin = Instant::now();
        let last = run(self.steps.max(1))?.pop().expect("a step at least").scalar("loss")?;
        let seconds = begin.elapsed().as_secs_f64() / f64::from(self.steps.max(1));
        let [b, t, c, l, v] =
            [shape[0], shape[1], settings.width, settings.layers, settings.vocabulary]
                .map(|n| n as f64);
        // The same count as the benchmark's cases: `case/transformer.rs`.
        let flops = b * t * (6.0 * (12.0 * l * c * c + v * c) + 12.0 * l * c * t);
        let name = if self.small { "a small GPT" } else { "GPT-2 124M" };
        writeln!(
            out,
            "{name}, {}, {b}x{t}, V {v}: compiled in {:.2} s; {:.3} ms a step, {:.0} tokens/s, \
             {:.2} TFLOP/s; loss {first:.4} -> {last:.4}",
            self.described(),
            compiled.as_secs_f64(),
            seconds * 1e3,
            b * t / seconds,
            flops / seconds / 1e12,
        )?;
        Ok(if last.is_finite() && last < first { Status::Good } else { Status::Failed })
    }

    fn program(&self, settings: &GptSettings) -> Result<Program> {
        let mut program = Program::new();
        program.function("step", |f| {
            let tokens = TensorType::new(DType::I32, [self.batch, settings.positions]);
            let (x, y) = (f.input("x", tokens.clone()), f.input("y", tokens));
            let model = f.state("model", Gpt::new(settings));
            let loss = |m: &Gpt| match (self.precision, self.dtype) {
                (Some(_), _) | (None, Layers::F32) => m.loss(&x, &y),
                (None, Layers::Bf16) => {
                    let half =
                        m.map_tensors(&KeyPath::default(), &mut |_, t| t.convert(DType::BF16));
                    half.loss(&x, &y)
                }
            };
            let scale = match self.precision {
                Some(Halves::F16) => LossScale::dynamic(),
                Some(Halves::Bf16) | None => LossScale::none(),
            };
            let scaled = scale.begin(f);
            let (loss, gradient) = scaled.value_and_grad(&model, loss);
            AdamW::new(1e-3).step(f, &model, &gradient);
            scaled.finish(f, &gradient);
            f.output("loss", loss);
        })?;
        match self.precision {
            Some(Halves::Bf16) => program.precision(&Precision::bf16())?,
            Some(Halves::F16) => program.precision(&Precision::f16())?,
            None => {}
        }
        Ok(program)
    }

    /// The dtype of the layers, as the line has it.
    fn described(&self) -> String {
        match self.precision {
            Some(halves) => format!("{halves:?} by the policy"),
            None => format!("{:?}", self.dtype),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_network_learns_one_batch() {
        let mixed = [Halves::Bf16, Halves::F16].map(|halves| (Layers::F32, Some(halves)));
        for (dtype, precision) in
            [(Layers::F32, None), (Layers::Bf16, None)].into_iter().chain(mixed)
        {
            let (device, mut out) = ("cpu".to_owned(), Vec::new());
            let asked = Asked {
                device,
                dtype,
                precision,
                batch: 2,
                steps: 10,
                vocabulary: 50304,
                no_capture: false,
                small: true,
            };
            let status = asked.run(&mut out).unwrap_or_else(|_| panic!("it runs on the CPU"));
            let line = String::from_utf8(out).unwrap();
            assert_eq!(status, Status::Good, "{line}");
            assert!(line.contains("ms a step") && line.contains("loss "), "{line}");
        }
    }
}
