"""The commands of `python -m pipeline`. Exit status: 0 done, 1 failed or problems found, 2 usage, 130 interrupted."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pipeline.broker import TopicMissing
from pipeline.errors import (
    AnotherExporter,
    BadOption,
    LagsBehind,
    PipelineError,
    SourceUnreadable,
    StoreRefused,
    counted,
)
from pipeline.export import (
    FORMATS,
    ArrowEngine,
    Compacted,
    Display,
    Engine,
    Exporter,
    Job,
    Limits,
    Outcome,
    PartSettings,
    Schedule,
    Store,
    Verification,
    chain_of,
    check_retention,
    collect,
    compact,
    exported_topics,
    grid,
    open_store,
    path_of,
    prove,
    publication,
    show,
    status,
    summary,
    vacuum,
    versions,
    whereabouts_of,
    widen,
)
from pipeline.option_names import checked_url
from pipeline.origins import FullOrigin, open_origin
from pipeline.schema import arrow_schema
from pipeline.values import FAIL_FAST, PERMISSIVE, ValueShape, value_shape

app = typer.Typer(
    name="pipeline",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Export topics to files, each record once. Manual: docs/guides/spark.md.",
)

_TOKEN = "TOPICS_TOKEN"
UrlOption = Annotated[str, typer.Option("--url", envvar="TOPICS_URL", metavar="URL", help="URL of the broker.")]
TokenOption = Annotated[
    str | None,
    typer.Option("--token", envvar=_TOKEN, metavar="KEY", help="API key with the scope read, if the broker has keys."),
]
PathOption = Annotated[
    str,
    typer.Option("--path", metavar="DIR|URL", help="Without a broker: a data directory, backup, cold tier or bucket."),
]
ColdOption = Annotated[
    str, typer.Option("--cold-path", metavar="DIR|URL", help="With --path: the cold tier with its older segments.")
]
ToOption = Annotated[
    str,
    typer.Option(
        "--to", metavar="DIR|URL", help="Where the files are: a directory, s3://…, abfss://…, gs://… or az://…."
    ),
]
TopicsOption = Annotated[
    str, typer.Option("--topics", metavar="NAMES", help="Names, separated by commas; * and ? match any characters.")
]
RetainOption = Annotated[
    str,
    typer.Option("--retain", metavar="TIME", help="How long old versions of a table can be read, at least 1d."),
]
ValueSchemaOption = Annotated[
    str,
    typer.Option(
        "--value-schema",
        metavar="DDL|@FILE",
        help="Typed columns: Spark's DDL ('id bigint, item string') or a JSON Schema; @FILE reads one.",
    ),
]
ValuePrefixOption = Annotated[
    str, typer.Option("--value-prefix", metavar="TEXT", help="What the names of typed columns begin with.")
]
MaxLagOption = Annotated[
    int | None,
    typer.Option(
        "--max-lag",
        metavar="SEQS",
        min=1,
        help="Exit with status 1 after the export if more durable seqs of a topic than this are not exported.",
    ),
]
_FOLLOW_S = 5.0
_MASTER = re.compile(r"local(\[[^\]]+\])?|local-cluster\[[^\]]+\]|yarn|(spark|k8s)://.+")
#: The most names of topics in an error.
_SHOWN = 10
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@app.command("export")
def export(
    to: ToOption,
    topics: TopicsOption,
    url: UrlOption = "",
    token: TokenOption = None,
    path: PathOption = "",
    cold_path: ColdOption = "",
    kind: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="delta or iceberg (a table for each topic), parquet or json (files with manifests). Default: that of "
            "the existing export, or delta.",
        ),
    ] = "",
    partition_by: Annotated[
        str, typer.Option("--partition-by", metavar="PARTS", help="date, optionally followed by hour, tag: date,tag.")
    ] = "date",
    catalog: Annotated[
        str,
        typer.Option(
            "--catalog",
            metavar="URL|NAME",
            help="With --format iceberg: a REST catalog (https://…), Hive (thrift://…), a database (sqlite:///FILE), "
            "or a catalog in pyiceberg's configuration. Default: a SQLite file in --to.",
        ),
    ] = "",
    namespace: Annotated[
        str, typer.Option("--namespace", metavar="NAME", help="The namespace of the tables in the catalog.")
    ] = "topics",
    since: Annotated[
        str,
        typer.Option("--since", metavar="TIME", help="First export of a partition: begin at this time (ISO, or 7d)."),
    ] = "",
    max_records: Annotated[
        int | None, typer.Option("--max-records", min=1, help="At most this many seqs of each topic.")
    ] = None,
    headers: Annotated[bool, typer.Option("--headers", help="Add a column with headers.")] = False,
    value_schema: ValueSchemaOption = "",
    value_prefix: ValuePrefixOption = "",
    value_mode: Annotated[
        str,
        typer.Option("--value-mode", help="Values that do not fit: null, with their text (permissive), or failfast."),
    ] = PERMISSIVE,
    fail_on_loss: Annotated[
        bool, typer.Option("--fail-on-data-loss/--allow-data-loss", help="Refuse gaps, or record them and continue.")
    ] = True,
    engine: Annotated[str, typer.Option("--engine", help="spark, or arrow (in this process, without Java).")] = "spark",
    master: Annotated[str, typer.Option("--spark-master", help="Master URL of Spark.")] = "local[2]",
    follow: Annotated[bool, typer.Option("--follow", help="Continue with new records, until interrupted.")] = False,
    compact_every: Annotated[
        str,
        typer.Option(
            "--compact-every",
            metavar="TIME",
            help="Compact a topic, and remove what is not needed any more, after an export when this time has passed "
            "since the last time (1h, 1d).",
        ),
    ] = "",
    retain: RetainOption = "7d",
    max_lag: MaxLagOption = None,
) -> None:
    """Export all new records, up to those that are durable now."""
    with _endings():
        hourly, tagged = _parts(partition_by)
        parts = PartSettings(kind=_choice("--format", kind, FORMATS) if kind else "", hourly=hourly, tagged=tagged)
        schedule = _schedule(compact_every, retain)
        if follow and max_lag is not None:
            raise BadOption("--max-lag is for an export that ends: --follow begins behind, and catches up.")
        if engine == "spark":
            _refuse_relative(master, to=to, path=path, cold_path=cold_path)
        job = Job(
            url=_checked(url),
            token=token,
            path=path,
            cold_path=cold_path,
            to=to,
            parts=parts,
            catalog=catalog,
            namespace=namespace,
            headers=headers,
            values=_values(value_schema, value_prefix, value_mode, headers),
            fail_on_loss=fail_on_loss,
        )
        store = open_store(to)
        prove(store)
        limits = Limits(since_ms=_moment_ms(since), max_records=max_records)
        with _origin(url, token, path, cold_path, waits=True) as origin:
            plain, known = _plain(topics), set(exported_topics(store))
            names = _wanted(origin, topics, known)
            runner = _engine(engine, master)
            while True:
                outcomes, failed = _export_all(origin, store, runner, job, limits, names, plain)
                if max_lag is not None:
                    failed |= _behind(origin, store, [each.topic for each in outcomes], max_lag)
                if schedule is not None:
                    failed |= _maintain(store, [each.topic for each in outcomes], schedule)
                if not follow or failed or any(each.manifests for each in outcomes):
                    summary([each for each in outcomes if each.manifests or not follow], failed)
                if not follow or failed:
                    break
                time.sleep(_FOLLOW_S)
                known |= {each.topic for each in outcomes}
                names = _wanted(origin, topics, known)
        raise typer.Exit(1 if failed else 0)


def _export_all(
    origin: FullOrigin, store: Store, engine: Engine, job: Job, limits: Limits, names: list[str], plain: set[str]
) -> tuple[list[Outcome], dict[str, PipelineError]]:
    """Export topics one after the other. If one fails, the others are still exported."""
    outcomes: list[Outcome] = []
    failed: dict[str, PipelineError] = {}
    with Display() as display:
        exporter = Exporter(
            origin, store, engine, job, limits, version=_version(), say=display.say, progress=display.progress
        )
        display.plan({name: _todo(exporter, name) for name in names})
        for name in names:
            try:
                outcomes.append(exporter.export(name))
                collect(store, name, time.time())
            except PipelineError as error:
                # A topic of a pattern may be deleted at any time. If it was exported, another error says what is lost.
                if name in plain or not isinstance(error, TopicMissing):
                    failed[name] = error
            display.done(name)
    return outcomes, failed


def _behind(origin: FullOrigin, store: Store, topics: list[str], most: int) -> dict[str, PipelineError]:
    """The topics of which more durable seqs than `most` are not exported."""
    failed: dict[str, PipelineError] = {}
    for name in topics:
        try:
            lag = status(store, name, origin).lag
        except TopicMissing:
            continue  # it was deleted: the export says what is lost
        except PipelineError as error:
            failed[name] = error
            continue
        if lag > most:
            failed[name] = LagsBehind(name, lag, most)
    return failed


def _maintain(store: Store, topics: list[str], schedule: Schedule) -> dict[str, PipelineError]:
    """Compact and vacuum topics whose time has come. Another run's commit in between is no error."""
    failed: dict[str, PipelineError] = {}
    for name in topics:
        try:
            if (done := schedule.run(store, name, version=_version(), now_s=time.time())) is not None:
                print(f"{name}: {_compacted(done[0])}; {counted(done[1], 'file')} removed")
        except AnotherExporter as error:
            print(f"{name}: not compacted this time: {error}", file=sys.stderr)
        except PipelineError as error:
            failed[name] = error
    return failed


