//! Secrets: given in the file, or by reference to an environment variable or a file, and never shown.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::PathBuf;

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::mask::HIDDEN;

/// Longer than any key or token, short enough that a mistaken path does no harm.
const MAX_BYTES: u64 = 64 * 1024;

/// A password, token or key. `Debug` and `Serialize` give `***`; only [`Secret::expose`] gives the value.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    source: Source,
    value: String,
}

#[derive(Clone, PartialEq, Eq)]
enum Source {
    Literal,
    Variable(String),
    File(PathBuf),
}

impl Secret {
    #[must_use]
    pub fn new(value: impl Into<String>) -> Self {
        Self { source: Source::Literal, value: value.into() }
    }

    /// The value itself, for the one place that needs it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.value
    }

    /// Fetches the value of a reference; on failure, what is wrong, as the end of a sentence about the key.
    pub(super) fn resolve(&mut self, variables: &BTreeMap<String, String>) -> Result<(), String> {
        match &self.source {
            Source::Literal => {}
            Source::Variable(name) => {
                let value = variables.get(name);
                self.value = value.ok_or(format!("needs the environment variable `{name}`, which is not set"))?.clone();
            }
            Source::File(path) => {
                let text = read_short(path)
                    .map_err(|error| format!("needs the file `{}`, which cannot be read: {error}", path.display()))?;
                // Editors and `echo` end a file with a newline that is no part of the secret.
                self.value =
                    text.strip_suffix('\n').map_or(text.as_str(), |t| t.strip_suffix('\r').unwrap_or(t)).into();
            }
        }
        if self.value.is_empty() { Err("is empty".to_owned()) } else { Ok(()) }
    }
}

fn read_short(path: &std::path::Path) -> std::io::Result<String> {
    let mut text = String::new();
    let read = std::fs::File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if read as u64 > MAX_BYTES {
        return Err(std::io::Error::other(format!("it is longer than {MAX_BYTES} bytes")));
    }
    Ok(text)
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{HIDDEN:?}")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A hint only: our reader also hands tables to `visit_map`.
        deserializer.deserialize_str(SecretVisitor)
    }
}

struct SecretVisitor;

impl<'de> Visitor<'de> for SecretVisitor {
    type Value = Secret;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string, { env = \"NAME\" } or { file = \"PATH\" }")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Secret, E> {
        Ok(Secret::new(value))
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Secret, E> {
        Err(wrong_type())
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Secret, E> {
        Err(wrong_type())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Secret, A::Error> {
        let reference = Reference::deserialize(de::value::MapAccessDeserializer::new(map))?;
        let source = match (reference.env, reference.file) {
            (Some(name), None) => Source::Variable(name),
            (None, Some(path)) => Source::File(path.into()),
            _ => return Err(de::Error::custom("must have either `env` or `file`")),
        };
        Ok(Secret { source, value: String::new() })
    }
}

/// Says nothing about the value, which may well be the secret without its quotes.
fn wrong_type<E: de::Error>() -> E {
    E::custom("must be a string in quotes, { env = \"NAME\" } or { file = \"PATH\" }")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reference {
    env: Option<String>,
    file: Option<String>,
}
