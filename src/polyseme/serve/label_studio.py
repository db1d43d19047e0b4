"""Label Studio's interface to a machine learning backend."""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter()
