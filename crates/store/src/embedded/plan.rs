//! What a transaction will write, worked out as far as possible before the committer sees it.
//!
//! Checking, encoding and the keys of new index entries happen in the caller's task; the one committer
//! thread is left with reading what is there, deciding, and handing bytes to the log. It is not even left with
//! throwing an item away: memory that one thread took and another returns is dear.

use fjall::Slice;
use rustc_hash::FxHashSet;

use super::binding::{Member, Runs};
use super::group::Entries;
use super::keys::{self, Changed, OwnKey, Parts};
use super::layout::TableIds;
use super::scratch::{Shelf, built};
use super::sheaf::{ITEM_BYTES, Place, Sheaf};
use super::tables::{Opened, Tables};
use crate::Error;
use crate::codec::{self, Encoded};
use crate::item::{Item, Key, Value};
use crate::number::Number;
use crate::packed::Packed;
use crate::table::{Index, KeyKind, Table};
use crate::write::{Change, Condition, Write, check_count, check_total, item_twice};

/// Bytes of items that share one piece of memory, about: it stays for as long as anything in it is needed.
const SHELF_BYTES: usize = 64 * 1024;

/// Where the bytes of plans are put while they are made. Keys are compared far more often than items are read, and stand
/// closer together without them.
struct Shelves {
    keys: Shelf,
    items: Shelf,
    /// Items that may be stored with others: of these, what is stored is a copy, and they go as soon as that is.
    bound: Shelf,
    /// The first tables that are written to: most transactions of one call write to the same ones.
    places: [Option<usize>; 2],
    runs: Runs,
}

impl Shelves {
    /// For a call of so many transactions.
    fn of(transactions: usize) -> Self {
        let (keys, items, bound) = (Shelf::new(), Shelf::new(), Shelf::new());
        Self { keys, items, bound, places: [None; 2], runs: Runs::of(transactions) }
    }

    /// Bytes of items on them.
    const fn len(&self) -> usize {
        self.items.len() + self.bound.len()
    }

    /// All that is on them; then they are empty.
    fn take(&mut self) -> Taken<impl Iterator<Item = Slice>> {
        Taken { keys: self.keys.take(), items: self.items.take(), bound: self.bound.take() }
    }

    /// The place of a table.
    fn place(&mut self, tables: &Tables, table: &Table) -> Result<usize, Error> {
        let is_there = |place: &usize| tables.all().get(*place).is_some_and(|opened| opened.table.is(table));
        if let Some(known) = self.places.iter().copied().flatten().find(is_there) {
            return Ok(known);
        }
        let place = tables.place(table)?;
        if let Some(free) = self.places.iter_mut().find(|known| known.is_none()) {
            *free = Some(place);
        }
        Ok(place)
    }
}

/// What was on the shelves, each in the order in which it was put there.
struct Taken<I> {
    keys: I,
    items: I,
    bound: I,
}

pub struct Plan {
    pub steps: Vec<Step>,
    pub bytes: usize,
}

pub struct Step {
    /// The place of its table.
    pub table: usize,
    pub item_key: Slice,
    pub condition: Condition,
    pub action: Action,
}

pub enum Action {
    /// Store this; everything about it is known.
    Put(Stored),
    /// What will be stored depends on what is there. Kept elsewhere, for it is much larger than the others.
    Update(Box<Update>),
    Delete,
    Check,
}

pub struct Update {
    pub key: Key,
    pub changes: Vec<Change>,
    /// Whether it can be made in the bytes of any item.
    in_bytes: bool,
    /// A bit for each index whose entries it may touch.
    touched: u64,
}

/// An item as it goes to disk, with the index entries that lead to it.
pub struct Stored {
    pub bytes: Slice,
    pub entries: Vec<Entry>,
    pub expiry: Option<i64>,
    /// That others came that are like it, and its place among them, if it may be stored with them.
    pub member: Option<Member>,
    pub sheaf: Option<Place>,
}

/// What is to be carried out of transactions that came together.
#[derive(Default)]
pub struct Plans {
    pub all: Vec<Plan>,
    pub sheaves: Vec<Sheaf>,
}

