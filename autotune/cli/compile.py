"""``autotune compile``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from autotune.cli.echo import echo
from autotune.cli.options import (
    EPILOG_DATABASE,
    announce,
    compilation_json,
    database_option,
    devices_option,
    finite_option,
    json_option,
    model_argument,
    objective_options,
    oversubscription_option,
    placement_option,
    print_compilation,
    print_json,
    ranges_option,
    targets_option,
    threads_option,
    tolerance_option,
    traffic_options,
    verify_option,
)
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.compiler.driver import CompileOptions
    from autotune.compiler.explain import Compilation


@click.command(
    epilog="Example: autotune compile model.onnx -o model.atm --db tuning.db, for a small artifact "
    "autotune compile model.onnx -o small.atm --objective size --max-slowdown 1.05, for two kinds of machines "
    f"--target x86-64-v3 --target x86-64-v4. {EPILOG_DATABASE}"
)
@model_argument
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The artifact to write.")
@database_option
@targets_option
@threads_option
@tolerance_option
@finite_option
@ranges_option
@traffic_options
@objective_options
@oversubscription_option
@click.option(
    "--require-hit", is_flag=True, help="Fail unless candidates were measured beside every default."
)
@click.option(
    "--lock",
    type=click.Path(path_type=Path),
    help="Make exactly the code that a lock pins, for its target; no database is read.",
)
@placement_option
@devices_option
@click.option("--details", is_flag=True, help="Print a line a dispatch.")
@verify_option
@json_option
def command(
    model: str,
    output: Path,
    targets: tuple[str, ...],
    database: str | None,
    allow_oversubscription: bool,
    require_hit: bool,
    lock: Path | None,
    placement: dict[str, str] | None,
    devices: tuple[str, ...],
    details: bool,
    verify: bool,
    traffic: str | None,
    most_buckets: int,
    as_json: bool,
    **given: Any,
) -> None:
    """Compile MODEL with the best schedules known; workloads without one get the default schedule."""
    options = cast("CompileOptions", {"target": targets[0], **given})
    announce(f"compiling {model}")
    from autotune.cli.affinity_lines import placed_json, placed_lines
    from autotune.compiler.placed import PlacedCompilation
    from autotune.runtime import artifact, program_artifact, sized_artifact, variants
    from autotune.tuning.accuracy import checked
    from autotune.tuning.api import check_threads_here
    from autotune.tuning.placing import compile_anywhere
    from autotune.tuning.several_targets import compile_for_targets
    from autotune.tuning.sized import compile_sizes_in_detail, has_ranges

    for target in targets:
        check_threads_here(target, options["threads"], allow_oversubscription=allow_oversubscription)
    start = time.perf_counter()
    if has_ranges(given["shapes"]):
        if len(targets) > 1 or lock or placement or devices or verify:
            raise UsageError(
                "ranges of sizes were given: leave out --lock, --place, --devices, --verify and all targets but one"
            )
        ranges, options["shapes"] = given["shapes"], None
        sized = compile_sizes_in_detail(
            model,
            ranges,
            database=database,
            require_hit=require_hit,
            traffic=traffic,
            most_buckets=most_buckets,
            say=announce,
            **options,
        )
        sized_artifact.save(sized.model, output)
        made = {
            "artifact": str(output),
            "bytes": output.stat().st_size,
            "seconds": time.perf_counter() - start,
        }
        labels = [", ".join(f"{s} = {n}" for s, n in bucket.sizes.items()) for bucket in sized.model.buckets]
        _show_several(labels, sized.parts, sized.where, made, details=details, as_json=as_json, kind="sizes")
        return
    if traffic:
        raise UsageError("--traffic was given without a range of sizes: --shape seq=1..512")
    if len(targets) > 1:
        if devices:
            raise UsageError("--devices say what is compiled for: leave out the targets")
        several, where = compile_for_targets(
            model,
            targets,
            database=database,
            lock=lock,
            placement=placement,
            require_hit=require_hit,
            verify=verify,
            **options,
        )
        variants.save([done.image for done in several], output)
        made = {
            "artifact": str(output),
            "bytes": output.stat().st_size,
            "seconds": time.perf_counter() - start,
        }
        _show_several(targets, several, where, made, details=details, as_json=as_json)
        return
    done, where = compile_anywhere(
        model,
        database=database,
        lock=lock,
        placement=placement,
        devices=devices,
        require_hit=require_hit,
        verify=verify,
        **options,
    )
    if isinstance(done, PlacedCompilation):
        program_artifact.save(done.program, output)
        seconds = time.perf_counter() - start
        made = {"artifact": str(output), "bytes": output.stat().st_size, "seconds": seconds}
        if as_json:
            print_json(made | placed_json(done, where))
            return
        echo("\n".join(placed_lines(done, where, details=details)))
        echo(f"wrote {output}: {output.stat().st_size / 1e6:.1f} MB in {seconds:.1f} s")
        return
    artifact.save(done.image, output)
    seconds = time.perf_counter() - start
    done = checked(done, model)
    if as_json:
        made = {"artifact": str(output), "bytes": output.stat().st_size, "seconds": seconds}
        print_json(made | compilation_json(done, where))
        return
    print_compilation(done, where, details=details)
    echo(f"wrote {output}: {output.stat().st_size / 1e6:.1f} MB in {seconds:.1f} s")


def _show_several(
    targets: Sequence[str],
    several: Sequence[Compilation],
    where: str | None,
    made: Mapping[str, Any],
    *,
    details: bool,
    as_json: bool,
    kind: str = "targets",
) -> None:
    if as_json:
        each = {target: compilation_json(done, where) for target, done in zip(targets, several, strict=True)}
        print_json({**made, kind: each})
        return
    for target, done in zip(targets, several, strict=True):
        echo(f"for {target}")
        print_compilation(done, where, details=details)
    echo(
        f"wrote {made['artifact']}: {made['bytes'] / 1e6:.1f} MB for {len(targets)} {kind} in {made['seconds']:.1f} s"
    )


__all__ = ["command"]