def _todo(exporter: Exporter, topic: str) -> int:
    try:
        return exporter.todo(topic)
    except PipelineError:
        return 0  # the export will report the error


@app.command("files")
def files(to: ToOption, topics: TopicsOption) -> None:
    """Print the valid files, one on each line: read these."""
    with _endings():
        store, names = _existing(to, topics)
        for name in names:
            chain = chain_of(store, name)
            with suppress(StoreRefused):  # a read-only store: files are named where they are
                publication.finish(chain)
            for entry in chain.files():
                print(f"{to.rstrip('/')}/{publication.whereabouts(store, name, entry.file)}")


@app.command("status")
def show_status(
    to: ToOption,
    topics: TopicsOption,
    url: UrlOption = "",
    token: TokenOption = None,
    path: PathOption = "",
    cold_path: ColdOption = "",
) -> None:
    """Show the lag of each topic's export."""
    with _endings(), _origin(url, token, path, cold_path) as origin:
        store = open_store(to, make=False)
        table = grid("topic", ">lag", ">exported seqs", ">partitions", ">files", ">records", "state")
        for name in _wanted(origin, topics, set()):
            found = status(store, name, origin)
            figures = (found.lag, found.exported, found.partitions, found.files, found.rows)
            table.add_row(name, *(f"{each:,}" for each in figures), found.state)
        show(table)


