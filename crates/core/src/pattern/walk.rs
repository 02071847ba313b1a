//! The one walk over an event's text. It enters only paths that rules mention and notes the leaves it finds there;
//! no tree of the event is built.
//!
//! Repeated keys: the last one counts, as with most JSON readers. Arrays: their elements stand at the array's own path,
//! and each element that is an object or array is a scope, by which `verify` keeps fields of one element together.

use super::EventError;
use super::limits::MAX_EVENT_BYTES;
use super::number::Num;
use super::paths::{NodeId, Paths, ROOT};
use super::predicate::Scalar;
use super::scan::{Scanner, Span};

pub(super) const NONE: u32 = u32::MAX;

/// What the walk found. Kept between events, so that a steady stream allocates nothing.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) leaves: Vec<Leaf>,
    pub(super) scopes: Vec<Scope>,
    /// By node: the chains of its leaves and of its whole values.
    chains: Vec<[Chain; 2]>,
    /// By node: where it was last seen as a key.
    sightings: Vec<Sighting>,
    /// Strings that had escapes.
    decoded: String,
    /// Whether some path has more than one leaf.
    pub(super) repeats: bool,
    /// Numbers each object, in all events, so that `sightings` need no clearing.
    objects: u64,
    /// Numbers the events, so that `chains` need no clearing.
    event: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Leaf {
    pub(super) node: NodeId,
    pub(super) scope: u32,
    next: u32,
    pub(super) value: Value,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Value {
    /// Overruled by a later key of the same name.
    Dead,
    Null,
    Bool(bool),
    Number(Num),
    /// A piece of the event's text.
    Text(u32, u32),
    /// A piece of `decoded`.
    Decoded(u32, u32),
    /// The text of a whole value.
    Whole(u32, u32),
}

/// An element of an array. Scope 0 is the event.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scope {
    pub(super) parent: u32,
    pub(super) array: u32,
    /// The leaves found inside: a range of positions.
    pub(super) first: u32,
    pub(super) end: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Chain {
    event: u64,
    first: u32,
    last: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sighting {
    object: u64,
    first: u32,
    end: u32,
}

pub(super) fn walk(text: &str, paths: &Paths, record: &mut Record) -> Result<(), EventError> {
    record.begin(paths.len());
    let mut walker = Walker { scanner: Scanner::new(text), paths, record, arrays: 0 };
    if text.len() > MAX_EVENT_BYTES {
        return Err(walker.scanner.error("the event is too long"));
    }
    if walker.scanner.next_token()? != b'{' {
        return Err(walker.scanner.error("an event must be an object"));
    }
    walker.object(ROOT, 0)?;
    walker.scanner.end()
}

struct Walker<'a> {
    scanner: Scanner<'a>,
    paths: &'a Paths,
    record: &'a mut Record,
    arrays: u32,
}

impl Walker<'_> {
    fn object(&mut self, node: NodeId, scope: u32) -> Result<(), EventError> {
        self.record.objects += 1;
        let object = self.record.objects;
        self.scanner.enter()?;
        if self.scanner.next_token()? == b'}' {
            self.scanner.leave();
            return Ok(());
        }
        loop {
            if self.scanner.next_token()? != b'"' {
                return Err(self.scanner.error("expected a key"));
            }
            let key = self.scanner.string()?;
            self.scanner.expect(b':', "expected a colon")?;
            match self.child(node, key)? {
                Some(child) => self.member(child, scope, object)?,
                None => self.scanner.skip()?,
            }
            match self.scanner.next_token()? {
                b',' => self.scanner.take(),
                b'}' => break,
                _ => return Err(self.scanner.error("expected a comma or the end of the object")),
            }
        }
        self.scanner.leave();
        Ok(())
    }

    fn child(&self, node: NodeId, key: Span) -> Result<Option<NodeId>, EventError> {
        let children = &self.paths.node(node).children;
        if key.escaped {
            return Ok(children.get(self.scanner.unescape(key)?.as_str()).copied());
        }
        Ok(children.get(self.scanner.slice(key.start, key.end)?).copied())
    }

    fn member(&mut self, node: NodeId, scope: u32, object: u64) -> Result<(), EventError> {
        self.record.forget_repeated(node, object);
        self.scanner.next_token()?;
        let start = self.scanner.at();
        let first = self.record.leaves.len() as u32;
        let whole = self.paths.node(node).wants_whole();
        if whole {
            self.record.note(node, scope, Value::Whole(start as u32, start as u32));
        }
        self.value(node, scope)?;
        if whole && let Some(leaf) = self.record.leaves.get_mut(first as usize) {
            leaf.value = Value::Whole(start as u32, self.scanner.at() as u32);
        }
        self.record.sight(node, Sighting { object, first, end: self.record.leaves.len() as u32 });
        Ok(())
    }

    fn value(&mut self, node: NodeId, scope: u32) -> Result<(), EventError> {
        let here = self.paths.node(node);
        let leaves = here.wants_leaves();
        let value = match self.scanner.next_token()? {
            b'{' if here.children.is_empty() => return self.scanner.skip(),
            b'{' => return self.object(node, scope),
            b'[' if leaves || !here.children.is_empty() => return self.array(node, scope),
            _ if !leaves => return self.scanner.skip(),
            b'"' => self.text()?,
            b't' => self.scanner.word("true").map(|()| Value::Bool(true))?,
            b'f' => self.scanner.word("false").map(|()| Value::Bool(false))?,
            b'n' => self.scanner.word("null").map(|()| Value::Null)?,
            _ => {
                let number = Num::parse(self.scanner.number()?);
                Value::Number(number.ok_or_else(|| self.scanner.error("expected a value"))?)
            }
        };
        self.record.note(node, scope, value);
        Ok(())
    }

    fn array(&mut self, node: NodeId, scope: u32) -> Result<(), EventError> {
        let array = self.arrays;
        self.arrays += 1;
        self.scanner.enter()?;
        if self.scanner.next_token()? == b']' {
            self.scanner.leave();
            return Ok(());
        }
        loop {
            if matches!(self.scanner.next_token()?, b'{' | b'[') {
                let first = self.record.leaves.len() as u32;
                let element = self.record.scopes.len();
                self.record.scopes.push(Scope { parent: scope, array, first, end: first });
                self.value(node, element as u32)?;
                let end = self.record.leaves.len() as u32;
                if let Some(scope) = self.record.scopes.get_mut(element) {
                    scope.end = end;
                }
            } else {
                self.value(node, scope)?;
            }
            match self.scanner.next_token()? {
                b',' => self.scanner.take(),
                b']' => break,
                _ => return Err(self.scanner.error("expected a comma or the end of the array")),
            }
        }
        self.scanner.leave();
        Ok(())
    }

    fn text(&mut self) -> Result<Value, EventError> {
        let span = self.scanner.string()?;
        if !span.escaped {
            return Ok(Value::Text(span.start as u32, span.end as u32));
        }
        let start = self.record.decoded.len() as u32;
        self.record.decoded.push_str(&self.scanner.unescape(span)?);
        Ok(Value::Decoded(start, self.record.decoded.len() as u32))
    }
}