/// An index entry that leads to an item.
#[derive(Debug, Clone)]
pub struct Entry {
    pub key: Slice,
    /// How much of it the entries of one list have in common, if it may be in one.
    pub shared: Option<usize>,
    /// Whether the item itself stands beside it, if it is no larger than this.
    pub whole_bytes: usize,
    /// The item, where it stands beside it; else nothing.
    pub value: Slice,
}

pub fn plan(tables: &Tables, writes: Vec<Write>) -> Result<Plan, Error> {
    let mut shelves = Shelves::of(1);
    let mut plan = draft(tables, writes, &mut shelves)?;
    plan.fill(&mut shelves.take());
    plan.checked(tables)
}

/// The same for many transactions, which share what memory they need: those that can be carried out, and for each whether
/// it is among them, in order.
pub fn plan_each(
    tables: &Tables,
    transactions: &mut dyn Iterator<Item = Vec<Write>>,
) -> (Plans, Vec<Result<(), Error>>) {
    let (least, most) = transactions.size_hint();
    let room = most.unwrap_or(least);
    let mut shelves = Shelves::of(room);
    let (mut plans, mut answers) = (Vec::with_capacity(room), Vec::with_capacity(room));
    let mut filled = 0;
    for writes in transactions {
        answers.push(draft(tables, writes, &mut shelves).map(|plan| plans.push(plan)));
        if shelves.len() >= SHELF_BYTES {
            fill_all(plans.get_mut(filled..).unwrap_or_default(), &mut shelves);
            filled = plans.len();
        }
    }
    fill_all(plans.get_mut(filled..).unwrap_or_default(), &mut shelves);
    refuse_twice(tables, &mut plans, &mut answers);
    let sheaves = shelves.runs.bind(tables, &mut plans);
    (Plans { all: plans, sheaves }, answers)
}

fn fill_all(plans: &mut [Plan], shelves: &mut Shelves) {
    let mut taken = shelves.take();
    plans.iter_mut().for_each(|plan| plan.fill(&mut taken));
}

/// Takes out those that name an item twice.
fn refuse_twice(tables: &Tables, plans: &mut Vec<Plan>, answers: &mut [Result<(), Error>]) {
    let mut answers = answers.iter_mut().filter(|answer| answer.is_ok());
    plans.retain(|plan| {
        let answer = answers.next();
        let Some(twice) = named_twice(&plan.steps) else { return true };
        if let Some(answer) = answer {
            *answer = tables.at(twice).and_then(|opened| Err(item_twice(&opened.table)));
        }
        false
    });
}

/// A plan without its bytes, which are on the shelves in the order in which [`Plan::fill`] wants them.
fn draft(tables: &Tables, writes: Vec<Write>, shelves: &mut Shelves) -> Result<Plan, Error> {
    let marks = (shelves.keys.mark(), shelves.items.mark(), shelves.bound.mark());
    let drafted = draft_steps(tables, writes, shelves);
    if drafted.is_err() {
        shelves.keys.back_to(&marks.0);
        shelves.items.back_to(&marks.1);
        shelves.bound.back_to(&marks.2);
    }
    drafted
}

fn draft_steps(tables: &Tables, writes: Vec<Write>, shelves: &mut Shelves) -> Result<Plan, Error> {
    check_count(&writes)?;
    let mut steps: Vec<Step> = Vec::with_capacity(writes.len());
    let (mut bytes, mut total) = (0, 0);
    for write in writes {
        let size = write.checked_size()?;
        total += size;
        let place = shelves.place(tables, write.table())?;
        let opened = tables.at(place)?;
        let ids = &opened.ids;
        let (condition, action) = match write {
            Write::Put { item, condition, .. } => {
                let before = shelves.len();
                let stored = put_stored(shelves, opened, place, &item, may_be_bound(&condition, size))?;
                bytes += shelves.len() - before;
                (condition, Action::Put(stored))
            }
            Write::Packed { item, condition } => {
                bytes += item.bytes().len();
                (condition, Action::Put(put_packed(shelves, opened, &item)?))
            }
            Write::Update { table, key, changes, condition } => {
                shelves.keys.put(|out| keys::put_item(out, ids.table, &key));
                (condition, Action::Update(Box::new(Update::new(&table, key, changes))))
            }
            Write::Delete { key, condition, .. } => {
                shelves.keys.put(|out| keys::put_item(out, ids.table, &key));
                (condition, Action::Delete)
            }
            Write::Check { key, condition, .. } => {
                shelves.keys.put(|out| keys::put_item(out, ids.table, &key));
                (condition, Action::Check)
            }
        };
        bytes += 64;
        steps.push(Step { table: place, item_key: Slice::default(), condition, action });
    }
    check_total(total)?;
    Ok(Plan { steps, bytes })
}

