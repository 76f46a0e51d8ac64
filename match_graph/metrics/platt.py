"""Per-label Platt scaling, fitted on validation documents."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from match_graph.errors import GraphError
from match_graph.graph.csr import check_not_nan, row_index
from match_graph.metrics.meter import Meter, add_to_bins

#: Bins of log-odds: an eighth wide from -8 to 16, where the last one has no upper end.
_LOW, _HIGH, _PER_UNIT = -8, 16, 8
#: Log-odds below which no score is changed; up to the lowest bin the change fades in.
_FLOOR = 2 * _LOW
#: Scores that are scaled at once: they fit into a cache, which is 3 times as fast.
_CHUNK_VALUES = 2**17
#: Candidate widths of the prior of the shift; 0 leaves all scores as they are.
_WIDTHS = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6)
#: Width of the log-scale's prior, as a share of the shift's: both move a score of 3 equally far.
_SCALE_WIDTH = 1 / 3
_MAX_STEPS, _MAX_HALVINGS, _TOLERANCE, _ROUNDING = 50, 20, 1e-6, 1e-12
#: Bins of all folds that are fitted at once: they fit into a cache.
_BLOCK_VALUES = 2**16


@dataclass(frozen=True)
class PlattScaling:
    r"""Platt scaling of each label: log-odds :math:`z` become :math:`e^a z + b` if above -8.

    Below -8, where labels are not ranked among the best, the change fades; below -16 there is none,
    and no score is moved there. So labels outside a beam stay equal, and improbable ones stay in
    the order of the hierarchy. The order of documents by a label's score is kept.

    Args:
        scale: Slope :math:`e^a > 0` of each label, [L], float32.
        shift: Intercept :math:`b` of each label, [L], float32.
        fold_scale: Slopes fitted without each fold of the documents, [K, L].
        fold_shift: Intercepts fitted without each fold of the documents, [K, L].
        width: Chosen width of the prior; 0 changes nothing.
        before: Held-out log-loss per document without scaling, of the pairs above the lowest bin.
        after: Held-out log-loss per document with scaling, of the same pairs.
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
            logits: Label scores before the sigmoid, [B, L].
            fold: Fold of each document, [B], int64: scales as fitted without it, so that documents
                on which the scaling was fitted can be evaluated. None scales as fitted on all.

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
        """Identity scaling of as many labels and folds."""
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
    change = torch.addcmul(shift, scale - 1, logits.clamp(_LOW, torch.finfo(logits.dtype).max))
    # where the change would fade too steeply, the order of documents is kept by a floor
    return change.mul_(share).add_(logits).maximum(logits.clamp(max=_FLOOR))


class PlattSearch(Meter):
    r"""The scaling of each label with the least penalised log-loss, from scores seen in batches.

    .. math:: \min_{a, b} \sum_d \log(1 + e^{(1 - 2 y_d) (e^a z_d + b)})
        + \frac{(3 a)^2}{2 w^2} + \frac{b^2}{2 w^2}

    over documents :math:`d` with log-odds :math:`z_d` and gold labels :math:`y_d \in \{0, 1\}`.
    A network grows overconfident with training, for some labels more than for others, so that its
    scores of different labels are not comparable, while the ranking of a document's labels compares
    them.

    Source: Platt 1999, "Probabilistic outputs for support vector machines". Differs from it by a
    normal prior around no change (a = b = 0) instead of its softened targets, so that a label
    with few gold documents stays nearly as it is. The prior's width :math:`w`, one for all labels,
    is that with the least log-loss on held-out folds; no change is one of the candidates.

    Memory holds two histograms of log-odds per label and fold, of all documents and of gold ones:
    [K, L, 192] int32 each, for any number of documents: 128 MB for 16,632 labels and 5 folds.
    A score counts as the middle of its bin, at most 1/16 away; one above 16 as 15.9. Those below
    -8 (.0003) are left out, gold or not.

    Args:
        num_labels: Number of labels L.
        num_folds: Number of folds K.
    """

    summed = ("_all", "_gold", "_num_documents")

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
            fold: Fold of each document, [B], int64.

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
        place = ((logit - _LOW) * _PER_UNIT).clamp(max=num_bins - 1).long()  # 1e30 is no int64
        place += (fold * self.num_labels + label) * num_bins
        add_to_bins(histogram, place)

    def compute(self) -> PlattScaling:
        """The scaling; the identity if no document was added.

        Labels are independent, so they are fitted block by block, each for all folds at once.
        """
        occupied = (self._all > 0).any(dim=0)  # [L, num_bins]
        num_bins, order = occupied.sum(dim=1).sort(stable=True)  # little padding in a block
        number = num_bins.cumsum(0) * (self.num_folds + 1) // _BLOCK_VALUES  # of a label's block
        shape = 2, len(_WIDTHS), self.num_folds + 1, self.num_labels
        found = torch.zeros(shape, dtype=torch.float64)
        loss = torch.zeros(len(_WIDTHS), dtype=torch.float64)
        for labels in order.split(number.unique(return_counts=True)[1].tolist()):
            block = self._take(labels, occupied[labels])
            at = found.new_zeros(2, len(labels), self.num_folds + 1)
            for place, width in enumerate(_WIDTHS):
                if width:
                    at = block.fit(at, width)  # warm start from the narrower prior
                loss[place] += block.held_out_loss(at)
                found[:, place, :, labels] = at.transpose(1, 2)
        best, per_document = int(loss.argmin()), loss / max(int(self._num_documents), 1)
        scale, shift = found[0, best].exp().float(), found[1, best].float()
        return PlattScaling(
            scale=scale[-1].clone(),
            shift=shift[-1].clone(),
            fold_scale=scale[:-1].clone(),
            fold_shift=shift[:-1].clone(),
            width=_WIDTHS[best],
            before=float(per_document[0]),
            after=float(per_document[best]),
        )

    def _take(self, labels: Tensor, occupied: Tensor) -> "_Block":
        """The histograms of some labels [n], without the bins that none of a label's scores hit."""
        num_bins = max(1, int(occupied.sum(dim=1).max()))
        place = torch.argsort(~occupied, dim=1, stable=True)[:, :num_bins]  # [n, m]
        middle = self._middle[place]
        counts = []
        for histogram in (self._all, self._gold):
            folds = histogram[:, labels].gather(2, place.expand(self.num_folds, -1, -1)).double()
            total = folds.sum(dim=0, keepdim=True)
            counts.append(torch.cat([total - folds, total]).transpose(0, 1).contiguous())
        powers = torch.stack([torch.ones_like(middle), middle, middle.square()], dim=2)
        return _Block(powers, counts[0], counts[1] @ powers[:, :, :2])


