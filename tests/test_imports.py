"""What is loaded when: the command line must start fast."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "pipetrace"
HEAVY = ("torch", "plotly", "google.protobuf", "perfetto", "msgspec")


def loaded_by(code: str) -> set[str]:
    """The heavy modules that are loaded after `code` ran in a fresh interpreter."""
    script = f"import sys\ntry:\n    {code}\nexcept SystemExit:\n    pass\nprint('LOADED', *sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    modules = set(ran.stdout.rpartition("LOADED")[2].split())
    return {heavy for heavy in HEAVY if heavy in modules}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["list"],
        ["gen", "--help"],
        ["run", "--help"],
        ["gen", "zb-h1", "--json"],
        ["show", "zb-h1"],
        ["compare", "zb-h1", "zbv"],
    ],
)
def test_light_commands(arguments: list[str]) -> None:
    assert loaded_by(f"sys.argv[1:] = {arguments!r}; from pipetrace.cli import main; main()") == set()


def test_import_is_light() -> None:
    assert loaded_by("import pipetrace") == set()


def test_executor_loads_torch_only_when_it_runs() -> None:
    assert "torch" not in loaded_by("import pipetrace.execute")


ANYWHERE = {"shown"}  # how messages are worded
LAYERS = {
    # What each part may import; the arrows of the design.
    "errors": set(),
    "shown": set(),
    "reading": set(),
    "toml_file": {"errors", "reading"},
    "version": set(),
    "action": {"errors"},
    "placement": {"errors"},
    "chain": {"action"},
    "links": {"action", "chain", "errors"},
    "validation": {"action", "chain", "errors", "placement"},
    "transfers": {"action", "errors", "links"},
    "schedule": {"times", "action", "chain", "errors", "links", "placement", "transfers", "validation"},
    "channels": {"action", "errors", "schedule", "transfers"},
    "times": {"errors"},
    "jitter": {"action", "errors"},
    "part_costs": {"action", "errors", "times"},
    "costs": {"action", "errors", "jitter", "part_costs", "schedule", "times"},
    "parts_io": {"action", "errors", "part_costs", "times"},
    "moe_model": {"errors", "part_costs", "times"},
    "costs_io": {"costs", "errors", "jitter", "moe_model", "part_costs", "parts_io", "times"},
    "waiting": {"errors", "times"},
    "timeline": {"action", "errors"},
    "schedules": {"action", "costs", "errors", "placement", "schedule"},
    "ready": {"action", "errors", "links", "schedule", "transfers", "waiting"},
    "events": {"action", "errors", "links", "ready", "transfers", "waiting"},
    "lanes": {"action", "costs", "links", "schedule"},
    "after_step": {"action", "costs", "schedule"},
    "simulate": {
        "action",
        "after_step",
        "costs",
        "errors",
        "events",
        "lanes",
        "links",
        "ready",
        "schedule",
        "timeline",
        "transfers",
        "waiting",
    },
    "metrics": {"action", "costs", "errors", "lanes", "links", "schedule", "timeline", "times", "transfers"},
    "fit": {"action", "costs", "errors", "part_costs", "timeline"},
}
LAYERS["same_model"] = {"costs", "errors"}
LAYERS["compare"] = {
    "passes",
    "costs",
    "errors",
    "metrics",
    "same_model",
    "schedule",
    "simulate",
    "timeline",
    "waiting",
}
LAYERS["candidates"] = {
    "times",
    "part_costs",
    "passes",
    "compare",
    "costs",
    "costs_io",
    "errors",
    "schedule",
    "schedules",
    "toml_file",
    "waiting",
}
LAYERS["advice"] = {"compare", "metrics"}
CORE = set(LAYERS)
LAYERS["passes"] = {
    "times",
    "action",
    "costs",
    "errors",
    "lanes",
    "links",
    "metrics",
    "part_costs",
    "placement",
    "schedule",
    "simulate",
    "timeline",
    "transfers",
}
LAYERS["diff"] = CORE | {"passes"}
LAYERS["trace"] = CORE
LAYERS["run_record"] = CORE | {"diff", "trace"}
LAYERS["diff_run"] = CORE | {"diff", "run_record", "trace"}
LAYERS["execute"] = CORE | {"trace"}
LAYERS["report"] = CORE | {"passes", "diff", "diff_run", "trace"}
LAYERS["cli"] = CORE | {"passes", "diff", "diff_run", "run_record", "trace", "execute", "report"}
LAYERS["label"] = CORE | {"trace"}
LAYERS["__init__"] = CORE | {"label"}
LAYERS["__main__"] = {"cli"}


@pytest.mark.parametrize("file", sorted(PACKAGE.rglob("*.py")), ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_point_one_way(file: Path) -> None:
    part = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    imported = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            names = [node.module] if node.module != "pipetrace" else [f"pipetrace.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            if name == "pipetrace" or name.startswith("pipetrace."):
                inner = name.split(".")[1] if "." in name else "__init__"
                known = (PACKAGE / inner).exists() or (PACKAGE / f"{inner}.py").exists()
                imported.add(inner if known else "__init__")
    assert imported - {part} - ANYWHERE <= LAYERS[part]
