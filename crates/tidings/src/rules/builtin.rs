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

impl BuiltIn {
    pub fn compile(&self) -> Result<Rule, Error> {
        let broken = |why: String| Error::Open(format!("the built-in rule `{}` cannot be used: {why}", self.name));
        let json: Value = serde_json::from_str(self.json).map_err(|error| broken(error.to_string()))?;
        let fields = json.as_object().ok_or_else(|| broken("it is no object".to_owned()))?;
        read::rule(self.name, fields, Origin::BuiltIn, None).map_err(|errors| broken(read::in_one_line(&errors)))
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
}
