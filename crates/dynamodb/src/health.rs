//! Whether DynamoDB is there and takes writes, by what it last said: nobody is asked for the sake of it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tidings_store::{Error, Health};

/// What a reason may have at the most: the SDK tells long stories.
const WHY_CHARS: usize = 300;

#[derive(Default)]
pub struct Trouble(Mutex<Why>);

#[derive(Default)]
struct Why {
    /// The last write was refused for good, until one succeeds.
    refused: Option<String>,
    /// The last call ended without an answer, until one is answered.
    silent: Option<String>,
}

impl Trouble {
    fn why(&self) -> MutexGuard<'_, Why> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of how a call ended.
    pub fn heard<T>(&self, outcome: Result<T, Error>) -> Result<T, Error> {
        match &outcome {
            Err(error @ Error::Unreachable(_)) => self.why().silent = Some(error.to_string()),
            // Some of these are found out without asking.
            Err(Error::Invalid(_)) => {}
            _ => self.why().silent = None,
        }
        outcome
    }

    /// The same of a write.
    pub fn wrote(&self, outcome: Result<(), Error>) -> Result<(), Error> {
        match &outcome {
            Ok(()) => self.why().refused = None,
            Err(error @ (Error::Open(_) | Error::ReadOnly(_))) => self.why().refused = Some(error.to_string()),
            // Says nothing about the next one.
            Err(_) => {}
        }
        self.heard(outcome)
    }

    pub fn health(&self) -> Health {
        let why = self.why();
        match why.silent.as_ref().or(why.refused.as_ref()) {
            Some(why) => Health::ReadOnly(why.chars().take(WHY_CHARS).collect()),
            None => Health::Ready,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silent() -> Error {
        Error::Unreachable("nobody there".to_owned())
    }

    #[test]
    fn silence_lasts_until_something_is_answered_and_a_refusal_until_a_write_succeeds() {
        let trouble = Trouble::default();
        assert_eq!(trouble.health(), Health::Ready);
        trouble.heard::<()>(Err(silent())).unwrap_err();
        let Health::ReadOnly(why) = trouble.health() else { panic!("it is not ready") };
        assert_eq!(why, "the store does not answer: nobody there");
        trouble.heard(Ok(())).unwrap();
        assert_eq!(trouble.health(), Health::Ready);
        trouble.wrote(Err(silent())).unwrap_err();
        assert_ne!(trouble.health(), Health::Ready);
        // A conflict is an answer.
        trouble.wrote(Err(Error::Conflict { failed: Vec::new() })).unwrap_err();
        assert_eq!(trouble.health(), Health::Ready);
        trouble.wrote(Err(Error::Open("no such table".to_owned()))).unwrap_err();
        trouble.heard(Ok(())).unwrap();
        assert_ne!(trouble.health(), Health::Ready, "a read says nothing about writes");
        trouble.wrote(Ok(())).unwrap();
        assert_eq!(trouble.health(), Health::Ready);
    }
}
