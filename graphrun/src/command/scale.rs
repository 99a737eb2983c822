//! `graphrun scale`: a plan for ranks that are not here.

use crate::cli::{ExchangeArg, ScaleArgs, tensor};
use crate::console::{Console, Outcome, Status};
use crate::source::{Source, check_bound};
use crate::table::{Table, grouped};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use wengert::core::Mesh;
use wengert::core::graph::{Function, InputRole};
use wengert::ranks::{Sharding, TensorParallel};
use wengert::scale::{Exchange, Machine, Prediction, Request};
use wengert::{Binding, Recipe, diagnostic, target};

/// Compiles the step of a rank, and prints what it takes.
pub fn run(args: &ScaleArgs, console: &mut Console<'_>) -> Outcome {
    let (data, tensor) = ranks(args)?;
    let machine = Machine::read(&args.machine)?;
    let target = target(&machine.target)
        .map_err(|error| error.context(format_args!("`{}`", args.machine.display())))?;
    let source = Source::of(&args.function, console)?.in_precision(&args.precision)?;
    let program = &source.file()?.program;
    let of_recipe = source.file()?.recipe.as_ref();
    let function = match (source.selected(), of_recipe) {
        (None, Some(recipe)) => program.get(&recipe.step.function)?,
        _ => source.function()?,
    };
    // The recipe says nothing of other functions.
    let of_recipe = of_recipe.filter(|recipe| recipe.step.function == function.name);
    let examples = examples(args, function, of_recipe)?;
    let mut binding = source.binding(&args.function.binds)?;
    if let Some(recipe) = of_recipe {
        bind_batch(&mut binding, function, &examples, recipe)?;
    }
    source.functions(&binding)?;
    check_bound(function, &binding)?;
    let bound = function.bind(&binding)?;
    let request = Request {
        function: &bound,
        examples,
        data,
        tensor: tensor.as_ref(),
        microbatches: args.microbatches.map_or(data, |count| count as usize),
        sharding: Sharding::ALL[usize::from(args.zero)],
        exchange: match args.exchange {
            ExchangeArg::Hierarchical => Exchange::Hierarchical,
            ExchangeArg::Direct => Exchange::Direct,
        },
        machine: &machine,
        target,
    };
    let prediction = request.predict()?;
    if args.json {
        console.line(to_json(&request, &prediction, args.zero)?)?;
        return Ok(Status::Good);
    }
    console.line(text(&request, &prediction, args.zero)?.trim_end())?;
    let assumed = machine.assumptions();
    if !assumed.is_empty() {
        let names: Vec<String> = assumed.into_iter().map(|(name, _)| name).collect();
        console.note(format_args!("figures without a published source: {}", names.join("; ")));
    }
    Ok(Status::Good)
}

/// The number of parts of the batch, and the request for tensor parallelism, of a mesh such as
/// `data=64,tensor=8`.
fn ranks(args: &ScaleArgs) -> Outcome<(usize, Option<TensorParallel>)> {
    let text = &args.mesh;
    let axes = text.split(',').map(|axis| {
        let (name, extent) = axis.split_once('=')?;
        Some((name.trim(), extent.trim().parse::<usize>().ok()?))
    });
    let Some(axes) = axes.collect::<Option<Vec<(&str, usize)>>>() else {
        return Err(diagnostic!("`--mesh {text}` is no list of axes with their extents")
            .help("write --mesh data=64, or --mesh data=64,tensor=8")
            .into());
    };
    Mesh::new(axes.iter().copied())
        .map_err(|error| error.context(format_args!("`--mesh {text}`")))?;
    let (data, shared) = match axes[..] {
        [("data", data)] => (data, None),
        [("tensor", shared)] => (1, Some(shared)),
        [("data", data), ("tensor", shared)] => (data, Some(shared)),
        _ => {
            return Err(diagnostic!(
                "`--mesh {text}` has other axes than `data` and then `tensor`"
            )
            .help(
                "ranks share examples along `data`, and neighbours share products along \
                 `tensor`: write --mesh data=64,tensor=8",
            )
            .into());
        }
    };
    match (shared, &args.tensor_axis[..]) {
        (None, []) => Ok((data, None)),
        (None, _) => Err(diagnostic!("`--tensor-axis`, and `--mesh {text}` has no axis `tensor`")
            .help(format!("write --mesh {text},tensor=8"))
            .into()),
        (Some(_), []) => Err(diagnostic!("`--mesh {text}` does not say what `tensor` divides")
            .help("name variables and their axes: --tensor-axis 'model.*.mlp.0.weight=1'")
            .into()),
        (Some(shared), divided) => Ok((data, Some(tensor(shared, divided)?))),
    }
}

