"""Parts of other packages, by entry points of a distribution as pip installs one."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from autotune import extensions
from autotune.codegen.backend import backend_for
from autotune.errors import CostModelError, TargetError, UsageError
from autotune.graph.region import Workload
from autotune.passes import options
from autotune.target import Target
from autotune.tuning.api import cost_model_registry
from autotune.tuning.search.online_model import OnlineModel
from autotune.tuning.search.prior import prior_for
from autotune.tuning.search.samplers import factory
from cost_models.features import names
from search_spaces import spaces
from search_spaces.families import elementwise, softmax

Install = Callable[..., None]
TARGET = Target.parse("x86-64-v3", 2)
SOFTMAX = Workload.parse("""region rows {
  input i0: float32[8, 32]
  v0 = Softmax(i0) : float32[8, 32]
  output v0
}""")
CACHED = (extensions.installed, extensions.extension, backend_for, spaces._space, options.options_of)


def forget() -> None:
    for function in CACHED:
        getattr(function, "cache_clear", lambda: None)()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a distribution: entry points as in its metadata, and a module ``NAME_parts``."""
    monkeypatch.syspath_prepend(tmp_path)

    def installed(entries: str, code: str, name: str = "mine") -> None:
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(entries)
        (tmp_path / f"{name}_parts.py").write_text(code)
        importlib.invalidate_caches()
        forget()

    yield installed
    forget()
    for name in [name for name in sys.modules if name.endswith("_parts")]:
        del sys.modules[name]


def test_a_sampler_has_a_name(install: Install) -> None:
    install(
        "[autotune.samplers]\nlarge-first = mine_parts:LargeFirst\n",
        "import optuna\nclass LargeFirst(optuna.samplers.RandomSampler): pass\n",
    )
    made = factory("large-first", OnlineModel(None), 8)(spaces.space_for(SOFTMAX, TARGET), 3)
    assert type(made).__name__ == "LargeFirst"
    with pytest.raises(UsageError, match="large-first"):
        factory("large-frist", OnlineModel(None), 8)


MODEL = """
class Widest:
    def predict(self, features):
        return features[:, 0] * 0.0 + features.shape[1]
class Short:
    def predict(self, features):
        return [1.0]
nothing = object()
"""


def test_a_cost_model_has_a_name(install: Install) -> None:
    entries = ("widest = mine_parts:Widest", "short = mine_parts:Short", "nothing = mine_parts:nothing")
    install("\n".join(["[autotune.cost_models]", *entries, "broken = mine_parts:absent"]), MODEL)
    registry = cost_model_registry()
    space = spaces.space_for(SOFTMAX, TARGET)
    model = OnlineModel(prior_for("widest", TARGET, registry))
    population = space.of([space.default()])
    rows = model.features(space, population)
    assert model.score(space, population, rows).tolist() == [rows.shape[1]]
    short = prior_for("short", TARGET, registry)
    assert short is not None
    with pytest.raises(CostModelError, match=r"short gave scores of shape \(1,\) for 2 candidates"):
        short.predict(np.zeros((2, 3), np.float32))
    for name, said in {
        "nothing": "the cost model nothing has no method predict",
        "broken": "'broken' of mine is mine_parts:absent, which cannot be imported: AttributeError",
        "widset": "no cost model 'widset'; there are: .*did you mean 'widest'",
    }.items():
        with pytest.raises(UsageError, match=said):
            prior_for(name, TARGET, registry)


def test_cost_models_without_a_package() -> None:
    registry = cost_model_registry()
    assert prior_for("analytic", TARGET, registry) is None
    served = Target.parse(registry.defaults.levels()[0], 2)
    for name in ("builtin", "current"):
        found = prior_for(name, served, registry)
        assert found is not None, name
        assert found.predict(np.zeros((3, len(names())), np.float32)).shape == (3,)
    with pytest.raises(UsageError, match="has no method predict"):
        prior_for(3, TARGET, registry)  # type: ignore[arg-type]


def test_a_rule_is_an_option_of_every_workload(install: Install) -> None:
    install(
        "[autotune.rules]\nnames = mine_parts:rule\n",
        "from autotune.passes.algorithms.row_sums import RowSums\nclass Mine(RowSums): name = 'mine'\nrule = Mine()\n",
    )
    assert [rule.name for rule in options.rules()].count("mine") == 1


def test_a_search_space_serves_a_kind(install: Install) -> None:
    install(
        "[autotune.search_spaces]\nsoftmax = mine_parts:space\n",
        "from search_spaces.families import elementwise\n"
        "def space(workload, target): return elementwise.space(workload, target, 'softmax')\n",
    )
    found = spaces.space_for(SOFTMAX, TARGET)
    assert (
        found.key == elementwise.space(SOFTMAX, TARGET, "softmax").key != softmax.space(SOFTMAX, TARGET).key
    )


def test_what_is_no_search_space_is_refused(install: Install) -> None:
    install(
        "[autotune.search_spaces]\nsoftmax = mine_parts:space\n", "def space(workload, target): return 3\n"
    )
    with pytest.raises(UsageError, match="for softmax is a int, and no Space"):
        spaces.space_for(SOFTMAX, TARGET)


def test_a_backend_serves_an_architecture(install: Install) -> None:
    install("[autotune.backends]\nriscv64 = mine_parts:Backend\n", "class Backend: pass\n")
    assert type(backend_for("riscv64")).__name__ == "Backend"
    with pytest.raises(TargetError, match=r"no code generator for m68k; known: x86_64, .*riscv64"):
        backend_for("m68k")


def test_a_name_of_two_packages_is_an_error(install: Install) -> None:
    install("[autotune.samplers]\nmine = mine_parts:make\n", "")
    install("[autotune.samplers]\nmine = other_parts:make\n", "", "other")
    with pytest.raises(UsageError, match=r"'mine' is a name of both .* and "):
        extensions.installed("autotune.samplers")
