//! Audit events to try things with: what a demonstration sends, and what the documents show.

use serde_json::{Value, json};
use tidings_core::time::{self, Timestamp};
use uuid::Uuid;

/// Who changed what, in turn.
const CHANGES: [(&str, &str, &str, &str, &str); 6] = [
    ("Process.Field.Add", "create", "Ana Ruiz", "ana@contoso.example", "Field \"Custom.RiskScore\" created"),
    ("Process.State.Update", "modify", "Ben Okafor", "ben@contoso.example", "State \"Doing\" changed"),
    ("Process.WorkItemType.Create", "create", "Ana Ruiz", "ana@contoso.example", "Work item type \"Risk\" created"),
    ("Process.Rule.Delete", "remove", "Chen Li", "chen@contoso.example", "Rule \"Close needs a reason\" deleted"),
    ("Process.List.Update", "modify", "Release pipeline", "svc-cicd@organization.com", "List \"Regions\" updated"),
    ("Process.Field.Remove", "remove", "Chen Li", "chen@contoso.example", "Field \"Custom.Legacy\" removed"),
];

/// The `number`th audit event of an organisation whose processes change, as Azure DevOps would write it at `now`.
#[must_use]
pub fn audit_event(number: usize, id: Uuid, now: Timestamp) -> Value {
    let change = CHANGES.into_iter().cycle().nth(number % CHANGES.len()).unwrap_or_default();
    let (action, category, name, mail, what) = change;
    let (id, actor) = (id.to_string(), Uuid::new_v5(&Uuid::NAMESPACE_URL, mail.as_bytes()).to_string());
    json!({
        "id": id, "correlationId": id, "activityId": id, "actorUPN": mail, "actorDisplayName": name,
        "actorUserId": actor, "authenticationMechanism": "PAT", "timestamp": time::iso_micros(now), "scopeType": "organization",
        "scopeDisplayName": "contoso (Organization)", "ipAddress": "203.0.113.7", "userAgent": "Mozilla/5.0",
        "actionId": action, "area": "Process", "category": category,
        "data": { "ProcessName": "Contoso Agile", "WorkItemTypeReferenceName": "ContosoAgile.UserStory" },
        "details": format!("{what} in process \"Contoso Agile\"."),
    })
}
