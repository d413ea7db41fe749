# SPDX-License-Identifier: Apache-2.0
"""MovieLens ratings: a local copy, a download, or look-alike ratings, in this order."""

from __future__ import annotations

import io
import os
import urllib.request
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pymc_sgcv.datasets._files import look_up

_FILES = ("ml_latest_small.npz", "ratings.csv", "u.data")
_ADDRESS = "https://files.grouplens.org/datasets/movielens/ml-latest-small.zip"
_USERS, _MOVIES, _RATINGS = 610, 9724, 100_836


class _Raw(NamedTuple):
    """Ratings in stars with the ids that the file gave them."""

    user: np.ndarray
    movie: np.ndarray
    rating: np.ndarray


@dataclass(frozen=True)
class MovieLens:
    """Ratings of movies by users, split into training and test ratings.

    Attributes
    ----------
    user_train, movie_train, user_test, movie_test
        Who rated what, as ``int32`` indices that begin at 0.
    rating_train, rating_test
        The ratings in stars, 0.5 to 5. They are in random order.
    n_users, n_movies
        How many there are in both parts together.
    source
        ``"local copy"``, ``"download"`` or ``"generated look-alike"``.
    """

    user_train: np.ndarray = field(repr=False)
    movie_train: np.ndarray = field(repr=False)
    rating_train: np.ndarray = field(repr=False)
    user_test: np.ndarray = field(repr=False)
    movie_test: np.ndarray = field(repr=False)
    rating_test: np.ndarray = field(repr=False)
    n_users: int
    n_movies: int
    source: str

    def __str__(self) -> str:
        return (
            f"MovieLens ({self.source}): {len(self.rating_train):,} training and "
            f"{len(self.rating_test):,} test ratings, {self.n_users:,} users, "
            f"{self.n_movies:,} movies, mean {self.rating_train.mean():.2f} stars"
        )


def movielens(
    path: str | os.PathLike | None = None,
    *,
    n_users: int | None = None,
    test_share: float = 0.2,
    seed: int = 1,
    download: bool = True,
) -> MovieLens:
    """MovieLens (Harper & Konstan 2015): ratings of movies, half a star to five stars.

    Parameters
    ----------
    path
        A file, or a directory with one of ``ml_latest_small.npz``, ``ratings.csv`` (as in
        ml-latest-small) and ``u.data`` (as in ml-100k, the paper's data, which may not be
        redistributed). Default: the directory in the environment variable ``SGCV_DATA``.
    n_users
        Keep so many random users and the movies they rated; all by default. The users of a smaller
        number are among those of a larger one.
    test_share
        Share of the ratings in the test set.
    seed
        Of the choice of users and of the split.
    download
        Whether to try to download ml-latest-small where there is no local copy.

    Returns
    -------
    MovieLens

    Examples
    --------
    >>> data = movielens(n_users=100, download=False)
    >>> data.n_users, int(data.user_train.max())
    (100, 99)
    """
    if not 0 < test_share < 1:
        raise ValueError(f"test_share must lie between 0 and 1, not {test_share!r}.")
    fetch = _fetch if download else None
    raw, source = look_up("MovieLens", _FILES, path, _read, fetch, _look_alike)
    rng = np.random.default_rng(seed)
    users, user = np.unique(raw.user, return_inverse=True)
    chosen = rng.permutation(len(users))
    if n_users is not None:
        if not 1 <= n_users <= len(users):
            raise ValueError(f"n_users must lie between 1 and {len(users)}, not {n_users!r}.")
        chosen = chosen[:n_users]
    rows = rng.permutation(len(user))
    rows = rows[np.isin(user[rows], chosen)]
    users, user = np.unique(user[rows], return_inverse=True)
    movies, movie = np.unique(raw.movie[rows], return_inverse=True)
    rating = raw.rating[rows].astype(float)
    if len(rows) < 2:
        raise ValueError("There is one rating only: nothing is left to test on. Keep more users.")
    n_test = min(max(round(test_share * len(rows)), 1), len(rows) - 1)
    user, movie = user.astype("int32"), movie.astype("int32")
    return MovieLens(
        user_train=user[n_test:],
        movie_train=movie[n_test:],
        rating_train=rating[n_test:],
        user_test=user[:n_test],
        movie_test=movie[:n_test],
        rating_test=rating[:n_test],
        n_users=len(users),
        n_movies=len(movies),
        source=source,
    )


def _read(file: Path) -> _Raw:
    if file.suffix == ".npz":
        with np.load(file) as arrays:
            missing = [name for name in ("user", "movie", "rating_x2") if name not in arrays]
            if missing:
                raise ValueError(f"MovieLens: '{file}' has no array {', '.join(missing)}.")
            return _Raw(arrays["user"], arrays["movie"], arrays["rating_x2"] / 2)
    return _from_text(file.read_text(), str(file))


def _from_text(text: str, name: str) -> _Raw:
    """Rows of user, movie, rating and timestamp, with commas and a header, or with tabs."""
    header, _, rest = text.partition("\n")
    commas = "," in header
    body = rest if header.startswith("userId") else text
    try:
        table = np.loadtxt(io.StringIO(body), delimiter="," if commas else None, ndmin=2)
        user, movie, rating = table[:, 0].astype(int), table[:, 1].astype(int), table[:, 2]
    except (ValueError, IndexError) as problem:
        raise ValueError(
            f"MovieLens: '{name}' is not a table of user, movie, rating and timestamp, separated "
            f"by tabs as in u.data or by commas as in ratings.csv ({problem})."
        ) from problem
    return _Raw(user, movie, rating)


def _fetch() -> _Raw:
    with urllib.request.urlopen(_ADDRESS) as answer:
        archive = zipfile.ZipFile(io.BytesIO(answer.read()))
    return _from_text(archive.read("ml-latest-small/ratings.csv").decode(), "ratings.csv")


def _look_alike(rank: int = 3) -> _Raw:
    """Ratings with the size, the long tails and about the noise of ml-latest-small."""
    rng = np.random.default_rng(0)
    active = rng.pareto(0.9, _USERS) + 0.3
    popular = 1 / (np.arange(_MOVIES) + 30.0)
    pairs = np.zeros(0, dtype=int)
    while len(pairs) < _RATINGS:
        user = rng.choice(_USERS, _RATINGS, p=active / active.sum())
        movie = rng.choice(_MOVIES, _RATINGS, p=popular / popular.sum())
        pairs = np.unique(np.concatenate([pairs, user * _MOVIES + movie]))
    pairs = rng.permutation(pairs)[:_RATINGS]
    user, movie = pairs // _MOVIES, pairs % _MOVIES
    U, V = rng.normal(0, 0.45, (_USERS, rank)), rng.normal(0, 0.45, (_MOVIES, rank))
    a, b = rng.normal(0, 0.4, _USERS), rng.normal(0, 0.4, _MOVIES)
    mean = 3.5 + a[user] + b[movie] + (U[user] * V[movie]).sum(axis=1)
    rating = np.clip(np.round(2 * (mean + rng.normal(0, 0.8, _RATINGS))) / 2, 0.5, 5.0)
    return _Raw(user + 1, movie + 1, rating)
