"""Platt scaling: log-odds of each label made to say what validation documents show."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from match_graph.errors import GraphError
from match_graph.graph.csr import check_not_nan, row_index

#: Bins of log-odds: an eighth wide from -8 to 16, where the last one has no upper end.
_LOW, _HIGH, _PER_UNIT = -8, 16, 8
#: Where no score is changed; between here and the lowest bin the change fades.
_FLOOR = 2 * _LOW
#: Scores that are scaled at once: what a cache holds, which is 3 times as fast as all at once.
_CHUNK_VALUES = 2**17
#: The prior widths of the shift that are tried; 0 leaves all scores as they are.
_WIDTHS = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6)
#: The width of the logarithm of the scale, of that of the shift: both move a score of 3 as far.
_SCALE_WIDTH = 1 / 3
_MAX_STEPS, _MAX_HALVINGS, _TOLERANCE = 50, 20, 1e-6


@dataclass(frozen=True)
class PlattScaling:
    r"""What makes of the log-odds :math:`z` of a label :math:`e^a z + b`, where they are above -8.

    Below -8, where nothing ranks, the change fades; from -16 on there is none, and no score gets
    there by it. So labels which were never reached (by a beam, a tree) stay equal, and improbable
    ones stay in the order of the hierarchy. The order of documents by a label's score stays.

    Args:
        scale: :math:`e^a > 0` of each label, [L], float32.
        shift: :math:`b`, [L], float32.
        fold_scale: The same without each fold of the documents, [K, L].
        fold_shift: Likewise.
        width: The chosen width of the prior; 0 changes nothing.
        before: Held-out log-loss per document without scaling, of the pairs above the lowest bin.
        after: The same with it.
    """

    scale: Tensor
    shift: Tensor
    fold_scale: Tensor
    fold_shift: Tensor
    width: float
    before: float
    after: float

    def __call__(self, logits: Tensor, fold: Tensor | None = None) -> Tensor:
        """Scaled log-odds [B, L], float32.

        Args:
            logits: [B, L].
            fold: The fold of each document, [B], int64: scales by what the others show, so that a
                document on which the scaling was fitted can be judged. None scales by all.

        Raises:
            GraphError: The scores are of another number of labels.
        """
        if logits.size(1) != len(self.scale):
            raise GraphError(
                f"Scores must be of the labels that were scaled, found {logits.size(1)} labels for "
                f"{len(self.scale)}; fit the scaling on this data set."
            )
        tensors = (self.scale, self.shift)
        if fold is not None:
            tensors = (self.fold_scale, self.fold_shift)
        scale, shift = (tensor.to(logits.device) for tensor in tensors)
        rows = max(1, _CHUNK_VALUES // max(1, logits.size(1)))
        scaled = torch.empty_like(logits, dtype=torch.float32)
        folds = [None] * len(logits) if fold is None else fold.to(logits.device).split(rows)
        for found, part, own in zip(scaled.split(rows), logits.split(rows), folds, strict=False):
            if own is None:
                found.copy_(_scale(part.float(), scale, shift))
            else:
                found.copy_(_scale(part.float(), scale[own], shift[own]))
        return scaled

    def undo(self) -> "PlattScaling":
        """The one that changes nothing."""
        return replace(
            self,
            scale=torch.ones_like(self.scale),
            shift=torch.zeros_like(self.shift),
            fold_scale=torch.ones_like(self.fold_scale),
            fold_shift=torch.zeros_like(self.fold_shift),
            width=0.0,
            after=self.before,
        )


def _scale(logits: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Scaled log-odds of logits [B, L]; scale and shift [L] or [B, L]."""
    share = (logits / (_LOW - _FLOOR)).sub_(_FLOOR / (_LOW - _FLOOR)).clamp_(0, 1)
    change = torch.addcmul(shift, scale - 1, logits.clamp(min=_LOW))
    # where the change would fade too steeply, the order of documents is kept by a floor
    return change.mul_(share).add_(logits).maximum(logits.clamp(max=_FLOOR))


