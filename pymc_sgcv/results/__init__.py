# SPDX-License-Identifier: Apache-2.0
"""From draws and gradients to named groups, and what can be told from them.

In: draws on the unconstrained scale, or a container of groups. Out: containers (ArviZ's
InferenceData, xarray's DataTree), ZV corrections, diagnostics, plots.
"""
