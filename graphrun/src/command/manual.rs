//! `graphrun manual`: manual pages in roff, one for each command.

use crate::cli::{ManualArgs, examples};
use crate::console::{Console, Outcome, Status};
use clap::Command;
use clap_mangen::Man;
use wengert::{atomic, diagnostic};

/// Prints a page, or writes all of them.
pub fn run(args: &ManualArgs, console: &mut Console<'_>) -> Outcome {
    let mut root = examples::command();
    root.build();
    let pages = pages(&root, "graphrun");
    if let Some(folder) = &args.out {
        std::fs::create_dir_all(folder).map_err(|error| {
            diagnostic!("cannot make the folder `{}`: {error}", folder.display())
        })?;
        for (name, page) in &pages {
            let path = folder.join(format!("{name}.1"));
            atomic::write_bytes(&path, &text(page)?)?;
        }
        console.line(format_args!("{} pages written to {}", pages.len(), folder.display()))?;
        return Ok(Status::Good);
    }
    let name = match &args.command {
        Some(command) => format!("graphrun-{}", command.replace(' ', "-")),
        None => "graphrun".into(),
    };
    let Some((_, page)) = pages.iter().find(|(page, _)| *page == name) else {
        let command = args.command.as_deref().unwrap_or_default();
        return Err(diagnostic!("there is no command `{command}`")
            .help("`graphrun --help` lists the commands")
            .into());
    };
    console.text(String::from_utf8_lossy(&text(page)?))?;
    Ok(Status::Good)
}

/// The command and all below it, each with the name of its page.
fn pages(command: &Command, name: &str) -> Vec<(String, Command)> {
    let mut found = vec![(name.to_owned(), command.clone())];
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        found.extend(pages(below, &format!("{name}-{}", below.get_name())));
    }
    found
}

/// The page in roff.
fn text(command: &Command) -> Outcome<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page)?;
    Ok(page)
}
