# SPDX-License-Identifier: Apache-2.0
"""The data: where they lie, which rows a minibatch takes, and sums over any of them.

In: a `Target`, its compiled gradients and its arrays. Out: a `Problem`, which every later stage
asks for gradients.
"""
