"""Case studies as data: one document, several models, evidence of each prediction."""

from match_graph.config import StrictModel


class Evidence(StrictModel):
    """Evidence of one metadata token for a prediction.

    Args:
        field: Of the token.
        name: Of the instance.
        is_known: Whether it has a token of its own; otherwise it was read as [UNK].
        attention: Share of the attention of the document's states over all of its tokens, in 0..1;
            None where the encoder has no such attention.
        effect: The label's score less its score when the document comes without the instance, in
            log-odds: positive where the instance speaks for the label.
        wide: What it adds to the label's score through the wide term, exactly; None without one.
    """

    field: str
    name: str
    is_known: bool
    attention: float | None
    effect: float
    wide: float | None

    def __str__(self) -> str:
        return f"{self.field} {self.name}"


class WordEvidence(StrictModel):
    """Contribution of a word to a label's logit through the wide term, exact."""

    word: str
    wide: float


class Pull(StrictModel):
    r"""What hypernymy regularization does about a predicted label and one of its parents.

    Args:
        parent: A label.
        probability: Of the parent.
        weight: Of the edge in the loss; None for a baseline, which has no such loss.
        output_term: What edge and document add to the loss, :math:`\lambda_2 a \max(0, \pi_c -
            \pi_p)`; None likewise.
        parameter_term: What the edge adds to it, :math:`\lambda_1 a \|w_c - w_p\|^2 / 2`.
    """

    parent: str
    probability: float
    weight: float | None
    output_term: float | None
    parameter_term: float | None

    @property
    def total(self) -> float:
        """Both terms, in units of the loss of a document."""
        return (self.output_term or 0.0) + (self.parameter_term or 0.0)


class Prediction(StrictModel):
    """One of the best labels of a variant.

    Args:
        label: Its id.
        probability: In 0..1.
        score: In log-odds.
        is_right: Whether it is gold.
        metadata: The tokens that were read, most effect first.
        words: Those with the largest positive additions of the wide term.
        carried_by: The metadata token without which the score falls most; None if with none.
        attended: The metadata token with the most attention; None where there is no attention.
        verdict: What both say, as a sentence.
        parents: Of the label.
        pulled_by: The parent with the largest terms; None where all are 0.
    """

    label: str
    probability: float
    score: float
    is_right: bool
    metadata: list[Evidence]
    words: list[WordEvidence]
    carried_by: str | None
    attended: str | None
    verdict: str
    parents: list[Pull]
    pulled_by: str | None


class Missed(StrictModel):
    """A gold label that is not among the best.

    Args:
        label: Its id.
        probability: In 0..1.
        rank: Among all labels, from 1; below the best, also where its score equals theirs.
    """

    label: str
    probability: float
    rank: int


class Variant(StrictModel):
    """Predictions of one run for the document.

    Args:
        run: Its name; that of its folder unless it has another.
        encoder: Its name.
        ablation: What was left out.
        seed: Of the run.
        predictions: Best first.
        missed: Gold labels below them, best first.
        probability: Of each label of the case study.
    """

    run: str
    encoder: str
    ablation: list[str]
    seed: int
    predictions: list[Prediction]
    missed: list[Missed]
    probability: dict[str, float]


class CaseLabel(StrictModel):
    """A label that has to do with the document: gold, predicted, or an ancestor of such.

    Args:
        label: Its id.
        name: Where the data set names its labels otherwise.
        is_gold: Of the document.
        depth: Edges on the longest path to a root.
        parents: All of its parents.
    """

    label: str
    name: str | None
    is_gold: bool
    depth: int
    parents: list[str]


class CaseStudy(StrictModel):
    """A document with what variants of a model say of it; `model_dump_json` writes it.

    Args:
        dataset: Its name.
        document: The id.
        split: Of the document.
        text: Its beginning.
        metadata: Field -> instances.
        labels: By depth, parents before children.
        variants: In the order in which they were given.
    """

    dataset: str
    document: str
    split: str
    text: str
    metadata: dict[str, list[str]]
    labels: list[CaseLabel]
    variants: list[Variant]

    @property
    def gold(self) -> list[CaseLabel]:
        """The gold labels."""
        return [label for label in self.labels if label.is_gold]
