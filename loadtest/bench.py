"""Measures a broker over HTTP.

    python -m loadtest.bench --batch 100 --durability fsync          closed loop: as fast as the answers come
    python -m loadtest.bench --batch 100 --rate 1000                 open loop: latency from when a request was due
    python -m loadtest.bench --kill                                  are all acknowledged records there after kill -9?
    python -m loadtest.bench --read --batch 1000                     reading back
    python -m loadtest.bench --read --batch 256 --from cold          reading from the cold tier, with proof
    python -m loadtest.bench --steady --batch 100                    60 s with flusher and snapshots at work
    python -m loadtest.bench --all --save table                      the table of docs/performance.md
    python -m loadtest.bench --against ../other --rounds 7           this checkout against another one, alternating

Starts a broker in a temporary directory, unless --url names a running one.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from loadtest import compare, places, proof, report
from loadtest.measure import Measured, Target, measure
from loadtest.own_broker import BrokerFailed, OwnBroker, add_set
from loadtest.scenario import Scenario

_SECONDS = 10.0


def main(arguments: list[str] | None = None) -> int:
    """0; 1 when something acknowledged is missing or the broker failed."""
    given = parser()
    options = given.parse_args(arguments)
    if options.url and (options.place or options.all):
        given.error("where records are is up to the settings of a broker: --from and --all need one of their own")
    try:
        if options.against:
            return _compare(options)
        return _measure(options, shlex.join(["python", "-m", "loadtest.bench", *(arguments or sys.argv[1:])]))
    except BrokerFailed as error:
        print(error, file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m loadtest.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = made.add_argument
    add("--url", default="", help="a running broker instead of one of its own")
    add("--connections", type=int, default=64)
    add("--seconds", type=float, default=0.0, help="length of the measured window (default: 10; --steady: 60)")
    add("--warmup", type=float, default=1.0, help="seconds of load before it")
    add("--batch", type=int, default=100, help="records a request")
    add("--durability", choices=["ephemeral", "memory", "disk", "fsync"], default="fsync")
    add("--record-bytes", type=int, default=100, help="size of the data of a record")
    add("--topics", type=int, default=1, help="topics the connections are spread over")
    add("--rate", type=float, default=0.0, help="requests a second: open loop")
    add("--no-seqs", action="store_true", help="ask for answers without the list of seqs")
    add("--read", action="store_true", help="read instead of write; --batch is the limit")
    add("--from", dest="place", choices=places.PLACES, default="", help="with --read: where the records must be")
    add("--preload", type=int, default=100_000, help="records to read")
    add(
        "--all",
        action="store_true",
        help="append at batch 1, 100, 1000 of class disk and fsync by 16 and 64 connections;"
        " diff at limit 1, 256, 1000 from tail, sealed and cold",
    )
    add("--steady", action="store_true", help="the figure counts only if segments and snapshots were written meanwhile")
    add("--verify", action="store_true", help="afterwards, compare the stored records with the acknowledged ones")
    add("--kill", action="store_true", help="as --verify, the broker being killed under load and started again before")
    add_set(made)
    add("--tree", type=Path, default=None, help="folder whose broker package is run (default: this checkout)")
    add("--against", type=Path, default=None, help="folder of another checkout to compare with: the old one")
    add("--rounds", type=int, default=5, help="of a comparison")
    add("--dir", default="", help="where the data directory is made (default: the temporary directory)")
    add("--save", default="", metavar="NAME", help="keep the outcome in loadtest/results/NAME.json")
    add("--json", action="store_true", help="print JSON instead of a table")
    return made


def scenarios(options: argparse.Namespace) -> list[Scenario]:
    """The scenarios that the command line asks for."""
    one = Scenario(
        kind="read" if options.read else "append",
        connections=options.connections,
        seconds=options.seconds or (proof.SECONDS if options.steady else _SECONDS),
        warmup_s=options.warmup,
        batch=options.batch,
        durability=options.durability,
        record_bytes=options.record_bytes,
        topics=options.topics,
        rate=options.rate,
        preload=options.preload,
        place=options.place if options.read else "",
        steady=options.steady and not options.read,
        seqs=not options.no_seqs,
    )
    if not options.all:
        return [one]
    replace = msgspec.structs.replace
    appends = [
        replace(one, kind="append", batch=batch, durability=durability, connections=connections, place="")
        for durability in ("disk", "fsync")
        for connections in (16, 64)
        for batch in (1, 100, 1000)
    ]
    reads = [replace(one, kind="read", batch=limit, place=place) for place in places.PLACES for limit in (1, 256, 1000)]
    return [*appends, *reads]


def _run(options: argparse.Namespace, scenario: Scenario, tree: Path | None) -> Measured:
    """One scenario against a fresh broker, or the one at --url."""
    if options.url:
        address = urlsplit(options.url)
        target = Target(host=address.hostname or "127.0.0.1", port=address.port or 80)
        return measure(target, scenario, verify=options.verify)
    own = OwnBroker(tree=tree, parent=options.dir)
    if scenario.place:
        own.settings |= places.settings(scenario.place, str(own.data_dir.with_name("cold")))
    if scenario.steady:
        own.settings |= proof.SETTINGS
    own.settings |= dict(options.set)
    try:
        own.start()
        target = Target(host=own.host, port=own.port, own=own)
        return measure(target, scenario, verify=options.verify, kill=options.kill)
    finally:
        own.close()


def _measure(options: argparse.Namespace, command: str) -> int:
    results: list[Measured] = []
    for scenario in scenarios(options):
        if not options.json:
            _announce(scenario, 1)
        results.append(_run(options, scenario, options.tree))
        if not options.json:
            print(f"{scenario.name}: {results[-1].records_per_s:,.0f} records/s", file=sys.stderr)
    if options.json:
        print(msgspec.json.encode(results).decode())
    else:
        print(report.table(results))
        for line in (line for each in results for line in report.remarks(each)):
            print(line)
    if options.save:
        print(f"kept in {report.keep(options.save, command, results).name}", file=sys.stderr)
    return 0 if all(each.verdict is None or each.verdict.holds for each in results) else 1


def _announce(scenario: Scenario, runs: int) -> None:
    """Print which measurement starts, because nothing is printed while it runs."""
    times = f"{runs} times " if runs > 1 else ""
    load = f"{times}{scenario.seconds:g} s of load after {scenario.warmup_s:g} s of warm-up"
    print(f"{scenario.name}: {load} ...", file=sys.stderr)


def _compare(options: argparse.Namespace) -> int:
    for scenario in scenarios(options):
        if not options.json:
            _announce(scenario, 2 * options.rounds)
        ratios = compare.alternate(
            lambda scenario=scenario: _run(options, scenario, options.against),
            lambda scenario=scenario: _run(options, scenario, options.tree),
            options.rounds,
        )
        if options.json:
            print(msgspec.json.encode({"scenario": scenario, "ratios": ratios}).decode())
        else:
            print("\n".join(compare.lines(scenario.name, ratios)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
