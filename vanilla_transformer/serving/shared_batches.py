"""Translate the texts of concurrent requests together."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from ..batch_translation import Translation
from ..errors import RequestError


class SharedBatches:
    """A queue of texts: those that arrive while the model is busy are translated together."""

    def __init__(
        self, translate: Callable[[list[str]], list[Translation]], executor: Executor | None = None
    ) -> None:
        """Prepare to translate.

        Args:
            translate: Returns a translation of each text, whose `error` says why there is none.
            executor: What it runs in; None: one of asyncio's threads.
        """
        self._translate, self._executor = translate, executor
        self._queue: asyncio.Queue[tuple[str, asyncio.Future[str]]] = asyncio.Queue()
        self._worker: asyncio.Task[None] | None = None

    async def translate(self, texts: Sequence[str]) -> list[str]:
        """Return the translation of each text.

        Raises:
            ValueError: One of these texts cannot be translated.
        """
        loop = asyncio.get_running_loop()
        if self._worker is None:
            self._worker = loop.create_task(self._work())
        waiting = [(text, loop.create_future()) for text in texts]
        for each in waiting:
            self._queue.put_nowait(each)
        return await asyncio.gather(*(future for _, future in waiting))

    async def _work(self, most: int = 64) -> None:
        """Translate up to `most` waiting texts at a time, for ever."""
        while True:
            waiting = [await self._queue.get()]
            while not self._queue.empty() and len(waiting) < most:
                waiting.append(self._queue.get_nowait())
            waiting = [each for each in waiting if not each[1].done()]  # whoever asked has gone
            texts, loop = [text for text, _ in waiting], asyncio.get_running_loop()
            failed: Exception | None = None
            try:
                found = await loop.run_in_executor(self._executor, self._translate, texts)
            except Exception as error:  # whoever waits is told, and the next are served
                found, failed = [Translation("", None)] * len(texts), error
            for (_, future), translation in zip(waiting, found, strict=True):
                problem = failed or (translation.error and RequestError(translation.error))
                if future.done():
                    continue
                if problem:
                    future.set_exception(problem)
                else:
                    future.set_result(translation.text)
