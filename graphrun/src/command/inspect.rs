//! `graphrun inspect`: what is in a file. Functions with their signatures and sizes, and variables
//! as a tree of modules with shapes, parameters, bytes and operations.
//!
//! Operations are those of the kernels that are compiled for CPUs ([`Kernels::cost`]). The
//! operations of a module are those of the kernels that read its parameters, or values computed
//! from its parameters only. A kernel that reads parameters of several modules counts in the
//! innermost module that contains them.

use crate::cli::InspectArgs;
use crate::console::{Console, Outcome, Status};
use crate::module_tree::{Line, Variable, common, contains, lines};
use crate::source::{Contents, Source, bindings, part};
use crate::table::{Table, grouped};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use wengert::core::Target;
use wengert::core::graph::{Body, Function, InputRole, OutputRole};
use wengert::core::plan::account::{Account, AccountText, Bytes};
use wengert::core::plan::{Plan, account};
use wengert::data::safetensors::SafetensorsFile;
use wengert::kernels::Kernels;
use wengert::kernels::cost::Cost;
use wengert::pipeline::{Bound, Options, compile_kernels, plan_kernels};
use wengert::signature::Signature;
use wengert::{Binding, Diagnostic, GraphFile, TensorType, Weights, diagnostic};

/// The most functions whose operations are columns of the tree.
const COLUMNS: usize = 4;

/// Prints the contents of the file.
pub fn run(args: &InspectArgs, console: &mut Console<'_>) -> Outcome {
    let path = Path::new(&args.file);
    let contents = if path.extension().is_some_and(|e| e == "safetensors") {
        if !args.binds.is_empty() {
            return Err(diagnostic!("`{}` has no dimension variables", path.display())
                .help("--bind goes with a .graph or .ir file")
                .into());
        }
        of_tensors(path)?
    } else {
        let source = Source::read(&args.file, console)?;
        match &source.contents {
            Contents::Program(file) => of_program(&source, file, &args.binds)?,
            Contents::Plan(_) if !args.binds.is_empty() => {
                return Err(diagnostic!(
                    "`{}` is compiled: its dimensions are numbers",
                    source.path.display()
                )
                .help("--bind goes with a .graph or .ir file")
                .into());
            }
            Contents::Plan(plans) => of_plans(&source.path, plans),
        }
    };
    match args.json {
        true => console.line(contents.json)?,
        false => console.text(contents.text)?,
    }
    Ok(Status::Good)
}

/// The contents of a file in both forms.
struct Shown {
    text: String,
    json: Value,
}

/// `13 variables of 28,831 elements (112.62 KiB)`.
fn totals(variables: &[Variable]) -> (String, u64, u64) {
    let sizes = || variables.iter().filter_map(|variable| variable.size);
    let elements = sizes().map(|size| size.0).fold(0, u64::saturating_add);
    let bytes = sizes().map(|size| size.1).fold(0, u64::saturating_add);
    let text = match variables.len() {
        0 => "no variables".into(),
        n => format!(
            "{} of {} ({})",
            counted(n, "variable"),
            counted(elements as usize, "element"),
            Bytes(bytes)
        ),
    };
    (text, elements, bytes)
}

fn counted(count: usize, what: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{} {what}{s}", grouped(count as u64))
}

