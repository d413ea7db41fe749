# SPDX-License-Identifier: Apache-2.0
"""PyTensor → numba: gradients as C functions of (θ, weights, rows), reached by their addresses.

In: the graphs of a `Target`. Out: `Gradient`s. Also what all compiled code stands on: calls by
address, random numbers, products with rows.
"""
