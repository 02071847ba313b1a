//! `/notification-map`.

use serde_json::{Value, json};
use tidings::inbox::{map, record};
use tidings_store::Query;

use super::Rig;
use crate::support::encode;

// S001-06, S001-42 to S001-46
#[tokio::test]
async fn entries_are_made_replaced_listed_and_removed() {
    let rig = Rig::start().await;
    let users = json!({ "users": ["u2", "u1", "u2"] });
    let made = rig.client.put("/notification-map/app1/sg1", &users).await.expect(201).json();
    assert_eq!(made, json!({ "product": "app1", "supportGroup": "sg1", "users": ["u1", "u2"] }));
    rig.client.put("/notification-map/app1/sg1", &json!({ "users": ["u3"] })).await.expect(200);
    rig.map("app1", "sg2", &["u4"]).await;
    rig.map("app10", "sg1", &["u5"]).await;
    rig.map("a b/c", "grüppe", &["ü"]).await;
    let list = rig.client.get("/notification-map?product=app1").await.expect(200).json();
    // S001-47: not those of app10.
    assert_eq!(
        list,
        json!({ "items": [
            { "product": "app1", "supportGroup": "sg1", "users": ["u3"] },
            { "product": "app1", "supportGroup": "sg2", "users": ["u4"] },
        ], "cursor": null })
    );
    let one = rig.client.get(&format!("/notification-map/{}/{}", encode("a b/c"), encode("grüppe"))).await.expect(200);
    assert_eq!(one.json()["users"], json!(["ü"]));
    assert_eq!(rig.client.get("/notification-map").await.expect(200).json()["items"].as_array().unwrap().len(), 4);
    // Stored as the seed has it.
    let query = Query::new("notificationmap").prefix("app1#sg2");
    let page = rig.server.services.store.query(record::table(), &query).await.unwrap();
    let item = &page.items[0];
    assert_eq!(item.str("cod_ordenar_chav"), Some("app1#sg2"));
    assert_eq!(item.str("status_ordenar"), Some("LATEST#app1#sg2"));
    assert_eq!(item.str("tipo_ordenar"), Some("LATEST#sg2#app1"));
    assert_eq!(map::users_of(item), ["u4"]);

    rig.client.delete("/notification-map/app1/sg1").await.expect(204);
    rig.client.delete("/notification-map/app1/sg1").await.problem(404);
    rig.client.get("/notification-map/app1/sg1").await.problem(404);
    // Each change is on record; a refused one is not.
    let log = rig.client.get("/audit-log?entity=notification-map&limit=100").await.expect(200).json();
    let actions: Vec<_> = log["items"].as_array().unwrap().iter().map(|e| e["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["notification-map.delete"].into_iter().chain(["notification-map.put"; 5]).collect::<Vec<_>>());
}

#[tokio::test]
async fn pages_of_the_map_follow_each_other() {
    let rig = Rig::start().await;
    for n in 0..7 {
        rig.map("p", &format!("g{n}"), &["u"]).await;
    }
    let mut groups = Vec::new();
    let mut after = String::new();
    loop {
        let page = rig.client.get(&format!("/notification-map?product=p&limit=3{after}")).await.expect(200);
        let list = page.json();
        groups.extend(list["items"].as_array().unwrap().iter().map(|i| i["supportGroup"].as_str().unwrap().to_owned()));
        let Some(cursor) = page.cursor() else { break };
        after = format!("&cursor={cursor}");
    }
    assert_eq!(groups, (0..7).map(|n| format!("g{n}")).collect::<Vec<_>>());
}

// SX-27
#[tokio::test]
async fn mistakes_are_all_named_and_sizes_have_their_limits() {
    let rig = Rig::start().await;
    let path = format!("/notification-map/{}/{}", encode("a#b"), encode("c\u{7}"));
    let body = json!({ "users": ["u1", 7, "", "notificationmap"] });
    let fields = rig.client.put(&path, &body).await.bad_fields();
    assert_eq!(fields, ["product", "supportGroup", "users[1]", "users[2]", "users[3]"]);
    for body in [json!({}), json!({ "users": "u1" }), json!([])] {
        rig.client.put("/notification-map/p/g", &body).await.problem(400);
    }
    let users = |n: usize| -> Vec<Value> { (0..n).map(|n| json!(format!("user{n}"))).collect() };
    for (count, status) in [(9_999, 201), (10_000, 200), (10_001, 400), (0, 200)] {
        let answer = rig.client.put("/notification-map/p/g", &json!({ "users": users(count) })).await;
        assert_eq!(answer.status, status, "{count}: {}", answer.text());
    }
    for (length, status) in [(256, 201), (257, 400)] {
        let path = format!("/notification-map/{}/g", "p".repeat(length));
        assert_eq!(rig.client.put(&path, &json!({ "users": [] })).await.status, status, "{length}");
    }
    // Two names that are too long together for a key.
    let wide = encode(&"\u{1F600}".repeat(200));
    rig.client.put(&format!("/notification-map/{wide}/{wide}"), &json!({ "users": [] })).await.problem(400);
    let long = vec![json!("x".repeat(200) + "1"); 1];
    rig.client.put("/notification-map/p/h", &json!({ "users": long })).await.expect(201);
    let many: Vec<Value> = (0..2_000).map(|n| json!(format!("{n:0200}"))).collect();
    assert_eq!(rig.client.put("/notification-map/p/h", &json!({ "users": many })).await.bad_fields(), ["users"]);
    assert_eq!(rig.client.get("/notification-map?product=a%23b").await.bad_fields(), ["product"]);
}

#[tokio::test]
async fn only_operators_change_it() {
    let rig = Rig::start().await;
    rig.map("p", "g", &["u1"]).await;
    let (reader, user) = (rig.server.client_for(&["read"]).await, rig.server.client_for(&["user:u1"]).await);
    reader.get("/notification-map").await.expect(200);
    for client in [&reader, &user] {
        client.put("/notification-map/p/g", &json!({ "users": [] })).await.problem(403);
        client.delete("/notification-map/p/g").await.problem(403);
        client.post_as("/notification-map/import", "text/csv", "p,g,u").await.problem(403);
    }
    user.get("/notification-map").await.problem(403);
    rig.server.client_for(&["operate"]).await.delete("/notification-map/p/g").await.expect(204);
}

crate::support::on_dynamodb! {
    entries_are_made_replaced_listed_and_removed,
}
