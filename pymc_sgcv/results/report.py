# SPDX-License-Identifier: Apache-2.0
"""A run as one page: what it found, how it was checked, and what to think of it.

The page is a single HTML file with its style and figures inside; it loads nothing. Of many
parameters the worst are shown, and the rest as distributions.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from html import escape
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from string import Template

import xarray as xr

from pymc_sgcv.results import drawings
from pymc_sgcv.results.checks import Check
from pymc_sgcv.results.containers import Container, check_container, get_group, group_names
from pymc_sgcv.results.diagnostics import all_checks
from pymc_sgcv.results.evidence import gain, gradients, half_step, parameters, section
from pymc_sgcv.results.groups import gradient_groups
from pymc_sgcv.results.halfstep import HALF_STEP
from pymc_sgcv.results.identities import SteinErrors, stein_errors
from pymc_sgcv.results.words import CHOICES, MEANINGS, PERCENT, SHARES

_VERSIONS = ("pymc_sgcv", "pymc", "pytensor", "numba", "numpy", "arviz")


def report(idata: Container, path: str | Path, *, max_parameters: int = 12) -> Path:
    """Write a page that says whether a run is to be trusted, and why.

    Parameters
    ----------
    idata : arviz.InferenceData or xarray.DataTree
        What ``sg.sample`` or ``pm.sample`` returned. It is not changed.
    path : str or pathlib.Path
        The HTML file to write; one that is there is replaced.
    max_parameters : int
        So many parameters are shown one by one, the worst of them; all others as distributions.

    Returns
    -------
    pathlib.Path
        Where the page is.

    Notes
    -----
    The page holds a verdict, the rows of `diagnose`, the comparison with half the step if `sample`
    has made it, rank plots and marginals, errors by Stein's identities, what zero-variance
    post-processing gains, what was chosen in the set-up, versions and seed. Nothing is loaded from
    elsewhere.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> theta = np.random.default_rng(0).normal(size=(4, 500))
    >>> idata = xr.DataTree.from_dict(
    ...     {"posterior": xr.Dataset({"theta": (("chain", "draw"), theta)})}
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = report(idata, Path(folder) / "report.html").read_text(encoding="utf-8")
    >>> "All 4 checks pass" in page
    True
    """
    check_container(idata)
    checks = all_checks(idata)  # refuses what has no posterior
    try:
        idata = gradient_groups(idata)
    except ValueError:
        pass  # another sampler's draws
    posterior = get_group(idata, "posterior")
    attrs = {**_attrs(idata, "sample_stats"), **posterior.attrs}
    errors = _stein(idata, checks)
    sections = [
        _verdict(checks, attrs, idata, errors is not None),
        _facts(posterior, checks, attrs),
        _table(checks),
        parameters(idata, posterior, max_parameters),
        half_step(idata, attrs),
        gradients(errors, max_parameters),
        gain(idata, posterior, max_parameters),
        _choices(attrs),
        _versions(attrs),
    ]
    name = str(attrs.get("step_method", "")).upper()
    title = f"Report on a run{f' of {name}' if name else ''}"
    template = Template(files(__package__).joinpath("report.html").read_text(encoding="utf-8"))
    page = template.substitute(title=escape(title), body="\n".join(filter(None, sections)))
    path = Path(path)
    path.write_text(page, encoding="utf-8")
    return path


def _attrs(idata: Container, group: str) -> Mapping:
    return get_group(idata, group).attrs if group in group_names(idata) else {}


def _stein(idata: Container, checks: list[Check]) -> SteinErrors | None:
    """The errors by Stein's identities, where `diagnose` could measure them."""
    return stein_errors(idata) if any(one.name == "mean_shift" for one in checks) else None


def _verdict(checks: list[Check], attrs: Mapping, idata: Container, gradients: bool) -> str:
    failed = [one for one in checks if not one.ok]
    groups = group_names(idata)
    if failed:
        many = "One check fails" if len(failed) == 1 else f"{len(failed)} checks fail"
        short = all(one.name.startswith("ess") for one in failed)
        told = "Too few draws, and nothing else against" if short else "Not to be trusted as it is."
        head = f"{told}{' this run.' if short else ''} {many} of {len(checks)}."
        rows = "".join(
            f"<li>{escape(one.problem)} <span class='soft'>{escape(one.advice)}</span></li>"
            for one in failed
        )
        said = f"<ul>{rows}</ul>"
    else:
        head = f"All {len(checks)} checks pass: nothing speaks against this run."
        said = ""
    evidence = str(attrs.get("half_step", "")) if HALF_STEP in groups else ""
    missing = []
    if not gradients:
        missing.append("gradients were not stored, so errors could not be measured from them")
    if HALF_STEP not in groups:
        missing.append("no second run at half the step was made (<code>check=True</code> makes it)")
    if missing:
        evidence += f" Not checked: {'; '.join(missing)}."
    note = f"<p>{evidence.strip()}</p>" if evidence else ""
    kind = "verdict fails" if failed else "verdict"
    return f"<div class='{kind}'><strong>{escape(head)}</strong>{note}{said}</div>"


def _facts(posterior: xr.Dataset, checks: list[Check], attrs: Mapping) -> str:
    value = {one.name: one.value for one in checks}
    size = sum(v.isel(chain=0, draw=0).size for v in posterior.values())
    shown = {
        "parameters": str(attrs.get("parameters", size)),
        "chains × draws": f"{posterior.sizes['chain']} × {posterior.sizes['draw']:,}",
    }
    for key, label in (("ess_bulk", "least bulk ESS"), ("ess_tail", "least tail ESS")):
        if key in value:
            shown[label] = f"{value[key]:,.0f}"
    if "r_hat" in value:
        shown["largest R-hat"] = f"{value['r_hat']:.3f}"
    if "setup_seconds" in attrs and "sampling_time" in attrs:
        shown["set-up + sampling"] = (
            f"{attrs['setup_seconds']:.1f} + {attrs['sampling_time']:.1f} s"
        )
    cells = "".join(
        f"<div class='fact'><b>{escape(text)}</b><span>{escape(label)}</span></div>"
        for label, text in shown.items()
    )
    return f"<div class='facts'>{cells}</div>"


def _table(checks: list[Check]) -> str:
    rows = []
    for one in checks:
        percent = one.name in PERCENT
        value, limit = (
            f"{100 * v:.1f} %".replace("-", "−") if percent else _number(one.name, v)
            for v in (one.value, one.limit)
        )
        bound = "≥" if one.name.startswith("ess") else "≤"
        kind, word = ("ok", "✓ passes") if one.ok else ("no", "✗ fails")
        rows.append(
            f"<tr class='check{'' if one.ok else ' failing'}'><td class='name'><b>{one.name}</b>"
            f"<small>{escape(MEANINGS.get(one.name, ''))}</small></td>"
            f"<td class='n' data-label='value'>{value}</td>"
            f"<td class='n' data-label='limit'>{bound} {limit}</td>"
            f"<td class='where' data-label='where'>{escape(one.where)}</td>"
            f"<td class='mark'><span class='{kind}'>{word}</span></td></tr>"
        )
    return section(
        "Checks",
        "Limits allow for Monte Carlo error and for the number of parameters: a run that is right "
        "fails one of the checks that are made from draws less than once in a hundred runs.",
        "<table><thead><tr><th>check</th><th class='n'>value</th><th class='n'>limit</th>"
        f"<th>where it is worst</th><th></th></tr></thead><tbody>{''.join(rows)}</tbody></table>",
    )


def _choices(attrs: Mapping) -> str:
    given = {} if "predicted_sd_error" in attrs else {"step_size": "given, or a schedule"}
    rows = [
        f"<tr><td><b>{escape(label)}</b></td><td class='n'>{escape(_value(key, attrs[key]))}</td>"
        f"<td>{escape(given.get(key, why))}</td></tr>"
        for key, (label, why) in CHOICES.items()
        if key in attrs
    ]
    if not rows:
        return ""
    return section(
        "What was chosen, and why",
        "Measured on this model before sampling, unless it was given.",
        f"<table class='labels'><tbody>{''.join(rows)}</tbody></table>",
    )


def _versions(attrs: Mapping) -> str:
    found = {"Python": platform.python_version()}
    for name in _VERSIONS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    here = ", ".join(f"{name} {number}" for name, number in found.items())
    rows = {"seed": attrs.get("random_seed"), "sampled with": attrs.get("versions")}
    rows |= {"sampled at": attrs.get("created_at"), "this page made with": here}
    cells = "".join(
        f"<tr><td><b>{label}</b></td><td>{escape(str(text))}</td></tr>"
        for label, text in rows.items()
        if text is not None
    )
    return section("Versions and seed", "", f"<table><tbody>{cells}</tbody></table>")


def _number(name: str, value: float) -> str:
    return f"{value:.3f}" if name == "r_hat" else drawings.number(value)


def _value(key: str, value: object) -> str:
    if isinstance(value, str):
        return value.upper() if key == "step_method" else value
    if key in SHARES:
        return f"{drawings.number(100 * float(value))} %"  # type: ignore[arg-type]
    return drawings.number(float(value))  # type: ignore[arg-type]
