# SPDX-License-Identifier: Apache-2.0
"""The loader of MovieLens: every format it reads, and what it does where there is none."""

import numpy as np
import pytest

from pymc_sgcv import SGCVWarning
from pymc_sgcv.datasets import _movielens
from pymc_sgcv.datasets._movielens import movielens

RATINGS = [(1, 10, 3.0), (1, 30, 4.0), (4, 10, 5.0), (4, 20, 1.0), (9, 30, 2.0), (9, 10, 4.0)]


def u_data(place):
    file = place / "u.data"
    file.write_text("".join(f"{u}\t{m}\t{r:.0f}\t88125{u}\n" for u, m, r in RATINGS))
    return file


def ratings_csv(place):
    file = place / "ratings.csv"
    rows = "".join(f"{u},{m},{r},88125{u}\n" for u, m, r in RATINGS)
    file.write_text("userId,movieId,rating,timestamp\n" + rows)
    return file


def npz(place):
    file = place / "ml_latest_small.npz"
    user, movie, rating = np.array(RATINGS).T
    half = (2 * rating).astype("int8")
    np.savez(file, user=user.astype("int16"), movie=movie.astype("int32"), rating_x2=half)
    return file


every_format = pytest.mark.parametrize("write", [u_data, ratings_csv, npz])


def triples(data):
    """All ratings, training and test, as sorted triples."""
    parts = [
        zip(getattr(data, f"user_{p}"), getattr(data, f"movie_{p}"), getattr(data, f"rating_{p}"))
        for p in ("train", "test")
    ]
    return sorted((int(u), int(m), float(r)) for part in parts for u, m, r in part)


@every_format
def test_every_format_is_read_and_ids_begin_at_zero(write, tmp_path):
    data = movielens(write(tmp_path))
    users, movies = {1: 0, 4: 1, 9: 2}, {10: 0, 20: 1, 30: 2}
    assert triples(data) == sorted((users[u], movies[m], r) for u, m, r in RATINGS)
    assert (data.n_users, data.n_movies, data.source) == (3, 3, "local copy")
    assert data.user_train.dtype == data.movie_test.dtype == "int32"
    assert "3 users" in str(data)


@every_format
def test_a_directory_is_searched(write, tmp_path):
    write(tmp_path)
    assert len(triples(movielens(tmp_path))) == len(RATINGS)


def test_the_environment_variable_names_a_directory(tmp_path, monkeypatch):
    u_data(tmp_path)
    monkeypatch.setenv("SGCV_DATA", str(tmp_path))
    assert movielens().source == "local copy"


def test_fewer_users_are_re_indexed_with_the_movies_they_rated(tmp_path):
    data = movielens(u_data(tmp_path), n_users=2)
    whole = triples(data)
    assert len(whole) == 4
    assert {u for u, _, _ in whole} == {0, 1}
    assert {m for _, m, _ in whole} == set(range(data.n_movies))


def test_the_split_has_the_share_asked_for_and_is_reproducible(tmp_path):
    file = u_data(tmp_path)
    first, second = (movielens(file, test_share=1 / 3, seed=5) for _ in range(2))
    assert len(first.rating_test) == 2
    np.testing.assert_array_equal(first.rating_test, second.rating_test)


@pytest.mark.parametrize(
    "arguments, says",
    [
        ({"n_users": 4}, "n_users must lie between 1 and 3"),
        ({"n_users": 0}, "n_users must lie between 1 and 3"),
        ({"test_share": 1.0}, "test_share"),
    ],
)
def test_bad_arguments_are_refused(arguments, says, tmp_path):
    with pytest.raises(ValueError, match=says):
        movielens(u_data(tmp_path), **arguments)


def test_a_path_that_leads_nowhere_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"u\.data"):
        movielens(tmp_path / "nowhere")


def test_a_file_of_something_else_is_refused(tmp_path):
    file = tmp_path / "u.data"
    file.write_text("not a table\n")
    with pytest.raises(ValueError, match="user, movie, rating"):
        movielens(file)


def no_network():
    raise OSError("no network")


def test_without_copy_and_network_ratings_are_generated_with_a_warning(monkeypatch):
    monkeypatch.setattr(_movielens, "_fetch", no_network)
    with pytest.warns(SGCVWarning, match="generated data.*SGCV_DATA"):
        data = movielens(n_users=50)
    assert data.source == "generated look-alike"
    assert 0.5 <= data.rating_train.min() and data.rating_train.max() <= 5


def test_the_look_alike_has_the_layout_of_the_data():
    raw = _movielens._look_alike()
    pairs = raw.user * 100_000 + raw.movie
    assert len(raw.rating) == len(np.unique(pairs)) == 100_836
    assert set(np.unique(2 * raw.rating)) <= set(range(1, 11))


def test_what_is_downloaded_is_used_where_there_is_no_copy(monkeypatch, tmp_path):
    text = ratings_csv(tmp_path).read_text()
    monkeypatch.setattr(_movielens, "_fetch", lambda: _movielens._from_text(text, "ratings.csv"))
    assert movielens().source == "download"
