//! Changes of values in the bytes of an item, which is not taken apart for that.
//!
//! Counters are changed far more often than anything else, by the one thread that everybody waits for. To read such an item
//! into memory, change a number and write it again takes ten times as long as to copy its bytes around that number.

use super::encoded::{Attribute, Encoded, number_of};
use super::{VERSION, put_bytes, put_value};
use crate::item::Value;
use crate::limits;
use crate::number::Number;
use crate::write::Change;

/// Attributes of an item whose count is one byte.
const FEW: usize = 0x80;

/// Appends the bytes of an item after the changes, which are in the order of their names and allowed by its table. `None`
/// where it takes more than that to say what the item is then, or why it cannot be.
pub(crate) fn patch_into(out: &mut Vec<u8>, item: &Encoded<'_>, changes: &[Change]) -> Option<()> {
    let start = out.len();
    out.extend([VERSION, 0]);
    let mut count = 0;
    let mut changes = changes.iter().peekable();
    for Attribute { name, value, whole } in item.attributes() {
        while let Some(change) = changes.next_if(|change| change.name().as_bytes() < *name) {
            count += put_changed(out, change, None)?;
        }
        if let Some(change) = changes.next_if(|change| change.name().as_bytes() == *name) {
            count += put_changed(out, change, Some(value))?;
        } else {
            out.extend_from_slice(whole);
            count += 1;
        }
    }
    for change in changes {
        count += put_changed(out, change, None)?;
    }
    // Near a limit it is counted what the item has, and to the byte.
    let is_small = count < FEW && out.len() - start <= limits::ITEM_BYTES / 2;
    *out.get_mut(start + 1)? = u8::try_from(count).ok().filter(|_| is_small)?;
    Some(())
}

/// Puts an attribute there as the change leaves it; tells how many that are, one or none.
fn put_changed(out: &mut Vec<u8>, change: &Change, present: Option<&[u8]>) -> Option<usize> {
    let mut put = |name: &str, value: &Value| {
        put_bytes(out, name.as_bytes());
        put_value(out, value);
        Some(1)
    };
    match change {
        Change::Set(name, value) => put(name, value),
        Change::Remove(_) => Some(0),
        Change::Add(name, by) => {
            let by = Number::from(*by);
            let sum = match present {
                Some(value) => number_of(value)?.checked_add(&by).ok()?,
                None => by,
            };
            put(name, &Value::N(sum))
        }
        Change::Append(..) => None,
    }
}
