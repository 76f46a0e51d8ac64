"""Check of an encoder, ours or a user's, against the contract of encoders."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from match_graph.config import StrictModel, parse_settings
from match_graph.datasets.match_folder import MatchReader
from match_graph.errors import ConfigError
from match_graph.graph import (
    BuiltGraph,
    EgoBatch,
    EgoGraphs,
    EgoLoader,
    EgoSampler,
    NodeFeatures,
    TokenSpace,
    build_graph,
)
from match_graph.nn import Encoder, EncoderOutput, TokenEmbedding
from match_graph.nn.contract import check_encoder_class, make_encoder
from match_graph.testing.toy import toy_documents, write_match_folder
from match_graph.typing import DOCUMENT

T = TypeVar("T")


def assert_encoder(
    encoder_cls: type[Encoder],
    config: StrictModel | Mapping[str, Any] | None = None,
    channels: int = 12,
    independent: bool = True,
    tolerance: float = 1e-5,
) -> None:
    """Checks an encoder on batches of the toy corpus, on the CPU in float32.

    Some of its documents have more metadata here: attention has a gradient from two neighbours on.

    It must give states of ``out_channels``, not register the embedding, work for documents without
    any token and for new ones (whose ``document`` is -1), be deterministic in evaluation mode, give
    each document the state that it has alone, follow a permutation of the batch, pass a gradient to
    every parameter (but those that a class attribute
    ``unused_parameters: ClassVar[frozenset[str]]``
    names; "embedding.weight" is the embedding's), draw every parameter anew by the seed in
    ``reset_parameters``, and have all that it computes with in ``state_dict``.

    The same again where documents have features ``x``, to whose map the gradient must come too
    ("embedding.document.linear.weight").

    Args:
        encoder_cls: Encoder class.
        config: Configuration: its `Config` or the keys of one; None for the defaults.
        channels: Number of channels of the embedding.
        independent: Whether states must not depend on the other documents of the batch; false for
            encoders that pass messages between documents.
        tolerance: Largest difference of states that should be equal but for rounding; of states
            above 1 as a share of the largest.

    Raises:
        AssertionError: One sentence on the first check that fails.
    """
    _check_contract(partial(check_encoder_class, encoder_cls, encoder_cls.__name__))
    if not isinstance(config, StrictModel):
        config = parse_settings(encoder_cls.Config, dict(config or {}), "config must be valid")
    torch_state = torch.get_rng_state()
    try:
        for toy in (_toy(), _toy(with_features=True)):
            bench = _check_contract(partial(_Bench, encoder_cls, config, channels, tolerance, toy))
            for check in (
                _check_registration,
                _check_shapes,
                _check_empty_documents,
                _check_new_documents,
                _check_determinism,
                *([_check_independence] if independent else []),
                _check_permutation,
                _check_gradients,
                _check_reset,
                _check_state_dict,
            ):
                check(bench)
    finally:
        torch.set_rng_state(torch_state)


def _check_contract(check: Callable[[], T]) -> T:
    """Runs a check of the contract, raising its ConfigError as an AssertionError."""
    try:
        return check()
    except ConfigError as error:
        raise AssertionError(str(error)) from error


class _Bench:
    """Encoder class under test with an embedding, and batches for it."""

    def __init__(
        self,
        encoder_cls: type[Encoder],
        config: StrictModel,
        channels: int,
        tolerance: float,
        toy: "_Toy",
    ) -> None:
        self.encoder_cls, self.config, self.tolerance = encoder_cls, config, tolerance
        self.toy = toy
        features = NodeFeatures.from_data(toy.built.data)
        self.name = encoder_cls.__name__ + (" with features" if features.width else "")
        torch.manual_seed(0)
        self.embedding = TokenEmbedding(toy.space, channels, features=features).eval()
        self.encoder = self.make(seed=1)

    def make(self, seed: int) -> Encoder:
        """Encoder in evaluation mode, with parameters initialized by the seed."""
        torch.manual_seed(seed)
        name = self.encoder_cls.__name__
        return make_encoder(self.encoder_cls, self.embedding, self.config, name).eval()

    def batch(
        self, documents: Sequence[int], max_metadata: int = 64, max_words: int = 500
    ) -> EgoBatch:
        """Batch of some documents of the toy corpus, with what the encoder needs."""
        needs = self.encoder_cls.needs
        neighborhood = self.encoder_cls.neighborhood(self.config)
        graphs = None
        if neighborhood is not None:
            if not max_metadata:  # documents without tokens have no neighbours either
                budgets = {"document_metadata": 0, "document_words": max_words}
                hops = type(neighborhood).model_fields.keys() - {"fanouts", *budgets}
                neighborhood = neighborhood.model_copy(
                    update={**{name: [0] for name in hops}, "fanouts": {}, **budgets}
                )
            graphs = EgoGraphs(
                self.toy.built.data, neighborhood, self.toy.space,
                self.toy.built.data[DOCUMENT].train_mask,
            )  # fmt: skip
        loader = EgoLoader(
            self.toy.built.data,
            EgoSampler(self.toy.built.data, max_metadata, max_words),
            self.toy.space,
            torch.tensor(documents),
            with_graph="graph" in needs,
            graphs=graphs,
            texts=self.toy.texts if "text" in needs else None,
            batch_size=len(documents),
        )
        batch: EgoBatch = next(iter(loader))
        return self.embedding.prepare(batch)

    def everything(self) -> EgoBatch:
        """Batch of all documents of the toy corpus; one of them has no word."""
        return self.batch(range(len(self.toy.texts)))

    def run(self, encoder: Encoder, batch: EgoBatch, what: str = "a batch") -> EncoderOutput:
        """Output of the encoder, whose type is checked."""
        try:
            output = encoder(batch)
        except Exception as error:
            raise AssertionError(
                f"{self.name} must encode {what}, but raised {type(error).__name__}: {error}"
            ) from error
        if not isinstance(output, EncoderOutput):
            raise AssertionError(
                f"{self.name} must give an EncoderOutput, found {type(output).__name__}."
            )
        return output

    def states(self, encoder: Encoder, batch: EgoBatch, what: str = "a batch") -> list[Tensor]:
        """States of each document, [number of states, C]."""
        output = self.run(encoder, batch, what)
        if self.encoder_cls.gives == "document":
            states, lengths = output.document, [1] * batch.num_documents
        else:
            states, lengths = output.states, output.ptr.diff().tolist()
        shape = [sum(lengths), encoder.out_channels]
        other = output.states if self.encoder_cls.gives == "document" else output.document
        if states is None or list(states.shape) != shape or other is not None:
            raise AssertionError(
                f"{self.name} gives {self.encoder_cls.gives} with out_channels = "
                f"{encoder.out_channels}, so the output for {what} must hold {shape} and nothing "
                f"else, found document {_shape(output.document)} and states "
                f"{_shape(output.states)}."
            )
        if not bool(torch.isfinite(states).all()):
            raise AssertionError(f"{self.name} must give finite states, found others for {what}.")
        return list(states.split(lengths))

    def same(self, found: list[Tensor], expected: list[Tensor], promise: str) -> None:
        """Checks that documents have the same states up to rounding."""
        for document, (one, other) in enumerate(zip(found, expected, strict=True)):
            if one.shape != other.shape:
                raise AssertionError(
                    f"{self.name} must {promise}, but document {document} has states "
                    f"{list(one.shape)} and {list(other.shape)}."
                )
            if not one.numel():
                continue
            gap = float((one - other).detach().abs().max())
            if gap > self.tolerance * max(1.0, float(other.detach().abs().max())):
                raise AssertionError(
                    f"{self.name} must {promise}, but document {document} differs by {gap:.2g}."
                )


@dataclass(frozen=True)
class _Toy:
    built: BuiltGraph
    space: TokenSpace
    texts: list[str]


#: What is added to some documents of the toy corpus, by field.
_MORE = {
    "venue": ["Journal of Toys", "Toy Letters", "Annals of Trifles"],
    "author": ["Bo", "Ola_Żak", "李_Li", "Åsa_Öberg"],
    "reference": ["t1", "t2", "t3", "t5"],
}


@cache
def _toy(with_features: bool = False) -> _Toy:
    documents = toy_documents()
    for record in (document for split in documents.values() for document in split[:2]):
        record.update(_MORE)
    with TemporaryDirectory() as parent:
        corpus = MatchReader(write_match_folder(Path(parent) / "toy", documents)).read_corpus()
    built = build_graph(corpus)
    if with_features:
        generator = torch.Generator().manual_seed(0)
        size = int(built.data[DOCUMENT].num_nodes), 7
        built.data[DOCUMENT].x = torch.randn(size, generator=generator)
    return _Toy(built, TokenSpace.from_data(built.data), corpus.documents["text"].tolist())


def _shape(tensor: Tensor | None) -> list[int] | None:
    return None if tensor is None else list(tensor.shape)


def _check_registration(bench: _Bench) -> None:
    if any(module is bench.embedding for module in bench.encoder.modules()) or any(
        parameter is bench.embedding.weight for parameter in bench.encoder.parameters()
    ):
        raise AssertionError(
            f"{bench.name} must not register the embedding, which the model owns; "
            f"use self.embedding."
        )


def _check_shapes(bench: _Bench) -> None:
    bench.states(bench.encoder, bench.everything())
    bench.states(bench.encoder.train(), bench.everything(), "a batch in training")
    bench.encoder.eval()


def _check_empty_documents(bench: _Bench) -> None:
    everything = range(len(bench.toy.texts))
    empty = "documents without tokens"
    bench.states(bench.encoder, bench.batch(everything, max_metadata=0), empty)  # one of them
    bench.states(bench.encoder, bench.batch(everything, max_metadata=0, max_words=0), empty)


def _check_new_documents(bench: _Bench) -> None:
    batch = bench.everything()
    last = replace(
        batch.as_new(), document=torch.full_like(batch.document, len(batch.document) - 1)
    )
    if last.graph is not None:
        n_id = last.graph[DOCUMENT].n_id
        last.graph[DOCUMENT].n_id = n_id.where(n_id >= 0, len(batch.document) - 1)
    known, new, as_last = (
        torch.cat(bench.states(bench.encoder, one, f"documents whose 'document' is {what}"))
        for one, what in (
            (batch, "their row"),
            (batch.as_new(), "-1 (new)"),
            (last, "the last row"),
        )
    )
    looks_up = not torch.allclose(known, as_last, atol=bench.tolerance)
    if looks_up and torch.allclose(new, as_last, atol=bench.tolerance):
        raise AssertionError(
            f"{bench.name} must know a new document, whose 'document' is -1, from the last one of "
            f"the graph, but gives both the same states; -1 as an index is the last row."
        )


def _check_determinism(bench: _Bench) -> None:
    first, second = (bench.states(bench.encoder, bench.everything()) for _ in range(2))
    bench.same(second, first, "be deterministic in evaluation mode")


def _check_independence(bench: _Bench) -> None:
    together = bench.states(bench.encoder, bench.everything())
    alone = [
        bench.states(bench.encoder, bench.batch([document]), "a document alone")[0]
        for document in range(len(bench.toy.texts))
    ]
    bench.same(together, alone, "give a document the same state alone and in a batch")


def _check_permutation(bench: _Bench) -> None:
    states = bench.states(bench.encoder, bench.everything())
    order = torch.randperm(len(states), generator=torch.Generator().manual_seed(0)).tolist()
    moved = bench.states(bench.encoder, bench.batch(order))
    expected = [states[document] for document in order]
    bench.same(moved, expected, "follow a permutation of the batch")


def _check_gradients(bench: _Bench) -> None:
    named = dict(bench.encoder.named_parameters())
    of_embedding = bench.embedding.named_parameters()
    named.update({f"embedding.{name}": parameter for name, parameter in of_embedding})
    unused: frozenset[str] = getattr(bench.encoder_cls, "unused_parameters", frozenset())
    if strangers := sorted(unused - named.keys()):
        raise AssertionError(
            f"{bench.name}.unused_parameters must name parameters, found {strangers}; "
            f"there are {sorted(named)}."
        )
    states = torch.cat(bench.states(bench.encoder, bench.everything()))
    generator = torch.Generator().manual_seed(0)
    for parameter in named.values():
        parameter.grad = None
    if states.requires_grad:  # a random sum: after LayerNorm the plain sum has no gradient
        (states * torch.randn(states.shape, generator=generator)).sum().backward()
    lacking = [
        name
        for name, parameter in named.items()
        if name not in unused
        and parameter.requires_grad
        and (parameter.grad is None or not bool(parameter.grad.any()))
    ]
    if lacking:
        raise AssertionError(
            f"{bench.name} must pass a gradient to every parameter, found none for {lacking}; "
            f"name what is not used in unused_parameters."
        )


def _check_reset(bench: _Bench) -> None:
    encoder = bench.make(seed=2)
    embedding = bench.embedding.weight.detach().clone()
    first = _reset(encoder)
    for name, (before, after) in first.items():
        if bool((before == after).any()):
            raise AssertionError(
                f"{bench.name}.reset_parameters must draw every parameter anew, "
                f"but leaves '{name}' as it was."
            )
    for name, (_, after) in _reset(encoder).items():
        if not torch.equal(after, first[name][1]):
            raise AssertionError(
                f"{bench.name}.reset_parameters must be reproducible by torch.manual_seed, "
                f"but draws '{name}' differently."
            )
    if not torch.equal(bench.embedding.weight, embedding):
        raise AssertionError(
            f"{bench.name}.reset_parameters must leave the embedding, which the model owns, alone."
        )


def _reset(encoder: nn.Module) -> dict[str, tuple[Tensor, Tensor]]:
    """Parameters before and after a reset: first moved to where no reset leaves them."""
    named = {name: value for name, value in encoder.named_parameters() if value.requires_grad}
    with torch.no_grad():
        for parameter in named.values():
            parameter.uniform_(1000, 1001)
    before = {name: parameter.detach().clone() for name, parameter in named.items()}
    torch.manual_seed(3)
    reset: Callable[[], None] = encoder.reset_parameters  # type: ignore[assignment]
    reset()
    return {name: (before[name], value.detach().clone()) for name, value in named.items()}


def _check_state_dict(bench: _Bench) -> None:
    other = bench.make(seed=4)
    try:
        other.load_state_dict(bench.encoder.state_dict())
    except RuntimeError as error:
        raise AssertionError(
            f"{bench.name} must load its own state_dict, but: {' '.join(str(error).split())}"
        ) from error
    expected, found = (bench.states(one, bench.everything()) for one in (bench.encoder, other))
    bench.same(found, expected, "have all that it computes with in state_dict")
