//! A day at the voice desk (S004-40, S004-42): 10 creates, 50 gets, 20 comments, 10 lists.

use super::{comment, desk, id_of, look, open, texts};

#[tokio::test]
async fn a_day_at_the_voice_desk() {
    let (server, agent) = desk().await;
    let mut tickets = Vec::new();
    for number in 0..10 {
        tickets.push(open(&agent, &format!("poc-user-{:03}", number % 5)).await);
        server.clock.advance(std::time::Duration::from_secs(60));
    }
    let mut bytes = 0;
    for turn in 0..20 {
        let ticket = &tickets[turn % 10];
        comment(&agent, ticket, &format!("Step {turn} did not help")).await;
        server.clock.advance(std::time::Duration::from_secs(60));
    }
    for turn in 0..50 {
        let ticket = look(&agent, &tickets[turn % 10]).await;
        assert_eq!(texts(&ticket).len(), 2);
        assert_eq!(ticket["updated_at"], ticket["comments"][1]["added_at"]);
        bytes += ticket.to_string().len();
    }
    for turn in 0..10 {
        let list = agent.get(&format!("/tickets?caller=poc-user-{:03}", turn % 5)).await.expect(200).json();
        let ids: Vec<_> = list["tickets"].as_array().unwrap().iter().map(id_of).collect();
        assert_eq!(ids, [id_of(&tickets[turn % 5 + 5]), id_of(&tickets[turn % 5])], "newest first");
    }
    assert!(bytes < 1_000_000);
}
