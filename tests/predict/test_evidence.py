"""Token evidence: leave-one-out against a forward per token, linear sums, words."""

import pytest
import torch
from torch import Tensor

from match_graph import EgoBatch, Run, load
from match_graph.metrics import PlattScaling
from match_graph.nn.attention import record_attention
from match_graph.predict import Classifier
from match_graph.predict.case_study import Evidence
from match_graph.predict.evidence import DocumentEvidence, LinearEvidence, judge, leave_out
from match_graph.runs.vocabulary import read_document as read
from match_graph.typing import MASKS, WORD


def read_document(classifier: Classifier, run: Run, number: int) -> DocumentEvidence:
    record = run.dataset.as_json([number])[0]
    return DocumentEvidence(classifier, read(record, classifier._fields, "here"))


def find_document(run: Run, least: int, most: int) -> tuple[int, EgoBatch]:
    """A test document with a number of metadata in a range, and its batch from the graph."""
    sampler = run.loader("test").node_sampler
    for number in run.dataset.documents(MASKS["test"]).tolist():
        record = run.dataset.as_json([number])[0]
        found = sum(len(record[field]) for field in ("venue", "author", "reference"))
        if least <= found <= most and record["text"]:
            break
    else:
        raise AssertionError("no such document")
    assert sampler is not None
    loader = run.loader("test")
    loader.input_data.node = torch.tensor([number])
    return number, loader.collate_fn([0])


def score(run: Run, batch: EgoBatch) -> Tensor:
    model = run.finish_model(run.load_model()).eval()
    with torch.no_grad():
        return model(batch)[0]


def test_DocumentEvidence_leave_one_out_equals_forward_per_token(trained_run: Run) -> None:
    """Leave-one-out scores equal those of the document's batch without each metadata token."""
    number, batch = find_document(trained_run, 3, 6)
    document = read_document(load(trained_run.folder, "cpu"), trained_run, number)
    logits = document.score()
    torch.testing.assert_close(logits[0], score(trained_run, batch), atol=1e-5, rtol=1e-5)
    space = trained_run.space
    place = 0
    for field in ("venue", "author", "reference"):
        for item in [one for one in document.items if one.field == field]:
            kept = torch.ones_like(batch.token_id, dtype=torch.bool)
            kept[item.place] = False
            assert space.types[int(batch.field[item.place])] == field
            place += 1
            expected = score(trained_run, batch.select_tokens(kept))
            torch.testing.assert_close(logits[place], expected, atol=1e-5, rtol=1e-5)
    assert len(logits) == place + 1 > 3


def test_leave_out_above_the_budget_the_next_instance_moves_up(trained_run: Run) -> None:
    """Above the budget, leaving out an item scores as the document without that instance."""
    most = trained_run.config.data.max_metadata
    number, _ = find_document(trained_run, most + 1, 99)
    classifier = load(trained_run.folder, "cpu")
    document = read_document(classifier, trained_run, number)
    assert len(document.items) == most
    logits = document.score()
    for row, item in enumerate(document.items, start=1):
        other = leave_out(document.document, item)
        names = [(field, name) for field, names in other.metadata.items() for name in names]
        assert (item.field, item.name) not in names
        [(_, expected)] = classifier.score([other])
        torch.testing.assert_close(logits[row], expected[0], atol=1e-5, rtol=1e-5)


def test_DocumentEvidence_attention_is_that_of_document_alone(trained_run: Run) -> None:
    """Attention is that of the last layer at the items' places, after the [CLS] tokens."""
    number, batch = find_document(trained_run, 3, 6)
    document = read_document(load(trained_run.folder, "cpu"), trained_run, number)
    model = trained_run.load_model().eval()
    with record_attention(model) as received, torch.no_grad():
        model(batch)
    shares = received[-1].share[2:]  # two [CLS] tokens
    attention = document.attend()
    assert attention is not None
    expected = [float(shares[item.place]) for item in document.items]
    assert attention.tolist() == pytest.approx(expected, abs=1e-6)
    assert 0 < float(attention.sum()) < 1


