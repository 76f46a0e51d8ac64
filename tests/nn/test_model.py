"""`MatchModel`: what fits together, what does not, and a forward pass on a real batch."""

import sys

import pytest
import torch

from match_graph.config import ModelConfig
from match_graph.datasets import Synthetic
from match_graph.errors import ConfigError, GraphError
from match_graph.graph import (
    EgoBatch,
    EgoLoader,
    EgoSampler,
    Hierarchy,
    NodeFeatures,
    TokenSpace,
)
from match_graph.nn import (
    ENCODERS,
    Encoder,
    EncoderOutput,
    Head,
    LabelAttentionHead,
    LinearHead,
    MatchEncoder,
    MatchModel,
    match_loss,
)

SPACE = TokenSpace(("venue", "word"), (3, 4))
SMALL = {"num_cls": 2, "num_layers": 1, "position_channels": 4}


class OwnEncoder(MatchEncoder):
    """An encoder that is not registered."""


class TokensEncoder(MatchEncoder):
    """Says that it gives tokens."""

    gives = "tokens"


class OwnHead(LinearHead):
    """A head that is not registered."""


class NeedyHead(LinearHead):
    """Says that it needs the label graph."""

    needs_label_graph = True


class WaveEncoder(MatchEncoder):
    """Has a buffer of a type that safetensors lacks."""

    def __init__(self, embedding, config) -> None:
        super().__init__(embedding, config)
        self.register_buffer("wave", torch.zeros(2, dtype=torch.complex128))


class WaveHead(LinearHead):
    """Has a buffer of a type that safetensors lacks."""

    def __init__(self, in_channels, num_labels, config, label_graph) -> None:
        super().__init__(in_channels, num_labels, config, label_graph)
        self.register_buffer("wave", torch.zeros(2, dtype=torch.complex128))


class TokensHead(LinearHead):
    """Says that it takes tokens."""

    takes = "tokens"


def make_model(**settings: object) -> MatchModel:
    return MatchModel(SPACE, 5, ModelConfig(channels=8, **settings))


@pytest.fixture(scope="module")
def batch(synthetic: Synthetic) -> EgoBatch:
    """Training documents of the planted data set with gold labels."""
    data = synthetic[0]
    loader = EgoLoader(
        data,
        EgoSampler(data, max_metadata=8, max_words=20),
        synthetic.token_space(),
        synthetic.documents("train_mask")[:40],
        synthetic.targets,
        batch_size=40,
    )
    return next(iter(loader))


def message_of(**settings: object) -> str:
    with pytest.raises(ConfigError) as error:
        make_model(**settings)
    return str(error.value)


def test_MatchModel_defaults_wire_the_papers_model() -> None:
    """MATCH encoder and linear head; the widths fit; the embedding is registered once."""
    model = MatchModel(SPACE, 5, ModelConfig(embedding_dropout=0.25, token_dropout=0.5))
    assert type(model.encoder) is MatchEncoder
    assert type(model.head) is LinearHead
    assert model.head.in_channels == model.encoder.out_channels == 8 * 128
    assert model.encoder.embedding is model.embedding
    assert model.embedding.channels == 100
    assert (model.embedding.dropout.p, model.embedding.token_dropout) == (0.25, 0.5)
    names = [name for name, _ in model.named_parameters() if "embedding" in name]
    assert names == ["embedding.weight"]


def test_MatchModel_settings_reach_encoder_and_head() -> None:
    """encoder_config and channels."""
    model = make_model(encoder_config=SMALL)
    assert model.encoder.config == MatchEncoder.Config(**SMALL)
    assert model.head.weight.shape == (5, 2 * (8 + 4))


def test_MatchModel_forward_pass_on_real_documents(synthetic: Synthetic, batch: EgoBatch) -> None:
    """Logits [B, L], and a gradient for every parameter through the whole objective."""
    torch.manual_seed(0)
    config = ModelConfig(channels=8, encoder_config=SMALL)
    model = MatchModel(synthetic.token_space(), synthetic.num_labels, config)
    logits = model(batch)
    assert logits.shape == (40, synthetic.num_labels)
    assert bool(torch.isfinite(logits).all())
    losses = match_loss(
        logits,
        batch.gold,
        model.head,
        synthetic.hierarchy,
        lambda_parameter=1e-3,
        lambda_output=0.1,
    )
    losses.total.backward()
    assert min(float(losses.bce), float(losses.parameter), float(losses.output)) > 0
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.any()), name


