//! The notification centre from the outside: inboxes, the map, the stream of changes.

mod changes;
mod import;
mod lists;
mod map;
mod marks;
mod privacy;
mod stream;
mod sync;

use serde_json::{Value, json};

use crate::support::{Answer, Client, TestServer, encode};

/// A server with a rule that tells users what an event of type `tell` says.
struct Rig {
    server: TestServer,
    client: Client,
}

impl Rig {
    async fn start() -> Self {
        Self::over(TestServer::start().await).await
    }

    async fn over(server: TestServer) -> Self {
        let client = server.client();
        let rule = json!({
            "pattern": { "eventType": ["tell"] }, "title": "{{ data.title }}", "text": "x",
            "targets": [{ "channel": "inbox", "users": ["{{ data.users }}"] }],
        });
        client.put("/rules/tell", &rule).await;
        Self { server, client }
    }

    /// Tells users something; the event's data may say more of it.
    async fn tell(&self, users: &[&str], title: &str, more: Value) {
        let mut data = json!({ "users": users, "title": title });
        data.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.client.send(&json!({ "eventType": "tell", "data": data })).await;
    }

    async fn tell_many(&self, users: &[&str], titles: impl Iterator<Item = String>) {
        let events: Vec<Value> =
            titles.map(|title| json!({ "eventType": "tell", "data": { "users": users, "title": title } })).collect();
        for events in events.chunks(100) {
            self.client.post("/events", &json!(events)).await.expect(202);
        }
    }

    async fn page(&self, query: &str) -> Value {
        self.client.get(&format!("/notifications?{query}")).await.expect(200).json()
    }

    /// The titles of every page, page by page.
    async fn pages(&self, query: &str) -> Vec<Vec<String>> {
        let mut pages = Vec::new();
        let mut after = String::new();
        loop {
            let page = self.page(&format!("{query}{after}")).await;
            pages.push(titles(&page));
            let Some(key) = page["LastEvaluatedKey"].as_str() else { return pages };
            after = format!("&lastitemretrieved={key}");
        }
    }

    async fn unread(&self, user: &str) -> u64 {
        let answer = self.client.get(&format!("/notifications/count?user={}", encode(user))).await.expect(200);
        answer.json()["unread"].as_u64().unwrap()
    }

    /// Marks these as `action`.
    async fn mark(&self, user: &str, identifiers: &[String], action: &str) -> Value {
        self.try_mark(user, identifiers, action).await.expect(200).json()
    }

    async fn try_mark(&self, user: &str, identifiers: &[String], action: &str) -> Answer {
        let body: Vec<Value> = identifiers
            .iter()
            .map(|id| json!({ "user": user, "notification_identifier": id, "action": action }))
            .collect();
        self.client.post("/notifications", &json!(body)).await
    }

    async fn identifiers(&self, user: &str) -> Vec<String> {
        identifiers(&self.page(&format!("user={user}&limit=100")).await)
    }

    async fn map(&self, product: &str, group: &str, users: &[&str]) {
        let path = format!("/notification-map/{}/{}", encode(product), encode(group));
        let answer = self.client.put(&path, &json!({ "users": users })).await;
        assert!([200, 201].contains(&answer.status), "{}", answer.text());
    }
}

fn titles(page: &Value) -> Vec<String> {
    page["items"].as_array().unwrap().iter().map(|item| item["title"].as_str().unwrap().to_owned()).collect()
}

fn identifiers(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().unwrap().iter();
    items.map(|item| item["notification_identifier"].as_str().unwrap().to_owned()).collect()
}