@app.command("verify")
def verify(
    to: ToOption,
    topics: TopicsOption,
    url: UrlOption = "",
    token: TokenOption = None,
    path: PathOption = "",
    cold_path: ColdOption = "",
) -> None:
    """Check all files against their manifests and, with --url or --path, against the records."""
    with _endings():
        store, names = _existing(to, topics)
        wrong = 0
        for name in names:
            if url or path or cold_path:
                with _origin(url, token, path, cold_path) as origin:
                    found = Verification(store, name).run(origin)
            else:
                found = Verification(store, name).run(None)
            for sentence in found.problems:
                print(f"PROBLEM: {name}: {sentence}")
            for sentence in found.notes:
                print(f"note: {name}: {sentence}")
            there = f"{counted(found.rows, 'record')} in {counted(found.files, 'file')}"
            print(f"{name}: {counted(len(found.problems), 'problem')}; {there}, {found.compared:,} compared")
            wrong += len(found.problems)
        raise typer.Exit(1 if wrong else 0)


@app.command("compact")
def compact_command(
    to: ToOption,
    topics: TopicsOption,
    folder: Annotated[str, typer.Option("--date", metavar="YYYY-MM-DD", help="Only this date.")] = "",
    vacuuming: Annotated[
        bool, typer.Option("--vacuum", help="Then remove what `vacuum` removes: see --retain.")
    ] = False,
    retain: RetainOption = "7d",
) -> None:
    """Rewrite small files into larger ones, for each date."""
    with _endings():
        retain_s = _retention_s(retain)
        date = f"date={_date(folder)}" if folder else ""
        store, names = _existing(to, topics)
        prove(store)
        failed: dict[str, PipelineError] = {}
        for name in names:
            try:
                found = compact(store, name, version=_version(), folder=date)
                if vacuuming:
                    gone = vacuum(store, name, retain_s=retain_s, now_s=time.time())
                    print(f"{name}: {_compacted(found)}; {counted(gone, 'file')} removed")
                else:
                    print(f"{name}: {_compacted(found)}")
                    collect(store, name, time.time())
            except PipelineError as error:
                failed[name] = error
        summary([], failed)
        raise typer.Exit(1 if failed else 0)


@app.command("vacuum")
def vacuum_command(to: ToOption, topics: TopicsOption, retain: RetainOption = "7d") -> None:
    """Remove files that only old versions of a table have, and those of killed runs."""
    with _endings():
        retain_s = _retention_s(retain)
        store, names = _existing(to, topics)
        for name in names:
            print(f"{name}: {counted(vacuum(store, name, retain_s=retain_s, now_s=time.time()), 'file')} removed")


