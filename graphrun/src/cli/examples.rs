//! The examples at the end of each command's help. Each line works as typed in a folder with the
//! files of the example `digits` and a few others; a test runs them all
//! (`graphrun/tests/examples`), and another fails if a command has none.

use super::Cli;
use clap::{Command, CommandFactory};

/// Lines for each command, by the words that name it; those of graphrun itself have no words.
/// Lines of one command are run in turn, in one folder.
pub const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "graphrun inspect digits.graph",
            "graphrun train digits.graph --data digits.npz --epochs 2 --out runs/a",
            "graphrun run digits.graph@predict --params runs/a/weights.safetensors \
             --input x=@x.npy",
        ],
    ),
    (
        "run",
        &[
            "graphrun run digits.graph@predict --params digits.safetensors --input x=@x.npy",
            "graphrun run digits.graph@predict --params digits.safetensors --input x=@x.npy \
             --output y=y.npy",
            "graphrun run digits.graph@predict --params digits.safetensors --bind B=4 \
             --input x=random:1 --profile 10",
        ],
    ),
    (
        "train",
        &[
            "graphrun train digits.graph --data digits.npz --epochs 2 --out runs/a",
            "graphrun train digits.graph --data digits.npz --epochs 4 --out runs/a --resume",
            "graphrun train digits.graph --data digits.npz --steps 50 --out runs/b --tensorboard",
        ],
    ),
    ("evaluate", &["graphrun evaluate digits.graph --data digits.npz --params digits.safetensors"]),
    (
        "compile",
        &[
            "graphrun compile digits.graph@predict --bind B=4 -o predict.plan",
            "graphrun run predict.plan --params digits.safetensors --input x=random:1",
        ],
    ),
    (
        "inspect",
        &["graphrun inspect digits.graph --bind B=32", "graphrun inspect digits.safetensors"],
    ),
    (
        "import",
        &[
            "graphrun import model.onnx -o model.graph",
            "graphrun import model.onnx -o tuned.graph --train --loss cross_entropy",
        ],
    ),
    (
        "merge",
        &[
            "graphrun import model.onnx -o tuned.graph --train --loss cross_entropy \
             --lora 'r=2,h*.weight'",
            "graphrun train tuned.graph --data images.npz --steps 4 --out runs/lora",
            "graphrun merge tuned.graph --params runs/lora/weights.safetensors -o merged.graph",
        ],
    ),
    (
        "export",
        &["graphrun export digits.graph@predict --params digits.safetensors -o digits.onnx"],
    ),
    (
        "dump",
        &[
            "graphrun dump digits.graph@predict",
            "graphrun dump digits.graph@train_step --bind B=32 --stage nests --cost",
            "graphrun dump digits.graph@predict --bind B=32 --stage kernels --target sm_80 --cost",
        ],
    ),
    ("grad", &["graphrun grad digits.graph@loss --wrt model --of loss -o gradient.ir"]),
    ("jvp", &["graphrun jvp digits.graph@predict --wrt x,model -o tangents.ir"]),
    ("vmap", &["graphrun vmap digits.graph@predict --in x -o batched.ir"]),
    ("jacobian", &["graphrun jacobian digits.graph@predict --wrt model.out.bias -o jacobian.ir"]),
    ("hessian", &["graphrun hessian digits.graph@loss --wrt model.out.bias --of loss -o hess.ir"]),
    ("hvp", &["graphrun hvp digits.graph@loss --wrt model --of loss -o product.ir"]),
    ("jet", &["graphrun jet digits.graph@predict --wrt x --order 3 -o jet.ir"]),
    ("linearize", &["graphrun linearize digits.graph@predict --wrt x -o linear.ir"]),
    (
        "transpose",
        &[
            "graphrun linearize digits.graph@predict --wrt x -o linear.ir",
            "graphrun transpose linear.ir@predict_linear --wrt t_x -o transposed.ir",
        ],
    ),
    ("check", &["graphrun check digits.graph@predict --bind B=4 --params digits.safetensors"]),
    ("nan", &["graphrun nan digits.graph@loss --bind B=4 --params digits.safetensors"]),
    (
        "reduce",
        &[
            "graphrun reduce steps.ir --check --input 'x=4xf32=0.5 1 1.5 2' -o small.ir",
            "graphrun reduce steps.ir --cmd '! grep -q tanh {}' -o small.ir",
        ],
    ),
    (
        "diff",
        &[
            "graphrun compile digits.graph@predict --bind B=4 -o a.plan",
            "graphrun compile digits.graph@predict --bind B=4 -o b.plan",
            "graphrun diff a.plan b.plan",
        ],
    ),
    (
        "report",
        &[
            "graphrun train digits.graph --data digits.npz --steps 50 --out runs/a",
            "graphrun report digits.graph@train_step --bind B=32 --profile 10 --run runs/a \
             -o report.html",
        ],
    ),
    ("data", &["graphrun data inspect digits.npz"]),
    ("data inspect", &["graphrun data inspect digits.npz", "graphrun data inspect x.npy --json"]),
    (
        "precision",
        &["graphrun precision digits.graph@predict --params digits.safetensors \
             --input x=@x.npy --precision bf16"],
    ),
    ("test", &["graphrun test filetests"]),
    (
        "memory",
        &[
            "graphrun memory digits.graph@train_step --bind B=64 --frontier",
            "graphrun memory buffers.csv --minimize -o offsets.csv",
        ],
    ),
    ("ops", &["graphrun ops", "graphrun ops dot_general"]),
    ("devices", &["graphrun devices"]),
    ("profile", &["graphrun profile digits.graph@predict --bind B=4096 --machine h200"]),
    (
        "scale",
        &[
            "graphrun scale digits.graph --mesh data=8 --machine h100-sxm8",
            "graphrun scale digits.graph@train_step --bind B=64 --mesh data=64 --zero 3 \
             --machine h200-nvl8",
        ],
    ),
    (
        "bench",
        &[
            "graphrun bench digits.graph@predict --params digits.safetensors --input x=@x.npy",
            "graphrun bench digits.graph@train_step --bind B=32 --compare-with \"--threads 1\"",
            "graphrun bench digits.graph@predict --bind B=32 --compare digits.graph@loss",
        ],
    ),
    ("completions", &["graphrun completions bash"]),
    ("manual", &["graphrun manual run", "graphrun manual --out man/man1"]),
];