impl Record {
    fn begin(&mut self, nodes: usize) {
        self.event += 1;
        self.repeats = false;
        self.leaves.clear();
        self.decoded.clear();
        self.scopes.clear();
        self.scopes.push(Scope { parent: NONE, array: NONE, first: 0, end: NONE });
        if self.chains.len() < nodes {
            self.chains.resize(nodes, Default::default());
            self.sightings.resize(nodes, Sighting::default());
        }
    }

    fn note(&mut self, node: NodeId, scope: u32, value: Value) {
        let position = self.leaves.len() as u32;
        self.leaves.push(Leaf { node, scope, next: NONE, value });
        let kind = usize::from(matches!(value, Value::Whole(..)));
        let Some(chain) = self.chains.get_mut(node as usize).and_then(|chains| chains.get_mut(kind)) else { return };
        if chain.event != self.event {
            *chain = Chain { event: self.event, first: position, last: position };
            return;
        }
        if let Some(last) = self.leaves.get_mut(chain.last as usize) {
            last.next = position;
        }
        chain.last = position;
        self.repeats = true;
    }

    fn sight(&mut self, node: NodeId, sighting: Sighting) {
        if let Some(slot) = self.sightings.get_mut(node as usize) {
            *slot = sighting;
        }
    }

    fn forget_repeated(&mut self, node: NodeId, object: u64) {
        let Some(sighting) = self.sightings.get(node as usize).filter(|sighting| sighting.object == object) else {
            return;
        };
        let overruled = self.leaves.get_mut(sighting.first as usize..sighting.end as usize);
        overruled.into_iter().flatten().for_each(|leaf| leaf.value = Value::Dead);
    }

    /// The leaves at a node, in the order of the text, dead ones left out. Each with its position.
    #[inline]
    pub(super) fn leaves_at(&self, node: NodeId) -> impl Iterator<Item = (u32, &Leaf)> {
        self.chain(node, 0)
    }

    /// The whole values at a node.
    pub(super) fn wholes_at(&self, node: NodeId) -> impl Iterator<Item = (u32, &Leaf)> {
        self.chain(node, 1)
    }

    #[inline]
    fn chain(&self, node: NodeId, kind: usize) -> impl Iterator<Item = (u32, &Leaf)> {
        let chain = self.chains.get(node as usize).and_then(|chains| chains.get(kind));
        let mut at = chain.filter(|chain| chain.event == self.event).map_or(NONE, |chain| chain.first);
        std::iter::from_fn(move || {
            let leaf = self.leaves.get(at as usize)?;
            Some((std::mem::replace(&mut at, leaf.next), leaf))
        })
        .filter(|(_, leaf)| !matches!(leaf.value, Value::Dead))
    }

    /// A leaf's text; `None` for what is no text.
    #[inline]
    pub(super) fn bytes<'a>(&'a self, text: &'a str, value: Value) -> Option<&'a [u8]> {
        match value {
            Value::Text(start, end) => text.as_bytes().get(start as usize..end as usize),
            Value::Decoded(start, end) => self.decoded.as_bytes().get(start as usize..end as usize),
            Value::Dead | Value::Whole(..) | Value::Null | Value::Bool(_) | Value::Number(_) => None,
        }
    }

    /// A leaf's value; `None` for what is no leaf.
    #[inline]
    pub(super) fn scalar<'a>(&'a self, text: &'a str, value: Value) -> Option<Scalar<'a>> {
        Some(match value {
            Value::Dead | Value::Whole(..) => return None,
            Value::Null => Scalar::Null,
            Value::Bool(value) => Scalar::Bool(value),
            Value::Number(number) => Scalar::Number(number),
            Value::Text(start, end) => Scalar::Text(text.get(start as usize..end as usize)?),
            Value::Decoded(start, end) => Scalar::Text(self.decoded.get(start as usize..end as usize)?),
        })
    }
}
