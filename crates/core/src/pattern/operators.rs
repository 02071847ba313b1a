//! The alternatives of one field: plain values and operators, checked as EventBridge checks them.

use std::net::IpAddr;

use super::PatternError;
use super::changed;
use super::compile::{Budget, Place, refuse_repeated_keys};
use super::json::Json;
use super::limits::{MAX_NUMBER, MAX_STARS, MAX_VALUES};
use super::number::Num;
use super::predicate::{AnythingBut, Bound, Changed, Field, Net, Range, Test, lower};
use super::wildcard::Wildcard;

/// Names that cannot be fields inside `$or`: there, an object of them is far more likely a mistake.
pub(super) const OPERATORS: [&str; 8] =
    ["prefix", "suffix", "equals-ignore-case", "wildcard", "anything-but", "numeric", "exists", "cidr"];

/// A field under construction: lists that grow, before they are sorted and closed.
#[derive(Default)]
struct Draft {
    field: Field,
    texts: Vec<Box<str>>,
    numbers: Vec<Num>,
    tests: Vec<Test>,
}

pub(super) fn field(
    path: &[Box<str>],
    items: &[Json],
    place: Place<'_>,
    budget: &mut Budget,
) -> Result<Field, PatternError> {
    if items.is_empty() {
        return Err(place.error("an empty array is not allowed"));
    }
    let mut draft = Draft::default();
    draft.field.path = path.into();
    for (i, item) in items.iter().enumerate() {
        let place = place.item(i);
        budget.value(place)?;
        match item {
            Json::Null => draft.field.null = true,
            Json::Bool(true) => draft.field.yes = true,
            Json::Bool(false) => draft.field.no = true,
            Json::Number(number) => draft.numbers.push(*number),
            Json::Text(text) => draft.texts.push(text.as_str().into()),
            Json::Object(members) => {
                let (name, operand) = only_member(members, place)?;
                draft.operator(name, operand, place.key(name), budget)?;
            }
            Json::Array(_) => return Err(place.error("an array inside an array is not allowed")),
        }
    }
    let Draft { mut field, texts, numbers, tests } = draft;
    field.texts = sorted(texts);
    field.numbers = sorted(numbers);
    field.tests = tests.into_boxed_slice();
    Ok(field)
}

impl Draft {
    fn operator(
        &mut self,
        name: &str,
        operand: &Json,
        place: Place<'_>,
        budget: &mut Budget,
    ) -> Result<(), PatternError> {
        match name {
            "exists" => match boolean(operand, place)? {
                true => self.field.present = true,
                false => self.field.absent = true,
            },
            "changed" if matches!(operand, Json::Object(_)) => {
                return Err(place.error("`changed` with `from` or `to` must be alone in its list"));
            }
            "changed" => self.changed(boolean(operand, place)?, place)?,
            "numeric" => match numeric(operand, place)? {
                Numeric::Equal(number) => self.numbers.push(number),
                Numeric::Range(range) => self.tests.push(Test::Range(range)),
            },
            "anything-but" => {
                let excluded = anything_but(operand, place, budget)?;
                self.tests.push(Test::AnythingBut(excluded));
            }
            "prefix" | "suffix" => self.tests.push(affix(name, operand, place)?),
            "equals-ignore-case" => self.tests.push(Test::Folded(folded(text(operand, place)?))),
            "wildcard" => self.tests.push(Test::Wildcard(wildcard(text(operand, place)?, place, budget)?)),
            "cidr" => self.tests.push(Test::Net(net(text(operand, place)?, place)?)),
            _ => return Err(place.error(format!("unknown operator `{name}`"))),
        }
        Ok(())
    }

    fn changed(&mut self, wanted: bool, place: Place<'_>) -> Result<(), PatternError> {
        let other = changed::other_side(&self.field.path).ok_or_else(|| {
            place.error("`changed` needs a field under an old or new image: OldImage, NewImage, oldImage, newImage, old, new, before or after")
        })?;
        let test = self.field.changed.get_or_insert_with(|| Box::new(Changed { other, differs: false, same: false }));
        if wanted {
            test.differs = true;
        } else {
            test.same = true;
        }
        Ok(())
    }
}

