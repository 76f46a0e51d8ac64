"""Options of an export: features, gold labels, texts."""

from typing import Any, Literal, TypeAlias

from match_graph.config import StrictModel, parse_settings

Features: TypeAlias = Literal["none", "ids", "pretrained"]
IncludeLabels: TypeAlias = Literal["none", "train", "all"]
Text: TypeAlias = Literal["none", "raw", "words"]


class ExportOptions(StrictModel):
    """Options of an export.

    Args:
        features: Node features ``x``: none, the node's index, or pre-trained vectors.
        include_labels: Documents whose gold labels are exported: none, train, or all. No gold label
            of another split is an edge, whatever is chosen.
        text: Document texts: none, raw, or the word sequence with spaces; None is the target's own
            default.
    """

    features: Features = "none"
    include_labels: IncludeLabels = "train"
    text: Text | None = None


def parse_options(**given: Any) -> ExportOptions:
    """Export options from a user's words.

    Raises:
        ConfigError: With every one that is no choice.
    """
    return parse_settings(ExportOptions, given, "The options of an export must be valid")