/// The command line, with the examples in the help of each command.
pub fn command() -> Command {
    with_examples(Cli::command(), "")
}

fn with_examples(mut command: Command, words: &str) -> Command {
    let names: Vec<String> =
        command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    for name in names {
        let words = format!("{words} {name}");
        command = command.mut_subcommand(&name, |below| with_examples(below, words.trim_start()));
    }
    let Some((_, lines)) = EXAMPLES.iter().find(|(of, _)| *of == words) else { return command };
    let title = if lines.len() == 1 { "Example" } else { "Examples" };
    let text = format!("{title}:\n  {}", lines.join("\n  "));
    let text = match command.get_after_help() {
        Some(after) => format!("{text}\n\n{after}"),
        None => text,
    };
    command.after_help(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of all commands, as words.
    fn all(command: &Command, words: &str, found: &mut Vec<String>) {
        found.push(words.to_owned());
        for below in command.get_subcommands() {
            all(below, format!("{words} {}", below.get_name()).trim_start(), found);
        }
    }

    /// Commands without an example, or whose help does not show it.
    fn without_example(command: &Command) -> Vec<String> {
        let mut names = vec![];
        all(command, "", &mut names);
        let shows = |name: &String| {
            let command = name.split_whitespace().fold(command, |command, word| {
                command.find_subcommand(word).expect("the names are from the command")
            });
            let help = command.clone().render_help().to_string();
            let lines = EXAMPLES.iter().find(|(of, _)| of == name).map(|(_, lines)| *lines);
            lines.is_some_and(|lines| {
                !lines.is_empty()
                    && lines.iter().all(|line| {
                        // The help may break a long line.
                        let words: Vec<&str> = line.split_whitespace().collect();
                        let help: Vec<&str> = help.split_whitespace().collect();
                        help.windows(words.len()).any(|window| window == words)
                    })
            })
        };
        names.retain(|name| !shows(name));
        names
    }

    #[test]
    fn each_command_has_an_example_in_its_help() {
        assert_eq!(without_example(&command()), [""; 0]);
        // A command that is not in the table is found, and one whose help lacks the lines.
        assert_eq!(without_example(&command().subcommand(Command::new("new"))), ["new"]);
        let muted = command().mut_subcommand("run", |run| run.after_help("nothing"));
        assert_eq!(without_example(&muted), ["run"]);
        let mut names = vec![];
        all(&Cli::command(), "", &mut names);
        let stale: Vec<_> =
            EXAMPLES.iter().filter(|(of, _)| !names.iter().any(|name| name == of)).collect();
        assert!(stale.is_empty(), "{stale:?}");
    }

    #[test]
    fn a_line_begins_with_the_command() {
        for (of, lines) in EXAMPLES {
            assert!(lines.iter().all(|line| line.starts_with("graphrun ")), "{of}");
            let own = format!("graphrun {of}");
            assert!(lines.iter().any(|line| line.starts_with(own.trim_end())), "{of}");
        }
    }
}
