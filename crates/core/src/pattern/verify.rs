//! Whether the leaves of one event satisfy one pattern in full.
//!
//! Each field of a combination must find a leaf, and leaves that lie in elements of the same array must lie in the same
//! element. At most one element of each array can therefore be chosen. A field's path enters at most one array of any
//! given scope, so the choices in different arrays never disturb each other and can be made from the outside in,
//! without ever going back over a choice that led somewhere.

use super::changed::same;
use super::compile::Compiled;
use super::paths::{NodeId, Paths, Want};
use super::predicate::{Changed, Field};
use super::walk::{Record, Value};

/// Where a field's leaves are noted, and for `changed` those of the other image.
#[derive(Debug, Clone, Copy)]
pub(super) struct FieldNodes {
    pub(super) here: NodeId,
    pub(super) there: NodeId,
}

/// One event after the walk.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) text: &'a str,
    pub(super) record: &'a Record,
}

/// Makes the walk note all that a pattern asks for.
pub(super) fn acquire(pattern: &Compiled, paths: &mut Paths) -> Box<[FieldNodes]> {
    let nodes = pattern.fields.iter().map(|field| {
        let mut nodes = FieldNodes { here: 0, there: 0 };
        if field.reads_values() {
            nodes.here = paths.acquire(&field.path, Want::Leaves);
        }
        if let Some(changed) = &field.changed {
            nodes.here = paths.acquire(&field.path, Want::Whole);
            nodes.there = paths.acquire(&changed.other, Want::Whole);
        }
        nodes
    });
    nodes.collect()
}

pub(super) fn release(pattern: &Compiled, paths: &mut Paths) {
    for field in &pattern.fields {
        if field.reads_values() {
            paths.release(&field.path, Want::Leaves);
        }
        if let Some(changed) = &field.changed {
            paths.release(&field.path, Want::Whole);
            paths.release(&changed.other, Want::Whole);
        }
    }
}

