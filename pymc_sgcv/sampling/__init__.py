# SPDX-License-Identifier: Apache-2.0
"""The driver `sample`: step methods run as threads, their draws recorded and packed.

In: a model or a step method. Out: a container with all the groups.
"""
