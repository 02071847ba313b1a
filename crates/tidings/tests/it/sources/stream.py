"""Changes items of a table with a stream, as the seed's other programs do.

Arguments: the DynamoDB endpoint, the table, and what to do: `create`, or pairs of a product and its new score.
"""

import sys

try:
    import boto3
except ImportError:
    sys.exit("boto3 is missing: run ./test, or name a Python that has it in TIDINGS_TEST_PYTHON")

endpoint, name, *steps = sys.argv[1:]
resource = boto3.resource(
    "dynamodb", endpoint_url=endpoint, region_name="eu-west-1", aws_access_key_id="local", aws_secret_access_key="local"
)
table = resource.Table(name)


def key(product):
    return {"cod_chav_patc": f"score#{product}", "cod_chav_filg": "DEV#ALL#LATEST"}


if steps == ["create"]:
    resource.create_table(
        TableName=name,
        KeySchema=[
            {"AttributeName": "cod_chav_patc", "KeyType": "HASH"},
            {"AttributeName": "cod_chav_filg", "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": "cod_chav_patc", "AttributeType": "S"},
            {"AttributeName": "cod_chav_filg", "AttributeType": "S"},
        ],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )
    table.wait_until_exists()
    for product in ("checkout", "search"):
        table.put_item(Item=dict(key(product), entity="score", score=24, rounds=0))
else:
    for product, score in zip(steps[::2], steps[1::2]):
        # Something else changes every time, so that there is a record even where the score stays.
        table.update_item(
            Key=key(product),
            UpdateExpression="SET score = :score, rounds = rounds + :one",
            ExpressionAttributeValues={":score": int(score), ":one": 1},
        )
print("done")
