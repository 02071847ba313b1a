//! A first, cheap question about another field of a rule, kept beside the rule's number in its posting.
//!
//! With many rules, most of the cost of a candidate is fetching it from memory only to find that it does not match.
//! A guard may let pass what does not match; it never turns away what does.

use super::super::paths::NodeId;
use super::super::predicate::{Field, Scalar};
use super::super::verify::Seen;
use super::grams::pack;
use super::{Key, keys};

#[derive(Debug, Clone, Copy)]
pub(in super::super) enum Guard {
    None,
    /// Any leaf.
    Present(NodeId),
    /// A text with these bytes, so far from its start.
    FromStart(NodeId, Piece),
    /// A text with these bytes, so far from its end.
    FromEnd(NodeId, Piece),
    /// A number between two places in the order of doubles.
    Between(NodeId, u64, u64),
}

/// Up to eight bytes of a text, and how far from the start or end of the text they begin.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Piece {
    distance: u16,
    width: u8,
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
        let (Some(key), None) = (keys.next(), keys.next()) else { return Some(Guard::Present(node)) };
        let guard = match key {
            // The far end of an affix differs most between rules of one kind.
            Key::Prefix(text) => {
                let start = text.len().saturating_sub(WIDTH);
                Piece::new(text.as_bytes().get(start..), start).map(|piece| Guard::FromStart(node, piece))
            }
            Key::Suffix(text) | Key::Text(text) => Piece::new(text.as_bytes().get(..WIDTH.min(text.len())), text.len())
                .map(|piece| Guard::FromEnd(node, piece)),
            Key::Range(range) => {
                let low = range.low.map_or(0, |bound| bound.value.order());
                Some(Guard::Between(node, low, range.high.map_or(u64::MAX, |bound| bound.value.order())))
            }
            Key::Number(number) => Some(Guard::Between(node, number.order(), number.order())),
            _ => None,
        };
        Some(guard.unwrap_or(Guard::Present(node)))
    }

    #[inline]
    pub(in super::super) fn lets_pass(&self, seen: Seen<'_>) -> bool {
        match self {
            Guard::None => true,
            Guard::Present(node) => seen.record.leaves_at(*node).next().is_some(),
            Guard::FromStart(node, piece) => any_text(seen, *node, |text| {
                let start = usize::from(piece.distance);
                text.get(start..start + usize::from(piece.width)).is_some_and(|bytes| pack(bytes) == piece.bytes)
            }),
            Guard::FromEnd(node, piece) => any_text(seen, *node, |text| {
                let Some(start) = text.len().checked_sub(usize::from(piece.distance)) else { return false };
                text.get(start..start + usize::from(piece.width)).is_some_and(|bytes| pack(bytes) == piece.bytes)
            }),
            Guard::Between(node, low, high) => seen.record.leaves_at(*node).any(|(_, leaf)| {
                let value = seen.record.scalar(seen.text, leaf.value);
                matches!(value, Some(Scalar::Number(number)) if (*low..=*high).contains(&number.order()))
            }),
        }
    }
}

impl Piece {
    fn new(bytes: Option<&[u8]>, distance: usize) -> Option<Piece> {
        let bytes = bytes?;
        Some(Piece { distance: u16::try_from(distance).ok()?, width: bytes.len() as u8, bytes: pack(bytes) })
    }
}

fn any_text(seen: Seen<'_>, node: NodeId, test: impl Fn(&[u8]) -> bool) -> bool {
    seen.record.leaves_at(node).any(|(_, leaf)| match seen.record.scalar(seen.text, leaf.value) {
        Some(Scalar::Text(text)) => test(text.as_bytes()),
        _ => false,
    })
}
