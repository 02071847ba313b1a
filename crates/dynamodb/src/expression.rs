//! Conditions, changes and key ranges as DynamoDB's expressions.
//!
//! Every name goes through a `#` placeholder and every value through a `:` one: half the natural names
//! (`status`, `ttl`, `Timestamp`) are reserved words, and a placeholder that is declared but not used is
//! refused, so [`Placeholders`] hands them out as they are needed.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_dynamodb::types::AttributeValue;
use tidings_store::{Change, Condition, Index, Query, Range, Table, Value};

use crate::convert::{Attributes, to_key_value, to_value};

/// Attribute names by placeholder.
pub type Names = HashMap<String, String>;

/// The names and values of one request's expressions.
#[derive(Default)]
pub struct Placeholders {
    names: BTreeMap<String, usize>,
    values: Vec<AttributeValue>,
}

impl Placeholders {
    fn name(&mut self, name: &str) -> String {
        let next = self.names.len();
        let number = self.names.entry(name.to_owned()).or_insert(next);
        format!("#{number}")
    }

    fn value(&mut self, value: AttributeValue) -> String {
        self.values.push(value);
        format!(":{}", self.values.len() - 1)
    }

    /// The maps of a request; absent rather than empty, which would be refused.
    pub fn into_maps(self) -> (Option<Names>, Option<Attributes>) {
        let names: HashMap<_, _> = self.names.into_iter().map(|(name, n)| (format!("#{n}"), name)).collect();
        let values: HashMap<_, _> = self.values.into_iter().enumerate().map(|(n, v)| (format!(":{n}"), v)).collect();
        (Some(names).filter(|names| !names.is_empty()), Some(values).filter(|values| !values.is_empty()))
    }
}

/// A condition on its way to text. What is always or never true has no text of its own in DynamoDB, and
/// parentheses that are not needed are refused, so both are kept apart until the end.
enum Expression {
    Always,
    Never,
    Simple(String),
    And(String),
    Or(String),
}

/// The text of a condition that may be left out if nothing needs to hold.
///
/// `now` is the second that decides about expiry; an item that has expired by then counts as absent.
pub fn condition(table: &Table, condition: &Condition, now: i64, with: &mut Placeholders) -> Option<String> {
    let plain = plain(table, condition, with);
    let absent_will_do = condition.holds(None);
    let whole = match (expired(table, now, with, &plain, absent_will_do), absent_will_do) {
        (None, _) => plain,
        (Some(expired), true) => any([Expression::Simple(expired), plain]),
        (Some(expired), false) => all([Expression::Simple(format!("NOT {expired}")), plain]),
    };
    text(table, whole, with)
}

/// Like [`condition`] of an update, which must not meet an expired item: it would inherit its attributes.
pub fn update_condition(table: &Table, condition: &Condition, now: i64, with: &mut Placeholders) -> Option<String> {
    let plain = plain(table, condition, with);
    let whole = match expired(table, now, with, &plain, false) {
        Some(expired) => all([Expression::Simple(format!("NOT {expired}")), plain]),
        None => plain,
    };
    text(table, whole, with)
}

/// Like [`condition`], of a check, which has to say something even if it always holds.
pub fn check_condition(table: &Table, check: &Condition, now: i64, with: &mut Placeholders) -> String {
    condition(table, check, now, with).unwrap_or_else(|| {
        let key = with.name(&table.partition_attribute().0);
        format!("attribute_exists({key}) OR attribute_not_exists({key})")
    })
}

/// "The item has expired"; absent where that cannot change the answer.
///
/// False of an absent item, and of one whose attribute is missing or no number: DynamoDB compares equal types.
fn expired(table: &Table, now: i64, with: &mut Placeholders, plain: &Expression, or: bool) -> Option<String> {
    if matches!((plain, or), (Expression::Always, true) | (Expression::Never, false)) {
        return None;
    }
    let attribute = table.ttl_attribute()?;
    Some(format!("{} <= {}", with.name(attribute), with.value(AttributeValue::N(now.to_string()))))
}