/// The inputs with examples.
fn examples(
    args: &ScaleArgs,
    function: &Function,
    recipe: Option<&Recipe>,
) -> Outcome<Vec<String>> {
    if !args.examples.is_empty() {
        return Ok(args.examples.clone());
    }
    let names: Vec<String> = match recipe {
        Some(recipe) => recipe.step.inputs.iter().map(|input| input.input.clone()).collect(),
        None => {
            let inputs = function.inputs.iter().filter(|input| input.role == InputRole::Input);
            inputs.map(|input| input.name.clone()).collect()
        }
    };
    if names.is_empty() {
        return Err(diagnostic!(
            "@{} has no input that could hold examples: all are variables or keys",
            function.name
        )
        .help("ranks share the examples of a batch; give a training step whose batch is an input")
        .into());
    }
    Ok(names)
}

/// Binds the first extents of inputs with examples to the recipe's batch size, if they are
/// variables that nothing binds yet.
fn bind_batch(
    binding: &mut Binding,
    function: &Function,
    examples: &[String],
    recipe: &Recipe,
) -> Outcome<()> {
    let variables = function.variables();
    for name in examples {
        let Some(index) = function.input_index(name) else { continue };
        let first = function.input_type(index).shape.first().map(ToString::to_string);
        let open = first.filter(|dim| variables.contains(dim.as_str()));
        if let Some(variable) = open.filter(|variable| binding.get(variable).is_none()) {
            let size = i64::try_from(recipe.batches.size).map_err(|_| {
                diagnostic!("the recipe's batch of {} examples", recipe.batches.size)
            })?;
            binding.insert(&variable, size)?;
        }
    }
    Ok(())
}

fn text(request: &Request<'_>, prediction: &Prediction, zero: u8) -> Outcome<String> {
    let Request { machine, microbatches, .. } = request;
    let mesh = request.mesh()?;
    let mut text = format!(
        "@{} on {mesh}, {}, {}; ZeRO stage {zero}; plan for {}\n",
        request.function.name,
        machine.name,
        match microbatches {
            1 => "1 microbatch".to_owned(),
            count => format!("{count} microbatches"),
        },
        machine.target,
    );
    if mesh.ranks() > 1 && machine.target != "cpu" {
        text += "collectives have not run on GPUs yet: they are those of the plan, not of a run\n";
    }
    text += &format!("\n{}", memory(request, prediction));
    if mesh.ranks() > 1 {
        text += &format!("\n{}", transfers(request, prediction, mesh.axes().len() > 1));
    }
    text += &format!("\n{}", kernels(prediction));
    text += &format!("\n{}", times(prediction));
    Ok(text)
}

fn memory(request: &Request<'_>, prediction: &Prediction) -> String {
    let mut table = Table::new(1, ["memory of a rank", "bytes"]);
    let mut row = |name: &str, bytes: u64| table.row([name.to_owned(), grouped(bytes)]);
    let memory = &prediction.memory;
    let account = &memory.account;
    match &memory.state {
        Some(state) => {
            row("parameters", state.parameters);
            row("states of the optimiser", state.optimizer);
        }
        None => row("variables", account.parameters + account.state),
    }
    row("inputs and outputs", account.inputs + account.outputs);
    row("constants", account.constants);
    row("arena: activations, gradients, temporaries", account.arena);
    row("all", account.total());
    if let Some(state) = &memory.state {
        row("gradients summed in the step (in the arena)", state.gradients);
        row("further sums over the ranks (in the arena)", state.other_sums);
        row("sums that live at the arena's peak", memory.sums_at_peak);
        row("parameters, states and gradients", state.total());
    }
    let share = 100.0 * account.total() as f64 / request.machine.memory.bytes.value;
    let fits = if share <= 100.0 { "" } else { ": it does not fit" };
    format!("{table}{share:.1} % of the memory of {}{fits}\n", request.machine.card)
}

fn transfers(request: &Request<'_>, prediction: &Prediction, has_axes: bool) -> String {
    let sent: Vec<String> = prediction.links.iter().map(|link| format!("{link}, sent")).collect();
    let header = ["collective", "times", "bytes of tensors"].into_iter();
    let header = header.chain(sent.iter().map(String::as_str)).chain(["ms"]);
    let mut table = Table::new(1, header);
    let row = |name: &str, count: f64, bytes: f64, sent: &[f64], seconds: f64| -> Vec<String> {
        let whole = |x: f64| grouped(x.round() as u64);
        let mut cells = vec![name.to_owned(), whole(count), whole(bytes)];
        cells.extend(sent.iter().map(|bytes| whole(*bytes)));
        cells.push(format!("{:.3}", 1e3 * seconds));
        cells
    };
    let mut all = vec![0.0; prediction.links.len()];
    for t in &prediction.transfers {
        all.iter_mut().zip(&t.sent).for_each(|(sum, sent)| *sum += sent);
        let over = if has_axes { format!(" over {}", t.over.join(", ")) } else { String::new() };
        let name = format!("{}{over}", t.kind.name());
        table.row(row(&name, t.count, t.bytes, &t.sent, t.seconds));
    }
    let (count, bytes) = prediction
        .transfers
        .iter()
        .fold((0.0, 0.0), |(count, bytes), t| (count + t.count, bytes + t.bytes));
    table.row(row("all", count, bytes, &all, prediction.transfer()));
    format!("{table}exchanges are {}; a rank receives what it sends\n", request.exchange.name())
}