impl Update {
    fn new(table: &Table, key: Key, mut changes: Vec<Change>) -> Self {
        let indexes = table.indexes();
        let in_bytes = indexes.len() < 64 && changes.iter().all(|change| table.allows(change));
        if in_bytes {
            changes.sort_unstable_by(|one, other| one.name().cmp(other.name()));
        }
        let bit = |index: &Index| u64::from(in_bytes && is_touched(table, index, &changes));
        let touched = indexes.iter().rev().fold(0, |bits, index| bits << 1 | bit(index));
        Self { key, changes, in_bytes, touched }
    }

    /// The item's bytes after it, if that can be said without taking it apart, and those of its entries that change.
    pub fn patched(
        &self,
        opened: &Opened,
        item_key: &[u8],
        before: &Encoded<'_>,
    ) -> Result<Option<(Slice, Entries)>, Error> {
        let patch = |out: &mut Vec<u8>| codec::patch_into(out, before, &self.changes);
        let Some(after) = self.in_bytes.then(|| built(patch)).flatten() else { return Ok(None) };
        let gone = entries_of(opened, item_key, before, self.touched)?;
        let changed = Changed { before, changes: &self.changes };
        let mut new = entries_of(opened, item_key, &changed, self.touched)?;
        put_beside(&mut new, &after);
        Ok(Some((after, Entries { gone, new })))
    }

    /// When the item expires after it, if it can be made in the bytes.
    pub fn expiry(&self, table: &Table, before: &Encoded<'_>) -> Option<i64> {
        let name = table.ttl_attribute()?;
        let present = before.number(name);
        let at = match self.changes.iter().find(|change| change.name() == name) {
            None => present,
            Some(Change::Set(_, Value::N(at))) => Some(at.clone()),
            Some(Change::Add(_, by)) => Number::from(*by).checked_add(&present.unwrap_or_else(|| 0.into())).ok(),
            Some(_) => None,
        };
        at.map(|at| at.ceil())
    }
}

/// Whether entries of an index say anything about an attribute that is changed, or about all of them, or go at a time that
/// it says.
fn is_touched(table: &Table, index: &Index, changes: &[Change]) -> bool {
    let is_changed = |name: &str| changes.iter().any(|change| change.name() == name);
    let outlives_lists = list_bytes(table, index).is_some() && table.ttl_attribute().is_some_and(is_changed);
    let mut parts = [Some(&index.partition), index.sort.as_ref()].into_iter().flatten();
    index.whole_bytes > 0 || outlives_lists || parts.any(|(name, _)| is_changed(name))
}

impl Plan {
    /// Takes the bytes of its steps.
    fn fill<I: Iterator<Item = Slice>>(&mut self, taken: &mut Taken<I>) {
        for step in &mut self.steps {
            step.item_key = taken.keys.next().unwrap_or_default();
            if let Action::Put(stored) = &mut step.action {
                stored.fill(taken);
            }
        }
    }

    /// Refuses one that names an item twice.
    fn checked(self, tables: &Tables) -> Result<Self, Error> {
        match named_twice(&self.steps) {
            Some(twice) => Err(item_twice(&tables.at(twice)?.table)),
            None => Ok(self),
        }
    }
}

