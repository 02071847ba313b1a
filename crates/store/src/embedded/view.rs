//! What is stored, seen as one: the sheets of the front before fjall's tables.

use fjall::{Database, Readable, Slice, Snapshot};

use super::Keyspaces;
use super::front::{Front, Space};
use super::read::read_failed;
use crate::Error;

/// Everything as it is at one moment.
pub struct View<'a> {
    front: &'a Front,
    spaces: &'a Keyspaces,
    /// Taken after the front was: what leaves the front is in the tables by then.
    tables: Snapshot,
}

impl<'a> View<'a> {
    /// `front` must not change while it is seen.
    pub fn new(front: &'a Front, db: &Database, spaces: &'a Keyspaces) -> Self {
        Self { front, spaces, tables: db.snapshot() }
    }

    pub fn get(&self, space: Space, key: &Slice) -> Result<Option<Slice>, Error> {
        match self.front.get(space, key) {
            Some(found) => Ok(found),
            None => self.tables.get(self.spaces.of(space), key).map_err(read_failed),
        }
    }

    /// The entries from `low` up to and without `high`, in a direction.
    pub fn range(&self, space: Space, low: Vec<u8>, high: Vec<u8>, descending: bool) -> Merged<'a> {
        let mut sources = Vec::with_capacity(1 + self.front.closed.len() + 1);
        for sheet in self.front.sheets() {
            let found = sheet.range(space, &low, &high, descending).into_iter().flatten();
            sources.extend(Source::of(Box::new(found.map(Ok))));
        }
        let tables = Directed { entries: self.tables.range(self.spaces.of(space), low..high), descending };
        sources.extend(Source::of(Box::new(tables)));
        Merged { sources, descending }
    }

    /// All entries.
    pub fn all(&self, space: Space) -> Merged<'a> {
        // No key starts with 0xFFFF: ids are smaller.
        self.range(space, Vec::new(), vec![u8::MAX; 2], false)
    }

    /// All entries whose keys start like this.
    pub fn prefix(&self, space: Space, prefix: &[u8]) -> Merged<'a> {
        self.range(space, prefix.to_vec(), super::keys::after_prefix(prefix.to_vec()), false)
    }
}

/// A key with what stands under it, if anything does.
type Found = Result<(Slice, Option<Slice>), Error>;

struct Source<'a> {
    next: Found,
    rest: Box<dyn Iterator<Item = Found> + 'a>,
}

impl<'a> Source<'a> {
    /// A source that has anything to give.
    fn of(mut rest: Box<dyn Iterator<Item = Found> + 'a>) -> Option<Self> {
        rest.next().map(|next| Self { next, rest })
    }
}

/// The entries of several sources in order, each key once: as the first of the sources that have it says.
pub struct Merged<'a> {
    sources: Vec<Source<'a>>,
    descending: bool,
}

impl Merged<'_> {
    /// The source whose turn it is; one that failed at once.
    fn first(&self) -> Option<usize> {
        let mut best: Option<(usize, &Slice)> = None;
        for (place, source) in self.sources.iter().enumerate() {
            let Ok((key, _)) = &source.next else { return Some(place) };
            let is_first = best.is_none_or(|(_, first)| if self.descending { key > first } else { key < first });
            if is_first {
                best = Some((place, key));
            }
        }
        best.map(|(place, _)| place)
    }

    /// What a source gives next, which then has moved on.
    fn take(&mut self, place: usize) -> Option<Found> {
        let source = self.sources.get_mut(place)?;
        match source.rest.next() {
            Some(next) => Some(std::mem::replace(&mut source.next, next)),
            None => Some(self.sources.remove(place).next),
        }
    }
}

impl Iterator for Merged<'_> {
    type Item = Result<(Slice, Slice), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let place = self.first()?;
            let (key, value) = match self.take(place)? {
                Ok(found) => found,
                Err(error) => return Some(Err(error)),
            };
            // Older sources come after it; from the last on, for one that ends is taken out.
            for older in (0..self.sources.len()).rev() {
                if self.sources.get(older).is_some_and(|source| source.next.as_ref().is_ok_and(|next| next.0 == key)) {
                    drop(self.take(older));
                }
            }
            if let Some(value) = value {
                return Some(Ok((key, value)));
            }
        }
    }
}

/// A range of a table in the direction that is asked for.
struct Directed {
    entries: fjall::Iter,
    descending: bool,
}

impl Iterator for Directed {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        let next = if self.descending { self.entries.next_back() } else { self.entries.next() };
        next.map(|pair| pair.into_inner().map(|(key, value)| (key, Some(value))).map_err(read_failed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(entries: &[(&str, Option<&str>)]) -> Option<Source<'static>> {
        let entries: Vec<Found> =
            entries.iter().map(|(key, value)| Ok((Slice::from(*key), value.map(Slice::from)))).collect();
        Source::of(Box::new(entries.into_iter()))
    }

    fn merged(sources: &[&[(&str, Option<&str>)]], descending: bool) -> String {
        let merged = Merged { sources: sources.iter().filter_map(|entries| source(entries)).collect(), descending };
        let text = |slice: &Slice| String::from_utf8_lossy(slice).into_owned();
        merged.map(|pair| pair.map(|(key, value)| text(&key) + &text(&value)).unwrap()).collect()
    }

    #[test]
    fn each_key_is_as_the_newest_source_says() {
        let (new, old) = ([("a", Some("2")), ("c", None)], [("a", Some("1")), ("b", None), ("c", Some("1"))]);
        let tables = [("b", Some("0")), ("c", Some("0")), ("d", Some("0"))];
        assert_eq!(merged(&[&new, &old, &tables], false), "a2d0");
        let down = |entries: &[(&'static str, Option<&'static str>)]| entries.iter().rev().copied().collect::<Vec<_>>();
        assert_eq!(merged(&[&down(&new), &down(&old), &down(&tables)], true), "d0a2");
        assert_eq!((merged(&[&[], &[]], false), merged(&[&tables], false)), (String::new(), "b0c0d0".to_owned()));
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let failing = Source::of(Box::new(std::iter::once(Err(Error::Corrupt("so".to_owned())))));
        let sources = [source(&[("a", Some("1"))]), failing].into_iter().flatten().collect();
        let mut merged = Merged { sources, descending: false };
        assert!(merged.next().unwrap().is_err());
        assert!(merged.next().unwrap().is_ok() && merged.next().is_none());
    }
}
