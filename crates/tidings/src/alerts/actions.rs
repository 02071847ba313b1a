//! The documented `Process.*` actions of the audit log, and the category of any action, known or not.

/// What an action does, in the seed's three words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Category {
    Create,
    Modify,
    Delete,
}

use Category::{Create, Delete, Modify};

/// Every action must start so, in exactly these letters (S000-37).
pub const PREFIX: &str = "Process.";

/// The actions that Azure DevOps documents, with their documented categories. `List.Create` is no slip of ours.
pub const DOCUMENTED: [(&str, Category); 45] = [
    ("Process.Behavior.Add", Create),
    ("Process.Behavior.Create", Create),
    ("Process.Behavior.Delete", Delete),
    ("Process.Behavior.Edit", Modify),
    ("Process.Behavior.Remove", Delete),
    ("Process.Behavior.Update", Modify),
    ("Process.Control.Create", Create),
    ("Process.Control.CreateWithoutLabel", Create),
    ("Process.Control.Delete", Delete),
    ("Process.Control.Update", Modify),
    ("Process.Control.UpdateWithoutLabel", Modify),
    ("Process.Field.Add", Create),
    ("Process.Field.Create", Create),
    ("Process.Field.Delete", Delete),
    ("Process.Field.Edit", Modify),
    ("Process.Field.Remove", Delete),
    ("Process.Field.Update", Modify),
    ("Process.Group.Add", Create),
    ("Process.Group.Update", Modify),
    ("Process.List.Create", Modify),
    ("Process.List.Delete", Delete),
    ("Process.List.ListAddValue", Modify),
    ("Process.List.ListRemoveValue", Delete),
    ("Process.List.Update", Modify),
    ("Process.Page.Add", Create),
    ("Process.Page.Delete", Delete),
    ("Process.Page.Update", Modify),
    ("Process.Process.CloneXmlToInherited", Create),
    ("Process.Process.Create", Create),
    ("Process.Process.Delete", Delete),
    ("Process.Process.Edit", Modify),
    ("Process.Process.EditWithoutNewInformation", Modify),
    ("Process.Process.Import", Create),
    ("Process.Process.MigrateXmlToInherited", Modify),
    ("Process.Rule.Add", Create),
    ("Process.Rule.Delete", Delete),
    ("Process.Rule.Update", Modify),
    ("Process.State.Create", Create),
    ("Process.State.Delete", Delete),
    ("Process.State.Update", Modify),
    ("Process.SystemControl.Delete", Delete),
    ("Process.SystemControl.Update", Modify),
    ("Process.WorkItemType.Create", Create),
    ("Process.WorkItemType.Delete", Delete),
    ("Process.WorkItemType.Update", Modify),
];

impl Category {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Create => "Create",
            Modify => "Modify",
            Delete => "Delete",
        }
    }

    /// The category that an event names, if it is one of ours in other words: the audit log says `remove` (S000-12).
    fn named(text: &str) -> Option<Self> {
        match text.trim().to_ascii_lowercase().as_str() {
            "create" | "add" => Some(Create),
            "modify" | "rename" | "update" => Some(Modify),
            "remove" | "delete" => Some(Delete),
            _ => None,
        }
    }

    /// What an action does: as the event says, else as documented, else as its last word sounds. An action that is new
    /// to us is never refused for that.
    pub fn of<'a>(action: &str, named: impl IntoIterator<Item = &'a str>) -> Self {
        let said = named.into_iter().find_map(Self::named);
        let documented = || DOCUMENTED.iter().find(|(known, _)| *known == action).map(|(_, category)| *category);
        said.or_else(documented).unwrap_or_else(|| Self::guess(action))
    }

    fn guess(action: &str) -> Self {
        let word = action.rsplit('.').next().unwrap_or_default();
        let begins = |starts: &[&str]| starts.iter().any(|start| word.starts_with(start));
        if begins(&["Create", "Add", "Import", "Clone", "New"]) {
            Create
        } else if begins(&["Delete", "Remove", "Destroy"]) {
            Delete
        } else {
            Modify
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // S000-12
    #[test]
    fn the_events_own_word_counts_first_then_the_documents_then_the_sound() {
        assert_eq!(Category::of("Process.Field.Add", ["remove"]), Delete);
        assert_eq!(Category::of("Process.Field.Add", ["REMOVE"]), Delete);
        assert_eq!(Category::of("Process.Field.Add", ["Delete"]), Delete);
        assert_eq!(Category::of("Process.Field.Add", ["unknown", "Modify"]), Modify);
        assert_eq!(Category::of("Process.Field.Add", ["access"]), Create);
        assert_eq!(Category::of("Process.List.Create", []), Modify);
        assert_eq!(Category::of("Process.Theme.Create", []), Create);
        assert_eq!(Category::of("Process.Theme.RemoveAll", ["execute"]), Delete);
        assert_eq!(Category::of("Process.Theme.Shuffle", []), Modify);
    }

    #[test]
    fn the_documented_actions_are_each_there_once() {
        let names: std::collections::BTreeSet<_> = DOCUMENTED.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), 45);
        assert!(names.iter().all(|name| name.starts_with(PREFIX)));
    }
}
