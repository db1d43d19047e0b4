"""The whole API, called with whatever its own description allows: every answer is described."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")

from schemathesis.checks import not_a_server_error  # noqa: E402  # after the skip
from schemathesis.specs.openapi.checks import (  # noqa: E402
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

HERE = {"host": "localhost"}  # the name that only this machine goes by
CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)


@pytest.mark.slow
def test_every_operation_answers_as_it_is_described(host, serving):
    app = serving(host).app
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers=HERE)
    statuses: Counter[int] = Counter()
    operations = [result.ok() for result in schema.get_all_operations()]
    labels = sorted(host.now.kinds)
    for operation in operations:

        @settings(
            max_examples=6,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def call(case):
            parameters = case.path_parameters
            if "model" in parameters:
                parameters["model"] = "toy"
            length = len(str(parameters.get("label", "")))
            if length % 2:  # every second label is one that the model has
                parameters["label"] = labels[length % len(labels)]
            response = case.call(base_url="http://localhost")
            statuses[response.status_code] += 1
            case.validate_response(response, checks=CHECKS)

        call()
    assert len(operations) > 35
    assert statuses[200] > 50
    assert set(statuses) <= {200, 201, 204, 304, 400, 404, 409, 413, 415, 422}
