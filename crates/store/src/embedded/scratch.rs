//! Keys and items are built in a place that each thread keeps, and copied once to where they stay.

use std::cell::Cell;

use fjall::Slice;

/// Bytes that a thread keeps at the most; what one large item needed is given back.
const KEPT_BYTES: usize = 64 * 1024;

/// The bytes that `build` puts into an empty buffer, or `None` if it finds none to put there.
pub fn built(build: impl FnOnce(&mut Vec<u8>) -> Option<()>) -> Option<Slice> {
    thread_local! {
        static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    }
    let mut buffer = BUFFER.take();
    buffer.clear();
    let slice = build(&mut buffer).map(|()| Slice::from(&*buffer));
    if buffer.capacity() <= KEPT_BYTES {
        BUFFER.set(buffer);
    }
    slice
}
