"""The node under test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.local_api import SERVERS, open_api
from support.node import alive
from support.node_world import World


@pytest.fixture(params=SERVERS)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    async with open_api(request.param, request, tmp_path) as api:
        made = World(api, tmp_path)
        try:
            await made.start()
            yield made
        finally:
            await made.stop()
            assert not alive(f"{made.data}:"), "processes of pods are left"
