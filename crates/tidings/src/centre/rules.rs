//! The seed's three filters, as rules that anybody can see at `GET /rules` and change (S001-11 to S001-15).
//!
//! The seed's patterns look at typed attribute values; these look at what the values mean, so that `FALSE`, `false` and
//! `{"BOOL": false}` are one. The images themselves stand under `data.dynamodb` for patterns of the user's own.

use crate::rules::builtin::BuiltIn;

/// What the notification centre brings along.
pub const RULES: &[BuiltIn] = &[
    // S001-03: a new question that is not compliant.
    BuiltIn {
        name: "question-inserted-pending",
        json: r#"{
            "pattern": { "eventType": ["dynamodb.insert"],
                "data": { "eventName": ["INSERT"], "entity": ["product"], "compliance": [false] } },
            "targets": [{ "channel": "inbox", "map": { "product": "{{ data.product_id }}" } }],
            "title": "{{ data.question }} of {{ data.product_id }} is pending in {{ data.env }}",
            "text": "The question {{ data.question }} of {{ data.product_id }} is new in {{ data.env }}, and pending."
        }"#,
    },
    // S001-02, S001-22: a question that was compliant and is no more.
    BuiltIn {
        name: "question-turned-pending",
        json: r#"{
            "pattern": { "eventType": ["dynamodb.modify"],
                "data": { "eventName": ["MODIFY"], "entity": ["product"], "compliance": [false], "old_compliance": [true] } },
            "targets": [{ "channel": "inbox", "map": { "product": "{{ data.product_id }}" } }],
            "title": "{{ data.question }} of {{ data.product_id }} is pending in {{ data.env }}",
            "text": "The question {{ data.question }} of {{ data.product_id }} was compliant in {{ data.env }} and is pending now."
        }"#,
    },
    // S001-04, S001-05, S001-28, S001-29, S001-35: an environment's own score over all pillars, if it is another one.
    BuiltIn {
        name: "score-changed",
        json: r#"{
            "pattern": { "eventType": ["dynamodb.modify"],
                "data": { "eventName": ["MODIFY"], "entity": ["score"], "pillar": [{ "equals-ignore-case": "all" }],
                    "version": [{ "equals-ignore-case": "latest" }], "env": [{ "anything-but": ["ale"] }],
                    "old": { "score": [{ "exists": true }] }, "new": { "score": [{ "changed": true }] } } },
            "targets": [{ "channel": "inbox", "map": { "product": "{{ data.product_id }}" } }],
            "title": "{{ data.product_id }} scores {{ data.new_score }} in {{ data.env }}",
            "text": "The score of {{ data.product_id }} in {{ data.env }} changed from {{ data.old_score }} to {{ data.new_score }}."
        }"#,
    },
];
