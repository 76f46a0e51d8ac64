"""Options of an export: features, gold labels, texts."""

from typing import Any, Literal, TypeAlias

from match_graph.config import StrictModel, parse_settings

Features: TypeAlias = Literal["none", "ids", "pretrained"]
IncludeLabels: TypeAlias = Literal["none", "train", "all"]
Text: TypeAlias = Literal["none", "raw", "words"]


class ExportOptions(StrictModel):
    """Options of an export.

    Args:
        features: ``x`` of every node: nothing, the node's number, or pre-trained vectors.
        include_labels: Whose gold labels: of nobody, of the training documents, of all. No
            gold label of another split is an edge, whatever is chosen.
        text: Of documents: nothing, as read, or the word sequence with spaces; None is the target's
            own default.
    """

    features: Features = "none"
    include_labels: IncludeLabels = "train"
    text: Text | None = None


def parse_options(**given: Any) -> ExportOptions:
    """Options from words that a user gave.

    Raises:
        ConfigError: With every one that is no choice.
    """
    return parse_settings(ExportOptions, given, "The options of an export must be valid")
