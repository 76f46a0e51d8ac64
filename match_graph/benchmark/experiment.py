"""Experiments: data sets, rows, measures and published figures, read from YAML."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from copy import deepcopy
from itertools import product
from math import prod
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from match_graph.benchmark.space import Search, Settings, Space, find_setting, split_keys
from match_graph.config import Config, StrictModel
from match_graph.errors import shorten, suggest
from match_graph.io.names import FileName
from match_graph.io.yaml import dump_yaml, put
from match_graph.runs.configure import load_preset_config
from match_graph.training.models import find_model

EXPERIMENT_FORMAT = 1
#: Largest number of rows of a table, points of a grid included, and of runs of a benchmark.
MAX_ROWS, MAX_CELLS = 1000, 100_000
#: Largest number of bytes of a row's name as a folder's name; file systems hold 255.
_MAX_NAME = 200
#: Placeholder in a row's name and ablation: the row becomes one for each metadata field.
EACH_FIELD = "{field}"
#: Measured on test alone, most of them at thresholds chosen on valid; so are those of slices.
_ON_TEST = (
    *("F1_micro", "F1_macro"),
    *("hierarchical_P", "hierarchical_R", "hierarchical_F1"),
    *(f"at_least_k/{name}@{k}" for name in ("P", "NDCG", "RankedSum") for k in (1, 2, 3)),
    *(f"shared_threshold/{name}_{mean}" for mean in ("micro", "macro") for name in ("P", "R")),
    *("shared_threshold/F1_micro", "shared_threshold/F1_of_macro"),
)
#: Measures of every run on its test split, besides those of slices (``SLICE/MEASURE``).
MEASURES = (
    *(f"{name}@{k}" for name in ("P", "NDCG", "R", "PSP", "PSNDCG") for k in (1, 3, 5)),
    *("violation_rate", "violation_size", "ECE", "ECE@5", *_ON_TEST),
)
#: Measures of which less is better.
LOWER_IS_BETTER = frozenset(
    {"violation_rate", "violation_size", "ECE", "ECE@5"}
    | {f"at_least_k/RankedSum@{k}" for k in (1, 2, 3)}
)
#: Settings that an experiment sets by keys of their own, which would override them elsewhere.
_NAMED = {
    "model.encoder": "'encoder' of a row",
    "ablation": "'ablation' of a row",
    "seed": "'seed' of the experiment, or --seed",
}
_SLICED = tuple(
    f"{part}/{name}"
    for part in ("head", "torso", "tail", "depth_N")
    for name in ("R@1", "R@3", "R@5", "F1_micro", "F1_macro", "num_labels", "num_gold")
)
#: Measures of slices of the labels, by training frequency and by depth.
OF_SLICE = re.compile("|".join(_SLICED).replace("depth_N", r"depth_\d+"))
_FEATURE_PART = re.compile(r"data\.features\.([^.]+)\.")
_NO_FILE_NAME = re.compile(r"[^\w.+=-]+")


class Row(StrictModel):
    """Row of a table: a model and its ablations."""

    name: str = Field(min_length=1, description="name of the row, as tables show it")
    encoder: str = Field("match", description="encoder or baseline")
    preset: str | None = Field(
        None,
        description="preset of the encoder: paper, own; only a 'space' of the row is searched then",
    )
    ablation: list[str] = Field([], description="ablations; see runs.configure")
    settings: Settings = Field(
        {}, description="settings by dotted key; they win over the experiment's"
    )

    base: str | None = Field(
        None,
        description="row whose settings, also those found by a search, are its defaults",
    )
    space: Space = Field({}, description="settings to search for it, beside those of 'search'")

    @property
    def folder_name(self) -> str:
        """Name of the row as a file name."""
        return _NO_FILE_NAME.sub("-", self.name).strip("-.") or "row"


class PlannedRow(Row):
    """Resolved row: ``{field}`` and the grid have become rows of their own."""

    point: dict[str, Any] = Field({}, description="grid values by name")

    @property
    def layers(self) -> list[dict[str, Any]]:
        """Settings of the row alone; the last win."""
        return [self.settings, self.point]


class Experiment(StrictModel):
    """Experiment: rows, data sets, measures, and published figures to compare with.

    It names encoders and heads and imports none; `configure` does.

    Settings take the place of the defaults in this order, the last wins: the encoder's own of
    ``preset``, the experiment's ``settings``, the row's, the point of the grid,
    ``overrides``. A value of null gives a setting back to the size of the corpus. An override of a
    part of ``data.features.TYPE``, such as its ``model``, is for the rows that have such features.

    An equal ``budget`` gives every network the same number of epochs over the same documents: the
    ``train.epochs`` of the experiment, else the most that the size of the corpus gives to any of
    its rows, whatever an encoder's own settings say. A row that sets ``train.epochs`` keeps it.
    The budget "own" leaves every row its own.
    """

    format: int = EXPERIMENT_FORMAT
    name: FileName = Field("", description="name of the experiment; none: the file's")
    question: str = Field(min_length=1)
    datasets: list[str] = Field(
        min_length=1, description="data sets: registered names, folders, or classes of one's own"
    )
    tuned_on: list[str] = Field(
        [],
        description="names of the data sets on whose validation settings or defaults were chosen; "
        "others are for reporting alone",
    )
    report_on: list[str] = Field([], description="names of data sets on which nothing is chosen")
    runs: int = Field(3, ge=1, le=10_000, description="seeds per row")
    seed: int = Field(0, ge=0, lt=2**32, description="first seed")
    threads: int = Field(
        1, ge=1, le=4096, description="processor threads of a run, whatever runs beside it"
    )
    measures: list[str] = Field(min_length=1, description="measures, in the order of the columns")
    split: Literal["test", "valid"] = "test"
    budget: Literal["equal", "own"] = "equal"
    settings: Settings = Field({}, description="settings of all rows, by dotted key")
    overrides: Settings = Field({}, description="settings by dotted key that win over all others")
    reference: str | None = Field(None, description="reference row that others are tested against")
    rows: list[Row] = Field(min_length=1)
    search: Search = Field(default_factory=Search, description="search of `match-graph tune`")
    grid: dict[str, list[Any]] = Field(
        {}, description="grid of settings: dotted key -> values; a row per point"
    )
    figure: Literal["bars", "curves", "grid", "none"] = "none"
    expected: dict[str, dict[str, dict[str, list[float]]]] = Field(
        {},
        description="published values: data set -> row -> measure -> mean and, if known, deviation",
    )

    @field_validator("measures")
    @classmethod
    def _check_measures(cls, measures: list[str]) -> list[str]:
        unknown = [name for name in measures if not (name in MEASURES or OF_SLICE.fullmatch(name))]
        if unknown or len(set(measures)) < len(measures):
            near = suggest(unknown[0], (*MEASURES, *_SLICED)) if unknown else ""
            raise ValueError(
                f"must be different ones of {list(MEASURES)} or SLICE/MEASURE, such as tail/R@5"
                + (f", not {unknown}; {near}" if unknown else "")
            )
        return measures

    @model_validator(mode="after")
    def _check_whole(self) -> Self:
        if fault := self._find_size_fault():
            raise ValueError(fault)
        faults = [*self._find_row_faults(), *self._find_expected_faults()]
        faults += [*self._find_search_faults(), *self._find_named_faults()]
        on_test = [name for name in self.measures if name in _ON_TEST or "/" in name]
        if self.split == "valid" and on_test:
            faults.append(f"'measures': {on_test} are measured on test only, but 'split' is valid.")
        if not faults and self.reference is not None:
            names = [row.name for row in self.expand([])]
            if self.reference not in names:
                clause = suggest(self.reference, names)
                faults.append(f"'reference' must be one of the rows {names}, found "
                              f"'{self.reference}'; {clause}.")  # fmt: skip
        if both := [name for name in self.report_on if name in self.tuned_on]:
            faults.append(f"'report_on': {both} are in 'tuned_on', too; take them out of one.")
        if faults:
            raise ValueError("\n".join(faults))
        return self

    def _find_size_fault(self) -> str | None:
        """Checks the size of the grid by counting, before it is written out."""
        rows = len(self.rows) * prod(map(len, self.grid.values()))
        cells = rows * self.runs * len(self.datasets)
        for what, number, most in (("rows", rows, MAX_ROWS), ("runs", cells, MAX_CELLS)):
            if number > most:
                found = f"{number:,}" if number < 10**18 else "more than 10^18"
                return (
                    f"'rows', 'grid', 'datasets' and 'runs' must give at most {most:,} {what}, "
                    f"found {found}."
                )
        if self.seeds[-1] >= 2**32:
            return f"'seed' and 'runs' must give seeds below 2^32, found {self.seeds[-1]:,}."
        return None

    def _find_row_faults(self) -> list[str]:
        faults = []
        if empty := [key for key, values in self.grid.items() if not values]:
            faults.append(f"'grid' must give every setting values, found none for {empty}.")
        names = [row.name for row in self.rows]
        is_one = len(names) == 1 and EACH_FIELD not in names[0]
        if self.figure == "grid" and not (is_one and len(self.grid) == 2):
            faults.append(
                f"'figure': a grid is drawn of one row, without {EACH_FIELD} in its name, over two "
                f"settings in 'grid', found {shorten(names)} and {len(self.grid)}."
            )
        planned = self.expand(["x"]) if not faults else []
        return faults + (find_name_faults(self.rows) or find_name_faults(planned))

    def _find_search_faults(self) -> list[str]:
        faults = []
        named = {row.name: row for row in self.rows}
        for row in self.rows:
            if row.base is None:
                continue
            base = named.get(row.base)
            if base is None or base.base is not None:
                faults.append(
                    f"'rows', {row.name}: 'base' must be a row that has none itself, found "
                    f"'{row.base}'; {suggest(row.base, named)}."
                )
            elif (row.encoder, row.preset) != (base.encoder, base.preset):
                faults.append(
                    f"'rows', {row.name}: 'encoder' and 'preset' must be those of its 'base', "
                    f"{base.encoder} and {base.preset or 'none'}, found {row.encoder} and "
                    f"{row.preset or 'none'}."
                )
            if row.space:
                faults.append(f"'rows', {row.name}: it has the settings of 'base', so no 'space'.")
        measure = self.search.measure
        growing = [one for one in MEASURES if one not in {*_ON_TEST, *LOWER_IS_BETTER}]
        if measure not in growing:
            faults.append(
                f"'search.measure' must be measured on valid, more of it being better, found "
                f"'{measure}'; {suggest(measure, growing)}."
            )
        return faults

    def _find_named_faults(self) -> list[str]:
        """Sentences about settings that a key of the experiment or of a row overrides."""
        layers = {
            "settings": self.settings, "overrides": self.overrides, "grid": dict(self.grid),
            "search.space": self.search.space,
        }  # fmt: skip
        for row in self.rows:
            layers |= {f"rows, {row.name}, settings": row.settings}
            layers |= {f"rows, {row.name}, space": row.space}
        faults = []
        for place, layer in layers.items():
            content = _join_layers(
                {key: value} for keys, value in layer.items() for key in split_keys(keys)
            )
            faults += [
                f"'{place}': {key} is not set here but by {instead}; move it there."
                for key, instead in _NAMED.items()
                if find_setting(content, key) is not ...
            ]
        return faults

    def _find_expected_faults(self) -> list[str]:
        names = {row.name for row in self.expand([])}
        faults = []
        for dataset, rows in self.expected.items():
            for name, measures in rows.items():
                place = f"expected.{dataset}.{name}"
                if name not in names:
                    faults.append(f"'{place}': there is no such row; {suggest(name, names)}.")
                for measure, values in measures.items():
                    if measure not in self.measures:
                        faults.append(f"'{place}': '{measure}' is not one of 'measures'.")
                    if len(values) not in (1, 2):
                        faults.append(
                            f"'{place}.{measure}': must be a mean and, if known, a standard "
                            f"deviation, found {len(values)} numbers."
                        )
        return faults

    @property
    def seeds(self) -> list[int]:
        """Seeds, one per run."""
        return [self.seed + number for number in range(self.runs)]

    def expand(self, fields: Sequence[str]) -> list[PlannedRow]:
        """Rows for a data set with these metadata fields, in order."""
        return [planned for row in self.rows for planned in self.expand_row(row, fields)]

    def expand_row(self, row: Row, fields: Sequence[str]) -> list[PlannedRow]:
        """Rows that one of the file becomes for a data set with these metadata fields, in order."""
        rows: list[PlannedRow] = []
        settings = {other.name: other.settings for other in self.rows}
        for field in fields if EACH_FIELD in row.name else [""]:
            content = row.model_dump()
            content["settings"] = {**settings.get(row.base or "", {}), **row.settings}
            content["name"] = row.name.replace(EACH_FIELD, field)
            content["ablation"] = [one.replace(EACH_FIELD, field) for one in row.ablation]
            for values in product(*self.grid.values()):
                point = dict(zip(self.grid, values, strict=True))
                parts = [f"{key.split('.')[-1]}={value}" for key, value in point.items()]
                name = ", ".join([content["name"], *parts])
                rows.append(PlannedRow(**{**content, "name": name, "point": point}))
        return rows

    def configure(self, row: PlannedRow, seed: int) -> Config:
        """Configuration of a row before it is resolved for a data set; imports its code.

        Raises:
            ConfigError: With every fault.
        """
        config = load_preset_config(None, self.list_settings(row, seed), row.preset)
        find_model(config)  # or says that there is none
        return config

    def list_settings(self, row: PlannedRow, seed: int) -> list[str]:
        """Settings of a row as ``key=value``, without those of a preset.

        Raises:
            ConfigError: A key goes through a setting that is no section.
        """
        types = self.list_featured(row)
        overrides = {
            key: value
            for key, value in self.overrides.items()
            if (node_type := find_source_type(key)) is None or node_type in types
        }
        named = {"model.encoder": row.encoder, "ablation": row.ablation, "seed": seed}
        return _write_settings([self.settings, *row.layers, overrides, named])

    def list_own_settings(self, row: PlannedRow) -> list[str]:
        """Settings of a row as ``key=value``, without those that all rows share."""
        return _write_settings([*row.layers, {"model.encoder": row.encoder}])

    def list_featured(self, row: PlannedRow) -> Collection[str]:
        """Node types that have features in a row."""
        found = find_setting(_join_layers([self.settings, *row.layers]), "data.features")
        return () if found in (..., None) else found

    def is_overridden(self, key: str) -> bool:
        """True if the overrides of the experiment (`--set`) fix the value of a setting."""
        return find_setting(_join_layers([self.overrides]), key) is not ...

    def sets(self, row: PlannedRow, key: str) -> bool:
        """Whether the experiment sets a row's setting, beyond an encoder's preset."""
        content = _join_layers([self.settings, *row.layers, self.overrides])
        return find_setting(content, key) not in (..., None)


def find_name_faults(rows: Sequence[Row]) -> list[str]:
    """Sentences about rows with equal names, or with names that give equal folders or none."""
    faults: list[str] = []
    seen: dict[str, str] = {}
    for row in rows:
        if (size := len(row.folder_name.encode())) > _MAX_NAME:
            faults.append(
                f"'rows': a name must be at most {_MAX_NAME} bytes long, as it names a folder, "
                f"found {size} in {shorten(row.name)}; shorten it."
            )
        other = seen.setdefault(row.folder_name.lower(), row.name)
        if other != row.name:
            faults.append(
                f"'rows': the names '{other}' and '{row.name}' must differ in letters or digits, "
                f"as they name folders."
            )
    names = Counter(row.name for row in rows)
    doubled = [name for name, number in names.items() if number > 1]
    return [f"'rows': the name '{name}' must be that of one row only." for name in doubled] + faults


def find_source_type(key: str) -> str | None:
    """Node type in the key of a part of its features, ``data.features.TYPE.PART``; else None."""
    found = _FEATURE_PART.match(key)
    return None if found is None else found[1]


def _join_layers(layers: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Nested settings from layers of dotted keys; later layers win."""
    content: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            put(content, key, deepcopy(value))
    return content


def _write_settings(layers: Iterable[dict[str, Any]]) -> list[str]:
    return [f"{key}={write_value(value)}" for layer in layers for key, value in layer.items()]


def write_value(value: Any) -> str:
    """Value as one line of YAML; JSON's 1e-05 would be read back as text."""
    text: str = dump_yaml(value, default_flow_style=True, allow_unicode=True, width=10**9)
    return text.removesuffix("...\n")
