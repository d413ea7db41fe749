# SPDX-License-Identifier: Apache-2.0
"""Estimator × dynamics × preconditioner: one compiled loop that moves one `Chain`.

In: a `Problem` and a `Method`. Out: draws with the gradients at them.
"""
