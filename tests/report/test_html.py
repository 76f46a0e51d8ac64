"""Pages of real runs in headless Chromium: two widths, a silent console; hostile text is text."""

import html
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from match_graph import Run, start_run
from match_graph.cli import main
from match_graph.errors import ConfigError
from match_graph.report import write_report
from match_graph.testing import toy_documents, write_match_folder

HOSTILE = "<script>document.title='hit'</script>"
WIDTHS = (390, 1280)
#: Frames of some widths that hold the page, and what a script outside them sees in it.
HARNESS = """<!DOCTYPE html><body>{frames}<pre></pre><script>
onload = () => document.querySelector("pre").textContent = JSON.stringify(
  [...document.querySelectorAll("iframe")].map(frame => {{
    const page = frame.contentDocument, root = page.documentElement;
    page.querySelectorAll("details").forEach(one => one.open = true);
    return {{
      overflow: root.scrollWidth - root.clientWidth, width: root.clientWidth,
      scripts: page.scripts.length, title: page.title, text: page.body.textContent,
      small: [...page.querySelectorAll("figure > svg text")]
        .filter(text => text.getBoundingClientRect().height < 9).length,
      outside: [...page.querySelectorAll("figure > svg")]
        .filter(svg => svg.getBoundingClientRect().right > root.clientWidth).length,
    }};
  }}));
</script>"""


@pytest.fixture(scope="module")
def hostile_run(tmp_path_factory: pytest.TempPathFactory, small_settings) -> Run:
    """A fitted run whose documents, metadata and labels are markup."""
    folder = tmp_path_factory.mktemp("hostile")
    documents = toy_documents()
    for records in documents.values():
        for record in records:
            record["text"] = f"{HOSTILE} {record['text']}"
            record["author"] = [*record["author"], "<img_src=x_onerror=alert(1)>"]
            record["label"] = [*record["label"], "<b>&amp;"]
    data = write_match_folder(folder / "data", documents)
    settings = small_settings("data.options={}", "model.encoder=tfidf_linear", "data.min_count=1")
    model = settings.model.model_copy(update={"encoder_config": {}})
    config = settings.model_copy(update={"model": model})
    run = start_run(str(data), config, folder / "run & <i>co", folder / "root")
    run.train()
    run.evaluate()
    return run


@pytest.fixture(scope="module")
def chromium() -> str:
    """The browser; Debian's package is `chromium`."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium; install Debian's package chromium")
    return found


def browse(chromium: str, path: Path, folder: Path) -> tuple[str, list[str]]:
    """Document as rendered by the browser, and its console messages."""
    done = subprocess.run(
        [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
         f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=5000", "--dump-dom",
         path.resolve().as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return done.stdout, re.findall(r"CONSOLE.*", done.stderr)


def look(chromium: str, page: Path, folder: Path) -> list[dict]:
    """What the page shows at both widths."""
    source = html.escape(page.read_text(encoding="utf-8"), quote=True)
    frames = "".join(
        f'<iframe srcdoc="{source}" style="width:{width}px;height:800px;border:0"></iframe>'
        for width in WIDTHS
    )
    harness = folder / "harness.html"
    harness.write_text(HARNESS.format(frames=frames), encoding="utf-8")
    found, console = browse(chromium, harness, folder)
    assert console == []
    text = re.search(r"<pre>(.*?)</pre>", found, re.DOTALL)
    assert text is not None
    return json.loads(html.unescape(text[1]))


@pytest.mark.parametrize("name", ["hostile_run", "trained_run", "benchmark"])
def test_write_report_in_a_browser(
    name: str,
    request: pytest.FixtureRequest,
    chromium: str,
    benchmark_folder: Path,
    trained_run: Run,
    tmp_path: Path,
) -> None:
    """No console message, no overflow, no script, legible figures; at the width of a phone too."""
    run: Run = trained_run if name == "benchmark" else request.getfixturevalue(name)
    folder, root = benchmark_folder if name == "benchmark" else run.folder, run.dataset.root
    path = write_report(folder, tmp_path / "page.html", root=root, device="cpu")
    _, console = browse(chromium, path, tmp_path)
    assert console == []
    for width, seen in zip(WIDTHS, look(chromium, path, tmp_path), strict=True):
        assert abs(seen["width"] - width) <= 20  # a scroll bar
        assert seen["overflow"] <= 0
        assert seen["scripts"] == seen["small"] == seen["outside"] == 0
        assert seen["title"].endswith("trial" if name == "benchmark" else "seed 0")
        if name == "hostile_run":
            assert HOSTILE in seen["text"]
            assert "<img_src=x_onerror=alert(1)>" in seen["text"]
            assert "<b>&amp;" in seen["text"]
            assert "run & <i>co" in seen["text"]


def test_the_check_tells_right_from_wrong(chromium: str, tmp_path: Path) -> None:
    """The check finds a page that is too wide, runs a script or breaks its policy."""
    path = tmp_path / "page.html"
    path.write_text(
        "<title>x</title><div style='width:1000px'>y</div><figure><svg width='1000'><text "
        "font-size='5'>z</text></svg></figure><script>document.title = 'hit'</script>"
    )
    phone, screen = look(chromium, path, tmp_path)
    assert (phone["scripts"], phone["small"], phone["outside"], phone["title"]) == (1, 1, 1, "hit")
    assert phone["overflow"] > 500
    assert screen["overflow"] <= 0
    path.write_text("<script>console.error('wrong')</script>")
    assert "wrong" in browse(chromium, path, tmp_path)[1][0]


def test_write_report_hostile_text_is_escaped_without_a_browser(
    hostile_run: Run, tmp_path: Path
) -> None:
    """Markup in users' texts is never markup of the page."""
    root = hostile_run.dataset.root
    path = write_report(hostile_run.folder, tmp_path / "page.html", root=root, device="cpu")
    text = path.read_text(encoding="utf-8")
    assert html.escape(HOSTILE).replace("&#x27;", "&#39;") in text
    for markup in ("<script", "<img", "<b>", "<i>"):
        assert markup not in text