fn kernels(prediction: &Prediction) -> String {
    let header = ["kernels of a rank", "times", "GFLOP", "MB", "ms", "TFLOP/s"];
    let mut table = Table::new(1, header);
    for (kind, k) in &prediction.work.kernels {
        let rate = if k.seconds > 0.0 { k.operations / k.seconds / 1e12 } else { 0.0 };
        table.row([
            kind.to_string(),
            grouped(k.count.round() as u64),
            format!("{:.3}", k.operations / 1e9),
            format!("{:.3}", k.bytes / 1e6),
            format!("{:.3}", 1e3 * k.seconds),
            format!("{rate:.1}"),
        ]);
    }
    table.to_string()
}

fn times(prediction: &Prediction) -> String {
    let mut table = Table::new(1, ["time of a step", "ms", "examples/s", "tokens/s", "efficiency"]);
    let ms = |seconds: f64| format!("{:.3}", 1e3 * seconds);
    let part = |name: &str, seconds: f64| {
        [name.to_owned(), ms(seconds), String::new(), String::new(), String::new()]
    };
    table.row(part("computation", prediction.computation()));
    table.row(part("transfers", prediction.transfer()));
    for (name, overlapped) in [("step", false), ("with perfect overlap", true)] {
        let seconds = prediction.step(overlapped);
        let tokens = prediction.tokens.map(|n| format!("{:.0}", n as f64 / seconds));
        table.row([
            name.to_owned(),
            ms(seconds),
            format!("{:.0}", prediction.examples as f64 / seconds),
            tokens.unwrap_or_default(),
            format!("{:.1} %", 100.0 * prediction.efficiency(overlapped)),
        ]);
    }
    table.row(part("one rank alone, the same step", prediction.alone));
    format!("{table}transfers do not overlap with kernels: the row `step` is this runtime's\n")
}

fn to_json(request: &Request<'_>, prediction: &Prediction, zero: u8) -> Outcome<Value> {
    let Prediction { memory, .. } = prediction;
    let account = &memory.account;
    let state = memory.state.map(|state| {
        json!({
            "parameters": state.parameters,
            "optimizer": state.optimizer,
            "gradients": state.gradients,
            "other_sums": state.other_sums,
            "total": state.total(),
        })
    });
    let transfers = prediction.transfers.iter().map(|t| {
        let sent = prediction.links.iter().zip(&t.sent);
        let sent: Vec<Value> =
            sent.map(|(link, bytes)| json!({ "link": link, "bytes": bytes })).collect();
        json!({
            "collective": t.kind.name(),
            "over": t.over,
            "times": t.count,
            "bytes": t.bytes,
            "sent": sent,
            "seconds": t.seconds,
        })
    });
    let kernels = prediction.work.kernels.iter().map(|(kind, k)| {
        json!({
            "kind": kind.to_string(),
            "times": k.count,
            "operations": k.operations,
            "bytes": k.bytes,
            "seconds": k.seconds,
        })
    });
    let step = |overlapped: bool| {
        let seconds = prediction.step(overlapped);
        json!({
            "seconds": seconds,
            "examples_per_second": prediction.examples as f64 / seconds,
            "tokens_per_second": prediction.tokens.map(|n| n as f64 / seconds),
            "efficiency": prediction.efficiency(overlapped),
        })
    };
    let assumed = request.machine.assumptions().into_iter().map(
        |(name, figure)| json!({ "figure": name, "value": figure.value, "reason": figure.source }),
    );
    let mesh = request.mesh()?;
    let mesh: BTreeMap<&str, usize> =
        mesh.axes().iter().map(|(axis, extent)| (&**axis, *extent)).collect();
    Ok(json!({
        "function": request.function.name,
        "machine": request.machine.name,
        "target": request.machine.target,
        "mesh": mesh,
        "microbatches": request.microbatches,
        "zero": zero,
        "exchange": request.exchange.name(),
        "memory": {
            "state": state,
            "variables": account.parameters + account.state,
            "inputs": account.inputs,
            "outputs": account.outputs,
            "constants": account.constants,
            "arena": account.arena,
            "sums_at_peak": memory.sums_at_peak,
            "total": account.total(),
            "capacity": request.machine.memory.bytes.value,
        },
        "transfers": transfers.collect::<Vec<_>>(),
        "kernels": kernels.collect::<Vec<_>>(),
        "computation_seconds": prediction.computation(),
        "transfer_seconds": prediction.transfer(),
        "step": step(false),
        "perfect_overlap": step(true),
        "alone_seconds": prediction.alone,
        "assumed": assumed.collect::<Vec<_>>(),
    }))
}
