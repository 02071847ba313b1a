//! Obvious secrets do not belong in a ticket: passwords, one-time codes, card numbers and the like are replaced before
//! anything is stored (S004-38). What is not obvious stays; a desk needs to read what the caller said.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::digits;

/// Stands where a secret stood.
pub const MARKER: &str = "[redacted]";
/// Digits of a payment card's number.
const CARD_DIGITS: std::ops::RangeInclusive<usize> = 13..=19;

/// Whether what a pattern found is a secret: the whole match, and the secret in it.
type Judge = fn(&str, &str) -> bool;

/// A way in which people give secrets away. The first group is the secret.
struct Habit {
    pattern: Regex,
    judge: Judge,
}

const PASSWORD: &str = r"(?:pass[ _-]?(?:word|code|wort)|passwd|pwd|kennwort|contrase\x{f1}a|mot de passe|api[ _-]?key|secret[ _-]?key|access[ _-]?key|client[ _-]?secret|secret)s?";
const ONE_TIME: &str = r"(?:otp|totp|mfa|2fa|tan|pin|puk|pass[ _-]?code|(?:one[ -]?time|verification|security|backup|unlock|auth(?:entication|enticator|orization)?|access|login|log-?in|sign-?in|sms|confirmation|two[ -]?factor|mfa|2fa|otp|recovery|reset)[ -]*(?:code|pass(?:word|code)|pin|token|number)|(?:my|the|your|this)\s+code)s?";
const CODE: &str = r"(\d{3}[ -]\d{3}|\d{4,8}|\d{2}(?:[ -]\d{2}){2,3})";

