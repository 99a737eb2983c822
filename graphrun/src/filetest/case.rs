//! Cases of a file.

/// A part of a file between lines `// ---`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// Number of its first line in the file, counted from 1.
    pub line: usize,
    /// Its whole text, without the `// ---`.
    pub text: String,
    /// The directives, `run %s`.
    pub directives: Vec<String>,
    /// The line of the file with `// error: `, and the message after it.
    pub error: Option<(usize, String)>,
    /// The expected output; `None` if there is no such block.
    pub expected: Option<String>,
}

const SEPARATOR: &str = "// ---";
const DIRECTIVE: &str = "// test:";
const EXPECT: &str = "// expect:";

/// The cases of a file.
pub fn split(text: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut begin = 1;
    let mut lines: Vec<&str> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_end() == SEPARATOR {
            cases.push(Case::new(begin, &lines));
            begin = number + 1;
            lines.clear();
        } else {
            lines.push(line);
        }
    }
    cases.push(Case::new(begin, &lines));
    cases
}

/// Joins cases to the text of a file.
pub fn join(cases: &[Case]) -> String {
    let texts: Vec<&str> = cases.iter().map(|c| c.text.as_str()).collect();
    texts.join(&format!("{SEPARATOR}\n"))
}

impl Case {
    fn new(line: usize, lines: &[&str]) -> Case {
        let at = lines.iter().position(|l| l.trim_end() == EXPECT);
        let expected = at.map(|at| lines[at + 1..].iter().map(|l| uncomment(l) + "\n").collect());
        let code = &lines[..at.unwrap_or(lines.len())];
        let directives =
            code.iter().filter_map(|l| l.strip_prefix(DIRECTIVE)).map(|d| d.trim().to_string());
        let error = code.iter().zip(line..).find_map(|(l, number)| {
            let (_, message) = l.split_once("// error: ")?;
            Some((number, message.trim_end().to_string()))
        });
        let directives = directives.collect();
        let text = lines.iter().map(|l| format!("{l}\n")).collect();
        Case { line, text, directives, error, expected }
    }

    /// The tested text, which is the file `%s`: lines keep their numbers in the file, and
    /// expectations are removed.
    pub fn input(&self) -> String {
        let code = self.text.lines().take_while(|l| l.trim_end() != EXPECT);
        "\n".repeat(self.line - 1) + &code.map(|l| format!("{l}\n")).collect::<String>()
    }

    /// The case with another expected output.
    #[must_use]
    pub fn bless(&self, output: &str) -> Case {
        let code: Vec<&str> = self.text.lines().take_while(|l| l.trim_end() != EXPECT).collect();
        let mut text = code.join("\n").trim_end().to_string() + "\n\n" + EXPECT + "\n";
        for line in output.lines() {
            text += &format!("// {line}");
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        Case::new(self.line, &text.lines().collect::<Vec<_>>())
    }
}

fn uncomment(line: &str) -> String {
    let line = line.strip_prefix("//").unwrap_or(line);
    line.strip_prefix(' ').unwrap_or(line).trim_end().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "// test: dump %s\n// test: check %s\nfunc\n\
                        // expect:\n// func\n//\n\
                        //   x\n// ---\nbad // error: no `bad`\n";

    #[test]
    fn cases_have_their_parts() {
        let cases = split(FILE);
        assert_eq!(cases.len(), 2);
        assert_eq!(cases[0].directives, ["dump %s", "check %s"]);
        assert_eq!(cases[0].expected.as_deref(), Some("func\n\n  x\n"));
        assert_eq!(cases[1].error, Some((9, "no `bad`".into())));
        assert!(cases[1].input().ends_with("\n\nbad // error: no `bad`\n"));
        assert_eq!(cases[1].input().lines().count(), 9);
        assert!(!cases[0].input().contains("expect"));
    }

    #[test]
    fn files_are_put_together_as_they_were() {
        assert_eq!(join(&split(FILE)), FILE);
        assert_eq!(join(&split("a\n")), "a\n");
    }

    #[test]
    fn a_blessed_case_expects_what_was_put_out() {
        let case = split(FILE).remove(0).bless("new\n\n  y\n");
        assert_eq!(case.expected.as_deref(), Some("new\n\n  y\n"));
        assert!(case.text.ends_with("func\n\n// expect:\n// new\n//\n//   y\n"), "{}", case.text);
        assert_eq!(case.bless("new\n\n  y\n"), case);
    }
}
