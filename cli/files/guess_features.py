"""Which columns of a file are features, and of what kind."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from cli.files.profile import ColumnProfile

# Names of identifiers: id, case_id, customerId, uuid, rownames, Unnamed: 0, ...
_ID_NAME = re.compile(
    r"(?i:(?:.*[_\-. ])?(?:id|ids|uid|uuid|guid|key|pk|index|idx|rownames?)|unnamed: ?\d+)|.*[a-z]I[Dd]"
)
_FEW_ROWS = 50  # among fewer, every value may well be different by chance
_NEARLY = 0.95
_MOST_CATEGORIES = 50_000
_MOST_CHARS = 256  # LimitsConfig.max_category_chars
_LONG_TEXT = 50
_STRAYS = 0.01


@dataclass(frozen=True, slots=True)
class FeatureGuess:
    """A column's spec; where `reason` is given, why it is better left out."""

    name: str
    spec: str
    reason: str = ""
    note: str = ""


def guess_features(columns: Iterable[ColumnProfile], label: ColumnProfile) -> list[FeatureGuess]:
    """One guess a column; `label` is not among them."""
    return [_guess(column, label) for column in columns]


def _guess(column: ColumnProfile, label: ColumnProfile) -> FeatureGuess:
    mark = "?" if column.missing else ""
    if not column.present:
        return FeatureGuess(column.name, "category?", "empty")
    if "nested" in column.kinds:
        return FeatureGuess(column.name, f"any{mark}", "lists or objects")
    if column.distinct < 2:
        return FeatureGuess(column.name, _kind(column) + mark, "always the same value")
    if column.text and column.times >= _NEARLY * column.present:
        return FeatureGuess(column.name, f"category{mark}", "times")
    if _ID_NAME.fullmatch(column.name):
        return FeatureGuess(column.name, _kind(column) + mark, "an identifier by its name")
    if column.missing and column.missing == label.missing:
        reason = "missing as often as the label: known only with it?"
        return FeatureGuess(column.name, _kind(column) + mark, reason)
    if column.text:
        return _guess_text(column, mark)
    if column.whole and column.present >= _FEW_ROWS:
        if column.increasing and not column.missing:
            return FeatureGuess(column.name, f"float{mark}", "grows with every row")
        if column.unique_share >= _NEARLY:
            return FeatureGuess(column.name, f"float{mark}", "nearly a different whole number in each row")
    return FeatureGuess(column.name, _kind(column) + mark)


def _kind(column: ColumnProfile) -> str:
    """Whole numbers are "float" too: no sample shows that a column never has fractions, a "float" takes
    both, and an "int" would refuse a 2.5 that comes later."""
    if column.kinds == {"bool"}:
        return "bool"
    return "float" if column.numeric else "category"


def _guess_text(column: ColumnProfile, mark: str) -> FeatureGuess:
    name, spec = column.name, f"category{mark}"
    if column.longest > _MOST_CHARS or column.chars > _LONG_TEXT * column.present:
        return FeatureGuess(name, spec, "long texts")
    if column.spaces > 0.2 * column.present:
        return FeatureGuess(name, spec, "sentences")
    if column.present >= _FEW_ROWS and column.unique_share >= 0.5:
        return FeatureGuess(name, spec, "nearly a different text in each row")
    if column.distinct > _MOST_CATEGORIES:
        return FeatureGuess(name, spec, f"more than {_MOST_CATEGORIES} different texts")
    if column.kinds & {"int", "float"} and column.texts <= _STRAYS * column.present and column.distinct > 50:
        note = f"other texts in {column.texts} cells: those rows will be refused"
        return FeatureGuess(name, f"float{mark}", note=note)
    return FeatureGuess(name, spec)
