//! What is wrong with a configuration: every problem, each with its place, its key and one sentence.

use std::fmt;

use serde::Serialize;

/// Where a key was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// Both counted from 1; the column counts characters.
    File {
        line: usize,
        column: usize,
    },
    Variable(String),
}

/// One problem. Sentences never contain a secret's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
    /// The environment variable that holds the problem, if it is not in the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variable: Option<String>,
    /// The key's path, `limits.body_bytes` or `rules[2].name`; empty where no key is concerned.
    pub key: String,
    /// The whole sentence, key and suggestion included.
    pub message: String,
    /// The key or value that was probably meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
}

impl Problem {
    pub(super) fn new(place: Option<&Place>, key: impl Into<String>, message: impl Into<String>) -> Self {
        let (line, column, variable) = match place {
            Some(Place::File { line, column }) => (Some(*line), Some(*column), None),
            Some(Place::Variable(name)) => (None, None, Some(name.clone())),
            None => (None, None, None),
        };
        Self { line, column, variable, key: key.into(), message: message.into(), suggestion: None }
    }

    /// One that is not in the configuration itself, but in what a key of it leads to.
    #[must_use]
    pub fn beyond(key: &str, message: String) -> Self {
        Self::new(None, key, message)
    }
}

/// A value in a sentence: in quotes, and cut where it would bury the sentence.
pub(super) fn quote(text: &str) -> String {
    const LONGEST: usize = 80;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{:?}…", text.get(..end).unwrap_or(text)),
        None => format!("{text:?}"),
    }
}

/// Everything that is wrong with one configuration, in the order of the file, then of the environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problems {
    /// The file's name as the user gave it.
    pub file: String,
    pub problems: Vec<Problem>,
}

impl Problems {
    #[must_use]
    pub fn new(file: &str, mut problems: Vec<Problem>) -> Self {
        problems.sort_by(|a, b| {
            // Problems without a line belong to the environment and come last.
            let place = |problem: &Problem| (problem.line.unwrap_or(usize::MAX), problem.column.unwrap_or(usize::MAX));
            place(a).cmp(&place(b)).then_with(|| a.variable.cmp(&b.variable))
        });
        Self { file: file.to_owned(), problems }
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.problems.iter()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.problems.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }
}

impl<'a> IntoIterator for &'a Problems {
    type Item = &'a Problem;
    type IntoIter = std::slice::Iter<'a, Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Problems {
    /// One problem per line: `FILE:LINE: sentence` or `VARIABLE: sentence`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                writeln!(formatter)?;
            }
            match (&problem.variable, problem.line) {
                (Some(variable), _) => write!(formatter, "{variable}: {}", problem.message)?,
                (None, Some(line)) => write!(formatter, "{}:{line}: {}", self.file, problem.message)?,
                (None, None) => write!(formatter, "{}: {}", self.file, problem.message)?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
