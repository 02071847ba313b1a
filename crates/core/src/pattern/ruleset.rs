//! Many rules against one event: look up the candidates, verify each.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::compile::{Combinations, Compiled};
use super::index::{self, Buffers, Guard, Key, Posting, RuleId, Verdict};
use super::paths::{NodeId, Paths};
use super::predicate::Field;
use super::sieve::Sieve;
use super::verify::{self, FieldNodes, Seen};
use super::walk::{Leaf, Record, Value, walk};
use super::{EventError, Pattern};

/// Rules, each a pattern under an id, indexed so that an event is held against few of them.
///
/// Adding and removing a rule changes the index in place; its cost does not grow with the number of rules, save for
/// rules that share one key, which are searched. A clone is a copy of the index, made without compiling anything.
#[derive(Debug, Clone)]
pub struct RuleSet<K> {
    paths: Paths,
    rules: Vec<Option<Rule>>,
    /// By rule. Apart, since most matches are decided without the rule itself, and all are named.
    names: Vec<Option<K>>,
    free: Vec<RuleId>,
    ids: FxHashMap<K, RuleId>,
    /// Nodes under which rules wait for a path to be absent.
    absent: BTreeSet<NodeId>,
    sieve: Sieve,
}

/// Working memory for matching. One for each thread; it may be used with any rule set.
#[derive(Debug, Default)]
pub struct Scratch {
    record: Record,
    buffers: Buffers,
    /// By rule: the last event that called it up.
    called: Vec<u64>,
    event: u64,
    matched: Vec<RuleId>,
}

#[derive(Debug, Clone)]
struct Rule {
    pattern: Arc<Compiled>,
    nodes: Box<[FieldNodes]>,
    posted: Posted,
    /// The field it is posted under proves itself by the lookup that called the rule up.
    proven: bool,
}

/// The field under which each combination is posted. Kept, since the best choice changes with the set.
#[derive(Debug, Clone)]
enum Posted {
    One(usize),
    Each(Box<[usize]>),
}

impl Scratch {
    pub fn new() -> Scratch {
        Scratch::default()
    }
}

impl<K: Clone + Eq + Hash + Ord> Default for RuleSet<K> {
    fn default() -> Self {
        RuleSet::new()
    }
}

impl<K: Clone + Eq + Hash + Ord> RuleSet<K> {
    pub fn new() -> Self {
        RuleSet {
            paths: Paths::new(),
            rules: Vec::new(),
            names: Vec::new(),
            free: Vec::new(),
            ids: FxHashMap::default(),
            absent: BTreeSet::new(),
            sieve: Sieve::default(),
        }
    }

