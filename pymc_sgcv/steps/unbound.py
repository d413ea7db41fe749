# SPDX-License-Identifier: Apache-2.0
"""Step methods that are not bound to a model yet: which one, and its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pymc as pm


class Sampler:
    """A step method's configuration, bound to a model when it is used.

    A step method that is made outside a model context is one of these. It goes to
    `pymc_sgcv.sample`, `pymc_sgcv.fit`, or wherever a sampler is asked for that has a method
    `sample_from_init`.

    Parameters
    ----------
    method
        The class of the step method.
    arguments
        Its arguments.

    Examples
    --------
    >>> import pymc as pm, pymc_sgcv as sg
    >>> sampler = sg.SGLDCV(batch_size=200)
    >>> sampler
    SGLDCV(batch_size=200)
    >>> with pm.Model() as model:
    ...     rate = pm.HalfNormal("rate")
    ...     events = pm.Poisson("events", rate, observed=[1, 0, 2] * 100)
    >>> idata = sg.sample(500, step=sampler, model=model, progressbar=False)
    """

    draw: ClassVar[Callable[..., Any] | None] = None
    """`pymc_sgcv.sample`, which stands above this module and puts itself here."""

    def __init__(self, method: type, arguments: Mapping[str, Any]):
        self.method, self.arguments = method, dict(arguments)
        known = inspect.signature(method).parameters
        unknown = sorted(set(self.arguments) - set(known))
        if unknown:
            raise TypeError(
                f"{method.__name__} has no argument {unknown[0]!r}. It takes: {', '.join(known)}."
            )

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.method.__name__}({given})"

    def bind(self, model: pm.Model, progressbar: bool = True) -> Any:
        """The step method of `model`: this is where it is set up."""
        return self.method(**{"progressbar": progressbar, **self.arguments, "model": model})

    def sample_from_init(
        self,
        *,
        model: pm.Model,
        draws: int = 1000,
        tune: int | None = None,
        chains: int | None = None,
        cores: int | None = None,
        initvals: Any = None,
        random_seed: Any = None,
        progressbar: bool = True,
        quiet: bool = False,
        discard_tuned_samples: bool = True,
        var_names: Any = None,
        compute_convergence_checks: bool = True,
        **ignored: Any,
    ) -> Any:
        """Draw from the posterior of `model`, as PyMC asks samplers to.

        `blas_cores`, `keep_warning_stat` and `idata_kwargs` have nothing to decide here.
        """
        assert Sampler.draw is not None  # set when the package is imported
        return Sampler.draw(
            draws,
            tune=tune,
            chains=chains,
            cores=cores,
            step=self,
            random_seed=random_seed,
            progressbar=progressbar and not quiet,
            initvals=initvals,
            var_names=var_names,
            discard_tuned_samples=discard_tuned_samples,
            compute_convergence_checks=compute_convergence_checks,
            model=model,
        )


def in_context() -> bool:
    """Whether there is a model that a step method could belong to."""
    try:
        pm.modelcontext(None)
    except TypeError:
        return False
    return True
