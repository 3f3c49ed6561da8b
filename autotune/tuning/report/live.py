"""Displays that are redrawn in place: on a terminal, and in a notebook."""

from __future__ import annotations

import io
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console
from rich.live import Live as RichLive

from autotune.database.records import Run
from autotune.foreign import printable
from autotune.tuning.jobs.task import Task
from autotune.tuning.report.result import Report, lines_of
from autotune.tuning.report.screen import Screen
from autotune.tuning.report.status import Progress, Status, headline
from autotune.tuning.report.width import wrapped

if TYPE_CHECKING:
    from rich.console import ConsoleDimensions

_EVERY_S = 0.25


class Live(Progress):
    """The screen of a job on a terminal; it follows the terminal's size, and its clock goes on by itself."""

    def __init__(self, out: TextIO) -> None:
        self._console = Console(file=out)
        self._size = self._console.size
        self._screen: Screen | None = None
        self._live: RichLive | None = None
        self._lock = threading.RLock()
        self._done = threading.Event()

    def preparing(self, note: str) -> None:
        """Say what takes time before the search."""
        self._say([note])

    def started(self, status: Status) -> None:
        """Draw the first screen."""
        self._say(headline(status))
        self._screen = Screen.of(status)
        self._live = self._begin()
        threading.Thread(target=self._tick, name="autotune-display", daemon=True).start()

    def measured(self, status: Status, task: Task, run: Run) -> None:
        """Redraw soon; what nobody would see is not worked out."""
        if self._screen is None or time.monotonic() - self._screen.seen >= _EVERY_S:
            self._screen = Screen.of(status, task)

    def phase(self, status: Status) -> None:
        """Redraw now."""
        self._screen = Screen.of(status)
        self._draw(self._console.size)

    def chosen(self, status: Status) -> None:
        """Redraw soon."""
        self._screen = Screen.of(status)

    def finished(self, report: Report) -> None:
        """Remove the screen and print the report."""
        self.close()
        self._say(lines_of(report, self._console.width))

    def close(self) -> None:
        """Stop drawing."""
        self._done.set()
        with self._lock:
            if self._live is not None:
                self._live.stop()
                self._live = None

    def _say(self, lines: list[str]) -> None:
        for line in wrapped(map(printable, lines), self._console.width):
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _begin(self) -> RichLive:
        live = RichLive(self._screen, console=self._console, auto_refresh=False, transient=True)
        live.start(refresh=True)
        return live

    def _tick(self) -> None:
        while not self._done.wait(_EVERY_S):
            self._draw(self._console.size)

    def _draw(self, size: ConsoleDimensions) -> None:
        with self._lock:
            if self._live is None or self._screen is None:
                return
            if size != self._size:  # what is on the terminal was broken into other lines: begin anew
                self._size = size
                self._live.stop()
                self._console.clear()
                self._live = self._begin()
            self._live.update(self._screen, refresh=True)


class Notebook(Progress):
    """The screen of a job in the output of a notebook's cell."""

    WIDTH, HEIGHT = 100, 30

    def __init__(self) -> None:
        from IPython.display import display

        self._handle: Any = display(self._html(""), display_id=True)
        self._drawn = 0.0

    def preparing(self, note: str) -> None:
        """Say what takes time before the search."""
        self._update(note)

    def started(self, status: Status) -> None:
        """Draw the first screen."""
        self._update(Screen.of(status))

    def measured(self, status: Status, task: Task, run: Run) -> None:
        """Redraw, but not too often: every picture goes through the browser."""
        if time.monotonic() - self._drawn >= 2 * _EVERY_S:
            self._update(Screen.of(status, task))

    def phase(self, status: Status) -> None:
        """Redraw now."""
        self._update(Screen.of(status))

    def chosen(self, status: Status) -> None:
        """Redraw: what comes next is another."""
        self._update(Screen.of(status))

    def finished(self, report: Report) -> None:
        """Put the report in the screen's place."""
        self._update(str(report))

    def _update(self, shown: Screen | str) -> None:
        self._drawn = time.monotonic()
        self._handle.update(self._html(shown))

    def _html(self, shown: Screen | str) -> Any:
        """Return Rich's picture of it as HTML."""
        from IPython.display import HTML

        console = Console(
            file=io.StringIO(), record=True, width=self.WIDTH, height=self.HEIGHT, force_jupyter=False
        )
        console.print(shown, highlight=False, markup=False, soft_wrap=isinstance(shown, str))
        frame = '<pre style="line-height:1.2">{code}</pre>'
        return HTML(console.export_html(inline_styles=True, code_format=frame))


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return any(kind.__name__ == "ZMQInteractiveShell" for kind in type(shell).__mro__)


__all__ = ["Live", "Notebook", "in_notebook"]