@app.command("widen")
def widen_command(
    to: ToOption,
    topics: TopicsOption,
    value_schema: ValueSchemaOption,
    value_prefix: ValuePrefixOption = "",
) -> None:
    """Give columns of Delta tables wider types, before an export that needs them. Writes every file again."""
    with _endings():
        values = _values(value_schema, value_prefix, PERMISSIVE, headers=False)
        if values is None:
            raise BadOption("--value-schema must name the columns with their wider types.")
        store, names = _existing(to, topics)
        prove(store)
        failed: dict[str, PipelineError] = {}
        with Console(stderr=True, highlight=False).status("") as line:
            for name in names:

                def progress(done: int, of: int, name: str = name) -> None:
                    line.update(f"{name}: {done:,} of {counted(of, 'file')} written again")

                try:
                    found = widen(store, name, values, progress)
                    print(f"{name}: {counted(found.files, 'file')} with {counted(found.rows, 'record')} written again")
                except PipelineError as error:
                    failed[name] = error
        summary([], failed)
        raise typer.Exit(1 if failed else 0)


@app.command("versions")
def show_versions(to: ToOption, topics: TopicsOption) -> None:
    """Show the versions of a table (for files: the manifests), and the seqs that each has added."""
    with _endings():
        store, names = _existing(to, topics)
        for name in names:
            table = grid("version", "made (UTC)", "what", ">records", "partition: seqs")
            for each in versions(store, name):
                made = datetime.fromtimestamp(each.made_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
                seqs = ", ".join(f"{at}: {first}-{last}" for at, (first, last) in sorted(each.seqs.items()))
                table.add_row(each.version, made, each.kind, f"{each.rows:,}", seqs)
            print(f"{name}: {whereabouts_of(store, name)}")
            show(table)


# -- what commands share -----------------------------------------------------------------------------------------------


@contextmanager
def _endings() -> Generator[None]:
    try:
        yield
    except PipelineError as error:
        Console(stderr=True, highlight=False).print(f"Error: {error}", style="red", markup=False, soft_wrap=True)
        raise typer.Exit(2 if isinstance(error, BadOption) else 1) from None
    except KeyboardInterrupt:
        print("Interrupted. Completed files are valid; the next run exports the rest.", file=sys.stderr)
        raise typer.Exit(130) from None


def _check_source(token: str | None, path: str, cold_path: str) -> None:
    """Refuse options that would have no effect. A key in the environment may be for other commands."""
    if cold_path and not path:
        raise BadOption("--cold-path is about a source without a broker (--path): a broker reads its own cold tier.")
    if path and token and token != os.environ.get(_TOKEN):
        raise BadOption("--token is about a broker (--url): a path is read with the rights of this process.")


def _checked(url: str) -> str:
    """The URL of the broker, or nothing."""
    return checked_url("--url", url) if url else ""


@contextmanager
def _origin(url: str, token: str | None, path: str, cold_path: str, *, waits: bool = False) -> Generator[FullOrigin]:
    """The origin. `waits`: a scheduled run outlasts a restart of the broker, and says that it waits."""
    if bool(url) == bool(path):
        raise BadOption("Give either --url or --path.")
    _check_source(token, path, cold_path)
    url = _checked(url)
    with ExitStack() as stack:
        try:
            origin = stack.enter_context(
                open_origin(url=url, token=token, path=path, cold_path=cold_path, first="--url")
            )
        except SourceUnreadable as error:
            if not (waits and url):
                raise
            print(f"{error} Waiting for it for another minute.", file=sys.stderr)
            origin = stack.enter_context(open_origin(url=url, token=token))
        yield origin


def _engine(name: str, master: str) -> Engine:
    if _choice("--engine", name, ("spark", "arrow")) == "arrow":
        return ArrowEngine()
    if not _MASTER.fullmatch(master):
        raise BadOption(f"--spark-master must be like local[2], spark://HOST:7077, yarn or k8s://URL, not {master!r}.")
    from pipeline.export.spark_engine import SparkEngine
    from pipeline.session import cache_folder, open_session

    # On a terminal, Java's messages would disturb, so they go to a file. Otherwise they stay on stderr.
    log = None
    if sys.stderr.isatty():
        log = cache_folder() / "spark.log"
        log.parent.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=True, highlight=False)
    with console.status(f"Starting Spark ({master}); its messages go to {log} …"):
        return SparkEngine(open_session(master, log=log))


def _plain(topics: str) -> set[str]:
    """The names that are no patterns."""
    return {name for each in topics.split(",") if (name := each.strip()) and not re.search(r"[*?\[]", name)}


