//! A first, cheap question about another field of a rule, kept beside the rule's number in its posting.
//!
//! With many rules, most of the cost of a candidate is fetching it from memory only to find that it does not match, or
//! that nothing else was to be asked. A guard may let pass what does not match; it never turns away what does. Where its
//! question is all that the field asks, it says so, and a rule that has no other field need not be fetched at all.

use std::net::Ipv4Addr;

use super::super::paths::NodeId;
use super::super::predicate::{Field, Test};
use super::super::verify::Seen;
use super::super::walk::Value;
use super::grams::pack;
use super::ranges::ends;
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
    /// An IPv4 address that begins like this one, so many bits of it.
    Net(NodeId, u8, u32),
    /// Anything but these texts, of which lengths and first bytes are known.
    Not(NodeId, [u8; 2], [u64; 2]),
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
            Key::Range(range) => {
                let (low, high) = ends(range);
                Some(Guard::Between(node, true, low, high))
            }
            Key::Number(number) => Some(Guard::Between(node, number.is_alone(), number.order(), number.order())),
            Key::Net(net) if !net.v6 => u32::try_from(net.base).ok().map(|base| Guard::Net(node, net.bits, base)),
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
        let (one, other) = match &*excluded.texts {
            [only] => (only.as_bytes(), only.as_bytes()),
            [one, other] => (one.as_bytes(), other.as_bytes()),
            _ => return None,
        };
        Some(Guard::Not(node, [length(one), length(other)], [first_bytes(one), first_bytes(other)]))
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
                let holds = |value| matches!(value, Value::Number(number) if (*low..=*high).contains(&number.order()));
                verdict(seen.record.leaves_at(*node).any(|(_, leaf)| holds(leaf.value)), *exact)
            }
            Guard::Net(node, bits, base) => {
                let is = |text: &[u8]| {
                    let address = std::str::from_utf8(text).ok().and_then(|text| text.parse::<Ipv4Addr>().ok());
                    let differing = address.map(|address| (address.to_bits() ^ base).leading_zeros());
                    differing.is_some_and(|same| same >= u32::from(*bits))
                };
                verdict(any_text(seen, *node, is), true)
            }
            Guard::Not(node, lengths, bytes) => Guard::judge_not(seen, *node, *lengths, *bytes),
        }
    }

    fn judge_not(seen: Seen<'_>, node: NodeId, lengths: [u8; 2], bytes: [u64; 2]) -> Verdict {
        let mut verdict = Verdict::Unsatisfied;
        for (_, leaf) in seen.record.leaves_at(node) {
            let Some(text) = seen.record.bytes(seen.text, leaf.value) else { return Verdict::Satisfied };
            let (its_length, its_bytes) = (length(text), first_bytes(text));
            if !lengths.iter().zip(&bytes).any(|of| of == (&its_length, &its_bytes)) {
                return Verdict::Satisfied;
            }
            // What is longer than its first bytes may still differ in the others.
            if text.len() > WIDTH {
                verdict = Verdict::Unsure;
            }
        }
        verdict
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

fn length(text: &[u8]) -> u8 {
    u8::try_from(text.len()).unwrap_or(u8::MAX)
}

fn first_bytes(text: &[u8]) -> u64 {
    text.first_chunk::<WIDTH>().map_or_else(|| pack(text), |first| pack(first))
}

impl Piece {
    fn new(bytes: Option<&[u8]>, distance: usize, all: bool) -> Option<Piece> {
        let bytes = bytes?;
        Some(Piece { distance: u16::try_from(distance).ok()?, width: bytes.len() as u8, all, bytes: pack(bytes) })
    }

    #[inline]
    fn stands_at(self, text: &[u8], start: usize) -> bool {
        text.get(start..start + usize::from(self.width)).is_some_and(|bytes| pack(bytes) == self.bytes)
    }
}

#[inline]
fn any_text(seen: Seen<'_>, node: NodeId, test: impl Fn(&[u8]) -> bool) -> bool {
    seen.record.leaves_at(node).any(|(_, leaf)| seen.record.bytes(seen.text, leaf.value).is_some_and(&test))
}
