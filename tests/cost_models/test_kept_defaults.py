"""Defaults are chosen once on a machine, and anew where anything that they follow from is another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import UsageError
from cost_models import analytic, kept_defaults
from cost_models.kept_defaults import ANEW
from cost_models.machine import Machine
from search_spaces.space import Space
from search_spaces.spaces import space_for
from tests.search_spaces.workloads import AVX512, host, matmul, unary


@pytest.fixture
def searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The keys of the workloads that a default is searched for, with a folder in which none is kept yet."""
    monkeypatch.setenv("AUTOTUNE_HOME", str(tmp_path))
    monkeypatch.delenv("AUTOTUNE_DEFAULTS")
    found, best = list[str](), analytic._best

    def noted(space: Space) -> Any:
        found.append(space.workload.key)
        return best(space)

    monkeypatch.setattr(analytic, "_best", noted)
    analytic.forget()
    yield found
    analytic.forget()


def again(space: Space) -> tuple[Any, float]:
    """The default as another process would find it."""
    analytic.forget()
    return analytic.default_config(space), analytic.default_seconds(space)


def file(folder: Path) -> Path:
    (path,) = (folder / "cache" / "defaults").iterdir()
    return path


def test_what_was_chosen_once_is_not_searched_for_again(searched: list[str]) -> None:
    spaces = [space_for(matmul(8, 8, size), host()) for size in (8, 16)]
    chosen = [again(space) for space in spaces]
    assert len(searched) == 2
    assert [again(space) for space in spaces] == chosen
    assert len(searched) == 2
    assert all(
        type(a) is type(b) for a, b in zip(chosen[0][0].values(), again(spaces[0])[0].values(), strict=True)
    )


def test_another_target_machine_or_code_has_its_own(
    searched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    space = space_for(unary("Relu", (64,)), AVX512)
    again(space)
    again(space_for(unary("Relu", (64,)), AVX512.with_threads(AVX512.threads + 1)))
    assert len(searched) == 2
    of = Machine.of
    monkeypatch.setattr(Machine, "of", lambda target: replace(of(target), hertz=1e9))
    again(space)
    assert len(searched) == 3
    monkeypatch.setattr(kept_defaults, "_code", lambda: "another version")
    kept_defaults._name.cache_clear()
    again(space)
    kept_defaults._name.cache_clear()
    assert len(searched) == 4


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{}",
        "[1.0]",
        "[-1.0,{config}]",
        "[NaN,{config}]",
        '["fast",{config}]',
        "[1.0,[1]]",
        '[1.0,{"rows":7}]',
        "[1.0,{config}",
        "[1.0,null]",
    ],
)
def test_a_line_that_is_not_sound_is_as_none(searched: list[str], tmp_path: Path, line: str) -> None:
    space = space_for(matmul(8, 8, 8), host())
    chosen = again(space)
    identity, _, rest = file(tmp_path).read_text().strip().partition(" [")
    config = rest.partition(",")[2].removesuffix("]")
    file(tmp_path).write_text(f"\xff\n{identity} {line.replace('{config}', config)}")
    assert again(space) == chosen
    assert len(searched) == 2
    assert again(space) == chosen  # kept again, although the line before has no end
    assert len(searched) == 2


def test_where_nothing_can_be_written_it_is_chosen_all_the_same(
    searched: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("AUTOTUNE_HOME", str(tmp_path / "file"))
    space = space_for(matmul(8, 8, 8), host())
    assert again(space) == again(space)
    assert len(searched) == 2


def test_none_is_kept_where_all_are_to_be_chosen_anew(
    searched: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_DEFAULTS", ANEW)
    space = space_for(matmul(8, 8, 8), host())
    assert again(space) == again(space)
    assert len(searched) == 2
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv("AUTOTUNE_DEFAULTS", "never")
    with pytest.raises(UsageError) as error:
        again(space)
    assert str(error.value) == (
        "AUTOTUNE_DEFAULTS=never: allowed are 'anew', a folder's absolute path, and nothing for the cache's folder"
    )


def test_homes_may_share_a_folder(
    searched: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_DEFAULTS", str(tmp_path / "shared"))
    space = space_for(matmul(8, 8, 8), host())
    for home in ("one", "another"):
        monkeypatch.setenv("AUTOTUNE_HOME", str(tmp_path / home))
        again(space)
    assert len(searched) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["shared"]


def test_files_do_not_grow_for_ever(
    searched: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_defaults, "MOST_FILES", 2)
    monkeypatch.setattr(kept_defaults, "MOST_BYTES", 1)
    workload = unary("Relu", (64,))
    for threads in (1, 2, 3):
        again(space_for(workload, AVX512.with_threads(threads)))
    assert len(list((tmp_path / "cache" / "defaults").iterdir())) == 2
    last = AVX512.with_threads(3)
    again(space_for(unary("Relu", (65,)), last))
    again(space_for(workload, last))
    assert len(searched) == 5  # the second began the file anew
