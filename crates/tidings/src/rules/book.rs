//! The book: all rules, compiled, ready for the next event.
//!
//! One set of rules under a read-write lock. The matcher's index takes a change in place, in microseconds whatever the
//! number of rules, so a change holds events up for no longer than that, and none sees half of it: each is matched by
//! the old rule or by the new one. A second copy to swap would save those microseconds and double the memory.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use tidings_core::pattern::{EventError, RuleSet, Scratch};

use super::rule::Rule;
use crate::origin::Origin;

#[derive(Default)]
pub struct Book {
    pages: RwLock<Pages>,
    /// How many rules are switched on: without any, an event need not take the lock.
    enabled: AtomicUsize,
}

#[derive(Default)]
struct Pages {
    /// The rules that are switched on, by pattern.
    set: RuleSet<Arc<str>>,
    rules: BTreeMap<Arc<str>, Arc<Rule>>,
    /// What comes with Tidings, also while another rule of the same name is in its place.
    built_in: BTreeMap<Arc<str>, Arc<Rule>>,
    /// What the API made, while a rule of the file stands before it.
    hidden: BTreeMap<Arc<str>, Arc<Rule>>,
}

impl Pages {
    fn origin(&self, name: &str) -> Option<Origin> {
        self.rules.get(name).map(|rule| rule.origin)
    }

    fn put(&mut self, name: Arc<str>, rule: Arc<Rule>) {
        match rule.enabled {
            true => self.set.insert(Arc::clone(&name), &rule.pattern),
            false => drop(self.set.remove(&name)),
        }
        self.rules.insert(name, rule);
    }

    /// Keeps a rule of the API for when the file's rule of its name is gone.
    fn hide(&mut self, name: Arc<str>, rule: Arc<Rule>) {
        tracing::warn!(rule = %name, "a stored rule has the name of a rule in the configuration file, which wins");
        self.hidden.insert(name, rule);
    }

    /// Takes a rule out; the one that it stood before is back in its place.
    fn take(&mut self, name: &Arc<str>) {
        match self.hidden.remove(name).or_else(|| self.built_in.get(name).cloned()) {
            Some(behind) => self.put(Arc::clone(name), behind),
            None => {
                self.set.remove(name);
                self.rules.remove(name);
            }
        }
    }
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::new());
}

impl Book {
    /// The rules that an event matches, in the order of their names. What cannot be read must not pass for an event
    /// without rules.
    pub fn matching(&self, event: &str) -> Result<Vec<Arc<Rule>>, EventError> {
        if self.enabled.load(Ordering::Acquire) == 0 {
            return Ok(Vec::new());
        }
        let pages = self.read();
        SCRATCH.with_borrow_mut(|scratch| {
            let names = pages.set.matches(event, scratch)?;
            Ok(names.into_iter().filter_map(|name| pages.rules.get(name).cloned()).collect())
        })
    }

    /// Whether a rule may match an event of this type; if not, none does, whatever else is in it.
    #[must_use]
    pub fn may_match(&self, event_type: &str) -> bool {
        self.enabled.load(Ordering::Acquire) > 0 && self.read().set.may_match(event_type)
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<Rule>> {
        self.read().rules.get(name).cloned()
    }

    /// Whether a rule of this name comes with Tidings, whatever stands in its place.
    #[must_use]
    pub fn is_built_in(&self, name: &str) -> bool {
        self.read().built_in.contains_key(name)
    }

    /// Rules in the order of their names, after `after`.
    #[must_use]
    pub fn page(&self, after: Option<&str>, limit: usize) -> Vec<Arc<Rule>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.read().rules.range::<str, _>((from, Bound::Unbounded)).take(limit).map(|(_, rule)| rule.clone()).collect()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.read().rules.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts a rule in, in place of the one of its name. One from the file gives way to nothing else, a built-in one to
    /// everything.
    pub fn put(&self, rule: Rule) {
        let name: Arc<str> = rule.name.as_str().into();
        let rule = Arc::new(rule);
        let mut pages = self.write();
        let before = pages.origin(&name);
        match (rule.origin, before) {
            (Origin::Api, Some(before)) if before.is_configured() => pages.hide(name, rule),
            (Origin::BuiltIn, _) => {
                pages.built_in.insert(Arc::clone(&name), Arc::clone(&rule));
                if matches!(before, None | Some(Origin::BuiltIn)) {
                    pages.put(name, rule);
                }
            }
            (Origin::Api | Origin::File | Origin::Monitor, _) => pages.put(name, rule),
        }
        self.enabled.store(pages.set.len(), Ordering::Release);
    }

    /// Puts these in the place of all rules from the file, in one step.
    pub fn replace_file_rules(&self, rules: Vec<Rule>) {
        let mut pages = self.write();
        let from_file = pages.rules.iter().filter(|(_, rule)| rule.origin.is_configured());
        let gone: Vec<_> = from_file.map(|(name, _)| Arc::clone(name)).collect();
        for name in gone {
            pages.take(&name);
        }
        for rule in rules {
            let name: Arc<str> = rule.name.as_str().into();
            if let Some(before) = pages.rules.get(&name).filter(|before| before.origin == Origin::Api).cloned() {
                pages.hide(Arc::clone(&name), before);
            }
            pages.put(name, Arc::new(rule));
        }
        self.enabled.store(pages.set.len(), Ordering::Release);
    }

    /// Takes out a rule that the API made.
    pub fn remove(&self, name: &str) {
        let mut pages = self.write();
        pages.hidden.remove(name);
        if pages.origin(name) == Some(Origin::Api) {
            pages.take(&Arc::from(name));
        }
        self.enabled.store(pages.set.len(), Ordering::Release);
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Pages> {
        self.pages.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Pages> {
        self.pages.read().unwrap_or_else(PoisonError::into_inner)
    }
}
