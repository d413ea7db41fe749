# SPDX-License-Identifier: Apache-2.0
"""The step methods, for ``pm.sample(step=...)`` and `sample`.

In: a model and a user's arguments. Out: PyMC step methods that know their `Problem` and `Plan`.
"""