/// The tree as a table. Each further column has a name, and the operations of kernels by the path
/// that they belong to; a count of 0 is blank.
fn tree(variables: &[Variable], columns: &[(String, &BTreeMap<String, u64>)]) -> String {
    if variables.is_empty() {
        return String::new();
    }
    let header = ["module", "type", "parameters", "bytes"].into_iter();
    let mut table = Table::new(2, header.chain(columns.iter().map(|(name, _)| name.as_str())));
    for line in lines(variables) {
        let operations =
            columns.iter().map(|(_, operations)| match below(operations, &line.path) {
                0 => String::new(),
                count => grouped(count),
            });
        let Line { depth, name, ty, elements, bytes, .. } = line;
        let (name, is_open) = (
            format!("{}{name}", "  ".repeat(depth)),
            ty.as_ref().is_some_and(|ty| ty.elements().is_none()),
        );
        let size = match is_open {
            true => ["?".into(), "?".into()],
            false => [grouped(elements), Bytes(bytes).to_string()],
        };
        let ty = ty.map_or(String::new(), |ty| ty.to_string());
        table.row([name, ty].into_iter().chain(size).chain(operations));
    }
    if !columns.is_empty() {
        let other = columns
            .iter()
            .map(|(_, operations)| grouped(operations.get("").copied().unwrap_or_default()));
        let name = ["(in no module)", "", "", ""].map(String::from);
        table.row(name.into_iter().chain(other));
    }
    let (_, elements, bytes) = totals(variables);
    let all = columns
        .iter()
        .map(|(_, operations)| grouped(operations.values().copied().fold(0, u64::saturating_add)));
    let total = ["total".into(), String::new(), grouped(elements), Bytes(bytes).to_string()];
    table.row(total.into_iter().chain(all));
    let note = match columns.is_empty() {
        true => "",
        false => "a function's column has the operations of kernels that read the parameters\n",
    };
    format!("\n{table}{note}")
}

/// The operations in a module.
fn below(operations: &BTreeMap<String, u64>, path: &str) -> u64 {
    let within = operations.iter().filter(|(place, _)| contains(path, place));
    within.map(|(_, count)| *count).fold(0, u64::saturating_add)
}

fn variables_json(variables: &[Variable]) -> Value {
    let one = |variable: &Variable| {
        json!({
            "name": variable.name,
            "type": variable.ty.to_string(),
            "parameters": variable.size.map(|size| size.0),
            "bytes": variable.size.map(|size| size.1),
        })
    };
    variables.iter().map(one).collect()
}

fn modules_json(variables: &[Variable], columns: &[(String, &BTreeMap<String, u64>)]) -> Value {
    let one = |line: Line| {
        let operations: Map<String, Value> = columns
            .iter()
            .map(|(name, operations)| (name.clone(), json!(below(operations, &line.path))))
            .collect();
        json!({
            "path": line.path,
            "parameters": line.elements,
            "bytes": line.bytes,
            "operations": operations,
        })
    };
    let modules = lines(variables).into_iter().filter(|line| line.ty.is_none());
    modules.map(one).collect()
}

fn of_tensors(path: &Path) -> Outcome<Shown> {
    let file = SafetensorsFile::open(path)?;
    let mut names: Vec<&str> = file.names().collect();
    // `layers.2` comes before `layers.10`.
    names.sort_by_key(|name| {
        name.split('.')
            .map(|part| (part.parse::<u64>().map_or(u64::MAX, |n| n), part))
            .collect::<Vec<_>>()
    });
    let variables = names
        .into_iter()
        .map(|name| Ok(Variable::new(name, &file.ty(name)?)))
        .collect::<Outcome<Vec<_>>>()?;
    let (total, elements, bytes) = totals(&variables);
    let total = total.replace("variable", "tensor");
    Ok(Shown {
        text: format!("{}: {total}\n{}", path.display(), tree(&variables, &[])),
        json: json!({
            "variables": variables_json(&variables),
            "modules": modules_json(&variables, &[]),
            "parameters": elements,
            "bytes": bytes,
        }),
    })
}

