use tidings_core::filter::{Parameters, SqlFilter, Value};

use super::Answer::{Fails, No, Yes};
use super::{check, check_all, message};

// S003-74
#[test]
fn comparisons() {
    check_all(&[
        ("eventType = 'servicerequest.status.changed'", r#"{"eventType":"servicerequest.status.changed"}"#, Yes),
        ("eventType = 'servicerequest.status.changed'", r#"{"eventType":"audit.action.occurred"}"#, No),
        ("a = 'x'", r#"{"a":"X"}"#, No),
        ("a = 'it''s'", r#"{"a":"it's"}"#, Yes),
        ("a = ''", r#"{"a":""}"#, Yes),
        ("a = 'é'", r#"{"a":"é"}"#, Yes),
        ("a <> 'x'", r#"{"a":"y"}"#, Yes),
        ("a != 'x'", r#"{"a":"x"}"#, No),
        ("a < 'b'", r#"{"a":"a"}"#, Yes),
        ("a < 'B'", r#"{"a":"a"}"#, No),
        ("a >= 'abc'", r#"{"a":"abc"}"#, Yes),
        ("a = 1", r#"{"a":1}"#, Yes),
        ("a = 1", r#"{"a":1.0}"#, Yes),
        ("a = 1.0", r#"{"a":1}"#, Yes),
        ("a = 1.5E3", r#"{"a":1500}"#, Yes),
        ("a = 15e-1", r#"{"a":1.5}"#, Yes),
        ("a < 2", r#"{"a":1.9}"#, Yes),
        ("a <= 2", r#"{"a":2}"#, Yes),
        ("a > 2", r#"{"a":2}"#, No),
        ("a >= 2", r#"{"a":2.0}"#, Yes),
        ("a=9223372036854775807", r#"{"a":9223372036854775807}"#, Yes),
        ("a=9223372036854775807", r#"{"a":9223372036854775806}"#, No),
        ("a=-9223372036854775808", r#"{"a":-9223372036854775808}"#, Yes),
        ("a = TRUE", r#"{"a":true}"#, Yes),
        ("a <> FALSE", r#"{"a":false}"#, No),
        ("1=1", "{}", Yes),
        ("1 = 0", "{}", No),
        ("5 > 4", "{}", Yes),
        ("'a' = 'a'", "{}", Yes),
        ("a = b", r#"{"a":1,"b":1.0}"#, Yes),
    ]);
}

/// `=` tells kinds apart without failing; an order between them there is not.
#[test]
fn different_kinds() {
    check_all(&[
        ("a = '1'", r#"{"a":1}"#, No),
        ("a <> '1'", r#"{"a":1}"#, Yes),
        ("a = TRUE", r#"{"a":1}"#, No),
        ("a = TRUE", r#"{"a":"true"}"#, No),
        ("a < '1'", r#"{"a":1}"#, Fails),
        ("a > 1", r#"{"a":"2"}"#, Fails),
        ("a > FALSE", r#"{"a":true}"#, Fails),
        ("a LIKE '1%'", r#"{"a":1}"#, Fails),
        ("a + 1 = 2", r#"{"a":true}"#, Fails),
        ("a - 1 = 2", r#"{"a":"3"}"#, Fails),
        ("-a = 1", r#"{"a":"x"}"#, Fails),
        ("a AND b", r#"{"a":1,"b":true}"#, Fails),
        // What decides first spares the rest.
        ("b = 1 OR a > 1", r#"{"a":"2","b":1}"#, Yes),
        ("b = 2 AND a > 1", r#"{"a":"2","b":1}"#, No),
    ]);
}

#[test]
fn three_values() {
    let rows = [("a = 1", "T"), ("a = 2", "F"), ("z = 1", "U")];
    let and = |l, r| {
        if l == "F" || r == "F" {
            "F"
        } else if l == "U" || r == "U" {
            "U"
        } else {
            "T"
        }
    };
    let or = |l, r| {
        if l == "T" || r == "T" {
            "T"
        } else if l == "U" || r == "U" {
            "U"
        } else {
            "F"
        }
    };
    let not = |l| match l {
        "T" => "F",
        "F" => "T",
        _ => "U",
    };
    let answer = |truth: &str| if truth == "T" { Yes } else { No };
    for (left, l) in rows {
        check(&format!("NOT {left}"), r#"{"a":1}"#, answer(not(l)));
        check(&format!("NOT NOT ({left})"), r#"{"a":1}"#, answer(l));
        for (right, r) in rows {
            check(&format!("{left} AND {right}"), r#"{"a":1}"#, answer(and(l, r)));
            check(&format!("{left} OR {right}"), r#"{"a":1}"#, answer(or(l, r)));
            check(&format!("NOT ({left} AND {right})"), r#"{"a":1}"#, answer(not(and(l, r))));
            check(&format!("NOT ({left} OR {right})"), r#"{"a":1}"#, answer(not(or(l, r))));
        }
    }
}

#[test]
fn unknown() {
    check_all(&[
        ("z = 1", "{}", No),
        ("z <> 1", "{}", No),
        ("NOT z = 1", "{}", No),
        ("z = NULL", r#"{"z":null}"#, No),
        ("NOT (z = NULL)", r#"{"z":1}"#, No),
        ("z + 1 > 0", "{}", No),
        ("-z < 0", "{}", No),
        ("z LIKE '%'", "{}", No),
        ("z NOT LIKE '%'", "{}", No),
        ("a LIKE z", r#"{"a":"x"}"#, No),
        ("z IN (1)", "{}", No),
        ("z NOT IN (1)", "{}", No),
        ("a IN (z, 1)", r#"{"a":1}"#, Yes),
        ("a IN (z, 2)", r#"{"a":1}"#, No),
        ("a NOT IN (z, 2)", r#"{"a":1}"#, No),
        ("z", "{}", No),
        ("NOT z", "{}", No),
        ("z IS NULL", "{}", Yes),
        ("z IS NULL", r#"{"z":null}"#, Yes),
        ("z IS NULL", r#"{"z":0}"#, No),
        ("z IS NOT NULL", "{}", No),
        ("z IS NOT NULL", r#"{"z":""}"#, Yes),
        ("EXISTS(z)", "{}", No),
        ("EXISTS(z)", r#"{"z":null}"#, Yes),
        ("NOT EXISTS(z)", "{}", Yes),
        ("EXISTS (user.z) AND z = 1", r#"{"z":1}"#, Yes),
    ]);
}

#[test]
fn lists() {
    check_all(&[
        ("a IN ('queue', 'topic', 'subscription')", r#"{"a":"topic"}"#, Yes),
        ("a IN('queue')", r#"{"a":"topic"}"#, No),
        ("a NOT IN ('queue')", r#"{"a":"topic"}"#, Yes),
        ("a NOT IN ('queue', 'topic')", r#"{"a":"topic"}"#, No),
        ("a IN (1, 'x', TRUE)", r#"{"a":true}"#, Yes),
        ("a IN (1+1, b)", r#"{"a":2}"#, Yes),
        ("a in (1,2.0)", r#"{"a":2}"#, Yes),
        ("sys.To IN ('Store5','Store6') OR StoreId = 'Store8'", r#"{"StoreId":"Store8","sys.To":"x"}"#, Yes),
    ]);
}

#[test]
fn arithmetic() {
    check_all(&[
        ("a + 1 = 3", r#"{"a":2}"#, Yes),
        ("a - 1 - 1 = 0", r#"{"a":2}"#, Yes),
        ("2 + 3 * 4 = 14", "{}", Yes),
        ("(2 + 3) * 4 = 20", "{}", Yes),
        ("7 / 2 = 3", "{}", Yes),
        ("-7 / 2 = -3", "{}", Yes),
        ("7 / 2.0 = 3.5", "{}", Yes),
        ("7 % 4 = 3", "{}", Yes),
        ("-7 % 4 = -3", "{}", Yes),
        ("7.5 % 2 = 1.5", "{}", Yes),
        ("10 / 5 * 2 = 4", "{}", Yes),
        ("- -5 = 5", "{}", Yes),
        ("+a = 5", r#"{"a":5}"#, Yes),
        ("-(a) = -5", r#"{"a":5}"#, Yes),
        ("a-1=1", r#"{"a":2}"#, Yes),
        ("'a' + 'b' = 'ab'", "{}", Yes),
        ("'a' + 1 = 'a1'", "{}", Yes),
        ("a / 0 = 1", r#"{"a":1}"#, Fails),
        ("a % 0 = 1", r#"{"a":1}"#, Fails),
        ("a / 0.0 = 1", r#"{"a":1}"#, Fails),
        ("a + 1 > 0", r#"{"a":9223372036854775807}"#, Fails),
        ("a * 2 > 0", r#"{"a":9223372036854775807}"#, Fails),
        ("a / -1 > 0", r#"{"a":-9223372036854775808}"#, Fails),
        ("a % -1 = 0", r#"{"a":-9223372036854775808}"#, Fails),
        ("-a > 0", r#"{"a":-9223372036854775808}"#, Fails),
        ("a * 10.0 > 0", r#"{"a":1e308}"#, Fails),
    ]);
}

#[test]
fn binding() {
    check_all(&[
        ("a = 1 OR a = 2 AND b = 9", r#"{"a":1,"b":0}"#, Yes),
        ("(a = 1 OR a = 2) AND b = 9", r#"{"a":1,"b":0}"#, No),
        ("NOT a = 1 AND b = 0", r#"{"a":2,"b":0}"#, Yes),
        ("NOT a = 1 OR b = 0", r#"{"a":1,"b":0}"#, Yes),
        ("NOT (a = 1 OR b = 0)", r#"{"a":1,"b":0}"#, No),
        ("NOT NOT a = 1", r#"{"a":1}"#, Yes),
        ("((((a = 1))))", r#"{"a":1}"#, Yes),
        ("a=1 and b=2 Or c=3", r#"{"a":0,"b":0,"c":3}"#, Yes),
        ("a + 1 * 2 > b - 1 AND TRUE", r#"{"a":1,"b":3}"#, Yes),
    ]);
}

#[test]
fn names() {
    check_all(&[
        ("EVENTTYPE = 'x'", r#"{"eventType":"x"}"#, Yes),
        ("user.eventType = 'x'", r#"{"eventType":"x"}"#, Yes),
        ("USER.eventType = 'x'", r#"{"eventType":"x"}"#, Yes),
        ("[Property With Space] = 1", r#"{"Property With Space":1}"#, Yes),
        ("[HR-EmployeeID] = 1", r#"{"HR-EmployeeID":1}"#, Yes),
        ("[a]]b] = 1", r#"{"a]b":1}"#, Yes),
        ("\"Contoso & Northwind\" = 1", r#"{"Contoso & Northwind":1}"#, Yes),
        ("\"say \"\"hi\"\"\" = 1", r#"{"say \"hi\"":1}"#, Yes),
        ("user.[a.b] = 1", r#"{"a.b":1}"#, Yes),
        ("[and] = 1", r#"{"and":1}"#, Yes),
        ("Größe = 1", r#"{"grÖßE":1}"#, Yes),
        ("a_1 = 1", r#"{"a_1":1}"#, Yes),
        // Words that mean something elsewhere only.
        ("p = 1 AND property = 2 AND newid = 3", r#"{"p":1,"property":2,"newid":3}"#, Yes),
        ("sys = 1 AND user = 2 AND set = 3", r#"{"sys":1,"user":2,"set":3}"#, Yes),
        ("p(a) = 1", r#"{"a":"b","b":1}"#, Yes),
        ("property('a' + 'b') = 1", r#"{"ab":1}"#, Yes),
        ("property('sys.Label') = 'x'", r#"{"sys.Label":"x"}"#, Yes),
        ("property('user.a') = 1", r#"{"a":1}"#, Yes),
        ("p('zz') IS NULL", "{}", Yes),
        ("EXISTS(p('a'))", r#"{"a":1}"#, Yes),
        ("property(1) = 1", "{}", Fails),
        ("property('sys.nothing') = 1", "{}", Fails),
        ("newid() <> newid()", r#"{"sys.MessageId":"m1"}"#, Yes),
        ("newid() LIKE '________-____-____-____-____________'", "{}", Yes),
    ]);
}

#[test]
fn the_broker_s_properties() {
    let all = r#"{"sys.MessageId":"m","sys.CorrelationId":"c","sys.To":"t","sys.ReplyTo":"r","sys.Label":"l",
        "sys.SessionId":"s","sys.ReplyToSessionId":"rs","sys.ContentType":"text/plain","sys.SequenceNumber":7,
        "sys.EnqueuedTimeUtc":"2026-01-02T03:04:05Z","sys.DeliveryCount":1,"label":"mine"}"#;
    check_all(&[
        ("sys.MessageId = 'm' AND sys.CorrelationId = 'c' AND sys.To = 't' AND sys.ReplyTo = 'r'", all, Yes),
        ("sys.Label = 'l' AND sys.Subject = 'l' AND label = 'mine'", all, Yes),
        ("sys.SessionId='s' AND sys.ReplyToSessionId='rs' AND sys.ContentType = 'text/plain'", all, Yes),
        ("SYS.label LIKE '%l%'", all, Yes),
        ("sys.[Label] = 'l'", all, Yes),
        ("sys.SequenceNumber > 6 AND sys.DeliveryCount = 1", all, Yes),
        ("sys.EnqueuedTimeUtc > '2026-01-01'", all, Yes),
        ("sys.Label = 'l'", "{}", No),
        ("NOT sys.Label = 'l'", "{}", No),
        ("sys.Label IS NULL", "{}", Yes),
        ("EXISTS(sys.Label)", all, Yes),
        ("EXISTS(sys.Label)", "{}", No),
        // The sender's property does not stand in for the broker's, nor the other way round.
        ("sys.Label = 'mine'", r#"{"Label":"mine"}"#, No),
        ("Label = 'l'", r#"{"sys.Label":"l"}"#, No),
    ]);
}

#[test]
fn booleans_alone() {
    check_all(&[
        ("urgent", r#"{"urgent":true}"#, Yes),
        ("urgent", r#"{"urgent":false}"#, No),
        ("NOT urgent", r#"{"urgent":false}"#, Yes),
        ("urgent AND a = 1", r#"{"urgent":true,"a":1}"#, Yes),
        ("urgent", r#"{"urgent":"true"}"#, Fails),
        ("TRUE", "{}", Yes),
        ("false", "{}", No),
        ("NULL", "{}", No),
    ]);
}

#[test]
fn parameters() {
    let parameters = Parameters::from([
        ("stringParam".to_owned(), Value::text("orders")),
        ("n".to_owned(), Value::Integer(3)),
        ("e".to_owned(), Value::text("!")),
    ]);
    let yes = |sql: &str, json: &str| {
        assert!(SqlFilter::parse_with(sql, &parameters).unwrap().matches(&message(json)), "{sql}");
    };
    yes("source = @stringParam AND n IN (@n, 9)", r#"{"source":"orders","n":3}"#);
    yes("a LIKE 'x!%' ESCAPE @e", r#"{"a":"x%"}"#);
    assert_eq!(
        SqlFilter::parse_with("a = @missing", &parameters).unwrap_err().to_string(),
        "at character 5: the parameter `@missing` is not given"
    );
}