def test_DocumentEvidence_attention_of_the_last_layer(make_variant) -> None:
    """Shares are of the last layer, also where the first token is a document's features."""
    run = make_variant(
        "star", "model.encoder=star_transformer", "model.encoder_config.metadata=true",
        "model.encoder_config.num_cycles=2", "data.features.document={latent: 4}", "train.epochs=1",
    )  # fmt: skip
    number, batch = find_document(run, 3, 6)
    document = read_document(load(run.folder, "cpu"), run, number)
    model = run.load_model().eval()
    with record_attention(model) as received, torch.no_grad():
        model(batch)
    first, last = received
    assert not torch.allclose(first.share, last.share)
    field = model.embedding.prepare(batch).field
    shares = last.share[1:][field != run.space.document_field]  # the relay comes first
    attention = document.attend()
    assert attention is not None
    expected = [float(shares[item.place]) for item in document.items]
    assert attention.tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", ["trained_run", "text_run", "baseline_run"])
def test_DocumentEvidence_additions_sum_to_linear_scores(
    name: str, request: pytest.FixtureRequest
) -> None:
    """Additions of metadata and words sum to the linear scores, times the share in a blend."""
    run: Run = request.getfixturevalue(name)
    classifier, labels = load(run.folder, "cpu"), torch.tensor([3, 0, 7])
    linear = classifier.linear
    assert linear is not None
    share = 1.0 if classifier.blend is None else 1 - classifier.blend.share
    assert (share < 1) == (name != "baseline_run")
    bias = 6.0 * torch.from_numpy(linear.bias)[labels] + 1.0
    for number in run.dataset.documents(MASKS["test"])[:12].tolist():
        document = read_document(classifier, run, number)
        found = document.weigh_linear(labels)
        assert found is not None
        assert (found.items is None) == (name == "text_run")
        total = found.of_words.sum(dim=0)
        total = total if found.items is None else total + found.items.sum(dim=0)
        expected = share * (linear.predict(document.batch)[0, labels] - bias)
        torch.testing.assert_close(total, expected, atol=1e-4, rtol=1e-4)
        best = found.largest_words(1, 3)
        assert len(best) <= 3
        assert all(one.linear > 0 for one in best)
        assert {one.word for one in best} <= set(document.words())


def test_DocumentEvidence_scales_additions_as_its_calibration(trained_run: Run) -> None:
    """Additions are multiplied by the scale of each label's calibration."""
    classifier, labels = load(trained_run.folder, "cpu"), torch.tensor([3, 0, 7])
    number = int(trained_run.dataset.documents(MASKS["test"])[0])
    document = read_document(classifier, trained_run, number)
    classifier.calibration = None
    plain = document.weigh_linear(labels)
    slope = 1.5 + torch.arange(trained_run.dataset.num_labels)
    some = torch.empty(0)
    classifier.calibration = PlattScaling(slope, slope * 0, some, some, 1.0, 0.0, 0.0)
    scaled = document.weigh_linear(labels)
    assert plain is not None
    assert scaled is not None
    assert plain.of_words.abs().sum() > 0
    torch.testing.assert_close(scaled.of_words, plain.of_words * slope[labels])


def test_DocumentEvidence_names_words_by_what_they_add(trained_run: Run) -> None:
    """Each word has the addition of its own token, repeated or not."""
    classifier, labels = load(trained_run.folder, "cpu"), torch.tensor([3, 0, 7])
    known = list(classifier.vocabulary.rows[WORD])
    text = " ".join([known[2], known[0], known[2], known[5]])
    document = DocumentEvidence(classifier, classifier.read({"text": text}, "here"))
    found = document.weigh_linear(labels)
    assert found is not None
    assert sorted(found.words) == sorted({known[0], known[2], known[5]})
    for word, added in zip(found.words, found.of_words, strict=True):
        document = DocumentEvidence(classifier, classifier.read({"text": word}, "here"))
        alone = document.weigh_linear(labels)
        assert alone is not None
        direction = alone.of_words[0] / alone.of_words[0].norm()
        torch.testing.assert_close(added / added.norm(), direction, atol=1e-5, rtol=1e-5)


def test_LinearEvidence_largest_words_are_in_order() -> None:
    """Words are sorted by addition, ties by the alphabet, without those that add nothing."""
    values = torch.tensor([[0.0, 0.5], [0.0, 2.0], [0.0, -1.0], [0.0, 0.5], [0.0, 0.0]])
    evidence = LinearEvidence(None, ["b", "c", "d", "a", "e"], values)
    assert [(one.word, one.linear) for one in evidence.largest_words(1, 3)] == [
        ("c", 2.0),
        ("a", 0.5),
        ("b", 0.5),
    ]
    assert [one.word for one in evidence.largest_words(1, 9)] == ["c", "a", "b"]
    assert evidence.largest_words(0, 3) == []


