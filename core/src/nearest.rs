//! The most similar name to one that does not exist, for "did you mean".
//!
//! The measure is the edit distance (Levenshtein: insertions, deletions and replacements of
//! characters). A name is proposed if the distance is at most one plus a third of the wanted
//! name's length. Names with a greater distance are listed instead.

/// The name with the least distance, if that is within the limit. Of equal distances, the first
/// in alphabetical order.
pub fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = 1 + name.chars().count() / 3;
    let near = names.into_iter().map(|known| (distance(name, known), known));
    near.filter(|(distance, _)| *distance <= limit).min().map(|(_, known)| known)
}

/// The help for a name that does not exist: the most similar of `names`, or all of them. `what`
/// is their plural.
pub fn suggest(name: &str, names: &[&str], what: &str) -> String {
    match nearest(name, names.iter().copied()) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None if names.is_empty() => format!("there are no {what}"),
        None => format!("{what} are {}", names.join(", ")),
    }
}

/// Number of insertions, deletions and replacements that turn one name into the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_proposed_and_a_far_one_is_not() {
        let names = ["m.bias", "m.weight", "n.weight"];
        assert_eq!(nearest("m.wieght", names), Some("m.weight"));
        assert_eq!(nearest("weights", names), Some("m.weight"));
        assert_eq!(nearest("embedding", names), None);
        assert_eq!(suggest("m.wieght", &names, "variables"), "did you mean `m.weight`?");
        assert_eq!(suggest("x", &["alpha"], "inputs"), "inputs are alpha");
        assert_eq!(suggest("x", &[], "inputs"), "there are no inputs");
        assert_eq!(
            (distance("", "abc"), distance("abc", "abc"), distance("abc", "acb")),
            (3, 0, 2)
        );
    }
}