def test_write_report_benchmark_is_told_from_a_run(
    benchmark_folder: Path, trained_run: Run, tmp_path: Path
) -> None:
    """A folder with results.json is a benchmark, whose rows are compared, not other runs."""
    path = write_report(benchmark_folder, tmp_path / "page.html", num_documents=0)
    assert "<h1>trial</h1>" in path.read_text(encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        write_report(benchmark_folder, against=[trained_run.folder])
    assert str(caught.value) == (
        f"The case studies of a benchmark compare its own rows, but other runs are given for "
        f"'{benchmark_folder}'; leave out --against."
    )
    with pytest.raises(ConfigError) as caught:
        write_report(trained_run.folder, rows=["MATCH"])
    assert str(caught.value) == (
        f"Rows must be those of a benchmark, but '{trained_run.folder}' is a run and has no row "
        f"'MATCH'; leave out --row, or name other runs with --against."
    )


def test_write_report_by_the_command(
    trained_run: Run,
    benchmark_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys,
) -> None:
    """Into the run folder, or where --out says; a folder or row that is unknown is one sentence."""

    def call(*arguments: str) -> tuple[int, str, str]:
        line = ["match-graph", "report", *arguments, "--root", trained_run.dataset.root]
        monkeypatch.setattr(sys, "argv", line)
        with pytest.raises(SystemExit) as exit_:
            main()
        out, err = capsys.readouterr()
        return int(exit_.value.code or 0), out, err

    folder = Path(shutil.copytree(trained_run.folder, tmp_path / "run"))
    code, out, err = call(str(folder), "--num-documents", "0", "--device", "cpu")
    assert (code, out, err) == (0, f"{folder / 'report.html'}\n", "")
    target = tmp_path / "deep" / "page.html"
    assert call(str(folder), "--num-documents", "0", "--out", str(target))[0] == 0
    assert target.read_bytes() == (folder / "report.html").read_bytes()
    rows = ("--row", "BertXML", "--row", "MATCH <b>", "--num-documents", "1", "--device", "cpu")
    assert call(str(benchmark_folder), *rows, "--out", str(target))[0] == 0
    assert "Shown: BertXML, MATCH &lt;b&gt;; 2 of 3 rows" in target.read_text(encoding="utf-8")
    code, out, err = call(str(benchmark_folder), "--row", "no row", "--out", str(target))
    assert (code, out) == (1, "")
    assert err.startswith("Error: A row of case studies must be one of the benchmark")
    code, out, err = call(str(tmp_path))
    assert (code, out) == (1, "")
    assert err.startswith("Error: ")
