"""The whole page: one file with its style and its script, and a policy that forbids any network."""

import base64
import hashlib
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rltune.report.figures.draw import has_matplotlib
from rltune.report.html.budget import budget_of
from rltune.report.html.gather import Evidence
from rltune.report.html.lineage import lineage_of
from rltune.report.html.proof import proof_of, verdict_of
from rltune.report.html.provenance import head_of, source_of
from rltune.report.html.replay_cards import replays_of_page
from rltune.report.html.results import MOST_OPEN, results_of
from rltune.report.html.trials import trial_places, trials_table
from rltune.report.html.warnings import warnings_of
from rltune.report.markdown import shown
from rltune.report.render import plural


def page(evidence: Evidence) -> str:
    """Return the page: a function of the run folder's files alone."""
    style, script = _package_text("report.css"), _package_text("report.js")
    places = trial_places(evidence.tables.trials)
    templates = environment()
    return templates.get_template("page.html").render(
        policy=_policy(style, script),
        style=Markup(style),
        script=Markup(script),
        title=evidence.folder.title or evidence.folder.name,
        head=head_of(evidence),
        verdict=verdict_of(evidence.audit),
        has_figures=has_matplotlib(),
        most_open=MOST_OPEN,
        results=results_of(evidence, places),
        proof=proof_of(evidence),
        budget=budget_of(evidence.tables),
        replays=replays_of_page(evidence, templates.get_template("replay.html")),
        lineage=lineage_of(
            evidence.lineage, mode=evidence.folder.metric_mode, path=evidence.folder.run.results
        ),
        trials=trials_table(evidence.tables.trials, places),
        warnings=warnings_of(evidence),
        source=source_of(evidence),
    )


@cache
def environment() -> Environment:
    """Return the templates: every text is escaped, and a name that is not given is an error."""
    made = Environment(
        loader=PackageLoader("rltune.report.html"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.globals["plural"] = plural
    made.filters["unbroken"] = _unbroken
    return made


def _finalize(value: Any) -> Any:
    return shown(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _unbroken(text: str) -> str:
    """Return a text that is not broken before a percent sign or around an equals sign."""
    return text.replace(" %", "\u00a0%").replace(" = ", "\u00a0=\u00a0")


def _package_text(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8").strip()


def _policy(style: str, script: str) -> str:
    """Return the content policy: no network, and no script or style but the page's own."""
    return (
        f"default-src 'none'; img-src data:; style-src {_digest(style)}; "
        f"script-src {_digest(script)}; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
