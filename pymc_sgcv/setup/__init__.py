# SPDX-License-Identifier: Apache-2.0
"""Everything that is chosen before sampling: center, preconditioner, row weights, batch, step.

In: a `Problem` and the user's `Settings`. Out: a `Plan`, the same for all chains.
"""
