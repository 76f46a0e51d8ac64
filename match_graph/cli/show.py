"""Terminal output of runs: measures, examples, case studies, paths."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from rich.table import Table
from rich.text import Text

from match_graph.cli.lists import print_table
from match_graph.io.escape import SafeConsole
from match_graph.predict.case_study import CaseStudy, Prediction
from match_graph.predict.summary import list_files, next_commands, show_examples
from match_graph.runs import Run
from match_graph.runs.measures import ABOUT_POLICY
from match_graph.runs.readers import read_record
from match_graph.runs.record import list_twins

_MEASURES = ("P@1", "P@3", "P@5", "NDCG@1", "NDCG@3", "NDCG@5")
#: Marks of predicted labels by whether they are gold; none where gold labels are unknown.
_MARKS = {True: "right  ", False: "wrong  ", None: ""}


def print_quality(quality: Mapping[str, Any]) -> None:
    """Prints ranks of held-out pairs and nearest neighbours, from `Pretraining.evaluate`."""
    console = SafeConsole()
    columns = ("mrr", "mrr_filtered", "satisfied", "pairs", "candidates")
    rows = []
    for node_type, values in quality["types"].items():
        row = [values[name] for name in columns]
        shown = [f"{value:.4f}" if isinstance(value, float) else f"{value:,}" for value in row]
        rows.append([node_type, *shown])
    names = [name.replace("_", " ") for name in columns]
    print_table(["document and", *names], rows, "Held-out pairs")
    for node_type, neighbours in quality["neighbours"].items():
        for name, near in neighbours.items():
            console.print(f"{node_type} {name}: {', '.join(near)}", soft_wrap=True)


def print_metrics(run: Run) -> None:
    """Prints a run's measures beside the label prior, F1 at thresholds and calibration error."""
    metrics = run.read_metrics()
    rows = dict(metrics)
    if "test" in metrics:
        rows["test, label prior"] = run.prior("test")
    console = SafeConsole()
    console.print(_make_table("", rows))
    trust = metrics.get("test", {})
    if "F1_micro" in trust:
        console.print(
            f"test, at the thresholds chosen on valid: F1 {trust['F1_micro']:.4f} (micro), "
            f"{trust['F1_macro']:.4f} (macro); calibration error of the 5 best labels "
            f"{trust['ECE@5']:.4f}, of all {trust['ECE']:.4f}",
            soft_wrap=True,
        )
    for line in (ABOUT_POLICY, *list_twins(read_record(run.folder))):
        console.print(line, soft_wrap=True)


def print_runs(runs: Sequence[Run]) -> None:
    """Prints the measures of runs with different seeds, their mean and deviation, and folders."""
    console = SafeConsole(highlight=False, soft_wrap=True)
    found = [run.read_metrics() for run in runs]
    for split in found[0]:
        rows = {f"seed {run.config.seed}": one[split] for run, one in zip(runs, found, strict=True)}
        table = _make_table(split, rows)
        values = [[metrics[split][name] for metrics in found] for name in _MEASURES]
        table.add_section()
        table.add_row("mean", *(f"{fmean(one):.4f}" for one in values))
        table.add_row("deviation", *(f"{stdev(one):.4f}" for one in values))
        console.print(table)
    for line in (ABOUT_POLICY, *list_twins(read_record(runs[0].folder))):
        console.print(line)
    for run in runs:
        console.print(Text(str(run.shown)))


def print_measures(measures: Mapping[str, float]) -> None:
    """Prints the main measures of `evaluate_files`."""
    console = SafeConsole()
    console.print(_make_table("", {"files": measures}))
    console.print(ABOUT_POLICY, soft_wrap=True)


def print_examples(run: Run) -> None:
    """Prints a few test documents with their gold and predicted labels."""
    console = SafeConsole(highlight=False)
    for example in show_examples(run):
        gold = set(example.gold)
        console.rule(Text(example.document), align="left")
        console.print(Text(example.text))
        for field, values in example.metadata.items():
            shown = ", ".join(values[:5]) + (", ..." if len(values) > 5 else "")
            console.print(Text(f"{field}: {shown or '-'}", style="dim"))
        console.print(Text(f"gold: {', '.join(map(example.show, sorted(gold)))}"))
        for label, probability in example.predicted:
            mark = "right" if label in gold else "wrong"
            console.print(Text(f"  {probability:.3f}  {mark}  {example.show(label)}"))
    console.rule(align="left")


def print_paths(run: Run) -> None:
    """Prints the files of the run folder, and what to run next."""
    console = SafeConsole(highlight=False, soft_wrap=True)
    console.print("Written:")
    for path, content in list_files(run.shown).items():
        console.print(Text(f"  {path}  ({content})"))
    console.print("Next:")
    for command in next_commands(run):
        console.print(Text(f"  {command}"))


def print_case_study(study: CaseStudy) -> None:
    """Prints a document with each variant's predictions and their evidence."""
    console = SafeConsole(highlight=False, soft_wrap=True)
    console.rule(Text(f"{study.document} ({study.split} of {study.dataset})"), align="left")
    console.print(Text(study.text))
    for field in study.metadata:
        console.print(Text(f"{field}: {study.show_metadata(field)}", style="dim"))
    for label in study.gold:
        above = f", below {study.show_labels(label.parents)}" if label.parents else ""
        console.print(Text(f"gold: {label.shown}{above}"))
    for variant in study.variants:
        without = "".join(f", {name}" for name in variant.ablation)
        console.rule(
            Text(f"{variant.run}: {variant.encoder}{without}, seed {variant.seed}"), align="left"
        )
        for prediction in variant.predictions:
            mark = _MARKS[prediction.is_right]
            console.print(Text(f"  {prediction.probability:.3f}  {mark}{prediction.shown}"))
            for line in _explain(prediction):
                console.print(Text(f"      {line}", style="dim"))
        for missed in variant.missed:
            console.print(
                Text(f"  {missed.probability:.3f}  missed, rank {missed.rank}  {missed.shown}")
            )
    console.rule(align="left")


def _explain(prediction: Prediction, number: int = 3) -> Iterator[str]:
    """Lines on metadata, words and parents of a prediction."""
    yield prediction.verdict
    for one in prediction.metadata[:number]:
        parts = [f"left out {-one.effect:+z.2f}"]
        parts += [] if one.attention is None else [f"attention {one.attention:.3f}"]
        parts += [] if one.linear is None else [f"linear {one.linear:+z.2f}"]
        unknown = "" if one.is_known else " (unknown in training)"
        yield f"{one}{unknown}: {', '.join(parts)}"
    if prediction.words:
        added = ", ".join(f"{one.word} {one.linear:+z.2f}" for one in prediction.words)
        yield f"words, linear: {added}"
    for pull in prediction.parents:
        pulls = ", pulls most" if pull.parent == prediction.pulled_by else ""
        yield f"parent {pull.shown} {pull.probability:.3f}, terms {pull.total:.2g}{pulls}"


def _make_table(title: str, rows: Mapping[str, Mapping[str, float]]) -> Table:
    """Table of the main measures, a row for each name."""
    table = Table(title, *_MEASURES)
    for name, values in rows.items():
        table.add_row(name, *(f"{values[measure]:.4f}" for measure in _MEASURES))
    return table
