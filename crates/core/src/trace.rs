//! W3C trace context: what a `traceparent` says.

/// Version, trace, parent and flags; later versions may have more behind.
const LENGTH: usize = 55;
/// Flags of a trace that is recorded.
pub const SAMPLED: &str = "01";

/// The parts of a `traceparent` that this version knows, if it is a valid one.
#[must_use]
pub fn parent(header: &str) -> Option<&str> {
    trace_id(header)?;
    header.get(..LENGTH)
}

/// What is kept of a `traceparent` and goes on: its trace, and behind it the flags where they say anything else than that it
/// is sampled (`4bf9…-00`).
#[must_use]
pub fn carried(header: &str) -> Option<String> {
    let trace = trace_id(header)?;
    let flags = flags(header)?;
    Some(if flags == SAMPLED { trace.to_owned() } else { format!("{trace}-{flags}") })
}

/// The trace and the flags of what was carried.
#[must_use]
pub fn parts(carried: &str) -> (&str, &str) {
    carried.split_once('-').unwrap_or((carried, SAMPLED))
}

/// The flags of a valid `traceparent`.
#[must_use]
pub fn flags(header: &str) -> Option<&str> {
    header.get(LENGTH - 2..LENGTH)
}

/// The trace id of a `traceparent`, if it is a valid one.
#[must_use]
pub fn trace_id(header: &str) -> Option<&str> {
    let mut parts = header.split('-');
    let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hex = |text: &str, len: usize| {
        text.len() == len && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let well_formed = hex(version, 2) && version != "ff" && hex(trace, 32) && hex(parent, 16) && hex(flags, 2);
    let extra_allowed = version != "00" || parts.next().is_none();
    let not_zero = trace.bytes().any(|b| b != b'0') && parent.bytes().any(|b| b != b'0');
    (well_formed && extra_allowed && not_zero).then_some(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_valid_traceparent_gives_an_id() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(trace_id(good), Some("4bf92f3577b34da6a3ce929d0e0e4736"));
        assert!(trace_id(&format!("{good}-x")).is_none());
        assert!(trace_id(&good.replace("4b", "4B")).is_none());
        assert!(trace_id("00-00000000000000000000000000000000-00f067aa0ba902b7-01").is_none());
        assert!(trace_id("").is_none());
    }

    #[test]
    fn flags_are_carried_on() {
        let with = |flags: &str| carried(&format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags}"));
        for flags in ["00", "01", "02"] {
            assert_eq!(parts(&with(flags).unwrap()), ("4bf92f3577b34da6a3ce929d0e0e4736", flags));
        }
        assert_eq!((with("01").unwrap().len(), with("0")), (32, None));
    }

    #[test]
    fn what_a_later_version_adds_is_left_behind() {
        let later = "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(parent(&format!("{later}-what \"else\"")), Some(later));
        assert_eq!(parent("00-x"), None);
    }
}
