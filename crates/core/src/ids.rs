//! Where identifiers come from.

use uuid::Uuid;

use crate::time::Timestamp;

/// Makes identifiers. Handed in, so that a simulation can repeat a run to the letter.
pub trait IdSource: Send + Sync + 'static {
    /// Fills `bytes` with unpredictable bytes: the root of every secret and identifier.
    fn random(&self, bytes: &mut [u8]);

    /// A UUIDv7: unique, and in the order of time.
    fn uuid(&self, now: Timestamp) -> Uuid {
        let mut random = [0; 10];
        self.random(&mut random);
        let millis = u64::try_from(now.as_millisecond()).unwrap_or(0);
        uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
    }
}
