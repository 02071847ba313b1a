//! Tables that no list names any more, as a crash leaves them behind.
//!
//! fjall removes them while it opens, and a large file goes only when all of it has been freed: after much merging that is
//! seconds, in which nobody is served. So each table gets a second name first. fjall takes its own away at once, and the
//! files themselves go while the store is at work.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where they are, beside the keyspaces.
const DIR: &str = "second-names";

/// Second names of all tables, for as long as fjall opens.
pub struct SecondNames(PathBuf);

impl SecondNames {
    /// To be called before fjall opens the database. Where there are no second names, opening takes longer, and that is
    /// all: nothing comes of a failure.
    pub fn of(database: &Path) -> Self {
        let names = Self(database.join(DIR));
        let _ = names.add(database);
        names
    }

    fn add(&self, database: &Path) -> io::Result<()> {
        match fs::create_dir(&self.0) {
            // Left by a start that did not come so far; so may be names in it.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        for keyspace in fs::read_dir(database.join("keyspaces"))? {
            let keyspace = keyspace?;
            let Ok(tables) = fs::read_dir(keyspace.path().join("tables")) else { continue };
            for table in tables {
                let table = table?;
                let mut name = keyspace.file_name();
                name.push("-");
                name.push(table.file_name());
                let _ = fs::hard_link(table.path(), self.0.join(name));
            }
        }
        Ok(())
    }

    /// Removes them, and with them what has no other name.
    pub fn remove(self) {
        if let Err(error) = fs::remove_dir_all(&self.0)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.0.display(), %error, "files of the store that nobody needs cannot be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_table_that_loses_its_name_goes_later_and_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let tables = dir.path().join("keyspaces/1/tables");
        fs::create_dir_all(&tables).unwrap();
        fs::create_dir_all(dir.path().join("keyspaces/2")).unwrap();
        fs::write(tables.join("7"), "orphan").unwrap();
        fs::write(tables.join("8"), "named").unwrap();
        // Left by an earlier start.
        let second = dir.path().join(DIR);
        fs::create_dir_all(&second).unwrap();
        fs::write(second.join("1-8"), "older").unwrap();
        let second_names = SecondNames::of(dir.path());
        assert_eq!(names(&second), ["1-7", "1-8"]);
        fs::remove_file(tables.join("7")).unwrap();
        assert_eq!(fs::read(second.join("1-7")).unwrap(), b"orphan");
        second_names.remove();
        assert_eq!((names(dir.path()), names(&tables)), (vec!["keyspaces".into()], vec!["8".into()]));
        assert_eq!(fs::read(tables.join("8")).unwrap(), b"named");
    }

    #[test]
    fn a_database_without_tables_has_none() {
        let dir = tempfile::tempdir().unwrap();
        SecondNames::of(&dir.path().join("not there")).remove();
        SecondNames::of(dir.path()).remove();
        assert!(names(dir.path()).is_empty());
    }
}