fn of_plans(path: &Path, plans: &[impl std::ops::Deref<Target = Plan>]) -> Shown {
    let first: &Plan = &plans[0];
    let signature = Signature::of_plan(first);
    let variables = variables_of(&signature);
    let (total, elements, bytes) = totals(&variables);
    let binding = match first.binding.is_empty() {
        true => String::new(),
        false => format!(" with {}", first.binding),
    };
    let mut text = format!(
        "{}: {} of @{}{binding} for {}, {total}\n\n{}\n{}",
        path.display(),
        counted(plans.len(), "plan"),
        first.function,
        first.target.name,
        interface(&signature),
        tree(&variables, &[]),
    );
    let mut listed = Vec::new();
    for plan in plans {
        let memory = account(plan);
        let mut steps = 0usize;
        plan.visit(&mut |_| steps += 1);
        text += &format!("\n{}, {}", counted(steps, "step"), AccountText(plan, &memory));
        listed.push(json!({ "steps": steps, "memory": memory.total() }));
    }
    let json = json!({
        "functions": [interface_json(&signature)],
        "target": first.target.name.to_string(),
        "binding": binding_json(&first.binding),
        "plans": listed,
        "variables": variables_json(&variables),
        "modules": modules_json(&variables, &[]),
        "parameters": elements,
        "bytes": bytes,
    });
    Shown { text, json }
}

fn of_program(source: &Source, file: &GraphFile, binds: &[String]) -> Outcome<Shown> {
    let binding = bindings(binds)?;
    let functions = source.functions(&binding)?;
    let sizes: Vec<Sizes> =
        functions.iter().map(|function| Sizes::of(function, &binding)).collect();
    let variables = all_variables(&functions, &binding);
    let (total, elements, bytes) = totals(&variables);

    let recipe = if file.recipe.is_some() { ", a recipe" } else { "" };
    let weights = match &file.weights {
        Weights::None => String::new(),
        Weights::Inline(arrays) => format!(", weights ({})", counted(arrays.len(), "tensor")),
        Weights::File(name) => format!(", weights in `{name}`"),
    };
    let path = source.path.display();
    let count = counted(functions.len(), "function");
    let mut text = format!("{path}: {count}, {total}{recipe}{weights}\n");
    let open = open_dimensions(&functions);
    for (name, users) in &open {
        let users: Vec<String> = users.iter().map(|user| format!("@{user}")).collect();
        text += &format!("dimension variable {name}: in {}\n", users.join(", "));
    }

    let mut table = Table::new(1, ["function", "equations", "kernels", "operations", "memory"]);
    let mut assumed = Binding::new();
    let mut notes = String::new();
    for (function, size) in functions.iter().zip(&sizes) {
        size.assumed.iter().for_each(|(name, value)| {
            // Every value is 1, so the names cannot conflict.
            let _ = assumed.insert(name, value);
        });
        let measured = match &size.compiled {
            Ok(compiled) => [
                grouped(compiled.kernels as u64),
                grouped(compiled.operations()),
                Bytes(compiled.memory).to_string(),
            ],
            Err(error) => {
                notes += &format!("@{} cannot be measured: {error}\n", function.name);
                ["?", "?", "?"].map(String::from)
            }
        };
        let name = [format!("@{}", function.name), grouped(size.equations as u64)];
        table.row(name.into_iter().chain(measured));
    }
    text += &format!("\n{table}");
    if !assumed.is_empty() {
        let names: Vec<String> = assumed.iter().map(|(name, n)| format!("{name}={n}")).collect();
        text += &format!(
            "sizes are for {}; choose others by `--bind {}=NUMBER`\n",
            names.join(", "),
            assumed.iter().next().map_or("", |(name, _)| name)
        );
    }
    text += &notes;
    text += "\n";
    for function in &functions {
        text += &format!("{}\n", interface(&Signature::of_function(function)));
    }

    let with_modules = functions.iter().zip(&sizes).filter_map(|(function, size)| {
        let takes = function.inputs.iter().any(is_variable);
        let compiled = size.compiled.as_ref().ok().filter(|_| takes)?;
        Some((function.name.clone(), &compiled.by_module))
    });
    let columns: Vec<_> = with_modules.collect();
    let marked: Vec<_> =
        columns.iter().map(|(name, counts)| (format!("@{name}"), *counts)).collect();
    match columns.len() {
        ..=COLUMNS => text += &tree(&variables, &marked),
        _ => {
            text += &tree(&variables, &[]);
            text += &format!("operations of modules: `graphrun inspect {path}@FUNC`\n");
        }
    }

    let functions_json: Vec<Value> = functions
        .iter()
        .zip(&sizes)
        .map(|(function, size)| {
            let mut object = interface_json(&Signature::of_function(function));
            object["equations"] = json!(size.equations);
            match &size.compiled {
                Ok(compiled) => {
                    object["kernels"] = json!(compiled.kernels);
                    object["operations"] = json!(compiled.operations());
                    object["memory"] = json!(compiled.memory);
                }
                Err(error) => object["error"] = json!(error.message),
            }
            object
        })
        .collect();
    let dimensions: Map<String, Value> =
        open.iter().map(|(name, users)| (name.clone(), json!(users))).collect();
    let chosen = binding.iter().fold(assumed, |all, (name, n)| all.with(name, n));
    let json = json!({
        "functions": functions_json,
        "dimensions": dimensions,
        "binding": binding_json(&chosen),
        "variables": variables_json(&variables),
        "modules": modules_json(&variables, &columns),
        "parameters": elements,
        "bytes": bytes,
        "recipe": file.recipe.is_some(),
    });
    Ok(Shown { text, json })
}

