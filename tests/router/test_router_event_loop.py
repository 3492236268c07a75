"""What a process that is a router runs on."""

import gc

import uvloop

from kthena.router.event_loop import new_event_loop, settle_memory


def test_the_loop_is_the_fast_one_where_it_is_installed() -> None:
    loop = new_event_loop()
    try:
        assert isinstance(loop, uvloop.Loop)
    finally:
        loop.close()


def test_the_collector_leaves_alone_what_was_there_at_the_start() -> None:
    before = gc.get_threshold()
    try:
        settle_memory()
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold()[0] > before[0]
        assert gc.isenabled()
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
