import sys
import threading
import time

import pytest

from autotune.errors import BuildError, MeasureError
from autotune.workers import process
from autotune.workers.process import Died, WorkerProcess

SILENT = (sys.executable, "-c", "import time\nprint('{}', flush=True)\ntime.sleep(600)")


def test_a_worker_that_cannot_start_is_our_failure_not_the_candidates() -> None:
    worker = WorkerProcess([sys.executable, "-c", "import nothing_like_it"])
    with pytest.raises(MeasureError, match=r"cannot start the measuring worker.*nothing_like_it"):
        worker.call({"do": "build"}, 1.0, "building")
    closed = WorkerProcess(SILENT, name="builder", error=BuildError)
    closed.close()
    with pytest.raises(BuildError, match="the builder is closed"):
        closed.call({"do": "build"}, 1.0, "building")


ECHO = "import sys\nprint('{}', flush=True)\nfor line in sys.stdin: print(line, end='', flush=True)"


def test_the_systems_count_of_kills_is_read_once_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    monkeypatch.setattr(process, "killed_for_memory", lambda: reads.append(1) or 0)
    worker = process.WorkerProcess([sys.executable, "-c", ECHO])
    for number in range(3):
        assert worker.call({"n": number}, 60.0, "echoing") == {"n": number}
    worker.close()
    assert len(reads) == 1


@pytest.mark.parametrize("wait", [0.0, 0.05, 0.5])
def test_closing_ends_a_call_that_another_thread_waits_for(wait: float) -> None:
    worker = WorkerProcess(SILENT)
    ends: list[type[BaseException]] = []

    def call() -> None:
        try:
            worker.call({}, 300.0, "waiting")
        except (Died, MeasureError) as error:
            ends.append(type(error))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    time.sleep(wait)
    worker.close()
    thread.join(30)
    assert len(ends) == 1
