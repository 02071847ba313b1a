//! What must not be stored is not stored.

use serde_json::{Value, json};

use super::{comment, desk, open, texts};

/// Whether any file under the data directory holds these bytes.
fn on_disk(directory: &std::path::Path, text: &str) -> bool {
    std::fs::read_dir(directory).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return on_disk(&path, text);
        }
        let bytes = std::fs::read(&path).unwrap_or_default();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    })
}

// S004-37
#[tokio::test]
async fn a_phone_number_is_stored_only_as_a_hash() {
    let (server, agent) = desk().await;
    let ticket = open(&agent, "+49 170 7654321").await;
    let hash = ticket["caller_id"].as_str().unwrap();
    assert!(hash.starts_with("phone-") && hash.len() == 38, "{hash}");
    let again = comment(&agent, &ticket, "calling again").await;
    // However its digits are written.
    let full = open(
        &agent,
        "\u{ff10}\u{ff10}\u{ff14}\u{ff19}\u{ff11}\u{ff17}\u{ff10} \u{667}\u{666}\u{665}\u{664}\u{663}\u{662}\u{661}",
    )
    .await;
    assert_eq!(full["caller_id"], hash);
    for query in ["%2B491707654321", "0049-170-7654321", "tel:%2B491707654321", hash] {
        let found = agent.get(&format!("/tickets?caller={query}")).await.expect(200).json();
        assert!(found["tickets"].as_array().unwrap().contains(&again), "{query}: {found}");
    }
    let events = server.client().get("/events").await.expect(200).text();
    assert!(events.contains(hash) && !events.contains("7654321"), "{events}");
    for number in ["170 7654321", "1707654321"] {
        assert!(!on_disk(server.data_dir(), number));
    }
    assert!(on_disk(server.data_dir(), "calling again"), "the search finds what is there");
}

// S004-38
#[tokio::test]
async fn obvious_secrets_are_replaced_before_they_are_stored() {
    let (server, agent) = desk().await;
    let body = json!({
        "caller_id": "c",
        "issue_description": "Login fails. My password is hunter2xyz and the MFA code is 493021.",
    });
    let ticket = agent.post("/tickets", &body).await.expect(201).json();
    let cleaned = "Login fails. My password is [redacted] and the MFA code is [redacted].";
    assert_eq!(ticket["issue_description"], cleaned);
    let ticket = comment(&agent, &ticket, "card 4111 1111 1111 1111, error code 1603").await;
    assert_eq!(texts(&ticket), ["card [redacted], error code 1603"]);
    for secret in ["hunter2xyz", "493021", "4111 1111"] {
        assert!(!on_disk(server.data_dir(), secret), "{secret}");
    }
    let metrics = server.client().get("/metrics").await.expect(200).text();
    assert!(metrics.contains("tidings_ticket_redactions_total 3"), "{metrics}");
    let events: Value = server.client().get("/events?type=ticket.created").await.expect(200).json();
    assert_eq!(events["items"][0]["data"]["issue_description"], cleaned);
}
