# SPDX-License-Identifier: Apache-2.0
"""The page holds what it promises, loads nothing, and stays small for many parameters."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest
import xarray as xr

import pymc_sgcv as sg
from pymc_sgcv.results import containers, drawings
from pymc_sgcv.results.halfstep import compare, to_groups
from tests.unit.results.test_halfstep import autoregressive


def container(d=3, scale=1.0, chains=4, draws=300, gradients=True, **attrs):
    """A run of a standard normal in d dimensions, the first too wide by `scale`."""
    rng = np.random.default_rng(0)
    one, two = (autoregressive(rng, (chains, draws, d)) for _ in range(2))
    one[..., 0] *= scale

    def dataset(x):
        return xr.Dataset({"b<i>": (("chain", "draw", "k"), x)})

    groups = {"posterior": dataset(one).assign_attrs(attrs)}
    groups |= to_groups(compare(groups["posterior"], dataset(two)), groups["posterior"])
    if gradients:
        noise = 0.3 * rng.normal(size=one.shape)
        groups |= {"unconstrained_posterior": dataset(one), "gradient": dataset(noise - one)}
    return containers.new_container(groups)


def page_of(idata, tmp_path, **options):
    path = sg.report(idata, tmp_path / "report.html", **options)
    return path.read_text(encoding="utf-8")


class Balance(HTMLParser):
    """Whether every element is closed, in order."""

    alone = {"meta"}

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        if tag not in self.alone:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_a_good_run_passes_with_all_sections(tmp_path):
    page = page_of(container(draws=600, step_method="sgldcv", random_seed="7"), tmp_path)
    assert re.search(r"All \d+ checks pass", page) and "fails</span>" not in page
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    assert headings == [
        "Checks",
        "Marginals and chains",
        "At half the step",
        "What the gradients say",
        "What zero variance gains",
        "What was chosen, and why",
        "Versions and seed",
    ]
    assert "<b>seed</b></td><td>7<" in page and "SGLDCV" in page


def test_a_wrong_run_is_not_to_be_trusted_and_says_why(tmp_path):
    page = page_of(container(scale=1.5, draws=600), tmp_path)
    assert "Not to be trusted as it is" in page
    table = sg.diagnose(container(scale=1.5, draws=600))
    assert page.count("✗ fails") == (~table["ok"]).sum() > 0
    assert "The standard deviation of b&lt;i&gt;[0] in these draws is about" in page


def test_nothing_is_loaded_and_names_are_escaped(tmp_path):
    page = page_of(container(), tmp_path)
    assert not re.search(r"https?:|src=|href=|@import|url\(|<script|<link", page)
    assert "b<i>" not in page and "b&lt;i&gt;[2]" in page
    reader = Balance()
    reader.feed(page)
    assert reader.open == []


def test_of_many_parameters_the_worst_are_shown(tmp_path):
    page = page_of(container(d=500, scale=2.0, chains=2, draws=300), tmp_path, max_parameters=5)
    assert len(page) < 200_000
    assert page.count("rank histograms of 2 chains") == 5
    first = re.search(r"<h3>(b.*?)</h3>", page)[1]
    assert first == "b&lt;i&gt;[0]" and "5 of 500" in page


def test_draws_of_another_sampler_say_what_was_not_checked(tmp_path):
    x = autoregressive(np.random.default_rng(1), (4, 400, 1))[..., 0]
    idata = containers.new_container({"posterior": xr.Dataset({"x": (("chain", "draw"), x)})})
    page = page_of(idata, tmp_path)
    assert "Not checked: gradients were not stored" in page and "check=True" in page
    assert "What the gradients say" not in page


def test_a_real_run_names_seed_versions_and_choices(tmp_path):
    from tests.models import regression

    rng = np.random.default_rng(2)
    X = rng.normal(size=(500, 2))
    with regression(X, X @ [1.0, -1.0] + rng.normal(size=500)):
        idata = sg.sample(300, chains=2, random_seed=11, check=True, progressbar=False)
    page = page_of(idata, tmp_path)
    assert "<b>seed</b></td><td>11<" in page and "Half-step check: beyond Monte" in page
    assert "pytensor" in page and "preconditioner" in page


def test_no_container_is_a_type_error(tmp_path):
    with pytest.raises(TypeError, match="idata is a dict"):
        sg.report({}, tmp_path / "report.html")


def test_flat_ranks_are_drawn_flat():
    """1,000 distinct draws in turns: every chain has 50 of each of 20 ranks' bins."""
    x = np.arange(4000.0).reshape(1000, 4).T
    drawn = drawings.ranks(x, 2000)
    heights = set(re.findall(r'height="([\d.]+)" fill', drawn))
    assert len(heights) == 1


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (12345.6, "12,346"), (-0.01234, "−0.0123"), (1e-7, "1e−07")]
)
def test_numbers_are_short(value, text):
    assert drawings.number(value) == text
