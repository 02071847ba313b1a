//! Rules that come with Tidings: seen at `/rules` with the origin `builtin`, and changed there.
//!
//! What the API or the configuration file has of the same name takes a built-in rule's place; when it is deleted, the
//! built-in rule is back. To switch one off, write it with `enabled` false.

use serde_json::Value;
use tidings_store::Error;

use super::read;
use super::rule::Rule;
use crate::origin::Origin;

/// A rule that a part brings along.
#[derive(Debug, Clone, Copy)]
pub struct BuiltIn {
    pub name: &'static str,
    /// As the API would be given it.
    pub json: &'static str,
}

/// What each part brings along. A part adds its list here.
const PARTS: [&[BuiltIn]; 2] = [crate::centre::RULES, crate::messages::deliver::targets::RULES];

/// All of them, compiled.
pub fn all() -> Result<Vec<Rule>, Error> {
    PARTS.into_iter().flatten().map(BuiltIn::compile).collect()
}

/// Those that tell by a channel which this installation has not: without it, for nobody has asked for its dead letters.
pub fn without(channel: &str) -> Result<Vec<Rule>, Error> {
    let all = PARTS.into_iter().flatten().map(|rule| rule.compile_without(channel));
    all.filter_map(Result::transpose).collect()
}

impl BuiltIn {
    pub fn compile(&self) -> Result<Rule, Error> {
        self.compiled(&self.read()?)
    }

    /// Without its targets of a channel; `None` if it has none there, or no other.
    fn compile_without(&self, channel: &str) -> Result<Option<Rule>, Error> {
        let mut json = self.read()?;
        let Some(targets) = json.get_mut("targets").and_then(Value::as_array_mut) else { return Ok(None) };
        let before = targets.len();
        targets.retain(|target| target.get("channel").and_then(Value::as_str) != Some(channel));
        if targets.is_empty() || targets.len() == before {
            return Ok(None);
        }
        self.compiled(&json).map(Some)
    }

    fn read(&self) -> Result<Value, Error> {
        serde_json::from_str(self.json).map_err(|error| self.broken(&error.to_string()))
    }

    fn compiled(&self, json: &Value) -> Result<Rule, Error> {
        let fields = json.as_object().ok_or_else(|| self.broken("it is no object"))?;
        read::rule(self.name, fields, Origin::BuiltIn, None).map_err(|errors| self.broken(&read::in_one_line(&errors)))
    }

    fn broken(&self, why: &str) -> Error {
        Error::Open(format!("the built-in rule `{}` cannot be used: {why}", self.name))
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn all_can_be_used_and_each_name_is_there_once() {
        let mut names: Vec<String> = super::all().unwrap().into_iter().map(|rule| rule.name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn a_channel_that_is_not_there_is_left_out() {
        let rules = super::without("ntfy").unwrap();
        let told = rules.iter().find(|rule| rule.name == "webhook-disabled").unwrap();
        assert_eq!(told.targets.len(), 1);
        assert!(super::without("inbox").unwrap().iter().all(|rule| !rule.targets.is_empty()));
    }
}