def test_DocumentEvidence_knows_what_training_has_seen(trained_run: Run) -> None:
    """Instances unseen in training are read as the [UNK] of their field."""
    classifier = load(trained_run.folder, "cpu")
    seen = next(iter(classifier.vocabulary.rows["author"]))
    content = {"text": "w1", "author": [seen, "somebody new"], "venue": "new"}
    document = DocumentEvidence(classifier, classifier.read(content, "here"))
    assert {item.name: document.is_known(item) for item in document.items} == {
        seen: True,
        "somebody new": False,
        "new": False,
    }


def test_DocumentEvidence_encoder_words_owes_nothing_metadata(text_run: Run) -> None:
    """An encoder of words alone has no effect of metadata and no attention to them."""
    document = read_document(load(text_run.folder, "cpu"), text_run, 390)
    assert document.items
    logits = document.score()
    torch.testing.assert_close(logits[1:], logits[:1].expand_as(logits[1:]), atol=1e-5, rtol=0)
    assert document.attend() is None


@pytest.fixture(scope="module")
def graph_run(make_variant) -> Run:
    """A run of a Transformer of two layers over features and the documents around a document."""
    encoder = "model.encoder=match_hetero", "model.encoder_config={num_cls: 2, num_layers: 2}"
    features = "data.features={document: {latent: 8}}"
    return make_variant("graph", *encoder, features, "train.epochs=1")


def test_leave_out_encoders_over_graphs_lose_instance_everywhere(graph_run: Run) -> None:
    """An instance left out is gone from tokens, neighbours and citations of a graph encoder."""
    classifier = load(graph_run.folder, "cpu")
    document = read_document(classifier, graph_run, 395)
    assert len(document.items) > 2
    logits = document.score()
    for row, item in enumerate(document.items, start=1):
        [(_, expected)] = classifier.score([leave_out(document.document, item)])
        torch.testing.assert_close(logits[row], expected[0], atol=1e-5, rtol=1e-4)
    assert not torch.allclose(logits[0], logits[1], atol=1e-5)
    attention, network = document.attend(), classifier.network
    assert attention is not None
    assert network is not None
    assert 0 < float(attention.sum()) < 1  # documents around it and words receive the rest
    with record_attention(network) as received, torch.no_grad():
        network(document.batch)
    space, field = classifier.vocabulary.space, network.embedding.prepare(document.batch).field
    is_item = (field != space.document_field) & (field != space.field_index(WORD))
    shares = received[-1].share[2:][: len(field)]  # behind two [CLS] tokens
    assert attention.tolist() == pytest.approx(shares[is_item].tolist(), abs=1e-6)


def make_evidence(name: str, effect: float, attention: float | None) -> Evidence:
    return Evidence(
        field="venue", name=name, is_known=True, attention=attention, effect=effect, linear=None
    )


@pytest.mark.parametrize(
    ("evidence", "verdict"),
    [
        ([], (None, None, "No metadata were read.")),
        (
            [make_evidence("A", 0.5, 0.1), make_evidence("B", 0.2, 0.05)],
            ("venue A", "venue A", "Leave-one-out and attention agree on 'venue A'."),
        ),
        (
            [make_evidence("A", 0.5, 0.1), make_evidence("B", 0.2, 0.3)],
            (
                "venue A",
                "venue B",
                "Leave-one-out and attention do not agree: left out, 'venue A' lowers the score "
                "most, while most attention goes to 'venue B'.",
            ),
        ),
        (
            [make_evidence("A", 0.5, None)],
            (
                "venue A",
                None,
                "Left out, 'venue A' lowers the score most; there is no attention to compare.",
            ),
        ),
        (
            [make_evidence("A", -0.5, 0.1)],
            (
                None,
                "venue A",
                "Left out, no metadata token lowers the score; most attention goes to 'venue A'.",
            ),
        ),
        (
            [make_evidence("A", 0.0, None)],
            (None, None, "Left out, no metadata token lowers the score."),
        ),
    ],
)
def test_judge_verdicts(
    evidence: list[Evidence], verdict: tuple[str | None, str | None, str]
) -> None:
    """The verdict says whether leave-one-out and attention agree."""
    assert judge(evidence) == verdict
