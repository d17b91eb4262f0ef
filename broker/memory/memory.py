"""The memory of a broker's answers and bodies: the two budgets, waiting for room, and clients that do not read.

A handler holds the bytes of its answer until the transport has written them (`Answering`). While a transport buffers
more than its high-water mark, its buffer is counted as well, for its connection. Small answers to clients that read are
not counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import structlog

from broker.memory.budget import Budget, Hold
from broker.memory.malloc_trim import give_back
from broker.scheduling import ROUND, DeliveryScheduler
from storage import RequestError

if TYPE_CHECKING:
    from broker.settings import Settings


class Overloaded(RequestError):
    """Other requests hold all the memory that answers or bodies may take; nothing was done. Retry after a moment."""

    code = "overloaded"

    def __init__(self, *, limit: str, max: int) -> None:
        super().__init__(limit=limit, max=max)


_log = structlog.get_logger("broker")

#: Answers and bodies up to this size are not counted: each connection has at most one.
SMALL: Final = 64 * 1024
#: Larger answers go to the transport in pieces of this size.
PIECE: Final = 64 * 1024
#: What a read counts for in the scheduler, before its size is known.
MIN_READ_BYTES: Final = 32 * 1024
#: The most pieces of work on large answers that may wait in the scheduler; the next one is refused.
MAX_SLICES_WAITING: Final = 5_000
#: The cost of beginning a request: 32 begin in each round of the event loop.
BEGIN_COST: Final = 4
#: The most requests that may wait to begin; above that, new HTTP/2 streams are refused. (HTTP/1.1 has one request a
#: connection.)
MAX_BEGINNING: Final = 2_000
#: The most streams of an HTTP/2 connection while answers lack memory.
STREAMS_WHILE_SHORT: Final = 16
#: After this many pieces, the work yields to the event loop.
STRIDE: Final = 4
#: How long a request waits for room before it is refused, and a read before it gets a smaller answer.
PATIENCE_S: Final = 2.0
READ_PATIENCE_S: Final = 0.2
#: How long a body waits for room to be decompressed. It is longer, because the client has already sent the body, and a
#: repetition would wait after later requests.
BODY_PATIENCE_S: Final = 10.0
#: The most waiters; the next one is refused at once.
MAX_WAITING: Final = 2_000
#: The scheduler counts in writes of records; rendering this many bytes takes the time of one write.
BYTES_A_WRITE: Final = 2 * 1024
#: The interval at which refusals and cut-off connections are logged, with their number.
LOG_S: Final = 60.0
#: Freed memory is returned after a peak of at least GIVE_BACK_BYTES, when little of it is still held: GIVE_BACK_TIMES
#: times, at least GIVE_BACK_S apart.
GIVE_BACK_BYTES: Final = 16 << 20
GIVE_BACK_S: Final = 3.0
GIVE_BACK_TIMES: Final = 2
#: The interval of the periodic checks.
CHECK_S: Final = 1.0
ANSWERS: Final = "max_answer_memory_bytes"
ANSWERS_OF_ONE: Final = "max_answer_memory_bytes_per_connection"
BODIES: Final = "max_body_memory_bytes"


class Memory:
    """The memory of one broker. Only the event loop uses it."""

    def __init__(self, settings: Settings) -> None:
        self.answers = Budget(settings.max_answer_memory_bytes, settings.max_answer_memory_bytes_per_connection)
        # `goes_over`: a request that waits for room to decompress its body already holds the compressed body.
        self.bodies = Budget(settings.max_body_memory_bytes, goes_over=True)
        self.stall_timeout_s = settings.stall_timeout_s
        #: Schedules the rendering of large answers, so that many of them do not delay other work.
        self.scheduler = DeliveryScheduler()
        #: Only one large answer is rendered at a time, because rendering takes several times its size.
        self.rendering = asyncio.Lock()
        self._beginnings = DeliveryScheduler()
        self.stalled_total = 0
        #: When an answer last was refused or had to wait.
        self._short_at = float("-inf")
        #: The hold of each full transport, and since when it is full; the oldest first.
        self._paused: dict[Any, tuple[Hold, float]] = {}
        self._logged_at: dict[str, float] = {}
        self._unlogged: dict[str, int] = {}
        self._given_back_at = float("-inf")
        self._is_giving_back = False
        self._to_give_back = 0
        self._gave_much = False

    # -- holding -----------------------------------------------------------------------------------------------------

    async def answer(self, owner: object, size: int, patience_s: float = PATIENCE_S) -> Hold:
        """Hold room for an answer. Raises Overloaded."""
        return await self._obtain(self.answers, owner, size, patience_s)

    def most_for_one(self, size: int) -> int:
        """`size`, but at most the limits for one answer. A larger hold is granted only while nothing else is held."""
        bounds = [bound for bound in (self.answers.total, self.answers.per_owner) if bound]
        return min([size, *bounds])

    async def body(self, owner: object, size: int) -> Hold:
        """Hold room for a decompressed body. Raises Overloaded."""
        return await self._obtain(self.bodies, owner, size, BODY_PATIENCE_S)

    async def try_answer(self, owner: object, size: int, patience_s: float = READ_PATIENCE_S) -> Hold | None:
        """Hold room for an answer. None: there is none, so the caller makes a smaller answer, or tries again later."""
        try:
            return await self._obtain(self.answers, owner, size, patience_s, counts=False)
        except Overloaded:
            return None

    @property
    def is_busy(self) -> bool:
        """Whether large answers are being rendered. Then reads are scheduled, too."""
        return self.rendering.locked() or self.answers.waiting > 0

    async def acquire(self, size: int) -> None:
        """Wait until work on `size` bytes of a large answer may begin. Raises Overloaded if too many wait."""
        if self.scheduler.waiting > MAX_SLICES_WAITING:
            raise self.refusal(self.answers, None, size)
        await self.scheduler.take(size // BYTES_A_WRITE, _same)

    async def begin(self) -> None:
        """Wait until a request may begin. Requests that arrive together begin over several rounds of the event loop."""
        await self._beginnings.take(BEGIN_COST, _same)

    async def begin_alone(self) -> None:
        """Wait until a request that takes long, like a list of a thousand topics, may begin: one in each round."""
        await self._beginnings.take(ROUND, _same)

    def refuses_stream(self, streams: int) -> bool:
        """Whether an HTTP/2 connection with this many streams may not open another one now."""
        if self._beginnings.waiting > MAX_BEGINNING:
            return True
        return streams >= STREAMS_WHILE_SHORT and self.is_short

    def refusal(self, budget: Budget, owner: object, size: int) -> Overloaded:
        """Count and log a refusal, and make its error."""
        budget.refused_total += 1
        if budget is self.bodies:
            limit, most = BODIES, budget.total
        elif budget.total and budget.held + size > budget.total:
            limit, most = ANSWERS, budget.total
        else:
            limit, most = ANSWERS_OF_ONE, budget.per_owner
        if budget is self.answers:
            self._short_at = monotonic()
        if count := self._due(limit):
            answers, bodies = self.answers.held, self.bodies.held
            _log.warning("memory_refused", limit=limit, count=count, answers_bytes=answers, bodies_bytes=bodies)
        return Overloaded(limit=limit, max=most)

    async def _obtain(
        self, budget: Budget, owner: object, size: int, patience_s: float | None, *, counts: bool = True
    ) -> Hold:
        hold = budget.try_hold(owner, size)
        if hold is not None:
            return hold
        if budget is self.answers:
            self._short_at = monotonic()
        if budget.waiting < MAX_WAITING or patience_s is None:
            waited = await _waited(budget, owner, size, patience_s)
            if waited is not None:
                return waited
        if counts:
            raise self.refusal(budget, owner, size)
        raise Overloaded(limit=ANSWERS, max=budget.total)

    async def hold_for_push(self, owner: object, size: int) -> Hold:
        """Hold room for data that is pushed to a stream. Waits without a limit: a push has no request to refuse."""
        return await self._obtain(self.answers, owner, size, None)

    async def wait_for_room(self) -> None:
        """Wait until answers hold no more than they may."""
        if self.answers.is_over:
            (await self.hold_for_push(None, 1)).release()

    # -- clients that do not read ------------------------------------------------------------------------------------

    @property
    def is_short(self) -> bool:
        """Whether answers wait for memory or were recently refused: clients that do not read are cut off sooner."""
        return self.answers.waiting > 0 or self.answers.is_over or monotonic() - self._short_at < self.stall_timeout_s

    def paused(self, transport: Any) -> None:
        """A transport buffers more than its high-water mark."""
        size = transport.get_write_buffer_size()
        if transport in self._paused:
            self._paused[transport][0].resize(size)
        else:
            self._paused[transport] = self.answers.hold(transport, size), monotonic()

    def resumed(self, transport: Any) -> None:
        """The transport is below its high-water mark again, or has closed."""
        found = self._paused.pop(transport, None) if self._paused else None
        if found is not None:
            found[0].release()

    def check_paused(self, now: float) -> None:
        """Update the holds of full transports. If answers hold more than allowed, close the transports that have been
        full for longest.
        """
        for transport, (hold, _) in list(self._paused.items()):
            size = transport.get_write_buffer_size()
            if size:
                hold.resize(size)
            else:
                self.resumed(transport)
        over = self.answers.held - self.answers.total if self.answers.total else 0
        for transport, (hold, since) in list(self._paused.items()):
            if over <= 0 or now - since < CHECK_S:
                return
            over -= hold.size
            self.stalled()
            transport.abort()

    def stalled(self) -> None:
        """Count a client that was cut off because it did not read."""
        self.stalled_total += 1
        if count := self._due("stalled"):
            _log.warning("stalled_clients_cut_off", count=count, answers_bytes=self.answers.held)

    def _due(self, of: str) -> int:
        """How often this happened since it was last logged; 0 if that was less than a minute ago."""
        self._unlogged[of] = self._unlogged.get(of, 0) + 1
        now = monotonic()
        if now - self._logged_at.get(of, float("-inf")) < LOG_S:
            return 0
        self._logged_at[of] = now
        return self._unlogged.pop(of)

    # -- giving back -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Check full transports and return memory, forever."""
        while True:
            await asyncio.sleep(CHECK_S)
            self.check_paused(monotonic())
            self.give_back(monotonic())

    def give_back(self, now: float, give: Callable[[bool], None] = give_back) -> None:
        """Return freed memory to the system, on a thread, after a peak of which little is still held. This is repeated
        once, for memory that was freed during the first time.
        """
        budgets = (self.answers, self.bodies)
        peak, held = sum(each.peak for each in budgets), sum(each.held for each in budgets)
        if self._is_giving_back or now - self._given_back_at < GIVE_BACK_S:
            return
        if peak >= GIVE_BACK_BYTES and held <= peak / 4:
            self._to_give_back, self._gave_much = GIVE_BACK_TIMES, any(each.peak * 2 > each.total for each in budgets)
            for each in budgets:
                each.peak = each.held
        if not self._to_give_back:
            return
        self._to_give_back -= 1
        self._given_back_at = now
        self._is_giving_back = True
        loop = asyncio.get_running_loop()
        loop.run_in_executor(None, give, self._gave_much).add_done_callback(self._gave_back)

    def _gave_back(self, _: object) -> None:
        self._is_giving_back = False


def _same() -> int:
    """The priority of all answers."""
    return 0


async def _waited(budget: Budget, owner: object, size: int, patience_s: float | None) -> Hold | None:
    """Wait for room and hold it; None if there was none in time."""
    coming: asyncio.Future[Hold] = asyncio.get_running_loop().create_future()
    granted: list[Hold] = []

    def grant(hold: Hold) -> None:
        granted.append(hold)
        if not coming.done():
            coming.set_result(hold)

    waiter = budget.wait(owner, size, grant)
    try:
        async with asyncio.timeout(patience_s):
            await coming
        return granted.pop()
    except TimeoutError:
        return None
    finally:
        budget.give_up(waiter)
        for hold in granted:  # granted at the moment when the wait ended
            hold.release()
