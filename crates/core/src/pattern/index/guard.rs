//! A first, cheap question about another field of a rule, kept beside the rule's number in its posting.
//!
//! With many rules, most of the cost of a candidate is fetching it from memory only to find that it does not match, or
//! that nothing else was to be asked. A guard may let pass what does not match; it never turns away what does. Where its
//! question is all that the field asks, it says so, and a rule that has no other field need not be fetched at all.

use super::super::paths::NodeId;
use super::super::predicate::{Bound, Field, Scalar, Test};
use super::super::verify::Seen;
use super::grams::pack;
use super::{Key, keys};

#[derive(Debug, Clone, Copy)]
pub(in super::super) enum Guard {
    /// Nothing to ask.
    None,
    /// Any leaf; and whether any will do.
    Present(NodeId, bool),
    /// This text, of which the first bytes are known.
    Text(NodeId, Piece),
    /// A text with these bytes, so far from its start.
    FromStart(NodeId, Piece),
    /// A text with these bytes, so far from its end.
    FromEnd(NodeId, Piece),
    /// A number between two places in the order of doubles, both included; and whether no other will do.
    Between(NodeId, bool, u64, u64),
    /// Anything but texts of these signatures.
    Not(NodeId, [u64; 2]),
}

/// What a guard knows of its field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Verdict {
    Unsatisfied,
    Unsure,
    Satisfied,
}

/// Up to eight bytes of a text, and how far from the start or end of the text they begin.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Piece {
    distance: u16,
    width: u8,
    /// Whether these bytes are all that is asked for.
    all: bool,
    bytes: u64,
}

const WIDTH: usize = 8;

impl Guard {
    /// `None` if the field may be satisfied by no leaf at all.
    pub(in super::super) fn new(field: &Field, node: NodeId) -> Option<Guard> {
        if field.absent || field.changed.is_some() {
            return None;
        }
        let mut keys = keys(field);
        let (Some(key), None) = (keys.next(), keys.next()) else { return Some(Guard::Present(node, field.present)) };
        let guard = match key {
            // The far end of an affix differs most between rules of one kind.
            Key::Prefix(text) => {
                let start = text.len().saturating_sub(WIDTH);
                let piece = Piece::new(text.as_bytes().get(start..), start, start == 0 && is_prefix(field));
                piece.map(|piece| Guard::FromStart(node, piece))
            }
            Key::Suffix(text) => {
                let bytes = text.as_bytes().get(..WIDTH.min(text.len()));
                let piece = Piece::new(bytes, text.len(), text.len() <= WIDTH && is_suffix(field));
                piece.map(|piece| Guard::FromEnd(node, piece))
            }
            Key::Text(text) => {
                let bytes = text.as_bytes().get(..WIDTH.min(text.len()));
                Piece::new(bytes, text.len(), text.len() <= WIDTH).map(|piece| Guard::Text(node, piece))
            }
            // The ends are whole doubles, so what is beyond one begins with the next double.
            Key::Range(range) => {
                let beyond = |bound: Bound| u64::from(!bound.included);
                let low = range.low.map_or(0, |low| low.value.order().saturating_add(beyond(low)));
                let high = range.high.map_or(u64::MAX, |high| high.value.order().saturating_sub(beyond(high)));
                Some(Guard::Between(node, true, low, high))
            }
            Key::Number(number) => Some(Guard::Between(node, number.is_alone(), number.order(), number.order())),
            Key::Any => Guard::not(field, node),
            _ => None,
        };
        Some(guard.unwrap_or(Guard::Present(node, field.present)))
    }

    /// For `anything-but` with one or two texts.
    fn not(field: &Field, node: NodeId) -> Option<Guard> {
        let [Test::AnythingBut(excluded)] = &*field.tests else { return None };
        if !(excluded.numbers.is_empty() && excluded.tests.is_empty()) {
            return None;
        }
        let signatures = match &*excluded.texts {
            [one] => [signature(one), signature(one)],
            [one, other] => [signature(one), signature(other)],
            _ => return None,
        };
        Some(Guard::Not(node, signatures))
    }