static HABITS: LazyLock<Vec<Habit>> = LazyLock::new(|| {
    let always: Judge = |_, _| true;
    let said: Judge = |_, secret| !is_small_talk(secret);
    let looks: Judge = |_, secret| looks_secret(secret);
    let not_an_error: Judge = |whole, _| {
        let whole = whole.to_lowercase();
        !NOT_SECRET.split_whitespace().any(|word| whole.contains(word))
    };
    let is_token: Judge = |_, secret| {
        let word = bare(secret);
        let is_code = word.len() >= 4 && word.bytes().all(|byte| byte.is_ascii_digit());
        is_code || looks_secret(word) || word.chars().count() >= 20
    };
    let has_digit: Judge = |_, secret| secret.bytes().any(|byte| byte.is_ascii_digit());
    let value = r#"(\[redacted\]|"[^"\n]+"|'[^'\n]+'|\S+)"#;
    [
        // A phrase has several words.
        (r"(?i)\bpass ?phrase\b\s*(?:[:=]+|(?:is|was)\b:?)\s*([^\n.;,]+)".to_owned(), said),
        (format!(r#"(?i)\b{PASSWORD}["']?\s*(?:[:=]+>?|->)\s*{value}"#), always),
        // Too short a word to mean only that, without a sign behind it.
        (format!(r"(?i)\b(?:pass|pw)\s*[:=]+\s*{value}"), said),
        (format!(r#"(?i)(?:\b|_)tokens?["']?\s*(?:[:=]+>?|(?:is|was)\b:?)\s*{value}"#), is_token),
        (format!(r"(?i)\b{PASSWORD}\s+(?:is|was|are|ist|war|es|est)\b\s*[:=]?\s*{value}"), said),
        (format!(r"(?i)\b{PASSWORD}\s+(?:(?:to|of|as|with)\s+)?\(?{value}"), looks),
        (format!(r"(?i)(\S+)\s+(?:is|was)\s+(?:my|the|his|her|our)\s+(?:\w+\s+)?{PASSWORD}\b"), looks),
        (
            format!(
                r"(?i)\b{ONE_TIME}\b[\s:=#-]*(?:(?:code|token|number|is|was|i got|i have|reads|says|shows|of)\b[\s:=#-]*){{0,4}}{CODE}\b"
            ),
            always,
        ),
        (
            format!(
                r"(?i)\b{CODE}\s+(?:is|was)\s+(?:(?:my|the|your|an?|our)\s+)?(?:[\w-]+\s+){{0,2}}(?:otp|totp|pin|tan|code|passcode|password)\b"
            ),
            not_an_error,
        ),
        (format!(r"(?i)(?:\b[\w-]+\s+)?\bcodes?\s*[:=]+\s*{CODE}\b"), not_an_error),
        // On the back of a card.
        (r"(?i)\b(?:security\s+(?:code|number)|cvv2?|cvc2?|card\s+verification(?:\s+(?:code|number|value))?)[\s:=#-]*(?:(?:is|was)\b[\s:=]*)?(\d{3,4})\b".to_owned(), always),
        (
            r"(?i)\b(?:serial(?:\s*(?:number|no\b\.?|nr\b\.?))?|s/n|imei|asset\s*tag|service\s*tag|seriennummer)\s*(?:(?:is|was)\b)?\s*[:=#]*\s*([a-z0-9][a-z0-9-]{4,39})\b".to_owned(),
            has_digit,
        ),
        (r"(?i)\bbearer\s+([a-z0-9._~+/=-]{12,})".to_owned(), always),
        (r"\b(eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)".to_owned(), always),
        (r"\b((?:AKIA|ASIA)[0-9A-Z]{16})\b".to_owned(), always),
        (r"\b(tdg_[A-Za-z0-9_-]{8,})".to_owned(), always),
        (r"(-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z))".to_owned(), always),
        (r"\b[a-z][a-z0-9+.-]*://[^\s/:@]*:([^\s/@]+)@".to_owned(), always),
    ]
    .into_iter()
    .map(|(pattern, judge)| Habit { pattern: Regex::new(&pattern).expect("the patterns are constant"), judge })
    .collect()
});

static DIGITS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\d(?:[ -]?\d){12,}").expect("the pattern is constant"));

/// The text without obvious secrets, and how many there were.
#[must_use]
pub fn redact(text: &str) -> (String, usize) {
    let mut found: Vec<Range<usize>> = Vec::new();
    for habit in HABITS.iter() {
        for groups in habit.pattern.captures_iter(text) {
            if let (Some(whole), Some(secret)) = (groups.get(0), groups.get(1))
                && (habit.judge)(whole.as_str(), secret.as_str())
            {
                found.push(secret.range());
            }
        }
    }
    for run in DIGITS.find_iter(text) {
        found.extend(cards(run.as_str()).map(|card| card.start + run.start()..card.end + run.start()));
    }
    replace(text, found)
}

fn replace(text: &str, mut found: Vec<Range<usize>>) -> (String, usize) {
    if found.is_empty() {
        return (text.to_owned(), 0);
    }
    found.sort_by_key(|range| range.start);
    let mut out = String::with_capacity(text.len());
    let (mut end, mut count) = (0, 0);
    for range in found {
        // Two habits may find the same secret, or parts of it.
        if range.start >= end {
            out.push_str(text.get(end..range.start).unwrap_or_default());
            out.push_str(MARKER);
            count += usize::from(text.get(range.clone()) != Some(MARKER));
        }
        end = end.max(range.end);
    }
    out.push_str(text.get(end..).unwrap_or_default());
    (out, count)
}

/// What else has a code, which is no secret.
const NOT_SECRET: &str = "error fehler status exit stop return response reason result http zip post country area dial \
    product article item order event source promo discount color colour room cost bar airport building";

/// Words that follow on "the password is" without being it.
const SMALL_TALK: &str = "a about accepted again already also always an and asked at bad because being blocked broken case \
    changed correct denied different disabled due empty expired expiring failed failing fine for forgotten from good gone \
    hidden in incorrect invalid it just known locked lost missing my needed never no not now obsolete of ok okay old on \
    out outdated refused rejected required reset right safe saved set shared short shown so still stolen stored that \
    the there this to too typed unknown valid very weak what working wrong your";

/// What people say of a password without telling it: "my password is wrong".
fn is_small_talk(word: &str) -> bool {
    let word = word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    word.is_empty() || SMALL_TALK.split_whitespace().any(|known| known == word)
}

/// A word without the marks around it.
fn bare(word: &str) -> &str {
    word.trim_matches(|c: char| matches!(c, '"' | '\'' | '(' | ')' | ',' | '.' | ';' | ':' | '?'))
}

/// Whether a word has the mixture that passwords have and words do not.
fn looks_secret(word: &str) -> bool {
    let word = bare(word);
    let letters = word.chars().any(char::is_alphabetic);
    let digits = word.chars().any(|c| c.is_ascii_digit());
    let marks = word.chars().any(|c| "!@#$%^&*+=~".contains(c));
    word.chars().count() >= 6 && [letters, digits, marks].iter().filter(|has| **has).count() >= 2
}

/// The card numbers in a run of digits with blanks or dashes between them: groups that together have a card's length,
/// begin as cards do and have the right check digit.
fn cards(run: &str) -> impl Iterator<Item = Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    for (at, digit) in run.char_indices().filter(|(_, c)| digits::value(*c).is_some()) {
        let end = at + digit.len_utf8();
        match groups.last_mut() {
            Some(group) if group.end == at => group.end = end,
            _ => groups.push(at..end),
        }
    }
    let mut found = Vec::new();
    let mut first = 0;
    while first < groups.len() {
        let ends = (first..groups.len()).rev().filter_map(|last| {
            let range = groups.get(first)?.start..groups.get(last)?.end;
            is_card(run.get(range.clone())?).then_some((last, range))
        });
        match ends.into_iter().next() {
            Some((last, range)) => {
                found.push(range);
                first = last + 1;
            }
            None => first += 1,
        }
    }
    found.into_iter()
}

fn is_card(text: &str) -> bool {
    let digits: Vec<u32> = text.chars().filter_map(digits::value).collect();
    CARD_DIGITS.contains(&digits.len()) && matches!(digits.first(), Some(2..=6)) && luhn(&digits)
}

/// The check digit of payment cards.
fn luhn(digits: &[u32]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(place, digit)| match (place % 2, digit * 2) {
            (0, _) => *digit,
            (_, double @ 10..) => double - 9,
            (_, double) => double,
        })
        .sum();
    sum.is_multiple_of(10)
}

#[cfg(test)]
#[path = "redact_tests.rs"]
mod tests;