def _wanted(origin: FullOrigin, topics: str, exported: set[str]) -> list[str]:
    """The given names, and those of topics and of exports that match a given pattern."""
    patterns = [each.strip() for each in topics.split(",") if each.strip()]
    plain = _plain(topics)
    found = plain | {
        name
        for name in ({*origin.topics(), *exported} if len(plain) < len(patterns) else ())
        for each in patterns
        if fnmatchcase(name, each)
    }
    if not found:
        raise BadOption(f"No topic matches {topics}." if patterns else "--topics names no topic.")
    return sorted(found)


def _existing(to: str, topics: str) -> tuple[Store, list[str]]:
    """The store of an export, and the names of its topics that match. Nothing is made where there is no export."""
    found = exported_topics(open_store(to, make=False))
    patterns = [each.strip() for each in topics.split(",")]
    chosen = [name for name in found if any(fnmatchcase(name, each) for each in patterns)]
    if not found:
        raise BadOption(f"Nothing is exported to {to}: check --to.")
    if not chosen:
        others = ", ".join(found[:_SHOWN]) + (" and others" if len(found) > _SHOWN else "")
        raise BadOption(f"No exported topic matches {topics or 'an empty --topics'}. Exported there: {others}.")
    return open_store(to), chosen


def _choice(option: str, given: str, known: tuple[str, ...]) -> str:
    if given not in known:
        raise BadOption(f"{option} must be {', '.join(known[:-1])} or {known[-1]}, not {given!r}.")
    return given


def _values(schema: str, prefix: str, mode: str, headers: bool) -> ValueShape | None:
    """The typed columns of an export."""
    _choice("--value-mode", mode, (PERMISSIVE, FAIL_FAST))
    if not schema:
        if prefix or mode != PERMISSIVE:
            raise BadOption("--value-prefix and --value-mode are about typed columns: give --value-schema as well.")
        return None
    if schema.startswith("@"):
        try:
            schema = Path(schema[1:]).read_text()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
            raise BadOption(f"--value-schema: the file {schema[1:]} cannot be read: {why}.") from error
    # Tables that are partitioned by tag have a column tag.
    return value_shape(schema, [*arrow_schema(headers=headers).names, "tag"], mode=mode, prefix=prefix)


def _parts(text: str) -> tuple[bool, bool]:
    parts = [each.strip() for each in text.split(",")]
    if parts not in (["date"], ["date", "hour"], ["date", "tag"], ["date", "hour", "tag"]):
        raise BadOption("--partition-by must be date, date,hour, date,tag or date,hour,tag.")
    return "hour" in parts, "tag" in parts


def _schedule(every: str, retain: str) -> Schedule | None:
    retain_s = _retention_s(retain)
    return Schedule(_duration_s("--compact-every", every), retain_s) if every else None


def _retention_s(text: str) -> float:
    retain_s = _duration_s("--retain", text)
    check_retention(retain_s)
    return retain_s


def _duration_s(option: str, text: str) -> float:
    match = re.fullmatch(r"(\d+)([smhd])", text)
    if match is None:
        raise BadOption(f"{option} must be a time like 90m, 12h or 7d, not {text!r}.")
    return int(match[1]) * _UNITS[match[2]]


def _refuse_relative(master: str, **locations: str) -> None:
    """On a cluster, tasks run in other directories and on other machines."""
    if master.startswith("local"):
        return
    for name, given in locations.items():
        target = path_of(given)
        if target and "://" not in target and not Path(target).is_absolute():
            raise BadOption(
                f"--{name.replace('_', '-')} {given} is relative, but the tasks of {master} run in other directories: "
                "give the absolute path of a directory that all machines share, or a bucket."
            )


def _compacted(found: Compacted) -> str:
    return f"{counted(found.before, 'file')} became {found.after:,}, {counted(found.rows, 'record')} rewritten"


def _date(text: str) -> str:
    """A date like 2026-01-31."""
    try:
        date = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError as error:
        raise BadOption(f"--date must be a date like 2026-01-31, not {text!r}.") from error
    return date.strftime("%Y-%m-%d")


def _moment_ms(text: str) -> int | None:
    if not text:
        return None
    if re.fullmatch(r"\d+[smhd]", text):
        stamp = int((time.time() - _duration_s("--since", text)) * 1000)
    else:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError as error:
            raise BadOption(f"--since must be a time like 2026-01-31T00:00:00Z, or 7d, not {text!r}.") from error
        stamp = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    if stamp < 0:
        raise BadOption(f"--since {text} is before 1970. Without --since, an export begins with the first record.")
    return stamp


def _version() -> str:
    try:
        return metadata.version("topics-broker")
    except metadata.PackageNotFoundError:
        return "sources"


def main() -> None:
    """Run the program."""
    app(prog_name=f"python -m {__package__}")
