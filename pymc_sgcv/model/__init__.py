# SPDX-License-Identifier: Apache-2.0
"""A PyMC model read as log p(θ) = ℓ₀(θ) + Σᵢ ℓᵢ(θ), its rows found and proven.

In: a `pm.Model` as users write it. Out: a `Target`, graphs of ℓ₀ and of the ℓᵢ of any rows.
"""