@pytest.mark.parametrize(
    "encoder", sorted(name for name, cls in ENCODERS.items() if cls.needs == {"tokens"})
)
def test_MatchModel_reaches_all_parameters_without_tokens(encoder: str) -> None:
    """Processes wait for each parameter's gradient, also from one without tokens and labels."""
    model = MatchModel(SPACE, 5, ModelConfig(channels=8, encoder=encoder))
    none, ptr = torch.empty(0, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
    batch = EgoBatch(torch.arange(2), none, none, none, ptr, ptr, none)
    hierarchy = Hierarchy.without_edges(5)
    match_loss(model(batch), batch.gold, model.head, hierarchy).total.backward()
    missing = [name for name, value in model.named_parameters() if value.grad is None]
    assert missing == []


@pytest.mark.parametrize(
    ("steps", "settings"),
    [
        (15, {"encoder_config": SMALL}),
        (40, {"encoder": "attention_xml", "encoder_config": {"hidden_channels": 8, "dropout": 0}}),
    ],
)
def test_MatchModel_few_steps_lower_the_loss(
    synthetic: Synthetic, batch: EgoBatch, steps: int, settings: dict[str, object]
) -> None:
    """Embedding, encoder and head learn together."""
    torch.manual_seed(0)
    config = ModelConfig(channels=8, embedding_dropout=0, token_dropout=0, **settings)
    model = MatchModel(synthetic.token_space(), synthetic.num_labels, config)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    losses = []
    for _ in range(steps):
        loss = match_loss(model(batch), batch.gold, model.head, synthetic.hierarchy).total
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]


def test_MatchModel_scores_do_not_depend_on_gold_labels(
    synthetic: Synthetic, batch: EgoBatch
) -> None:
    """The same batch without targets gives the same logits."""
    config = ModelConfig(channels=8, encoder_config=SMALL)
    model = MatchModel(synthetic.token_space(), synthetic.num_labels, config).eval()
    bare = EgoBatch(batch.document, batch.token_id, batch.field, batch.position, batch.ptr)
    with torch.no_grad():
        assert torch.equal(model(batch), model(bare))


def test_MatchModel_reset_draws_embedding_encoder_and_head_anew() -> None:
    """Every parameter, by the seed."""
    model = make_model(encoder_config=SMALL)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1000)
    torch.manual_seed(1)
    model.reset_parameters()
    first = {name: value.detach().clone() for name, value in model.named_parameters()}
    assert all(not bool((value == 1000).any()) for value in first.values())
    torch.manual_seed(1)
    model.reset_parameters()
    assert all(torch.equal(value, first[name]) for name, value in model.named_parameters())


def test_MatchModel_state_dict_carries_everything(synthetic: Synthetic, batch: EgoBatch) -> None:
    """Another model gives the same scores after loading."""
    config = ModelConfig(channels=8, encoder_config=SMALL)
    first, second = (
        MatchModel(synthetic.token_space(), synthetic.num_labels, config).eval() for _ in range(2)
    )
    with torch.no_grad():
        assert not torch.equal(first(batch), second(batch))
        second.load_state_dict(first.state_dict())
        assert torch.equal(first(batch), second(batch))


def test_MatchModel_classes_of_other_modules_are_found() -> None:
    """package.module:Class, for encoders and heads."""
    model = make_model(
        encoder=f"{__name__}:OwnEncoder", head=f"{__name__}:OwnHead", encoder_config=SMALL
    )
    module = sys.modules[__name__]
    assert type(model.encoder) is module.OwnEncoder
    assert type(model.head) is module.OwnHead