fn text(table: &Table, expression: Expression, with: &mut Placeholders) -> Option<String> {
    match expression {
        Expression::Always => None,
        Expression::Never => {
            let key = with.name(&table.partition_attribute().0);
            Some(format!("attribute_exists({key}) AND attribute_not_exists({key})"))
        }
        Expression::Simple(text) | Expression::And(text) | Expression::Or(text) => Some(text),
    }
}

/// The condition as if no item ever expired.
fn plain(table: &Table, condition: &Condition, with: &mut Placeholders) -> Expression {
    let key = |with: &mut Placeholders| with.name(&table.partition_attribute().0);
    Expression::Simple(match condition {
        Condition::None | Condition::Fresh => return Expression::Always,
        Condition::Exists => format!("attribute_exists({})", key(with)),
        Condition::NotExists => format!("attribute_not_exists({})", key(with)),
        Condition::Equals(name, value) => compare(name, "=", value, with),
        Condition::Differs(name, value) => compare(name, "<>", value, with),
        Condition::Less(name, value) if ordered(value) => compare(name, "<", value, with),
        Condition::Greater(name, value) if ordered(value) => compare(name, ">", value, with),
        // DynamoDB refuses to put other types in order, and here they are in none.
        Condition::Less(..) | Condition::Greater(..) => return Expression::Never,
        Condition::HasAttribute(name) => format!("attribute_exists({})", with.name(name)),
        Condition::LacksAttribute(name) => format!("attribute_not_exists({})", with.name(name)),
        // What is decided already leaves no text behind, nor placeholders that nothing uses.
        Condition::All(parts) if parts.iter().any(is_never) => return Expression::Never,
        Condition::Any(parts) if parts.iter().any(is_always) => return Expression::Always,
        Condition::All(parts) => return all(parts.iter().map(|part| plain(table, part, with)).collect::<Vec<_>>()),
        Condition::Any(parts) => return any(parts.iter().map(|part| plain(table, part, with)).collect::<Vec<_>>()),
    })
}

fn is_always(condition: &Condition) -> bool {
    match condition {
        Condition::None | Condition::Fresh => true,
        Condition::All(parts) => parts.iter().all(is_always),
        Condition::Any(parts) => parts.iter().any(is_always),
        _ => false,
    }
}

fn is_never(condition: &Condition) -> bool {
    match condition {
        Condition::Less(_, value) | Condition::Greater(_, value) => !ordered(value),
        Condition::All(parts) => parts.iter().any(is_never),
        Condition::Any(parts) => parts.iter().all(is_never),
        _ => false,
    }
}

fn ordered(value: &Value) -> bool {
    matches!(value, Value::S(_) | Value::N(_) | Value::B(_))
}

fn compare(name: &str, operator: &str, value: &Value, with: &mut Placeholders) -> String {
    format!("{} {operator} {}", with.name(name), with.value(to_value(value)))
}

fn all(parts: impl IntoIterator<Item = Expression>) -> Expression {
    let mut texts = Vec::new();
    let mut only = Expression::Always;
    for part in parts {
        match part {
            Expression::Always => continue,
            Expression::Never => return Expression::Never,
            Expression::Or(ref text) => texts.push(format!("({text})")),
            Expression::Simple(ref text) | Expression::And(ref text) => texts.push(text.clone()),
        }
        only = part;
    }
    if texts.len() < 2 { only } else { Expression::And(texts.join(" AND ")) }
}

fn any(parts: impl IntoIterator<Item = Expression>) -> Expression {
    let mut texts = Vec::new();
    let mut only = Expression::Never;
    for part in parts {
        match part {
            Expression::Never => continue,
            Expression::Always => return Expression::Always,
            // AND binds more tightly than OR.
            Expression::Simple(ref text) | Expression::And(ref text) | Expression::Or(ref text) => {
                texts.push(text.clone());
            }
        }
        only = part;
    }
    if texts.len() < 2 { only } else { Expression::Or(texts.join(" OR ")) }
}