    pub fn len(&self) -> usize {
        self.ids.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Adds a rule, in place of the one with the same id if there is one.
    pub fn insert(&mut self, id: K, pattern: &Pattern) {
        self.remove(&id);
        let rule = self.free.pop().unwrap_or_else(|| {
            self.rules.push(None);
            self.names.push(None);
            (self.rules.len() - 1) as RuleId
        });
        let pattern = Arc::clone(&pattern.compiled);
        self.sieve.add(&pattern);
        let nodes = verify::acquire(&pattern, &mut self.paths);
        let posted = self.best_fields(&pattern, &nodes);
        let proven = match posted {
            Posted::One(field) => pattern.fields.get(field).is_some_and(index::proves),
            Posted::Each(_) => false,
        };
        let guard = self.guard(&pattern, &nodes, &posted);
        let asked = 1 + usize::from(!matches!(guard, Guard::None));
        let whole = proven && matches!(pattern.combinations, Combinations::All) && pattern.fields.len() == asked;
        let posting = Posting { rule, whole, guard };
        for (field, nodes) in posted_fields(&pattern, &nodes, &posted) {
            self.post(field, nodes, posting);
        }
        self.ids.insert(id.clone(), rule);
        if let (Some(slot), Some(name)) = (self.rules.get_mut(rule as usize), self.names.get_mut(rule as usize)) {
            *slot = Some(Rule { pattern, nodes, posted, proven });
            *name = Some(id);
        }
    }

    /// Takes a rule out; says whether it was there.
    pub fn remove(&mut self, id: &K) -> bool {
        let Some(rule) = self.ids.remove(id) else { return false };
        let Some(Rule { pattern, nodes, posted, .. }) = self.rules.get_mut(rule as usize).and_then(Option::take) else {
            return false;
        };
        for (field, nodes) in posted_fields(&pattern, &nodes, &posted) {
            self.unpost(field, nodes, rule);
        }
        verify::release(&pattern, &mut self.paths);
        self.sieve.remove(&pattern);
        if let Some(name) = self.names.get_mut(rule as usize) {
            *name = None;
        }
        self.free.push(rule);
        true
    }

    /// Whether a rule may match an event with this text, and nothing else, as its `eventType`. If not, [`RuleSet::matches`]
    /// would find none, which takes far longer.
    pub fn may_match(&self, event_type: &str) -> bool {
        self.sieve.passes(event_type)
    }

    /// The ids of all rules that match an event, each once, in order.
    pub fn matches<'a>(&'a self, event: &str, scratch: &mut Scratch) -> Result<Vec<&'a K>, EventError> {
        walk(event, &self.paths, &mut scratch.record)?;
        scratch.event += 1;
        scratch.matched.clear();
        if scratch.called.len() < self.rules.len() {
            scratch.called.resize(self.rules.len(), 0);
        }
        let Scratch { record, buffers, called, event: number, matched } = scratch;
        let seen = Seen { text: event, record };
        // With one value at each path and no array's elements to tell apart, a rule is called up by one key at most,
        // and key and guard speak of the same values as the rule would.
        let plain = seen.record.scopes.len() == 1 && !seen.record.repeats;
        let mut call = |posting: &Posting| {
            let id = posting.rule;
            match posting.guard.judge(seen) {
                Verdict::Unsatisfied => return,
                Verdict::Satisfied if plain && posting.whole => return matched.push(id),
                Verdict::Satisfied | Verdict::Unsure => {}
            }
            let Some(last) = called.get_mut(id as usize).filter(|last| **last != *number) else { return };
            *last = *number;
            if self.rule(id).is_some_and(|rule| rule.matches(seen)) {
                matched.push(id);
            }
        };
        for leaf in &seen.record.leaves {
            self.look_up(seen, leaf, buffers, &mut call);
        }
        for &node in &self.absent {
            if let Some(index) = &self.paths.node(node).index
                && seen.record.leaves_at(node).next().is_none()
            {
                index.absent().each(&mut call);
            }
        }
        let mut ids: Vec<&K> = matched.iter().filter_map(|&rule| self.names.get(rule as usize)?.as_ref()).collect();
        ids.sort_unstable();
        // A rule that is decided by its key alone may have been called up by two of its values.
        ids.dedup();
        Ok(ids)
    }

    fn look_up(&self, seen: Seen<'_>, leaf: &Leaf, buffers: &mut Buffers, call: &mut impl FnMut(&Posting)) {
        let Some(index) = &self.paths.node(leaf.node).index else { return };
        if let Value::Whole(..) = leaf.value {
            index.changed().each(call);
        } else if let Some(value) = seen.record.scalar(seen.text, leaf.value) {
            index.look_up(value, buffers, call);
        }
    }

    fn rule(&self, id: RuleId) -> Option<&Rule> {
        self.rules.get(id as usize)?.as_ref()
    }

    /// For each combination the field whose alternatives together call up the fewest rules.
    fn best_fields(&self, pattern: &Compiled, nodes: &[FieldNodes]) -> Posted {
        let best = |fields: &mut dyn Iterator<Item = usize>| {
            let costs = fields.map(|field| (self.cost(pattern, nodes, field).unwrap_or(usize::MAX), field));
            costs.min().map_or(0, |(_, field)| field)
        };
        match &pattern.combinations {
            Combinations::All => Posted::One(best(&mut (0..pattern.fields.len()))),
            Combinations::AnyOf(choices) => {
                Posted::Each(choices.iter().map(|choice| best(&mut choice.iter().map(|&i| usize::from(i)))).collect())
            }
        }
    }

    fn cost(&self, pattern: &Compiled, nodes: &[FieldNodes], field: usize) -> Option<usize> {
        let index = self.paths.node(nodes.get(field)?.here).index.as_deref();
        Some(index::keys(pattern.fields.get(field)?).map(|key| index::cost(index, key) + 1).sum())
    }

    /// What a candidate must pass besides the key that called it up: the best of the other fields. A rule is posted
    /// once for all its combinations, so the field must be in all of them.
    fn guard(&self, pattern: &Compiled, nodes: &[FieldNodes], posted: &Posted) -> Guard {
        let common = |field: usize| match (&pattern.combinations, posted) {
            (Combinations::All, Posted::One(posted)) => field != *posted,
            (Combinations::AnyOf(choices), _) => {
                choices.iter().all(|choice| choice.iter().any(|&i| usize::from(i) == field))
            }
            _ => false,
        };
        let guards = (0..pattern.fields.len()).filter(|field| common(*field)).filter_map(|field| {
            let guard = Guard::new(pattern.fields.get(field)?, nodes.get(field)?.here)?;
            Some((self.cost(pattern, nodes, field)?, guard))
        });
        guards.min_by_key(|(cost, _)| *cost).map_or(Guard::None, |(_, guard)| guard)
    }

    fn post(&mut self, field: &Field, nodes: FieldNodes, posting: Posting) {
        for key in index::keys(field) {
            self.paths.node_mut(nodes.here).index.get_or_insert_default().post(key, posting);
            match key {
                Key::Changed => self.paths.node_mut(nodes.there).index.get_or_insert_default().post(key, posting),
                Key::Absent => drop(self.absent.insert(nodes.here)),
                _ => {}
            }
        }
    }

    fn unpost(&mut self, field: &Field, nodes: FieldNodes, rule: RuleId) {
        for key in index::keys(field) {
            let Some(index) = &mut self.paths.node_mut(nodes.here).index else { continue };
            index.unpost(key, rule);
            match key {
                Key::Absent if index.absent().is_empty() => drop(self.absent.remove(&nodes.here)),
                Key::Changed => {
                    if let Some(index) = &mut self.paths.node_mut(nodes.there).index {
                        index.unpost(key, rule);
                    }
                }
                _ => {}
            }
        }
    }
}

impl Rule {
    fn matches(&self, seen: Seen<'_>) -> bool {
        let proven = match self.posted {
            // Where arrays were entered, the value that called the rule up may be bound to an element.
            Posted::One(field) if self.proven && seen.record.scopes.len() == 1 => Some(field),
            _ => None,
        };
        seen.satisfies(&self.pattern, &self.nodes, proven)
    }
}

fn posted_fields<'a>(
    pattern: &'a Compiled,
    nodes: &'a [FieldNodes],
    posted: &'a Posted,
) -> impl Iterator<Item = (&'a Field, FieldNodes)> {
    let fields = match posted {
        Posted::One(field) => std::slice::from_ref(field),
        Posted::Each(fields) => fields,
    };
    fields.iter().filter_map(|&i| Some((pattern.fields.get(i)?, *nodes.get(i)?)))
}