impl Seen<'_> {
    /// `proven` is the position of a field that needs no look, since a value outside all arrays is known to satisfy it.
    pub(super) fn satisfies(self, pattern: &Compiled, nodes: &[FieldNodes], proven: Option<usize>) -> bool {
        pattern.any(|fields| {
            let mut in_elements = Vec::new();
            for i in fields.filter(|i| Some(*i) != proven) {
                let (Some(field), Some(nodes)) = (pattern.fields.get(i), nodes.get(i)) else { return false };
                match self.place_of(field, *nodes) {
                    Place::Anywhere => {}
                    Place::InElements => in_elements.push((field, *nodes)),
                    Place::Nowhere => return false,
                }
            }
            in_elements.len() < 2 || self.together(&in_elements)
        })
    }

    fn place_of(self, field: &Field, nodes: FieldNodes) -> Place {
        if let Some(changed) = &field.changed
            && self.changed(changed, nodes)
        {
            return Place::Anywhere;
        }
        let mut place = if field.absent { Place::Anywhere } else { Place::Nowhere };
        for (_, leaf) in self.record.leaves_at(nodes.here) {
            if place == Place::Anywhere {
                // Not absent after all.
                place = Place::Nowhere;
            }
            if self.record.scalar(self.text, leaf.value).is_some_and(|value| field.accepts(value)) {
                if leaf.scope == 0 {
                    return Place::Anywhere;
                }
                place = Place::InElements;
            }
        }
        place
    }

    /// The rare case: two or more fields are only found inside array elements.
    fn together(self, fields: &[(&Field, FieldNodes)]) -> bool {
        let lists: Vec<Vec<u32>> = fields.iter().map(|(field, nodes)| self.accepted(field, *nodes)).collect();
        let lists: Vec<&[u32]> = lists.iter().map(Vec::as_slice).collect();
        self.choose(0, &lists)
    }

    fn accepted(self, field: &Field, nodes: FieldNodes) -> Vec<u32> {
        let leaves = self.record.leaves_at(nodes.here);
        let accepts = |value| self.record.scalar(self.text, value).is_some_and(|value| field.accepts(value));
        leaves.filter_map(|(position, leaf)| accepts(leaf.value).then_some(position)).collect()
    }

    /// Whether one leaf of each list can be chosen. All leaves lie inside `scope`; the lists are in the text's order.
    fn choose(self, scope: u32, lists: &[&[u32]]) -> bool {
        let mut open: Vec<(u32, &[u32])> = Vec::new();
        for list in lists {
            if list.iter().any(|&leaf| self.scope_of(leaf) == scope) {
                continue;
            }
            let Some(element) = list.first().and_then(|&leaf| self.element(scope, leaf)) else { return false };
            open.push((self.array_of(element), list));
        }
        open.sort_by_key(|(array, _)| *array);
        open.chunk_by(|a, b| a.0 == b.0).all(|group| self.choose_element(scope, group))
    }

    /// Whether one element of an array serves all lists of the group.
    fn choose_element(self, scope: u32, group: &[(u32, &[u32])]) -> bool {
        let mut rest: &[u32] = group.first().map_or(&[], |(_, list)| list);
        while let Some(element) = rest.first().and_then(|&leaf| self.element(scope, leaf)) {
            let Some(bounds) = self.record.scopes.get(element as usize) else { return false };
            let inside: Vec<&[u32]> = group.iter().map(|(_, list)| between(list, bounds.first, bounds.end)).collect();
            if inside.iter().all(|list| !list.is_empty()) && self.choose(element, &inside) {
                return true;
            }
            rest = between(rest, bounds.end, u32::MAX);
        }
        false
    }

    /// The element directly below `scope` that a leaf lies in.
    fn element(self, scope: u32, leaf: u32) -> Option<u32> {
        let mut at = self.scope_of(leaf);
        loop {
            let parent = self.record.scopes.get(at as usize)?.parent;
            if parent == scope {
                return Some(at);
            }
            at = parent;
        }
    }

    fn scope_of(self, leaf: u32) -> u32 {
        self.record.leaves.get(leaf as usize).map_or(0, |leaf| leaf.scope)
    }

    fn array_of(self, element: u32) -> u32 {
        self.record.scopes.get(element as usize).map_or(0, |scope| scope.array)
    }

    fn changed(self, changed: &Changed, nodes: FieldNodes) -> bool {
        let mut here = self.record.wholes_at(nodes.here);
        let mut there = self.record.wholes_at(nodes.there);
        let mut found = false;
        let equal = loop {
            match (here.next(), there.next()) {
                (None, None) => break true,
                (Some((_, a)), Some((_, b))) => {
                    found = true;
                    if !self.same(a.value, b.value) {
                        break false;
                    }
                }
                _ => {
                    found = true;
                    break false;
                }
            }
        };
        found && if equal { changed.same } else { changed.differs }
    }

    fn same(self, a: Value, b: Value) -> bool {
        let whole = |value| match value {
            Value::Whole(start, end) => self.text.get(start as usize..end as usize),
            _ => None,
        };
        let (Some(a), Some(b)) = (whole(a), whole(b)) else { return false };
        let plain = |text: &str| text.starts_with('"') && !text.contains('\\');
        if a == b || (plain(a) && plain(b)) {
            return a == b;
        }
        let parsed = |text| serde_json::from_str::<serde_json::Value>(text).ok();
        parsed(a).zip(parsed(b)).is_some_and(|(a, b)| same(&a, &b))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Satisfied without being bound to an element of an array.
    Anywhere,
    InElements,
    Nowhere,
}

fn between(list: &[u32], first: u32, end: u32) -> &[u32] {
    let from = list.partition_point(|&leaf| leaf < first);
    let to = list.partition_point(|&leaf| leaf < end);
    list.get(from..to).unwrap_or(&[])
}
