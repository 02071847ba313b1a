//! Paths of the bus: `queue`, `topic/subscriptions/sub`, either followed by `/$deadletterqueue`.

use std::fmt;

/// The last part of the path of dead letters; its case does not count.
pub const DEAD_LETTERS: &str = "$deadletterqueue";

/// Characters of a name.
pub const NAME_CHARS: usize = 260;
/// Characters of a subscription's name.
pub const SUBSCRIPTION_CHARS: usize = 50;

/// What messages are received from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    pub entity: String,
    pub subscription: Option<String>,
    pub dead: bool,
}

impl Path {
    pub fn queue(name: impl Into<String>) -> Self {
        Self { entity: name.into(), subscription: None, dead: false }
    }

    pub fn subscription(topic: impl Into<String>, name: impl Into<String>) -> Self {
        Self { entity: topic.into(), subscription: Some(name.into()), dead: false }
    }

    /// The dead letters of the same.
    #[must_use]
    pub fn dead_letters(self) -> Self {
        Self { dead: true, ..self }
    }

    /// Reads a path as the API has it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts: Vec<&str> = text.trim_matches('/').split('/').collect();
        let dead = parts.last().is_some_and(|last| last.eq_ignore_ascii_case(DEAD_LETTERS));
        if dead {
            parts.pop();
        }
        let path = match parts.as_slice() {
            [entity] => Self::queue(*entity),
            [topic, word, name] if word.eq_ignore_ascii_case("subscriptions") => Self::subscription(*topic, *name),
            _ => return None,
        };
        Some(Self { dead, ..path })
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.entity)?;
        if let Some(subscription) = &self.subscription {
            write!(f, "/subscriptions/{subscription}")?;
        }
        if self.dead {
            write!(f, "/{DEAD_LETTERS}")?;
        }
        Ok(())
    }
}

/// Names are parts of paths: letters, digits, `_`, `-` and `.`.
///
/// # Errors
///
/// What is wrong with it.
pub fn check_name(name: &str, most: usize) -> Result<(), String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || name.len() > most || !name.chars().all(allowed) || !name.contains(|c| c != '.') {
        return Err(format!("must be 1 to {most} letters, digits, `_`, `-` or `.`, and not dots alone"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_and_written_back() {
        for (text, shown) in [
            ("q", "q"),
            ("q/$DeadLetterQueue", "q/$deadletterqueue"),
            ("t/Subscriptions/s", "t/subscriptions/s"),
            ("/t/subscriptions/s/$deadletterqueue", "t/subscriptions/s/$deadletterqueue"),
        ] {
            assert_eq!(Path::parse(text).unwrap().to_string(), shown);
        }
        for bad in ["a/b", "a/subscriptions", "a/b/c", "a/subscriptions/b/c"] {
            assert_eq!(Path::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn names_are_checked_at_their_limits() {
        for (name, good) in [
            ("a".repeat(260), true),
            ("a".repeat(261), false),
            (String::new(), false),
            ("..".to_owned(), false),
            ("a/b".to_owned(), false),
            ("ä".to_owned(), false),
            ("$x".to_owned(), false),
            ("A-b_c.9".to_owned(), true),
        ] {
            assert_eq!(check_name(&name, NAME_CHARS).is_ok(), good, "{name}");
        }
    }
}