/// The sizes of a function.
struct Sizes {
    equations: usize,
    /// Values that were assumed for dimension variables.
    assumed: Binding,
    compiled: Result<Compiled, Diagnostic>,
}

/// The sizes of a compiled function.
struct Compiled {
    kernels: usize,
    /// Bytes of all memory that its plan names.
    memory: u64,
    /// Operations by the innermost module of the parameters; under the empty name, those of
    /// kernels without one.
    by_module: BTreeMap<String, u64>,
}

impl Compiled {
    fn operations(&self) -> u64 {
        self.by_module.values().copied().fold(0, u64::saturating_add)
    }
}

impl Sizes {
    fn of(function: &Function, binding: &Binding) -> Sizes {
        let binding = part(binding, function);
        let open = function.variables();
        let assumed = open
            .iter()
            .filter(|name| binding.get(name).is_none())
            .fold(Binding::new(), |assumed, name| assumed.with(name, 1));
        let all = assumed.iter().fold(binding, |all, (name, value)| all.with(name, value));
        let callees = function.body.callees();
        let called: usize = callees.iter().map(|callee| equations(callee.body)).sum();
        let equations = equations(&function.body) + called;
        Sizes { equations, assumed, compiled: compile(function, &all) }
    }
}

fn compile(function: &Function, binding: &Binding) -> Result<Compiled, Diagnostic> {
    let bound = Bound::new(function, binding)?;
    let target = Target::cpu();
    let kernels = compile_kernels(&bound.function, &target, &Options::default())?.kernels;
    let plan = plan_kernels(&kernels, &target, binding, None)?.plan;
    Ok(Compiled {
        kernels: kernels.kernels.len(),
        memory: Account::sizes(&plan).total(),
        by_module: by_module(&kernels),
    })
}

/// Equations of a body and of the regions in it, without those of called functions.
fn equations(body: &Body) -> usize {
    let within = body.equations.iter().filter(|equation| equation.op.callee().is_none());
    let regions = within.flat_map(|equation| &equation.regions);
    body.equations.len() + regions.map(|region| equations(region)).sum::<usize>()
}

/// The operations of each module.
fn by_module(kernels: &Kernels) -> BTreeMap<String, u64> {
    // The module of each buffer that depends on parameters only.
    let mut modules: BTreeMap<_, String> = kernels
        .inputs
        .iter()
        .filter(|(input, _)| is_variable(input))
        .map(|(input, buffer)| (*buffer, input.name.clone()))
        .collect();
    let mut counts = BTreeMap::new();
    for kernel in &kernels.kernels {
        let mut module: Option<&str> = None;
        for read in kernel.reads.iter().filter_map(|read| modules.get(read)) {
            module = Some(module.map_or(read.as_str(), |module| common(module, read)));
        }
        let module = module.unwrap_or_default().to_owned();
        let only_parameters =
            !kernel.reads.is_empty() && kernel.reads.iter().all(|read| modules.contains_key(read));
        let Cost { operations, .. } = kernels.cost(kernel);
        let count: &mut u64 = counts.entry(module.clone()).or_default();
        *count = count.saturating_add(operations);
        if only_parameters {
            modules.extend(kernel.writes.iter().map(|write| (*write, module.clone())));
        }
    }
    counts
}