    #[inline]
    pub(in super::super) fn judge(&self, seen: Seen<'_>) -> Verdict {
        match self {
            Guard::None => Verdict::Satisfied,
            Guard::Present(node, any_will_do) => verdict(seen.record.leaves_at(*node).next().is_some(), *any_will_do),
            Guard::Text(node, piece) => {
                let is = |text: &[u8]| text.len() == usize::from(piece.distance) && piece.stands_at(text, 0);
                verdict(any_text(seen, *node, is), piece.all)
            }
            Guard::FromStart(node, piece) => {
                let is = |text: &[u8]| piece.stands_at(text, usize::from(piece.distance));
                verdict(any_text(seen, *node, is), piece.all)
            }
            Guard::FromEnd(node, piece) => {
                let start = |text: &[u8]| text.len().checked_sub(usize::from(piece.distance));
                let is = |text: &[u8]| start(text).is_some_and(|start| piece.stands_at(text, start));
                verdict(any_text(seen, *node, is), piece.all)
            }
            Guard::Between(node, exact, low, high) => {
                let holds = |value: Scalar<'_>| matches!(value, Scalar::Number(number) if (*low..=*high).contains(&number.order()));
                verdict(any_value(seen, *node, holds), *exact)
            }
            Guard::Not(node, excluded) => {
                // Equal signatures do not prove equal texts; different ones prove that the texts differ.
                let differs = |value: Scalar<'_>| match value {
                    Scalar::Text(text) => !excluded.contains(&signature(text)),
                    Scalar::Null | Scalar::Bool(_) | Scalar::Number(_) => true,
                };
                match any_value(seen, *node, differs) {
                    true => Verdict::Satisfied,
                    false if seen.record.leaves_at(*node).next().is_some() => Verdict::Unsure,
                    false => Verdict::Unsatisfied,
                }
            }
        }
    }
}

/// Whether the field's one alternative is a prefix as such, and no wildcard that begins like one.
fn is_prefix(field: &Field) -> bool {
    matches!(&*field.tests, [Test::Prefix(_)])
}

fn is_suffix(field: &Field) -> bool {
    matches!(&*field.tests, [Test::Suffix(_)])
}

fn verdict(found: bool, enough: bool) -> Verdict {
    match (found, enough) {
        (false, _) => Verdict::Unsatisfied,
        (true, false) => Verdict::Unsure,
        (true, true) => Verdict::Satisfied,
    }
}

/// Different texts may share one; the same text always has the same.
fn signature(text: &str) -> u64 {
    let bytes = text.as_bytes();
    let first = bytes.first_chunk::<WIDTH>().map_or_else(|| pack(bytes), |first| pack(first));
    let last = bytes.last_chunk::<WIDTH>().map_or(0, |last| pack(last));
    first ^ last.rotate_left(29) ^ (bytes.len() as u64).rotate_left(53)
}

impl Piece {
    fn new(bytes: Option<&[u8]>, distance: usize, all: bool) -> Option<Piece> {
        let bytes = bytes?;
        Some(Piece { distance: u16::try_from(distance).ok()?, width: bytes.len() as u8, all, bytes: pack(bytes) })
    }

    fn stands_at(self, text: &[u8], start: usize) -> bool {
        text.get(start..start + usize::from(self.width)).is_some_and(|bytes| pack(bytes) == self.bytes)
    }
}

fn any_value(seen: Seen<'_>, node: NodeId, test: impl Fn(Scalar<'_>) -> bool) -> bool {
    seen.record.leaves_at(node).any(|(_, leaf)| seen.record.scalar(seen.text, leaf.value).is_some_and(&test))
}

fn any_text(seen: Seen<'_>, node: NodeId, test: impl Fn(&[u8]) -> bool) -> bool {
    any_value(seen, node, |value| matches!(value, Scalar::Text(text) if test(text.as_bytes())))
}
