//! What the seed says of its four events, as anybody can read it.

use serde_json::{Value, json};

use crate::support::TestServer;

// S003-03 to S003-14
#[tokio::test]
async fn the_four_events_are_described_as_the_seed_has_them() {
    let server = TestServer::start().await;
    let list = server.client_for(&["read"]).await.get("/event-types").await.expect(200).json();
    assert_eq!(
        list["items"][0],
        json!({
            "id": "EVT_001", "name": "InvoiceUploadedForProcessing", "type": "command", "category": "File Processing",
            "source": "Product Management", "targets": ["Background Worker Service"],
            "required": ["invoiceId", "userProductId", "fileUrl"], "optional": [], "frequency": "medium",
            "criticality": "normal", "priority": "medium",
            "dataSource": { "database": "PostgreSQL", "table": "Invoice", "operation": "create" },
            "queue": "ocr-processing-queue", "exchange": null, "routingKey": null,
            "consumer": { "service": "OCR Processing Worker", "handler": "ProcessInvoice", "processingType": "async" },
            "retryStrategy": "exponential", "deadLetterQueue": "ocr-processing-queue/$deadletterqueue",
            "timeoutMs": 300_000, "dependencies": ["REQ-DATA-001"],
        })
    );
    let all = list["items"].as_array().unwrap();
    let column = |name: &str| all.iter().map(|event| event[name].clone()).collect::<Vec<Value>>();
    // S003-15, S003-28, S003-41
    assert_eq!(column("id"), ["EVT_001", "EVT_002", "EVT_003", "EVT_004"]);
    assert_eq!(column("type"), ["command", "domain", "system", "integration"]);
    assert_eq!(column("category"), ["File Processing", "Service Management", "Workflow Management", "Auditing"]);
    // S003-17, S003-31, S003-43
    assert_eq!(
        column("source"),
        ["Product Management", "Service Request Management", "Product Management", "Multiple"]
    );
    // S003-08, S003-20, S003-33, S003-46, S003-54
    assert_eq!(column("frequency"), ["medium", "high", "low", "high"]);
    assert_eq!(column("criticality"), ["normal", "important", "normal", "important"]);
    assert_eq!(column("priority"), ["medium", "high", "medium", "high"]);
    // S003-09, S003-21, S003-34, S003-47
    let tables: Vec<Value> = all.iter().map(|event| event["dataSource"]["table"].clone()).collect();
    assert_eq!(tables, [json!("Invoice"), json!("ServiceRequest"), json!("OwnershipTransferRequest"), Value::Null]);
    // S003-22, S003-35, S003-48
    assert_eq!(
        column("routingKey"),
        [Value::Null, json!("servicerequest.status.changed"), Value::Null, json!("audit.action.occurred")]
    );
    assert_eq!(column("retryStrategy"), ["exponential", "exponential", "fixed", "exponential"]);
    assert_eq!(column("timeoutMs"), [300_000, 60_000, 60_000, 30_000]);
    // S003-13, S003-25, S003-38, S003-51: each of these is there.
    for queue in column("deadLetterQueue") {
        let path = queue.as_str().unwrap().to_owned();
        server.client().get(&format!("/bus/{path}/peek")).await.expect(200);
    }
    server.client_for(&["tickets"]).await.get("/event-types").await.problem(403);
}