fn is_variable(input: &wengert::core::graph::Input) -> bool {
    matches!(input.role, InputRole::Param | InputRole::State)
}

/// The dimension variables, and the functions that have each.
fn open_dimensions(functions: &[&Function]) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for function in functions {
        for name in function.variables() {
            found.entry(name.to_string()).or_default().push(function.name.clone());
        }
    }
    found
}

/// The variables that functions take or create, in the order of their first occurrence.
fn all_variables(functions: &[&Function], binding: &Binding) -> Vec<Variable> {
    let mut seen = BTreeSet::new();
    let signatures = functions.iter().map(|function| Signature::of_function(function));
    let all: Vec<Variable> = signatures.flat_map(|signature| variables_of(&signature)).collect();
    all.into_iter()
        .filter(|variable| seen.insert(variable.name.clone()))
        .map(|variable| match variable.ty.bind(binding) {
            Ok(ty) => Variable::new(&variable.name, &ty),
            Err(_) => variable,
        })
        .collect()
}

fn variables_of(signature: &Signature) -> Vec<Variable> {
    let taken = signature.inputs.iter().filter(|input| input.is_variable());
    let taken = taken.map(|input| Variable::new(&input.name, &input.ty));
    let created = signature.outputs.iter().filter(|output| output.role == OutputRole::State);
    let mut found: Vec<Variable> = taken.collect();
    for output in created {
        if !found.iter().any(|variable| variable.name == output.name) {
            found.push(Variable::new(&output.name, &output.ty));
        }
    }
    found
}

/// `@predict(x: f32[B,64]) -> (y: f32[B,10]), reads 4 variables`.
fn interface(signature: &Signature) -> String {
    let typed = |name: &str, ty: &TensorType| format!("{name}: {ty}");
    let inputs: Vec<String> = signature
        .inputs
        .iter()
        .filter(|input| !input.is_variable())
        .map(|input| match input.role {
            InputRole::Key => format!("key {}", typed(&input.name, &input.ty)),
            _ => typed(&input.name, &input.ty),
        })
        .collect();
    let returned = signature.outputs.iter().filter(|output| output.role == OutputRole::Output);
    let outputs: Vec<String> = returned.map(|output| typed(&output.name, &output.ty)).collect();
    let is_taken = |name: &str| signature.inputs.iter().any(|input| input.name == name);
    let role = |role| signature.inputs.iter().filter(|input| input.role == role).count();
    let created = signature
        .outputs
        .iter()
        .filter(|output| output.role == OutputRole::State && !is_taken(&output.name))
        .count();
    let uses: String = [
        ("reads", role(InputRole::Param)),
        ("updates", role(InputRole::State)),
        ("creates", created),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0)
    .map(|(verb, count)| format!(", {verb} {}", counted(count, "variable")))
    .collect();
    format!("@{}({}) -> ({}){uses}", signature.name, inputs.join(", "), outputs.join(", "))
}

fn interface_json(signature: &Signature) -> Value {
    let inputs: Vec<Value> = signature
        .inputs
        .iter()
        .map(|i| json!({ "name": i.name, "role": i.role.name(), "type": i.ty.to_string() }))
        .collect();
    let role = |role| if role == OutputRole::State { "state" } else { "output" };
    let outputs: Vec<Value> = signature
        .outputs
        .iter()
        .map(|o| json!({ "name": o.name, "role": role(o.role), "type": o.ty.to_string() }))
        .collect();
    json!({ "name": signature.name, "inputs": inputs, "outputs": outputs })
}

fn binding_json(binding: &Binding) -> Map<String, Value> {
    binding.iter().map(|(name, value)| (name.to_owned(), json!(value))).collect()
}
