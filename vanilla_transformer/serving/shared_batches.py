"""Translate the texts of concurrent requests together."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from itertools import count

from ..batch_translation import Translation
from ..errors import RequestError


class SharedBatches:
    """A queue of texts: those that arrive while the model is busy are translated together.

    Requests take turns: the texts of a long one are spread over the batches that follow, so that a
    later short one need not wait for all of them.
    """

    def __init__(
        self, translate: Callable[[list[str]], list[Translation]], executor: Executor | None = None
    ) -> None:
        """Create an empty queue; the first call of `self.translate` starts the worker.

        Args:
            translate: Returns a translation of each text, whose `error` says why there is none.
            executor: Runs `translate`; None: asyncio's default executor.
        """
        self._translate, self._executor = translate, executor
        # A text's priority: its index in the request + the number of texts that had been taken
        # from the queue when the request came. Ties are broken by the order of arrival.
        self._queue: asyncio.PriorityQueue[tuple[int, int, str, asyncio.Future[str]]]
        self._queue, self._taken, self._arrived = asyncio.PriorityQueue(), 0, count()
        self._worker: asyncio.Task[None] | None = None

    async def translate(self, texts: Sequence[str]) -> list[str]:
        """Return the translation of each text.

        Raises:
            ValueError: One of these texts cannot be translated.
        """
        loop = asyncio.get_running_loop()
        if self._worker is None:
            self._worker = loop.create_task(self._work())
        futures = [loop.create_future() for _ in texts]
        for place, (text, future) in enumerate(zip(texts, futures, strict=True), self._taken):
            self._queue.put_nowait((place, next(self._arrived), text, future))
        return await asyncio.gather(*futures)

    async def _work(self, most: int = 64) -> None:
        """Translate up to `most` waiting texts at a time, forever."""
        while True:
            waiting = [await self._queue.get()]
            while not self._queue.empty() and len(waiting) < most:
                waiting.append(self._queue.get_nowait())
            self._taken += len(waiting)
            # Drop texts whose request was cancelled, as when its client disconnects.
            pairs = [(text, future) for *_, text, future in waiting if not future.done()]
            texts, loop = [text for text, _ in pairs], asyncio.get_running_loop()
            failed: Exception | None = None
            try:
                found = await loop.run_in_executor(self._executor, self._translate, texts)
            except Exception as error:  # report it to those who wait, and go on
                found, failed = [Translation("", None)] * len(texts), error
            for (_, future), translation in zip(pairs, found, strict=True):
                problem = failed or (translation.error and RequestError(translation.error))
                if future.done():
                    continue
                if problem:
                    future.set_exception(problem)
                else:
                    future.set_result(translation.text)
