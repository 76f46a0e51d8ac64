"""Search spaces: ranges and choices of settings by key, read from an experiment."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from match_graph.config import Config, StrictModel

if TYPE_CHECKING:
    from optuna import Trial

#: Values of a choice.
Scalar = bool | int | float | str | None


class Range(StrictModel):
    """Range of a number; of whole numbers where both ends are."""

    low: int | float = Field(description="least value")
    high: int | float = Field(description="greatest value")
    log: bool = Field(False, description="whether its logarithm is drawn uniformly")

    @model_validator(mode="after")
    def _check_ends(self) -> Self:
        if not self.low < self.high or (self.log and self.low <= 0):
            above = " above 0" if self.log else ""
            raise ValueError(f"low must be{above} below high, found {self.low} and {self.high}")
        return self

    def holds(self, value: object) -> bool:
        """Whether a value is within."""
        return isinstance(value, int | float) and self.low <= value <= self.high

    @property
    def is_whole(self) -> bool:
        """True for a range of integers, false for one of real numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def draw(self, trial: "Trial", key: str) -> int | float:
        """Value for a trial."""
        if self.is_whole:
            return trial.suggest_int(key, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(key, self.low, self.high, log=self.log)


#: Range or list of choices by dotted key, or by several that take the same value, joined by commas.
Space = dict[str, Range | Annotated[list[Scalar], Field(min_length=1)]]


class Search(StrictModel):
    """Search of settings by validation, the same for every row."""

    space: Space = Field(
        {},
        description="settings to search for every network: dotted key, or several with commas "
        "between -> {low, high, log} or a list",
    )
    measure: str = Field("NDCG@5", description="measure on valid, its mean over the data sets")
    trials: int = Field(12, ge=1, le=10_000, description="trials of each row")
    minutes: float | None = Field(
        None, gt=0, le=10**6, description="minutes of all trials of a row; none: no limit"
    )


def draw_settings(space: Space, trial: "Trial") -> dict[str, Any]:
    """Settings of a trial by dotted key."""
    drawn: dict[str, Any] = {}
    for keys, values in space.items():
        value = (
            values.draw(trial, keys)
            if isinstance(values, Range)
            else trial.suggest_categorical(keys, values)
        )
        drawn |= dict.fromkeys(split_keys(keys), value)
    return drawn


def find_defaults(space: Space, configs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Point of the settings that all configurations already have, where the space contains them.

    Args:
        space: Space of the search.
        configs: Configuration of each data set, as nested mappings.
    """
    found: dict[str, Any] = {}
    for keys, values in space.items():
        value, *others = (find_setting(one, key) for one in configs for key in split_keys(keys))
        if any(other != value for other in others):
            continue  # no value is that of all
        is_there = values.holds(value) if isinstance(values, Range) else value in values
        if is_there:
            found[keys] = value
    return found


def list_points(space: Space) -> Iterator[dict[str, Any]]:
    """Every point of a finite space; nothing for a space with a range of real numbers."""
    axes: list[Sequence[Scalar]] = []
    for values in space.values():
        if not isinstance(values, Range):
            axes.append(values)
        elif values.is_whole:
            axes.append(range(int(values.low), int(values.high) + 1))
        else:
            return
    for point in product(*axes):
        yield dict(zip(space, point, strict=True))


def split_keys(keys: str) -> list[str]:
    """Keys that take one value."""
    return [key.strip() for key in keys.split(",")]


def list_ends(values: Range | Sequence[Scalar]) -> Sequence[Scalar]:
    """Values to validate in place of all: the ends of a range, or every choice."""
    return (values.low, values.high) if isinstance(values, Range) else values


def spread_sections(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings by dotted key, where sections of the configuration are split into their keys.

    As a whole, a section would replace what other layers set in it.

    Raises:
        ValueError: A key is set twice, by itself and in a section.
    """
    found: dict[str, Any] = {}
    for key, value in settings.items():
        field = Config.model_fields.get(key)
        is_section = field is not None and isinstance(field.default_factory, type)
        parts = {key: value}
        if is_section and isinstance(value, Mapping):
            parts = {f"{key}.{name}": one for name, one in value.items()}
        if twice := sorted(found.keys() & parts):
            raise ValueError(f"a setting must be given once, but {twice} are there twice")
        found |= parts
    return found


#: Settings by dotted key.
Settings = Annotated[dict[str, Any], AfterValidator(spread_sections)]


def find_setting(content: Any, key: str) -> Any:
    """Value of a dotted key in nested mappings; ``...`` where it is not set."""
    for name in key.split("."):
        if not isinstance(content, Mapping) or name not in content:
            return ...  # unlike None, which is a value
        content = content[name]
    return content
