"""PhotoPrism's interface to a vision service."""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter()
