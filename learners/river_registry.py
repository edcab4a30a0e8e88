"""Looks up the classes and functions that a River state may name; everything else is refused."""

from __future__ import annotations

import collections
import functools
import importlib
import numbers
import statistics
from typing import Any, Final

from core.errors import CorruptSnapshot
from learners import river_parts
from learners.river_names import CLASSES

# What River's states name outside its classes: factories of default values, types that steps select by,
# and River's own pure functions. Each is harmless to call with any arguments.
_OTHERS: Final[dict[str, Any]] = {
    "builtins.bool": bool,
    "builtins.dict": dict,
    "builtins.float": float,
    "builtins.int": int,
    "builtins.list": list,
    "builtins.set": set,
    "builtins.str": str,
    "builtins.tuple": tuple,
    "collections.Counter": collections.Counter,
    "collections.defaultdict": collections.defaultdict,
    "collections.deque": collections.deque,
    "numbers.Number": numbers.Number,
    "statistics.NormalDist": statistics.NormalDist,
    **{f"learners.river_parts.{name}": getattr(river_parts, name) for name in river_parts.__all__},
}
_FUNCTIONS: Final[dict[str, tuple[str, ...]]] = {
    "copy": ("deepcopy",),
    "river._river_rust.vectordict": ("euclidean_distance_dict", "euclidean_distance_tuple"),
    "river.forest.online_extra_trees": (
        "ExtraTrees._detection_mode_all",
        "ExtraTrees._detection_mode_drop",
        "ExtraTrees._detection_mode_off",
    ),
    "river.naive_bayes.gaussian": ("GaussianNB._make_gaussian",),
    "river.tree.splitter.ebst_splitter": (
        "EBSTNode._update_estimator_multivariate",
        "EBSTNode._update_estimator_univariate",
    ),
    "river.tree.splitter.nominal_splitter_reg": (
        "NominalSplitterReg._update_estimator_multivariate",
        "NominalSplitterReg._update_estimator_univariate",
    ),
    "river.utils.math": ("minkowski_distance",),
}
# Methods that River keeps as values, always of an object in the same state.
METHODS: Final[frozenset[str]] = frozenset(
    {
        "_adwin_bagging",
        "_calc_tau_0",
        "_calc_tau_1",
        "_calc_tau_2",
        "_leveraging_bag",
        "_leveraging_bag_half",
        "_leveraging_bag_me",
        "_leveraging_bag_wt",
        "_leveraging_subag",
        "_next_code",
        "clone",
        "_rand_gauss",
        "_rand_weights_for_feature",
        "_random_weights",
        "_update_estimator_multivariate",
        "_update_estimator_univariate",
    }
)
_NAMES: Final[frozenset[str]] = frozenset(
    [f"river.{module}.{name}" for module, names in CLASSES.items() for name in names.split()]
    + [f"{module}.{name}" for module, names in _FUNCTIONS.items() for name in names]
    + list(_OTHERS)
)
_STATIC: Final[frozenset[str]] = frozenset(
    f"{module}.{name}" for module, names in _FUNCTIONS.items() for name in names if "." in name
)


def name_of(value: Any) -> str | None:
    """The registered name of a class or function; None where it has none."""
    name = f"{getattr(value, '__module__', None)}.{getattr(value, '__qualname__', None)}"
    return name if name in _NAMES and resolve(name) is value else None


@functools.cache
def resolve(name: str) -> Any:
    """The class or function of a registered name. Raises CorruptSnapshot for any other name."""
    if name not in _NAMES:
        raise CorruptSnapshot(f"state of a River model: {name!r} is not a name that a state may hold")
    if name in _OTHERS:
        return _OTHERS[name]
    module, _, attribute = name.rpartition(".")
    module, _, outer = module.rpartition(".") if name in _STATIC else (module, "", "")
    try:
        found = importlib.import_module(module)
        return getattr(getattr(found, outer) if outer else found, attribute)
    except (ImportError, AttributeError) as error:
        raise CorruptSnapshot(f"state of a River model: the installed River has no {name}") from error
