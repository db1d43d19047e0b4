"""What tests of the REST interface share: requests whose answers are checked."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import numpy as np
from fastapi.testclient import TestClient

TOY = "/v1/models/toy"
RAW = {"content-type": "application/octet-stream"}
NPY = {"content-type": "application/x-npy"}


def ok(response: Any) -> Any:
    """Return the content of an answer that must be a success."""
    assert response.status_code == 200, response.text
    return response.json()


def refused(response: Any, status: int, sentence: str = "") -> str:
    """Return the sentence of an answer that must be a problem with this status."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["status"] == status
    assert problem["request_id"] == response.headers["x-request-id"]
    assert sentence in problem["detail"]
    return problem["detail"]


def column(records: Iterable[dict[str, Any]], field: str) -> list[Any]:
    """Return one field of every record."""
    return [record[field] for record in records]


def npy(array: np.ndarray, **options: Any) -> bytes:
    """Return an array as the bytes of a .npy file."""
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def verdict(item: str, label: str, answer: bool = True) -> dict[str, Any]:
    return {"item": item, "label": label, "answer": answer}


class ModelClient:
    """Requests to one model that must succeed, by the part of the path behind its name."""

    def __init__(self, client: TestClient, root: str = TOY) -> None:
        self.client = client
        self.root = root

    def get(self, path: str = "") -> Any:
        return ok(self.client.get(self.root + path))

    def post(self, path: str, body: Any = None, **options: Any) -> Any:
        return ok(self.client.post(self.root + path, json=body, **options))

    def delete(self, path: str) -> Any:
        return ok(self.client.delete(self.root + path))

    def learn(self, *verdicts: dict[str, Any], **fields: Any) -> Any:
        return self.post("/learn", {"verdicts": verdicts} | fields)

    def undo(self, *numbers: int) -> Any:
        return self.post("/undo", {"numbers": numbers})

    def rename(self, label: str, name: str) -> Any:
        return self.post(f"/labels/{label}/rename", {"name": name})

    def verdicts(self, query: str = "") -> Any:
        return self.get(f"/verdicts{query}")["verdicts"]
