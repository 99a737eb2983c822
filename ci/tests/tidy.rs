//! The policy holds for this repository, and each rule reports a planted offender.

use wengert_ci::rules::RULES;
use wengert_ci::sources;

#[test]
fn the_repository_is_tidy() {
    let all = sources::all();
    assert!(all.len() > 50, "the sources were found");
    let mut report = String::new();
    for rule in RULES {
        for place in (rule.find)(&all) {
            report.push_str(&format!("{}: {place}\n    ({})\n", rule.name, rule.reason));
        }
    }
    assert!(report.is_empty(), "\n{report}");
}

#[test]
fn every_rule_finds_its_offender() {
    for rule in RULES {
        let found = (rule.find)(&[(rule.offender)()]);
        assert!(!found.is_empty(), "{} finds nothing in its offender", rule.name);
    }
}
