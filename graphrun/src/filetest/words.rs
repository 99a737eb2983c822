//! Splits directives into arguments.

use wengert::Diagnostic;

/// Splits a directive at blanks, except within single or double quotes, as a shell does.
pub fn words(line: &str) -> Result<Vec<String>, Diagnostic> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars() {
        match quote {
            Some(q) if c == q => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if c == '\'' || c == '"' => {
                word.get_or_insert_default();
                quote = Some(c);
            }
            None if c.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err(Diagnostic::new("a quote is not closed"));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn quotes_hold_words_together() {
        assert_eq!(
            words("run  %s --input 'x=2xf32=1 2' a\"b c\"d ''").unwrap(),
            ["run", "%s", "--input", "x=2xf32=1 2", "ab cd", ""]
        );
        assert!(words("run 'x").is_err());
        assert!(words("  ").unwrap().is_empty());
    }
}