@pytest.mark.parametrize("kind", ["encoder", "head"])
def test_MatchModel_types_that_no_file_can_hold(kind: str) -> None:
    """An encoder or a head whose weights could not be written is refused where it is wired."""
    name = f"{__name__}:Wave{kind.title()}"
    start = f"The {kind} '{name}' must keep the contract: what it saves must be of a type of "
    assert message_of(encoder_config=SMALL, **{kind: name}).startswith(start)


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("metch", ""),
        ("", ""),
        (":", " (Empty module name)"),
        ("os:path", ""),  # not a class
        ("match_graph.nn:LinearHead", ""),  # a class of another kind
        (":Encoder", " (Empty module name)"),
    ],
)
def test_MatchModel_unknown_encoder_is_an_error(name: str, cause: str) -> None:
    """Not registered, or no subclass; what cannot be a module says why."""
    clause = "the nearest is 'match'" if name == "metch" else "check the name"
    assert message_of(encoder=name) == (
        f"The encoder must be one of {sorted(ENCODERS)}, or module:Class or file.py:Class naming a "
        f"subclass of Encoder, found '{name}'{cause}; {clause}."
    )


def test_MatchModel_relative_module_is_an_error() -> None:
    """A name that needs a package to start from cannot be imported."""
    assert "found '.relative:Encoder' (" in message_of(encoder=".relative:Encoder")


@pytest.mark.parametrize(
    ("name", "clause"),
    [("lineal", "the nearest is 'linear'"), ("match_graph.nn:MatchEncoder", "check the name")],
)
def test_MatchModel_unknown_head_is_an_error(name: str, clause: str) -> None:
    """The same sentence for heads."""
    assert message_of(head=name) == (
        f"The head must be one of ['label_attention', 'label_graph', 'linear'], or module:Class or "
        f"file.py:Class naming a subclass of Head, found '{name}'; {clause}."
    )


def test_MatchModel_unknown_setting_is_an_error() -> None:
    """With its path and the nearest; of the encoder and of the head."""
    assert message_of(encoder_config={"num_clz": 3}) == (
        "model.encoder_config must be valid: 'num_clz' is not a setting; the nearest is 'num_cls'."
    )
    assert message_of(encoder_config=SMALL, head_config={"bias": False}) == (
        "model.head_config must be valid: 'bias' is not a setting; there are none."
    )


def test_MatchModel_impossible_setting_is_an_error() -> None:
    """All faults at once, each with its path and value."""
    assert message_of(encoder_config={"num_cls": 0, "dropout": "much"}) == (
        "model.encoder_config must be valid, but 2 faults were found:\n"
        "  'num_cls': Input should be greater than or equal to 1, found 0.\n"
        "  'dropout': Input should be a valid number, found 'much'."
    )


def test_MatchModel_refuses_an_indivisible_width() -> None:
    """The width is that of the embedding plus the position code."""
    assert message_of(encoder_config={**SMALL, "num_heads": 5}) == (
        "The width of the encoder must be a multiple of num_heads, found 12 (embedding plus "
        "position channels) and 5; change model.encoder_config."
    )


def test_MatchModel_refuses_a_head_that_does_not_fit() -> None:
    """Both ways, with the heads that fit."""
    own = f"{__name__}:TokensHead"
    assert message_of(head=own) == (
        f"The head must take what the encoder gives, but '{own}' takes tokens and 'match' gives "
        f"document; choose model.head from ['label_graph', 'linear']."
    )
    own = f"{__name__}:TokensEncoder"
    assert message_of(encoder=own, head="linear") == (
        f"The head must take what the encoder gives, but 'linear' takes document and '{own}' "
        f"gives tokens; choose model.head from ['label_attention']."
    )


def test_MatchModel_head_that_needs_the_label_graph_gets_it() -> None:
    """The hierarchy of the model; without one a sentence."""
    own = f"{__name__}:NeedyHead"
    assert message_of(head=own, encoder_config=SMALL) == (
        "A NeedyHead needs the label graph, but there is none above the labels of a label tree, or "
        "where a model is made without a hierarchy; choose another head."
    )
    config = ModelConfig(channels=8, head=own, encoder_config=SMALL)
    assert type(MatchModel(SPACE, 5, config, Hierarchy.without_edges(5)).head) is NeedyHead


