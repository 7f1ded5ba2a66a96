"""Costs as text: the command line's, TOML's, and the plain tables of JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pipetrace.costs import Costs, Link, Network, PairCost, RunCosts, StageCosts
from pipetrace.errors import CostError
from pipetrace.jitter import Jitter
from pipetrace.moe_model import model_from_dict
from pipetrace.part_costs import LayerCosts
from pipetrace.parts_io import parts_from_dict, parts_to_dict
from pipetrace.shown import shown
from pipetrace.times import UNITS, named_time, parse_time, table_time

_ENTRIES = ("unit", "p2p", "default", "stages", "pair", "pairs", "network", "parts", "model", "memory", "jitter")
_PAIR_ENTRIES = ("duration", "forward_ready", "backward_ready")
_RUN_ENTRIES = ("alone", "first", "inner", "last")
_STAGE_ENTRIES = ("F", "I", "W", "B", "recompute", "reduce_grad", "optim")
_INDEX = r"(?:0|[1-9][0-9]{0,5})"  # of a stage or rank: stages.00 beside stages.0 would name one stage twice
_STAGE = re.compile(_INDEX)
_LINK = re.compile(rf"({_INDEX})-({_INDEX})")
_COST = re.compile(r"\s*([A-Za-z]+)\s*=\s*([^=]*)")


def parse_costs(text: str, *, unit: str = "ms", p2p: int = 0) -> Costs:
    """Reads `F=1,I=1,W=1,B=2,FB=2.5`, in any order, each letter at most once.

    F, I and W that are not given cost 1 of the unit. B is I + W unless given.

    Args:
        text: The costs.
        unit: "ns", "us", "ms" or "s".
        p2p: ns of a transfer.

    Raises:
        CostError: The text cannot be read.
    """
    given: dict[str, int] = {}
    for item in text.split(",") if text.strip() else ():
        match = _COST.fullmatch(item)
        letter = match[1].upper() if match else ""
        if match is None or letter not in ("F", "I", "W", "B", "FB"):
            raise CostError(f"cannot read the cost {shown(item.strip())}", "write costs as F=1,I=1,W=1,B=2,FB=2.5")
        if letter in given:
            raise CostError(f"the cost of {letter} is given twice in {shown(text)}")
        given[letter] = named_time(letter, parse_time, match[2], unit)
    one = UNITS[unit] if unit in UNITS else parse_time("1", unit)
    stage = StageCosts(given.get("F", one), given.get("I", one), given.get("W", one), given.get("B"))
    pair = PairCost(given["FB"], given["FB"], given["FB"]) if "FB" in given else None
    return Costs(default=stage, pair=pair, p2p=p2p)


def costs_to_dict(costs: Costs) -> dict[str, Any]:
    """Costs as plain tables of ns, for TOML and JSON; `costs_from_dict` reads them back equal."""

    def table(stage: StageCosts) -> dict[str, int]:
        # B stands only where it is given; what comes beside F, I and W only where some stage has it.
        used = [
            name for name in _STAGE_ENTRIES if any(getattr(of, name) for of in (costs.default, *costs.stages.values()))
        ]
        values = {name: getattr(stage, name) for name in _STAGE_ENTRIES}
        return {name: value for name, value in values.items() if value is not None and (name in {*used, *"FIWB"})}

    out: dict[str, Any] = {"unit": "ns", "default": table(costs.default), "p2p": costs.p2p}
    if costs.stages:
        out["stages"] = {str(stage): table(of) for stage, of in sorted(costs.stages.items())}
    if costs.pair is not None:
        out["pair"] = _pair_to_dict(costs.pair)
    if costs.pairs:
        out["pairs"] = {f"{f}-{b}": _pair_to_dict(of) for (f, b), of in sorted(costs.pairs.items())}
    if costs.network != Network():
        out["network"] = _network_to_dict(costs.network)
    if costs.jitter is not None:
        out["jitter"] = {"share": costs.jitter.share, "seed": costs.jitter.seed}
    if costs.layer is not None or costs.stage_layers:
        out["parts"] = parts_to_dict(costs.layer or LayerCosts())
        if costs.stage_layers:
            stages = sorted(costs.stage_layers.items())
            out["parts"]["stages"] = {str(stage): parts_to_dict(layer) for stage, layer in stages}
    return out


def _pair_to_dict(pair: PairCost | RunCosts) -> dict[str, Any]:
    if isinstance(pair, PairCost):
        return {name: getattr(pair, name) for name in _PAIR_ENTRIES}
    return {name: _pair_to_dict(getattr(pair, name)) for name in _RUN_ENTRIES}


def _network_to_dict(network: Network) -> dict[str, Any]:
    def link(of: Link) -> dict[str, Any]:
        return {"latency": of.latency} | ({} if of.bandwidth is None else {"bandwidth": of.bandwidth})

    out: dict[str, Any] = {"message_bytes": network.message_bytes}
    if network.bandwidth is not None:
        out["bandwidth"] = network.bandwidth
    if network.ranks_per_node is not None:
        out["ranks_per_node"] = network.ranks_per_node
    if network.across is not None:
        out["across"] = link(network.across)
    if network.links:
        out["links"] = {f"{source}-{target}": link(of) for (source, target), of in sorted(network.links.items())}
    return out


def costs_from_dict(table: Mapping[str, Any]) -> Costs:
    """Costs from tables as `costs_to_dict` makes them, or as people write them::

        unit = "ms"                              # of every number here; default ms
        p2p = 0.1
        default = { F = 1, I = 1, W = 1 }        # and B, where it is not I + W
        stages.0 = { F = 1.2 }                   # what differs from the default; B is I + W again with a new I or W
        pair = { duration = 2.5, forward_ready = 2.0, backward_ready = 2.5 }
        pairs.0-3 = { duration = 3 }             # a single one: stage 0's forward with stage 3's backward
        jitter = { share = 0.5, seed = 0 }       # single actions take between half and one and a half times as long

        [network]                                # what a transfer takes beside p2p, its latency
        message_bytes = 8_388_608
        bandwidth = 50                           # GB/s (1e9 bytes), within a node
        ranks_per_node = 4
        across = { latency = 0.02, bandwidth = 12 }
        links.0-1 = { latency = 0.3 }            # a single one, from rank 0 to rank 1

        [parts]                                  # of an MoE layer; see `pipetrace.parts_io`
        attn = { F = 1, I = 1, W = 0.5 }
        a2a = 1.5                                # dispatch and combine
        stages.3 = { mlp = 2 }                   # what differs in the layers of a stage

        [model]                                  # or what parts are estimated from; see `pipetrace.moe_model`

    A pair of the order dualpipe costs what its place in a run of pairs costs: pair.alone, pair.first, pair.inner and
    pair.last, each as above.

    Raises:
        CostError: Something is missing, unknown, or no number.
    """
    unit = table.get("unit", "ms")
    # `memory` shares the file; `pipetrace.metrics.sizes_from_dict` reads it.
    unknown = set(table) - set(_ENTRIES)
    if unknown:
        raise CostError(
            f"unknown entry {shown(min(unknown))} in the costs",
            f"it is of a stage: default = {{ {min(unknown)} = 1 }}, or stages.0 = {{ {min(unknown)} = 1 }}"
            if min(unknown) in _STAGE_ENTRIES
            else f"entries are {', '.join(_ENTRIES)}",
        )

    def numbers(name: str, given: Any, allowed: Sequence[str]) -> dict[str, int]:
        if not isinstance(given, Mapping):
            raise CostError(f"{name} of the costs is no table", f"write {name} = {{ {allowed[0]} = 1 }}")
        wrong = set(given) - set(allowed)
        if wrong:
            raise CostError(
                f"unknown entry {shown(min(map(str, wrong)))} in {name} of the costs",
                f"entries are {', '.join(allowed)}",
            )
        return {key: named_time(f"{name}.{key}", table_time, value, unit) for key, value in given.items()}

    one = parse_time("1", unit)
    default = {"F": one, "I": one, "W": one} | numbers("default", table.get("default", {}), _STAGE_ENTRIES)

    def of_stage(given: dict[str, int]) -> StageCosts:
        # The default's B belongs to the default's I and W.
        inherited = {key: value for key, value in default.items() if key != "B" or not {"I", "W"} & set(given)}
        return StageCosts(**inherited | given)

    stages = table.get("stages", {})
    if not isinstance(stages, Mapping) or not all(_STAGE.fullmatch(str(key)) for key in stages):
        raise CostError("stages of the costs is no table of stage numbers, as 0, 1, 2", "write stages.0 = { F = 1.2 }")

    def pair_cost(name: str, given: Any) -> PairCost:
        pair = numbers(name, given, _PAIR_ENTRIES)
        if "duration" not in pair:
            raise CostError(f"{name} of the costs has no duration")
        return PairCost(**{entry: pair.get(entry, pair["duration"]) for entry in _PAIR_ENTRIES})

    def run_costs(name: str, given: Any) -> PairCost | RunCosts:
        if isinstance(given, Mapping) and set(given) == set(_RUN_ENTRIES):
            return RunCosts(**{entry: pair_cost(f"{name}.{entry}", given[entry]) for entry in _RUN_ENTRIES})
        return pair_cost(name, given)

    pairs = table.get("pairs", {})
    named = {_LINK.fullmatch(str(key)): of for key, of in pairs.items()} if isinstance(pairs, Mapping) else {None: None}
    if None in named:
        raise CostError(
            "pairs of the costs are no table of a forward's and a backward's stage",
            "write pairs.0-3 = { duration = 2.5 }",
        )
    layer, stage_layers = _layers_from_dict(table, unit)
    return Costs(
        default=StageCosts(**default),
        stages={int(key): of_stage(numbers(f"stages.{key}", of, _STAGE_ENTRIES)) for key, of in stages.items()},
        pair=run_costs("pair", table["pair"]) if "pair" in table else None,
        pairs={(int(m[1]), int(m[2])): run_costs(f"pairs.{m[0]}", of) for m, of in named.items() if m is not None},
        p2p=table_time(table.get("p2p", 0), unit),
        network=_network_from_dict(table.get("network", {}), unit),
        layer=layer,
        stage_layers=stage_layers,
        jitter=_jitter_from_dict(table["jitter"]) if "jitter" in table else None,
    )


def _jitter_from_dict(table: Any) -> Jitter:
    good = isinstance(table, Mapping) and "share" in table and not set(table) - {"share", "seed"}
    if not good or not all(type(number) in (int, float) for number in table.values()):
        raise CostError("jitter of the costs is no share and seed", "write jitter = { share = 0.5, seed = 0 }")
    if type(table.get("seed", 0)) is not int:
        raise CostError(f"a seed of {shown(table['seed'])}", "give a whole number")
    return Jitter(**table)


def _layers_from_dict(table: Mapping[str, Any], unit: str) -> tuple[LayerCosts | None, dict[int, LayerCosts]]:
    """Costs of the parts, of all stages and of single ones; what `parts` says holds over what `model` gives."""
    layer = model_from_dict(table["model"], unit).layer if "model" in table else None
    parts = table.get("parts")
    if parts is None:
        return layer, {}
    stages = parts.get("stages", {}) if isinstance(parts, Mapping) else {}
    if isinstance(parts, Mapping):
        parts = {name: of for name, of in parts.items() if name != "stages"}
    layer = parts_from_dict(parts, unit, base=layer)
    if not isinstance(stages, Mapping) or not all(_STAGE.fullmatch(str(key)) for key in stages):
        raise CostError("parts.stages of the costs is no table of stage numbers", "write stages.3 = { mlp = 2 }")
    of_stages = {
        int(key): parts_from_dict(of, unit, base=layer, name=f"parts.stages.{key}") for key, of in stages.items()
    }
    return layer, of_stages


def _network_from_dict(table: Any, unit: str) -> Network:
    known = ("message_bytes", "bandwidth", "ranks_per_node", "across", "links")
    if not isinstance(table, Mapping):
        raise CostError("network of the costs is no table", "write [network] and below it bandwidth = 50")
    if wrong := set(table) - set(known):
        raise CostError(
            f"unknown entry {shown(min(map(str, wrong)))} in network of the costs", f"entries are {', '.join(known)}"
        )

    def bandwidth(name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
            raise CostError(f"bandwidth {shown(value)} of {name}", "give GB/s (1e9 bytes a second), above 0")
        return float(value)

    def count(name: str, least: int) -> int | None:
        value = table.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise CostError(f"{name} {shown(value)} of the network", f"give a whole number from {least} on")
        return value

    def link(name: str, of: Any) -> Link:
        if not isinstance(of, Mapping) or set(of) - {"latency", "bandwidth"}:
            raise CostError(f"{name} of the network is no link", f"write {name} = {{ latency = 0.02, bandwidth = 12 }}")
        return Link(
            table_time(of.get("latency", 0), unit),
            bandwidth(name, of["bandwidth"]) if "bandwidth" in of else None,
        )

    links = table.get("links", {})
    named = {_LINK.fullmatch(str(key)): of for key, of in links.items()} if isinstance(links, Mapping) else {None: None}
    if None in named:
        raise CostError("links of the network are no table of rank pairs", "write links.0-1 = { latency = 0.3 }")
    return Network(
        message_bytes=count("message_bytes", 0) or 0,
        bandwidth=bandwidth("network", table["bandwidth"]) if "bandwidth" in table else None,
        ranks_per_node=count("ranks_per_node", 1),
        across=link("across", table["across"]) if "across" in table else None,
        links={(int(m[1]), int(m[2])): link(f"links.{m[0]}", of) for m, of in named.items() if m is not None},
    )
