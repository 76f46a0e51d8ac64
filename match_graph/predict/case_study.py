"""Case studies as data: one document, several models, evidence of each prediction."""

from pydantic import Field

from match_graph.config import StrictModel
from match_graph.predict.names import show_name


class Evidence(StrictModel):
    """Evidence of one metadata token for a prediction.

    Args:
        field: Metadata field of the token.
        name: Id of the instance.
        title: Name of the instance, where the data set has one besides the id.
        is_known: Whether the instance has a token of its own; otherwise it was read as [UNK].
        attention: Share of the attention of the document's states over all of its tokens, in 0..1;
            None where the encoder has no such attention.
        effect: Leave-one-out effect: the label's score less its score when the document comes
            without the instance, in log-odds: positive where the instance speaks for the label.
        linear: What the linear classifier adds to the score: exact, or to first order where it
            clusters the labels; None without one.
    """

    field: str
    name: str
    is_known: bool
    attention: float | None
    effect: float
    linear: float | None
    title: str | None = None

    def __str__(self) -> str:
        return f"{self.field} {show_name(self.name, self.title)}"


class WordEvidence(StrictModel):
    """Contribution of a word to a label's logit by the linear classifier, as in `Evidence`."""

    word: str
    linear: float


class Pull(StrictModel):
    r"""Hypernymy regularization of a predicted label and one of its parents.

    Args:
        parent: Id of the parent label.
        name: Name of the parent label, where the data set has one.
        probability: Probability of the parent, in 0..1.
        weight: Weight of the edge in the loss; None for a baseline, which has no such loss.
        output_term: Output-space term of edge and document in the loss, :math:`\lambda_2 a \max(0,
            \pi_c - \pi_p)`; None for a baseline.
        parameter_term: Parameter-space term of the edge, :math:`\lambda_1 a \|w_c - w_p\|^2 / 2`.
    """

    parent: str
    probability: float
    weight: float | None
    output_term: float | None
    parameter_term: float | None
    name: str | None = None

    @property
    def shown(self) -> str:
        """Parent by name and id."""
        return show_name(self.parent, self.name)

    @property
    def total(self) -> float:
        """Sum of both terms, in units of the loss of a document."""
        return (self.output_term or 0.0) + (self.parameter_term or 0.0)


class _NamedLabel(StrictModel):
    """Label by its id and, where the data set has one, its name."""

    label: str
    name: str | None = None

    @property
    def shown(self) -> str:
        """Label by name and id."""
        return show_name(self.label, self.name)


class Prediction(_NamedLabel):
    """Predicted label: one of the best labels of a variant.

    Args:
        probability: Probability of the label, in 0..1.
        score: Score of the label, in log-odds.
        is_right: Whether the label is gold; None for a document that came without labels.
        metadata: Evidence of the metadata tokens that were read, most effect first.
        words: Words with the largest positive contributions by the linear classifier.
        carried_by: Metadata token without which the score falls most; None if it falls with none.
        attended: Metadata token with the most attention; None where there is no attention.
        verdict: Summary of the two tokens above, as a sentence.
        parents: Parents of the label, with their hypernymy terms.
        pulled_by: Parent with the largest terms; None where all are 0.
    """

    probability: float
    score: float
    is_right: bool | None
    metadata: list[Evidence]
    words: list[WordEvidence]
    carried_by: str | None
    attended: str | None
    verdict: str
    parents: list[Pull]
    pulled_by: str | None


class Missed(_NamedLabel):
    """Missed label: gold, but not among the best.

    Args:
        probability: Probability of the label, in 0..1.
        rank: Rank among all labels, from 1; below the best, also where its score equals theirs.
    """

    probability: float
    rank: int


class Variant(StrictModel):
    """Variant of a case study: predictions of one run for the document.

    Args:
        run: Name of the run; that of its folder unless it has another.
        encoder: Name of the encoder.
        ablation: Ablation of the run: what was left out.
        seed: Seed of the run.
        predictions: Predicted labels, best first.
        missed: Gold labels that are not predicted, best first.
        probability: Probability of each label of the case study, in 0..1.
    """

    run: str
    encoder: str
    ablation: list[str]
    seed: int
    predictions: list[Prediction]
    missed: list[Missed]
    probability: dict[str, float]


class CaseLabel(_NamedLabel):
    """Label of a case study: gold, predicted, or an ancestor of such.

    Args:
        is_gold: Whether the label is gold for the document.
        depth: Depth in the hierarchy: edges on the longest path to a root.
        parents: Ids of all parents.
    """

    is_gold: bool
    depth: int
    parents: list[str]


class CaseStudy(StrictModel):
    """Case study: a document with the predictions of several variants of a model.

    Args:
        dataset: Name of the data set.
        document: Id of the document.
        split: Split of the document; "new" for one that is not of the data set.
        text: Beginning of the text.
        metadata: Metadata instances by field.
        labels: Labels by depth, parents before children.
        variants: Variants in the given order.
        names: Names of metadata instances by field and id, where the data set has them.
    """

    dataset: str
    document: str
    split: str
    text: str
    metadata: dict[str, list[str]]
    labels: list[CaseLabel]
    variants: list[Variant]
    names: dict[str, dict[str, str]] = Field(default_factory=dict)

    def show_labels(self, labels: list[str]) -> str:
        """Some of the labels by name and id, such as the parents of one."""
        shown = {one.label: one.shown for one in self.labels}
        return ", ".join(shown[one] for one in labels)

    def show_metadata(self, field: str) -> str:
        """Instances of a metadata field by name and id; "-" without any."""
        names = self.names.get(field, {})
        return ", ".join(show_name(one, names.get(one)) for one in self.metadata[field]) or "-"

    @property
    def gold(self) -> list[CaseLabel]:
        """Gold labels of the document."""
        return [label for label in self.labels if label.is_gold]
