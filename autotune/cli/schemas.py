"""Shapes of the JSON documents that commands print, and the JSON Schema that says the same.

A shape is the name of a type, ``?`` behind it where it may be null; ``=text`` for a constant; a list of the shape of
its elements; an object by the shapes of its members, ``?`` behind the name of one that may be absent, ``*`` for any
names; or a tuple of alternatives. ``#name`` stands for another shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TYPES = {"text": "string", **{name: name for name in ("number", "integer", "boolean", "object")}}


def _of(text: str, **others: Any) -> dict[str, Any]:
    """Return the members that a text declares, and others.

    >>> _of("a b: text; c: [number]", d=None)
    {'a': 'text', 'b': 'text', 'c': ['number'], 'd': None}
    """
    found: dict[str, Any] = {}
    for part in text.split("; "):
        names, _, shape = part.rpartition(": ")
        found |= dict.fromkeys(names.split(), [shape[1:-1]] if shape.startswith("[") else shape)
    return found | others


_EVIDENCE = _of("state: text; trials crashed: integer; gain: #gain?; saving: #saving?")
_MEMORY = _of("arena_bytes scratch_bytes peak_bytes constant_bytes: integer")
_COUNTS, _TEXTS = {"*": "integer"}, {"*": "text"}
_TRANSFER = _of(
    "expected_ns expected_ratio: number; expected_interval_ns: [number]; expected_ratio_interval: #interval; "
    "workload: text; target: object; differences: [object]; run: integer?; runs: integer",
    evidence=_EVIDENCE,
)
_CHOSEN = _of(
    "database: text?; coverage: text; dispatches: [#dispatch]; decisions: [#decision]; proofs: #proofs"
)
_COMPILATION = _CHOSEN | _of(
    "rankings: [#ranking]; growth: number; error: number?", memory=_MEMORY | _of("code_bytes: integer")
)
_PLACED = _CHOSEN | _of("devices: [text]; steps: [object]; transferred_bytes: integer; affinity: object")
_PASSES = [_of("name: text; seconds: number; nodes_before nodes_after: integer")]
_PREDICTION = _of(
    "model: text; threads: integer; latency_ns: number; interval_ns: [number]",
    memory=_MEMORY,
    dispatches=[
        _of(
            "name kind source: text; latency_ns share: number; interval_ns: [number]; nodes: [text]; "
            "cold_bytes: integer"
        )
    ],
)
_FACTS = _of(
    "name kind source evidence schedule trace: text; bound: text?; latency_ns share: number; "
    "least_ns of_roof: number?; interval_ns: [number]; nodes operators reads writes after types: [text]"
)
_DISTURBANCE = _of("spread load stolen: number?")
_STATUS = _of(
    "phase note budget: text; next: text?; waiting: boolean; trials near_trials: integer; "
    "elapsed_s trials_per_second: number; eta_s: number?; then: [text]; forecast: #forecast?",
    noise={"start": _DISTURBANCE, "now": _DISTURBANCE},
    outcomes=_COUNTS,
    models=[_of("model: text; default_ns best_ns: number?; confirmed: #gain?")],
    nodes=[
        _of(
            "name state reason target version: text; measurements set_aside: integer; noise: number?; stolen_s: number"
        )
    ],
)
_REPORT = _of(
    "models: [#model]; target database job left enough: text; stopped: boolean; "
    "trials session_trials near_trials: integer; seconds trials_per_second: number",
    outcomes=_COUNTS,
    actions=_COUNTS,
    failures=_TEXTS,
    left_out=_TEXTS,
    crashes={"*": ["text"]},
)
_JOB = _of(
    "id model target state host: text; why: text?; trials: integer; pid: integer?; seconds created heard: number; "
    "gain: #gain?"
)
_ACTION = _of("action what text: text; gain: number?; error seconds: number")
_EVENTS = {
    "preparing": _of("note: text"),
    "started": _of(
        "job database target: text; models: [text]; continued: boolean; recalled: integer; forecast: #forecast?",
        tasks=[_of("name workload: text; weight: number")],
    ),
    "next": _ACTION | _of("elapsed_s: number", then=[_ACTION]),
    "forecast": _of("forecast: #forecast?"),
    "measured": _of("task workload trace origin outcome message: text; latency_ns: number?", **_STATUS),
    "phase": _STATUS,
    "finished": _REPORT,
    "bucket": _of("text: text"),
    "placement": {"*": "any"},
    "point": _of("text: text"),
    "proofs": _of("proofs: #proofs"),
}
_RUN = _of(
    "trace_key outcome message origin host job inside code crashed: text; error confirmed_ns: number?; seed: integer; "
    "id: integer?; created: number; config: object; trace versions: any",
    key=_of("workload target space: text"),
    latency=("#latency", None),
    footprint=(_of("memory_bytes artifact_bytes scratch_bytes: integer"), None),
)
_TENSOR = _of("name dtype: text", shape=[("integer", "text")])
_IMAGE = _of(
    "target machine schedules: text; threads dispatches code_bytes constant_bytes shared_bytes arena_bytes: integer; "
    "features: [text]; growth: number; why_not_here: text?; accuracy: object?",
    sizes=_COUNTS,
    states=[_of("name workload_key state: text")],
)
_ARTIFACT = _of(
    "artifact name format: text; bytes version: integer; taken_here: text?; devices?: [text]",
    **{"inputs": [_TENSOR], "outputs": [_TENSOR], "images": [_IMAGE], "sizes?": [_COUNTS], "least?": _COUNTS},
)
_PROFILE = _of(
    "model: text; runs: integer; latency_ns: number",
    devices=[
        _of("name: text; threads: integer?; time_ns rest_ns: number")
        | {"roofs": (_of("threads: integer; calibrated: boolean; *: number?"), None)}
    ],
    dispatches=[
        _of(
            "name kind device: text; nodes: [text]; time_ns share gflops gbytes: number; flops nbytes: integer; "
            "least_ns busy tiles stolen of_roof idle: number?; bound: text?"
        )
    ],
    workers=[_of("device: text; worker: integer; share: number?; busy tiles stolen idle: number")],
)
_EXPERIMENT = _of("title command: text; notes: [text]; data: any", facts=_TEXTS)
_WRITTEN = _of("artifact: text; bytes: integer; seconds: number")
_POINT = _of(
    "precisions: object; budget: text; random_inputs front: boolean; latency_ns: number?; over_float32: #gain?",
    error=_of(
        "error limit: number; interval: #interval; within: number?; sets: integer; bound: number?; holds: boolean",
    ),
)
_ANSWER = _of(
    "workload kind tier: text; code: text?; dispatches nodes: [text]; ranking: #ranking?; used hit: boolean; "
    "latency_ns default_ns floor_ns: number?; interval_ns: #interval; python? reason? message?: text; "
    "runs? ok?: integer; front?: [object]",
    **_EVIDENCE,
    transfer=(_TRANSFER, None),
) | {
    "near?": [
        _of("workload: text; target: object; runs: integer; compatible: boolean; differences: [object]")
    ],
    "best?": _RUN,
    "top?": [_RUN],
}
_GAIN = _of("speedup: number?; ratio: number; interval: #interval; text: text")

_SHARED: Mapping[str, Any] = {
    "interval": (["number"], None),
    "latency": _of("n: integer; min_ns median_ns spread_ns: number"),
    "proofs": (["object"], None),
    "gain": _GAIN,
    "forecast": _of(
        "dispatches near: integer; so_far expected remaining seconds most_s: number; interval: [number]; "
        "measured: boolean; text: text"
    ),
    "saving": _of(
        "objective: text; bytes bytes_of_fastest: integer; slowdown: number; interval: #interval; confirmed: boolean"
    ),
    "dispatch": _of(
        "name kind workload_key reason tier: text; flops: integer; latency_ns: number?; nodes: [text]",
        **_EVIDENCE,
    ),
    "decision": _of(
        "kind chosen: text", options=[_of("name message: text; latency_ns: number?; gain: #gain?")]
    ),
    "ranking": _of(
        "workload chosen: text; saving: #saving?",
        options=[_of("name source: text; latency_ns: number?; gain: #gain?; declared_error growth: number")],
    ),
    "timed": _GAIN | _of("before after: #latency; processes: integer; error: number?; load: number"),
    "model": _of(
        "model untimed: text; speedup: number?; decisions: [text]",
        gain="#timed?",
        options=[_of("name option gain: text; count: integer; workloads: [text]; ratio: number?")],
        dispatches=[
            _of(
                "name kind workload origin schedule host: text; count runs: integer; nodes names: [text]; "
                "before_ns after_ns floor_ns: number?; alone: boolean",
                **_EVIDENCE,
            )
        ],
    ),
}
"""Shapes that several documents have."""

DOCUMENTS: Mapping[str, Any] = {
    "tune": tuple({"event": f"={name}", **shape} for name, shape in _EVENTS.items()),
    "compile": (
        _WRITTEN | _COMPILATION | {"accuracy?": "object?"},
        _WRITTEN | _PLACED,
        *(_WRITTEN | {kind: {"*": (_COMPILATION, _PLACED)}} for kind in ("targets", "sizes", "cases")),
    ),
    "query": ([_ANSWER], {"answers": [_ANSWER], "precisions": [_POINT]}),
    "explain": (
        _COMPILATION
        | _of("arena_bytes: integer", passes=_PASSES, beside={"*": ["text"]}, prediction=_PREDICTION)
        | {"facts": [_FACTS]}
        | {"in_place": [_of("operator: text; outputs copied: [text]; bytes_not_moved: integer")]},
        _PLACED | _of("makespan: object", passes=_PASSES),
    ),
    "explain-artifact": _ARTIFACT,
    "explain-predict": _PREDICTION,
    "run": {
        **_of("model: text; threads: integer"),
        "outputs": {"*": _of("shape: [integer]; dtype: text; min max: number?")},
        "latency?": _of("min_ns median_ns: number; repeat: integer"),
        "profile?": _PROFILE,
    },
    "jobs": _of("database: text", jobs=[_JOB]),
    "status": _of("database: text; said: object", **_JOB),
    "report": _of("missing: text?", report=(_REPORT, None), **_JOB)
    | {"measured?": [_of("model: text; then now: #timed?; later_jobs: integer")]},
    "db-stats": _of(
        "database: text; runs: integer; targets: [text]",
        outcomes=_COUNTS,
        jobs=[_of("id model target state: text; runs: integer; seconds created: number")],
        by={"*": [_of("name: text; workloads runs confirmed_faster: integer; gain: number?")]},
        workloads=[
            _of(
                "key kind: text; operators shapes: any; models layers: [text]; flops bytes runs: integer; "
                "default_ns best_ns gflops: number?; target gain: text?"
            )
        ],
    ),
    "replay": _EXPERIMENT,
    "bench": _EXPERIMENT,
}
"""The document of each command; of `tune` that of each line."""


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a document, which knows every member.

    >>> schema("jobs")["properties"]["database"]
    {'type': 'string'}
    """
    named = {each: _schema(shape) for each, shape in _SHARED.items()}
    made = _schema(DOCUMENTS[name])
    title = f"autotune {name.replace('-', ' ')} --json"
    return {"$schema": _DIALECT, "title": title, **made, "$defs": named}


def _schema(shape: Any) -> dict[str, Any]:
    if shape is None:
        return {"type": "null"}
    if isinstance(shape, str):
        return _of_name(shape)
    if isinstance(shape, list):
        return {"type": "array", "items": _schema(shape[0])}
    if isinstance(shape, tuple):
        return {"anyOf": [_schema(each) for each in shape]}
    return _of_object(shape)


def _of_name(name: str) -> dict[str, Any]:
    plain = name.removesuffix("?")
    if plain != name:
        return {"anyOf": [_of_name(plain), {"type": "null"}]}
    if name.startswith("="):
        return {"const": name[1:]}
    if name.startswith("#"):
        return {"$ref": f"#/$defs/{name[1:]}"}
    return {"type": _TYPES[name]} if name in _TYPES else {}


def _of_object(members: Mapping[str, Any]) -> dict[str, Any]:
    own = {name: shape for name, shape in members.items() if name != "*"}
    return {
        "type": "object",
        "properties": {name.removesuffix("?"): _schema(shape) for name, shape in own.items()},
        "required": [name for name in own if not name.endswith("?")],
        "additionalProperties": _schema(members["*"]) if "*" in members else False,
    }


__all__ = ["DOCUMENTS", "schema"]