class PlattSearch:
    r"""The scaling of each label with the least penalised log-loss, from scores seen in batches.

    .. math:: \min_{a, b} \sum_d \log(1 + e^{(1 - 2 y_d) (e^a z_d + b)})
        + \frac{(3 a)^2}{2 w^2} + \frac{b^2}{2 w^2}

    over documents :math:`d` with log-odds :math:`z_d` and gold labels :math:`y_d \in \{0, 1\}`.
    A network is the surer the longer it was trained, and of some labels more than of others, so
    that its scores of different labels cannot be compared as they are; the ranking of a document's
    labels does compare them.

    Source: Platt 1999, "Probabilistic outputs for support vector machines". Differs from it by a
    normal prior around no change (a = b = 0) in the place of its softened targets, so that a label
    with few gold documents stays nearly as it is. The prior's width :math:`w`, one for all labels,
    is that with the least log-loss on held-out folds, no change among them.

    Kept are two histograms of log-odds per label and fold, of all documents and of gold ones:
    [K, L, 192] int32 each, whatever the number of documents. A score counts as the middle of its
    bin, at most 1/16 away. Those below -8 (.0003) are left out, gold or not.

    Args:
        num_labels: L.
        num_folds: K.
    """

    def __init__(self, num_labels: int, num_folds: int = 5) -> None:
        num_bins = (_HIGH - _LOW) * _PER_UNIT
        self.num_labels, self.num_folds = num_labels, num_folds
        self._all = torch.zeros(num_folds, num_labels, num_bins, dtype=torch.int32)
        self._gold = torch.zeros_like(self._all)
        self._num_documents = torch.zeros((), dtype=torch.int64)
        middle = (torch.arange(num_bins, dtype=torch.float64) + 0.5) / _PER_UNIT
        self._middle = middle + _LOW  # [num_bins]

    def update(self, logits: Tensor, label_ptr: Tensor, label_index: Tensor, fold: Tensor) -> None:
        """Adds a batch.

        Args:
            logits: Label scores before the sigmoid, [B, L].
            label_ptr: Offsets of gold labels, [B + 1], int64.
            label_index: Gold labels, packed, int64.
            fold: The fold of each document, [B], int64.

        Raises:
            GraphError: A score is NaN.
        """
        check_not_nan(logits, "Label scores")
        logits, fold = logits.float().cpu(), fold.cpu()
        document, label = (logits >= _LOW).nonzero(as_tuple=True)  # few: most are below
        self._add(self._all, fold[document], label, logits[document, label])
        document, label = row_index(label_ptr.cpu()), label_index.cpu()
        reached = logits[document, label] >= _LOW
        document, label = document[reached], label[reached]
        self._add(self._gold, fold[document], label, logits[document, label])
        self._num_documents += len(logits)

    def _add(self, histogram: Tensor, fold: Tensor, label: Tensor, logit: Tensor) -> None:
        num_bins = histogram.size(2)
        place = ((logit - _LOW) * _PER_UNIT).long().clamp(max=num_bins - 1)
        place += (fold * self.num_labels + label) * num_bins
        one = torch.ones(1, dtype=histogram.dtype).expand(place.numel())
        histogram.view(-1).index_add_(0, place, one)

    def reduce(self, total: Callable[[Tensor], Tensor]) -> None:
        """As `RankingMeter.reduce`."""
        self._all, self._gold = total(self._all), total(self._gold)
        self._num_documents = total(self._num_documents)

    def compute(self) -> PlattScaling:
        """The scaling; none changes anything if no document was added."""
        together = self._all.sum(dim=0), self._gold.sum(dim=0)
        tried = []
        for width in _WIDTHS:
            loss, folds = 0.0, []
            for count, gold in zip(self._all, self._gold, strict=True):  # without each fold
                found = self._fit(together[0] - count, together[1] - gold, width)
                loss += float(self._loss(*found, count.double(), gold.double()).sum())
                folds.append(found)
            tried.append((loss, width, folds))
        before = tried[0][0]
        loss, width, folds = min(tried, key=lambda one: one[0])
        a, b = self._fit(*together, width)
        num_documents = max(int(self._num_documents), 1)
        return PlattScaling(
            scale=a.exp().float(),
            shift=b.float(),
            fold_scale=torch.stack([one.exp().float() for one, _ in folds]),
            fold_shift=torch.stack([one.float() for _, one in folds]),
            width=width,
            before=before / num_documents,
            after=loss / num_documents,
        )

    def _loss(self, a: Tensor, b: Tensor, count: Tensor, gold: Tensor) -> Tensor:
        """Log-loss of each label over its histograms [L, num_bins], [L]."""
        scaled = a.exp().unsqueeze(1) * self._middle + b.unsqueeze(1)
        softplus = torch.nn.functional.softplus(scaled)
        return (count * softplus - gold * scaled).sum(dim=1)

    def _fit(self, count: Tensor, gold: Tensor, width: float) -> tuple[Tensor, Tensor]:
        """The best (a, b) of each label, [L] each, float64: Fisher scoring, steps halved."""
        a = torch.zeros(self.num_labels, dtype=torch.float64)
        b = torch.zeros_like(a)
        if width == 0.0:
            return a, b
        count, gold = count.double(), gold.double()
        precision_a, precision_b = (_SCALE_WIDTH * width) ** -2, width**-2

        def objective(a: Tensor, b: Tensor) -> Tensor:
            prior = (precision_a * a.square() + precision_b * b.square()) / 2
            return self._loss(a, b, count, gold) + prior

        current = objective(a, b)
        for _ in range(_MAX_STEPS):
            slope = a.exp().unsqueeze(1) * self._middle  # of the scaled score by a, [L, num_bins]
            probability = torch.sigmoid(slope + b.unsqueeze(1))
            excess = count * probability - gold
            weight = count * probability * (1 - probability)
            gradient_a = (excess * slope).sum(dim=1) + precision_a * a
            gradient_b = excess.sum(dim=1) + precision_b * b
            aa = (weight * slope.square()).sum(dim=1) + precision_a
            ab = (weight * slope).sum(dim=1)
            bb = weight.sum(dim=1) + precision_b
            determinant = aa * bb - ab.square()
            step_a = (bb * gradient_a - ab * gradient_b) / determinant
            step_b = (aa * gradient_b - ab * gradient_a) / determinant
            length = torch.ones_like(a)
            for _ in range(_MAX_HALVINGS):
                new = objective(a - length * step_a, b - length * step_b)
                worse = new > current
                if not bool(worse.any()):
                    break
                length = torch.where(worse, length / 2, length)
            length = torch.where(worse, 0.0, length)  # the last bits of a sum
            a, b = a - length * step_a, b - length * step_b
            current = torch.where(worse, current, new)
            if float((length * torch.maximum(step_a.abs(), step_b.abs())).max()) < _TOLERANCE:
                break
        return a, b