fn affix(name: &str, operand: &Json, place: Place<'_>) -> Result<Test, PatternError> {
    let prefix = name == "prefix";
    match operand {
        Json::Text(text) if prefix => Ok(Test::Prefix(text.as_str().into())),
        Json::Text(text) => Ok(Test::Suffix(text.as_str().into())),
        Json::Object(members) => {
            let (inner, operand) = only_member(members, place)?;
            let place = place.key(inner);
            if inner != "equals-ignore-case" {
                return Err(place.error(format!("`{name}` takes a string or `equals-ignore-case`, not `{inner}`")));
            }
            let folded = folded(text(operand, place)?);
            Ok(if prefix { Test::FoldedPrefix(folded) } else { Test::FoldedSuffix(folded) })
        }
        other => {
            Err(place.error(format!("must be a string or an object with `equals-ignore-case`, not {}", other.kind())))
        }
    }
}

fn anything_but(operand: &Json, place: Place<'_>, budget: &mut Budget) -> Result<AnythingBut, PatternError> {
    let mut texts = Vec::new();
    let mut numbers = Vec::new();
    let mut tests = Vec::new();
    if let Json::Object(members) = operand {
        let (name, operand) = only_member(members, place)?;
        let place = place.key(name);
        each(operand, place, budget, |item, place, budget| {
            tests.push(excluded_test(name, item, place, budget)?);
            Ok(())
        })?;
    } else {
        each(operand, place, budget, |item, place, _| {
            match item {
                Json::Text(text) => texts.push(text.as_str().into()),
                Json::Number(number) => numbers.push(in_range(*number, place)?),
                other => {
                    return Err(place.error(format!("`anything-but` takes strings and numbers, not {}", other.kind())));
                }
            }
            Ok(())
        })?;
    }
    Ok(AnythingBut { texts: sorted(texts), numbers: sorted(numbers), tests: tests.into_boxed_slice() })
}

fn excluded_test(name: &str, item: &Json, place: Place<'_>, budget: &mut Budget) -> Result<Test, PatternError> {
    if !matches!(name, "prefix" | "suffix" | "wildcard" | "equals-ignore-case") {
        return Err(place.error(format!(
            "`anything-but` takes `prefix`, `suffix`, `wildcard` or `equals-ignore-case`, not `{name}`"
        )));
    }
    let text = text(item, place)?;
    if text.is_empty() && name != "equals-ignore-case" {
        return Err(place.error(format!("an empty `{name}` in `anything-but` is not allowed")));
    }
    Ok(match name {
        "prefix" => Test::Prefix(text.into()),
        "suffix" => Test::Suffix(text.into()),
        "wildcard" => Test::Wildcard(wildcard(text, place, budget)?),
        _ => Test::Folded(folded(text)),
    })
}

