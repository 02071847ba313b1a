"""Each seed's own code patterns with boto3, on the tables that a running server works on: what one writes, the other reads.

Arguments: the DynamoDB endpoint, the table prefix, the server's address, a token.
"""

import json
import sys
import time
import urllib.error
import urllib.request
import uuid
from datetime import datetime, timezone

try:
    import boto3
    from boto3.dynamodb.conditions import Key
except ImportError:
    sys.exit("boto3 is missing: run ./test, or name a Python that has it in TIDINGS_TEST_PYTHON")

endpoint, prefix, url, token = sys.argv[1:]
resource = boto3.resource(
    "dynamodb", endpoint_url=endpoint, region_name="eu-west-1", aws_access_key_id="local", aws_secret_access_key="local"
)


def table(name):
    return resource.Table(prefix + name)


def call(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data=data, method=method)
    request.add_header("authorization", f"Bearer {token}")
    if data is not None:
        request.add_header("content-type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
            return json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{method} {path}: {error.code} {error.read().decode()}") from error


def iso(at=None):
    at = at or datetime.now(timezone.utc)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond:06d}Z"


def tickets():
    """Seed 004: put, get, list_append and the caller's index."""
    rows = table("poc-itsm-tickets")
    theirs = str(uuid.uuid4())
    rows.put_item(
        Item={
            "ticket_id": theirs,
            "caller_id": "poc-user-001",
            "issue_description": "My laptop won't turn on",
            "status": "open",
            "created_at": iso(),
            "updated_at": iso(),
            "comments": [],
        }
    )
    rows.update_item(
        Key={"ticket_id": theirs},
        UpdateExpression="SET comments = list_append(if_not_exists(comments, :empty_list), :comment), updated_at = :timestamp",
        ExpressionAttributeValues={
            ":comment": [{"comment_text": "Tried restarting", "added_at": "2026-02-09T12:30:00Z"}],
            ":timestamp": iso(),
            ":empty_list": [],
        },
    )
    seen = call("GET", f"/tickets/{theirs}")
    assert seen["issue_description"] == "My laptop won't turn on" and seen["status"] == "open", seen
    assert [comment["comment_text"] for comment in seen["comments"]] == ["Tried restarting"], seen
    call("POST", f"/tickets/{theirs}/comments", {"comment_text": "From the API"})
    ours = call("POST", "/tickets", {"caller_id": "poc-user-001", "issue_description": "Printer"})["ticket_id"]
    item = rows.get_item(Key={"ticket_id": ours}, ConsistentRead=True)["Item"]
    assert item["issue_description"] == "Printer" and item["comments"] == [], item
    item = rows.get_item(Key={"ticket_id": theirs}, ConsistentRead=True)["Item"]
    assert [comment["comment_text"] for comment in item["comments"]] == ["Tried restarting", "From the API"], item
    found = rows.query(
        IndexName="CallerIdIndex",
        KeyConditionExpression="caller_id = :caller_id",
        ExpressionAttributeValues={":caller_id": "poc-user-001"},
        ScanIndexForward=False,
        Limit=10,
    )["Items"]
    assert [row["ticket_id"] for row in found] == [ours, theirs], found
    listed = call("GET", "/tickets?caller=poc-user-001")["tickets"]
    assert [row["ticket_id"] for row in listed] == [ours, theirs], listed


def messages():
    """Seed 002: the two indexes with names for reserved words, and the conditional update of a status."""
    rows = table("rez-agent-messages-dev")
    made = call("POST", "/api/messages", {"message_type": "manual_notification", "payload": {"text": "hello"}})
    item = rows.get_item(Key={"message_id": made["message_id"]}, ConsistentRead=True)["Item"]
    assert item["stage"] == "dev" and item["message_type"] == "manual_notification", item
    found = rows.query(
        IndexName="stage-created_date-index",
        KeyConditionExpression="stage = :stage AND created_date > :date",
        ExpressionAttributeValues={":stage": "dev", ":date": "2025-10-01T00:00:00Z"},
        ScanIndexForward=False,
        Limit=50,
    )["Items"]
    assert made["message_id"] in [row["message_id"] for row in found], found
    theirs = str(uuid.uuid4())
    rows.put_item(
        Item={
            "message_id": theirs,
            "created_date": iso(),
            "created_by": "scheduler-lambda",
            "stage": "dev",
            "message_type": "manual_notification",
            "status": "created",
            "payload": {"text": "from the seed's own code"},
            "retry_count": 0,
            "correlation_id": str(uuid.uuid4()),
            "ttl": int(time.time()) + 86400,
        }
    )
    rows.update_item(
        Key={"message_id": theirs},
        UpdateExpression="SET #status = :new, updated_date = :now",
        ConditionExpression="#status = :old",
        ExpressionAttributeNames={"#status": "status"},
        ExpressionAttributeValues={":new": "failed", ":old": "created", ":now": iso()},
    )
    seen = call("GET", f"/api/messages/{theirs}")
    assert seen["status"] == "failed" and seen["created_by"] == "scheduler-lambda", seen
    failed = rows.query(
        IndexName="status-created_date-index",
        KeyConditionExpression="#status = :status",
        ExpressionAttributeNames={"#status": "status"},
        ExpressionAttributeValues={":status": "failed"},
        Limit=100,
    )["Items"]
    assert theirs in [row["message_id"] for row in failed], failed
    listed = call("GET", "/api/messages?status=failed")["items"]
    assert theirs in [row["message_id"] for row in listed], listed


