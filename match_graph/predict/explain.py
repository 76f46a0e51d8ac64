"""Explanations of a trained run's predictions: metadata, words, parents."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from match_graph.metrics.ranking import choose_labels
from match_graph.predict.case_study import Evidence, Prediction, Pull, WordEvidence
from match_graph.predict.classifier import DEFAULT_TOP_K, load
from match_graph.predict.documents import check_counts
from match_graph.predict.evidence import DocumentEvidence, judge
from match_graph.predict.names import find_metadata_names, find_names
from match_graph.runs.run import Run
from match_graph.runs.vocabulary import ReadDocument
from match_graph.typing import LABEL

#: Words that are shown with what the linear classifier adds for them.
_WORDS = 5


@dataclass(frozen=True)
class Explanation:
    """Explained predictions of one run for a document.

    Args:
        document: The document, as the run reads it.
        logits: Label scores before the sigmoid, [L], float32.
        predictions: Predicted labels with evidence, best first.
    """

    document: ReadDocument
    logits: Tensor
    predictions: list[Prediction]


class Explainer:
    """Explainer of a trained run's predictions.

    All is computed in float32, whatever the precision of the run: differences between scores would
    drown in the rounding of bfloat16. Scores are those of `Classifier`, scaled where the run scales
    them; so are what the linear classifier adds, and the probabilities in the hypernymy terms,
    which training took as they were. With a coherent output, what the classifier adds is to a
    label's own score, which is not the final one where a descendant's is larger.

    Args:
        run: Trained run.
        device: Device, as for `load`.
        encoder: Encoder, as for `load`.
        head: Head, as for `load`.

    Raises:
        CheckpointError: The run is not trained.
    """

    def __init__(
        self,
        run: Run,
        device: str = "auto",
        encoder: str | None = None,
        head: str | None = None,
    ) -> None:
        self.run = run
        #: What the variant is called.
        self.name = run.folder.name
        self.classifier = load(run.folder, device, encoder, head, precision="32-true")
        self.labels: list[str] = run.dataset.names(LABEL).tolist()
        self.names = find_names(run.dataset, LABEL, self.labels)

    def explain(
        self, record: Mapping[str, Any], top_k: int = DEFAULT_TOP_K, place: str = "the document"
    ) -> Explanation:
        """Explains the best labels of a document.

        Args:
            record: Document in the MATCH format; ``label`` are the gold labels, if they are there.
            top_k: Number of labels.
            place: Where it stands, for faults.

        Raises:
            ConfigError: ``top_k`` is below 1.
            CorpusError: It has no text, a field of the wrong type, or no features where the run
                needs some.
        """
        check_counts(top_k=top_k)
        is_known = isinstance(record, Mapping) and record.get(LABEL) is not None
        read = self.classifier.read(record, place, with_gold=is_known)
        gold = read.gold if is_known else None
        document = DocumentEvidence(self.classifier, read)
        logits = document.score()
        chosen = choose_labels(logits[:1], top_k, None, self.classifier.label_rank)[0]
        best = torch.tensor([label for label, _ in chosen], dtype=torch.int64)
        evidence, words = document.weigh(logits, best, _WORDS)
        titles = find_metadata_names(self.run.dataset, [read.metadata])
        predictions = [
            self._describe(logits[0], label, gold, _name(known, titles), added)
            for (label, _), known, added in zip(chosen, evidence, words, strict=True)
        ]
        return Explanation(read, logits[0], predictions)

    def _describe(
        self,
        logits: Tensor,
        label: int,
        gold: Sequence[str] | None,
        evidence: list[Evidence],
        words: list[WordEvidence],
    ) -> Prediction:
        carried, attended, verdict = judge(evidence)
        parents = self._find_pulls(logits, label)
        strongest = max(parents, key=lambda pull: pull.total, default=None)
        return Prediction(
            label=self.labels[label],
            name=self.names.get(self.labels[label]),
            probability=float(torch.sigmoid(logits[label])),
            score=float(logits[label]),
            is_right=None if gold is None else self.labels[label] in gold,
            metadata=sorted(evidence, key=lambda one: -one.effect),
            words=words,
            carried_by=carried,
            attended=attended,
            verdict=verdict,
            parents=parents,
            pulled_by=strongest.parent if strongest and strongest.total > 0 else None,
        )

    def _find_pulls(self, logits: Tensor, label: int) -> list[Pull]:
        """Parents of a label with the hypernymy terms of their edges."""
        hierarchy = self.run.hierarchy
        edges = (hierarchy.edge_index[0] == label).nonzero().view(-1)
        parents = hierarchy.edge_index[1, edges]
        probability = torch.sigmoid(logits)
        columns: list[list[float] | list[None]] = [[None] * len(edges)] * 3
        if self.classifier.network is not None:
            config, rows = self.run.config.train, self.classifier.network.head.label_weight.detach()
            weight = hierarchy.edge_weight[edges]
            excess = (probability[label] - probability[parents]).clamp(min=0)
            apart = (rows[parents.to(rows.device)] - rows[label]).square().sum(dim=1).cpu() / 2
            terms = config.lambda_output * weight * excess, config.lambda_parameter * weight * apart
            columns = [weight.tolist(), *(term.tolist() for term in terms)]
        names = [self.labels[parent] for parent in parents.tolist()]
        return [
            Pull(
                parent=name,
                name=self.names.get(name),
                probability=share,
                weight=weight,
                output_term=out,
                parameter_term=own,
            )
            for name, share, weight, out, own in zip(
                names, probability[parents].tolist(), *columns, strict=True
            )
        ]


def _name(evidence: Sequence[Evidence], titles: Mapping[str, Mapping[str, str]]) -> list[Evidence]:
    """Evidence with the names of instances that are known by field and id."""
    return [
        one.model_copy(update={"title": titles.get(one.field, {}).get(one.name)})
        for one in evidence
    ]
