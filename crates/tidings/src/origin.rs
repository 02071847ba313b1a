//! Where a rule or a schedule comes from, and so where it is changed.

use crate::http::Problem;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Comes with Tidings. What the file or the API has of the same name takes its place.
    BuiltIn,
    /// The configuration file; the API cannot change it.
    File,
    /// A monitor, which the configuration file may change and which may also come with Tidings.
    Monitor,
    Api,
}

impl Origin {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BuiltIn => "builtin",
            Self::File => "file",
            Self::Monitor => "monitor",
            Self::Api => "api",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::BuiltIn, Self::File, Self::Monitor, Self::Api].into_iter().find(|origin| origin.as_str() == text)
    }

    /// Whether it follows from the configuration, so that the API cannot change it.
    #[must_use]
    pub const fn is_configured(self) -> bool {
        matches!(self, Self::File | Self::Monitor)
    }

    /// Refuses to change through the API what is in the configuration file.
    pub fn refuse_file(self, what: &str) -> Result<(), Problem> {
        match self {
            Self::File | Self::Monitor => {
                Err(Problem::conflict(format!("this {what} is in the configuration file; change it there and reload")))
            }
            Self::BuiltIn | Self::Api => Ok(()),
        }
    }
}
