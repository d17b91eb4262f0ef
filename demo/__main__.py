"""`python -m demo`: see demo/story.py for what it does."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.console import Console

from demo.console import is_built, open_browser
from demo.flights import DataSetMissing, data_file
from demo.own_broker import BrokerDied, OwnBroker
from demo.screen import Screen
from demo.story import Outcome, Plan, tell
from topics_client import TopicsError

#: --quick takes every n-th flight.
_QUICK = 20
_FAILED, _USAGE, _INTERRUPTED = 1, 2, 130

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown")


@app.command()
def demo(
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", metavar="DIR", help="Keep the broker's data here; must be empty or missing."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help=f"Only every {_QUICK}th flight.")] = False,
    batch: Annotated[int, typer.Option("--batch", min=1, max=10_000, help="Records per request.")] = 500,
    in_flight: Annotated[int, typer.Option("--in-flight", min=2, max=64, help="Batches in flight at once.")] = 8,
    browser: Annotated[bool, typer.Option(help="On a desktop: open the console in a browser.")] = True,
) -> None:
    """Stream all 336,776 flights that left New York in 2013 through a broker, and kill it half-way.

    Starts a broker of its own, writes one topic per airline (acknowledged only when synced to disk), kills the broker
    with SIGKILL while writes are in flight, restarts it, continues with the same idempotency keys, reads everything
    back and compares. The broker's console is open meanwhile; in a terminal, the broker runs on until Ctrl-C.

    Exit status: 0 every record is there once and in order · 1 it is not · 2 cannot run · 130 interrupted.
    """
    screen = Screen(Console(highlight=False))
    try:
        file = data_file()
    except DataSetMissing as error:
        screen.say(str(error))
        raise typer.Exit(_USAGE) from None
    if data_dir is not None and data_dir.exists() and (not data_dir.is_dir() or any(data_dir.iterdir())):
        raise typer.BadParameter(f"{data_dir} is not an empty directory.", param_hint="--data-dir")
    plan = Plan(data_file=file, every=_QUICK if quick else 1, batch=batch, at_once=in_flight)
    with ExitStack() as cleanup:
        work_dir = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="topics-demo-")))
        broker = OwnBroker(data_dir or work_dir / "data", work_dir)
        # Stops the broker however the event loop ends, and before its files are removed.
        cleanup.callback(broker.stop_process)
        outcome = _run(plan, broker, screen, browser=browser)
    if not outcome.verdict.clean:
        raise typer.Exit(_FAILED)


def _run(plan: Plan, broker: OwnBroker, screen: Screen, *, browser: bool) -> Outcome:
    try:
        return asyncio.run(_supervised(plan, broker, screen, browser=browser))
    except BaseException as error:
        ending = _first(error)
        if isinstance(ending, BrokerDied | TopicsError):
            screen.say(str(ending))
            raise typer.Exit(_FAILED) from None
        if isinstance(ending, KeyboardInterrupt | asyncio.CancelledError):
            screen.say("Interrupted; the broker is stopped.")
            raise typer.Exit(_INTERRUPTED) from None
        raise


async def _supervised(plan: Plan, broker: OwnBroker, screen: Screen, *, browser: bool) -> Outcome:
    task = asyncio.current_task()
    assert task is not None
    # Like Ctrl-C: cancel the task, so that the broker is stopped on the way out.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    address = ""

    async def show_console(url: str) -> None:
        nonlocal address
        if not await asyncio.to_thread(is_built, f"{url}/console"):
            screen.say("This broker has no console: `make console` builds it.")
            return
        address = f"{url}/console"
        opened = browser and screen.is_live and await asyncio.to_thread(open_browser, address)
        screen.say(f"The console {'opens in a browser' if opened else 'is open'}: {address}")

    try:
        outcome = await tell(plan, broker, screen, show_console)
        screen.summary(outcome)
        if address and screen.is_live:
            await _until_interrupted(address, screen)
        return outcome
    finally:
        await broker.close()


async def _until_interrupted(address: str, screen: Screen) -> None:
    screen.say(f"\nThe broker still runs: look at {address}. Ctrl-C ends it.")
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()


def _first(error: BaseException) -> BaseException:
    """The first error of a group: the others have the same cause."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    return _first(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])


if __name__ == "__main__":
    app(prog_name="python -m demo")