/// The update expression of some changes, of which there is at least one.
pub fn update(changes: &[Change], with: &mut Placeholders) -> String {
    let (mut sets, mut removes, mut adds) = (Vec::new(), Vec::new(), Vec::new());
    let mut nothing = None;
    for change in changes {
        match change {
            Change::Set(name, value) => sets.push(compare(name, "=", value, with)),
            Change::Remove(name) => removes.push(with.name(name)),
            Change::Add(name, by) => {
                adds.push(format!("{} {}", with.name(name), with.value(AttributeValue::N(by.to_string()))));
            }
            Change::Append(name, values) => {
                let list = with.name(name);
                let empty = nothing.get_or_insert_with(|| with.value(AttributeValue::L(Vec::new())));
                let start = format!("if_not_exists({list}, {empty})");
                let values = with.value(AttributeValue::L(values.iter().map(to_value).collect()));
                sets.push(format!("{list} = list_append({start}, {values})"));
            }
        }
    }
    let clauses = [("SET", sets), ("REMOVE", removes), ("ADD", adds)];
    let clauses = clauses.iter().filter(|(_, parts)| !parts.is_empty());
    clauses.map(|(word, parts)| format!("{word} {}", parts.join(", "))).collect::<Vec<_>>().join(" ")
}

/// The key condition of a query that has been checked.
pub fn key_condition(table: &Table, index: Option<&Index>, query: &Query, with: &mut Placeholders) -> String {
    let (partition, sort) = match index {
        Some(index) => (&index.partition, index.sort.as_ref()),
        None => (table.partition_attribute(), table.sort_attribute()),
    };
    let partition = format!("{} = {}", with.name(&partition.0), with.value(to_key_value(&query.partition)));
    let Some((sort, _)) = sort.filter(|_| query.range != Range::All) else { return partition };
    let sort = with.name(sort);
    let range = match &query.range {
        // Left above; a range that narrows nothing is no text.
        Range::All => return partition,
        Range::Prefix(prefix) => format!("begins_with({sort}, {})", with.value(AttributeValue::S(prefix.clone()))),
        Range::Between(low, high) => {
            format!("{sort} BETWEEN {} AND {}", with.value(to_key_value(low)), with.value(to_key_value(high)))
        }
        Range::Equal(key) => format!("{sort} = {}", with.value(to_key_value(key))),
        Range::Above(key) => format!("{sort} > {}", with.value(to_key_value(key))),
        Range::AtLeast(key) => format!("{sort} >= {}", with.value(to_key_value(key))),
        Range::Below(key) => format!("{sort} < {}", with.value(to_key_value(key))),
        Range::AtMost(key) => format!("{sort} <= {}", with.value(to_key_value(key))),
    };
    format!("{partition} AND {range}")
}

#[cfg(test)]
mod tests {
    use Condition::{All, Differs, Equals, Exists, Less, NotExists};
    use tidings_store::KeyKind;

    use super::*;

    fn table() -> Table {
        Table::new("t", "id", KeyKind::S)
    }

    /// The expression with its names and values filled in, after a check that all of them are used.
    fn filled(text: Option<String>, with: Placeholders) -> String {
        let (names, values) = with.into_maps();
        let Some(mut text) = text else {
            assert!(names.is_none() && values.is_none(), "a placeholder is not used");
            return "nothing".to_owned();
        };
        for (placeholder, name) in names.unwrap_or_default() {
            assert!(text.contains(&placeholder), "{placeholder} is not used in {text}");
            text = text.replace(&placeholder, &name);
        }
        for (placeholder, value) in values.unwrap_or_default() {
            assert!(text.contains(&placeholder), "{placeholder} is not used in {text}");
            let value = match value {
                AttributeValue::S(text) | AttributeValue::N(text) => text,
                other => format!("{other:?}"),
            };
            text = text.replace(&placeholder, &value);
        }
        text
    }

