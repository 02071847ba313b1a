//! Many key patterns at once: a tree of their words, walked once for each key.

use std::collections::BTreeMap;

use super::key::{KeyPattern, Word, words_of};

/// Key patterns by id, found by the keys they match.
///
/// All places that the words read so far may have led to are followed side by side, each at most once a word. So a key
/// costs no more than its words times the places there are, and usually a few; no pattern makes it go back.
#[derive(Debug, Clone)]
pub struct KeyIndex<I> {
    patterns: BTreeMap<I, KeyPattern>,
    /// The first is the root. Places given up are named in `free`.
    places: Vec<Place<I>>,
    free: Vec<usize>,
}

#[derive(Debug, Clone)]
struct Place<I> {
    exact: BTreeMap<Box<str>, usize>,
    one: Option<usize>,
    any: Option<usize>,
    /// Whether this place was reached by `#`, and so is kept whatever word comes.
    repeats: bool,
    /// The patterns that end here.
    ids: Vec<I>,
}

const ROOT: usize = 0;

impl<I: Ord + Clone> Default for KeyIndex<I> {
    fn default() -> KeyIndex<I> {
        KeyIndex { patterns: BTreeMap::new(), places: vec![Place::new(false)], free: Vec::new() }
    }
}

impl<I: Ord + Clone> KeyIndex<I> {
    pub fn new() -> KeyIndex<I> {
        KeyIndex::default()
    }

    pub fn len(&self) -> usize {
        self.patterns.len()
    }

    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Puts a pattern under an id, in place of the one it had.
    pub fn insert(&mut self, id: I, pattern: &KeyPattern) {
        self.remove(&id);
        let mut at = ROOT;
        for word in pattern.words() {
            at = match self.places.get(at).and_then(|place| place.after(word)) {
                Some(next) => next,
                None => self.grow(at, word),
            };
        }
        if let Some(place) = self.places.get_mut(at) {
            place.ids.push(id.clone());
        }
        self.patterns.insert(id, pattern.clone());
    }

    /// Whether there was one.
    pub fn remove(&mut self, id: &I) -> bool {
        let Some(pattern) = self.patterns.remove(id) else { return false };
        let mut way = vec![ROOT];
        for word in pattern.words() {
            let next = way.last().and_then(|at| self.places.get(*at)).and_then(|place| place.after(word));
            way.extend(next);
        }
        if let Some(place) = way.last().and_then(|at| self.places.get_mut(*at)) {
            place.ids.retain(|held| held != id);
        }
        // Places that nothing needs any more go, from the end of the way back.
        for (depth, word) in pattern.words().iter().enumerate().rev() {
            let (Some(&above), Some(&at)) = (way.get(depth), way.get(depth + 1)) else { break };
            if !self.places.get(at).is_some_and(Place::is_bare) {
                break;
            }
            if let Some(place) = self.places.get_mut(above) {
                place.cut(word);
            }
            self.free.push(at);
        }
        true
    }

    /// The ids of all patterns that match, in order.
    pub fn matches(&self, key: &str) -> Vec<&I> {
        let mut here = Vec::new();
        self.enter(ROOT, &mut here);
        for word in words_of(key) {
            let mut next = Vec::new();
            for (at, place) in here.iter().filter_map(|at| Some((*at, self.places.get(*at)?))) {
                if place.repeats {
                    self.enter(at, &mut next);
                }
                place.exact.get(word).into_iter().chain(&place.one).for_each(|to| self.enter(*to, &mut next));
            }
            next.sort_unstable();
            next.dedup();
            here = next;
        }
        let mut ids: Vec<&I> = here.iter().filter_map(|at| self.places.get(*at)).flat_map(|place| &place.ids).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// A place, and the one behind a `#` that stands for no word at all. Two `#` never follow each other.
    fn enter(&self, at: usize, into: &mut Vec<usize>) {
        into.push(at);
        into.extend(self.places.get(at).and_then(|place| place.any));
    }

    fn grow(&mut self, from: usize, word: &Word) -> usize {
        let new = Place::new(*word == Word::Any);
        let at = match self.free.pop() {
            Some(at) => at,
            None => {
                self.places.push(Place::new(false));
                self.places.len() - 1
            }
        };
        if let Some(place) = self.places.get_mut(at) {
            *place = new;
        }
        if let Some(place) = self.places.get_mut(from) {
            match word {
                Word::Exact(text) => drop(place.exact.insert(text.clone(), at)),
                Word::One => place.one = Some(at),
                Word::Any => place.any = Some(at),
            }
        }
        at
    }
}

impl<I> Place<I> {
    fn new(repeats: bool) -> Place<I> {
        Place { exact: BTreeMap::new(), one: None, any: None, repeats, ids: Vec::new() }
    }

    fn after(&self, word: &Word) -> Option<usize> {
        match word {
            Word::Exact(text) => self.exact.get(text).copied(),
            Word::One => self.one,
            Word::Any => self.any,
        }
    }

    fn cut(&mut self, word: &Word) {
        match word {
            Word::Exact(text) => drop(self.exact.remove(text)),
            Word::One => self.one = None,
            Word::Any => self.any = None,
        }
    }

    fn is_bare(&self) -> bool {
        self.ids.is_empty() && self.exact.is_empty() && self.one.is_none() && self.any.is_none()
    }
}
