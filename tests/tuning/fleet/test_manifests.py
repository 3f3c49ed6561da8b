"""The files with which a fleet is started: what Compose and KubeRay read there."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import yaml

from autotune.tuning.fleet.ray_cluster import RESOURCE

FOLDER = Path(__file__).parents[3] / "packaging" / "fleet"


def read(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


def test_compose_starts_a_database_a_head_two_seats_and_the_page() -> None:
    services = read("compose.yaml")["services"]
    assert {*services} == {"database", "head", "seat-0", "seat-1", "page"}
    cores = [services[name]["cpuset"] for name in ("seat-0", "seat-1")]
    assert cores == ["0", "1"]
    for name in ("head", "seat-0", "seat-1"):
        assert services[name]["environment"]["RAY_AUTH_MODE"] == "token"
        assert shlex.split(services[name]["command"])[:2] == ["ray", "start"]
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert ports == ["127.0.0.1:8765:8765"]  # nothing else is reached from outside


def test_seats_of_compose_have_the_resource_of_seats() -> None:
    command = shlex.split(read("compose.yaml")["services"]["seat-0"]["command"])
    (given,) = (word.partition("=")[2] for word in command if word.startswith("--resources="))
    assert json.loads(given) == {RESOURCE: 1}


def test_kuberay_has_seats_alone_on_their_nodes_and_a_token() -> None:
    manifest = read("kuberay.yaml")
    assert (manifest["apiVersion"], manifest["kind"]) == ("ray.io/v1", "RayCluster")
    (seats,) = manifest["spec"]["workerGroupSpecs"]
    assert json.loads(json.loads(seats["rayStartParams"]["resources"])) == {RESOURCE: 1}
    head = manifest["spec"]["headGroupSpec"]["template"]["spec"]
    for pod in (head, seats["template"]["spec"]):
        assert pod["securityContext"]["runAsNonRoot"]
        (container,) = pod["containers"]
        assert container["resources"]["requests"] == container["resources"]["limits"]
        secrets = {one["name"]: one["valueFrom"] for one in container["env"] if "valueFrom" in one}
        assert secrets["RAY_AUTH_TOKEN"]["secretKeyRef"]["name"] == "autotune-fleet"
        assert not container["securityContext"]["allowPrivilegeEscalation"]
