//! The notification map from a file, at the start and with every reload (S001-06).

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::process::Served;

const CONFIG: &str = "[notification_center]\nmap_file = \"map.csv\"\n";

async fn map(client: &Client) -> Vec<Value> {
    let list = client.get("/notification-map").await.expect(200).json();
    let entry = |e: &Value| json!([e["product"], e["supportGroup"], e["users"]]);
    list["items"].as_array().unwrap().iter().map(entry).collect()
}

// S001-06
#[tokio::test]
async fn the_map_follows_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write("tidings.toml", CONFIG);
    write("map.csv", "product,supportGroup,users\ncheckout,payments,u1;u2\ncheckout,web,u3\n");
    let served = Served::start(directory.path());
    let token = std::fs::read_to_string(directory.path().join("tidings-data/admin.token")).unwrap();
    let client = Client::new(&served.url, Some(token.trim()));
    let first = [json!(["checkout", "payments", ["u1", "u2"]]), json!(["checkout", "web", ["u3"]])];
    assert_eq!(map(&client).await, first);

    // By hand: one of the file's, which comes back, and one of our own, which stays.
    client.put("/notification-map/checkout/web", &json!({ "users": ["u9"] })).await.expect(200);
    client.put("/notification-map/search/web", &json!({ "users": ["u4"] })).await.expect(201);
    client.post("/admin/reload", &json!({})).await.expect(200);
    let own = json!(["search", "web", ["u4"]]);
    assert_eq!(map(&client).await, [first[0].clone(), first[1].clone(), own.clone()]);

    // What is not in the file any more goes, what is new comes, what is the same is not written.
    write("map.csv", "checkout,payments,u2\nbilling,web,u5\ncheckout,payments,u1\n");
    client.post("/admin/reload", &json!({})).await.expect(200);
    let second = [json!(["billing", "web", ["u5"]]), first[0].clone(), own.clone()];
    assert_eq!(map(&client).await, second);
    let log = client.get("/audit-log?action=notification-map.sync").await.expect(200).json();
    let details: Vec<_> = log["items"].as_array().unwrap().iter().map(|e| e["details"].clone()).collect();
    assert_eq!(details[0], json!({ "set": ["billing#web"], "removed": ["checkout#web"] }), "{log}");
    assert_eq!(details.len(), 3, "{log}");
    client.post("/admin/reload", &json!({})).await.expect(200);
    let log = client.get("/audit-log?action=notification-map.sync").await.expect(200).json();
    assert_eq!(log["items"].as_array().unwrap().len(), 3, "nothing to do, nothing to tell");

    // The columns may be in another order.
    write("map.csv", "users,support_group,Product ID\nu5,web,billing\nu1;u2,payments,checkout\n");
    client.post("/admin/reload", &json!({})).await.expect(200);
    assert_eq!(map(&client).await, second);

    // A mistake changes nothing, and every bad line is named.
    write("map.csv", "checkout,payments,u7\nbad#name,web,u5\nbilling,web\n");
    let problem = client.post("/admin/reload", &json!({})).await.problem(400);
    let errors = problem["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 2, "{problem}");
    assert!(errors.iter().all(|error| error["field"] == "notification_center.map_file"), "{problem}");
    assert!(errors[0]["message"].as_str().unwrap().contains("line 2"), "{problem}");
    assert_eq!(map(&client).await, second);

    // TOML says the same.
    write("tidings.toml", &CONFIG.replace("csv", "toml"));
    write("map.toml", "[[entries]]\nproduct = \"checkout\"\nsupport_group = \"payments\"\nusers = [\"u8\"]\n");
    let answer = client.post("/admin/reload", &json!({})).await.expect(200).json();
    assert_eq!(answer["changed"], json!(["notification_center.map_file"]));
    assert_eq!(map(&client).await, [json!(["checkout", "payments", ["u8"]]), own]);
    served.stop();
}
