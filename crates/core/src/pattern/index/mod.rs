//! What rules are looked up by, for one path.
//!
//! A rule is posted under the alternatives of a single field, the one that looks most selective when the rule is added;
//! an event's value then calls up the few rules whose field it may satisfy. A lookup may call up too many rules, never
//! too few: each one called up is verified in full.
//!
//! All parts change in place. Rules' texts come from people who may write rules, so a fast hash without a secret is
//! enough: events only look things up, and cannot make a table slow.

mod affixes;
mod grams;
mod guard;
mod nets;
mod ranges;

use rustc_hash::FxHashMap;

use self::affixes::Affixes;
use self::grams::Grams;
use self::nets::Nets;
use self::ranges::Ranges;
use super::number::Num;
use super::predicate::{Field, Net, Range, Scalar, Test, lower};
use super::wildcard::Anchor;

pub(super) use self::guard::{Guard, Verdict};

/// A rule's number in its set.
pub(super) type RuleId = u32;

/// A rule under a key. The guard turns most false candidates away before the rule itself is fetched from memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Posting {
    pub(super) rule: RuleId,
    /// The key that calls the rule up and the guard are all that the rule asks.
    pub(super) whole: bool,
    pub(super) guard: Guard,
}

/// Rules that share a key. Each at most once.
#[derive(Debug, Clone, Default)]
pub(super) struct Postings(Vec<Posting>);

#[derive(Debug, Clone, Default)]
pub(super) struct Index {
    texts: FxHashMap<Box<str>, Postings>,
    folded: FxHashMap<Box<str>, Postings>,
    numbers: FxHashMap<Num, Postings>,
    prefixes: Affixes,
    suffixes: Affixes,
    folded_prefixes: Affixes,
    folded_suffixes: Affixes,
    grams: Grams,
    ranges: Ranges,
    nets: Nets,
    null: Postings,
    yes: Postings,
    no: Postings,
    /// Rules that any value may satisfy: `exists`, `anything-but`, and wildcards without a literal.
    any: Postings,
    any_text: Postings,
    absent: Postings,
    changed: Postings,
}