@dataclass(frozen=True)
class _Block:
    """Histograms of n labels over the m bins that hold scores, without each fold and of all.

    Args:
        powers: Powers 1, z and z^2 of the middle z of each bin, [n, m, 3], float64.
        count: Number of documents in each bin, [n, K + 1, m], float64.
        gold: Number and summed scores of the gold documents, [n, K + 1, 2], float64.
    """

    powers: Tensor
    count: Tensor
    gold: Tensor

    def held_out_loss(self, at: Tensor) -> float:
        """Log-loss of each fold at (a, b) without it, summed; ``at`` is [2, n, K + 1]."""
        held_out = replace(
            self,
            count=self.count[:, -1:] - self.count[:, :-1],
            gold=self.gold[:, -1:] - self.gold[:, :-1],
        )
        return float(held_out._loss(at[..., :-1], self._scaled(at)[:, :-1]).sum())

    def fit(self, start: Tensor, width: float) -> Tensor:
        """The best (a, b) for a width of the prior, [2, n, K + 1]: Fisher scoring, steps halved.

        Args:
            start: Initial (a, b), [2, n, K + 1].
            width: Width of the prior, above 0.
        """
        precision = start.new_tensor([(_SCALE_WIDTH * width) ** -2, width**-2]).view(2, 1, 1)

        def objective(at: Tensor) -> tuple[Tensor, Tensor]:
            scaled = self._scaled(at)
            return self._loss(at, scaled) + (precision * at.square()).sum(dim=0) / 2, scaled

        at, (current, scaled) = start, objective(start)
        for _ in range(_MAX_STEPS):
            step = self._step(at, scaled, precision)
            if float(step.abs().max()) < _TOLERANCE:
                return at - step
            length = torch.ones_like(current)
            for _ in range(_MAX_HALVINGS):
                new, new_scaled = objective(at - length * step)
                worse = new > current + _ROUNDING * current.abs()
                if not bool(worse.any()):
                    break
                length = torch.where(worse, length / 2, length)
            length = torch.where(worse, 0.0, length)  # what is left of the descent is rounding
            at, scaled = at - length * step, torch.where(worse.unsqueeze(2), scaled, new_scaled)
            current = torch.where(worse, current, new)
        return at

    def _scaled(self, at: Tensor) -> Tensor:
        """e^a z + b, [n, K + 1, m]."""
        a, b = at.unsqueeze(3)
        return torch.addcmul(b, a.exp(), self.powers[:, None, :, 1])

    def _loss(self, at: Tensor, scaled: Tensor) -> Tensor:
        """Log-loss at (a, b), [n, K + 1]."""
        softplus = torch.nn.functional.softplus(scaled)
        a, b = at
        gold = a.exp() * self.gold[..., 1] + b * self.gold[..., 0]
        return torch.linalg.vecdot(self.count, softplus) - gold

    def _step(self, at: Tensor, scaled: Tensor, precision: Tensor) -> Tensor:
        """The inverse Fisher information times the gradient, [2, n, K + 1]."""
        scale = at[0].exp()
        probability = torch.sigmoid(scaled)
        expected = self.count * probability
        excess = expected @ self.powers[:, :, :2] - self.gold
        information = (expected * (1 - probability)) @ self.powers
        count, first, second = information.unbind(2)
        gradient = torch.stack([scale * excess[..., 1], excess[..., 0]]) + precision * at
        aa, bb = scale.square() * second + precision[0], count + precision[1]
        ab = scale * first
        step = torch.stack([bb, aa]) * gradient - ab * gradient.flip(0)
        return step / (aa * bb - ab.square())