    fn shown(table: &Table, of: &Condition) -> String {
        let mut with = Placeholders::default();
        let text = condition(table, of, 100, &mut with);
        filled(text, with)
    }

    fn updated(table: &Table, of: &Condition) -> String {
        let mut with = Placeholders::default();
        let text = update_condition(table, of, 100, &mut with);
        filled(text, with)
    }

    fn is(name: &'static str, value: &str) -> Condition {
        Equals(name.into(), value.into())
    }

    #[test]
    fn parentheses_stand_where_they_are_needed_and_nowhere_else() {
        for (condition, expected) in [
            (All(vec![is("a", "1"), is("b", "2")]), "a = 1 AND b = 2"),
            (Condition::any(vec![is("a", "1"), All(vec![is("b", "2"), is("c", "3")])]), "a = 1 OR b = 2 AND c = 3"),
            (All(vec![is("a", "1"), Condition::any(vec![is("b", "2"), is("c", "3")])]), "a = 1 AND (b = 2 OR c = 3)"),
            (All(vec![Condition::any(vec![All(vec![is("a", "1")])])]), "a = 1"),
            (All(vec![Condition::any(vec![is("a", "1"), is("b", "2")])]), "a = 1 OR b = 2"),
        ] {
            assert_eq!(shown(&table(), &condition), expected);
        }
    }

    #[test]
    fn what_is_decided_leaves_no_placeholders() {
        let never = "attribute_exists(id) AND attribute_not_exists(id)";
        let unordered = || Less("a".into(), Value::Null);
        for (condition, expected) in [
            (Condition::None, "nothing"),
            (All(Vec::new()), "nothing"),
            (Condition::any(Vec::new()), never),
            (All(vec![is("a", "1"), Condition::any(Vec::new())]), never),
            (Condition::any(vec![is("a", "1"), All(Vec::new())]), "nothing"),
            (All(vec![is("a", "1"), unordered()]), never),
            (Condition::any(vec![is("a", "1"), All(vec![is("b", "1"), unordered()])]), "a = 1"),
            (All(vec![is("a", "1"), Condition::None]), "a = 1"),
        ] {
            assert_eq!(shown(&table(), &condition), expected, "{condition:?}");
            shown(&table().ttl("ttl"), &condition);
            updated(&table().ttl("ttl"), &condition);
        }
    }

    #[test]
    fn an_expired_item_counts_as_absent() {
        let table = table().ttl("ttl");
        for (condition, expected) in [
            (Condition::None, "nothing"),
            (Exists, "NOT ttl <= 100 AND attribute_exists(id)"),
            (NotExists, "ttl <= 100 OR attribute_not_exists(id)"),
            (is("a", "1"), "NOT ttl <= 100 AND a = 1"),
            (Differs("a".into(), "1".into()), "ttl <= 100 OR a <> 1"),
            (Condition::any(vec![is("a", "1"), is("a", "2")]), "NOT ttl <= 100 AND (a = 1 OR a = 2)"),
        ] {
            assert_eq!(shown(&table, &condition), expected);
        }
        assert_eq!(updated(&table, &Condition::None), "NOT ttl <= 100");
        assert_eq!(updated(&table, &NotExists), "NOT ttl <= 100 AND attribute_not_exists(id)");
    }

    #[test]
    fn changes_stand_in_their_clauses() {
        let mut with = Placeholders::default();
        let changes = [
            Change::Add("n".into(), -2),
            Change::Set("status".into(), "new".into()),
            Change::Remove("old".into()),
            Change::Append("list".into(), Vec::new()),
            Change::Append("other".into(), Vec::new()),
        ];
        let text = update(&changes, &mut with);
        let expected = "SET status = new, list = list_append(if_not_exists(list, L([])), L([])), \
                        other = list_append(if_not_exists(other, L([])), L([])) REMOVE old ADD n -2";
        assert_eq!(filled(Some(text), with), expected);
    }
}
