//! Several nodes: one reads, and one that was replaced changes nothing.

use std::sync::Arc;
use std::time::Duration;

use tidings::sources::stream::Reader;
use tidings::sources::{Trouble, work};
use tidings_store::Store;
use tidings_store::memory::Memory;

use super::Rig;
use super::stand_in::Dynamo;
use crate::support::{TestServer, server};

#[tokio::test]
async fn a_node_that_was_replaced_notes_nothing() {
    let clock = server::clock();
    let store: Arc<dyn Store> = Arc::new(Memory::new(clock.clone()));
    let a = TestServer::among(Arc::clone(&store), Arc::clone(&clock), None).await;
    let b = TestServer::among(Arc::clone(&store), Arc::clone(&clock), Some(&a)).await;
    let work = work("scores");
    for _ in 0..3 {
        for node in [&a, &b] {
            node.services.offer(&work);
            node.services.look_at_nodes().await.unwrap();
        }
    }
    assert!(a.services.does(&work) != b.services.does(&work), "one of them");
    let (mut first, second) = if a.services.does(&work) { (a, b) } else { (b, a) };
    let dynamo = Dynamo::start().await;
    let mut slow = Reader::new(&first.services, &dynamo.source()).unwrap();
    let mut other = Reader::new(&second.services, &dynamo.source()).unwrap();
    let rig = Rig::over(second, dynamo).await;
    rig.dynamo.score("s1", 24, 30);
    // The one without the lease can begin nothing.
    assert_eq!(other.activate().await.unwrap_err().trouble, Trouble::Superseded);
    rig.read(&mut slow).await;
    assert_eq!(rig.told("ana").await, [30]);
    let noted = rig.noted().await;
    // The first is silent for longer than a lease; the second takes over.
    first.services.nodes.as_ref().unwrap().pretend_to_be_dead();
    for _ in 0..8 {
        rig.server.clock.advance(Duration::from_millis(2500));
        rig.server.services.look_at_nodes().await.unwrap();
    }
    assert!(rig.server.services.does(&work));
    rig.dynamo.score("s1", 30, 31);
    let failed = slow.activate().await.unwrap_err();
    assert_eq!((failed.trouble, rig.noted().await), (Trouble::Superseded, noted));
    rig.read(&mut other).await;
    assert_eq!((rig.told("ana").await, rig.told("ben").await), (vec![30, 31], vec![30, 31]), "once, though read twice");
    first.stop().await;
}
