"""How the page looks and the few lines that make its charts answer to the pointer.

The shell of every page: complete in itself, and forbidden to load anything.

The page: one file that opens anywhere, asks nothing of the network, and can be sent to a colleague.

The page over several runs that differ in their seed: their figures together, and a link to each one's own page.
"""

import os
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from splitpu.report import outcome
from splitpu.report import outcome as judging
from splitpu.report import training_section as predictions
from splitpu.report import training_section as training
from splitpu.report.contents import ReportData, escape, facts, name
from splitpu.report.outcome import figures
from splitpu.utils.files import write_text

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fcfcfa; --card: #f3f4f1; --ink: #1d2530; --muted: #566070; --rule: #dcdfe0; --grid: #e6e8e8;
  --rest: #e1e4e6; --below: #84909d; --alert: #8a4b00; --alert-paper: #fdf3e3; --link: #1a5fa0;
  --s0: #2368a8; --s1: #c2590c; --s2: #18795e; --s3: #8643a6; --s4: #96690a; --s5: #b3325e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14181d; --card: #1d232a; --ink: #e7eaee; --muted: #a3adb9; --rule: #323a43; --grid: #262d35;
    --rest: #2e3640; --below: #6b7783; --alert: #f2bd70; --alert-paper: #2d2415; --link: #83bdf2;
    --s0: #66abeb; --s1: #f0954e; --s2: #4fbf9d; --s3: #c791e4; --s4: #d9b04c; --s5: #ee86a8;
  }
}
@media print {
  :root {
    color-scheme: light;
    --paper: #fff; --card: #f5f5f5; --ink: #000; --muted: #444; --rule: #bbb; --grid: #ddd;
    --rest: #ddd; --below: #888; --alert: #663800; --alert-paper: #fff; --link: #000;
    --s0: #2368a8; --s1: #c2590c; --s2: #18795e; --s3: #8643a6; --s4: #96690a; --s5: #b3325e;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body {
  margin: 0; background: var(--paper); color: var(--ink); overflow-wrap: anywhere;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
main, header, footer { max-width: 60rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 2.5rem; }
h1 { font-size: 1.05rem; font-weight: 600; color: var(--muted); margin: 0 0 .75rem; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 0 0 .75rem; }
h3 { font-size: 1rem; margin: 1.75rem 0 .35rem; }
p { margin: 0 0 .9rem; max-width: 42rem; }
section { padding: 2.25rem 0 0; }
section + section { margin-top: 2.25rem; border-top: 1px solid var(--rule); }
.answer {
  font-size: clamp(1.25rem, 1rem + 1.4vw, 1.7rem); line-height: 1.4; max-width: 50rem; margin: 0 0 1.25rem;
  text-wrap: pretty;
}
nav { display: flex; flex-wrap: wrap; gap: .25rem 1.1rem; font-size: .92rem; }
a { color: var(--link); text-underline-offset: .2em; }
nav a { text-decoration: none; padding: .2rem 0; }
nav a:hover { text-decoration: underline; }
a:focus-visible, summary:focus-visible { outline: 2px solid var(--link); outline-offset: 3px; border-radius: 2px; }
.warnings {
  margin: 1.75rem 0 0; padding: .9rem 1.1rem; color: var(--ink); background: var(--alert-paper);
  border: 0; border-left: 4px solid var(--alert); border-radius: 4px;
}
.warnings h2 { font-size: 1rem; color: var(--alert); margin: 0 0 .3rem; }
.warnings ul { margin: 0; padding-left: 1.2rem; }
.note, figcaption { color: var(--muted); font-size: .88rem; }
.note.tight { margin: .9rem 0 .2rem; }
.facts {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 17rem), 1fr)); gap: 0 2rem; margin: 0;
}
.facts div {
  display: flex; justify-content: space-between; gap: 1rem; padding: .42rem 0; border-bottom: 1px solid var(--rule);
}
.facts dt { color: var(--muted); flex: none; max-width: 55%; }
.facts dd { margin: 0; text-align: right; min-width: 0; }
.trio { display: flex; flex-wrap: wrap; gap: .25rem 1.75rem; margin: 0 0 1rem; }
.trio div { display: flex; gap: .45rem; }
.trio dt { color: var(--muted); }
.trio dd { margin: 0; font-weight: 600; }
table { border-collapse: collapse; width: 100%; margin: 0 0 .75rem; }
th, td { text-align: left; padding: .5rem .75rem .5rem 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
th { font-weight: 500; }
th:last-child, td:last-child { padding-right: 0; }
thead th { color: var(--muted); font-size: .88rem; border-bottom-color: var(--muted); overflow-wrap: normal; }
.number { text-align: right; white-space: nowrap; }
thead .number { white-space: normal; }
td, dd, .chart text, .gallery { font-variant-numeric: tabular-nums; }
.values { padding-left: 1rem; }
.value { display: inline-block; color: var(--muted); margin-right: .8rem; }
.value b { color: var(--ink); font-weight: 500; }
code { font-size: .88em; background: var(--card); padding: .1em .3em; border-radius: 3px; }
.steps { margin: 0; padding-left: 1.2rem; max-width: 46rem; }
.steps li { margin: 0 0 .5rem; }
figure { margin: 0; min-width: 0; }
figcaption { margin-top: .15rem; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 1.25rem 2.5rem; }
.pair > * { min-width: 0; max-width: 27rem; }
.pair + .pair { margin-top: 1.25rem; }
.kinds, .panels {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 17rem), 1fr)); gap: 1.25rem 1.75rem;
}
.panels > * { max-width: 24rem; }
.many { grid-column: 1 / -1; }
.chart { display: block; width: 100%; height: auto; overflow: visible; font-size: 12px; }
.chart text { fill: var(--muted); }
.chart .label { fill: var(--ink); }
.chart .strong { fill: var(--ink); font-weight: 500; }
.chart .halo { paint-order: stroke; stroke: var(--paper); stroke-width: 4px; stroke-linejoin: round; }
.grid { stroke: var(--grid); stroke-width: 1; }
.axis { stroke: var(--muted); stroke-width: 1; }
.mark { stroke: var(--ink); stroke-width: 1.25; }
.dashed { stroke-dasharray: 4 3; }
.cross { stroke: var(--muted); stroke-width: 1; visibility: hidden; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.line.s0 { stroke: var(--s0); }
.line.s1 { stroke: var(--s1); stroke-dasharray: 6 4; }
.line.s2 { stroke: var(--s2); stroke-dasharray: 1.5 4; }
.line.s3 { stroke: var(--s3); stroke-dasharray: 9 3 1.5 3; }
.line.s4 { stroke: var(--s4); }
.line.s5 { stroke: var(--s5); stroke-dasharray: 6 4; }
.fill.s0 { fill: var(--s0); } .fill.s1 { fill: var(--s1); } .fill.s2 { fill: var(--s2); }
.fill.s3 { fill: var(--s3); } .fill.s4 { fill: var(--s4); } .fill.s5 { fill: var(--s5); }
.below { fill: var(--below); }
.rest { fill: var(--rest); }
.gallery { display: grid; grid-template-columns: repeat(auto-fill, minmax(6.4rem, 1fr)); gap: 1.1rem .9rem; }
.gallery img {
  display: block; width: 100%; aspect-ratio: 1; object-fit: contain; background: var(--card); border-radius: 4px;
}
.pixelated { image-rendering: pixelated; }
.gallery figcaption { font-size: .78rem; line-height: 1.4; margin-top: .35rem; }
.gallery span { display: block; }
.gallery .name {
  color: var(--ink); overflow: hidden;
  display: -webkit-box; -webkit-line-clamp: 2; -webkit-box-orient: vertical;
}
summary { cursor: pointer; color: var(--link); }
pre {
  margin: .75rem 0 0; padding: 1rem; background: var(--card); border-radius: 4px; font-size: .84rem; line-height: 1.5;
  white-space: pre-wrap;
}
footer { padding-top: 2.5rem; padding-bottom: 2.5rem; color: var(--muted); font-size: .85rem; }
#tip {
  position: fixed; left: 0; top: 0; z-index: 1; pointer-events: none; max-width: 16rem; padding: .3rem .55rem;
  background: var(--ink); color: var(--paper); border-radius: 4px;
  font-size: .8rem; line-height: 1.4; white-space: pre-line;
}
@media (max-width: 40rem) {
  header { padding-top: 1.5rem; }
  main, header, footer { padding-left: 1rem; padding-right: 1rem; }
  .stacks, .stacks tbody, .stacks tr, .stacks th, .stacks td { display: block; }
  .stacks thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .stacks tr { padding: .5rem 0 .6rem; border-bottom: 1px solid var(--rule); }
  .stacks th[scope=row] { font-weight: 600; padding: 0 0 .2rem; border: 0; }
  .stacks td {
    display: flex; justify-content: space-between; gap: 1rem; padding: .14rem 0; border: 0; white-space: normal;
  }
  .stacks td::before { content: attr(data-label); color: var(--muted); }
  .stacks td.values { display: block; }
  .stacks td.values { padding-left: 0; }
  .stacks td.values::before { content: none; }
  .value { display: flex; justify-content: space-between; gap: 1rem; margin: 0; padding: .1rem 0; }
  .gallery { grid-template-columns: repeat(3, minmax(0, 1fr)); }
}
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
@media print {
  body { font-size: 10pt; }
  nav, #tip { display: none; }
  main, header, footer { max-width: none; padding-left: 0; padding-right: 0; }
  section { padding-top: 1rem; }
  section + section { margin-top: 1rem; }
  figure, tr, .pair, .facts div, .warnings { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
  details::details-content { content-visibility: visible; block-size: auto; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
}
"""

# The page is complete without this: it only names the values under the pointer and unfolds everything for the printer.
# Text from the page is only ever written as text, never as markup.
SCRIPT = """
(function () {
  var tip = document.createElement('div');
  tip.id = 'tip'; tip.hidden = true; tip.setAttribute('aria-hidden', 'true');
  document.body.appendChild(tip);
  function numbers(text) { return text.split(' ').map(Number); }
  document.querySelectorAll('svg[data-frame]').forEach(function (chart) {
    var frame = numbers(chart.dataset.frame), lines = Array.from(chart.querySelectorAll('g[data-x]'));
    var series = lines.map(function (g) {
      return { name: g.dataset.name, x: numbers(g.dataset.x), y: numbers(g.dataset.y) };
    });
    var epochs = Array.from(new Set([].concat.apply([], series.map(function (s) { return s.x; }))));
    var cross = document.createElementNS(chart.namespaceURI, 'line');
    cross.setAttribute('class', 'cross');
    cross.setAttribute('y1', frame[4]); cross.setAttribute('y2', frame[5]);
    chart.appendChild(cross);
    function hide() { tip.hidden = true; cross.style.visibility = 'hidden'; }
    chart.addEventListener('pointerleave', hide);
    chart.addEventListener('pointermove', function (event) {
      var box = chart.getBoundingClientRect();
      var at = (event.clientX - box.left) * chart.viewBox.baseVal.width / box.width;
      var wanted = frame[2] + (at - frame[0]) / (frame[1] - frame[0]) * (frame[3] - frame[2]);
      if (!epochs.length) { return hide(); }
      var x = epochs.reduce(function (a, b) { return Math.abs(b - wanted) < Math.abs(a - wanted) ? b : a; });
      var text = series.map(function (s) {
        var y = s.y[s.x.indexOf(x)];
        return y === undefined ? '' : '\\n' + s.name + ': ' + (isNaN(y) ? 'no value' : Number(y.toPrecision(4)));
      });
      tip.textContent = chart.dataset.across + ' ' + Number(x.toPrecision(4)) + text.join('');
      tip.hidden = false;
      var place = frame[0] + (x - frame[2]) / (frame[3] - frame[2]) * (frame[1] - frame[0]);
      cross.setAttribute('x1', place); cross.setAttribute('x2', place); cross.style.visibility = 'visible';
      var left = Math.min(event.clientX + 14, document.documentElement.clientWidth - tip.offsetWidth - 8);
      tip.style.transform = 'translate(' + Math.max(left, 8) + 'px,' + (event.clientY + 16) + 'px)';
    });
  });
  addEventListener('beforeprint', function () {
    document.querySelectorAll('details').forEach(function (details) { details.open = true; });
  });
})();
"""


def document(title: str, header: str, main: str, more_style: str = "") -> str:
    """A whole HTML page; `header` and `main` are HTML already, the title is text."""
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{STYLE}{more_style}</style></head><body><header>{header}</header>"
        f"<main>{main}</main><footer>Written by splitpu. This page is complete in itself and loads nothing.</footer>"
        f"<script>{SCRIPT}</script></body></html>\n"
    )


def section(anchor: str, title: str, content: str) -> str:
    """One part of a page under its heading; all three are HTML already."""
    return (
        f'<section id="{anchor}" aria-labelledby="{anchor}-title">'
        f'<h2 id="{anchor}-title">{title}</h2>{content}</section>'
    )


def warnings_box(warnings: Sequence[str]) -> str:
    """What comes before everything else on a page, if there is something to warn of; the warnings are text."""
    if not warnings:
        return ""
    items = "".join(f"<li>{name(warning)}</li>" for warning in warnings)
    title = "Warning" if len(warnings) == 1 else "Warnings"
    heading = f'<h2 id="warnings-title">{title}</h2>'
    return f'<aside class="warnings" aria-labelledby="warnings-title">{heading}<ul>{items}</ul></aside>'


def _policy() -> str:
    """Forbid the network and every script but our own, in case a name should ever slip past the escaping."""
    digest = b64encode(sha256(SCRIPT.encode("utf-8")).digest()).decode("ascii")
    return f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def render(report: ReportData) -> str:
    """Draw the whole page as HTML text."""
    sections = _sections(report)
    links = "".join(f'<a href="#{anchor}">{anchor.capitalize()}</a>' for anchor, _, _ in sections)
    header = (
        f'<h1>{name(report.title)}</h1><p class="answer">{outcome.headline(report)}</p>'
        f'<nav aria-label="Sections">{links}</nav>{warnings_box(report.warnings)}'
    )
    return document(report.title, header, "".join(section(*parts) for parts in sections))


def write_report(path: str | os.PathLike[str], report: ReportData) -> None:
    """Write the page in one move, so that nobody ever opens half of it."""
    write_text(Path(path), render(report))


def _sections(report: ReportData) -> list[tuple[str, str, str]]:
    """List anchor, title and content of every section, in reading order."""
    splits = "".join(training.split(round_report) for round_report in report.rounds)
    environment = facts([(label, value) for label, value in report.environment.items()])
    configuration = (
        f"<details><summary>Show the configuration (TOML)</summary><pre>{escape(report.config_text)}</pre></details>"
    )
    sections = [
        ("question", "What was asked", outcome.asked(report)),
        ("outcome", "What came out", outcome.figures(report.figures)),
        ("next", "What to do next", outcome.next_steps(report)),
        ("split", "Easy and hard", splits or "<p>No round was run: the base model is the result.</p>"),
        ("samples", "Hardest and easiest samples", _galleries(report)),
        ("probabilities", "Probabilities on the unlabelled", predictions.spread(report)),
        *judging.sections(report),
        ("curves", "Training curves", training.curves(report.history)),
        ("configuration", "Configuration", configuration),
        ("environment", "Environment", environment),
    ]
    # Only Split-PU tells easy from hard samples.
    others_lack = () if report.method == "Split-PU" else ("split", "samples")
    return [section for section in sections if section[0] not in others_lack]


def _galleries(report: ReportData) -> str:
    if not report.easiest and not report.hardest:
        return "<p>No samples were kept to be shown.</p>"
    words = (
        "Probabilities of being positive, as the last teacher (the model before the final one) and the final "
        "student see them. The hard samples begin with those on which the two differ most or the student "
        "cannot decide, the easy ones with those it is surest of."
    )
    if report.rounds and not report.rounds[-1].taken:
        words = (
            "Probabilities of being positive, both times as the final model sees them: it is the last teacher, whose "
            "student was not taken. The hard samples begin with those on which it cannot decide, the easy ones with "
            "those it is surest of."
        )
    if report.calibrated:
        words += " All of them are calibrated by the map of the final model, so that they can be compared."
    return (
        f"<p>{words}</p>"
        f"<h3>Hardest</h3>{predictions.gallery(report.hardest)}<h3>Easiest</h3>{predictions.gallery(report.easiest)}"
    )


def render_seeds(
    title: str,
    means: Sequence[Mapping[str, Any]],
    runs: Sequence[Mapping[str, Any]],
    pages: Mapping[str, str],
    warnings: Sequence[str],
) -> str:
    """Draw the page: rows of means and deviations, rows of the final models seed by seed, and pages by their name.

    Warnings of the runs come first, as on their own pages.
    """
    links = "".join(f'<li><a href="{escape(path)}">{name(label)}</a></li>' for label, path in pages.items())
    header = f'<h1>{name(title)}</h1><p class="answer">{len(runs)} runs that differ in their seed.</p>'
    header += warnings_box(warnings)
    parts = [
        section("figures", "Mean and standard deviation over the seeds", figures(means)),
        section("seeds", "The final model of every seed", figures(runs)),
        section("reports", "Reports", f"<ul>{links}</ul>"),
    ]
    return document(title, header, "".join(parts))
