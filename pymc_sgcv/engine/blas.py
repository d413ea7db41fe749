# SPDX-License-Identifier: Apache-2.0
"""One BLAS thread while compiled code runs: minibatches are too small to share, chains are not."""

from __future__ import annotations

from functools import cache

from threadpoolctl import ThreadpoolController


@cache
def _libraries() -> tuple:
    controller = ThreadpoolController().select(user_api="blas")
    return tuple(controller.lib_controllers)


class one_blas_thread:
    """Context in which every BLAS uses one thread; entering and leaving takes microseconds."""

    def __enter__(self) -> None:
        self.before = [library.get_num_threads() for library in _libraries()]
        for library in _libraries():
            library.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        for library, threads in zip(_libraries(), self.before, strict=True):
            library.set_num_threads(threads)