/// The place of the table of an item that two of the steps are about.
fn named_twice(steps: &[Step]) -> Option<usize> {
    // Few keys are compared sooner than hashed.
    const FEW: usize = 6;
    if steps.len() <= FEW {
        let mut all = steps.iter().enumerate();
        let is_twice = |n: usize, step: &Step| steps.iter().take(n).any(|other| other.item_key == step.item_key);
        return all.find(|(n, step)| is_twice(*n, step)).map(|(_, step)| step.table);
    }
    let mut seen = FxHashSet::default();
    steps.iter().find(|step| !seen.insert(&*step.item_key)).map(|step| step.table)
}

impl Stored {
    /// Takes the bytes of its entries and its own.
    fn fill<I: Iterator<Item = Slice>>(&mut self, taken: &mut Taken<I>) {
        fill(&mut self.entries, &mut taken.keys);
        let from = if self.member.is_some() { &mut taken.bound } else { &mut taken.items };
        self.bytes = from.next().unwrap_or_default();
        put_beside(&mut self.entries, &self.bytes);
    }
}

/// Puts an item beside those of its entries that take one of its size.
fn put_beside(entries: &mut [Entry], item: &Slice) {
    for entry in entries.iter_mut().filter(|entry| item.len() <= entry.whole_bytes) {
        entry.value = item.clone();
    }
}

fn fill(entries: &mut [Entry], keys: &mut impl Iterator<Item = Slice>) {
    for entry in entries {
        entry.key = keys.next().unwrap_or_default();
    }
}

/// Whether an item of so many bytes may be stored with others.
fn may_be_bound(condition: &Condition, size: usize) -> bool {
    *condition == Condition::Fresh && size <= ITEM_BYTES
}

/// Puts the key of an item that has been checked, the keys of its entries and its own bytes on their shelves.
fn put_stored(
    shelves: &mut Shelves,
    opened: &Opened,
    place: usize,
    item: &Item,
    may_be_bound: bool,
) -> Result<Stored, Error> {
    let Opened { table, ids, .. } = opened;
    let key = put_key(shelves, opened, item)?;
    let expiry = table.expiry_of(item);
    let member = if may_be_bound && expiry.is_some() { shelves.runs.meet(opened, place, &key, item) } else { None };
    let wanted = |index: usize, _: &Index| member.is_none_or(|member| member.wants(index));
    let entries = put_entries(&mut shelves.keys, table, ids, &key, item, wanted)?;
    let shelf = if member.is_some() { &mut shelves.bound } else { &mut shelves.items };
    let bytes = shelf.put(|out| {
        codec::encode_into(out, item);
        Some(())
    });
    if let (Some(member), Some(bytes)) = (member, bytes) {
        shelves.runs.grow(member, bytes.len());
    }
    Ok(Stored { bytes: Slice::default(), entries, expiry, member, sheaf: None })
}

/// The same of one that is bytes already.
fn put_packed(shelves: &mut Shelves, opened: &Opened, item: &Packed) -> Result<Stored, Error> {
    let Opened { table, ids, .. } = opened;
    let encoded = Encoded::read(item.bytes())?;
    let key = put_key(shelves, opened, &encoded)?;
    let expiry = table.ttl_attribute().and_then(|name| encoded.number(name)).map(|at| at.ceil());
    let entries = put_entries(&mut shelves.keys, table, ids, &key, &encoded, |_, _| true)?;
    shelves.items.put(|out| {
        out.extend_from_slice(item.bytes());
        Some(())
    });
    Ok(Stored { bytes: Slice::default(), entries, expiry, member: None, sheaf: None })
}

/// Puts the key of an item on its shelf. Entries are built beside it, from it: gives it, if there are to be any.
fn put_key(shelves: &mut Shelves, opened: &Opened, item: &impl Parts) -> Result<Vec<u8>, Error> {
    let Opened { table, ids, .. } = opened;
    let key = shelves.keys.put(|out| keys::put_item_of(out, ids.table, table, item));
    let key = key.ok_or_else(|| Error::Corrupt(format!("an item of {} lacks its key", table.name())))?;
    Ok(if ids.indexes.is_empty() { Vec::new() } else { key.to_vec() })
}

