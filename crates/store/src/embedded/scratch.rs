//! Keys and items are built in a place that each thread keeps, and copied once to where they stay.

use std::cell::Cell;

use byteview::ByteView;
use fjall::Slice;

/// Bytes of a buffer that a thread keeps at the most; what one large item needed is given back.
const KEPT_BYTES: usize = 256 * 1024;
/// Buffers that it keeps: as many as are in use at the same time.
const KEPT: usize = 4;

thread_local! {
    static SCRATCH: Cell<Vec<Scratch>> = const { Cell::new(Vec::new()) };
}

#[derive(Default)]
pub struct Scratch {
    pub bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Scratch {
    pub fn take() -> Self {
        let mut kept = SCRATCH.take();
        let mut scratch = kept.pop().unwrap_or_default();
        SCRATCH.set(kept);
        scratch.bytes.clear();
        scratch.ends.clear();
        scratch
    }

    pub fn keep(self) {
        let mut kept = SCRATCH.take();
        if self.bytes.capacity() <= KEPT_BYTES && kept.len() < KEPT {
            kept.push(self);
        }
        SCRATCH.set(kept);
    }
}

/// The bytes that `build` puts into an empty buffer, or `None` if it finds none to put there.
pub fn built(build: impl FnOnce(&mut Vec<u8>) -> Option<()>) -> Option<Slice> {
    let mut scratch = Scratch::take();
    let slice = build(&mut scratch.bytes).map(|()| Slice::from(&*scratch.bytes));
    scratch.keep();
    slice
}

/// Many keys and items on their way into one piece of memory: they are made together and mostly go together, and to hand
/// on one of them costs little when the others have been handed on just before.
pub struct Shelf(Scratch);

/// How full a shelf was.
pub struct Mark {
    bytes: usize,
    count: usize,
}

impl Shelf {
    pub fn new() -> Self {
        Self(Scratch::take())
    }

    /// Bytes on it.
    pub const fn len(&self) -> usize {
        self.0.bytes.len()
    }

    pub const fn mark(&self) -> Mark {
        Mark { bytes: self.0.bytes.len(), count: self.0.ends.len() }
    }

    /// Removes what came after the mark.
    pub fn back_to(&mut self, mark: &Mark) {
        self.0.bytes.truncate(mark.bytes);
        self.0.ends.truncate(mark.count);
    }

    /// Adds what `build` appends; nothing, if it finds nothing to append.
    pub fn put(&mut self, build: impl FnOnce(&mut Vec<u8>) -> Option<()>) -> Option<&[u8]> {
        let start = self.0.bytes.len();
        if build(&mut self.0.bytes).is_none() {
            self.0.bytes.truncate(start);
            return None;
        }
        self.0.ends.push(self.0.bytes.len());
        self.0.bytes.get(start..)
    }

    /// Everything that was put there, in that order; then it is empty.
    pub fn take(&mut self) -> impl Iterator<Item = Slice> {
        let all = ByteView::from(&*self.0.bytes);
        self.0.bytes.clear();
        let mut start = 0;
        self.0.ends.drain(..).map(move |end| Slice::from(all.slice(std::mem::replace(&mut start, end)..end)))
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        std::mem::take(&mut self.0).keep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(shelf: &mut Shelf, text: &str) -> Option<Vec<u8>> {
        let put = shelf.put(|out| {
            out.extend_from_slice(text.as_bytes());
            (!text.starts_with('-')).then_some(())
        });
        put.map(<[u8]>::to_vec)
    }

    #[test]
    fn what_is_put_on_a_shelf_comes_off_in_order() {
        let (mut shelf, long) = (Shelf::new(), "long".repeat(10));
        assert_eq!(put(&mut shelf, "one"), Some(b"one".to_vec()));
        assert_eq!(put(&mut shelf, "-not this"), None);
        assert_eq!(put(&mut shelf, ""), Some(Vec::new()));
        assert_eq!(put(&mut shelf, &long), Some(long.clone().into_bytes()));
        let mark = shelf.mark();
        assert_eq!(put(&mut shelf, "nor this"), Some(b"nor this".to_vec()));
        shelf.back_to(&mark);
        assert_eq!(shelf.len(), 43);
        let taken: Vec<_> = shelf.take().collect();
        assert_eq!(taken, [Slice::from("one"), Slice::from(""), Slice::from(long)]);
        assert_eq!((shelf.len(), shelf.take().count()), (0, 0));
    }
}