def notifications():
    """Seed 001: the map, the entries, both local indexes with pages, and delete with insert in one transaction."""
    rows = table("tbff2022_notification_centro")
    rows.put_item(
        Item={
            "cod_chav_patc": "notificationmap",
            "cod_ordenar_chav": "app1#group1",
            "userlist": ["u1", "u2"],
            "status_ordenar": "LATEST#app1#group1",
            "tipo_ordenar": "LATEST#group1#app1",
        }
    )
    groups = call("GET", "/notification-map?product=app1")["items"]
    assert groups and groups[0]["users"] == ["u1", "u2"], groups
    call("PUT", "/notification-map/app1/group2", {"users": ["u3"]})
    found = rows.query(
        KeyConditionExpression=Key("cod_chav_patc").eq("notificationmap") & Key("cod_ordenar_chav").begins_with("app1#")
    )["Items"]
    assert [row["userlist"] for row in found] == [["u1", "u2"], ["u3"]], found
    base = time.time_ns()
    times = [str(base + n) for n in range(5)]
    for at in times:
        rows.put_item(
            Item={
                "cod_chav_patc": "u1",
                "cod_ordenar_chav": f"all#{at}",
                "status_ordenar": f"unread#{at}",
                "tipo_ordenar": f"score#unread#{at}",
                "env": "prod",
                "old_score": "10",
                "new_score": "20",
                "event_type": "score",
                "productid": "app1",
            }
        )
    page = call("GET", "/notifications?user=u1&limit=3")
    assert len(page["items"]) == 3 and page["LastEvaluatedKey"], page
    newest = page["items"][0]
    assert newest["notification_identifier"] == f"all#{times[-1]}" and newest["status"] == "unread", newest
    marked = call("POST", "/notifications", [{"user": "u1", "notification_identifier": newest["notification_identifier"]}])
    assert marked["updated"] == 1 and marked["not_found"] == [], marked
    unread = rows.query(
        IndexName="xxnc_2022",
        Limit=20,
        ScanIndexForward=False,
        ConsistentRead=True,
        KeyConditionExpression=Key("cod_chav_patc").eq("u1") & Key("status_ordenar").begins_with("unread"),
    )["Items"]
    assert [row["cod_ordenar_chav"] for row in unread] == [f"all#{at}" for at in reversed(times[:-1])], unread
    item = unread[0]
    read = dict(item, status_ordenar=f"read#{time.time_ns()}", tipo_ordenar=item["tipo_ordenar"].replace("unread", "read"))
    client = resource.meta.client
    # DynamoDB takes no item twice in one transaction, so the seed's delete and insert are one put in place of what was.
    client.transact_write_items(TransactItems=[{"Put": {"TableName": rows.name, "Item": read}}])
    seen = call("GET", "/notifications?user=u1&status=read")["items"]
    assert {row["notification_identifier"] for row in seen} == {f"all#{times[-1]}", f"all#{times[-2]}"}, seen


def alerts():
    """Seed 000: insert, a range of time by the index, and one correlation id by the sort key."""
    rows = table("ProcessChangeAlerts")
    now = int(time.time())
    month = datetime.fromtimestamp(now, timezone.utc).strftime("%Y-%m")
    rows.put_item(
        Item={
            "PartitionKey": month,
            "SortKey": f"corr-theirs-{now}",
            "EventTimestamp": now,
            "ActorId": "aad|12345-67890",
            "ActorDisplayName": "John Doe",
            "ActorIP": "192.168.1.1",
            "Action": "Process.Field.Add",
            "Area": "Process",
            "Category": "Create",
            "Details": 'Field "CustomField" created',
            "CorrelationId": "corr-theirs",
            "AlertSent": True,
            "TTL": now + 90 * 86400,
            "RawEventJson": "{}",
        }
    )
    seen = call("GET", "/alerts?correlationId=corr-theirs")["items"]
    assert len(seen) == 1 and seen[0]["ActorDisplayName"] == "John Doe", seen
    event = {
        "id": "2512341;00000000-0000-0000-0000-00000000aaaa",
        "correlationId": "corr-ours",
        "actorUserId": "11111111-0000-0000-0000-000000000000",
        "actorDisplayName": "Jane Roe",
        "actorUPN": "jane@example.com",
        "ipAddress": "10.0.0.1",
        "timestamp": iso(),
        "actionId": "Process.Field.Add",
        "data": {"ProcessName": "Agile"},
        "details": "a field",
        "area": "Process",
        "category": "modify",
    }
    call("POST", "/ingest/azure-devops", event)
    found = rows.query(
        KeyConditionExpression=Key("PartitionKey").eq(month) & Key("SortKey").begins_with("corr-ours")
    )["Items"]
    assert len(found) == 1 and found[0]["Action"] == "Process.Field.Add", found
    found = rows.query(
        IndexName="EventTimestamp-index",
        KeyConditionExpression=Key("PartitionKey").eq(month) & Key("EventTimestamp").between(now - 60, now + 600),
    )["Items"]
    assert {row["CorrelationId"] for row in found} == {"corr-theirs", "corr-ours"}, found


for pattern in (tickets, messages, notifications, alerts):
    pattern()
    print(f"{pattern.__name__}: ok")