/// The bytes and entries of an item.
pub fn stored(table: &Table, ids: &TableIds, item_key: &[u8], item: &Item) -> Result<Stored, Error> {
    let mut entries = entries(table, ids, item_key, item)?;
    let bytes = Slice::from(codec::encode(item));
    put_beside(&mut entries, &bytes);
    Ok(Stored { bytes, entries, expiry: table.expiry_of(item), member: None, sheaf: None })
}

/// The index entries that lead to an item, which has been checked.
pub fn entries(table: &Table, ids: &TableIds, item_key: &[u8], item: &impl Parts) -> Result<Vec<Entry>, Error> {
    some_entries(table, ids, item_key, item, |_, _| true)
}

/// Those of them in the indexes of which there is a bit.
pub fn entries_of(opened: &Opened, item_key: &[u8], item: &impl Parts, indexes: u64) -> Result<Vec<Entry>, Error> {
    let wanted = |place: usize, _: &Index| place < 64 && indexes >> place & 1 == 1;
    some_entries(&opened.table, &opened.ids, item_key, item, wanted)
}

/// Those of them in some of the indexes.
fn some_entries(
    table: &Table,
    ids: &TableIds,
    item_key: &[u8],
    item: &impl Parts,
    wanted: impl Fn(usize, &Index) -> bool,
) -> Result<Vec<Entry>, Error> {
    let mut shelf = Shelf::new();
    let mut entries = put_entries(&mut shelf, table, ids, item_key, item, wanted)?;
    fill(&mut entries, &mut shelf.take());
    Ok(entries)
}

/// Puts the keys of an item's entries on the shelf.
fn put_entries(
    shelf: &mut Shelf,
    table: &Table,
    ids: &TableIds,
    item_key: &[u8],
    item: &impl Parts,
    wanted: impl Fn(usize, &Index) -> bool,
) -> Result<Vec<Entry>, Error> {
    let all = table.indexes().iter().zip(&ids.indexes).enumerate();
    let mut indexes = all.filter(|(place, (index, _))| wanted(*place, index)).map(|(_, pair)| pair).peekable();
    if indexes.peek().is_none() {
        return Ok(Vec::new());
    }
    let own = OwnKey::new(table, item_key)
        .ok_or_else(|| Error::Corrupt(format!("the key of an item of {} cannot be read", table.name())))?;
    let mut entries = Vec::with_capacity(ids.indexes.len());
    for (index, id) in indexes {
        let same_sort = same_sort(table, index);
        let Some(key) = shelf.put(|out| keys::put_index_entry(out, *id, index, item, &own, same_sort)) else {
            continue;
        };
        let shared = list_bytes(table, index).and_then(|bytes| keys::shared_len(key, index.partition.1, bytes));
        // What stands in a list has no room for an item.
        let whole_bytes = if shared.is_some() { 0 } else { index.whole_bytes };
        entries.push(Entry { key: Slice::default(), shared, whole_bytes, value: Slice::default() });
    }
    Ok(entries)
}

/// Whether an index sorts by the attribute that the table sorts by.
pub fn same_sort(table: &Table, index: &Index) -> bool {
    index.sort.is_some() && index.sort.as_ref() == table.sort_attribute()
}

/// How many bytes of the sort key the entries of one list share, if an index has lists.
pub fn list_bytes(table: &Table, index: &Index) -> Option<usize> {
    let bytes = index.lists.or(table.list_bytes());
    bytes.filter(|_| index.sort.as_ref().is_some_and(|(_, kind)| *kind == KeyKind::S))
}

impl Step {
    /// Whether the item as it is must be read: to decide, to change it, or to find entries that go with it.
    pub fn needs_present(&self, table: &Table) -> bool {
        let is_put = matches!(self.action, Action::Put(_));
        if is_put && self.condition == Condition::Fresh {
            return false;
        }
        // What has no entries and no expiry is removed the same way whether or not it is there.
        let plain = table.indexes().is_empty() && table.ttl_attribute().is_none();
        if matches!(self.action, Action::Delete) && plain && self.condition == Condition::None {
            return false;
        }
        !is_put || self.condition != Condition::None || !table.indexes().is_empty() || table.ttl_attribute().is_some()
    }
}
