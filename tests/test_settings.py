"""`list_settings`: keys of a schema in words."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from match_graph.settings import Setting, list_settings


class _Part(BaseModel):
    rate: Annotated[float, Field(gt=0, le=1, description="Rate.")] = 0.5


class _Schema(BaseModel):
    kind: Annotated[Literal["sum", "mean"] | None, Field(description="Kind.")] = None
    names: Annotated[list[str], Field(description="Names.")] = ["a", "é"]
    options: Annotated[dict[str, int], Field(description="Options.")] = {}
    path: Annotated[str, Field(description="Path.")]
    part: Annotated[_Part, Field(description="Part.")] = _Part()


def test_list_settings_says_types_bounds_and_defaults() -> None:
    """Sections by their keys; defaults as YAML in one line; choices behind the meaning."""
    found = list_settings(_Schema, "model.")
    assert found == [
        Setting("model.kind", "sum or mean or null", "null", "Kind.", ["sum", "mean"]),
        Setting("model.names", "list of str", "[a, é]", "Names.", []),
        Setting("model.options", "mapping", "{}", "Options.", []),
        Setting("model.path", "str", "required", "Path.", []),
        Setting("model.part.rate", "float, > 0, ≤ 1", "0.5", "Rate.", []),
    ]
    assert found[0].about == "Kind. (sum | mean)"
