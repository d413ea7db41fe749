# SPDX-License-Identifier: Apache-2.0
"""The one warning class of this package, so that users can filter what it says."""


class SGCVWarning(UserWarning):
    """Something about a stochastic-gradient run that its user should know."""