/// One value, or each of a list of them.
fn each(
    operand: &Json,
    place: Place<'_>,
    budget: &mut Budget,
    mut take: impl FnMut(&Json, Place<'_>, &mut Budget) -> Result<(), PatternError>,
) -> Result<(), PatternError> {
    let Json::Array(items) = operand else { return take(operand, place, budget) };
    if items.is_empty() {
        return Err(place.error("an empty array is not allowed"));
    }
    for (i, item) in items.iter().enumerate() {
        let place = place.item(i);
        budget.value(place)?;
        take(item, place, budget)?;
    }
    Ok(())
}

enum Numeric {
    Equal(Num),
    Range(Range),
}

fn numeric(operand: &Json, place: Place<'_>) -> Result<Numeric, PatternError> {
    let Json::Array(items) = operand else {
        return Err(place.error(format!("`numeric` must be an array, not {}", operand.kind())));
    };
    match items.as_slice() {
        [operator, value] => {
            let number = bound_value(value, place.item(1))?;
            let bound = |included| Some(Bound { value: number, included });
            match text(operator, place.item(0))? {
                "=" => Ok(Numeric::Equal(number)),
                "<" => Ok(Numeric::Range(Range { low: None, high: bound(false) })),
                "<=" => Ok(Numeric::Range(Range { low: None, high: bound(true) })),
                ">" => Ok(Numeric::Range(Range { low: bound(false), high: None })),
                ">=" => Ok(Numeric::Range(Range { low: bound(true), high: None })),
                other => Err(place.item(0).error(format!("unknown comparison `{other}`"))),
            }
        }
        [low_operator, low, high_operator, high] => {
            let low_included = match text(low_operator, place.item(0))? {
                ">" => false,
                ">=" => true,
                other => {
                    return Err(place.item(0).error(format!("a range starts with `>` or `>=`, not `{other}`")));
                }
            };
            let high_included = match text(high_operator, place.item(2))? {
                "<" => false,
                "<=" => true,
                other => return Err(place.item(2).error(format!("a range ends with `<` or `<=`, not `{other}`"))),
            };
            let low = Bound { value: bound_value(low, place.item(1))?, included: low_included };
            let high = Bound { value: bound_value(high, place.item(3))?, included: high_included };
            // EventBridge refuses [">=", 5, "<=", 5] as well and wants "=" for it.
            if low.value >= high.value {
                return Err(place.error("the range is empty: its lower end must be below its upper end"));
            }
            Ok(Numeric::Range(Range { low: Some(low), high: Some(high) }))
        }
        _ => Err(place.error("`numeric` takes one comparison and its number, or two of each")),
    }
}

fn bound_value(value: &Json, place: Place<'_>) -> Result<Num, PatternError> {
    match value {
        Json::Number(number) => in_range(*number, place),
        other => Err(place.error(format!("must be a number, not {}", other.kind()))),
    }
}

fn in_range(number: Num, place: Place<'_>) -> Result<Num, PatternError> {
    if number > Num::from_f64(MAX_NUMBER) || number < Num::from_f64(-MAX_NUMBER) {
        return Err(place.error("the number is out of range: it must lie between -5.0e9 and 5.0e9"));
    }
    Ok(number)
}

fn wildcard(text: &str, place: Place<'_>, budget: &mut Budget) -> Result<Wildcard, PatternError> {
    let wildcard = Wildcard::parse(text).map_err(|message| place.error(message))?;
    budget.stars += wildcard.stars();
    if budget.stars > MAX_STARS {
        return Err(place.error(format!("more than {MAX_STARS} `*` in the wildcards of one pattern")));
    }
    Ok(wildcard)
}

fn net(text: &str, place: Place<'_>) -> Result<Net, PatternError> {
    let bad = || place.error(format!("`{text}` is no address block such as 10.0.0.0/8 or 2001:db8::/32"));
    let (address, bits) = text.split_once('/').ok_or_else(bad)?;
    let address: IpAddr = address.parse().map_err(|_| bad())?;
    if bits.is_empty() || bits.len() > 3 || !bits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(bad());
    }
    bits.parse().ok().and_then(|bits| Net::around(address, bits)).ok_or_else(bad)
}

fn only_member<'a>(members: &'a [(String, Json)], place: Place<'_>) -> Result<(&'a str, &'a Json), PatternError> {
    match members {
        [(name, operand)] => Ok((name, operand)),
        [] => Err(place.error("an empty object is not allowed")),
        _ => {
            refuse_repeated_keys(members, place)?;
            Err(place.error("only one operator is allowed in an object"))
        }
    }
}

fn text<'a>(value: &'a Json, place: Place<'_>) -> Result<&'a str, PatternError> {
    match value {
        Json::Text(text) => Ok(text),
        other => Err(place.error(format!("must be a string, not {}", other.kind()))),
    }
}

fn boolean(value: &Json, place: Place<'_>) -> Result<bool, PatternError> {
    match value {
        Json::Bool(value) => Ok(*value),
        other => Err(place.error(format!("must be true or false, not {}", other.kind()))),
    }
}

fn folded(text: &str) -> Box<str> {
    lower(text).collect::<String>().into_boxed_str()
}

fn sorted<T: Ord>(mut values: Vec<T>) -> Box<[T]> {
    values.sort_unstable();
    values.dedup();
    values.into_boxed_slice()
}

impl Budget {
    fn value(&mut self, place: Place<'_>) -> Result<(), PatternError> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(place.error(format!("more than {MAX_VALUES} values in one pattern")));
        }
        Ok(())
    }
}
