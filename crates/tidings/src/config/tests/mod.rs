//! The configuration as its users see it: texts in, values or sentences out.

mod environment;
mod example;
mod limits;
mod lists;
mod problems;
mod reload;
mod secrets;

use super::{Config, Problems};

fn variables(list: &[(&str, &str)]) -> impl Iterator<Item = (String, String)> {
    list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect::<Vec<_>>().into_iter()
}

fn good(text: &str) -> Config {
    Config::parse(text, variables(&[])).unwrap_or_else(|problems| panic!("{problems}"))
}

fn bad(text: &str) -> Problems {
    Config::parse(text, variables(&[])).expect_err("this should not pass")
}

/// The whole report of a text that is wrong.
fn check(text: &str, expected: &[&str]) {
    let report = bad(text).to_string();
    assert_eq!(report.lines().collect::<Vec<_>>(), expected, "of\n{text}");
}
