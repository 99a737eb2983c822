//! The page `docs/onnx.md`, from the tables of ops.

use crate::export::{OPSETS, rules, unexported};
use crate::op::rows;
use crate::refusal::Class;
use std::collections::BTreeMap;
use std::fmt::Write as _;

const INTRODUCTION: &str = "\
# ONNX

<!-- Generated: `cargo run -p wengert-onnx --example page > docs/onnx.md` -->

```sh
graphrun import model.onnx -o model.graph
graphrun run model.graph@predict --input x=@x.npy
graphrun export model.graph@predict --params trained.safetensors -o trained.onnx
```

[From a model to a prediction](#from-a-model-to-a-prediction), [import](#limits),
[training](#training), [export](#export).

`run`, `inspect`, `check` and every other command that takes a `.graph` file take an `.onnx` file,
too, and the options of `import` that a model needs. In Rust it is `wengert::onnx::read`, which
gives a `GraphFile`: its program can be differentiated, planned within a budget, certified and
trained like any other.

## From a model to a prediction

The model of these commands is a classifier of digits, `wengert/tests/tune/convolutions.onnx`. It
has learnt transposed images, so it has to be trained for upright ones. `x.npy` has two images,
`train.npz` and `test.npz` have the arrays `image` and `labels`.

To the first prediction:

```console
$ graphrun import model.onnx
@predict with 1 input, 12 parameters and 1 output written to model.graph
@predict(image: f32[batch,1,8,8]) -> (class: f32[batch,10])
$ graphrun run model.graph --input image=@x.npy
class: f32[2,10], min -20.971127, max 18.360636, mean -0.922249, all finite
  [0]  0.38743818  -11.17593  -19.761526   -6.874966   8.738558  4.3533416  …
  [1]    2.652408  -7.229484  -20.971127  -2.7643433  18.360636   6.602301  …
```

To the first model that is trained and exported:

```console
$ graphrun import model.onnx -o tuned.graph --train --loss cross_entropy
@train_step with 10 trained and 2 frozen parameters, @predict and @evaluate written to tuned.graph
the data have the arrays `image` as f32[batch,1,8,8], `labels` as i32[batch]: graphrun train …
$ graphrun train tuned.graph --data train.npz --out runs/a
epoch 1: loss …
…
weights written to runs/a/weights.safetensors
$ graphrun evaluate tuned.graph --data test.npz --params runs/a/weights.safetensors
@evaluate on 360 examples
metric       value
loss      0.335996
accuracy  0.925000
$ graphrun export tuned.graph --params runs/a/weights.safetensors -o tuned.onnx
@predict with 1 input, 12 parameters and 1 output written to tuned.onnx, op set 21
```

The same with updates of low rank, which are added to the weights before the export:

```console
$ graphrun import model.onnx -o lora.graph --train --loss cross_entropy \\
      --learning-rate 0.01 --lora 'r=4,alpha=8,conv2.weight,h*.weight'
@train_step with 6 trained and 12 frozen parameters, @predict and @evaluate written to lora.graph
the data have the arrays …
$ graphrun train lora.graph --data train.npz --out runs/b
…
$ graphrun merge lora.graph --params runs/b/weights.safetensors -o merged.graph
3 updates merged, 12 parameters of @predict written to merged.graph
$ graphrun export merged.graph -o lora.onnx
@predict with 1 input, 12 parameters and 1 output written to lora.onnx, op set 21
$ graphrun run lora.onnx --input image=@x.npy
class: f32[2,10], min -17.659912, max 27.505068, mean 2.31253, all finite
…
```

## Limits

- Op sets 7 to 28 of ONNX itself. Op sets of other domains are imported where the table has their
  ops.
- Strings, complex numbers and float8e8m0 are refused.
- Integers of 16, 4 and 2 bits, float4e2m1 and 8-bit floats without infinities (`fnuz`) have wider
  tensors in the program. Inputs of these dtypes are given as numbers that the dtype has. Ops
  whose rule does not know of them, and branches and loops of the graph, refuse them.
- Shapes are known at import, as numbers or as polynomials of dimension variables. The results of
  `NonZero`, `Compress`, `Unique` and `NonMaxSuppression`, whose number depends on data, need a
  bound: with `--max NAME=N`, the result `NAME` has N entries, those that there are and then zeros,
  and an output `NAME_count` has their number. If it is above N, only the first N are there. No
  bound is needed where the number is known at import. What reads `NAME` reads the zeros, too.
- A sequence has a known length. `--sequence 'NAME=[3],[2,4]'` gives the shapes of the elements of
  an input that is one; the function has an input or output for each element, `NAME.0` and so on.
  Whether an optional input is there is known, too: `--absent NAME` says that it is not.
- What an op needs as a number, such as axes, has to be computable at import: from constants and
  shapes. `--bind-input NAME=@FILE.npy` fixes an input that holds such numbers.
- Integers of attributes, axes and extents lie within ±2^31. What an import makes is limited:
  tables, such as the positions of a resize and the matrix of a transform, have at most 2^24
  elements in all; loops that are unrolled, calls of local functions and parts of a split are at
  most 2^17 nodes in all. A model beyond that is refused within a second and 256 MiB beside the
  file, as is one that is wrong in another way (`ci/deep/onnx-mutants`).
- A `Loop` has a number of steps that is known, and is unrolled. `Scan` is a loop of the graph.
- Dropout is the identity, and batch normalisation has its running statistics, unless training
  forms are asked for. Random numbers are refused: each runtime has its own.

## What becomes of a model

| part of the model | part of the program |
|---|---|
| graph | function `predict`, or `--function NAME` |
| input | input; what no name may have becomes `_` |
| input or output that is a sequence | an input or output for each element |
| symbolic extent | dimension variable |
| initializer of several floats | parameter, with its value in the file |
| tensor of int16, uint16, int4, uint4, int2, uint2 | i32; after arithmetic its higher bits are dropped |
| tensor of float4e2m1, float8e4m3fnuz, float8e5m2fnuz | f32; a cast rounds to the numbers of the dtype |
| other initializer, `Constant` | constant, folded at import |
| node | equations, whose location is the node's number in the file |
| batch normalisation behind a convolution | the convolution's filter, times a number for each channel, and a sum; with `--train` as it is |
| local function | its nodes, in the place of each call |
| `If`, `Scan` | branch, loop |
| values in other files | read from the model's folder, never from outside |

## Training

```sh
graphrun import model.onnx -o model.graph --train --loss cross_entropy --freeze 'conv1.*'
graphrun train model.graph --data digits.npz --out runs/a
graphrun run model.graph@predict --params runs/a/weights.safetensors --input x=@x.npy
```

`--train` adds the functions `train_step`, `evaluate` and `init`, and a recipe. The data file has an
array for each input of the model, by its name, and an array `labels`; `--array INPUT=ARRAY` and
`--labels` name others. The first axis of an input is a dimension variable, which counts the
examples. In Rust it is `wengert::onnx::Model::tuned`, or `wengert::tune::Tuning` for any program.

| option | choices |
|---|---|
| `--loss` | `cross_entropy` of `[batch, classes]`, `binary_cross_entropy`, `mse`, `mae`, `huber` |
| `--optimizer` | `adamw` (the default), `adam`, `muon`, `soap`, `lion`, `adafactor`, `rmsprop`, `adagrad`, `sgd`, `momentum` |
| `--output` | the output of which the loss is computed, if there are several |
| `--freeze PATTERN` | variables that are not trained |
| `--training-forms` | statistics of the batch, and dropout |
| `--lora r=RANK,alpha=ALPHA,PATTERN` | updates of low rank of the weights that match |

- A loss of logits is computed of the values before a softmax or sigmoid, if the output is made by
  one. `predict` stays as it is.
- Running statistics of a batch normalisation are frozen, and used in training. With
  `--training-forms`, the training step normalises by the mean and variance of the batch and updates
  the running statistics as ONNX defines, and a `Dropout` of the model drops out.
- With `--lora`, the model's own variables are frozen, and each weight w that matches becomes
  w + (alpha / rank) · P · Q, where P and Q are trained (Hu et al., arXiv:2106.09685). A weight is a
  matrix, or a kernel of a convolution. `graphrun merge` adds the trained updates to the weights,
  for the model without `--lora` ([LoRA](lora.md)).

A wrong model is an error that names the graph, the node, its op and version. What is not imported
is refused with one of these classes:

";

const EXPORT: &str = "
## Export

`graphrun export FILE@FUNC -o OUT.onnx` writes a function as a model for ONNX Runtime, TensorRT and
others; in Rust it is `wengert::onnx::write`. What is exported is the function as it was built or
read, before any pass of the compiler.

Limits:

- The ops of the last table, 8-bit floats, the stacks of a `while`, and what a row below excludes
  are refused. The error has the equation and its place in the source.
- A dimension variable must be an extent of an input, or one that a linear extent gives: `N` of an
  input `f32[2*N+1]`. `--bind NAME=N` binds it otherwise.
- A model has at most 2 GiB. All values of parameters and state are given.
- An output of new state is `NAME.new`: a runtime of ONNX has no state of its own.
- Where ONNX leaves a choice, results are the runtime's: the place of NaN in an order and among
  extrema, the sign of a zero, the maximum of a window without elements or with −∞ only, results of
  `erfc` near 0. Floats are rounded as the runtime rounds them.
- Halves of f16 stay f16, and the runtime chooses the precision of sums. Arithmetic of bf16 is that
  of f32, rounded to bf16 after each op, as here; runtimes have few kernels for bf16. Kernels of f64
  are missing in some runtimes, too.
- Integers of 8 bits, u32 and u64 are computed in i32 or i64, with the same bits.

| part of the program | part of the model |
|---|---|
| input, key | input, of the same name |
| parameter, state | initializer, named by its key path |
| output | output, of the same name |
| dimension variable | symbolic extent of the same name; its value is computed from the input's shape |
| broadcast | none where an elementwise op reads it, else `Expand` |
| call, custom derivative, checkpoint | the nodes of the function |
| 0 where x ≤ 0, else x | `Relu` |
| x·½·(erf(x/√2) + 1) | `Gelu` |
| normalization, times a scale, plus a bias | one node |
| what no output depends on | none |
";

/// The tables of exported ops, and of those that are not.
fn exported(page: &mut String) {
    page.push_str(EXPORT);
    let _ = write!(
        page,
        "\nModels are written in op set {}, or `--opset N` up to {}. ONNX Runtime runs all\n\
         networks of `wengert::models`, samples of all ops and random functions with the same\n\
         results: within 1e-5 of a result's largest number, or 1e-6 where numbers cancel\n\
         (`wengert/tests/onnx/exported`). A NaN in an order and windows without a number are not\n\
         compared.\n\n| op | ops of ONNX |\n|---|---|\n",
        OPSETS.start(),
        OPSETS.end()
    );
    for rule in rules() {
        let _ = writeln!(page, "| `{}` | {} |", rule.op, rule.onnx);
    }
    page.push_str("\n| op without export | reason |\n|---|---|\n");
    for (op, reason) in unexported() {
        let _ = writeln!(page, "| `{op}` | {reason} |");
    }
}

/// The text of the page.
pub fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    page.push_str("| class | mend |\n|---|---|\n");
    for class in Class::ALL {
        let _ = writeln!(page, "| {class} | {} |", class.help());
    }
    let mut ops: BTreeMap<(&str, &str), Vec<i64>> = BTreeMap::new();
    for row in rows() {
        ops.entry((row.domain, row.name)).or_default().push(row.since);
    }
    let _ = write!(
        page,
        "\n## Ops\n\n{} ops. A rule holds from its version on, until that of the next one.\n\n\
         | op | rules from version |\n|---|---|\n",
        ops.len()
    );
    for ((domain, name), mut versions) in ops {
        versions.sort_unstable();
        let versions: Vec<String> = versions.iter().map(ToString::to_string).collect();
        let separator = if domain.is_empty() { "" } else { "::" };
        let _ = writeln!(page, "| {domain}{separator}{name} | {} |", versions.join(", "));
    }
    exported(&mut page);
    page
}