/// One alternative of a field, as something to look up.
#[derive(Clone, Copy)]
pub(super) enum Key<'a> {
    Text(&'a str),
    Folded(&'a str),
    Number(Num),
    Prefix(&'a str),
    Suffix(&'a str),
    FoldedPrefix(&'a str),
    FoldedSuffix(&'a str),
    Inside(&'a str),
    Range(Range),
    Net(Net),
    Null,
    Yes,
    No,
    Any,
    AnyText,
    Absent,
    Changed,
}

/// Working memory for lookups.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    folded: String,
}

/// All alternatives of a field. A rule must be posted under every one of them.
pub(super) fn keys(field: &Field) -> impl Iterator<Item = Key<'_>> {
    let flags = [
        (field.null, Key::Null),
        (field.yes, Key::Yes),
        (field.no, Key::No),
        (field.present, Key::Any),
        (field.absent, Key::Absent),
        (field.changed.is_some(), Key::Changed),
    ];
    let flags = flags.into_iter().filter_map(|(set, key)| set.then_some(key));
    let texts = field.texts.iter().map(|text| Key::Text(text));
    let numbers = field.numbers.iter().map(|number| Key::Number(*number));
    flags.chain(texts).chain(numbers).chain(field.tests.iter().map(test_key))
}

fn test_key(test: &Test) -> Key<'_> {
    match test {
        Test::Prefix(text) | Test::Suffix(text) if text.is_empty() => Key::AnyText,
        Test::FoldedPrefix(text) | Test::FoldedSuffix(text) if text.is_empty() => Key::AnyText,
        Test::Prefix(text) => Key::Prefix(text),
        Test::Suffix(text) => Key::Suffix(text),
        Test::Folded(text) => Key::Folded(text),
        Test::FoldedPrefix(text) => Key::FoldedPrefix(text),
        Test::FoldedSuffix(text) => Key::FoldedSuffix(text),
        Test::Wildcard(wildcard) => match wildcard.anchor() {
            Anchor::Whole(text) => Key::Text(text),
            Anchor::Start(text) => Key::Prefix(text),
            Anchor::End(text) => Key::Suffix(text),
            Anchor::Inside(text) => Key::Inside(text),
            Anchor::Nowhere => Key::AnyText,
        },
        Test::Range(range) => Key::Range(*range),
        Test::Net(net) => Key::Net(*net),
        Test::AnythingBut(_) => Key::Any,
    }
}

/// Whether a value that calls up a rule under any of this field's keys thereby satisfies the field.
pub(super) fn proves(field: &Field) -> bool {
    let exact = |key| matches!(key, Key::Text(_) | Key::Number(_) | Key::Range(_) | Key::Null | Key::Yes | Key::No);
    let any_will_do = field.present && !field.absent && field.changed.is_none();
    any_will_do || keys(field).all(exact)
}

/// How many rules a value that hits this key is likely to call up. Only the order of these numbers matters.
pub(super) fn cost(index: Option<&Index>, key: Key<'_>) -> usize {
    let fixed = match key {
        Key::Text(_) | Key::Number(_) => 0,
        Key::Folded(_) => 2,
        Key::Net(net) => 40 + usize::from(if net.v6 { 128 - net.bits } else { 32 - net.bits }),
        Key::Prefix(text) | Key::Suffix(text) => 64 + 64 / text.len().max(1),
        Key::FoldedPrefix(text) | Key::FoldedSuffix(text) => 72 + 64 / text.len().max(1),
        Key::Inside(text) => 96 + 128 / text.len().max(1),
        Key::Range(Range { low: Some(_), high: Some(_) }) => 200,
        Key::Null | Key::Yes | Key::No => 300,
        Key::Range(_) => 400,
        Key::Changed => 500,
        Key::Any | Key::AnyText => 1_000,
        Key::Absent => 2_000,
    };
    fixed + index.map_or(0, |index| index.crowd(key))
}

impl Index {
    pub(super) fn post(&mut self, key: Key<'_>, posting: Posting) {
        match key {
            Key::Text(text) => post_text(&mut self.texts, text, posting),
            Key::Folded(text) => post_text(&mut self.folded, text, posting),
            Key::Number(number) => self.numbers.entry(number).or_default().add(posting),
            Key::Prefix(text) => self.prefixes.add(text.bytes(), posting),
            Key::Suffix(text) => self.suffixes.add(text.bytes().rev(), posting),
            Key::FoldedPrefix(text) => self.folded_prefixes.add(text.bytes(), posting),
            Key::FoldedSuffix(text) => self.folded_suffixes.add(text.bytes().rev(), posting),
            Key::Inside(text) => self.grams.add(text, posting),
            Key::Range(range) => self.ranges.add(range, posting),
            Key::Net(net) => self.nets.add(net, posting),
            Key::Null | Key::Yes | Key::No | Key::Any | Key::AnyText | Key::Absent | Key::Changed => {
                if let Some(postings) = self.fixed(key) {
                    postings.add(posting);
                }
            }
        }
    }

    pub(super) fn unpost(&mut self, key: Key<'_>, rule: RuleId) {
        match key {
            Key::Text(text) => unpost_text(&mut self.texts, text, rule),
            Key::Folded(text) => unpost_text(&mut self.folded, text, rule),
            Key::Number(number) => {
                if self.numbers.get_mut(&number).is_some_and(|postings| postings.remove(rule)) {
                    self.numbers.remove(&number);
                }
            }
            Key::Prefix(text) => self.prefixes.remove(text.bytes(), rule),
            Key::Suffix(text) => self.suffixes.remove(text.bytes().rev(), rule),
            Key::FoldedPrefix(text) => self.folded_prefixes.remove(text.bytes(), rule),
            Key::FoldedSuffix(text) => self.folded_suffixes.remove(text.bytes().rev(), rule),
            Key::Inside(text) => self.grams.remove(text, rule),
            Key::Range(range) => self.ranges.remove(range, rule),
            Key::Net(net) => self.nets.remove(net, rule),
            Key::Null | Key::Yes | Key::No | Key::Any | Key::AnyText | Key::Absent | Key::Changed => {
                if let Some(postings) = self.fixed(key) {
                    postings.remove(rule);
                }
            }
        }
    }

    /// Calls up every rule that has an alternative which this value may satisfy; some more than once.
    pub(super) fn look_up(&self, value: Scalar<'_>, buffers: &mut Buffers, call: &mut impl FnMut(&Posting)) {
        self.any.each(call);
        match value {
            Scalar::Null => self.null.each(call),
            Scalar::Bool(true) => self.yes.each(call),
            Scalar::Bool(false) => self.no.each(call),
            Scalar::Number(number) => {
                if let Some(postings) = self.numbers.get(&number) {
                    postings.each(call);
                }
                self.ranges.look_up(number, call);
            }
            Scalar::Text(text) => self.look_up_text(text, buffers, call),
        }
    }

    fn look_up_text(&self, text: &str, buffers: &mut Buffers, call: &mut impl FnMut(&Posting)) {
        self.any_text.each(call);
        if let Some(postings) = self.texts.get(text) {
            postings.each(call);
        }
        self.prefixes.look_up(text.bytes(), call);
        self.suffixes.look_up(text.bytes().rev(), call);
        self.grams.look_up(text, call);
        self.nets.look_up(text, call);
        if self.folded.is_empty() && self.folded_prefixes.is_empty() && self.folded_suffixes.is_empty() {
            return;
        }
        buffers.fold(text);
        if let Some(postings) = self.folded.get(buffers.folded.as_str()) {
            postings.each(call);
        }
        self.folded_prefixes.look_up(buffers.folded.bytes(), call);
        self.folded_suffixes.look_up(buffers.folded.bytes().rev(), call);
    }

    pub(super) fn absent(&self) -> &Postings {
        &self.absent
    }

    pub(super) fn changed(&self) -> &Postings {
        &self.changed
    }

    /// Rules already under this key, and how crowded keys of its kind are: a field with few values is a poor choice
    /// even while the one at hand is still new.
    fn crowd(&self, key: Key<'_>) -> usize {
        let average = |distinct: usize| 1_000 / (distinct + 8);
        match key {
            Key::Text(text) => self.texts.get(text).map_or(0, Postings::len) + average(self.texts.len()),
            Key::Folded(text) => self.folded.get(text).map_or(0, Postings::len) + average(self.folded.len()),
            Key::Number(number) => self.numbers.get(&number).map_or(0, Postings::len) + average(self.numbers.len()),
            Key::Null => self.null.len(),
            Key::Yes => self.yes.len(),
            Key::No => self.no.len(),
            // Any value at all calls these up, so each rule weighs more than one under a value that may never come.
            Key::Any => self.any.len() * 64,
            Key::AnyText => self.any_text.len() * 64,
            Key::Absent => self.absent.len() * 64,
            Key::Changed => self.changed.len() * 64,
            _ => 0,
        }
    }

    fn fixed(&mut self, key: Key<'_>) -> Option<&mut Postings> {
        Some(match key {
            Key::Null => &mut self.null,
            Key::Yes => &mut self.yes,
            Key::No => &mut self.no,
            Key::Any => &mut self.any,
            Key::AnyText => &mut self.any_text,
            Key::Absent => &mut self.absent,
            Key::Changed => &mut self.changed,
            _ => return None,
        })
    }
}

impl Postings {
    /// Combinations of one rule are posted one after the other, so a rule that is here already is the last.
    fn add(&mut self, posting: Posting) {
        if self.0.last().is_none_or(|last| last.rule != posting.rule) {
            self.0.push(posting);
        }
    }

    /// Says whether nothing is left.
    fn remove(&mut self, rule: RuleId) -> bool {
        if let Some(position) = self.0.iter().position(|posting| posting.rule == rule) {
            self.0.swap_remove(position);
        }
        self.0.is_empty()
    }

    #[inline]
    pub(super) fn each(&self, call: &mut impl FnMut(&Posting)) {
        self.0.iter().for_each(call);
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Buffers {
    fn fold(&mut self, text: &str) {
        self.folded.clear();
        if text.is_ascii() {
            self.folded.push_str(text);
            self.folded.make_ascii_lowercase();
        } else {
            self.folded.extend(lower(text));
        }
    }
}

fn post_text(texts: &mut FxHashMap<Box<str>, Postings>, text: &str, posting: Posting) {
    match texts.get_mut(text) {
        Some(postings) => postings.add(posting),
        None => {
            texts.insert(text.into(), Postings(vec![posting]));
        }
    }
}

fn unpost_text(texts: &mut FxHashMap<Box<str>, Postings>, text: &str, rule: RuleId) {
    if texts.get_mut(text).is_some_and(|postings| postings.remove(rule)) {
        texts.remove(text);
    }
}
