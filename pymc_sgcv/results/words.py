# SPDX-License-Identifier: Apache-2.0
"""What the checks of `diagnose` and the choices of the set-up are, in words for a page."""

from __future__ import annotations

MEANINGS = {
    "finite": "values among draws and gradients that are NaN or infinite",
    "r_hat": "the chains agree: the largest R-hat of the components that mix worst",
    "ess_bulk": "independent draws that the bulk is worth",
    "ess_tail": "independent draws that 5 and 95 % quantiles are worth",
    "mean_shift": "error of the mean, in sds, by Stein's identity E[g] = 0",
    "sd_error": "error of the standard deviation, by E[(θ − E θ) g] = −1",
    "sd_error_average": "the same, over all directions together",
    "bulk_sd_error": "the same from the bulk of the draws, which outliers cannot blind",
    "tail_sd_error": "the same from either tail",
    "half_step_mean": "change of the mean at half the step, in sds",
    "half_step_sd": "change of the standard deviation at half the step",
    "half_step_sd_average": "the same on average over all components",
    "half_step_quantile": "change of the 5 or 95 % quantile at half the step, in sds",
    "half_step_diverged": "the run at half the step met a value that is not finite",
    "excursion": "by how much the log density at the furthest draw is lower than on the way to the "
    "center",
    "gradient_noise_share": "variance of the gradient noise over the injected noise's",
    "predicted_sd_error": "error of sds that the set-up expects of gradient noise",
    "center_distance": "from the center to the mode, in posterior sds",
    "chain_distance": "from the center to the draws' mean, in posterior sds",
}
PERCENT = frozenset(
    "sd_error sd_error_average bulk_sd_error tail_sd_error half_step_sd half_step_sd_average "
    "predicted_sd_error".split()
)
"""Checks whose values are shown in per cent."""
CHOICES = {
    "step_method": ("method", "gradient estimator and dynamics"),
    "step_size": (
        "step size",
        "in units of the posterior (1 is long): the longest for which gradient noise and curvature "
        "are expected to cost no more than the accuracy asked for",
    ),
    "batch_size": (
        "rows in a minibatch",
        "as many as keep gradient noise from shortening the step",
    ),
    "thin": ("iterations per draw", "a draw is then worth about half an independent one"),
    "target_bias": ("accuracy asked for", "target_bias: relative error of standard deviations"),
    "predicted_sd_error": ("accuracy expected", "of the worst standard deviation, from the noise"),
    "gradient_noise_share": ("gradient noise", "over the injected noise, in the worst direction"),
    "preconditioner": (
        "preconditioner",
        "the posterior's covariance, so that one step suits all directions",
    ),
    "weighted_rows": ("weighted rows", "1 if rows that vary much are drawn more often"),
    "row_strata": (
        "strata of rows",
        "by influence on the posterior; rows that carry a parameter alone are in every minibatch",
    ),
    "center_distance": ("center", "its distance from the mode, in posterior sds"),
    "group_effects": ("group effects", "moved in partially centred coordinates"),
    "centred_least": ("least centred", "0 is non-centred, 1 centred: the data's share"),
    "centred_most": ("most centred", "of the information on each effect"),
    "tuning_steps": ("draws discarded", "at the start of each chain"),
}
"""Attributes of a result: a label, and why it is what it is."""
SHARES = {"target_bias", "predicted_sd_error", "gradient_noise_share"}
"""Those that are shown in per cent."""
