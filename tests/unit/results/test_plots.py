# SPDX-License-Identifier: Apache-2.0
"""Figures show the right parameters and numbers; what they look like was judged by eye."""

import numpy as np
import pytest
import xarray as xr

from pymc_sgcv.results import containers
from pymc_sgcv.results.plots import plot_gradient_noise, plot_zv
from pymc_sgcv.results.zv import zv

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture
def idata():
    """Standard normal s and b[x0] ... b[x19]; b[x3] is 30 % too wide and its gradient noisy."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 400, 21))
    x[..., 4] *= 1.3
    g = -x + 0.1 * rng.normal(size=x.shape)
    g[..., 4] += rng.normal(size=x.shape[:2])

    def group(values, log):
        s = values[..., 0] if log else np.exp(values[..., 0])
        arrays = {"s_log__" if log else "s": (("chain", "draw"), s)}
        arrays["b"] = (("chain", "draw", "k"), values[..., 1:])
        return xr.Dataset(arrays, coords={"k": [f"x{i}" for i in range(20)]})

    groups = {"posterior": group(x, False), "gradient": group(g, True)}
    return containers.new_container({**groups, "unconstrained_posterior": group(x, True)})


def names(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_zv_boxes_show_the_first_parameters_twice(idata):
    ax = plot_zv(idata, max_parameters=5)
    assert names(ax.xaxis) == ["s", "b[x0]", "b[x1]", "b[x2]", "b[x3]"]
    assert len(ax.patches) == 10
    assert "first 5 of 21" in ax.get_title(loc="left")


def test_zv_boxes_are_narrower_by_the_factor_above_them(idata):
    ax = plot_zv(idata, "b", max_parameters=2)
    plain, corrected = (np.ptp(ax.patches[i].get_path().vertices[:, 1]) for i in (0, 2))
    gain = float(ax.texts[0].get_text().lstrip("÷ "))
    assert gain > 20
    assert gain / 4 < (plain / corrected) ** 2 < 4 * gain


def test_zv_boxes_take_functions_and_given_axes(idata):
    idata = zv(idata, "b", functions={"double": lambda draws: 2 * draws["b"][..., 0]})
    _, ax = plt.subplots()
    assert plot_zv(idata, "double", ax=ax) is ax
    assert names(ax.xaxis) == ["double"]


def test_gradient_noise_shows_the_worst_parameters(idata):
    left, right = plot_gradient_noise(idata, max_parameters=3)
    assert len(names(left.yaxis)) == 3 and "b[x3]" in names(left.yaxis)
    assert "3 worst of 21" in left.get_ylabel()
    labels = [text.get_text() for text in right.get_legend().get_texts()]
    assert labels == ["tolerance of 5 %", "estimate", "outside"]


def test_gradient_noise_bars_are_the_explained_share(idata):
    left, _ = plot_gradient_noise(idata, "b", max_parameters=20)
    explained = [bar.get_width() for bar in left.patches[:20]]
    assert names(left.yaxis)[3] == "b[x3]"
    np.testing.assert_allclose(explained[3], 100 * 1.69 / (1.69 + 1.01), atol=8)
    np.testing.assert_allclose(np.delete(explained, 3), 99, atol=1.5)


@pytest.mark.parametrize("name", ["s", "s_log__"])
def test_gradient_noise_takes_names_on_either_scale(idata, name):
    left, _ = plot_gradient_noise(idata, name)
    assert names(left.yaxis) == ["s_log__"]


@pytest.mark.parametrize("plot", [plot_zv, plot_gradient_noise])
def test_unknown_names_are_refused(idata, plot):
    with pytest.raises(ValueError, match="no variable 'nonsense'"):
        plot(idata, "nonsense")
