//! Nobody sees or changes what is another's: the token decides, whatever is asked for.

use serde_json::json;

use super::{Rig, identifiers, titles};
use crate::support::Answer;

// S001-08, S001-73, S001-102
#[tokio::test]
async fn a_user_is_confined_to_themselves() {
    let rig = Rig::start().await;
    rig.tell_many(&["u1"], (0..5).map(|n| format!("secret of u1 {n}"))).await;
    rig.tell(&["u1", "u2"], "for both", json!({})).await;
    let (u1, u2) = (rig.server.client_for(&["user:u1"]).await, rig.server.client_for(&["user:u2"]).await);
    // By any parameter.
    for path in [
        "/notifications?user=u1",
        "/notifications?userid=u1",
        "/notifications?user=u1&limit=9999&status=nonsense",
        "/notifications?user=notificationmap",
        "/notifications?user=u2%00",
        "/notifications?user=U2",
        "/notifications/count?user=u1",
        "/notifications/stream?user=u1",
        "/notifications/stream?userid=u1",
    ] {
        let problem = u2.get(path).await.problem(403);
        assert!(!problem.to_string().contains("secret"), "{path}");
    }
    // Their own, named or not.
    for path in ["/notifications", "/notifications?user=u2", "/notifications?userid=u2"] {
        assert_eq!(titles(&u2.get(path).await.expect(200).json()), ["for both"], "{path}");
    }
    assert_eq!(u2.get("/notifications/count").await.expect(200).json(), json!({ "unread": 1 }));
    // By a cursor.
    let key =
        u1.get("/notifications?limit=2").await.expect(200).json()["LastEvaluatedKey"].as_str().unwrap().to_owned();
    assert_eq!(u2.get(&format!("/notifications?limit=2&cursor={key}")).await.bad_fields(), ["cursor"]);
    let other = rig.server.client_for(&["user:u1"]).await;
    assert_eq!(other.get(&format!("/notifications?limit=2&cursor={key}")).await.bad_fields(), ["cursor"]);
    u2.get(&format!("/notifications?user=u1&cursor={key}")).await.problem(403);
    // By an identifier.
    let theirs = identifiers(&u1.get("/notifications").await.expect(200).json());
    let own = identifiers(&u2.get("/notifications").await.expect(200).json());
    let body = json!([{ "user": "u2", "notification_identifier": own[0] }, { "user": "u1", "notification_identifier": theirs[0] }]);
    u2.post("/notifications", &body).await.problem(403);
    assert_eq!((rig.unread("u1").await, rig.unread("u2").await), (6, 1));
    // What both were told has the same name in both inboxes; any other of theirs is nothing here.
    let foreign = theirs.iter().find(|id| **id != own[0]).unwrap();
    let body = json!([{ "notification_identifier": foreign }, { "notification_identifier": own[0] }]);
    let answer = u2.post("/notifications", &body).await.expect(200).json();
    assert_eq!((&answer["updated"], answer["not_found"].as_array().unwrap().len()), (&json!(1), 1));
    assert_eq!((rig.unread("u1").await, rig.unread("u2").await), (6, 0));
}

#[tokio::test]
async fn services_see_everybody_within_their_scope() {
    let rig = Rig::start().await;
    rig.tell(&["u1"], "t", json!({})).await;
    let id = rig.identifiers("u1").await[0].clone();
    let body = json!([{ "user": "u1", "notification_identifier": id }]);
    let read = rig.server.client_for(&["read"]).await;
    read.get("/notifications?user=u1").await.expect(200);
    read.post("/notifications", &body).await.problem(403);
    let operate = rig.server.client_for(&["operate"]).await;
    operate.get("/notifications?user=u1").await.problem(403);
    operate.post("/notifications", &body).await.expect(200);
    for scopes in [&["ingest"][..], &["tickets", "consume"]] {
        let client = rig.server.client_for(scopes).await;
        client.get("/notifications?user=u1").await.problem(403);
        client.get("/notifications/count?user=u1").await.problem(403);
    }
    let both = rig.server.client_for(&["user:u1", "user:u3"]).await;
    both.get("/notifications?user=u3").await.expect(200);
    assert_eq!(both.get("/notifications").await.bad_fields(), ["user"]);
    both.get("/notifications?user=u2").await.problem(403);
    Answer::to(rig.server.stranger().request(reqwest::Method::GET, "/notifications?user=u1")).await.problem(401);
}
