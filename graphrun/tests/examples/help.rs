//! Each line of the examples is run, as a shell would.

use crate::{copied, graphrun, prepared};
use graphrun::cli::examples::EXAMPLES;

/// The words of a line: quotes keep spaces and patterns from the shell.
fn words(line: &str) -> Vec<String> {
    let mut words: Vec<String> = vec![];
    let (mut quote, mut is_open) = (None, false);
    for c in line.chars() {
        match (quote, c) {
            (None, ' ') => is_open = false,
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            _ => {
                if !is_open {
                    words.push(String::new());
                    is_open = true;
                }
                words.last_mut().unwrap().push(c);
            }
        }
    }
    words
}

#[test]
fn each_example_works_as_typed() {
    let files = prepared();
    for (command, lines) in EXAMPLES {
        let place = copied(files.path());
        for line in *lines {
            let words = words(line);
            assert_eq!(words[0], "graphrun", "{line}");
            let arguments: Vec<&str> = words[1..].iter().map(String::as_str).collect();
            let ran = graphrun(place.path(), &arguments);
            assert_eq!(ran.status, 0, "{command}: {line}\n{}{}", ran.out, ran.err);
        }
    }
}

#[test]
fn quotes_keep_words_together() {
    assert_eq!(words("a --b \"--c 1\" 'r=2,*.w'"), ["a", "--b", "--c 1", "r=2,*.w"]);
}