def test_MatchModel_hierarchy_is_that_of_its_labels(synthetic: Synthetic) -> None:
    """Whatever the head; one sentence."""
    with pytest.raises(GraphError) as caught:
        MatchModel(synthetic.token_space(), 3, ModelConfig(), synthetic.hierarchy)
    assert str(caught.value) == ("Values must be of the 25 labels of the hierarchy, found 3.")


def test_MatchModel_without_a_name_the_head_is_the_one_that_fits() -> None:
    """Label-wise attention for tokens, a linear layer for documents; also for classes of others."""
    assert type(make_model(encoder_config=SMALL).head) is LinearHead
    own = f"{__name__}:TokensEncoder"
    assert type(make_model(encoder=own, encoder_config=SMALL).head) is LabelAttentionHead
    assert type(make_model(encoder="attention_xml").head) is LabelAttentionHead


def test_MatchEncoder_public_names_are_what_they_say() -> None:
    """The classes that a user subclasses."""
    assert issubclass(MatchEncoder, Encoder)
    assert issubclass(LinearHead, Head)
    assert EncoderOutput(None, None, torch.zeros(1)).document is None


def test_MatchModel_features_stand_beside_the_encoders_state() -> None:
    """The head takes both; features given at rows of the batch, not of the graph."""
    torch.manual_seed(0)
    features = NodeFeatures(3)
    config = ModelConfig(channels=8, encoder_config=SMALL)
    model = MatchModel(SPACE, 5, config, features=features).eval()
    assert model.head.in_channels == model.encoder.out_channels + 256
    token_id, field = torch.tensor([4, 5, 4]), torch.tensor([0, 1, 0])
    ptr, zeros = torch.tensor([0, 2, 3]), torch.zeros(3, dtype=torch.int64)
    x = torch.randn(2, 3)
    batch = EgoBatch(torch.tensor([7, -1]), token_id, field, zeros, ptr, x=x)
    state = model.encode(batch).document
    prepared = model.embedding.prepare(batch)
    assert torch.equal(state[:, :-256], model.encoder(prepared).document)
    assert torch.equal(state[:, -256:], model.joined(x))
    model.set_moments(torch.tensor([[5.0, 5, 5], [99, 99, 99], [7, 7, 7]]), torch.tensor([0, 2]))
    assert model.joined.mean.tolist() == [6, 6, 6]  # of training documents alone
    assert model.embedding.document.mean.tolist() == [6, 6, 6]
    assert (model.joined.scale, model.joined.dropout.p) == (1.0, config.feature_dropout)
    model(batch).sum().backward()
    assert bool(model.joined.linear.weight.grad.any())
    before = model.joined.linear.weight.detach().clone()
    model.reset_parameters()
    assert not torch.equal(model.joined.linear.weight, before)


def test_MatchModel_hides_joined_features_in_training() -> None:
    """Of the share of documents that is set, all of a document's; none in evaluation."""
    x = torch.ones(400, 3)
    batch = EgoBatch(
        torch.arange(400), torch.full((400,), 4), torch.zeros(400, dtype=torch.int64),
        torch.zeros(400, dtype=torch.int64), torch.arange(401), x=x,
    )  # fmt: skip
    for hidden in (0.0, 0.25):
        config = ModelConfig(
            channels=8, encoder_config=SMALL, feature_dropout=0, feature_hidden=hidden
        )
        model = MatchModel(SPACE, 5, config, features=NodeFeatures(3))
        joined = model.encode(batch).document[:, -256:]
        is_hidden = (joined == 0).all(dim=1)
        assert torch.equal(joined[~is_hidden], model.joined(x)[~is_hidden])
        assert abs(float(is_hidden.float().mean()) - hidden) < 0.08
        assert torch.equal(model.eval().encode(batch).document[:, -256:], model.joined(x))


def test_MatchModel_heads_over_tokens_read_features_as_a_token() -> None:
    """Attention reaches it; nothing is joined."""
    config = ModelConfig(channels=8, encoder="attention_xml")
    model = MatchModel(SPACE, 5, config, features=NodeFeatures(3))
    assert model.joined is None
    assert model.head.in_channels == model.encoder.out_channels
