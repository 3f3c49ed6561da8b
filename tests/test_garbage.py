import gc

import pytest

from autotune.errors import UsageError
from autotune.garbage import collector_paused
from autotune.tuning import api


def test_the_collector_is_off_inside_and_on_afterwards() -> None:
    with collector_paused():
        assert not gc.isenabled()
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_turns_it_on_again() -> None:
    @collector_paused()
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert gc.isenabled()


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    try:
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_it_is_off_while_a_query_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def opened(*_: object, **__: object) -> None:
        seen.append(gc.isenabled())
        raise UsageError("no database")

    monkeypatch.setattr(api, "opened", opened)
    with pytest.raises(UsageError, match="no database"):
        api.query("0123456789")
    assert seen == [False]
    assert gc.isenabled()
